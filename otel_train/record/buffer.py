"""A bounded list of flat entries between the training thread and the writer: appending never blocks.

An entry is six slots in a row, not a tuple of its own: tuples in a long list make every garbage collection walk them.
The first slot is an object that says what the other five are.

| first slot   | then                                                                          |
| ------------ | ----------------------------------------------------------------------------- |
| PointGroup   | wall_ns, step, epoch or None, values, deferred values or None                 |
| Phase        | step, epoch or None, start mono_ns, end mono_ns, where it ran: see `phases`   |
| TimedLoop    | step, epoch or None, fetch mono_ns, ready mono_ns, end mono_ns                |
| DeviceWait   | step, epoch or None, ready mono_ns, loop, events before and after the fetch   |
| BatchSize    | step, epoch or None, samples or None, tokens or None, loop                    |
| Counted      | step, epoch or None, mono_ns, amounts by name, deferred amounts or None       |
| BatchSource  | step, epoch or None, times, indices, thread of its loop or 0                   |
| a Reading    | wall_ns, step, epoch or None, None, None                                      |
"""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any, Final

SLOTS: Final = 6


class Buffer:
    """Entries wait here until the writer drains them. Threads append with one call, which is atomic."""

    __slots__ = ("_dropped", "capacity_slots", "entries", "extend", "lock")

    def __init__(self, capacity_entries: int) -> None:
        self.entries: list[Any] = []
        # Bound once. A forked child's mark is the capacity, which is read at each call, so a cached method sees it.
        self.extend = self.entries.extend
        # Threads may overshoot the bound by one entry each: they look, then append.
        self.capacity_slots = capacity_entries * SLOTS
        # For what a run's present step is made of. Re-entrant: the garbage collector may close a loop within it.
        self.lock = threading.RLock()
        # A count for each thread: one that all share would lose some, and a lock could be held in a forked child.
        self._dropped: Counter[tuple[str, int]] = Counter()

    def drop(self, cause: str, items: int) -> None:
        """Count what was not kept."""
        self._dropped[(cause, threading.get_ident())] += items

    @property
    def dropped(self) -> Counter[str]:
        """Points that were not kept, by cause."""
        counts: Counter[str] = Counter()
        for (cause, _), items in list(self._dropped.items()):
            counts[cause] += items
        return counts

    def drain(self, most_entries: int | None = None) -> list[Any]:
        """Take out the oldest entries, all of them by default; each of the two steps is atomic."""
        count = len(self.entries) if most_entries is None else most_entries * SLOTS
        batch = self.entries[:count]
        del self.entries[: len(batch)]
        return batch

    def kill(self) -> None:
        """In a forked child: take nothing more, and forget what the parent will write."""
        self.capacity_slots = -1
        self.entries.clear()
        # Another thread may have held it at the fork; here nobody would ever release it.
        self.lock = threading.RLock()
