"""Says how far a run is and how long the rest takes: as it was written last, and with what went on since."""

from __future__ import annotations

from typing import Final

from otel_train.clock import NS_PER_S
from otel_train.record.names import PREFIX
from otel_train.view.run_data import RunData
from otel_train.view.series import Series

SHARE: Final = "dl.run.progress"
LEFT: Final = "dl.run.time_left"
STEPS: Final = "dl.step.time"


def progress_of(run: RunData, now_ns: int) -> tuple[float | None, float | None]:
    """Return the share that a running run has done, 0 to 1, and the seconds left; None for what is not known."""
    if run.state != "running":
        return None, None
    run.series()
    attempt = max(run.last_of_attempt, default=0)
    named: dict[str, Series] = {}
    trained: Series | None = None
    for series in run.store.raw():
        if series.attempt != attempt or not len(series.values):
            continue
        if series.name in (SHARE, LEFT):
            named.setdefault(series.name, series)
        elif series.split in ("train", ""):
            if series.name == STEPS:
                named.setdefault(STEPS, series)
            elif trained is None and series.name.startswith(PREFIX):
                trained = series
    if SHARE not in named and LEFT not in named:
        return None, None
    steps = named.get(STEPS, trained)
    return progress(named.get(SHARE), named.get(LEFT), steps, first=attempt == 1, step=_newest(steps), now_ns=now_ns)


def progress(
    share: Series | None, left: Series | None, steps: Series | None, *, first: bool, step: float | None, now_ns: int
) -> tuple[float | None, float | None]:
    """Return share and seconds left of an attempt, which are written every 15 seconds, as they are at a step.

    `steps` are the ends of training's steps, or points of a metric of training; `first` says of the first attempt that
    nothing was done before it.
    """
    done = None if share is None else _share_at(share, steps, step, first=first)
    if left is None:
        return done, None
    if share is not None and done is not None and share.values[-1] < done:
        # By what has gone on since: where training stands still, so does this.
        return done, left.values[-1] * (1 - done) / (1 - share.values[-1])
    return done, max(0.0, left.values[-1] - max(0.0, (now_ns - left.times_ns[-1]) / NS_PER_S))


def _share_at(share: Series, steps: Series | None, step: float | None, *, first: bool) -> float:
    """Return the share done at a step: between the last two that were written, each step added as much."""
    written = share.values[-1]
    then = None if steps is None else _step_at(steps, share.times_ns[-1])
    if steps is None or step is None or then is None:
        return min(written, 1.0)
    for index in range(len(share.values) - 2, -1, -1):
        before = _step_at(steps, share.times_ns[index])
        if before is None:
            break
        if before < then:
            return _on(written, written - share.values[index], then - before, step - then)
    began = next((one for one in steps.steps if one == one), None)
    if first and began is not None:
        # Before its first step nothing was done.
        return _on(written, written, then - began + 1, step - then)
    return min(written, 1.0)


def _on(written: float, rise: float, of_steps: float, steps: float) -> float:
    return min(written + max(0.0, steps) * max(0.0, rise) / of_steps, 1.0)


def _step_at(steps: Series, time_ns: int) -> float | None:
    """Return the step of the last point up to a time."""
    for index in range(min(len(steps.steps), len(steps.times_ns)) - 1, -1, -1):
        if steps.times_ns[index] <= time_ns and steps.steps[index] == steps.steps[index]:
            return steps.steps[index]
    return None


def _newest(steps: Series | None) -> float | None:
    found = reversed(steps.steps) if steps is not None else ()
    return next((step for step in found if step == step), None)
