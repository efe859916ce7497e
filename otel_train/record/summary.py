"""Keeps count, last, extremes and non-finite values of each series, and says when a best value is reached."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from otel_train.record.names import MINIMIZED, Series

Goal = Literal["min", "max"]


@dataclass(slots=True)
class SeriesSummary:
    """What is known of one series without its points; extremes and mean are over finite values."""

    count: int = 0
    finite: int = 0
    total: float = 0.0
    last: float = math.nan
    last_step: int = 0
    minimum: float = math.inf
    minimum_step: int = 0
    maximum: float = -math.inf
    maximum_step: int = 0
    nonfinite: dict[str, int] = field(default_factory=dict)
    first_nonfinite_step: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON can hold it: non-finite numbers as texts, absent ones left out."""
        record: dict[str, Any] = {"count": self.count, "last": plain(self.last), "last_step": self.last_step}
        if self.finite:
            record |= {
                # Finite values may add up to more than a double holds.
                "mean": plain(self.total / self.finite),
                "min": self.minimum,
                "min_step": self.minimum_step,
                "max": self.maximum,
                "max_step": self.maximum_step,
            }
        if self.nonfinite:
            record |= {"nonfinite": dict(self.nonfinite), "first_nonfinite_step": self.first_nonfinite_step}
        return record


@dataclass(frozen=True, slots=True)
class NonFinite:
    """A series had values that are not finite: how many of which kind, and where the first was."""

    series: Series
    kinds: dict[str, int]
    first: bool
    step: int
    value: float
    time_ns: int


@dataclass(frozen=True, slots=True)
class Best:
    """A series with a direction has a new best value."""

    series: Series
    step: int
    value: float
    previous: float | None
    goal: Goal
    time_ns: int


def plain(number: float) -> float | int | str:
    """Return a number as strict JSON can hold it."""
    if math.isfinite(number):
        return number
    return kind_of(number)


def kind_of(number: float) -> str:
    """Return NaN, Infinity or -Infinity."""
    if number != number:
        return "NaN"
    return "Infinity" if number > 0 else "-Infinity"


class Summaries:
    """The summaries of a run's series; fed by the writer's thread alone."""

    def __init__(self) -> None:
        self.by_series: dict[Series, SeriesSummary] = {}
        self.goals: dict[str, Goal] = {}
        self._best: dict[Series, float] = {}

    def goal(self, series: Series) -> Goal | None:
        """Return the direction that is better, by the user's word, else by the name's last part."""
        if series.key in self.goals:
            return self.goals[series.key]
        if series.description in self.goals:
            return self.goals[series.description]
        last = series.key.rsplit("/", 1)[-1].lower()
        return "min" if last in MINIMIZED or last.endswith(("_loss", "_error")) else None

    def add(
        self, series: Series, times_ns: Sequence[int], steps: Sequence[int], values: Sequence[float]
    ) -> tuple[NonFinite | None, Best | None]:
        """Take points in order; return what is worth an event."""
        summary = self.by_series.get(series)
        if summary is None:
            summary = self.by_series[series] = SeriesSummary()
        summary.count += len(values)
        summary.last, summary.last_step = float(values[-1]), steps[-1]
        total = float(sum(values))
        bad: NonFinite | None = None
        if not math.isfinite(total):
            bad = self._nonfinite(summary, series, times_ns, steps, values)
            rows = [(t, s, v) for t, s, v in zip(times_ns, steps, values, strict=True) if math.isfinite(v)]
            if not rows:
                return bad, None
            times_ns, steps, values = zip(*rows, strict=True)
            total = float(sum(values))
        summary.finite += len(values)
        summary.total += total
        low, high = min(values), max(values)
        if low < summary.minimum:
            summary.minimum, summary.minimum_step = float(low), steps[values.index(low)]
        if high > summary.maximum:
            summary.maximum, summary.maximum_step = float(high), steps[values.index(high)]
        return bad, self._improved(series, times_ns, steps, values, low, high)

    def _nonfinite(
        self,
        summary: SeriesSummary,
        series: Series,
        times_ns: Sequence[int],
        steps: Sequence[int],
        values: Sequence[float],
    ) -> NonFinite | None:
        kinds: dict[str, int] = {}
        first: tuple[int, int, float] | None = None
        for time_ns, step, value in zip(times_ns, steps, values, strict=True):
            if not math.isfinite(value):
                kinds[kind_of(value)] = kinds.get(kind_of(value), 0) + 1
                first = first or (time_ns, step, value)
        if first is None:  # finite values whose sum overflows
            return None
        is_first = not summary.nonfinite
        for kind, count in kinds.items():
            summary.nonfinite[kind] = summary.nonfinite.get(kind, 0) + count
        if summary.first_nonfinite_step is None:
            summary.first_nonfinite_step = first[1]
        return NonFinite(series, kinds, is_first, first[1], first[2], first[0])

    def _improved(
        self,
        series: Series,
        times_ns: Sequence[int],
        steps: Sequence[int],
        values: Sequence[float],
        low: float,
        high: float,
    ) -> Best | None:
        # Training's own values improve all the time, and a test is no choice: the best that matters is on validation.
        if series.split in ("train", "test"):
            return None
        goal = self.goal(series)
        if goal is None:
            return None
        value = low if goal == "min" else high
        previous = self._best.get(series)
        if previous is not None and (value >= previous if goal == "min" else value <= previous):
            return None
        self._best[series] = value
        place = values.index(value)
        return Best(series, steps[place], float(value), previous, goal, times_ns[place])
