"""OTLP receivers on loopback that decode protobuf with OpenTelemetry's own classes: over HTTP and over gRPC."""

from __future__ import annotations

import gzip
import math
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import grpc
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2 as logs_pb2
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2_grpc as logs_grpc
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as metrics_pb2
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2_grpc as metrics_grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as trace_pb2
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as trace_grpc
from otlp_servers import Certificates

# What Prometheus takes for the end of a series.
STALE_BITS = bytes.fromhex("020000000000f07f")
_REQUESTS = {
    "/v1/metrics": ("metrics", metrics_pb2.ExportMetricsServiceRequest, metrics_pb2.ExportMetricsServiceResponse),
    "/v1/logs": ("logs", logs_pb2.ExportLogsServiceRequest, logs_pb2.ExportLogsServiceResponse),
    "/v1/traces": ("traces", trace_pb2.ExportTraceServiceRequest, trace_pb2.ExportTraceServiceResponse),
}


@dataclass(frozen=True)
class Answer:
    """How a request is answered: an HTTP status or a gRPC code; what of it a partial success rejects."""

    status: int = 200
    code: grpc.StatusCode = grpc.StatusCode.OK
    text: str = ""
    rejected: int = 0


@dataclass(frozen=True)
class Arrived:
    """One data point as it arrived."""

    name: str
    unit: str
    kind: str
    attributes: dict[str, Any]
    resource: dict[str, Any]
    scope: str
    time_ns: int
    start_ns: int
    point: Any

    @property
    def value(self) -> Any:
        """The number of a number point; None where it is Prometheus' mark of the end."""
        if self.kind not in ("gauge", "sum"):
            return None
        return self.point.as_int if self.point.WhichOneof("value") == "as_int" else self.point.as_double

    @property
    def is_end(self) -> bool:
        """Whether it marks the end of its series: by its flag, or by the bits of its value."""
        if self.point.flags & 1:
            return True
        return self.kind in ("gauge", "sum") and STALE_BITS in self.point.SerializeToString()


def any_value(value: Any) -> Any:
    """An attribute's value as plain Python."""
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [any_value(item) for item in value.array_value.values]
    if kind == "kvlist_value":
        return {item.key: any_value(item.value) for item in value.kvlist_value.values}
    return None if kind is None else getattr(value, kind)


def attributes_of(holder: Any) -> dict[str, Any]:
    return {item.key: any_value(item.value) for item in holder.attributes}


class Received:
    """What a receiver has accepted. `answer` gets signal and request, and says how it is answered."""

    def __init__(self, answer: Callable[[str, Any], Answer] = lambda signal, request: Answer()) -> None:
        self.answer = answer
        self.requests: list[tuple[str, Any]] = []
        self.refused: list[tuple[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.lock = threading.Lock()

    def take(self, signal: str, request: Any, headers: dict[str, str]) -> Answer:
        answer = self.answer(signal, request)
        good = answer.status == 200 and answer.code is grpc.StatusCode.OK
        with self.lock:
            self.headers.append(headers)
            (self.requests if good else self.refused).append((signal, request))
        return answer

    def of(self, signal: str) -> list[Any]:
        with self.lock:
            return [request for name, request in self.requests if name == signal]

    def _points(self) -> Iterator[Arrived]:
        for request in self.of("metrics"):
            for block in request.resource_metrics:
                resource = attributes_of(block.resource)
                for scope in block.scope_metrics:
                    for metric in scope.metrics:
                        kind = metric.WhichOneof("data")
                        for point in getattr(metric, kind).data_points:
                            yield Arrived(
                                *(metric.name, metric.unit, kind, attributes_of(point), resource, scope.scope.name),
                                *(point.time_unix_nano, point.start_time_unix_nano, point),
                            )

    def points(self, name: str, *, ends: bool = False) -> list[Arrived]:
        """Points of one metric in the order of their arrival; its end marks instead where `ends`."""
        return [point for point in self._points() if point.name == name and point.is_end == ends]

    def values(self, name: str) -> list[Any]:
        return [point.value for point in self.points(name)]

    def names(self) -> set[str]:
        return {point.name for point in self._points()}

    def ends(self) -> list[Arrived]:
        return [point for point in self._points() if point.is_end]

    def logs(self) -> list[tuple[Any, dict[str, Any]]]:
        """Log records with the attributes of their resource."""
        return [
            (record, attributes_of(block.resource))
            for request in self.of("logs")
            for block in request.resource_logs
            for scope in block.scope_logs
            for record in scope.log_records
        ]

    def events(self, name: str) -> list[Any]:
        return [record for record, _ in self.logs() if record.event_name == name]

    def bodies(self) -> list[Any]:
        return [any_value(record.body) for record, _ in self.logs()]

    def spans(self) -> list[tuple[Any, dict[str, Any]]]:
        return [
            (span, attributes_of(block.resource))
            for request in self.of("traces")
            for block in request.resource_spans
            for scope in block.scope_spans
            for span in scope.spans
        ]

    def wait_for(self, what: Callable[[], Any], timeout_s: float = 15.0) -> Any:
        until_s = time.monotonic() + timeout_s
        while not (found := what()):
            assert time.monotonic() < until_s, "it did not come"
            time.sleep(0.01)  # between two looks; the loop has an end
        return found


class HttpReceiver(Received):
    """OTLP/HTTP with protobuf; over TLS where there are certificates, and then only for who has one himself."""

    def __init__(
        self,
        answer: Callable[[str, Any], Answer] = lambda signal, request: Answer(),
        certificates: Certificates | None = None,
    ) -> None:
        super().__init__(answer)
        self.certificates = certificates
        self.server: ThreadingHTTPServer | None = None
        self.port = 0

    @property
    def url(self) -> str:
        return f"{'https' if self.certificates else 'http'}://127.0.0.1:{self.port}"

    def __enter__(self) -> HttpReceiver:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                signal, kind, response_kind = _REQUESTS[self.path]
                body = self.rfile.read(int(self.headers["Content-Length"]))
                assert self.headers["Content-Type"] == "application/x-protobuf"
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                answer = outer.take(
                    signal, kind.FromString(body), {name.lower(): text for name, text in self.headers.items()}
                )
                if answer.status == 200:
                    response = response_kind()
                    if answer.rejected:
                        field = response.partial_success.DESCRIPTOR.fields[0].name
                        setattr(response.partial_success, field, answer.rejected)
                        response.partial_success.error_message = answer.text
                    content = response.SerializeToString()
                else:
                    content = Status(message=answer.text).SerializeToString()
                self.send_response(answer.status)
                self.send_header("Content-Type", "application/x-protobuf")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *arguments: Any) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request: Any, address: Any) -> None:
                pass  # a client that went away is part of the tests

        self.server = Server(("127.0.0.1", self.port), Handler)
        if self.certificates is not None:
            context = self.certificates.server_context(wants_client=True)
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *what: Any) -> None:
        if self.server is not None:
            self.server.shutdown()
            self.server.server_close()
            self.server = None


class GrpcReceiver(Received):
    """OTLP/gRPC; over TLS as `HttpReceiver`."""

    def __init__(
        self,
        answer: Callable[[str, Any], Answer] = lambda signal, request: Answer(),
        certificates: Certificates | None = None,
    ) -> None:
        super().__init__(answer)
        self.certificates = certificates

    def __enter__(self) -> GrpcReceiver:
        self._server = grpc.server(ThreadPoolExecutor(4))
        outer = self

        def export(signal: str, response: Any) -> Any:
            def act(_: Any, request: Any, context: Any) -> Any:
                answer = outer.take(signal, request, dict(context.invocation_metadata()))
                if answer.code is not grpc.StatusCode.OK:
                    context.abort(answer.code, answer.text)
                return response()

            return act

        for signal, (_, _, response), base, add in (
            (
                *_signal("metrics"),
                metrics_grpc.MetricsServiceServicer,
                metrics_grpc.add_MetricsServiceServicer_to_server,
            ),
            (*_signal("logs"), logs_grpc.LogsServiceServicer, logs_grpc.add_LogsServiceServicer_to_server),
            (*_signal("traces"), trace_grpc.TraceServiceServicer, trace_grpc.add_TraceServiceServicer_to_server),
        ):
            add(type("Servicer", (base,), {"Export": export(signal, response)})(), self._server)
        if self.certificates is None:
            self.port = self._server.add_insecure_port("127.0.0.1:0")
        else:
            key, chain, authority = (
                Path(name).read_bytes()
                for name in (self.certificates.server_key, self.certificates.server_pem, self.certificates.ca_pem)
            )
            credentials = grpc.ssl_server_credentials([(key, chain)], authority, require_client_auth=True)
            self.port = self._server.add_secure_port("127.0.0.1:0", credentials)
        self._server.start()
        return self

    @property
    def url(self) -> str:
        return f"{'https' if self.certificates else 'http'}://127.0.0.1:{self.port}"

    def __exit__(self, *what: Any) -> None:
        self._server.stop(0).wait()


def _signal(name: str) -> tuple[str, tuple[Any, Any, Any]]:
    return name, _REQUESTS[f"/v1/{name}"]


def is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)
