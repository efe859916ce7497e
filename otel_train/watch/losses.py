"""Watches the user's metrics: which of them have a direction, whether they improve, and how far apart they drift."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from otel_train.record.columns import Taken
from otel_train.record.entries import SeriesAttributes
from otel_train.record.names import Series
from otel_train.record.summary import Goal
from otel_train.semconv import METRIC, SPLIT
from otel_train.watch.gradients import GradientNorm, is_gradient_norm
from otel_train.watch.improvement import Improvement
from otel_train.watch.overfit import OverfitGap

# Windows over which training's values are averaged, as parts of plateau_steps: one batch says little.
SHORT_PART: Final = 20
LONG_PART: Final = 4
STEPS_WHERE_OFF: Final = 2000
THE_LOSS: Final = "train.loss"
_OF_TRAINING: Final = ("train", "")


@dataclass(slots=True)
class Watched:
    """What is kept of one series; None of everything for one that is not watched."""

    series: Series
    improvement: Improvement | None = None
    gap: OverfitGap | None = None
    gradient: GradientNorm | None = None
    # (step, excess) where the gradient went over its limit since the last look.
    crossings: list[tuple[int, float]] = field(default_factory=list)

    @property
    def of(self) -> SeriesAttributes:
        """Attributes of what is told about the series."""
        split: SeriesAttributes = ((SPLIT, self.series.split),) if self.series.split else ()
        return ((METRIC, self.series.name), *split)

    @property
    def is_validation(self) -> bool:
        """Whether its values come from validation."""
        return self.series.split == "val"

    @property
    def is_the_loss(self) -> bool:
        """Whether it is called just that: then it is the one that counts."""
        return self.series.name.lower() == THE_LOSS


class Losses:
    """The watched series of one run. `goal` gives a series' direction, which the user may say later, too."""

    def __init__(
        self,
        goal: Callable[[Series], Goal | None],
        *,
        plateau_steps: float,
        plateau_percent: float,
        gradient_max: float,
        scales: Mapping[str, float],
    ) -> None:
        self._goal = goal
        self._percent = plateau_percent
        self._steps = int(plateau_steps) or STEPS_WHERE_OFF
        self._gradient_max = gradient_max
        self._scales = scales
        # By the series' identity, since to hash one costs more than all the rest; the series is kept with it.
        self._by_id: dict[int, tuple[Series, Watched | None, bool]] = {}
        self._by_series: dict[tuple[Series, Goal | None], Watched | None] = {}
        self.gaps: dict[str, OverfitGap] = {}
        self.run_step: int | None = None

    def forget_directions(self) -> None:
        """Ask again for the direction of each series."""
        self._by_id.clear()

    def take(self, taken: Taken) -> None:
        """Take points of any series."""
        series = taken.series
        known = self._by_id.get(id(series))
        if known is None:
            of_training = series.split in _OF_TRAINING and not has_own_axis(series)
            known = self._by_id[id(series)] = series, self._watch(series), of_training
        _, watched, of_training = known
        if of_training:
            self.run_step = taken.steps[-1]
        if watched is None:
            return
        if watched.improvement is not None:
            watched.improvement.take(taken.steps, taken.values)
        if watched.gap is not None and watched.is_validation:
            watched.gap.take_validation(taken.steps, taken.values)
        elif watched.gap is not None:
            watched.gap.take_training(taken.steps, taken.values)
        if watched.gradient is not None:
            crossing = watched.gradient.take(taken.steps, taken.values, self._gradient_max)
            if crossing is not None:
                watched.crossings.append(crossing)

    def settle(self) -> dict[str, list[tuple[int, float]]]:
        """End what the run has gone past; return the new gaps (step, gap) by metric."""
        step = -1 if self.run_step is None else self.run_step
        for watched in self.watched():
            if watched.improvement is not None:
                watched.improvement.pass_by(step)
        return {name: compared for name, gap in self.gaps.items() if (compared := gap.settle(step))}

    def watched(self) -> list[Watched]:
        """Return what is watched at present."""
        found = {id(watched): watched for _, watched, _ in self._by_id.values() if watched is not None}
        return list(found.values())

    def judged_for_plateau(self) -> list[Watched]:
        """Return the series whose standing still is a plateau: all of them must.

        The loss on validation; where there is none the loss; where nothing is called so all metrics with a direction.
        """
        with_direction = [one for one in self.watched() if one.improvement is not None and one.improvement.began]
        losses = [one for one in with_direction if one.is_the_loss]
        return [one for one in losses if one.is_validation][:1] or losses[:1] or with_direction

    def scales(self) -> dict[str, float]:
        """Return the training losses at the beginning, by metric, as far as they are known."""
        return {name: gap.scale for name, gap in self.gaps.items() if gap.scale is not None}

    def _watch(self, series: Series) -> Watched | None:
        if series.split == "test" or has_own_axis(series):
            return None
        goal = self._goal(series)
        place = (series, goal)
        if place not in self._by_series:
            self._by_series[place] = self._new(series, goal)
        return self._by_series[place]

    def _new(self, series: Series, goal: Goal | None) -> Watched | None:
        watched = Watched(series)
        if goal is not None:
            # An evaluation is a mean already.
            short, long = (1, 0) if series.split == "val" else (self._steps // SHORT_PART, self._steps // LONG_PART)
            watched.improvement = Improvement(
                percent=self._percent, maximise=goal == "max", width_steps=short, long_steps=long
            )
        if goal == "min" and series.split in ("val", *_OF_TRAINING):
            if series.name not in self.gaps:
                self.gaps[series.name] = OverfitGap(self._scales.get(series.name))
            watched.gap = self.gaps[series.name]
        if series.split in _OF_TRAINING and is_gradient_norm(series.key):
            watched.gradient = GradientNorm()
        return watched if (watched.improvement or watched.gap or watched.gradient) else None


def has_own_axis(series: Series) -> bool:
    """Tell whether the steps of a series are others than the run's."""
    return any(key == "axis" for key, _ in series.attributes)


def chosen(gaps: Mapping[str, OverfitGap], names: Sequence[str]) -> list[str]:
    """Return the metrics among `names` whose gap counts: that of the loss where it has one, else all."""
    losses = [name for name, gap in gaps.items() if name.lower() == THE_LOSS and gap.gap is not None]
    return [name for name in names if gaps[name].gap is not None and (not losses or name in losses)]
