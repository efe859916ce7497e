"""The run's page leads its reader: from record to step and span and back, by addresses, by keys, on a phone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from otel_train.view.reading import read_run
from otel_train.view.report import write
from tests.browser import Pages, card, needs_chromium, wait_until
from tests.reader import (
    chosen_bar,
    drag,
    line_of,
    marks,
    smooth,
    told_run,
    whole,
    x_range,
    y_type,
)
from tests.runs import NS_PER_S, RUN_ID, START_NS, RunBuilder

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300), needs_chromium]
Serve = Callable[[Path], str]


@pytest.fixture
def run(tmp_path: Path) -> RunBuilder:
    return told_run(tmp_path)


@pytest.fixture
def page(run: RunBuilder, serve: Serve, page_of: Pages) -> Page:
    """Its page, with all of its parts."""
    return whole(page_of(f"{serve(run.path.parent)}/run/{RUN_ID}"))


def test_a_record_leads_to_its_step_and_span_and_back(page: Page) -> None:
    """Log to step: a line at 12 in the charts. Log to span: its bar. Bar to its records, and to its step."""
    record = page.locator("#logs .log", has_text="at the twelfth")
    record.locator("summary .jump").click()
    assert marks(card(page, "loss", "curves")) == marks(card(page, "accuracy", "curves")) == [12]
    expect(page.locator(".toolbar .marked")).to_contain_text("marked: step 12")

    record.locator("summary").click(position={"x": 5, "y": 5})
    record.locator(".to-span").click()
    expect(page.locator("#span h3")).to_have_text("step 12")
    assert chosen_bar(page) == [22, 23]

    page.locator("#span").get_by_role("button", name="Its 1 log record").click()
    expect(page.locator("#logs .log")).to_have_count(1)
    expect(page.locator("#logs .log")).to_contain_text("at the twelfth")
    page.locator("#logs").get_by_role("button", name="Records of all spans").click()
    expect(page.locator("#logs .log")).to_have_count(33)

    page.get_by_role("button", name="Remove the mark").click()
    assert marks(card(page, "loss", "curves")) == []
    page.locator("#span").get_by_role("button", name="Show step 12 in the curves").click()
    assert marks(card(page, "loss", "curves")) == [12]
    # From the step to the records around it: step 12 was written at second 22.
    page.locator(".toolbar").get_by_role("button", name="records around").click()
    expect(page.locator("#logs .log.chosen")).to_contain_text("at the twelfth")


def test_the_record_of_a_checkpoint_leads_to_its_step(
    start: Callable[..., Any], root: Path, serve: Serve, page_of: Pages
) -> None:
    """It was saved after step 2 of epoch 0: a line at 2 in the charts, whatever a checkpoint's description calls it."""
    run = start()
    for _ in run.epochs(1):
        for step in run.steps(range(5)):
            run.log({"loss": 1.0, "accuracy": 0.5})
            if step == 2:
                run.save_checkpoint(root / "model.pkl", b"x")
    run.finish()
    page = whole(page_of(f"{serve(root)}/run/{run.id}"))
    record = page.locator("#logs .log", has_text="checkpoint saved: model.pkl")
    record.locator("summary .jump").click()
    assert marks(card(page, "loss", "curves")) == marks(card(page, "accuracy", "curves")) == [2]


def test_level_and_text_choose_the_records(page: Page) -> None:
    """Of 33 records one is a warning, and one has the word; both choices hold together and are taken back."""
    shown = page.locator("#logs .log")
    expect(shown).to_have_count(33)
    levels = page.locator("#logs .level")
    expect(levels.filter(has_text="INFO")).to_contain_text("32")
    levels.filter(has_text="INFO").click()
    expect(shown).to_have_count(1)
    expect(shown).to_contain_text("at the twelfth")
    page.locator("#logs .search").first.fill("the epoch")
    expect(shown).to_have_count(0)
    levels.filter(has_text="INFO").click()
    expect(shown).to_have_count(1)
    expect(shown).to_contain_text("within the epoch")
    page.locator("#logs .search").first.fill("")
    expect(shown).to_have_count(33)


def test_a_bar_tells_of_itself_and_of_what_lies_within(page: Page) -> None:
    """A click on the epoch's bar: duration, parent, its records and those of what lies within it."""
    plot = page.locator("#timeline .plot")
    chosen_bar(page)
    place = plot.evaluate(
        "(plot) => { const bars = plot.data.find((trace) => trace.name === 'Epochs');"
        " const { xaxis, yaxis } = plot._fullLayout;"
        " return { x: xaxis._offset + xaxis.l2p(bars.base[0] + bars.x[0] / 3),"
        "          y: yaxis._offset + yaxis.l2p(bars.y[0]) }; }"
    )
    plot.click(position=place)
    expect(page.locator("#span h3")).to_have_text("epoch 0")
    expect(page.locator("#span .facts")).to_contain_text("20.0 s")
    expect(page.locator("#span .facts")).to_contain_text("train · 50.0 s")
    page.locator("#span").get_by_role("button", name="Its 1 log record").click()
    expect(page.locator("#logs .log")).to_contain_text("within the epoch")


def test_a_copied_address_restores_what_was_chosen(run: RunBuilder, page: Page, serve: Serve, page_of: Pages) -> None:
    """Axis, smoothing, scale, mark, span, filters of the log and its record: all are there in another browser."""
    page.locator('[data-axis="time"]').click()
    smooth(page, "0.5")
    card(page, "accuracy", "curves").get_by_role("button", name="log", exact=True).click()
    page.locator("#logs .level", has_text="INFO").click()
    page.locator("#logs .search").first.fill("twelfth")
    record = page.locator("#logs .log", has_text="at the twelfth")
    record.locator("summary").click(position={"x": 5, "y": 5})
    record.locator(".to-span").click()
    wait_until(page, "location.search.includes('span=') && location.search.includes('smoothing=')")
    other = whole(page_of(page.url))

    accuracy = card(other, "accuracy", "curves")
    assert y_type(accuracy) == "log"
    assert y_type(card(other, "loss", "curves")) == "linear"
    assert line_of(accuracy, "smoothed")["x"][0] == 10.0
    expect(other.locator(".toolbar .smoothing output")).to_have_text("0.50")
    expect(other.locator("#logs .level", has_text="INFO")).to_have_attribute("aria-pressed", "false")
    expect(other.locator("#logs .search").first).to_have_value("twelfth")
    expect(other.locator("#logs .log.chosen")).to_contain_text("at the twelfth")
    assert chosen_bar(other) == [22, 23]


def test_the_address_of_a_chart_on_the_full_screen_opens_it_there(page: Page, page_of: Pages) -> None:
    """Full screen, linked zoom and filter are in the address, too."""
    page.get_by_role("button", name="link zoom").click()
    drag(page, card(page, "loss", "curves"), 10, 20)
    page.locator(".toolbar .search").fill("accu")
    expect(page.locator(".toolbar .found")).to_have_text("1 of 2 charts")
    page.locator("#curves").get_by_role("button", name="Full screen: accuracy").click()
    wait_until(page, "location.search.includes('full=') && location.search.includes('charts=accu')")
    other = page_of(page.url)
    expect(other.locator("dialog.full h3")).to_have_text("accuracy")
    wait_until(other, "document.querySelector('dialog.full .plot').layout")
    assert x_range(other.locator("dialog.full")) == [pytest.approx(10, abs=0.3), pytest.approx(20, abs=0.3)]
    other.keyboard.press("Escape")
    whole(other)
    expect(other.locator("#curves .card.chart")).to_have_count(1)
    expect(other.locator(".toolbar").get_by_role("button", name="link zoom")).to_have_attribute("aria-pressed", "true")


def test_the_way_back_leads_to_what_was_seen_before(page: Page) -> None:
    """From a record to its step, and with the browser's own button back: no mark, and the record's filter again."""
    page.locator("#logs .search").first.fill("twelfth")
    page.locator("#logs .log", has_text="at the twelfth").locator("summary .jump").click()
    assert marks(card(page, "loss", "curves")) == [12]
    page.go_back()
    expect(page.locator(".toolbar .marked")).to_have_text("")
    expect(page.locator("#logs .log")).to_have_count(1)
    page.go_forward()
    expect(page.locator(".toolbar .marked")).to_contain_text("step 12")


def test_a_file_keeps_its_choices_behind_the_number_sign(run: RunBuilder, page_of: Pages) -> None:
    """The report of a file has no query: section and choices stand in its fragment, and a copy restores them."""
    path = write(read_run(run.path, START_NS + 900 * NS_PER_S))
    page = page_of(path)
    smooth(page, "0.3")
    page.locator("#nav a", has_text="Logs").click()
    wait_until(page, "location.hash === '#logs?smoothing=0.3'")
    other = page_of(f"{path.as_uri()}#logs?smoothing=0.3&mark=step~5")
    expect(other.locator(".toolbar .smoothing output")).to_have_text("0.30")
    assert other.evaluate("document.getElementById('logs').getBoundingClientRect().top") < 300
    assert marks(card(other, "loss", "curves")) == [5]


def test_the_stage_filter_leaves_the_records_of_that_stage(page: Page) -> None:
    """The stage lasted from second 5 to 55: all records but the first."""
    page.locator("#logs select").select_option("train")
    expect(page.locator("#logs .log")).to_have_count(32)
    expect(page.locator("#logs .log", has_text="it begins")).to_have_count(0)


def test_keys_answer_and_keep_silent_while_the_reader_types(page: Page) -> None:
    """?, /, f with Escape, l, [ and ], t, j and k; in a search field they are letters."""
    page.keyboard.press("?")
    overlay = page.locator("dialog.keys")
    expect(overlay).to_contain_text("full screen")
    page.keyboard.press("Escape")
    expect(overlay).to_have_count(0)

    page.keyboard.press("]")
    page.keyboard.press("]")
    page.keyboard.press("[")
    expect(page.locator(".toolbar .smoothing output")).to_have_text("0.10")

    chart = card(page, "loss", "curves")
    full = chart.get_by_role("button", name="Full screen")
    full.focus()
    page.keyboard.press("l")
    assert (y_type(chart), y_type(card(page, "accuracy", "curves"))) == ("log", "linear")
    full.focus()
    page.keyboard.press("f")
    expect(page.locator("dialog.full .chart h3")).to_have_text("loss")
    wait_until(page, "document.querySelector('dialog.full .main-svg').getBoundingClientRect().height > 600")
    page.keyboard.press("Escape")
    expect(page.locator("dialog.full")).to_have_count(0)
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "Full screen: loss"
    expect(page.locator("#curves .card.chart h3").first).to_have_text("loss")

    was = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.keyboard.press("t")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != was

    page.locator("#timeline").scroll_into_view_if_needed()
    page.evaluate("document.getElementById('timeline').scrollIntoView()")
    page.keyboard.press("j")
    wait_until(page, "location.hash === '#logs'")
    page.keyboard.press("k")
    wait_until(page, "location.hash === '#timeline'")

    page.evaluate("document.getElementById('curves').scrollIntoView()")
    page.keyboard.press("/")
    page.keyboard.type("tfl?]")
    expect(page.locator(".toolbar .search")).to_have_value("tfl?]")
    expect(page.locator("dialog")).to_have_count(0)
    expect(page.locator(".toolbar .smoothing output")).to_have_text("0.10")


def test_the_choice_of_theme_is_remembered(run: RunBuilder, page: Page) -> None:
    """Dark was chosen: the page is dark again when it is opened anew."""
    page.locator("#theme").click()
    assert page.evaluate("document.documentElement.style.colorScheme") == "dark"
    page.reload()
    whole(page)
    assert page.evaluate("document.documentElement.style.colorScheme") == "dark"
    expect(page.locator("#curves .card.chart").first).to_be_visible()


def test_the_page_fits_a_phone(run: RunBuilder, serve: Serve, page_of: Pages) -> None:
    """At 390 pixels nothing is wider than the screen, and a chart is as wide as its card."""
    page = whole(page_of(f"{serve(run.path.parent)}/run/{RUN_ID}", width=390, height=844))
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    chart = card(page, "loss", "curves")
    box = chart.locator(".main-svg").first.bounding_box()
    assert box is not None
    assert 250 < box["width"] <= 390


def test_an_unknown_run_is_told_in_words(run: RunBuilder, serve: Serve, page_of: Pages) -> None:
    """A page that says what is wrong and leads to all runs."""
    page = page_of(
        f"{serve(run.path.parent)}/run/20260131-120000-zzzzzzzz", ready=False, allow=r"404|Failed to load resource"
    )
    expect(page.locator("body")).to_contain_text("there is no run")
