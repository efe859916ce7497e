"""Stands in for a store behind the Collector: takes or refuses OTLP by HTTP and tells what it took, item by item."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.otlp_servers import HttpServer, Reply

# RESOURCE_EXHAUSTED over HTTP, without a hint when to come again.
EXHAUSTED = 429
_REQUESTS: dict[str, Any] = {
    "metrics": ExportMetricsServiceRequest,
    "logs": ExportLogsServiceRequest,
    "traces": ExportTraceServiceRequest,
}


class FakeStore(HttpServer):
    """Refuses as many requests as it is told, then takes all."""

    def __init__(self, *refusals: int, port: int = 0) -> None:
        super().__init__(*(Reply(status) for status in refusals), port=port)

    @property
    def url(self) -> str:
        """Its base address; signals are below /v1."""
        return f"http://127.0.0.1:{self.port}"

    def requests(self, signal: str) -> list[Any]:
        """Every request of a signal that it took, as protobuf objects, in the order of arrival."""
        return [
            _REQUESTS[signal].FromString(posted.body)
            for posted in list(self.accepted)
            if posted.path.endswith(f"/v1/{signal}")
        ]

    def metrics(self) -> Iterator[tuple[dict[str, Any], Any]]:
        """Yield resource and metric of all that it took."""
        for request in self.requests("metrics"):
            for block in request.resource_metrics:
                resource = attributes(block.resource.attributes)
                for scope in block.scope_metrics:
                    for metric in scope.metrics:
                        yield resource, metric

    def values(self, name: str) -> Counter[float]:
        """How often each value of a gauge arrived."""
        return Counter(
            point.as_double for _, metric in self.metrics() if metric.name == name for point in metric.gauge.data_points
        )

    def records(self) -> Iterator[tuple[dict[str, Any], Any]]:
        """Yield resource and log record of all that it took."""
        for request in self.requests("logs"):
            for block in request.resource_logs:
                resource = attributes(block.resource.attributes)
                for scope in block.scope_logs:
                    for record in scope.log_records:
                        yield resource, record

    def spans(self) -> Iterator[tuple[dict[str, Any], Any]]:
        """Yield resource and span of all that it took."""
        for request in self.requests("traces"):
            for block in request.resource_spans:
                resource = attributes(block.resource.attributes)
                for scope in block.scope_spans:
                    for span in scope.spans:
                        yield resource, span


def value_of(value: Any) -> Any:
    """Return an attribute's value as Python has it."""
    kind = value.WhichOneof("value")
    if kind == "kvlist_value":
        return attributes(value.kvlist_value.values)
    if kind == "array_value":
        return [value_of(member) for member in value.array_value.values]
    return getattr(value, kind) if kind else None


def attributes(pairs: Any) -> dict[str, Any]:
    """Return attributes as a dictionary."""
    return {pair.key: value_of(pair.value) for pair in pairs}
