"""The charts of step times, of the machine and of the model on the run's page: places, names and colours of lines."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from otel_train.record.entries import Column, Sample
from tests.browser import Pages, card, finite, needs_chromium, traces
from tests.reader import whole
from tests.runs import NS_PER_S, RUN_ID, START_NS, RunBuilder

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300), needs_chromium]
Serve = Callable[[Path], str]
Start = Callable[..., Any]
COLOURS = (
    """(plot) => plot.data.filter((trace) => trace.meta === "line").map((trace) => [trace.name, trace.line.color])"""
)


def colours(page: Page, title: str, section: str) -> list[list[str]]:
    found: list[list[str]] = card(page, title, section).locator(".plot").evaluate(COLOURS)
    return found


@pytest.fixture
def page(start: Start, root: Path, serve: Serve, page_of: Pages) -> Page:
    """A run of four steps, two evaluations of three batches, and a test of two, each logged at the run's step."""
    run = start()
    for _ in range(2):
        for _ in run.steps(range(2)):
            with run.phase("forward"):
                pass
            run.log({"loss": 1.0})
        for _ in run.steps(range(3), split="val"):
            with run.phase("forward"):
                pass
        run.log({"loss": 2.0}, split="val")
    for _ in run.steps(range(2), split="test"):
        pass
    run.log({"loss": 3.0}, split="test")
    run.finish()
    return whole(page_of(f"{serve(root)}/run/{run.id}"))


@pytest.mark.parametrize("title", ["Step time", "Wait for data", "Phases"])
def test_batches_of_an_evaluation_are_no_steps_of_the_run(page: Page, title: str) -> None:
    """By step training alone is drawn, and the others are named; by time all are, and no line goes back."""
    chart = card(page, title, "steps")
    (train,) = [trace for trace in traces(chart) if trace["meta"] == "line"]
    assert [x for x, _ in finite(train)] == [0, 1, 2, 3]
    expect(chart.locator(".unit")).to_contain_text("only by time")
    page.locator('[data-axis="time"]').click()
    drawn = {trace["name"].split(" · ")[0]: finite(trace) for trace in traces(chart) if trace["meta"] == "line"}
    if title != "Phases":
        assert {name: len(points) for name, points in drawn.items()} == {"train": 4, "val": 6, "test": 2}
    for points in drawn.values():
        assert all(before[0] <= after[0] for before, after in pairwise(points))


def test_a_split_keeps_its_name_colour_and_dash_on_every_chart(page: Page) -> None:
    """Train, val and test in this order, as on the curves: solid, dashed and dotted."""
    page.locator('[data-axis="time"]').click()
    wanted = colours(page, "loss", "curves")
    assert [name for name, _ in wanted] == ["train", "val", "test"]
    assert len({colour for _, colour in wanted}) == 3
    for title, section in (("loss", "curves"), ("Step time", "steps"), ("Wait for data", "steps")):
        assert colours(page, title, section) == wanted
        chart = card(page, title, section)
        dashes = [trace["dash"] for trace in traces(chart) if trace["meta"] == "line"]
        assert dashes == ["solid", "dash", "dot"]
        assert chart.locator(".chip .dot").evaluate_all("(dots) => dots.map((dot) => dot.dataset.dash || '')") == [
            "",
            "dash",
            "dot",
        ]


def test_checkpoints_stand_at_their_steps(start: Start, root: Path, serve: Serve, page_of: Pages) -> None:
    """Two checkpoints after steps 1 and 3, as run.json has them: their time and size are drawn there."""
    run = start()
    for step in run.steps(range(4)):
        run.log({"loss": 1.0})
        if step in (1, 3):
            run.save_checkpoint(root / "model.pkl", b"x" * (1000 + step))
    run.finish()
    page = whole(page_of(f"{serve(root)}/run/{run.id}"))
    for title in ("Checkpoint time", "Checkpoint size"):
        (line,) = [trace for trace in traces(card(page, title, "steps")) if trace["meta"] == "line"]
        assert [x for x, _ in finite(line)] == [1, 3]


def test_each_card_is_a_line_in_per_cent_and_each_layer_a_row_of_a_map(
    tmp_path: Path, serve: Serve, page_of: Pages
) -> None:
    """Two GPUs by their index; norms of twelve layers as their logarithms, in the order of the model."""
    builder = RunBuilder(tmp_path).attempt().log({"loss": [1.0, 2.0]}, steps=[0, 100])
    for at_s, shares in ((1.5, (0.25, 0.5)), (2.5, (0.75, 1.0))):
        builder.samples(
            at_s,
            [
                Sample("hw.gpu.utilization", share, (("hw.id", f"GPU-{index}"), ("index", index)))
                for index, share in enumerate(shares)
            ],
        )
    times = [START_NS + NS_PER_S, START_NS + 2 * NS_PER_S]
    columns = [
        Column("dl.grad.norm", times, [10.0**number, 10.0 ** (number - 1)], (("layer", f"block.{number}"),))
        for number in range(12)
    ]
    columns.append(Column("dl.step", times, [0, 100]))
    builder.lines("metrics", builder.encoder(1, 0).points(columns)).end(at_s=10)
    page = whole(page_of(f"{serve(tmp_path)}/run/{RUN_ID}"))

    gpu = card(page, "GPU utilisation", "gpu")
    drawn = {trace["name"]: finite(trace) for trace in traces(gpu) if trace["meta"] == "line"}
    assert drawn == {"GPU 0": [(1.5, 25.0), (2.5, 75.0)], "GPU 1": [(1.5, 50.0), (2.5, 100.0)]}
    expect(gpu.locator(".unit")).to_have_text("%")

    norms = card(page, "Gradient norm by layer", "model")
    (heat,) = norms.locator(".plot").evaluate(
        "(plot) => plot.data.map(({ type, x, y, z }) =>"
        " ({ type, x: Array.from(x), y, z: z.map((row) => Array.from(row)) }))"
    )
    assert (heat["type"], heat["x"], heat["y"]) == ("heatmap", [0, 100], [f"block.{number}" for number in range(12)])
    assert heat["z"] == [[pytest.approx(number), pytest.approx(number - 1)] for number in range(12)]
    expect(norms.locator(".hm")).to_have_count(1)
