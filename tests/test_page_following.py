"""The run's page goes with a run that grows or is deleted, and with a server that goes away and comes again."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser import PATIENCE_MS, Pages, card, finite, needs_chromium, wait_until
from tests.reader import (
    NAN_AT,
    STEPS,
    drag,
    line_of,
    told_run,
    whole,
    x_range,
)
from tests.runs import RUN_ID, RunBuilder
from tests.serving import serve_in_thread

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300), needs_chromium]
Serve = Callable[[Path], str]


@pytest.fixture
def run(tmp_path: Path) -> RunBuilder:
    return told_run(tmp_path)


@pytest.fixture
def page(run: RunBuilder, serve: Serve, page_of: Pages) -> Page:
    """Its page, with all of its parts."""
    return whole(page_of(f"{serve(run.path.parent)}/run/{RUN_ID}"))


def test_a_line_that_grows_keeps_the_zoom_and_tells_what_was_not_finite(run: RunBuilder, page: Page) -> None:
    """Two points arrive at a chart that is zoomed: they are there with their mark, the range is as it was chosen."""
    page.evaluate("window.sameDocument = true")
    chart = card(page, "loss", "curves")
    drag(page, chart, 10, 20)
    before = x_range(chart)
    run.log({"loss": [math.inf, 0.5]}, steps=[STEPS, STEPS + 1], epochs=[2, 2], times_s=[70.0, 71.0])
    wait_until(page, f"(plot) => plot.data[0].y.length === {STEPS + 2}", chart.locator(".plot").element_handle())
    assert finite(line_of(chart))[-1] == (STEPS + 1, 0.5)
    symbols = line_of(chart, "non-finite")
    assert list(zip(symbols["x"], symbols["symbol"], strict=True)) == [(NAN_AT, "x"), (STEPS, "triangle-up")]
    assert x_range(chart) == before
    assert page.evaluate("window.sameDocument")


def test_new_records_do_not_move_what_is_being_read(run: RunBuilder, page: Page) -> None:
    """While a record is open the list stays as it is and says how many came; the button leads to them."""
    record = page.locator("#logs .log", has_text="at the twelfth")
    record.locator("summary").click(position={"x": 5, "y": 5})
    expect(page.locator("#logs .log")).to_have_count(33)
    run.record("came late", at_s=80).record("came last", "ERROR", at_s=81)
    news = page.locator("#logs .news")
    expect(news).to_have_text("2 new records ↑")
    expect(page.locator("#logs .log")).to_have_count(33)
    expect(record.locator(".more")).to_be_visible()
    news.click()
    expect(page.locator("#logs .log").first).to_contain_text("came last")
    expect(page.locator("#logs .log")).to_have_count(35)
    # At the top with nothing open they come by themselves.
    run.record("and another", at_s=82)
    expect(page.locator("#logs .log").first).to_contain_text("and another")


def test_a_run_that_is_deleted_is_said_to_be_gone(run: RunBuilder, page: Page, page_of: Pages) -> None:
    """What was read stays on the page, with words."""
    shutil.rmtree(run.path)
    expect(page.locator(".notice.gone")).to_contain_text("deleted")
    expect(page.locator("#pill")).to_have_text("gone")
    assert len(finite(line_of(card(page, "loss", "curves")))) == STEPS - 1


def test_a_server_that_ends_and_begins_again_is_found_again(run: RunBuilder, page_of: Pages) -> None:
    """Words while it is away; what was written meanwhile is there afterwards, without a new page."""
    with serve_in_thread(run.path.parent) as served:
        port = int(served.address.rsplit(":", 1)[1].strip("/"))
        page = whole(page_of(f"{served.address}run/{RUN_ID}", allow="ERR_|Failed to load resource"))
        page.evaluate("window.sameDocument = true")
    expect(page.locator("#connection")).to_contain_text("does not answer", timeout=PATIENCE_MS)
    run.record("written meanwhile", at_s=90)
    with serve_in_thread(run.path.parent, port=port):
        expect(page.locator("#logs .log").first).to_contain_text("written meanwhile", timeout=PATIENCE_MS)
        expect(page.locator("#connection")).to_be_hidden()
        assert page.evaluate("window.sameDocument")
        page.close()
