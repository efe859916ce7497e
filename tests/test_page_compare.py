"""The page of a comparison in a real browser: curves, tables, scatter, parallel coordinates, its address, live runs."""

from __future__ import annotations

import itertools
import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Locator, Page, expect

from otel_train.clock import NS_PER_S, iso
from tests.browser import Pages, card, finite, needs_chromium, texts, traces, wait_until
from tests.runs import START_NS, RunBuilder

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300), needs_chromium]
Serve = Callable[[Path], str]
HOSTILE = "<b id=foreign>bold</b>\"'&</script><script>document.title='owned'</script>"
PATCH = """\
diff --git a/train.py b/train.py
--- a/train.py
+++ b/train.py
@@ -1,2 +1,2 @@
 import x
-lr = 1
+lr = {lr}
"""
CONFIGS: list[dict[str, Any]] = [
    {"lr": 0.1, "opt": "adam", "size": 32, "same": 7},
    {"lr": 0.001, "opt": "sgd", "size": 32.0, "same": 7},
    {"lr": 1, "opt": "adam", "size": "32", "same": 7},
    {"lr": 0.01, "opt": HOSTILE, "same": 7},
]
# The least loss of validation of each run, by hand: the third run's is the best.
LEAST = [0.5, 0.75, 0.25, 0.625]


def run_id(number: int) -> str:
    """The id of one of the runs."""
    return f"20260131-12000{number}-aaaaaaa{'abcdefgh'[number]}"


def ids(*numbers: int) -> str:
    """Ids as they stand in an address."""
    return ",".join(run_id(number) for number in numbers)


def make(root: Path, count: int = 4) -> list[RunBuilder]:
    """Runs that differ in configuration, results, code and start."""
    builders = []
    for number in range(count):
        start_s = 3600.0 * number
        code = {
            "commit": "ab"[number % 2] * 40,
            "dirty": True,
            "patch": PATCH.format(lr=number),
            "patch_sha256": str(number),
        }
        builder = RunBuilder(
            root,
            run_id(number),
            name=["net", "net", "wide", HOSTILE][number],
            created=iso(START_NS + round(start_s * NS_PER_S)),
            metrics={"accuracy": {"goal": "max"}},
        )
        builder.attempt(
            start_s=start_s, config=CONFIGS[number], environment={"code": code, "packages": {"torch": f"2.{number}"}}
        )
        train = [4.0 + number, 2.0, 1.0]
        builder.log({"loss": train}, steps=[0, 10, 20], times_s=[start_s + second for second in (1, 2, 3)])
        val = [2.0, LEAST[number]]
        builder.log({"loss": val}, split="val", steps=[10, 20], times_s=[start_s + 2.5, start_s + 3.5])
        builder.end(["finished", "failed", "killed", "finished"][number], at_s=start_s + 5)
        builders.append(builder)
    return builders


def lines_of(chart: Locator) -> dict[str, dict[str, Any]]:
    """Return the traces that are lines of values, by their names."""
    return {trace["name"]: trace for trace in traces(chart) if trace["meta"] == "line"}


def query(page: Page) -> dict[str, str]:
    """Return what the page's address says."""
    return {key: values[0] for key, values in parse_qs(urlsplit(page.url).query).items()}


def rows_of(page: Page, section: str) -> dict[str, list[str]]:
    """Return the cells of a table of a section by the key of the row."""
    table = page.locator(f"#{section} table.compare-table").first
    found: list[list[str]] = table.evaluate(
        "(table) => [...table.tBodies[0].rows].map((row) => [...row.children].map((cell) => cell.innerText))"
    )
    return {key: cells for key, *cells in found}


@pytest.fixture
def four(tmp_path: Path, serve: Serve) -> str:
    """The address of the comparison of four runs."""
    make(tmp_path)
    return f"{serve(tmp_path)}/compare?runs={ids(0, 1, 2, 3)}"


def test_curves_of_all_runs_are_on_one_chart(four: str, page_of: Pages) -> None:
    """Values at their steps; a colour for each run, a dash for each split; the axes of time are right."""
    page = page_of(four)
    chart = card(page, "loss", "compare-curves")
    lines = lines_of(chart)
    assert len(lines) == 8
    assert finite(lines["wide · train"]) == [(0, 6.0), (10, 2.0), (20, 1.0)]
    assert finite(lines["wide · val"]) == [(10, 2.0), (20, 0.25)]
    assert {name.rsplit(" · ")[-1]: trace["dash"] for name, trace in lines.items()} == {"train": "solid", "val": "dash"}
    inks = chart.locator(".plot").evaluate(
        "(plot) => plot.data.filter((trace) => trace.meta === 'line').map((trace) => trace.line.color)"
    )
    assert len(set(inks)) == 4
    assert inks[0::2] == inks[1::2]
    page.locator('#axis [data-axis="time"]').click()
    wait_until(page, "document.querySelector('#compare-curves .xtitle').textContent.startsWith('elapsed')")
    assert [x for x, _ in finite(lines_of(chart)["wide · train"])] == [1.0, 2.0, 3.0]
    page.locator('#axis [data-axis="clock"]').click()
    wait_until(page, "document.querySelector('#compare-curves .xtitle').textContent.includes('UTC')")
    start_ms = START_NS // 1_000_000 + 2 * 3_600_000
    assert [x for x, _ in finite(lines_of(chart)["wide · train"])] == [
        start_ms + 1000,
        start_ms + 2000,
        start_ms + 3000,
    ]
    wait_until(page, "new URLSearchParams(location.search).get('axis') === 'clock'")


def test_a_box_hides_a_run_everywhere_and_the_address_keeps_it(four: str, page_of: Pages) -> None:
    """Its lines, its point and its line are gone, the others stay; the address opened anew shows the same."""
    page = page_of(four)
    chart = card(page, "loss", "compare-curves")
    page.locator("#compare-legend").get_by_label("Draw wide").click()
    wait_until(page, f"!document.querySelector('#compare-scatter [data-run=\"{run_id(2)}\"]')")
    visible = [name for name, trace in lines_of(chart).items() if trace["visible"] is not False]
    assert len(visible) == 6
    assert not any(name.startswith("wide") for name in visible)
    assert page.locator(f'#compare-parallel .compare-line[data-run="{run_id(2)}"]').count() == 0
    wait_until(page, "location.search.includes('hidden=')")
    again = page_of(page.url)
    card(again, "loss", "compare-curves")
    assert not again.locator("#compare-legend").get_by_label("Draw wide").is_checked()
    assert again.locator("#compare-scatter .compare-point").count() == 3
    again.locator("#compare-legend").get_by_role("button", name="all").click()
    expect(again.locator("#compare-scatter .compare-point")).to_have_count(4)


def test_pointing_at_a_run_makes_the_others_fade(four: str, page_of: Pages) -> None:
    """In the charts and in the plots; all are as before when the pointer is gone."""
    page = page_of(four)
    chart = card(page, "loss", "compare-curves")
    opacities = "(plot) => plot.data.filter((trace) => trace.meta === 'line').map((trace) => trace.opacity)"
    page.locator("#compare-legend .compare-chip").nth(2).hover()
    wait_until(page, "document.querySelectorAll('#compare-legend .compare-highlighted').length > 0")
    plot = chart.locator(".plot")
    assert plot.evaluate(opacities) == [0.08] * 4 + [1, 1] + [0.08] * 2
    page.mouse.move(2, 2)
    wait_until(page, "document.querySelectorAll('.compare-highlighted').length === 0")
    assert plot.evaluate(opacities) == [1] * 8


def test_tables_show_what_differs_and_all_on_demand(four: str, page_of: Pages) -> None:
    """Kinds of values are told apart; what is the same comes with a click, and stands in the address."""
    page = page_of(four)
    config = rows_of(page, "compare-configuration")
    assert list(config) == ["lr", "opt", "size"]
    assert config["lr"] == ["0.1", "0.001", "1", "0.01"]
    assert config["size"] == ["32", "32.0", '"32"', "\u2013"]
    kinds = page.locator("#compare-configuration td[class*=kind-]")
    assert [kind.split("kind-")[1] for kind in kinds.evaluate_all("(all) => all.map((cell) => cell.className)")] == [
        "number",
        "number",
        "text",
    ]
    page.locator("#compare-configuration").get_by_text("only differences").click()
    assert rows_of(page, "compare-configuration")["same"] == ["7"] * 4
    wait_until(page, "location.search.includes('all-configuration=1')")
    page.locator("#compare-configuration input[type=search]").fill("adam")
    assert list(rows_of(page, "compare-configuration")) == ["opt"]
    assert rows_of(page, "compare-packages")["torch"] == ["2.0", "2.1", "2.2", "2.3"]
    assert rows_of(page, "compare-runs")["State"] == ["finished", "failed", "killed", "finished"]


def test_results_mark_the_best_and_count_from_the_base(four: str, page_of: Pages) -> None:
    """Differences by hand; another base turns them; the last value in place of the best."""
    page = page_of(four)
    cells = [cell.split("\n") for cell in rows_of(page, "compare-results")["val/loss"]]
    assert [cell[0] for cell in cells] == ["0.5", "0.75", "★ 0.25", "0.625"]
    assert [cell[1] for cell in cells[1:]] == ["+0.25 (+50 %)", "\u22120.25 (\u221250 %)", "+0.125 (+25 %)"]
    page.locator(f'#compare-runs th[data-run="{run_id(2)}"]').get_by_text("make base").click()
    expect(page.locator("#compare-results")).to_contain_text("+0.25 (+100 %)")
    cells = [cell.split("\n") for cell in rows_of(page, "compare-results")["val/loss"]]
    assert [cell[1] for cell in cells] == ["+0.25 (+100 %)", "+0.5 (+200 %)", "step 20", "+0.375 (+150 %)"]
    wait_until(page, "location.search.includes('base=')")
    assert query(page)["base"] == run_id(2)
    page.locator("#compare-results").get_by_text("Maximum").click()
    assert [cell.split("\n")[0] for cell in rows_of(page, "compare-results")["train/loss"]] == ["4", "5", "6", "7"]
    # The patches are counted from the new base as well.
    expect(page.locator("#compare-code .card h3").first).to_contain_text("wide")


@pytest.mark.parametrize("name", ["results", "compare-results"])
def test_an_address_names_a_section(four: str, page_of: Pages, name: str) -> None:
    """With and without the word before it; the section then begins below what stays in sight."""
    page = page_of(f"{four}#{name}")
    wait_until(page, "Math.abs(document.getElementById('compare-results').getBoundingClientRect().top - 110) < 70")


def test_one_value_that_is_the_same_is_told_in_words(tmp_path: Path, serve: Serve, page_of: Pages) -> None:
    """Not as all of one."""
    for number in range(2):
        builder = RunBuilder(tmp_path, run_id(number)).attempt(config={"lr": 0.1})
        builder.log({"loss": [1.0, 0.5]}, steps=[0, 1])
        builder.end()
    page = page_of(f"{serve(tmp_path)}/compare?runs={ids(0, 1)}")
    expect(page.locator("#compare-configuration .empty")).to_have_text(
        "There is one value, and it is the same in these runs."
    )


def test_a_scatter_places_runs_by_any_two_values(four: str, page_of: Pages) -> None:
    """Learning rates over three decades are on a logarithmic axis; a click or Enter on a point opens its run."""
    page = page_of(four + "&x=config.lr&y=best.val/loss")
    places = page.locator("#compare-scatter .compare-point .reach").evaluate_all(
        "(all) => all.map((circle) => [Number(circle.getAttribute('cx')), Number(circle.getAttribute('cy'))])"
    )
    xs, ys = [place[0] for place in places], [place[1] for place in places]
    # 0.1, 0.001, 1, 0.01 in decades: equal distances. Of y greater values are higher.
    order = sorted(range(4), key=lambda number: CONFIGS[number]["lr"])
    gaps = [xs[right] - xs[left] for left, right in itertools.pairwise(order)]
    assert gaps == pytest.approx([gaps[0]] * 3, rel=1e-3)
    assert (ys[0] - ys[1]) / (ys[2] - ys[0]) == pytest.approx(1.0, rel=1e-3)
    assert ys[1] < ys[3] < ys[0] < ys[2]
    page.locator("#compare-scatter").get_by_role("button", name="log x").click()
    wait_until(page, "location.search.includes('xlog=0')")
    assert page.evaluate("document.activeElement.textContent") == "log x"
    page.locator("#compare-scatter select").nth(2).select_option("config.opt")
    # Three categories in three shapes; the names are texts.
    assert len(texts(page.locator("#compare-scatter .legend span"))) == 3
    page.locator("#compare-scatter .compare-point[tabindex='0']").focus()
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.dataset.run") == run_id(3)
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/run/{run_id(3)}")


def test_the_rank_correlation_is_spearmans(tmp_path: Path, serve: Serve, page_of: Pages) -> None:
    """Of lr 0.1, 0.001, 1 and losses 0.5, 0.75, 0.25 it is -1; a categorical axis has none."""
    make(tmp_path, 3)
    page = page_of(f"{serve(tmp_path)}/compare?runs={ids(0, 1, 2)}&x=config.lr&y=best.val/loss")
    expect(page.locator("#compare-scatter .compare-words")).to_have_text(
        "Rank correlation (Spearman) \u22121.00 over 3 runs."
    )
    page.locator("#compare-scatter select").first.select_option("config.opt")
    expect(page.locator("#compare-scatter .compare-words")).to_have_count(0)


def test_a_brush_chooses_runs_by_pointer_and_by_keyboard(four: str, page_of: Pages) -> None:
    """A drag over the upper half of an axis, numbers typed into its ends, a category unchecked: the same choice."""
    page = page_of(four + "&axes=config.lr,config.opt,best.val%2Floss", height=1400)
    plot = page.locator("#compare-parallel svg.parallel")
    plot.scroll_into_view_if_needed()
    inside = page.locator("#compare-parallel .compare-line:not(.out)")
    assert inside.count() == 4
    box = page.locator('#compare-parallel .compare-axis[data-key="config.lr"] .reach').bounding_box()
    assert box is not None
    middle = box["x"] + box["width"] / 2
    page.mouse.move(middle, box["y"] + 4)
    page.mouse.down()
    page.mouse.move(middle, box["y"] + box["height"] * 0.45, steps=4)
    page.mouse.up()
    expect(page.locator("#compare-parallel .compare-chosen")).to_contain_text("2 of 4 runs within the brushes")
    assert set(inside.evaluate_all("(all) => all.map((line) => line.dataset.run)")) == {run_id(0), run_id(2)}
    wait_until(page, "location.search.includes('in.config.lr=')")
    page.get_by_role("button", name="clear brushes").click()
    expect(inside).to_have_count(4)
    page.locator("#compare-parallel").get_by_text("Axes and brushes").click()
    page.get_by_label("best val/loss from").fill("0.5")
    page.get_by_label("best val/loss from").press("Enter")
    expect(page.locator("#compare-parallel .compare-chosen")).to_contain_text("3 of 4 runs within the brushes")
    page.get_by_label("opt: sgd").click()
    expect(page.locator("#compare-parallel .compare-chosen")).to_contain_text("2 of 4 runs within the brushes")
    assert set(inside.evaluate_all("(all) => all.map((line) => line.dataset.run)")) == {run_id(0), run_id(3)}
    # The same address opened anew has the same brushes, and the table the same runs.
    wait_until(page, "location.search.includes('in.config.opt=')")
    again = page_of(page.url)
    expect(again.locator("#compare-parallel .compare-chosen")).to_contain_text("2 of 4 runs within the brushes")
    again.locator("#compare-parallel").get_by_text("The same as a table").click()
    assert again.locator("#compare-parallel table tbody tr").count() == 2
    again.get_by_role("button", name="draw only these").click()
    expect(again.locator("#compare-scatter .compare-point")).to_have_count(2)


def test_axes_are_moved_by_drag_and_by_buttons(four: str, page_of: Pages) -> None:
    """The order of the axes stands in the address; the button that was pressed keeps the focus."""
    page = page_of(four + "&axes=config.lr,config.opt,best.val%2Floss", height=1400)
    keys = "() => [...document.querySelectorAll('#compare-parallel .compare-axis')].map((axis) => axis.dataset.key)"
    assert page.evaluate(keys) == ["config.lr", "config.opt", "best.val/loss"]
    page.locator("#compare-parallel").get_by_text("Axes and brushes").click()
    page.get_by_label("Move lr to the right").click()
    assert page.evaluate(keys) == ["config.opt", "config.lr", "best.val/loss"]
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "Move lr to the right"
    title = page.locator('#compare-parallel .compare-axis[data-key="best.val/loss"] .title')
    title.scroll_into_view_if_needed()
    box, first = title.bounding_box(), page.locator("#compare-parallel .compare-axis .title").first.bounding_box()
    assert box is not None
    assert first is not None
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(first["x"] - 20, box["y"], steps=5)
    page.mouse.up()
    assert page.evaluate(keys) == ["best.val/loss", "config.opt", "config.lr"]


def test_texts_of_runs_are_texts_everywhere(four: str, page_of: Pages) -> None:
    """Markup in a name and in a value is shown, not made; the title is the page's own."""
    page = page_of(four + "&x=config.opt&c=config.opt&axes=config.opt,config.lr")
    card(page, "loss", "compare-curves")
    page.locator("#compare-parallel").get_by_text("Axes and brushes").click()
    assert page.locator("#foreign, main script").count() == 0
    assert page.title() == "Compare 4 runs · otel-train"
    assert page.locator("#compare-legend .compare-chip").nth(3).inner_text().endswith(HOSTILE)
    assert rows_of(page, "compare-configuration")["opt"][3] == HOSTILE


def test_an_address_with_nonsense_in_it_shows_the_page(four: str, page_of: Pages) -> None:
    """What it says of axes, values, brushes and runs that there are not is passed over."""
    odd = "&value=constructor&xlog=constructor&x=nope&y=__proto__&c=nope&in.config.lr=a~b&in.config.size=nothing"
    page = page_of(f"{four}&hidden=nobody&axis=nope&axes=%2C,nope,%25,config.lr,config.lr&base=nobody&pc=nope{odd}")
    card(page, "loss", "compare-curves")
    assert page.locator("#compare-scatter .compare-point").count() == 4
    axes = page.locator("#compare-parallel .compare-axis").evaluate_all("(all) => all.map((axis) => axis.dataset.key)")
    assert axes == ["config.lr", "config.size"]
    expect(page.locator("#compare-parallel .compare-chosen")).to_contain_text("0 of 4 runs within the brushes")
    expect(page.locator("#compare-runs .notice.warn")).to_contain_text("The base nobody is none of the compared runs")


def test_runs_that_are_not_there_are_named_and_the_rest_is_shown(four: str, page_of: Pages) -> None:
    """An unknown id beside two runs; it can be left out by a button; the same run twice is compared once."""
    page = page_of(four.replace(ids(0, 1, 2, 3), f"{ids(0, 1)},nobody,{run_id(0)}"))
    expect(page.locator("#compare-runs .notice.bad")).to_contain_text("nobody")
    assert page.locator("#compare-legend .compare-chip").count() == 2
    page.get_by_role("button", name="leave it out").click()
    expect(page.locator("#compare-runs .notice.bad")).to_have_count(0)
    assert query(page)["runs"] == ids(0, 1)
    # What was chosen before is one step back.
    page.go_back()
    expect(page.locator("#compare-runs .notice.bad")).to_have_count(1)


def test_runs_are_found_added_and_taken_away(four: str, page_of: Pages) -> None:
    """From no run at all to two, by search; their colours stay when a third comes and goes."""
    page = page_of(four.split("?")[0])
    expect(page.locator("#compare-runs")).to_contain_text("No run is chosen")
    search = page.get_by_label("Search for a run to add")
    search.fill("wide")
    page.get_by_role("button", name=f"Add wide {run_id(2)}").click()
    expect(page.locator("#compare-legend .compare-chip")).to_have_count(1)
    expect(page.locator("#compare-runs")).to_contain_text("This is one run")
    search.fill("lr=0.1")
    page.get_by_role("button", name=f"Add net {run_id(0)}").click()
    expect(page.locator("#compare-legend .compare-chip")).to_have_count(2)
    assert query(page)["runs"] == ids(2, 0)
    colours = """() => Object.fromEntries([...document.querySelectorAll("#compare-legend .compare-chip")].map(
      (chip) => [chip.dataset.run, chip.querySelector("[data-role]").dataset.role]))"""
    two = page.evaluate(colours)
    search.fill("sgd")
    page.get_by_role("button", name=f"Add net {run_id(1)}").click()
    expect(page.locator("#compare-legend .compare-chip")).to_have_count(3)
    three = page.evaluate(colours)
    assert {name: three[name] for name in two} == two
    assert len(set(three.values())) == 3
    page.get_by_role("button", name="Take wide out of the comparison").click()
    expect(page.locator("#compare-legend .compare-chip")).to_have_count(2)
    assert query(page)["runs"] == ids(0, 1)
    assert {name: three[name] for name in page.evaluate(colours)} == page.evaluate(colours)


def test_a_run_that_goes_on_is_followed(tmp_path: Path, serve: Serve, page_of: Pages) -> None:
    """New points come into chart and results by themselves, and what the reader has typed and opened stays."""
    builders = make(tmp_path, 2)
    live = RunBuilder(tmp_path, run_id(5), name="live", created=iso(START_NS)).attempt()
    live.log({"loss": [3.0]}, split="val", steps=[10])
    page = page_of(f"{serve(tmp_path)}/compare?runs={run_id(0)},{run_id(5)}")
    chart = card(page, "loss", "compare-curves")
    page.locator("#compare-configuration input[type=search]").fill("lr")
    assert finite(lines_of(chart)["live · val"]) == [(10, 3.0)]
    live.log({"loss": [0.125]}, split="val", steps=[20], times_s=[9])
    expect(page.locator("#compare-results")).to_contain_text("★ 0.125", timeout=30_000)
    assert finite(lines_of(chart)["live · val"]) == [(10, 3.0), (20, 0.125)]
    assert page.locator("#compare-configuration input[type=search]").input_value() == "lr"
    assert builders[0].path.is_dir()


def test_a_run_that_is_deleted_meanwhile_is_named(tmp_path: Path, serve: Serve, page_of: Pages) -> None:
    """The page says so by itself and goes on with the others."""
    builders = make(tmp_path, 3)
    page = page_of(f"{serve(tmp_path)}/compare?runs={ids(0, 1, 2)}")
    expect(page.locator("#compare-legend .compare-chip")).to_have_count(3)
    shutil.rmtree(builders[1].path)
    expect(page.locator("#compare-runs .notice.bad")).to_contain_text(run_id(1), timeout=30_000)
    expect(page.locator("#compare-legend .compare-chip")).to_have_count(2)


def test_a_run_of_nan_is_marked_and_never_best(tmp_path: Path, serve: Serve, page_of: Pages) -> None:
    """Marks in the chart, a count in the results, the star with the other."""
    make(tmp_path, 1)
    sick = RunBuilder(tmp_path, run_id(6), name="sick").attempt()
    sick.log({"loss": [math.nan, math.inf]}, split="val", steps=[10, 20]).end("failed")
    page = page_of(f"{serve(tmp_path)}/compare?runs={run_id(6)},{run_id(0)}")
    chart = card(page, "loss", "compare-curves")
    marks = [trace for trace in traces(chart) if trace["meta"] == "non-finite"]
    assert [trace["symbol"] for trace in marks] == [["x", "triangle-up"]]
    cells = rows_of(page, "compare-results")["val/loss"]
    assert cells == ["no finite value", "0.5\nstep 20"]
    expect(page.locator("#compare-scatter .compare-words")).to_contain_text("Not drawn, for lack of a value: sick")


def test_zooming_in_fetches_every_point_of_each_run(tmp_path: Path, serve: Serve, page_of: Pages) -> None:
    """Of 5,000 points that were drawn as means, those between two steps, and between two moments, bit by bit."""
    for number in range(2):
        builder = RunBuilder(tmp_path, run_id(number), name=f"long-{number}").attempt()
        values = [math.sin(step / 7) + number for step in range(5000)]
        builder.log({"loss": values}, steps=range(5000)).end(at_s=5100)
    page = page_of(f"{serve(tmp_path)}/compare?runs={ids(0, 1)}")
    chart = card(page, "loss", "compare-curves")
    assert 500 < len(finite(lines_of(chart)["long-1 · train"])) < 2000
    plot = chart.locator(".plot")
    plot.evaluate("(plot) => { Plotly.relayout(plot, { 'xaxis.range[0]': 100, 'xaxis.range[1]': 110 }); }")
    wait_until(
        page,
        "(plot) => plot.data.find((trace) => trace.name === 'long-1 · train').x.length < 20",
        plot.element_handle(),
    )
    for number in range(2):
        found = finite(lines_of(chart)[f"long-{number} · train"])
        assert found == [(step, math.sin(step / 7) + number) for step in range(100, 111)]
    page.locator('#axis [data-axis="clock"]').click()
    wait_until(page, "document.querySelector('#compare-curves .xtitle').textContent.includes('UTC')")
    plot.evaluate(
        """(plot) => { Plotly.relayout(plot,
          { 'xaxis.range[0]': '2026-01-31 12:01:41', 'xaxis.range[1]': '2026-01-31 12:01:51' }); }"""
    )
    wait_until(
        page,
        "(plot) => plot.data.find((trace) => trace.name === 'long-1 · train').x.length < 20",
        plot.element_handle(),
    )
    # One point a second from the first second on: at 12:01:41 that of step 100.
    assert finite(lines_of(chart)["long-0 · train"]) == [
        (START_NS // 1_000_000 + (step + 1) * 1000, math.sin(step / 7)) for step in range(100, 111)
    ]


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_narrow_page_scrolls_within_its_tables_alone(four: str, page_of: Pages, dark: bool) -> None:
    """On a telephone nothing is wider than the screen but what scrolls by itself."""
    page = page_of(four, width=390, height=800, dark=dark)
    card(page, "loss", "compare-curves")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.locator("#compare-parallel svg.parallel").is_visible()


def test_many_runs_are_rows_of_tables_and_points_without_curves(tmp_path: Path, serve: Serve, page_of: Pages) -> None:
    """Sixty runs: sixty points, a row for each, the reason where curves would be."""
    names = []
    for number in range(60):
        name = f"20260131-13{number:02d}00-bbbbbbbb"
        builder = RunBuilder(tmp_path, name, name=f"r{number}").attempt(config={"lr": 0.1 + number})
        builder.log({"loss": [1.0 + (number - 30) ** 2]}, split="val", steps=[1]).end(at_s=9)
        names.append(name)
    page = page_of(f"{serve(tmp_path)}/compare?runs={','.join(names)}&x=config.lr&y=best.val%2Floss")
    assert page.locator("#compare-scatter .compare-point").count() == 60
    expect(page.locator("#compare-curves .empty")).to_contain_text("Curves are drawn of up to 40 runs.")
    rows = page.locator("#compare-results table tbody tr")
    assert rows.count() == 60
    # The best comes first; a click on the head turns the order round.
    assert "★ 1" in rows.first.inner_text()
    page.locator("#compare-results").get_by_role("button", name="val/loss").click()
    assert rows.first.get_attribute("data-run") == names[0]
    assert "901" in rows.first.inner_text()


def test_what_the_server_says_is_json_that_any_reader_takes(tmp_path: Path, serve: Serve, page_of: Pages) -> None:
    """The page's own question, asked by the page: strict JSON with the runs in the order of the address."""
    make(tmp_path, 2)
    address = serve(tmp_path)
    page = page_of(f"{address}/compare?runs={ids(1, 0)}")
    body = page.evaluate("async (url) => (await fetch(url)).text()", f"{address}/api/compare?runs={ids(1, 0)}")
    found = json.loads(body, parse_constant=lambda name: pytest.fail(f"bare {name}"))
    assert [run["id"] for run in found["runs"]] == [run_id(1), run_id(0)]
