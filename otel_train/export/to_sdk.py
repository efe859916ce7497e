"""Builds the SDK's data classes from what a line holds, so that official exporters carry every recorded item as it is.

The SDK's own instruments would take NaN out and give points their own times: here they are made by hand.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from struct import unpack
from typing import Any, Final

from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.attributes import BoundedAttributes
from opentelemetry.context import Context
from opentelemetry.sdk._logs import ReadableLogRecord
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    TraceState,
    set_span_in_context,
)

from otel_train import __version__
from otel_train.record.entries import SPAN_FLAGS_REMOTE, AttributeValue, LogEntry, SpanEntry
from otel_train.semconv import SCOPE_NAME

# Prometheus' own mark of a series that has ended: the SDK's number points have no flag "no recorded value".
STALE: Final[float] = unpack("<d", (0x7FF0000000000002).to_bytes(8, "little"))[0]
_SAMPLED: Final = TraceFlags(TraceFlags.SAMPLED)
# OTLP numbers the kinds of spans from 1 (internal), the API from 0.
_KINDS: Final = {kind.value + 1: kind for kind in SpanKind}
_SEVERITIES: Final = {number.value: number for number in SeverityNumber}


class Resources:
    """Gives equal resources one object, which the exporters group by. For one thread."""

    def __init__(self) -> None:
        self._known: dict[str, Resource] = {}

    def __call__(self, attributes: Mapping[str, AttributeValue]) -> Resource:
        """Return the SDK's resource of these attributes."""
        key = repr(attributes)
        found = self._known.get(key)
        if found is None:
            if len(self._known) > 100:
                self._known.clear()
            found = self._known[key] = Resource(attributes)
        return found


@lru_cache(maxsize=256)
def scope_of(name: str, version: str) -> InstrumentationScope:
    """Return the SDK's scope; without a name it is ours."""
    return InstrumentationScope(name, version) if name else InstrumentationScope(SCOPE_NAME, __version__)


def log_record(entry: LogEntry, resource: Resource) -> ReadableLogRecord:
    """Return a log record as the SDK's log exporters take it."""
    # A context that is not empty: an empty one would be taken for none, and the thread's present one for it.
    span = NonRecordingSpan(SpanContext(entry.trace_id, entry.span_id, False, TraceFlags(entry.flags & 0xFF)))
    record = LogRecord(
        timestamp=entry.time_ns,
        observed_timestamp=entry.observed_time_ns,
        context=set_span_in_context(span, Context()),
        severity_text=entry.severity_text or None,
        severity_number=_SEVERITIES.get(entry.severity_number),
        body=entry.body,
        attributes=_attributes(entry.attributes, entry.dropped_attributes),
        event_name=entry.event_name or None,
    )
    return ReadableLogRecord(record, resource, scope_of(entry.scope, entry.scope_version))


class _Span(ReadableSpan):
    """A finished span that says itself how much was dropped of it."""

    def __init__(self, entry: SpanEntry, **about: Any) -> None:
        super().__init__(entry.name, **about)
        self._dropped = (entry.dropped_attributes, entry.dropped_events, entry.dropped_links)

    @property
    def dropped_attributes(self) -> int:
        return self._dropped[0]

    @property
    def dropped_events(self) -> int:
        return self._dropped[1]

    @property
    def dropped_links(self) -> int:
        return self._dropped[2]


def span(entry: SpanEntry, resource: Resource) -> ReadableSpan:
    """Return a finished span as the SDK's span exporters take it."""
    state = TraceState.from_header([entry.trace_state]) if entry.trace_state else TraceState()
    remote = entry.flags & SPAN_FLAGS_REMOTE == SPAN_FLAGS_REMOTE
    parent = SpanContext(entry.trace_id, entry.parent_span_id, remote, _SAMPLED) if entry.parent_span_id else None
    status = StatusCode(entry.status_code) if entry.status_code in (0, 1, 2) else StatusCode.UNSET
    # The SDK warns of a description of anything but an error, and drops it.
    description = entry.status_message or None if status is StatusCode.ERROR else None
    return _Span(
        entry,
        context=SpanContext(entry.trace_id, entry.span_id, False, _SAMPLED, state),
        parent=parent,
        resource=resource,
        attributes=entry.attributes,
        events=[
            Event(event.name, _attributes(event.attributes, event.dropped_attributes), event.time_ns)
            for event in entry.events
        ],
        links=[
            Link(
                SpanContext(link.trace_id, link.span_id, link.flags & SPAN_FLAGS_REMOTE == SPAN_FLAGS_REMOTE, _SAMPLED),
                _attributes(link.attributes, link.dropped_attributes),
            )
            for link in entry.links
        ],
        kind=_KINDS.get(entry.kind, SpanKind.INTERNAL),
        status=Status(status, description),
        start_time=entry.start_ns,
        end_time=entry.end_ns,
        instrumentation_scope=scope_of(entry.scope, entry.scope_version),
    )


def _attributes(attributes: Mapping[str, AttributeValue], dropped: int) -> Any:
    """Return the attributes as they are; where some were dropped, in the SDK's class that can say so."""
    if not dropped:
        return attributes
    bounded = BoundedAttributes(attributes=attributes, immutable=False)
    bounded.dropped = dropped
    return bounded


def log_records(entries: Iterable[tuple[LogEntry, Mapping[str, AttributeValue]]], resources: Resources) -> list[Any]:
    """Return log records with their resources, for an exporter."""
    return [log_record(entry, resources(resource)) for entry, resource in entries]


def spans(entries: Sequence[tuple[SpanEntry, Mapping[str, AttributeValue]]], resources: Resources) -> list[Any]:
    """Return spans with their resources, for an exporter."""
    return [span(entry, resources(resource)) for entry, resource in entries]
