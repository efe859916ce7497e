"""Records what a registry of prometheus-client holds, at an interval and under the names it has there."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from math import inf, isfinite
from typing import Any, Final, Protocol

from opentelemetry.sdk.metrics import Exemplar
from opentelemetry.sdk.metrics import export as sdk
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from otel_train.clock import NS_PER_S, SYSTEM, Clock
from otel_train.otlp.summary import Summary, SummaryPoint

SCOPE: Final = InstrumentationScope("prometheus_client")
# These say of a family's other samples when they began to count.
_CREATED: Final = "_created"
_CUMULATIVE: Final = sdk.AggregationTemporality.CUMULATIVE
Labels = tuple[tuple[str, str], ...]


class Registry(Protocol):
    """What is read: prometheus_client's CollectorRegistry, or what collects as it does."""

    def collect(self) -> Iterable[Any]:
        """Give families of samples."""
        ...


@dataclass(slots=True)
class _Grouped:
    """The samples of one series of a family that says more than one number."""

    buckets: list[tuple[float, float]] = field(default_factory=list)
    quantiles: list[tuple[float, float]] = field(default_factory=list)
    exemplars: list[Any] = field(default_factory=list)
    sum: float = 0.0
    count: float | None = None


class RegistryReader:
    """Turns families into the SDK's data classes. Bounded: series beyond `most_series` are left out, and told once."""

    def __init__(
        self,
        registry: Registry,
        *,
        prefix: str = "",
        most_series: int = 2000,
        warn: Callable[[str], None] = lambda text: None,
        start_ns: int = 0,
    ) -> None:
        self._registry = registry
        self._prefix = prefix
        self._most_series = most_series
        self._warn = warn
        # Where a series does not say itself since when it counts.
        self._start_ns = start_ns
        self._series: set[tuple[str, Labels]] = set()
        self._exemplars: dict[tuple[str, Labels], float] = {}

    def read(self, now_ns: int) -> sdk.MetricsData:
        """Return every family at this wall time. A collector that raises ends it: what came before is kept."""
        metrics: list[sdk.Metric] = []
        try:
            for family in self._registry.collect():
                metrics += self._metrics(family, now_ns)
        except Exception as fault:  # noqa: BLE001 - a user's collector may do anything
            self._warn(f"a collector of the recorded registry failed: {type(fault).__name__}: {fault}")
        return sdk.MetricsData([sdk.ResourceMetrics(Resource({}), [sdk.ScopeMetrics(SCOPE, metrics, "")], "")])

    def _metrics(self, family: Any, now_ns: int) -> Iterator[sdk.Metric]:
        samples = [sample for sample in family.samples if self._admits(family, sample)]
        created = {
            _labels(sample.labels): round(sample.value * NS_PER_S)
            for sample in samples
            if sample.name == family.name + _CREATED and family.type in ("counter", "histogram", "summary")
        }
        if family.type == "histogram":
            yield from self._histogram(family, samples, created, now_ns)
        elif family.type == "summary":
            yield from self._summary(family, samples, created, now_ns)
        else:
            yield from self._numbers(family, samples, created, now_ns)

    def _admits(self, family: Any, sample: Any) -> bool:
        labels = tuple(pair for pair in _labels(sample.labels) if pair[0] not in ("le", "quantile"))
        key = (family.name, labels)
        if key in self._series:
            return True
        if len(self._series) >= self._most_series:
            self._warn(
                f"the recorded registry holds more than {self._most_series:,} series: further ones, such as "
                f"{sample.name}, are left out (most_series=… of record_registry)"
            )
            return False
        self._series.add(key)
        return True

    def _metric(self, name: str, family: Any, data: Any) -> sdk.Metric:
        # No unit: where there is one the name says it already.
        return sdk.Metric(self._prefix + name, str(family.documentation), "", data)

    def _numbers(
        self, family: Any, samples: list[Any], created: dict[Labels, int], now_ns: int
    ) -> Iterator[sdk.Metric]:
        """Give counters as sums, all else as gauges; each name among the samples is a metric."""
        is_counter = family.type == "counter"
        by_name: dict[str, list[sdk.NumberDataPoint]] = {}
        for sample in samples:
            if is_counter and sample.name == family.name + _CREATED:
                continue
            labels = _labels(sample.labels)
            start_ns = created.get(labels, self._start_ns) if is_counter else 0
            exemplars = self._new_exemplars((sample.name, labels), [sample.exemplar])
            by_name.setdefault(sample.name, []).append(
                sdk.NumberDataPoint(dict(labels), start_ns, now_ns, float(sample.value), exemplars)
            )
        for name, points in by_name.items():
            yield self._metric(name, family, sdk.Sum(points, _CUMULATIVE, True) if is_counter else sdk.Gauge(points))

    def _grouped(self, family: Any, samples: list[Any]) -> dict[Labels, _Grouped]:
        groups: dict[Labels, _Grouped] = {}
        for sample in samples:
            pairs = _labels(sample.labels)
            group = groups.setdefault(
                tuple(pair for pair in pairs if pair[0] not in ("le", "quantile")),
                _Grouped(),
            )
            role = sample.name.removeprefix(family.name)
            if role == "_bucket":
                group.buckets.append((float(sample.labels["le"]), sample.value))
                group.exemplars.append(sample.exemplar)
            elif role == "_sum":
                group.sum = float(sample.value)
            elif role == "_count":
                group.count = sample.value
            elif not role and "quantile" in sample.labels:
                group.quantiles.append((float(sample.labels["quantile"]), float(sample.value)))
        return groups

    def _histogram(
        self, family: Any, samples: list[Any], created: dict[Labels, int], now_ns: int
    ) -> Iterator[sdk.Metric]:
        points = []
        for labels, group in self._grouped(family, samples).items():
            buckets = sorted(group.buckets)
            if not buckets or buckets[-1][0] != inf:
                buckets.append((inf, group.count if group.count is not None else (buckets[-1][1] if buckets else 0)))
            totals = [round(total) for _, total in buckets]
            counts = [max(0, total - before) for total, before in zip(totals, [0, *totals], strict=False)]
            points.append(
                sdk.HistogramDataPoint(
                    attributes=dict(labels),
                    start_time_unix_nano=created.get(labels, self._start_ns),
                    time_unix_nano=now_ns,
                    count=sum(counts),
                    sum=group.sum,
                    bucket_counts=counts,
                    explicit_bounds=[bound for bound, _ in buckets[:-1]],
                    min=None,  # type: ignore[arg-type]
                    max=None,  # type: ignore[arg-type]
                    exemplars=self._new_exemplars((family.name, labels), group.exemplars),
                )
            )
        if points:
            yield self._metric(family.name, family, sdk.Histogram(points, _CUMULATIVE))

    def _summary(
        self, family: Any, samples: list[Any], created: dict[Labels, int], now_ns: int
    ) -> Iterator[sdk.Metric]:
        points = [
            SummaryPoint(
                attributes=labels,
                start_ns=created.get(labels, self._start_ns),
                time_ns=now_ns,
                count=round(group.count or 0),
                sum=group.sum,
                quantiles=tuple(sorted(group.quantiles)),
            )
            for labels, group in self._grouped(family, samples).items()
        ]
        if points:
            yield self._metric(family.name, family, Summary(points))

    def _new_exemplars(self, key: tuple[str, Labels], exemplars: Iterable[Any]) -> list[Exemplar]:
        """Return those that were not there the last time: a registry shows the last one again and again."""
        found = []
        seen_s = self._exemplars.get(key, -inf)
        for exemplar in exemplars:
            if exemplar is None or exemplar.timestamp is None or float(exemplar.timestamp) <= seen_s:
                continue
            self._exemplars[key] = max(self._exemplars.get(key, -inf), float(exemplar.timestamp))
            labels = dict(exemplar.labels)
            trace_id, span_id = _id(labels, "trace_id", 32), _id(labels, "span_id", 16)
            if trace_id is not None and span_id is not None:
                del labels["trace_id"], labels["span_id"]
            else:
                trace_id = span_id = None
            time_ns = round(float(exemplar.timestamp) * NS_PER_S)
            found.append(Exemplar(labels, float(exemplar.value), time_ns, span_id, trace_id))
        return found


def _labels(labels: dict[str, str]) -> Labels:
    return tuple((str(name), str(text)) for name, text in labels.items())


def _id(labels: dict[str, str], name: str, digits: int) -> int | None:
    text = labels.get(name, "")
    try:
        return int(text, 16) if len(text) == digits else None
    except ValueError:
        return None


class RegistrySource:
    """Reads a registry on a thread of its own until it is stopped, and once more then."""

    def __init__(
        self, reader: RegistryReader, emit: Callable[[sdk.MetricsData], None], *, every_s: float, clock: Clock = SYSTEM
    ) -> None:
        self._reader = reader
        self._emit = emit
        self._every_s = every_s
        self._clock = clock
        self._stop = threading.Event()
        self._ended = threading.Event()
        self._dead = False

    def start(self) -> None:
        """Start the thread; the first reading is made at once."""
        threading.Thread(target=self._run, name="otel-train-registry", daemon=True).start()

    def stop(self, timeout_s: float) -> None:
        """Have it read a last time, and end; a collector that hangs is waited for no longer than this."""
        self._stop.set()
        if not self._ended.wait(timeout_s):
            self._dead = True

    def abandon(self) -> None:
        """In a forked child: nothing is read here."""
        self._dead = True

    def _run(self) -> None:
        try:
            last = False
            while not self._dead:
                data = self._reader.read(self._clock.wall_ns())
                if not self._dead:
                    self._emit(data)
                if last:
                    return
                last = self._stop.wait(self._every_s)
        finally:
            self._ended.set()


def is_interval(every_s: object) -> bool:
    """Tell whether this can be the seconds between two readings."""
    return isinstance(every_s, (int, float)) and not isinstance(every_s, bool) and every_s >= 0.1 and isfinite(every_s)
