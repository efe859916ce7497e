"""Memory of devices, as a made-up allocator tells it; of the process tree, as the kernel does; how fast it grows."""

from __future__ import annotations

import pickle
import random
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from otel_train.clock import NS_PER_S
from otel_train.record.entries import Sample
from otel_train.run.machine import GrowingMemory
from otel_train.sources.process_tree import ProcessTreeMemory
from otel_train.testing import ManualClock, recorded
from otel_train.watch.device_memory import AllocatorHistory, DeviceMemory, allocator_summary
from otel_train.watch.memory_slope import MemorySlope, slope
from tests.scripts import Scripts

MIB = 1 << 20
GIB = 1 << 30


class Cuda:
    """Stands in for `torch.cuda` where its allocator is asked."""

    def __init__(self, devices: int = 1) -> None:
        self.stats: list[dict[str, int]] = [{} for _ in range(devices)]

    def device_count(self) -> int:
        return len(self.stats)

    def memory_stats(self, index: int) -> dict[str, int]:
        return self.stats[index]

    def memory_summary(self, index: int) -> str:
        return f"| PyTorch CUDA memory summary, device ID {index} |"

    def hold(self, index: int, allocated: int, reserved: int, peak: int, retries: int = 0) -> None:
        self.stats[index] = {
            "allocated_bytes.all.current": allocated,
            "allocated_bytes.all.peak": peak,
            "reserved_bytes.all.current": reserved,
            "reserved_bytes.all.peak": reserved,
            "num_alloc_retries": retries,
        }


def by_name(samples: list[Sample]) -> dict[tuple[str, Any], float]:
    """Values by the last part of the name and the device."""
    return {(sample.name.rsplit(".", 1)[1], dict(sample.attributes)["index"]): sample.value for sample in samples}


# Devices --------------------------------------------------------------------------------------------------------------


def test_each_device_in_use_tells_what_it_holds() -> None:
    """The second of three devices was never used by this process: it is not told."""
    cuda = Cuda(3)
    cuda.hold(0, 2 * GIB, 3 * GIB, 5 * GIB // 2)
    cuda.hold(2, MIB, 2 * MIB, MIB)
    assert by_name(DeviceMemory(lambda: cuda).sample(0)) == {
        ("allocated", 0): 2 * GIB,
        ("reserved", 0): 3 * GIB,
        ("peak", 0): 5 * GIB // 2,
        ("retries", 0): 0,
        ("allocated", 2): MIB,
        ("reserved", 2): 2 * MIB,
        ("peak", 2): MIB,
        ("retries", 2): 0,
    }


def test_without_a_device_in_use_nothing_is_told() -> None:
    """CUDA is not initialised: nothing is asked, and what comes later counts from nought."""
    cuda = Cuda()
    used: list[Any] = [None]
    memory = DeviceMemory(lambda: used[0])
    assert memory.sample(0) == []
    cuda.hold(0, MIB, MIB, MIB, retries=2)
    used[0] = cuda
    assert by_name(memory.sample(0))["retries", 0] == 2


def test_retries_and_peak_are_this_runs_and_outlive_a_reset() -> None:
    """Seven retries came before the run; two in it, then the user resets the counters, and one more."""
    cuda = Cuda()
    memory = DeviceMemory(lambda: cuda)
    seen = []
    for retries, peak in ((7, 30), (9, 50), (0, 10), (1, 20)):
        cuda.hold(0, 10, 20, peak, retries=retries)
        values = by_name(memory.sample(0))
        seen.append((values["retries", 0], values["peak", 0]))
    assert seen == [(0, 30), (2, 50), (2, 50), (3, 50)]


def test_the_summary_is_of_the_devices_in_use() -> None:
    """Torch's own table of each; nothing without CUDA."""
    cuda = Cuda(2)
    cuda.hold(1, 1, 1, 1)
    assert allocator_summary(cuda) == "| PyTorch CUDA memory summary, device ID 1 |"
    assert allocator_summary(None) == ""


class Allocator:
    """Stands in for torch where its allocator's history is kept."""

    def __init__(self, *, initialised: bool) -> None:
        self.recording: list[Any] = []
        self.observers: list[Callable[..., None]] = []
        self.waiting: list[Callable[[], None]] = []
        self.initialised = initialised
        self.cuda = SimpleNamespace(
            is_available=lambda: True,
            is_initialized=lambda: self.initialised,
            _lazy_call=self._lazy_call,
            memory=SimpleNamespace(_record_memory_history=self._record, _snapshot=lambda: {"segments": [1, 2]}),
        )
        self._C = SimpleNamespace(_cuda_attach_out_of_memory_observer=self.observers.append)

    def _lazy_call(self, call: Callable[[], None]) -> None:
        call() if self.initialised else self.waiting.append(call)

    def _record(self, enabled: str | None = "all", **about: Any) -> None:
        self.recording.append(enabled)

    def initialise(self) -> None:
        self.initialised = True
        for call in self.waiting:
            call()


def test_a_snapshot_is_taken_when_memory_runs_out_and_not_after_the_end() -> None:
    """History begins with the first use of CUDA; the observer hands over what was allocated, and then is deaf."""
    torch = Allocator(initialised=False)
    kept: list[bytes] = []
    history = AllocatorHistory(kept.append, lambda: torch)
    history.begin()
    history.begin()
    assert torch.recording == []
    torch.initialise()
    assert torch.recording == ["all"]
    (observer,) = torch.observers
    observer(0, 512, 1024, 0)
    assert [pickle.loads(snapshot) for snapshot in kept] == [{"segments": [1, 2]}]
    history.end()
    assert torch.recording == ["all", None]
    observer(0, 512, 1024, 0)
    assert len(kept) == 1


def test_a_fault_while_taking_a_snapshot_stays_here() -> None:
    """The disk refuses: the exception that torch is about to raise is the one that the program sees."""
    torch = Allocator(initialised=True)

    def refuse(snapshot: bytes) -> None:
        raise OSError(28, "no space left")

    AllocatorHistory(refuse, lambda: torch).begin()
    torch.observers[0](0, 1, 1, 0)


def test_without_torch_history_waits_for_it() -> None:
    """A script that imports torch after init(): asked again, it begins."""
    loaded: list[Any] = [None]
    history = AllocatorHistory(lambda snapshot: None, lambda: loaded[0])
    history.begin()
    assert not history.begun
    loaded[0] = Allocator(initialised=True)
    history.begin()
    assert history.begun
    assert loaded[0].recording == ["all"]


def test_a_run_out_of_device_memory_carries_the_allocators_summary(
    start: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error of the allocator ends the run: its event has the table and the file of the snapshot."""
    cuda = Cuda()
    cuda.hold(0, 1, 1, 1)
    torch = Allocator(initialised=True)

    class OutOfMemoryError(RuntimeError):
        pass

    run = start(memory_snapshot=True)
    run.memory._cuda = lambda: cuda
    run.memory._history._torch = lambda: torch
    run.memory._history._begun = False
    run.memory.look()

    def allocate() -> None:
        torch.observers[0](0, 1, 1, 0)
        raise OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")

    with pytest.raises(OutOfMemoryError), run:
        allocate()
    attributes = recorded(run).event("health.out_of_memory").attributes
    assert attributes["dl.device.memory.summary"] == "| PyTorch CUDA memory summary, device ID 0 |"
    assert attributes["exception.message"].startswith("CUDA out of memory")
    (name,) = attributes["dl.device.memory.snapshot"]
    assert name == "artifacts/memory-attempt-1-rank-0-1.pickle"
    assert pickle.loads((run.path / name).read_bytes()) == {"segments": [1, 2]}


def test_a_run_out_of_host_memory_says_nothing_of_devices(start: Callable[..., Any]) -> None:
    """MemoryError without CUDA: the event is there, without a table."""
    run = start()
    run.memory._cuda = lambda: None
    with pytest.raises(MemoryError), run:
        raise MemoryError("no memory")
    assert "dl.device.memory.summary" not in recorded(run).event("health.out_of_memory").attributes


# The process tree -----------------------------------------------------------------------------------------------------


class Psutil:
    """Stands in for the module psutil: resident bytes by process."""

    class Error(Exception):
        pass

    def __init__(self, resident: dict[int, int], below: dict[int, list[int]] | None = None) -> None:
        self._resident = resident
        self._below = below or {}

    def Process(self, pid: int) -> Any:
        if pid not in self._resident:
            raise self.Error
        children = [SimpleNamespace(pid=child) for child in self._below.get(pid, [])]
        return SimpleNamespace(
            pid=pid,
            memory_info=lambda: SimpleNamespace(rss=self._resident[pid]),
            children=lambda recursive: children,
        )


def _proc(root: Path, pid: int, children: list[int], pss_kb: int | None) -> None:
    task = root / str(pid) / "task" / str(pid)
    task.mkdir(parents=True)
    (task / "children").write_text(" ".join(map(str, children)))
    if pss_kb is not None:
        (root / str(pid) / "smaps_rollup").write_text(
            f"5500-7fff [rollup]\nRss: 9999 kB\nPss: {pss_kb} kB\nPss_Dirty: 1 kB\n"
        )


def test_shared_pages_count_once(tmp_path: Path) -> None:
    """Shares of a process, its child and grandchild add up; one that hides its own gives what is resident."""
    _proc(tmp_path, 1, [2, 4], 1000)
    _proc(tmp_path, 2, [3], 200)
    _proc(tmp_path, 3, [], 30)
    _proc(tmp_path, 4, [], None)
    memory = ProcessTreeMemory(pid=1, psutil=Psutil({4: 5 * MIB}), proc=str(tmp_path))
    assert memory.sample(0) == [Sample("dl.process_tree.memory", 1230 * 1024 + 5 * MIB, (("kind", "pss"),))]


def test_where_the_kernel_tells_no_share_resident_memory_is_added_up(tmp_path: Path) -> None:
    """No /proc at all: what psutil says of the process and of those below; one that has just ended counts nothing."""
    memory = ProcessTreeMemory(pid=1, psutil=Psutil({1: GIB, 2: MIB}, {1: [2, 3]}), proc=str(tmp_path))
    assert memory.sample(0) == [Sample("dl.process_tree.memory", GIB + MIB, (("kind", "rss"),))]


def test_a_reading_that_takes_long_is_made_seldom(tmp_path: Path) -> None:
    """It took 0.1 s: the next one is 20 s later, so that reading takes half a percent of the time."""

    class SlowProc(ProcessTreeMemory):
        def _proportional(self, pid: int) -> int:
            clock.advance(0.1)
            return 1024

    clock = ManualClock(mono_ns=NS_PER_S)
    _proc(tmp_path, 1, [], None)
    memory = SlowProc(pid=1, clock=clock, proc=str(tmp_path))
    read = []
    for _ in range(12):
        if memory.sample(0):
            read.append(clock.mono_ns() / NS_PER_S)
        clock.advance(4.98)
    assert [round(later - earlier) for earlier, later in pairwise(read)] == [20, 20]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="compares with Linux's own account")
def test_this_process_has_about_what_is_resident() -> None:
    """The real thing: proportional memory is above half of what is resident, and not above it."""
    import psutil

    (sample,) = ProcessTreeMemory().sample(0)
    resident = psutil.Process().memory_info().rss
    below = sum(child.memory_info().rss for child in psutil.Process().children(recursive=True))
    assert dict(sample.attributes) == {"kind": "pss"}
    assert resident / 3 < sample.value < (resident + below) * 1.1


# Its slope ------------------------------------------------------------------------------------------------------------


def _fed(memory: MemorySlope, size: Callable[[float], float], until_s: int, *, from_s: int = 0) -> float | None:
    found = None
    for at_s in range(from_s, until_s, 5):
        found = memory.take(at_s * NS_PER_S, size(at_s), training=True)
    return found


def test_a_leak_of_a_mebibyte_a_second_has_that_slope() -> None:
    """From the first to the last reading it grows evenly: the line is exact."""
    assert _fed(MemorySlope(), lambda at_s: GIB + MIB * at_s, 1000) == pytest.approx(MIB)


def test_the_ramp_at_the_start_is_no_leak() -> None:
    """8 GiB come within the first fifty seconds, then nothing: the slope is nought, and was never told before."""
    memory = MemorySlope()
    ramp = [memory.take(at_s * NS_PER_S, min(at_s, 50) * GIB / 6, training=True) for at_s in range(0, 1000, 5)]
    assert all(value is None for value in ramp[: 360 // 5])
    assert all(value == pytest.approx(0.0, abs=1e-6) for value in ramp[360 // 5 :])


def test_nothing_counts_before_training_begins() -> None:
    """Half an hour of loading data in memory, then training: the slope is that of training."""
    memory = MemorySlope()
    for at_s in range(0, 1800, 5):
        assert memory.take(at_s * NS_PER_S, at_s * MIB, training=False) is None
    assert _fed(memory, lambda at_s: GIB, 2500, from_s=1800) == pytest.approx(0.0, abs=1e-6)


def test_only_the_last_ten_minutes_count() -> None:
    """It leaked for an hour and does no more: ten minutes later the slope is nought."""
    memory = MemorySlope()
    assert _fed(memory, lambda at_s: at_s * MIB, 3600) == pytest.approx(MIB)
    assert _fed(memory, lambda at_s: 3600 * MIB, 4300, from_s=3600) == pytest.approx(0.0, abs=1e-6)


def test_the_slope_agrees_with_numpys() -> None:
    """A noisy line: the same as a polynomial of the first degree fitted by NumPy."""
    numpy = pytest.importorskip("numpy")
    luck = random.Random(3)
    xs = sorted(luck.uniform(0, 600) for _ in range(100))
    ys = [5e9 + 2e5 * x + luck.gauss(0, 3e7) for x in xs]
    assert slope(xs, ys) == pytest.approx(numpy.polyfit(xs, ys, 1)[0])


def test_the_source_tells_both(tmp_path: Path) -> None:
    """Readings every 10 s of a tree that grows by 1,024 bytes a second: its size, and in time the slope."""
    clock = ManualClock()
    _proc(tmp_path, 1, [], 0)
    source = GrowingMemory(lambda: True, tree=ProcessTreeMemory(pid=1, clock=clock, proc=str(tmp_path)))
    samples: list[Sample] = []
    for at_s in range(0, 600, 10):
        (tmp_path / "1" / "smaps_rollup").write_text(f"Pss: {1000 + at_s} kB\n")
        samples = source.sample(0)
        clock.advance(10)
    assert samples == [
        Sample("dl.process_tree.memory", (1000 + 590) * 1024, (("kind", "pss"),)),
        Sample("dl.process_tree.memory.slope", pytest.approx(1024.0), (("kind", "pss"),)),
    ]


GROWING = """
import sys, time
from otel_train.clock import SYSTEM
from otel_train.sources.process_tree import ProcessTreeMemory
from otel_train.watch.memory_slope import MemorySlope

tree, memory, kept, found = ProcessTreeMemory(rest=0), MemorySlope(least_ns=10**9, settle_ns=0), [], []
began = time.monotonic()
while time.monotonic() - began < 3:
    # 20 MiB a second, touched, as far as the time has come.
    while len(kept) < (time.monotonic() - began) * 20:
        kept.append(bytearray(b"x" * (1 << 20)))
    for sample in tree.sample(0):
        found.append(memory.take(tree.read_ns, sample.value, training=True))
    time.sleep(0.05)
print(found[-1])
"""


@pytest.mark.slow
def test_a_process_that_really_grows_has_its_slope(scripts: Scripts) -> None:
    """20 MiB a second for three seconds, by the kernel's account: within a tenth."""
    ran = scripts(GROWING)
    assert float(ran.output) == pytest.approx(20 * MIB, rel=0.1)


@pytest.mark.gpu
def test_the_allocator_tells_what_a_tensor_takes(start: Callable[..., Any]) -> None:
    """A real device: 64 MiB more are allocated with a tensor of that size, and nothing is asked of the device."""
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    memory = DeviceMemory()
    kept = [torch.zeros(1, device="cuda")]
    before = by_name(memory.sample(0))["allocated", 0]
    torch.cuda.set_sync_debug_mode("error")
    try:
        kept.append(torch.empty(64 * MIB, dtype=torch.uint8, device="cuda"))
        after = by_name(memory.sample(0))
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert after["allocated", 0] - before == 64 * MIB
    assert after["reserved", 0] >= after["allocated", 0]
    assert after["peak", 0] >= after["allocated", 0]


@pytest.mark.gpu
def test_a_device_without_memory_leaves_summary_and_snapshot(start: Callable[..., Any]) -> None:
    """A real device that cannot give a petabyte: the event has the table, and the file the allocations with stacks."""
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    run = start(memory_snapshot=True)
    kept = torch.zeros(MIB, device="cuda")
    with pytest.raises(torch.cuda.OutOfMemoryError), run:
        torch.empty(1 << 50, dtype=torch.uint8, device=kept.device)
    attributes = recorded(run).event("health.out_of_memory").attributes
    assert "CUDA memory summary" in attributes["dl.device.memory.summary"]
    (name,) = attributes["dl.device.memory.snapshot"]
    snapshot = pickle.loads((run.path / name).read_bytes())
    assert any(segment["total_size"] >= 4 * MIB for segment in snapshot["segments"])
