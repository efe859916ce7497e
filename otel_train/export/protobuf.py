"""Turns parts of run log lines into protobuf requests, and reads the protobuf answers of servers.

Written against the official definitions (package opentelemetry-proto, of the extra `otlp`), but not with
`google.protobuf.json_format`: that takes OTLP's hex ids for base64 and makes other bytes of them without an error.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError
from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from otel_train.export.http_json import json_body
from otel_train.export.protobuf_points import FIFTH, FIRST, SECOND, TAKEN, THIRD, framed, take_points

REQUESTS: Mapping[str, Any] = {
    "metrics": metrics_service_pb2.ExportMetricsServiceRequest,
    "logs": logs_service_pb2.ExportLogsServiceRequest,
    "traces": trace_service_pb2.ExportTraceServiceRequest,
}
RESPONSES: Mapping[str, Any] = {
    "metrics": metrics_service_pb2.ExportMetricsServiceResponse,
    "logs": logs_service_pb2.ExportLogsServiceResponse,
    "traces": trace_service_pb2.ExportTraceServiceResponse,
}
_REJECTED = {"metrics": "rejected_data_points", "logs": "rejected_log_records", "traces": "rejected_spans"}
_IDS = frozenset({"traceId", "spanId", "parentSpanId"})


def protobuf_body(signal: str, parts: Sequence[bytes]) -> bytes:
    """Return the request that holds these parts; ValueError where one of them is not OTLP."""
    body = json_body(signal, parts)
    try:
        if signal == "metrics":
            text, points = take_points(body, _attribute)
            blocks = json.loads(text)["resourceMetrics"]
            return b"".join(framed(FIRST, _metrics_block(block, points)) for block in blocks)
        document = json.loads(body)
        request = REQUESTS[signal]()
        _fill(request, document)
        serialized: bytes = request.SerializeToString()
    except (TypeError, AttributeError, LookupError, RecursionError, OverflowError) as fault:
        raise ValueError(f"no OTLP: {fault}") from None
    return serialized


def read_partial_success(signal: str, body: bytes) -> tuple[int, str]:
    """Return how many items a success left out, and why."""
    try:
        partial = RESPONSES[signal].FromString(body).partial_success
    except DecodeError:
        return 0, ""
    return getattr(partial, _REJECTED[signal]), partial.error_message


def read_status_message(body: bytes) -> str:
    """Return the message of a google.rpc.Status."""
    try:
        return str(Status.FromString(body).message)
    except DecodeError:
        return ""


def _metrics_block(block: dict[str, Any], points: Sequence[bytes]) -> bytes:
    encoded = _message(FIRST, Resource, block.get("resource"))
    for scope in block.get("scopeMetrics", ()):
        within = _message(FIRST, InstrumentationScope, scope.get("scope"))
        within += [framed(SECOND, _metric(metric, points)) for metric in scope.get("metrics", ())]
        within += [framed(THIRD, _text(url)) for url in (scope.get("schemaUrl"),) if url]
        encoded.append(framed(SECOND, b"".join(within)))
    encoded += [framed(THIRD, _text(url)) for url in (block.get("schemaUrl"),) if url]
    return b"".join(encoded)


def _message(tag: bytes, kind: Any, document: Any) -> list[bytes]:
    if document is None:
        return []
    message = kind()
    _fill(message, document)
    return [framed(tag, message.SerializeToString())]


def _metric(metric: dict[str, Any], points: Sequence[bytes]) -> bytes:
    place = metric.get("gauge", {}).pop(TAKEN, None)
    message = Metric()
    _fill(message, metric)
    head: bytes = message.SerializeToString()
    # Parts of one field that come one after the other are one message to every reader of protobuf.
    return head if place is None else head + framed(FIFTH, points[place])


def _attribute(pair: dict[str, Any]) -> bytes:
    message = KeyValue()
    _fill(message, pair)
    return message.SerializeToString()


def _text(value: Any) -> bytes:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value.encode("utf-8", "replace")


def _fill(message: Any, document: Mapping[str, Any]) -> None:
    """Set the fields of a message that a document names; unknown ones and null are passed over, as OTLP asks."""
    fields = _fields(message.DESCRIPTOR)
    for key, value in document.items():
        field = fields.get(key)
        if field is None or value is None:
            continue
        name, convert, repeated = field
        if convert is None:
            target = getattr(message, name)
            if repeated:
                for item in value:
                    _fill(target.add(), item)
            else:
                target.SetInParent()
                _fill(target, value)
        elif repeated:
            getattr(message, name).extend(map(convert, value))
        else:
            setattr(message, name, convert(value))


@cache
def _fields(descriptor: Descriptor) -> dict[str, tuple[str, Callable[[Any], Any] | None, bool]]:
    """Return by JSON name each field's own name, its conversion (None for a message), and whether it is repeated."""
    return {field.json_name: (field.name, _conversion(field), field.is_repeated) for field in descriptor.fields}


def _conversion(field: FieldDescriptor) -> Callable[[Any], Any] | None:
    if field.type == FieldDescriptor.TYPE_MESSAGE:
        return None
    if field.enum_type is not None:
        names = {value.name: value.number for value in field.enum_type.values}
        return lambda value: names[value] if value in names else _integer(value)
    if field.type == FieldDescriptor.TYPE_BYTES:
        return bytes.fromhex if field.json_name in _IDS else b64decode
    if field.type == FieldDescriptor.TYPE_STRING:
        return _string
    if field.type == FieldDescriptor.TYPE_BOOL:
        return bool
    return float if field.type in (FieldDescriptor.TYPE_DOUBLE, FieldDescriptor.TYPE_FLOAT) else _integer


def _string(value: Any) -> str:
    """Return a text; what no UTF-8 can hold (a lone surrogate) becomes a question mark."""
    return _text(value).decode()


def _integer(value: Any) -> int:
    """Read a 64-bit integer, a string or a number, exactly."""
    number = int(value)
    if isinstance(value, float) and number != value:
        raise ValueError(f"{value!r} is no integer")
    return number
