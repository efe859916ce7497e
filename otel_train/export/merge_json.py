"""Merges points of any OTLP JSON line by parsing it: samples, sums, histograms, and what others have written."""

from __future__ import annotations

import json
from math import isfinite
from typing import Any, Final

from otel_train.clock import NS_PER_MS
from otel_train.export.held import Frame, Held, Series, SeriesTable
from otel_train.export.identity import NUMBER_KINDS, fit_names, labels, metric_kind, spelled_name
from otel_train.export.parts import HEAD_END, METRIC_END, MetricParts
from otel_train.otlp.decode import DamagedLine, parse_line
from otel_train.otlp.decode_values import number, whole_number
from otel_train.runlog.lines import whole_parts

# Behind it milliseconds have more than 13 digits: the year 2286.
_END_NS: Final = 10**19
Labels = tuple[tuple[str, str], ...]


class JsonMerge:
    """The general way, and the rule itself (`take`)."""

    def __init__(self, table: SeriesTable) -> None:
        self._table = table

    def line(self, line: bytes, parts: MetricParts) -> None:
        """Take a line; what stands unharmed in a damaged one is taken, and the damage counted."""
        try:
            documents = [parse_line(line)]
        except DamagedLine:
            parts.unreadable += 1
            documents = [parse_line(part) for part in whole_parts(line)]
        for document in documents:
            for block in _objects(document.get("resourceMetrics"), parts):
                self._block(block, parts)

    def _block(self, block: dict[str, Any], parts: MetricParts) -> None:
        resource = block.get("resource")
        resource_labels = labels(resource.get("attributes")) if isinstance(resource, dict) else ()
        around = {key: entry for key, entry in block.items() if key != "scopeMetrics" and entry is not None}
        for scope in _objects(block.get("scopeMetrics"), parts):
            described = {key: entry for key, entry in scope.items() if key != "metrics" and entry is not None}
            try:
                head = _opened(dumps({**around, "scopeMetrics": [{**described, "metrics": []}]}), HEAD_END)
            except ValueError:
                parts.unreadable += 1
                continue
            for metric in _objects(scope.get("metrics"), parts):
                self.metric(head, resource_labels, metric, parts)

    def metric(self, head: bytes, resource_labels: Labels, metric: dict[str, Any], parts: MetricParts) -> None:
        """Take one metric that is parsed."""
        kind = metric_kind(metric)
        if not kind:
            parts.unreadable += 1
            return
        data = metric[kind]
        others = {key: entry for key, entry in metric.items() if key != kind and entry is not None}
        described = {key: entry for key, entry in data.items() if key != "dataPoints" and entry is not None}
        try:
            opening = _opened(dumps({**others, kind: {**described, "dataPoints": []}}), METRIC_END)
        except ValueError:
            parts.unreadable += len(data["dataPoints"])
            return
        frame = Frame(head, opening)
        name = spelled_name(metric, kind)
        sent: list[bytes] = []
        for point in _objects(data["dataPoints"], parts):
            ms = milliseconds(point)
            fit_names(point)
            try:
                text = dumps(point)
            except ValueError:
                ms = None
            if ms is None:
                parts.unreadable += 1
                continue
            series = self._table.series((name, labels(point.get("attributes")), resource_labels), frame)
            due = self.take(series, frame, ms, text, kind in NUMBER_KINDS and is_nonfinite(point), parts)
            if due:
                sent.append(due)
        parts.points(frame, [b",".join(sent)], len(sent))

    def take(
        self, series: Series, frame: Frame, ms: bytes, point: bytes, nonfinite: bool, parts: MetricParts
    ) -> bytes | None:
        """Take one point; return that of the same metric which is due now, if any."""
        table = self._table
        due: bytes | None = None
        if ms == series.ms or (series.marked and ms == series.newest):
            parts.merged += 1
            if series.open and (nonfinite or not series.nonfinite):
                table.hold(series, frame, ms, point, nonfinite)
        elif ms <= series.newest and series.knows(ms, table.limit):
            parts.merged += 1
        else:
            if series.open:
                if series.frame == frame:
                    due = series.point
                else:
                    parts.point(series)
            table.hold(series, frame, ms, point, nonfinite)
        table.register(series, [ms])
        return due


def milliseconds(point: dict[str, Any]) -> bytes | None:
    """Return a point's time as 13 digits; None where it has none that a store could take."""
    time_ns = whole_number(point.get("timeUnixNano"))
    if time_ns is None or not 0 < time_ns < _END_NS:
        return None
    return b"%013d" % (time_ns // NS_PER_MS)


def is_nonfinite(point: dict[str, Any]) -> bool:
    """Tell whether a number point is NaN or infinite."""
    value = number(point.get("asDouble"))
    return value is not None and not isfinite(value)


def read_held(frame: Frame, point: bytes) -> Held | None:
    """Return what a point and its frame tell of themselves; None where they cannot be read."""
    try:
        block = json.loads(frame.head + HEAD_END)
        metric = json.loads(frame.opening + METRIC_END)
        document = json.loads(point)
        resource = block.get("resource") or {}
        kind, ms = metric_kind(metric), milliseconds(document)
        if not kind or ms is None:
            return None
        key = (spelled_name(metric, kind), labels(document.get("attributes")), labels(resource.get("attributes")))
        return Held(key, ms, kind in NUMBER_KINDS and is_nonfinite(document))
    except (ValueError, RecursionError, AttributeError):
        return None


def dumps(document: Any) -> bytes:
    """Return JSON as our encoder writes it; ValueError where there is something that JSON has no place for."""
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.encode("utf-8", "replace")


def _opened(whole: bytes, end: bytes) -> bytes:
    """Return the beginning of a document up to its innermost list, which is the last thing in it and empty."""
    return whole.removesuffix(end)


def _objects(found: Any, parts: MetricParts) -> list[dict[str, Any]]:
    if found is None:
        return []
    if not isinstance(found, list):
        parts.unreadable += 1
        return []
    objects = [entry for entry in found if entry.__class__ is dict]
    parts.unreadable += len(found) - len(objects)
    return objects
