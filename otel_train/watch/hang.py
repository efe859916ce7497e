"""Sees that a rank makes no step though one is due, and writes down, once, where all its threads stand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from otel_train.clock import NS_PER_S
from otel_train.record.entries import AttributeValue
from otel_train.runlog.watcher import Finding
from otel_train.semconv import CLEARED, CODE_STACK, METRIC, STEP
from otel_train.watch.health import Pace
from otel_train.watch.thresholds import Thresholds

EVENT: Final = "health.hung"
# Before there is a usual step time: a first step compiles, fills caches and waits for the slowest to load its data.
FIRST_STEP_FACTOR: Final = 20


class HangWatch:
    """For the writer's thread. What it asks for is asked at the onset alone.

    `stacks` returns those of all threads; `dumped` what was dumped while the interpreter stood still, "" where it did
    not; `waits` whether this rank waits for others; `recorder` where PyTorch's flight recorder is, "" for nowhere.
    """

    def __init__(
        self,
        thresholds: Thresholds,
        *,
        stacks: Callable[[], str],
        dumped: Callable[[], str] = lambda: "",
        waits: Callable[[], bool] = lambda: False,
        recorder: Callable[[], str] = lambda: "",
    ) -> None:
        self._factor = thresholds["hung_factor"]
        self._least_s = thresholds["hung_min_s"]
        self._stacks = stacks
        self._dumped = dumped
        self._waits = waits
        self._recorder = recorder
        self._due_since_ns: int | None = None
        # Since when, by the wall clock, no step has ended; 0 while the rank goes on. And whether it waits for others.
        self.since_ns = 0
        self.waiting = False

    def settle(self, pace: Pace, wall_ns: int, mono_ns: int, *, ended: bool) -> list[Finding]:
        """Return the event of a hang that began or is over."""
        if ended or not self._factor or not self._least_s:
            return []
        age_s, limit_s = self._late(pace, mono_ns)
        dumped = self._dumped()
        if self.since_ns:
            self.waiting = self._waits()
            if age_s > limit_s:
                return []
            since_ns, self.since_ns, self.waiting = self.since_ns, 0, False
            return [self._over(pace, wall_ns, since_ns)]
        if dumped:
            self.since_ns = wall_ns - round(age_s * NS_PER_S)
            return [self._finding(pace, wall_ns, age_s, limit_s, dumped, held=True)]
        if age_s <= limit_s:
            return []
        self.since_ns = wall_ns - round(age_s * NS_PER_S)
        self.waiting = self._waits()
        return [self._finding(pace, wall_ns, age_s, limit_s, self._stacks(), held=False)]

    def _late(self, pace: Pace, mono_ns: int) -> tuple[float, float]:
        """Return for how long a step has been due, and how long it may be."""
        if pace.usual_s is not None:
            self._due_since_ns = None
            return pace.age_s, max(self._factor * pace.usual_s, self._least_s)
        if pace.elsewhere:
            self._due_since_ns = None
            return 0.0, self._least_s
        if self._due_since_ns is None or (pace.began and pace.age_s * NS_PER_S < mono_ns - self._due_since_ns):
            self._due_since_ns = mono_ns - (round(pace.age_s * NS_PER_S) if pace.began else 0)
        return (mono_ns - self._due_since_ns) / NS_PER_S, FIRST_STEP_FACTOR * self._least_s

    def _finding(self, pace: Pace, wall_ns: int, age_s: float, limit_s: float, stacks: str, *, held: bool) -> Finding:
        attributes: dict[str, AttributeValue] = {
            METRIC: "dl.step.age",
            "value": age_s,
            "threshold": limit_s,
            "waits_for_others": self.waiting,
            CODE_STACK: stacks,
        }
        if pace.step is not None:
            attributes[STEP] = pace.step
        recorder = self._recorder()
        if recorder:
            attributes["flight_recorder"] = recorder
        if held:
            what = "the interpreter stood still: the process was stopped, or a thread held its lock all the time"
        elif self.waiting:
            what = "it waits for other ranks in a collective"
        else:
            what = "the stacks of its threads say where it stands"
        at = "" if pace.step is None else f" after step {pace.step}"
        return Finding(
            time_ns=wall_ns,
            event=EVENT,
            severity="ERROR",
            body=f"no step for {age_s:.3g} s{at} (threshold {limit_s:.3g} s); {what}",
            attributes=attributes,
        )

    def _over(self, pace: Pace, wall_ns: int, since_ns: int) -> Finding:
        stood_s = max(0.0, (wall_ns - since_ns) / NS_PER_S - pace.age_s)
        attributes: dict[str, AttributeValue] = {METRIC: "dl.step.age", "value": pace.age_s, CLEARED: True}
        if pace.step is not None:
            attributes[STEP] = pace.step
        return Finding(
            time_ns=wall_ns,
            event=EVENT,
            severity="INFO",
            body=f"steps go on after {stood_s:.3g} s; is over",
            attributes=attributes,
        )
