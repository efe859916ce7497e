"""The curves of the run's page: smoothing, logarithmic axis, cursor, zoom, tables and pictures."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from otel_train.view.reading import read_run
from otel_train.view.report import write
from tests.browser import Pages, card, needs_chromium, traces, wait_until
from tests.reader import (
    NAN_AT,
    STEPS,
    drag,
    hover,
    line_of,
    loss_at,
    saved,
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


def debiased(values: list[float], weight: float) -> list[float | None]:
    """Return the average that each value has with those before it, weighted by w to the power of their distance."""
    result: list[float | None] = []
    first = 0
    for index, value in enumerate(values):
        if not math.isfinite(value):
            result.append(None)
            first = index + 1
            continue
        weights = [weight ** (index - other) for other in range(first, index + 1)]
        total = math.fsum(one * values[other] for one, other in zip(weights, range(first, index + 1), strict=True))
        result.append(total / math.fsum(weights))
    return result


def test_smoothing_is_the_debiased_average_of_each_stretch(page: Page) -> None:
    """The values are those of the sum itself, the NaN parts two stretches, the raw line stays, 0 takes it away."""
    chart = card(page, "loss", "curves")
    raw = [loss_at(step) for step in range(STEPS)]
    smooth(page, "0.7")
    expect(page.locator(".toolbar .smoothing output")).to_have_text("0.70")
    wanted = debiased(raw, 0.7)
    found = line_of(chart, "smoothed")["y"]
    assert [index for index, value in enumerate(found) if value is None] == [NAN_AT]
    for value, right in zip(found, wanted, strict=True):
        assert right is None or value == pytest.approx(right, rel=1e-12)
    behind = line_of(chart, "raw")
    assert behind["y"] == [None if step == NAN_AT else raw[step] for step in range(STEPS)]
    # The first value of each stretch is itself: nothing is drawn to zero or across the gap.
    assert (found[0], found[NAN_AT + 1]) == (pytest.approx(raw[0]), pytest.approx(raw[NAN_AT + 1]))
    smooth(page, "0")
    assert [trace["meta"] for trace in traces(chart)] == ["line", "non-finite", "best"]


def test_a_logarithmic_axis_for_one_chart_and_for_all(page: Page) -> None:
    """What has no place on it is counted; the button of one chart leaves the others alone."""
    loss, accuracy = card(page, "loss", "curves"), card(page, "accuracy", "curves")
    accuracy.get_by_role("button", name="log", exact=True).click()
    assert (y_type(loss), y_type(accuracy)) == ("linear", "log")
    expect(accuracy.locator(".unit")).to_have_text("1 at or below 0 have no place on a logarithmic axis")
    # The zero at the first step is a gap: nothing falls from the point before it to the edge.
    assert line_of(accuracy)["y"] == [None, *(step / STEPS for step in range(1, STEPS))]
    page.get_by_role("button", name="log all").click()
    assert (y_type(loss), y_type(accuracy)) == ("log", "log")
    loss.get_by_role("button", name="log", exact=True).click()
    assert (y_type(loss), y_type(accuracy)) == ("linear", "log")
    page.get_by_role("button", name="log all").click()
    assert (y_type(loss), y_type(accuracy)) == ("linear", "linear")
    assert line_of(accuracy)["y"][0] == 0


def test_the_cursor_of_one_chart_shows_the_values_of_the_others(page: Page) -> None:
    """At step 20 of the loss the accuracy says 0.5, with a line at that step; it goes with the pointer."""
    loss, accuracy = card(page, "loss", "curves"), card(page, "accuracy", "curves")
    hover(page, loss, 20)
    cursor = accuracy.locator(".cursor")
    expect(cursor).to_be_visible()
    expect(cursor.locator(".values")).to_have_text("0.5")
    at, wanted = accuracy.locator(".plot").evaluate(
        "(plot) => [parseFloat(plot.querySelector('.cursor').style.left),"
        " plot._fullLayout.xaxis._offset + plot._fullLayout.xaxis.l2p(20)]"
    )
    assert at == pytest.approx(wanted, abs=1)
    page.mouse.move(2, 2)
    expect(cursor).to_be_hidden()


def test_a_value_of_another_step_is_shown_with_its_step(tmp_path: Path, serve: Serve, page_of: Pages) -> None:
    """At step 13 a line with a point there has its value alone; one with points at every tenth step names its own."""
    builder = RunBuilder(tmp_path).attempt()
    steps = list(range(21))
    builder.log({"loss": [10.0 - step / 4 for step in steps]}, split="train", steps=steps)
    builder.log({"loss": [3.0, 2.0, 1.0]}, split="val", steps=[0, 10, 20])
    builder.log({"accuracy": [step / 20 for step in steps]}, split="train", steps=steps)
    builder.end()
    page = whole(page_of(f"{serve(tmp_path)}/run/{RUN_ID}"))
    loss, accuracy = card(page, "loss", "curves"), card(page, "accuracy", "curves")
    hover(page, accuracy, 13)
    values = loss.locator(".cursor .values div")
    expect(values).to_have_text(["train 6.75", "val 2 (step 10)"])
    hover(page, accuracy, 20)
    expect(values).to_have_text(["train 5", "val 1"])
    templates = loss.locator(".plot").evaluate(
        "(plot) => plot.data.filter((trace) => trace.meta === 'line')"
        ".map((trace) => trace.hovertemplate.includes('(step %{x})'))"
    )
    assert templates == [False, True]


def test_the_values_stand_where_they_cover_no_curve(tmp_path: Path, serve: Serve, page_of: Pages) -> None:
    """A line along the top has them below, one along the bottom above."""
    builder = RunBuilder(tmp_path).attempt()
    steps = list(range(31))
    builder.log({"high": [0.0] + [1.0] * 30, "low": [1.0] + [0.0] * 30, "other": [1.0] * 31}, steps=steps)
    builder.end()
    page = whole(page_of(f"{serve(tmp_path)}/run/{RUN_ID}"))
    hover(page, card(page, "other", "curves"), 15)
    for name, below in (("high", True), ("low", False)):
        box = card(page, name, "curves").locator(".cursor .values").bounding_box()
        plot = card(page, name, "curves").locator(".plot .nsewdrag").first.bounding_box()
        assert box is not None
        assert plot is not None
        assert (box["y"] > plot["y"] + plot["height"] / 2) is below


def test_a_chart_is_named_once_encoded_in_the_address(page: Page, page_of: Pages) -> None:
    """A slash in its name is encoded by the address alone; an older address, where it was encoded twice, is read."""
    card(page, "loss", "curves").get_by_role("button", name="log", exact=True).click()
    wait_until(page, "location.search === '?log=metrics%2Floss'")
    again = whole(page_of(page.url.replace("%2F", "%252F")))
    assert (y_type(card(again, "loss", "curves")), y_type(card(again, "accuracy", "curves"))) == ("log", "linear")


def test_the_table_of_the_page_holds_every_point(tmp_path: Path, serve: Serve, page_of: Pages) -> None:
    """5,000 points that are drawn as means come as 5,000 rows, bit by bit, the one that is not finite by its name."""
    values = [math.sin(step) for step in range(5_000)]
    values[1_234] = -math.inf
    builder = RunBuilder(tmp_path).attempt().log({"loss": values}, steps=range(5_000)).end(at_s=6_000)
    page = page_of(f"{serve(tmp_path)}/run/{builder.run_id}")
    chart = card(page, "loss", "curves")
    assert len(line_of(chart)["y"]) < 5_000
    name, content = saved(page, chart, "Table of every point")
    assert name.endswith(".csv")
    found = list(csv.DictReader(io.StringIO(content.decode("utf-8"))))
    assert [int(float(row["step"])) for row in found] == list(range(5_000))
    assert [float(row["value"]) for row in found] == values
    assert found[1_234]["value"] == "-Infinity"


def test_the_table_of_a_report_holds_what_the_report_holds(tmp_path: Path, page_of: Pages) -> None:
    """Point by point where it has them; where it has means its head and name say so, with range and counts."""
    builder = RunBuilder(tmp_path).attempt()
    builder.log({"few": [1.5, math.nan, 0.25]}, steps=[0, 1, 2], times_s=[1.0, 2.0, 3.0])
    values = [float(step % 7) for step in range(6_000)]
    builder.log({"many": values}, steps=range(6_000), times_s=[10 + step / 100 for step in range(6_000)])
    page = page_of(write(read_run(builder.end(at_s=100).path, START_NS + 900 * NS_PER_S)))
    name, content = saved(page, card(page, "few", "curves"), "Table")
    assert name.endswith("few.csv")
    head, *rows, end = content.decode("utf-8").split("\r\n")
    assert (head, end) == ("series,step,epoch,elapsed_s,value", "")
    assert rows == ["few · train,0,,1,1.5", "few · train,1,,2,NaN", "few · train,2,,3,0.25"]
    name, content = saved(page, card(page, "many", "curves"), "Table of the drawn means")
    assert name.endswith("many-reduced.csv")
    found = list(csv.DictReader(io.StringIO(content.decode("utf-8"))))
    assert 500 < len(found) < 6_000
    assert {(row["low"], row["high"]) for row in found if 100 < int(row["step"]) < 5_900} >= {("0", "6")}
    assert math.fsum(float(row["mean"]) for row in found) / len(found) == pytest.approx(3.0, abs=0.01)


def test_a_chart_is_saved_as_a_picture_under_the_policy(page: Page) -> None:
    """A PNG of twice the size on the screen, made and saved without any address."""
    chart = card(page, "loss", "curves")
    name, content = saved(page, chart, "Picture")
    assert name.endswith("loss.png")
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = int.from_bytes(content[16:20], "big"), int.from_bytes(content[20:24], "big")
    assert width >= 1_280
    assert height >= 800
    assert len(content) > 10_000


def test_a_zoom_is_of_one_chart_or_of_all_and_a_double_click_returns(page: Page) -> None:
    """Alone the other chart stays; linked it follows, and both return together."""
    loss, accuracy = card(page, "loss", "curves"), card(page, "accuracy", "curves")
    before = x_range(loss)
    drag(page, loss, 10, 20)
    assert x_range(loss) == [pytest.approx(10, abs=0.3), pytest.approx(20, abs=0.3)]
    assert x_range(accuracy) == before
    loss.locator(".plot .nsewdrag").first.dblclick()
    assert x_range(loss) == before
    page.get_by_role("button", name="link zoom").click()
    drag(page, loss, 10, 20)
    assert x_range(accuracy) == x_range(loss) == [pytest.approx(10, abs=0.3), pytest.approx(20, abs=0.3)]
    wait_until(page, "location.search.includes('zoom=step')")
    accuracy.locator(".plot .nsewdrag").first.dblclick()
    assert x_range(accuracy) == x_range(loss) == before
