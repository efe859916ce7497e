"""Counts the steps since a metric was last better: by how much it must be, and over which steps it is averaged."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from math import isfinite
from statistics import median
from typing import Final

# One evaluation that is no better, or two, are chance.
FEWEST_MISSES: Final = 3
# Of so many changes the rises are taken for noise. One or two are a spike, after which all may be smooth.
CHANGES_KEPT: Final = 18
FEWEST_RISES: Final = 3


class Windows:
    """Averages a series over windows of so many steps: [0, width), [width, 2·width), … Values not finite are left out.

    A window ends with the first point of another one, or when the run has gone past it.
    """

    def __init__(self, width_steps: int) -> None:
        self.width = max(1, width_steps)
        self._window: int | None = None
        self._count = 0
        self._total = 0.0
        self._last_step = 0

    def take(self, steps: Sequence[int], values: Sequence[float]) -> list[tuple[int, float]]:
        """Take points in order; return (last step, mean) of each window that they ended. NaN: no value was finite."""
        ended: list[tuple[int, float]] = []
        width = self.width
        if list(steps) == sorted(steps):
            start = 0
            while start < len(steps):
                window = steps[start] // width
                stop = bisect_left(steps, (window + 1) * width, start)
                self._add(window, steps[stop - 1], values[start:stop] if stop - start < len(steps) else values, ended)
                start = stop
        else:
            for step, value in zip(steps, values, strict=True):
                self._add(step // width, step, (value,), ended)
        return ended

    def pass_by(self, step: int) -> list[tuple[int, float]]:
        """Return the open window as `take` does, if the run has gone past it by `step`."""
        ended: list[tuple[int, float]] = []
        if self._window is not None and step >= (self._window + 1) * self.width:
            self._end(ended)
        return ended

    def _add(self, window: int, last_step: int, values: Sequence[float], ended: list[tuple[int, float]]) -> None:
        if window != self._window:
            self._end(ended)
            self._window = window
        total = sum(values)
        count = len(values)
        if not isfinite(total):
            finite = [value for value in values if isfinite(value)]
            total, count = sum(finite), len(finite)
        self._total += total
        self._count += count
        self._last_step = last_step

    def _end(self, ended: list[tuple[int, float]]) -> None:
        if self._window is not None:
            ended.append((self._last_step, self._total / self._count if self._count else float("nan")))
        self._window = None
        self._count, self._total = 0, 0.0


class Best:
    """The best value so far. Lower is better.

    A value v is better than the best b if v < b - max(share of |b|, 2 x the median of the rises among the last 18
    changes): what is noisy is not better for a lucky value. NaN is never better.
    """

    def __init__(self, share: float) -> None:
        self._share = share
        self.value: float | None = None
        self._before: float | None = None
        self._changes: deque[float] = deque(maxlen=CHANGES_KEPT)

    def take(self, value: float) -> bool:
        """Tell whether a value is better."""
        if not isfinite(value):
            return False
        if self._before is not None:
            self._changes.append(value - self._before)
        self._before = value
        if self.value is not None and not value < self.value - self._margin(self.value):
            return False
        self.value = value
        return True

    def _margin(self, best: float) -> float:
        rises = [change for change in self._changes if change > 0]
        return max(self._share * abs(best), 2 * median(rises) if len(rises) >= FEWEST_RISES else 0.0)


class Improvement:
    """The steps since one metric was better, judged by means over short windows and, where given, long ones.

    Short windows date an improvement well; in long ones a slow one is seen through the noise. A metric that counts up
    is judged by its negative.
    """

    def __init__(self, *, percent: float, maximise: bool, width_steps: int = 1, long_steps: int = 0) -> None:
        self._short = Windows(width_steps)
        self._best = Best(percent / 100)
        self._long = Windows(long_steps) if long_steps > self._short.width else None
        self._long_best = Best(percent / 100)
        self._sign = -1.0 if maximise else 1.0
        self._better_step = 0
        self._misses = 0
        self.last_step = 0
        # Whether there was a value yet.
        self.began = False
        # (step, steps since the last improvement) of each value since the last look.
        self.judged: list[tuple[int, int]] = []

    @property
    def best(self) -> float | None:
        """The best value so far."""
        return None if self._best.value is None else self._sign * self._best.value

    @property
    def steps_since(self) -> int:
        """Steps from the last improvement to the newest value; 0 until three values in a row were not better."""
        return self.last_step - self._better_step if self._misses >= FEWEST_MISSES else 0

    def take(self, steps: Sequence[int], values: Sequence[float]) -> None:
        """Take points in order."""
        if self._long is not None:
            self._judge_long(self._long.take(steps, values))
        self._judge(self._short.take(steps, values))

    def pass_by(self, step: int) -> None:
        """Judge the open windows if the run has gone past them."""
        if self._long is not None:
            self._judge_long(self._long.pass_by(step))
        self._judge(self._short.pass_by(step))

    def _judge_long(self, ended: Sequence[tuple[int, float]]) -> None:
        for step, value in ended:
            if self._long_best.take(self._sign * value) and self._long is not None:
                # It was better from the window's first step on, as far as can be told.
                self._better_step = max(self._better_step, step // self._long.width * self._long.width)

    def _judge(self, ended: Sequence[tuple[int, float]]) -> None:
        for step, value in ended:
            self.began = True
            self.last_step = step
            if step < self._better_step:
                # Training went back to an earlier step: it is given its time again.
                self._better_step, self._misses = step, 0
            if self._best.take(self._sign * value):
                self._better_step, self._misses = step, 0
            else:
                self._misses += 1
            self.judged.append((step, self.steps_since))
