"""Turns readings that have arrived into counters, histograms and events of the run log; keeps their totals alive."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from otel_train.otlp.histogram import HistogramData
from otel_train.record.entries import AttributeValue, Sample, SeriesAttributes
from otel_train.record.readings import Arrived, Distribution
from otel_train.semconv import EPOCH, EVENTS, METRICS, STEP


class OwnReadings:
    """For the writer's thread alone; the points of readings are columns, and were written before."""

    def __init__(self, start_ns: int) -> None:
        self._start_ns = start_ns
        self._counters: dict[tuple[str, SeriesAttributes], Sample] = {}

    def counters(self, arrived: Arrived) -> Sequence[Sample]:
        """Return the totals to be written, and remember them."""
        for sample in arrived.read.counters:
            self._counters[sample.name, sample.attributes] = sample
        return arrived.read.counters

    def heartbeat(self) -> list[Sample]:
        """Return all totals again, though unchanged: stores forget a series that is silent for some minutes."""
        return list(self._counters.values())

    def histograms(self, arrived: Arrived) -> list[HistogramData]:
        """Return the distributions as they are written."""
        return [self._histogram(one, arrived.time_ns) for one in arrived.read.distributions]

    def occurrences(self, arrived: Arrived, emit: Callable[..., None]) -> None:
        """Emit the events; each says the step it belongs to."""
        for one in arrived.read.occurrences:
            place: dict[str, AttributeValue] = {STEP: arrived.step}
            if arrived.epoch is not None:
                place[EPOCH] = arrived.epoch
            severity = one.severity or EVENTS[one.event].severity
            emit(one.event, one.body, {**place, **one.attributes}, severity=severity, time_ns=arrived.time_ns)

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
