"""The page of a run shows every value for what it is: not finite, missing, at its step and time, summed up, dropped."""

from __future__ import annotations

import errno
import json
import math
import os
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from otel_train.clock import NS_PER_S
from tests.browser import Pages, card, finite, needs_chromium, rows, texts, traces, wait_until
from tests.reader import marks
from tests.runs import RUN_ID, START_NS, RunBuilder
from tests.scripts import Scripts

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300), needs_chromium]
Start = Callable[..., Any]
Serve = Callable[[Path], str]


def lines_of(chart: Locator) -> list[dict[str, Any]]:
    """Return the traces that are lines of values: no bands, marks or stars."""
    return [trace for trace in traces(chart) if "lines" in trace["mode"] and not trace["fill"]]


def summary(page: Page) -> dict[tuple[str, str], dict[str, str]]:
    """Return the rows of the summary by metric and split, each by the heads of its columns."""
    page.locator("#summary tbody tr").first.wait_for()
    heads = texts(page.locator("#summary thead th"))
    found = [dict(zip(heads, row, strict=True)) for row in rows(page, "#summary table")]
    return {(row["Metric"], row["Split"]): row for row in found}


def number_of(cell: str) -> float:
    """Return the number with which a cell begins."""
    return float(cell.split()[0].replace(",", ""))


def test_a_run_that_is_mostly_not_a_number_is_seen_to_be_so(
    start: Start, root: Path, serve: Serve, page_of: Pages
) -> None:
    """Ten dots without a line, fifty marks of their kinds at their steps, counts, the first bad step, sane extremes."""
    run = start(name="mostly-nan")
    values = [2.0 if step % 6 == 0 else math.nan for step in range(60)]
    values[31], values[32] = math.inf, -math.inf
    for step, value in enumerate(values):
        run.log({"loss": value}, step=step)
    run.finish()
    page = page_of(f"{serve(root)}/run/{run.id}")

    chart = card(page, "loss", "curves")
    (line,) = lines_of(chart)
    assert finite(line) == [(step, 2.0) for step in range(0, 60, 6)]
    assert line["connectgaps"] is False
    drawn = chart.locator(".js-line").evaluate_all("(paths) => paths.map((path) => path.getAttribute('d') || '')")
    assert [path for path in drawn if "L" in path or "H" in path or "V" in path] == [], "no line bridges a gap"
    (marks,) = [trace for trace in traces(chart) if trace["meta"] == "non-finite"]
    assert Counter(marks["symbol"]) == {"x": 48, "triangle-up": 1, "triangle-down": 1}
    at = dict(zip(marks["symbol"], marks["x"], strict=True))
    assert (at["triangle-up"], at["triangle-down"]) == (31, 32)
    assert sorted(marks["x"]) == [step for step in range(60) if step % 6 or step in (31, 32)]
    expect(chart.locator(".notes .bad")).to_contain_text("48 NaN, 1 +Inf, 1 -Inf; first bad step 1")

    row = summary(page)["loss", "train"]
    assert [row[name] for name in ("Points", "NaN", "+Inf", "-Inf", "First bad")] == ["60", "48", "1", "1", "step 1"]
    assert [number_of(row[name]) for name in ("Minimum", "Maximum", "Mean")] == [2.0, 2.0, 2.0]
    expect(page.locator("#overview .notice.bad").first).to_contain_text("48 NaN, 1 +Inf, 1 -Inf; first bad step 1")


def test_a_gap_stays_a_gap(tmp_path: Path, serve: Serve, page_of: Pages) -> None:
    """A point that says that it has no value is neither a zero nor a NaN, and no line leads over it."""
    builder = RunBuilder(tmp_path).attempt().log({"loss": [1.0, 2.0, 1.0]}, steps=[0, 1, 2], times_s=[1.0, 2.0, 3.0])
    path = builder.path / "attempt-1" / "rank-0" / "metrics.000001.jsonl"
    line = json.loads(path.read_text(encoding="utf-8"))
    metrics = line["resourceMetrics"][0]["scopeMetrics"][0]["metrics"]
    (points,) = [metric["gauge"]["dataPoints"] for metric in metrics if metric["name"] == "train.loss"]
    assert points[1].pop("asDouble") in (2, 2.0)
    points[1]["flags"] = 1  # OTLP: no recorded value
    path.write_text(json.dumps(line) + "\n", encoding="utf-8")
    builder.end()
    page = page_of(f"{serve(tmp_path)}/run/{RUN_ID}")

    chart = card(page, "loss", "curves")
    (line_drawn,) = lines_of(chart)
    assert finite(line_drawn) == [(0, 1.0), (2, 1.0)]
    assert line_drawn["y"] == [1.0, None, 1.0]
    drawn = chart.locator(".js-line").evaluate_all("(paths) => paths.map((path) => path.getAttribute('d') || '')")
    assert [path for path in drawn if "L" in path] == []
    assert [trace for trace in traces(chart) if trace["meta"] == "non-finite"] == []
    row = summary(page)["loss", "train"]
    assert [number_of(row[name]) for name in ("Minimum", "Maximum", "Mean", "Last")] == [1.0, 1.0, 1.0, 1.0]
    assert row["NaN"] == "0"


@pytest.mark.parametrize("named", [False, True], ids=["unnamed", "named"])
def test_two_units_of_steps_are_warned_of_and_nothing_is_dropped(
    start: Start, root: Path, serve: Serve, page_of: Pages, named: bool
) -> None:
    """Training counts the steps of four ranks, evaluation its own: all four points are there, and the page says it."""
    run = start()
    axis = {"axis": "local_step"} if named else {}
    for step, own in ((4000, 1000), (8000, 2000)):
        run.log({"loss": step / 1000}, step=step)
        run.log({"loss": own / 1000}, step=own, split="val", **axis)
    run.finish()
    page = page_of(f"{serve(root)}/run/{run.id}")

    lines = {line["name"]: finite(line) for line in lines_of(card(page, "loss", "curves"))}
    assert list(lines.values()) == [[(4000, 4.0), (8000, 8.0)], [(1000, 1.0), (2000, 2.0)]]
    warning = page.locator("#overview .notice", has_text="Two step units")
    expect(warning).to_have_count(1)
    expect(warning).to_contain_text("local_step" if named else "stay behind half")
    if named:
        # Each axis has its name under the chart.
        (title,) = texts(page.locator("#curves .card.chart .xtitle"))
        assert title.split(", ") == ["local_step", "step"]


def test_elapsed_time_counts_from_the_start_of_the_run_for_every_metric(
    tmp_path: Path, serve: Serve, page_of: Pages
) -> None:
    """A first evaluation at 400 s is drawn at 400 s, not at 0."""
    builder = RunBuilder(tmp_path).attempt()
    builder.log({"loss": [3.0, 2.0, 1.5]}, steps=[0, 1, 2], times_s=[1.0, 200.0, 401.0])
    builder.log({"loss": [2.5], "accuracy": [0.5]}, split="val", steps=[1], times_s=[400.0])
    builder.end(at_s=500)
    page = page_of(f"{serve(tmp_path)}/run/{RUN_ID}")
    page.locator('[data-axis="time"]').first.click()

    for title, name in (("loss", "val"), ("accuracy", "val")):
        chart = card(page, title, "curves")
        expect(chart.locator(".xtitle")).to_have_text("elapsed (min)")
        (line,) = [line for line in lines_of(chart) if line["name"] == name]
        assert [round(60 * x, 6) for x, _ in finite(line)] == [400.0]
        # And the picture has it there: between the ends of the axis, not at its beginning.
        low, high = chart.locator(".plot").evaluate("(plot) => plot._fullLayout.xaxis.range.map(Number)")
        assert low <= 0 < 400 / 60 < high <= 10
    train = lines_of(card(page, "loss", "curves"))[0]
    assert [round(60 * x, 6) for x, _ in finite(train)] == [1.0, 200.0, 401.0]


def test_the_summary_of_a_crashed_run_is_made_from_its_points(tmp_path: Path, serve: Serve, page_of: Pages) -> None:
    """No end was written and run.json has no summary: last, extremes and best come from the points."""
    builder = RunBuilder(tmp_path, metrics={"loss": {"goal": "min"}}).attempt()
    builder.log({"loss": [3.0, 0.25, 7.0, 1.0]}, steps=[0, 10, 20, 30])
    assert json.loads((builder.path / "run.json").read_text(encoding="utf-8"))["summary"] == {}
    page = page_of(f"{serve(tmp_path)}/run/{RUN_ID}")

    expect(page.locator("#pill")).to_have_text("lost")
    row = summary(page)["loss", "train"]
    assert {name: number_of(row[name]) for name in ("Last", "Minimum", "Maximum", "Mean", "Best", "Points")} == {
        "Last": 1.0,
        "Minimum": 0.25,
        "Maximum": 7.0,
        "Mean": 2.8125,
        "Best": 0.25,
        "Points": 4,
    }
    assert ["step 10" in row["Minimum"], "step 20" in row["Maximum"], "step 30" in row["Last"]] == [True] * 3


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB, where this user may mount one."""
    place = tmp_path / "small"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no small file system can be mounted here")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=False)


FULL = """
import random, sys, otel_train
run = otel_train.init(dir=sys.argv[1])
for number in range(40_000):
    run.log({"a": random.random(), "b": random.random()})
    if number % 5000 == 0:
        run.flush()
run.finish()
print("trained")
"""


def test_a_run_on_a_full_disk_is_shown_to_the_last_whole_line(
    scripts: Scripts, small_disk: Path, serve: Serve, page_of: Pages
) -> None:
    """What fitted is drawn; the account of the rest found no room either, and the page says so, not "nothing"."""
    ended = scripts(FULL, str(small_disk))
    assert (ended.code, ended.output) == (0, "trained\n"), ended.errors
    (path,) = [path for path in small_disk.iterdir() if not path.name.startswith(".")]
    stored = stored_points(path, "train.a")
    assert 1000 < stored < 40_000
    page = page_of(f"{serve(small_disk)}/run/{path.name}")

    assert summary(page)["a", ""]["Points"] == f"{stored:,}"
    hero = page.locator("#overview .hero")
    expect(hero).to_contain_text("not known: no account was written at the end")
    # Whether there was room for the last line of the log decides how the run ended, as far as its files know.
    is_lost = page.locator("#pill").text_content() == "lost"
    expect(page.locator("#overview .notice", has_text="as where a disk is full")).to_have_count(0 if is_lost else 1)
    expect(page.locator("#overview .notice", has_text="damaged and left out")).to_have_count(1)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EDQUOT, errno.EACCES])
def test_what_a_disk_did_not_take_is_counted_on_top_of_the_page(
    start: Start, root: Path, serve: Serve, page_of: Pages, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """The points that are not there, with the cause, as the account at the end of the run has them."""

    def refuse(descriptor: int, data: bytes) -> int:
        raise OSError(code, os.strerror(code))

    run = start()
    run.log({"a": 1.0}, step=0)
    run.flush()
    for writer in run.session._recorder.lines._writers.values():
        monkeypatch.setattr(writer, "_write", refuse)
    for step in range(1, 6):
        run.log({"a": 1.0, "b": 2.0}, step=step)
        run.flush()
    run.finish()
    accounts = json.loads((run.path / "run.json").read_text(encoding="utf-8"))["attempts"][0]["accounting"]
    dropped = accounts["dropped"]["metrics"]["disk not writable"]
    assert dropped >= 10
    page = page_of(f"{serve(root)}/run/{run.id}")

    assert summary(page)["a", ""]["Points"] == "1"
    notice = page.locator("#overview .notice", has_text="Not everything was kept")
    expect(notice).to_have_count(1)
    expect(notice).to_contain_text(f"{dropped:,} points (disk not writable)")
    expect(page.locator("#overview .hero")).to_contain_text(f"{dropped:,} points (disk not writable)")


def test_a_run_whose_description_is_damaged_says_what_is_missing(tmp_path: Path, serve: Serve, page_of: Pages) -> None:
    """Its points are all there; run.json alone is named, and what only it held; a cut line is told of by itself."""
    builder = RunBuilder(tmp_path).attempt().log({"loss": [3.0, 2.0]}, steps=[0, 1])
    (builder.path / "run.json").write_text("{", encoding="utf-8")
    address = f"{serve(tmp_path)}/run/{RUN_ID}"
    page = page_of(address)
    assert number_of(summary(page)["loss", "train"]["Minimum"]) == 2.0
    notices = page.locator("#overview .notice", has_text="damaged")
    expect(notices).to_have_count(1)
    expect(notices).to_contain_text(
        "run.json is damaged: what it held of data sets, checkpoints, stages and the directions of metrics is missing."
    )
    builder.lines("metrics", b'{"cut' + bytes([10]))
    expect(notices).to_have_count(2)
    expect(notices.nth(1)).to_contain_text("1 line of the run log is damaged and left out here")


def test_health_conditions_stand_on_top_with_the_way_to_their_step(
    tmp_path: Path, serve: Serve, page_of: Pages
) -> None:
    """What holds and what is over, each with its step; its button marks that step in the curves."""
    builder = RunBuilder(tmp_path).attempt().log({"loss": [1.0] * 40}, steps=range(40))
    builder.record("Loss stands still", "WARN", event="health.plateau", at_s=9, dl__step=8, metric="train.loss")
    builder.record("fell", event="health.plateau", at_s=20, dl__step=19, metric="train.loss", cleared=True)
    drift = "Training and validation drift apart"
    builder.record(drift, "WARN", event="health.overfitting", at_s=31, dl__step=30, metric="train.loss")
    page = page_of(f"{serve(tmp_path)}/run/{builder.end(at_s=60).run_id}")
    notices = page.locator("#overview .notice.warn")
    expect(notices.filter(has_text="Loss stands still")).to_contain_text("over at step 19")
    holding = notices.filter(has_text=drift)
    expect(holding).not_to_contain_text("over at")
    holding.get_by_role("button", name="show step 30").click()
    assert marks(card(page, "loss", "curves")) == [30]
    expect(page.locator(".toolbar .marked")).to_contain_text("marked: step 30")
    notices.filter(has_text="Loss stands still").get_by_role("button", name="show step 8").click()
    assert marks(card(page, "loss", "curves")) == [8]


def stored_points(path: Path, name: str) -> int:
    """Count the points of a metric in the files themselves."""
    count = 0
    for file in path.glob("attempt-*/rank-*/metrics.*.jsonl"):
        for text in file.read_text(encoding="utf-8").splitlines():
            try:
                line = json.loads(text)
            except ValueError:
                continue  # the cut last line of a full disk
            for scope in line["resourceMetrics"][0]["scopeMetrics"]:
                count += sum(len(one["gauge"]["dataPoints"]) for one in scope["metrics"] if one["name"] == name)
    return count


def test_a_run_that_was_lost_comes_back_when_data_flows_again(tmp_path: Path, serve: Serve, page_of: Pages) -> None:
    """A host was silent and is shown as lost; with its next points it runs, without a reload and without a hole."""
    import time

    silent_s = time.time() - START_NS / NS_PER_S - 900
    builder = RunBuilder(tmp_path).attempt(start_s=silent_s - 100)
    builder.log({"loss": [5.0, 4.0]}, steps=[0, 1], times_s=[silent_s - 50, silent_s])
    page = page_of(f"{serve(tmp_path)}/run/{RUN_ID}")
    expect(page.locator("#pill")).to_have_text("lost")
    expect(page.locator("#overview .hero")).to_contain_text("no sign of life from elsewhere for 15 minutes")
    page.evaluate("window.sameDocument = true")

    now_s = time.time() - START_NS / NS_PER_S
    builder.log({"loss": [3.0, 2.0, 1.0]}, steps=[2, 3, 4], times_s=[silent_s + 300, silent_s + 600, now_s])
    expect(page.locator("#pill")).to_have_text("running")
    chart = card(page, "loss", "curves")
    wait_until(page, "(plot) => plot.data[0].y.length === 5", chart.locator(".plot").element_handle())
    (line,) = lines_of(chart)
    assert finite(line) == [(0, 5.0), (1, 4.0), (2, 3.0), (3, 2.0), (4, 1.0)]
    assert page.evaluate("window.sameDocument") is True
