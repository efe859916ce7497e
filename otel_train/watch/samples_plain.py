"""Measures texts, lists of token ids and tables in plain Python, on the writer's thread and a turn at a time."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from otel_train.clock import sleep
from otel_train.watch.samples_arrays import CONSTANT, DUPLICATE, NONFINITE, TENTHS
from otel_train.watch.samples_drift import WINDOW_CHECKS, FirstNames, FirstWindow

# Items between two offers of the interpreter to whoever waits for it.
TURN = 500
MOST_NAMED = 10


@dataclass(slots=True)
class PlainFacts:
    """What was measured: values by name (None: there is none), faults by sample, and what else the event says."""

    values: dict[str, float | None]
    faults: list[int]
    drift: float | None = None
    more: dict[str, Any] = field(default_factory=dict)


class PlainSpread:
    """Range, bins and first window of numbers that are on the host: those of `Spread`, by the same rules."""

    def __init__(self) -> None:
        self._checks = 0
        self._range: tuple[float, float] | None = None
        self._edges: list[float] = []
        self._window = FirstWindow()

    def range(self, values: Sequence[float], given: tuple[float, float] | None) -> tuple[float, float] | None:
        """Return the range: the one given, else the least and greatest value of the first window."""
        self._checks += 1
        if given is not None:
            return given
        if values and (self._checks <= WINDOW_CHECKS or self._range is None):
            low, high = min(values), max(values)
            before = self._range or (low, high)
            self._range = min(low, before[0]), max(high, before[1])
        return self._range

    def drift(self, values: Sequence[float]) -> float | None:
        """Return the divergence of these values from the first window, over the bins of the first values."""
        if not values:
            return None
        ordered = sorted(values)
        if not self._edges:
            low, last = ordered[0], len(ordered) - 1
            width = ordered[-1] - low
            tenths = [number / (TENTHS + 1) for number in range(1, TENTHS + 1)]
            deciles = [ordered[math.floor(tenth * last)] for tenth in tenths]
            ends = [math.nextafter(low, -math.inf), ordered[-1]]
            self._edges = sorted(ends + deciles + [low + width * tenth for tenth in tenths])
        counts = [0.0] * (len(self._edges) + 1)
        for value in ordered:
            counts[bisect_left(self._edges, value)] += 1
        return self._window.compare(counts)


def measure_lists(
    items: Sequence[str | tuple[int, ...] | None], spread: PlainSpread, given: tuple[float, float] | None
) -> PlainFacts:
    """Return what is known of texts, or lists of ids, by their lengths; None is a missing one.

    A sample is constant where it is empty or repeats one character or id; saturated is the share of lengths at an end
    of their range: shortest or longest, which is where texts are cut.
    """
    faults = [0] * len(items)
    seen: dict[Any, list[int]] = {}
    lengths: list[float] = []
    empty = 0
    for number, item in enumerate(items):
        if number % TURN == TURN - 1:
            sleep(0)
        if item is None:
            faults[number] = NONFINITE
            continue
        lengths.append(float(len(item)))
        empty += not (item.strip() if isinstance(item, str) else item)
        if not item or item.count(item[0]) == len(item):  # type: ignore[arg-type]
            faults[number] |= CONSTANT
        seen.setdefault(item, []).append(number)
    _mark_duplicates(seen, faults)
    ends = spread.range(lengths, given)
    values = shares(faults)
    values |= moments_of(lengths)
    if ends and lengths:
        values["saturated"] = sum(not ends[0] < length < ends[1] for length in lengths) / len(lengths)
    more: dict[str, Any] = {"empty": empty / len(items)}
    if ends:
        more["range"] = list(ends)
    return PlainFacts(values, faults, spread.drift(lengths), more)


def _mark_duplicates(seen: Mapping[Any, list[int]], faults: list[int]) -> None:
    for places in seen.values():
        if len(places) > 1:
            for place in places:
                faults[place] |= DUPLICATE


def shares(faults: Sequence[int]) -> dict[str, float | None]:
    """Return the share of samples with each fault."""
    bits = {"nonfinite": NONFINITE, "constant": CONSTANT, "duplicate": DUPLICATE}
    return {name: sum(bool(fault & bit) for fault in faults) / len(faults) for name, bit in bits.items()}


def moments_of(values: Sequence[float]) -> dict[str, float | None]:
    """Return mean and standard deviation, of the values themselves, None where there are none."""
    if not values:
        return {"mean": None, "std": None}
    middle = fmean(values)
    return {"mean": middle, "std": math.sqrt(fmean([(value - middle) ** 2 for value in values]))}


class TableSpread:
    """The first window of a table, column by column."""

    def __init__(self) -> None:
        self._numbers: dict[str, PlainSpread] = {}
        self._names: dict[str, FirstNames] = {}

    def drift(self, name: str, cells: Sequence[Any]) -> float | None:
        """Return the divergence of a column: of its numbers, else of its texts and flags beyond chance."""
        numbers = [float(cell) for cell in cells if isinstance(cell, int | float) and not isinstance(cell, bool)]
        if numbers and name not in self._names:
            return self._numbers.setdefault(name, PlainSpread()).drift(numbers)
        if not cells:
            return None
        counts = Counter(str(cell) for cell in cells)
        return self._names.setdefault(name, FirstNames()).compare(dict(counts))


def measure_table(columns: Mapping[str, Sequence[Any]], rows: int, spread: TableSpread) -> PlainFacts:
    """Return what is known of a table's rows: missing or non-finite cells, constant columns, equal rows.

    The drift is that of the column whose cells have moved most. There is no mean over columns of different meaning.
    """
    faults = [0] * rows
    constant, missing = [], 0
    worst: tuple[float, str] | None = None
    for name, cells in columns.items():
        sleep(0)
        present = []
        for number, cell in enumerate(cells):
            if is_missing(cell):
                missing += 1
                faults[number] |= NONFINITE
            else:
                present.append(cell)
        if rows > 1 and len(present) in (0, rows) and len({_hashable(cell) for cell in present}) <= 1:
            constant.append(name)
        drift = spread.drift(name, present)
        if drift is not None and (worst is None or drift > worst[0]):
            worst = drift, name
    seen: dict[Any, list[int]] = {}
    for number, row in enumerate(zip(*columns.values(), strict=True)):
        if number % TURN == TURN - 1:
            sleep(0)
        seen.setdefault(tuple(_hashable(cell) for cell in row), []).append(number)
    _mark_duplicates(seen, faults)
    values = shares(faults) | {"constant": len(constant) / len(columns) if columns and rows > 1 else None}
    more: dict[str, Any] = {"missing_cells": missing / max(1, rows * len(columns)), "columns": len(columns)}
    if constant:
        more["constant_columns"] = constant[:MOST_NAMED]
    if worst is not None:
        more["drift_column"] = worst[1]
    return PlainFacts(values, faults, worst[0] if worst else None, more)


def is_missing(cell: Any) -> bool:
    """Tell None, NaN, infinities, and what calls itself not a value (pandas' NaT and NA)."""
    if cell is None:
        return True
    if isinstance(cell, float):
        return not math.isfinite(cell)
    if isinstance(cell, str | int | bytes):
        return False
    try:
        return bool(cell != cell)
    except (TypeError, ValueError, RuntimeError):
        # NA is neither equal nor unequal to itself; an array in a cell has no single answer.
        return type(cell).__name__ == "NAType"


def _hashable(cell: Any) -> Any:
    if isinstance(cell, float) and cell != cell:
        return "NaN"
    try:
        hash(cell)
    except TypeError:
        return repr(cell)
    return cell
