"""Shortens a long series for drawing: a bucket keeps its exact extremes, mean and counts of non-finite values."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Sequence
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

    `gaps` are the indices without a value: they are drawn as nothing and counted as nothing. A bucket is a run of
    neighbouring points. Its mean is that of the finite values; its extremes are values of the series, bit by bit. A
    line may join two neighbouring rows only where neither holds a non-finite value: see `joined`.
    """
    if len(values) <= raw_points:
        return [_raw_row(index, value, index in gaps) for index, value in enumerate(values)], False
    count = len(values)
    buckets = max(1, min(buckets, count))
    edges = [count * number // buckets for number in range(buckets + 1)]
    return [_bucket(values, start, end, gaps) for start, end in itertools.pairwise(edges)], True


def _raw_row(index: int, value: float, is_gap: bool) -> Row:
    if math.isfinite(value):
        return Row(index, value, value, value, 1)
    bad = Bad()
    if not is_gap:
        bad.add(value)
    return Row(index, None, None, None, 1, bad)


def _bucket(values: Sequence[float], start: int, end: int, gaps: Collection[int]) -> Row:
    part = values[start:end]
    finite = [value for value in part if math.isfinite(value)]
    bad = Bad()
    if len(finite) != len(part):
        for index in range(start, end):
            if not math.isfinite(values[index]) and index not in gaps:
                bad.add(values[index])
    middle = start + (end - start) // 2
    if not finite:
        return Row(middle, None, None, None, len(part), bad)
    return Row(middle, mean(finite), min(finite), max(finite), len(part), bad)


def mean(finite: Sequence[float]) -> float:
    """Return the mean of finite values, which lies between their extremes also where their sum overflows."""
    try:
        result = math.fsum(finite) / len(finite)
    except OverflowError:
        result = math.fsum(value / len(finite) for value in finite)
    # Rounding may pass an extreme by one bit, which would draw the line outside of its band.
    return min(max(result, min(finite)), max(finite))


def joined(left: Row, right: Row) -> bool:
    """Tell whether a line may be drawn between two neighbouring rows: nothing that is not finite lies between them."""
    return left.mean is not None and right.mean is not None and not left.bad.total and not right.bad.total
