"""Writes points, samples, histograms, log records and spans as OTLP JSON, one request a line.

Written by hand since the official classes and their encoder cost ten times as much. A line is
``{"resourceMetrics":[{"resource":…,"scopeMetrics":[…]}]}`` as in OpenTelemetry's file exporter: 64-bit integers and
times as strings, non-finite numbers as strings, ids as lower-case hex, no null, no empty field.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import isfinite
from typing import Any

from otel_train.otlp.histogram import Exemplar, HistogramData
from otel_train.otlp.values import (
    attributes_field,
    float32_texts,
    name_json,
    number_json,
    point_value_json,
    span_id_hex,
    text_json,
    to_bytes,
    trace_id_hex,
    value_json,
)
from otel_train.record.entries import AttributeValue, Column, LogEntry, Sample, SpanEntry, SpanEvent, SpanLink
from otel_train.record.histogram_value import HistogramValue
from otel_train.record.numbers import Float32
from otel_train.semconv import EVENT_NAME, METRICS, SCOPE_NAME, Metric

CUMULATIVE = 2
_float_repr = float.__repr__
_NO_METRIC = Metric("", "", "gauge", "")
_KEYS = {
    "metrics": ("resourceMetrics", "scopeMetrics", "metrics"),
    "logs": ("resourceLogs", "scopeLogs", "logRecords"),
    "traces": ("resourceSpans", "scopeSpans", "spans"),
}
# After so many points the interpreter is offered to who waits for it. A column costs what some points cost.
POINTS_A_TURN = 200
COLUMN_AS_POINTS = 8
# What stands between a line's prefix and suffix can be joined with that of others by commas into one request.
PREFIXES = {signal: f'{{"{keys[0]}":['.encode() for signal, keys in _KEYS.items()}
SUFFIX = b"]}\n"


class LineEncoder:
    """Encodes for one resource: what it returns is one line of bytes with its line end, or nothing for no items."""

    def __init__(self, resource: Mapping[str, AttributeValue], scope_version: str) -> None:
        self.resource = dict(resource)
        self._version = scope_version
        attributes = attributes_field(self.resource.items()).removesuffix(",")
        self._heads = {
            signal: f'{{"{block}":[{{"resource":{{{attributes}}},"{scopes}":['
            for signal, (block, scopes, _) in _KEYS.items()
        }

    def points(self, columns: Sequence[Column], pause: Callable[[], None] | None = None) -> bytes:
        """Encode gauge columns; columns of one name become one metric. At most 200 points a column compress best.

        `pause` is called now and then: a line of 2,000 points holds the interpreter for more than a millisecond.
        """
        unpaused = 0
        times: dict[int, list[str]] = {}
        metrics: dict[tuple[str, str, str], list[str]] = {}
        for column in columns:
            if not column.values:
                continue
            texts = times.get(id(column.times_ns))
            if texts is None:
                # Columns of the same steps share their list of times.
                texts = times[id(column.times_ns)] = list(map(str, column.times_ns))
            points = _column_points(column, texts)
            metrics.setdefault((column.name, column.unit, column.description), []).append(points)
            unpaused += len(column.values) + COLUMN_AS_POINTS
            if pause is not None and unpaused >= POINTS_A_TURN:
                unpaused = 0
                pause()
        return self._metrics_line(
            f'{_metric_head(*key)}"gauge":{{"dataPoints":[{",".join(blocks)}]}}}}' for key, blocks in metrics.items()
        )

    def samples(self, time_ns: int, start_ns: int, samples: Sequence[Sample]) -> bytes:
        """Encode readings made at one time; counters and up-down-counters are cumulative since `start_ns`.

        Kind and unit are those of `semconv.METRICS`; an unknown name is a gauge without a unit. A sample whose value
        is no number is left out.
        """
        tail = f'"timeUnixNano":"{time_ns}",'
        cumulative_tail = f'"startTimeUnixNano":"{start_ns}",{tail}'
        points: dict[str, list[str]] = {}
        for sample in samples:
            value = point_value_json(sample.value)
            if value is None:
                continue
            kind = METRICS.get(sample.name, _NO_METRIC).kind
            times = cumulative_tail if kind in ("counter", "updowncounter") else tail
            points.setdefault(sample.name, []).append(f"{{{attributes_field(sample.attributes)}{times}{value}}}")
        return self._metrics_line(_sample_metric(name, ",".join(texts)) for name, texts in points.items())

    def histograms(self, histograms: Sequence[HistogramData]) -> bytes:
        """Encode exponential histograms, cumulative, with their exemplars."""
        points: dict[tuple[str, str, str], list[str]] = {}
        for data in histograms:
            head = (
                f"{attributes_field(data.attributes)}"
                f'"startTimeUnixNano":"{data.start_ns}","timeUnixNano":"{data.time_ns}",'
            )
            text = f"{{{head}{exponential_json(data.value)}{exemplars_field(data.exemplars)}}}"
            points.setdefault((data.name, data.unit, data.description), []).append(text)
        return self._metrics_line(
            f'{_metric_head(*key)}"exponentialHistogram":{{"dataPoints":[{",".join(texts)}],'
            f'"aggregationTemporality":{CUMULATIVE}}}}}'
            for key, texts in points.items()
        )

    def logs(self, entries: Sequence[LogEntry]) -> bytes:
        """Encode log records; an event's name is written as `eventName` and, for stores that drop it, as attribute."""
        return self._scoped_line("logs", ((entry.scope, entry.scope_version, _log_json(entry)) for entry in entries))

    def spans(self, entries: Sequence[SpanEntry]) -> bytes:
        """Encode finished spans, grouped by the library that made them."""
        return self._scoped_line("traces", ((entry.scope, entry.scope_version, _span_json(entry)) for entry in entries))

    def _metrics_line(self, metrics: Iterable[str]) -> bytes:
        body = ",".join(metrics)
        if not body:
            return b""
        return to_bytes(f'{self._heads["metrics"]}{self._scope("", "")}"metrics":[{body}]}}]}}]}}\n')

    def _scoped_line(self, signal: str, items: Iterable[tuple[str, str, str]]) -> bytes:
        scopes: dict[tuple[str, str], list[str]] = {}
        for scope, version, text in items:
            scopes.setdefault((scope, version), []).append(text)
        if not scopes:
            return b""
        key = _KEYS[signal][2]
        blocks = [f'{self._scope(*scope)}"{key}":[{",".join(texts)}]}}' for scope, texts in scopes.items()]
        return to_bytes(f"{self._heads[signal]}{','.join(blocks)}]}}]}}\n")

    def _scope(self, name: str, version: str) -> str:
        if not name:
            name, version = SCOPE_NAME, self._version
        version_field = f',"version":{name_json(version)}' if version else ""
        return f'{{"scope":{{"name":{name_json(name)}{version_field}}},'


def _metric_head(name: str, unit: str, description: str) -> str:
    unit_field = f'"unit":{name_json(unit)},' if unit else ""
    description_field = f'"description":{name_json(description)},' if description else ""
    return f'{{"name":{name_json(name)},{description_field}{unit_field}'


def _column_points(column: Column, times: list[str]) -> str:
    """Return the points of a column, joined by commas. This is the loop that background cost is made of."""
    values = column.values
    count = min(len(values), len(times))
    head = f'{{{attributes_field(column.attributes)}"timeUnixNano":"'
    kinds = set(map(type, values))
    if kinds == {float} and not column.narrow and isfinite(sum(values)):
        texts: Iterable[str] = map(_float_repr, values)
        middle, tail = '","asDouble":', "}"
    elif (
        (kinds == {Float32} or (column.narrow and kinds == {float}))
        and isfinite(sum(values))
        and max(map(abs, values)) < 3.4e38
    ):
        texts = float32_texts(values)
        middle, tail = '","asDouble":', "}"
    elif kinds == {int} and max(values) < 2**63 and min(values) >= -(2**63):
        texts = map(int.__repr__, values)
        middle, tail = '","asInt":"', '"}'
    else:
        marked = map(Float32, values) if column.narrow else values
        return ",".join(
            [
                f'{head}{time}",{text}}}'
                for time, text in zip(times, map(point_value_json, marked), strict=False)
                if text is not None
            ]
        )
    # Three strings a point, joined once, beat an f-string for each point by a third.
    parts = [tail + "," + head] * (count * 4)
    parts[0] = head
    parts[1::4] = times[:count]
    parts[2::4] = [middle] * count
    parts[3::4] = list(texts)[:count]
    return "".join(parts) + tail


def _sample_metric(name: str, points: str) -> str:
    metric = METRICS.get(name, _NO_METRIC)
    head = _metric_head(name, metric.unit, metric.description)
    if metric.kind in ("counter", "updowncounter"):
        monotonic = ',"isMonotonic":true' if metric.kind == "counter" else ""
        return f'{head}"sum":{{"dataPoints":[{points}],"aggregationTemporality":{CUMULATIVE}{monotonic}}}}}'
    return f'{head}"gauge":{{"dataPoints":[{points}]}}}}'


def exponential_json(value: HistogramValue) -> str:
    """Return the fields of an exponential histogram point, without the braces around."""
    text = f'"count":"{value.count}","sum":{number_json(value.sum)},"scale":{value.scale}'
    if value.zero_count:
        text += f',"zeroCount":"{value.zero_count}"'
    for side, offset, counts in (
        ("positive", value.positive_offset, value.positive_counts),
        ("negative", value.negative_offset, value.negative_counts),
    ):
        if counts:
            joined = '","'.join(map(str, counts))
            text += f',"{side}":{{"offset":{offset},"bucketCounts":["{joined}"]}}'
    return text + extremes_field(value)


def extremes_field(value: HistogramValue) -> str:
    """Return ``,"min":…,"max":…`` for what of them is known."""
    minimum = f',"min":{number_json(value.min)}' if value.min is not None else ""
    maximum = f',"max":{number_json(value.max)}' if value.max is not None else ""
    return minimum + maximum


def exemplars_field(exemplars: Sequence[Exemplar]) -> str:
    """Return ``,"exemplars":[…]``, or nothing where there are none."""
    return f',"exemplars":[{",".join(map(_exemplar_json, exemplars))}]' if exemplars else ""


def _exemplar_json(exemplar: Exemplar) -> str:
    filtered = attributes_field(exemplar.attributes.items()).replace('"attributes"', '"filteredAttributes"', 1)
    ids = (
        f',"spanId":"{span_id_hex(exemplar.span_id)}","traceId":"{trace_id_hex(exemplar.trace_id)}"'
        if exemplar.trace_id
        else ""
    )
    return f'{{{filtered}"timeUnixNano":"{exemplar.time_ns}",{point_value_json(exemplar.value)}{ids}}}'


def _log_json(entry: LogEntry) -> str:
    attributes: Mapping[str, Any] = entry.attributes
    event = ""
    if entry.event_name:
        event = f',"eventName":{text_json(entry.event_name)}'
        if EVENT_NAME not in attributes:
            attributes = {**attributes, EVENT_NAME: entry.event_name}
    observed = f'"observedTimeUnixNano":"{entry.observed_time_ns}",' if entry.observed_time_ns else ""
    severity = f'"severityNumber":{entry.severity_number},' if entry.severity_number else ""
    level = f'"severityText":{text_json(entry.severity_text)},' if entry.severity_text else ""
    body = f'"body":{value_json(entry.body)},' if entry.body not in ("", None) else ""
    dropped = f'"droppedAttributesCount":{entry.dropped_attributes},' if entry.dropped_attributes else ""
    flags = f'"flags":{entry.flags},' if entry.flags else ""
    ids = f',"traceId":"{trace_id_hex(entry.trace_id)}"' if entry.trace_id else ""
    if entry.span_id:
        ids += f',"spanId":"{span_id_hex(entry.span_id)}"'
    fields = f"{observed}{severity}{level}{body}{attributes_field(attributes.items())}{dropped}{flags}"
    return f'{{{fields}"timeUnixNano":"{entry.time_ns}"{event}{ids}}}'


def _span_json(entry: SpanEntry) -> str:
    parent = f'"parentSpanId":"{span_id_hex(entry.parent_span_id)}",' if entry.parent_span_id else ""
    state = f'"traceState":{text_json(entry.trace_state)},' if entry.trace_state else ""
    flags = f'"flags":{entry.flags},' if entry.flags else ""
    text = (
        f'{{"traceId":"{trace_id_hex(entry.trace_id)}","spanId":"{span_id_hex(entry.span_id)}",{parent}{state}{flags}'
        f'"name":{text_json(entry.name)},"kind":{entry.kind},{attributes_field(entry.attributes.items())}'
        f'"startTimeUnixNano":"{entry.start_ns}","endTimeUnixNano":"{entry.end_ns}"'
    )
    if entry.dropped_attributes:
        text += f',"droppedAttributesCount":{entry.dropped_attributes}'
    if entry.events:
        text += f',"events":[{",".join(map(_event_json, entry.events))}]'
    if entry.dropped_events:
        text += f',"droppedEventsCount":{entry.dropped_events}'
    if entry.links:
        text += f',"links":[{",".join(map(_link_json, entry.links))}]'
    if entry.dropped_links:
        text += f',"droppedLinksCount":{entry.dropped_links}'
    message = f'"message":{text_json(entry.status_message)},' if entry.status_message else ""
    code = f'"code":{entry.status_code}' if entry.status_code else ""
    # Also where it is unset, as the SDK's own encoder has it.
    return f'{text},"status":{{{(message + code).removesuffix(",")}}}}}'


def _event_json(event: SpanEvent) -> str:
    dropped = f'"droppedAttributesCount":{event.dropped_attributes},' if event.dropped_attributes else ""
    attributes = attributes_field(event.attributes.items())
    return f'{{"timeUnixNano":"{event.time_ns}",{attributes}{dropped}"name":{text_json(event.name)}}}'


def _link_json(link: SpanLink) -> str:
    dropped = f'"droppedAttributesCount":{link.dropped_attributes},' if link.dropped_attributes else ""
    flags = f'"flags":{link.flags},' if link.flags else ""
    return (
        f"{{{attributes_field(link.attributes.items())}{dropped}{flags}"
        f'"traceId":"{trace_id_hex(link.trace_id)}","spanId":"{span_id_hex(link.span_id)}"}}'
    )
