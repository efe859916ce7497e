"""The timeline of the page: a run of a day is readable while it is open, and after it was killed."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from otel_train.clock import NS_PER_S
from tests.browser import Pages, needs_chromium, wait_until
from tests.reader import drag, told_run, whole, x_range
from tests.runs import RUN_ID, START_NS, RunBuilder

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300), needs_chromium]
Serve = Callable[[Path], str]
HOUR_S = 3600.0
# What plotly draws of the timeline: each bar's words, where it begins and how long it is, and whether it is hatched.
BARS = """(plot) => plot.data.filter((trace) => trace.type === "bar").flatMap((trace) =>
  Array.from(trace.x).map((x, i) => ({ words: trace.hovertext[i], base: trace.base[i], long: x,
    hatched: Boolean(trace.marker.pattern && trace.marker.pattern.shape) })))"""


def day_long(root: Path, *, hours: float, silent_s: float) -> RunBuilder:
    """Build a run that began so many hours ago, has been silent for some seconds, and has epochs of five hours.

    Its spans are what the recorder writes: a short mark at the start of each, the span itself at its end only.
    """
    began_s = time.time() - START_NS / NS_PER_S - hours * HOUR_S
    last_s = began_s + hours * HOUR_S - silent_s
    builder = RunBuilder(root).attempt(start_s=began_s)
    builder.span("run", began_s, began_s, span_id=1)
    builder.span(
        "train (started)", began_s + 60, began_s + 60, span_id=2, parent=101,
        dl__announces=f"{101:016x}", dl__span__name="train", dl__stage="train",
    )  # fmt: skip
    builder.span("prepare", began_s + 1, began_s + 50, span_id=3, dl__stage="prepare")
    for epoch in range(3):
        start_s, end_s = began_s + 60 + epoch * 5 * HOUR_S, began_s + 60 + (epoch + 1) * 5 * HOUR_S
        if start_s < last_s:
            builder.span(
                "epoch (started)", start_s, start_s, span_id=10 + epoch, parent=200 + epoch,
                dl__announces=f"{200 + epoch:016x}", dl__span__name="epoch", dl__epoch=epoch,
            )  # fmt: skip
        if end_s < last_s:
            builder.span("epoch", start_s, end_s, span_id=200 + epoch, dl__epoch=epoch)
    count = int(hours * 4)
    times = [began_s + (number + 1) * (last_s - began_s) / count for number in range(count)]
    return builder.log({"loss": [1 / (number + 1) for number in range(count)]}, steps=range(count), times_s=times)


def bars(page: Page) -> dict[str, dict[str, Any]]:
    """Return the bars of the timeline by the first line of their words, in the axis' unit."""
    page.locator("#timeline").scroll_into_view_if_needed()
    wait_until(page, "document.querySelector('#timeline .plot')?.data?.length > 0")
    found = page.locator("#timeline .plot").first.evaluate(BARS)
    return {bar["words"].split("<br>")[0]: bar for bar in found}


def test_a_run_that_has_been_open_for_hours_is_readable(tmp_path: Path, serve: Serve, page_of: Pages) -> None:
    """After two hours neither run, stage nor epoch has ended: each is there from its start on, hatched, to now."""
    day_long(tmp_path, hours=2.0, silent_s=5)
    page = page_of(f"{serve(tmp_path)}/run/{RUN_ID}")
    expect(page.locator("#pill")).to_have_text("running")
    found = bars(page)
    unit_s = 60.0 if found["train"]["long"] > 10 else HOUR_S
    assert {name for name, bar in found.items() if bar["hatched"]} >= {"train", "epoch 0"}
    assert not found["prepare"]["hatched"]
    assert found["train"]["base"] * unit_s == pytest.approx(60, abs=1)
    for name in ("train", "epoch 0"):
        assert (found[name]["base"] + found[name]["long"]) * unit_s == pytest.approx(2 * HOUR_S, abs=120)
    assert found["prepare"]["base"] * unit_s == pytest.approx(1, abs=0.1)


def test_a_day_long_run_that_was_killed_keeps_its_closed_parts(tmp_path: Path, serve: Serve, page_of: Pages) -> None:
    """Lost after 20 hours: the epochs that ended are whole, the open one is cut at the last sign of life."""
    day_long(tmp_path, hours=20.0, silent_s=HOUR_S)
    page = page_of(f"{serve(tmp_path)}/run/{RUN_ID}")
    expect(page.locator("#pill")).to_have_text("lost")
    found = bars(page)
    assert [found[f"epoch {epoch}"]["hatched"] for epoch in range(3)] == [False, False, False]
    for epoch in range(3):
        bar = found[f"epoch {epoch}"]
        assert bar["base"] == pytest.approx(60 / HOUR_S + 5 * epoch, abs=0.01)
        assert bar["long"] == pytest.approx(5.0, abs=0.01)
    train = found["train"]
    assert train["hatched"]
    # The last sign of life, an hour before now, and not now.
    assert train["base"] + train["long"] == pytest.approx(19.0, abs=0.05)
    expect(page.locator("#timeline")).to_contain_text("truncated")


def drawn_timeline(page: Page) -> tuple[Locator, list[float]]:
    """Return the card of the timeline once its bars are drawn, and what it shows then."""
    bars(page)
    card = page.locator("#timeline .card").filter(has=page.locator(".plot")).first
    return card, x_range(card)


def test_the_timeline_is_zoomed_by_a_drag_and_shown_whole_by_a_double_click(
    tmp_path: Path, serve: Serve, page_of: Pages
) -> None:
    """From second 20 to 30 of a minute and back; the zoom is in the address, and another browser opens it there."""
    told_run(tmp_path)
    page = whole(page_of(f"{serve(tmp_path)}/run/{RUN_ID}"))
    timeline, before = drawn_timeline(page)
    drag(page, timeline, 20, 30)
    wait_until(page, "location.search.includes('zoom=')")
    assert x_range(timeline) == [pytest.approx(20, abs=0.5), pytest.approx(30, abs=0.5)]
    other = whole(page_of(page.url))
    bars(other)
    again = x_range(other.locator("#timeline .card").filter(has=other.locator(".plot")).first)
    assert again == pytest.approx(x_range(timeline))
    timeline.locator(".plot .nsewdrag").first.dblclick(position={"x": 4, "y": 4})
    wait_until(page, "!location.search.includes('zoom=')")
    assert x_range(timeline) == before


def test_a_double_click_on_a_bar_chooses_nothing(tmp_path: Path, serve: Serve, page_of: Pages) -> None:
    """It shows the whole timeline, with the span that was chosen before; a single click still chooses."""
    told_run(tmp_path)
    page = whole(page_of(f"{serve(tmp_path)}/run/{RUN_ID}"))
    timeline, before = drawn_timeline(page)
    drag(page, timeline, 12, 40)
    wait_until(page, "location.search.includes('zoom=')")
    plot = timeline.locator(".plot")
    plot.dblclick(position=middle_of_epoch(plot))
    wait_until(page, "!location.search.includes('zoom=')")
    assert x_range(timeline) == before
    page.wait_for_timeout(1_000)
    assert "span=" not in page.url
    expect(page.locator("#span")).to_be_hidden()
    plot.click(position=middle_of_epoch(plot))
    expect(page.locator("#span h3")).to_have_text("epoch 0")
    wait_until(page, "location.search.includes('span=')")
    chosen = page.url
    page.wait_for_timeout(1_000)
    plot.dblclick(position=middle_of_epoch(plot, "Stages"))
    page.wait_for_timeout(1_000)
    assert page.url == chosen
    expect(page.locator("#span h3")).to_have_text("epoch 0")


def middle_of_epoch(plot: Locator, lane: str = "Epochs") -> Any:
    """Return the place of the first bar of a lane, where the pointer meets it."""
    return plot.evaluate(
        """(plot, lane) => { const bars = plot.data.find((trace) => trace.name === lane);
        const { xaxis, yaxis } = plot._fullLayout;
        return { x: xaxis._offset + xaxis.l2p(bars.base[0] + bars.x[0] / 2),
                 y: yaxis._offset + yaxis.l2p(bars.y[0]) }; }""",
        lane,
    )
