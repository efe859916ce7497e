"""Each framework with two processes on gloo: one run with two ranks, and nothing of it stands twice."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from otel_train.testing import Recorded, recorded
from tests.scripts import run_paths

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
torch = pytest.importorskip("torch", reason="torch is not installed")

HEAD = """
import os, sys, warnings
import torch
torch.set_num_threads(1)
from torch import nn
from tests.digits_training import *
QUIET = {"git": False, "sample_machine": True, "sample_interval_s": 1}
folder = Path(sys.argv[1])
"""
LIGHTNING = """
import lightning.pytorch as pl
from otel_train.integrations.lightning import OtelTrainLogger

class Module(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = Net().net
    def training_step(self, batch, index):
        loss = nn.functional.cross_entropy(self.net(batch[0]), batch[1])
        self.log("train_loss", loss)
        return loss
    def validation_step(self, batch, index):
        self.log("val_loss", nn.functional.cross_entropy(self.net(batch[0]), batch[1]), sync_dist=True)
    def configure_optimizers(self):
        return sgd(self)

data = loaders()
logger = OtelTrainLogger("digits", watch=2, **QUIET)
saver = pl.callbacks.ModelCheckpoint(folder / "models", monitor="val_loss")
trainer = pl.Trainer(
    max_epochs=2, accelerator="cpu", devices=2, strategy="ddp", logger=logger, log_every_n_steps=1, callbacks=[saver],
    enable_progress_bar=False, enable_model_summary=False, default_root_dir=folder,
)
trainer.fit(Module(), data["train"], data["val"])
logger.finish()
"""
TRANSFORMERS = """
from otel_train.integrations.transformers import OtelTrainCallback

callback = OtelTrainCallback("digits", watch=2, **QUIET)
trainer_of(folder / "models", [callback], ddp_backend="gloo").train()
callback.finish()
"""
ACCELERATE = """
from accelerate import Accelerator
from otel_train.integrations.accelerate import OtelTrainTracker

tracker = OtelTrainTracker("digits", watch=2, **QUIET)
accelerator = Accelerator(cpu=True, log_with=tracker)
accelerator.init_trackers("digits", config={"lr": LR})
net = Net()
data = dict(zip(SIZES, accelerator.prepare(*loaders().values())))
model, optimizer = accelerator.prepare(net, sgd(net))
run = tracker.tracker
with run.stage("fit"):
    tracker.attach(accelerator, model, optimizer)
    for epoch in run.epochs(2):
        for pixels, labels in run.steps(data["train"], start=1 if epoch == 0 else None):
            loss = model(pixels, labels)["loss"]
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
            accelerator.log({"loss": loss})
        for pixels, labels in run.steps(data["val"], split="val"):
            loss = accelerator.gather_for_metrics(model(pixels, labels)["loss"]).mean()
        accelerator.log({"val_loss": loss})
        accelerator.save_state(str(folder / "models" / f"epoch-{epoch}"))
accelerator.end_training()
"""
# A rank has half of the batches: 4 of 64 in each of two epochs.
STEPS = list(range(1, 9))


def record_of(text: str, tmp_path: Path, root: Path, *command: str) -> Recorded:
    """Run a script by a launcher, and return the only run that it left."""
    script = tmp_path / "train.py"
    script.write_text(HEAD + text, encoding="utf-8")
    place = str(Path(__file__).parent.parent)
    environ = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    environ |= {"PYTHONPATH": place, "OTEL_TRAIN_DIR": str(root), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *command, str(script), str(tmp_path)],
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-5000:]
    (path,) = run_paths(root)
    return recorded(path)


TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")


@pytest.mark.parametrize(
    ("text", "command"),
    [
        pytest.param(LIGHTNING, TORCHRUN, id="lightning by torchrun"),
        pytest.param(LIGHTNING, (), id="lightning by itself"),
        pytest.param(TRANSFORMERS, TORCHRUN, id="transformers"),
        pytest.param(ACCELERATE, TORCHRUN, id="accelerate"),
    ],
)
def test_two_processes_are_one_run_and_nothing_stands_twice(
    tmp_path: Path, root: Path, text: str, command: tuple[str, ...]
) -> None:
    """Rank 0 has numbers, checkpoints and validation once; each rank its own step times, waits and machine."""
    record = record_of(text, tmp_path, root, *command)
    assert record.info["status"] == "finished"
    assert record.info["attempts"][0]["world_size"] == 2
    losses = record.of("loss", "train")
    assert [(point.rank, point.step) for point in losses] == [(0, step) for step in STEPS]
    assert [(point.rank, point.step) for point in record.of("loss", "val")] == [(0, 4), (0, 8)]
    for rank in (0, 1):
        for name in ("dl.step.time", "dl.data.wait.time"):
            found = [point.step for point in record.named(name, "train") if point.rank == rank]
            assert found == STEPS, name
        assert any(point.name == "process.memory.usage" and point.rank == rank for point in record.points)
    assert {point.rank for point in record.named("dl.rank.busy.time")} == {0, 1}
    checkpoints = record.info["checkpoints"]
    assert [entry["rank"] for entry in checkpoints] == [0] * len(checkpoints)
    assert [entry["step"] for entry in checkpoints] == [4, 8]
    assert {resource["dl.rank"] for resource in record.resources} == {0, 1}
    refused = record.info["attempts"][0]["accounting"]
    assert "not rank 0" not in str(refused)
