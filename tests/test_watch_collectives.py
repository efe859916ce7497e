"""Waits for other ranks in real collectives over gloo: each kind is taken off the waiting rank's step, and no more."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from otel_train.record.rank_waits import RankWaits
from otel_train.watch.collectives import Collectives
from tests.torchruns import Torchrun

SLOW_S = 0.06
STEPS = 6

TRAIN = f"""
import json, os, sys, time
import torch, torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from otel_train.clock import mono_ns
from otel_train.record.columns import Blocks
from otel_train.record.rank_waits import RankWaits
from otel_train.watch.collectives import COLLECTIVES

torch.set_num_threads(1)
torch.manual_seed(0)
dist.init_process_group("gloo")
rank = dist.get_rank()
holders = [(torch._C._distributed_c10d.Work, "wait"), (dist, "_broadcast_coalesced"), (torch.autograd, "backward")]
originals = [getattr(*place) for place in holders]
waits = RankWaits()
found = {{"attached": COLLECTIVES.attach(waits)}}
assert [getattr(*place) for place in holders] != originals


def network(norm=False):
    return nn.Sequential(nn.Linear(32, 32), nn.BatchNorm1d(32) if norm else nn.ReLU(), nn.Linear(32, 10))


def by_hand(model, data):
    model(data).sum().backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)


def later(model, data):
    model(data).sum().backward()
    for work in [dist.all_reduce(parameter.grad, async_op=True) for parameter in model.parameters()]:
        work.wait()


def backward(model, data):
    model(data).sum().backward()


def at_a_barrier(model, data):
    dist.barrier()


ddp = nn.parallel.DistributedDataParallel
kinds = {{
    "by hand": (network(), by_hand),
    "later": (network(), later),
    "ddp": (ddp(network()), backward),
    "ddp with buffers": (ddp(network(norm=True)), backward),
    "fsdp": (fully_shard(network()), backward),
    "compiled ddp": (torch.compile(ddp(network()), backend="eager"), backward),
    "barrier": (None, at_a_barrier),
}}
data = torch.randn(16, 32)
for kind, (model, step) in kinds.items():
    rows = found[kind] = []
    for number in range({STEPS} + 2):
        start_ns = mono_ns()
        if rank == 1:
            time.sleep({SLOW_S})
        step(model, data)
        end_ns = mono_ns()
        own_ns = waits.own_ns("train", 0, number, None, start_ns, end_ns)
        rows.append(((end_ns - start_ns) / 1e9, own_ns / 1e9))


class Timer:
    # A device whose events pass at once: what it measures is when they were recorded, and in which order.

    class Event:
        def __init__(self):
            self.at_s = time.perf_counter()

        def query(self):
            return True

    def mark(self):
        return Timer.Event()

    def elapsed_s(self, before, after):
        return after.at_s - before.at_s


COLLECTIVES._timer = Timer()
model = ddp(network(norm=True))
for number in range({STEPS} + 2):
    start_ns = mono_ns()
    if rank == 1:
        time.sleep({SLOW_S})
    backward(model, data)
    assert waits.own_ns("train", number, number, None, start_ns, mono_ns()) is None
written = Blocks()
waits.flush(written, last=False)
((own, *_),) = written.blocks
found["by device events"] = [({SLOW_S}, own_s) for own_s in own.values]
assert waits.since_ns == 0
COLLECTIVES.detach(waits)
found["put back"] = [getattr(*place) for place in holders] == originals
with open(f"found-{{rank}}.json", "w") as file:
    json.dump(found, file)
dist.destroy_process_group()
"""


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_each_kind_of_wait_is_no_work_of_the_rank_that_waits(tmp_path: Path) -> None:
    """Rank 1 is 60 ms late in each step: rank 0's steps take as long, and its own work does not."""
    (tmp_path / "train.py").write_text(TRAIN, encoding="utf-8")
    job = Torchrun(tmp_path, tmp_path / "train.py", ranks=2)
    assert job.end(240) == 0, job.output
    waiting, late = (json.loads((tmp_path / f"found-{rank}.json").read_text()) for rank in (0, 1))
    for found in (waiting, late):
        assert found.pop("attached") is True
        assert found.pop("put back") is True
    assert len(waiting) == 8
    for kind, rows in waiting.items():
        # The first two steps compile, and rebuild DDP's buckets.
        whole, own = ([row[place] for row in rows[2:]] for place in (0, 1))
        others = [row[1] for row in late[kind][2:]]
        assert min(whole) >= SLOW_S * 0.9, kind
        assert sorted(own)[STEPS // 2] < SLOW_S / 2, (kind, own)
        assert min(others) >= SLOW_S, (kind, others)


def test_nothing_is_wrapped_in_a_process_alone() -> None:
    """Without a process group there is nobody to wait for."""
    waits = RankWaits()
    collectives = Collectives()
    assert collectives.attach(waits) is False
    collectives.detach(waits)
