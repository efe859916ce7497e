"""Counts the points of a run by what they are of, as the last line that a run prints counts them."""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

from otel_train.record.names import PREFIX
from otel_train.semconv import EPOCH, STEP
from otel_train.view.run_data import RunData
from otel_train.view.series import Series

# What is recorded as points beside the user's metrics. Whether a point has a step says nothing: readings of the loop
# have one, and the steps of an evaluation have none.
POINTS: Final = frozenset(
    {
        "dl.step.time",
        "dl.data.wait.time",
        "dl.phase.time",
        "dl.rank.busy.time",
        "dl.data.fetch.time",
        "dl.data.augment.time",
        "dl.data.collate.time",
        "dl.data.batch.time",
        "dl.data.queue.time",
        "dl.optimizer.step",
        "dl.amp.scale",
        "dl.grad.norm",
        "dl.grad.norm.clipped",
        "dl.weight.norm",
        "dl.update.ratio",
        "dl.activation.mean",
        "dl.activation.std",
        "dl.activation.dead",
        "dl.samples.mean",
        "dl.samples.std",
        "dl.samples.saturated",
        "dl.samples.constant",
        "dl.samples.nonfinite",
        "dl.samples.duplicate",
        "dl.samples.drift",
        "dl.samples.class.drift",
        "dl.samples.class.share",
    }
)
_REPEATED: Final = "dl.optimizer.step"
# Written with each heartbeat of a run that trains.
_AT_HEARTBEATS: Final = "dl.micro_step"
_NEAR: Final = 50


def points_by_kind(run: RunData) -> tuple[int, int, int]:
    """Return how many points were read: of the user's metrics, of steps, phases and what was watched, and readings.

    Readings are those of the machine, of OpenTelemetry's instruments and of the recorder itself, rates and totals.
    Of all attempts and ranks, replaced points too.
    """
    run.series()
    metrics = steps = readings = 0
    repeated: list[Series] = []
    heartbeats: dict[tuple[int, int], Series] = {}
    for series in run.store.raw():
        name = series.name
        if name in (STEP, EPOCH):
            continue
        count = len(series.values)
        if name.startswith(PREFIX):
            metrics += count
        elif name in POINTS:
            steps += count
            if name == _REPEATED and not series.attributes:
                repeated.append(series)
        else:
            readings += count
            if name == _AT_HEARTBEATS:
                heartbeats[series.attempt, series.rank] = series
    for series in repeated:
        again = _repetitions(series, heartbeats.get((series.attempt, series.rank)))
        steps, readings = steps - again, readings + again
    return metrics, steps, readings


def _repetitions(series: Series, heartbeats: Series | None) -> int:
    """Return how many points of a series are repetitions at heartbeats: from the first that has one, all have."""
    if heartbeats is None or not len(series.values):
        return 0
    times, beats = series.times_ns, heartbeats.times_ns
    for place in range(max(0, bisect_left(beats, times[0]) - _NEAR), len(beats)):
        # What a device holds back arrives after a heartbeat that is younger.
        near = bisect_left(times, beats[place])
        if beats[place] in times[max(0, near - _NEAR) : near + _NEAR]:
            return len(beats) - place
    return 0


def recorded(run: RunData) -> int:
    """Return the points that the account at the end of a run counts: all but readings."""
    metrics, steps, _ = points_by_kind(run)
    return metrics + steps
