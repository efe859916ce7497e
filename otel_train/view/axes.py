"""Gives every point its place on the three axes of the page: step, elapsed time since the run's start, and epoch."""

from __future__ import annotations

from bisect import bisect_right
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


@dataclass(slots=True)
class Axes:
    """Where points are drawn. Elapsed seconds count from `started_ns` for every series."""

    started_ns: int
    fractional: bool = False
    _spans: dict[float, list[_Span]] = field(default_factory=lambda: defaultdict(list))

    def learn_epochs(self, times_and_epochs: Sequence[tuple[int, float]]) -> None:
        """Take the epochs of one attempt, by time, so that points within one lie side by side and not on one line."""
        runs: list[tuple[float, _Span]] = []
        for time_ns, epoch in times_and_epochs:
            if runs and runs[-1][0] == epoch:
                runs[-1][1].end_ns = time_ns
            else:
                if runs:
                    runs[-1][1].end_ns = time_ns
                runs.append((epoch, _Span(time_ns, time_ns)))
        for epoch, span in runs:
            self._spans[epoch].append(span)

    def decide(self, all_series: Iterable[Series]) -> None:
        """Draw whole epochs where no series has two points in one, else fractions of epochs by time."""
        self.fractional = any(_repeats(series) for series in all_series)

    def places(self, series: Series, indices: Sequence[int]) -> dict[str, list[Place]]:
        """Return the places of these points by axis; an axis on which none of them has one is left out."""
        result: dict[str, list[Place]] = {"time": [self.elapsed(series.times_ns[index]) for index in indices]}
        steps = [_whole(series.steps[index]) for index in indices]
        if any(step is not None for step in steps):
            result["step"] = steps
        epochs = [self._epoch(series.epochs[index], series.times_ns[index]) for index in indices]
        if any(epoch is not None for epoch in epochs):
            result["epoch"] = epochs
        return result

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
