"""A real browser for tests: headless Chromium, of which any complaint fails the test that caused it.

Fixtures (tests/conftest.py): `browser`, one a module, and `page_of`, which opens addresses and files in it.
Playwright keeps an event loop in the thread that started it, so a browser does not outlive its module: other tests of
the process run loops of their own.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Error,
    Locator,
    Page,
    Request,
    expect,
    sync_playwright,
)

CHROMIUM = shutil.which("chromium")
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not on the PATH")
# How long a page on a busy machine of two cores may take for anything at all; nothing sleeps for it.
PATIENCE_MS = 40_000
START_MS = 60_000
expect.set_options(timeout=PATIENCE_MS)
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--disable-background-networking",
)
# A policy that forbids what the page tried is told on the console of most, and by this on that of all.
TELL_POLICY = """addEventListener("securitypolicyviolation", (event) =>
  console.error("policy: " + event.violatedDirective + " forbids " + event.blockedURI))"""
# The parts of a figure as plotly holds it, one for each trace: what it was given to draw.
TRACES = """(plot) => plot.data.map((trace) => ({
  name: trace.name, type: trace.type, mode: trace.mode, meta: trace.meta, fill: trace.fill, visible: trace.visible,
  connectgaps: trace.connectgaps, x: Array.from(trace.x || []), y: Array.from(trace.y || []),
  symbol: trace.marker && trace.marker.symbol, text: trace.text, dash: trace.line && trace.line.dash }))"""


_FUNCTION = re.compile(r"(\(\[?[\w, ]*\]?\)|\w+) => ")


@contextmanager
def opened_browser() -> Iterator[Browser]:
    """Start Chromium, once more where the first start stalls, and end it."""
    if CHROMIUM is None:
        pytest.skip("chromium is not on the PATH")
    with sync_playwright() as playwright:
        arguments: dict[str, Any] = {"executable_path": CHROMIUM, "args": [*FLAGS], "timeout": START_MS}
        try:
            browser = playwright.chromium.launch(**arguments)
        except Error:
            browser = playwright.chromium.launch(**arguments)
        try:
            yield browser
        finally:
            browser.close()


class Pages:
    """Opens pages, each in a context of its own, and keeps what the browser complained of.

    A complaint is: any message on the console, an exception, a request that failed or went to another origin, a
    dialog, a breach of the page's policy.
    """

    def __init__(self, browser: Browser) -> None:
        self.browser = browser
        self.complaints: list[str] = []
        self._contexts: list[BrowserContext] = []
        self._allowed: list[re.Pattern[str]] = []
        self._origins: set[str] = set()

    def __call__(
        self,
        address: str | Path,
        *,
        width: int = 1400,
        height: int = 1000,
        dark: bool = False,
        ready: bool = True,
        allow: str = "",
        **options: Any,
    ) -> Page:
        """Open an address or a file; with `ready` the page has shown its first data when this returns.

        `allow` is a pattern of complaints that the test expects; `options` are those of a context of Playwright.
        """
        if allow:
            self.allow(allow)
        if isinstance(address, Path):
            address = address.resolve().as_uri()
        self._origins.add(_origin(address))
        context = self.browser.new_context(
            viewport={"width": width, "height": height}, color_scheme="dark" if dark else "light", **options
        )
        self._contexts.append(context)
        context.set_default_timeout(PATIENCE_MS)
        context.add_init_script(TELL_POLICY)
        context.on("page", self._listen)
        page = context.new_page()
        page.goto(address, wait_until="domcontentloaded")
        if ready:
            try:
                await_ready(page)
            except AssertionError as fault:
                raise AssertionError("\n".join([str(fault), *self.complaints])) from None
        return page

    def allow(self, pattern: str) -> None:
        """Let complaints in which this pattern is found pass."""
        self._allowed.append(re.compile(pattern))

    def _listen(self, page: Page) -> None:
        page.on("console", self._console)
        page.on("pageerror", lambda fault: self._complain(f"exception: {fault}"))
        page.on("requestfailed", self._failed)
        page.on("request", self._requested)
        page.on("dialog", lambda dialog: (self._complain(f"dialog: {dialog.message}"), dialog.dismiss()))

    def _console(self, message: ConsoleMessage) -> None:
        where = message.location.get("url", "")
        self._complain(f"console {message.type}: {message.text} ({where})")

    def _failed(self, request: Request) -> None:
        # What the page itself gave up, such as a stream of events when it is left.
        if request.failure and "ERR_ABORTED" in request.failure:
            return
        self._complain(f"request failed: {request.url}: {request.failure}")

    def _requested(self, request: Request) -> None:
        if urlsplit(request.url).scheme not in ("data", "blob", "about") and _origin(request.url) not in self._origins:
            self._complain(f"request to a foreign place: {request.url}")

    def _complain(self, text: str) -> None:
        self.complaints.append(text)

    def close(self) -> None:
        """Close all pages; AssertionError with what was complained of."""
        for context in self._contexts:
            for page in context.pages:
                if not page.is_closed():
                    page.evaluate("0")  # what the browser has said so far arrives before the answer
            context.close()
        self._contexts.clear()
        left = [text for text in self.complaints if not any(pattern.search(text) for pattern in self._allowed)]
        assert not left, "the browser complained:\n" + "\n".join(left)


def _origin(address: str) -> str:
    parts = urlsplit(address)
    # A file has no origin: it may load itself and nothing beside it.
    return address.split("#")[0].split("?")[0] if parts.scheme == "file" else f"{parts.scheme}://{parts.netloc}"


def wait_until(page: Page, condition: str, arg: Any = None) -> None:
    """Wait until a condition holds in the page: an expression of JavaScript, or a function of `arg`.

    Playwright's own wait_for_function evaluates text again and again, which the policy of our pages forbids.
    """
    function = condition if _FUNCTION.match(condition) else f"() => ({condition})"
    told: str = page.evaluate(
        f"""async ([arg, patience]) => {{
          const holds = {function};
          const until = performance.now() + patience;
          let fault = "it never held";
          while (performance.now() < until) {{
            try {{ if (holds(arg)) return ""; }} catch (error) {{ fault = String(error); }}
            await new Promise((done) => setTimeout(done, 20));
          }}
          return fault;
        }}""",
        [arg, PATIENCE_MS],
    )
    assert not told, f"{condition}: {told}"


def await_ready(page: Page) -> None:
    """Wait until the page has shown its first data (`data-ready` at its root)."""
    wait_until(page, "document.documentElement.dataset.ready === 'yes'")


def card(page: Page, title: str, section: str = "") -> Locator:
    """Return the card of a chart by its whole title, scrolled into sight and drawn."""
    scope = page.locator(f"#{section}") if section else page
    found = scope.locator(".card.chart").filter(has=page.get_by_role("heading", name=title, exact=True, level=3)).first
    found.scroll_into_view_if_needed()
    wait_until(page, "(node) => node.dataset.drawn === 'yes'", found.element_handle())
    return found


def traces(chart: Locator) -> list[dict[str, Any]]:
    """Return what plotly draws in a card: name, type, mode, x, y, symbol, text of each trace.

    Numbers that are not finite are None, as gaps are.
    """
    found: list[dict[str, Any]] = chart.locator(".plot").evaluate(TRACES)
    return found


def finite(trace: dict[str, Any]) -> list[tuple[float, float]]:
    """Return the points of a trace that have a place and a value."""
    return [(x, y) for x, y in zip(trace["x"], trace["y"], strict=True) if x is not None and y is not None]


def texts(found: Locator) -> list[str]:
    """Return the texts of elements, as they are in the document."""
    return [text.strip() for text in found.all_text_contents()]


def wait_for_text(page: Page, selector: str, pattern: str) -> str:
    """Wait until the text of the first such element has the pattern (of JavaScript), and return the text."""
    wait_until(
        page,
        "([selector, pattern]) => { const node = document.querySelector(selector);"
        " return node && new RegExp(pattern).test(node.textContent); }",
        [selector, pattern],
    )
    return (page.locator(selector).first.text_content() or "").strip()


def rows(page: Page, selector: str) -> list[list[str]]:
    """Return the cells' texts of each row of the body of a table."""
    found: list[list[str]] = page.locator(f"{selector} tbody tr").evaluate_all(
        "(rows) => rows.map((row) => [...row.cells].map((cell) => cell.innerText.trim()))"
    )
    return found


def foreign_elements(page: Page, allowed: Sequence[str] = ()) -> list[str]:
    """Return what no page of ours holds: elements that load or run something, and those of these tests' markup."""
    found: list[str] = page.evaluate(
        """(allowed) => [...document.querySelectorAll("#foreign, iframe, object, embed, img, base, form, script, link")]
          .filter((node) => !allowed.some((selector) => node.matches(selector)))
          .map((node) => node.outerHTML.slice(0, 200))""",
        list(allowed),
    )
    return found
