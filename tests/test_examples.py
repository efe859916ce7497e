"""The examples as somebody starts them: what they print is what the run's folder holds."""

from __future__ import annotations

import collections
import hashlib
import json
import math
import os
import pickle
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from otel_train.clock import wall_ns
from otel_train.runlog.reader import RunReader
from otel_train.view.reading import read_run
from otel_train.view.series import Series

pytestmark = pytest.mark.slow
EXAMPLES = Path(__file__).parent.parent / "examples"
DIGITS = EXAMPLES / "digits.py"
EPOCHS, BATCH_SIZE, PATIENCE, SEED = 12, 32, 1, 7
IMAGES = 1797


def start(script: Path, *arguments: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run an example to its end, in a folder of its own and without settings of whoever runs the tests."""
    environ = {key: value for key, value in os.environ.items() if not key.startswith(("OTEL_", "PYTEST_"))}
    command = [sys.executable, "-W", "error::DeprecationWarning", str(script), *arguments]
    return subprocess.run(
        command, cwd=folder, env=environ | variables, capture_output=True, text=True, timeout=110, check=False
    )


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@dataclass(frozen=True)
class Trained:
    """A finished run of the digits example: its folder, the folder of its files, and what it printed."""

    path: Path
    output: Path
    printed: str

    @property
    def info(self) -> dict[str, object]:
        return json.loads((self.path / "run.json").read_text(encoding="utf-8"))

    def series(self) -> dict[tuple[str, str], Series]:
        """Return the user's series by key and split, and the timings by name and split."""
        found = (one.series for one in read_run(self.path, wall_ns()).series())
        return {(series.key, series.split): series for series in found if series.attribute("phase") is None}

    def events(self, name: str) -> list[dict[str, object]]:
        entries = (entry for entry, _ in RunReader(self.path).logs())
        return [dict(entry.attributes) | {"body": entry.body} for entry in entries if entry.event_name == name]

    def val_losses(self) -> list[float]:
        return list(self.series()["loss", "val"].values)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """The digits example with few epochs and little patience."""
    folder = tmp_path_factory.mktemp("digits")
    settings = {"--epochs": EPOCHS, "--patience": PATIENCE, "--batch-size": BATCH_SIZE, "--seed": SEED}
    arguments = [text for key, value in settings.items() for text in (key, str(value))]
    done = start(DIGITS, *arguments, "--dir", "runs", "--output", "out", folder=folder)
    assert done.returncode == 0, done.stderr
    (path,) = (entry for entry in (folder / "runs").iterdir() if not entry.name.startswith("."))
    return Trained(path, folder / "out" / path.name, done.stderr)


def test_the_run_is_finished_and_nothing_was_dropped(trained: Trained) -> None:
    """The last line says so, and the folder says the same."""
    last_line = trained.printed.splitlines()[-1]
    assert f"run {trained.path.name} finished" in last_line
    assert "nothing dropped" in last_line
    assert trained.info["status"] == "finished"
    assert RunReader(trained.path).damage == []


def test_each_step_of_each_epoch_has_one_point(trained: Trained) -> None:
    """The loader's batches, times the epochs that were trained, are the points of each of training's series."""
    series = trained.series()
    images = len(np.load(trained.output / "train.npz")["digits"])
    epochs = len(trained.val_losses())
    steps = math.ceil(images / BATCH_SIZE) * epochs
    for key in (("loss", "train"), ("accuracy", "train"), ("grad_norm", ""), ("dl.step.time", "train")):
        assert list(series[key].steps) == list(range(steps)), key
    assert collections.Counter(series["loss", "train"].epochs) == dict.fromkeys(range(epochs), steps // epochs)
    assert series["loss", "train"].values[0] == pytest.approx(math.log(10), abs=0.2), "ten classes, nothing learnt yet"


def test_the_phases_lie_within_their_steps(trained: Trained) -> None:
    """Each step has one time of each phase, and together they are not longer than the step."""
    data = read_run(trained.path, wall_ns())
    phases = {one.series.attribute("phase"): one.series for one in data.series() if one.series.attribute("phase")}
    assert set(phases) == {"model_forward", "model_backward", "optimizer"}
    steps = trained.series()["dl.step.time", "train"].values
    for parts in zip(steps, *(series.values for series in phases.values()), strict=True):
        assert sum(parts[1:]) <= parts[0]


def test_the_printed_losses_are_the_recorded_ones(trained: Trained) -> None:
    """Validation's loss and accuracy of each epoch, and all of the test's, equal what the log line said."""
    series = trained.series()
    printed = re.findall(r"epoch +(\d+): val loss ([\d.]+), val accuracy ([\d.]+)", trained.printed)
    recorded = zip(*(series[key, "val"].values for key in ("loss", "accuracy")), strict=True)
    assert [(float(loss), float(accuracy)) for _, loss, accuracy in printed] == [
        (pytest.approx(loss, abs=5e-5), pytest.approx(accuracy, abs=5e-5)) for loss, accuracy in recorded
    ]
    test_line = re.search(r"test: (.*?) step=", trained.printed)
    assert test_line is not None
    results = dict(part.rsplit(" ", 1) for part in test_line[1].split(", "))
    assert set(results) == {"loss", "accuracy", "precision", "recall", "f1"}
    for key, text in results.items():
        assert list(series[key, "test"].values) == [pytest.approx(float(text), abs=5e-5)]


def test_the_model_has_learnt(trained: Trained) -> None:
    """Even within few epochs nine of ten test images are told right."""
    assert trained.series()["accuracy", "test"].values[-1] > 0.9


def test_the_data_sets_are_the_digits_without_the_dropped(trained: Trained) -> None:
    """Sizes, dropped images and classes add up to the 1,797 of the data set, and equal what is in the files."""
    records = {record["name"]: record for record in trained.info["datasets"]}
    whole = records["digits"]
    assert whole["size"] + whole["dropped"]["total"] == IMAGES
    assert 0 < whole["dropped"]["total"] < 50
    assert sum(records[name]["size"] for name in ("train", "val", "test")) == whole["size"]
    for name in ("train", "val", "test"):
        digits = np.load(trained.output / f"{name}.npz")["digits"]
        counts = {str(digit): int(count) for digit, count in enumerate(np.bincount(digits))}
        assert records[name]["classes"] == counts
        assert records[name]["files"][0]["checksum"]["value"] == sha256(trained.output / f"{name}.npz")
    assert whole["classes"] == {
        str(digit): sum(records[name]["classes"][str(digit)] for name in ("train", "val", "test"))
        for digit in range(10)
    }


def test_the_stages_have_their_files_with_checksums(trained: Trained) -> None:
    """Three stages, of which the first made the splits and the second the model, each by this script."""
    stages = {stage["name"]: stage for stage in trained.info["stages"]}
    assert set(stages) == {"preprocess", "train", "evaluate"}
    made = {name: stages[name].get("outputs", []) for name in stages}
    sums = {Path(entry["path"]).name: entry["checksum"]["value"] for entry in made["preprocess"] + made["train"]}
    assert sums == {name: sha256(trained.output / name) for name in ("train.npz", "val.npz", "test.npz", "best.pt")}
    for stage in stages.values():
        assert stage["status"] == "ok"
        assert [entry["checksum"]["value"] for entry in stage["code"]] == [sha256(DIGITS)]


def test_the_best_model_has_its_context(trained: Trained) -> None:
    """The file beside the model says which step, data, configuration and seed made it."""
    context = json.loads((trained.output / "best.pt.context.json").read_text(encoding="utf-8"))
    losses = trained.val_losses()
    steps_an_epoch = len(trained.series()["loss", "train"].values) // len(losses)
    best_epoch = losses.index(min(losses))
    assert context["sha256"] == sha256(trained.output / "best.pt")
    assert context["run"] == trained.path.name
    assert context["epoch"] == best_epoch
    assert context["step"] == steps_an_epoch * (best_epoch + 1) - 1
    assert context["iterations"] == context["step"] + 1
    assert context["metrics"]["val/loss"] == losses[best_epoch]
    assert context["best"] is True
    assert [record["name"] for record in context["data"]] == ["digits", "train", "val", "test"]
    assert context["config"]["lr"] == 1e-3
    assert context["seed"] == SEED
    assert {"torch", "numpy", "scikit-learn"} <= set(context["dependencies"])


def test_training_stopped_where_the_loss_rose(trained: Trained) -> None:
    """The rule, applied to the recorded losses, ends at the last epoch; the event names its step."""
    losses = trained.val_losses()
    stops = [epoch for epoch in range(1, len(losses)) if epoch - losses.index(min(losses[: epoch + 1])) >= PATIENCE]
    events = trained.events("training.early_stop")
    if len(losses) == EPOCHS and not stops:
        assert events == []
        return
    assert stops == [len(losses) - 1]
    assert [event["dl.epoch"] for event in events] == [len(losses) - 1]
    assert events[0]["dl.step"] == len(trained.series()["loss", "train"].values) - 1


def test_each_new_best_loss_is_an_event(trained: Trained) -> None:
    """As often as the recorded validation loss falls below all before it."""
    losses = trained.val_losses()
    falling = [loss for epoch, loss in enumerate(losses) if loss == min(losses[: epoch + 1])]
    events = [event for event in trained.events("model.best") if event["metric"] == "train.loss"]
    assert [event["value"] for event in events if event["split"] == "val"] == falling
    assert len(trained.events("checkpoint.saved")) == len(falling)


def test_the_chain_of_the_model_ends_at_the_raw_data(trained: Trained) -> None:
    """The command finds the run, the stage that made the splits, and the file that scikit-learn ships."""
    root = str(trained.path.parent)
    command = [sys.executable, "-m", "otel_train.cli.main", "lineage", str(trained.output / "best.pt"), "--dir", root]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert f"saved by run {trained.path.name}" in done.stdout
    assert "made by stage preprocess" in done.stdout
    assert re.search(r"digits\.csv\.gz .*raw: no known run made it", done.stdout)


def test_without_telemetry_the_example_trains_all_the_same(tmp_path: Path) -> None:
    """With OTEL_SDK_DISABLED the model is written, and there is no run."""
    done = start(DIGITS, "--epochs", "1", "--output", "out", folder=tmp_path, OTEL_SDK_DISABLED="true")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "best.pt").stat().st_size > 100_000
    assert not (tmp_path / "runs").exists()


def test_a_loop_by_hand_is_recorded(tmp_path: Path) -> None:
    """Each value of each step is there, with the messages, and the model is that of the last step."""
    done = start(EXAMPLES / "manual_loop.py", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    (path,) = (entry for entry in (tmp_path / "runs").iterdir() if not entry.name.startswith("."))
    run = Trained(path, tmp_path / "build", done.stderr)
    series = run.series()
    for key in (("loss", "train"), ("slope", ""), ("offset", "")):
        assert list(series[key].steps) == list(range(300))
    assert series["slope", ""].values[-1] == pytest.approx(3.0, abs=0.2)
    assert series["offset", ""].values[-1] == pytest.approx(-1.0, abs=0.2)
    model = pickle.loads((tmp_path / "build" / "line.pkl").read_bytes())
    assert model == {"slope": series["slope", ""].values[-1], "offset": series["offset", ""].values[-1]}
    messages = [entry.body for entry, _ in RunReader(path).logs() if str(entry.body).startswith("step ")]
    losses = series["loss", "train"].values
    assert messages == [f"step {step}: loss {losses[step]:.4f}" for step in range(0, 300, 50)]


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("framework", "printed", "split"),
    [
        ("lightning", r"test_accuracy +│ +([\d.]+)", "test"),
        ("transformers", r"'test_accuracy': ([\d.]+)", "test"),
        ("accelerate", None, "val"),
    ],
)
def test_the_examples_of_frameworks_learn_and_are_recorded(
    tmp_path: Path, framework: str, printed: str | None, split: str
) -> None:
    """Each makes one finished run with loss, accuracy, checkpoints and internals; its accuracy is the printed one."""
    pytest.importorskip(framework, reason=f"{framework} is not installed")
    done = start(EXAMPLES / f"digits_{framework}.py", folder=tmp_path, COLUMNS="200")
    assert done.returncode == 0, done.stderr
    (path,) = (entry for entry in (tmp_path / "runs").iterdir() if not entry.name.startswith("."))
    run = Trained(path, tmp_path, done.stdout)
    assert run.info["status"] == "finished"
    assert "nothing dropped" in done.stderr
    series = run.series()
    losses = series["loss", "train"]
    assert losses.values[0] == pytest.approx(math.log(10), abs=0.3), "ten classes, nothing learnt yet"
    first = 0 if framework == "accelerate" else 1
    assert list(losses.steps) == list(range(first, first + len(losses.steps)))
    accuracy = series["accuracy", split].values[-1]
    assert accuracy > 0.8
    if printed is not None:
        (found,) = set(re.findall(printed, done.stdout))
        assert accuracy == pytest.approx(float(found), abs=1e-4)
    assert run.info["checkpoints"]
    assert any(one.series.name == "dl.grad.norm" for one in read_run(path, wall_ns()).series())
