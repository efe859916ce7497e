"""Says to which run a log record belongs, and with which attributes and ids: resolved for each record by its thread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from otel_train.record.entries import AttributeValue, LogEntry, Sample, Sink, SpanEntry
from otel_train.sources.log_entry import level_number, severity_of


@dataclass(slots=True)
class LogContext:
    """Where a record of this thread goes now, and what it carries.

    Runs are told apart by the identity of their `sink`: one object for each run.
    """

    sink: Sink
    attributes: Mapping[str, AttributeValue] = field(default_factory=dict)
    trace_id: int = 0
    span_id: int = 0


class LevelSink:
    """Passes on log entries at or above a level; samples and spans as they are."""

    def __init__(self, sink: Sink, level: str | int) -> None:
        self._sink = sink
        self._severity_number = severity_of(level_number(level))

    def emit_log(self, entry: LogEntry) -> None:
        """Take one log record; below the level it is left out."""
        if entry.severity_number >= self._severity_number:
            self._sink.emit_log(entry)

    def emit_span(self, entry: SpanEntry) -> None:
        """Take one finished span."""
        self._sink.emit_span(entry)

    def emit_samples(self, time_ns: int, samples: Sequence[Sample]) -> None:
        """Take readings made at one wall time."""
        self._sink.emit_samples(time_ns, samples)
