"""The page spells numbers as the terminal does, and says of what is old, or goes on, how old it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from otel_train.record.entries import Sample
from otel_train.runlog.lock import WriterLock
from otel_train.view import text
from otel_train.view.page import asset
from otel_train.view.reading import read_run
from otel_train.view.report import write
from tests.browser import Pages, needs_chromium, texts, wait_until
from tests.runs import NS_PER_S, RUN_ID, START_NS, RunBuilder

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300), needs_chromium]
Serve = Callable[[Path], str]
NUMBERS = (0.1, 1 / 3, -2.5, 123.4567, 999_999.4, 0.0001, 4.21292e-07, -4.2e-05, 1.5e-300, 1_234_567.8, 2.5e21, 7, 0)
DURATIONS = (0, 3.2e-8, 0.000119093, 0.0009996, 0.00834, 0.4806, 0.9996, 1, 12.34, 59.97, 245, 11_520, 190_800, -0.002)
SIZES = (0, 1023, 1024, 18 * 1024**3)
# What plotly writes into the bars of one lane, by the first line of what it says of each.
LABELS = """(plot) => plot.data.filter((trace) => trace.name === "Epochs").flatMap((trace) =>
  Array.from(trace.text).map((text, i) => [trace.hovertext[i].split("<br>")[0], text]))"""


def killed(root: Path) -> RunBuilder:
    """Build a run whose time was counted after two of its forty seconds, with an epoch in each second."""
    builder = RunBuilder(root).attempt().log({"loss": [1.0]}, times_s=[40.0])
    builder.samples(
        2, [Sample("dl.time", 1.5, (("state", "productive"),)), Sample("dl.time", 0.5, (("state", "idle"),))]
    )
    builder.span("run", 0, 0, span_id=1)
    for epoch in range(40):
        builder.span("epoch", epoch, epoch + 1, span_id=100 + epoch, dl__epoch=epoch)
    return builder


@pytest.fixture
def running(tmp_path: Path) -> Iterator[RunBuilder]:
    """Give a run in which somebody writes."""
    builder = killed(tmp_path)
    lock = WriterLock(builder.folder.rank_folder(1, 0))
    assert lock.acquire()
    yield builder
    lock.release()


def spelled(page: Page, function: str, values: tuple[float, ...]) -> list[str]:
    """Return values as a function of the page's own script writes them."""
    source = asset("formats.js")
    found: list[str] = page.evaluate(f"(values) => {{ {source}\n return values.map({function}); }}", list(values))
    return found


def test_numbers_are_spelled_as_on_the_terminal(tmp_path: Path, serve: Serve, page_of: Pages) -> None:
    """Numbers, durations and sizes: one table, written by both."""
    page = page_of(serve(tmp_path))
    assert spelled(page, "(value) => number(value)", NUMBERS) == [text.number(value) for value in NUMBERS]
    assert spelled(page, "(value) => duration(value)", DURATIONS) == [text.duration(value) for value in DURATIONS]
    assert spelled(page, "(value) => bytes(value)", SIZES) == [text.size(value) for value in SIZES]


def test_a_killed_run_says_as_of_when_its_time_is_counted(tmp_path: Path, serve: Serve, page_of: Pages) -> None:
    """The bar is of all forty seconds, and 38 of them were not counted; the run's own bar is as long, and hatched."""
    killed(tmp_path)
    page = page_of(f"{serve(tmp_path)}/run/{RUN_ID}")
    spent = page.locator("#overview .card").filter(has_text="Where the time went")
    assert texts(spent.locator(".legend > span")) == [
        "productive 3.8 % · 1.5 s",
        "idle 1.3 % · 500 ms",
        "not counted 95.0 % · 38.0 s",
    ]
    expect(spent).to_contain_text("As of 2.0 s of 40.0 s")
    page.locator("#timeline").scroll_into_view_if_needed()
    wait_until(page, "document.querySelector('#timeline .plot')?.data?.length > 0")
    plot = page.locator("#timeline .plot").first
    assert plot.evaluate(LABELS) == [[f"epoch {epoch}", str(epoch)] for epoch in range(40)]
    bar = plot.evaluate(
        "(plot) => { const run = plot.data.find((trace) => trace.name === 'Run');"
        " return [run.base[0], run.x[0], run.marker.pattern.shape]; }"
    )
    assert bar == [0, 40, "/"]


def test_only_a_page_that_stands_still_says_when(running: RunBuilder, serve: Serve, page_of: Pages) -> None:
    """A report of a run that goes on names its moment; the page that follows the run need not."""
    page = page_of(f"{serve(running.path.parent)}/run/{RUN_ID}")
    expect(page.locator("#pill")).to_have_text("running")
    expect(page.locator("#overview .tile")).to_have_count(1)
    expect(page.locator("#overview .notice")).to_have_count(0)
    report = page_of(write(read_run(running.path, START_NS + 100 * NS_PER_S)))
    assert texts(report.locator("#overview .notice")) == [
        "NoteThe run goes on; this is how it stood at 2026-01-31 12:01:40 UTC."
    ]
