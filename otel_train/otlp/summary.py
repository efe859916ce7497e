"""Holds what the SDK's data classes have no word for: a summary, counted and added up by its producer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from otel_train.record.entries import SeriesAttributes


@dataclass(frozen=True, slots=True)
class SummaryPoint:
    """One summary, cumulative from start to time (nanoseconds since the Unix epoch); quantiles as (0 to 1, value)."""

    attributes: SeriesAttributes
    start_ns: int
    time_ns: int
    count: int
    sum: float
    quantiles: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Summary:
    """The data of a metric, beside the SDK's Gauge, Sum and Histogram."""

    data_points: Sequence[SummaryPoint]
