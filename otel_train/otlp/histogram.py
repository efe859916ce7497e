"""Counts values in exponential buckets that widen by themselves, as OpenTelemetry's exponential histograms do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import frexp, isfinite, log2
from typing import Any

from otel_train.record.entries import SeriesAttributes
from otel_train.record.histogram_value import HistogramValue

MAX_BUCKETS = 160
MAX_SCALE = 20
MIN_SCALE = -10


@dataclass(frozen=True, slots=True, kw_only=True)
class Exemplar:
    """One recorded value and the span within which it was recorded; ids are integers, 0 where there is none."""

    time_ns: int
    value: float | int
    trace_id: int = 0
    span_id: int = 0
    attributes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class HistogramData:
    """One histogram point to be written: cumulative from `start_ns` to `time_ns`."""

    name: str
    unit: str
    description: str
    attributes: SeriesAttributes
    start_ns: int
    time_ns: int
    value: HistogramValue
    exemplars: tuple[Exemplar, ...] = ()


def bucket_index(magnitude: float, scale: int) -> int:
    """Return the bucket of a positive finite number; upper bounds belong to their bucket."""
    mantissa, exponent = frexp(magnitude)
    # magnitude = mantissa * 2^exponent with mantissa in [0.5, 1): a power of two is the upper bound of its bucket.
    if mantissa == 0.5:
        whole = exponent - 1
        return (whole << scale) - 1 if scale > 0 else (whole - 1) >> -scale
    if scale <= 0:
        return (exponent - 1) >> -scale
    # Of the mantissa alone, so that digits are not lost to a large exponent; the index lies within its octave.
    index = int(log2(mantissa * 2.0) * (1 << scale))
    return ((exponent - 1) << scale) + min(index, (1 << scale) - 1)


class ExponentialHistogram:
    """Aggregates numbers; for one thread. At most 160 buckets a sign: when a value lies beyond, neighbours merge."""

    def __init__(self, *, max_buckets: int = MAX_BUCKETS, max_exemplars: int = 10) -> None:
        self._max_buckets = max_buckets
        self._max_exemplars = max_exemplars
        self._scale = MAX_SCALE
        self._positive: dict[int, int] = {}
        self._negative: dict[int, int] = {}
        self._zero_count = 0
        self._sum = 0.0
        self._min: float | None = None
        self._max: float | None = None
        self._exemplars: list[Exemplar] = []
        self.count = 0
        self.nonfinite = 0

    def record(self, value: float, exemplar: Exemplar | None = None) -> None:
        """Count one value; one that is not finite has no bucket and is counted in `nonfinite` only."""
        if not isfinite(value):
            self.nonfinite += 1
            return
        value = float(value)
        self.count += 1
        self._sum += value
        if self._min is None or value < self._min:
            self._min = value
        if self._max is None or value > self._max:
            self._max = value
        if value == 0.0:
            self._zero_count += 1
        else:
            buckets = self._positive if value > 0 else self._negative
            index = bucket_index(abs(value), self._scale)
            if index in buckets:
                buckets[index] += 1
            else:
                self._insert(index, positive=value > 0)
        if exemplar is not None:
            self._keep(exemplar)

    def snapshot(self) -> tuple[HistogramValue, tuple[Exemplar, ...]]:
        """Return the state so far and the exemplars since the last snapshot."""
        exemplars, self._exemplars = tuple(self._exemplars), []
        positive_offset, positive = _dense(self._positive)
        negative_offset, negative = _dense(self._negative)
        value = HistogramValue(
            count=self.count,
            sum=self._sum,
            min=self._min,
            max=self._max,
            scale=self._scale,
            zero_count=self._zero_count,
            positive_offset=positive_offset,
            positive_counts=positive,
            negative_offset=negative_offset,
            negative_counts=negative,
        )
        return value, exemplars

    def _insert(self, index: int, *, positive: bool) -> None:
        """Add a bucket; where it would be one too many, first halve the resolution until it fits."""
        buckets = self._positive if positive else self._negative
        low = min(min(buckets, default=index), index)
        high = max(max(buckets, default=index), index)
        steps = 0
        while (high >> steps) - (low >> steps) >= self._max_buckets and self._scale - steps > MIN_SCALE:
            steps += 1
        if steps:
            self._scale -= steps
            self._positive = _merged(self._positive, steps)
            self._negative = _merged(self._negative, steps)
            buckets = self._positive if positive else self._negative
        index >>= steps
        buckets[index] = buckets.get(index, 0) + 1

    def _keep(self, exemplar: Exemplar) -> None:
        # The largest values are those that somebody will want to look into.
        if len(self._exemplars) < self._max_exemplars:
            self._exemplars.append(exemplar)
            return
        smallest = min(range(len(self._exemplars)), key=lambda i: self._exemplars[i].value)
        if exemplar.value > self._exemplars[smallest].value:
            self._exemplars[smallest] = exemplar


def _merged(buckets: dict[int, int], steps: int) -> dict[int, int]:
    merged: dict[int, int] = {}
    for index, count in buckets.items():
        merged[index >> steps] = merged.get(index >> steps, 0) + count
    return merged


def _dense(buckets: dict[int, int]) -> tuple[int, tuple[int, ...]]:
    if not buckets:
        return 0, ()
    low, high = min(buckets), max(buckets)
    return low, tuple(buckets.get(index, 0) for index in range(low, high + 1))
