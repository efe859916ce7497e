"""Data sets and models of a run: their records, the context beside a model, and what a failed save does."""

from __future__ import annotations

import hashlib
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from otel_train.errors import CheckpointError
from otel_train.testing import recorded

Start = Callable[..., Any]


def test_a_saved_model_has_its_whole_context_beside_it(start: Start, tmp_path: Path) -> None:
    """Run, attempt, step, iterations, data checksums, metrics, configuration, packages and SHA-256."""
    (tmp_path / "rows.csv").write_text("1,2\n")
    run = start(project="digits", config={"lr": 0.1}, seed=3)
    with run.stage("read", inputs=[tmp_path / "rows.csv"]):
        run.log_dataset("train", tmp_path / "rows.csv")
    for _ in run.epochs(1):
        for _ in run.steps(range(10)):
            run.log({"loss": 0.5})
        run.log({"loss": 0.25}, split="val")
        written = run.save_checkpoint(tmp_path / "model.pkl", {"w": [1, 2]}, best=True)
    run.finish()
    assert written == tmp_path / "model.pkl"
    assert pickle.loads(written.read_bytes()) == {"w": [1, 2]}
    sha256 = hashlib.sha256(written.read_bytes()).hexdigest()
    context = json.loads((tmp_path / "model.pkl.context.json").read_text())
    assert context["sha256"] == sha256
    assert (context["run"], context["attempt"], context["project"]) == (run.id, 1, "digits")
    assert (context["step"], context["epoch"], context["iterations"], context["best"]) == (9, 0, 10, True)
    assert context["metrics"] == {"train/loss": 0.5, "val/loss": 0.25}
    assert context["config"] == {"lr": 0.1}
    assert context["seed"] == 3
    assert context["data"][0]["name"] == "train"
    assert "opentelemetry-sdk" in context["dependencies"]
    assert context["stages"][0]["name"] == "read"
    record = recorded(run)
    (entry,) = record.info["checkpoints"]
    assert (entry["role"], entry["sha256"], entry["best"], entry["step"]) == ("saved", sha256, True, 9)
    event = record.event("checkpoint.saved")
    assert event.body == f"checkpoint saved: model.pkl, {written.stat().st_size} bytes, the best so far"
    assert event.attributes["sha256"] == sha256
    assert (event.attributes["dl.step"], event.attributes["dl.epoch"]) == (9, 0)
    assert [point.value for point in record.named("dl.checkpoint.size")] == [written.stat().st_size]
    assert len(record.named("dl.checkpoint.time")) == 1
    archived = list((run.path / "artifacts").rglob("*.json"))
    assert any(json.loads(path.read_text()).get("sha256") == sha256 for path in archived)


def test_a_save_that_fails_raises_and_keeps_the_former_file(start: Start, tmp_path: Path) -> None:
    """The user must know; what was saved before is still whole; the log says why."""
    run = start()
    path = run.save_checkpoint(tmp_path / "model.pkl", {"w": 1})
    before = path.read_bytes()

    def save(obj: Any, place: str) -> None:
        Path(place).write_bytes(b"half")
        raise OSError("disk full")

    with pytest.raises(CheckpointError, match="disk full"):
        run.save_checkpoint(tmp_path / "model.pkl", {"w": 2}, save=save)
    run.finish()
    assert path.read_bytes() == before
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["model.pkl", "model.pkl.context.json", "runs"]
    record = recorded(run)
    good, bad = record.events("checkpoint.saved")
    assert (good.level, bad.level) == ("INFO", "ERROR")
    assert "disk full" in bad.body
    assert [span.entry.status_code for span in record.spans_of("checkpoint")] == [0, 2]
    assert record.info["status"] == "finished"


def test_given_iterations_and_metrics_are_kept(start: Start, tmp_path: Path) -> None:
    """Whoever counts otherwise says so."""
    run = start()
    run.save_checkpoint(tmp_path / "m.pkl", {}, iterations=1234, metrics={"bleu": 0.3})
    run.finish()
    context = json.loads((tmp_path / "m.pkl.context.json").read_text())
    assert (context["iterations"], context["metrics"]) == (1234, {"bleu": 0.3})
    assert context.get("step") is None


def test_a_checkpoint_that_another_library_wrote_is_hashed_and_recorded(start: Start, tmp_path: Path) -> None:
    """The file itself is left alone; context and record follow from the background."""
    (tmp_path / "model.bin").write_bytes(b"weights")
    run = start()
    run.log({"loss": 1.0}, step=7)
    run.log_checkpoint(tmp_path / "model.bin", best=True)
    run.finish()
    sha256 = hashlib.sha256(b"weights").hexdigest()
    record = recorded(run)
    (entry,) = record.info["checkpoints"]
    assert (entry["role"], entry["sha256"], entry["step"], entry["size"]) == ("logged", sha256, 7, 7)
    context = json.loads((tmp_path / "model.bin.context.json").read_text())
    assert (context["sha256"], context["step"], context["run"]) == (sha256, 7, run.id)
    assert record.event("checkpoint.saved").body == "checkpoint recorded: model.bin, 7 bytes, the best so far"


def test_a_missing_checkpoint_is_a_warning(start: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """log_checkpoint never raises into training."""
    run = start()
    run.log_checkpoint(tmp_path / "missing.bin")
    run.log_base_model(tmp_path / "missing.bin")
    run.finish()
    assert any("log_checkpoint" in message and "missing.bin" in message for message in caplog.messages)
    assert recorded(run).info["status"] == "finished"


def test_the_base_model_is_the_parent_of_what_is_saved(start: Start, tmp_path: Path) -> None:
    """A fine-tuned model names the checkpoint that it came from, across runs."""
    first = start()
    base = first.save_checkpoint(tmp_path / "base.pkl", {"w": 1})
    first.finish()
    second = start()
    second.log_base_model(base)
    second.session.pool.wait(10.0)
    second.save_checkpoint(tmp_path / "tuned.pkl", {"w": 2})
    second.finish()
    record = recorded(second)
    assert [entry["role"] for entry in record.info["checkpoints"]] == ["loaded", "saved"]
    assert record.event("checkpoint.loaded").body.startswith("checkpoint starts from: base.pkl")
    context = json.loads((tmp_path / "tuned.pkl.context.json").read_text())
    (parent,) = context["parents"]
    assert parent["sha256"] == hashlib.sha256(base.read_bytes()).hexdigest()
    assert parent["run"] == first.id


def test_a_data_set_in_memory_is_described_at_once(start: Start) -> None:
    """Size, classes with their counts, sampling and dropped samples; the event tells them in a sentence."""
    run = start()
    run.log_dataset(
        "train", [[1.0], [2.0], [3.0]], labels=[0, 1, 1], dropped={"corrupt": 2, "empty": 1}, sampling="shuffled"
    )
    run.finish()
    record = recorded(run)
    (entry,) = record.info["datasets"]
    assert (entry["name"], entry["size"], entry["sampling"]) == ("train", 3, "shuffled")
    assert entry["dropped"]["total"] == 3
    assert entry["classes"] == {"0": 1, "1": 2}
    assert record.event("dataset.described").body == "data set train, 3 samples, 2 classes, 3 dropped"


def test_a_strange_data_set_does_not_stop_training(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    """An object that raises on every look is recorded with what is known of it."""

    class Broken:
        def __len__(self) -> int:
            raise RuntimeError("no length")

        def __getitem__(self, index: int) -> int:
            raise RuntimeError("no item")

    run = start()
    run.log_dataset("broken", Broken())
    run.log({"loss": 1.0})
    run.finish()
    record = recorded(run)
    assert record.values("loss") == [1.0]
    assert [entry["name"] for entry in record.info["datasets"]] == ["broken"]


def test_after_the_end_a_checkpoint_is_still_written(start: Start, tmp_path: Path) -> None:
    """The model is the user's; only its record is left out."""
    run = start()
    run.finish()
    assert pickle.loads(run.save_checkpoint(tmp_path / "late.pkl", {"w": 1}).read_bytes()) == {"w": 1}
    assert recorded(run).info["checkpoints"] == []
