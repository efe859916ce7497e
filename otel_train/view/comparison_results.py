"""Puts the results of runs side by side: last, best and extreme values by metric, the best run, and the difference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from otel_train.view.comparison_cells import cell, identity, number_of
from otel_train.view.comparison_curves import ComparedRun, Metric
from otel_train.view.summary import At, Summary

KINDS = ("best", "last", "min", "max")
Cell = dict[str, Any]


def key_of(metric: Metric, key: str) -> str:
    """Return how a metric is called in tables and addresses: ``val/loss``, with other attributes in brackets."""
    name = f"{metric.split}/{key}" if metric.split else key
    return f"{name} [{metric.also}]" if metric.also else name


def results(runs: Sequence[ComparedRun]) -> list[dict[str, Any]]:
    """Return a row for each metric of any run: a cell for each run, None where it has no such metric, and who is best.

    `winners` are the places of the runs with the best value, all of them where several have it, none where the metric
    has no direction or the runs do not agree on it.
    """
    metrics: dict[Metric, str] = {}
    for one in runs:
        for metric, (_, summary) in one.metrics.items():
            metrics.setdefault(metric, summary.key)
    rows = []
    for metric, key in metrics.items():
        found = [one.metrics.get(metric) for one in runs]
        goals = {pair[1].goal for pair in found if pair}
        goal = goals.pop() if len(goals) == 1 else ""
        cells = [_cell(pair[1], goal) if pair else None for pair in found]
        row = {
            "key": key_of(metric, key),
            "metric": key,
            "split": metric.split,
            "unit": next((pair[1].unit for pair in found if pair and pair[1].unit), ""),
            "goal": goal,
            "cells": cells,
        }
        rows.append(row | {"winners": winners(cells, goal)})
    rows.sort(key=order)
    return rows


def order(row: Mapping[str, Any]) -> tuple[bool, int, str]:
    """Put what has a direction first, validation before training."""
    return not row["goal"], {"val": 0, "test": 1, "train": 2}.get(row["split"], 3), row["key"]


def _cell(summary: Summary, goal: str) -> Cell:
    best = summary.best if goal else None
    return {
        "last": _value(summary.last),
        "best": _value(best),
        "min": _value(summary.low),
        "max": _value(summary.high),
        "mean": summary.mean,
        "points": summary.points,
        "bad": summary.bad.total,
        "last_at": _place(summary.last),
        "best_at": _place(best),
        "min_at": _place(summary.low),
        "max_at": _place(summary.high),
        "first_bad": _place(summary.first_bad),
    }


def _value(point: At | None) -> float | None:
    return None if point is None else point.value


def _place(point: At | None) -> str:
    return "" if point is None else point.place


def winners(cells: Sequence[Cell | None], goal: str) -> list[int]:
    """Return the places of the cells with the best value; empty without a direction, or with fewer than two values."""
    values = {
        place: found["best"] for place, found in enumerate(cells) if found and number_of(found["best"]) is not None
    }
    if goal not in ("min", "max") or len(values) < 2:
        return []
    best = min(values.values()) if goal == "min" else max(values.values())
    return [place for place, value in values.items() if value == best]


def against(value: float | None, base: float | None) -> tuple[float, float | None] | None:
    """Return how far a value is from the base's, and the share of the base's size; None where either is no number.

    The share is None where the base is 0.
    """
    left, right = number_of(value), number_of(base)
    if left is None or right is None:
        return None
    return left - right, (left - right) / abs(right) if right else None


def columns(
    configurations: Sequence[Mapping[str, object]],
    rows: Sequence[Mapping[str, Any]],
    facts: Sequence[Mapping[str, Any]],
) -> list[dict[str, Any]]:
    """Return what runs can be placed by: configuration that differs, values of metrics, facts; a value for each run.

    A column of numbers alone is numeric, null where a run has none or one that is not finite; any other is categorical
    with its values as texts, null where a run has none.
    """
    found = []
    for key in sorted({key for one in configurations for key in one}):
        own = [(one[key],) if key in one else None for one in configurations]
        if len({identity(value[0]) if value else None for value in own}) > 1 or len(configurations) < 2:
            found.append(_column(f"config.{key}", key, "config", [value and value[0] for value in own], own))
    for row in rows:
        for kind in KINDS:
            values = [one[kind] if one else None for one in row["cells"]]
            if any(number_of(value) is not None for value in values):
                # The ids are those of the runs' table, where a metric by itself is its last value.
                name = row["key"] if kind == "last" else f"{kind}.{row['key']}"
                column = _numeric(name, f"{kind} {row['key']}", "metric", values)
                found.append(column | {"goal": row["goal"], "unit": row["unit"]})
    for key, label in _FACTS:
        values = [one.get(key) for one in facts]
        name = key.removesuffix("_s")
        if any(number_of(value) is not None for value in values):
            found.append(_numeric(name, label, "run", values))
        elif any(values):
            there = [(value,) if value else None for value in values]
            found.append(_column(name, label, "run", values, there))
    return found


_FACTS = (
    ("duration_s", "duration (s)"),
    ("step", "last step"),
    ("epoch", "last epoch"),
    ("steps_per_s", "steps per second"),
    ("started_s", "start"),
    ("ranks", "ranks"),
    ("attempts", "attempts"),
    ("state", "state"),
    ("project", "project"),
    ("host", "host"),
    ("group", "group"),
    ("gpus", "GPUs"),
)


def _column(
    key: str, label: str, group: str, values: Sequence[object], there: Sequence[tuple[object] | None]
) -> dict[str, Any]:
    own = [value[0] for value in there if value is not None]
    # NaN and infinities stand in run.json by their names.
    numbers = [value for value in own if number_of(value) is not None]
    if numbers and all(value in ("NaN", "Infinity", "-Infinity") for value in own if number_of(value) is None):
        return _numeric(key, label, group, values)
    texts = [cell(value[0], exact=True)["text"] if value is not None else None for value in there]
    return {"key": key, "label": label, "group": group, "kind": "category", "values": texts}


def _numeric(key: str, label: str, group: str, values: Sequence[object]) -> dict[str, Any]:
    return {"key": key, "label": label, "group": group, "kind": "number", "values": [number_of(v) for v in values]}
