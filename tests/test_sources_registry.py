"""A registry of prometheus-client recorded with the run: its families keep their names, kinds, labels and counts."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from opentelemetry.sdk.metrics.export import MetricsData
from otlp_oracle import message
from prometheus_client import CollectorRegistry, Counter, Enum, Gauge, Histogram, Info, Summary, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, SummaryMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from otel_train.errors import ConfigError
from otel_train.otlp.decode import MetricPoint, decode_line
from otel_train.otlp.from_sdk import metrics_line
from otel_train.otlp.prometheus_names import prometheus_name
from otel_train.runlog.reader import RunReader
from otel_train.sources.prometheus_registry import RegistryReader, RegistrySource
from otel_train.testing import recorded

Start = Callable[..., Any]
NOW_NS = 1_700_000_000_000_000_000
TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


class Collector:
    """A user's own collector."""

    def __init__(self, collect: Callable[[], Iterator[Any]]) -> None:
        self.collect = collect

    def describe(self) -> list[Any]:
        return []


def read(registry: Any, **about: Any) -> dict[str, list[MetricPoint]]:
    """What is recorded of a registry, read back from the line that it becomes, by name."""
    return points_of(RegistryReader(registry, start_ns=7, **about).read(NOW_NS))


def points_of(data: MetricsData) -> dict[str, list[MetricPoint]]:
    line = metrics_line(data, {"run_id": "r"})
    found: dict[str, list[MetricPoint]] = {}
    if line:
        request = decode_line(line)
        assert request.skipped == 0
        for point, resource in request.points():
            assert resource == {"run_id": "r"}
            found.setdefault(point.name, []).append(point)
    return found


def test_a_counter_is_a_cumulative_sum_from_its_creation() -> None:
    """Its name ends in _total as in the store, its start is when it was made, each label set is a series."""
    registry = CollectorRegistry()
    counter = Counter("jobs", "Jobs done.", ["kind"], registry=registry)
    before_ns = time.time_ns()
    counter.labels("a").inc(3)
    counter.labels("b").inc(0.5)
    found = read(registry)
    assert set(found) == {"jobs_total"}
    rows = {point.attributes: point for point in found["jobs_total"]}
    assert {key: point.value for key, point in rows.items()} == {(("kind", "a"),): 3.0, (("kind", "b"),): 0.5}
    point = rows[(("kind", "a"),)]
    assert (point.kind, point.unit, point.description, point.time_ns) == ("counter", "", "Jobs done.", NOW_NS)
    assert abs(point.start_ns - before_ns) < 1_000_000_000


def test_gauges_infos_and_enums_are_gauges() -> None:
    """NaN and infinities too; an enum has one series a state."""
    registry = CollectorRegistry()
    gauge = Gauge("depth_bytes", "Depth.", ["q"], registry=registry)
    for name, value in (("a", 7.5), ("b", math.nan), ("c", -math.inf)):
        gauge.labels(name).set(value)
    Info("build", "Build.", registry=registry).info({"version": "1.2"})
    Enum("phase", "Phase.", states=["up", "down"], registry=registry).state("down")
    found = read(registry)
    assert [str(point.value) for point in found["depth_bytes"]] == ["7.5", "nan", "-inf"]
    assert [(point.attributes, point.value) for point in found["build_info"]] == [((("version", "1.2"),), 1.0)]
    assert {point.attributes: point.value for point in found["phase"]} == {
        (("phase", "up"),): 0.0,
        (("phase", "down"),): 1.0,
    }
    assert {point.kind for points in found.values() for point in points} == {"gauge"}


def test_a_histogram_has_its_bounds_and_the_count_of_each_bucket() -> None:
    """The registry's buckets add up; those that are recorded stand for themselves."""
    registry = CollectorRegistry()
    histogram = Histogram("latency_seconds", "Latency.", ["q"], buckets=(0.1, 1.0, 5.0), registry=registry)
    for value in (0.05, 0.1, 0.5, 3.0, 3.5, 99.0):
        histogram.labels("x").observe(value)
    (point,) = read(registry)["latency_seconds"]
    value = point.histogram
    assert value is not None
    assert (point.kind, point.attributes) == ("histogram", (("q", "x"),))
    assert (value.count, value.bounds, value.bucket_counts) == (6, (0.1, 1.0, 5.0), (2, 1, 2, 1))
    assert value.sum == pytest.approx(106.15)
    assert point.start_ns > 1_600_000_000_000_000_000


def test_a_summary_keeps_count_sum_and_quantiles() -> None:
    """prometheus-client's own has no quantiles; those of other collectors are kept."""
    registry = CollectorRegistry()
    summary = Summary("size", "Size.", registry=registry)
    summary.observe(2)
    summary.observe(3.5)

    def collect() -> Iterator[Any]:
        yield SummaryMetricFamily("plain", "Plain.", count_value=4, sum_value=9.0)
        family = Metric("pause", "Pauses.", "summary")
        family.add_sample("pause_count", {"gc": "old"}, 5.0)
        family.add_sample("pause_sum", {"gc": "old"}, 1.25)
        family.add_sample("pause", {"gc": "old", "quantile": "0.99"}, 0.75)
        family.add_sample("pause", {"gc": "old", "quantile": "0.5"}, 0.25)
        yield family

    registry.register(Collector(collect))
    found = read(registry)
    about = {name: (points[0].kind, points[0].attributes, points[0].histogram) for name, points in found.items()}
    for name, count, total, quantiles in (
        ("size", 2, 5.5, ()),
        ("plain", 4, 9.0, ()),
        ("pause", 5, 1.25, ((0.5, 0.25), (0.99, 0.75))),
    ):
        kind, attributes, value = about[name]
        assert kind == "summary"
        assert (value.count, value.sum, value.quantiles) == (count, total, quantiles)
        assert attributes == ((("gc", "old"),) if name == "pause" else ())


def test_a_summarys_line_is_the_message_of_opentelemetrys_own_definition() -> None:
    """The SDK has no summaries: the line is checked against the protocol itself."""
    family = SummaryMetricFamily("size", "Size.", labels=["q"])
    family.add_metric(["x"], count_value=3, sum_value=math.inf)
    family.add_sample("size", {"q": "x", "quantile": "0.9"}, math.nan)
    registry = CollectorRegistry()
    registry.register(Collector(lambda: iter([family])))
    request = message(metrics_line(RegistryReader(registry, start_ns=5).read(NOW_NS), {"run_id": "r"}))
    (metric,) = request.resource_metrics[0].scope_metrics[0].metrics
    (point,) = metric.summary.data_points
    assert (metric.name, metric.description, metric.unit) == ("size", "Size.", "")
    assert (point.count, point.sum, point.start_time_unix_nano, point.time_unix_nano) == (3, math.inf, 5, NOW_NS)
    assert [(value.quantile, math.isnan(value.value)) for value in point.quantile_values] == [(0.9, True)]
    assert [(pair.key, pair.value.string_value) for pair in point.attributes] == [("q", "x")]


def test_names_in_a_store_are_those_of_the_registrys_own_page() -> None:
    """What Prometheus would scrape and what it gets of the run have the same names."""
    registry = CollectorRegistry()
    Counter("jobs", "d", registry=registry).inc()
    Gauge("depth_bytes", "d", registry=registry).set(1)
    Gauge("share_ratio", "d", registry=registry).set(1)
    Counter("cpu_seconds", "d", registry=registry).inc()
    Info("build", "d", registry=registry).info({"v": "1"})
    Histogram("latency_seconds", "d", registry=registry).observe(1)
    scraped = {
        family.name + ("_total" if family.type == "counter" else "")
        for family in text_string_to_metric_families(generate_latest(registry).decode())
        if not family.name.endswith("_created")
    }
    stored = {prometheus_name(points[0].name, "", points[0].kind) for points in read(registry).values()}
    assert stored == scraped


def test_a_prefix_keeps_names_apart() -> None:
    """Where the registry's names would meet others in the store."""
    registry = CollectorRegistry()
    Counter("jobs", "d", registry=registry).inc()
    Histogram("latency", "d", registry=registry).observe(1)
    assert set(read(registry, prefix="loader_")) == {"loader_jobs_total", "loader_latency"}


def test_an_exemplar_is_recorded_once_with_its_span() -> None:
    """A registry shows the last one again and again."""
    registry = CollectorRegistry()
    counter = Counter("jobs", "d", registry=registry)
    counter.inc(2, exemplar={"trace_id": TRACE, "span_id": SPAN, "more": "x"})
    histogram = Histogram("latency", "d", buckets=(1.0,), registry=registry)
    histogram.observe(0.5, exemplar={"trace_id": TRACE, "span_id": SPAN})
    histogram.observe(5.0, exemplar={"job": "7"})
    reader = RegistryReader(registry)
    first = points_of(reader.read(NOW_NS))
    (exemplar,) = first["jobs_total"][0].exemplars
    assert (exemplar.trace_id, exemplar.span_id, exemplar.value) == (int(TRACE, 16), int(SPAN, 16), 2.0)
    assert exemplar.attributes == {"more": "x"}
    assert sorted((one.value, one.trace_id != 0, dict(one.attributes)) for one in first["latency"][0].exemplars) == [
        (0.5, True, {}),
        (5.0, False, {"job": "7"}),
    ]
    again = points_of(reader.read(NOW_NS + 1))
    assert again["jobs_total"][0].exemplars == again["latency"][0].exemplars == ()
    counter.inc(1, exemplar={"trace_id": TRACE, "span_id": SPAN})
    assert [one.value for one in points_of(reader.read(NOW_NS + 2))["jobs_total"][0].exemplars] == [1.0]


def test_series_beyond_the_limit_are_left_out_and_told() -> None:
    """Those that came first go on; a label per request would else fill every store."""
    registry = CollectorRegistry()
    gauge = Gauge("per_user", "d", ["user"], registry=registry)
    said: list[str] = []
    reader = RegistryReader(registry, most_series=3, warn=said.append)
    for number in range(3):
        gauge.labels(str(number)).set(number)
    assert len(points_of(reader.read(NOW_NS))["per_user"]) == 3
    assert said == []
    for number in range(50):
        gauge.labels(str(number)).set(number)
    assert [point.value for point in points_of(reader.read(NOW_NS))["per_user"]] == [0.0, 1.0, 2.0]
    assert set(said) == {
        "the recorded registry holds more than 3 series: further ones, such as per_user, are left out "
        "(most_series=… of record_registry)"
    }


def test_a_histogram_is_one_series_for_the_limit() -> None:
    """Its buckets are not counted one by one."""
    registry = CollectorRegistry()
    Histogram("latency", "d", registry=registry).observe(1)
    Gauge("depth", "d", registry=registry).set(1)
    assert set(read(registry, most_series=2)) == {"latency", "depth"}


def test_a_collector_that_fails_keeps_the_others() -> None:
    """What was collected before is recorded; the fault is told."""
    registry = CollectorRegistry()
    Gauge("depth", "d", registry=registry).set(1)

    def collect() -> Iterator[Any]:
        yield GaugeMetricFamily("early", "d", value=2)
        raise ZeroDivisionError("mine")

    registry.register(Collector(collect))
    said: list[str] = []
    assert set(read(registry, warn=said.append)) == {"depth", "early"}
    assert said == ["a collector of the recorded registry failed: ZeroDivisionError: mine"]


def test_a_counter_that_does_not_say_when_it_began_counts_from_the_recording() -> None:
    """A user's own collector knows no time."""
    registry = CollectorRegistry()
    registry.register(Collector(lambda: iter([CounterMetricFamily("jobs", "d", value=3)])))
    (point,) = read(registry)["jobs_total"]
    assert (point.value, point.start_ns) == (3.0, 7)


# With a run ----------------------------------------------------------------------------------------------------------


def values(run: Any, name: str) -> list[Any]:
    return [point.value for point, _ in RunReader(run.path).points() if point.name == name]


def test_a_registry_is_recorded_with_the_run(start: Start) -> None:
    """At once, at the interval, and a last time at the end; its points do not count as the user's."""
    registry = CollectorRegistry()
    counter = Counter("jobs", "Jobs.", registry=registry)
    run = start()
    run.record_registry(registry, every_s=0.1)
    until_s = time.monotonic() + 10
    while len(values(run, "jobs_total")) < 2 and time.monotonic() < until_s:
        counter.inc()
        run.flush()
        time.sleep(0.02)
    counter.inc(1000)
    run.finish()
    found = values(run, "jobs_total")
    assert len(found) >= 3
    assert found == sorted(found)
    assert found[-1] >= 1000.0
    record = recorded(run)
    assert record.info["attempts"][-1]["accounting"]["recorded"].get("metrics", 0) == 0
    (resource,) = {
        context.resource["run_id"] for point, context in RunReader(run.path).points() if point.name == "jobs_total"
    }
    assert resource == run.id


def test_the_default_registry_is_recorded_where_none_is_named(start: Start) -> None:
    """With what prometheus-client says of the process by itself."""
    run = start()
    run.record_registry()
    run.finish()
    assert values(run, "python_info") == [1.0, 1.0]


def test_too_many_series_become_one_notice_of_the_run(start: Start) -> None:
    """Also readers of the run log learn that there was more."""
    registry = CollectorRegistry()
    gauge = Gauge("per_user", "d", ["user"], registry=registry)
    for number in range(10):
        gauge.labels(str(number)).set(number)
    run = start()
    run.record_registry(registry, most_series=4)
    run.finish()
    notices = [log for log in recorded(run).events("otel_train.notice") if "most_series" in str(log.body)]
    assert len(notices) == 1
    assert notices[0].level == "WARN"
    assert len(set(values(run, "per_user"))) == 4


def test_two_registries_are_recorded_side_by_side(start: Start) -> None:
    """Each with its own interval and prefix."""
    run = start()
    for name in ("one", "two"):
        registry = CollectorRegistry()
        Gauge("depth", "d", registry=registry).set(1)
        run.record_registry(registry, prefix=f"{name}_")
    run.finish()
    assert values(run, "one_depth") == values(run, "two_depth") == [1.0, 1.0]


def test_a_collector_that_hangs_does_not_hold_the_end(start: Start) -> None:
    """The run ends in time without it."""
    release = threading.Event()
    run = start()
    registry = CollectorRegistry()
    registry.register(Collector(lambda: iter([release.wait(20)])))
    run.record_registry(registry)
    began_s = time.monotonic()
    run.finish()
    assert time.monotonic() - began_s < 4
    release.set()


@pytest.mark.parametrize(
    ("about", "field"),
    [
        ({"registry": object()}, "registry"),
        ({"every_s": 0}, "every_s"),
        ({"every_s": math.inf}, "every_s"),
        ({"every_s": "1"}, "every_s"),
        ({"prefix": 3}, "prefix"),
        ({"most_series": 0}, "most_series"),
    ],
)
def test_wrong_arguments_are_named(about: dict[str, Any], field: str, start: Start) -> None:
    """ConfigError says which, what it was, and what to use."""
    run = start()
    with pytest.raises(ConfigError) as caught:
        run.record_registry(**about)
    assert caught.value.field == field


def test_a_source_reads_at_its_interval_until_it_is_stopped() -> None:
    """One reading at the start, one at the end; none afterwards."""
    registry = CollectorRegistry()
    Gauge("depth", "d", registry=registry).set(1)
    taken: list[MetricsData] = []
    source = RegistrySource(RegistryReader(registry), taken.append, every_s=3600)
    source.start()
    source.stop(10)
    assert len(taken) == 2
