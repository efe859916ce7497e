"""How each rank of an attempt is or ended, and which one fell first, from the files that they left."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from otel_train.clock import NS_PER_S
from otel_train.runlog.folder import RunFolder
from otel_train.runlog.lock import WriterLock
from otel_train.runlog.pulse import Pulse, PulseFile, read_pace, read_pulse, write_pace
from otel_train.runlog.rank_states import RankState, first_fallen, rank_states, told
from tests.runs import RUN_ID, START_NS, RunBuilder


class OtherProcesses:
    """A machine named `node-1` on which only the processes live that are said to."""

    def __init__(self, alive: Mapping[int, float] | None = None) -> None:
        self._alive = dict(alive or {})

    def host(self) -> str:
        return "node-1"

    def started(self, pid: int) -> float | None:
        return self._alive.get(pid)

    def alive(self, pid: int, started: float | None) -> bool:
        return pid in self._alive and (started is None or self._alive[pid] == started)


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    """A run with one attempt and no rank yet."""
    return RunBuilder(tmp_path).attempt().folder


def beat(folder: RunFolder, rank: int, **said: Any) -> Path:
    """Let a rank say something of itself."""
    path = folder.rank_folder(1, rank)
    about = {"time_ns": START_NS, "host": "node-1", "pid": 100 + rank, "process_start": 1.0, **said}
    file = PulseFile(path)
    file.write(Pulse(rank=rank, **about))
    file.close()
    return path


def states(folder: RunFolder, after_s: float = 0.0, alive: Mapping[int, float] | None = None) -> list[RankState]:
    return rank_states(folder, 1, START_NS + round(after_s * NS_PER_S), OtherProcesses(alive))  # type: ignore[arg-type]


def test_a_pulse_is_what_was_written_last(tmp_path: Path) -> None:
    """A short text after a long one leaves nothing of it, and a reason may be longer than the file."""
    file = PulseFile(tmp_path)
    for step, reason in ((1, "x" * 5000), (2, ""), (None, "ended \u2603")):
        pulse = Pulse(time_ns=5, rank=3, host="h", pid=7, step=step, reason=reason, step_s=0.5, busy_s=0.25)
        file.write(pulse)
        found = read_pulse(tmp_path)
        assert found is not None
        assert (found.step, found.rank, found.busy_s) == (step, 3, 0.25)
        assert reason.startswith(found.reason)
    assert found == pulse
    file.close()
    (tmp_path / "pulse.json").write_text('{"time_ns": 5, "ra')
    assert read_pulse(tmp_path) is None
    assert read_pulse(tmp_path / "nowhere") is None


def test_what_is_usual_goes_from_rank_0_to_all(tmp_path: Path) -> None:
    """A file of its own; one that cannot be read says nothing."""
    assert read_pace(tmp_path) is None
    write_pace(tmp_path, 0.125)
    assert read_pace(tmp_path) == 0.125
    (tmp_path / "pace.json").write_text("[]")
    assert read_pace(tmp_path) is None


def test_a_rank_runs_as_long_as_its_folder_is_locked(folder: RunFolder) -> None:
    """The lock goes with the process however it dies; where there never was one the process is looked for."""
    path = beat(folder, 0, step=4, step_s=0.5, busy_s=0.25)
    lock = WriterLock(path)
    assert lock.acquire()
    (running,) = states(folder, 3600)
    lock.release()
    assert (running.state, running.step, running.time_ns, running.busy_s) == ("running", 4, START_NS, 0.25)
    (gone,) = states(folder, alive={100: 1.0})
    assert (gone.state, gone.reason, gone.step) == ("lost", "process 100 is gone and wrote no end", 4)
    os.unlink(path / "writer.lock")
    assert states(folder, alive={100: 1.0})[0].state == "running"
    # The number was given to another process.
    assert states(folder, alive={100: 2.0})[0].state == "lost"


def test_the_last_step_of_a_lost_rank_is_that_of_its_log(tmp_path: Path) -> None:
    """It made some after its last pulse; those of a validation loop do not count."""
    builder = RunBuilder(tmp_path).attempt()
    beat(builder.folder, 0, step=4)
    builder.log({"loss": [3.0, 2.0, 1.0]}, steps=[4, 5, 6])
    builder.log({"loss": [3.0]}, steps=[99], split="val", times_s=[9.0])
    assert states(builder.folder)[0].step == 6


def test_a_rank_of_another_host_is_known_by_its_pulse(folder: RunFolder) -> None:
    """Locks of other hosts are not to be trusted: for a minute without a pulse it counts as alive."""
    beat(folder, 0, host="node-2")
    WriterLock(folder.rank_folder(1, 0)).acquire()
    assert states(folder, 59)[0].state == "running"
    (lost,) = states(folder, 61)
    assert (lost.state, lost.host) == ("lost", "node-2")
    assert lost.reason == "no sign of life for 61 seconds"


def test_a_rank_without_an_end_is_lost_once_the_run_has_ended(tmp_path: Path) -> None:
    """However fresh its files are, as those of a copy: other ranks have a minute to say how they ended."""
    builder = RunBuilder(tmp_path).attempt(world_size=2)
    for rank in (0, 1):
        builder.log({"loss": [1.0, 0.5]}, steps=[0, 1], rank=rank)
    beat(builder.folder, 2, host="node-2", time_ns=START_NS + 600 * NS_PER_S)
    assert [one.state for one in states(builder.folder, 610)] == ["running"] * 3
    builder.end(at_s=600)
    assert [one.state for one in states(builder.folder, 659)] == ["running"] * 3
    found = states(builder.folder, 661)
    assert [(one.state, one.reason) for one in found[:2]] == [("lost", "wrote no end, and the run has ended")] * 2
    assert (found[0].step, found[2].state) == (1, "lost")
    # A process of this machine that lives is not gone.
    beat(builder.folder, 3)
    assert states(builder.folder, 661, alive={103: 1.0})[3].state == "running"


def test_the_end_is_told_by_the_last_pulse_or_by_the_log(tmp_path: Path) -> None:
    """A pulse that says how it ended; else the event at the end of the rank's log; with its time."""
    builder = RunBuilder(tmp_path).attempt()
    beat(builder.folder, 0, state="failed", reason="ValueError: no", time_ns=START_NS + NS_PER_S)
    builder.folder.rank_folder(1, 1)
    builder.record("run killed", "WARN", at_s=2.0, event="run.end", rank=1, status="killed", reason="SIGTERM")
    failed, killed = states(builder.folder, 10)
    assert (failed.state, failed.reason, failed.time_ns) == ("failed", "ValueError: no", START_NS + NS_PER_S)
    assert (killed.state, killed.reason, killed.time_ns) == ("killed", "SIGTERM", START_NS + 2 * NS_PER_S)


def state(rank: int, name: str, at_s: float, **more: Any) -> RankState:
    return RankState(rank=rank, state=name, time_ns=START_NS + round(at_s * NS_PER_S), **more)


def test_the_first_that_fell_is_blamed() -> None:
    """Not those that fail of it, nor those that the launcher then ends, whether they heard it or not."""
    killed_by_launcher = state(0, "killed", 1.0, reason="SIGTERM")
    lost = state(2, "lost", 5.0)
    assert first_fallen([killed_by_launcher, state(1, "failed", 5.3), lost]) == lost
    failed = state(1, "failed", 4.0)
    assert first_fallen([killed_by_launcher, failed, state(3, "lost", 34.0)]) == failed
    assert first_fallen([killed_by_launcher, state(1, "finished", 0.0), state(2, "running", 0.0)]) is None


def test_of_ranks_that_hang_the_one_is_blamed_that_waits_for_nobody() -> None:
    """All made no step; three waited in a collective. It hung before those were killed, and before it was itself."""
    hung_ns = START_NS + 60 * NS_PER_S
    waiting = [state(rank, "lost", 200.0, hung_since_ns=hung_ns, waits=True) for rank in (0, 1, 3)]
    culprit = state(2, "killed", 210.0, hung_since_ns=hung_ns + NS_PER_S, step=11)
    assert first_fallen([*waiting, culprit]) == culprit
    assert told(culprit, 1) == "attempt 1 ended because rank 2 hung at step 11"
    standing = state(1, "running", 90.0, stacks="Thread 1", host="node-1", pid=7)
    assert first_fallen([state(0, "running", 99.0, hung_since_ns=hung_ns, waits=True), standing]) == standing
    assert told(standing, 2, goes_on=True) == (
        "in attempt 2 rank 1 (node-1, process 7) hangs with the interpreter's lock held"
    )


def test_nobody_is_blamed_for_a_hang_that_was_over_at_the_end() -> None:
    """A rank that finished made its steps after all."""
    assert first_fallen([state(0, "finished", 9.0, hung_since_ns=START_NS)]) is None


def test_the_run_of_one_process_has_one_state(folder: RunFolder) -> None:
    """Also one of an earlier version, without pulse and lock."""
    folder.rank_folder(1, 0)
    assert [one.state for one in states(folder, 1e6)] == ["lost"]
    assert RUN_ID in str(folder.path)
