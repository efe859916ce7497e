"""The index of runs: what its rows say, when they are made anew, and what its file survives."""

from __future__ import annotations

import json
import logging
import math
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from otel_train.cli.main import main
from otel_train.clock import NS_PER_S, iso
from otel_train.runlog.compress import compress_file
from otel_train.runlog.lock import WriterLock
from otel_train.view.index import RunIndex
from otel_train.view.index_file import INDEX_FILE, read_index, write_index
from otel_train.view.index_points import Points, over_attempts
from otel_train.view.index_row import IndexRow, Values
from otel_train.view.reading import read_run
from otel_train.view.run_table import table
from tests.runlog_lines import FakeProcesses
from tests.runs import START_NS, RunBuilder

NOW = START_NS + 3600 * NS_PER_S
A, B, C = (f"20260131-120000-{letter * 8}" for letter in "abc")
SUMMARY = {"val/loss": {"count": 10, "last": 0.5, "last_step": 9, "min": 0.25, "max": 2.0}}


class Clock:
    """A wall clock that is set by hand."""

    def __init__(self) -> None:
        self.ns = NOW

    def __call__(self) -> int:
        return self.ns


def opened(root: Path, clock: Clock | None = None, **options: Any) -> RunIndex:
    return RunIndex(root, clock or Clock(), FakeProcesses(host="here"), **options)


def refreshed(root: Path, clock: Clock | None = None, **options: Any) -> RunIndex:
    """A new index, as another process would have it, that has read everything."""
    index = opened(root, clock, **options)
    index.refresh(None)
    index.close()
    return index


def only(index: RunIndex) -> IndexRow:
    (row,) = index.rows
    return row


def ended(root: Path, run_id: str = A, **document: Any) -> RunBuilder:
    config = document.pop("config", {"lr": 0.1})
    return RunBuilder(root, run_id, summary=SUMMARY, **document).attempt(config=config).end()


def lost(root: Path, run_id: str = A, **document: Any) -> RunBuilder:
    """A run of another host that was killed an hour ago."""
    builder = RunBuilder(root, run_id, **document).attempt()
    return builder.log({"loss": [3.0, 1.0, math.nan, 2.0]}, steps=[0, 1, 2, 3], epochs=[0, 0, 1, 1])


def poison(path: Path, old: bytes, new: bytes) -> None:
    """Change a file in a way that only reading it shows: same size, same inode, same times."""
    found = path.stat()
    data = path.read_bytes()
    assert data.count(old) == 1
    assert len(old) == len(new)
    with path.open("r+b") as file:
        file.write(data.replace(old, new))
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))


def tree(folder: Path) -> list[tuple[str, int, int, bytes]]:
    return [
        (str(path), path.stat().st_mtime_ns, path.stat().st_ino, path.read_bytes() if path.is_file() else b"")
        for path in sorted(folder.rglob("*"))
    ]


# Rows ----------------------------------------------------------------------------------------------------------------


def test_a_row_says_what_the_description_says(tmp_path: Path) -> None:
    """Every field of a run that has ended, from run.json and, for the epoch, from the end of its points."""
    builder = RunBuilder(
        tmp_path,
        A,
        summary=SUMMARY | {"train/acc": {"last": "NaN", "last_step": 12}, "broken": 5},
        metrics={"acc": {"goal": "max"}},
        tags=["x", "y"],
        group="sweep",
        notes="try it",
    )
    builder.attempt(config={"lr": 0.1, "model": {"depth": 3, "sizes": [1, 2]}, "none": None}, world_size=8)
    builder.log({"acc": [0.5] * 3}, steps=[0, 6, 12], epochs=[2, 3, 4])
    builder.log({"loss": [0.5]}, split="val", steps=[9], epochs=[7], times_s=[9.0])
    builder.end("failed", reason="ValueError: no", exit_code=1)
    row = only(refreshed(tmp_path))
    assert row.metrics == {"val/loss": Values(0.5, 0.25, 2.0, "min"), "train/acc": Values(math.nan, None, None, "max")}
    assert row.metrics["val/loss"].best == 0.25
    assert row.config == {"lr": 0.1, "model.depth": 3, "model.sizes": "[1, 2]", "none": None}
    assert (row.run_id, row.run_name, row.project, row.group, row.tags) == (
        A,
        "small-net",
        "digits",
        "sweep",
        ["x", "y"],
    )
    assert (row.state, row.reason, row.notes, row.problem) == ("failed", "ValueError: no", "try it", "")
    assert (row.created_ns, row.duration_s) == (START_NS, 600.0)
    assert (row.step, row.epoch, row.host, row.attempt, row.ranks) == (12.0, 4.0, "elsewhere", 1, 8)
    assert row.path == str(tmp_path / A)
    assert not row.partial


def test_rows_are_bounded(tmp_path: Path) -> None:
    """300 keys and 500 metrics are all there; a long value is cut with a mark."""
    config = {f"key{number}": number for number in range(299)} | {"map": "x" * 1200}
    summary = {f"val/m{number}": {"last": float(number)} for number in range(500)}
    RunBuilder(tmp_path, A, summary=summary).attempt(config=config).end()
    row = only(refreshed(tmp_path))
    assert (len(row.config), len(row.metrics)) == (300, 500)
    assert row.metrics["val/m499"].last == 499.0
    assert row.config["map"] == "x" * 299 + "\u2026"
    assert only(refreshed(tmp_path)) == row


def test_a_killed_run_has_its_numbers_from_its_points(tmp_path: Path) -> None:
    """No summary and no end: last, extremes, best, step and epoch as reading the whole run gives them."""
    builder = lost(tmp_path)
    builder.log({"accuracy": [0.5, 0.75]}, split="val", steps=[1, 3], times_s=[2.5, 4.5])
    row = only(refreshed(tmp_path))
    assert row.metrics == {"train/loss": Values(2.0, 1.0, 3.0, "min"), "val/accuracy": Values(0.75, 0.5, 0.75, "")}
    assert (row.state, row.step, row.epoch, row.duration_s) == ("lost", 3.0, 1.0, 4.5)
    assert row.reason == "no sign of life from elsewhere for 60 minutes"
    run = read_run(tmp_path / A, NOW, records=False)
    for item, summary in run.metrics():
        values = row.metrics[f"{item.series.split}/{item.series.key}"]
        assert summary.last is not None
        assert summary.low is not None
        assert (values.last, values.low) == (summary.last.value, summary.low.value)


def test_a_value_that_is_not_finite_stays_equal_to_itself(tmp_path: Path) -> None:
    """A last value of NaN is shown as such, and is no change at each look."""
    RunBuilder(tmp_path, A).attempt().log({"loss": [1.0, math.inf, math.nan]}, steps=[0, 1, 2])
    index = opened(tmp_path)
    assert index.refresh(None)
    assert only(index).metrics["train/loss"].last is math.nan
    assert not index.refresh(None)
    assert only(refreshed(tmp_path)).metrics == {"train/loss": Values(math.nan, 1.0, 1.0, "min")}
    assert only(refreshed(tmp_path)).metrics == {"train/loss": Values(math.nan, 1.0, 1.0, "min")}


def test_several_attempts_count_as_on_the_page_of_the_run(tmp_path: Path) -> None:
    """Points that a later attempt replaced count no more, and those before it do, though the summary is of one."""
    builder = RunBuilder(tmp_path, A, summary={"train/loss": {"last": 5.0, "min": 4.0, "max": 5.0}})
    builder.attempt(1).log({"loss": [3.0, 1.0, 0.5]}, steps=[0, 1, 2])
    builder.attempt(2, start_s=60).log({"loss": [4.0, 5.0]}, steps=[2, 3], times_s=[61.0, 62.0], attempt=2).end()
    index = opened(tmp_path)
    index.refresh(0)
    assert only(index).metrics == {"train/loss": Values(5.0, 4.0, 5.0, "min")}
    assert only(index).partial
    index.refresh(None)
    assert only(index).metrics == {"train/loss": Values(5.0, 1.0, 5.0, "min")}
    assert (only(index).partial, only(index).step, only(index).attempt) == (False, 3.0, 2)
    found = over_attempts(tmp_path / A, NOW)
    assert found is not None
    assert found[0] == only(index).metrics


def test_a_run_that_goes_on_in_a_second_attempt_keeps_what_the_first_had(tmp_path: Path) -> None:
    """Its latest and best are of both attempts, without the points that the second has replaced so far."""
    builder = RunBuilder(tmp_path, A).attempt(1)
    builder.log({"loss": [3.0, 1.0, 0.5]}, steps=[0, 1, 2]).log({"acc": [0.5]}, steps=[1])
    lock = WriterLock(builder.attempt(2, start_s=60).folder.rank_folder(2, 0))
    assert lock.acquire()
    index = opened(tmp_path)
    index.refresh()
    assert only(index).state == "running"
    assert only(index).metrics["train/loss"] == Values(0.5, 0.5, 3.0, "min")
    builder.log({"loss": [4.0]}, steps=[2], times_s=[61.0], attempt=2)
    index.refresh()
    expected = {"train/loss": Values(4.0, 1.0, 4.0, "min"), "train/acc": Values(0.5, 0.5, 0.5, "")}
    assert only(index).metrics == expected
    index.close()
    assert only(refreshed(tmp_path)).metrics == expected
    builder.log({"loss": [0.25]}, steps=[3], times_s=[62.0], attempt=2)
    for one in (index, opened(tmp_path)):
        one.refresh()
        assert only(one).metrics["train/loss"] == Values(0.25, 0.25, 4.0, "min")
        assert only(one).step == 3.0
    found = over_attempts(tmp_path / A, NOW)
    assert found is not None
    assert only(index).metrics == found[0]
    lock.release()


def test_a_running_run_is_followed_by_its_new_lines(tmp_path: Path) -> None:
    """Latest and best grow with its points; each change is a new revision, and its duration alone is none."""
    builder, clock = RunBuilder(tmp_path, A).attempt(), Clock()
    lock = WriterLock(builder.folder.rank_folder(1, 0))
    assert lock.acquire()
    builder.log({"loss": [3.0, 2.0]}, steps=[0, 1], epochs=[0, 0])
    index = opened(tmp_path, clock)
    assert index.refresh()
    row = only(index)
    assert (row.state, row.metrics["train/loss"], row.step) == ("running", Values(2.0, 2.0, 3.0, "min"), 1.0)
    revision = index.revision
    clock.ns += 10 * NS_PER_S
    assert not index.refresh()
    assert (index.revision, only(index).duration_s) == (revision, 3610.0)
    builder.log({"loss": [1.0, 4.0]}, steps=[2, 3], epochs=[1, 1], times_s=[3.0, 4.0])
    with (tmp_path / A / "attempt-1/rank-0/metrics.000001.jsonl").open("ab") as file:
        file.write(b'{"resourceMetrics":[{"half a li')
    assert index.refresh()
    assert index.revision != revision
    row = only(index)
    assert (row.metrics["train/loss"], row.step, row.epoch) == (Values(4.0, 1.0, 4.0, "min"), 3.0, 1.0)
    lock.release()
    builder.folder.update(lambda document: document.update(summary=SUMMARY))
    builder.end()
    assert index.refresh()
    assert (only(index).state, only(index).metrics) == ("finished", {"val/loss": Values(0.5, 0.25, 2.0, "min")})


def test_reading_goes_on_where_the_budget_ended_it(tmp_path: Path) -> None:
    """The row is there at once, marked as partial; the numbers come with the next calls, and are the whole ones."""
    builder = RunBuilder(tmp_path, A).attempt()
    for step in range(50):
        builder.log({"loss": [100.0 - step]}, steps=[step], times_s=[step + 1.0])
    index = opened(tmp_path)
    index.refresh(0)
    assert (only(index).partial, index.pending, only(index).metrics) == (True, 1, {})
    turns = 0
    while index.pending:
        index.refresh(1e-9)
        turns += 1
        assert turns < 100
        # With no time at all nothing is read.
        if turns == 1:
            assert only(index).metrics == {}
        index.refresh(1e-4)
    assert only(index).metrics == {"train/loss": Values(51.0, 51.0, 100.0, "min")}
    assert only(index).step == 49.0


def test_points_go_on_after_each_line(tmp_path: Path) -> None:
    """A deadline that is over gives one line at a time, in this process or, by its state, in another."""
    builder = RunBuilder(tmp_path, A).attempt()
    for step in range(5):
        builder.log({"loss": [float(step)]}, steps=[step], times_s=[step + 1.0])
    folder = tmp_path / A / "attempt-1" / "rank-0"
    points = Points.begun(folder, 1 << 20)
    seen = []
    while not points.advance(0):
        seen.append(points.values({})["train/loss"].last)
        state = json.loads(json.dumps(points.state()))
        other = Points.of_state(folder, state)
        assert other is not None
        assert other.advance(None)
        assert other.values({}) == {"train/loss": Values(4.0, 0.0, 4.0, "min")}
    assert seen == [0.0, 1.0, 2.0, 3.0, 4.0]
    state["inode"] += 1
    assert Points.of_state(folder, state) is None


@pytest.mark.parametrize("seed", range(6))
def test_sums_are_those_of_the_whole_run(tmp_path: Path, seed: int) -> None:
    """Whatever is logged, read in slices while segments are closed and gzipped: as when it is all read at once."""
    random = Random(seed)
    builder = RunBuilder(tmp_path, A, metrics={"acc": {"goal": "max"}}).attempt()
    for place in range(25):
        count, first = random.randint(1, 5), random.randrange(100)
        odd = [math.nan, math.inf, -math.inf]
        values = {
            key: [random.choice(odd) if random.random() < 0.2 else random.gauss(0, 9) for _ in range(count)]
            for key in random.sample(["loss", "acc", "a/b", "weird key"], 2)
        }
        builder.log(
            values,
            split=random.choice(["train", "val", "", "ood"]),
            steps=range(first, first + count),
            epochs=[place // 10] * count if random.random() < 0.8 else None,
            times_s=[10 * place + number + 1.0 for number in range(count)],
        )
    folder = tmp_path / A / "attempt-1" / "rank-0"
    segment = folder / "metrics.000001.jsonl"
    lines = segment.read_bytes().splitlines(keepends=True)
    segment.unlink()
    points, number = Points.begun(folder, 1 << 30), 1
    for line in lines:
        with (folder / f"metrics.{number:06}.jsonl").open("ab") as file:
            file.write(line)
        if random.random() < 0.5:
            points.advance(random.choice([0, None]))
        if random.random() < 0.2:
            number += 1
            (folder / f"metrics.{number:06}.jsonl").touch()
            compress_file(folder / f"metrics.{number - 1:06}.jsonl")
    while not points.advance(0):
        pass
    assert number > 1
    run = read_run(tmp_path / A, NOW, records=False)
    expected = {}
    for item, summary in run.metrics():
        assert summary.last is not None
        low, high = (None if at is None else at.value for at in (summary.low, summary.high))
        last = summary.last.value if summary.last.value == summary.last.value else math.nan
        key = f"{item.series.split}/{item.series.key}" if item.series.split else item.series.key
        expected[key] = Values(last, low, high, summary.goal)
    assert points.values(run.info["metrics"]) == expected
    assert (points.newest("dl.step"), points.newest("dl.epoch")) == (run.last_step(), run.last_epoch())


def test_of_a_log_that_is_too_long_only_the_end_is_read(tmp_path: Path) -> None:
    """The last value is right, and extremes that are not known are not made up; what comes later is followed."""
    builder = RunBuilder(tmp_path, A).attempt()
    for step in range(3000):
        builder.log({"loss": [float(step)]}, steps=[step], times_s=[step + 1.0])
    folder = tmp_path / A / "attempt-1" / "rank-0"
    size = (folder / "metrics.000001.jsonl").stat().st_size
    points = Points.begun(folder, size - 1)
    assert points.place.offset > size // 2
    assert points.advance(None)
    assert points.values({}) == {"train/loss": Values(2999.0, None, None, "min")}
    builder.log({"loss": [7.0]}, steps=[3000], times_s=[3001.0])
    points.advance(None)
    assert points.values({})["train/loss"].last == 7.0
    whole = Points.begun(folder, 2 * size)
    whole.advance(None)
    assert whole.values({}) == {"train/loss": Values(7.0, 0.0, 2999.0, "min")}


# What holds ----------------------------------------------------------------------------------------------------------


def test_an_ended_run_is_read_once(tmp_path: Path) -> None:
    """By this process and the next: a change that the file's size and times do not show is not seen."""
    ended(tmp_path)
    index = refreshed(tmp_path)
    poison(tmp_path / A / "run.json", b'"project": "digits"', b'"project": "other."')
    index.refresh(None)
    assert only(index).project == "digits"
    assert only(refreshed(tmp_path)).project == "digits"
    assert only(refreshed(tmp_path, keep=False)).project == "other."
    os.utime(tmp_path / A / "run.json")
    assert only(refreshed(tmp_path)).project == "other."
    index.refresh(None)
    assert only(index).project == "other."


def test_a_lost_run_is_read_once_too(tmp_path: Path) -> None:
    """Its points as well, by this process and the next, until its files change."""
    builder, clock = lost(tmp_path), Clock()
    index = refreshed(tmp_path, clock)
    log = tmp_path / A / "attempt-1" / "rank-0" / "metrics.000001.jsonl"
    poison(log, b'"asDouble":3.0', b'"asDouble":9.0')
    index.refresh(None)
    assert only(index).metrics["train/loss"].high == 3.0
    assert only(refreshed(tmp_path, clock)).metrics["train/loss"].high == 3.0
    builder.log({"loss": [8.0]}, steps=[4], times_s=[3599.0])
    index.refresh(None)
    assert only(index).state == "running"
    assert only(index).metrics["train/loss"].last == 8.0
    clock.ns += 120 * NS_PER_S
    index.refresh(None)
    assert (only(index).state, only(index).metrics["train/loss"].last) == ("lost", 8.0)


def test_the_text_of_a_silence_grows_with_it(tmp_path: Path) -> None:
    """A lost run's reason is not the one of its first minute for ever, and its points are not read again for it."""
    lost(tmp_path)
    clock = Clock()
    clock.ns = START_NS + 70 * NS_PER_S
    index = refreshed(tmp_path, clock)
    assert only(index).reason.endswith("for 66 seconds")
    poison(tmp_path / A / "attempt-1/rank-0/metrics.000001.jsonl", b'"asDouble":3.0', b'"asDouble":9.0')
    clock.ns = START_NS + 80 * NS_PER_S
    assert not index.refresh(None)
    clock.ns = START_NS + 3 * 86_400 * NS_PER_S
    assert index.refresh(None)
    assert only(index).reason.endswith("for 3 days")
    assert only(index).metrics["train/loss"].high == 3.0


def test_a_clock_that_was_set_back_is_no_harm(tmp_path: Path) -> None:
    """A run that was lost by a clock that ran ahead is looked at anew."""
    lost(tmp_path)
    clock = Clock()
    index = refreshed(tmp_path, clock)
    assert only(index).state == "lost"
    clock.ns = START_NS + 30 * NS_PER_S
    assert index.refresh(None)
    assert only(index).state == "running"
    assert only(refreshed(tmp_path, clock)).state == "running"
    assert only(index).duration_s == 30.0


def test_a_run_that_resumes_after_its_end(tmp_path: Path) -> None:
    """The folder of a newer attempt is enough, and so is a new description; then it ends again."""
    builder, clock = ended(tmp_path), Clock()
    index = refreshed(tmp_path, clock)
    assert only(index).state == "finished"
    folder = builder.folder.rank_folder(builder.folder.create_attempt(), 0)
    lock = WriterLock(folder)
    assert lock.acquire()
    assert index.refresh(None)
    assert (only(index).state, only(index).attempt) == ("running", 2)
    assert only(refreshed(tmp_path, clock)).state == "running"
    builder.attempt(2, start_s=3000, config={"lr": 0.5})
    index.refresh(None)
    assert only(index).config == {"lr": 0.5}
    lock.release()
    builder.log({"loss": [1.5]}, steps=[0], attempt=2).end("failed", at_s=3100)
    index.refresh(None)
    assert (only(index).state, only(index).attempt, only(index).duration_s) == ("failed", 2, 3100.0)
    assert only(index).metrics["train/loss"].last == 1.5


def test_runs_come_go_and_are_renamed_and_copied(tmp_path: Path) -> None:
    """Each refresh shows the folders that are there, under the names that they have; a copy with its times is new."""
    ended(tmp_path, A)
    index = refreshed(tmp_path)
    ended(tmp_path, B, created=iso(START_NS + NS_PER_S))
    assert index.refresh(None)
    assert [row.run_id for row in index.rows] == [B, A]
    (tmp_path / A).rename(tmp_path / C)
    assert index.refresh(None)
    assert [row.run_id for row in index.rows] == [B, C]
    # One takes the place of the other: the same names, other runs.
    (tmp_path / B).rename(tmp_path / "x")
    (tmp_path / C).rename(tmp_path / B)
    (tmp_path / "x").rename(tmp_path / C)
    index.refresh(None)
    assert [(row.run_id, row.created_ns) for row in index.rows] == [(C, START_NS + NS_PER_S), (B, START_NS)]
    shutil.rmtree(tmp_path / C)
    shutil.copytree(tmp_path / B, tmp_path / A)
    (tmp_path / "notes").mkdir()
    (tmp_path / "file").write_text("x")
    assert index.refresh(None)
    assert [row.run_id for row in index.rows] == [B, A]
    assert index.row(A) is not None
    assert index.row(C) is None
    shutil.rmtree(tmp_path / A)
    shutil.rmtree(tmp_path / B)
    assert index.refresh(None)
    assert index.rows == []
    assert refreshed(tmp_path).rows == []


def test_a_damaged_description_is_a_row_with_a_problem(tmp_path: Path) -> None:
    """What the lines tell is there all the same; once it is mended, so is the row."""
    builder = lost(tmp_path)
    (tmp_path / A / "run.json").write_bytes(b'{"format": 1, "run')
    index = refreshed(tmp_path)
    row = only(index)
    assert "run.json is damaged" in row.problem
    assert (row.state, row.run_name, row.metrics["train/loss"]) == ("lost", "", Values(2.0, 1.0, 3.0, "min"))
    assert only(refreshed(tmp_path)) == row
    builder.end()
    index.refresh(None)
    assert (only(index).problem, only(index).state) == ("", "finished")


@pytest.mark.parametrize(
    "description",
    [
        "[]",
        "null",
        '{"format": 1, "run_id": "x"}',
        '{"format": 1, "run_id": 5, "attempts": "x", "tags": "no", "summary": [], "created": 7, "run_name": {}}',
        '{"format": 1, "run_id": "x", "attempts": [{"attempt": "1", "config": 5, "host": [], "started": "x"}, 7]}',
        '{"format": 1, "run_id": "x", "attempts": [{"attempt": 1, "status": "finished", "ended": "never"}],'
        ' "summary": {"a": {"last": "x", "min": 1e999, "max": [], "last_step": NaN}, "b": 1}, "metrics": {"a": 1}}',
        '{"format": 1, "run_id": "x", "attempts": [{"attempt": 1, "config": '
        + '{"a":' * 5000
        + "1"
        + "}" * 5000
        + "}]}",
        '{"format": 1, "run_id": "x", "attempts": [{"attempt": 1, "config": ' + '{"a":' * 900 + "1" + "}" * 900 + "}]}",
        '{"format": 1, "run_id": "x", "created": "2026-01-01T00:00:00Z", "x": ' + "9" * 5000 + "}",
    ],
)
def test_nothing_in_a_description_can_break_the_index(tmp_path: Path, description: str) -> None:
    """Other tools write a run.json too, and hands edit it: there is a row, and the other runs are as ever."""
    ended(tmp_path, B)
    (tmp_path / A / "attempt-1" / "rank-0").mkdir(parents=True)
    (tmp_path / A / "run.json").write_text(description)
    index = refreshed(tmp_path)
    assert sorted(row.run_id for row in index.rows) == [A, B]
    assert sorted(row.run_id for row in refreshed(tmp_path).rows) == [A, B]
    good = index.row(B)
    assert good is not None
    assert good.metrics["val/loss"].last == 0.5


ODD = [None, True, 0, -1, 1e308, math.nan, 10**400, "", "x", "NaN", "2026-01-01T00:00:00Z", [], [[None]], {}, {"a": 5}]
ODD += ["9999-12-31T23:59:59Z", "0001-01-01T00:00:00+14:00", "\ud800", "\x00\x1b[31m", {"attempt": 7}]


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where anything stands in a document."""
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield (*path, key)
        yield from places(value[key], (*path, key))


def test_odd_values_anywhere_in_a_description(tmp_path: Path) -> None:
    """Whatever stands in whatever place: the run has a row, a table and a record, and its points are read."""
    builder = RunBuilder(tmp_path, A, summary=SUMMARY, tags=["x"]).attempt(
        1, config={"lr": 0.1, "m": {"d": [1, {"x": 2}]}}
    )
    builder.log({"loss": [1.0, 2.0]}, steps=[0, 1]).attempt(2, config={"lr": 0.2}, start_s=60)
    builder.log({"loss": [1.0, 2.0]}, steps=[1, 2], attempt=2).end()
    good, random = (tmp_path / A / "run.json").read_text(), Random(1)
    for turn in range(60):
        document = json.loads(good)
        for _ in range(random.randint(1, 3)):
            *path, last = random.choice(list(places(document)))
            holder = document
            for key in path:
                holder = holder[key]
            holder[last] = json.loads(json.dumps(random.choice(ODD)))
        (tmp_path / A / "run.json").write_text(json.dumps(document))
        row = only(refreshed(tmp_path))
        assert not row.problem or "run.json" in row.problem
        assert only(refreshed(tmp_path)) == row
        index = opened(tmp_path)
        index.refresh(None)
        assert table(index, sort="tags,-name,started,duration,state")["matched"] == 1
        if turn % 6 == 0:
            assert main(["runs", "--dir", str(tmp_path), "--json"]) in (0, 3)
            assert main(["runs", "--dir", str(tmp_path)]) in (0, 3)


def test_a_run_that_cannot_be_looked_at_hides_no_other(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A fault of ours with one run is a problem in its row, and is told."""

    class Broken(FakeProcesses):
        def host(self) -> str:
            raise LookupError("no name")

    ended(tmp_path, A)
    RunBuilder(tmp_path, B).attempt()
    index = RunIndex(tmp_path, Clock(), Broken())
    assert index.refresh(None)
    assert sorted((row.run_id, row.state, row.problem.partition(": ")[2]) for row in index.rows) == [
        (A, "finished", ""),
        (B, "lost", "LookupError: no name"),
    ]
    assert len(caplog.messages) == 1
    assert not index.refresh(None)
    os.utime(tmp_path / B / "run.json")
    index.refresh(None)
    assert len(caplog.messages) == 1
    index.close()
    # Another process, of another version say, tries it again.
    assert {row.run_id: row.problem for row in refreshed(tmp_path).rows} == {A: "", B: ""}


def test_points_that_cannot_be_read_hide_no_other_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A fault of ours there is a problem in that row too, told once."""

    def broken(folder: Path) -> None:
        raise LookupError(folder.name)

    ended(tmp_path, A).log({"loss": [1.0]}, steps=[0])
    lost(tmp_path, B)
    monkeypatch.setattr("otel_train.view.index_entry.last_epoch", broken)
    index = opened(tmp_path)
    index.refresh(None)
    assert not index.refresh(None)
    assert {row.run_id: row.problem for row in index.rows} == {
        A: "its points cannot be read: LookupError: rank-0",
        B: "",
    }
    assert [row.metrics != {} for row in index.rows] == [True, True]
    assert len(caplog.messages) == 1


def test_attempts_with_long_logs_are_told_by_the_summary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Joining them would take the memory of a whole run: then the newest attempt's numbers stand, else its points'."""
    monkeypatch.setattr("otel_train.view.index_points.WHOLE_ATTEMPTS_BYTES", 1)
    for run_id, summary in ((A, {"train/loss": {"last": 5.0, "min": 4.0, "max": 5.0}}), (B, {})):
        builder = RunBuilder(tmp_path, run_id, summary=summary)
        builder.attempt(1).log({"loss": [3.0, 1.0, 0.5]}, steps=[0, 1, 2])
        builder.attempt(2, start_s=60).log({"loss": [4.0, 5.0]}, steps=[2, 3], times_s=[61.0, 62.0], attempt=2).end()
    index = refreshed(tmp_path)
    assert [row.metrics for row in index.rows] == [{"train/loss": Values(5.0, 4.0, 5.0, "min")}] * 2
    assert index.pending == 0


# The file ------------------------------------------------------------------------------------------------------------


def test_runs_are_never_written_to(tmp_path: Path) -> None:
    """Neither content nor time of anything in a run's folder changes; the index is one file beside them."""
    ended(tmp_path, A)
    lost(tmp_path, B)
    before = tree(tmp_path)
    refreshed(tmp_path)
    refreshed(tmp_path)
    after = [entry for entry in tree(tmp_path) if not entry[0].endswith(INDEX_FILE)]
    assert after == before
    assert [name for name in os.listdir(tmp_path) if name.startswith(".")] == [INDEX_FILE]
    # A run's own folder is no root, and gets no file even if it is taken for one.
    assert refreshed(tmp_path / A).rows == []
    assert not (tmp_path / A / INDEX_FILE).exists()
    # Nor does a folder without runs, or one that is not there.
    (tmp_path / "empty").mkdir()
    refreshed(tmp_path / "empty")
    refreshed(tmp_path / "nowhere")
    assert list((tmp_path / "empty").iterdir()) == []
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("cut_to", [0, 5, 24, 200, -1, -200])
def test_a_cut_file_is_as_good_as_none(tmp_path: Path, cut_to: int) -> None:
    """Lines that are whole are used, the rest is made anew, and the file is whole again afterwards."""
    for number in range(5):
        ended(tmp_path, f"20260131-12000{number}-aaaaaaaa", config={"lr": number})
    rows = refreshed(tmp_path).rows
    path = tmp_path / INDEX_FILE
    whole = path.read_bytes()
    path.write_bytes(whole[:cut_to])
    assert refreshed(tmp_path).rows == rows
    assert len(list(read_index(tmp_path))) == 5


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x00" * 5000,
        b"not an index\n",
        b'{"otel-train index":0}\n{"sum":"00000000","run":{}}\n',
        b'{"otel-train index":999}\n',
        b'[{"a": 1}]',
    ],
)
def test_a_foreign_file_is_replaced(tmp_path: Path, content: bytes) -> None:
    """Of another version, of another program, or of zeros as after a power cut."""
    ended(tmp_path)
    (tmp_path / INDEX_FILE).write_bytes(content)
    row = only(refreshed(tmp_path))
    assert row.metrics == {"val/loss": Values(0.5, 0.25, 2.0, "min")}
    assert [record["name"] for record in read_index(tmp_path)] == [A]


def test_every_byte_of_the_file_may_be_wrong(tmp_path: Path) -> None:
    """With any one byte changed the rows are the same."""
    ended(tmp_path, A)
    lost(tmp_path, B)
    rows = refreshed(tmp_path).rows
    path = tmp_path / INDEX_FILE
    whole = path.read_bytes()
    for place in range(0, len(whole), 37):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        index = opened(tmp_path, keep=True)
        index.refresh(None)
        assert index.rows == rows, place


def test_records_of_the_right_form_and_the_wrong_content(tmp_path: Path) -> None:
    """A file that somebody made up costs nothing but its lines, and leads nowhere outside."""
    ended(tmp_path)
    index = refreshed(tmp_path)
    (record,) = read_index(tmp_path)
    wrong: list[Any] = [{}, {"name": A}, {**record, "row": 5}, {**record, "sign": 7}, {**record, "name": ["x"]}]
    wrong += [{**record, "rank": "../../etc"}, {**record, "name": "../outside"}, {**record, "points": {}}]
    wrong += [{**record, "row": {**record["row"], "metrics": {"a": 1}}}]
    for made_up in wrong:
        write_index(tmp_path, [made_up])
        assert refreshed(tmp_path).rows == index.rows


def test_a_copied_root_does_not_trust_the_copied_file(tmp_path: Path) -> None:
    """Times and sizes are the same there, yet each run is looked at once."""
    ended(tmp_path / "one")
    refreshed(tmp_path / "one")
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    poison(tmp_path / "two" / A / "run.json", b'"project": "digits"', b'"project": "other."')
    row = only(refreshed(tmp_path / "two"))
    assert (row.project, row.path) == ("other.", str(tmp_path / "two" / A))


def test_a_root_that_cannot_be_written_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Here a folder stands where the file would be: everything works, in memory."""
    ended(tmp_path)
    (tmp_path / INDEX_FILE).mkdir()
    (tmp_path / INDEX_FILE / "x").touch()
    index = opened(tmp_path)
    with caplog.at_level(logging.WARNING, "otel_train"):
        assert index.refresh(None)
        ended(tmp_path, B)
        assert index.refresh(None)
        index.close()
    assert len(index.rows) == 2
    assert index.notice.startswith(f"cannot keep the index of the runs in {tmp_path / INDEX_FILE}: ")
    assert caplog.messages == [index.notice]
    assert sorted(os.listdir(tmp_path)) == sorted([A, B, INDEX_FILE])


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Path]:
    """A root with a run on a file system that was mounted for reading, where this user may mount one."""
    place = tmp_path / "read-only"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(place)]
    try:
        subprocess.run(mount, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no file system can be mounted here")
    ended(place)
    lost(place, B)
    subprocess.run(["mount", "-o", "remount,ro", str(place)], check=True)
    yield place
    subprocess.run(["umount", "-l", str(place)], check=False)


def test_a_read_only_root_works(read_only: Path, caplog: pytest.LogCaptureFixture) -> None:
    """An archive: all rows, one warning, no file."""
    index = refreshed(read_only)
    assert [(row.run_id, row.state) for row in index.rows] == [(B, "lost"), (A, "finished")]
    assert index.rows[0].metrics["train/loss"] == Values(2.0, 1.0, 3.0, "min")
    assert len(caplog.messages) == 1
    assert "Read-only file system" in index.notice


def test_the_file_is_not_written_without_need(tmp_path: Path) -> None:
    """A second process that finds nothing new leaves it alone, also beside a running run."""
    ended(tmp_path, A)
    builder = RunBuilder(tmp_path, B).attempt()
    lock = WriterLock(builder.folder.rank_folder(1, 0))
    assert lock.acquire()
    builder.log({"loss": [1.0]}, steps=[0])
    refreshed(tmp_path)
    before = (tmp_path / INDEX_FILE).stat()
    builder.log({"loss": [0.5]}, steps=[1], times_s=[2.0])
    assert {row.state for row in refreshed(tmp_path).rows} == {"running", "finished"}
    assert (tmp_path / INDEX_FILE).stat() == before
    lock.release()


def test_what_a_killed_writer_left_is_removed_after_an_hour(tmp_path: Path) -> None:
    """A younger one may be of a process that is just writing."""
    ended(tmp_path)
    old, young = tmp_path / f"{INDEX_FILE}.1.2.tmp", tmp_path / f"{INDEX_FILE}.3.4.tmp"
    for path, age_s in ((old, 4000), (young, 60)):
        path.write_text("x")
        os.utime(path, ns=(NOW - age_s * NS_PER_S,) * 2)
    refreshed(tmp_path)
    assert (old.exists(), young.exists()) == (False, True)


def test_no_link_is_written_through(tmp_path: Path) -> None:
    """In a folder that others may write, a link under the name of the file, or of its beginning, harms nobody."""
    ended(tmp_path / "runs")
    victim = tmp_path / "victim"
    victim.write_text("mine")
    partial = f"{INDEX_FILE}.{os.getpid()}.{threading.get_ident()}.tmp"
    for name in (INDEX_FILE, partial):
        (tmp_path / "runs" / name).symlink_to(victim)
    refreshed(tmp_path / "runs")
    assert victim.read_text() == "mine"
    assert not (tmp_path / "runs" / INDEX_FILE).is_symlink()
    assert len(list(read_index(tmp_path / "runs"))) == 1


def test_a_pipe_in_the_place_of_the_file_is_not_waited_for(tmp_path: Path) -> None:
    """Opening it would stand still for ever."""
    ended(tmp_path)
    os.mkfifo(tmp_path / INDEX_FILE)
    assert only(refreshed(tmp_path)).state == "finished"


def test_many_keep_the_same_file(tmp_path: Path) -> None:
    """Threads with an index each, and runs that come and go meanwhile: nobody fails, and all agree at the end."""
    for number in range(20):
        ended(tmp_path, f"20260131-1200{number:02}-aaaaaaaa")
    faults: list[BaseException] = []

    def keep() -> None:
        try:
            for _ in range(5):
                refreshed(tmp_path)
        except BaseException as fault:  # noqa: BLE001 - the test fails with it below
            faults.append(fault)

    threads = [threading.Thread(target=keep) for _ in range(4)]
    for thread in threads:
        thread.start()
    for number in range(20):
        shutil.rmtree(tmp_path / f"20260131-1200{number:02}-aaaaaaaa")
        ended(tmp_path, f"20260131-1300{number:02}-bbbbbbbb")
        (tmp_path / INDEX_FILE).unlink(missing_ok=True)
    for thread in threads:
        thread.join()
    assert faults == []
    rows = refreshed(tmp_path).rows
    assert [row.run_id[9:13] for row in rows] == ["1300"] * 20
    assert {record["name"] for record in read_index(tmp_path)} == {row.run_id for row in rows}
    assert [name for name in os.listdir(tmp_path) if name.endswith(".tmp")] == []


def test_one_index_serves_many_threads(tmp_path: Path) -> None:
    """Refreshing and reading at once: rows are always whole."""
    for number in range(10):
        lost(tmp_path, f"20260131-1200{number:02}-aaaaaaaa")
    index = opened(tmp_path)
    index.refresh(None)
    faults: list[BaseException] = []

    def use() -> None:
        try:
            for _ in range(20):
                index.refresh(0.001)
                assert len(index.rows) == 10
                assert index.columns.metrics["train/loss"] == 10
        except BaseException as fault:  # noqa: BLE001 - the test fails with it below
            faults.append(fault)

    threads = [threading.Thread(target=use) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []
    assert index.pending == 0


def test_what_is_known_of_the_columns_is_kept_while_only_values_change(tmp_path: Path) -> None:
    """A running run gives new values each second, and seldom a new metric; then the columns are worked out again."""
    builder = RunBuilder(tmp_path, A).attempt()
    lock = WriterLock(builder.folder.rank_folder(1, 0))
    assert lock.acquire()
    builder.log({"loss": [1.0]}, steps=[0])
    index = opened(tmp_path)
    index.refresh()
    columns = index.columns
    assert columns.metrics == {"train/loss": 1}
    builder.log({"loss": [0.5]}, steps=[1], times_s=[2.0])
    assert index.refresh()
    assert index.columns is columns
    builder.log({"acc": [0.5]}, split="val", steps=[1], times_s=[2.0])
    assert index.refresh()
    assert index.columns.metrics == {"train/loss": 1, "val/acc": 1}
    lock.release()


def test_revisions_of_two_processes_differ(tmp_path: Path) -> None:
    """A page that meets a restarted server asks for everything again."""
    ended(tmp_path)
    assert refreshed(tmp_path).revision != refreshed(tmp_path).revision
