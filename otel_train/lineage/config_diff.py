"""Flattens plain configurations into dotted keys and tells what differs between two of them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import TypeAlias, TypedDict

Scalar: TypeAlias = str | int | float | bool | None


class ConfigChange(TypedDict):
    """One dotted key whose value differs; `old` or `new` is None where the key was not there."""

    key: str
    old: Scalar
    new: Scalar
    change: str


def flatten(config: Mapping[str, object]) -> dict[str, Scalar]:
    """Return `{"model.layers": 3}` of nested dicts. Lists of scalars become JSON text, others are numbered."""
    flat: dict[str, Scalar] = {}
    _flatten_into(flat, "", config)
    return flat


def _flatten_into(flat: dict[str, Scalar], prefix: str, value: object) -> None:
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            _flatten_into(flat, f"{prefix}.{key}" if prefix else str(key), item)
    elif isinstance(value, list | tuple) and any(isinstance(item, Mapping | list | tuple) for item in value):
        for place, item in enumerate(value):
            _flatten_into(flat, f"{prefix}.{place}" if prefix else str(place), item)
    elif prefix:
        # {"a.b": 1, "a": {"b": 2}} has the same dotted key twice.
        name, number = prefix, 2
        while name in flat:
            name, number = f"{prefix}#{number}", number + 1
        flat[name] = _scalar(value)


def _scalar(value: object) -> Scalar:
    if value is None or isinstance(value, str | bool | int | float):
        return value
    return json.dumps(value, ensure_ascii=False, default=str)


def diff(old: Mapping[str, object], new: Mapping[str, object]) -> list[ConfigChange]:
    """Return the keys that differ, in order. NaN equals NaN; 1 equals 1.0, but not True."""
    before, after = flatten(old), flatten(new)
    changes: list[ConfigChange] = []
    for key in sorted(before.keys() | after.keys()):
        if key not in after:
            changes.append({"key": key, "old": before[key], "new": None, "change": "removed"})
        elif key not in before:
            changes.append({"key": key, "old": None, "new": after[key], "change": "added"})
        elif not _same(before[key], after[key]):
            changes.append({"key": key, "old": before[key], "new": after[key], "change": "changed"})
    return changes


def _same(old: Scalar, new: Scalar) -> bool:
    if isinstance(old, bool) is not isinstance(new, bool):
        return False
    return _comparable(old) == _comparable(new)


def _comparable(value: Scalar) -> Scalar:
    """Return a non-finite number as the text that stands for it in JSON, so that a stored one equals a fresh one."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
    return value
