"""The page of all runs in a real browser: table, filter, search, order, columns, states, projects, selection."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import expect

from tests.browser import Pages, needs_chromium, texts, wait_until
from tests.many_runs import Made, cell, compared, filter_by, is_below, make, shown, wait_for_count
from tests.runs import RunBuilder

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300), needs_chromium]
Serve = Callable[[Path], str]
# Waits until the heads of the table are these.
HEADS = """(heads) =>
  [...document.querySelectorAll(".runs-grid thead .label")].map((node) => node.textContent).join() === heads"""


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Made]]:
    """Sixty runs, of which more is known here than any page says."""
    root = tmp_path_factory.mktemp("many")
    draw = random.Random(11)
    return root, [make(root, number, draw) for number in range(60)]


def test_the_table_tells_each_run(page_of: Pages, serve: Serve, many: tuple[Path, list[Made]]) -> None:
    """Newest first; state as a word, values, times in UTC with the reader's own behind, links to each run's page."""
    root, made = many
    page = page_of(serve(root), timezone_id="Asia/Tokyo")
    assert shown(page) == [run.run_id for run in reversed(made)]
    newest = made[-2]
    assert newest.loss is not None
    assert newest.best is not None
    assert cell(page, newest.run_id, "State") == newest.state
    assert cell(page, newest.run_id, "Project") == newest.project
    assert float(cell(page, newest.run_id, "val/loss")) == pytest.approx(newest.loss, rel=1e-5)
    assert float(cell(page, newest.run_id, "best val/loss")) == pytest.approx(newest.best, rel=1e-5)
    started = page.locator(f'tr[data-run="{newest.run_id}"] .runs-time')
    utc = datetime.fromtimestamp(newest.created_ns / 1e9, UTC)
    # As the filter reads times: 12:00 UTC and 58 hours. Nine hours further east it was the next day.
    assert started.inner_text().startswith(utc.strftime("%Y-%m-%d %H:%M"))
    assert started.get_attribute("title") == utc.strftime("%Y-%m-%d %H:%M:%S UTC\n2026-02-03 07:00:00 here")
    expect(page.locator(".runs-grid thead")).to_contain_text("Started (UTC)")
    filter_by(page, f"started >= {utc:%Y-%m-%dT%H:%M} and id = {newest.run_id}")
    wait_for_count(page, 1, 60)
    filter_by(page, "")
    wait_for_count(page, 60, 60)
    assert re.search(r"ago$", started.inner_text())
    assert page.locator(f'tr[data-run="{newest.run_id}"] a').get_attribute("href") == f"run/{newest.run_id}"
    nan = next(run for run in made if run.loss is not None and run.loss != run.loss)
    page.locator(".runs-search").fill(nan.run_id)
    wait_for_count(page, 1, 60)
    assert cell(page, nan.run_id, "val/loss") == "NaN"
    assert page.locator(f'tr[data-run="{nan.run_id}"] td.bad').count() == 1


@pytest.mark.parametrize(
    ("where", "holds"),
    [
        ("state = failed", lambda run: run.state == "failed"),
        (
            "loss < 20 and config.lr >= 1e-3 and state = failed",
            lambda run: is_below(run, 20) and run.lr >= 1e-3 and run.state == "failed",
        ),
        ("not (loss < 20)", lambda run: not is_below(run, 20)),
        ("best.loss > 0.07 or project = speech", lambda run: (run.best or 0) > 0.07 or run.project == "speech"),
        (
            "duration > 12h and state in (killed, finished)",
            lambda run: run.duration_s > 43_200 and run.state in ("killed", "finished"),
        ),
        ("name ~ N-1", lambda run: "n-1" in run.name),
        ("loss = null", lambda run: run.loss is None),
    ],
)
def test_a_filter_leaves_the_right_rows(
    page_of: Pages, serve: Serve, many: tuple[Path, list[Made]], where: str, holds: Callable[[Made], bool]
) -> None:
    """The same runs in the same order as this test finds among those that it wrote; the address repeats it."""
    root, made = many
    expected = [run.run_id for run in reversed(made) if holds(run)]
    assert 0 < len(expected) < len(made)
    page = page_of(serve(root))
    filter_by(page, where)
    wait_for_count(page, len(expected), 60)
    assert shown(page) == expected
    wait_until(page, "new URLSearchParams(location.search).has('where')")
    assert parse_qs(urlsplit(page.url).query)["where"] == [where]
    again = page_of(page.url)
    assert shown(again) == expected
    assert again.locator("#runs-filter").input_value() == where


def test_a_wrong_filter_is_marked_at_its_place(page_of: Pages, serve: Serve, many: tuple[Path, list[Made]]) -> None:
    """The word that cannot be read is marked, the rows stay, and the mark goes when it is mended."""
    root, _ = many
    page = page_of(serve(root))
    filter_by(page, "state = failed nad loss < 1")
    mark = page.locator(".runs-fault mark")
    expect(mark).to_have_text("nad")
    assert mark.get_attribute("data-position") == str(len("state = failed "))
    assert page.locator(".runs-fault code").inner_text() == "state = failed nad loss < 1"
    assert page.locator(".runs-fault .message").inner_text()
    assert page.locator("#runs-filter").get_attribute("aria-invalid") == "true"
    assert len(shown(page)) == 60
    # Which rows these are: of no filter yet, then of the one before.
    expect(page.locator(".runs-fault .still")).to_have_text("Still shown: every run")
    filter_by(page, "state = failed and los < 1")
    expect(mark).to_have_text("los")
    # Letters outside of the basic plane are one character each, whatever the script counts.
    filter_by(page, 'name = "🚀🚀" adn 1')
    expect(mark).to_have_text("adn")
    filter_by(page, "state = failed and loss < 1000")
    expect(page.locator(".runs-fault mark")).to_have_count(0)
    assert page.locator("#runs-filter").get_attribute("aria-invalid") == "false"
    left = shown(page)
    filter_by(page, "state == = failed")
    expect(page.locator(".runs-fault .still")).to_have_text("Still shown: state = failed and loss < 1000")
    assert shown(page) == left
    assert 0 < len(left) < 60
    filter_by(page, "")
    wait_for_count(page, 60, 60)
    expect(page.locator(".runs-fault")).to_have_text("")


def test_columns_of_an_address_look_as_those_that_were_chosen(page_of: Pages, serve: Serve, tmp_path: Path) -> None:
    """A metric without its split is a number with its statistic's name, on the right and red where it is none."""
    builder = RunBuilder(tmp_path).attempt().log({"loss": [0.25, 0.5, math.nan]}, split="val", steps=[0, 1, 2])
    builder.end()
    page = page_of(f"{serve(tmp_path)}/?columns=loss,best.loss,status,state,nosuch")
    heads = page.locator(".runs-grid thead th .label")
    expect(heads).to_have_text(["Name", "loss", "best loss", "State", "nosuch"])
    row = page.locator(f'tr[data-run="{builder.run_id}"] td:not(.runs-check)')
    expect(row).to_have_text(["NaN", "0.25", "finished", ""])
    for column in (0, 1):
        assert row.nth(column).evaluate("(cell) => getComputedStyle(cell).textAlign") in ("right", "end")
    ink = "(cell) => getComputedStyle(cell).color"
    assert "bad" in (row.nth(0).get_attribute("class") or "")
    assert row.nth(0).evaluate(ink) != row.nth(1).evaluate(ink)
    page.get_by_role("button", name="Columns").click()
    expect(page.locator(".runs-order")).to_contain_text("best loss")
    page.get_by_role("button", name="Take best loss out").click()
    expect(heads).to_have_text(["Name", "loss", "State", "nosuch"])


def test_an_address_that_is_wrong_is_told(page_of: Pages, serve: Serve, many: tuple[Path, list[Made]]) -> None:
    """A filter that cannot be read leaves no rows but a way out; a column that is no more leaves the usual order."""
    root, made = many
    address = serve(root)
    page = page_of(f"{address}/?where=state+%3D%3D%3D+failed")
    expect(page.locator(".runs-fault mark")).to_have_count(1)
    expect(page.locator(".runs-nothing")).to_contain_text("The filter cannot be read")
    page.get_by_role("button", name="Show all runs").click()
    wait_for_count(page, 60, 60)
    assert shown(page) == [run.run_id for run in reversed(made)]
    page = page_of(f"{address}/?sort=-lossy&columns=name,nosuch")
    expect(page.locator(".notice")).to_contain_text("lossy")
    assert shown(page) == [run.run_id for run in reversed(made)]
    assert texts(page.locator(".runs-grid thead .label")) == ["Name", "nosuch"]
    wait_until(page, "!new URLSearchParams(location.search).has('sort')")


def test_a_wrong_filter_leaves_projects_and_counts(page_of: Pages, serve: Serve, many: tuple[Path, list[Made]]) -> None:
    """Also one that the page was opened with; and a filter that leaves one project leaves the choice of all."""
    root, made = many
    failed = str(sum(run.state == "failed" for run in made))
    page = page_of(f"{serve(root)}/?where=state+%3D%3D%3D+failed")
    expect(page.locator(".runs-nothing")).to_contain_text("The filter cannot be read")
    expect(page.locator('.runs-chip[data-state="failed"] .count')).to_have_text(failed)
    half = len(made) // 2
    every = ["All projects", f"digits ({half})", f"speech ({half})"]
    assert texts(page.locator(".runs-project option")) == every
    assert shown(page) == []
    filter_by(page, "project = digits")
    wait_for_count(page, half, 60)
    expect(page.locator(".runs-project")).to_be_visible()
    assert texts(page.locator(".runs-project option")) == ["All projects", f"digits ({half})", "speech (0)"]


def test_the_table_is_as_high_as_its_rows(page_of: Pages, serve: Serve, many: tuple[Path, list[Made]]) -> None:
    """Two rows have no empty band below them."""
    root, made = many
    page = page_of(serve(root))
    filter_by(page, f"name in ({made[3].name}, {made[8].name})")
    wait_for_count(page, 2, 60)
    frame, grid = page.locator(".runs-scroll").bounding_box(), page.locator(".runs-grid").bounding_box()
    assert frame is not None
    assert grid is not None
    # The frame's own lines, and a bar to scroll sideways where there is one.
    assert 0 <= frame["height"] - grid["height"] <= 18


def test_the_list_of_keys_has_those_of_this_page(page_of: Pages, serve: Serve, many: tuple[Path, list[Made]]) -> None:
    """None of charts, which it has not, but Escape; what they do stands below one another."""
    page = page_of(serve(many[0]))
    page.keyboard.press("?")
    keys = texts(page.locator("dialog.keys kbd"))
    assert keys == ["?", "/", "t", "j", "k", "x", "c", "Enter", "Escape"]
    lefts = {round(box["x"]) for item in page.locator("dialog.keys dd").all() if (box := item.bounding_box())}
    assert len(lefts) == 1


def test_names_are_offered_while_typing(page_of: Pages, serve: Serve, many: tuple[Path, list[Made]]) -> None:
    """Names by their beginning, then comparisons, then values of that name; taken by the keyboard alone."""
    root, made = many
    page = page_of(serve(root))
    line = page.locator("#runs-filter")
    page.keyboard.press("/")
    expect(line).to_be_focused()
    line.press_sequentially("config.l")
    expect(page.locator("#runs-offers li").first).to_have_text("config.lr")
    line.press("ArrowDown")
    line.press("Enter")
    assert line.input_value() == "config.lr "
    assert texts(page.locator("#runs-offers li"))[:2] == ["=", "!="]
    line.press_sequentially("> 0 and state = fa")
    assert texts(page.locator("#runs-offers li")) == ["failed"]
    line.press("ArrowDown")
    line.press("Tab")
    assert line.input_value() == "config.lr > 0 and state = failed "
    line.press("Escape")
    line.press("Enter")
    wait_for_count(page, sum(run.state == "failed" for run in made), 60)


def test_numbers_are_sorted_as_numbers_and_what_is_missing_comes_last(
    page_of: Pages, serve: Serve, many: tuple[Path, list[Made]]
) -> None:
    """Up, down, and back to the newest first; NaN and then runs without the value stand at the end both times."""
    root, made = many
    page = page_of(serve(root))
    head = page.locator('.runs-grid thead button[data-column="val/loss"]')
    column = page.locator('.runs-grid thead th:has(button[data-column="val/loss"])')
    finite = sorted(
        (run for run in made if run.loss is not None and run.loss == run.loss), key=lambda run: run.loss or 0
    )
    nan = {run.run_id for run in made if run.loss is not None and run.loss != run.loss}
    missing = {run.run_id for run in made if run.loss is None}
    # A loss is better the lower it is, so the first click brings the lowest to the top.
    for direction in ("ascending", "descending"):
        head.click()
        expect(column).to_have_attribute("aria-sort", direction)
        order = finite if direction == "ascending" else list(reversed(finite))
        ids = shown(page)
        assert ids[: len(order)] == [run.run_id for run in order]
        assert set(ids[len(order) : len(order) + len(nan)]) == nan
        assert set(ids[len(order) + len(nan) :]) == missing
    wait_until(page, "new URLSearchParams(location.search).get('sort') === '-val/loss'")
    head.click()
    expect(column).to_have_attribute("aria-sort", "none")
    assert shown(page) == [run.run_id for run in reversed(made)]


def test_columns_are_remembered_in_the_address_and_for_the_project(
    page_of: Pages, serve: Serve, many: tuple[Path, list[Made]]
) -> None:
    """Chosen in the dialog by search, shown at once, the same in another browser by the address, and next time here."""
    root, made = many
    address = serve(root)
    page = page_of(address)
    usual = texts(page.locator(".runs-grid thead .label"))
    page.get_by_role("button", name="Columns").click()
    page.get_by_label("Search columns").fill("width")
    box = page.locator('input[data-choice="config.model.width"]')
    box.set_checked(not box.is_checked())
    page.get_by_label("Search columns").fill("max")
    page.locator('input[data-choice="max.val/loss"]').check()
    page.get_by_role("button", name="Take Duration out").click()
    page.get_by_role("button", name="Close").click()
    chosen = texts(page.locator(".runs-grid thead .label"))
    assert "max val/loss" in chosen
    assert "Duration" not in chosen
    assert ("model.width" in chosen) is not ("model.width" in usual)
    wait_until(page, "new URLSearchParams(location.search).has('columns')")
    # The maximum of every run that has a loss.
    expect(page.locator(f'tr[data-run="{made[-2].run_id}"] td').nth(chosen.index("max val/loss"))).to_have_text("50")
    elsewhere = page_of(page.url)
    assert texts(elsewhere.locator(".runs-grid thead .label")) == chosen
    # The same reader, without the address.
    later = page.context.new_page()
    later.goto(address)
    wait_until(later, "document.documentElement.dataset.ready === 'yes'")
    assert texts(later.locator(".runs-grid thead .label")) == chosen
    later.get_by_label("Project").select_option("speech")
    wait_for_count(later, 30, 60)
    wait_until(
        later,
        HEADS,
        ",".join(usual),
    )
    later.get_by_label("Project").select_option("")
    wait_until(
        later,
        HEADS,
        ",".join(chosen),
    )
    later.get_by_role("button", name="Columns").click()
    later.get_by_role("button", name="Back to the usual").click()
    later.get_by_role("button", name="Close").click()
    wait_until(
        later,
        HEADS,
        ",".join(usual),
    )


def test_states_and_projects_are_chosen_with_their_counts(
    page_of: Pages, serve: Serve, many: tuple[Path, list[Made]]
) -> None:
    """A chip a state with its count; several together; a project; all of it in the address."""
    root, made = many
    page = page_of(serve(root))
    chip = page.locator('.runs-chip[data-state="failed"]')
    assert chip.inner_text().split() == ["failed", str(sum(run.state == "failed" for run in made))]
    chip.click()
    page.locator('.runs-chip[data-state="killed"]').click()
    expected = [run.run_id for run in reversed(made) if run.state in ("failed", "killed")]
    wait_for_count(page, len(expected), 60)
    assert shown(page) == expected
    page.get_by_label("Project").select_option("digits")
    expected = [run.run_id for run in reversed(made) if run.state in ("failed", "killed") and run.project == "digits"]
    wait_for_count(page, len(expected), 60)
    assert chip.inner_text().split()[1] == str(sum(run.state == "failed" and run.project == "digits" for run in made))
    wait_until(page, "new URLSearchParams(location.search).has('project')")
    again = page_of(page.url)
    assert shown(again) == expected
    assert again.locator('.runs-chip[data-state="killed"]').get_attribute("aria-pressed") == "true"


def test_runs_are_selected_and_compared(page_of: Pages, serve: Serve, many: tuple[Path, list[Made]]) -> None:
    """By box, by shift for a range, by all; kept over a filter; the address of the comparison has the ids in order."""
    root, made = many
    page = page_of(serve(root))
    ids = [run.run_id for run in reversed(made)]
    compare = page.locator(".runs-compare")
    assert compare.get_attribute("aria-disabled") == "true"
    assert compare.get_attribute("href") is None

    def box(place: int) -> Any:
        return page.locator(f'tr[data-run="{ids[place]}"] input')

    box(6).click()
    expect(compare).to_have_text("Compare 1")
    assert compare.get_attribute("href") is None
    box(2).click(modifiers=["Shift"])
    expect(compare).to_have_text("Compare 5")
    box(4).click()
    assert compared(page) == [ids[place] for place in (2, 3, 5, 6)]
    filter_by(page, f"name = {made[-4].name}")
    wait_for_count(page, 1, 60)
    expect(compare).to_have_text("Compare 4 (3 not shown)")
    assert set(compared(page)) == {ids[place] for place in (2, 3, 5, 6)}
    filter_by(page, "")
    wait_for_count(page, 60, 60)
    assert compared(page) == [ids[place] for place in (2, 3, 5, 6)]
    wait_until(page, "!new URLSearchParams(location.search).has('where')")
    page.reload()
    expect(compare).to_have_text("Compare 4")
    page.get_by_role("button", name="Clear selection").click()
    page.locator('.runs-chip[data-state="failed"]').click()
    page.get_by_label("Select all runs shown").click()
    assert compared(page) == [run.run_id for run in reversed(made) if run.state == "failed"]
