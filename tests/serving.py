"""Serves the local page in a thread, and asks it as a browser would."""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from otel_train.view.serving.server import LocalServer, Options


@dataclass
class Answer:
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode("utf-8")

    @property
    def json(self) -> Any:
        # Strict: a bare NaN is no JSON.
        return json.loads(self.body, parse_constant=lambda name: (_ for _ in ()).throw(ValueError(name)))


@dataclass
class Served:
    """A server that answers at `address`, which ends in a slash."""

    server: LocalServer
    address: str

    def get(self, path: str, *, method: str = "GET", **headers: str) -> Answer:
        """Ask for a path below the address; header names are given with underscores."""
        parts = urlsplit(self.address)
        assert parts.hostname is not None
        connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=30)
        try:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.putrequest(method, f"/{path}", skip_host="host" in named, skip_accept_encoding=True)
            for name, value in named.items():
                connection.putheader(name, value)
            connection.endheaders()
            response = connection.getresponse()
            return Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
        finally:
            connection.close()

    @contextlib.contextmanager
    def events(self, path: str, **headers: str) -> Iterator[Events]:
        """Listen to a stream."""
        parts = urlsplit(self.address)
        assert parts.hostname is not None
        connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=30)
        try:
            connection.request("GET", f"/{path}", headers={k.replace("_", "-"): v for k, v in headers.items()})
            response = connection.getresponse()
            assert response.status == 200, response.read()
            yield Events(response)
        finally:
            connection.close()


@dataclass
class Events:
    """The events of a stream, one after the other."""

    response: http.client.HTTPResponse
    comments: list[str] = field(default_factory=list)

    def next(self) -> tuple[str, Any, str]:
        """Return the next event's name, its data and its id; ("", None, "") where the stream has ended."""
        found: dict[str, str] = {}
        while line := self.response.readline():
            text = line.decode("utf-8").rstrip("\n")
            if text.startswith(":"):
                self.comments.append(text)
            elif text:
                name, _, value = text.partition(": ")
                found[name] = value
            elif "event" in found:
                return found["event"], json.loads(found["data"]), found.get("id", "")
            else:
                found = {}
        return "", None, ""


@contextlib.contextmanager
def serve_in_thread(root: Path, **options: Any) -> Iterator[Served]:
    """Serve a root on a free port of this machine until the block ends."""
    server = LocalServer(root, Options(**{"port": 0, **options}))
    thread = threading.Thread(target=server.serve, name="test-server", daemon=True)
    thread.start()
    until_s = time.monotonic() + 30
    while not server.started:
        assert thread.is_alive(), "the server did not start"
        assert time.monotonic() < until_s, "the server took too long to start"
        time.sleep(0.005)  # between two looks
    try:
        yield Served(server, server.address(here=True))
    finally:
        server.stop()
        thread.join(10)
    assert not thread.is_alive(), "the server did not end"
