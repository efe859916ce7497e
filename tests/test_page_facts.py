"""What the run's page says of data sets, checkpoints, stages, environment and files: readable at any width, in UTC."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, expect

from tests.browser import Pages, needs_chromium, rows, texts
from tests.reader import whole
from tests.runs import RUN_ID, START_NS, RunBuilder

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300), needs_chromium]
Serve = Callable[[Path], str]
SHA = "57414bc2e5a0" + 52 * "0"
LONG = "build/digits/a/rather/deep/folder/of/many/parts/with-a-long-name-{}.npz"
REM = 16


def widths(found: Locator) -> list[float]:
    measured: list[float] = found.evaluate_all("(nodes) => nodes.map((node) => node.getBoundingClientRect().width)")
    return measured


def file(name: str) -> dict[str, Any]:
    return {"path": name, "kind": "file", "size": 2048, "checksum": {"algorithm": "sha256", "value": SHA}}


@pytest.mark.parametrize("width", [390, 1400])
def test_each_file_of_a_stage_has_a_line_that_can_be_read(
    tmp_path: Path, serve: Serve, page_of: Pages, width: int
) -> None:
    """Two inputs, one below the other, in a column that is no narrower than 16rem where its paths are longer."""
    stage = {
        "name": "prepare",
        "status": "ok",
        "duration_s": 1.5,
        "inputs": [file(LONG.format(1)), file(LONG.format(2))],
        "outputs": [file("a.npz")],
    }
    builder = RunBuilder(tmp_path, stages=[stage]).attempt().log({"loss": [1.0]}).end()
    page = whole(page_of(f"{serve(builder.path.parent)}/run/{RUN_ID}", width=width, height=844))
    cells = page.locator("#stages tbody td > .mono")
    lines = cells.first.locator("div")
    assert texts(lines) == [f"{LONG.format(number)} · 2.0 KiB · {SHA[:12]}" for number in (1, 2)]
    first, second = (lines.nth(number).bounding_box() for number in (0, 1))
    assert first is not None
    assert second is not None
    assert second["y"] >= first["y"] + first["height"]
    assert min(widths(lines)) >= 16 * REM
    # A short name is whole on one line; nothing is wider than the screen but within its card.
    (short,) = texts(cells.nth(1).locator("div"))
    assert short.startswith("a.npz")
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_keys_break_between_their_words_and_lists_of_files_are_lines(
    tmp_path: Path, serve: Serve, page_of: Pages
) -> None:
    """In a narrow column each line of a key begins with a whole word; every changed file stands on its own line."""
    changed = ["train.py", "models/net.py"]
    torch = {"deterministic_algorithms_are_wanted": True}
    environment = {"code": {"commit": "0" * 40, "changed_files": changed}, "torch": torch}
    builder = RunBuilder(tmp_path).attempt(environment=environment).log({"loss": [1.0]}).end()
    page = whole(page_of(f"{serve(builder.path.parent)}/run/{RUN_ID}", width=390, height=844))
    pairs = {cells[0]: cells[1] for cells in rows(page, "#environment .pairs")}
    assert pairs["changed_files"] == "\n".join(changed)
    # The text between two places where a line may end is drawn in one line: one rectangle.
    key = page.locator("#environment .pairs td", has_text="deterministic_algorithms_are_wanted").first
    drawn = key.evaluate(
        """(cell) => [...cell.childNodes].filter((node) => node.nodeType === 3).map((node) => {
          const range = document.createRange();
          range.selectNodeContents(node);
          return [node.data, range.getClientRects().length];
        })"""
    )
    assert drawn == [[word, 1] for word in ("deterministic_", "algorithms_", "are_", "wanted")]


def test_data_sets_have_a_bar_for_each_class(tmp_path: Path, serve: Serve, page_of: Pages) -> None:
    """30 and 10 of 40: a whole bar and a third of one, and the shares in words."""
    dataset = {"name": "digits", "size": 40, "classes": {"cat": 30, "dog": 10}, "problems": ["two labels are missing"]}
    builder = RunBuilder(tmp_path, datasets=[dataset]).attempt().log({"loss": [1.0]}).end()
    page = whole(page_of(f"{serve(builder.path.parent)}/run/{RUN_ID}"))
    card = page.locator("#data .card", has_text="digits")
    assert texts(card.locator(".classes > span:not(.track)")) == ["cat", "30 · 75.0 %", "dog", "10 · 25.0 %"]
    page.evaluate("document.getElementById('data').scrollIntoView()")
    full, part = widths(card.locator(".fill"))
    assert full > 50
    assert part == pytest.approx(full / 3, abs=1)
    expect(card.locator(".notice.warn")).to_have_text("two labels are missing")


def test_checkpoints_lead_to_their_step_and_back_to_the_runs_they_came_from(
    tmp_path: Path, serve: Serve, page_of: Pages
) -> None:
    """The best one has a star; the chain names the run of its origin, which is a link where that run lies beside."""
    older_id = "20260131-110000-aaaaaaaa"
    first = {"path": "resnet.pt", "role": "loaded", "sha256": "b" * 64, "base_model": "resnet18"}
    RunBuilder(tmp_path, older_id, name="older", checkpoints=[first]).attempt().log({"loss": [1.0]}).end()
    origin = {
        "path": "/models/base.pt",
        "role": "loaded",
        "sha256": SHA,
        "run": older_id,
        "run_name": "older",
        "step": 40,
    }
    best = {"path": "/out/best.pt", "role": "saved", "best": True, "step": 3, "epoch": 0, "size": 2048, "sha256": SHA}
    builder = RunBuilder(tmp_path, checkpoints=[origin, best]).attempt()
    builder.log({"loss": [4.0, 3.0, 2.0, 1.0]}, steps=range(4)).end()
    page = whole(page_of(f"{serve(tmp_path)}/run/{RUN_ID}"))
    table = rows(page, "#checkpoints .card:first-of-type")
    assert table[1][:6] == ["★ best.pt", "saved", "3", "0", "2.0 KiB", SHA[:12]]
    chain = page.locator("#checkpoints .card", has_text="The chain behind them")
    told = [
        [cell.strip() for cell in row]
        for row in chain.locator("tbody tr").evaluate_all(
            "(lines) => lines.map((line) => [...line.cells].map((cell) => cell.innerText))"
        )
    ]
    assert told == [
        ["←", "base.pt", SHA[:12], "older, step 40", ""],
        ["← ←", "resnet.pt", "b" * 12, "base model resnet18", ""],
    ]
    page.locator("#checkpoints tbody tr", has_text="best.pt").get_by_role("button", name="3").click()
    expect(page.locator(".toolbar .marked")).to_contain_text("marked: step 3")
    chain.get_by_role("link", name="older, step 40").click()
    page.wait_for_url(f"**/run/{older_id}")
    expect(page.locator("#run-name")).to_have_text("older")


def test_times_are_utc_wherever_the_reader_is(tmp_path: Path, serve: Serve, page_of: Pages) -> None:
    """A file that changed at 12:00 UTC says so in New York, too."""
    builder = RunBuilder(tmp_path).attempt().log({"loss": [1.0]}).end()
    os.utime(builder.path / "run.json", ns=(START_NS, START_NS))
    page = whole(page_of(f"{serve(tmp_path)}/run/{RUN_ID}", timezone_id="America/New_York"))
    page.locator("#files").scroll_into_view_if_needed()
    expect(page.locator("#files th").nth(2)).to_have_text("Changed (UTC)")
    found = {cells[0]: cells[2] for cells in rows(page, "#files")}
    assert found["run.json"] == "2026-01-31 12:00:00"


def test_a_comparison_that_is_opened_from_a_run_begins_with_it(tmp_path: Path, serve: Serve, page_of: Pages) -> None:
    """Compare, from the page of a run, has chosen that run, and asks for others."""
    builder = RunBuilder(tmp_path).attempt().log({"loss": [1.0]}, steps=[0]).end()
    page = whole(page_of(f"{serve(builder.path.parent)}/run/{RUN_ID}"))
    page.locator(".pages").get_by_role("link", name="Compare").click()
    page.wait_for_url(f"**/compare?runs={RUN_ID}")
    expect(page.locator("#run-name")).to_have_text("Compare 1 run")
    expect(page.locator(".compare-chip")).to_have_count(1)
