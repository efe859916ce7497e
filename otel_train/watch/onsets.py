"""Turns values and thresholds into events: one when a condition begins, one when it is over, none in between."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import Final

from otel_train.clock import NS_PER_S
from otel_train.record.entries import AttributeValue, Sample, SeriesAttributes
from otel_train.record.summary import plain
from otel_train.runlog.watcher import Finding
from otel_train.semconv import CLEARED, METRIC, STEP
from otel_train.watch.conditions import CONDITIONS, Condition

# A value must come back by this share of its threshold: one that wavers around it is one condition, not many.
BACK_BY: Final = 0.05
APART_NS: Final = 2_000_000
_EVENT_SEVERITIES: Final = {"critical": "ERROR", "warning": "WARN", "info": "INFO"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """The present value of one condition of one thing, beside its limit."""

    condition: str
    value: float
    limit: float
    time_ns: int
    step: int | None = None
    # What it is of: the series' or card's attributes, and a word for a person.
    of: SeriesAttributes = ()
    # What it is known by among those of the same condition; `of` unless given.
    place: Hashable = None
    subject: str = ""
    detail: SeriesAttributes = ()


class Onsets:
    """Which conditions hold at present."""

    def __init__(self) -> None:
        self._active: set[Hashable] = set()
        self._since_ns: dict[Hashable, int] = {}
        self._told_ns: dict[Hashable, int] = {}

    def judge(self, judged: Judged) -> list[Finding]:
        """Return the event of a condition that began or ended with this value."""
        condition = CONDITIONS[judged.condition]
        place = (judged.condition, judged.of if judged.place is None else judged.place)
        if place in self._active:
            if _is_over(condition, judged.value, judged.limit):
                self._active.discard(place)
                return [_finding(condition, self._apart(judged, place), cleared=True)]
            return []
        if not _holds(condition, judged.value, judged.limit):
            self._since_ns.pop(place, None)
            return []
        since_ns = self._since_ns.setdefault(place, judged.time_ns)
        if judged.time_ns - since_ns < condition.for_s * NS_PER_S:
            return []
        del self._since_ns[place]
        self._active.add(place)
        return [_finding(condition, self._apart(judged, place), cleared=False)]

    def _apart(self, judged: Judged, place: Hashable) -> Judged:
        """Keep what is told of one thing apart in time: of one millisecond a store keeps only the last value."""
        time_ns = max(judged.time_ns, self._told_ns.get(place, 0) + APART_NS)
        self._told_ns[place] = time_ns
        return judged if time_ns == judged.time_ns else replace(judged, time_ns=time_ns)


def _holds(condition: Condition, value: float, limit: float) -> bool:
    if condition.comparison == "<":
        return value < limit
    # An infinite limit is one that is switched off, also for an infinite value.
    return isfinite(limit) and (value >= limit if condition.comparison == ">=" else value > limit)


def _is_over(condition: Condition, value: float, limit: float) -> bool:
    if condition.comparison == "<":
        return value >= limit * (1 + BACK_BY)
    if condition.comparison == ">=":
        return value < limit
    return value <= limit * (1 - BACK_BY)


def _finding(condition: Condition, judged: Judged, *, cleared: bool) -> Finding:
    attributes: dict[str, AttributeValue] = {METRIC: condition.metric}
    attributes |= dict(judged.of) | dict(judged.detail)
    attributes |= {"value": plain(judged.value), "threshold": plain(judged.limit)}
    if judged.step is not None:
        attributes[STEP] = judged.step
    if cleared:
        attributes[CLEARED] = True
    subject = f" ({judged.subject})" if judged.subject else ""
    at = "" if judged.step is None else f" at step {judged.step}"
    state = "is over" if cleared else f"threshold {judged.limit:.4g}"
    return Finding(
        time_ns=judged.time_ns,
        event=condition.event,
        severity="INFO" if cleared else _EVENT_SEVERITIES[condition.severity],
        body=f"{condition.title}{subject}: {judged.value:.4g} {condition.unit}{at}; {state}",
        attributes=attributes,
        samples=value_samples(judged),
    )


def value_samples(judged: Judged) -> Sequence[Sample]:
    """Return the value as a reading, where it is one that is made here: a rule must not wait for the heartbeat."""
    name = CONDITIONS[judged.condition].metric
    return [Sample(name, judged.value, judged.of)] if name in OWN_VALUES else []


# Metrics that are made by watching; the others are those of the machine.
OWN_VALUES: Final = frozenset(
    {
        "dl.steps_since_improvement",
        "dl.overfit.gap",
        "dl.grad.excess",
        "dl.grad.recent_max",
        "dl.step.age",
        "dl.data.wait.share",
        "dl.gpu.busy.share",
        "dl.memory.share",
        "dl.memory.time_to_full",
        "dl.activation.dead.lasting",
        "dl.amp.skipped.share",
        "dl.samples.bad",
    }
)
