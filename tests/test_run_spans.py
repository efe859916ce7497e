"""Spans of a run beside those of the user: nesting, links, TRACEPARENT, and secrets in them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry import trace

from otel_train.testing import recorded

Start = Callable[..., Any]
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_a_run_is_a_short_span_and_a_stage_a_trace_linked_to_it(start: Start) -> None:
    """Nothing waits for an end that may never come: the run's span is there at once, stages point to it."""
    run = start(name="first")
    (span,) = recorded(run).spans_of("run")
    assert span.attributes == {"dl.run.name": "first", "run_id": run.id, "run_attempt": 1}
    assert span.entry.end_ns - span.entry.start_ns < 1_000_000_000
    with run.stage("train"):
        pass
    run.finish()
    (stage,) = recorded(run).spans_of("train")
    assert stage.entry.trace_id != span.entry.trace_id
    assert [(link.trace_id, link.span_id) for link in stage.entry.links] == [(span.entry.trace_id, span.entry.span_id)]


def test_stages_and_the_users_spans_nest_both_ways(start: Start) -> None:
    """A stage within the user's span is its child, and the user's span within a stage the stage's."""
    tracer = trace.get_tracer("user", "1.2")
    run = start()
    with tracer.start_as_current_span("request", attributes={"n": 3}):
        with run.stage("clean"):
            with tracer.start_as_current_span("read"):
                pass

            @tracer.start_as_current_span("decorated")
            def work() -> int:
                return 5

            assert work() == 5
    run.finish()
    record = recorded(run)
    by_name = {span.name: span.entry for span in record.spans if not span.announces}
    assert by_name["clean"].parent_span_id == by_name["request"].span_id
    assert by_name["read"].parent_span_id == by_name["decorated"].parent_span_id == by_name["clean"].span_id
    assert len({by_name[name].trace_id for name in ("request", "clean", "read")}) == 1
    assert (by_name["read"].scope, by_name["read"].scope_version) == ("user", "1.2")
    assert by_name["request"].attributes == {"n": 3}
    assert not by_name["clean"].links


def test_an_exception_in_the_users_span_is_on_record(start: Start) -> None:
    """The SDK's own record of it arrives, without secrets."""
    tracer = trace.get_tracer("user")
    run = start()
    with pytest.raises(ValueError, match="password"), tracer.start_as_current_span("read"):
        raise ValueError("cannot log in with password=FAKEPASSWORD1")
    run.finish()
    (span,) = recorded(run).spans_of("read")
    assert span.entry.status_code == 2
    assert span.entry.status_message == "ValueError: cannot log in with password=[redacted]"
    (event,) = span.entry.events
    assert event.attributes["exception.message"] == "cannot log in with password=[redacted]"
    assert "FAKE" not in repr(span.entry)


def test_a_run_under_traceparent_joins_that_trace(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pipeline step that started the process is the parent of run and stages; then no link is needed."""
    monkeypatch.setenv("TRACEPARENT", PARENT)
    run = start()
    with run.stage("train"):
        for _ in run.epochs(1):
            pass
    run.finish()
    record = recorded(run)
    (marked,), (stage,), (epoch,) = record.spans_of("run"), record.spans_of("train"), record.spans_of("epoch")
    for span in (marked, stage, epoch):
        assert f"{span.entry.trace_id:032x}" == "0af7651916cd43dd8448eb211c80319c"
    assert f"{marked.entry.parent_span_id:016x}" == f"{stage.entry.parent_span_id:016x}" == "b7ad6b7169203331"
    assert epoch.entry.parent_span_id == stage.entry.span_id


def test_a_damaged_traceparent_is_left_out(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run then is a trace of its own."""
    monkeypatch.setenv("TRACEPARENT", "00-nonsense")
    run = start()
    run.finish()
    (span,) = recorded(run).spans_of("run")
    assert span.entry.parent_span_id == 0
    assert span.entry.trace_id != 0


def test_an_unsampled_parent_does_not_lose_stages(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run has few spans of its own, and each counts, whatever a parent decided."""
    monkeypatch.setenv("TRACEPARENT", PARENT[:-1] + "0")
    run = start()
    with run.stage("train"):
        pass
    run.finish()
    assert len(recorded(run).spans_of("train")) == 1


def test_checkpoints_are_spans_under_their_epoch(start: Start, tmp_path: Any) -> None:
    """The span tells path, step and checksum."""
    run = start()
    for _ in run.epochs(1):
        run.log({"loss": 1.0})
        run.save_checkpoint(tmp_path / "model.pkl", {"a": 1})
    run.finish()
    record = recorded(run)
    (epoch,), (checkpoint,) = record.spans_of("epoch"), record.spans_of("checkpoint")
    assert checkpoint.entry.parent_span_id == epoch.entry.span_id
    assert checkpoint.attributes["path"] == str(tmp_path / "model.pkl")
    assert checkpoint.attributes["dl.step"] == 0
    assert checkpoint.attributes["sha256"] == record.info["checkpoints"][0]["sha256"]


def test_times_are_those_of_the_wall_clock(start: Start) -> None:
    """A span starts before it ends, within the run."""
    run = start()
    with run.stage("a"):
        pass
    run.finish()
    record = recorded(run)
    for span in record.spans:
        assert 0 < span.entry.start_ns <= span.entry.end_ns


def test_how_many_steps_became_spans_and_how_many_did_not_is_on_record(start: Start) -> None:
    """Kept and thinned steps add up to all steps, and the kept ones are the spans that there are."""
    run = start(step_span_every=10)
    for _ in run.steps(range(50)):
        pass
    run.finish()
    record = recorded(run)
    last = {point.attributes["outcome"]: point.value for point in record.named("otel_train.steps")}
    assert sum(filter(None, last.values())) == 50
    assert last["kept"] == len(record.spans_of("step")) >= 5
