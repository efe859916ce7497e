"""Counts, extremes and the last value of a series, from its points alone, so that a killed run has them too."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

from otel_train.record.names import MINIMIZED, PREFIX
from otel_train.view.reduce import Bad
from otel_train.view.running import Running
from otel_train.view.series import Series


@dataclass(slots=True)
class At:
    """A value and where it is: step and epoch None where the point has none."""

    value: float
    time_ns: int
    step: float | None = None
    epoch: float | None = None

    @property
    def place(self) -> str:
        """``step 37`` or ``epoch 2`` or nothing, for people."""
        if self.step is not None:
            return f"step {self.step:.15g}"
        return f"epoch {self.epoch:.15g}" if self.epoch is not None else ""


@dataclass(slots=True)
class Summary:
    """One series in numbers. Extremes and mean are of the finite values; None where there is none."""

    key: str
    split: str
    unit: str
    points: int
    finite: int
    bad: Bad
    last: At | None = None
    low: At | None = None
    high: At | None = None
    mean: float | None = None
    first_bad: At | None = None
    goal: str = ""
    best: At | None = None
    # The place of the best value among the points.
    best_index: int | None = None


def at(series: Series, index: int) -> At:
    """Return one point with its place."""
    step, epoch = series.steps[index], series.epochs[index]
    return At(
        series.values[index],
        series.times_ns[index],
        step if step == step else None,
        epoch if epoch == epoch else None,
    )


def summarize(series: Series, goal: str = "") -> Summary:
    """Return the numbers of a series; `goal` is "min", "max" or empty, and without one there is no best value."""
    running = Running(series)
    running.update()
    return summary_of(running, goal)


def summary_of(running: Running, goal: str = "") -> Summary:
    """Return the numbers of a series that are kept up to date; see `summarize`."""
    series = running.series
    points = running.finite + running.bad.total
    bad = dataclasses.replace(running.bad)
    result = Summary(series.key, series.split, series.unit, points, running.finite, bad, goal=goal)
    last = next((index for index in range(len(series.values) - 1, -1, -1) if index not in series.gaps), None)
    if last is not None:
        result.last = at(series, last)
    if running.low is not None and running.high is not None:
        result.low, result.high, result.mean = at(series, running.low), at(series, running.high), running.mean()
        result.best = result.low if goal == "min" else result.high if goal == "max" else None
        result.best_index = None if not result.best else running.low if goal == "min" else running.high
    if running.first_bad is not None:
        result.first_bad = at(series, running.first_bad)
    return result


def goal_of(series: Series, metrics: Mapping[str, object]) -> str:
    """Return the direction that run.json gives a metric, else that of its name by itself: "min", "max" or ""."""
    for name in (series.key, series.description, series.name.removeprefix(PREFIX), series.name):
        row = metrics.get(name)
        if isinstance(row, Mapping) and row.get("goal") in ("min", "max"):
            return str(row["goal"])
    last = series.key.rsplit("/", 1)[-1].lower()
    return "min" if last in MINIMIZED or last.endswith(("_loss", "_error")) else ""
