"""Turns a drained batch of entries into columns of points and steps with their phases, off the training thread."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Final

from otel_train.record.buffer import SLOTS
from otel_train.record.entries import Column, SeriesAttributes
from otel_train.record.names import NameTable
from otel_train.record.numbers import Float32
from otel_train.record.phases import Phase
from otel_train.record.points import PointGroup
from otel_train.record.steps import DeviceWait, StepLoop
from otel_train.record.summary import Best, NonFinite, Summaries
from otel_train.semconv import AXIS, CLOCK, METRICS, PHASE, SPLIT

# Repeated times stay within gzip's window of 32 KiB when a line holds no more than this many points a series.
POINTS_PER_LINE: Final = 200
WINDOW_STEPS: Final = 200
FEWEST_STEPS: Final = 20
RENEW_EVERY: Final = 32
MOST_WAITING_PHASES: Final = 10_000
# Divided, not multiplied by 1e-9: the quotient has no more digits than the nanoseconds, which halves its text.
NS: Final = 1e9


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

    @property
    def duration_s(self) -> float:
        """Time from asking for the batch to the end of the step."""
        return (self.end_ns - self.fetch_ns) / NS


@dataclass(slots=True)
class Digested:
    """What came of a batch: `blocks` holds the columns of one line each."""

    blocks: list[list[Column]] = field(default_factory=list)
    points: int = 0
    steps: list[StepFacts] = field(default_factory=list)
    nonfinite: list[NonFinite] = field(default_factory=list)
    best: list[Best] = field(default_factory=list)


@dataclass(slots=True)
class _Rows:
    times_ns: list[int] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    epochs: list[int | None] = field(default_factory=list)
    rows: list[Any] = field(default_factory=list)


@dataclass(slots=True)
class _StepRows(_Rows):
    """Rows are (duration, wait); phases by name are (times, values)."""

    phases: dict[str, tuple[list[int], list[float]]] = field(default_factory=dict)


class UsualStep:
    """The median and the median absolute deviation of the last steps of one loop."""

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
        self._names = names
        self._span_every = span_every
        self._carried: list[Any] = []
        self._phases: dict[int, list[tuple[str, int, int]]] = {}
        self._loose: list[tuple[str, int, int, int, int | None]] = []
        self._bad_steps: deque[int] = deque(maxlen=256)
        self._device_waits: list[tuple[StepLoop[Any], int, int | None, Any, Any]] = []
        self._points: dict[tuple[PointGroup, tuple[str, ...]], _Rows] = {}
        self._steps: dict[StepLoop[Any], _StepRows] = {}
        self.last_step: StepFacts | None = None

    @property
    def waiting(self) -> int:
        """Entries that wait for a device."""
        return len(self._carried) // SLOTS

    def take(self, batch: list[Any], offset_ns: int, *, flush: bool = True, last: bool = False) -> Digested:
        """Return what a batch holds. `offset_ns` is wall minus monotonic time.

        Without `flush` rows that do not fill a line yet are kept for the next batch; `last` waits for no device.
        """
        result = Digested()
        if self._carried:
            batch = self._carried + batch
            self._carried = []
        points, steps = self._points, self._steps
        slots = iter(batch)
        for entry, (head, a, b, c, d, e) in enumerate(zip(*[slots] * SLOTS, strict=True)):
            kind = type(head)
            if kind is PointGroup:
                if e is not None:
                    if not e.ready() and not last:
                        # Points keep their order: what follows waits too.
                        self._carried = batch[entry * SLOTS :]
                        break
                    if e.ready():
                        d = {**d, **e.values()}
                if self._loose:
                    self._place_loose(b, c, offset_ns, result)
                key = (head, tuple(d))
                rows = points.get(key)
                if rows is None:
                    rows = points[key] = _Rows()
                rows.times_ns.append(a)
                rows.steps.append(b)
                rows.epochs.append(c)
                rows.rows.append(d.values())
                if len(rows.rows) >= POINTS_PER_LINE:
                    self._emit_points(head, key[1], points.pop(key), result)
            elif kind is Phase:
                self._take_phase(head, a, b, c, d, e)
            elif kind is StepLoop:
                # A step is judged with its points at hand: they come before its end.
                for place, rows in points.items():
                    if not place[0].axis:
                        self._note_bad_steps(rows)
                self._take_step(head, a, b, c, d, e, offset_ns, steps, result)
            elif kind is DeviceWait:
                self._device_waits.append((c, a, b, d, e))
        if flush or last:
            for (group, keys), rows in points.items():
                self._emit_points(group, keys, rows, result)
            for loop, step_rows in steps.items():
                self._emit_steps(loop, step_rows, result)
            points.clear()
            steps.clear()
        if last or len(self._loose) > MOST_WAITING_PHASES:
            self._place_loose(None, None, offset_ns, result)
        self._emit_device_waits(offset_ns, result, last=last)
        return result

    # Points ----------------------------------------------------------------------------------------------------------

    def _note_bad_steps(self, rows: _Rows) -> None:
        """Remember the step of the newest row where one of its values is not finite."""
        try:
            total = sum(rows.rows[-1])
        except TypeError:
            return
        if total - total != 0 and rows.steps[-1] not in self._bad_steps:
            self._bad_steps.append(rows.steps[-1])

    def _emit_points(self, group: PointGroup, keys: tuple[str, ...], rows: _Rows, result: Digested) -> None:
        columns: list[Column] = []
        siblings: set[SeriesAttributes] = set()
        for key, raw in zip(keys, zip(*rows.rows, strict=True), strict=True):
            series = self._names.series(key, group.split, group.axis)
            values, narrow = (raw, True) if group.narrow else _pythonic(raw)
            columns.append(
                Column(
                    series.name,
                    rows.times_ns,
                    values,
                    series.attributes,
                    self._names.units.get(series.key, ""),
                    series.description,
                    narrow,
                )
            )
            siblings.add(_sibling(series.split, group.axis))
            bad, best = self.summaries.add(series, rows.times_ns, rows.steps, values)
            if bad:
                result.nonfinite.append(bad)
            if best:
                result.best.append(best)
        result.points += len(columns) * len(rows.steps)
        columns.extend(_sibling_columns(rows, siblings))
        result.blocks.append(columns)

    # Steps and phases ------------------------------------------------------------------------------------------------

    def _take_phase(self, phase: Phase, step: int, epoch: int | None, start_ns: int, end_ns: int, loops: int) -> None:
        if loops:
            waiting = self._phases.setdefault(phase.thread, [])
            waiting.append((phase.name, start_ns, end_ns))
            if len(waiting) > MOST_WAITING_PHASES:
                del waiting[: MOST_WAITING_PHASES // 2]
        else:
            self._loose.append((phase.name, start_ns, end_ns, step, epoch))

    def _place_loose(self, step: int | None, epoch: int | None, offset_ns: int, result: Digested) -> None:
        """Give phases outside of any loop the step of the next points: in a loop by hand, `log` closes the step."""
        by_name: dict[str, list[tuple[int, int, int, int | None]]] = {}
        for name, start_ns, end_ns, own_step, own_epoch in self._loose:
            place = (start_ns, end_ns, own_step if step is None else step, own_epoch if step is None else epoch)
            by_name.setdefault(name, []).append(place)
        self._loose.clear()
        for name, places in by_name.items():
            # Entered several times within a step, a phase is one point: the time spent in it.
            sums: dict[tuple[int, int | None], tuple[int, int]] = {}
            for start_ns, end_ns, own_step, own_epoch in places:
                spent, _ = sums.get((own_step, own_epoch), (0, 0))
                sums[(own_step, own_epoch)] = (spent + end_ns - start_ns, end_ns)
            rows = _Rows(
                [end_ns + offset_ns for _, end_ns in sums.values()],
                [place[0] for place in sums],
                [place[1] for place in sums],
            )
            values = [spent / NS for spent, _ in sums.values()]
            columns = [_own("dl.phase.time", rows.times_ns, values, ((PHASE, name),))]
            result.points += len(values)
            result.blocks.append([*columns, *_sibling_columns(rows, {()})])

    def _take_step(
        self,
        loop: StepLoop[Any],
        step: int,
        epoch: int | None,
        fetch_ns: int,
        ready_ns: int,
        end_ns: int,
        offset_ns: int,
        steps: dict[StepLoop[Any], _StepRows],
        result: Digested,
    ) -> None:
        rows = steps.get(loop)
        if rows is None:
            rows = steps[loop] = _StepRows()
        time_ns = end_ns + offset_ns
        rows.times_ns.append(time_ns)
        rows.steps.append(step)
        rows.epochs.append(epoch)
        rows.rows.append(((end_ns - fetch_ns) / NS, (ready_ns - fetch_ns) / NS))
        phases = [phase for phase in self._phases.pop(loop.thread, ()) if phase[1] >= fetch_ns]
        spent: dict[str, int] = {}
        for name, start, end in phases:
            spent[name] = spent.get(name, 0) + end - start
        for name, total in spent.items():
            times, values = rows.phases.setdefault(name, ([], []))
            times.append(time_ns)
            values.append(total / NS)
        usual = self.usual.get(loop.split)
        if usual is None:
            usual = self.usual[loop.split] = UsualStep()
        remarkable = ""
        if usual.is_slow(end_ns - fetch_ns):
            remarkable = "slow"
        if step in self._bad_steps:
            remarkable = "non-finite"
        if not remarkable and step % self._span_every == 0:
            remarkable = "sampled"
        facts = StepFacts(loop.split, step, epoch, fetch_ns, ready_ns, end_ns, phases, remarkable)
        result.steps.append(facts)
        self.last_step = facts
        if len(rows.rows) >= POINTS_PER_LINE:
            self._emit_steps(loop, steps.pop(loop), result)

    def _emit_steps(self, loop: StepLoop[Any], rows: _StepRows, result: Digested) -> None:
        split: SeriesAttributes = ((SPLIT, loop.split),)
        durations, waits = zip(*rows.rows, strict=True)
        columns = [
            _own("dl.step.time", rows.times_ns, durations, split),
            _own("dl.data.wait.time", rows.times_ns, waits, split),
        ]
        for name, (times_ns, values) in rows.phases.items():
            shared = rows.times_ns if len(times_ns) == len(rows.times_ns) else times_ns
            columns.append(_own("dl.phase.time", shared, values, (*split, (PHASE, name))))
        result.points += sum(len(column.values) for column in columns)
        columns.extend(_sibling_columns(rows, {split}))
        result.blocks.append(columns)

    def _emit_device_waits(self, offset_ns: int, result: Digested, *, last: bool) -> None:
        """Write waits whose two events have passed, at the present time; the others wait for the next batch."""
        waiting: list[tuple[StepLoop[Any], int, int | None, Any, Any]] = []
        by_loop: dict[StepLoop[Any], list[tuple[int, int | None, float]]] = {}
        for place in self._device_waits:
            loop, step, epoch, before, after = place
            elapsed_s = loop.timer.elapsed_s(before, after) if loop.timer is not None else None
            if elapsed_s is not None:
                by_loop.setdefault(loop, []).append((step, epoch, elapsed_s))
            elif not last:
                waiting.append(place)
        self._device_waits = waiting
        for loop, rows in by_loop.items():
            now_ns = _latest(result, offset_ns, self.last_step)
            times_ns = [now_ns - len(rows) + 1 + place for place in range(len(rows))]
            placed = _Rows(times_ns, [row[0] for row in rows], [row[1] for row in rows])
            split: SeriesAttributes = ((SPLIT, loop.split), (CLOCK, "device"))
            waits = [row[2] for row in rows]
            result.points += len(waits)
            column = _own("dl.data.wait.time", times_ns, waits, split)
            result.blocks.append([column, *_sibling_columns(placed, {split[:1]})])


def _latest(result: Digested, offset_ns: int, last_step: StepFacts | None) -> int:
    if result.steps:
        return result.steps[-1].end_ns + offset_ns
    return (last_step.end_ns + offset_ns) if last_step else offset_ns


def _pythonic(raw: Sequence[Any]) -> tuple[Sequence[float], bool]:
    """Return NumPy's scalars as Python's numbers, and whether all are 32-bit floats; others as they are."""
    kinds = set(map(type, raw))
    if kinds == _FLOATS:
        return raw, False
    numpy = sys.modules.get("numpy")
    if len(kinds) == 1 and numpy is not None and issubclass(next(iter(kinds)), numpy.floating):
        # One conversion for all costs a twentieth of one each.
        numbers = numpy.array(raw)
        return numbers.tolist(), numbers.itemsize <= 4
    return [value if type(value) in _PLAIN else _unboxed(value) for value in raw], False


_FLOATS: Final = frozenset({float})
_PLAIN: Final = frozenset({float, int, Float32})


def _unboxed(value: Any) -> float | int:
    if type(value) is bool:
        return int(value)
    number = value.item()
    if isinstance(number, bool):
        return int(number)
    if isinstance(number, float) and value.dtype.itemsize <= 4:
        return Float32(number)
    return number  # type: ignore[no-any-return]  # NumPy's item() of a real scalar is a float or an int


def _sibling(split: str, axis: str) -> SeriesAttributes:
    attributes: list[tuple[str, str]] = [(SPLIT, split)] if split else []
    if axis:
        attributes.append((AXIS, axis))
    return tuple(attributes)


def _sibling_columns(rows: _Rows, siblings: set[SeriesAttributes]) -> Iterator[Column]:
    for attributes in sorted(siblings):
        yield _own("dl.step", rows.times_ns, rows.steps, attributes)
        known = [place for place, epoch in enumerate(rows.epochs) if epoch is not None]
        if known:
            whole = len(known) == len(rows.epochs)
            times_ns = rows.times_ns if whole else [rows.times_ns[place] for place in known]
            epochs = [epoch for epoch in rows.epochs if epoch is not None]
            yield _own("dl.epoch", times_ns, epochs, attributes)


def _own(name: str, times_ns: Sequence[int], values: Sequence[float | int], attributes: SeriesAttributes) -> Column:
    metric = METRICS[name]
    return Column(name, times_ns, values, attributes, metric.unit, metric.description)
