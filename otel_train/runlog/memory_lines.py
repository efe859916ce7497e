"""Keeps the lines of a run without a folder in bounded memory, until they are sent; what is lost is counted by cause.

It stands where `SegmentWriter` stands in a run with a folder: `write` puts lines into the ring, whoever sends them
takes them out and says what became of them.
"""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path
from typing import Final

from otel_train.runlog.ring import LineRing

# Causes of loss, as the account names them.
NO_ROOM: Final = "no room in memory"
MERGED: Final = "same millisecond"
REFUSED: Final = "refused by the server"
NOT_SENT: Final = "not sent"
NO_ENDPOINT: Final = "no endpoint for them"


class MemoryWriter:
    """One signal of one rank. `write` is for the recorder's thread, `sent` and `lost` for the one that sends."""

    path: Path | None = None
    # No disk is asked for anything, so none fails.
    faulty = False
    bytes_written = 0
    disk_bytes = 0

    def __init__(self, signal: str, ring: LineRing) -> None:
        self.signal = signal
        self.ring = ring
        # Items that a server has taken: these are what the account calls recorded.
        self.items_written = 0
        self._losses: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._finished = False
        self._left_out = False

    def write(self, lines: bytes, items: int) -> None:
        """Keep whole lines; where there is no room the oldest of any signal are lost. Never raises."""
        if self._left_out:
            self.lost(NO_ENDPOINT, items)
        elif lines and not self._finished:
            self.ring.append(self.signal, lines, items)

    def leave_out(self) -> None:
        """Keep nothing of this signal: nobody sends it."""
        self._left_out = True

    def sent(self, items: int) -> None:
        """Note that a server has taken these."""
        with self._lock:
            self.items_written += items

    def lost(self, cause: str, items: int) -> None:
        """Note that these reach no server, and why."""
        if items > 0:
            with self._lock:
                self._losses[cause] += items

    def losses(self, *, ended: bool) -> dict[str, int]:
        """Return how many items are lost, by cause. What waits when the recording has ended is still to be sent."""
        with self._lock:
            found = dict(self._losses)
        found[NO_ROOM] = self.ring.lost.get(self.signal, 0)
        return {cause: items for cause, items in found.items() if items}

    def give_up(self) -> int:
        """Take nothing more, count what still waits as not sent, and return how many items that is."""
        self._finished = True
        waiting = 0
        while (held := self.ring.pop(self.signal)) is not None:
            waiting += held.items
        self.lost(NOT_SENT, waiting)
        return waiting

    def retry(self) -> bool:
        """Nothing is held back for a disk."""
        return True

    def close(self, *, compress: bool = True, deadline_ns: int | None = None) -> None:
        """Take nothing more; what waits in memory is the sender's."""
        self._finished = True

    def abandon(self) -> None:
        """Forget everything, in a forked child: the parent's lines are the parent's alone."""
        self._finished = True
        self.ring = LineRing(self.ring.max_bytes)
        self._lock = threading.Lock()
