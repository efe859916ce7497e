"""Keeps lines in bounded memory while the disk does not take them; the oldest give way and are counted."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HeldLines:
    """Whole lines of one signal that are not on disk, and how many items they hold."""

    signal: str
    lines: bytes
    items: int


class LineRing:
    """A queue of lines, bounded by their bytes, that writers and the sender share."""

    def __init__(self, max_bytes: int = 16 << 20) -> None:
        self.max_bytes = max_bytes
        self.bytes = 0
        self.lost: dict[str, int] = {}
        self._held: deque[HeldLines] = deque()
        self._lock = threading.Lock()

    def append(self, signal: str, lines: bytes, items: int) -> None:
        """Keep lines; where the ring is full the oldest, of whatever signal, are lost and counted."""
        with self._lock:
            self._held.append(HeldLines(signal, lines, items))
            self.bytes += len(lines)
            while self.bytes > self.max_bytes:
                oldest = self._held.popleft()
                self.bytes -= len(oldest.lines)
                self.lost[oldest.signal] = self.lost.get(oldest.signal, 0) + oldest.items

    def push_back(self, held: HeldLines) -> None:
        """Put what could not be delivered first in line again."""
        with self._lock:
            self._held.appendleft(held)
            self.bytes += len(held.lines)

    def pop(self, signal: str | None = None) -> HeldLines | None:
        """Take the oldest lines out, of one signal or of any; None where there are none."""
        with self._lock:
            for index, held in enumerate(self._held):
                if signal is None or held.signal == signal:
                    del self._held[index]
                    self.bytes -= len(held.lines)
                    return held
        return None

    def items(self, signal: str) -> int:
        """Return how many items of a signal are held."""
        with self._lock:
            return sum(held.items for held in self._held if held.signal == signal)
