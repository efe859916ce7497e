"""Tells what changed in configuration, code, data, environment and seed between two attempts of a run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypedDict

from otel_train.lineage.config_diff import diff

_SUMMARY_ITEMS: Final = 4
_CODE_KEYS: Final = ("commit", "branch", "patch_sha256", "root")
_PLATFORM_KEYS: Final = (("python", "version"), ("torch", "version"), ("torch", "cuda"), ("container", "image"))


class Change(TypedDict):
    """One thing that differs; `old` or `new` is None where it was not there."""

    what: str
    key: str
    old: Any
    new: Any


def changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Change]:
    """Return what differs between two attempts, shaped as in run.json: config, environment, seed, and datasets.

    A part that either side does not have (a killed attempt, a part that could not be read) is no change.
    """
    found: list[Change] = []
    if isinstance(old.get("config"), Mapping) and isinstance(new.get("config"), Mapping):
        for row in diff(old["config"], new["config"]):
            found.append({"what": "config", "key": row["key"], "old": row["old"], "new": row["new"]})
    before, after = _mapping(old, "environment"), _mapping(new, "environment")
    found += code_changes(_mapping(before, "code"), _mapping(after, "code"))
    found += dataset_changes(old.get("datasets") or (), new.get("datasets") or ())
    found += _environment_changes(before, after)
    found += _seed_changes(old.get("seed"), new.get("seed"))
    return found


def code_changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Change]:
    """Return what differs between two records of `describe_code`; a patch counts by its digest, untracked files too."""
    if not old or not new:
        return []
    found: list[Change] = []
    for key in _CODE_KEYS:
        # No patch is knowledge where the tree is known to be clean.
        if key == "patch_sha256" and ("dirty" not in old or "dirty" not in new):
            continue
        before, after = old.get(key), new.get(key)
        if before != after and (key == "patch_sha256" or (before is not None and after is not None)):
            found.append(
                {"what": "code", "key": "patch" if key == "patch_sha256" else key, "old": before, "new": after}
            )
    if "dirty" in old and "dirty" in new:
        found += _by_name("code", _untracked(old), _untracked(new))
    return found


def dataset_changes(old: Iterable[Mapping[str, Any]], new: Iterable[Mapping[str, Any]]) -> list[Change]:
    """Return the data sets of one name whose checksum, or without one whose size, differs; only those on both sides.

    The last record of a name counts. A data set that has not been described yet in the new attempt is no change.
    """
    before, after = _by_dataset(old), _by_dataset(new)
    found: list[Change] = []
    for name in sorted(before.keys() & after.keys()):
        for key in sorted(before[name].keys() & after[name].keys()):
            if before[name][key] != after[name][key]:
                label = name if key == "checksum" else f"{name}.{key}"
                found.append({"what": "data", "key": label, "old": before[name][key], "new": after[name][key]})
    return found


def summary(found: Sequence[Change]) -> str:
    """Return one line for people, such as `lr 0.0001 → 5e-05; code 1a2b3c4 → 5d6e7f8; 3 packages`."""
    if not found:
        return "nothing changed"
    parts = [_phrase(change) for change in found if change["what"] in ("config", "code", "data", "seed")]
    others = [change for change in found if change["what"] == "environment"]
    shown = parts[:_SUMMARY_ITEMS]
    if len(parts) > len(shown):
        shown.append(f"{len(parts) - len(shown)} more")
    packages = [change for change in others if change["key"].startswith("packages.")]
    shown += [_phrase(change) for change in others if not change["key"].startswith("packages.")][:_SUMMARY_ITEMS]
    if len(packages) > 2:
        shown.append(f"{len(packages)} packages")
    else:
        shown += [_phrase(change) for change in packages]
    return "; ".join(shown)


def _phrase(change: Change) -> str:
    label = {"code": f"code {change['key']}", "data": f"data {change['key']}"}.get(change["what"], change["key"])
    label = label.removeprefix("packages.").replace("code commit", "code")
    if change["key"] == "patch":
        return "uncommitted changes differ"
    return f"{label} {_short(change['old'])} → {_short(change['new'])}"


def _short(value: object) -> str:
    if value is None:
        return "none"
    text = str(value)
    if len(text) >= 40 and all(character in "0123456789abcdef" for character in text):
        return text[:7]
    return text if len(text) <= 60 else f"{text[:57]}…"


def _environment_changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Change]:
    found: list[Change] = []
    for part, key in _PLATFORM_KEYS:
        before, after = _mapping(old, part).get(key), _mapping(new, part).get(key)
        if before is not None and after is not None and before != after:
            found.append({"what": "environment", "key": f"{part}.{key}", "old": before, "new": after})
    before, after = _mapping(old, "packages"), _mapping(new, "packages")
    if before and after:
        found += _by_name("environment", before, after, "packages.")
    return found


def _seed_changes(old: object, new: object) -> list[Change]:
    before = old.get("seed") if isinstance(old, Mapping) else old
    after = new.get("seed") if isinstance(new, Mapping) else new
    return [] if before == after else [{"what": "seed", "key": "seed", "old": before, "new": after}]


def _by_name(what: str, old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = "") -> list[Change]:
    return [
        {"what": what, "key": f"{prefix}{name}", "old": old.get(name), "new": new.get(name)}
        for name in sorted(old.keys() | new.keys())
        if old.get(name) != new.get(name)
    ]


def _untracked(code: Mapping[str, Any]) -> dict[str, Any]:
    """Return the digests of untracked program files: results and logs that a run writes are no code."""
    entries = code.get("untracked") or ()
    return {
        entry["path"]: entry["sha256"]
        for entry in entries
        if isinstance(entry, Mapping)
        and "sha256" in entry
        and str(entry.get("path", "")).endswith((".py", ".pyx", ".cu"))
    }


def _by_dataset(records: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for record in records:
        facts: dict[str, Any] = {}
        checksum = record.get("checksum")
        if isinstance(checksum, Mapping):
            checksum = checksum.get("value")
        if checksum:
            facts["checksum"] = checksum
        elif record.get("size") is not None:
            facts["size"] = record["size"]
        for file in record.get("files") or ():
            value = (file.get("checksum") or {}).get("value") if isinstance(file, Mapping) else None
            if value:
                facts[f"files.{file.get('path')}"] = value
        found[str(record.get("name"))] = facts
    return found


def _mapping(container: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = container.get(key)
    return value if isinstance(value, Mapping) else {}
