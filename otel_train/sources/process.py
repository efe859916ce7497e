"""Samples this process and its children (data loader workers): CPU time, memory, threads, disk I/O."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from otel_train.clock import NS_PER_S, SYSTEM, Clock
from otel_train.record.entries import Sample
from otel_train.semconv import PROCESS
from otel_train.sources.cgroup import available_cpus, read_cgroup
from otel_train.sources.readings import MissingReadings

MAIN = ((PROCESS, "main"),)
CHILDREN = ((PROCESS, "children"),)


class ProcessSampler:
    """Reads one process, by default the one that calls, and all its descendants through psutil.

    Series of CPU and memory are told apart by `dl.process`, main or children; their sum is the whole tree. Memory is
    resident memory: pages that forked workers share with their parent count in both. Not for two threads at once.
    """

    name = "process"

    def __init__(
        self,
        *,
        pid: int | None = None,
        psutil: Any = None,
        clock: Clock = SYSTEM,
        proc: str = "/proc",
        cgroup_root: str = "/sys/fs/cgroup",
        linux: bool = sys.platform.startswith("linux"),
    ) -> None:
        self._pid = os.getpid() if pid is None else pid
        self._given_psutil = psutil
        self._clock = clock
        self._proc = proc
        self._cgroup_root = cgroup_root
        # Linux adds what a child used to its parent's account when the parent collects it; others forget it.
        self._accounts_collected = linux
        self._missing = MissingReadings("process")
        self._main: Any = None
        self._children: dict[int, Any] = {}
        self._totals: dict[object, float] = {}
        self._seen: dict[tuple[int, object], float] = {}
        self._cpu_before: dict[str, tuple[int, float]] = {}

    def sample(self, now_ns: int) -> list[Sample]:
        """Return what the processes use now; utilisation needs two calls and is absent from the first."""
        if self._given_psutil is None:
            self._given_psutil = importlib.import_module("psutil")
        if self._main is None:
            self._main = self._given_psutil.Process(self._pid)
        children = self._missing.guarded("children", self._find_children) or []
        samples: list[Sample] = []
        readings: tuple[tuple[str, Callable[[list[Any]], list[Sample] | None]], ...] = (
            ("CPU time", self._cpu),
            ("memory", self._memory),
            ("threads", self._threads),
            ("disk I/O", self._disk),
        )
        for reading, read in readings:
            samples += self._missing.guarded(reading, partial(read, children)) or ()
        return samples

    def close(self) -> None:
        """Nothing is held."""

    def _find_children(self) -> list[Any]:
        """Return the descendants; a process found earlier stays the same object, so that its start time is kept."""
        pids = descendants(self._proc, self._pid)
        if pids is None:
            pids = [child.pid for child in self._main.children(recursive=True)]
        found: dict[int, Any] = {}
        for pid in pids:
            known = self._children.get(pid)
            try:
                # A number that the system gave to another process is told by its start time.
                found[pid] = known if known is not None and known.is_running() else self._given_psutil.Process(pid)
            except self._given_psutil.Error:
                continue
        for pid in self._children:
            if found.get(pid) is not self._children[pid]:
                for key in [key for key in self._seen if key[0] == pid]:
                    del self._seen[key]
        self._children = found
        return list(found.values())

    def _cpu(self, children: list[Any]) -> list[Sample]:
        now_ns = self._clock.mono_ns()
        own = self._main.cpu_times()
        samples = [
            Sample("process.cpu.time", own.user, (*MAIN, ("cpu.mode", "user"))),
            Sample("process.cpu.time", own.system, (*MAIN, ("cpu.mode", "system"))),
        ]
        cpus = available_cpus(read_cgroup(self._cgroup_root, self._proc))
        samples += self._utilization("main", own.user + own.system, now_ns, cpus)
        times = self._ask(children, lambda child: child.cpu_times())
        user = self._total("user", [(pid, t.user + self._collected(t, "user")) for pid, t in times], own)
        system = self._total("system", [(pid, t.system + self._collected(t, "system")) for pid, t in times], own)
        if user or system or children:
            samples.append(Sample("process.cpu.time", user, (*CHILDREN, ("cpu.mode", "user"))))
            samples.append(Sample("process.cpu.time", system, (*CHILDREN, ("cpu.mode", "system"))))
            samples += self._utilization("children", user + system, now_ns, cpus)
        return samples

    def _collected(self, times: Any, mode: str) -> float:
        """Return what already ended children of a process used."""
        return getattr(times, f"children_{mode}", 0.0) if self._accounts_collected else 0.0

    def _total(self, mode: str, used: Iterable[tuple[int, float]], own: Any) -> float:
        """Return the seconds of all children so far; it never goes down."""
        if self._accounts_collected:
            total = self._collected(own, mode) + sum(seconds for _, seconds in used)
            self._totals[mode] = max(self._totals.get(mode, 0.0), total)
            return self._totals[mode]
        return self._accumulate(mode, used)

    def _accumulate(self, key: object, used: Iterable[tuple[int, float]]) -> float:
        """Add what each process used since it was last seen; what it used after that is lost when it ends."""
        for pid, amount in used:
            gained = amount - self._seen.get((pid, key), 0)
            self._seen[pid, key] = amount
            self._totals[key] = self._totals.get(key, 0) + max(0, gained)
        return self._totals.get(key, 0)

    def _utilization(self, who: str, cpu_s: float, now_ns: int, cpus: float) -> list[Sample]:
        before, self._cpu_before[who] = self._cpu_before.get(who), (now_ns, cpu_s)
        if before is None or now_ns <= before[0]:
            return []
        share = max(0.0, cpu_s - before[1]) * NS_PER_S / (now_ns - before[0]) / cpus
        return [Sample("process.cpu.utilization", share, ((PROCESS, who),))]

    def _memory(self, children: list[Any]) -> list[Sample]:
        samples = [Sample("process.memory.usage", self._main.memory_info().rss, MAIN)]
        resident = self._ask(children, lambda child: child.memory_info().rss)
        if resident:
            samples.append(Sample("process.memory.usage", sum(size for _, size in resident), CHILDREN))
        return samples

    def _threads(self, _: list[Any]) -> list[Sample]:
        return [Sample("process.thread.count", self._main.num_threads())]

    def _disk(self, children: list[Any]) -> list[Sample] | None:
        """Return bytes that went through to disks, of the whole tree: Linux adds an ended child's to its parent's."""
        if not hasattr(self._main, "io_counters"):
            return None
        moved = [(self._pid, self._main.io_counters()), *self._ask(children, lambda child: child.io_counters())]
        samples = []
        for direction, field in (("read", "read_bytes"), ("write", "write_bytes")):
            amounts = [(pid, getattr(counters, field)) for pid, counters in moved]
            if self._accounts_collected:
                total = max(self._totals.get(field, 0), sum(amount for _, amount in amounts))
                self._totals[field] = total
            else:
                total = self._accumulate(field, amounts)
            samples.append(Sample("process.disk.io", total, (("disk.io.direction", direction),)))
        return samples

    def _ask(self, children: Iterable[Any], question: Callable[[Any], Any]) -> list[tuple[int, Any]]:
        """Return each child's answer; one that has ended meanwhile, or belongs to somebody else, gives none."""
        answers = []
        for child in children:
            try:
                answers.append((child.pid, question(child)))
            except self._given_psutil.Error:
                continue
        return answers


def descendants(proc: str, pid: int) -> list[int] | None:
    """Return the pids below a process as Linux lists them; None where it does not.

    psutil looks through all processes of the machine to find children: milliseconds on a cluster's node.
    """
    found: list[int] = []
    waiting = [pid]
    while waiting:
        parent = waiting.pop()
        try:
            threads = os.listdir(f"{proc}/{parent}/task")
        except OSError:
            if parent == pid:
                return None
            continue
        for thread in threads:
            try:
                with open(f"{proc}/{parent}/task/{thread}/children", encoding="ascii") as file:
                    children = [int(word) for word in file.read().split()]
            except OSError:
                # The thread has ended, or this kernel was built without the list.
                if thread == str(pid):
                    return None
                continue
            found += children
            waiting += children
    return found
