"""A real OTLP/HTTP server on loopback that answers as it is told and keeps every item that it accepted."""

from __future__ import annotations

import gzip
import json
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_SPANS = ("resourceSpans", "scopeSpans", "spans")
SIGNALS = {"/v1/metrics": "metrics", "/v1/logs": "logs", "/v1/traces": "traces"}


@dataclass(frozen=True)
class Reply:
    """How one request is answered. `kept`: whether its items count as accepted."""

    status: int = 200
    body: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    reset: bool = False
    after_s: float = 0.0


@dataclass(frozen=True)
class Point:
    """One data point as it arrived."""

    name: str
    attributes: tuple[tuple[str, Any], ...]
    resource: tuple[tuple[str, Any], ...]
    time_ns: int
    value: Any
    flags: int

    @property
    def series(self) -> tuple[Any, ...]:
        return self.name, self.attributes, self.resource


class OtlpServer:
    """`reply` gets the number of the request (from 0), its signal and its content, and says how it is answered."""

    def __init__(self, reply: Callable[[int, str, Any], Reply] = lambda number, signal, content: Reply()) -> None:
        self.reply = reply
        self.requests: list[tuple[str, int]] = []
        self.headers: list[Mapping[str, str]] = []
        self._accepted: list[tuple[str, Any]] = []
        self._lock = threading.Lock()
        self._server: ThreadingHTTPServer | None = None
        self._thread: threading.Thread | None = None
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self, port: int = 0) -> OtlpServer:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                outer._handle(self)

            def log_message(self, *arguments: Any) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            allow_reuse_address = True

            def handle_error(self, request: Any, address: Any) -> None:
                pass  # a client that went away is part of the tests

        self._server = Server(("127.0.0.1", port), Handler)
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        return self

    def stop(self) -> None:
        if self._server is not None and self._thread is not None:
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()
            self._server = None

    def __enter__(self) -> OtlpServer:
        return self.start() if self._server is None else self

    def __exit__(self, *what: Any) -> None:
        self.stop()

    def _handle(self, handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers["Content-Length"]))
        if handler.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        content = json.loads(body)
        signal = SIGNALS[handler.path]
        with self._lock:
            number = len(self.requests)
            reply = self.reply(number, signal, content)
            self.requests.append((signal, reply.status))
            self.headers.append(dict(handler.headers.items()))
            if reply.status == 200 and not reply.reset:
                self._accepted.append((signal, content))
        if reply.after_s:
            time.sleep(reply.after_s)  # the slow server that the test asks for
        if reply.reset:
            # RST instead of an answer: what a restarted load balancer does.
            handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
            handler.connection.close()
            handler.close_connection = True
            return
        answer = json.dumps(reply.body).encode()
        try:
            handler.send_response(reply.status)
            for name, value in {"Content-Type": "application/json", **reply.headers}.items():
                handler.send_header(name, value)
            handler.send_header("Content-Length", str(len(answer)))
            handler.end_headers()
            handler.wfile.write(answer)
        except OSError:
            pass

    # What arrived ----------------------------------------------------------------------------------------------------

    def accepted(self, signal: str) -> list[Any]:
        with self._lock:
            return [content for name, content in self._accepted if name == signal]

    def points(self, name: str | None = None) -> list[Point]:
        """All points, in the order of their arrival; of one metric where it is named."""
        return [
            point for content in self.accepted("metrics") for point in points_of(content) if name in (None, point.name)
        ]

    def values(self, name: str) -> list[Any]:
        """Values of one metric in the order of their arrival, without end marks."""
        return [point.value for point in self.points(name) if not point.flags]

    def logs(self) -> list[dict[str, Any]]:
        return [
            record
            for content in self.accepted("logs")
            for block in content["resourceLogs"]
            for scope in block["scopeLogs"]
            for record in scope["logRecords"]
        ]

    def bodies(self) -> list[str]:
        return [record["body"].get("stringValue", "") for record in self.logs()]

    def spans(self) -> list[dict[str, Any]]:
        return [
            span
            for content in self.accepted("traces")
            for block in content["resourceSpans"]
            for scope in block["scopeSpans"]
            for span in scope["spans"]
        ]

    def doubles(self) -> list[Any]:
        """Points of one series at one time, records and spans that arrived more than once."""
        counts: Counter[Any] = Counter((point.series, point.time_ns, point.flags) for point in self.points())
        for signal, names in (("logs", ("resourceLogs", "scopeLogs", "logRecords")), ("traces", _SPANS)):
            for content in self.accepted(signal):
                for block in content[names[0]]:
                    resource = attributes_of(block["resource"])
                    counts.update(
                        (resource, json.dumps(item, sort_keys=True))
                        for scope in block[names[1]]
                        for item in scope[names[2]]
                    )
        return [item for item, count in counts.items() if count > 1]

    def wait_for(self, what: Callable[[], Any], timeout_s: float = 15.0) -> Any:
        """Wait until something is true; AssertionError where it does not come."""
        until_s = time.monotonic() + timeout_s
        while not (found := what()):
            assert time.monotonic() < until_s, f"it did not come; requests: {self.requests[-20:]}"
            time.sleep(0.01)  # between two looks; the loop has an end
        return found


def points_of(content: Any) -> Iterator[Point]:
    for block in content["resourceMetrics"]:
        resource = attributes_of(block["resource"])
        for scope in block["scopeMetrics"]:
            for metric in scope["metrics"]:
                kind = next(kind for kind in metric if kind in ("gauge", "sum", "exponentialHistogram", "histogram"))
                for point in metric[kind]["dataPoints"]:
                    yield Point(
                        metric["name"],
                        attributes_of(point),
                        resource,
                        int(point["timeUnixNano"]),
                        value_of(point),
                        int(point.get("flags", 0)),
                    )


def value_of(point: Mapping[str, Any]) -> Any:
    if "asInt" in point:
        return int(point["asInt"])
    if "asDouble" in point:
        return float(point["asDouble"])
    return point.get("count")


def attributes_of(holder: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple(
        sorted((item["key"], next(iter(item["value"].values()), None)) for item in holder.get("attributes", ()))
    )


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class BlackHole:
    """Accepts connections and never answers."""

    def __init__(self) -> None:
        self._socket = socket.socket()
        self._socket.bind(("127.0.0.1", 0))
        self._socket.listen(64)
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"

    def __enter__(self) -> BlackHole:
        return self

    def __exit__(self, *what: Any) -> None:
        self._socket.close()
