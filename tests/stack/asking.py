"""Asks servers over HTTP, and waits for an answer that fits, without sleeping longer than needed."""

from __future__ import annotations

import json
import socket
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

T = TypeVar("T")
_given: set[int] = set()
# Servers of a test are on loopback: no proxy of the user's stands between.
_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def free_port() -> int:
    """Return a TCP port of 127.0.0.1 that nothing listens on and that was not given out before."""
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
        if port not in _given:
            _given.add(port)
            return port


class RefusedError(OSError):
    """A server answered, but not with success."""


def get(url: str, parameters: Mapping[str, Any] | None = None, timeout_s: float = 30.0) -> bytes:
    """Return the body of an answer; RefusedError where the server did not succeed, OSError where nobody answers."""
    if parameters:
        url = f"{url}?{urllib.parse.urlencode(parameters)}"
    try:
        with _direct.open(url, timeout=timeout_s) as answer:
            return bytes(answer.read())
    except urllib.error.HTTPError as refusal:
        with refusal:
            raise RefusedError(f"{refusal.code} {refusal.read(1000)!r} from {url}") from None


def get_json(url: str, parameters: Mapping[str, Any] | None = None, timeout_s: float = 30.0) -> Any:
    """Return an answer's JSON; OSError as `get`."""
    return json.loads(get(url, parameters, timeout_s))


def post(
    url: str, body: bytes = b"", headers: Mapping[str, str] | None = None, timeout_s: float = 30.0
) -> tuple[int, bytes]:
    """Return status and body of the answer to a POST, also of a refusal; OSError where nobody answers."""
    request = urllib.request.Request(url, body, dict(headers or {}), method="POST")
    try:
        with _direct.open(request, timeout=timeout_s) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as refusal:
        with refusal:
            return refusal.code, refusal.read()


def post_json(url: str, body: str | bytes, **headers: str) -> tuple[int, bytes]:
    """Return status and body of the answer to a POST of JSON."""
    data = body.encode() if isinstance(body, str) else body
    return post(url, data, {"Content-Type": "application/json", **headers})


def wait_for(what: str, ask: Callable[[], T | None], timeout_s: float = 30.0, every_s: float = 0.1) -> T:
    """Return the first answer that is true; AssertionError after `timeout_s` says what was awaited.

    A server that does not answer, or not yet with JSON, is asked again.
    """
    until = time.monotonic() + timeout_s
    last: object = None
    while True:
        try:
            found = ask()
            if found:
                return found
            last = found
        except (OSError, ValueError, KeyError) as fault:
            last = fault
        if time.monotonic() > until:
            raise AssertionError(f"waited {timeout_s:g} s in vain for {what}; last: {last!r}")
        time.sleep(every_s)  # between two looks; the loop has an end
