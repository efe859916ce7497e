"""Holds what a histogram counted: plain data that is made anywhere and written by `otlp`."""

from __future__ import annotations

from dataclasses import dataclass
from math import ldexp


@dataclass(frozen=True, slots=True, kw_only=True)
class HistogramValue:
    """A histogram's state: exponential where `scale` is set, by `bounds` otherwise; a summary has `quantiles`.

    Bucket i of an exponential histogram holds values above base^(offset+i) up to base^(offset+i+1), where base is
    2^(2^-scale); negative values are counted by their absolute value. `bucket_counts` has one more entry than `bounds`.
    """

    count: int
    sum: float
    min: float | None = None
    max: float | None = None
    scale: int | None = None
    zero_count: int = 0
    positive_offset: int = 0
    positive_counts: tuple[int, ...] = ()
    negative_offset: int = 0
    negative_counts: tuple[int, ...] = ()
    bounds: tuple[float, ...] = ()
    bucket_counts: tuple[int, ...] = ()
    quantiles: tuple[tuple[float, float], ...] = ()

    def buckets(self) -> list[tuple[float, float, int]]:
        """Return (lower, upper, count) of every bucket that is not empty, in rising order; upper bounds inclusive."""
        if self.scale is None:
            edges = (float("-inf"), *self.bounds, float("inf"))
            return [(edges[i], edges[i + 1], n) for i, n in enumerate(self.bucket_counts) if n]
        rows: list[tuple[float, float, int]] = []
        for i in range(len(self.negative_counts) - 1, -1, -1):
            if self.negative_counts[i]:
                index = self.negative_offset + i
                upper, lower = lower_bound(index, self.scale), lower_bound(index + 1, self.scale)
                rows.append((-lower, -upper, self.negative_counts[i]))
        if self.zero_count:
            rows.append((0.0, 0.0, self.zero_count))
        for i, count in enumerate(self.positive_counts):
            if count:
                index = self.positive_offset + i
                rows.append((lower_bound(index, self.scale), lower_bound(index + 1, self.scale), count))
        return rows


def lower_bound(index: int, scale: int) -> float:
    """Return the exclusive lower bound of a bucket, base^index; infinity beyond the largest double."""
    try:
        if scale <= 0:
            return ldexp(1.0, index << -scale)
        whole, part = divmod(index, 1 << scale)
        return ldexp(2.0 ** (part / (1 << scale)), whole)
    except OverflowError:
        return float("inf")
