"""Sends requests by gRPC, to the services of OpenTelemetry's own definitions."""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import grpc  # type: ignore[import-untyped]
from google.protobuf.message import DecodeError
from google.rpc.error_details_pb2 import RetryInfo  # type: ignore[import-untyped]
from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]

from otel_train import __version__
from otel_train.clock import Clock
from otel_train.export.destination import Destination
from otel_train.export.protobuf import RESPONSES, protobuf_body
from otel_train.export.transport import Answer, Transport, Verdict, observed_again, shortened, unobserved, wait_for

_SERVICES: Final[Mapping[str, str]] = {
    "metrics": "opentelemetry.proto.collector.metrics.v1.MetricsService",
    "logs": "opentelemetry.proto.collector.logs.v1.LogsService",
    "traces": "opentelemetry.proto.collector.trace.v1.TraceService",
}
_OPTIONS: Final = (
    # gRPC's own pauses between connections grow to two minutes; ours decide.
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 2000),
    ("grpc.primary_user_agent", f"otel-train/{__version__} Python/{sys.version_info[0]}.{sys.version_info[1]}"),
)
_STATUS_KEY: Final = "grpc-status-details-bin"
_PATIENCE_S: Final = 0.05
_TLS_WORDS: Final = ("certificate", "ssl", "tsi_", "verification")
_Code = grpc.StatusCode
_REFUSED: Final = frozenset({_Code.INVALID_ARGUMENT, _Code.FAILED_PRECONDITION, _Code.ALREADY_EXISTS})
_MISDIRECTED_ADVICE: Final = {
    _Code.UNAUTHENTICATED: "give a valid token in OTEL_EXPORTER_OTLP_HEADERS",
    _Code.PERMISSION_DENIED: "the token in OTEL_EXPORTER_OTLP_HEADERS may not write there: give one that may",
    _Code.UNIMPLEMENTED: "nothing takes OTLP there: for OTLP by HTTP set OTEL_EXPORTER_OTLP_PROTOCOL=http/json",
    _Code.NOT_FOUND: "nothing takes OTLP there: see OTEL_EXPORTER_OTLP_ENDPOINT",
}


class GrpcTransport(Transport):
    """One channel; gRPC keeps the deadline of each call by itself."""

    def __init__(self, destination: Destination, clock: Clock) -> None:
        self._destination = destination
        self._clock = clock
        self._channel: Any = None
        self._export: Any = None
        self._metadata = tuple((name.lower(), value) for name, value in destination.headers.items())
        self._compression = compression_of(destination)

    def encode(self, parts: Sequence[bytes]) -> bytes:
        """Return the serialized request; gRPC compresses by itself."""
        return protobuf_body(self._destination.signal, parts)

    def post(self, body: bytes, timeout_s: float, stop: threading.Event) -> Answer:
        """Send one request and wait for its answer, `timeout_s` at most; never raises."""
        ended = threading.Event()
        token = unobserved()
        try:
            if self._channel is None:
                self._open()
            call = self._export.future(body, timeout=timeout_s, metadata=self._metadata)
            call.add_done_callback(lambda _: ended.set())
            if not wait_for(ended, timeout_s + _PATIENCE_S, stop, self._clock):
                call.cancel()
                return Answer(Verdict.RETRY, f"no answer from {self._destination.shown_url} within {timeout_s:.3g} s")
            code = call.code()
            if code is not _Code.OK:
                return self._fault(code, str(call.details() or ""), _status(call.trailing_metadata()))
            partial = call.result().partial_success
        except Exception as fault:  # noqa: BLE001 - a wrong file or header is a fault of the way, not of the data
            self.close()
            return Answer(Verdict.RETRY, shortened(f"{self._destination.shown_url}: {fault or type(fault).__name__}"))
        finally:
            observed_again(token)
        rejected = next((value for field, value in partial.ListFields() if field.name.startswith("rejected")), 0)
        return Answer(Verdict.ACCEPTED, shortened(partial.error_message), rejected)

    def close(self) -> None:
        """Give the connection back."""
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()

    def _open(self) -> None:
        where = self._destination
        parts = urlsplit(where.url)
        target = where.url
        if parts.scheme in ("http", "https") and parts.netloc:
            target = parts.netloc if parts.port else f"{parts.netloc}:{443 if where.secure else 80}"
        options = {"options": _OPTIONS, "compression": self._compression}
        if where.secure:
            self._channel = grpc.secure_channel(target, credentials_of(where), **options)
        else:
            self._channel = grpc.insecure_channel(target, **options)
        # The official stub would serialize a message; ours is bytes already.
        self._export = self._channel.unary_unary(
            f"/{_SERVICES[where.signal]}/Export",
            request_serializer=None,
            response_deserializer=RESPONSES[where.signal].FromString,
        )

    def _fault(self, code: Any, details: str, status: Status | None) -> Answer:
        address = self._destination.shown_url
        text = f"{code.name}{': ' if details else ''}{details}"
        if code is _Code.RESOURCE_EXHAUSTED and "message larger than max" in details.lower():
            return Answer(Verdict.TOO_LARGE, shortened(text))
        if code in _REFUSED:
            return Answer(Verdict.REFUSED, shortened(text))
        if code in _MISDIRECTED_ADVICE:
            return Answer(Verdict.MISDIRECTED, f"{shortened(text)} from {address} ({_MISDIRECTED_ADVICE[code]})")
        if code is _Code.UNAVAILABLE and any(word in details.lower() for word in _TLS_WORDS):
            # The files may have been renewed: they are read again for the next try.
            self.close()
            advice = "OTEL_EXPORTER_OTLP_CERTIFICATE names the authority, OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE our own"
            return Answer(Verdict.MISDIRECTED, f"no TLS with {address}: {shortened(details)} ({advice})")
        if code is _Code.UNAVAILABLE and "parsing HTTP/2" in details:
            advice = "HTTP answers there: leave out OTEL_EXPORTER_OTLP_PROTOCOL=grpc, or use port 4317"
            return Answer(Verdict.RETRY, f"no gRPC at {address} ({advice})")
        # Resource exhausted without a hint too: so a Collector's memory limiter refuses.
        return Answer(Verdict.RETRY, shortened(f"{text} from {address}"), retry_after_s=_ordered_s(status))


def compression_of(destination: Destination) -> Any:
    """Return what gRPC calls a destination's compression."""
    return grpc.Compression.Gzip if destination.compression == "gzip" else grpc.Compression.NoCompression


def credentials_of(destination: Destination) -> Any:
    """Return what TLS with a destination needs, read from its files; OSError where one cannot be read."""

    def content(path: str | None) -> bytes | None:
        return Path(path).read_bytes() if path else None

    return grpc.ssl_channel_credentials(
        content(destination.certificate), content(destination.client_key), content(destination.client_certificate)
    )


def _status(metadata: Any) -> Status | None:
    for key, value in metadata or ():
        if key == _STATUS_KEY:
            try:
                return Status.FromString(value)
            except DecodeError:
                return None
    return None


def _ordered_s(status: Status | None) -> float | None:
    """Return the seconds of a google.rpc.RetryInfo, where the status holds one."""
    for detail in status.details if status is not None else ():
        info = RetryInfo()
        if detail.Is(RetryInfo.DESCRIPTOR) and detail.Unpack(info):
            seconds: float = info.retry_delay.seconds + info.retry_delay.nanos / 1e9
            return max(0.0, seconds)
    return None
