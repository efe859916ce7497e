"""Requests by gRPC against a real server: form, TLS, what each status means, and that nothing waits beyond its time."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2, logs_service_pb2_grpc
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2, metrics_service_pb2_grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from otlp_servers import Certificates, HttpServer, Waits, deliver, gauge, part, records
from runlog_lines import HandClock

from otel_train.clock import NS_PER_S, SYSTEM
from otel_train.export.delivery import Delivery
from otel_train.export.destination import GRPC, Destination
from otel_train.export.grpc_transport import GrpcTransport
from otel_train.export.outage_notices import OutageNotices
from otel_train.export.transport import Answer, Verdict
from otel_train.otlp.encode import LineEncoder
from otel_train.record.entries import SpanEntry

Code = grpc.StatusCode
Judge = Callable[[Any, grpc.ServicerContext], Any]


class GrpcServer:
    """The three services; `judge` may abort or return a partial success, None accepts."""

    def __init__(self, judge: Judge | None = None, credentials: Any = None, port: int = 0, **options: int) -> None:
        self.judge = judge or (lambda request, context: None)
        self.seen: list[Any] = []
        self.accepted: list[Any] = []
        self.metadata: list[dict[str, Any]] = []
        settings = [(f"grpc.{name}", value) for name, value in {**options, "so_reuseport": 0}.items()]
        self._server = grpc.server(ThreadPoolExecutor(4), options=settings)
        metrics_service_pb2_grpc.add_MetricsServiceServicer_to_server(self._service(metrics_service_pb2), self._server)
        logs_service_pb2_grpc.add_LogsServiceServicer_to_server(self._service(logs_service_pb2), self._server)
        trace_service_pb2_grpc.add_TraceServiceServicer_to_server(self._service(trace_service_pb2), self._server)
        address = f"127.0.0.1:{port}"
        if credentials is None:
            self.port = self._server.add_insecure_port(address)
        else:
            self.port = self._server.add_secure_port(address, credentials)
        self.scheme = "http" if credentials is None else "https"
        self._server.start()

    def _service(self, module: Any) -> Any:
        outer = self
        kind = module.__name__.rpartition(".")[2].removesuffix("_service_pb2").capitalize()
        response = getattr(module, f"Export{kind}ServiceResponse")

        class Service:
            def Export(self, request: Any, context: grpc.ServicerContext) -> Any:
                outer.seen.append(request)
                outer.metadata.append(dict(context.invocation_metadata()))
                answer = outer.judge(request, context)
                outer.accepted.append(request)
                return response() if answer is None else answer

        return Service()

    def destination(self, signal: str = "metrics", **fields: Any) -> Destination:
        options = {"compression": "none", **fields}
        return Destination(signal, f"{self.scheme}://127.0.0.1:{self.port}", GRPC, **options)

    def values(self) -> list[float]:
        return [
            point.as_double
            for request in self.accepted
            for block in request.resource_metrics
            for scope in block.scope_metrics
            for metric in scope.metrics
            for point in metric.gauge.data_points
        ]

    def close(self) -> None:
        self._server.stop(0).wait()


@pytest.fixture
def serve() -> Iterator[Callable[..., GrpcServer]]:
    made: list[GrpcServer] = []

    def serve(*arguments: Any, **options: Any) -> GrpcServer:
        made.append(GrpcServer(*arguments, **options))
        return made[-1]

    yield serve
    for server in made:
        server.close()


Serve = Callable[..., GrpcServer]


def post(destination: Destination, *parts: bytes, timeout_s: float = 5.0) -> Answer:
    transport = GrpcTransport(destination, SYSTEM)
    try:
        return transport.post(transport.encode(parts), timeout_s, threading.Event())
    finally:
        transport.close()


def send(destination: Destination, *parts: bytes, items: int, waits: Waits | None = None, **options: Any) -> Any:
    delivery = Delivery(destination, wait=waits or Waits(), random=lambda: 0.5, notices=OutageNotices())
    try:
        return deliver(delivery, *parts, items=items, signal=destination.signal, **options)
    finally:
        delivery.close()


def aborting(code: Any, details: str = "", times: int = 1) -> Judge:
    """Abort the first calls."""
    left = [times]

    def judge(request: Any, context: grpc.ServicerContext) -> None:
        if left[0] > 0:
            left[0] -= 1
            context.abort(code, details)

    return judge


def test_each_signal_reaches_its_service(serve: Serve) -> None:
    """Points, records and spans as the official classes read them, with metadata in lower case and our name."""
    server = serve()
    spans = [SpanEntry(name="step", trace_id=3, span_id=4, start_ns=1, end_ns=2)]
    line = LineEncoder({"run_id": "r"}, "1").spans(spans)
    headers = {"Authorization": "Bearer t"}
    assert post(server.destination(headers=headers), gauge("a", range(3))).verdict is Verdict.ACCEPTED
    assert post(server.destination("logs"), records(range(2))).verdict is Verdict.ACCEPTED
    assert post(server.destination("traces"), part(line, "traces")).verdict is Verdict.ACCEPTED
    metrics, logs, traces = server.accepted
    points = metrics.resource_metrics[0].scope_metrics[0].metrics[0].gauge.data_points
    assert [point.as_double for point in points] == [0.0, 1.0, 2.0]
    bodies = [record.body.string_value for record in logs.resource_logs[0].scope_logs[0].log_records]
    assert bodies == ["record 0", "record 1"]
    assert traces.resource_spans[0].scope_spans[0].spans[0].span_id == bytes.fromhex("0000000000000004")
    assert server.metadata[0]["authorization"] == "Bearer t"
    assert server.metadata[0]["user-agent"].startswith("otel-train/")


class Relay:
    """Hands bytes on to a server, and counts what the client sent."""

    def __init__(self, port: int) -> None:
        self.sent = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._target = port
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        with self._listener.accept()[0] as client, socket.create_connection(("127.0.0.1", self._target)) as server:
            back = threading.Thread(target=self._copy, args=(server, client))
            back.start()
            while content := client.recv(65536):
                self.sent += len(content)
                server.sendall(content)
            server.shutdown(socket.SHUT_WR)
            back.join()

    @staticmethod
    def _copy(source: socket.socket, target: socket.socket) -> None:
        while content := source.recv(65536):
            target.sendall(content)

    def close(self) -> None:
        self._thread.join()
        self._listener.close()


@pytest.mark.parametrize(("compression", "least", "most"), [("none", 30_000, 60_000), ("gzip", 100, 12_000)])
def test_gzip_is_used_where_it_is_asked_for(compression: str, least: int, most: int, serve: Serve) -> None:
    """The bytes on the wire are few with it and many without, and the points the same."""
    server = serve()
    relay = Relay(server.port)
    where = Destination("metrics", f"http://127.0.0.1:{relay.port}", GRPC, compression=compression)
    assert post(where, gauge("a", range(1000))).verdict is Verdict.ACCEPTED
    relay.close()
    assert server.values() == [float(number) for number in range(1000)]
    assert least < relay.sent < most


@pytest.mark.parametrize(
    ("code", "verdict"),
    [
        *(
            (code, Verdict.RETRY)
            for code in (
                *(Code.CANCELLED, Code.DEADLINE_EXCEEDED, Code.ABORTED, Code.OUT_OF_RANGE, Code.UNAVAILABLE),
                *(Code.DATA_LOSS, Code.RESOURCE_EXHAUSTED, Code.UNKNOWN, Code.INTERNAL),
            )
        ),
        *((code, Verdict.REFUSED) for code in (Code.INVALID_ARGUMENT, Code.FAILED_PRECONDITION, Code.ALREADY_EXISTS)),
        *(
            (code, Verdict.MISDIRECTED)
            for code in (Code.UNAUTHENTICATED, Code.PERMISSION_DENIED, Code.UNIMPLEMENTED, Code.NOT_FOUND)
        ),
    ],
)
def test_each_status_has_its_meaning(code: Any, verdict: Verdict, serve: Serve) -> None:
    """What passes by itself is tried again, what a person must mend too, and only the data's faults are refusals."""
    answer = post(serve(aborting(code, "because")).destination(), gauge("a", range(1)))
    assert answer.verdict is verdict
    assert f"{code.name}: because" in answer.text


def test_resource_exhausted_is_tried_again_without_a_hint(serve: Serve) -> None:
    """A Collector's memory limiter refuses so: three times, then all 300 arrive once."""
    server = serve(aborting(Code.RESOURCE_EXHAUSTED, "memory limit", times=3))
    done = send(server.destination(), gauge("a", range(300)), items=300)
    assert (done.accepted, done.refused, done.retries) == (300, 0, 3)
    assert server.values() == [float(number) for number in range(300)]


def test_retry_info_is_obeyed(serve: Serve) -> None:
    """The delay within the status details is the server's order."""
    info = AnyMessage()
    info.Pack(RetryInfo(retry_delay=Duration(seconds=7, nanos=500_000_000)))
    details = Status(code=Code.UNAVAILABLE.value[0], message="later", details=[info]).SerializeToString()
    turns = iter([True])

    def judge(request: Any, context: grpc.ServicerContext) -> None:
        if next(turns, False):
            context.set_trailing_metadata((("grpc-status-details-bin", details),))
            context.abort(Code.UNAVAILABLE, "later")

    waits = Waits()
    done = send(serve(judge).destination(), gauge("a", range(2)), items=2, waits=waits)
    assert done.accepted == 2
    assert len(waits.seconds) == 1
    assert 7.5 <= waits.seconds[0] <= 8.4


def test_a_message_beyond_the_servers_limit_is_split(serve: Serve) -> None:
    """What gRPC calls a resource that is exhausted is a size here: halves are sent until they fit."""
    server = serve(max_receive_message_length=20_000)
    done = send(
        server.destination(), *[gauge("a", range(start, start + 200)) for start in range(0, 2000, 200)], items=2000
    )
    assert (done.accepted, done.refused) == (2000, 0)
    assert sorted(server.values()) == [float(number) for number in range(2000)]


def test_one_bad_point_among_300_is_found(serve: Serve) -> None:
    """Invalid argument is isolated like a 400: one refused, 299 once each."""

    def judge(request: Any, context: grpc.ServicerContext) -> None:
        found = [
            point.as_double
            for block in request.resource_metrics
            for scope in block.scope_metrics
            for metric in scope.metrics
            for point in metric.gauge.data_points
        ]
        if 137.0 in found:
            context.abort(Code.INVALID_ARGUMENT, "bad point")

    server = serve(judge)
    done = send(server.destination(), gauge("a", range(300)), items=300)
    assert (done.accepted, done.refused, done.reasons) == (299, 1, {"INVALID_ARGUMENT: bad point": 1})
    assert sorted(server.values()) == [float(number) for number in range(300) if number != 137]


@pytest.mark.parametrize(
    ("signal", "answer"),
    [
        (
            "metrics",
            metrics_service_pb2.ExportMetricsServiceResponse(
                partial_success=metrics_service_pb2.ExportMetricsPartialSuccess(
                    rejected_data_points=3, error_message="old"
                )
            ),
        ),
        (
            "logs",
            logs_service_pb2.ExportLogsServiceResponse(
                partial_success=logs_service_pb2.ExportLogsPartialSuccess(rejected_log_records=3, error_message="old")
            ),
        ),
        (
            "traces",
            trace_service_pb2.ExportTraceServiceResponse(
                partial_success=trace_service_pb2.ExportTracePartialSuccess(rejected_spans=3, error_message="old")
            ),
        ),
    ],
)
def test_partial_success_is_counted(signal: str, answer: Any, serve: Serve) -> None:
    """Each signal's own count, with the server's words."""
    server = serve(lambda request, context: answer)
    done = send(server.destination(signal), b"{}", items=10)
    assert (done.accepted, done.refused, done.reasons) == (7, 3, {"old": 3})


def test_a_server_that_is_absent_at_first_is_found() -> None:
    """A closed port at the start is tried until somebody listens there, over the same channel."""
    probe = GrpcServer()
    port = probe.port
    probe.close()
    opened: list[GrpcServer] = []
    waits = Waits()

    def wait(stop: threading.Event, seconds: float) -> None:
        waits(stop, seconds)
        if len(waits.seconds) == 2:
            opened.append(GrpcServer(port=port))
        # The channel makes connections on threads of its own, and pauses between them.
        time.sleep(0.1)

    delivery = Delivery(
        Destination("metrics", f"http://127.0.0.1:{port}", GRPC, compression="none"),
        wait=wait,
        notices=OutageNotices(),
    )
    done = deliver(delivery, gauge("a", range(300)), items=300, deadline_ns=SYSTEM.mono_ns() + 20 * NS_PER_S)
    delivery.close()
    values = opened[0].values()
    opened[0].close()
    assert (done.accepted, done.finished) == (300, True)
    assert values == [float(number) for number in range(300)]


@pytest.mark.alone
def test_a_server_that_never_answers_keeps_the_deadline(serve: Serve) -> None:
    """`send` returns with its deadline, and nothing is acknowledged."""
    released = threading.Event()
    server = serve(lambda request, context: released.wait(10))
    start_s = time.monotonic()
    done = send(server.destination(), gauge("a", range(1)), items=1, deadline_ns=SYSTEM.mono_ns() + NS_PER_S // 2)
    taken_s = time.monotonic() - start_s
    released.set()
    assert 0.4 < taken_s < 0.7
    assert not done.finished


@pytest.mark.alone
def test_a_stop_gives_a_call_under_way_one_second(serve: Serve) -> None:
    """It may be arriving; without an answer it is cancelled then."""
    released = threading.Event()
    server = serve(lambda request, context: released.wait(10))
    transport = GrpcTransport(server.destination(), SYSTEM)
    stop = threading.Event()
    threading.Timer(0.1, stop.set).start()
    start_s = time.monotonic()
    answer = transport.post(transport.encode([gauge("a", range(1))]), 5.0, stop)
    taken_s = time.monotonic() - start_s
    released.set()
    transport.close()
    assert answer.verdict is Verdict.RETRY
    assert 0.9 < taken_s < 1.4


def content(*paths: str) -> Sequence[bytes]:
    return [Path(path).read_bytes() for path in paths]


def test_tls_with_an_own_authority_and_a_client_certificate(serve: Serve, certificates: Certificates) -> None:
    """Encrypted, both sides proven, with the files that the variables name."""
    key, chain, authority = content(certificates.server_key, certificates.server_pem, certificates.ca_pem)
    server = serve(credentials=grpc.ssl_server_credentials([(key, chain)], authority, True))
    where = server.destination(
        certificate=certificates.ca_pem, client_key=certificates.client_key, client_certificate=certificates.client_pem
    )
    assert post(where, gauge("a", range(3))).verdict is Verdict.ACCEPTED
    assert server.values() == [0.0, 1.0, 2.0]


def test_an_unproven_server_gets_nothing(serve: Serve, certificates: Certificates) -> None:
    """A certificate of another authority ends it before the data, and the text says what to set."""
    key, chain = content(certificates.server_key, certificates.server_pem)
    server = serve(credentials=grpc.ssl_server_credentials([(key, chain)]))
    answer = post(server.destination(certificate=certificates.other_pem), gauge("a", range(1)), timeout_s=2.0)
    assert answer.verdict is Verdict.MISDIRECTED
    assert "OTEL_EXPORTER_OTLP_CERTIFICATE" in answer.text
    assert server.seen == []


def test_a_server_that_speaks_http1_gives_a_hint() -> None:
    """Calls sent to an HTTP port say what to set."""
    server = HttpServer()
    where = Destination("metrics", f"http://127.0.0.1:{server.port}", GRPC)
    answer = post(where, gauge("a", range(1)), timeout_s=2.0)
    server.close()
    assert answer.verdict is Verdict.RETRY
    assert "leave out OTEL_EXPORTER_OTLP_PROTOCOL=grpc" in answer.text


def test_a_header_that_grpc_refuses_is_a_fault_of_the_way(serve: Serve) -> None:
    """Nothing raises, and the data is not judged."""
    server = serve()
    answer = post(server.destination(headers={"bad header": "x"}), gauge("a", range(1)))
    assert answer.verdict is Verdict.RETRY
    assert server.seen == []


def test_a_damaged_part_is_refused_and_the_rest_arrives(serve: Serve) -> None:
    """What cannot be turned into protobuf is found without the server, and counted."""
    server = serve()
    clock = HandClock()
    delivery = Delivery(server.destination(), clock=clock, notices=OutageNotices())
    done = deliver(delivery, gauge("a", range(5)), gauge("a", range(5, 8))[:-4], gauge("a", range(8, 10)), items=10)
    delivery.close()
    assert (done.accepted, done.refused) == (7, 3)
    assert "cannot be read" in next(iter(done.reasons))
    assert sorted(server.values()) == [0.0, 1.0, 2.0, 3.0, 4.0, 8.0, 9.0]
