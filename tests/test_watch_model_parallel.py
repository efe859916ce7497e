"""Models that several processes train together, by the real torchrun with gloo: who records what, and the sum."""

from __future__ import annotations

import json
import math
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from otel_train.testing import Recorded, recorded
from tests.torchruns import Torchrun

pytest.importorskip("torch")
# A loaded machine with two cores takes some time to start two processes with torch.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

START = """
import json, os, sys, torch, otel_train
import torch.distributed as dist
from torch import nn
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.set_num_threads(1)
torch.manual_seed(0)
run = otel_train.init(project="job", log_ranks=sys.argv[1] if len(sys.argv) > 1 else "main")
model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 5), nn.ReLU(), nn.Linear(5, 3))

def norm(tensors):
    return float(torch.cat([t.detach().double().reshape(-1) for t in tensors]).norm()) if tensors else 0.0

def keep(found):
    with open(f"found-{rank}.json", "w") as file:
        json.dump(found, file)
"""

DDP = """
from torch.nn.parallel import DistributedDataParallel
model = DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
run.watch(model, optimizer, every=2)
found = []
for step in run.steps(range(5)):
    generator = torch.Generator().manual_seed(10 * step + rank)
    inputs, targets = torch.randn(4, 6, generator=generator), torch.randn(4, 3, generator=generator)
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(inputs), targets).backward()
    found.append(norm([p.grad for p in model.parameters()]))
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.01)
    optimizer.step()
keep({"gradients": found, "hooks": len(optimizer._optimizer_step_pre_hooks)})
run.finish()
dist.barrier()
dist.destroy_process_group()
"""

FSDP = """
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
for layer in (model[0], model[2]):
    fully_shard(layer)
fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
run.watch(model, optimizer, every=2)

# Nothing of ours may call a collective: those that are called within the step are counted.
collectives = []
from torch.utils._python_dispatch import TorchDispatchMode
class Collectives(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, arguments=(), named=None):
        if "c10d" in str(function):
            collectives.append(str(function))
        return function(*arguments, **(named or {}))

def whole(tensors):
    return norm([t.full_tensor() for t in tensors])

found = []
for step in run.steps(range(3)):
    generator = torch.Generator().manual_seed(10 * step + rank)
    inputs, targets = torch.randn(4, 6, generator=generator), torch.randn(4, 3, generator=generator)
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(inputs), targets).backward()
    gradients = {"whole": whole([p.grad for p in model.parameters()])}
    gradients |= {str(layer): whole([p.grad for p in model[layer].parameters()]) for layer in (0, 2, 4)}
    before = [p.full_tensor().detach().clone() for p in model.parameters()]
    local = norm([p.grad.to_local() for p in model.parameters()])
    with Collectives():
        optimizer.step()
    after = [p.full_tensor().detach() for p in model.parameters()]
    ratio = norm([a.double() - b.double() for a, b in zip(after, before)]) / norm(before)
    found.append({"gradients": gradients, "weights": norm(before), "ratio": ratio, "local": local,
                  "elements": sum(p.numel() for p in model.parameters())})
keep({"found": found, "collectives": collectives})
run.finish()
dist.barrier()
dist.destroy_process_group()
"""

# Sharded over one dimension of the mesh, copied over the other: each copy must count once.
HSDP = (
    FSDP.replace("fully_shard(layer)", "fully_shard(layer, mesh=mesh)")
    .replace("fully_shard(model)", "fully_shard(model, mesh=mesh)")
    .replace(
        "for layer in (model[0]",
        'mesh = init_device_mesh("cpu", (2, 1), mesh_dim_names=("copy", "shard"))\nfor layer in (model[0]',
    )
)


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[Any]:
    """Starts a program on two ranks and returns its record and what each rank has found."""
    started: list[Torchrun] = []

    def run(text: str, *arguments: str) -> tuple[Recorded, list[Any]]:
        (tmp_path / "train.py").write_text(textwrap.dedent(START + text), encoding="utf-8")
        job = Torchrun(tmp_path, "--standalone", "train.py", *arguments, ranks=2)
        started.append(job)
        assert job.end(200) == 0, job.output[-5000:]
        return recorded(job.path), [json.loads((tmp_path / f"found-{rank}.json").read_text()) for rank in range(2)]

    yield run
    for job in started:
        job.kill()


def wholes(record: Recorded, name: str, rank: int, layer: str | None = None) -> list[Any]:
    return [one for one in record.named(name) if one.rank == rank and one.attributes.get("layer") == layer]


@pytest.mark.parametrize("log_ranks", ["main", "all"])
def test_gradients_of_ddp_are_recorded_by_rank_0_unless_all_log(jobs: Any, log_ranks: str) -> None:
    """They are equal on all ranks; the one that records nothing has no hooks."""
    record, found = jobs(DDP, log_ranks)
    assert found[0]["gradients"] == pytest.approx(found[1]["gradients"], rel=1e-6)
    points = wholes(record, "dl.grad.norm", 0)
    assert [one.value for one in points] == pytest.approx([found[0]["gradients"][step] for step in (0, 2, 4)], rel=1e-6)
    assert [one.step for one in points] == [0, 2, 4]
    assert {one.attributes.get("layer") for one in record.named("dl.grad.norm")} == {None, "0", "2", "4"}
    assert all("part" not in one.attributes for one in record.named("dl.grad.norm"))
    others = [one.value for one in wholes(record, "dl.grad.norm", 1)]
    assert others == ([] if log_ranks == "main" else [one.value for one in points])
    assert [one["hooks"] for one in found] == [1, 0 if log_ranks == "main" else 1]


@pytest.mark.parametrize("kind", ["fsdp", "hsdp"])
def test_shards_of_fsdp_add_up_to_the_whole(jobs: Any, kind: str) -> None:
    """Each rank tells of its part; root of the sum of squares, weighted ratios and counts are those of the whole."""
    record, (found, other) = jobs(FSDP if kind == "fsdp" else HSDP)
    assert found["collectives"] == other["collectives"] == []
    for number, step in enumerate((0, 2)):
        expected = found["found"][step]
        for layer in (None, "0", "2", "4"):
            parts = [wholes(record, "dl.grad.norm", rank, layer) for rank in range(2)]
            assert all(one.attributes["part"] == "shard" for rank in parts for one in rank)
            values = [rank[number].value for rank in parts if rank]
            whole = expected["gradients"][layer or "whole"]
            assert math.hypot(*values) == pytest.approx(whole, rel=1e-5)
        weights = [
            rank[number].value
            for rank in (wholes(record, "dl.weight.norm", 0), wholes(record, "dl.weight.norm", 1))
            if rank
        ]
        assert math.hypot(*weights) == pytest.approx(expected["weights"], rel=1e-5)
        ratios = [
            rank[number].value
            for rank in (wholes(record, "dl.update.ratio", 0), wholes(record, "dl.update.ratio", 1))
            if rank
        ]
        moved = sum((ratio * weight) ** 2 for ratio, weight in zip(ratios, weights, strict=True))
        assert math.sqrt(moved / sum(weight**2 for weight in weights)) == pytest.approx(expected["ratio"], rel=1e-4)
    if kind == "fsdp":
        assert [wholes(record, "dl.grad.norm", rank)[0].value for rank in range(2)] == pytest.approx(
            [found["found"][0]["local"], other["found"][0]["local"]], rel=1e-5
        )
    assert {one.rank for one in record.named("dl.activation.mean")} == {0}
    assert {one.attributes["layer"] for one in record.named("dl.activation.dead")} == {"1", "3"}
