"""Says how to see every metric that is written, as it is written: for who shows present values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from opentelemetry.sdk.metrics.export import MetricsData

from otel_train.otlp.histogram import HistogramData
from otel_train.record.entries import Column, Sample


class MetricTap(Protocol):
    """Called on the recorder's thread before a line is written; must be quick. What it raises is said, not spread."""

    def points(self, block: Sequence[Column]) -> None:
        """See points of the user and of steps."""
        ...

    def readings(self, time_ns: int, samples: Sequence[Sample] | MetricsData) -> None:
        """See readings made at one time."""
        ...

    def histograms(self, histograms: Sequence[HistogramData]) -> None:
        """See histograms."""
        ...
