"""Serves a run's present values to a Prometheus that only scrapes, spelled as the OTLP path spells them."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from opentelemetry.sdk.metrics import export as sdk

from otel_train.otlp.from_sdk_metrics import histogram_value
from otel_train.otlp.histogram import HistogramData
from otel_train.otlp.prometheus_names import label_name, prometheus_name
from otel_train.otlp.summary import Summary
from otel_train.record.entries import AttributeValue, Column, Sample
from otel_train.record.histogram_value import HistogramValue, lower_bound
from otel_train.semconv import HOST_NAME, LOCAL_RANK, METRICS, RANK, RUN_ATTEMPT, RUN_ID, RUN_NAME, SERVICE_NAME
from otel_train.semconv import WORLD_SIZE as WORLD

# The resource attributes that the shipped Prometheus makes labels of.
PROMOTED: Final = (
    *(RUN_ID, RUN_NAME, RUN_ATTEMPT, RANK, LOCAL_RANK, WORLD, HOST_NAME, SERVICE_NAME),
    *("service.namespace", "deployment.environment.name"),
)
# Bounds of classic histograms are powers of the square root of 2; those of seconds are always there from 1 ms to an
# hour, since a bucket that comes later has no past that a rate could be taken of.
_SCALE: Final = 1
_SECONDS: Final = range(-20, 24)

Labels = tuple[tuple[str, str], ...]


@dataclass(slots=True)
class _Family:
    """One metric as it is shown: last value by labels."""

    kind: str
    description: str
    unit: str
    series: dict[Labels, float | HistogramValue] = field(default_factory=dict)


class PresentValues:
    """Sees every metric that is written (`MetricTap`), and is a collector of prometheus-client."""

    def __init__(self, resource: Mapping[str, AttributeValue]) -> None:
        self._common = _labels((key, resource[key]) for key in PROMOTED if key in resource)
        self._info = _labels(resource.items())
        self._families: dict[str, _Family] = {}
        self._known: dict[tuple[Any, ...], tuple[_Family, Labels]] = {}
        self._lock = threading.Lock()

    # The tap ---------------------------------------------------------------------------------------------------------

    def points(self, block: Sequence[Column]) -> None:
        """See the last value of each column."""
        for column in block:
            if column.values:
                self._put(
                    column.name, column.unit, "gauge", column.description, column.attributes, float(column.values[-1])
                )

    def readings(self, time_ns: int, samples: Sequence[Sample] | sdk.MetricsData) -> None:
        """See readings of the machine and of the run, or instruments of the metrics API."""
        if isinstance(samples, sdk.MetricsData):
            self._put_instruments(samples)
            return
        for sample in samples:
            metric = METRICS.get(sample.name)
            unit, kind, description = (metric.unit, metric.kind, metric.description) if metric else ("", "gauge", "")
            self._put(sample.name, unit, kind, description, sample.attributes, float(sample.value))

    def histograms(self, histograms: Sequence[HistogramData]) -> None:
        """See histograms."""
        for data in histograms:
            self._put(data.name, data.unit, "histogram", data.description, data.attributes, data.value)

    def _put_instruments(self, data: sdk.MetricsData) -> None:
        for block in data.resource_metrics:
            for scope in block.scope_metrics:
                for metric in scope.metrics:
                    held: Any = metric.data
                    if isinstance(held, Summary):
                        self._put_summary(metric, held)
                        continue
                    kind = _kind_of(held)
                    for point in held.data_points:
                        pairs = tuple((point.attributes or {}).items())
                        self._put(metric.name, metric.unit or "", kind, metric.description or "", pairs, _value(point))

    def _put_summary(self, metric: sdk.Metric, data: Summary) -> None:
        """Show a summary as the series that Prometheus makes of it."""
        about = metric.description or ""
        for point in data.data_points:
            self._put(f"{metric.name}_sum", "", "gauge", about, point.attributes, point.sum)
            self._put(f"{metric.name}_count", "", "gauge", about, point.attributes, float(point.count))
            for quantile, value in point.quantiles:
                pairs = (*point.attributes, ("quantile", f"{quantile:g}"))
                self._put(metric.name, "", "gauge", about, pairs, value)

    def _put(
        self,
        name: str,
        unit: str,
        kind: str,
        description: str,
        attributes: Iterable[tuple[str, Any]],
        value: float | HistogramValue,
    ) -> None:
        key = (name, unit, kind, attributes)
        found = self._known.get(key)
        if found is None:
            spelled = prometheus_name(name, unit, kind)
            with self._lock:
                family = self._families.setdefault(spelled, _Family(kind, description, unit))
            labels = _labels(attributes)
            own = {label for label, _ in labels}
            labels += tuple(pair for pair in self._common if pair[0] not in own)
            found = self._known[key] = family, labels
        family, labels = found
        if (family.kind == "histogram") == isinstance(value, HistogramValue):
            with self._lock:
                family.series[labels] = value

    # The collector ---------------------------------------------------------------------------------------------------

    def collect(self) -> Iterator[Any]:
        """Give each metric as prometheus-client's family; it calls this for each scrape."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

        with self._lock:
            families = [
                (name, family.kind, family.description, family.unit, dict(family.series))
                for name, family in sorted(self._families.items())
            ]
        info = GaugeMetricFamily("target_info", "Attributes of the process.", labels=[name for name, _ in self._info])
        info.add_metric([text for _, text in self._info], 1.0)
        yield info
        for name, kind, description, unit, series in families:
            # Where only some series have a label the others have it empty, which means the same.
            names = sorted({label for labels in series for label, _ in labels})
            made: Any
            if kind == "histogram":
                made = HistogramMetricFamily(name, description, labels=names)
            elif kind == "counter":
                made = CounterMetricFamily(name.removesuffix("_total"), description, labels=names)
            else:
                made = GaugeMetricFamily(name, description, labels=names)
            for labels, value in series.items():
                texts = dict(labels)
                row = [texts.get(label, "") for label in names]
                if isinstance(value, HistogramValue):
                    made.add_metric(row, buckets=classic_buckets(value, unit), sum_value=value.sum)
                else:
                    made.add_metric(row, value)
            yield made


def _labels(pairs: Iterable[tuple[str, Any]]) -> Labels:
    return tuple((label_name(key), _text(value)) for key, value in pairs)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _kind_of(data: Any) -> str:
    if isinstance(data, sdk.Sum):
        return "counter" if data.is_monotonic else "updowncounter"
    return "gauge" if isinstance(data, sdk.Gauge) else "histogram"


def _value(point: Any) -> float | HistogramValue:
    if isinstance(point, sdk.NumberDataPoint):
        return float(point.value)
    return histogram_value(point)


def classic_buckets(value: HistogramValue, unit: str) -> list[tuple[str, int]]:
    """Return (upper bound, cumulative count) of a histogram, to +Inf; an exponential one is coarsened, exactly."""
    total = 0
    found: list[tuple[str, int]] = []
    if value.scale is None:
        for bound, count in zip((*value.bounds, float("inf")), value.bucket_counts, strict=False):
            total += count
            found.append((_bound(bound), total))
        return found or [("+Inf", value.count)]
    scale = min(value.scale, _SCALE)
    counts: dict[int, int] = {}
    for place, count in enumerate(value.positive_counts):
        index = (value.positive_offset + place) >> (value.scale - scale)
        counts[index] = counts.get(index, 0) + count
    seen = [index for index, count in counts.items() if count]
    if unit == "s" and scale == _SCALE:
        seen += (_SECONDS.start, _SECONDS.stop)
    total = value.zero_count + sum(value.negative_counts)
    if total:
        found.append((_bound(0.0), total))
    for index in range(min(seen), max(seen) + 1) if seen else ():
        total += counts.get(index, 0)
        found.append((_bound(lower_bound(index + 1, scale)), total))
    return [*found, ("+Inf", value.count)]


def _bound(bound: float) -> str:
    from prometheus_client.utils import floatToGoString

    spell: Any = floatToGoString
    return str(spell(bound))


class PullServer:
    """prometheus-client's HTTP server on one port, until it is stopped; OSError where the port cannot be had."""

    def __init__(self, values: PresentValues, host: str, port: int) -> None:
        from prometheus_client import CollectorRegistry, start_http_server

        registry = CollectorRegistry(auto_describe=False)
        registry.register(values)
        self._server, thread = start_http_server(port, addr=host, registry=registry)
        thread.name = "otel-train-prometheus"
        self.port = int(self._server.server_port)

    def stop(self) -> None:
        """Answer no more, and give the port back."""
        self._server.shutdown()
        self._server.server_close()

    def abandon(self) -> None:
        """In a forked child: the port is the parent's alone."""
        self._server.socket.close()
