"""Compares up to a thousand runs by what the index knows of them: facts, configuration and results, without curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from otel_train.clock import NS_PER_S, iso
from otel_train.view import comparison_runs
from otel_train.view.comparison_cells import part, side_by_side
from otel_train.view.comparison_frame import common, digest, notice
from otel_train.view.comparison_results import columns, order, winners

if TYPE_CHECKING:
    from otel_train.view.index_row import IndexRow


def revision_of_rows(rows: Sequence[IndexRow]) -> str:
    """Return a text that changes when what the index knows of one of the runs does."""
    return digest([(row.run_id, row.state, row.step, row.last_seen_ns, len(row.metrics), row.partial) for row in rows])


def compare_rows(
    rows: Sequence[IndexRow], *, missing: Mapping[str, str] | None = None, base: str = ""
) -> dict[str, Any]:
    """Return the comparison of many runs out of the index: no curves, and nothing of code, data and environment."""
    once = list({row.run_id: row for row in rows}.values())
    names = comparison_runs.labels([(row.run_id, row.run_name) for row in once])
    roles = comparison_runs.roles(row.run_id for row in once)
    described = [
        {
            "id": row.run_id,
            "name": row.run_name or row.run_id,
            "label": name,
            "role": roles[row.run_id],
            "number": number,
            "state": row.state,
            "reason": row.reason,
            "project": row.project,
            "group": row.group,
            "tags": list(row.tags),
            "started": iso(row.created_ns) if row.created_ns else None,
            "started_s": row.created_ns / NS_PER_S if row.created_ns else None,
            "duration_s": row.duration_s,
            "step": row.step,
            "epoch": row.epoch,
            "steps_per_s": None,
            "host": row.host,
            "gpus": "",
            "ranks": row.ranks,
            "attempts": max(1, row.attempt),
            "points": None,
            "damaged": None,
        }
        for number, (row, name) in enumerate(zip(once, names, strict=True), 1)
    ]
    place = next((place for place, row in enumerate(once) if row.run_id == base), 0)
    result_rows = _row_results(once)
    configurations: list[Mapping[str, object]] = [row.config for row in once]
    partial = sum(row.partial for row in once)
    notices = [notice("info", f"{partial} runs without an end are still being read.")] if partial else []
    empty = part([])
    return {
        **common(described, missing or {}, place),
        "revision": revision_of_rows(once),
        "notices": notices,
        "axes": ["time"],
        "charts": {"metrics": [], "pace": []},
        "configuration": part(row for row in side_by_side(configurations, exact=True) if row["differs"]),
        **dict.fromkeys(("environment", "command", "packages", "datasets", "code"), empty),
        "patches": [],
        "results": {"rows": result_rows},
        "columns": columns(configurations, result_rows, described),
    }


def _row_results(rows: Sequence[IndexRow]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for key in dict.fromkeys(key for row in rows for key in row.metrics):
        values = [row.metrics.get(key) for row in rows]
        goals = {value.goal for value in values if value is not None}
        goal = goals.pop() or "" if len(goals) == 1 else ""
        cells: list[dict[str, Any] | None] = [
            None
            if value is None
            else {
                "last": value.last,
                "best": value.best if goal else None,
                "min": value.low,
                "max": value.high,
                "mean": None,
                "points": None,
                "bad": 0,
            }
            for value in values
        ]
        head, slash, tail = key.partition("/")
        split, metric = (head, tail) if slash and head in ("train", "val", "test") else ("", key)
        row: dict[str, Any] = {"key": key, "metric": metric, "split": split, "unit": "", "goal": goal, "cells": cells}
        found.append(row | {"winners": winners(cells, goal)})
    return sorted(found, key=order)
