"""Processes that are forked or spawned from one that records: none of them touches what the parent holds."""

from __future__ import annotations

import json
import os

import pytest

from otel_train.testing import recorded
from tests.scripts import Scripts, run_paths

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork"),
]

LOADER = """
import gc, logging, multiprocessing, os, sys, warnings
import torch, otel_train
warnings.simplefilter("ignore")
logger = logging.getLogger("user")

class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 100
    def __getitem__(self, index):
        if index == 7:
            logger.error("from a worker")
            otel_train.log({"worker": 1.0})
            run.log({"worker": 1.0})
            run.finish("failed")
            run.flush()
            with run.stage("worker"):
                pass
            gc.collect()
        return torch.tensor(float(index))

run = otel_train.init(flush_interval_s=0.01)
loader = torch.utils.data.DataLoader(Rows(), batch_size=1, num_workers=2, multiprocessing_context="fork")
for epoch in run.epochs(3):
    for x in run.steps(loader):
        run.log({"loss": x.mean()})
logger.error("from the parent")
run.finish()
"""


def test_a_loader_with_fork_workers_doubles_and_ends_nothing(scripts: Scripts) -> None:
    """Three epochs with two workers: exactly 300 points, no line twice, the parent's end and no other."""
    ended = scripts(LOADER)
    assert ended.code == 0, ended.errors
    assert ended.seconds < 30
    record = recorded(ended.path)
    assert record.values("loss") == [float(value) for value in range(100)] * 3
    assert record.steps("loss") == list(range(300))
    assert record.of("worker") == []
    assert record.messages == ["from the parent"]
    assert record.spans_of("worker") == []
    assert record.event("run.end").attributes["status"] == "finished"
    spans = [span.entry.span_id for span in record.spans]
    assert len(set(spans)) == len(spans)
    assert record.info["attempts"][0]["status"] == "finished"
    assert len(ended.paths) == 1


CHILDREN = """
import atexit, os, signal, sys, threading, time
import otel_train

run = otel_train.init(flush_interval_s=0.01)
stop = []
def busy():
    number = 0
    while not stop:
        run.log({"busy": number}, step=number)
        number += 1
        time.sleep(0.0002)
thread = threading.Thread(target=busy)
thread.start()
hung = 0
for turn in range(40):
    run.log({"x": turn}, step=turn)
    pid = os.fork()
    if pid == 0:
        run.log({"x": -1.0})
        otel_train.log({"x": -1.0})
        if turn % 4 == 0:
            os._exit(0)
        if turn % 4 == 1:
            run.finish()
            os._exit(0)
        if turn % 4 == 2:
            os.kill(os.getpid(), signal.SIGTERM)
        sys.exit(3)
    deadline = time.monotonic() + 10
    while os.waitpid(pid, os.WNOHANG) == (0, 0):
        if time.monotonic() > deadline:
            hung += 1
            os.kill(pid, 9)
            os.waitpid(pid, 0)
            break
        time.sleep(0.001)
stop.append(1)
thread.join()
run.finish()
print(hung)
"""


def test_children_that_leave_in_any_way_leave_the_parents_run_alone(scripts: Scripts) -> None:
    """40 forks beside a busy writer, left by os._exit, finish, SIGTERM and sys.exit: none hangs, nothing is doubled."""
    ended = scripts(CHILDREN)
    assert ended.code == 0, ended.errors
    assert ended.output == "0\n"
    record = recorded(ended.path)
    assert record.values("x") == list(range(40))
    busy = record.values("busy")
    assert busy == list(range(len(busy)))
    assert record.info["status"] == "finished"
    assert len(record.events("run.end")) == 1
    assert ended.errors.count("otel-train: run") == 1


def test_a_child_never_writes_run_json_nor_frees_the_lock(scripts: Scripts) -> None:
    """After the child has gone the run still runs, for readers too."""
    text = """
import os, json, otel_train
from otel_train.runlog.status import run_status
from otel_train.clock import wall_ns
run = otel_train.init()
run.flush()
before = (run.path / "run.json").read_bytes()
pid = os.fork()
if pid == 0:
    run.config.update(lr=1)
    run.define("x", goal="max")
    run.log_dataset("child", [1])
    run.early_stop("child")
    run.finish("failed")
    os._exit(0)
os.waitpid(pid, 0)
print((run.path / "run.json").read_bytes() == before, run_status(run.path, wall_ns()).state)
run.log({"loss": 1.0})
run.finish()
"""
    ended = scripts(text)
    assert ended.output == "True running\n", ended.errors
    record = recorded(ended.path)
    assert record.info["datasets"] == []
    assert record.info["status"] == "finished"


def test_a_forked_child_may_record_a_run_of_its_own(scripts: Scripts) -> None:
    """A sweep that forks its trials: each has its own run, and its end is noticed."""
    text = """
import logging, multiprocessing, sys, otel_train
def trial(number):
    run = otel_train.init(name=f"trial {number}")
    for x in run.steps(range(5)):
        run.log({"loss": number})
    logging.getLogger("user").warning("trial %d", number)
    if number == 2:
        raise ValueError("diverged")
if __name__ == "__main__":
    parent = otel_train.init(name="parent")
    context = multiprocessing.get_context(sys.argv[1])
    children = [context.Process(target=trial, args=(number,)) for number in (1, 2)]
    for child in children:
        child.start()
        child.join()
    logging.getLogger("user").warning("parent")
    parent.finish()
"""
    for method in ("fork", "spawn"):
        ended = scripts(text, method)
        assert ended.code == 0, ended.errors
        found = {}
        for path in run_paths(scripts.root):
            record = recorded(path)
            info = record.info
            found[info["run_name"]] = (info["status"], record.values("loss"), record.messages)
            path.rename(scripts.folder / path.name)
        assert found == {
            "parent": ("finished", [], ["parent"]),
            "trial 1": ("finished", [1.0] * 5, ["trial 1"]),
            "trial 2": ("failed", [2.0] * 5, ["trial 2"]),
        }, method


def test_spawned_workers_get_no_run(scripts: Scripts) -> None:
    """A spawned worker that imports the package records nothing, and opens no folder."""
    text = """
import multiprocessing, otel_train
def work(number):
    otel_train.log({"x": number})
    return otel_train.current_run() is None
if __name__ == "__main__":
    with otel_train.init() as run:
        with multiprocessing.get_context("spawn").Pool(2) as pool:
            print(pool.map(work, range(4)))
        run.log({"x": 9})
"""
    ended = scripts(text)
    assert ended.output == "[True, True, True, True]\n", ended.errors
    assert recorded(ended.path).values("x") == [9]


def test_ids_are_fresh_after_a_fork(scripts: Scripts) -> None:
    """Two children that draw ids do not draw the same."""
    text = """
import os, json, otel_train
from otel_train.record.ids import new_span_id
from otel_train.lineage.run_id import new_run_id
from otel_train.clock import SYSTEM
otel_train.init().finish()
for _ in range(2):
    pid = os.fork()
    if pid == 0:
        print(json.dumps([new_span_id() for _ in range(100)] + [new_run_id(SYSTEM)]), flush=True)
        os._exit(0)
    os.waitpid(pid, 0)
"""
    ended = scripts(text)
    first, second = (json.loads(line) for line in ended.output.splitlines())
    assert len({*first, *second}) == 202


def test_a_forked_child_that_execs_leaves_no_descriptor(scripts: Scripts) -> None:
    """A program started from one that records inherits nothing of ours: the run log is closed on exec."""
    text = '''
import os, subprocess, sys, otel_train
run = otel_train.init()
run.log({"loss": 1.0})
run.flush()
code = """
import os
for number in os.listdir("/proc/self/fd"):
    if os.path.exists(f"/proc/self/fd/{number}"):
        print(os.readlink(f"/proc/self/fd/{number}"))
"""
print(subprocess.run([sys.executable, "-c", code], close_fds=False, capture_output=True, text=True).stdout)
run.finish()
'''
    if not os.path.isdir("/proc/self/fd"):
        pytest.skip("needs /proc to see descriptors")
    ended = scripts(text)
    assert ended.code == 0, ended.errors
    assert ended.path.name not in ended.output
    assert ended.output.count("/") > 1
