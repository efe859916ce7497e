"""Makes the small requests that the tests of the Collector send."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from typing import Any

from otel_train.otlp.encode import LineEncoder
from otel_train.record.entries import Column, LogEntry, SpanEntry
from tests.stack.asking import post_json

# Lately: what is older than its window, Prometheus does not take.
START_NS = (int(time.time()) - 600) * 1_000_000_000


def encoder(run_id: str, **resource: Any) -> LineEncoder:
    """Return an encoder for one rank of a run."""
    return LineEncoder(
        {"service.name": "drill", "service.instance.id": f"{run_id}-0", "run_id": run_id, **resource}, "0.1.0"
    )


def gauge(run_id: str, numbers: Iterable[int], name: str = "train.loss", start_ns: int = START_NS) -> bytes:
    """Return a request with one point for each number: its value, and its place in time by milliseconds."""
    found = list(numbers)
    times = [start_ns + number * 1_000_000 for number in found]
    return encoder(run_id).points([Column(name, times, [float(number) for number in found], (("split", "train"),))])


def records(run_id: str, texts: Iterable[str], **attributes: Any) -> bytes:
    """Return a request with log records of these texts."""
    entries = [
        LogEntry(
            time_ns=START_NS + number, severity_number=9, severity_text="INFO", body=text, attributes=dict(attributes)
        )
        for number, text in enumerate(texts)
    ]
    return encoder(run_id).logs(entries)


def spans(run_id: str, rows: Iterable[tuple[str, Mapping[str, Any]]]) -> bytes:
    """Return a request with spans of a second each: name and attributes."""
    entries = [
        SpanEntry(
            name=name,
            trace_id=1 + number,
            span_id=1 + number,
            start_ns=START_NS,
            end_ns=START_NS + 1_000_000_000,
            attributes=dict(attributes),
        )
        for number, (name, attributes) in enumerate(rows)
    ]
    return encoder(run_id).spans(entries)


def send(url: str, signal: str, body: bytes | Mapping[str, Any], **headers: str) -> tuple[int, bytes]:
    """Post a request to an OTLP address; the status and body of the answer."""
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    return post_json(f"{url}/v1/{signal}", text, **headers)
