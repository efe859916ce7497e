"""Who is let in to the local page: names of the server, tokens, methods, and the headers of every answer."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from otel_train.view.serving.doors import Access, host_names, is_loopback, named_host
from otel_train.view.serving.ports import ListenError
from otel_train.view.serving.server import LocalServer, Options
from tests.runs import RUN_ID, RunBuilder
from tests.serving import Served, serve_in_thread

TOKEN = "ein-langes, geheimes Wort"
QUERY = "token=ein-langes%2C+geheimes+Wort"
PATHS = ("", f"run/{RUN_ID}", "compare", "nix", "api/runs", f"api/run/{RUN_ID}", f"api/run/{RUN_ID}/file?path=run.json")
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def one_run(root: Path) -> RunBuilder:
    return RunBuilder(root).attempt().log({"loss": [2.0, 1.0]}, steps=[0, 1]).end()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server as it is without options."""
    root = tmp_path_factory.mktemp("runs")
    one_run(root)
    with serve_in_thread(root) as served:
        yield served


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server that asks for a token."""
    root = tmp_path_factory.mktemp("guarded")
    one_run(root)
    with serve_in_thread(root, token=TOKEN) as served:
        yield served


@pytest.mark.parametrize("path", PATHS)
def test_every_answer_keeps_the_page_from_doing_anything_else(served: Served, path: str) -> None:
    """Policy, no sniffing, no referrer, nothing for other origins: on pages, data, files and refusals."""
    headers = served.get(path).headers
    expected = "sandbox; default-src 'none'" if "/file?" in path else POLICY
    assert headers["content-security-policy"] == expected
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert "access-control-allow-origin" not in headers
    assert "server" not in headers


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("LOCALHOST:6160", 200),
        ("127.0.0.1:1", 200),
        ("[::1]:6160", 200),
        ("localhost.", 200),
        ("evil.example", 421),
        ("evil.example:6160", 421),
        ("localhost.evil.example", 421),
        ("127.0.0.1.evil.example", 421),
        ("0.0.0.0", 421),
        ("", 421),
    ],
)
def test_a_foreign_name_for_this_machine_is_refused(served: Served, host: str, status: int) -> None:
    """A page that had its own name lead here could read the runs (DNS rebinding)."""
    for path in ("", f"api/run/{RUN_ID}", "nix"):
        answer = served.get(path, host=host)
        assert answer.status == (404 if path == "nix" and status == 200 else status)
        if status == 421:
            assert "small-net" not in answer.text
            assert "otel-train ui --allow-host" in answer.text


def test_another_name_can_be_allowed(tmp_path: Path) -> None:
    """Behind a proxy the page is called by the proxy's name."""
    with serve_in_thread(tmp_path, allowed_hosts=("hub.example",)) as served:
        assert served.get("", host="hub.example:443").status == 200
        assert served.get("", host="other.example").status == 421


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_nothing_can_be_changed(served: Served, method: str) -> None:
    """Every method that is not for reading is refused, with those that are."""
    for path in ("", f"api/run/{RUN_ID}", "nix"):
        answer = served.get(path, method=method)
        assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD")


@pytest.mark.parametrize("path", [*PATHS, f"api/run/{RUN_ID}/events", "api/runs/events"])
def test_head_answers_as_get_without_a_body(served: Served, path: str) -> None:
    """Also for streams, which would never end."""
    answer = served.get(path, method="HEAD")
    assert (answer.status, answer.body) == (404 if path == "nix" else 200, b"")


def test_a_page_of_another_site_cannot_make_the_server_work(served: Served) -> None:
    """What the browser marks as asked for by another site is refused, a link that somebody follows is not."""
    path = f"api/run/{RUN_ID}"
    assert served.get(path, sec_fetch_site="cross-site", sec_fetch_mode="no-cors").status == 403
    assert served.get(path, sec_fetch_site="cross-site", sec_fetch_mode="navigate").status == 200
    assert served.get(path, sec_fetch_site="same-origin", sec_fetch_mode="cors").status == 200


# Tokens --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [*PATHS, "assets/page.js", "favicon.ico", f"api/run/{RUN_ID}/events"])
def test_without_the_token_nothing_is_shown(guarded: Served, path: str) -> None:
    """Not even whether there is such a page; the answer says how to get in."""
    for headers in ({}, {"authorization": "Bearer falsch"}, {"cookie": f"{cookie_name(guarded)}=falsch"}):
        answer = guarded.get(path, **headers)
        assert answer.status == 401
        assert "small-net" not in answer.text
        assert "otel-train ui" in answer.text
        assert "?token=" in answer.text
        assert "set-cookie" not in answer.headers


def cookie_name(served: Served) -> str:
    return f"otel_train_ui_{served.server.listener.port}"


@pytest.mark.parametrize("wrong", ["falsch", "", TOKEN[:-1], TOKEN + "x", "%FF%FE", "%00"])
def test_a_wrong_token_is_refused(guarded: Served, wrong: str) -> None:
    """Shorter, longer, or no text at all."""
    answer = guarded.get(f"?token={wrong.replace(' ', '+')}")
    assert answer.status == 403
    assert "set-cookie" not in answer.headers


def test_the_token_of_the_address_becomes_a_cookie(guarded: Served) -> None:
    """The page that was opened with it leads to itself without it; the cookie, which no script reads, then suffices."""
    answer = guarded.get(f"run/{RUN_ID}?parts=head&{QUERY}&x=%22%3E%3Cscript%3E")
    assert answer.status == 200
    cookie = answer.headers["set-cookie"]
    assert re.fullmatch(rf"{cookie_name(guarded)}=[0-9a-f]{{64}}; Path=/; HttpOnly; SameSite=Strict", cookie)
    assert f'content="0;url=./{RUN_ID}?parts=head&amp;x=%22%3E%3Cscript%3E"' in answer.text
    assert TOKEN not in answer.text
    assert "<script" not in answer.text
    shown = cookie.partition(";")[0]
    assert guarded.get(f"api/run/{RUN_ID}", cookie=shown).json["name"] == "small-net"
    assert guarded.get(f"api/run/{RUN_ID}", cookie=f"other=1; {shown}").status == 200
    assert guarded.get(f"api/run/{RUN_ID}", cookie=shown[:-1]).status == 401


def test_a_program_may_show_the_token_otherwise(guarded: Served) -> None:
    """As a bearer token, or with each address."""
    assert guarded.get("api/runs", authorization=f"Bearer {TOKEN}").json["total"] == 1
    answer = guarded.get(f"api/runs?{QUERY}")
    assert answer.json["total"] == 1
    assert "set-cookie" in answer.headers


def test_a_token_does_not_open_the_door_for_foreign_names(guarded: Served) -> None:
    """Name and token are both asked for."""
    assert guarded.get("", host="evil.example", authorization=f"Bearer {TOKEN}").status == 421


def test_elsewhere_than_on_this_machine_a_random_token_is_asked_for(tmp_path: Path) -> None:
    """The printed address holds it, a new one each time, and leads to this machine from others."""
    with serve_in_thread(tmp_path, host="0.0.0.0") as first, serve_in_thread(tmp_path, host="0.0.0.0") as second:
        tokens = [re.search(r"\?token=([\w-]{32})$", served.server.address()) for served in (first, second)]
        assert all(tokens)
        assert tokens[0][1] != tokens[1][1]  # type: ignore[index]  # all were found
        assert not first.server.address().startswith("http://0.0.0.0")
        assert first.address.startswith("http://127.0.0.1:")
        assert first.get("api/runs").status == 401
        # Any name: the token alone decides.
        token = tokens[0][1]  # type: ignore[index]  # as above
        assert first.get(f"api/runs?token={token}", host="gpu-node.example").status == 200


def test_on_this_machine_a_random_token_can_be_asked_for(tmp_path: Path) -> None:
    """Others may have accounts on it."""
    with serve_in_thread(tmp_path, token="") as served:
        assert len(served.server.token) == 32
        assert served.get("api/runs").status == 401


def test_a_short_token_is_refused(tmp_path: Path) -> None:
    """It would be guessed."""
    with pytest.raises(ListenError, match="at least 8 characters"):
        LocalServer(tmp_path, Options(port=0, token="kurz"))


def test_a_server_that_answers_to_any_name_needs_a_token() -> None:
    """The combination that would be open to DNS rebinding cannot be made."""
    with pytest.raises(ValueError, match="needs a token"):
        Access(hosts=None)


@pytest.mark.parametrize(
    ("host", "names"),
    [
        ("127.0.0.1", {"localhost", "127.0.0.1", "::1", "proxy"}),
        ("127.0.0.2", {"localhost", "127.0.0.1", "::1", "proxy", "127.0.0.2"}),
        ("192.0.2.7", {"localhost", "127.0.0.1", "::1", "proxy", "192.0.2.7", "node"}),
        ("GPU-Node", {"localhost", "127.0.0.1", "::1", "proxy", "gpu-node", "node"}),
        ("0.0.0.0", None),
        ("::", None),
    ],
)
def test_the_names_of_a_server(host: str, names: set[str] | None) -> None:
    """Its address, this machine's names where others reach it, and those that were allowed."""
    assert host_names(host, ["Proxy"], ["Node"]) == names


@pytest.mark.parametrize(
    ("header", "name"),
    [
        ("LocalHost", "localhost"),
        ("localhost:80", "localhost"),
        ("[::1]", "::1"),
        ("[fe80::1]:6160", "fe80::1"),
        ("[::1]a.example", "[::1]a.example"),
        ("[::1]:80.example", "[::1]:80.example"),
        (" a.example.:1 ", "a.example"),
        ("", ""),
    ],
)
def test_the_name_in_a_host_header(header: str, name: str) -> None:
    """Without port, brackets and the dot at the end."""
    assert named_host(header) == name


@pytest.mark.parametrize(
    ("host", "only_here"), [("127.3.4.5", True), ("::1", True), ("localhost", True), ("10.0.0.1", False), ("a", False)]
)
def test_which_addresses_only_this_machine_reaches(host: str, only_here: bool) -> None:
    """The whole block of IPv4 and the one address of IPv6."""
    assert is_loopback(host) is only_here


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"GET /\xff HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n", 400),
        (b"GET / HTTP/1.0\r\n\r\n", 421),
        (b"GET http://evil.example/ HTTP/1.1\r\nHost: evil.example\r\n\r\n", 421),
        (b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n", 405),
        (b"CONNECT evil.example:443 HTTP/1.1\r\nHost: localhost\r\n\r\n", 405),
        (b"POST /api/runs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhello", 405),
        (b"GET /" + b"a" * 200_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00" * 20, 400),
    ],
)
def test_what_is_no_request_is_refused(
    served: Served, sent: bytes, status: int, capfd: pytest.CaptureFixture[str]
) -> None:
    """The server goes on, and has nothing to say about it."""
    with socket.create_connection(("127.0.0.1", served.server.listener.port), timeout=20) as connection:
        connection.sendall(sent)
        assert connection.makefile("rb").readline().startswith(b"HTTP/1.1 %d " % status)
    assert served.get("").status == 200
    assert capfd.readouterr().err == ""
