"""The page of a run follows a real training process: it grows, it is killed, it goes on, it is deleted."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from otel_train.clock import wall_ns
from otel_train.view.reading import read_run
from tests.browser import Pages, card, finite, needs_chromium, rows, texts, traces, wait_for_text, wait_until
from tests.scripts import Scripts, run_paths

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300), needs_chromium]
Serve = Callable[[Path], str]
# Trains until its standard input ends; says so when the run is there.
TRAINING = """
import logging, select, sys, time, otel_train
log = logging.getLogger("train")
log.setLevel(logging.INFO)
run = otel_train.init("live", name="followed", **eval(sys.argv[1] if len(sys.argv) > 1 else "{}"))
print(run.id, flush=True)
for step in run.steps(range(1_500)):
    run.log({"loss": 1 / (step + 1)})
    if step == 60:
        log.warning("sixty steps are done")
    if select.select([sys.stdin], [], [], 0.02)[0]:
        break
while not select.select([sys.stdin], [], [], 1)[0]:
    pass
run.finish()
"""


LATE = """
import sys, otel_train
run = otel_train.init("live")
print(run.id, flush=True)
sys.stdin.read()
for step in range(30):
    run.log({"loss": 1.0}, step=step)
run.finish()
"""


def begin(scripts: Scripts, **options: Any) -> tuple[Any, str]:
    """Start the training; return its process and the id of its run."""
    process = scripts.popen(TRAINING, repr(options), stdin=subprocess.PIPE)
    return process, process.stdout.readline().strip()


def loss(page: Page) -> Locator:
    return card(page, "loss", "curves")


def points(page: Page) -> list[tuple[float, float]]:
    """Return the points of the loss as they are drawn now."""
    (line,) = [trace for trace in traces(loss(page)) if "lines" in trace["mode"] and not trace["fill"]]
    return finite(line)


def await_points(page: Page, count: int) -> None:
    """Wait until at least so many points of the loss are drawn."""
    wait_until(
        page,
        "([plot, count]) => plot.data.length && plot.data[0].y.length >= count",
        [loss(page).locator(".plot").element_handle(), count],
    )


def stored(path: Path) -> list[tuple[int, float]]:
    """Return step and loss of each whole line in the files themselves."""
    values: dict[str, float] = {}
    steps: dict[str, int] = {}
    for file in sorted(path.glob("attempt-*/rank-0/metrics.*.jsonl*")):
        # Closed segments are packed.
        raw = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
        for text in raw.decode("utf-8").splitlines():
            try:
                line = json.loads(text)
            except ValueError:
                continue  # the last line of a killed run may be cut
            for metric in line["resourceMetrics"][0]["scopeMetrics"][0]["metrics"]:
                for point in metric.get("gauge", {}).get("dataPoints", ()):
                    if metric["name"] == "train.loss":
                        values[point["timeUnixNano"]] = point["asDouble"]
                    elif metric["name"] == "dl.step":
                        steps[point["timeUnixNano"]] = int(point["asInt"])
    return sorted((steps[time], value) for time, value in values.items())


def test_a_page_follows_a_training_to_its_end(scripts: Scripts, root: Path, serve: Serve, page_of: Pages) -> None:
    """Points, a log record and the end arrive without a reload; looking on costs the writer nothing."""
    process, run_id = begin(scripts)
    page = page_of(f"{serve(root)}/run/{run_id}")
    page.evaluate("window.sameDocument = true")
    expect(page.locator("#pill")).to_have_text("running")
    await_points(page, 2)
    first = len(points(page))
    await_points(page, first + 50)
    record = page.locator("#logs .log", has_text="sixty steps are done")
    record.first.wait_for()
    expect(record.first).to_contain_text("step 60")

    # Others read at the same time: the report's file, and the command line.
    for command in (["report", run_id], ["show", run_id]):
        done = subprocess.run(
            [sys.executable, "-m", "otel_train.cli.main", *command, "--dir", str(root)],
            capture_output=True, text=True, timeout=100, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr

    process.stdin.close()
    process.stdin = None
    expect(page.locator("#pill")).to_have_text("finished")
    ended = scripts.end(process)
    assert ended.code == 0
    assert "nothing dropped" in ended.errors
    assert "Traceback" not in ended.errors
    kept = stored(ended.path)
    await_points(page, len(kept))
    assert points(page) == kept
    assert kept == [(step, 1 / (step + 1)) for step in range(len(kept))]
    wait_for_text(page, "#summary tbody", f"{len(kept):,}")
    assert page.evaluate("window.sameDocument") is True


def test_a_page_that_was_opened_before_the_first_step_shows_the_steps_when_they_come(
    scripts: Scripts, root: Path, serve: Serve, page_of: Pages
) -> None:
    """Without any point there is only time; with the first ones the curves are by step, as on a page opened then."""
    process = scripts.popen(LATE, stdin=subprocess.PIPE)
    run_id = process.stdout.readline().strip()
    page = page_of(f"{serve(root)}/run/{run_id}")
    page.locator("html[data-whole=yes]").wait_for(state="attached")
    expect(page.locator("#curves")).to_contain_text("No metric was logged")
    process.stdin.close()
    process.stdin = None
    scripts.end(process)
    await_points(page, 30)
    wait_until(page, "document.querySelector('#curves .xtitle').textContent === 'step'")
    assert points(page) == [(step, 1.0) for step in range(30)]


def test_a_killed_training_is_shown_as_lost_with_all_that_was_flushed(
    scripts: Scripts, root: Path, serve: Serve, page_of: Pages
) -> None:
    """After kill -9 the open page says what became of the process, and so does a fresh one; no point is missing."""
    process, run_id = begin(scripts)
    address = f"{serve(root)}/run/{run_id}"
    page = page_of(address)
    await_points(page, 40)
    process.send_signal(signal.SIGKILL)
    process.wait()
    expect(page.locator("#pill")).to_have_text("lost")
    expect(page.locator("#overview .hero")).to_contain_text(f"process {process.pid} is gone and wrote no end")
    kept = stored(run_paths(root)[0])
    assert len(kept) >= 40
    await_points(page, len(kept))
    assert points(page) == kept

    fresh = page_of(address)
    expect(fresh.locator("#pill")).to_have_text("lost")
    assert points(fresh) == kept
    fresh.locator("#summary tbody tr").first.wait_for()
    heads = texts(fresh.locator("#summary thead th"))
    row = next(row for row in rows(fresh, "#summary table") if row[0] == "loss")
    shown = dict(zip(heads, row, strict=True))
    assert shown["Points"] == f"{len(kept):,}"
    assert float(shown["Maximum"].split()[0]) == 1.0
    assert float(shown["Minimum"].split()[0]) == pytest.approx(kept[-1][1], rel=1e-5)
    assert f"step {kept[-1][0]}" in shown["Minimum"]


def test_a_training_that_goes_on_appears_as_the_next_attempt(
    scripts: Scripts, root: Path, serve: Serve, page_of: Pages
) -> None:
    """A page that stays open after the end shows the resumed run: attempts, new state, points of both."""
    process, run_id = begin(scripts)
    page = page_of(f"{serve(root)}/run/{run_id}")
    await_points(page, 30)
    process.stdin.close()
    process.stdin = None
    expect(page.locator("#pill")).to_have_text("finished")
    before = stored(scripts.end(process).path)
    process, again = begin(scripts, resume=run_id)
    assert again == run_id
    expect(page.locator("#pill")).to_have_text("running")
    page.locator("#attempts").wait_for()
    process.stdin.close()
    process.stdin = None
    expect(page.locator("#pill")).to_have_text("finished")
    scripts.end(process)
    whole = {item.series.key: item.series for item in read_run(run_paths(root)[0], wall_ns()).series()}["loss"]
    assert len(whole.values) > len(before) or whole.attempt == 2
    await_points(page, len(whole.values))
    wait_until(
        page,
        "([plot, last]) => plot.data[0].x[plot.data[0].x.length - 1] === last",
        [loss(page).locator(".plot").element_handle(), int(whole.steps[-1])],
    )


def test_a_run_that_is_deleted_is_said_to_be_gone(scripts: Scripts, root: Path, serve: Serve, page_of: Pages) -> None:
    """The open page keeps what it has and says that the folder is gone; a fresh one says that there is no such run."""
    process, run_id = begin(scripts)
    address = serve(root)
    page = page_of(f"{address}/run/{run_id}", allow=r"40[04]|410")
    await_points(page, 10)
    process.send_signal(signal.SIGKILL)
    process.wait()
    shutil.rmtree(root / run_id)
    page.get_by_text("deleted").or_(page.get_by_text("gone:")).first.wait_for()
    assert len(points(page)) >= 10
    fresh = page_of(f"{address}/run/{run_id}", ready=False, allow=r"40[04]|410")
    wait_until(fresh, "(id) => document.body.textContent.includes(id)", run_id)
    assert "Traceback" not in (fresh.content())
    assert os.path.isdir(root)
