"""OTLP servers on loopback that answer by a script and keep what they accepted: HTTP and gRPC."""

from __future__ import annotations

import gzip
import json
import socket
import ssl
import struct
import subprocess
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from otel_train.export.delivery import Delivery, Request
from otel_train.export.destination import Destination
from otel_train.otlp.encode import PREFIXES, SUFFIX, LineEncoder
from otel_train.record.entries import Column, LogEntry

ENCODER = LineEncoder({"run_id": "20260101-000000-abcdefgh", "service.name": "digits"}, "0.1.0")
START_NS = 1_700_000_000_000_000_000


@dataclass
class Reply:
    """One answer. Status 0 resets the connection; -1 never answers."""

    status: int = 200
    body: bytes = b"{}"
    headers: dict[str, str] = field(default_factory=dict)
    content_type: str = "application/json"


@dataclass
class Posted:
    """One request as it arrived: body unpacked, headers in lower case."""

    path: str
    headers: dict[str, str]
    body: bytes
    packed_bytes: int

    @property
    def document(self) -> Any:
        return json.loads(self.body)


def reset(sock: socket.socket) -> None:
    """Close so that the other side sees a reset."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


class HttpServer:
    """Answers the first requests by `script`, every later one by `judge`, which accepts everything unless given."""

    def __init__(
        self,
        *script: Reply,
        judge: Callable[[Posted], Reply] | None = None,
        tls: ssl.SSLContext | None = None,
        port: int = 0,
    ) -> None:
        self.script = list(script)
        self.judge = judge or (lambda posted: Reply())
        self.posted: list[Posted] = []
        self.accepted: list[Posted] = []
        self.connections = 0
        self.released = threading.Event()
        self._lock = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # else each answer takes 40 ms

            def setup(self) -> None:
                outer.connections += 1
                super().setup()

            def do_POST(self) -> None:
                outer._answer(self)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.handle_error = lambda *_: None  # type: ignore[method-assign]
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.scheme = "https" if tls is not None else "http"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        return self._server.server_port

    def destination(self, signal: str = "metrics", **fields: Any) -> Destination:
        return Destination(signal, f"{self.scheme}://127.0.0.1:{self.port}/v1/{signal}", **fields)

    def _answer(self, handler: BaseHTTPRequestHandler) -> None:
        packed = handler.rfile.read(int(handler.headers["content-length"]))
        body = gzip.decompress(packed) if handler.headers.get("content-encoding") == "gzip" else packed
        headers = {name.lower(): value for name, value in handler.headers.items()}
        posted = Posted(handler.path, headers, body, len(packed))
        with self._lock:
            self.posted.append(posted)
            reply = self.script.pop(0) if self.script else self.judge(posted)
            if 200 <= reply.status < 300:
                self.accepted.append(posted)
        if reply.status == 0:
            handler.close_connection = True
            reset(handler.connection)
            return
        if reply.status < 0:
            self.released.wait(30)
            handler.close_connection = True
            return
        handler.send_response(reply.status)
        handler.send_header("Content-Type", reply.content_type)
        handler.send_header("Content-Length", str(len(reply.body)))
        for name, value in reply.headers.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(reply.body)

    def close(self) -> None:
        self.released.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def part(line: bytes, signal: str = "metrics") -> bytes:
    """What stands between a line's prefix and suffix."""
    return line[len(PREFIXES[signal]) : -len(SUFFIX)]


def gauge(name: str, numbers: range | list[int], split: str = "train") -> bytes:
    """A part with one series, whose values and times tell the numbers."""
    times = [START_NS + number * 1_000_000 for number in numbers]
    return part(ENCODER.points([Column(name, times, [float(number) for number in numbers], (("split", split),))]))


def records(numbers: range, text: str = "record") -> bytes:
    """A part with log records whose bodies tell the numbers."""
    entries = [
        LogEntry(time_ns=START_NS + n, severity_number=9, severity_text="INFO", body=f"{text} {n}") for n in numbers
    ]
    return part(ENCODER.logs(entries), "logs")


def values(posted: list[Posted]) -> list[tuple[str, float]]:
    """Every point that was accepted, in the order of its arrival: metric and value."""
    return [
        (metric["name"], point["asDouble"])
        for request in posted
        for block in request.document["resourceMetrics"]
        for scope in block["scopeMetrics"]
        for metric in scope["metrics"]
        for point in metric["gauge"]["dataPoints"]
    ]


def bodies(posted: list[Posted]) -> list[str]:
    """The text of every log record that was accepted."""
    return [
        record["body"]["stringValue"]
        for request in posted
        for block in request.document["resourceLogs"]
        for scope in block["scopeLogs"]
        for record in scope["logRecords"]
    ]


class Waits:
    """Stands in for the pauses between tries: keeps their seconds, and lasts no time."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def __call__(self, stop: threading.Event, seconds: float) -> None:
        self.seconds.append(seconds)


def deliver(
    delivery: Delivery,
    *parts: bytes,
    items: int,
    signal: str = "metrics",
    deadline_ns: int | None = None,
    stop: threading.Event | None = None,
) -> Any:
    return delivery.send(Request(signal, parts, items), stop=stop or threading.Event(), deadline_ns=deadline_ns)


@dataclass
class Certificates:
    """Files of an authority, of a server for 127.0.0.1 and localhost, and of a client."""

    folder: Path

    def __getattr__(self, name: str) -> str:
        return str(self.folder / f"{name.replace('_', '.')}")

    @classmethod
    def make(cls, folder: Path) -> Certificates:
        def openssl(*arguments: str) -> None:
            subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

        key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        for authority in ("ca", "other"):
            openssl(
                *("req", "-x509", *key, "-keyout", f"{authority}.key", "-out", f"{authority}.pem", "-days", "2"),
                *("-subj", f"/CN={authority}", "-addext", "keyUsage=critical,keyCertSign"),
            )
        for name, names in (("server", "IP:127.0.0.1,DNS:localhost"), ("client", "DNS:me"), ("elsewhere", "DNS:else")):
            (folder / "names.txt").write_text(f"subjectAltName={names}\n")
            openssl("req", *key, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
            openssl(
                *("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial"),
                *("-out", f"{name}.pem", "-days", "2", "-extfile", "names.txt"),
            )
        return cls(folder)

    def server_context(self, *, wants_client: bool = False, name: str = "server") -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(str(self.folder / f"{name}.pem"), str(self.folder / f"{name}.key"))
        if wants_client:
            context.load_verify_locations(self.ca_pem)
            context.verify_mode = ssl.CERT_REQUIRED
        return context
