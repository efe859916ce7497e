"""The page of all runs while it is used: keys, runs that come and end, a thousand of them, hostile names, no runs."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.browser import Pages, foreign_elements, needs_chromium, texts, wait_for_text, wait_until
from tests.many_runs import Made, cell, compared, filter_by, is_below, make, shown, wait_for_count
from tests.runs import RunBuilder
from tests.scripts import run_paths

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300), needs_chromium]
Serve = Callable[[Path], str]
MARKUP = "</script><b id=foreign>bold</b> & \u2028 \"quote'"
IMAGE = "<img src=x onerror=\"alert('owned')\">"
# A training that says its id, logs until its standard input has a line, and ends well.
TRAINING = """
import select, sys, otel_train
run = otel_train.init("live", name="newcomer", config={"lr": 0.5})
print(run.id, flush=True)
for step in run.steps(range(100_000)):
    run.log({"loss": 1 / (step + 1)})
    if select.select([sys.stdin], [], [], 0.02)[0]:
        break
run.finish()
"""


# Waits until the cell under the head "Step" holds more than before.
STEP_OF = """([id, first]) => {
  const heads = [...document.querySelectorAll(".runs-grid thead th")].map((head) => head.innerText.trim());
  const row = document.querySelector(`tr[data-run="${id}"]`);
  return Number(row.cells[heads.indexOf("Step")].innerText.replace(/,/g, "") || -1) > first;
}"""


def number(text: str) -> float:
    return float(text.replace(",", "") or -1)


def environment(root: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    return {**kept, "OTEL_TRAIN_DIR": str(root), "OTEL_TRAIN_GIT": "false", "OTEL_TRAIN_SAMPLE_MACHINE": "false"}


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Made]]:
    """Sixty runs, of which more is known here than any page says."""
    root = tmp_path_factory.mktemp("many")
    draw = random.Random(11)
    return root, [make(root, number, draw) for number in range(60)]


def test_everything_goes_by_keyboard(page_of: Pages, serve: Serve, many: tuple[Path, list[Made]]) -> None:
    """j, k and x choose, c compares, Enter opens, ? lists the keys; none of them while one types."""
    root, made = many
    page = page_of(serve(root))
    ids = [run.run_id for run in reversed(made)]
    for key in "jjjkxjx":
        page.keyboard.press(key)
    assert compared(page) == ids[1:3]
    assert page.evaluate("document.activeElement.closest('tr').dataset.run") == ids[2]
    for _ in range(40):
        page.keyboard.press("j")
    seen = page.evaluate(
        """() => { const box = document.querySelector(".runs-scroll").getBoundingClientRect();
        const row = document.activeElement.closest("tr"); const at = row.getBoundingClientRect();
        return [row.dataset.run, at.top >= box.top, at.bottom <= box.bottom + 1]; }"""
    )
    assert seen == [ids[42], True, True]
    page.keyboard.press("?")
    dialog = page.get_by_role("dialog", name="Keys")
    expect(dialog).to_contain_text("compare what is selected")
    page.keyboard.press("Escape")
    page.locator(".runs-search").press_sequentially("jxc")
    assert compared(page) == ids[1:3]
    page.locator(".runs-search").fill("")
    wait_for_count(page, 60, 60)
    page.locator(".runs-search").press("Escape")
    with page.expect_navigation(url=re.compile(r"/compare\?runs=")):
        page.keyboard.press("c")
    page.go_back()
    expect(page.locator(".runs-compare")).to_have_text("Compare 2")
    page.keyboard.press("j")
    with page.expect_navigation(url=re.compile(rf"/run/{ids[0]}$")):
        page.keyboard.press("Enter")


def test_a_run_appears_and_ends_while_one_looks(
    page_of: Pages, serve: Serve, many: tuple[Path, list[Made]], tmp_path: Path
) -> None:
    """A real training: its row comes by itself, its step grows, and its end shows; selection and place stay."""
    root = tmp_path / "runs"
    draw = random.Random(3)
    made = [make(root, number, draw) for number in range(50)]
    page = page_of(serve(root))
    ids = [run.run_id for run in reversed(made)]
    page.locator(f'tr[data-run="{ids[1]}"] input').click()
    page.locator(f'tr[data-run="{ids[2]}"] input').click()
    top = page.evaluate(
        """() => new Promise((done) => {
          const box = document.querySelector(".runs-scroll");
          box.scrollTop = 15 * 37;
          requestAnimationFrame(() => requestAnimationFrame(() => done(box.scrollTop)));
        })"""
    )
    at = f"() => document.querySelector('tr[data-run=\"{ids[20]}\"]').getBoundingClientRect().top"
    before = page.evaluate(at)
    process = subprocess.Popen(
        [sys.executable, "-c", TRAINING],
        env=environment(root),
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        run_id = process.stdout.readline().strip()
        expect(page.locator(".runs-count")).to_contain_text("51 runs")
        assert page.evaluate(at) == pytest.approx(before, abs=1)
        assert page.evaluate("document.querySelector('.runs-scroll').scrollTop") > top
        assert compared(page) == ids[1:3]
        page.evaluate("document.querySelector('.runs-scroll').scrollTop = 0")
        row = page.locator(f'tr[data-run="{run_id}"]')
        expect(row.locator(".pill")).to_have_text("running")
        expect(row).to_contain_text("newcomer")
        assert page.locator('.runs-chip[data-state="running"] .count').inner_text() == "1"
        first = number(cell(page, run_id, "Step"))
        wait_until(page, STEP_OF, [run_id, first])
        assert number(cell(page, run_id, "Step")) > first
        process.communicate("end\n", timeout=60)
        assert process.returncode == 0
    finally:
        process.kill()
        process.wait()
    expect(row.locator(".pill")).to_have_text("finished")
    assert page.locator('.runs-chip[data-state="running"] .count').inner_text() == "0"
    path = next(path for path in run_paths(root) if path.name == run_id)
    summary = json.loads((path / "run.json").read_text(encoding="utf-8"))["summary"]
    (key,) = summary
    heads = texts(page.locator(".runs-grid thead .label"))
    if key in heads:
        assert float(cell(page, run_id, key)) == pytest.approx(summary[key]["last"], rel=1e-5)


@pytest.fixture(scope="module")
def thousand(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Made]]:
    """A thousand ended runs."""
    root = tmp_path_factory.mktemp("thousand")
    draw = random.Random(5)
    return root, [make(root, number, draw) for number in range(1000)]


def test_a_thousand_runs_are_all_there_and_only_those_in_sight_are_drawn(
    page_of: Pages, serve: Serve, thousand: tuple[Path, list[Made]]
) -> None:
    """Few rows in the document, all of them by scrolling, the last one by a key; a filter leaves exactly its own."""
    root, made = thousand
    page = page_of(serve(root))
    wait_for_text(page, ".runs-count", "^1,000 runs$")
    assert page.locator(".runs-grid tbody tr[data-run]").count() < 80
    assert page.locator(".runs-grid").get_attribute("aria-rowcount") == "1001"
    assert shown(page) == [run.run_id for run in reversed(made)]
    page.get_by_label("Select all runs shown").click()
    assert page.locator(".runs-compare").inner_text() == "Compare 1,000"
    page.get_by_role("button", name="Clear selection").click()
    page.keyboard.press("k")
    assert page.evaluate("document.activeElement.closest('tr').dataset.run") == made[0].run_id
    filter_by(page, "loss < 1 and state = finished")
    expected = [run.run_id for run in reversed(made) if is_below(run, 1) and run.state == "finished"]
    wait_for_text(page, ".runs-count", f"^{len(expected)} of 1,000 runs$")
    assert shown(page) == expected


def test_hostile_names_are_text(page_of: Pages, serve: Serve, tmp_path: Path) -> None:
    """Markup in name, project, tag, host, key, metric and reason is shown letter by letter, wherever it comes."""
    draw = random.Random(1)
    make(tmp_path, 1, draw, project="plain")
    builder = RunBuilder(
        tmp_path,
        "20260401-000000-aaaaaaaa",
        name=MARKUP,
        project=IMAGE,
        tags=[MARKUP, IMAGE],
        group=IMAGE,
        summary={
            f"val/{IMAGE}": {"last": 1.0, "min": 1.0, "max": 1.0, "count": 1},
            "a,b": {"last": 2.5, "min": 2.5, "max": 2.5, "count": 1},
        },
        metrics={},
    )
    builder.attempt(host=IMAGE, config={IMAGE: MARKUP, "lr": 0.1}).end("failed", reason=MARKUP)
    address = serve(tmp_path)
    page = page_of(address)
    row = page.locator('tr[data-run="20260401-000000-aaaaaaaa"]')
    assert row.locator("a").text_content() == MARKUP
    assert row.locator(".pill").get_attribute("title") == MARKUP
    page.get_by_role("button", name="Columns").click()
    for column in ("tags", "host", "group", f"config.{IMAGE}", f"val/{IMAGE}", "a,b"):
        box = page.locator(f"input[data-choice={json.dumps(column)}]")
        if not box.is_checked():
            box.check()
    page.get_by_role("button", name="Close").click()
    wait_until(page, "document.querySelectorAll('.runs-grid .tag').length === 2")
    heads = texts(page.locator(".runs-grid thead .label"))
    assert IMAGE in heads
    assert f"val/{IMAGE}" in heads
    assert "a,b" in heads
    expect(row).to_contain_text("2.5")
    assert row.locator("td", has_text=MARKUP).count() >= 1
    assert texts(row.locator(".tag")) == [MARKUP, IMAGE]
    assert IMAGE in texts(page.locator(".runs-project option"))[1]
    page.locator("#runs-filter").press_sequentially("host = ")
    expect(page.locator("#runs-offers li", has_text="<img")).to_have_text(IMAGE)
    page.locator("#runs-offers li", has_text="<img").click()
    page.locator("#runs-filter").press("Enter")
    wait_for_count(page, 1, 2)
    filter_by(page, IMAGE)
    expect(page.locator(".runs-fault mark")).to_have_count(1)
    assert IMAGE in (page.locator(".runs-fault code").text_content() or "")
    assert foreign_elements(page, ["link[rel=icon]", "link[rel=stylesheet]", "script[src]"]) == []
    assert page.title() != "owned"


def test_an_empty_folder_says_how_to_begin_and_shows_the_first_run(
    page_of: Pages, serve: Serve, tmp_path: Path
) -> None:
    """The folder, lines of Python that record a run as they stand, and then that run without a reload."""
    root = tmp_path / "runs"
    root.mkdir()
    page = page_of(serve(root))
    nothing = page.locator(".runs-nothing")
    expect(nothing).to_contain_text("There are no runs here yet")
    assert str(root) in nothing.inner_text()
    assert not page.locator(".runs-tools").is_visible()
    code = nothing.locator("pre").inner_text()
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment(tmp_path / "elsewhere"),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (path,) = run_paths(root)
    expect(page.locator(f'tr[data-run="{path.name}"] .pill')).to_have_text("finished")
    expect(page.locator(".runs-count")).to_have_text("1 run")
    assert not nothing.is_visible()


def test_no_match_and_a_damaged_run(page_of: Pages, serve: Serve, tmp_path: Path) -> None:
    """A filter that leaves nothing can be taken back by one click; a run that cannot be read is said to be damaged."""
    draw = random.Random(1)
    made = [make(tmp_path, number, draw) for number in range(3)]
    (tmp_path / made[1].run_id / "run.json").write_text("{", encoding="utf-8")
    page = page_of(serve(tmp_path))
    expect(page.locator(f'tr[data-run="{made[1].run_id}"] .runs-problem')).to_have_text("damaged")
    filter_by(page, "name = nobody")
    expect(page.locator(".runs-nothing")).to_contain_text("No run is like that")
    page.get_by_role("button", name="Show all runs").click()
    wait_for_count(page, 3, 3)
    wait_until(page, "!new URLSearchParams(location.search).has('where')")
    assert page.locator("#runs-filter").input_value() == ""


@pytest.mark.parametrize("early_after_s", [0.0, 30.0])
def test_a_run_that_cannot_be_read_is_seen_to_be_damaged_and_its_page_says_why(
    page_of: Pages, serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, early_after_s: float
) -> None:
    """The mark is in sight beside the longest name; no time is made up; the page is not that of a run unheard of.

    Also where its description was on the page before its points could not be read.
    """
    monkeypatch.setattr("otel_train.view.serving.run_routes.EARLY_AFTER_S", early_after_s)
    folder = tmp_path / "20260131-120000-aaaaaaaa"
    folder.mkdir()
    (folder / "run.json").write_text("{", encoding="utf-8")
    address = serve(tmp_path)
    page = page_of(f"{address}/?columns=state,name,reason", allow="404")
    row = page.locator(f'tr[data-run="{folder.name}"]')
    cell, mark = row.locator(".runs-name").bounding_box(), row.locator(".runs-problem").bounding_box()
    assert cell is not None
    assert mark is not None
    assert cell["x"] <= mark["x"]
    assert mark["x"] + mark["width"] <= cell["x"] + cell["width"]
    expect(row).to_contain_text("run.json is missing or damaged, and nothing was recorded")
    row.get_by_role("link").click()
    expect(page.locator("h1", has_text="This run cannot be read")).to_be_visible()
    expect(page.locator(".hero")).to_contain_text("nothing in it can be read (run.json is damaged: ")
    expect(page.locator(".hero")).not_to_contain_text("There is no such run")
    expect(page.locator("nav a, main > *")).to_have_count(1)


@pytest.mark.parametrize("dark", [False, True])
def test_a_narrow_screen_shows_names_while_the_rest_moves_by(
    page_of: Pages, serve: Serve, many: tuple[Path, list[Made]], dark: bool
) -> None:
    """The page itself is as wide as the screen; within the table the name stays in sight; letters stand out."""
    root, made = many
    page = page_of(serve(root), width=390, height=800, dark=dark)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    name = page.locator(f'tr[data-run="{made[-1].run_id}"] .runs-name')
    page.evaluate("document.querySelector('.runs-scroll').scrollLeft = 600")
    box, frame = name.bounding_box(), page.locator(".runs-scroll").bounding_box()
    assert box is not None
    assert frame is not None
    assert box["x"] == pytest.approx(frame["x"], abs=2)
    ink, paper = page.evaluate(
        """() => { const cell = document.querySelector(".runs-grid tr[data-run] td:not(.runs-check)");
        const style = getComputedStyle(cell); return [style.color, style.backgroundColor]; }"""
    )
    assert contrast(ink, paper) >= 7


def contrast(one: str, other: str) -> float:
    """Return the ratio of WCAG of two colours as the browser gives them."""

    def light(text: str) -> float:
        parts = [float(part) for part in re.findall(r"[\d.]+", text)[:3]]
        linear = [part / 255 / 12.92 if part <= 10 else ((part / 255 + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    darker, lighter = sorted((light(one), light(other)))
    return (lighter + 0.05) / (darker + 0.05)


def test_a_server_that_ends_is_told(page_of: Pages, many: tuple[Path, list[Made]]) -> None:
    """When the server is gone the page says so, and keeps what it has."""
    from tests.serving import serve_in_thread

    root, _ = many
    with serve_in_thread(root) as served:
        page = page_of(
            served.address,
            allow=r"ERR_CONNECTION_REFUSED|ERR_EMPTY_RESPONSE|ERR_INCOMPLETE_CHUNKED|ERR_CONNECTION_RESET|ERR_FAILED",
        )
        assert len(shown(page)) == 60
    expect(page.locator(".notice")).to_contain_text("does not answer")
    assert len(shown(page)) == 60
