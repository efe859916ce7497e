"""OpenTelemetry's own API while a run is open: spans, log records and instruments of the user arrive."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry import metrics, trace
from opentelemetry._logs import LogRecord, SeverityNumber, get_logger

from otel_train.testing import recorded
from tests.scripts import Scripts

Start = Callable[..., Any]


def test_a_tracer_follows_the_current_run(start: Start) -> None:
    """One tracer, made before any run, records into each run, and into nothing between them."""
    tracer = trace.get_tracer("library")
    with tracer.start_as_current_span("before") as span:
        assert not span.is_recording()
    names = []
    for name in ("a", "b"):
        run = start()
        with tracer.start_as_current_span(name) as span:
            assert span.is_recording()
        run.finish()
        names.append([span.name for span in recorded(run).spans if span.name in ("before", "a", "b")])
    assert names == [["a"], ["b"]]


def test_records_of_the_log_api_arrive(start: Start) -> None:
    """Body, severity, attributes, event name and trace are kept; step and epoch are added, secrets taken out."""
    logger = get_logger("library", "2.0")
    run = start()
    for _ in run.epochs(1):
        run.log({"loss": 1.0}, step=7)
        with run.stage("a"):
            logger.emit(
                LogRecord(
                    timestamp=1_770_000_000_000_000_000,
                    body="hello password=FAKEPASSWORD1",
                    severity_number=SeverityNumber.WARN,
                    severity_text="WARN",
                    attributes={"n": 1, "api_key": "FAKEKEY1"},
                    event_name="library.event",
                )
            )
    run.finish()
    record = recorded(run)
    log = record.event("library.event")
    assert (log.body, log.level, log.entry.severity_number) == ("hello password=[redacted]", "WARN", 13)
    assert log.entry.time_ns == 1_770_000_000_000_000_000
    assert (log.attributes["n"], log.attributes["api_key"]) == (1, "[redacted]")
    assert (log.attributes["dl.step"], log.attributes["dl.epoch"]) == (7, 0)
    assert log.entry.scope == "library"
    assert log.entry.span_id == record.spans_of("a")[0].entry.span_id


def test_instruments_of_the_metrics_api_arrive(start: Start) -> None:
    """What counters, histograms and gauges hold at the end is there, also in a run of a moment."""
    meter = metrics.get_meter("library")
    run = start()
    meter.create_counter("requests", unit="{request}").add(3, {"kind": "a"})
    meter.create_histogram("latency", unit="s").record(0.5)
    meter.create_gauge("temperature").set(21.5)
    meter.create_observable_gauge("queue", [lambda options: [metrics.Observation(4)]])
    run.finish()
    record = recorded(run)
    last = {point.name: point for point in record.points}
    assert (last["requests"].value, last["requests"].kind, last["requests"].attributes) == (3, "counter", {"kind": "a"})
    assert last["requests"].unit == "{request}"
    assert last["temperature"].value == 21.5
    assert last["queue"].value == 4
    assert last["latency"].kind == "histogram"
    assert {r["run_id"] for r in record.resources} == {run.id}


def test_a_step_number_makes_no_series_of_its_own(start: Start) -> None:
    """10,000 steps give the same series as 10: step and run id are no attributes of a point."""
    counts = []
    for steps in (10, 10_000):
        run = start()
        for _ in run.steps(range(steps)):
            run.log({"loss": 1.0})
        run.finish()
        points = recorded(run).points
        counts.append(
            len(
                {
                    (p.name, tuple(sorted(p.attributes.items())))
                    for p in points
                    if p.name.startswith(("train", "dl.step.t"))
                }
            )
        )
    assert counts[0] == counts[1] == 2


OWN = """
import otel_train
from opentelemetry import trace, metrics, _logs
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
exporter = InMemorySpanExporter()
tracers, meters, loggers = TracerProvider(), MeterProvider(), LoggerProvider()
tracers.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(tracers)
metrics.set_meter_provider(meters)
_logs.set_logger_provider(loggers)
with otel_train.init() as run:
    with trace.get_tracer("user").start_as_current_span("mine") as mine:
        with run.stage("clean"):
            run.log({"loss": 1.0})
assert trace.get_tracer_provider() is tracers
assert metrics.get_meter_provider() is meters
assert _logs.get_logger_provider() is loggers
print([span.name for span in exporter.get_finished_spans()], mine.get_span_context().span_id)
"""


@pytest.mark.slow
def test_a_provider_that_the_user_has_set_is_left_alone(scripts: Scripts) -> None:
    """His spans go to his exporter; a stage within one is its child all the same."""
    ended = scripts(OWN)
    assert ended.code == 0, ended.errors
    names, parent = ended.output.rsplit(" ", 1)
    assert names == "['mine']"
    record = recorded(ended.path)
    assert record.spans_of("clean")[0].entry.parent_span_id == int(parent)
    assert record.spans_of("mine") == []
    assert record.values("loss") == [1.0]


def test_logging_through_opentelemetrys_handler_is_not_needed(start: Start) -> None:
    """A record of `logging` arrives once."""
    run = start()
    logging.getLogger("user").error("once")
    run.finish()
    assert recorded(run).messages == ["once"]
