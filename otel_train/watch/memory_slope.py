"""Tells how fast memory grows once training has settled: the slope of a straight line through its last readings."""

from __future__ import annotations

from collections import deque
from typing import Final

from otel_train.clock import NS_PER_S

WINDOW_NS: Final = 600 * NS_PER_S
LEAST_NS: Final = 300 * NS_PER_S
SETTLE_NS: Final = 60 * NS_PER_S
FEWEST: Final = 10


class MemorySlope:
    """Bytes a second over the last ten minutes by least squares, from five minutes of readings on.

    The first steps of a training make optimizer state, caches and workers: that ramp is no leak. So readings count
    from a minute after training began.
    """

    def __init__(self, *, window_ns: int = WINDOW_NS, least_ns: int = LEAST_NS, settle_ns: int = SETTLE_NS) -> None:
        self._window_ns = window_ns
        self._least_ns = least_ns
        self._settle_ns = settle_ns
        self._began_ns: int | None = None
        self._readings: deque[tuple[int, float]] = deque()

    def take(self, mono_ns: int, size_bytes: float, *, training: bool) -> float | None:
        """Take a reading, and whether training has begun; return the slope in bytes a second once it is known."""
        if not training:
            return None
        if self._began_ns is None:
            self._began_ns = mono_ns
        if mono_ns - self._began_ns < self._settle_ns:
            return None
        readings = self._readings
        readings.append((mono_ns, size_bytes))
        while readings[0][0] < mono_ns - self._window_ns:
            readings.popleft()
        if len(readings) < FEWEST or mono_ns - readings[0][0] < self._least_ns:
            return None
        return slope([(at_ns - readings[0][0]) / NS_PER_S for at_ns, _ in readings], [size for _, size in readings])


def slope(xs: list[float], ys: list[float]) -> float:
    """Return the slope of the line of least squares: sum of (x - mean x)(y - mean y) by that of (x - mean x)²."""
    mean_x, mean_y = sum(xs) / len(xs), sum(ys) / len(ys)
    spread = sum((x - mean_x) ** 2 for x in xs)
    return sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True)) / spread
