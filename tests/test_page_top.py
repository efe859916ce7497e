"""The top of a run's page and the list beside it follow a run as its curves do, wherever the reader is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from otel_train.clock import NS_PER_S, wall_ns
from otel_train.record.entries import Sample
from otel_train.runlog.lock import WriterLock
from tests.browser import Pages, needs_chromium, texts, wait_until
from tests.runs import START_NS, RunBuilder

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300), needs_chromium]
Serve = Callable[[Path], str]
Growing = tuple[RunBuilder, float, WriterLock]


@pytest.fixture
def growing(tmp_path: Path) -> Iterator[Growing]:
    """A run of ten minutes in which somebody writes, and the second at which it stands: a tenth of it is done."""
    now_s = (wall_ns() - START_NS) / NS_PER_S
    builder = RunBuilder(tmp_path).attempt(start_s=now_s - 600)
    builder.log({"loss": [1.0] * 10}, steps=range(10), times_s=[now_s - 600 + 50 * step for step in range(10)])
    spent(builder, now_s, productive=500.0, data=100.0)
    builder.samples(now_s, [Sample("dl.run.progress", 0.1), Sample("dl.run.time_left", 540.0)])
    describe(builder, "checkpoints", path="first.pt", role="saved", step=4, best=True)
    builder.span("evaluation", now_s - 5, now_s - 3, span_id=1)
    lock = WriterLock(builder.folder.rank_folder(1, 0))
    assert lock.acquire()
    yield builder, now_s, lock
    lock.release()


def spent(builder: RunBuilder, at_s: float, **seconds: float) -> None:
    builder.samples(at_s, [Sample("dl.time", value, (("state", state),)) for state, value in seconds.items()])


def describe(builder: RunBuilder, what: str, **record: Any) -> None:
    builder.folder.update(lambda document: document[what].append(record))


def counted(page: Page) -> dict[str, str]:
    """Return the numbers of the list of sections."""
    found: dict[str, str] = page.evaluate(
        """Object.fromEntries([...document.querySelectorAll("#nav a")].map((link) =>
           [link.dataset.section, link.querySelector(".count") ? link.querySelector(".count").textContent : ""]))"""
    )
    return found


def facts(page: Page, part: str) -> dict[str, str]:
    place = page.locator(f"#overview .top-{part} dl.facts")
    return dict(zip(texts(place.locator("dt")), texts(place.locator("dd")), strict=True))


def opened(page_of: Pages, address: str) -> Page:
    page = page_of(address)
    page.locator("html[data-whole=yes]").wait_for(state="attached")
    page.evaluate("window.sameDocument = true")
    return page


def test_time_and_lineage_in_short_follow_the_run(growing: Growing, serve: Serve, page_of: Pages) -> None:
    """At the top of the page nothing else is in sight: what other sections hold in whole comes nevertheless."""
    builder, now_s, _ = growing
    page = opened(page_of, f"{serve(builder.path.parent)}/run/{builder.run_id}")
    legend = page.locator("#overview .top-more .legend")
    expect(legend).to_contain_text("productive 83.3 % · 8 min 20 s")
    assert facts(page, "more")["Best checkpoint"] == "first.pt at step 4"
    before = counted(page)
    assert [before[name] for name in ("checkpoints", "data", "stages", "timeline")] == ["1", "", "", "1"]
    assert "gpu" in before
    describe(builder, "checkpoints", path="second.pt", role="saved", step=9, best=True)
    describe(builder, "datasets", name="digits", checksum={"algorithm": "sha256", "value": "abcdef0123456789"})
    describe(builder, "stages", name="preprocess", status="ok")
    spent(builder, now_s + 1, productive=600.0, data=100.0, checkpoint=100.0)
    expect(legend).to_contain_text("productive 75.0 % · 10 min 00 s")
    expect(legend).to_contain_text("checkpoint 12.5 % · 1 min 40 s")
    wait_until(page, "document.querySelector('#overview .top-more').textContent.includes('second.pt at step 9')")
    assert facts(page, "more")["Data sets"] == "digits abcdef012345"
    now = counted(page)
    assert [now[name] for name in ("checkpoints", "data", "stages")] == ["2", "1", "1"]
    assert page.evaluate("window.sameDocument && scrollY === 0")


def test_the_list_of_sections_follows_the_run(growing: Growing, serve: Serve, page_of: Pages) -> None:
    """A section of which there was nothing yet appears though no part of it is in sight; spans are counted."""
    builder, now_s, _ = growing
    page = opened(page_of, f"{serve(builder.path.parent)}/run/{builder.run_id}")
    assert "model" not in counted(page)
    for number in range(2, 5):
        builder.span("evaluation", now_s + number, now_s + number + 0.5, span_id=number)
    builder.samples(now_s + 1, [Sample("dl.grad.norm", 0.5), Sample("hw.gpu.utilization", 0.5, (("hw.id", "0"),))])
    expect(page.locator("#nav a[data-section=model] .count")).to_have_text("1")
    expect(page.locator("#nav a[data-section=gpu] .count")).to_have_text("1")
    expect(page.locator("#nav a[data-section=timeline] .count")).to_have_text("4")
    page.locator("#run-log").scroll_into_view_if_needed()
    expect(page.locator("#run-log")).to_contain_text("10 of your metrics, 1 of steps")
    (builder.path / "artifacts").mkdir(exist_ok=True)
    (builder.path / "artifacts" / "late.txt").write_text("x")
    builder.samples(now_s + 2, [Sample("dl.run.heartbeat", 1.0)])
    expect(page.locator("#files")).to_contain_text("late.txt")


def test_a_running_run_says_how_far_it_is(growing: Growing, serve: Serve, page_of: Pages) -> None:
    """Share and time left stand on top and go on with the steps; once the run has ended there is neither."""
    builder, now_s, lock = growing
    page = opened(page_of, f"{serve(builder.path.parent)}/run/{builder.run_id}")
    share, left = facts(page, "hero")["Progress"].split(", ")
    assert share == "10.0 %"
    assert left.startswith(("about 8 min", "about 9 min"))
    # Ten steps were a tenth.
    builder.log({"loss": [1.0] * 10}, steps=range(10, 20), times_s=[now_s + 0.1 * step for step in range(1, 11)])
    progress = page.locator("#overview .top-hero dl.facts div", has_text="Progress")
    expect(progress).to_contain_text("20.0 %, about 8 min 00 s left")
    # Whoever is at a button in the overview sees it, too.
    page.locator("#overview .top-tiles button").first.click()
    page.evaluate("document.querySelector('#overview .top-tiles button').focus()")
    builder.samples(now_s + 2, [Sample("dl.run.progress", 0.5), Sample("dl.run.time_left", 300.0)])
    expect(progress).to_contain_text("50.0 %, about 4 min")
    assert page.evaluate("document.activeElement.matches('#overview .top-tiles button')")
    assert "dl.run.progress" not in page.content()
    builder.end(at_s=now_s + 3)
    lock.release()
    expect(page.locator("#pill")).to_have_text("finished")
    assert "Progress" not in facts(page, "hero")
