"""Requests by HTTP: their form, TLS, proxies, what each answer means, and that nothing waits beyond its time."""

from __future__ import annotations

import json
import logging
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from email.utils import formatdate
from http.client import BadStatusLine
from typing import Any

import pytest
import urllib3
from otlp_servers import START_NS, Certificates, HttpServer, Reply, gauge, records, values

from otel_train import __version__
from otel_train.clock import SYSTEM
from otel_train.export.destination import Destination
from otel_train.export.http_answers import read_answer, read_retry_after
from otel_train.export.http_transport import HttpTransport, proxy_for
from otel_train.export.transport import Answer, Verdict
from tests.scripts import own_threads

Serve = Callable[..., HttpServer]


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy", "REQUEST_METHOD"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture
def serve() -> Iterator[Serve]:
    made: list[HttpServer] = []

    def serve(*script: Reply, **options: Any) -> HttpServer:
        made.append(HttpServer(*script, **options))
        return made[-1]

    yield serve
    for server in made:
        server.close()


def post(destination: Destination, *parts: bytes, timeout_s: float = 5.0) -> Answer:
    transport = HttpTransport(destination, SYSTEM)
    try:
        return transport.post(transport.encode(parts), timeout_s, threading.Event())
    finally:
        transport.close()


def test_parts_arrive_as_one_request(serve: Serve) -> None:
    """Parts of several lines become one JSON document, in gzip, with the path, type and headers that OTLP asks for."""
    server = serve()
    parts = [gauge("train.loss", range(100)), gauge("train.loss", range(100, 150))]
    answer = post(server.destination(headers={"authorization": "Bearer t"}), *parts)
    assert answer == Answer(Verdict.ACCEPTED)
    (posted,) = server.accepted
    assert posted.path == "/v1/metrics"
    assert posted.headers["content-type"] == "application/json"
    assert posted.headers["content-encoding"] == "gzip"
    assert posted.headers["authorization"] == "Bearer t"
    assert posted.headers["user-agent"].startswith(f"otel-train/{__version__} Python/3.")
    assert posted.packed_bytes < len(posted.body) / 4
    assert values(server.accepted) == [("train.loss", float(number)) for number in range(150)]


def test_without_compression_the_body_is_the_lines_themselves(serve: Serve) -> None:
    """Uncompressed, and read by any JSON reader."""
    server = serve()
    post(server.destination("logs", compression="none"), records(range(2)))
    (posted,) = server.accepted
    assert "content-encoding" not in posted.headers
    assert posted.packed_bytes == len(posted.body)
    assert len(json.loads(posted.body)["resourceLogs"][0]["scopeLogs"][0]["logRecords"]) == 2


def test_one_connection_carries_many_requests(serve: Serve) -> None:
    """The connection is kept, also after a fault that came with an answer."""
    server = serve(Reply(), Reply(503, b"busy", content_type="text/plain"), Reply(400, b"{}"), Reply())
    transport = HttpTransport(server.destination(), SYSTEM)
    body = transport.encode([gauge("train.loss", range(3))])
    verdicts = [transport.post(body, 5.0, threading.Event()).verdict for _ in range(4)]
    transport.close()
    assert verdicts == [Verdict.ACCEPTED, Verdict.RETRY, Verdict.REFUSED, Verdict.ACCEPTED]
    assert server.connections == 1


def answer_of(status: int, body: bytes = b"", content_type: str = "application/json", **headers: str) -> Answer:
    return read_answer(
        status,
        {"content-type": content_type, **{name.replace("_", "-"): value for name, value in headers.items()}},
        body,
        address="http://c:4318/v1/metrics",
        protocol="http/json",
        signal="metrics",
        now_ns=START_NS,
    )


@pytest.mark.parametrize(
    ("status", "verdict"),
    [
        *((status, Verdict.ACCEPTED) for status in (200, 202, 204)),
        *((status, Verdict.RETRY) for status in (408, 425, 429, 500, 502, 503, 504, 507, 599)),
        *((status, Verdict.MISDIRECTED) for status in (301, 302, 307, 308, 401, 403, 404, 405, 407, 410, 415, 431)),
        *((status, Verdict.REFUSED) for status in (400, 422)),
        (413, Verdict.TOO_LARGE),
    ],
)
def test_each_status_has_its_meaning(status: int, verdict: Verdict) -> None:
    """What passes by itself is tried again, what a person must mend too, and only the data's faults are refusals."""
    assert answer_of(status).verdict is verdict


@pytest.mark.parametrize(
    ("status", "body", "content_type", "text"),
    [
        (400, b'{"code":3,"message":"bad point"}', "application/json", "400 Bad Request: bad point"),
        (400, b"\x08\x03\x12\x09bad point", "application/x-protobuf", "400 Bad Request: bad point"),
        (400, b"out of\n bounds\n", "text/plain; charset=utf-8", "400 Bad Request: out of bounds"),
        (503, b"<html><title>Back \nsoon</title>", "text/html", "503 Service Unavailable: Back soon"),
        (503, b"<html>", "text/html", "503 Service Unavailable"),
        (400, b"{cut", "application/json", "400 Bad Request: {cut"),
        (503, b"", "", "503 Service Unavailable"),
        (599, b"", "", "599 status"),
    ],
)
def test_a_fault_tells_what_the_server_said(status: int, body: bytes, content_type: str, text: str) -> None:
    """The message of a status in either form, or the text, in one line; never a page."""
    assert answer_of(status, body, content_type).text == text


@pytest.mark.parametrize(
    ("status", "advice"),
    [
        (401, "OTEL_EXPORTER_OTLP_HEADERS"),
        (403, "the token"),
        (404, "the address without /v1/"),
        (415, "OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf"),
    ],
)
def test_a_misdirected_request_tells_what_to_do(status: int, advice: str) -> None:
    """The text names the address and the variable to set."""
    text = answer_of(status).text
    assert "http://c:4318/v1/metrics" in text
    assert advice in text


def test_a_too_large_body_is_told_also_by_a_400() -> None:
    """A Collector answers 400 where a body passes its own limit."""
    assert answer_of(400, b"http: request body too large", "text/plain").verdict is Verdict.TOO_LARGE


@pytest.mark.parametrize(
    ("body", "content_type", "advice"),
    [
        (b"Client sent an HTTP request to an HTTPS server.\n", "text/plain", "https://"),
        (b"<title>400 The plain HTTP request was sent to HTTPS port</title>", "text/html", "https://"),
        (b"invalid character '\\x1f' looking for beginning of value", "text/plain", "COMPRESSION=none"),
        (b"<title>Bad request</title>", "text/html", "something before it"),
        (b"400 Bad Request: malformed Host header", "text/plain; charset=utf-8", "something before it"),
    ],
)
def test_a_400_of_the_way_refuses_no_data(body: bytes, content_type: str, advice: str) -> None:
    """TLS that was not spoken, gzip that is not read, a gateway's page: told, and not taken for a judgement."""
    answer = answer_of(400, body, content_type)
    assert answer.verdict is Verdict.MISDIRECTED
    assert advice in answer.text


def test_plain_http_to_a_tls_server_is_told(serve: Serve, certificates: Certificates) -> None:
    """Whatever such a server answers or does, the data is not judged."""
    server = serve(tls=certificates.server_context())
    where = replace(server.destination(), url=f"http://127.0.0.1:{server.port}/v1/metrics")
    assert post(where, gauge("a", range(1)), timeout_s=1.0).verdict in (Verdict.RETRY, Verdict.MISDIRECTED)


def test_https_to_a_plain_server_is_told(serve: Serve) -> None:
    """The advice is the scheme, not a certificate."""
    server = serve()
    where = replace(server.destination(), url=f"https://127.0.0.1:{server.port}/v1/metrics")
    answer = post(where, gauge("a", range(1)), timeout_s=1.0)
    assert answer.verdict is Verdict.MISDIRECTED
    assert "begin OTEL_EXPORTER_OTLP_ENDPOINT with http://" in answer.text


def test_a_path_that_stands_alone_is_told_of_its_own_variable() -> None:
    """An endpoint for one signal gets no path appended: the advice is about that variable."""
    answer = read_answer(
        404, {}, b"", address="http://c:4318/", protocol="http/json", signal="metrics", now_ns=START_NS
    )
    assert "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT is used as it stands, so it ends with /v1/metrics" in answer.text


@pytest.mark.parametrize("body", [b"<html>log in</html>", b"\n<!DOCTYPE html>\n<title>log in</title>"])
@pytest.mark.parametrize("content_type", ["text/html; charset=utf-8", ""])
def test_a_web_page_is_no_success(body: bytes, content_type: str) -> None:
    """A log-in page that answers everything with 200 has taken nothing, also where it does not say what it is."""
    answer = answer_of(200, body, content_type)
    assert answer.verdict is Verdict.MISDIRECTED
    assert "no OTLP server" in answer.text


@pytest.mark.parametrize(
    ("body", "content_type", "rejected", "text"),
    [
        (b'{"partialSuccess":{"rejectedDataPoints":"7","errorMessage":"old"}}', "application/json", 7, "old"),
        (b'{"partialSuccess":{"rejectedDataPoints":7}}', "application/json", 7, ""),
        (b'{"partialSuccess":{"errorMessage":"beware"}}', "application/json", 0, "beware"),
        (b'{"partialSuccess":null}', "application/json", 0, ""),
        (b"[]", "application/json", 0, ""),
        (b"nonsense", "application/json", 0, ""),
        (b"\x0a\x07\x08\x07\x12\x03old", "application/x-protobuf", 7, "old"),
        (b"\xff", "application/x-protobuf", 0, ""),
        (b"", "", 0, ""),
    ],
)
def test_partial_success_is_read(body: bytes, content_type: str, rejected: int, text: str) -> None:
    """The count and the words of either form; an unreadable body of a success changes nothing."""
    answer = answer_of(200, body, content_type)
    assert (answer.verdict, answer.rejected, answer.text) == (Verdict.ACCEPTED, rejected, text)


def test_protobuf_answers_are_understood_by_their_status_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that answers JSON in protobuf is no fault where the package to read it is not installed."""
    monkeypatch.setattr("otel_train.export.http_answers.find_spec", lambda name: None)
    refused = answer_of(400, b"\x08\x03\x12\x09bad point", "application/x-protobuf")
    assert (refused.verdict, refused.text) == (Verdict.REFUSED, "400 Bad Request")
    assert answer_of(200, b"\x0a\x07\x08\x07\x12\x03old", "application/x-protobuf").verdict is Verdict.ACCEPTED


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("", None),
        ("7", 7.0),
        ("0.5", 0.5),
        ("-3", 0.0),
        ("nan", None),
        (formatdate(START_NS / 1e9 + 90, usegmt=True), 90.0),
        (formatdate(START_NS / 1e9 - 90, usegmt=True), 0.0),
        ("soon", None),
        ("Fri, 99 Foo 2026 25:61:61 GMT", None),
    ],
)
def test_retry_after_is_seconds_or_a_date(value: str, seconds: float | None) -> None:
    """Both forms of RFC 9110; what is neither is no order."""
    assert read_retry_after(value, START_NS) == seconds


def test_retry_after_reaches_the_answer(serve: Serve) -> None:
    """The header of a 429 is read off the wire, whatever its case."""
    server = serve(Reply(429, b"{}", {"RETRY-AFTER": "12"}))
    assert post(server.destination(), gauge("a", range(1))).retry_after_s == 12.0


def test_a_redirect_is_not_followed(serve: Serve) -> None:
    """The token is meant for the host that was named: the other one gets nothing, and the text says where to."""
    other = serve()
    server = serve(Reply(307, b"", {"Location": f"http://127.0.0.1:{other.port}/v1/metrics?secret=1"}))
    answer = post(server.destination(headers={"authorization": "Bearer t"}), gauge("a", range(1)))
    assert answer.verdict is Verdict.MISDIRECTED
    assert f"http://127.0.0.1:{other.port}/v1/metrics" in answer.text
    assert "secret" not in answer.text
    assert other.posted == []


def unused_port() -> int:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return int(held.getsockname()[1])


def test_faults_of_the_network_are_told_in_words(serve: Serve) -> None:
    """A closed port, a reset connection and an unknown host are tried again, and told apart."""
    closed = Destination("metrics", f"http://127.0.0.1:{unused_port()}/v1/metrics")
    unknown = Destination("metrics", "http://collector.invalid:4318/v1/metrics")
    answers = [post(where, gauge("a", range(1))) for where in (closed, serve(Reply(0)).destination(), unknown)]
    assert [answer.verdict for answer in answers] == [Verdict.RETRY] * 3
    assert "Connection refused" in answers[0].text
    assert "Connection reset" in answers[1].text
    assert "collector.invalid" in answers[2].text


def test_the_grpc_port_gives_a_hint() -> None:
    """HTTP sent to port 4317 is the most common mistake there is."""
    transport = HttpTransport(Destination("metrics", "http://127.0.0.1:4317/v1/metrics"), SYSTEM)
    fault = transport._fault(ConnectionResetError(104, "Connection reset by peer"), 1.0)
    assert "OTEL_EXPORTER_OTLP_PROTOCOL=grpc" in fault.text


def test_a_server_that_speaks_http2_gives_a_hint() -> None:
    """Whatever its port: a gRPC server begins with its settings, which are no status line."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def settings() -> None:
            with listener.accept()[0] as connection:
                connection.recv(65536)
                connection.sendall(b"\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00\x05\x00\x00@\x00\r\n")

        server = threading.Thread(target=settings)
        server.start()
        answer = post(Destination("metrics", f"http://127.0.0.1:{listener.getsockname()[1]}/"), gauge("a", range(1)))
        server.join()
    assert answer.verdict is Verdict.RETRY
    assert "no answer in HTTP/1.1 (so gRPC answers: set OTEL_EXPORTER_OTLP_PROTOCOL=grpc" in answer.text
    transport = HttpTransport(Destination("metrics", "http://127.0.0.1:1/v1/metrics"), SYSTEM)
    other = transport._fault(
        urllib3.exceptions.ProtocolError("Connection aborted.", BadStatusLine("\x07\0garbage\0")), 1.0
    )
    assert "gRPC" not in other.text


@pytest.mark.alone
def test_a_server_that_never_answers_holds_nobody(serve: Serve) -> None:
    """The answer that does not come is given up in its time, with the reason."""
    server = serve(Reply(-1))
    start_s = time.monotonic()
    answer = post(server.destination(), gauge("a", range(1)), timeout_s=0.3)
    taken_s = time.monotonic() - start_s
    assert answer.verdict is Verdict.RETRY
    assert "no answer" in answer.text
    assert "0.3 s" in answer.text
    assert 0.25 < taken_s < 0.5


@pytest.mark.parametrize("encrypted", [False, True])
def test_what_was_given_up_leaves_no_thread(encrypted: bool, serve: Serve, certificates: Certificates) -> None:
    """The connection is cut, so that the thread that waits on it ends at once and not with the time-out."""
    server = serve(Reply(-1), tls=certificates.server_context() if encrypted else None)
    transport = HttpTransport(server.destination(certificate=certificates.ca_pem), SYSTEM)
    stop = threading.Event()
    threading.Timer(0.1, stop.set).start()
    transport.post(transport.encode([gauge("a", range(1))]), 60.0, stop)
    assert own_threads(patience_s=1.0) == []
    assert transport.post(transport.encode([gauge("a", range(1))]), 5.0, threading.Event()).verdict is Verdict.ACCEPTED
    transport.close()


def trickling(listener: socket.socket, ended: threading.Event) -> None:
    """Answer one byte every twentieth of a second, for ever."""
    with listener.accept()[0] as connection:
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 200 OK\r\nX-Slow: ")
        while not ended.wait(0.05):
            try:
                connection.sendall(b"x")
            except OSError:
                return


@pytest.mark.alone
def test_an_answer_that_trickles_holds_nobody() -> None:
    """Each byte comes in time, the whole never: no time-out of a socket ends that."""
    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = threading.Thread(target=trickling, args=(listener, ended))
        server.start()
        start_s = time.monotonic()
        where = Destination("metrics", f"http://127.0.0.1:{listener.getsockname()[1]}/v1/metrics")
        answer = post(where, gauge("a", range(1)), timeout_s=0.3)
        taken_s = time.monotonic() - start_s
        ended.set()
        server.join()
    assert answer.verdict is Verdict.RETRY
    assert taken_s < 0.55


@pytest.mark.alone
def test_a_slow_name_service_holds_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look-up of a name cannot be given a time; the request ends without it."""
    asked = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_: asked.wait(2) or [])
    start_s = time.monotonic()
    answer = post(Destination("metrics", "http://collector:4318/v1/metrics"), gauge("a", range(1)), timeout_s=0.2)
    taken_s = time.monotonic() - start_s
    asked.set()
    assert answer.verdict is Verdict.RETRY
    assert taken_s < 0.45


@pytest.mark.alone
def test_a_stop_gives_a_request_under_way_one_second(serve: Serve) -> None:
    """It may be arriving; without an answer it is given up then, long before its own time."""
    transport = HttpTransport(serve(Reply(-1)).destination(), SYSTEM)
    stop = threading.Event()
    threading.Timer(0.1, stop.set).start()
    start_s = time.monotonic()
    answer = transport.post(transport.encode([gauge("a", range(1))]), 3.0, stop)
    taken_s = time.monotonic() - start_s
    transport.close()
    assert answer.verdict is Verdict.RETRY
    assert 0.9 < taken_s < 1.4


def test_tls_with_an_own_authority_and_a_client_certificate(serve: Serve, certificates: Certificates) -> None:
    """Encrypted, both sides proven, with the files that the variables name."""
    server = serve(tls=certificates.server_context(wants_client=True))
    where = server.destination(
        certificate=certificates.ca_pem,
        client_key=certificates.client_key,
        client_certificate=certificates.client_pem,
    )
    assert post(where, gauge("a", range(3))).verdict is Verdict.ACCEPTED
    assert len(values(server.accepted)) == 3


def test_an_unproven_server_gets_nothing(serve: Serve, certificates: Certificates) -> None:
    """A certificate of another authority, or for another host, ends it before the data, and says what to set."""
    for name, authority in (("server", certificates.other_pem), ("elsewhere", certificates.ca_pem)):
        server = serve(tls=certificates.server_context(name=name))
        answer = post(server.destination(certificate=authority), gauge("a", range(1)))
        assert answer.verdict is Verdict.MISDIRECTED
        assert "OTEL_EXPORTER_OTLP_CERTIFICATE" in answer.text
        assert server.posted == []


def test_a_client_without_a_certificate_is_told(serve: Serve, certificates: Certificates) -> None:
    """A server that wants one ends the connection, in one way or another: tried again, and nothing is refused."""
    server = serve(tls=certificates.server_context(wants_client=True))
    answer = post(server.destination(certificate=certificates.ca_pem), gauge("a", range(1)), timeout_s=2.0)
    assert answer.verdict in (Verdict.RETRY, Verdict.MISDIRECTED)
    assert "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE" in answer.text or "reset" in answer.text
    assert server.posted == []


def test_a_renewed_certificate_is_read_again(serve: Serve, certificates: Certificates, tmp_path: Any) -> None:
    """A file that is put right while the run lives is used by the next try."""
    server = serve(tls=certificates.server_context())
    path = tmp_path / "ca.pem"
    shutil.copy(certificates.other_pem, path)
    transport = HttpTransport(server.destination(certificate=str(path)), SYSTEM)
    body = transport.encode([gauge("a", range(1))])
    first = transport.post(body, 5.0, threading.Event())
    shutil.copy(certificates.ca_pem, path)
    second = transport.post(body, 5.0, threading.Event())
    transport.close()
    assert (first.verdict, second.verdict) == (Verdict.MISDIRECTED, Verdict.ACCEPTED)


def test_proxies_are_those_that_programs_agree_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """HTTP_PROXY and HTTPS_PROXY by scheme, with NO_PROXY's exceptions."""
    monkeypatch.setenv("http_proxy", "plain:3128")
    monkeypatch.setenv("https_proxy", "http://secure:3128")
    monkeypatch.setenv("no_proxy", "127.0.0.1,.inner.example")
    assert proxy_for("http://c:4318/v1/logs") == "http://plain:3128"
    assert proxy_for("https://c:4318/v1/logs") == "http://secure:3128"
    assert proxy_for("http://127.0.0.1:4318/v1/logs") is None
    assert proxy_for("http://c.inner.example/v1/logs") is None


def test_a_request_goes_by_the_proxy(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plain request is handed to the proxy with the whole address, and with the proxy's own user."""
    proxy = serve()
    monkeypatch.setenv("http_proxy", f"http://me:p%40ss@127.0.0.1:{proxy.port}")
    answer = post(Destination("metrics", "http://collector.invalid:4318/v1/metrics"), gauge("a", range(2)))
    assert answer.verdict is Verdict.ACCEPTED
    (posted,) = proxy.accepted
    assert posted.path == "http://collector.invalid:4318/v1/metrics"
    assert posted.headers["proxy-authorization"] == "Basic bWU6cEBzcw=="
    assert len(values(proxy.accepted)) == 2


def test_a_proxy_that_is_not_http_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """SOCKS is not there; the text says how to do without."""
    monkeypatch.setenv("http_proxy", "socks5://127.0.0.1:1080")
    answer = post(Destination("metrics", "http://c:4318/v1/metrics"), gauge("a", range(1)))
    assert answer.verdict is Verdict.MISDIRECTED
    assert "NO_PROXY" in answer.text


def test_what_urllib3_says_of_our_requests_is_not_logged(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    """Recorded, it would be sent, and make the next record; what it says of other requests stays."""
    server = serve()
    with caplog.at_level(logging.DEBUG):
        post(server.destination(), gauge("a", range(1)))
        assert [record for record in caplog.records if record.name.startswith("urllib3")] == []
        with urllib3.PoolManager() as pools:
            pools.request("POST", server.destination(compression="none").url, body=b"{}")
    assert "urllib3.connectionpool" in {record.name for record in caplog.records}


def test_our_requests_are_not_instrumented(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """The key by which instrumentations stay silent is set while a request is under way, and on no other thread."""
    from opentelemetry import context

    seen: list[Any] = []
    original = urllib3.PoolManager.request

    def request(self: Any, *arguments: Any, **options: Any) -> Any:
        seen.append(context.get_value(context._SUPPRESS_INSTRUMENTATION_KEY))
        return original(self, *arguments, **options)

    monkeypatch.setattr(urllib3.PoolManager, "request", request)
    post(serve().destination(), gauge("a", range(1)))
    assert seen == [True]
    assert context.get_value(context._SUPPRESS_INSTRUMENTATION_KEY) is None


def test_a_long_answer_is_not_read_to_its_end(serve: Serve) -> None:
    """What a server has to say is cut to what a message holds; the next request works."""
    server = serve(Reply(503, b"x" * 3_000_000, content_type="text/plain"))
    transport = HttpTransport(server.destination(), SYSTEM)
    body = transport.encode([gauge("a", range(1))])
    first = transport.post(body, 5.0, threading.Event())
    second = transport.post(body, 5.0, threading.Event())
    transport.close()
    assert first.verdict is Verdict.RETRY
    assert len(first.text) == 300
    assert second.verdict is Verdict.ACCEPTED


def test_an_encoded_answer_that_is_damaged_keeps_its_status(serve: Serve) -> None:
    """A success stays one, whatever its body holds."""
    server = serve(Reply(200, b"no gzip", {"Content-Encoding": "gzip"}))
    assert post(server.destination(), gauge("a", range(1))).verdict is Verdict.ACCEPTED


def test_a_short_time_out_reminds_of_its_unit(serve: Serve) -> None:
    """10 for ten seconds is the common mistake: the specification has milliseconds."""
    where = replace(serve(Reply(-1)).destination(), timeout_s=0.01)
    answer = post(where, gauge("a", range(1)), timeout_s=0.01)
    assert "milliseconds" in answer.text
