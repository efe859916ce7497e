"""CPU time, memory, threads and disk I/O of a process and its children agree with what the kernel accounts."""

import logging
import os
import subprocess
import sys
import threading
import time
from collections import namedtuple
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from machine_samples import HandClock, assert_named_in_table, value, values

from otel_train.sources.process import ProcessSampler

on_linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="compares with Linux's /proc")

Times = namedtuple("Times", "user system children_user children_system", defaults=(0.0, 0.0))


class GoneError(Exception):
    """Stands in for psutil's errors."""


class Process:
    """A made-up process; the test sets what it used."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.times = Times(0.0, 0.0)
        self.rss = 0
        self.io = SimpleNamespace(read_bytes=0, write_bytes=0)
        self.below: list[Process] = []
        self.gone = False

    def _answer(self, value: object) -> object:
        if self.gone:
            raise GoneError
        return value

    def cpu_times(self) -> object:
        return self._answer(self.times)

    def memory_info(self) -> object:
        return self._answer(SimpleNamespace(rss=self.rss))

    def num_threads(self) -> int:
        return 3

    def io_counters(self) -> object:
        return self._answer(self.io)

    def children(self, recursive: bool) -> list["Process"]:
        return self.below

    def is_running(self) -> bool:
        return not self.gone


class System:
    """Stands in for the module psutil."""

    Error = GoneError

    def __init__(self) -> None:
        self.main = Process(1)
        self.children: dict[int, Process] = {}

    def Process(self, pid: int) -> Process:
        return self.main if pid == 1 else self.children[pid]

    def add(self, pid: int) -> Process:
        child = self.children[pid] = Process(pid)
        self.main.below.append(child)
        return child

    def end(self, pid: int) -> None:
        child = self.children.pop(pid)
        child.gone = True
        self.main.below.remove(child)


@pytest.fixture
def system():
    return System()


@pytest.fixture
def clock():
    return HandClock()


@pytest.fixture
def make(system, clock, tmp_path):
    """Return a sampler of the made-up process, on one CPU by a control group's quota."""
    (tmp_path / "proc" / "self").mkdir(parents=True)
    (tmp_path / "proc" / "self" / "cgroup").write_text("0::/\n")
    (tmp_path / "cgroup").mkdir()
    (tmp_path / "cgroup" / "cgroup.controllers").write_text("")
    (tmp_path / "cgroup" / "cpu.max").write_text("50000 100000\n")

    def build(*, linux: bool) -> ProcessSampler:
        roots = {"proc": str(tmp_path / "proc"), "cgroup_root": str(tmp_path / "cgroup")}
        return ProcessSampler(pid=1, psutil=system, clock=clock, linux=linux, **roots)

    return build


def children_cpu(samples: list) -> float:
    return sum(values(samples, "process.cpu.time", dl__process="children"))


def test_utilisation_is_cpu_time_by_wall_time_and_by_cpus_allowed(system, clock, make):
    """1 s of CPU in 4 s on half a CPU is 0.5; the wall clock set back in between changes nothing."""
    sampler = make(linux=True)
    first = sampler.sample(clock.wall_ns())
    assert values(first, "process.cpu.utilization") == []
    system.main.times = Times(0.75, 0.25)
    clock.advance(4)
    clock.wall -= 3_600_000_000_000
    second = sampler.sample(clock.wall_ns())
    assert value(second, "process.cpu.utilization", dl__process="main") == 0.5
    assert value(second, "process.cpu.time", dl__process="main", cpu__mode="user") == 0.75
    assert value(second, "process.cpu.time", dl__process="main", cpu__mode="system") == 0.25
    assert value(second, "process.thread.count") == 3


def test_no_time_between_two_readings_gives_no_utilisation(system, clock, make):
    """A clock that stood still is no reason to divide by zero."""
    sampler = make(linux=True)
    sampler.sample(0)
    assert values(sampler.sample(0), "process.cpu.utilization") == []


def test_children_have_series_of_their_own_only_where_there_are_any(system, clock, make):
    """Two workers of 100 and 50 bytes and 3 s of CPU beside the main process."""
    sampler = make(linux=True)
    system.main.rss = 1000
    alone = sampler.sample(0)
    assert {dict(s.attributes).get("dl.process") for s in alone} == {"main", None}
    for pid, rss, times in ((7, 100, Times(1.0, 0.5)), (8, 50, Times(1.0, 0.5))):
        child = system.add(pid)
        child.rss, child.times = rss, times
    clock.advance(10)
    samples = sampler.sample(0)
    assert value(samples, "process.memory.usage", dl__process="main") == 1000
    assert value(samples, "process.memory.usage", dl__process="children") == 150
    assert children_cpu(samples) == 3.0
    assert_named_in_table(samples)


def test_time_of_ended_children_stays_counted_on_linux(system, clock, make):
    """A collected child moves into its parent's account: 2 s before, 2.5 s after, and never less."""
    sampler = make(linux=True)
    system.add(7).times = Times(1.5, 0.5)
    before = children_cpu(sampler.sample(0))
    system.end(7)
    between = children_cpu(sampler.sample(0))
    system.main.times = Times(0.0, 0.0, 1.9, 0.6)
    after = children_cpu(sampler.sample(0))
    assert (before, between, after) == (2.0, 2.0, 2.5)


def test_time_of_ended_children_stays_counted_elsewhere(system, clock, make):
    """Where no system keeps such an account, and though a new process gets the old number."""
    sampler = make(linux=False)
    system.add(7).times = Times(2.0, 0.0)
    first = children_cpu(sampler.sample(0))
    system.end(7)
    ended = children_cpu(sampler.sample(0))
    system.add(7).times = Times(0.5, 0.0)
    again = children_cpu(sampler.sample(0))
    assert (first, ended, again) == (2.0, 2.0, 2.5)


def test_disk_io_is_that_of_the_whole_tree(system, make):
    """100 of the process, 20 of a worker; when the worker ends, Linux adds its 25 to the parent's 100."""
    sampler = make(linux=True)
    system.main.io = SimpleNamespace(read_bytes=100, write_bytes=1)
    system.add(7).io = SimpleNamespace(read_bytes=20, write_bytes=2)
    before = sampler.sample(0)
    system.end(7)
    between = sampler.sample(0)
    system.main.io = SimpleNamespace(read_bytes=125, write_bytes=3)
    after = sampler.sample(0)
    read = [value(round_, "process.disk.io", disk__io__direction="read") for round_ in (before, between, after)]
    assert read == [120, 120, 125]
    assert value(after, "process.disk.io", disk__io__direction="write") == 3


def test_disk_io_elsewhere_keeps_what_ended_children_moved(system, make):
    """120 stays 120 when the worker is gone."""
    sampler = make(linux=False)
    system.main.io = SimpleNamespace(read_bytes=100, write_bytes=0)
    system.add(7).io = SimpleNamespace(read_bytes=20, write_bytes=0)
    before = sampler.sample(0)
    system.end(7)
    after = sampler.sample(0)
    assert [value(r, "process.disk.io", disk__io__direction="read") for r in (before, after)] == [120, 120]


def test_a_child_that_ends_while_it_is_read_loses_nothing_else(system, make):
    """Its number was listed, then it was gone: the other worker is counted."""
    sampler = make(linux=True)
    system.add(7).rss = 70
    system.add(8).rss = 80
    system.children[7].gone = True
    samples = sampler.sample(0)
    assert value(samples, "process.memory.usage", dl__process="children") == 80


def test_a_platform_without_disk_counters_of_processes_loses_these_alone(system, make, caplog):
    """As on macOS; said once."""
    caplog.set_level(logging.INFO, logger="otel_train")
    system.main = SimpleNamespace(
        **{name: getattr(system.main, name) for name in ("pid", "cpu_times", "memory_info", "num_threads", "children")}
    )
    sampler = make(linux=False)
    samples = sampler.sample(0) + sampler.sample(0)
    assert values(samples, "process.disk.io") == []
    assert values(samples, "process.thread.count") == [3, 3]
    assert [r.getMessage() for r in caplog.records] == ["process: no reading of disk I/O: not given by this platform"]


@on_linux
def test_descendants_are_found_without_looking_through_all_processes(system, clock, tmp_path):
    """Children of every thread, and theirs; a thread that ended in between is passed over."""
    tasks = {(1, 1): "7\n", (1, 2): "8 9\n", (7, 7): "", (8, 8): "10", (9, 9): "", (10, 10): ""}
    for (pid, thread), text in tasks.items():
        place = tmp_path / str(pid) / "task" / str(thread)
        place.mkdir(parents=True)
        (place / "children").write_text(text)
    (tmp_path / "1" / "task" / "3").mkdir()
    for pid in (7, 8, 9, 10):
        system.add(pid).rss = pid
    system.main.below = []
    sampler = ProcessSampler(pid=1, psutil=system, clock=clock, proc=str(tmp_path), linux=True)
    assert value(sampler.sample(0), "process.memory.usage", dl__process="children") == 34


@on_linux
def test_real_readings_of_this_process_agree_with_proc():
    """CPU time, resident memory and threads, read independently before and after."""

    def stat() -> tuple[float, float, int]:
        words = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        ticks = os.sysconf("SC_CLK_TCK")
        return int(words[11]) / ticks, int(words[12]) / ticks, int(words[17])

    stopping = threading.Event()
    thread = threading.Thread(target=stopping.wait)
    thread.start()
    try:
        before = stat()
        samples = ProcessSampler().sample(0)
        after = stat()
        resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    finally:
        stopping.set()
        thread.join()
    user = value(samples, "process.cpu.time", dl__process="main", cpu__mode="user")
    system_s = value(samples, "process.cpu.time", dl__process="main", cpu__mode="system")
    assert before[0] <= user <= after[0]
    assert before[1] <= system_s <= after[1]
    assert before[2] <= value(samples, "process.thread.count") <= after[2]
    assert value(samples, "process.memory.usage", dl__process="main") == pytest.approx(resident, rel=0.1)
    assert_named_in_table(samples)


@on_linux
def test_a_real_busy_child_is_counted_while_it_runs_and_after_it_ended():
    """A worker burns 0.3 s of CPU; the count holds at least that, and does not fall when it is collected."""
    burn = "import time\nwhile time.process_time() < 0.3: pass\nprint('done', flush=True)\ninput()"
    sampler = ProcessSampler()
    sampler.sample(0)
    before = children_cpu(sampler.sample(0))
    with subprocess.Popen([sys.executable, "-c", burn], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as worker:
        assert worker.stdout is not None
        worker.stdout.readline()
        running = sampler.sample(0)
        resident = value(running, "process.memory.usage", dl__process="children")
        # Another test may have left a child of its own.
        children = psutil.Process().children(recursive=True)
        assert worker.pid in [child.pid for child in children]
        assert resident == pytest.approx(sum(child.memory_info().rss for child in children), rel=0.1)
        worker.communicate(b"\n")
    ended = children_cpu(sampler.sample(0))
    assert children_cpu(running) - before >= 0.28
    assert ended >= children_cpu(running)


@on_linux
@pytest.mark.slow
def test_one_reading_is_cheap():
    """Below 20 ms of CPU, children and all: half a percent of one core at an interval of 5 s."""
    sampler = ProcessSampler()
    sampler.sample(0)
    began = time.thread_time()
    for _ in range(10):
        sampler.sample(0)
    assert (time.thread_time() - began) / 10 < 0.020
