"""The local page in a real browser: the way in with a token, and behind a proxy that puts a path before it."""

from __future__ import annotations

import contextlib
import http.client
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.browser import Pages, needs_chromium
from tests.runs import RUN_ID, RunBuilder
from tests.serving import serve_in_thread

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300), needs_chromium]
PREFIX = "/user/ada/proxy/6160"


def one_run(root: Path, name: str = "small-net") -> RunBuilder:
    return RunBuilder(root, name=name).attempt().log({"loss": [2.0, 1.0]}, steps=[0, 1]).end()


def test_the_printed_address_lets_a_browser_in(tmp_path: Path, page_of: Pages) -> None:
    """The token leaves the address, the page loads all that it needs, and so do others; no script sees the cookie."""
    one_run(tmp_path)
    with serve_in_thread(tmp_path, token="", run_id=RUN_ID) as served:
        # It leads on by itself, so what is waited for is the page after it.
        page = page_of(served.address, ready=False)
        page.locator("html[data-ready=yes]").wait_for(state="attached")
        assert "token=" in served.address
        base = served.address.partition("?")[0].removesuffix(f"run/{RUN_ID}")
        assert page.url.partition("#")[0].partition("?")[0] == f"{base}run/{RUN_ID}"
        assert "token" not in page.url
        assert page.title().startswith("small-net")
        assert page.evaluate("document.cookie") == ""
        (cookie,) = page.context.cookies()
        assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
        page.goto(base)
        page.get_by_role("link", name="small-net").first.click()
        page.locator("html[data-ready=yes]").wait_for(state="attached")
        assert f"/run/{RUN_ID}" in page.url
        page.goto("about:blank")


def test_without_the_token_the_page_says_how_to_get_in(tmp_path: Path, page_of: Pages) -> None:
    """In words, without a script."""
    one_run(tmp_path)
    with serve_in_thread(tmp_path, token="") as served:
        page = page_of(served.address.partition("?")[0], ready=False, allow="401")
        assert page.get_by_role("heading").inner_text() == "A token is needed"
        assert "otel-train ui" in page.inner_text("body")


class Proxy(BaseHTTPRequestHandler):
    """Hands on what lies below a path, without the path, as the proxies of notebook servers do."""

    protocol_version = "HTTP/1.0"
    port = 0

    def do_GET(self) -> None:
        if not self.path.startswith(PREFIX + "/"):
            self.send_error(404)
            return
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(
                "GET", self.path.removeprefix(PREFIX), headers={**self.headers, "X-Forwarded-Host": "hub.example"}
            )
            answer = connection.getresponse()
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in ("transfer-encoding", "connection", "date"):
                    self.send_header(name, value)
            self.end_headers()
            # As it comes: a stream has no end.
            while chunk := answer.read1(65_536):
                self.wfile.write(chunk)
                self.wfile.flush()
        except OSError:
            pass
        finally:
            connection.close()

    def log_message(self, *arguments: object) -> None:
        pass


@contextlib.contextmanager
def behind_a_proxy(port: int) -> Iterator[str]:
    handler = type("OneProxy", (Proxy,), {"port": port})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://localhost:{server.server_address[1]}{PREFIX}/"
        finally:
            server.shutdown()
            thread.join(10)


def test_all_pages_work_below_a_path(tmp_path: Path, page_of: Pages) -> None:
    """Every address in them is relative: table, run, comparison, data, events and downloads."""
    one_run(tmp_path)
    with serve_in_thread(tmp_path) as served, behind_a_proxy(served.server.listener.port) as address:
        page = page_of(address)
        page.get_by_role("link", name="small-net").first.click()
        page.locator("html[data-whole=yes]").wait_for(state="attached")
        assert page.url.startswith(f"{address}run/{RUN_ID}")
        links = page.eval_on_selector_all("a[href]", "(nodes) => nodes.map((node) => node.href)")
        assert links
        assert [link for link in links if not link.startswith(address)] == []
        page.get_by_role("link", name="Compare").first.click()
        page.locator("html[data-ready=yes]").wait_for(state="attached")
        assert page.url.startswith(f"{address}compare")
        page.get_by_role("link", name="Runs", exact=True).first.click()
        page.locator("html[data-ready=yes]").wait_for(state="attached")
        assert page.url == address
        page.goto("about:blank")


def test_a_hostile_folder_and_id_are_text(tmp_path: Path, page_of: Pages) -> None:
    """The shell holds both."""
    root = tmp_path / "<img src=x onerror=document.title='owned'>\"'"
    one_run(root, name="</title><script>document.title='owned'</script>")
    with serve_in_thread(root) as served:
        page = page_of(served.address)
        assert page.title() == "Runs · otel-train"
        assert page.locator("img").count() == 0
        assert page.get_attribute("body", "data-root") == str(root)
        page.goto(served.address + f"run/{RUN_ID}")
        page.locator("html[data-ready=yes]").wait_for(state="attached")
        assert page.title().startswith("</title><script>document.title='owned'</script>")
        page.goto("about:blank")
