"""Gives each line of a chart its colour and its dash: colours tell what lines are of, dashes their splits."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from otel_train.semconv import AXIS, SPLIT
from otel_train.view.series import Series

SPLITS = ("train", "val", "test")
DASHES = {"train": "solid", "": "solid", "val": "dash", "test": "dot"}
OTHER_DASHES = ("dashdot", "longdash", "longdashdot")
COLOURS = 8


@dataclass(frozen=True, slots=True)
class Ink:
    """The role of a line, which decides its colour, and its dash; "" for that of its place among the lines."""

    role: str
    dash: str = ""


def split_order(split: str) -> int:
    """Return where a split stands among others: train, val, test, then the rest."""
    return SPLITS.index(split) if split in SPLITS else len(SPLITS)


def role_of_split(split: str, splits: Sequence[str]) -> str:
    """Return the role of a split: its own on every page, or of other names one by the place among `splits`."""
    if split in SPLITS:
        return split
    others = sorted({one for one in splits if one and one not in SPLITS})
    return f"series-{(len(SPLITS) + others.index(split)) % COLOURS}" if split else "value"


def dashes_of(splits: Sequence[str]) -> dict[str, str]:
    """Return the dash of each split; train, val and test have theirs on every page."""
    others = sorted({split for split in splits if split not in DASHES})
    return DASHES | {split: OTHER_DASHES[place % len(OTHER_DASHES)] for place, split in enumerate(others)}


def inks(found: Sequence[Series], *, by_rank: bool = True) -> list[Ink]:
    """Return the ink of each line of one chart.

    Where lines differ in their split alone a colour is a split's; else it is that of all else that tells lines apart,
    of the rank only with `by_rank`. A dash is given where there are several splits.
    """
    splits = [series.split for series in found]
    several = len(set(splits)) > 1
    dashes = dashes_of(splits)
    kinds: dict[Hashable, int] = {}
    for series in found:
        kinds.setdefault(_kind(series, by_rank), len(kinds))
    result = []
    for series in found:
        if len(kinds) == 1:
            role = role_of_split(series.split, splits)
        else:
            role = f"series-{kinds[_kind(series, by_rank)] % COLOURS}"
        result.append(Ink(role, dashes[series.split] if several else ""))
    return result


def _kind(series: Series, by_rank: bool) -> Hashable:
    others = tuple(pair for pair in series.attributes if pair[0] not in (SPLIT, AXIS))
    return series.name, others, series.rank if by_rank else 0
