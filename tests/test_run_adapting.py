"""What an adapter of a framework tells a run: a loop by calls, a checkpoint that another library writes, plain keys."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import otel_train
from otel_train.testing import recorded

Start = Callable[..., Any]


def test_an_open_loop_records_what_run_steps_would(start: Start) -> None:
    """Numbers, phases and an evaluation of a hand-driven loop stand where those of a loop by hand do."""
    run = start()
    for epoch in run.epochs(2):
        loop = run.open_loop(batches=3)
        for _ in range(3):
            loop.fetch()
            loop.begin()
            with run.phase("model_forward"):
                run.log({"loss": 1.0})
            loop.end()
        loop.pause()
        with run.open_loop(split="valid") as evaluation:
            for _ in range(2):
                evaluation.fetch()
                evaluation.begin()
                evaluation.end()
            run.log({"loss": 0.5}, split="val")
        loop.close()
        assert run.epoch == epoch
    run.finish()
    record = recorded(run)
    assert record.steps("loss", "train") == list(range(6))
    assert record.steps("loss", "val") == [2, 5]
    assert [point.step for point in record.named("dl.step.time", "val")] == [0, 1, 0, 1]
    assert [point.epoch for point in record.named("dl.step.time", "train")] == [0, 0, 0, 1, 1, 1]
    assert [point.step for point in record.named("dl.phase.time")] == list(range(6))
    assert [span.attributes["split"] for span in record.spans_of("evaluation")] == ["val", "val"]


def test_the_share_that_is_done_is_known_of_an_open_loop(start: Start) -> None:
    """From the number of batches of an epoch, and the epochs."""
    run = start()
    epochs = iter(run.epochs(2))
    next(epochs)
    loop = run.open_loop(batches=4)
    loop.begin()
    loop.end()
    loop.begin()
    assert run.progress.share() == pytest.approx(0.25)
    loop.close()
    epochs.close()


def test_a_checkpoint_of_another_library_is_timed_and_recorded(start: Start, tmp_path: Path) -> None:
    """Span, duration, size and checksum; whether it is the best may be said within the block."""
    run = start()
    run.log({"loss": 1.0}, step=7)
    with run.writing_checkpoint(tmp_path / "model.bin", iterations=70) as writing:
        assert run.activity.elsewhere() == "checkpoint"
        (tmp_path / "model.bin").write_bytes(b"weights")
        writing.best = True
    run.finish()
    record = recorded(run)
    (entry,) = record.info["checkpoints"]
    assert (entry["role"], entry["best"], entry["step"], entry["iterations"]) == ("logged", True, 7, 70)
    assert entry["size"] == record.named("dl.checkpoint.size")[0].value == 7
    (span,) = record.spans_of("checkpoint")
    (spent,) = record.named("dl.checkpoint.time")
    assert 0 < spent.value <= (span.entry.end_ns - span.entry.start_ns) / 1e9
    assert (tmp_path / "model.bin.context.json").is_file()


def test_a_checkpoint_that_fails_is_no_checkpoint(start: Start, tmp_path: Path) -> None:
    """The exception passes through, the span is a failed one, and nothing is on record as saved."""
    run = start()
    with pytest.raises(OSError, match="no space"):
        with run.writing_checkpoint(tmp_path / "model.bin"):
            raise OSError("no space")
    run.finish()
    record = recorded(run)
    assert record.info["checkpoints"] == []
    assert record.spans_of("checkpoint")[0].entry.status_code == 2
    assert record.named("dl.checkpoint.time") == []


def test_after_the_end_a_checkpoint_is_written_all_the_same(start: Start, tmp_path: Path) -> None:
    """The block runs, and nothing is recorded."""
    run = start()
    run.finish()
    with run.writing_checkpoint(tmp_path / "model.bin"):
        (tmp_path / "model.bin").write_bytes(b"weights")
    assert recorded(run).info["checkpoints"] == []


def test_keys_are_told_from_their_splits(start: Start) -> None:
    """As `log` reads them."""
    assert start().split_of("val_loss") == ("loss", "val")


def test_optimizer_steps_beside_numbers_are_heard(start: Start) -> None:
    """What the log says of them beats what is counted, up to the last heartbeat."""
    run = start()
    run.log({"loss": 1.0, "optimizer_step": 20}, step=10)
    assert (run.optimizer_steps.done, run.optimizer_steps.source) == (20, "log")
    run.finish()
    record = recorded(run)
    assert next((point.step, point.value) for point in record.named("dl.optimizer.step")) == (10, 20)
    assert "optimizer_step" not in str(record.info["summary"])


def test_a_disabled_run_takes_all_calls(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With the SDK disabled nothing is recorded, and the block of a checkpoint runs."""
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    with otel_train.init() as run:
        with run.open_loop() as loop:
            loop.fetch()
            loop.fetched()
            assert loop.begin(4) == 4
            loop.look_at(None)
            loop.end()
            loop.pause()
        with run.writing_checkpoint(tmp_path / "model.bin") as writing:
            writing.best = True
            (tmp_path / "model.bin").write_bytes(b"weights")
        assert run.split_of("lr") == ("lr", None)
    assert (tmp_path / "model.bin").is_file()
