"""Turns readings that have arrived into counters, histograms and events of the run log; keeps their totals alive."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from otel_train.otlp.histogram import HistogramData
from otel_train.record.entries import AttributeValue, Sample, SeriesAttributes
from otel_train.record.readings import Arrived, Distribution
from otel_train.semconv import EPOCH, EVENTS, METRICS, STEP

if TYPE_CHECKING:
    from otel_train.runlog.run_lines import RunLines


class OwnReadings:
    """For the writer's thread alone; the points of readings are columns, and were written before."""

    def __init__(self, start_ns: int) -> None:
        self._start_ns = start_ns
        self._counters: dict[tuple[str, SeriesAttributes], Sample] = {}

    def write(self, arrived: Arrived, lines: RunLines, emit: Callable[..., None]) -> None:
        """Write counters and histograms, and emit the events; each says the step it belongs to."""
        read = arrived.read
        if read.counters:
            self._counters.update({(sample.name, sample.attributes): sample for sample in read.counters})
            lines.readings(arrived.time_ns, read.counters, self._start_ns)
        if read.distributions:
            lines.histograms([self._histogram(one, arrived.time_ns) for one in read.distributions])
        place: dict[str, AttributeValue] = {STEP: arrived.step}
        if arrived.epoch is not None:
            place[EPOCH] = arrived.epoch
        for one in read.occurrences:
            severity = one.severity or EVENTS[one.event].severity
            emit(one.event, one.body, {**place, **one.attributes}, severity=severity, time_ns=arrived.time_ns)

    def heartbeat(self) -> list[Sample]:
        """Return all totals again, though unchanged: stores forget a series that is silent for some minutes."""
        return list(self._counters.values())

    def _histogram(self, one: Distribution, time_ns: int) -> HistogramData:
        metric = METRICS[one.name]
        return HistogramData(
            name=one.name,
            unit=metric.unit,
            description=metric.description,
            attributes=one.attributes,
            start_ns=self._start_ns,
            time_ns=time_ns,
            value=one.value,
        )
