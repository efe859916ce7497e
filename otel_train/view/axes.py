"""Gives every point its place on the three axes of the page: step, elapsed time since the run's start, and epoch."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from otel_train.clock import NS_PER_S
from otel_train.view.series import Series

Place = int | float | None


@dataclass(slots=True)
class _Span:
    start_ns: int
    end_ns: int


class EpochSpans:
    """When each epoch of one attempt was, kept up to date."""

    def __init__(self) -> None:
        self.runs: list[tuple[float, _Span]] = []
        self._taken: dict[int, int] = {}
        self._last = (0, 0.0)
        self._rank = -1

    def update(self, siblings: Sequence[Series]) -> None:
        """Take what is new in the series that hold the epochs, of the first rank that has any."""
        first_rank = min((sibling.rank for sibling in siblings), default=0)
        siblings = [sibling for sibling in siblings if sibling.rank == first_rank]
        if first_rank != self._rank:
            self._rank, self._taken, self._last, self.runs = first_rank, {}, (0, 0.0), []
        pairs: list[tuple[int, float]] = []
        for sibling in siblings:
            first, count = self._taken.get(id(sibling), 0), len(sibling.values)
            if first < count:
                pairs.extend(zip(sibling.times_ns[first:count], sibling.values[first:count], strict=True))
            self._taken[id(sibling)] = count
        if not pairs:
            return
        pairs.sort()
        late = bisect_left(pairs, self._last)
        if late and not all(map(self._is_within, pairs[:late])):
            self.runs, late = [], 0
            pairs = sorted(pair for sibling in siblings for pair in zip(sibling.times_ns, sibling.values, strict=True))
        self._last = max(self._last, pairs[-1])
        self._continue(pairs[late:])

    def _is_within(self, pair: tuple[int, float]) -> bool:
        """Whether a point lies within its epoch as that is known; then it changes nothing."""
        place = bisect_right(self.runs, pair[0], key=lambda run: run[1].start_ns) - 1
        return place >= 0 and self.runs[place][0] == pair[1] and pair[0] <= self.runs[place][1].end_ns

    def _continue(self, pairs: Sequence[tuple[int, float]]) -> None:
        runs = self.runs
        epoch, span = runs[-1] if runs else (math.nan, _Span(0, 0))
        for time_ns, number in pairs:
            span.end_ns = time_ns
            if number != epoch:
                epoch, span = number, _Span(time_ns, time_ns)
                runs.append((epoch, span))


@dataclass(slots=True)
class Axes:
    """Where points are drawn. Elapsed seconds count from `started_ns` for every series."""

    started_ns: int
    fractional: bool = False
    _spans: dict[float, list[_Span]] = field(default_factory=lambda: defaultdict(list))

    def learn_epochs(self, times_and_epochs: Sequence[tuple[int, float]]) -> None:
        """Take the epochs of one attempt, by time, so that points within one lie side by side and not on one line."""
        spans = EpochSpans()
        spans._continue(times_and_epochs)
        self.take(spans)

    def take(self, spans: EpochSpans) -> None:
        """Take the epochs of one attempt."""
        for epoch, span in spans.runs:
            self._spans[epoch].append(span)

    def decide(self, all_series: Iterable[Series]) -> None:
        """Draw whole epochs where no series has two points in one, else fractions of epochs by time."""
        self.fractional = any(_repeats(series) for series in all_series)

    def places(self, series: Series, indices: Sequence[int]) -> dict[str, list[Place]]:
        """Return the places of these points by axis; an axis on which none of them has one is left out."""
        times_ns = [series.times_ns[index] for index in indices]
        started_ns = self.started_ns
        result: dict[str, list[Place]] = {"time": [round((time_ns - started_ns) / NS_PER_S, 4) for time_ns in times_ns]}
        steps = [series.steps[index] for index in indices]
        if any(step == step for step in steps):
            result["step"] = list(map(_whole, steps))
        epochs = [series.epochs[index] for index in indices]
        if any(epoch == epoch for epoch in epochs):
            result["epoch"] = list(map(self._epoch, epochs, times_ns))
        return result

    def epochs(self, series: Series) -> list[Place]:
        """Return the places of all points on the axis of epochs."""
        return list(map(self._epoch, series.epochs, series.times_ns))

    def time_ns(self, elapsed_s: float) -> float:
        """Return the time at which so many seconds had passed."""
        return self.started_ns + elapsed_s * NS_PER_S

    def elapsed(self, time_ns: int) -> float:
        """Return seconds since the run's start, to the tenth of a millisecond."""
        return round((time_ns - self.started_ns) / NS_PER_S, 4)

    def _epoch(self, epoch: float, time_ns: int) -> Place:
        if epoch != epoch:
            return None
        if not self.fractional:
            return _whole(epoch)
        spans = self._spans.get(epoch, [])
        position = bisect_right(spans, time_ns, key=lambda span: span.start_ns) - 1
        if position < 0 or spans[position].end_ns <= spans[position].start_ns:
            return _whole(epoch)
        span = spans[position]
        return round(epoch + min(1.0, (time_ns - span.start_ns) / (span.end_ns - span.start_ns)), 4)


def _repeats(series: Series) -> bool:
    seen: set[float] = set()
    for epoch in series.epochs:
        if epoch == epoch:
            if epoch in seen:
                return True
            seen.add(epoch)
    return False


def _whole(number: float) -> Place:
    if number != number:
        return None
    return int(number) if number.is_integer() else number
