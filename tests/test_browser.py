"""The browser of the tests lets nothing pass: each kind of complaint fails, and a page without any does not."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.browser import Pages, needs_chromium

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300), needs_chromium]
READY = "<script>document.documentElement.dataset.ready = 'yes'</script>"
POLICY = "<meta http-equiv='Content-Security-Policy' content=\"script-src 'unsafe-inline'; img-src 'none'\">"
COMPLAINTS = {
    "console error": ("<script>console.error('broken')</script>", "console error: broken"),
    "console log": ("<script>console.log('chatty')</script>", "console log: chatty"),
    "exception": ("<script>setTimeout(() => { throw new Error('thrown'); })</script>", "exception: thrown"),
    "dialog": ("<script>setTimeout(() => alert('owned'))</script>", "dialog: owned"),
    "foreign address": ("<img src='http://127.0.0.1:9/x.png'>", "foreign place: http://127.0.0.1:9/x.png"),
    "file that is missing": ("<img src='missing.png'>", "request failed"),
    "policy": (f"{POLICY}<img src='data:image/png;base64,AA=='>", "policy: img-src"),
}


def html(path: Path, text: str) -> Path:
    page = path / "page.html"
    page.write_text(f"<!doctype html><title>t</title>{text}{READY}", encoding="utf-8")
    return page


@pytest.mark.parametrize("kind", COMPLAINTS)
def test_a_complaint_fails_the_test(browser: Browser, tmp_path: Path, kind: str) -> None:
    """The failure has the words of the browser; where the test expects them it passes."""
    text, words = COMPLAINTS[kind]
    pages = Pages(browser)
    page = pages(html(tmp_path, text))
    page.evaluate("new Promise((done) => setTimeout(done, 50))")  # after the scripts' own timers
    with pytest.raises(AssertionError, match=words):
        pages.close()
    pages.allow(".")
    pages.close()


def test_a_quiet_page_passes(page_of: Pages, tmp_path: Path) -> None:
    """Texts are as they are, and nothing is complained of."""
    page = page_of(html(tmp_path, "<p id=a>text</p>"), dark=True)
    assert page.inner_text("#a") == "text"
    assert page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches") is True
    assert page_of.complaints == []
