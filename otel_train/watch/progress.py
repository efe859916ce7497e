"""Knows when training last went on, how long a step usually takes, and what share of it waited for data."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from otel_train.clock import NS_PER_S
from otel_train.record.columns import Taken
from otel_train.record.digest import StepFacts, UsualStep
from otel_train.record.entries import SeriesAttributes
from otel_train.semconv import CLOCK

INTERVALS_KEPT: Final = 200
PART_OF_LONGEST: Final = 5
# Of the steps that were logged since the last look: enough for a median.
LOGGED_STEPS: Final = 20
SHARE_WINDOW_NS: Final = 300 * NS_PER_S
SHARE_PART_NS: Final = 10 * NS_PER_S
FEWEST_STEPS: Final = 20
LEAST_TIME_NS: Final = 60 * NS_PER_S


class Progress:
    """The time of the last step, by `run.steps`, or by the calls of `log` where there is no such loop.

    Times are monotonic nanoseconds. Nothing is late before the second step.
    """

    def __init__(self) -> None:
        self.by_loop = False
        # When training last went on, or was last known to do something else.
        self._last_ns: int | None = None
        self._steps = 0
        self._logged_step: int | None = None
        self._logged_ns = 0
        self._intervals_ns: deque[int] = deque(maxlen=INTERVALS_KEPT)

    @property
    def began(self) -> bool:
        """Whether a step was seen."""
        return self._last_ns is not None

    def take_steps(self, steps: Sequence[StepFacts]) -> None:
        """Take the steps of loops, of whatever split: each is a sign of life."""
        self.by_loop = True
        self._steps += len(steps)
        self._last_ns = max(self._last_ns or 0, steps[-1].end_ns)

    def take_points(self, taken: Sequence[Taken]) -> None:
        """Take the points of a loop by hand: a step lasts from one new step number to the next that is logged.

        `alive` is to be called as well: when they were logged is known by the wall clock alone, which may be set.
        """
        most = max(taken, key=lambda one: len(one.steps))
        for step, time_ns in zip(most.steps[-LOGGED_STEPS:], most.times_ns[-LOGGED_STEPS:], strict=True):
            if step != self._logged_step:
                if self._logged_step is not None:
                    self._intervals_ns.append(max(0, time_ns - self._logged_ns))
                self._logged_step, self._logged_ns = step, time_ns
                self._steps += 1

    def alive(self, now_ns: int) -> None:
        """Note that training went on, or that the run is busy with something that is no step."""
        self._last_ns = max(self._last_ns or 0, now_ns)

    def usual_s(self, loop: UsualStep | None) -> float | None:
        """Return the usual step time, None before the second step."""
        if self._steps < 2:
            return None
        if self.by_loop:
            return loop.median_ns / NS_PER_S if loop is not None and loop.median_ns else None
        if not self._intervals_ns:
            return None
        # Calls of `log` come as the user likes: many for one evaluation, then none for an epoch. Twice the longest
        # pause of late is no stall yet.
        return max(median(self._intervals_ns), max(self._intervals_ns) / PART_OF_LONGEST) / NS_PER_S

    def age_s(self, now_ns: int) -> float:
        """Return the seconds since the last step."""
        return 0.0 if self._last_ns is None else max(0, now_ns - self._last_ns) / NS_PER_S


@dataclass(slots=True)
class _Part:
    """Steps that ended within some seconds."""

    began_ns: int
    steps: int = 0
    waited_ns: int = 0
    took_ns: int = 0
    # Of the steps around whose fetch the device has marked its time.
    device_steps: int = 0
    device_waited_s: float = 0.0


class DataWait:
    """The share of the time of the last five minutes' training steps that was waiting for a batch.

    The host asks for a batch while a device still works on the one before. Where the device has marked its own time
    around the fetch, what it had nothing to do is the wait, and what the host waited is not.
    """

    def __init__(self) -> None:
        self._parts: deque[_Part] = deque()
        self._first = True
        self._first_of_device = True

    def take_device(self, waits_s: Sequence[float]) -> None:
        """Take waits of training steps by the device's clock, which come some steps later; not the very first."""
        if self._first_of_device and waits_s:
            self._first_of_device = False
            waits_s = waits_s[1:]
        if waits_s and self._parts:
            self._parts[-1].device_steps += len(waits_s)
            self._parts[-1].device_waited_s += sum(waits_s)

    def take(self, steps: Sequence[StepFacts]) -> None:
        """Take steps of training. The very first is left out: its wait is the start of the loader."""
        if self._first:
            self._first = False
            steps = steps[1:]
        if not steps:
            return
        end_ns = steps[-1].end_ns
        if not self._parts or end_ns - self._parts[-1].began_ns >= SHARE_PART_NS:
            self._parts.append(_Part(end_ns))
        part = self._parts[-1]
        part.steps += len(steps)
        waited_ns = took_ns = 0
        for step in steps:
            fetch_ns = step.fetch_ns
            waited_ns += step.ready_ns - fetch_ns
            took_ns += step.end_ns - fetch_ns
        part.waited_ns += waited_ns
        part.took_ns += took_ns

    def share(self, now_ns: int) -> float | None:
        """Return it, 0 to 1; None before twenty steps and a minute of them."""
        while self._parts and self._parts[0].began_ns < now_ns - SHARE_WINDOW_NS:
            self._parts.popleft()
        steps = sum([part.steps for part in self._parts])
        took_ns = sum([part.took_ns for part in self._parts])
        if steps < FEWEST_STEPS or took_ns < LEAST_TIME_NS:
            return None
        device_steps = sum([part.device_steps for part in self._parts])
        if device_steps:
            # Some steps have no marks, or not yet: the mean of those that have, by the mean of all steps.
            mean_s = sum([part.device_waited_s for part in self._parts]) / device_steps
            return mean_s / (took_ns / NS_PER_S / steps)
        return sum([part.waited_ns for part in self._parts]) / took_ns

    @property
    def by_device(self) -> bool:
        """Whether the share is one of the device's clock; else it is the host's."""
        return any(part.device_steps for part in self._parts)

    @property
    def attributes(self) -> SeriesAttributes:
        """What the share carries as a series: its clock where that is the device's."""
        return ((CLOCK, "device"),) if self.by_device else ()
