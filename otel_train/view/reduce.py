"""Shortens a long series for drawing: a bucket keeps its exact extremes, mean and counts of non-finite values."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

# Below this a series is drawn point by point.
RAW_POINTS = 2_000


@dataclass(slots=True)
class Bad:
    """How many values of a bucket, or of a series, were not finite, by kind."""

    nan: int = 0
    positive_infinity: int = 0
    negative_infinity: int = 0

    @property
    def total(self) -> int:
        """All of them."""
        return self.nan + self.positive_infinity + self.negative_infinity

    @property
    def counts(self) -> tuple[int, int, int]:
        """NaN, positive and negative infinities."""
        return self.nan, self.positive_infinity, self.negative_infinity

    def add(self, value: float) -> None:
        """Count one value that is not finite."""
        if value != value:
            self.nan += 1
        elif value > 0:
            self.positive_infinity += 1
        else:
            self.negative_infinity += 1


@dataclass(slots=True)
class Row:
    """What is drawn at one place.

    It has step and time of the point `index`, and stands for `points` neighbours: mean and extremes of the finite
    values (None where there are none: a gap), and what was not finite.
    """

    index: int
    mean: float | None
    low: float | None
    high: float | None
    points: int
    bad: Bad = field(default_factory=Bad)


def rows_of(
    values: Sequence[float], *, gaps: Collection[int] = (), raw_points: int = RAW_POINTS, buckets: int = 1_000
) -> tuple[list[Row], bool]:
    """Return the rows to draw, in the order of the points, and whether they are a reduction.

    `gaps` are the indices without a value: they are drawn as nothing and counted as nothing. The first and the last
    point are rows of their own. Between them a bucket is a run of neighbouring points: its mean is that of the finite
    values, its extremes are values of the series, bit by bit. Values that are not finite part a bucket and stand where
    they are, unless there are more such places than buckets: then a bucket only counts them. A line may join two
    neighbouring rows only where neither holds a non-finite value: see `joined`.
    """
    if len(values) <= raw_points:
        return [_raw_row(index, value, index in gaps) for index, value in enumerate(values)], False
    last = len(values) - 1
    count = max(0, last - 1)
    buckets = max(1, min(buckets - 2, count))
    rows = [_raw_row(0, values[0], 0 in gaps)] if last >= 0 else []
    edges = [1 + count * number // buckets for number in range(buckets + 1)] if count else []
    room = buckets
    for start, end in itertools.pairwise(edges):
        part = values[start:end]
        if is_finite(part):
            low, high = min(part), max(part)
            rows.append(Row(start + (end - start) // 2, _mean(part, low, high), low, high, len(part)))
            continue
        parted = _parted(values, start, end, gaps, room)
        room -= len(parted) - 1
        rows.extend(parted)
    if last > 0:
        rows.append(_raw_row(last, values[last], last in gaps))
    return rows, True


def finite_of(values: Sequence[float]) -> Sequence[float]:
    """Return the values that are finite, in their order."""
    return values if is_finite(values) else [value for value in values if value - value == 0.0]


def _raw_row(index: int, value: float, is_gap: bool) -> Row:
    if math.isfinite(value):
        return Row(index, value, value, value, 1)
    bad = Bad()
    if not is_gap:
        bad.add(value)
    return Row(index, None, None, None, 1, bad)


def _parted(values: Sequence[float], start: int, end: int, gaps: Collection[int], room: int) -> list[Row]:
    """Return the runs of a bucket that are finite and those that are not; one row where they are too many."""
    kinds = [
        0 if value - value == 0.0 else 1 if index in gaps else 2 for index, value in enumerate(values[start:end], start)
    ]
    if 2 not in kinds:
        # A point without a value parts nothing.
        return [_bucket(values, start, end, gaps)]
    runs = [(kind, len(list(group))) for kind, group in itertools.groupby(kind == 2 for kind in kinds)]
    if len(runs) > room + 1:
        return [_bucket(values, start, end, gaps)]
    rows = []
    for _, length in runs:
        rows.append(_bucket(values, start, start + length, gaps))
        start += length
    return rows


def _bucket(values: Sequence[float], start: int, end: int, gaps: Collection[int]) -> Row:
    part = values[start:end]
    finite = [value for value in part if value - value == 0.0]
    bad = Bad()
    if len(finite) != len(part):
        for index, value in enumerate(part, start):
            if value - value != 0.0 and index not in gaps:
                bad.add(value)
    middle = start + (end - start) // 2
    if not finite:
        return Row(middle, None, None, None, len(part), bad)
    low, high = min(finite), max(finite)
    return Row(middle, _mean(finite, low, high), low, high, len(part), bad)


def mean(finite: Sequence[float]) -> float:
    """Return the mean of finite values, which lies between their extremes also where their sum overflows."""
    return _mean(finite, min(finite), max(finite))


def _mean(finite: Sequence[float], low: float, high: float) -> float:
    try:
        result = math.fsum(finite) / len(finite)
    except OverflowError:
        result = mean_of_large(finite, len(finite))
    # Rounding may pass an extreme by one bit, which would draw the line outside of its band.
    return min(max(result, low), high)


def mean_of_large(finite: Iterable[float], count: int) -> float:
    """Return the mean of so many finite values whose sum overflows; it may pass the largest double by one bit: inf.

    Their parts would not do: three thirds of the largest double, each rounded, are more than that.
    """
    return math.fsum(value * 2.0**-64 for value in finite) / count * 2.0**64


def is_finite(values: Iterable[float]) -> bool:
    """Tell whether all values are finite; False also where only their sum is not: then each is to be looked at."""
    total = sum(values)
    return total - total == 0.0


def joined(left: Row, right: Row) -> bool:
    """Tell whether a line may be drawn between two neighbouring rows: nothing that is not finite lies between them."""
    return left.mean is not None and right.mean is not None and not left.bad.total and not right.bad.total
