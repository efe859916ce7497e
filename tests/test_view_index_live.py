"""The index beside real runs: followed while they train, killed, resumed and ended."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from otel_train.view.index import RunIndex
from otel_train.view.index_row import IndexRow
from tests.scripts import Scripts

pytestmark = pytest.mark.slow

TEXT = """
import sys, otel_train
resume, count = sys.argv[1], int(sys.argv[2])
run = otel_train.init(config={"lr": 0.5}, resume=resume or None, project="live")
for epoch in run.epochs(range(3)):
    for step in range(count):
        run.log({"loss": 1.0 / (1 + step + 10 * epoch)})
    run.log({"loss": 0.5 - 0.1 * epoch}, split="val")
run.flush()
print(run.id, flush=True)
if sys.stdin.readline() == "end\\n":
    run.finish()
"""


def until(index: RunIndex, holds: Callable[[IndexRow], bool]) -> IndexRow:
    """Refresh as a server does until the only row is as wished for."""
    deadline_s = time.monotonic() + 60
    while time.monotonic() < deadline_s:
        index.refresh()
        if len(index.rows) == 1 and holds(index.rows[0]):
            return index.rows[0]
        time.sleep(0.1)
    raise AssertionError(f"never: {index.rows}")


def other_process(root: Path) -> IndexRow:
    """The row as another process finds it."""
    index = RunIndex(root)
    index.refresh(None)
    (row,) = index.rows
    return row


def test_a_run_is_followed_through_its_life(scripts: Scripts) -> None:
    """Running with its latest and best, lost when killed, running again as a second attempt, then finished."""
    index = RunIndex(scripts.root)
    index.refresh()
    assert index.rows == []
    process = scripts.popen(TEXT, "", "10", stdin=subprocess.PIPE)
    run_id = process.stdout.readline().strip()
    row = until(index, lambda row: "val/loss" in row.metrics and row.metrics["val/loss"].last == pytest.approx(0.3))
    assert (row.run_id, row.state, row.project, row.attempt) == (run_id, "running", "live", 1)
    assert row.metrics["train/loss"].best == pytest.approx(1 / 30)
    assert row.metrics["train/loss"].high == 1.0
    assert (row.step, row.epoch, row.config) == (29.0, 2.0, {"lr": 0.5})
    process.send_signal(signal.SIGKILL)
    scripts.end(process)
    row = until(index, lambda row: row.state == "lost")
    assert row.metrics["val/loss"].best == pytest.approx(0.3)
    assert not row.partial
    assert other_process(scripts.root) == row

    process = scripts.popen(TEXT, run_id, "5", stdin=subprocess.PIPE)
    assert process.stdout.readline().strip() == run_id
    row = until(index, lambda row: row.state == "running" and row.metrics["val/loss"].last == pytest.approx(0.3))
    assert row.attempt == 2
    assert other_process(scripts.root).state == "running"
    process.stdin.write("end\n")
    process.stdin.flush()
    scripts.end(process)
    row = until(index, lambda row: row.state == "finished" and not row.partial)
    assert (row.attempt, row.metrics["val/loss"].low) == (2, pytest.approx(0.3))
    # The first attempt's points before the second began count too.
    assert row.metrics["train/loss"].high == 1.0
    assert other_process(scripts.root) == row
