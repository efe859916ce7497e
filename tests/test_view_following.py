"""A run that is followed, look by look: what each look says is right, and the same as if all were read at once."""

from __future__ import annotations

import math
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from otel_train.clock import NS_PER_S
from otel_train.errors import RunFolderError
from otel_train.record.entries import Column, Sample
from otel_train.runlog.pulse import Pulse, PulseFile
from otel_train.view.follow_picture import Picture
from otel_train.view.following import Following
from otel_train.view.live import LiveRun
from tests.runs import START_NS, RunBuilder


class Watched:
    """A run that is followed at made-up times, in seconds from its start."""

    def __init__(self, builder: RunBuilder, at_s: float = 0.0) -> None:
        self.at_s = at_s
        self.following = Following(LiveRun(builder.path, self.now_ns), self.now_ns)

    def now_ns(self) -> int:
        return START_NS + round(self.at_s * NS_PER_S)

    def look(self, at_s: float) -> Picture:
        self.at_s = at_s
        picture = self.following.look()
        assert picture is not None
        return picture


def rows(picture: Picture) -> dict[str, tuple[Any, ...]]:
    return {one.name: (one.last, one.last_step, one.best, one.best_step, one.nonfinite) for one in picture.metrics}


def test_each_look_has_the_last_and_the_best_value(tmp_path: Path) -> None:
    """Of losses that fall and rise, after each part that was written: value and step, counted by hand."""
    builder = RunBuilder(tmp_path).attempt()
    watched = Watched(builder)
    losses = [abs(step - 30) + 0.5 for step in range(60)]
    for start in range(0, 60, 20):
        part = range(start, start + 20)
        times_s = [step * 0.1 for step in part]
        builder.log({"loss": [losses[step] for step in part]}, steps=part, epochs=[start // 20] * 20, times_s=times_s)
        builder.log({"accuracy": [start / 100]}, split="val", steps=[start], times_s=[start * 0.1])
        picture = watched.look(part[-1] * 0.1)
        seen = losses[: part[-1] + 1]
        best = min(range(len(seen)), key=seen.__getitem__)
        assert rows(picture) == {
            "train/loss": (seen[-1], part[-1], seen[best], best, 0),
            "val/accuracy": (start / 100, start, None, None, 0),
        }
        assert (picture.step, picture.epoch, picture.state) == (part[-1], start // 20, "running")
    assert picture.points == 63
    again = Watched(builder).look(6)
    assert rows(again) == rows(picture)


def test_points_and_ends_of_steps_may_take_turns(tmp_path: Path) -> None:
    """The steps of points and of step times are one series, in which times go back and forth: each finds its own."""
    builder = RunBuilder(tmp_path).attempt()
    watched = Watched(builder)
    for start in (0, 10):
        part = range(start, start + 10)
        builder.log({"loss": [1.0 / (step + 1) for step in part]}, steps=part, times_s=[step + 0.1 for step in part])
        ends = {"dl.step.time": [0.25] * 10, "dl.data.wait.time": [0.05] * 10}
        lines = builder.encoder(1, 0)
        times = [START_NS + round((step + 0.9) * NS_PER_S) for step in part]
        columns = [Column(name, times, values, (("split", "train"),)) for name, values in ends.items()]
        columns.append(Column("dl.step", times, list(part), (("split", "train"),)))
        builder.lines("metrics", lines.points(columns))
        picture = watched.look(part[-1] + 1)
    assert rows(picture) == {"train/loss": (1 / 20, 19, 1 / 20, 19, 0)}
    assert picture.step == 19
    assert picture.step_s == 0.25
    assert picture.wait_share == pytest.approx(0.2)


def test_values_that_are_not_finite_are_counted_and_are_no_best(tmp_path: Path) -> None:
    """NaN may be the last value, and never the best one."""
    builder = RunBuilder(tmp_path).attempt()
    watched = Watched(builder)
    builder.log({"loss": [2.0, math.nan, 1.0]}, steps=[0, 1, 2])
    assert rows(watched.look(3))["train/loss"] == (1.0, 2, 1.0, 2, 1)
    builder.log({"loss": [-math.inf, math.nan]}, steps=[3, 4], times_s=[4, 5])
    last, *rest = rows(watched.look(5))["train/loss"]
    assert math.isnan(last)
    assert rest == [4, 1.0, 2, 3]


def test_a_direction_that_is_said_later_counts_for_all_points(tmp_path: Path) -> None:
    """`run.define` after some epochs: the best is one of the old values."""
    builder = RunBuilder(tmp_path, metrics={}).attempt()
    watched = Watched(builder)
    builder.log({"f1": [0.5, 0.75, 0.25]}, split="val", steps=[0, 1, 2])
    assert rows(watched.look(3))["val/f1"] == (0.25, 2, None, None, 0)
    builder.folder.update(lambda document: document["metrics"].update(f1={"goal": "max"}))
    builder.log({"f1": [0.5]}, split="val", steps=[3], times_s=[4])
    assert rows(watched.look(14))["val/f1"] == (0.5, 3, 0.75, 1, 0)


def test_a_resumed_run_goes_on_from_where_it_began_anew(tmp_path: Path) -> None:
    """Attempt 2 begins at step 3: the better value of the old step 4 is gone, the older best stays until beaten."""
    builder = RunBuilder(tmp_path).attempt()
    watched = Watched(builder)
    builder.log({"loss": [4.0, 2.0, 3.0, 1.5, 0.5]}, steps=range(5))
    assert rows(watched.look(5))["train/loss"] == (0.5, 4, 0.5, 4, 0)
    builder.end("failed", at_s=6, reason="no power")
    ended = watched.look(7)
    assert (ended.state, ended.reason, ended.attempt) == ("failed", "no power", 1)
    builder.attempt(2, start_s=8).log({"loss": [2.5]}, steps=[3], times_s=[9], attempt=2)
    picture = watched.look(10)
    assert (picture.state, picture.attempt, picture.step) == ("running", 2, 3)
    assert rows(picture)["train/loss"] == (2.5, 3, 2.0, 1, 0)
    builder.log({"loss": [1.0]}, steps=[4], times_s=[11], attempt=2)
    assert rows(watched.look(12))["train/loss"] == (1.0, 4, 1.0, 4, 0)


def test_many_looks_say_the_same_as_one(tmp_path: Path) -> None:
    """Metrics, splits and ranks in parts of any size: the last of many looks is what a first look says."""
    chance = random.Random(5)
    builder = RunBuilder(tmp_path).attempt()
    watched = Watched(builder)
    time_s, step = 0.0, 0
    for _ in range(40):
        count = chance.choice([1, 1, 2, 7, 400])
        times_s = [time_s + 0.01 * number for number in range(1, count + 1)]
        values = [chance.choice([chance.gauss(0, 1), math.nan, 1e300]) for _ in range(count)]
        rank = chance.choice([0, 0, 1])
        split = chance.choice(["train", "val"])
        key = chance.choice(["loss", "error", "m"])
        builder.log({key: values}, split=split, steps=range(step, step + count), times_s=times_s, rank=rank)
        time_s, step = times_s[-1], step + count
        picture = watched.look(time_s)
    one = Watched(builder).look(time_s)
    assert repr(rows(picture)) == repr(rows(one))
    assert [name for name in rows(one) if "rank 1" in name]
    for many, single in zip(picture.metrics, one.metrics, strict=True):
        assert many.columns(8) == pytest.approx(single.columns(8), nan_ok=True)
    assert picture.step == one.step


def test_progress_goes_on_between_two_heartbeats(tmp_path: Path) -> None:
    """Written every 15 seconds; in between each step adds as much as one did before, and time left falls with it."""
    builder = RunBuilder(tmp_path).attempt()
    watched = Watched(builder)
    builder.log({"loss": [1.0] * 21}, steps=range(21), times_s=[0.5 * step for step in range(21)])
    builder.samples(10.2, [Sample("dl.run.progress", 21 / 100), Sample("dl.run.time_left", 39.5)])
    picture = watched.look(10.3)
    assert (picture.share, picture.left_s) == (pytest.approx(0.21), pytest.approx(39.4))
    builder.log({"loss": [1.0] * 20}, steps=range(21, 41), times_s=[0.5 * step for step in range(21, 41)])
    picture = watched.look(20.5)
    # 41 of 100 steps; the pace was half a second a step.
    assert picture.share == pytest.approx(0.41)
    assert picture.left_s == pytest.approx(39.5 * 0.59 / 0.79)
    builder.samples(25, [Sample("dl.run.progress", 0.5), Sample("dl.run.time_left", 25.0)])
    picture = watched.look(25)
    assert picture.share == pytest.approx(0.5)
    builder.end(at_s=30)
    assert watched.look(31).left_s is None


def test_the_machine_is_as_it_was_read_last(tmp_path: Path) -> None:
    """Cards once each with their own readings, host, process and its children together, throughput of the job."""
    builder = RunBuilder(tmp_path).attempt()
    cards = [(("hw.id", f"GPU-{number}"), ("hw.name", "H"), ("index", number)) for number in (0, 1)]
    gib = 2**30
    for at_s, busy in ((1, 0.1), (2, 0.9)):
        samples = [
            *(Sample("hw.gpu.utilization", busy + number / 16, card) for number, card in enumerate(cards)),
            *(Sample("hw.gpu.memory.usage", (10 + number) * gib, card) for number, card in enumerate(cards)),
            *(Sample("hw.gpu.memory.limit", 80 * gib, card) for card in cards),
            Sample("hw.temperature", 61.0, cards[0]),
            Sample("system.cpu.utilization", 0.5),
            Sample("system.memory.utilization", 0.25),
            Sample("process.cpu.utilization", 0.2, (("dl.process", "main"),)),
            Sample("process.cpu.utilization", 0.3, (("dl.process", "children"),)),
            Sample("process.memory.usage", 2.0 * gib, (("dl.process", "main"),)),
            Sample("process.memory.usage", 1.0 * gib, (("dl.process", "children"),)),
            Sample("dl.rank.samples_per_second", 100.0),
            Sample("dl.job.samples_per_second", 400.0),
            Sample("dl.rank.tokens_per_second", 9.0),
        ]
        builder.samples(at_s, samples)
    picture = Watched(builder).look(3)
    assert [(gpu.name, gpu.busy, gpu.used, gpu.total, gpu.celsius, gpu.watts) for gpu in picture.gpus] == [
        ("GPU 0", 0.9, 10 * gib, 80 * gib, 61.0, None),
        ("GPU 1", 0.9625, 11 * gib, 80 * gib, None, None),
    ]
    assert picture.host is not None
    assert (picture.host.cpu, picture.host.memory) == (0.5, 0.25)
    assert (picture.host.process_cpu, picture.host.process_memory) == (0.5, 3 * gib)
    assert picture.rates == [("samples/s", 400.0), ("tokens/s", 9.0)]


def test_warnings_are_told_once_and_conditions_while_they_hold(tmp_path: Path) -> None:
    """Each look has what is new; a condition that is over holds no more, and that is told, too."""
    builder = RunBuilder(tmp_path).attempt().log({"loss": [1.0]}, steps=[0])
    watched = Watched(builder)
    builder.record("fine").record("odd", "WARN", at_s=2, dl__step=7)
    builder.record("the loss stands still", "WARN", at_s=3, event="health.plateau", dl__step=8, metric="train.loss")
    first = watched.look(3)
    assert [(one.text, one.step) for one in first.new_warnings] == [("odd", 7.0), ("the loss stands still", 8.0)]
    assert [(one.text, one.step) for one in first.holding] == [("the loss stands still", 8.0)]
    assert watched.look(4).new_warnings == []
    builder.record("no room", "ERROR", at_s=5, rank=0)
    second = watched.look(5)
    assert [(one.level, one.text) for one in second.new_warnings] == [("ERROR", "no room")]
    assert [one.text for one in second.warnings] == ["odd", "the loss stands still", "no room"]
    builder.record("it falls again", event="health.plateau", at_s=6, metric="train.loss", cleared=True)
    third = watched.look(6)
    assert third.holding == []
    assert [one.text for one in third.warnings] == ["odd", "the loss stands still", "no room"]


def test_of_several_ranks_the_worst_is_named(tmp_path: Path) -> None:
    """The slowest by its score, and once one has failed that one with its step and reason."""
    builder = RunBuilder(tmp_path).attempt(world_size=3)
    times_ns = START_NS + 5 * NS_PER_S
    for rank, score in ((0, 1.0), (1, 1.4), (2, 1.1)):
        PulseFile(builder.folder.rank_folder(1, rank)).write(
            Pulse(time_ns=times_ns, rank=rank, host="elsewhere", pid=1, step=10 + rank)
        )
        builder.samples(5, [Sample("dl.run.heartbeat", 1.0), Sample("dl.rank.straggler", score)], rank=rank)
    watched = Watched(builder)
    ranks = watched.look(6).ranks
    assert ranks is not None
    assert ranks.states == {"running": 3}
    assert ranks.worst == "rank 1 is the slowest: without it steps would be 1.40 times shorter"
    failed = Pulse(
        time_ns=times_ns + NS_PER_S, rank=2, host="elsewhere", pid=1, step=12, state="failed", reason="ValueError: x"
    )
    PulseFile(builder.folder.rank_folder(1, 2)).write(failed)
    ranks = watched.look(12).ranks
    assert ranks is not None
    assert ranks.states == {"running": 2, "failed": 1}
    assert ranks.worst == "rank 2 failed at step 12: ValueError: x"


def test_damaged_lines_are_counted_and_the_rest_goes_on(tmp_path: Path) -> None:
    """A torn line in the midst costs itself alone."""
    builder = RunBuilder(tmp_path).attempt().log({"loss": [2.0]}, steps=[0])
    watched = Watched(builder)
    assert watched.look(1).damaged == 0
    builder.lines("metrics", b'{"resourceMetrics":[{"torn\n').log({"loss": [1.0]}, steps=[1], times_s=[2])
    picture = watched.look(3)
    assert picture.damaged == 1
    assert rows(picture)["train/loss"] == (1.0, 1, 1.0, 1, 0)


def test_a_run_that_is_deleted_is_gone(tmp_path: Path) -> None:
    """The next look says so, and each one after it; what never was a run is refused at once."""
    builder = RunBuilder(tmp_path).attempt().log({"loss": [2.0]}, steps=[0])
    watched = Watched(builder)
    watched.look(1)
    shutil.rmtree(builder.path)
    assert watched.following.look() is None
    assert watched.following.look() is None
    (tmp_path / "other").mkdir()
    with pytest.raises(RunFolderError):
        Following(LiveRun(tmp_path / "other")).look()


def test_a_run_that_is_written_anew_under_its_id_is_followed_from_its_start(tmp_path: Path) -> None:
    """Its values are those of the new one alone."""
    builder = RunBuilder(tmp_path, created="2026-01-31T12:00:00Z").attempt()
    builder.log({"loss": [0.1, 0.2]}, steps=[0, 1]).record("of the old one", severity="ERROR", at_s=1)
    watched = Watched(builder)
    assert rows(watched.look(2))["train/loss"] == (0.2, 1, 0.1, 0, 0)
    shutil.rmtree(builder.path)
    again = RunBuilder(tmp_path, created="2026-01-31T12:00:05Z").attempt()
    again.log({"loss": [9.0, 8.0]}, steps=[0, 1])
    assert again.path == builder.path
    assert rows(watched.look(9)) == {"train/loss": (8.0, 1, 8.0, 1, 0)}


def test_a_run_without_any_point_has_a_picture(tmp_path: Path) -> None:
    """Just begun: a name and a state, and nothing made up."""
    picture = Watched(RunBuilder(tmp_path).attempt()).look(2)
    assert (picture.name, picture.state, picture.elapsed_s) == ("small-net", "running", 2.0)
    assert picture.metrics == []
    none: list[object] = [
        picture.share,
        picture.left_s,
        picture.step,
        picture.epoch,
        picture.step_s,
        picture.wait_share,
    ]
    assert none == [None] * 6
    assert (picture.gpus, picture.host, picture.ranks, picture.rates) == ([], None, None, [])
