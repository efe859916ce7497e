"""A bounded list of flat entries between the training thread and the writer: appending never blocks.

An entry is six slots in a row, not a tuple of its own: tuples in a long list make every garbage collection walk them.
The first slot is an object that says what the other five are.

| first slot   | then                                                                          |
| ------------ | ----------------------------------------------------------------------------- |
| PointGroup   | wall_ns, step, epoch or None, values, deferred values or None                 |
| Phase        | step, epoch or None, start mono_ns, end mono_ns, loops around it              |
| StepLoop     | step, epoch or None, fetch mono_ns, ready mono_ns, end mono_ns                |
| DeviceWait   | step, epoch or None, loop, event before the fetch, event after it             |
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

SLOTS: Final = 6


class Buffer:
    """Entries wait here until the writer drains them. Threads append with one call, which is atomic."""

    __slots__ = ("capacity_slots", "dropped", "entries", "extend")

    def __init__(self, capacity_entries: int) -> None:
        self.entries: list[Any] = []
        # Bound once. A forked child's mark is the capacity, which is read at each call, so a cached method sees it.
        self.extend = self.entries.extend
        # Threads may overshoot the bound by one entry each: they look, then append.
        self.capacity_slots = capacity_entries * SLOTS
        self.dropped: Counter[str] = Counter()

    def drop(self, cause: str, items: int) -> None:
        """Count what was not kept."""
        self.dropped[cause] += items

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
