"""Lays values of several runs side by side, each with its kind: 1, 1.0, "1", true and nothing are five things."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from otel_train.view.facts import shown

# A text that reads like another kind of value is written in quotes.
_LIKE_OTHERS = frozenset({"", "true", "false", "null", "none", "nan", "inf", "infinity", "-inf", "-infinity"})
Cell = dict[str, Any]
Row = dict[str, Any]


def flat(value: object, prefix: str = "") -> dict[str, object]:
    """Return nested mappings as one, keys joined by dots; a list of plain values stays one value.

    Of two values with one dotted key, as in ``{"a.b": 1, "a": {"b": 2}}``, the second gets ``#2`` behind its key.
    """
    result: dict[str, object] = {}
    _flatten(result, prefix, value)
    return result


def _flatten(result: dict[str, object], prefix: str, value: object) -> None:
    if isinstance(value, Mapping) and (value or not prefix):
        for key, item in value.items():
            _flatten(result, f"{prefix}.{key}" if prefix else str(key), item)
    elif isinstance(value, (list, tuple)) and any(isinstance(item, (Mapping, list, tuple)) for item in value):
        for place, item in enumerate(value):
            _flatten(result, f"{prefix}.{place}" if prefix else str(place), item)
    elif prefix:
        name, number = prefix, 2
        while name in result:
            name, number = f"{prefix}#{number}", number + 1
        result[name] = value


def kind_of(value: object) -> str:
    """Return what a value is: bool, int, float, text, null, list or mapping."""
    if isinstance(value, bool):
        return "bool"
    if value is None:
        return "null"
    for kind, name in ((int, "int"), (float, "float"), (str, "text"), ((list, tuple), "list"), (Mapping, "mapping")):
        if isinstance(value, kind):
            return name
    return "text"


def identity(value: object) -> tuple[str, str]:
    """Return what is equal for two values exactly if they are the same in kind and value; NaN is the same as NaN."""
    kind = kind_of(value)
    if kind in ("list", "mapping"):
        return kind, json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)
    return kind, repr(value) if kind == "float" else str(value)


def cell(value: object, *, exact: bool = False) -> Cell:
    """Return a value as text with its kind; where `exact`, texts that read like another kind are in quotes."""
    kind = kind_of(value)
    written = shown(value)
    if exact and kind == "text" and _reads_like_another(written):
        written = json.dumps(written, ensure_ascii=False)
    return {"text": written, "kind": kind}


def _reads_like_another(written: str) -> bool:
    if written.lower() in _LIKE_OTHERS or written != written.strip():
        return True
    try:
        float(written)
    except ValueError:
        return written[:1] in ("[", "{", '"')
    return True


def row(key: str, values: Sequence[object], present: Sequence[bool], group: str = "", *, exact: bool = False) -> Row:
    """Return one row: a cell for each run, None where it has no such key, and whether they differ."""
    found = {identity(value) if there else None for value, there in zip(values, present, strict=True)}
    cells = [cell(value, exact=exact) if there else None for value, there in zip(values, present, strict=True)]
    return {"key": key, "group": group, "differs": len(found) > 1, "cells": cells}


def side_by_side(
    columns: Sequence[Mapping[str, object]], groups: Mapping[str, str] | None = None, *, exact: bool = False
) -> list[Row]:
    """Return a row for each key of any run, in the order of the keys."""
    keys = sorted({key for column in columns for key in column})
    groups = groups or {}
    return [
        row(
            key,
            [column.get(key) for column in columns],
            [key in column for column in columns],
            groups.get(key, ""),
            exact=exact,
        )
        for key in keys
    ]


def part(rows: Iterable[Row]) -> dict[str, Any]:
    """Return rows with how many of them differ."""
    listed = list(rows)
    return {"rows": listed, "differing": sum(item["differs"] for item in listed), "total": len(listed)}


def number_of(value: object) -> float | None:
    """Return a value that can stand on an axis of numbers; None where it is none."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) else None
