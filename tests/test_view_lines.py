"""Single lines of the page: finer within a range, and as CSV."""

from __future__ import annotations

import csv
import io
import math
from pathlib import Path

import pytest

from otel_train.record.entries import Sample
from otel_train.view.lines import csv_rows, finer, text_cell
from otel_train.view.reading import read_run
from otel_train.view.report import build
from otel_train.view.run_data import RunData
from otel_train.view.series import series_id
from tests.runs import NS_PER_S, START_NS, RunBuilder

NOW_NS = START_NS + 3600 * NS_PER_S


def read(builder: RunBuilder) -> RunData:
    return read_run(builder.path, NOW_NS)


def line_id(run: RunData, name: str, split: str = "train") -> str:
    return next(
        series_id(item.series) for item in run.series() if (item.series.name, item.series.split) == (name, split)
    )


def long_run(root: Path) -> RunData:
    """5,000 steps of a loss that is its own step, but for a NaN at 2,500 and a high point at 2,600."""
    values = [float(step) for step in range(5_000)]
    values[2_500], values[2_600] = math.nan, 1e6
    return read(
        RunBuilder(root).attempt().log({"loss": values}, steps=range(5_000), epochs=[s // 100 for s in range(5_000)])
    )


@pytest.mark.parametrize(("axis", "low", "high"), [("step", 2_400, 2_700), ("time", 2_401, 2_701), ("epoch", 24, 27.0)])
def test_a_short_range_has_every_point(tmp_path: Path, axis: str, low: float, high: float) -> None:
    """By step, by seconds (a point each, from the first second on) and by epoch (of a hundred steps)."""
    run = long_run(tmp_path)
    made = finer(run, line_id(run, "train.loss"), axis, low, high)
    assert made is not None
    steps = made["x"]["step"]
    assert steps == list(range(2_400, 2_701))
    assert made["y"] == [None if step == 2_500 else 1e6 if step == 2_600 else float(step) for step in steps]
    assert made["marks"] == [[100, 1, 0, 0]]
    assert "low" not in made


def test_a_long_range_is_reduced_with_its_extremes(tmp_path: Path) -> None:
    """More than 2,000 points: means with their range, which has the high point."""
    run = long_run(tmp_path)
    made = finer(run, line_id(run, "train.loss"), "step", 1_000, 4_000)
    assert made is not None
    assert made["points"] == 3_001
    assert max(value for value in made["high"] if value is not None) == 1e6
    assert (made["x"]["step"][0], made["x"]["step"][-1]) == (1_000, 4_000)
    assert len(made["y"]) <= 1_010


def test_a_line_is_given_as_it_is_drawn(tmp_path: Path) -> None:
    """A counter as a rate, a share as per cent, what a newer attempt replaced under its own id."""
    builder = RunBuilder(tmp_path).attempt().attempt(2, start_s=50)
    for second in (1, 2, 4):
        builder.samples(second, [Sample("system.network.io", second * 100), Sample("system.cpu.utilization", 0.5)])
    builder.log({"loss": [5.0, 4.0]}, steps=[0, 1]).log({"loss": [3.0]}, steps=[1], times_s=[60], attempt=2)
    run = read(builder)
    for chart in [chart for charts in build(run)["charts"].values() for chart in charts]:
        for drawn in chart["lines"]:
            made = finer(run, drawn["id"], "time", None, None)
            assert made is not None
            assert (made["x"], made["y"]) == (drawn["x"], drawn["y"])
    rates = finer(run, line_id(run, "system.network.io", ""), "time", None, None)
    assert rates is not None
    assert rates["y"] == [100.0, 100.0]
    shares = finer(run, line_id(run, "system.cpu.utilization", ""), "time", 1.5, None)
    assert shares is not None
    assert shares["y"] == [50.0, 50.0]
    replaced = finer(run, line_id(run, "train.loss") + "-1", "step", None, None)
    assert replaced is not None
    assert (replaced["x"]["step"], replaced["y"]) == ([1], [4.0])


def test_an_unknown_line_or_an_empty_range_is_no_fault(tmp_path: Path) -> None:
    """None for the one, no points for the other."""
    run = long_run(tmp_path)
    assert finer(run, "000000000000", "step", 0, 1) is None
    made = finer(run, line_id(run, "train.loss"), "step", 9_000, 9_001)
    assert made is not None
    assert (made["y"], made["points"]) == ([], 0)


def test_csv_has_every_point_of_the_lines(tmp_path: Path) -> None:
    """Values and places that read back the same, non-finite ones by name, a gap as nothing."""
    builder = RunBuilder(tmp_path).attempt()
    builder.log({"loss": [0.1 + 0.2, math.nan, -math.inf]}, steps=[0, 1, 2], epochs=[0, 0, 1])
    builder.log({"=1+1": [7.0]}, split="", times_s=[9.5])
    run = read(builder)
    ids = [line_id(run, "train.loss"), "unknown", line_id(run, "train.=1+1", "")]
    text = "".join(csv_rows(run, ids))
    assert text.endswith("\r\n")
    rows = list(csv.reader(io.StringIO(text, newline="")))
    assert rows == [
        ["series", "step", "epoch", "time", "elapsed_s", "value"],
        ["loss · train", "0", "0", "2026-01-31T12:00:01.000000Z", "1", "0.30000000000000004"],
        ["loss · train", "1", "0", "2026-01-31T12:00:02.000000Z", "2", "NaN"],
        ["loss · train", "2", "1", "2026-01-31T12:00:03.000000Z", "3", "-Infinity"],
        ["'=1+1", "", "", "2026-01-31T12:00:09.500000Z", "9.5", "7"],
    ]


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ("loss", "loss"),
        ("a,b", '"a,b"'),
        ('say "x"', '"say ""x"""'),
        ("two\nlines", '"two\nlines"'),
        ("=1+1", "'=1+1"),
        ("+x,y", '"\'+x,y"'),
        ("-x", "'-x"),
        ("@x", "'@x"),
        ("\tx", "'\tx"),
    ],
)
def test_a_cell_is_quoted_and_never_a_formula(text: str, cell: str) -> None:
    """RFC 4180; an apostrophe before what a spreadsheet would compute."""
    assert text_cell(text) == cell
