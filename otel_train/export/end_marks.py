"""Says to the stores that a rank's series have ended, and what became of its run where its log does not say."""

from __future__ import annotations

import json
from typing import Any, Final

from otel_train.clock import NS_PER_MS
from otel_train.export.held import Frame, Series, SeriesTable
from otel_train.export.identity import metric_kind
from otel_train.export.merge_json import dumps
from otel_train.export.parts import METRIC_END
from otel_train.otlp.decode import NO_RECORDED_VALUE
from otel_train.semconv import RUN_STATES, STATE

_STATE_METRIC: Final = "dl.run.state"
_RUNNING: Final = "running"
_NOT_IN_A_MARK: Final = frozenset({"asDouble", "asInt", "exemplars", "timeUnixNano", "flags"})


def end_mark(series: Series) -> bytes | None:
    """Return the point that ends a series: no recorded value, one millisecond after its newest point.

    It has all else that the last point had: Prometheus needs a histogram's buckets to end the series they became.
    None where the point cannot be read.
    """
    try:
        point = json.loads(series.point)
    except (ValueError, RecursionError):
        return None
    kept = {key: entry for key, entry in point.items() if key not in _NOT_IN_A_MARK}
    return dumps({**kept, "timeUnixNano": str(mark_ms(series) * NS_PER_MS), "flags": NO_RECORDED_VALUE})


def mark_ms(series: Series) -> int:
    """Return the millisecond of a series' end mark."""
    return int(series.newest) + 1


def last_states(table: SeriesTable, state: str) -> list[tuple[Frame, bytes]]:
    """Return points of the run's states, with their metric, where the last word of the log is that it runs.

    They come one millisecond after everything else that is known: the last sign of life.
    """
    known: dict[str, tuple[Frame, dict[str, Any]]] = {}
    for series in table.by_key.values():
        if b'"dl.run.state"' in series.frame.opening:
            found = _state_of(series)
            if found is not None:
                known[found[0]] = (series.frame, found[1])
    running = known.get(_RUNNING)
    if running is None or not _is_one(running[1]) or state == _RUNNING:
        return []
    frame, template = running
    time_ns = (int(table.newest) + 1) * NS_PER_MS
    points = []
    for name in (*RUN_STATES, *(() if state in RUN_STATES else (state,))):
        if name not in known and name != state:
            continue
        point = {
            key: _with_state(entry, name) if key == "attributes" else entry
            for key, entry in template.items()
            if key not in _NOT_IN_A_MARK
        }
        points.append((frame, dumps({**point, "timeUnixNano": str(time_ns), "asInt": str(int(name == state))})))
    return points


def _state_of(series: Series) -> tuple[str, dict[str, Any]] | None:
    """Return the state that a series of `dl.run.state` stands for, and its last point."""
    try:
        metric, point = json.loads(series.frame.opening + METRIC_END), json.loads(series.point)
        if metric.get("name") != _STATE_METRIC or metric_kind(metric) != "gauge":
            return None
        for pair in point.get("attributes") or ():
            if pair["key"] == STATE:
                return str(pair["value"]["stringValue"]), point
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        pass
    return None


def _with_state(attributes: list[dict[str, Any]], state: str) -> list[dict[str, Any]]:
    return [pair if pair["key"] != STATE else {**pair, "value": {"stringValue": state}} for pair in attributes]


def _is_one(point: dict[str, Any]) -> bool:
    value = point.get("asInt", point.get("asDouble"))
    try:
        return float(value) == 1.0  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return False
