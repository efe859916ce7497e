"""A run whose page the browser tests read, and what a reader does there: hover, drag, smooth, save."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from playwright.sync_api import Locator, Page

from tests.browser import traces, wait_until
from tests.runs import RunBuilder

STEPS = 40
NAN_AT = 17


def loss_at(step: int) -> float:
    return math.nan if step == NAN_AT else 2.0 / (step + 1) + 0.1 * math.sin(step)


def told_run(root: Path) -> RunBuilder:
    """Build a run of forty steps with a NaN, an accuracy that is 0 at first, stages, epochs, a step and records."""
    builder = RunBuilder(root).attempt()
    builder.log(
        {"loss": [loss_at(step) for step in range(STEPS)], "accuracy": [step / STEPS for step in range(STEPS)]},
        steps=range(STEPS),
        epochs=[step // 20 for step in range(STEPS)],
        times_s=[10.0 + step for step in range(STEPS)],
    )
    builder.span("train", 5, 55, span_id=0xA1, dl__stage="train")
    builder.span("epoch", 10, 30, span_id=0xB1, parent=0xA1, dl__epoch=0)
    builder.span("step", 22, 23, span_id=0xC1, dl__step=12)
    builder.record("it begins", at_s=1)
    builder.record("at the twelfth", "WARN", at_s=22.5, dl__step=12, span_id=0xC1)
    builder.record("within the epoch", at_s=25, dl__step=15, span_id=0xB1)
    for number in range(30):
        builder.record(f"line {number}", at_s=30 + number / 10)
    return builder.end(at_s=60)


def whole(page: Page) -> Page:
    page.locator("html[data-whole=yes]").wait_for(state="attached")
    return page


def line_of(chart: Locator, meta: str = "line") -> dict[str, Any]:
    """Return the only trace of that kind."""
    (found,) = [trace for trace in traces(chart) if trace["meta"] == meta]
    return found


def y_type(chart: Locator) -> str:
    found: str = chart.locator(".plot").evaluate("(plot) => plot.layout.yaxis.type")
    return found


def x_range(chart: Locator) -> list[float]:
    found: list[float] = chart.locator(".plot").evaluate("(plot) => Array.from(plot.layout.xaxis.range)")
    return found


def smooth(page: Page, weight: str) -> None:
    slider = page.locator(".toolbar .smoothing input")
    slider.evaluate(
        "(node, value) => { node.value = value; node.dispatchEvent(new Event('input', { bubbles: true })); }", weight
    )


def hover(page: Page, chart: Locator, x: float) -> None:
    """Move the pointer over a place of the chart's axis."""
    at = chart.locator(".plot").evaluate(
        "(plot, x) => { const box = plot.getBoundingClientRect(); const { xaxis, yaxis } = plot._fullLayout;"
        " return [box.left + xaxis._offset + xaxis.l2p(x), box.top + yaxis._offset + yaxis._length / 2]; }",
        x,
    )
    page.mouse.move(at[0] - 3, at[1])
    page.mouse.move(at[0], at[1], steps=4)


def marks(chart: Locator) -> list[float]:
    """Return where the chart has the line of a marked place."""
    found: list[float] = chart.locator(".plot").evaluate(
        "(plot) => (plot.layout.shapes || []).filter((shape) => shape.name === 'mark').map((shape) => shape.x0)"
    )
    return found


def chosen_bar(page: Page) -> list[str]:
    """Return the ends of the outlined bar of the timeline."""
    plot = page.locator("#timeline .plot")
    plot.scroll_into_view_if_needed()
    wait_until(page, "(plot) => plot.data && plot.data.length > 0", plot.element_handle())
    found: list[str] = plot.evaluate(
        "(plot) => (plot.layout.shapes || []).filter((shape) => shape.name === 'chosen')"
        ".flatMap((shape) => [shape.x0, shape.x1])"
    )
    return found


def saved(page: Page, chart: Locator, item: str) -> tuple[str, bytes]:
    """Return name and contents of what the menu of a chart saves."""
    chart.get_by_role("button", name="save").click()
    with page.expect_download() as download:
        chart.get_by_role("menuitem", name=item).click()
    return download.value.suggested_filename, Path(download.value.path()).read_bytes()


def drag(page: Page, chart: Locator, start: float, end: float) -> None:
    """Draw a zoom box over a range of the axis of steps."""
    box = chart.locator(".plot").evaluate(
        "(plot, ends) => { const box = plot.getBoundingClientRect(); const { xaxis, yaxis } = plot._fullLayout;"
        " return [...ends.map((x) => box.left + xaxis._offset + xaxis.l2p(x)),"
        " box.top + yaxis._offset + yaxis._length / 2]; }",
        [start, end],
    )
    page.mouse.move(box[0], box[2])
    page.mouse.down()
    page.mouse.move(box[1], box[2] + 2, steps=6)
    page.mouse.up()
