"""Reads a line as others would: a strict JSON parser, then OpenTelemetry's own protobuf definitions."""

from __future__ import annotations

import base64
import json
import re
from typing import Any

from google.protobuf import json_format
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

_REQUESTS = {
    "resourceMetrics": ExportMetricsServiceRequest,
    "resourceLogs": ExportLogsServiceRequest,
    "resourceSpans": ExportTraceServiceRequest,
}
_ID_DIGITS = {"traceId": 32, "spanId": 16, "parentSpanId": 16}


def strict(line: bytes) -> dict[str, Any]:
    """Parse one line as RFC 8259 demands, without the bare NaN that Python lets through; no null anywhere."""
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    document = json.loads(line.decode("utf-8"), parse_constant=_refuse)
    _no_null(document)
    return document


def message(line: bytes) -> Any:
    """Return the protobuf message of a line, its ids checked as hex of the right length before."""
    document = strict(line)
    (kind,) = document
    _hex_to_base64(document)
    return json_format.ParseDict(document, _REQUESTS[kind]())


def _refuse(name: str) -> float:
    raise AssertionError(f"bare {name}")


def _no_null(value: Any) -> None:
    assert value is not None
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _no_null(item)


def _hex_to_base64(value: Any) -> None:
    """json_format takes hex for base64 and makes other bytes of it without an error."""
    if isinstance(value, list):
        for item in value:
            _hex_to_base64(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            if key in _ID_DIGITS:
                assert re.fullmatch(rf"[0-9a-f]{{{_ID_DIGITS[key]}}}", item), (key, item)
                value[key] = base64.b64encode(bytes.fromhex(item)).decode()
            else:
                _hex_to_base64(item)
