"""Posts requests by HTTP, JSON or protobuf, over one connection that is kept."""

from __future__ import annotations

import logging
import socket
import sys
import threading
from collections.abc import Sequence
from http.client import BadStatusLine
from typing import Any, Final
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

import urllib3.connection
from urllib3 import exceptions

from otel_train import __version__
from otel_train.clock import Clock
from otel_train.export.destination import HTTP_JSON, Destination
from otel_train.export.http_answers import read_answer
from otel_train.export.http_json import gzipped, json_body
from otel_train.export.transport import Answer, Transport, Verdict, observed_again, shortened, unobserved, wait_for

# What is read of an answer: a fault's text; an accepted request has hardly any.
_MAX_ANSWER_BYTES: Final = 65_536
# A request's own time-outs end it in nearly all cases; waiting a little longer gives the better reason.
_PATIENCE_S: Final = 0.05
_THREAD: Final = "otel-train-post"
_GRPC_PORT: Final = 4317
_GRPC_ADVICE: Final = "set OTEL_EXPORTER_OTLP_PROTOCOL=grpc, or use port 4318"


class HttpTransport(Transport):
    """Each request runs on a thread of its own: a look-up of a name, or an answer that trickles, obeys no time-out."""

    def __init__(self, destination: Destination, clock: Clock) -> None:
        self._destination = destination
        self._clock = clock
        self._pools: urllib3.PoolManager | None = None
        # When the last answer was made, as the server wrote it; empty where it wrote nothing.
        self.date = ""
        json = destination.protocol == HTTP_JSON
        self._headers = {
            "user-agent": f"otel-train/{__version__} Python/{sys.version_info[0]}.{sys.version_info[1]}",
            **destination.headers,
            "content-type": "application/json" if json else "application/x-protobuf",
        }
        if destination.compression == "gzip":
            self._headers["content-encoding"] = "gzip"
        _quieten()

    def encode(self, parts: Sequence[bytes]) -> bytes:
        """Return the body, compressed where the destination says so."""
        if self._destination.protocol == HTTP_JSON:
            body = json_body(self._destination.signal, parts)
        else:
            from otel_train.export.protobuf import protobuf_body

            body = protobuf_body(self._destination.signal, parts)
        return gzipped(body) if self._destination.compression == "gzip" else body

    def post(self, body: bytes, timeout_s: float, stop: threading.Event) -> Answer:
        """Send one request and wait for its answer, `timeout_s` at most; never raises."""
        answers: list[Answer] = []
        ended = threading.Event()
        connections: list[urllib3.connection.HTTPConnection] = []

        def act() -> None:
            token = unobserved()
            _UNDER_WAY.connections = connections
            try:
                answers.append(self._request(body, timeout_s))
            except Exception as fault:  # noqa: BLE001 - nobody could catch it on this thread
                answers.append(Answer(Verdict.RETRY, shortened(f"{type(fault).__name__}: {fault}")))
            finally:
                observed_again(token)
                ended.set()

        try:
            threading.Thread(target=act, name=_THREAD, daemon=True).start()
        except RuntimeError:
            act()  # the interpreter is ending, and starts no more threads
        if wait_for(ended, timeout_s + _PATIENCE_S, stop, self._clock):
            return answers[0]
        self._pools = None
        for connection in connections:
            _cut(connection)
        return Answer(Verdict.RETRY, self._no_answer(timeout_s))

    def close(self) -> None:
        """Give the connection back."""
        pools, self._pools = self._pools, None
        if pools is not None:
            pools.clear()

    def _request(self, body: bytes, timeout_s: float) -> Answer:
        where = self._destination
        try:
            pools = self._pools
            if pools is None:
                pools = self._pools = _open_pools(where)
            response = pools.request(
                "POST",
                where.url,
                body=body,
                headers=self._headers,
                # Never by urllib3: it would follow a redirect with the token, and wait by itself.
                retries=False,
                redirect=False,
                timeout=urllib3.Timeout(total=timeout_s),
                preload_content=False,
            )
            try:
                content = _read(response)
            except exceptions.HTTPError:
                content = b""
                response.close()
        except (exceptions.HTTPError, OSError, ValueError) as fault:
            return self._fault(fault, timeout_s)
        self.date = response.headers.get("date", "")
        return read_answer(
            response.status,
            {name.lower(): value for name, value in response.headers.items()},
            content,
            address=where.shown_url,
            protocol=where.protocol,
            signal=where.signal,
            now_ns=self._clock.wall_ns(),
        )

    def _fault(self, fault: Exception, timeout_s: float) -> Answer:
        """Say what went wrong in the words of the person who has to mend it."""
        address = self._destination.shown_url
        cause = _innermost(fault)
        if isinstance(fault, exceptions.NameResolutionError):
            return Answer(Verdict.RETRY, f"no address is known for the host of {address}")
        if isinstance(fault, exceptions.TimeoutError) and not isinstance(fault, exceptions.NewConnectionError):
            return Answer(Verdict.RETRY, self._no_answer(timeout_s))
        if isinstance(fault, exceptions.SSLError):
            # The files may have been renewed: they are read again for the next try.
            self._pools = None
            advice = "OTEL_EXPORTER_OTLP_CERTIFICATE names the authority, OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE our own"
            if "WRONG_VERSION_NUMBER" in cause or "RECORD_LAYER_FAILURE" in cause:
                advice = "no TLS is spoken there: begin OTEL_EXPORTER_OTLP_ENDPOINT with http://"
            # A server that ends in the middle may just be restarting, or want a certificate of ours.
            verdict = Verdict.RETRY if "EOF occurred" in cause else Verdict.MISDIRECTED
            return Answer(verdict, f"no TLS with {address}: {shortened(cause)} ({advice})")
        if isinstance(fault, exceptions.ProxyError):
            return Answer(Verdict.RETRY, shortened(f"the proxy on the way to {address}: {cause}"))
        if isinstance(fault, (ValueError, exceptions.LocationValueError)) or "SOCKS" in str(fault):
            return Answer(Verdict.MISDIRECTED, shortened(f"{address}: {cause}"))
        advice = ""
        if _says_http2(fault):
            cause, advice = "no answer in HTTP/1.1", f"so gRPC answers: {_GRPC_ADVICE}"
        elif urlsplit(self._destination.url).port == _GRPC_PORT:
            advice = f"port {_GRPC_PORT} is that of gRPC: {_GRPC_ADVICE}"
        text = shortened(f"no connection to {address}: {cause}")
        return Answer(Verdict.RETRY, f"{text} ({advice})" if advice else text)

    def _no_answer(self, timeout_s: float) -> str:
        hint = " (OTEL_EXPORTER_OTLP_TIMEOUT is in milliseconds)" if self._destination.timeout_s < 0.5 else ""
        return f"no answer from {self._destination.shown_url} within {timeout_s:.3g} s{hint}"


# The connections that this thread uses, so that another can end what it waits for.
_UNDER_WAY = threading.local()


class _HttpConnection(urllib3.connection.HTTPConnection):
    def request(self, *arguments: Any, **options: Any) -> None:
        _UNDER_WAY.connections.append(self)
        super().request(*arguments, **options)


class _HttpsConnection(urllib3.connection.HTTPSConnection):
    def request(self, *arguments: Any, **options: Any) -> None:
        _UNDER_WAY.connections.append(self)
        super().request(*arguments, **options)


class _HttpPool(urllib3.HTTPConnectionPool):
    ConnectionCls = _HttpConnection


class _HttpsPool(urllib3.HTTPSConnectionPool):
    ConnectionCls = _HttpsConnection


def _cut(connection: urllib3.connection.HTTPConnection) -> None:
    """End what another thread waits for on a connection; its next use there fails."""
    held = connection.sock
    if held is None:
        return
    try:
        # Not that of a TLS socket, which would wait for the other side.
        socket.socket.shutdown(held, socket.SHUT_RDWR)
    except (OSError, ValueError):
        pass


def proxy_for(url: str) -> str | None:
    """Return the proxy that HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY name for a URL, as programs agree on it."""
    parts = urlsplit(url)
    proxies = getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    if not proxy or proxy_bypass(parts.netloc):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _open_pools(where: Destination) -> urllib3.PoolManager:
    tls: dict[str, Any] = {"cert_reqs": "CERT_REQUIRED", "ca_certs": where.certificate}
    if where.client_certificate:
        tls |= {"cert_file": where.client_certificate, "key_file": where.client_key}
    options: dict[str, Any] = {"maxsize": 1, **(tls if where.secure else {})}
    proxy = proxy_for(where.url)
    pools = urllib3.PoolManager(1, **options) if proxy is None else _proxied(proxy, options)
    pools.pool_classes_by_scheme = {"http": _HttpPool, "https": _HttpsPool}
    return pools


def _proxied(proxy: str, options: dict[str, Any]) -> urllib3.ProxyManager:
    parts = urlsplit(proxy)
    if parts.scheme not in ("http", "https"):
        raise ValueError(f"a {parts.scheme.upper()} proxy is not supported; NO_PROXY names hosts that need none")
    headers = None
    if parts.username is not None:
        user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        headers = urllib3.make_headers(proxy_basic_auth=user)
    return urllib3.ProxyManager(proxy, 1, proxy_headers=headers, **options)


def _read(response: urllib3.BaseHTTPResponse) -> bytes:
    """Read an answer's body as far as it is of use; the connection is kept only where that was all."""
    content = response.read(_MAX_ANSWER_BYTES, decode_content=True)
    if response.read(1):
        response.close()
    else:
        response.release_conn()
    return content


def _innermost(fault: BaseException) -> str:
    """Return the text of what lies at the bottom of a chain: urllib3 wraps the system's own words."""
    while True:
        within = fault.__cause__ or fault.__context__
        if within is None and fault.args and isinstance(fault.args[-1], BaseException):
            within = fault.args[-1]
        if within is None:
            break
        fault = within
    if isinstance(fault, OSError) and fault.strerror:
        return fault.strerror
    return str(fault) or type(fault).__name__


def _says_http2(fault: BaseException) -> bool:
    """Tell whether what came back begins as HTTP/2 does, with a frame of settings, where a status line should be."""
    within = fault.args[-1] if fault.args else None
    return isinstance(within, BadStatusLine) and str(within).startswith("\0\0")


def _not_ours(record: logging.LogRecord) -> bool:
    """Refuse what urllib3 says about our own requests: recorded, it would be sent, and make the next record."""
    return record.threadName != _THREAD and threading.current_thread().name != _THREAD


def _quieten() -> None:
    for name in ("urllib3.connectionpool", "urllib3.connection", "urllib3.util.retry", "urllib3.poolmanager"):
        logger = logging.getLogger(name)
        if _not_ours not in logger.filters:
            logger.addFilter(_not_ours)
