"""Builds the SDK's metric classes from points: each with its own time and value, NaN and infinities too."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from opentelemetry.sdk.metrics import Exemplar as SdkExemplar
from opentelemetry.sdk.metrics import export as sdk
from opentelemetry.sdk.metrics.export import AggregationTemporality

from otel_train.clock import NS_PER_MS
from otel_train.export.to_sdk import STALE, Resources, scope_of
from otel_train.otlp.decode import MetricPoint, Request, decode_document, parse_line
from otel_train.otlp.histogram import Exemplar
from otel_train.record.entries import AttributeValue
from otel_train.record.histogram_value import HistogramValue
from otel_train.semconv import EPOCH, SCOPE_NAME, STEP

# What says where the points of the same times stand.
SIBLINGS = frozenset({STEP, EPOCH})
_CUMULATIVE = AggregationTemporality.CUMULATIVE


@dataclass(frozen=True, slots=True)
class SentPoint:
    """One point and what stands around it in a line."""

    point: MetricPoint
    resource: Mapping[str, AttributeValue]
    scope: tuple[str, str] = ("", "")
    delta: bool = False
    # Whether the account counts it: points of the user and of steps, not readings of the machine.
    counted: bool = False

    @property
    def key(self) -> tuple[Any, ...]:
        """What tells series apart; two with equal keys are one in the SDK's classes."""
        point = self.point
        exponential = point.histogram is not None and point.histogram.scale is not None
        return (point.name, point.unit, point.description, point.kind, exponential, self.delta, self.scope)


def read_points(line: bytes, *, counted: bool = False) -> Iterator[SentPoint]:
    """Give every point of one line with its scope; DamagedLine where it is none of OTLP.

    A summary, which the SDK has no class for, is given as the series that Prometheus makes of it. With `counted` the
    account counts each point but those that only say where others stand.
    """
    document = parse_line(line)
    for block in document.get("resourceMetrics") or ():
        for scope in block.get("scopeMetrics") or ():
            described = scope.get("scope") or {}
            name = str(described.get("name") or "")
            label = ("", "") if name == SCOPE_NAME else (name, str(described.get("version") or ""))
            request = decode_document({"resourceMetrics": [{**block, "scopeMetrics": [scope]}]})
            yield from _scoped(request, label, counted)


def _scoped(request: Request, scope: tuple[str, str], counted: bool) -> Iterator[SentPoint]:
    for series in request.series:
        counts = counted and series.name not in SIBLINGS
        single = Request("metrics", series=[series])
        for point, resource in single.points():
            parts = _summary_parts(point) if point.kind == "summary" else (point,)
            for part in parts:
                yield SentPoint(part, resource, scope, series.delta, counts)


def _summary_parts(point: MetricPoint) -> Iterator[MetricPoint]:
    value = point.histogram
    if value is None:
        return
    plain = point._replace(kind="gauge", start_ns=0, histogram=None, unit="")
    yield plain._replace(name=f"{point.name}_sum", value=value.sum)
    yield plain._replace(name=f"{point.name}_count", value=value.count)
    for quantile, at in value.quantiles:
        yield plain._replace(value=at, attributes=(*point.attributes, ("quantile", f"{quantile:g}")))


def end_mark(last: SentPoint) -> SentPoint:
    """Return the point that ends a series, one millisecond after its last: a store then shows it as gone."""
    point = last.point
    histogram = None if point.histogram is None else replace(point.histogram, count=0, sum=STALE)
    marked = point._replace(
        time_ns=point.time_ns + NS_PER_MS,
        value=None if histogram is not None else STALE,
        histogram=histogram,
        exemplars=(),
        flags=1,
    )
    return replace(last, point=marked, counted=False)


def metrics_data(points: Iterable[SentPoint], resources: Resources) -> sdk.MetricsData:
    """Return points as a metric exporter takes them, grouped by resource, scope and metric."""
    grouped: dict[int, tuple[Any, dict[tuple[str, str], dict[tuple[Any, ...], list[SentPoint]]]]] = {}
    # Points of one line share the attributes' very object.
    known: dict[int, Any] = {}
    for point in points:
        resource = known.get(id(point.resource))
        if resource is None:
            resource = known[id(point.resource)] = resources(point.resource)
        scopes = grouped.setdefault(id(resource), (resource, {}))[1]
        scopes.setdefault(point.scope, {}).setdefault(point.key, []).append(point)
    return sdk.MetricsData(
        [
            sdk.ResourceMetrics(
                resource,
                [
                    sdk.ScopeMetrics(scope_of(*scope), [_metric(alike) for alike in metrics.values()], "")
                    for scope, metrics in scopes.items()
                ],
                "",
            )
            for resource, scopes in grouped.values()
        ]
    )


def _metric(alike: Sequence[SentPoint]) -> sdk.Metric:
    """Return one metric of points with equal keys."""
    first = alike[0].point
    temporality = AggregationTemporality.DELTA if alike[0].delta else _CUMULATIVE
    points = [sent.point for sent in alike]
    data: Any
    if first.histogram is not None and first.histogram.scale is not None:
        data = sdk.ExponentialHistogram([_exponential(point) for point in points], temporality)
    elif first.histogram is not None:
        data = sdk.Histogram([_bounded(point) for point in points], temporality)
    elif first.kind in ("counter", "updowncounter"):
        data = sdk.Sum([_number(point) for point in points], temporality, first.kind == "counter")
    else:
        data = sdk.Gauge([_number(point) for point in points])
    return sdk.Metric(first.name, first.description, first.unit, data)


def _number(point: MetricPoint) -> sdk.NumberDataPoint:
    value = STALE if point.value is None else point.value
    return sdk.NumberDataPoint(
        dict(point.attributes), point.start_ns, point.time_ns, value, [_exemplar(one) for one in point.exemplars]
    )


def _bounded(point: MetricPoint) -> sdk.HistogramDataPoint:
    value = _histogram_of(point)
    return sdk.HistogramDataPoint(
        attributes=dict(point.attributes),
        start_time_unix_nano=point.start_ns,
        time_unix_nano=point.time_ns,
        count=value.count,
        sum=value.sum,
        bucket_counts=value.bucket_counts,
        explicit_bounds=value.bounds,
        min=value.min,  # type: ignore[arg-type]
        max=value.max,  # type: ignore[arg-type]
        exemplars=[_exemplar(one) for one in point.exemplars],
    )


def _exponential(point: MetricPoint) -> sdk.ExponentialHistogramDataPoint:
    value = _histogram_of(point)
    return sdk.ExponentialHistogramDataPoint(
        attributes=dict(point.attributes),
        start_time_unix_nano=point.start_ns,
        time_unix_nano=point.time_ns,
        count=value.count,
        sum=value.sum,
        scale=value.scale or 0,
        zero_count=value.zero_count,
        positive=sdk.Buckets(value.positive_offset, value.positive_counts),
        negative=sdk.Buckets(value.negative_offset, value.negative_counts),
        flags=point.flags,
        min=value.min,  # type: ignore[arg-type]
        max=value.max,  # type: ignore[arg-type]
        exemplars=[_exemplar(one) for one in point.exemplars],
    )


def _histogram_of(point: MetricPoint) -> HistogramValue:
    return point.histogram or HistogramValue(count=0, sum=0.0)


def _exemplar(exemplar: Exemplar) -> SdkExemplar:
    known = bool(exemplar.trace_id and exemplar.span_id)
    return SdkExemplar(
        dict(exemplar.attributes),
        exemplar.value,
        exemplar.time_ns,
        exemplar.span_id if known else None,
        exemplar.trace_id if known else None,
    )
