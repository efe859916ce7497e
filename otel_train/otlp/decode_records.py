"""Reads log records and spans out of one resource's block of a request."""

from __future__ import annotations

from typing import Any

from otel_train.otlp.decode_values import Damage, attributes, enum, identifier, integer, items, text, value
from otel_train.record.entries import LogEntry, SpanEntry, SpanEvent, SpanLink
from otel_train.semconv import EVENT_NAME, SCOPE_NAME


def _scope_of(scope: dict[str, Any], damage: Damage) -> tuple[str, str]:
    described = scope.get("scope")
    if not isinstance(described, dict):
        return "", ""
    name = text(described, "name", damage)
    return ("", "") if name == SCOPE_NAME else (name, text(described, "version", damage))


def read_logs(block: dict[str, Any], damage: Damage) -> list[LogEntry]:
    """Return the log records of one resource."""
    found = []
    for scope in items(block, "scopeLogs", damage):
        name, version = _scope_of(scope, damage)
        for record in items(scope, "logRecords", damage):
            pairs = attributes(record, damage)
            body = value(record["body"], damage) if record.get("body") else ""
            entry = LogEntry(
                time_ns=integer(record, "timeUnixNano", damage),
                observed_time_ns=integer(record, "observedTimeUnixNano", damage),
                severity_number=enum(record, "severityNumber", damage),
                severity_text=text(record, "severityText", damage),
                body="" if body is None else body,
                attributes=pairs,
                event_name=text(record, "eventName", damage) or str(pairs.get(EVENT_NAME, "")),
                trace_id=identifier(record, "traceId", 32, damage),
                span_id=identifier(record, "spanId", 16, damage),
                flags=integer(record, "flags", damage),
                dropped_attributes=integer(record, "droppedAttributesCount", damage),
                scope=name,
                scope_version=version,
            )
            found.append(entry)
    return found


def read_spans(block: dict[str, Any], damage: Damage) -> list[SpanEntry]:
    """Return the spans of one resource."""
    found = []
    for scope in items(block, "scopeSpans", damage):
        name, version = _scope_of(scope, damage)
        for span in items(scope, "spans", damage):
            found.append(_span(span, name, version, damage))
    return found


def _span(span: dict[str, Any], scope: str, scope_version: str, damage: Damage) -> SpanEntry:
    status = span.get("status")
    if not isinstance(status, dict):
        status = {}
    return SpanEntry(
        name=text(span, "name", damage),
        trace_id=identifier(span, "traceId", 32, damage),
        span_id=identifier(span, "spanId", 16, damage),
        parent_span_id=identifier(span, "parentSpanId", 16, damage),
        start_ns=integer(span, "startTimeUnixNano", damage),
        end_ns=integer(span, "endTimeUnixNano", damage),
        kind=enum(span, "kind", damage),
        attributes=attributes(span, damage),
        events=[
            SpanEvent(
                time_ns=integer(event, "timeUnixNano", damage),
                name=text(event, "name", damage),
                attributes=attributes(event, damage),
                dropped_attributes=integer(event, "droppedAttributesCount", damage),
            )
            for event in items(span, "events", damage)
        ],
        links=[
            SpanLink(
                trace_id=identifier(link, "traceId", 32, damage),
                span_id=identifier(link, "spanId", 16, damage),
                attributes=attributes(link, damage),
                dropped_attributes=integer(link, "droppedAttributesCount", damage),
                flags=integer(link, "flags", damage),
            )
            for link in items(span, "links", damage)
        ],
        status_code=enum(status, "code", damage),
        status_message=text(status, "message", damage),
        scope=scope,
        scope_version=scope_version,
        trace_state=text(span, "traceState", damage),
        flags=integer(span, "flags", damage),
        dropped_attributes=integer(span, "droppedAttributesCount", damage),
        dropped_events=integer(span, "droppedEventsCount", damage),
        dropped_links=integer(span, "droppedLinksCount", damage),
    )
