"""Stages, epochs, steps and phases of a run: their spans, records, announcements, and what a broken one leaves."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from otel_train.testing import Recorded, recorded

Start = Callable[..., Any]


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def test_a_stage_records_inputs_outputs_code_and_duration(start: Start, tmp_path: Path) -> None:
    """Each file has its checksum in run.json, in the event at the end, and the span says how it went."""
    (tmp_path / "raw.csv").write_text("raw")
    (tmp_path / "clean.py").write_text("code")
    run = start()
    with run.stage("clean", inputs=[tmp_path / "raw.csv"], code=tmp_path / "clean.py", parameters={"rows": 3}) as stage:
        (tmp_path / "clean.csv").write_text("clean")
        stage.output(tmp_path / "clean.csv")
    run.finish()
    record = recorded(run)
    (entry,) = record.info["stages"]
    assert (entry["name"], entry["status"], entry["parameters"]) == ("clean", "ok", {"rows": 3})
    assert entry["inputs"][0]["checksum"]["value"] == sha256("raw")
    assert entry["outputs"][0]["checksum"]["value"] == sha256("clean")
    assert entry["code"][0]["checksum"]["value"] == sha256("code")
    assert entry["duration_s"] > 0
    (span,) = record.spans_of("clean")
    assert span.attributes["dl.stage"] == "clean"
    assert span.attributes["dl.stage.status"] == "ok"
    assert entry["span_id"] == f"{span.entry.span_id:016x}"
    end = record.event("stage.end")
    assert end.body == "stage clean ended: ok"
    assert end.attributes["dl.stage.outputs"] == [f"{tmp_path / 'clean.csv'} sha256:{sha256('clean')}"]
    assert end.entry.span_id == record.event("stage.start").entry.span_id == span.entry.span_id


def test_what_a_stage_raises_passes_on_and_is_recorded(start: Start) -> None:
    """The span has the error's state and the exception, the record its text, the event severity ERROR."""
    run = start()
    with pytest.raises(ZeroDivisionError), run.stage("clean"):
        1 / 0  # noqa: B018 - raises, which is its purpose
    run.finish()
    record = recorded(run)
    assert (record.info["stages"][0]["status"], record.info["stages"][0]["error"]) == (
        "failed",
        "ZeroDivisionError: division by zero",
    )
    (span,) = record.spans_of("clean")
    assert (span.entry.status_code, span.entry.status_message) == (2, "ZeroDivisionError: division by zero")
    assert span.entry.events[0].attributes["exception.type"] == "ZeroDivisionError"
    assert record.event("stage.end").level == "ERROR"
    assert record.info["status"] == "finished"


def test_a_missing_input_is_said_and_not_raised(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    """A stage with a mistyped path still runs."""
    run = start()
    with run.stage("clean", inputs=["missing.csv"]):
        pass
    run.finish()
    assert recorded(run).info["stages"][0]["status"] == "ok"
    assert any("stage 'clean': missing.csv" in message for message in caplog.messages)


def test_stages_nest(start: Start) -> None:
    """The inner stage names the outer, and its span is a child of the outer's."""
    run = start()
    with run.stage("outer"):
        assert run.present_stage == "outer"
        with run.stage("inner"):
            assert run.present_stage == "inner"
    assert run.present_stage is None
    run.finish()
    record = recorded(run)
    assert [(stage["name"], stage.get("parent")) for stage in record.info["stages"]] == [
        ("inner", "outer"),
        ("outer", None),
    ]
    (outer,), (inner,) = record.spans_of("outer"), record.spans_of("inner")
    assert (inner.entry.parent_span_id, inner.entry.trace_id) == (outer.entry.span_id, outer.entry.trace_id)


def announced(record: Recorded) -> list[tuple[str, str]]:
    return [(span.name, span.attributes["dl.span.name"]) for span in record.spans if span.announces]


def test_open_stages_and_epochs_are_announced(start: Start) -> None:
    """While they are open a short span under their own id says that they have begun."""
    run = start()
    with run.stage("train"):
        for epoch in run.epochs(2):
            record = recorded(run)
            assert announced(record)[0] == ("train (started)", "train")
            assert len(announced(record)) == epoch + 2
            assert record.spans_of("train") == []
    run.finish()
    record = recorded(run)
    (train,) = record.spans_of("train")
    first = next(span for span in record.spans if span.announces)
    assert first.attributes["dl.announces"] == f"{train.entry.span_id:016x}"
    assert first.entry.parent_span_id == train.entry.span_id
    assert first.entry.trace_id == train.entry.trace_id
    assert first.entry.start_ns == train.entry.start_ns


def test_epochs_are_spans_and_number_the_points(start: Start) -> None:
    """Each epoch is a span with its number; a range, a start, and any numbers will do."""
    run = start()
    assert run.epoch is None
    assert len(run.epochs(5, start=3)) == 2
    seen = []
    for epoch in run.epochs(5, start=3):
        assert run.epoch == epoch
        run.log({"loss": 1.0})
        seen.append(epoch)
    for _ in run.epochs([10]):
        run.log({"loss": 1.0})
    assert run.epoch is None
    run.finish()
    record = recorded(run)
    assert seen == [3, 4]
    assert [point.epoch for point in record.of("loss")] == [3, 4, 10]
    assert [span.attributes["dl.epoch"] for span in record.spans_of("epoch")] == [3, 4, 10]
    with pytest.raises(TypeError, match="has no length"):
        len(run.epochs(iter([1])))


def test_an_epoch_left_by_break_ends_its_span(start: Start) -> None:
    """Early stopping leaves the loop: what comes after is outside of it."""
    run = start()
    for _ in run.epochs(5):
        run.early_stop("no better")
        break
    with run.stage("test"):
        pass
    run.finish()
    record = recorded(run)
    (epoch,), (test,) = record.spans_of("epoch"), record.spans_of("test")
    assert "dl.truncated" not in epoch.attributes
    assert test.entry.parent_span_id == 0
    event = record.event("training.early_stop")
    assert (event.body, event.attributes["dl.epoch"]) == ("no better", 0)
    assert record.info["attempts"][0]["early_stop"] == {"reason": "no better", "dl.epoch": 0}


def test_a_loop_that_a_traceback_keeps_alive_does_not_swallow_the_next_run(start: Start) -> None:
    """In a notebook the traceback holds the broken loop; the next run's stages are not inside of its epoch."""
    first = start()
    epochs = iter(first.epochs(3))
    next(epochs)
    second = start()
    with second.stage("train"):
        pass
    second.event("here")
    second.finish()
    del epochs
    record = recorded(second)
    (stage,), (run_span,) = record.spans_of("train"), record.spans_of("run")
    assert stage.entry.parent_span_id == 0
    assert [link.span_id for link in stage.entry.links] == [run_span.entry.span_id]
    assert record.event("here").entry.span_id == run_span.entry.span_id


def test_a_late_end_of_a_loop_does_not_reset_the_epoch(start: Start) -> None:
    """The collector may close an abandoned loop while another is at work."""
    run = start()
    old = iter(run.epochs(3))
    next(old)
    for epoch in run.epochs(7, start=5):
        if epoch == 6:
            old.close()  # type: ignore[attr-defined]  # an iterator by its type, a generator in fact
            assert run.epoch == 6
    run.finish()


def test_steps_are_timed_with_their_wait_and_phases(start: Start) -> None:
    """Each step has its duration, its wait for data and its phases, at its own number."""
    run = start()
    steps = run.steps([10, 20, 30])
    assert len(steps) == 3
    batches = []
    for batch in steps:
        batches.append(batch)
        with run.phase("forward"):
            pass
        run.log({"loss": float(batch)})
    run.finish()
    record = recorded(run)
    assert batches == [10, 20, 30]
    assert record.steps("loss") == [0, 1, 2]
    for name in ("dl.step.time", "dl.data.wait.time", "dl.phase.time"):
        assert [point.step for point in record.named(name)] == [0, 1, 2], name
        assert all(point.value >= 0 for point in record.named(name)), name
    step, wait = record.named("dl.step.time")[0], record.named("dl.data.wait.time")[0]
    assert step.value > wait.value
    (first,) = record.spans_of("step")[:1]
    assert first.attributes["dl.step"] == 0
    assert record.spans_of("forward")[0].entry.parent_span_id == first.entry.span_id


def test_a_validation_loop_is_a_span_and_leaves_the_step_alone(start: Start) -> None:
    """Its batches are timed under their split; the run's step stays that of training."""
    run = start()
    for _ in run.steps(range(4)):
        pass
    for _ in run.steps(range(3), split="valid"):
        assert run.step == 3
    run.log({"loss": 0.5}, split="val")
    run.finish()
    record = recorded(run)
    assert [(point.split, point.step) for point in record.named("dl.step.time")] == [
        ("train", 0), ("train", 1), ("train", 2), ("train", 3), ("val", 0), ("val", 1), ("val", 2),
    ]  # fmt: skip
    assert record.steps("loss", "val") == [3]
    (evaluation,) = record.spans_of("evaluation")
    assert evaluation.attributes["split"] == "val"
    assert evaluation.attributes["dl.step"] == 3


def test_a_loader_that_raises_is_recorded_and_passes_on(start: Start) -> None:
    """The user sees his exception; the log has an event with step and traceback."""

    def loader() -> Any:
        yield 1
        raise OSError("broken record at token=FAKE12345678")

    run = start()
    steps = iter(run.steps(loader()))
    next(steps)
    run.log({"loss": 1.0})
    with pytest.raises(OSError, match="broken record"):
        next(steps)
    run.finish()
    event = recorded(run).event("health.data_loading")
    assert event.level == "ERROR"
    assert event.body.startswith("the data loader raised OSError: broken record")
    assert event.attributes["exception.type"] == "OSError"
    assert event.attributes["dl.step"] == 0
    assert "FAKE12345678" not in repr(event.entry)


def test_a_manual_loop_is_as_good(start: Start) -> None:
    """No wrappers: explicit steps, a phase and an event are at the step that was logged."""
    run = start()
    for step in (100, 200):
        with run.phase("forward"):
            pass
        run.log({"loss": 1.0}, step=step)
    run.event("mine", "text", {"a": 1, "nothing": None, "odd": {1, 2}.__class__})
    run.finish()
    record = recorded(run)
    assert record.steps("loss") == [100, 200]
    assert record.event("mine").attributes["dl.step"] == 200
    assert record.event("mine").attributes["a"] == 1
    assert "nothing" not in record.event("mine").attributes
    assert [point.step for point in record.named("dl.phase.time")] == [100, 200]


def test_thinning_keeps_every_nth_and_counts_the_rest(start: Start) -> None:
    """every={"train.loss": 10} keeps steps 0, 10, 20 …; what was left out is in the accounting."""
    run = start(every={"train.loss": 10})
    for _ in run.steps(range(35)):
        run.log({"loss": 1.0, "accuracy": 0.5})
    run.finish()
    record = recorded(run)
    assert record.steps("loss") == [0, 10, 20, 30]
    assert len(record.of("accuracy")) == 35
    accounting = record.info["attempts"][0]["accounting"]
    assert accounting["dropped"]["metrics"] == {"thinned by every=": 31}


def test_directions_and_units_are_kept_and_make_best_values(start: Start) -> None:
    """define() says which direction is better and the unit; each new best on validation is an event."""
    run = start()
    run.define("bleu", goal="max", unit="1")
    run.define("bleu", unit="%")
    for value in (0.1, 0.3, 0.2):
        run.log({"bleu": value, "loss": value, "plain": value}, split="val")
        run.flush()
    with pytest.raises(ValueError, match='goal=\'up\': use "min" or "max"'):
        run.define("x", goal="up")
    run.finish()
    record = recorded(run)
    best = [
        (e.attributes["metric"], e.attributes["value"], e.attributes["dl.step"]) for e in record.events("model.best")
    ]
    assert sorted(best) == [("train.bleu", 0.1, 0), ("train.bleu", 0.3, 1), ("train.loss", 0.1, 0)]
    assert record.info["metrics"] == {"bleu": {"unit": "%", "goal": "max"}}
    assert {point.unit for point in record.of("bleu")} == {"%"}
    assert {point.unit for point in record.of("plain")} == {""}
