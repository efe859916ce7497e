"""Accelerate's real Accelerator on digits: run, configuration, accumulation, saved and loaded states, nothing twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import otel_train
from otel_train.testing import Recorded, recorded

accelerate = pytest.importorskip("accelerate", reason="Accelerate is not installed")
torch = pytest.importorskip("torch", reason="torch is not installed")

from otel_train.integrations.accelerate import OtelTrainTracker  # noqa: E402
from tests.digits_training import BATCH, LR, QUIET, SIZES, Net, loaders, sgd  # noqa: E402

pytestmark = pytest.mark.slow
BATCHES = SIZES["train"] // BATCH


@pytest.fixture(autouse=True)
def own_state() -> Iterator[None]:
    """Accelerate keeps its state from one Accelerator to the next."""
    yield
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
    accelerate.state.GradientState._reset_state()


@pytest.fixture
def tracker(root: Path) -> OtelTrainTracker:
    return OtelTrainTracker("digits", watch=2, **QUIET)


def train(accelerator: Any, tracker: OtelTrainTracker, *, accumulate: int = 1) -> Any:
    """Train for one epoch, as the documentation of Accelerate does, and return the prepared model."""
    net = Net()
    model, optimizer, loader = accelerator.prepare(net, sgd(net), loaders()["train"])
    tracker.attach(accelerator, model, optimizer)
    for pixels, labels in tracker.tracker.steps(loader, start=1, accumulate=accumulate):
        with accelerator.accumulate(model):
            loss = model(pixels, labels)["loss"]
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        accelerator.log({"train_loss": loss, "text": "left out"})
    return model


def record_of(run: Any) -> Recorded:
    assert run.finished
    return recorded(run)


def test_the_tracker_opens_a_run_and_ends_it(tracker: OtelTrainTracker) -> None:
    """From `init_trackers` to `end_training`: configuration, numbers at the run's steps, internals, amounts."""
    accelerator = accelerate.Accelerator(cpu=True, log_with=tracker)
    accelerator.init_trackers("digits", config={"lr": LR, "layers": [64, 32, 10]})
    run = accelerator.get_tracker("otel_train", unwrap=True)
    train(accelerator, tracker)
    accelerator.end_training()
    record = record_of(run)
    assert (run.project, record.info["status"]) == ("digits", "finished")
    assert record.info["attempts"][0]["config"] == {"lr": LR, "layers": [64, 32, 10]}
    assert record.steps("loss", "train") == list(range(1, BATCHES + 1))
    assert record.named("dl.rank.samples")[-1].value == SIZES["train"]
    assert {point.step for point in record.named("dl.grad.norm")} == {1, 3, 5, 7}
    phases = [point for point in record.named("dl.phase.time") if point.attributes["phase"] == "model_backward"]
    assert [point.step for point in phases] == list(range(1, BATCHES + 1))
    assert "train.text" not in {point.name for point in record.points}


def test_gradient_accumulation_counts_both(tracker: OtelTrainTracker) -> None:
    """Of 8 batches in windows of 4 two are optimizer steps; losses stand at each batch."""
    accelerator = accelerate.Accelerator(cpu=True, log_with=tracker, gradient_accumulation_steps=4)
    accelerator.init_trackers("digits")
    run = tracker.tracker
    train(accelerator, tracker, accumulate=4)
    accelerator.end_training()
    record = record_of(run)
    assert record.steps("loss", "train") == list(range(1, BATCHES + 1))
    assert record.named("dl.micro_step")[-1].value == 8
    assert record.named("dl.optimizer.step")[-1].value == 2
    # Of two optimizer steps the first is looked at: at the batch that ends its window.
    assert {point.step for point in record.named("dl.grad.norm")} == {4}


def test_numbers_keep_their_step_and_split(tracker: OtelTrainTracker) -> None:
    """What `accelerator.log` is given for the tracker goes to the run as it is."""
    accelerator = accelerate.Accelerator(cpu=True, log_with=tracker)
    accelerator.init_trackers("digits")
    run = tracker.tracker
    accelerator.log({"loss": 1.0}, step=4000)
    accelerator.log({"eval_loss": 2.0}, step=1000)
    accelerator.log({"spread": 3.0}, step=7, log_kwargs={"otel_train": {"split": "test"}})
    accelerator.end_training()
    record = record_of(run)
    assert record.steps("loss", "train") == [4000]
    assert record.steps("loss", "val") == [1000]
    assert record.steps("spread", "test") == [7]


def test_states_are_recorded_and_what_is_loaded_is_the_parent(tmp_path: Path, root: Path) -> None:
    """A folder of `save_state` is a checkpoint of the run; a run that loads it points to the first."""
    runs = []
    for _ in range(2):
        tracker = OtelTrainTracker("digits", watch=None, **QUIET)
        accelerator = accelerate.Accelerator(cpu=True, log_with=tracker)
        accelerator.init_trackers("digits")
        runs.append(tracker.tracker)
        if len(runs) == 2:
            net = Net()
            model, optimizer = accelerator.prepare(net, sgd(net))
            tracker.attach(accelerator, model, optimizer)
            accelerator.load_state(str(tmp_path / "state"))
        else:
            train(accelerator, tracker)
            accelerator.save_state(str(tmp_path / "state"))
        accelerator.end_training()
        assert not {"backward", "save_state", "load_state"} & set(vars(accelerator))
        accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
    first, second = (record_of(run) for run in runs)
    (saved,) = first.info["checkpoints"]
    assert (saved["role"], saved["step"], Path(saved["path"]).name) == ("logged", BATCHES, "state")
    assert len(first.named("dl.checkpoint.time")) == 1
    (loaded,) = second.info["checkpoints"]
    assert (loaded["role"], loaded["run"], loaded["sha256"]) == ("loaded", runs[0].id, saved["sha256"])


def test_the_users_run_is_used_and_left_open(start: Callable[..., Any]) -> None:
    """`end_training` ends no run that somebody else has opened."""
    run = start(project="mine")
    tracker = OtelTrainTracker("other", watch=None)
    accelerator = accelerate.Accelerator(cpu=True, log_with=tracker)
    accelerator.init_trackers("other", config={"lr": LR})
    assert tracker.tracker is run
    train(accelerator, tracker)
    accelerator.end_training()
    assert not run.finished
    run.finish()
    assert len(recorded(run).of("loss", "train")) == BATCHES
    assert run.config["lr"] == LR


def test_an_exception_makes_a_failed_run(tracker: OtelTrainTracker) -> None:
    """Who ends the training while an exception is in flight has a failed run."""
    accelerator = accelerate.Accelerator(cpu=True, log_with=tracker)
    accelerator.init_trackers("digits")
    run = tracker.tracker
    try:
        raise RuntimeError("on purpose")
    except RuntimeError:
        accelerator.end_training()
    assert record_of(run).info["status"] == "failed"


def test_a_failed_save_is_the_users(tmp_path: Path, tracker: OtelTrainTracker) -> None:
    """An exception of Accelerate's own passes through, and no checkpoint is recorded."""
    accelerator = accelerate.Accelerator(cpu=True, log_with=tracker)
    accelerator.init_trackers("digits")
    run = tracker.tracker
    train(accelerator, tracker)
    (tmp_path / "file").write_text("in the way")
    with pytest.raises((FileExistsError, NotADirectoryError)):
        accelerator.save_state(str(tmp_path / "file" / "state"))
    accelerator.end_training()
    record = record_of(run)
    assert record.info["checkpoints"] == []
    (span,) = record.spans_of("checkpoint")
    assert span.entry.status_code == 2


def test_without_opentelemetry_training_goes_on(root: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With the SDK disabled nothing is written, and all calls are harmless."""
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    tracker = OtelTrainTracker("digits", **QUIET)
    accelerator = accelerate.Accelerator(cpu=True, log_with=tracker)
    accelerator.init_trackers("digits", config={"lr": LR})
    train(accelerator, tracker)
    accelerator.save_state(str(tmp_path / "state"))
    accelerator.end_training()
    assert (tmp_path / "state").is_dir()
    assert not root.exists()
    assert otel_train.current_run() is None
