"""Writes metrics of any type, as the SDK hands them to its exporters, and summaries, as one OTLP JSON line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from opentelemetry.sdk.metrics import export as sdk

from otel_train.otlp.encode import PREFIXES, SUFFIX, exemplars_field, exponential_json, extremes_field
from otel_train.otlp.histogram import Exemplar
from otel_train.otlp.summary import Summary, SummaryPoint
from otel_train.otlp.values import attributes_field, name_json, number_json, point_value_json, text_json, to_bytes
from otel_train.record.entries import AttributeValue
from otel_train.record.histogram_value import HistogramValue


def metrics_line(data: sdk.MetricsData, resource: Mapping[str, AttributeValue] | None = None) -> bytes:
    """Encode metrics of any type of the SDK as one line; `resource` stands in for the provider's own where given."""
    blocks = []
    for block in data.resource_metrics:
        scopes = [text for scope in block.scope_metrics if (text := _scope_json(scope))]
        if scopes:
            attributes = attributes_field((resource if resource is not None else block.resource.attributes).items())
            blocks.append(
                f'{{"resource":{{{attributes.removesuffix(",")}}},"scopeMetrics":[{",".join(scopes)}]'
                f"{_schema(block.resource.schema_url if resource is None else '')}}}"
            )
    return PREFIXES["metrics"] + to_bytes(",".join(blocks)) + SUFFIX if blocks else b""


def histogram_value(point: sdk.HistogramDataPoint | sdk.ExponentialHistogramDataPoint) -> HistogramValue:
    """Return what a point of one of the SDK's histograms holds: numbers are whole where only such were recorded."""
    lowest, highest = (None if number is None else float(number) for number in (point.min, point.max))
    value = HistogramValue(count=point.count, sum=float(point.sum), min=lowest, max=highest)
    if isinstance(point, sdk.HistogramDataPoint):
        bounds = tuple(map(float, point.explicit_bounds))
        return replace(value, bounds=bounds, bucket_counts=tuple(point.bucket_counts))
    return replace(
        value,
        scale=point.scale,
        zero_count=point.zero_count,
        positive_offset=point.positive.offset,
        positive_counts=tuple(point.positive.bucket_counts),
        negative_offset=point.negative.offset,
        negative_counts=tuple(point.negative.bucket_counts),
    )


def _schema(url: str | None) -> str:
    return f',"schemaUrl":{text_json(url)}' if url else ""


def _scope_json(scope: sdk.ScopeMetrics) -> str:
    metrics = [text for metric in scope.metrics if (text := _metric_json(metric))]
    if not metrics:
        return ""
    version = f',"version":{name_json(scope.scope.version)}' if scope.scope.version else ""
    attributes = attributes_field((scope.scope.attributes or {}).items()).removesuffix(",")
    attributes = f",{attributes}" if attributes else ""
    return (
        f'{{"scope":{{"name":{name_json(scope.scope.name)}{version}{attributes}}},"metrics":[{",".join(metrics)}]'
        f"{_schema(scope.scope.schema_url)}}}"
    )


def _metric_json(metric: sdk.Metric) -> str:
    data: object = metric.data
    if isinstance(data, sdk.Gauge):
        key, points, more = "gauge", list(map(_number_json, data.data_points)), ""
    elif isinstance(data, sdk.Sum):
        monotonic = ',"isMonotonic":true' if data.is_monotonic else ""
        more = f',"aggregationTemporality":{data.aggregation_temporality.value}{monotonic}'
        key, points = "sum", list(map(_number_json, data.data_points))
    elif isinstance(data, sdk.Histogram):
        more = f',"aggregationTemporality":{data.aggregation_temporality.value}'
        key, points = "histogram", list(map(_bounded_json, data.data_points))
    elif isinstance(data, sdk.ExponentialHistogram):
        more = f',"aggregationTemporality":{data.aggregation_temporality.value}'
        key, points = "exponentialHistogram", list(map(_exponential_point_json, data.data_points))
    elif isinstance(data, Summary):
        key, points, more = "summary", list(map(_summary_json, data.data_points)), ""
    else:
        return ""
    points = [point for point in points if point]
    if not points:
        return ""
    description = f',"description":{text_json(metric.description)}' if metric.description else ""
    unit = f',"unit":{name_json(metric.unit)}' if metric.unit else ""
    return f'{{"name":{name_json(metric.name)}{description}{unit},"{key}":{{"dataPoints":[{",".join(points)}]{more}}}}}'


def _number_json(point: sdk.NumberDataPoint) -> str:
    value = point_value_json(point.value)
    if value is None:
        return ""
    return f"{{{_head(point)}{value}{_exemplars(point.exemplars)}}}"


def _bounded_json(point: sdk.HistogramDataPoint) -> str:
    value = histogram_value(point)
    counts = f',"bucketCounts":[{_quoted(value.bucket_counts)}]' if value.bucket_counts else ""
    bounds = f',"explicitBounds":[{",".join(map(number_json, value.bounds))}]' if value.bounds else ""
    return (
        f'{{{_head(point)}"count":"{point.count}","sum":{number_json(value.sum)}'
        f"{counts}{bounds}{extremes_field(value)}{_exemplars(point.exemplars)}}}"
    )


def _exponential_point_json(point: sdk.ExponentialHistogramDataPoint) -> str:
    flags = f',"flags":{point.flags}' if point.flags else ""
    return f"{{{_head(point)}{exponential_json(histogram_value(point))}{flags}{_exemplars(point.exemplars)}}}"


def _summary_json(point: SummaryPoint) -> str:
    start = f'"startTimeUnixNano":"{point.start_ns}",' if point.start_ns else ""
    quantiles = ",".join(
        f'{{"quantile":{number_json(quantile)},"value":{number_json(value)}}}' for quantile, value in point.quantiles
    )
    quantiles = f',"quantileValues":[{quantiles}]' if quantiles else ""
    return (
        f'{{{attributes_field(point.attributes)}{start}"timeUnixNano":"{point.time_ns}",'
        f'"count":"{point.count}","sum":{number_json(point.sum)}{quantiles}}}'
    )


def _head(point: Any) -> str:
    start = f'"startTimeUnixNano":"{point.start_time_unix_nano}",' if point.start_time_unix_nano else ""
    return f'{attributes_field((point.attributes or {}).items())}{start}"timeUnixNano":"{point.time_unix_nano}",'


def _quoted(counts: Iterable[int]) -> str:
    joined = '","'.join(map(str, counts))
    return f'"{joined}"'


def _exemplars(exemplars: Sequence[Any]) -> str:
    return exemplars_field(
        [
            Exemplar(
                time_ns=exemplar.time_unix_nano,
                value=exemplar.value,
                trace_id=exemplar.trace_id or 0,
                span_id=exemplar.span_id or 0,
                attributes=dict(exemplar.filtered_attributes or {}),
            )
            for exemplar in exemplars
        ]
    )
