"""A process is known by its id and its start, from the system's own records."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from otel_train.runlog.processes import Processes


def tree(root: Path, stat: str) -> Processes:
    (root / "self").mkdir()
    (root / "self" / "stat").write_text("1 (x) S")
    (root / "self" / "cgroup").write_text("0::/job/step_0\n")
    (root / "77").mkdir()
    (root / "77" / "stat").write_text(stat)
    (root / "sys/kernel/random").mkdir(parents=True)
    (root / "sys/kernel/random/boot_id").write_text("abc-def\n")
    (root / "job/step_0").mkdir(parents=True)
    (root / "job/step_0" / "memory.events").write_text("low 0\nhigh 7\nmax 9\noom 2\noom_kill 3\n")
    return Processes(str(root), str(root))


def test_a_recorded_tree(tmp_path: Path) -> None:
    """Start in seconds since boot, whatever brackets and spaces the command's name has; boot id, cgroup, kills."""
    ticks = os.sysconf("SC_CLK_TCK")
    processes = tree(tmp_path, f"77 (odd) name (x) S {' '.join(['0'] * 18)} {50 * ticks} 1 2 3")
    assert processes.started(77) == 50.0
    assert processes.alive(77, 50.0)
    assert processes.alive(77, None)
    assert not processes.alive(77, 60.0)
    assert processes.started(78) is None
    assert processes.boot_id() == "abc-def"
    assert processes.cgroup() == "/job/step_0"
    assert processes.oom_kills("/job/step_0") == 3
    assert processes.oom_kills("/other") is None


def test_a_zombie_is_dead(tmp_path: Path) -> None:
    """A process that nobody has waited for trains nothing."""
    assert tree(tmp_path, f"77 (x) Z {' '.join(['0'] * 18)} 5 1").started(77) is None


def test_this_process_and_one_that_is_over() -> None:
    """On the real system: we live, a finished child does not."""
    processes = Processes()
    assert processes.alive(os.getpid(), processes.started(os.getpid()))
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    assert not processes.alive(process.pid, None)
    assert processes.host()


def test_without_proc_psutil_tells(tmp_path: Path) -> None:
    """Where there is no /proc: start as time since the epoch, no boot id, no cgroup."""
    processes = Processes(str(tmp_path / "none"), str(tmp_path / "none"))
    started = processes.started(os.getpid())
    assert started is not None
    assert started > 1_600_000_000
    assert processes.alive(os.getpid(), started)
    assert processes.started(2**30) is None
    assert (processes.boot_id(), processes.cgroup(), processes.oom_kills("")) == ("", "", None)
