"""Takes spans and log records as OpenTelemetry's SDK hands them to its exporters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from otel_train.record.entries import (
    SPAN_FLAGS_LOCAL,
    SPAN_FLAGS_REMOTE,
    Attributes,
    LogEntry,
    SpanEntry,
    SpanEvent,
    SpanLink,
)
from otel_train.semconv import SCOPE_NAME

if TYPE_CHECKING:
    # Each part of the SDK takes a tenth of a second to import, and not every run uses each.
    from opentelemetry.sdk._logs import ReadableLogRecord, ReadWriteLogRecord
    from opentelemetry.sdk.metrics.export import MetricsData
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope
    from opentelemetry.trace import SpanContext

# OTLP numbers the kinds of spans from 1 (internal), the API from 0.
_KIND_OFFSET = 1


def span_entry(span: ReadableSpan) -> SpanEntry:
    """Return a finished span of the SDK as an entry; one that has not ended ends where it starts."""
    context = span.get_span_context()
    start_ns = span.start_time or 0
    name, version = _scope(span.instrumentation_scope)
    return SpanEntry(
        name=span.name,
        trace_id=context.trace_id if context else 0,
        span_id=context.span_id if context else 0,
        parent_span_id=span.parent.span_id if span.parent else 0,
        start_ns=start_ns,
        end_ns=span.end_time or start_ns,
        kind=span.kind.value + _KIND_OFFSET,
        attributes=_attributes(span.attributes),
        events=[
            SpanEvent(
                time_ns=event.timestamp,
                name=event.name,
                attributes=_attributes(event.attributes),
                dropped_attributes=event.dropped_attributes,
            )
            for event in span.events
        ],
        links=[
            SpanLink(
                trace_id=link.context.trace_id,
                span_id=link.context.span_id,
                attributes=_attributes(link.attributes),
                dropped_attributes=link.dropped_attributes,
                flags=_flags(link.context),
            )
            for link in span.links
        ],
        status_code=span.status.status_code.value,
        status_message=span.status.description or "",
        scope=name,
        scope_version=version,
        trace_state=",".join(f"{key}={value}" for key, value in context.trace_state.items()) if context else "",
        flags=_flags(span.parent),
        dropped_attributes=span.dropped_attributes,
        dropped_events=span.dropped_events,
        dropped_links=span.dropped_links,
    )


def log_entry(record: ReadableLogRecord | ReadWriteLogRecord) -> LogEntry:
    """Return a log record of the SDK as an entry; without a time of its own it has that of its observation."""
    log = record.log_record
    name, version = _scope(record.instrumentation_scope)
    body: Any = log.body
    return LogEntry(
        time_ns=log.timestamp or log.observed_timestamp or 0,
        observed_time_ns=log.observed_timestamp or 0,
        severity_number=log.severity_number.value if log.severity_number else 0,
        severity_text=log.severity_text or "",
        body="" if body is None else body,
        attributes=_attributes(log.attributes),
        event_name=log.event_name or "",
        trace_id=log.trace_id or 0,
        span_id=log.span_id or 0,
        flags=int(log.trace_flags or 0),
        dropped_attributes=record.dropped_attributes,
        scope=name,
        scope_version=version,
    )


def metrics_line(data: MetricsData, resource: Attributes | None = None) -> bytes:
    """Encode metrics of any type of the SDK as one line; `resource` stands in for the provider's own where given."""
    from otel_train.otlp import from_sdk_metrics

    return from_sdk_metrics.metrics_line(data, resource)


def _scope(scope: InstrumentationScope | None) -> tuple[str, str]:
    if scope is None or scope.name == SCOPE_NAME:
        return "", ""
    return scope.name, scope.version or ""


def _attributes(attributes: Mapping[str, Any] | None) -> dict[str, Any]:
    return dict(attributes) if attributes else {}


def _flags(parent: SpanContext | None) -> int:
    return SPAN_FLAGS_REMOTE if parent is not None and parent.is_remote else SPAN_FLAGS_LOCAL
