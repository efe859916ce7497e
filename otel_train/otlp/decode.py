"""Reads OTLP JSON lines back, as tolerantly as the dialects of their writers demand.

Integers and times may be strings or numbers, doubles strings, enums names, ids hex of either case; unknown fields are
passed over. What cannot be read (a null, an id that is no hex) is left out alone and counted. What is not one whole
JSON object is refused as a `DamagedLine`.
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from otel_train.otlp.decode_columns import TakenOut, take_out
from otel_train.otlp.decode_records import read_logs, read_spans
from otel_train.otlp.decode_values import (
    Damage,
    attributes,
    counts,
    enum,
    identifier,
    integer,
    items,
    listed,
    number,
    text,
    whole_number,
)
from otel_train.otlp.histogram import Exemplar
from otel_train.record.entries import AttributeValue, LogEntry, SeriesAttributes, SpanEntry
from otel_train.record.histogram_value import HistogramValue

Resource = dict[str, AttributeValue]
NO_RECORDED_VALUE = 1
_SIGNALS = {"resourceMetrics": "metrics", "resourceLogs": "logs", "resourceSpans": "traces"}
_DELTA = 1


class DamagedLine(ValueError):  # noqa: N818 - says what the line is
    """The line is not one whole JSON object of OTLP; the message says where it breaks."""


class MetricPoint(NamedTuple):
    """One point of a metric. `value` is None for histograms and for a marked gap (`flags` 1), else a number."""

    name: str
    unit: str
    description: str
    kind: str  # gauge, counter, updowncounter, histogram or summary
    attributes: SeriesAttributes
    time_ns: int
    value: int | float | None
    flags: int = 0
    start_ns: int = 0
    histogram: HistogramValue | None = None
    exemplars: tuple[Exemplar, ...] = ()


@dataclass(slots=True)
class Series:
    """Points of one series as they stand together in one line: columns of equal length, in the order of the line."""

    name: str
    unit: str
    description: str
    kind: str
    attributes: SeriesAttributes
    resource: Resource
    delta: bool = False
    times_ns: list[int] = field(default_factory=list)
    values: list[int | float | None] = field(default_factory=list)
    # Only where there is something to say; else empty.
    flags: list[int] = field(default_factory=list)
    starts_ns: list[int] = field(default_factory=list)
    histograms: list[HistogramValue] = field(default_factory=list)
    exemplars: list[tuple[Exemplar, ...]] = field(default_factory=list)


@dataclass(slots=True)
class Request:
    """What one line holds. `skipped` counts values and entries that could not be read."""

    signal: str  # metrics, logs, traces; empty for an empty request
    resources: list[Resource] = field(default_factory=list)
    series: list[Series] = field(default_factory=list)
    logs: list[tuple[LogEntry, Resource]] = field(default_factory=list)
    spans: list[tuple[SpanEntry, Resource]] = field(default_factory=list)
    skipped: int = 0

    def points(self) -> Iterator[tuple[MetricPoint, Resource]]:
        """Give every point with the attributes of its resource."""
        for series in self.series:
            head = (series.name, series.unit, series.description, series.kind, series.attributes)
            for index, (time_ns, number_value) in enumerate(zip(series.times_ns, series.values, strict=True)):
                yield (
                    MetricPoint(
                        *head,
                        time_ns,
                        number_value,
                        series.flags[index] if series.flags else 0,
                        series.starts_ns[index] if series.starts_ns else 0,
                        series.histograms[index] if series.histograms else None,
                        series.exemplars[index] if series.exemplars else (),
                    ),
                    series.resource,
                )


def parse_line(line: bytes | str) -> dict[str, Any]:
    """Return the JSON object of a line, checked strictly; DamagedLine where it is not one."""
    try:
        document = json.loads(line, parse_constant=_refuse_constant)
    except RecursionError:
        raise DamagedLine("nested too deeply") from None
    except ValueError as fault:
        raise DamagedLine(str(fault)) from None
    if not isinstance(document, dict):
        raise DamagedLine(f"a JSON {type(document).__name__}, not an object")
    return document


def _refuse_constant(name: str) -> float:
    raise ValueError(f"bare {name} is not JSON")


def decode_line(line: bytes | str, names: Container[str] | None = None) -> Request:
    """Read one line; with `names`, metrics of other names are passed over. DamagedLine where it is not a request."""
    taken = take_out(line, names) if isinstance(line, bytes) else None
    if taken is not None:
        request = put_back(taken, names)
        if request is not None:
            return request
    return decode_document(parse_line(line), names)


# Lines of one run have few shapes: with what text is left of a line, the series that it has columns for.
_SHAPES: dict[str, Request | None] = {}
_MOST_SHAPES = 512


def put_back(taken: TakenOut, names: Container[str] | None = None) -> Request | None:
    """Return the request whose points were taken out; None where what is left is not as plain as it looked."""
    if taken.rest in _SHAPES:
        shape = _SHAPES[taken.rest]
    else:
        if len(_SHAPES) >= _MOST_SHAPES:
            _SHAPES.clear()
        shape = _SHAPES[taken.rest] = _shape(taken)
    if shape is None:
        return None
    request = Request("metrics", list(shape.resources))
    for empty in shape.series:
        if names is not None and empty.name not in names:
            continue
        series = Series(empty.name, empty.unit, empty.description, empty.kind, empty.attributes, empty.resource)
        # Columns of the same times share their list of them; nobody changes it.
        series.times_ns, series.values = taken.columns[empty.times_ns[0]]
        for number_of_columns in empty.times_ns[1:]:
            times_ns, values = taken.columns[number_of_columns]
            series.times_ns = series.times_ns + times_ns
            series.values = series.values + values
        request.series.append(series)
    return request


def _shape(taken: TakenOut) -> Request | None:
    try:
        request = decode_document(parse_line(taken.rest))
    except DamagedLine:
        return None
    plain = not any(
        series.flags or series.starts_ns or series.histograms or series.exemplars for series in request.series
    )
    found = [number for series in request.series for number in series.times_ns]
    whole = request.signal == "metrics" and not request.skipped and found == list(range(len(taken.columns)))
    return request if whole and plain else None


def decode_document(document: dict[str, Any], names: Container[str] | None = None) -> Request:
    """Read one request that is parsed already."""
    request = Request("")
    damage = Damage()
    for block_key, signal in _SIGNALS.items():
        if block_key not in document:
            continue
        request.signal = request.signal or signal
        for block in items(document, block_key, damage):
            resource = attributes(block.get("resource") or {}, damage)
            request.resources.append(resource)
            if signal == "metrics":
                _read_metrics(block, resource, names, request, damage)
            elif signal == "logs":
                request.logs.extend((entry, resource) for entry in read_logs(block, damage))
            else:
                request.spans.extend((entry, resource) for entry in read_spans(block, damage))
    request.skipped = damage.count
    return request


def _read_metrics(
    block: dict[str, Any], resource: Resource, names: Container[str] | None, request: Request, damage: Damage
) -> None:
    for scope in items(block, "scopeMetrics", damage):
        for metric in items(scope, "metrics", damage):
            name = text(metric, "name", damage)
            if names is not None and name not in names:
                continue
            unit, description = text(metric, "unit", damage), text(metric, "description", damage)
            for key, reader in _KINDS.items():
                data = metric.get(key)
                if data is None:
                    continue
                if not isinstance(data, dict):
                    damage.count += 1
                    continue
                kind = "histogram" if key == "exponentialHistogram" else key
                if key == "sum":
                    kind = "counter" if data.get("isMonotonic") is True else "updowncounter"
                head = Series(name, unit, description, kind, (), resource)
                head.delta = enum(data, "aggregationTemporality", damage) == _DELTA
                reader(head, items(data, "dataPoints", damage), request.series, damage)


def _next_series(head: Series, point: dict[str, Any], damage: Damage) -> Series:
    pairs = tuple([(key, _hashable(entry)) for key, entry in attributes(point, damage).items()])
    return Series(head.name, head.unit, head.description, head.kind, pairs, head.resource, head.delta)


def _hashable(entry: Any) -> Any:
    if isinstance(entry, list):
        return tuple(map(_hashable, entry))
    if isinstance(entry, dict):
        return tuple((key, _hashable(item)) for key, item in entry.items())
    return entry


_NOTHING_YET: Any = object()


def _read_numbers(head: Series, points: list[dict[str, Any]], found: list[Series], damage: Damage) -> None:
    series, last_attributes = head, _NOTHING_YET
    fresh: list[Series] = []
    for point in points:
        get = point.get
        point_attributes = get("attributes")
        if point_attributes != last_attributes:
            # Points of one series mostly stand together, so comparing raw attributes spares reading them each time.
            last_attributes = point_attributes
            series = _next_series(head, point, damage)
            fresh.append(series)
        time_text, entry = get("timeUnixNano"), get("asDouble")
        if (
            entry.__class__ is float
            and entry - entry == 0.0
            and time_text.__class__ is str
            and time_text.isdecimal()
            and len(point) == (2 if point_attributes is None else 3)
            and not series.flags
        ):
            series.times_ns.append(int(time_text))
            series.values.append(entry)
        else:
            _add_number(series, point, damage)
    found.extend(series for series in fresh if series.times_ns)


# The keys of a point that has nothing rare about it.
_PLAIN = {"attributes", "timeUnixNano", "asDouble", "asInt"}


def _add_number(series: Series, point: dict[str, Any], damage: Damage) -> None:
    entry = _number_of(point, damage)
    if entry is None and not integer(point, "flags", damage) & NO_RECORDED_VALUE:
        damage.count += 1
        return
    series.times_ns.append(integer(point, "timeUnixNano", damage))
    series.values.append(entry)
    if not _PLAIN.issuperset(point):
        _add_rare(series, point, damage)
    elif series.flags:
        _pad(series)


def _number_of(point: dict[str, Any], damage: Damage) -> int | float | None:
    if "flags" in point and integer(point, "flags", damage) & NO_RECORDED_VALUE:
        return None
    if point.get("asInt") is not None:
        return whole_number(point["asInt"])
    return number(point.get("asDouble"))


def _pad(series: Series) -> None:
    count = len(series.times_ns)
    for column, empty in ((series.flags, 0), (series.starts_ns, 0)):
        column.extend([empty] * (count - len(column)))
    series.exemplars.extend([()] * (count - len(series.exemplars)))


def _add_rare(series: Series, point: dict[str, Any], damage: Damage) -> None:
    """Fill the columns that only some points have, so that they stay as long as the times."""
    _pad(series)
    series.flags[-1] = integer(point, "flags", damage)
    series.starts_ns[-1] = integer(point, "startTimeUnixNano", damage)
    series.exemplars[-1] = _exemplars(point, damage)


def _exemplars(point: dict[str, Any], damage: Damage) -> tuple[Exemplar, ...]:
    found = []
    for exemplar in items(point, "exemplars", damage):
        entry = _number_of(exemplar, damage)
        if entry is None:
            damage.count += 1
            continue
        found.append(
            Exemplar(
                time_ns=integer(exemplar, "timeUnixNano", damage),
                value=entry,
                trace_id=identifier(exemplar, "traceId", 32, damage),
                span_id=identifier(exemplar, "spanId", 16, damage),
                attributes=attributes(exemplar, damage, "filteredAttributes"),
            )
        )
    return tuple(found)


def _read_histograms(head: Series, points: list[dict[str, Any]], found: list[Series], damage: Damage) -> None:
    for point in points:
        series = _next_series(head, point, damage)
        if found and found[-1].attributes == series.attributes and found[-1].name == head.name:
            series = found[-1]
        else:
            found.append(series)
        series.times_ns.append(integer(point, "timeUnixNano", damage))
        series.values.append(None)
        series.histograms.append(_histogram(point, damage))
        _add_rare(series, point, damage)


def _histogram(point: dict[str, Any], damage: Damage) -> HistogramValue:
    positive, negative = _side(point, "positive", damage), _side(point, "negative", damage)
    quantiles = [(number(q.get("quantile")), number(q.get("value"))) for q in items(point, "quantileValues", damage)]
    return HistogramValue(
        count=integer(point, "count", damage),
        sum=number(point.get("sum")) or 0.0,
        min=number(point.get("min")),
        max=number(point.get("max")),
        # An exponential point at scale 0 may leave the field out; by then only its buckets tell what it is.
        scale=integer(point, "scale", damage)
        if "scale" in point or "positive" in point or "negative" in point
        else None,
        zero_count=integer(point, "zeroCount", damage),
        positive_offset=positive[0],
        positive_counts=positive[1],
        negative_offset=negative[0],
        negative_counts=negative[1],
        bounds=tuple(bound or 0.0 for bound in map(number, listed(point, "explicitBounds", damage))),
        bucket_counts=counts(point, "bucketCounts", damage),
        quantiles=tuple((q or 0.0, v or 0.0) for q, v in quantiles),
    )


def _side(point: dict[str, Any], key: str, damage: Damage) -> tuple[int, tuple[int, ...]]:
    side = point.get(key)
    if not isinstance(side, dict):
        return 0, ()
    return integer(side, "offset", damage), counts(side, "bucketCounts", damage)


_KINDS = {
    "gauge": _read_numbers,
    "sum": _read_numbers,
    "histogram": _read_histograms,
    "exponentialHistogram": _read_histograms,
    "summary": _read_histograms,
}
