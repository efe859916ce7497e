"""Samples the memory of this process and all below it as one number, in which shared pages count once.

Workers that are forked share most pages with their parent: resident memory, added up, counts those in each of them.
Linux tells the proportional share (PSS) of each process, which adds up to what the tree really holds. To tell it the
kernel walks the page tables, some milliseconds for each GiB, without the interpreter; so it is asked the more seldom
the longer that takes.
"""

from __future__ import annotations

import importlib
import os
from typing import Any, Final

from otel_train.clock import SYSTEM, Clock
from otel_train.record.entries import Sample
from otel_train.sources.process import descendants

PSS: Final = (("kind", "pss"),)
RSS: Final = (("kind", "rss"),)
# Of all time, reading takes at most one part in so many.
REST: Final = 200


class ProcessTreeMemory:
    """Reads one process, by default the one that calls, and all its descendants. Not for two threads at once."""

    name = "memory of the process tree"

    def __init__(
        self,
        *,
        pid: int | None = None,
        psutil: Any = None,
        clock: Clock = SYSTEM,
        proc: str = "/proc",
        rest: int = REST,
    ) -> None:
        self._rest = rest
        self._pid = os.getpid() if pid is None else pid
        self._given_psutil = psutil
        self._clock = clock
        self._proc = proc
        self._next_ns: int | None = None
        # Monotonic time of the last reading.
        self.read_ns = 0

    def sample(self, now_ns: int) -> list[Sample]:
        """Return the tree's bytes: by proportional share where this kernel tells it, else resident memory added up."""
        began_ns = self._clock.mono_ns()
        if self._next_ns is not None and began_ns < self._next_ns:
            return []
        self.read_ns = began_ns
        pids = descendants(self._proc, self._pid)
        own = self._proportional(self._pid)
        if own is None:
            samples = [Sample("dl.process_tree.memory", self._resident_of_all(pids), RSS)]
        else:
            total = own + sum(self._share(pid) for pid in pids or ())
            samples = [Sample("dl.process_tree.memory", total, PSS)]
        self._next_ns = began_ns + self._rest * (self._clock.mono_ns() - began_ns)
        return samples

    def close(self) -> None:
        """Nothing is held."""

    def _share(self, pid: int) -> int:
        """Return a descendant's bytes; what is resident of one that may not be looked into."""
        proportional = self._proportional(pid)
        return self._resident(pid) if proportional is None else proportional

    def _proportional(self, pid: int) -> int | None:
        try:
            with open(f"{self._proc}/{pid}/smaps_rollup", encoding="ascii") as file:
                for line in file:
                    if line.startswith("Pss:"):
                        return int(line.split()[1]) * 1024
        except (OSError, ValueError, IndexError):
            pass
        return None

    def _resident_of_all(self, pids: list[int] | None) -> int:
        psutil = self._psutil()
        if pids is None:
            pids = [child.pid for child in psutil.Process(self._pid).children(recursive=True)]
        return self._resident(self._pid) + sum(self._resident(pid) for pid in pids)

    def _resident(self, pid: int) -> int:
        psutil = self._psutil()
        try:
            return int(psutil.Process(pid).memory_info().rss)
        except psutil.Error:
            return 0

    def _psutil(self) -> Any:
        if self._given_psutil is None:
            self._given_psutil = importlib.import_module("psutil")
        return self._given_psutil
