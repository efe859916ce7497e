"""Measures how far validation loss lies above training loss over the same steps."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from math import isfinite
from statistics import median
from typing import Final

from otel_train.watch.improvement import Windows

FIRST_VALUES: Final = 5
# Points of training that may turn out to be later than the evaluation that is compared; older ones are added up.
MOST_POINTS: Final = 20_000
LEAST_SCALE: Final = 1e-12


class OverfitGap:
    """(validation - training) / scale of one loss, at each evaluation.

    Training is the mean of what was logged since the evaluation before, up to its step; the last value where that is
    nothing. The scale is the training loss at the beginning (median of its first five values, fewer where the first
    evaluation comes sooner), or the present one where that is greater: by a loss near zero every gap would be huge.
    """

    def __init__(self, scale: float | None = None) -> None:
        self.scale = scale
        self.gap: float | None = None
        self._evaluations = Windows(1)
        self._waiting: list[tuple[int, float]] = []
        self._training: deque[tuple[Sequence[int], Sequence[float]]] = deque()
        self._points = 0
        self._first: list[float] = []
        self._count, self._total = 0, 0.0
        self._last: float | None = None

    def take_training(self, steps: Sequence[int], values: Sequence[float]) -> None:
        """Take training losses; they are read when an evaluation needs them."""
        self._training.append((steps, values))
        self._points += len(steps)
        while self._points > MOST_POINTS:
            self._add(self._pop()[1])

    def take_validation(self, steps: Sequence[int], values: Sequence[float]) -> None:
        """Take validation losses; those of one step are one evaluation."""
        self._waiting += self._evaluations.take(steps, values)

    def settle(self, run_step: int) -> list[tuple[int, float]]:
        """Compare the evaluations that have ended, now that all training before them was taken; return (step, gap)."""
        self._waiting += self._evaluations.pass_by(run_step)
        waiting, self._waiting = self._waiting, []
        compared = []
        for step, validation in waiting:
            training = self._training_until(step)
            if training is not None and self.scale is not None and isfinite(validation):
                self.gap = (validation - training) / max(self.scale, abs(training), LEAST_SCALE)
                compared.append((step, self.gap))
        return compared

    def _training_until(self, step: int) -> float | None:
        """Return the mean of training since the evaluation before, and begin anew."""
        later: list[tuple[Sequence[int], Sequence[float]]] = []
        while self._training:
            steps, values = self._pop()
            # Where steps go back within a line of points the cut is a near one.
            cut = bisect_right(steps, step) if steps[-1] > step else len(steps)
            self._add(values[:cut])
            if cut < len(steps):
                later.append((steps[cut:], values[cut:]))
        for steps, values in later:
            self.take_training(steps, values)
        if self.scale is None and self._first:
            self.scale = abs(median(self._first))
        count, total = self._count, self._total
        self._count, self._total = 0, 0.0
        return total / count if count else self._last

    def _pop(self) -> tuple[Sequence[int], Sequence[float]]:
        steps, values = self._training.popleft()
        self._points -= len(steps)
        return steps, values

    def _add(self, values: Sequence[float]) -> None:
        total = sum(values)
        if not isfinite(total):
            values = [value for value in values if isfinite(value)]
            total = sum(values)
        if not values:
            return
        if len(self._first) < FIRST_VALUES and self.scale is None:
            self._first += values[: FIRST_VALUES - len(self._first)]
        self._count += len(values)
        self._total += total
        self._last = values[-1]
