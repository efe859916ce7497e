"""Books every nanosecond of an attempt under what it went to: training, waiting for data, evaluation, and so on."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from otel_train.watch.elsewhere import CHECKPOINT, EVALUATION, OTHER, Aside

PRODUCTIVE: Final = "productive"
DATA: Final = "data"
START_UP: Final = "start-up"
IDLE: Final = "idle"
LOST: Final = "lost"
STATES: Final = (PRODUCTIVE, DATA, EVALUATION, CHECKPOINT, START_UP, IDLE)

# Steps whose wait a device has not told yet; of more the host's word is taken.
MOST_HELD: Final = 1_000

# Start, end, the beginning of what it belongs to, state.
Segment = tuple[int, int, int, str]


class TimeAccount:
    """The time of one attempt from its beginning on, by the host's monotonic clock in nanoseconds.

    Of a step of training the wait for its batch is `data` and the rest `productive`, save what an aside took: an
    evaluation, a checkpoint, a stage. Where several things cover a moment, the one that began last has it: what is
    nested, or what went on while something else still lasted in the background. What nothing covers is `start-up`
    before the first step or evaluation, else `idle`. Each moment is booked once, in order, and stays as it is booked:
    the states add up to `booked_ns - began_ns` and never go down.

    Where a device marks its own time, the host may wait for it while it asks for the next batch. What it waited then is
    held back until the device has told its own wait for the batch: that is `data`, and the rest was work.
    """

    def __init__(self, began_ns: int) -> None:
        self.began_ns = began_ns
        self.booked_ns = began_ns
        self._totals_ns = dict.fromkeys(STATES, 0)
        self._productive_ns = 0
        self._data_ns = 0
        self._asides: list[Aside] = []
        self._begun = False
        # Waits of the host that the device has yet to explain, oldest first; those of a step under way; and what the
        # device has told of steps that have not ended.
        self._held: deque[tuple[int, int]] = deque()
        self._held_ns = 0
        self._under_way_ns = 0
        self._told: dict[int, int] = {}

    @property
    def training_ns(self) -> int:
        """Time within steps of training, their wait for data included."""
        return self._productive_ns + self._data_ns + self._held_ns

    @property
    def data_ns(self) -> int:
        """Time that was waiting for data, by what is known so far."""
        return self._data_ns

    @property
    def totals_ns(self) -> dict[str, int]:
        """Nanoseconds by state."""
        return {**self._totals_ns, PRODUCTIVE: self._productive_ns, DATA: self._data_ns}

    def take_aside(self, aside: Aside) -> None:
        """Take something that is no training; its end may be set later. To be called before steps that end later."""
        self._asides.append(aside)

    def take_step(self, fetch_ns: int, ready_ns: int, end_ns: int, still_open: Sequence[Aside] = ()) -> None:
        """Book a step of training, and what lay before it."""
        if self._asides or still_open:
            step = [(fetch_ns, ready_ns, fetch_ns, DATA), (ready_ns, end_ns, fetch_ns, PRODUCTIVE)]
            self._sweep(end_ns, step, still_open)
            return
        # The same by hand: this is once a step.
        booked_ns = self.booked_ns
        if end_ns <= booked_ns:
            return
        if fetch_ns > booked_ns:
            self._add(OTHER, fetch_ns - booked_ns)
            booked_ns = fetch_ns
        if ready_ns > booked_ns:
            self._data_ns += ready_ns - booked_ns
            booked_ns = ready_ns
        self._productive_ns += end_ns - booked_ns
        self.booked_ns = end_ns
        self._begun = True

    def hold_back(self, waited_ns: int, step: int | None) -> None:
        """Take what was just booked as data back, until the device tells of this step; None for one under way."""
        self._data_ns -= waited_ns
        self._held_ns += waited_ns
        self._under_way_ns += waited_ns
        if step is None:
            return
        self._held.append((step, self._under_way_ns))
        self._under_way_ns = 0
        if step in self._told:
            self.take_device_wait(step, self._told.pop(step))
        elif len(self._held) > MOST_HELD:
            self._decide(self._held.popleft()[1], None)

    def take_device_wait(self, step: int, wait_ns: int) -> None:
        """Take how long a device waited for the batch of a step; of steps before it nothing more will be told."""
        if not any(held == step for held, _ in self._held):
            self._told[step] = wait_ns
            if len(self._told) > MOST_HELD:
                del self._told[next(iter(self._told))]
            return
        while self._held:
            held, waited_ns = self._held.popleft()
            self._decide(waited_ns, wait_ns if held == step else None)
            if held == step:
                return

    def _decide(self, waited_ns: int, device_ns: int | None) -> None:
        data_ns = waited_ns if device_ns is None else min(waited_ns, device_ns)
        self._data_ns += data_ns
        self._productive_ns += waited_ns - data_ns
        self._held_ns -= waited_ns

    def end(self) -> None:
        """Book what is still held back as the host has seen it: the device tells nothing more."""
        self._decide(self._held_ns, None)
        self._held.clear()
        self._under_way_ns = 0

    def take_rest(self, until_ns: int, still_open: Sequence[Aside] = ()) -> None:
        """Book the time up to a moment, within which no step of training was made that is not booked."""
        self._sweep(until_ns, [], still_open)

    def _sweep(self, until_ns: int, segments: list[Segment], still_open: Sequence[Aside]) -> None:
        from_ns = self.booked_ns
        if until_ns <= from_ns:
            return
        segments += [
            (aside.start_ns, until_ns if aside.end_ns is None else aside.end_ns, aside.start_ns, aside.state)
            for aside in (*self._asides, *still_open)
        ]
        edges = {from_ns, until_ns}
        edges.update(edge for segment in segments for edge in segment[:2] if from_ns < edge < until_ns)
        for low_ns, high_ns in pairwise(sorted(edges)):
            covering = [segment for segment in segments if segment[0] <= low_ns and high_ns <= segment[1]]
            self._add(max(covering, key=_nested)[3] if covering else OTHER, high_ns - low_ns)
        self.booked_ns = until_ns
        self._asides = [aside for aside in self._asides if aside.end_ns is None or aside.end_ns > until_ns]

    def _add(self, state: str, spent_ns: int) -> None:
        if state == PRODUCTIVE:
            self._productive_ns += spent_ns
        elif state == DATA:
            self._data_ns += spent_ns
        elif state == OTHER:
            self._totals_ns[IDLE if self._begun else START_UP] += spent_ns
            return
        else:
            self._totals_ns[state] += spent_ns
        self._begun = self._begun or state != CHECKPOINT


def _nested(segment: Segment) -> tuple[int, int]:
    """Order what covers a moment: what began later is within the others; of two that began together the shorter."""
    return segment[2], segment[0] - segment[1]
