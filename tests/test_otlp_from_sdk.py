"""What the SDK makes is written as the very message that the SDK's own encoder would send."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry._logs import SeverityNumber
from opentelemetry.exporter.otlp.proto.common._log_encoder import encode_logs
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk._logs import LoggerProvider, ReadableLogRecord
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor
from opentelemetry.sdk.metrics import Histogram, MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, MetricsData
from opentelemetry.sdk.metrics.view import ExponentialBucketHistogramAggregation
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    TraceState,
)
from otlp_oracle import message

from otel_train.otlp.decode import decode_line
from otel_train.otlp.encode import LineEncoder
from otel_train.otlp.from_sdk import log_entry, metrics_line, span_entry

RESOURCE = {"run_id": "20260101-000000-abcdefgh", "service.name": "digits", "run_attempt": 1}
SDK_RESOURCE = Resource(RESOURCE)
ENCODER = LineEncoder(RESOURCE, "0.1.0")


@pytest.fixture
def spans() -> Iterator[tuple[TracerProvider, InMemorySpanExporter]]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider(
        resource=SDK_RESOURCE, span_limits=SpanLimits(max_span_attributes=3), shutdown_on_exit=False
    )
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    yield provider, exporter
    provider.shutdown()


def finished(exporter: InMemorySpanExporter) -> Sequence[ReadableSpan]:
    return exporter.get_finished_spans()


def test_spans_equal_the_sdks_own_message(spans: tuple[TracerProvider, InMemorySpanExporter]) -> None:
    """Kinds, parents near and remote, links, events, exceptions, status, trace state, limits: the same message."""
    provider, exporter = spans
    tracer = provider.get_tracer("otel_train", "0.1.0")
    other = provider.get_tracer("user.lib", "2.1")
    state = TraceState([("vendor", "x"), ("other", "y")])
    remote = SpanContext(2**127 + 5, 2**63 + 1, is_remote=True, trace_flags=TraceFlags(1), trace_state=state)
    context = trace.set_span_in_context(NonRecordingSpan(remote))
    with tracer.start_as_current_span(
        "stage", context, SpanKind.SERVER, links=[Link(remote, {"why": "resumed"})]
    ) as span:
        span.set_attributes({"text": "ü\n", "whole": 2**62, "real": 0.1, "more": True, "listed": ["a", "b"]})
        span.add_event("best", {"value": 0.5, "flags": (True, False)}, timestamp=1_700_000_000_000_000_000)
        with other.start_as_current_span("inner", kind=SpanKind.CLIENT):
            pass
        with pytest.raises(ValueError, match="no"), tracer.start_as_current_span("fails"):
            raise ValueError("no")
        span.set_status(Status(StatusCode.OK))
    made = finished(exporter)
    entries = [span_entry(span) for span in made]
    assert [entry.name for entry in entries] == ["inner", "fails", "stage"]
    assert message(ENCODER.spans(entries)) == encode_spans(made)
    assert entries[2].dropped_attributes == 2
    assert entries[2].trace_state == "vendor=x,other=y"
    line = ENCODER.spans(entries)
    assert ENCODER.spans([span for span, _ in decode_line(line).spans]) == line


def test_an_open_span_ends_where_it_starts(spans: tuple[TracerProvider, InMemorySpanExporter]) -> None:
    """A span that is written before its end has no negative or missing duration."""
    span = spans[0].get_tracer("otel_train").start_span("open", start_time=77)
    assert isinstance(span, ReadableSpan)
    entry = span_entry(span)
    assert (entry.start_ns, entry.end_ns) == (77, 77)
    span.end()


def emitted(**fields: Any) -> Sequence[ReadableLogRecord]:
    exporter = InMemoryLogRecordExporter()
    provider = LoggerProvider(resource=SDK_RESOURCE, shutdown_on_exit=False)
    provider.add_log_record_processor(SimpleLogRecordProcessor(exporter))
    provider.get_logger("otel_train", "0.1.0").emit(**fields)
    provider.shutdown()
    return exporter.get_finished_logs()


@pytest.mark.parametrize("body", ["text", 2**62, 0.5, True, b"\x00\xff", ["a", 1], {"nested": {"list": [1.5, "x"]}}])
def test_log_records_equal_the_sdks_own_message(body: Any) -> None:
    """Bodies of every type, nested attributes, severity, event name and the active span's ids: the same message."""
    context = trace.set_span_in_context(
        NonRecordingSpan(SpanContext(2**100, 2**50, is_remote=False, trace_flags=TraceFlags(1)))
    )
    records = emitted(
        timestamp=1_700_000_000_000_000_000,
        observed_timestamp=1_700_000_000_000_000_009,
        context=context,
        severity_number=SeverityNumber.WARN,
        severity_text="WARN",
        body=body,
        attributes={"event.name": "my.event", "deep": {"a": [1, 2]}, "raw": b"\x01"},
        event_name="my.event",
    )
    entries = [log_entry(record) for record in records]
    line = ENCODER.logs(entries)
    assert message(line) == encode_logs(records)
    assert (entries[0].trace_id, entries[0].span_id, entries[0].flags) == (2**100, 2**50, 1)
    (found, resource), *rest = decode_line(line).logs
    assert not rest
    assert resource == RESOURCE
    assert (found.body, found.event_name) == (body, "my.event")


def test_a_log_record_without_a_time_has_that_of_its_observation() -> None:
    """No record is of 1970."""
    (record,) = emitted(observed_timestamp=99, body="x")
    assert log_entry(record).time_ns == 99


@pytest.fixture
def metrics() -> Iterator[MetricsData]:
    bounded, exponential = (
        InMemoryMetricReader(),
        InMemoryMetricReader(preferred_aggregation={Histogram: ExponentialBucketHistogramAggregation()}),
    )
    provider = MeterProvider(metric_readers=[bounded, exponential], resource=SDK_RESOURCE, shutdown_on_exit=False)
    meter = provider.get_meter("user.meter", "3.0", schema_url="https://example.org/schema")
    context = trace.set_span_in_context(
        NonRecordingSpan(SpanContext(2**90, 2**40, is_remote=False, trace_flags=TraceFlags(1)))
    )
    counter = meter.create_counter("requests", "1", "How many")
    counter.add(5, {"route": "/a", "ok": True}, context)
    counter.add(2**60, {"route": "/b"})
    meter.create_up_down_counter("queue").add(-3)
    meter.create_gauge("level", "Cel").set(20.5, {"room": "a"})
    histogram = meter.create_histogram("latency", "s", "How long")
    for value in (0.0, 0.001, 0.5, 3.0, 700.0):
        histogram.record(value, {"route": "/a"}, context)
    bounded_data, exponential_data = bounded.get_metrics_data(), exponential.get_metrics_data()
    assert bounded_data is not None
    assert exponential_data is not None
    yield MetricsData([*bounded_data.resource_metrics, *exponential_data.resource_metrics])
    provider.shutdown()


def test_metrics_of_every_type_equal_the_sdks_own_message(metrics: MetricsData) -> None:
    """Sums, gauges, histograms of both kinds, exemplars and schema: the same message, block by block."""
    for block in metrics.resource_metrics:
        data = MetricsData([block])
        assert message(metrics_line(data)) == encode_metrics(data)
    found = {
        (point.name, point.attributes): point for point, _ in decode_line(metrics_line(metrics)).points() if point.value
    }
    assert found["requests", (("route", "/b"),)].value == 2**60
    assert found["requests", (("route", "/a"), ("ok", True))].exemplars[0].trace_id == 2**90
    assert found["queue", ()].kind == "updowncounter"
    assert found["level", (("room", "a"),)].value == 20.5
    histograms = [point.histogram for point, _ in decode_line(metrics_line(metrics)).points() if point.histogram]
    bounded, exponential = histograms
    assert (bounded.count, bounded.sum, bounded.min, bounded.max) == (5, 703.501, 0.0, 700.0)
    assert sum(count for _, _, count in bounded.buckets()) == 5
    assert (exponential.count, exponential.zero_count, sum(exponential.positive_counts)) == (5, 1, 4)


@pytest.mark.parametrize("aggregation", [{}, {Histogram: ExponentialBucketHistogramAggregation()}])
def test_a_histogram_of_whole_numbers_equals_the_sdks_own_message(aggregation: Any) -> None:
    """Sizes and counts are recorded as Python's whole numbers; sum, extremes and bounds are such then."""
    reader = InMemoryMetricReader(preferred_aggregation=aggregation)
    provider = MeterProvider(metric_readers=[reader], resource=SDK_RESOURCE, shutdown_on_exit=False)
    sizes = provider.get_meter("m").create_histogram("sizes", explicit_bucket_boundaries_advisory=[1, 10])
    for value in (2, 30):
        sizes.record(value)
    data = reader.get_metrics_data()
    provider.shutdown()
    assert data is not None
    assert message(metrics_line(data)) == encode_metrics(data)
    (point,) = [point for point, _ in decode_line(metrics_line(data)).points()]
    assert point.histogram is not None
    assert (point.histogram.count, point.histogram.sum, point.histogram.max) == (2, 32.0, 30.0)


def test_metrics_can_be_given_the_runs_resource(metrics: MetricsData) -> None:
    """Instruments of a provider that the user made carry the run's id all the same."""
    request = message(metrics_line(metrics, {"run_id": "other"}))
    for block in request.resource_metrics:
        assert [(a.key, a.value.string_value) for a in block.resource.attributes] == [("run_id", "other")]


def test_no_metrics_are_no_line() -> None:
    """An empty collection writes nothing."""
    assert metrics_line(MetricsData([])) == b""
