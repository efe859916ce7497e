"""Whatever a run contains is shown as text: markup, quotes, line separators, reversed text and endless names."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from otel_train.clock import NS_PER_S
from otel_train.record.entries import Sample
from otel_train.view.reading import read_run
from otel_train.view.report import write
from tests.browser import Pages, await_ready, card, foreign_elements, needs_chromium, texts, traces, wait_until
from tests.runs import RUN_ID, START_NS, RunBuilder

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300), needs_chromium]
Serve = Callable[[Path], str]
MARKUP = "</script><script>document.title='owned'</script><b id=foreign>bold</b> \u2028 end"
IMAGE = "<img src=x onerror=\"alert('owned')\">"
QUOTES = "quo\"te's & <i>name</i> \u2028 </title></style> &lt;b&gt; {{data}} %{y} ${1}"
REVERSED = "model\u202efdp.exe"
# A file's name has no slash.
FILE = "<b id=foreign>&\"' onload=alert(1) \u202etxt.gpj"
OTHER_ID = "20260131-130000-abcdefgh"


def hostile_run(root: Path, run_id: str = RUN_ID, name: str = QUOTES) -> RunBuilder:
    """Build a run whose every text would like to be something else."""
    builder = RunBuilder(
        root,
        run_id,
        name=name,
        project=IMAGE,
        group=MARKUP,
        tags=[MARKUP, IMAGE, REVERSED],
        notes=MARKUP,
        datasets=[{"name": MARKUP, "size": 3, "classes": {IMAGE: 3}, "problems": [MARKUP]}],
        checkpoints=[{"path": MARKUP, "size": 1, "metrics": {IMAGE: 0.5}}],
        stages=[{"name": MARKUP, "status": "ok", "inputs": [{"path": IMAGE}]}],
        metrics={"loss": {"goal": "min"}, MARKUP: {"goal": "max"}},
    )
    builder.attempt(
        config={MARKUP: MARKUP, IMAGE: REVERSED, "long": "v" * 10_000, "lr": 0.1},
        environment={"code": {"patch": f"+{MARKUP}\n-{IMAGE}"}, "packages": {IMAGE: MARKUP}},
        host=IMAGE,
    )
    builder.log({"loss": [3.0, 2.0], MARKUP: [0.5, 0.6], IMAGE: [1.0, 2.0], "m" * 10_000: [1.0, 2.0]}, steps=[0, 1])
    builder.samples(5, [Sample("hw.gpu.utilization", 0.5, (("hw.id", IMAGE), ("index", 0), ("hw.name", MARKUP)))])
    builder.record(MARKUP, "WARN", at_s=3, **{MARKUP: IMAGE})
    builder.record(REVERSED + "x" * 10_000, at_s=4)
    builder.record(
        IMAGE,
        "ERROR",
        event="run.end",
        at_s=50,
        exception__type=IMAGE,
        exception__message=MARKUP,
        exception__stacktrace=MARKUP,
    )
    builder.span(MARKUP, 0, 50, dl__stage=MARKUP).span("epoch", 1, 9, span_id=2, dl__epoch=0, note=IMAGE)
    artifacts = builder.path / "artifacts"
    artifacts.mkdir(exist_ok=True)
    (artifacts / FILE).write_text(MARKUP, encoding="utf-8")
    return builder.end("failed", reason=MARKUP)


def assert_nothing_ran(page: Page) -> None:
    """No element, title or width of the page comes from a text of the run."""
    assert (
        foreign_elements(page, ["script[src]", "link[rel=stylesheet]", "link[rel=icon]", "#data", "head script"]) == []
    )
    assert page.title() != "owned"
    assert page.evaluate("document.querySelectorAll('[onerror], [onload]').length") == 0
    width, room = page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
    assert width <= room, "an endless name widens the page"


def assert_shown(page: Page, selector: str, text: str) -> None:
    """An element of this kind has exactly this text, and no element within it."""
    wait_until(
        page,
        "([selector, text]) => [...document.querySelectorAll(selector)].some((node) => node.textContent === text)",
        [selector, text],
    )


def test_the_page_of_a_run_shows_hostile_texts_literally(tmp_path: Path, serve: Serve, page_of: Pages) -> None:
    """Name, tags, notes, metrics, records, configuration, data, checkpoints, packages and files: each as it is."""
    hostile_run(tmp_path)
    page = page_of(f"{serve(tmp_path)}/run/{RUN_ID}")
    assert_shown(page, "#run-name", QUOTES)
    assert texts(page.locator("#overview .tag")) == [MARKUP, IMAGE, REVERSED]
    expect(page.locator("#overview .cause strong")).to_have_text(IMAGE)
    assert_shown(page, "#overview .cause .message", MARKUP)
    for title in ("loss", MARKUP, IMAGE):
        assert_shown(page, "#curves h3", title)
    for section in ("timeline", "logs", "configuration", "data", "checkpoints", "environment", "files"):
        page.locator(f"#{section}").scroll_into_view_if_needed()
    assert_shown(page, "#configuration td", MARKUP)
    assert_shown(page, "#configuration td", IMAGE)
    assert_shown(page, "#configuration td", REVERSED)
    assert_shown(page, "#data h3", MARKUP)
    wait_until(page, "(text) => document.querySelector('#logs').textContent.includes(text)", MARKUP)
    wait_until(page, "(text) => document.querySelector('#files').textContent.includes(text)", FILE)
    for title in ("loss", MARKUP, IMAGE):
        chart = card(page, title, "curves")
        assert chart.locator(".main-svg").count() > 0
    assert_nothing_ran(page)


def test_hovering_a_hostile_line_shows_its_name_and_no_markup(tmp_path: Path, serve: Serve, page_of: Pages) -> None:
    """Plotly reads a few tags in its texts; a split of the user's is none."""
    builder = RunBuilder(tmp_path).attempt()
    builder.log(
        {"loss": [3.0, 2.0, 1.0]}, split="<b>bold</b><a href='javascript:alert(1)'>%{y} ${x}</a>", steps=[0, 1, 2]
    )
    builder.log({"loss": [4.0, 3.0, 2.0]}, split="train", steps=[0, 1, 2])
    builder.end()
    page = page_of(f"{serve(tmp_path)}/run/{RUN_ID}")
    chart = card(page, "loss", "curves")
    box = chart.locator(".plot .nsewdrag").first.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    hover = chart.locator(".hoverlayer")
    # As it is, up to sixty letters.
    expect(hover).to_contain_text("<b>bold</b><a href='javascript:alert(1)'>%{y} ${x}</a>"[:60])
    assert hover.locator("a").count() == 0
    assert_nothing_ran(page)


def test_the_list_of_runs_and_the_comparison_show_hostile_names_literally(
    tmp_path: Path, serve: Serve, page_of: Pages
) -> None:
    """Also a name of ten thousand characters leaves the page as wide as the window."""
    hostile_run(tmp_path)
    hostile_run(tmp_path, OTHER_ID, name=IMAGE + "n" * 10_000)
    address = serve(tmp_path)
    page = page_of(f"{address}/")
    wait_until(
        page,
        "(texts) => texts.every((text) => document.querySelector('main').textContent.includes(text))",
        [QUOTES, IMAGE],
    )
    assert_nothing_ran(page)
    page = page_of(f"{address}/compare?runs={RUN_ID},{OTHER_ID}")
    wait_until(page, "(text) => document.querySelector('main').textContent.includes(text)", QUOTES)
    assert_nothing_ran(page)


def test_the_report_of_a_hostile_run_opens_without_a_network(tmp_path: Path, page_of: Pages) -> None:
    """The file alone: no script error, charts drawn, texts literal, and no request at all."""
    builder = hostile_run(tmp_path)
    path = write(read_run(builder.path, START_NS + 900 * NS_PER_S), tmp_path / "report.html")
    page = page_of(path, offline=True)
    assert_shown(page, "#run-name", QUOTES)
    assert_shown(page, "#configuration td", MARKUP)
    for title in ("loss", MARKUP, IMAGE):
        card(page, title, "curves")
    assert page.evaluate("performance.getEntriesByType('resource').map((entry) => entry.name)") == []
    assert foreign_elements(page, ["#data", "body > script"]) == []
    assert page.title() != "owned"


def test_a_file_of_a_run_is_never_a_page(tmp_path: Path, serve: Serve, page_of: Pages) -> None:
    """A download of HTML comes as a file: nothing of it runs with the rights of the page."""
    builder = RunBuilder(tmp_path).attempt().log({"loss": [1.0]}, steps=[0]).end()
    (builder.path / "artifacts").mkdir(exist_ok=True)
    text = "<!doctype html><title>owned</title><script>alert(1)</script>"
    (builder.path / "artifacts" / "evil.html").write_text(text, encoding="utf-8")
    page = page_of(f"{serve(tmp_path)}/run/{RUN_ID}", accept_downloads=True)
    page.locator("#files").scroll_into_view_if_needed()
    link = page.locator("#files a", has_text="evil.html").first
    with page.expect_download() as download:
        link.click()
    assert Path(download.value.path()).read_text(encoding="utf-8") == text
    assert page.title() != "owned"


def test_a_folder_whose_name_is_no_text_is_a_run_like_others(tmp_path: Path, serve: Serve, page_of: Pages) -> None:
    """Copied from a disk with another encoding: it hides no other run, and its link leads to its own points."""
    RunBuilder(tmp_path, name="plain").attempt().log({"loss": [3.0, 2.0]}, steps=[0, 1]).end()
    copied = RunBuilder(tmp_path, OTHER_ID, name="copied").attempt().log({"loss": [5.0, 4.0]}, steps=[0, 1]).end()
    copied.path.rename(tmp_path / os.fsdecode(b"gr\xfc\xdfe %41"))
    page = page_of(f"{serve(tmp_path)}/")
    expect(page.locator("tbody th a")).to_have_text(["copied", "plain"])
    page.get_by_role("link", name="copied", exact=True).click()
    await_ready(page)
    assert page.url.lower().endswith("/run/gr%fc%dfe%20%2541")
    assert [trace["y"] for trace in traces(card(page, "loss", "curves")) if trace["meta"] == "line"] == [[5.0, 4.0]]


def test_proposals_for_names_that_every_object_has_come_from_the_runs_alone(
    tmp_path: Path, serve: Serve, page_of: Pages
) -> None:
    """A metric may be called constructor, a key of the configuration toString; a large seed keeps its digits."""
    builder = RunBuilder(tmp_path).attempt(config={"toString": "adam", "seed": 12345678901234567890})
    builder.log({"constructor": [3.0, 2.0]}, steps=[0, 1]).end()
    page = page_of(f"{serve(tmp_path)}/?columns=constructor,toString,config.toString,config.seed")
    cell = page.locator("tbody td", has_text="12345678901234567890")
    expect(cell).to_have_class("num")
    line, offers = page.locator("#runs-filter"), page.locator("#runs-offers li")
    # The list was open for the operators that go with the name.
    line.press_sequentially("constructor = f")
    expect(page.locator("#runs-offers")).to_be_hidden()
    line.fill("")
    line.press_sequentially("config.toString = a")
    expect(offers).to_have_text(["adam"])
