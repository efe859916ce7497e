"""Keeps the numbers of a growing series up to date: counts, extremes and an exact mean, each point looked at once."""

from __future__ import annotations

import itertools
import math
from array import array
from collections.abc import Iterable, Sequence

from otel_train.view.reduce import Bad, finite_of, is_finite, mean_of_large
from otel_train.view.series import Series

# So many old points become a few numbers with the same sum, so that each is added up once.
_MANY = 256


class Running:
    """The numbers of one series so far. Indices are places of its points; None where there is no such point."""

    def __init__(self, series: Series) -> None:
        self.series = series
        self.count = 0
        self.finite = 0
        self.bad = Bad()
        self.low: int | None = None
        self.high: int | None = None
        self.first_bad: int | None = None
        self.has_steps = False
        self.has_epochs = False
        self.least_step: float | None = None
        # Whether two points stand in one epoch.
        self.repeats = False
        self._epochs: set[float] = set()
        self._places = 0
        # Numbers with the same sum as the finite ones of the first `_summed` points.
        self._partials: list[float] = []
        self._summed = 0
        # What a counter rose by before its last new beginning, its last value, and of how many points this is known.
        self._risen = 0.0
        self._last = 0.0
        self._risen_of = 0

    def update(self, moved: int | None = None) -> bool:
        """Take the points that are new; `moved` is the first that has another step or epoch now than before.

        Return whether this was one of the old points.
        """
        series, first = self.series, self.count
        if first < len(series.values):
            if first - self._summed > _MANY:
                self._fold(first)
            part = series.values[first:] if first else series.values
            if is_finite(part):
                self._take_finite(part, first)
            else:
                self._take_some(part, first)
            self.count = len(series.values)
        old = moved is not None and moved < self._places
        if old:
            self.has_steps = self.has_epochs = self.repeats = False
            self.least_step = None
            self._epochs = set()
            self._places = 0
        self._take_places()
        return old

    def mean(self) -> float | None:
        """Return the mean of the finite values; None where there is none."""
        if self.low is None or self.high is None:
            return None
        values = self.series.values
        try:
            result = math.fsum(itertools.chain(self._partials, self._unsummed(self.count))) / self.finite
        except OverflowError:
            result = mean_of_large((value for value in values if value - value == 0.0), self.finite)
        # Rounding may pass an extreme by one bit.
        return min(max(result, values[self.low]), values[self.high])

    def rise(self) -> float:
        """Return by how much a counter rose in all; it begins anew with each attempt, whose last value counts."""
        for value in self.series.values[self._risen_of :]:
            if value < self._last:
                self._risen += self._last
            if value == value:
                self._last = value
        self._risen_of = len(self.series.values)
        return self._risen + self._last

    def _take_finite(self, part: array[float], first: int) -> None:
        self.finite += len(part)
        self._extremes(part, first, part)

    def _take_some(self, part: array[float], first: int) -> None:
        """Take points of which some are no numbers, or so large that their sum is none."""
        finite = array("d", [value for value in part if value - value == 0.0])
        self.finite += len(finite)
        if finite:
            self._extremes(finite, first, part)
        if len(finite) == len(part):
            return
        for index, value in enumerate(part, first):
            if value - value != 0.0 and index not in self.series.gaps:
                self.bad.add(value)
                if self.first_bad is None:
                    self.first_bad = index

    def _extremes(self, finite: array[float], first: int, part: array[float]) -> None:
        values = self.series.values
        low, high = min(finite), max(finite)
        if self.low is None or low < values[self.low]:
            self.low = first + part.index(low)
        if self.high is None or high > values[self.high]:
            self.high = first + part.index(high)

    def _unsummed(self, end: int) -> Sequence[float]:
        values = self.series.values
        part = values[self._summed : end] if self._summed or end < len(values) else values
        return finite_of(part)

    def _fold(self, end: int) -> None:
        """Put a few numbers with exactly the same sum in the place of all points before this one."""
        try:
            self._partials = _exact(self._partials, self._unsummed(end))
        except OverflowError:
            return
        self._summed = end

    def _take_places(self) -> None:
        series, first = self.series, self._places
        count = self._places = len(series.values)
        if first == count:
            return
        steps = series.steps[first:count] if first else series.steps
        least = _least(steps)
        if least is not None:
            self.has_steps = True
            if self.least_step is None or least < self.least_step:
                self.least_step = least
        if self.has_epochs and self.repeats:
            return
        for epoch in series.epochs[first:count]:
            if epoch == epoch:
                self.has_epochs = True
                if epoch in self._epochs:
                    self.repeats = True
                    self._epochs = set()
                    return
                self._epochs.add(epoch)


def _least(numbers: Sequence[float]) -> float | None:
    # Comparisons with NaN are false, so only one in the first place spoils this.
    least = min(numbers, default=math.nan)
    if least == least:
        return least
    return min((number for number in numbers if number == number), default=None)


def _exact(partials: Iterable[float], values: Sequence[float]) -> list[float]:
    """Return as few numbers as add up to exactly the same: the rounded sum, what it lacks, and so on."""
    found: list[float] = []
    while rest := math.fsum(itertools.chain(partials, values, [-part for part in found])):
        found.append(rest)
    return found
