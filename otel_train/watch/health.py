"""Watches one run as it is written: says what is wrong with it, once, and gives values and thresholds to others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from otel_train.record.digest import Digest, Digested
from otel_train.record.entries import Sample, SeriesAttributes
from otel_train.runlog.watcher import Finding
from otel_train.semconv import ALERT, CLOCK, METRIC
from otel_train.watch.conditions import CONDITIONS
from otel_train.watch.elsewhere import IN_A_STAGE, OUTSIDE
from otel_train.watch.inside import Inside
from otel_train.watch.losses import Losses, Watched, chosen, has_own_axis
from otel_train.watch.machine import Machine, Reading
from otel_train.watch.onsets import Judged, Onsets
from otel_train.watch.progress import DataWait, Progress
from otel_train.watch.thresholds import OF_STEP_TIMES, Thresholds


@dataclass(frozen=True, slots=True)
class Pace:
    """How training goes on: the usual step time, the time since the last step or since something else was done."""

    usual_s: float | None
    age_s: float
    began: bool
    # What the run does that is no step, "" where one is due.
    elsewhere: str
    step: int | None


class Health:
    """The watcher of one run and rank, for the writer's thread.

    `elsewhere` says what the run does at this moment that is no training step, "" where it should make steps.
    `keep` is given the training losses at the beginning, by metric, once they are known; `scales` are those of an
    earlier attempt. Only `main` gives the thresholds of the whole run.
    """

    def __init__(
        self,
        thresholds: Thresholds,
        digest: Digest,
        *,
        elsewhere: Callable[[], str] = lambda: "",
        main: bool = True,
        scales: Mapping[str, float] | None = None,
        keep: Callable[[dict[str, float]], None] = lambda scales: None,
    ) -> None:
        self._thresholds = thresholds
        self._digest = digest
        self._elsewhere = elsewhere
        self._main = main
        self._keep = keep
        self._kept = dict(scales or {})
        self._goals: dict[str, str] = {}
        self._losses = Losses(
            digest.summaries.goal,
            plateau_steps=thresholds["plateau_steps"],
            plateau_percent=thresholds["plateau_percent"],
            gradient_max=thresholds.limit(CONDITIONS["gradient_exploding"]),
            scales=self._kept,
        )
        self._progress = Progress()
        self._wait = DataWait()
        self._readings: list[Reading] = []
        self._machine = Machine(
            self._readings.append,
            idle_window_s=thresholds["gpu_idle_s"],
            training=lambda: self._progress.began and self._elsewhere() != IN_A_STAGE,
        )
        self._onsets = Onsets()
        self._limits = thresholds.limits()
        self._inside = Inside(self._limits)
        self._logged = False
        self._now_ns = 0
        self._ended = False

    # What passes by ------------------------------------------------------------------------------------------------

    def take(self, digested: Digested) -> None:
        """See points and steps."""
        goals = self._digest.summaries.goals
        if len(goals) != len(self._goals) or goals != self._goals:
            self._goals = dict(goals)
            self._losses.forget_directions()
        for taken in digested.taken:
            self._losses.take(taken)
        for arrived in digested.read:
            self._inside.take(arrived)
        if digested.steps:
            self._progress.take_steps(digested.steps)
            self._wait.take([step for step in digested.steps if step.split == "train"])
        elif digested.taken and not self._progress.by_loop:
            self._logged = True
            on_steps = [taken for taken in digested.taken if not has_own_axis(taken.series)]
            if on_steps:
                self._progress.take_points(on_steps)
        if digested.device_waits:
            # Later than their steps, and perhaps without any.
            self._wait.take_device([wait_s for split, _, wait_s in digested.device_waits if split == "train"])

    def readings(self, time_ns: int, samples: Sequence[Sample]) -> None:
        """See readings of the machine."""
        self._machine.take(time_ns, samples)
        self._inside.readings(time_ns, samples)

    # What comes of it ----------------------------------------------------------------------------------------------

    def settle(self, wall_ns: int, mono_ns: int, *, ended: bool) -> list[Finding]:
        """Return what began or ended."""
        self._now_ns = mono_ns
        self._ended = ended
        if self._logged:
            self._progress.alive(mono_ns)
            self._logged = False
        user_logs_norm = self._user_logs_norm()
        findings = self._inside.nonfinite(user_logs_norm=user_logs_norm)
        fresh = self._losses.settle()
        for judged in [
            *self._plateau(wall_ns),
            *self._overfit(fresh, wall_ns),
            *self._gradients(wall_ns),
            *self._inside.settle(
                wall_ns, self._step(), user_logs_norm=user_logs_norm, vanished=user_logs_norm and self._vanished()
            ),
            *self._pace(wall_ns),
            *self._of_machine(),
        ]:
            findings += self._onsets.judge(judged)
        if len(scales := self._losses.scales()) > len(self._kept):
            self._kept = scales
            self._keep(scales)
        return findings

    def _plateau(self, wall_ns: int) -> list[Judged]:
        candidates = self._losses.judged_for_plateau()
        nearest = min(candidates, key=_steps_since, default=None)
        values: list[tuple[int, int]] = []
        if nearest is not None and nearest.improvement is not None:
            values = nearest.improvement.judged if len(candidates) == 1 else nearest.improvement.judged[-1:]
        judged = [
            Judged(
                condition="plateau",
                value=steps_since,
                limit=self._limit("plateau"),
                time_ns=wall_ns,
                step=step,
                of=nearest.of,
                # One condition, whichever series it is judged by at the time.
                place="",
                subject=_name_of(nearest),
                detail=_best_of(nearest),
            )
            for step, steps_since in values
            if nearest is not None
        ]
        for watched in self._losses.watched():
            if watched.improvement is not None:
                watched.improvement.judged.clear()
        return judged

    def _overfit(self, fresh: Mapping[str, Sequence[tuple[int, float]]], wall_ns: int) -> list[Judged]:
        return [
            Judged(
                condition="overfit",
                value=gap,
                limit=self._limit("overfit"),
                time_ns=wall_ns,
                step=step,
                of=((METRIC, name),),
                subject=name.removeprefix("train."),
            )
            for name in chosen(self._losses.gaps, sorted(fresh))
            for step, gap in fresh[name]
        ]

    def _gradients(self, wall_ns: int) -> list[Judged]:
        judged = []
        for watched in self._losses.watched():
            gradient = watched.gradient
            if gradient is None:
                continue
            crossings, watched.crossings = watched.crossings, []
            values = [("gradient_exploding", step, excess) for step, excess in crossings[:1]]
            values += [
                (name, gradient.step, value)
                for name, value in (
                    ("gradient_exploding", gradient.excess),
                    ("gradient_vanishing", gradient.recent_max),
                )
                if value is not None
            ]
            judged += [
                Judged(
                    condition=name,
                    value=value,
                    limit=self._limit(name),
                    time_ns=wall_ns,
                    step=step,
                    of=((METRIC, watched.series.name),),
                    subject=watched.series.description,
                )
                for name, step, value in values
            ]
        return judged

    def _user_logs_norm(self) -> bool:
        return any(watched.gradient is not None for watched in self._losses.watched())

    def _vanished(self) -> bool:
        """Tell whether a norm that the user logs has vanished."""
        norms = [watched.gradient.recent_max for watched in self._losses.watched() if watched.gradient is not None]
        return any(norm is not None and norm < self._limit("gradient_vanishing") for norm in norms)

    def _pace(self, wall_ns: int) -> list[Judged]:
        judged = []
        where = self._elsewhere()
        if where and self._progress.began and (where != OUTSIDE or self._progress.by_loop):
            self._progress.alive(self._now_ns)
        usual_s = self._usual_s()
        if usual_s is not None and not self._ended:
            limit = self._thresholds.limit(CONDITIONS["stalled"], usual_s)
            judged.append(("stalled", self._progress.age_s(self._now_ns), limit))
        of_pace = [
            Judged(condition=name, value=value, limit=limit, time_ns=wall_ns, step=self._step())
            for name, value, limit in judged
        ]
        share = self._wait.share(self._now_ns)
        if share is not None:
            of_pace.append(self._data_wait(share, wall_ns))
        return of_pace

    def _data_wait(self, share: float, wall_ns: int) -> Judged:
        clock = "device" if self._wait.by_device else "host"
        return Judged(
            condition="data_wait",
            value=share,
            limit=self._limit("data_wait"),
            time_ns=wall_ns,
            step=self._step(),
            of=self._wait.attributes,
            # One condition, by whichever clock.
            place="",
            subject=f"by the {clock}'s clock",
            detail=((CLOCK, clock),),
        )

    def _of_machine(self) -> list[Judged]:
        readings = list(self._readings)
        self._readings.clear()
        return [
            Judged(
                condition=reading.condition,
                value=reading.value,
                limit=self._limit(reading.condition),
                time_ns=reading.time_ns,
                step=self._step(),
                of=reading.card,
                subject=f"GPU {_index_of(reading)}".strip() if reading.card else "",
                detail=reading.detail,
            )
            for reading in readings
        ]

    # What is given to others -----------------------------------------------------------------------------------------

    def heartbeat(self, *, ended: bool) -> list[Sample]:
        """Return present values and thresholds; a run that has ended has no present values."""
        usual_s = self._usual_s()
        limits = self._thresholds.limits(usual_s)
        if not self._main:
            limits = {name: limits[name] for name in OF_STEP_TIMES}
        samples = [Sample("dl.alert.threshold", limit, ((ALERT, name),)) for name, limit in limits.items()]
        if ended:
            return samples
        for watched in self._losses.watched():
            samples += _values_of(watched)
        samples += self._inside.values(user_logs_norm=self._user_logs_norm())
        gaps = self._losses.gaps
        samples += [
            Sample("dl.overfit.gap", gap, ((METRIC, name),))
            for name in chosen(gaps, list(gaps))
            if (gap := gaps[name].gap) is not None
        ]
        if usual_s is not None:
            samples.append(Sample("dl.step.age", self._progress.age_s(self._now_ns)))
        share = self._wait.share(self._now_ns)
        if share is not None:
            samples.append(Sample("dl.data.wait.share", share, self._wait.attributes))
        samples += [Sample("dl.gpu.busy.share", mean, card) for card, mean in self._machine.busy_shares()]
        if self._machine.memory_share is not None:
            samples.append(Sample("dl.memory.share", self._machine.memory_share))
        if self._machine.time_to_full_s is not None:
            samples.append(Sample("dl.memory.time_to_full", self._machine.time_to_full_s))
        return samples

    @property
    def pace(self) -> Pace:
        """How training went on when `settle` was last called."""
        progress = self._progress
        return Pace(self._usual_s(), progress.age_s(self._now_ns), progress.began, self._elsewhere(), self._step())

    def _limit(self, name: str) -> float:
        return self._limits[name]

    def _usual_s(self) -> float | None:
        usual = self._digest.usual
        return self._progress.usual_s(usual.get("train") or next(iter(usual.values()), None))

    def _step(self) -> int | None:
        last = self._digest.last_step
        return self._losses.run_step if last is None or last.split != "train" else last.step


def _steps_since(watched: Watched) -> int:
    return 0 if watched.improvement is None else watched.improvement.steps_since


def _values_of(watched: Watched) -> list[Sample]:
    samples = []
    if watched.improvement is not None and watched.improvement.began:
        samples.append(Sample("dl.steps_since_improvement", watched.improvement.steps_since, watched.of))
    gradient = watched.gradient
    if gradient is not None:
        values = ("usual", gradient.usual), ("excess", gradient.excess), ("recent_max", gradient.recent_max)
        of = ((METRIC, watched.series.name),)
        samples += [Sample(f"dl.grad.{what}", value, of) for what, value in values if value is not None]
    return samples


def _best_of(watched: Watched) -> SeriesAttributes:
    best = None if watched.improvement is None else watched.improvement.best
    return () if best is None else (("best", best),)


def _name_of(watched: Watched) -> str:
    split = watched.series.split
    return f"{split} {watched.series.key}" if split else watched.series.key


def _index_of(reading: Reading) -> str:
    return str(dict(reading.card).get("index", ""))
