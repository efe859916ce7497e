"""The report within a notebook, in a real browser: drawn in its frame, and shut off from what is around it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from otel_train.clock import wall_ns
from otel_train.view.notebook import Report
from otel_train.view.page import render
from otel_train.view.reading import read_run
from otel_train.view.report import build, plotly_script
from tests.browser import wait_until
from tests.runs import RunBuilder

if TYPE_CHECKING:
    from tests.browser import Pages

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
HOSTILE = "\"><script>parent.postMessage('out', '*')</script>'"


def test_the_frame_draws_the_curves_and_reaches_nothing_around_it(page_of: Pages, root: Path, tmp_path: Path) -> None:
    """A chart is drawn within, the notebook around it is out of reach for its scripts, and nothing complains."""
    builder = RunBuilder(root, name=HOSTILE).attempt().log({"loss": [3.0, 1.0, 2.0]}, steps=[0, 1, 2]).end()
    run = read_run(builder.path, wall_ns())
    made = Report(render(build(run), run.name, plotly_script()), None, run.name, 700)._repr_html_()
    notebook = tmp_path / "notebook.html"
    around = "<script>window.heard = []; onmessage = (event) => heard.push(event.data)</script>"
    notebook.write_text(f"<!doctype html><meta charset='utf-8'><title>around</title>{around}{made}", encoding="utf-8")
    page = page_of(notebook, ready=False)
    frame = page.frame_locator("iframe")
    frame.locator("html[data-ready=yes]").wait_for()
    assert frame.locator("#run-name").inner_text() == HOSTILE
    inner = page.frames[1]
    frame.locator(".js-plotly-plot").first.scroll_into_view_if_needed()
    wait_until(inner, "document.querySelector('.js-plotly-plot .scatterlayer .trace') !== null")
    drawn = inner.evaluate("Array.from(document.querySelector('.js-plotly-plot').data[0].y)")
    assert drawn == [3.0, 1.0, 2.0]
    # The switch of the theme wants to remember its state, which a frame of no origin cannot.
    frame.locator("#theme").click()
    out = inner.evaluate("(() => { try { return parent.document.title } catch (fault) { return fault.name } })()")
    assert out == "SecurityError"
    assert page.evaluate("heard") == []
