"""A run that is followed is read once, and is at any time what a fresh read of its folder would be."""

from __future__ import annotations

import json
import math
import random
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_train.clock import NS_PER_S
from otel_train.errors import RunFolderError
from otel_train.record.entries import Sample
from otel_train.runlog.compress import compress_file
from otel_train.runlog.lock import WriterLock
from otel_train.view import page
from otel_train.view.live import DELETING_NS, LiveRun
from otel_train.view.log_list import row_of
from otel_train.view.reading import read_run
from otel_train.view.report import build
from tests.runs import START_NS, RunBuilder

NOW_NS = START_NS + 3600 * NS_PER_S


def followed(builder: RunBuilder, now_ns: int = NOW_NS) -> LiveRun:
    return LiveRun(builder.path, lambda: now_ns)


def fresh(path: Path) -> dict[str, Any]:
    """Return the whole page of a run as a fresh read makes it, through JSON."""
    data: dict[str, Any] = json.loads(page.strict_json(build(read_run(path, NOW_NS))))
    return data


def whole(live: LiveRun) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(page.strict_json(live.parts()))
    del data["revision"], data["live"]
    return data


# A run log that grows by random cuts ----------------------------------------------------------------------------------


def made_run(root: Path, seed: int) -> Path:
    """Write a run of two attempts and two ranks with everything that a page shows, also what is unusual."""
    chosen = random.Random(seed)
    builder = RunBuilder(root, metrics={"loss": {"goal": "min"}, "accuracy": {"goal": "max"}})
    builder.attempt(1, world_size=2)
    _write(builder, chosen, attempt=1, first_step=0, start_s=0)
    if chosen.random() < 0.7:
        builder.attempt(2, start_s=500, world_size=2)
        _write(builder, chosen, attempt=2, first_step=chosen.choice([0, 5, 30]), start_s=500)
    return builder.path


def _write(builder: RunBuilder, chosen: random.Random, *, attempt: int, first_step: int, start_s: float) -> None:
    for rank in (0, 1):
        builder.folder.rank_folder(attempt, rank)
        step, at_s = first_step, start_s
        for _ in range(chosen.randint(2, 8)):
            count = chosen.randint(1, 6)
            times = [at_s + number * chosen.choice([0.0, 0.5, 1.0]) for number in range(count)]
            steps = list(range(step, step + count))
            values = [chosen.choice([1.5, -2.0, 1e-300, math.nan, math.inf, float(step)]) for _ in range(count)]
            where: dict[str, Any] = {"attempt": attempt, "rank": rank}
            kind = chosen.randrange(8)
            if kind <= 2:
                builder.log({"loss": values, "accuracy": values}, steps=steps, epochs=[s // 4 for s in steps],
                            times_s=times, **where)  # fmt: skip
            elif kind == 3:
                # Points and their steps in different lines, in either order.
                for part in chosen.sample(["points", "steps"], 2):
                    if part == "points":
                        builder.log({"loss": values}, split="val", times_s=times, **where)
                    else:
                        builder.log({"other": values}, split="val", steps=steps, times_s=times, **where)
            elif kind == 4:
                builder.log(
                    {"lr": values}, split="", steps=steps, times_s=times, axis=chosen.choice(["", "env"]), **where
                )
            elif kind == 5:
                samples = [
                    Sample("system.cpu.utilization", 0.5),
                    Sample("system.disk.io", step * 100, (("disk.io.direction", "read"),)),
                    Sample("dl.step.time", 0.25, (("split", "train"),)),
                    Sample("otel_train.points", step, (("outcome", "buffer full"),)),
                ]
                builder.samples(at_s, samples, **where)
            elif kind == 6:
                builder.record(
                    f"said at {at_s}", chosen.choice(["INFO", "WARN", "ERROR"]), at_s=at_s, dl__step=step, **where
                )
                builder.record("Plateau", "WARN", event="health.plateau", at_s=at_s, metric="loss", **where)
                if chosen.random() < 0.3:
                    builder.record("died", "ERROR", event="run.end", at_s=at_s, exception__type="E", **where)
            else:
                builder.span("epoch", at_s, at_s + 2, span_id=step + 1 + 1000 * attempt, attempt=attempt)
                if chosen.random() < 0.3:
                    builder.lines(
                        "metrics", chosen.choice([b'{"cut\n', b"\n", b"[]\n", b'{"resourceMetrics":[1]}\n']), **where
                    )
            step += count
            # The clock is set back now and then.
            at_s += chosen.choice([1.0, 3.0, -2.0]) + count


def growth(source: Path, target: Path, chosen: random.Random, *, locked: bool = True) -> Iterator[None]:
    """Let a run's folder grow to what it is in random cuts, also within lines, with segments gzipped meanwhile.

    Where a writer holds its lock a half line waits; without one it is damage until it goes on.
    """
    locks: dict[Path, WriterLock] = {}
    files = sorted(path for path in source.rglob("*") if path.is_file() and path.suffix == ".jsonl")
    left = {path: path.read_bytes() for path in files}
    written: dict[Path, int] = dict.fromkeys(files, 0)
    segment: dict[Path, int] = dict.fromkeys(files, 1)
    target.mkdir()
    shutil.copy(source / "run.json", target / "run.json")
    while left:
        for path in chosen.sample(sorted(left), min(len(left), chosen.randint(1, 3))):
            data = left[path]
            start = written[path]
            end = min(len(data), start + chosen.choice([1, 50, 400, 3000, 20_000]))
            where = target / path.relative_to(source)
            where.parent.mkdir(parents=True, exist_ok=True)
            if locked and where.parent not in locks:
                locks[where.parent] = WriterLock(where.parent)
                assert locks[where.parent].acquire()
            if start and data[start - 1 : start] == b"\n" and chosen.random() < 0.25:
                before = _named(where, segment[path])
                segment[path] += 1
                if chosen.random() < 0.7:
                    _named(where, segment[path]).touch()
                    compress_file(before)
            with open(_named(where, segment[path]), "ab") as file:
                file.write(data[start:end])
            written[path] = end
            if end == len(data):
                del left[path]
        yield
    for lock in locks.values():
        lock.release()
    yield


def _named(path: Path, number: int) -> Path:
    return path.with_name(path.name.replace("000001", f"{number:06d}"))


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000))
def test_at_any_time_the_run_is_what_a_fresh_read_is(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    """Whatever the cuts: points, steps, numbers, records, spans, damage and state are those of a fresh read."""
    root = tmp_path_factory.mktemp("live")
    source = made_run(root / "source", seed)
    target = root / "target"
    chosen = random.Random(seed)
    live = LiveRun(target, lambda: NOW_NS)
    for _ in growth(source, target, chosen, locked=chosen.random() < 0.7):
        if chosen.random() < 0.7:
            live.refresh()
            assert whole(live) == fresh(target)
    assert live.refresh().kind in ("none", "append", "reload")
    assert whole(live) == fresh(target)
    assert live.refresh().kind == "none"
    shutil.rmtree(root)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000))
def test_what_is_appended_makes_the_lines_of_a_fresh_read(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    """A page that takes each append, and fetches anew what it is told to, has every point of every line."""
    root = tmp_path_factory.mktemp("live")
    source = made_run(root / "source", seed)
    target = root / "target"
    chosen = random.Random(seed)
    live = LiveRun(target, lambda: NOW_NS)
    shown: dict[str, dict[str, Any]] = {}
    logs: list[Any] = []
    for _ in growth(source, target, chosen):
        change = live.refresh()
        if change.kind == "append":
            for line_id, more in change.payload["lines"].items():
                _append(shown[line_id], more)
            logs.extend(change.payload["logs"])
        if change.kind == "reload" or {"metrics", "epoch"} & set(change.payload.get("stale", ())):
            shown = _lines(live.parts(["metrics"]))
        if change.kind == "reload":
            logs = live.parts(["logs"])["logs"]["rows"]
        assert shown == _lines(build(read_run(target, NOW_NS)))
        key = str
        assert sorted(logs, key=key) == sorted(
            (row_of(row, live.data.started_ns) for row in live.data.logs.rows()), key=key
        )
    shutil.rmtree(root)


def _lines(data: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {
        line["id"]: {"x": line["x"], "y": line["y"], "marks": line.get("marks", [])}
        for chart in data["charts"]["metrics"]
        for line in chart["lines"]
        if not line.get("replaced")
    }


def _append(shown: dict[str, Any], more: dict[str, Any]) -> None:
    before, count = len(shown["y"]), len(more["y"])
    for axis in {*shown["x"], *more["x"]}:
        shown["x"][axis] = [
            *shown["x"].get(axis, [None] * before),
            *more["x"].get(axis, [None] * count),
        ]
    shown["y"] = shown["y"] + more["y"]
    shown["marks"] = shown["marks"] + [[mark[0] + before, *mark[1:]] for mark in more.get("marks", [])]


# Single cases ---------------------------------------------------------------------------------------------------------


def locked(builder: RunBuilder, rank: int = 0) -> WriterLock:
    lock = WriterLock(builder.folder.rank_folder(1, rank))
    assert lock.acquire()
    return lock


def first_line(payload: dict[str, Any]) -> dict[str, Any]:
    (line,) = payload["lines"].values()
    found: dict[str, Any] = line
    return found


def test_a_look_tells_what_is_new_and_nothing_else(tmp_path: Path) -> None:
    """New points with their places, marks and best value, the new record, numbers, and what else is stale."""
    builder = RunBuilder(tmp_path).attempt()
    lock = locked(builder)
    live = followed(builder.log({"loss": [3.0, 2.0]}, steps=[0, 1]).record("begun"))
    assert (live.refresh().kind, live.revision) == ("reload", 1)
    assert (live.refresh().kind, live.revision) == ("none", 1)
    builder.log({"loss": [1.5, math.nan]}, steps=[2, 3], times_s=[10, 11]).record("more", "WARN", at_s=12)
    builder.span("epoch", 0, 9)
    change = live.refresh()
    assert (change.kind, change.revision, live.revision) == ("append", 2, 2)
    payload = change.payload
    assert first_line(payload) == {
        "x": {"time": [10.0, 11.0], "step": [2, 3]},
        "y": [1.5, None],
        "marks": [[1, 1, 0, 0]],
        "best": {"value": 1.5, "x": {"time": 10.0, "step": 2}},
        "notes": [
            {"kind": "best", "text": "best train 1.5 at step 2", "line": next(iter(payload["lines"]))},
            {"kind": "bad", "text": "train: 1 NaN; first bad step 3", "line": next(iter(payload["lines"]))},
        ],
    }
    assert [row[2] for row in payload["logs"]] == ["more"]
    assert (payload["logs_seen"], payload["logs_levels"]) == (2, {"INFO": 1, "WARN": 1})
    (row,) = payload["summary"].values()
    assert (row["points"], row["nan"], row["last"]["value"] != row["last"]["value"]) == (4, 1, True)
    assert payload["stale"] == ["timeline"]
    assert payload["notices"][0]["text"] == "loss (train) was not finite: 1 NaN; first bad step 3."
    assert (payload["status"]["state"], payload["live"]) == ("running", True)
    assert dict(payload["facts"])["Last step"] == "3"
    lock.release()


def test_the_end_of_a_run_is_a_change_without_any_new_line(tmp_path: Path) -> None:
    """Running while somebody holds its lock, lost when he lets go without an end, finished once run.json says so."""
    now_ns = [NOW_NS]
    builder = RunBuilder(tmp_path).attempt().log({"loss": [1.0]}, steps=[0])
    lock = locked(builder)
    live = LiveRun(builder.path, lambda: now_ns[0])
    live.refresh()
    assert live.data.state == "running"
    lock.release()
    change = live.refresh()
    assert (change.kind, change.payload["status"]["state"], change.payload["live"]) == ("append", "lost", False)
    assert live.refresh().kind == "none"
    builder.end("finished", at_s=50)
    change = live.refresh()
    assert (change.kind, change.payload["status"]["state"]) == ("append", "finished")
    assert "head" in change.payload["stale"]
    now_ns[0] += 3600 * NS_PER_S
    assert live.refresh().kind == "none"


def test_a_run_of_another_machine_is_lost_once_it_is_silent(tmp_path: Path) -> None:
    """Without a lock the last line is the last sign of life: after a minute it is lost, without any change on disk."""
    now_ns = [START_NS + 30 * NS_PER_S]
    builder = RunBuilder(tmp_path).attempt().log({"loss": [1.0]}, steps=[0], times_s=[1])
    live = LiveRun(builder.path, lambda: now_ns[0])
    live.refresh()
    assert live.data.state == "running"
    now_ns[0] += 20 * NS_PER_S
    assert live.refresh().kind == "none"
    now_ns[0] += 20 * NS_PER_S
    assert (live.refresh().kind, live.data.state) == ("append", "lost")
    builder.log({"loss": [1.0]}, steps=[1], times_s=[69])
    assert (live.refresh().kind, live.data.state) == ("append", "running")


def test_a_folder_that_is_deleted_is_gone_and_its_memory_free(tmp_path: Path) -> None:
    """At every later look, too."""
    builder = RunBuilder(tmp_path).attempt().log({"loss": [1.0]}, steps=[0])
    live = followed(builder)
    live.refresh()
    assert live.points == 1
    shutil.rmtree(builder.path)
    assert (live.refresh().kind, live.refresh().kind) == ("gone", "gone")
    assert live.points == 0
    with pytest.raises(RunFolderError, match="gone"):
        _ = live.data


def test_a_run_that_is_written_anew_under_its_id_is_read_anew(tmp_path: Path) -> None:
    """Also where its files are as long as those before, and another description of the same run is not another run."""
    builder = RunBuilder(tmp_path, created="2026-01-31T12:00:00Z").attempt().log({"loss": [2.0, 1.0]}, steps=[0, 1])
    live = followed(builder)
    live.refresh()
    before = live.revision
    described = json.loads((builder.path / "run.json").read_text())
    (builder.path / "run.json").write_text(json.dumps({**described, "tags": ["another"]}))
    assert live.refresh().kind == "append"
    assert live.data.info["tags"] == ["another"]
    shutil.rmtree(builder.path)
    again = RunBuilder(tmp_path, created="2026-01-31T12:00:05Z").attempt().log({"loss": [7.0, 8.0]}, steps=[0, 1])
    assert (again.path, live.refresh().kind) == (builder.path, "reload")
    assert live.revision > before
    assert list(live.data.series()[0].series.values) == [7.0, 8.0]
    assert whole(live) == fresh(again.path)
    assert live.refresh().kind == "none"


@pytest.mark.parametrize("first", ["run.json", "a segment", "a rank"])
def test_a_run_that_is_half_deleted_stays_as_it_was_read(tmp_path: Path, first: str) -> None:
    """A folder goes file by file: nothing is drawn anew out of its remains, unless they remain."""
    builder = RunBuilder(tmp_path).attempt().log({"loss": [2.0, 1.0]}, steps=[0, 1]).record("a word", at_s=2)
    now_ns = [NOW_NS]
    live = LiveRun(builder.path, lambda: now_ns[0])
    live.refresh()
    before, revision = whole(live), live.revision
    segment = next(builder.path.rglob("metrics.*"))
    folder = segment.parent
    removed = {"run.json": builder.path / "run.json", "a segment": segment, "a rank": folder}[first]
    if removed.is_dir():
        shutil.rmtree(removed)
    else:
        removed.unlink()
    for _ in range(3):
        assert (live.refresh().kind, live.revision) == ("none", revision)
    assert (whole(live)["charts"], live.points) == (before["charts"], 2)
    now_ns[0] += DELETING_NS
    assert live.refresh().kind == "reload"
    assert live.points == (2 if first == "run.json" else 0)
    # What was missing for long says nothing of what is missing next.
    assert live.refresh().kind == "none"
    shutil.rmtree(builder.path)
    assert live.refresh().kind == "gone"


def test_what_was_never_a_run_is_refused(tmp_path: Path) -> None:
    """No folder, a foreign folder, and a run in which nothing can be read."""
    with pytest.raises(RunFolderError, match="not there"):
        LiveRun(tmp_path / "nothing").refresh()
    (tmp_path / "foreign").mkdir()
    with pytest.raises(RunFolderError, match="is empty"):
        LiveRun(tmp_path / "foreign").refresh()
    builder = RunBuilder(tmp_path).attempt()
    (builder.path / "run.json").write_text("[]")
    live = followed(builder)
    for _ in range(2):
        with pytest.raises(RunFolderError, match="nothing in it can be read"):
            live.refresh()
    builder.log({"loss": [1.0]}, steps=[0])
    assert live.refresh().kind == "reload"


def test_a_look_tells_what_the_top_of_the_page_says_of_other_parts(tmp_path: Path) -> None:
    """Time by state, lineage in short and how much there is of what is not in sight; each once, when it changes."""
    builder = RunBuilder(tmp_path).attempt().log({"loss": [1.0]}, steps=[0])
    now = [NOW_NS]
    live = LiveRun(builder.path, lambda: now[0])
    live.refresh()
    builder.samples(10, [Sample("dl.time", 8.0, (("state", "productive"),))])
    payload = live.refresh().payload
    assert (payload["time_by_state"], payload["time_not_counted"]) == ({"productive": 8.0}, None)
    assert (payload["counts"], payload["lineage"], payload["came"]) == ({}, [], ["inside"])
    checkpoint = {"path": "a/model.pt", "role": "saved", "best": True, "step": 3}
    builder.folder.update(lambda document: document["checkpoints"].append(checkpoint))
    builder.span("evaluation", 10, 11)
    payload = live.refresh().payload
    assert payload["lineage"] == [["Best checkpoint", "model.pt at step 3", "checkpoints"]]
    assert (payload["counts"], payload["came"]) == ({"checkpoints": 1, "timeline": 1}, [])
    builder.record("hello", at_s=40)
    payload = live.refresh().payload
    assert (payload["counts"], "lineage" in payload, "time_by_state" in payload) == ({}, False, False)
    # All spans are looked at again for their number, which waits some seconds, but is not forgotten.
    builder.span("evaluation", 40, 41, span_id=2)
    assert live.refresh().payload["counts"] == {}
    now[0] += 11 * NS_PER_S
    builder.record("hello again", at_s=41)
    assert live.refresh().payload["counts"] == {"timeline": 2}


def test_new_series_new_attempts_and_replaced_points_are_a_reload(tmp_path: Path) -> None:
    """Whatever changes lines that are drawn; a new series of the machine only makes its part stale."""
    builder = RunBuilder(tmp_path).attempt().log({"loss": [3.0, 2.0, 1.0]}, steps=[0, 1, 2])
    live = followed(builder)
    live.refresh()
    builder.log({"accuracy": [0.5]}, steps=[2], times_s=[3])
    assert live.refresh().kind == "reload"
    builder.samples(5, [Sample("system.cpu.utilization", 0.5)])
    change = live.refresh()
    assert (change.kind, change.payload["stale"], change.payload["lines"]) == ("append", ["machine"], {})
    builder.attempt(2, start_s=50)
    assert live.refresh().kind == "reload"
    builder.log({"loss": [9.0]}, steps=[1], times_s=[60], attempt=2)
    assert live.refresh().kind == "reload"
    builder.log({"loss": [8.0]}, steps=[2], times_s=[61], attempt=2)
    change = live.refresh()
    assert (change.kind, first_line(change.payload)["x"]) == ("append", {"time": [61.0], "step": [2]})
    assert list(live.data.series()[0].series.values) == [3.0, 9.0, 8.0]


def test_points_whose_step_comes_later_are_told_to_be_stale(tmp_path: Path) -> None:
    """The step of a point stands in a later line: the point was drawn without one."""
    builder = RunBuilder(tmp_path).attempt().log({"loss": [3.0]}, times_s=[1], steps=[0])
    live = followed(builder)
    live.refresh()
    builder.log({"loss": [2.0]}, times_s=[2])
    assert first_line(live.refresh().payload)["x"] == {"time": [2.0]}
    steps = {"name": "dl.step", "gauge": {"dataPoints": [{
        "attributes": [{"key": "split", "value": {"stringValue": "train"}}],
        "timeUnixNano": str(START_NS + 2 * NS_PER_S),
        "asInt": "1",
    }]}}  # fmt: skip
    line = {"resourceMetrics": [{"scopeMetrics": [{"metrics": [steps]}]}]}
    builder.lines("metrics", json.dumps(line).encode() + b"\n")
    change = live.refresh()
    assert (change.kind, change.payload["stale"]) == ("append", ["metrics"])
    assert _lines(live.parts(["metrics"]))[next(iter(change.payload["lines"]))]["x"]["step"] == [0, 1]


def test_a_flood_of_points_or_records_is_fetched_and_not_sent(tmp_path: Path) -> None:
    """More than a message should hold: the page is told which parts to ask for."""
    builder = RunBuilder(tmp_path).attempt().log({"loss": [3.0]}, steps=[0]).record("begun")
    live = followed(builder)
    live.refresh()
    builder.log({"loss": [1.0] * 30_000}, steps=range(1, 30_001), times_s=range(2, 30_002))
    for number in range(2_100):
        builder.record(f"line {number}")
    payload = live.refresh().payload
    assert {"metrics", "logs"} <= set(payload["stale"])
    assert payload["lines"] == {}
    assert len(payload["logs"]) == 2_000


def test_without_a_payload_the_kind_is_told_and_the_next_one_has_only_what_is_new(tmp_path: Path) -> None:
    """For who needs only the data."""
    builder = RunBuilder(tmp_path).attempt().log({"loss": [3.0]}, steps=[0])
    live = followed(builder)
    assert live.refresh(payload=False).kind == "reload"
    builder.log({"loss": [2.0]}, steps=[1], times_s=[2])
    change = live.refresh(payload=False)
    assert (change.kind, change.payload) == ("append", {})
    builder.log({"loss": [1.0]}, steps=[2], times_s=[3])
    assert first_line(live.refresh().payload)["y"] == [1.0]


def test_the_head_is_there_before_any_point_is_read(tmp_path: Path) -> None:
    """From run.json alone: name, state, attempts; no number that only points can tell."""
    builder = RunBuilder(tmp_path).attempt(config={"lr": 1}).log({"loss": [3.0]}, steps=[0]).end()
    live = followed(builder)
    head = live.described()
    assert (head["name"], head["status"]["state"], head["tiles"]) == ("small-net", "finished", [])
    assert [fact[0] for fact in head["facts"]] == ["Duration", "Started (UTC)", "Ended (UTC)", "Host"]
    assert live.points == 0
    assert head.keys() == live.parts(["head"]).keys() - {"revision", "live"}


def test_what_is_forgotten_is_read_again(tmp_path: Path) -> None:
    """The revision goes on rising."""
    builder = RunBuilder(tmp_path).attempt().log({"loss": [3.0]}, steps=[0]).end()
    live = followed(builder)
    live.refresh()
    live.forget()
    assert live.points == 0
    assert (live.refresh().kind, live.revision, live.points) == ("reload", 2, 1)


def test_parts_are_made_while_another_thread_reads(tmp_path: Path) -> None:
    """Each of them is of one moment: as many points in the table as in the facts and in the line."""
    builder = RunBuilder(tmp_path).attempt().log({"loss": [0.0]}, steps=[0])
    live = followed(builder)
    live.refresh()
    faults: list[str] = []
    over = threading.Event()

    def make() -> None:
        while not over.is_set():
            parts = live.parts(["head", "metrics"])
            (chart,) = parts["charts"]["metrics"]
            counts = {len(chart["lines"][0]["y"]), parts["summary"][0]["points"]}
            counts.add(int(dict(parts["facts"])["Points, records, spans"].split(",")[0]))
            if len(counts) != 1:
                faults.append(str(counts))

    threads = [threading.Thread(target=make) for _ in range(2)]
    for thread in threads:
        thread.start()
    for step in range(1, 60):
        builder.log({"loss": [float(step)]}, steps=[step], times_s=[step])
        live.refresh()
    over.set()
    for thread in threads:
        thread.join()
    assert faults == []
    assert list(live.data.series()[0].series.values) == [float(step) for step in range(60)]


def test_a_run_without_a_description_is_followed_too(tmp_path: Path) -> None:
    """What run.json would say is taken from the lines, also from those that come."""
    builder = RunBuilder(tmp_path).attempt().log({"loss": [1.0]}, steps=[0])
    (builder.path / "run.json").unlink()
    live = followed(builder)
    live.refresh()
    assert whole(live) == fresh(builder.path)
    builder.record("run ended", event="run.end", at_s=9, status="failed", reason="ValueError: x")
    live.refresh()
    assert (live.data.state, live.data.reason) == ("failed", "ValueError: x")
    assert whole(live) == fresh(builder.path)
