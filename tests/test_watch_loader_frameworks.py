"""Loaders in the hands of Accelerate and Lightning: watched or not, the same batches, and no loader breaks."""

from __future__ import annotations

import importlib.util
import json

import pytest

from otel_train.testing import recorded
from tests.scripts import Scripts

pytestmark = pytest.mark.slow

ACCELERATE = """
import json, warnings
warnings.simplefilter("ignore")
import torch, otel_train
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset
torch.set_num_threads(1)

data = TensorDataset(torch.arange(12.0))
accelerator = Accelerator(cpu=True)
run = otel_train.init()
rows = {}
for how in ("plain", "steps", "prepared watched", "watched prepared"):
    loader = DataLoader(data, batch_size=4, num_workers=1, multiprocessing_context="fork")
    if how == "watched prepared":
        loader = run.watch_data(loader, name="before")
    prepared = accelerator.prepare(loader)
    if how == "prepared watched":
        assert run.watch_data(prepared, name="after") is prepared
    epochs = []
    for _ in range(2):
        loop = run.steps(prepared) if how != "plain" else prepared
        assert len(loop) == 3
        epochs.append([batch[0].tolist() for batch in loop])
    rows[how] = epochs
run.finish()
print(json.dumps(rows))
"""


@pytest.mark.skipif(importlib.util.find_spec("accelerate") is None, reason="accelerate is not installed")
def test_a_loader_prepared_by_accelerate_is_watched_within(scripts: Scripts) -> None:
    """Three batches an epoch: by `run.steps`, and by name where it was asked for after it was prepared.

    Accelerate makes another loader of one that it prepares: what was watched before is watched by the loop.
    """
    ended = scripts(ACCELERATE)
    assert ended.code == 0, ended.errors
    rows = json.loads(ended.output)
    epoch = [[0.0, 1.0, 2.0, 3.0], [4.0, 5.0, 6.0, 7.0], [8.0, 9.0, 10.0, 11.0]]
    assert rows == {key: [epoch, epoch] for key in ("plain", "steps", "prepared watched", "watched prepared")}
    points = recorded(ended.path).named("dl.data.queue.time")
    by_loader: dict[str, int] = {}
    for point in points:
        name = dict(point.attributes).get("loader", "")
        by_loader[name] = by_loader.get(name, 0) + 1
    assert by_loader == {"": 12, "after": 6}


LIGHTNING = """
import json, logging, warnings
warnings.simplefilter("ignore")
import torch, otel_train
import lightning
from torch.utils.data import DataLoader, TensorDataset
torch.set_num_threads(1)
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
        self.seen = []
    def training_step(self, batch, number):
        self.seen.append(batch[0].tolist())
        run.log({"loss": 0.0})
        return self.layer(batch[0].unsqueeze(1)).sum()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.0)

run = otel_train.init()
seen = {}
for how in ("plain", "watched"):
    loader = DataLoader(
        TensorDataset(torch.arange(12.0)), batch_size=4, num_workers=1, multiprocessing_context="fork",
        persistent_workers=True,
    )
    model = Model()
    trainer = lightning.Trainer(
        max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(model, run.watch_data(loader) if how == "watched" else loader)
    seen[how] = model.seen
    run.unwatch()
    assert "_get_iterator" not in vars(loader)
run.finish()
print(json.dumps(seen))
"""


@pytest.mark.skipif(importlib.util.find_spec("lightning") is None, reason="lightning is not installed")
def test_a_loader_in_lightnings_hands_is_watched(scripts: Scripts) -> None:
    """Lightning gets the object itself: two epochs of the same batches, and the times of each of the six."""
    ended = scripts(LIGHTNING)
    assert ended.code == 0, ended.errors
    seen = json.loads(ended.output.splitlines()[-1])
    assert seen["watched"] == seen["plain"]
    assert len(seen["plain"]) == 6
    record = recorded(ended.path)
    for part in ("fetch", "collate", "batch", "queue"):
        assert len(record.named(f"dl.data.{part}.time")) == 6, part
