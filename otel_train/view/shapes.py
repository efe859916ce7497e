"""Keeps the shape of each growing series for a small drawing, and its readings by name; each point is passed once."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable

from otel_train.view.series import Series
from otel_train.view.series_store import SeriesStore

# A shape has between half of these buckets and all of them, each of as many points.
MOST_BUCKETS = 128


class Shape:
    """A series in at most `MOST_BUCKETS` means of equally many neighbours: enough to draw how it went."""

    def __init__(self) -> None:
        self.means: list[float] = []
        self._a_bucket = 1
        self._sum = 0.0
        self._finite = 0
        self._points = 0

    def add(self, value: float) -> None:
        """Take one point; one that is not finite counts as a point, and is in no mean."""
        self._points += 1
        if math.isfinite(value):
            self._finite += 1
            # By a power of two, so nothing is lost: the sum of large values may be none.
            self._sum += value / self._a_bucket
        if self._points < self._a_bucket:
            return
        self.means.append(self._mean() if self._finite else math.nan)
        self._sum, self._finite, self._points = 0.0, 0, 0
        if len(self.means) == MOST_BUCKETS:
            pairs = zip(self.means[::2], self.means[1::2], strict=True)
            self.means = [_mean(left, right) for left, right in pairs]
            self._a_bucket *= 2

    def columns(self, width: int) -> list[float]:
        """Return at most `width` means over the whole, NaN for a column without a finite value."""
        means = [*self.means, self._mean()] if self._finite else self.means
        if len(means) <= width:
            return list(means)
        edges = [len(means) * number // width for number in range(width + 1)]
        found = []
        for start, end in itertools.pairwise(edges):
            finite = [value for value in means[start:end] if value == value]
            found.append(sum(value / len(finite) for value in finite) if finite else math.nan)
        return found

    def _mean(self) -> float:
        return self._sum * (self._a_bucket / self._finite)


def _mean(left: float, right: float) -> float:
    if left != left or right != right:
        return right if left != left else left
    # Halves first: the sum of two large values may be none.
    return left / 2 + right / 2


class Shapes:
    """The shapes of the series of one run."""

    def __init__(self) -> None:
        self._kept: dict[int, tuple[Series, Shape, int]] = {}

    def of(self, all_series: Iterable[Series]) -> list[Shape]:
        """Return the shape of each series as far as it goes now; those of other series are forgotten."""
        kept: dict[int, tuple[Series, Shape, int]] = {}
        for series in all_series:
            # What is joined anew, for an attempt that began, is another object.
            _, shape, taken = self._kept.get(id(series)) or (series, Shape(), 0)
            for index in range(taken, len(series.values)):
                if index not in series.gaps:
                    shape.add(series.values[index])
            kept[id(series)] = series, shape, len(series.values)
        self._kept = kept
        return [shape for _, shape, _ in kept.values()]


class Readings:
    """The series of a run by name, as they were read."""

    def __init__(self) -> None:
        self._by_name: dict[str, list[Series]] = {}
        self._of: tuple[SeriesStore | None, int] = (None, 0)

    def look(self, store: SeriesStore) -> None:
        """Take note of series that are new."""
        found = list(store.raw())
        if self._of != (store, len(found)):
            self._of = store, len(found)
            self._by_name = {}
            for series in found:
                self._by_name.setdefault(series.name, []).append(series)

    def names(self) -> Iterable[str]:
        """Return the names of all metrics."""
        return self._by_name.keys()

    def named(self, *names: str, attempt: int) -> list[Series]:
        """Return the series of these metrics in one attempt that have a value, by rank."""
        found = [
            series
            for name in names
            for series in self._by_name.get(name, ())
            if series.attempt == attempt and len(series.values)
        ]
        return sorted(found, key=lambda series: series.rank)
