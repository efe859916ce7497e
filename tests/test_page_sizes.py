"""The page of a run stays quick and readable with 64 ranks, with 500 metrics, and with long series."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import ElementHandle, Locator, expect

from otel_train.record.entries import Column
from tests.browser import Pages, card, finite, needs_chromium, rows, texts, traces, wait_until
from tests.runs import NS_PER_S, RUN_ID, START_NS, RunBuilder

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300), needs_chromium]
Serve = Callable[[Path], str]
TRAIN = (("split", "train"),)
RANKS, STEPS, SLOW = 64, 20, 37


def plot_of(chart: Locator) -> ElementHandle | None:
    return chart.locator(".plot").element_handle()


def timed(builder: RunBuilder, rank: int, columns: dict[str, float]) -> None:
    """Write the same value of each metric at every step of a rank, a step a second."""
    times = [START_NS + (step + 1) * NS_PER_S for step in range(STEPS)]
    written = [Column(name, times, [value] * STEPS, TRAIN) for name, value in columns.items()]
    written.append(Column("dl.step", times, list(range(STEPS)), TRAIN))
    builder.lines("metrics", builder.encoder(1, rank).points(written), rank=rank)


def test_a_run_of_64_ranks_shows_all_of_them_and_who_is_slow(tmp_path: Path, serve: Serve, page_of: Pages) -> None:
    """A row and a line for each rank; the slow one has the highest score; the loss is there once."""
    builder = RunBuilder(tmp_path).attempt(world_size=RANKS)
    builder.log({"loss": [1 / (step + 1) for step in range(STEPS)]}, steps=range(STEPS))
    for rank in range(RANKS):
        timed(builder, rank, {"dl.step.time": 1.0, "dl.rank.busy.time": 0.9 if rank == SLOW else 0.4})
    builder.end(at_s=STEPS + 5)
    page = page_of(f"{serve(tmp_path)}/run/{RUN_ID}")

    expect(page.locator("#overview")).to_contain_text("64 of 64")
    page.locator("#ranks").scroll_into_view_if_needed()
    expect(page.locator("#ranks table").first.locator("tbody tr")).to_have_count(RANKS)
    heads = texts(page.locator("#ranks table").first.locator("thead th"))
    table = [dict(zip(heads, row, strict=True)) for row in rows(page, "#ranks table")]
    assert [row[heads[0]] for row in table] == [str(rank) for rank in range(RANKS)]
    scores = [float(row[next(head for head in heads if "core" in head)]) for row in table]
    # All steps take a second, of which the slow one works 0.9 s and the others 0.4 s: 1 / (1 - 0.9 + 0.4).
    assert scores[SLOW] == 2.0
    assert {score for rank, score in enumerate(scores) if rank != SLOW} == {1.0}

    chart = card(page, "Own work of a step", "ranks")
    work = {trace["name"]: finite(trace) for trace in traces(chart) if trace["name"] and "lines" in trace["mode"]}
    median, slow = work[f"median of {RANKS} ranks"], work[f"rank {SLOW}: highest mean"]
    milliseconds = 1000  # the unit of the chart
    assert median == [(step, pytest.approx(0.4 * milliseconds)) for step in range(STEPS)]
    assert slow == [(step, pytest.approx(0.9 * milliseconds)) for step in range(STEPS)]
    # Any of the others can be had, too.
    chart.locator(".choose summary").click()
    expect(chart.locator(".choose button.rank")).to_have_count(RANKS)
    chart.get_by_role("button", name="rank 12", exact=True).click()
    wait_until(page, "(plot) => plot.data.some((trace) => trace.name === 'rank 12')", plot_of(chart))
    (one,) = [trace for trace in traces(chart) if trace["name"] == "rank 12" and "lines" in trace["mode"]]
    assert finite(one) == [(step, pytest.approx(0.4 * milliseconds)) for step in range(STEPS)]
    (loss,) = [
        trace for trace in traces(card(page, "loss", "curves")) if "lines" in trace["mode"] and not trace["fill"]
    ]
    assert finite(loss) == [(step, 1 / (step + 1)) for step in range(STEPS)]
    width, room = page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
    assert width <= room


def test_a_run_of_500_metrics_draws_what_is_in_sight_and_filters_the_rest(
    tmp_path: Path, serve: Serve, page_of: Pages
) -> None:
    """The first charts are drawn at once, the others when they come into sight; the filter leaves those asked for."""
    builder = RunBuilder(tmp_path, metrics={}).attempt()
    names = [f"group{number // 50}/metric{number:03}" for number in range(500)]
    values = {name: [float(number), number + 0.5, number + 1.0] for number, name in enumerate(names)}
    builder.log(values, steps=[0, 10, 20]).end()
    page = page_of(f"{serve(tmp_path)}/run/{RUN_ID}")

    first = card(page, "group0/metric000", "curves")
    assert finite(traces(first)[0]) == [(0, 0.0), (10, 0.5), (20, 1.0)]
    drawn = "document.querySelectorAll('#curves .card.chart[data-drawn=yes]').length"
    assert 0 < page.evaluate(drawn) < 60, "what nobody sees costs nothing"

    group = page.locator("#curves details.group", has=page.locator("summary", has_text="group9"))
    if group.get_attribute("open") is None:
        group.locator("summary").click()
    last = card(page, "group9/metric499", "curves")
    assert finite(traces(last)[0]) == [(0, 499.0), (10, 499.5), (20, 500.0)]

    page.get_by_role("searchbox", name="Filter charts by name").fill("metric25")
    visible = page.locator("#curves .card.chart:visible h3")
    expect(visible).to_have_count(10)
    assert texts(visible) == [f"group5/metric{number}" for number in range(250, 260)]
    chart = card(page, "group5/metric255", "curves")
    assert finite(traces(chart)[0]) == [(0, 255.0), (10, 255.5), (20, 256.0)]


def test_a_long_series_is_drawn_with_its_extremes_and_zooming_shows_every_point(
    tmp_path: Path, serve: Serve, page_of: Pages
) -> None:
    """A single spike among 50,000 points is in the picture; a zoom brings the points themselves."""
    builder = RunBuilder(tmp_path).attempt()
    values = [1.0 + 0.001 * math.sin(step) for step in range(50_000)]
    values[31_337] = 9.0
    builder.log({"loss": values}, steps=range(50_000), times_s=[1 + step / 100 for step in range(50_000)]).end()
    page = page_of(f"{serve(tmp_path)}/run/{RUN_ID}")
    chart = card(page, "loss", "curves")
    highest = max(y for trace in traces(chart) for _, y in finite(trace) if trace["meta"] != "non-finite")
    assert highest == 9.0
    plot = chart.locator(".plot")
    plot.evaluate("(plot) => Plotly.relayout(plot, {'xaxis.range[0]': 31300, 'xaxis.range[1]': 31400})")
    wait_until(
        page,
        "(plot) => plot.data.some((trace) => Array.from(trace.x).filter((x) => x > 31299 && x < 31401).length >= 101)",
        plot_of(chart),
    )
    line = max(traces(chart), key=lambda trace: len([x for x, _ in finite(trace) if 31_300 <= x <= 31_400]))
    shown = {x: y for x, y in finite(line) if 31_300 <= x <= 31_400}
    assert shown == {step: values[step] for step in range(31_300, 31_401)}


def test_the_first_chart_of_a_long_run_is_there_before_the_rest(
    tmp_path: Path, serve: Serve, page_of: Pages, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One chart is drawn while nothing else has been read; its drawing lets the page ask for the others."""
    from otel_train.view import first_look
    from otel_train.view.serving import held_runs, run_routes

    monkeypatch.setattr(first_look, "LONG_BYTES", 1)
    monkeypatch.setattr(run_routes, "EARLY_AFTER_S", 0.0)
    # So long only where nobody asks for more.
    monkeypatch.setattr(held_runs, "FIRST_ALONE_S", 1000.0)
    builder = RunBuilder(tmp_path).attempt()
    builder.log({"accuracy": [0.5, 0.75, 0.875], "loss": [4.0, 2.0, 1.0]}, steps=range(3)).end(at_s=20)
    root = serve(tmp_path)
    page = page_of(root)
    page.add_init_script(
        """new MutationObserver((found, watcher) => {
          if (!document.querySelector("#curves .chart[data-drawn=yes]")) return;
          window.firstTitles = [...document.querySelectorAll("#curves .chart h3")].map((head) => head.textContent);
          watcher.disconnect();
        }).observe(document, { subtree: true, childList: true, attributes: true });"""
    )
    page.goto(f"{root}/run/{RUN_ID}")
    wait_until(page, "document.documentElement.dataset.whole === 'yes'")
    assert page.evaluate("window.firstTitles") == ["loss"]
    assert texts(page.locator("#curves .chart h3")) == ["loss", "accuracy"]
    assert finite(traces(card(page, "accuracy"))[0]) == [(0, 0.5), (1, 0.75), (2, 0.875)]
