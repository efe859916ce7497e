"""Says which installed packages do not fit together, as their own requirements have it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import metadata
from itertools import zip_longest
from typing import Any, Final

from otel_train.lineage.packages import installed_packages

_REQUIREMENT: Final = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:\[[^]]*\])?\s*\(?([^;()]*)\)?\s*(;.*)?")
_CLAUSE: Final = re.compile(r"\s*(~=|===?|!=|<=|>=|<|>)\s*([^\s,]+)\s*")
_PARTS: Final = re.compile(r"(?:\d+!)?v?(\d+(?:\.\d+)*)(?:[-_.]?(a|b|rc|alpha|beta|dev|post)[-_.]?(\d*))?")
# What comes before a release, and what after it.
_RANKS: Final = {"dev": -4, "a": -3, "alpha": -3, "b": -2, "beta": -2, "rc": -1, "": 0, "post": 1}


@dataclass(frozen=True, slots=True)
class Misfit:
    """`package` is installed as `version` (empty: not at all), where `wanted_by` wants `wanted`."""

    package: str
    version: str
    wanted: str
    wanted_by: str


def misfits(names: Iterable[str], distributions: Iterable[Any] | None = None) -> list[Misfit]:
    """Return what the packages of these names, as far as they are installed, want otherwise of any package.

    Requirements of an extra, and those for other systems or Pythons, are passed over.
    """
    found = list(metadata.distributions() if distributions is None else distributions)
    versions, _ = installed_packages(found)
    wanted = {_plain(name) for name in names}
    seen: set[str] = set()
    result: list[Misfit] = []
    for distribution in found:
        name = _plain(distribution.metadata["Name"] or "")
        if name not in wanted or name in seen:
            continue
        seen.add(name)
        result += [misfit for text in distribution.requires or () if (misfit := _judge(text, name, versions))]
    return sorted(result, key=lambda misfit: (misfit.package, misfit.wanted_by))


def _judge(requirement: str, by: str, versions: Mapping[str, str]) -> Misfit | None:
    match = _REQUIREMENT.match(requirement)
    if match is None or match[3]:
        return None
    package, wanted = _plain(match[1]), match[2].strip()
    version = versions.get(package)
    if version is None:
        return Misfit(package, "", wanted, by)
    return None if fits(version, wanted) else Misfit(package, version, wanted, by)


def fits(version: str, wanted: str) -> bool:
    """Tell whether a version is within clauses such as ``>=1.45,<2``; a clause that cannot be read is met."""
    for clause in filter(None, map(str.strip, wanted.split(","))):
        match = _CLAUSE.fullmatch(clause)
        if match and not _meets(version, match[1], match[2]):
            return False
    return True


def _meets(version: str, sign: str, limit: str) -> bool:
    if limit.endswith(".*"):
        prefix = limit[:-2].split(".")
        same = version.split(".")[: len(prefix)] == prefix
        return same if sign == "==" else not same
    own, other = _key(version), _key(limit)
    if own is None or other is None:
        return True
    order = _compare(own, other)
    if sign == "~=":
        prefix = limit.split(".")[:-1]
        return order >= 0 and version.split(".")[: len(prefix)] == prefix
    return {
        "==": order == 0,
        "===": version == limit,
        "!=": order != 0,
        "<=": order <= 0,
        ">=": order >= 0,
        # A pre-release of the limit is not below it.
        "<": order < 0 and not (own[1][0] < 0 and own[0] == other[0]),
        ">": order > 0,
    }[sign]


_Key = tuple[tuple[int, ...], tuple[int, int]]


def _key(version: str) -> _Key | None:
    match = _PARTS.match(version.strip().lower())
    if match is None:
        return None
    numbers = [int(part) for part in match[1].split(".")]
    while numbers and not numbers[-1]:
        numbers.pop()
    return tuple(numbers), (_RANKS[match[2] or ""], int(match[3] or 0))


def _compare(one: _Key, other: _Key) -> int:
    for left, right in zip_longest(one[0], other[0], fillvalue=0):
        if left != right:
            return 1 if left > right else -1
    return (one[1] > other[1]) - (one[1] < other[1])


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
