"""Turns a drained batch of entries into columns of points and steps with their phases, off the training thread."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import isfinite
from statistics import median
from typing import Any, Final

from otel_train.record.amounts import Amount, Amounts, BatchSize, Counted
from otel_train.record.batches import (
    POINTS_OF_A_BATCH,
    BatchColumns,
    BatchFacts,
    BatchPlaces,
    BatchSource,
    batch_columns,
)
from otel_train.record.buffer import SLOTS
from otel_train.record.columns import POINTS_PER_LINE, Blocks, PointTable, Rows, own_column, sibling_columns
from otel_train.record.deferred import DeferredValues
from otel_train.record.entries import SeriesAttributes
from otel_train.record.names import NameTable
from otel_train.record.phase_places import NS, PhasePlaces, time_within
from otel_train.record.phases import Phase
from otel_train.record.points import PointGroup
from otel_train.record.rank_waits import RankWaits
from otel_train.record.readings import Arrived, Reading, ReadingPlaces
from otel_train.record.steps import DeviceWait, TimedLoop
from otel_train.record.summary import Summaries
from otel_train.semconv import CLOCK, PHASE, SPLIT

WINDOW_STEPS: Final = 200
FEWEST_STEPS: Final = 20
RENEW_EVERY: Final = 32
MOST_BAD_STEPS: Final = 256
MOST_DEVICE_WAITS: Final = 10_000
# Two threads may leave their points in another order than they looked at the clock, or within one of its ticks.
TOGETHER_NS: Final = 1_000_000


@dataclass(slots=True)
class StepFacts:
    """One step: monotonic times in nanoseconds, phases as (name, start, end), and why it becomes a span ("" if not)."""

    split: str
    step: int
    epoch: int | None
    fetch_ns: int
    ready_ns: int
    end_ns: int
    phases: Sequence[tuple[str, int, int]]
    remarkable: str
    # Samples and tokens of its micro-batch where they are known, and whether an optimizer step ended with it.
    samples: int | None = None
    tokens: int | None = None
    ends_update: bool = True
    owns_step: bool = True
    # The batches of watched loaders that were fetched for it.
    batches: Sequence[BatchFacts] = ()
    # Whether the device's own wait for its batch is told, sooner or later.
    has_device_clock: bool = False

    @property
    def duration_s(self) -> float:
        """Time from asking for the batch to the end of the step."""
        return (self.end_ns - self.fetch_ns) / NS


@dataclass(slots=True)
class Digested(Blocks):
    """What came of a batch."""

    steps: list[StepFacts] = field(default_factory=list)
    # What was counted in a loop by hand; and phases that are no training: what they are, start and end.
    amounts: list[Amount] = field(default_factory=list)
    asides: list[tuple[str, int, int]] = field(default_factory=list)
    # Waits for data by a device's clock: split, step, seconds.
    device_waits: list[tuple[str, int, float]] = field(default_factory=list)
    # Values of our own that were made at a step.
    read: list[Arrived] = field(default_factory=list)


@dataclass(slots=True)
class _StepRows(Rows):
    """Rows are (duration, wait); phases by name are (times, values)."""

    phases: dict[str, tuple[list[int], list[float]]] = field(default_factory=dict)
    batches: BatchColumns = field(default_factory=dict)
    # In a job of several ranks (times, values) of this one's own work.
    busy: tuple[list[int], list[float]] = field(default_factory=lambda: ([], []))


class UsualStep:
    """The median and the median absolute deviation of the last steps of one split."""

    def __init__(self) -> None:
        self._durations_ns: deque[int] = deque(maxlen=WINDOW_STEPS)
        self._until_renewal = FEWEST_STEPS
        self.median_ns = 0
        self.limit_ns = 0

    def is_slow(self, duration_ns: int) -> bool:
        """Tell whether a step is slower than median + 3 MAD of those before it; never for the first 20."""
        slow = bool(self.limit_ns) and duration_ns > self.limit_ns
        self._durations_ns.append(duration_ns)
        self._until_renewal -= 1
        if not self.limit_ns and len(self._durations_ns) >= 2:
            # Few steps say how long one takes about; what is slow they do not say yet.
            self.median_ns = int(median(self._durations_ns))
        if self._until_renewal <= 0:
            self._until_renewal = RENEW_EVERY
            middle = median(self._durations_ns)
            deviation = median(abs(duration - middle) for duration in self._durations_ns)
            self.median_ns = int(middle)
            self.limit_ns = int(middle + 3 * deviation) + 1
        return slow


class Digest:
    """Keeps what spans batches: values still on a device, phases of unfinished steps, usual step times."""

    def __init__(self, names: NameTable, summaries: Summaries, *, span_every: int = 100) -> None:
        self.summaries = summaries
        self.usual: dict[str, UsualStep] = {}
        self.last_step: StepFacts | None = None
        self._span_every = span_every
        self._carried: list[Any] = []
        self._points = PointTable(names, summaries)
        self._phases = PhasePlaces()
        self._steps: dict[str, _StepRows] = {}
        self._bad_steps: dict[int, None] = {}
        self._device_waits: deque[tuple[TimedLoop, int, int | None, int, Any]] = deque(maxlen=MOST_DEVICE_WAITS)
        self._newest_ns = 0
        self._readings = ReadingPlaces()
        self._amounts = Amounts()
        self.batches = BatchPlaces()
        # Where this process is one of several ranks.
        self.rank_waits: RankWaits | None = None

    @property
    def waiting(self) -> int:
        """Entries that wait for a device, and keep those behind them waiting."""
        return len(self._carried) // SLOTS

    @property
    def unfinished(self) -> int:
        """All that waits for a device: those entries, and readings, which wait by themselves."""
        waits = 0 if self.rank_waits is None else self.rank_waits.pending
        return self.waiting + len(self._readings) + waits

    def take(self, batch: list[Any], offset_ns: int, *, flush: bool = True, last: bool = False) -> Digested:
        """Return what a batch holds. `offset_ns` is wall minus monotonic time.

        Without `flush` rows that do not fill a line yet are kept for the next batch; `last` waits for no device.
        """
        result = Digested()
        if self._carried:
            batch = self._carried + batch
            self._carried = []
        slots = iter(batch)
        for entry, (head, a, b, c, d, e) in enumerate(zip(*[slots] * SLOTS, strict=True)):
            kind = type(head)
            try:
                if kind is PointGroup:
                    if e is not None:
                        if not last and not e.ready():
                            # Points keep their order: what follows waits too.
                            self._carried = batch[entry * SLOTS :]
                            break
                        d = {**d, **_arrived(e, result)}
                    self._take_points(head, a, b, c, d, offset_ns, result)
                elif kind is Phase:
                    self._phases.take(head, a, b, c, d, e)
                    if head.aside:
                        result.asides.append((head.aside, c, d))
                elif kind is TimedLoop:
                    self._take_step(head, a, b, c, d, e, offset_ns, result)
                elif kind is DeviceWait:
                    self._device_waits.append((d, a, b, c, e))
                elif kind is BatchSource:
                    self.batches.take(head, a, b, c, d, e)
                elif kind is BatchSize:
                    self._amounts.resize(head, a, c, d, e)
                elif kind is Counted:
                    if e is not None:
                        if not last and not e.ready():
                            self._carried = batch[entry * SLOTS :]
                            break
                        d = {**d, **_arrived(e, result)}
                    amount = self._amounts.count(head, a, b, c, d)
                    if amount is not None:
                        result.amounts.append(amount)
                elif isinstance(head, Reading):
                    self._readings.take(head, a, b, c, result)
            except Exception as fault:  # noqa: BLE001 - one entry must not cost those that follow
                result.fail(fault, len(d) + len(e or ()) if kind is PointGroup else 1)
        if flush or last:
            self._points.flush(result)
            steps, self._steps = self._steps, {}
            for split, rows in steps.items():
                self._emit_steps(split, rows, result)
            self._phases.flush(offset_ns, result, last=last)
            self.batches.flush(offset_ns, result, last=last)
            self._emit_device_waits(offset_ns, result, last=last)
            if self.rank_waits is not None:
                self.rank_waits.flush(result, last=last)
            result.read = self._readings.flush(result, last=last)
        return result

    def _take_points(
        self,
        group: PointGroup,
        time_ns: int,
        step: int,
        epoch: int | None,
        values: dict[str, Any],
        offset_ns: int,
        result: Digested,
    ) -> None:
        if 0 <= self._newest_ns - time_ns < TOGETHER_NS:
            time_ns = self._newest_ns + 1
        self._newest_ns = time_ns
        if not group.axis:
            self._phases.logged(step, epoch, offset_ns, result)
            self.batches.logged(step, epoch, offset_ns, result)
            # Noted here: the step's end, which makes the span, comes after its points.
            if not _all_finite(values.values()):
                self._bad_steps[step] = None
                if len(self._bad_steps) > MOST_BAD_STEPS:
                    del self._bad_steps[next(iter(self._bad_steps))]
        self._points.add(group, time_ns, step, epoch, values, result)

    # Steps -----------------------------------------------------------------------------------------------------------

    def _take_step(
        self,
        loop: TimedLoop,
        step: int,
        epoch: int | None,
        fetch_ns: int,
        ready_ns: int,
        end_ns: int,
        offset_ns: int,
        result: Digested,
    ) -> None:
        split = loop.split
        rows = self._steps.get(split)
        if rows is None:
            rows = self._steps[split] = _StepRows()
        time_ns = end_ns + offset_ns
        rows.add(time_ns, step, epoch, ((end_ns - fetch_ns) / NS, (ready_ns - fetch_ns) / NS))
        passages = self._phases.of_step(loop.thread, fetch_ns)
        for name, spent_ns in time_within(passages).items():
            times, values = rows.phases.setdefault(name, ([], []))
            times.append(time_ns)
            values.append(spent_ns / NS)
        if self.rank_waits is not None and loop.owns_step:
            own_ns = self.rank_waits.own_ns(split, time_ns, step, epoch, fetch_ns, end_ns)
            if own_ns is not None:
                rows.busy[0].append(time_ns)
                rows.busy[1].append(own_ns / NS)
        usual = self.usual.get(split)
        if usual is None:
            usual = self.usual[split] = UsualStep()
        remarkable = "slow" if usual.is_slow(end_ns - fetch_ns) else ""
        # A loop beside training counts its batches by itself: its numbers are no steps of the run.
        if loop.owns_step and step in self._bad_steps:
            remarkable = "non-finite"
            del self._bad_steps[step]
        if not remarkable and step % self._span_every == 0:
            remarkable = "sampled"
        phases = [(passage.name, passage.start_ns, passage.end_ns) for passage in passages]
        facts = StepFacts(split, step, epoch, fetch_ns, ready_ns, end_ns, phases, remarkable)
        if loop.thread in self.batches.waiting:
            facts.batches = self.batches.of_step(loop, facts, offset_ns, rows.batches, result)
        if loop.owns_step:
            facts.samples, facts.tokens, facts.ends_update = self._amounts.of_step(loop, step)
            facts.has_device_clock = loop.timer is not None
        else:
            facts.owns_step = False
        result.steps.append(facts)
        self.last_step = facts
        if len(rows.rows) >= POINTS_PER_LINE:
            self._emit_steps(split, self._steps.pop(split), result)

    def _emit_steps(self, split: str, rows: _StepRows, result: Digested) -> None:
        attributes: SeriesAttributes = ((SPLIT, split),)
        durations, waits = zip(*rows.rows, strict=True)
        columns = [
            own_column("dl.step.time", rows.times_ns, durations, attributes),
            own_column("dl.data.wait.time", rows.times_ns, waits, attributes),
        ]
        if rows.busy[0]:
            columns.append(own_column("dl.rank.busy.time", *rows.busy, attributes))
        for name, (times_ns, values) in rows.phases.items():
            shared = rows.times_ns if len(times_ns) == len(rows.times_ns) else times_ns
            columns.append(own_column("dl.phase.time", shared, values, (*attributes, (PHASE, name))))
        columns.extend(batch_columns(rows.batches, rows.times_ns, attributes))
        result.points += sum(len(column.values) for column in columns)
        columns.extend(sibling_columns(rows, [attributes]))
        result.blocks.append(columns)

    def _emit_device_waits(self, offset_ns: int, result: Digested, *, last: bool) -> None:
        """Write the waits whose two events have passed, in order; the others wait for the next batch."""
        by_split: dict[str, Rows] = {}
        while self._device_waits:
            loop, step, epoch, ready_ns, marks = self._device_waits[0]
            if loop.timer is not None and None not in marks:
                try:
                    elapsed_s = loop.timer.elapsed_s(*marks)
                except Exception as fault:  # noqa: BLE001 - a device may raise anything
                    result.fail(fault, 1)
                else:
                    if elapsed_s is None and not last:
                        break
                    if elapsed_s is None:
                        result.lost["still on the device at the end"] += 1
                    else:
                        by_split.setdefault(loop.split, Rows()).add(ready_ns + offset_ns, step, epoch, elapsed_s)
                        result.device_waits.append((loop.split, step, elapsed_s))
            self._device_waits.popleft()
        for split, rows in by_split.items():
            attributes: SeriesAttributes = ((SPLIT, split), (CLOCK, "device"))
            result.points += len(rows.rows)
            column = own_column("dl.data.wait.time", rows.times_ns, rows.rows, attributes)
            result.blocks.append([column, *sibling_columns(rows, [attributes[:1]])])


def _arrived(deferred: DeferredValues, result: Digested) -> dict[str, float]:
    """Return the values of a device, at the end of the run without those that are still there."""
    if deferred.ready():
        return deferred.values()
    result.lost["still on the device at the end"] += len(deferred)
    return {}


def _all_finite(values: Iterable[Any]) -> bool:
    try:
        return all(map(isfinite, values))
    except OverflowError:  # an integer beyond what a double holds
        return False


# Of an entry that nobody has digested; one for those that are not named.
_POINTS_OF: Final = {TimedLoop: 2, BatchSource: POINTS_OF_A_BATCH, BatchSize: 0}


def points_in(entries: list[Any]) -> int:
    """Count the points of entries that nobody will digest: those of `log`, two for a step, one for a phase."""
    count = 0
    slots = iter(entries)
    for head, _, _, _, values, deferred in zip(*[slots] * SLOTS, strict=True):
        kind = type(head)
        if kind is PointGroup:
            count += len(values) + len(deferred or ())
        else:
            count += _POINTS_OF.get(kind, 1)
    return count
