"""Reads what torch's allocator holds of each CUDA device: counters that it keeps on the host, so no device is asked."""

from __future__ import annotations

import logging
import pickle
import sys
import threading
from collections.abc import Callable
from typing import Any, Final

from otel_train.record.entries import Sample, SeriesAttributes

_log = logging.getLogger("otel_train")

# Allocations and frees that the history keeps, each with its stack.
HISTORY_ENTRIES: Final = 100_000
# A summary of one device has some 4 KB; a log record takes 64.
MOST_SUMMARY: Final = 30_000


def cuda_in_use() -> Any | None:
    """Return `torch.cuda` where the user's program has a device in use; never imports or initialises anything."""
    # Another thread may be in the midst of importing torch.
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    is_initialized = getattr(cuda, "is_initialized", None)
    return cuda if is_initialized is not None and is_initialized() else None


class DeviceMemory:
    """Samples the allocator for each device that this process has taken memory of."""

    name = "memory of devices"

    def __init__(self, cuda: Callable[[], Any | None] = cuda_in_use) -> None:
        self._cuda = cuda
        self._first = True
        self._peaks: dict[int, int] = {}
        # What was counted before this run does not count, nor does it go down when the user resets the counters.
        self._retries: dict[int, int] = {}
        self._retries_seen: dict[int, int] = {}

    def sample(self, now_ns: int) -> list[Sample]:
        """Return present and greatest memory, and retries since the first reading; [] while no device is in use."""
        cuda = self._cuda()
        first, self._first = self._first, False
        if cuda is None:
            return []
        samples: list[Sample] = []
        for index in range(cuda.device_count()):
            stats = cuda.memory_stats(index)
            if stats.get("reserved_bytes.all.peak"):
                samples += self._of_device(index, stats, first=first)
        return samples

    def _of_device(self, index: int, stats: dict[str, int], *, first: bool) -> list[Sample]:
        of: SeriesAttributes = (("index", index),)
        allocated, reserved = stats["allocated_bytes.all.current"], stats["reserved_bytes.all.current"]
        peak = max(self._peaks.get(index, 0), stats["allocated_bytes.all.peak"])
        self._peaks[index] = peak
        retries = stats.get("num_alloc_retries", 0)
        before = self._retries_seen.get(index, retries if first else 0)
        self._retries_seen[index] = retries
        self._retries[index] = self._retries.get(index, 0) + max(0, retries - before)
        return [
            Sample("dl.device.memory.allocated", allocated, of),
            Sample("dl.device.memory.reserved", reserved, of),
            Sample("dl.device.memory.peak", peak, of),
            Sample("dl.device.memory.retries", self._retries[index], of),
        ]

    def close(self) -> None:
        """Nothing is held."""


def allocator_summary(cuda: Any | None) -> str:
    """Return torch's own table of the memory of each device that holds any, "" where CUDA is not in use."""
    if cuda is None:
        return ""
    summaries = [
        cuda.memory_summary(index)
        for index in range(cuda.device_count())
        if cuda.memory_stats(index).get("reserved_bytes.all.peak")
    ]
    return "\n".join(summaries)[:MOST_SUMMARY]


class AllocatorHistory:
    """Has the allocator keep its history, and takes its snapshot in the moment when a device has no memory left.

    `keep` is given the pickled snapshot, which https://pytorch.org/memory_viz shows, on the thread that asked for
    memory; the exception follows after that. The allocator has no way to take its observer back, so `end` makes it
    deaf.
    """

    def __init__(
        self, keep: Callable[[bytes], None], torch: Callable[[], Any | None] = lambda: sys.modules.get("torch")
    ) -> None:
        self._keep = keep
        self._torch = torch
        self._begun = False
        self._ended = False
        self._taking = threading.Lock()

    @property
    def begun(self) -> bool:
        """Whether torch was there."""
        return self._begun

    def begin(self) -> None:
        """Start where torch is loaded: now where CUDA is in use, else with its first use."""
        torch = self._torch()
        # Another thread may be in the midst of importing it.
        lazy_call = getattr(getattr(torch, "cuda", None), "_lazy_call", None)
        if self._begun or torch is None or lazy_call is None:
            return
        self._begun = True
        if torch.cuda.is_available():
            lazy_call(lambda: self._begin(torch))

    def _begin(self, torch: Any) -> None:
        if self._ended:
            return
        # What it raised here would be taken for a fault of CUDA's own start.
        try:
            torch.cuda.memory._record_memory_history(max_entries=HISTORY_ENTRIES, stacks="python")
            torch._C._cuda_attach_out_of_memory_observer(lambda *facts: self._on_out_of_memory(torch))
        except Exception as fault:  # noqa: BLE001
            _log.warning("memory_snapshot: this torch keeps no history: %s: %s", type(fault).__name__, fault)

    def _on_out_of_memory(self, torch: Any) -> None:
        # What it raised here would hide the exception that the user's program waits for.
        try:
            if not self._ended and self._taking.acquire(blocking=False):
                try:
                    self._keep(pickle.dumps(torch.cuda.memory._snapshot()))
                finally:
                    self._taking.release()
        except Exception as fault:  # noqa: BLE001
            _log.warning("memory_snapshot: no snapshot: %s: %s", type(fault).__name__, fault)

    def end(self) -> None:
        """Stop the history."""
        self._ended = True
        torch = self._torch()
        if self._begun and torch is not None and torch.cuda.is_initialized():
            torch.cuda.memory._record_memory_history(enabled=None)
