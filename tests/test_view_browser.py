"""The page in a real browser: it draws without an error, shows texts literally, and needs no network."""

from __future__ import annotations

import contextlib
import html
import json
import math
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from otel_train.record.entries import Sample
from otel_train.view.page import render
from otel_train.view.reading import read_run
from otel_train.view.report import build, plotly_script, write
from tests.runs import NS_PER_S, START_NS, RunBuilder

CHROMIUM = shutil.which("chromium")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not on the PATH"),
]
HOSTILE = "</script><script>document.title='owned'</script><b id=foreign>bold</b> \u2028 end"
NAME = "quo\"te's & <i>name</i> \u2028 </title>"


def open_page(path: Path, profile: Path) -> tuple[str, str]:
    """Return the document as the browser has it after the scripts have run, and what they complained of."""
    for attempt in ("first", "second"):
        # A browser on a busy machine may stall at its start, before it has opened anything; once more then.
        found = _browse(path, profile.with_name(f"{profile.name}-{attempt}"))
        if found is not None:
            return found
    pytest.fail("the browser did not answer in 40 s, twice")


def _browse(path: Path, profile: Path) -> tuple[str, str] | None:
    assert CHROMIUM is not None
    profile.mkdir()
    flags = "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    flags += "--disable-component-update --disable-sync --enable-logging=stderr --virtual-time-budget=8000 --dump-dom"
    command = [CHROMIUM, *flags.split(), "--window-size=1400,9000", f"--user-data-dir={profile}", path.as_uri()]
    # Files and not pipes: processes that the browser leaves behind would hold a pipe open for ever.
    with open(profile / "out", "wb") as out, open(profile / "err", "wb") as err:
        process = subprocess.Popen(command, stdout=out, stderr=err, start_new_session=True)
        try:
            code = process.wait(timeout=40)
        except subprocess.TimeoutExpired:
            code = None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    if code is None:
        return None
    assert code == 0
    errors = (profile / "err").read_text(encoding="utf-8", errors="replace").splitlines()
    complaints = "\n".join(line for line in errors if "CONSOLE" in line)
    return (profile / "out").read_text(encoding="utf-8", errors="replace"), complaints


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """The page of a run with NaN in its metric and markup in all of its texts, as the browser has it."""
    folder = tmp_path_factory.mktemp("page")
    values = [2.0 if step % 6 == 0 else math.nan for step in range(60)]
    values[31], values[32] = math.inf, -math.inf
    builder = RunBuilder(
        folder,
        name=NAME,
        tags=[HOSTILE],
        notes=HOSTILE,
        datasets=[{"name": HOSTILE, "size": 3, "classes": {HOSTILE: 3}, "problems": [HOSTILE]}],
        checkpoints=[{"path": HOSTILE, "size": 1}],
        stages=[{"name": HOSTILE, "status": "ok", "inputs": [{"path": HOSTILE}]}],
    )
    builder.attempt(config={HOSTILE: HOSTILE}, environment={"code": {"patch": HOSTILE}, "packages": {HOSTILE: "1"}})
    builder.log({"loss": values}, steps=range(60), epochs=[step // 20 for step in range(60)])
    builder.log({f"<b>{HOSTILE[:40]}": [1.0]}, split="val", steps=[59])
    builder.samples(
        5,
        [Sample("system.cpu.utilization", 0.5), Sample("hw.gpu.utilization", 0.5, (("hw.id", HOSTILE), ("index", 0)))],
    )
    builder.samples(
        9,
        [Sample("dl.step.time", 0.1, (("split", "train"),)), Sample("dl.data.wait.time", 0.05, (("split", "train"),))],
    )
    builder.record(
        HOSTILE,
        "ERROR",
        event="run.end",
        exception__type=HOSTILE,
        exception__message=HOSTILE,
        exception__stacktrace=HOSTILE,
    )
    builder.span(HOSTILE, 0, 50, dl__stage=HOSTILE).span("epoch", 1, 9, span_id=2, dl__epoch=0, note=HOSTILE)
    builder.end("failed", reason=HOSTILE)
    path = write(read_run(builder.path, START_NS + 900 * NS_PER_S))
    return open_page(path, folder / "profile")


def test_the_page_opens_without_a_script_error(page: tuple[str, str]) -> None:
    """The last line of the script was reached, and the console is empty."""
    document, complaints = page
    assert 'data-ready="yes"' in document
    assert complaints == ""


def test_every_chart_is_drawn(page: tuple[str, str]) -> None:
    """Two metrics, step time, wait for data, host, GPU and the timeline."""
    document, _ = page
    assert document.count('data-drawn="yes"') == 7
    assert len(re.findall(r'<svg class="main-svg"', document)) >= 7


def test_finite_points_are_dots_and_the_others_are_marks(page: tuple[str, str]) -> None:
    """Ten dots without a line between them, and fifty marks of what was not finite."""
    document, _ = page
    chart = document[document.index(">loss</h3>") :].split("</article>")[0]
    layers = re.findall(r'<g class="trace scatter trace[^"]*"[^>]*>(.*?)</g></g>', chart, re.DOTALL)
    points = [layer.count('class="point"') for layer in layers]
    # The finite values, the star of the best one, and the marks.
    assert points == [10, 1, 50]
    lines = re.findall(r'class="js-line"[^>]* d="([^"]*)"', chart)
    assert len(lines) == 10
    assert all("L" not in line for line in lines)


def test_texts_are_shown_literally_and_no_foreign_element_is_in_the_page(page: tuple[str, str]) -> None:
    """The markup of a log text, a name, a key, an exception is text; title and document are the page's own."""
    document, _ = page
    body = re.sub(r"<script.*?</script>", "", document, flags=re.DOTALL)
    assert 'id="foreign"' not in body
    assert "<b id=" not in body
    assert len(re.findall(r"<script", document)) == 3
    assert "<title>owned" not in document
    assert html.escape(HOSTILE, quote=False) in body
    assert body.count("&lt;b id=foreign&gt;bold&lt;/b&gt;") >= 15
    name = re.search(r'<p id="run-name">(.*?)</p>', body)
    assert name is not None
    assert html.unescape(name[1]) == NAME


def test_an_empty_run_has_reasons_in_place_of_frames(tmp_path: Path) -> None:
    """No chart, no error, a sentence for each section."""
    builder = RunBuilder(tmp_path).attempt().end()
    document, complaints = open_page(write(read_run(builder.path, START_NS)), tmp_path / "profile")
    assert complaints == ""
    assert 'data-ready="yes"' in document
    assert "No GPU was seen by this run." in document
    assert 'data-drawn="yes"' not in document


def test_the_reader_can_change_axis_scale_theme_and_filter_records(tmp_path: Path) -> None:
    """Clicks and typing do what they say: axis titles, hidden lines, levels, search, details of a record."""
    builder = (
        RunBuilder(tmp_path).attempt().log({"loss": [3.0, 2.0]}, steps=[0, 1], epochs=[0, 1], times_s=[1.0, 401.0])
    )
    builder.log({"loss": [2.5]}, split="val", steps=[1], epochs=[1], times_s=[400.0])
    for number in range(300):
        builder.record(f"line {number}", at_s=number, dl__step=number)
    builder.record("careful", "WARN", at_s=400, exception__stacktrace="Traceback of it")
    builder.end(at_s=500)
    driver = """
;addEventListener("load", () => setTimeout(() => {
  const out = {};
  const all = (selector) => [...document.querySelectorAll(selector)];
  const titles = () => all("#curves .xtitle").map((node) => node.textContent);
  const type = (selector, text) => {
    const input = document.querySelector(selector);
    input.value = text;
    input.dispatchEvent(new Event("input"));
  };
  out.step = titles();
  document.querySelector('[data-axis="time"]').click();
  out.time = titles();
  document.querySelector('[data-axis="epoch"]').click();
  out.epoch = titles();
  const lines = () => all("#curves .scatterlayer .trace").length;
  out.both = lines();
  all("#curves .chip")[1].click();
  out.one = lines();
  out.records = all("#logs .log").length;
  all("#logs .pager button")[1].click();
  out.older = all("#logs .log").length;
  all("#logs .level")[0].click();
  out.warnings = all("#logs .log .m").map((node) => node.textContent);
  document.querySelector("#logs details").open = true;
  setTimeout(() => {
    out.details = document.querySelector("#logs .more pre").textContent;
    all("#logs .level")[0].click();
    type("#logs .search", "LINE 29");
    out.found = all("#logs .log").length;
    document.querySelector("#theme").click();
    out.scheme = document.documentElement.style.colorScheme;
    document.body.dataset.out = JSON.stringify(out);
  }, 200);
}, 1500));
"""
    run = read_run(builder.path, START_NS + 900 * NS_PER_S)
    page = tmp_path / "driven.html"
    page.write_text(render(build(run), "driven", plotly_script() + driver), encoding="utf-8")
    document, complaints = open_page(page, tmp_path / "profile")
    assert complaints == ""
    found = re.search(r'data-out="([^"]*)"', document)
    assert found is not None
    assert json.loads(html.unescape(found[1])) == {
        "step": ["step"],
        "time": ["elapsed (min)"],
        "epoch": ["epoch"],
        "both": 4,
        "one": 2,
        "records": 250,
        "older": 51,
        "warnings": ["careful"],
        "details": "Traceback of it",
        "found": 11,
        "scheme": "dark",
    }
