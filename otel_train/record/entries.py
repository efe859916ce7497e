"""The records that every source hands over: log entries, finished spans, samples and columns of points.

They are plain data. `otlp` writes them as OTLP JSON and reads them back as the same classes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias, Union

Scalar: TypeAlias = str | bool | int | float | bytes
# None never reaches the wire: a null value makes an OTLP server refuse the whole request.
AttributeValue: TypeAlias = Union[Scalar, "Sequence[AttributeValue]", "Mapping[str, AttributeValue]"]
Attributes: TypeAlias = Mapping[str, AttributeValue]
# Attributes of a series, hashable and in a fixed order.
SeriesAttributes: TypeAlias = tuple[tuple[str, Scalar], ...]
# OTLP's span flags: "it is known whether the parent is remote", and "it is remote".
SPAN_FLAGS_LOCAL = 0x100
SPAN_FLAGS_REMOTE = 0x300


@dataclass(slots=True, kw_only=True)
class LogEntry:
    """One log record or event. Times are nanoseconds since the Unix epoch; ids are integers, 0 where there is none."""

    time_ns: int
    severity_number: int
    severity_text: str
    body: AttributeValue
    attributes: Attributes = field(default_factory=dict)
    event_name: str = ""
    observed_time_ns: int = 0
    trace_id: int = 0
    span_id: int = 0
    flags: int = 0
    dropped_attributes: int = 0
    scope: str = ""
    scope_version: str = ""


@dataclass(slots=True, kw_only=True)
class SpanEvent:
    """Something that happened within a span at one moment."""

    time_ns: int
    name: str
    attributes: Attributes = field(default_factory=dict)
    dropped_attributes: int = 0


@dataclass(slots=True, kw_only=True)
class SpanLink:
    """A pointer to a span of another trace."""

    trace_id: int
    span_id: int
    attributes: Attributes = field(default_factory=dict)
    dropped_attributes: int = 0
    flags: int = SPAN_FLAGS_LOCAL


@dataclass(slots=True, kw_only=True)
class SpanEntry:
    """One finished span. `kind` is OTLP's number (1 is internal); `status_code` is 0 unset, 1 ok, 2 error."""

    name: str
    trace_id: int
    span_id: int
    start_ns: int
    end_ns: int
    parent_span_id: int = 0
    kind: int = 1
    attributes: Attributes = field(default_factory=dict)
    events: Sequence[SpanEvent] = ()
    links: Sequence[SpanLink] = ()
    status_code: int = 0
    status_message: str = ""
    scope: str = ""
    scope_version: str = ""
    trace_state: str = ""
    flags: int = SPAN_FLAGS_LOCAL
    dropped_attributes: int = 0
    dropped_events: int = 0
    dropped_links: int = 0


@dataclass(slots=True)
class Sample:
    """One value of one metric that `semconv.METRICS` names, at the moment when it was read."""

    name: str
    value: float | int
    attributes: SeriesAttributes = ()


@dataclass(slots=True)
class Column:
    """Points of one gauge series, in order: as many `times_ns` as `values`; non-finite values are data.

    `narrow` says of all values what `Float32` says of one: they came from 32-bit floats.
    """

    name: str
    times_ns: Sequence[int]
    values: Sequence[float | int]
    attributes: SeriesAttributes = ()
    unit: str = ""
    description: str = ""
    narrow: bool = False


class Sink(Protocol):
    """Where sources put what they have; never raises, never blocks on a disk."""

    def emit_log(self, entry: LogEntry) -> None:
        """Take one log record."""
        ...

    def emit_span(self, entry: SpanEntry) -> None:
        """Take one finished span."""
        ...

    def emit_samples(self, time_ns: int, samples: Sequence[Sample]) -> None:
        """Take readings made at one wall time."""
        ...
