"""Drawing a long series must not change what it says."""

from __future__ import annotations

import itertools
import math
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_train.view.reduce import joined, mean, rows_of
from otel_train.view.running import Running
from otel_train.view.series_store import SeriesStore

anything = st.lists(st.floats(allow_nan=True, allow_infinity=True, width=64), max_size=400)


@given(anything, st.integers(1, 60))
def test_reduction_keeps_the_extremes_of_the_finite_values_exactly(values: list[float], buckets: int) -> None:
    """Smallest and largest of the rows are those of the points, bit by bit."""
    rows, _ = rows_of(values, raw_points=0, buckets=buckets)
    finite = [value for value in values if math.isfinite(value)]
    lows = [row.low for row in rows if row.low is not None]
    highs = [row.high for row in rows if row.high is not None]
    assert (min(lows, default=None), max(highs, default=None)) == (min(finite, default=None), max(finite, default=None))


@given(anything, st.integers(1, 60))
def test_reduction_never_averages_a_non_finite_value_in(values: list[float], buckets: int) -> None:
    """Each mean is finite and lies between the extremes of its bucket."""
    rows, _ = rows_of(values, raw_points=0, buckets=buckets)
    for row in rows:
        if row.mean is not None:
            assert row.low is not None
            assert row.high is not None
            assert row.low <= row.mean <= row.high


@given(anything, st.integers(1, 60))
def test_reduction_counts_every_point_and_every_non_finite_value_once(values: list[float], buckets: int) -> None:
    """Nothing is lost and nothing is counted twice."""
    rows, _ = rows_of(values, raw_points=0, buckets=buckets)
    assert sum(row.points for row in rows) == len(values)
    assert sum(row.bad.nan for row in rows) == sum(1 for value in values if value != value)
    assert sum(row.bad.positive_infinity for row in rows) == values.count(math.inf)
    assert sum(row.bad.negative_infinity for row in rows) == values.count(-math.inf)


@given(anything, st.integers(1, 60), st.integers(0, 500))
def test_rows_keep_the_order_of_the_points(values: list[float], buckets: int, raw_points: int) -> None:
    """Rows stand for neighbouring points, in order, whether reduced or not."""
    rows, _ = rows_of(values, raw_points=raw_points, buckets=buckets)
    indices = [row.index for row in rows]
    assert indices == sorted(set(indices))


def test_short_series_is_drawn_point_by_point_with_gaps_at_non_finite_values() -> None:
    """A finite value is its own mean; NaN and infinities are rows without a value, each counted by its kind."""
    rows, reduced = rows_of([1.0, math.nan, math.inf, -math.inf, 2.0])
    assert not reduced
    assert [row.mean for row in rows] == [1.0, None, None, None, 2.0]
    assert [row.bad.nan for row in rows] == [0, 1, 0, 0, 0]
    assert [row.bad.positive_infinity for row in rows] == [0, 0, 1, 0, 0]
    assert [row.bad.negative_infinity for row in rows] == [0, 0, 0, 1, 0]


def test_a_gap_is_neither_a_value_nor_a_nan() -> None:
    """A point without a value stays a gap, never 0, and is not counted as not-a-number."""
    rows, _ = rows_of([1.0, math.nan, 1.0], gaps={1})
    assert [row.mean for row in rows] == [1.0, None, 1.0]
    assert sum(row.bad.total for row in rows) == 0
    reduced_rows, reduced = rows_of([9.0, 1.0, math.nan, 3.0, 9.0], gaps={2}, raw_points=1, buckets=3)
    assert reduced
    assert [(row.mean, row.points, row.bad.total) for row in reduced_rows] == [(9.0, 1, 0), (2.0, 3, 0), (9.0, 1, 0)]


def test_no_line_joins_what_a_non_finite_value_parts() -> None:
    """A value that is not finite parts its bucket and stands where it is; the finite ones keep their own means."""
    rows, _ = rows_of([1.0, 2.0, 3.0, math.nan, 5.0, 6.0, 7.0, 8.0], raw_points=2, buckets=4)
    assert [(row.index, row.mean, row.bad.nan) for row in rows] == [
        (0, 1.0, 0),
        (2, 2.5, 0),
        (3, None, 1),
        (5, 6.0, 0),
        (7, 8.0, 0),
    ]
    drawn = [joined(left, right) for left, right in itertools.pairwise(rows)]
    assert drawn == [True, False, False, True]


@given(anything, st.integers(1, 60))
def test_first_and_last_point_stand_at_their_own_places(values: list[float], buckets: int) -> None:
    """Both are rows of a single point with its own value, finite or not."""
    rows, reduced = rows_of(values, raw_points=0, buckets=buckets)
    assert reduced == bool(values)
    for row, value in ((rows[0], values[0]), (rows[-1], values[-1])) if values else ():
        assert row.points == 1
        assert values[row.index] is value
        assert row.mean == (value if math.isfinite(value) else None)


@given(st.lists(st.sampled_from([1.0, 2.0, math.nan, math.inf, -math.inf]), min_size=1, max_size=300))
def test_each_non_finite_value_is_within_the_row_that_counts_it(values: list[float]) -> None:
    """Where there is room every run of them is a row of its own, which lies where the run lies."""
    rows, _ = rows_of(values, raw_points=0, buckets=1_000)
    start = 0
    for row in rows:
        covered = values[start : start + row.points]
        assert start <= row.index < start + row.points
        bad = sum(1 for value in covered if not math.isfinite(value))
        assert row.bad.total == bad
        assert (row.mean is None) == (bad > 0)
        start += row.points
    assert start == len(values)


def test_a_series_full_of_non_finite_values_is_counted_by_bucket() -> None:
    """Every second value of 100,000 is NaN: no more rows than twice the buckets, and all are counted."""
    values = [math.nan if index % 2 else float(index) for index in range(100_000)]
    rows, _ = rows_of(values, raw_points=2_000, buckets=1_000)
    assert len(rows) <= 2_000
    assert sum(row.bad.nan for row in rows) == 50_000
    assert min(row.low for row in rows if row.low is not None) == 0.0
    assert max(row.high for row in rows if row.high is not None) == 99_998.0


def test_the_mean_of_huge_values_does_not_overflow() -> None:
    """The sum of the values would be infinite, their mean is not."""
    rows, _ = rows_of([1.7e308, 1.7e308, 1.7e308], raw_points=1, buckets=1)
    assert rows[0].mean == pytest.approx(1.7e308)


@pytest.mark.parametrize("count", [2, 3, 7, 10, 1000])
def test_the_mean_of_the_largest_values_is_one_of_them(count: int) -> None:
    """Their sum overflows, and so do their parts, each rounded up; drawn and over all points alike."""
    large = sys.float_info.max
    assert mean([large] * count) == large
    assert mean([-large] * count) == -large
    assert mean([large, -large] * count) == 0.0
    assert mean([large, large / 2] * count) == pytest.approx(0.75 * large)
    store = SeriesStore()
    store.extend("train.x", (), 1, 0, range(count), [large] * count)
    running = Running(next(store.raw()))
    store.join()
    running.update()
    assert running.mean() == large
