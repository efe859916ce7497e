"""Says how a run that is followed stands now: how far it is, its values, its machine, what was wrong; as plain data."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from otel_train.clock import NS_PER_S, wall_ns
from otel_train.record.names import PREFIX
from otel_train.semconv import CLEARED, DEFAULT_AXIS
from otel_train.view import overview
from otel_train.view.follow_machine import RanksLook, gpus, host
from otel_train.view.follow_picture import Metric, Picture, Told
from otel_train.view.log_list import LogRow, body_text, cut, epoch_of, level_name, step_of
from otel_train.view.progress import LEFT, SHARE, progress
from otel_train.view.run_data import RunData
from otel_train.view.series import Series
from otel_train.view.shapes import Readings, Shapes

if TYPE_CHECKING:
    from otel_train.view.live import LiveRun

# Times of steps and waits are of so many last steps.
WINDOW_STEPS: Final = 200
MOST_TOLD: Final = 50
MOST_CHARACTERS: Final = 2_000
_SPLITS: Final = {"train": 0, "val": 1, "test": 2}


class Following:
    """One run, looked at again and again. Each look reads only what is new; RunFolderError where it is no run."""

    def __init__(self, live: LiveRun, now_ns: Callable[[], int] = wall_ns) -> None:
        self._live = live
        self._now_ns = now_ns
        self._shapes = Shapes()
        self._readings = Readings()
        self._run: RunData | None = None
        self._warnings: deque[Told] = deque(maxlen=MOST_TOLD)
        self._new: list[Told] = []
        self._seen_logs = 0
        self._told_ns = 0
        self._health: tuple[int, int, list[Told]] = (-1, 0, [])
        self._ranks = RanksLook()

    def look(self) -> Picture | None:
        """Return the run as it is now; None once its folder is deleted."""
        change = self._live.refresh(payload=False)
        if change.kind == "gone":
            return None
        run = self._live.data
        again = run is not self._run
        self._run = run
        self._readings.look(run.store)
        self._take_warnings(run, again=again)
        return self._picture(run)

    # What is told ----------------------------------------------------------------------------------------------------

    def _take_warnings(self, run: RunData, *, again: bool) -> None:
        rows, self._seen_logs = run.logs.severe_since(0 if again else self._seen_logs)
        told = [_told(row) for row in rows]
        # Where all was read anew, what was told before comes once more.
        self._new = [one for one in told if one.time_ns > self._told_ns] if again else told
        self._warnings.extend(self._new)
        self._told_ns = max([self._told_ns, *(one.time_ns for one in self._new)])

    def _holding(self, run: RunData, attempt: int) -> list[Told]:
        """Return the conditions of the newest attempt that are not over."""
        if self._health[:2] != (len(run.health), attempt):
            found = [
                Told(0, one["severity"], one["text"], _float(one["step"]), None, one["rank"])
                for one in overview.health(run)
                if one["over"] is None and one["attempt"] == attempt
            ]
            self._health = len(run.health), attempt, found
        return self._health[2] if run.state == "running" else []

    # The picture -----------------------------------------------------------------------------------------------------

    def _picture(self, run: RunData) -> Picture:
        attempt = max(run.last_of_attempt, default=max(1, len(run.attempts)))
        readings = self._readings
        now_ns = self._now_ns()
        metrics = self._metrics(run)
        step, epoch = _places(run)
        share, left_s = self._progress(attempt, now_ns, step)
        step_s, wait_share = self._pace(attempt)
        return Picture(
            now_ns=now_ns,
            name=run.name,
            run_id=run.run_id,
            project=str(run.info.get("project") or ""),
            path=str(run.path),
            state=run.state,
            reason=run.reason,
            attempt=attempt,
            elapsed_s=_elapsed_s(run, now_ns),
            share=share,
            left_s=left_s if run.state == "running" else None,
            step=step,
            epoch=epoch,
            metrics=metrics,
            step_s=step_s,
            wait_share=wait_share,
            rates=self._rates(attempt),
            gpus=gpus(readings, attempt),
            host=host(readings, attempt),
            holding=self._holding(run, attempt),
            warnings=list(self._warnings),
            new_warnings=self._new,
            ranks=self._ranks.look(run, readings, attempt, now_ns),
            damaged=len(run.damage),
            points=run.store.points,
        )

    def _metrics(self, run: RunData) -> list[Metric]:
        found = run.metrics()
        shapes = self._shapes.of(item.series for item, _ in found)
        first: dict[str, int] = {}
        for place, (_, summary) in enumerate(found):
            first.setdefault(summary.key, place)
        rows = []
        for (item, summary), shape in zip(found, shapes, strict=True):
            if summary.last is None:
                continue
            rank = item.series.rank
            name = f"{summary.split}/{summary.key}" if summary.split else summary.key
            metric = Metric(
                name=f"{name} (rank {rank})" if rank else name,
                last=summary.last.value,
                last_step=summary.last.step,
                best=None if summary.best is None else summary.best.value,
                best_step=None if summary.best is None else summary.best.step,
                nonfinite=summary.bad.total,
                has_goal=bool(summary.goal),
                columns=shape.columns,
            )
            # Those with a direction first, the splits of one metric together, other ranks than the first last.
            rows.append(((rank, not summary.goal, first[summary.key], _SPLITS.get(summary.split, 3)), metric))
        rows.sort(key=lambda row: row[0])
        return [metric for _, metric in rows]

    def _progress(self, attempt: int, now_ns: int, step: float | None) -> tuple[float | None, float | None]:
        """Return the share that is done and the time left: as they were written last, and with what went on since."""
        share, left = self._first(SHARE, attempt), self._first(LEFT, attempt)
        if share is None and left is None:
            return None, None
        return progress(share, left, self._steps(attempt), first=attempt == 1, step=step, now_ns=now_ns)

    def _steps(self, attempt: int) -> Series | None:
        """Return the ends of training's steps, else a metric of training; they have their steps beside them."""
        names = ("dl.step.time", *(name for name in self._readings.names() if name.startswith(PREFIX)))
        found = [series for series in self._readings.named(*names, attempt=attempt) if series.split in ("train", "")]
        return next((series for series in found if series.name == "dl.step.time"), found[0] if found else None)

    def _pace(self, attempt: int) -> tuple[float | None, float | None]:
        """Return the median duration of the last steps of training, and what share of them was waiting for data."""
        found = self._readings.named("dl.step.time", attempt=attempt)
        times = next((series for series in found if series.split == "train"), found[0] if found else None)
        if times is None:
            return None, None
        waits = next(
            (
                series
                for series in self._readings.named("dl.data.wait.time", attempt=attempt)
                # By the host's clock: those of a device's carry its name.
                if series.rank == times.rank and series.attributes == times.attributes
            ),
            None,
        )
        last = sorted(value for value in times.values[-WINDOW_STEPS:] if math.isfinite(value))
        if not last:
            return None, None
        waited = sum(waits.values[-WINDOW_STEPS:]) if waits is not None else None
        total = sum(last)
        return last[len(last) // 2], None if waited is None or not total else waited / total

    def _rates(self, attempt: int) -> list[tuple[str, float]]:
        rates = []
        for what in ("samples", "tokens"):
            value = self._last(f"dl.job.{what}_per_second", attempt)
            if value is None:
                value = self._last(f"dl.rank.{what}_per_second", attempt)
            if value is not None:
                rates.append((f"{what}/s", value))
        return rates

    def _first(self, name: str, attempt: int) -> Series | None:
        found = self._readings.named(name, attempt=attempt)
        return found[0] if found else None

    def _last(self, name: str, attempt: int) -> float | None:
        series = self._first(name, attempt)
        return None if series is None else series.values[-1]


def _places(run: RunData) -> tuple[float | None, float | None]:
    """Return step and epoch of the newest points of training, else of any metric."""
    newest: dict[str, tuple[tuple[bool, int], float]] = {}
    for item in run.series():
        series = item.series
        if series.axis != DEFAULT_AXIS or not series.name.startswith((PREFIX, "dl.step.time")):
            continue
        known = run.numbers(series)
        for which, places, has in (("step", series.steps, known.has_steps), ("epoch", series.epochs, known.has_epochs)):
            if not has:
                # No need to pass all of its points to find none.
                continue
            index = next(index for index in range(len(places) - 1, -1, -1) if places[index] == places[index])
            found = (series.split in ("train", ""), series.times_ns[index]), places[index]
            newest[which] = max(found, newest.get(which, found))
    step, epoch = newest.get("step"), newest.get("epoch")
    return None if step is None else step[1], None if epoch is None else epoch[1]


def _told(row: LogRow) -> Told:
    entry = row.entry
    attributes = entry.attributes
    text = cut(body_text(entry.body) or entry.event_name, MOST_CHARACTERS)
    return Told(
        entry.time_ns or entry.observed_time_ns,
        level_name(entry),
        text,
        _float(step_of(entry)),
        _float(epoch_of(entry)),
        row.rank,
        bool(attributes.get(CLEARED)),
    )


def _float(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) else None


def _elapsed_s(run: RunData, now_ns: int) -> float:
    if run.state == "running" and run.started_ns:
        return max(0.0, (now_ns - run.started_ns) / NS_PER_S)
    return overview.elapsed_s(run)
