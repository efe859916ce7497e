"""The exponential histogram counts every value once, in a bucket that holds it."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.metrics.v1.metrics_pb2 import ExponentialHistogramDataPoint
from otlp_oracle import message

from otel_train.otlp.decode import decode_line
from otel_train.otlp.encode import LineEncoder
from otel_train.otlp.histogram import MAX_BUCKETS, Exemplar, ExponentialHistogram, HistogramData, bucket_index
from otel_train.record.histogram_value import HistogramValue, lower_bound

NUMBERS = st.floats(allow_nan=False, allow_infinity=False)


def recorded(values: list[float]) -> HistogramValue:
    histogram = ExponentialHistogram()
    for value in values:
        histogram.record(value)
    return histogram.snapshot()[0]


@given(st.lists(NUMBERS, max_size=60))
def test_every_value_is_counted_once_within_its_bucket(values: list[float]) -> None:
    """Count, zeros, extremes and both sides add up; each bucket holds as many as lie within its bounds."""
    value = recorded(values)
    assert value.count == len(values)
    assert value.zero_count == sum(v == 0 for v in values)
    assert sum(value.positive_counts) == sum(v > 0 for v in values)
    assert sum(value.negative_counts) == sum(v < 0 for v in values)
    assert len(value.positive_counts) <= MAX_BUCKETS
    assert len(value.negative_counts) <= MAX_BUCKETS
    assert (value.min, value.max) == (min(values, default=None), max(values, default=None))
    assert sum(count for _, _, count in value.buckets()) == len(values)
    edges = [(lower, upper) for lower, upper, _ in value.buckets()]
    assert edges == sorted(edges)


@given(st.floats(min_value=5e-324, allow_nan=False, allow_infinity=False), st.integers(-10, 20))
def test_a_bucket_holds_its_value(magnitude: float, scale: int) -> None:
    """Lower bound excluded, upper bound included, up to the rounding of the bounds themselves."""
    index = bucket_index(magnitude, scale)
    lower, upper = lower_bound(index, scale), lower_bound(index + 1, scale)
    assert lower <= magnitude * (1 + 1e-12) or magnitude < 1e-300
    assert magnitude <= upper * (1 + 1e-12) or magnitude < 1e-300


@pytest.mark.parametrize("scale", [-3, 0, 1, 3, 20])
@pytest.mark.parametrize("exponent", [-1000, -1, 0, 1, 10, 1023])
def test_powers_of_two_are_upper_bounds(scale: int, exponent: int) -> None:
    """2^n lies in the bucket that ends with it, never in the next one."""
    index = bucket_index(math.ldexp(1.0, exponent), scale)
    assert lower_bound(index, scale) < math.ldexp(1.0, exponent)
    if scale >= 0 or exponent % (1 << -scale) == 0:
        assert lower_bound(index + 1, scale) == math.ldexp(1.0, exponent)


def test_a_small_example_by_hand() -> None:
    """1, 2, 4 and 300 values between them: the scale falls until 160 buckets hold all, counts stay."""
    value = recorded([1.0, 2.0, 4.0])
    # Two octaves at scale 6 are 128 buckets and one, at scale 7 they would be 257.
    assert value.scale == 6
    assert (value.positive_offset, len(value.positive_counts)) == (-1, 129)
    assert [i for i, n in enumerate(value.positive_counts) if n] == [0, 64, 128]
    assert value.sum == 7.0


def test_non_finite_values_are_counted_apart() -> None:
    """They have no bucket, and the sum stays a number."""
    histogram = ExponentialHistogram()
    for value in (1.0, math.nan, math.inf, -math.inf):
        histogram.record(value)
    assert (histogram.count, histogram.nonfinite, histogram.snapshot()[0].sum) == (1, 3, 1.0)


def test_exemplars_are_the_largest_since_the_last_snapshot() -> None:
    """The slowest steps are what somebody looks for; a snapshot hands them over once."""
    histogram = ExponentialHistogram(max_exemplars=2)
    for number in (5, 1, 9, 3):
        histogram.record(number, Exemplar(time_ns=number, value=float(number), trace_id=1, span_id=number))
    value, exemplars = histogram.snapshot()
    assert sorted(exemplar.value for exemplar in exemplars) == [5.0, 9.0]
    assert value.count == 4
    assert histogram.snapshot() == (value, ())


def test_a_written_histogram_comes_back_and_is_otlp() -> None:
    """Negative, zero and positive values with exemplars: the protobuf message and the reader agree with the state."""
    histogram = ExponentialHistogram()
    for number in (-2.0, 0.0, 0.1, 0.2, 5.0):
        histogram.record(number, Exemplar(time_ns=3, value=number, trace_id=7, span_id=8, attributes={"step": 4}))
    value, exemplars = histogram.snapshot()
    data = HistogramData(
        name="dl.step.duration",
        unit="s",
        description="Steps",
        attributes=(("split", "train"),),
        start_ns=1,
        time_ns=2,
        value=value,
        exemplars=exemplars,
    )
    line = LineEncoder({"run_id": "r"}, "1").histograms([data])
    metric = message(line).resource_metrics[0].scope_metrics[0].metrics[0]
    assert (metric.name, metric.unit, metric.exponential_histogram.aggregation_temporality) == (
        "dl.step.duration",
        "s",
        2,
    )
    point: ExponentialHistogramDataPoint = metric.exponential_histogram.data_points[0]
    assert (point.count, point.zero_count, point.scale) == (5, 1, value.scale)
    assert tuple(point.positive.bucket_counts) == value.positive_counts
    assert tuple(point.negative.bucket_counts) == value.negative_counts
    assert [e.as_double for e in point.exemplars] == [-2.0, 0.0, 0.1, 0.2, 5.0]
    (found, _), *rest = decode_line(line).points()
    assert not rest
    assert (found.histogram, found.exemplars, found.start_ns, found.time_ns) == (value, exemplars, 1, 2)
    assert (found.kind, found.value, found.attributes) == ("histogram", None, (("split", "train"),))


def test_bounded_buckets_have_open_ends() -> None:
    """A histogram by bounds counts below the first and above the last."""
    value = HistogramValue(count=6, sum=1.0, bounds=(0.0, 1.0), bucket_counts=(1, 2, 3))
    assert value.buckets() == [(-math.inf, 0.0, 1), (0.0, 1.0, 2), (1.0, math.inf, 3)]
