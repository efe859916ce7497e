"""Says who this machine is, which processes live on it, and whether the kernel killed for memory."""

from __future__ import annotations

import os
import platform
from pathlib import Path


class Processes:
    """Looks at this machine; `proc` and `cgroup_root` are passed in so that tests read made-up trees."""

    def __init__(self, proc: str = "/proc", cgroup_root: str = "/sys/fs/cgroup") -> None:
        self._proc = Path(proc)
        self._cgroup_root = Path(cgroup_root)

    def host(self) -> str:
        """Return this machine's name, as it is written to `host` in run.json."""
        return platform.node()

    def boot_id(self) -> str:
        """Return what changes with each start of the machine; empty where the system tells no such thing."""
        try:
            return (self._proc / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        except (OSError, ValueError):
            return ""

    def started(self, pid: int) -> float | None:
        """Return when a process started, on a clock of the system's own; None where there is no such process.

        On Linux seconds since boot, which no setting of the clock moves; elsewhere seconds since the epoch.
        """
        try:
            stat = (self._proc / str(pid) / "stat").read_bytes()
        except FileNotFoundError:
            if (self._proc / "self/stat").exists():
                return None
            return _started_elsewhere(pid)
        except OSError:
            return _started_elsewhere(pid)
        # The command's name, in brackets, may hold spaces and brackets. A zombie (state Z) is dead.
        fields = stat.rpartition(b")")[2].split()
        if len(fields) < 20 or fields[0] in (b"Z", b"X"):
            return None
        return int(fields[19]) / os.sysconf("SC_CLK_TCK")

    def alive(self, pid: int, started: float | None) -> bool:
        """Return whether a process lives, and is the one that started then (ids are given again)."""
        now = self.started(pid)
        if now is None:
            return False
        return started is None or abs(now - started) < 1.0

    def cgroup(self) -> str:
        """Return this process's cgroup as a path below the root; empty where there are none (of version 2)."""
        try:
            lines = (self._proc / "self/cgroup").read_text(encoding="utf-8").splitlines()
        except (OSError, ValueError):
            return ""
        return next((line[3:] for line in lines if line.startswith("0::")), "")

    def oom_kills(self, cgroup: str) -> int | None:
        """Return how many processes of a cgroup were killed for lack of memory; None where that is not told."""
        events = self._cgroup_root / cgroup.lstrip("/") / "memory.events"
        try:
            for line in events.read_text(encoding="ascii").splitlines():
                key, _, count = line.partition(" ")
                if key == "oom_kill":
                    return int(count)
        except (OSError, ValueError):
            pass
        return None


def _started_elsewhere(pid: int) -> float | None:
    import psutil

    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else process.create_time()
    except psutil.Error:
        return None
