"""Gathers points into columns, one line's worth at a time, in the order in which they were logged."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, Final

from otel_train.record.entries import Column, SeriesAttributes
from otel_train.record.names import NameTable, Series
from otel_train.record.numbers import Float32
from otel_train.record.points import PointGroup
from otel_train.record.summary import Best, NonFinite, Summaries
from otel_train.semconv import AXIS, METRICS, SPLIT

# Repeated times stay within gzip's window of 32 KiB when a line holds no more than this many points a series.
POINTS_PER_LINE: Final = 200


@dataclass(slots=True)
class Taken:
    """Points of one series as they were taken, in order."""

    series: Series
    times_ns: Sequence[int]
    steps: Sequence[int]
    values: Sequence[float]


@dataclass(slots=True)
class Blocks:
    """Columns to be written, one line a block, and what became of the points of a batch."""

    blocks: list[list[Column]] = field(default_factory=list)
    points: int = 0
    nonfinite: list[NonFinite] = field(default_factory=list)
    best: list[Best] = field(default_factory=list)
    # The same points once more, by series, for whoever watches them.
    taken: list[Taken] = field(default_factory=list)
    # What could not be written, by cause, and the faults of our own among the causes.
    lost: Counter[str] = field(default_factory=Counter)
    faults: list[Exception] = field(default_factory=list)

    def fail(self, fault: Exception, items: int) -> None:
        """Count what a fault of our own cost."""
        self.faults.append(fault)
        self.lost["fault of telemetry"] += items


@dataclass(slots=True)
class Rows:
    """Points that stand together: a time, step and epoch each, and whatever their values are."""

    times_ns: list[int] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    epochs: list[int | None] = field(default_factory=list)
    rows: list[Any] = field(default_factory=list)

    def add(self, time_ns: int, step: int, epoch: int | None, row: Any) -> None:
        """Append one."""
        self.times_ns.append(time_ns)
        self.steps.append(step)
        self.epochs.append(epoch)
        self.rows.append(row)


@dataclass(slots=True)
class PointRows(Rows):
    """Calls of `log` with the same keys; `places` are their numbers among all calls."""

    series: list[Series] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    narrow: bool = False
    siblings: frozenset[SeriesAttributes] = frozenset()


class PointTable:
    """Calls of `log` that wait for their line to fill."""

    def __init__(self, names: NameTable, summaries: Summaries) -> None:
        self._names = names
        self._summaries = summaries
        self._waiting: dict[tuple[PointGroup, tuple[str, ...]], PointRows] = {}
        self._owners: dict[Series, PointRows] = {}
        # Whether a series is in several rows: they are then written together, else its points would change order.
        self._mixed = False
        self._place = 0

    def add(
        self,
        group: PointGroup,
        time_ns: int,
        step: int,
        epoch: int | None,
        values: Mapping[str, Any],
        result: Blocks,
    ) -> None:
        """Take one call; write out what fills a line."""
        place = (group, tuple(values))
        rows = self._waiting.get(place)
        if rows is None:
            rows = self._waiting[place] = self._begin(*place)
        rows.times_ns.append(time_ns)
        rows.steps.append(step)
        rows.epochs.append(epoch)
        rows.rows.append(values.values())
        rows.places.append(self._place)
        self._place += 1
        if len(rows.rows) >= POINTS_PER_LINE:
            if self._mixed:
                self.flush(result)
            else:
                del self._waiting[place]
                for series in rows.series:
                    self._owners.pop(series, None)
                self._emit([rows], result)

    def flush(self, result: Blocks) -> None:
        """Write out everything."""
        waiting = list(self._waiting.values())
        mixed, self._mixed = self._mixed, False
        self._waiting.clear()
        self._owners.clear()
        if mixed:
            self._emit(waiting, result)
            return
        for rows in waiting:
            self._emit([rows], result)

    def _begin(self, group: PointGroup, keys: tuple[str, ...]) -> PointRows:
        series = [self._names.series(key, group.split, group.axis) for key in keys]
        siblings = frozenset(sibling(one.split, group.axis) for one in series)
        rows = PointRows(series=series, narrow=group.narrow, siblings=siblings)
        for one in series:
            if self._owners.setdefault(one, rows) is not rows:
                self._mixed = True
        return rows

    def _emit(self, together: list[PointRows], result: Blocks) -> None:
        try:
            self._emit_columns(together, result)
        except Exception as fault:  # noqa: BLE001 - what cannot be written must not stand in the way for ever
            result.fail(fault, sum(len(rows.rows) * len(rows.series) for rows in together))

    def _emit_columns(self, together: list[PointRows], result: Blocks) -> None:
        found: dict[Series, list[tuple[PointRows, Sequence[float], bool]]] = {}
        for rows in together:
            for series, raw in zip(rows.series, zip(*rows.rows, strict=True), strict=True):
                values, narrow = (raw, True) if rows.narrow else pythonic(raw)
                found.setdefault(series, []).append((rows, values, narrow))
        columns: list[Column] = []
        points = 0
        for series, parts in found.items():
            times_ns, steps, column_values, narrow = _joined(parts)
            unit = self._names.unit(series)
            columns.append(
                Column(series.name, times_ns, column_values, series.attributes, unit, series.description, narrow)
            )
            points += len(column_values)
            if series.is_own:
                continue
            result.taken.append(Taken(series, times_ns, steps, column_values))
            bad, best = self._summaries.add(series, times_ns, steps, column_values)
            if bad:
                result.nonfinite.append(bad)
            if best:
                result.best.append(best)
        for attributes in sorted({attributes for rows in together for attributes in rows.siblings}):
            parts_of = [rows for rows in together if attributes in rows.siblings]
            columns.extend(sibling_columns(parts_of[0] if len(parts_of) == 1 else _in_order(parts_of), [attributes]))
        result.points += points
        result.blocks.append(columns)


def _joined(
    parts: list[tuple[PointRows, Sequence[float], bool]],
) -> tuple[Sequence[int], Sequence[int], Sequence[float], bool]:
    """Return times, steps and values of one series in the order of their calls, and whether all are 32-bit."""
    if len(parts) == 1:
        rows, values, narrow = parts[0]
        return rows.times_ns, rows.steps, values, narrow
    all_narrow = all(narrow for _, _, narrow in parts)
    merged: list[tuple[int, int, int, float]] = []
    for rows, values, narrow in parts:
        marked: Iterable[float] = map(Float32, values) if narrow and not all_narrow else values
        merged.extend(zip(rows.places, rows.times_ns, rows.steps, marked, strict=True))
    merged.sort(key=itemgetter(0))
    _, times_ns, steps, joined = zip(*merged, strict=True)
    return times_ns, steps, joined, all_narrow


def _in_order(parts: list[PointRows]) -> Rows:
    merged: list[tuple[int, int, int, int | None]] = []
    for rows in parts:
        merged.extend(zip(rows.places, rows.times_ns, rows.steps, rows.epochs, strict=True))
    merged.sort(key=itemgetter(0))
    return Rows([row[1] for row in merged], [row[2] for row in merged], [row[3] for row in merged])


def pythonic(raw: Sequence[Any]) -> tuple[Sequence[float], bool]:
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
_PLAIN: Final = frozenset({float, Float32})


def _unboxed(value: Any) -> float | int:
    number = value if type(value) in (int, bool) else value.item()
    if isinstance(number, float):
        return Float32(number) if value.dtype.itemsize <= 4 else number
    number = int(number)
    if -(2**63) <= number < 2**63:
        return number
    try:
        return float(number)
    except OverflowError:
        return float("inf") if number > 0 else float("-inf")


def sibling(split: str, axis: str) -> SeriesAttributes:
    """Return the attributes of the `dl.step` that stands beside points of a split and axis."""
    attributes: list[tuple[str, str]] = [(SPLIT, split)] if split else []
    if axis:
        attributes.append((AXIS, axis))
    return tuple(attributes)


def sibling_columns(rows: Rows, siblings: Iterable[SeriesAttributes]) -> Iterator[Column]:
    """Give the columns of `dl.step` and, where it is known, `dl.epoch` at the times of some points."""
    for attributes in siblings:
        yield own_column("dl.step", rows.times_ns, rows.steps, attributes)
        known = [place for place, epoch in enumerate(rows.epochs) if epoch is not None]
        if known:
            whole = len(known) == len(rows.epochs)
            times_ns = rows.times_ns if whole else [rows.times_ns[place] for place in known]
            epochs = [epoch for epoch in rows.epochs if epoch is not None]
            yield own_column("dl.epoch", times_ns, epochs, attributes)


def own_column(
    name: str, times_ns: Sequence[int], values: Sequence[float | int], attributes: SeriesAttributes
) -> Column:
    """Return a column of one of our own metrics, with its unit and description."""
    metric = METRICS[name]
    return Column(name, times_ns, values, attributes, metric.unit, metric.description)
