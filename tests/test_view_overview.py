"""What the top of the page says in numbers: how long a run took, its points, what its time was spent on."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from otel_train.cli.main import main
from otel_train.cli.show import as_dict
from otel_train.record.entries import Sample
from otel_train.runlog.lock import WriterLock
from otel_train.view import overview
from otel_train.view.counting import points_by_kind, recorded
from otel_train.view.index import RunIndex
from otel_train.view.reading import read_run
from otel_train.view.report import build
from tests.runs import NS_PER_S, RUN_ID, START_NS, RunBuilder

NOW_NS = START_NS + 3600 * NS_PER_S


def spent(builder: RunBuilder, at_s: float, attempt: int = 1, **seconds: float) -> RunBuilder:
    """Write the counter of the time by state as it stood at one time."""
    return builder.samples(
        at_s, [Sample("dl.time", value, (("state", state),)) for state, value in seconds.items()], attempt=attempt
    )


def test_a_duration_is_from_the_start_to_the_end_of_the_description(tmp_path: Path) -> None:
    """Points shortly before the start and readings after the end change nothing; runs, page and show agree."""
    builder = RunBuilder(tmp_path).attempt(start_s=0.25).log({"loss": [1.0, 0.5]}, times_s=[0.2, 5.0])
    builder.samples(10.5, [Sample("dl.run.heartbeat", 1.0)]).end(at_s=10.25)
    run = read_run(builder.path, NOW_NS)
    assert overview.elapsed_s(run) == 10.0
    assert as_dict(run)["duration_s"] == 10.0
    # Axes hold all points nevertheless.
    assert build(run)["elapsed_s"] == pytest.approx(10.3)
    index = RunIndex(tmp_path, now_ns=lambda: NOW_NS)
    index.refresh()
    # The list knows the moment at which the folder was made, here a quarter of a second before.
    assert [row.duration_s for row in index.rows] == [10.25]


def test_a_run_without_an_end_lasts_to_its_last_sign_of_life_or_to_now(tmp_path: Path) -> None:
    """Lost: to its last point; while somebody writes: to the present."""
    builder = RunBuilder(tmp_path).attempt().log({"loss": [1.0]}, times_s=[7.0])
    assert overview.elapsed_s(read_run(builder.path, NOW_NS)) == 7.0
    lock = WriterLock(builder.folder.rank_folder(1, 0))
    assert lock.acquire()
    assert overview.elapsed_s(read_run(builder.path, NOW_NS)) == 3600.0
    lock.release()


def test_points_are_those_of_the_last_line(
    start: Callable[..., Any], root: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Metrics, step times, waits and phases are counted; readings of the machine and of the run itself are not."""
    run = start(sample_interval_s=0.1)
    phase = run.phase("forward")
    for step in run.steps(range(5)):
        with phase:
            pass
        run.log({"loss": 1.0 / (step + 1), "accuracy": 0.5})
    run.log({"loss": 0.5}, split="val", epoch=1)
    run.finish()
    path = root / run.id
    (said,) = re.findall(r"finished: ([\d,]+) points", capfd.readouterr().err)
    data = read_run(path, NOW_NS)
    metrics, steps, readings = points_by_kind(data)
    assert metrics == 11
    # Of each step its time, the wait for data and the phase.
    assert steps == 15
    assert metrics + steps == int(said.replace(",", ""))
    assert data.attempts[0]["accounting"]["recorded"]["metrics"] == 26
    assert dict(overview.facts(data))["Points, records, spans"].startswith("26, ")
    assert readings == data.store.points - 26 > 0
    assert dict(build(data)["run_log"]["facts"])["Points read"] == (
        f"{data.store.points:,}: 11 of your metrics, 15 of steps, phases and what was watched, "
        f"{readings:,} readings of the machine and of otel-train itself"
    )


def test_points_are_those_of_the_last_line_of_a_watched_run(
    start: Callable[..., Any], root: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Totals and rates that stand at a step are readings, what an evaluation's loop takes is none, on any heartbeat."""
    torch = pytest.importorskip("torch")
    monkeypatch.setattr("otel_train.runlog.recorder.HEARTBEAT_NS", NS_PER_S // 50)
    data_set = torch.utils.data.TensorDataset(torch.randn(48, 4), torch.randint(0, 2, (48,)))
    loader = torch.utils.data.DataLoader(data_set, batch_size=4)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run = start()
    run.watch(model, optimizer=optimizer, every=2)
    for inputs, labels in run.steps(loader):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
        run.log({"loss": 1.0})
        assert run.flush()
    for _ in run.steps(loader, split="val"):
        run.log({"accuracy": 0.5})
    run.finish()
    (said,) = re.findall(r"finished: ([\d,]+) points", capfd.readouterr().err)
    read = read_run(root / run.id, NOW_NS)
    names = [series.name for series in read.store.raw() for _ in series.values]
    assert names.count("dl.micro_step") >= 3
    assert {"dl.optimizer.tried", "dl.optimizer.step", "dl.rank.samples_per_second", "dl.update.ratio"} <= {*names}
    metrics, steps, readings = points_by_kind(read)
    assert metrics == 24
    assert metrics + steps == recorded(read) == int(said.replace(",", ""))
    assert metrics + steps + readings == read.store.points


def test_points_of_a_run_whose_account_is_missing_are_counted_the_same(tmp_path: Path) -> None:
    """Of a killed run too: what is repeated at heartbeats counts once, on each rank by itself."""
    builder = RunBuilder(tmp_path).attempt(world_size=2)
    for rank in (0, 1):
        builder.log({"loss": [1.0, 0.5]}, rank=rank)
        # At a step; at heartbeats, the first of which comes before any step of the optimizer.
        builder.samples(1.5, [Sample("dl.micro_step", 1)], rank=rank)
        builder.samples(2.0, [Sample("dl.optimizer.step", 1), Sample("dl.grad.norm", 0.5)], rank=rank)
        for at_s in (3.0, 4.0):
            builder.samples(at_s, [Sample("dl.micro_step", 2), Sample("dl.optimizer.step", 2)], rank=rank)
    assert points_by_kind(read_run(builder.path, NOW_NS)) == (4, 4, 10)


def test_time_that_was_never_counted_is_told(tmp_path: Path) -> None:
    """Counted for the last time after two seconds, alive for forty: 38 are missing."""
    builder = spent(RunBuilder(tmp_path).attempt(), 2, productive=1.5, **{"start-up": 0.5})
    builder.log({"loss": [1.0]}, times_s=[40.0])
    data = build(read_run(builder.path, NOW_NS))
    assert data["time_by_state"] == {"productive": 1.5, "start-up": 0.5}
    assert data["time_not_counted"] == {"seconds": 38.0, "whole_s": 40.0}
    lock = WriterLock(builder.folder.rank_folder(1, 0))
    assert lock.acquire()
    assert build(read_run(builder.path, NOW_NS))["time_not_counted"] == {"seconds": 3598.0, "whole_s": 3600.0}
    lock.release()


def test_time_after_the_end_is_not_of_the_run(tmp_path: Path) -> None:
    """The account is made when the end is written, a moment after it: the states add up to the duration."""
    builder = spent(RunBuilder(tmp_path).attempt(), 12, productive=8.0, data=1.0, idle=1.5, **{"start-up": 1.5})
    data = build(read_run(builder.end("failed", at_s=10).path, NOW_NS))
    assert dict(data["facts"])["Duration"] == "10.0 s"
    # Two seconds too many: of idleness what there is, then of what most of the time went to.
    assert data["time_by_state"] == {"productive": 7.5, "data": 1.0, "start-up": 1.5}
    assert data["time_not_counted"] is None


def test_time_of_an_earlier_attempt_after_its_end_is_not_of_the_run(tmp_path: Path) -> None:
    """Each attempt by itself; what a kill has lost of an older one is no time of the newer."""
    builder = spent(RunBuilder(tmp_path).attempt(), 11, productive=9.0, idle=2.0).end("failed", at_s=10)
    spent(builder.attempt(2, start_s=100), 110, attempt=2, productive=9.0, idle=1.0, lost=3.0).end(at_s=110)
    spent_s = build(read_run(builder.path, NOW_NS))["time_by_state"]
    assert spent_s == {"productive": 18.0, "idle": 2.0, "lost": 3.0}


def test_time_that_was_not_counted_is_that_of_all_attempts(tmp_path: Path) -> None:
    """The first lacks 30 of its 40 seconds, the time between the two is of none, the second was counted to its end."""
    builder = spent(RunBuilder(tmp_path).attempt(), 10, productive=10.0).log({"loss": [1.0]}, times_s=[40.0])
    spent(builder.attempt(2, start_s=300), 400, attempt=2, productive=100.0).end(at_s=400)
    assert build(read_run(builder.path, NOW_NS))["time_not_counted"] == {"seconds": 30.0, "whole_s": 140.0}


@pytest.mark.parametrize(("last_s", "is_told"), [(104.0, False), (106.0, True)])
def test_a_twentieth_of_a_run_need_not_be_counted(tmp_path: Path, last_s: float, is_told: bool) -> None:
    """What came after the last heartbeat of a run of some minutes is nothing; without any count there is no bar."""
    builder = spent(RunBuilder(tmp_path).attempt(), 100, productive=100.0).log({"loss": [1.0]}, times_s=[last_s])
    assert bool(build(read_run(builder.path, NOW_NS))["time_not_counted"]) is is_told
    silent = RunBuilder(tmp_path, f"{RUN_ID[:-1]}z").attempt().log({"loss": [1.0]}, times_s=[50.0])
    assert build(read_run(silent.path, NOW_NS))["time_not_counted"] is None


@pytest.mark.parametrize(
    ("reason", "kind", "count"),
    [
        ("ValueError: boom", "ValueError", 1),
        ("Exhausted: boom", "some.module.Exhausted", 1),
        ("given up", "ValueError", 2),
    ],
)
def test_show_names_the_exception_once(
    root: Path, capsys: pytest.CaptureFixture[str], reason: str, kind: str, count: int
) -> None:
    """A reason that is the exception is not said twice; another reason stands beside it."""
    attributes = {"exception__type": kind, "exception__message": "boom", "exception__stacktrace": "Traceback"}
    builder = RunBuilder(root).attempt().log({"loss": [1.0]}, steps=[0])
    builder.record(f"{kind}: boom", "ERROR", at_s=5, event="run.end", **attributes).end("failed", at_s=5, reason=reason)
    assert main(["show", "latest"]) == 0
    lines = capsys.readouterr().out.splitlines()
    told = lines[1 : lines.index(next(line for line in lines if line.startswith("  Project")))]
    assert told == ([reason] if count == 2 else []) + [f"{kind}: boom"]


def test_a_running_run_says_in_text_when_it_stood_so(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On the terminal and in a file nothing moves; the mark lets a page that follows leave it out."""
    builder = RunBuilder(root).attempt().log({"loss": [1.0]}, times_s=[1.0])
    lock = WriterLock(builder.folder.rank_folder(1, 0))
    assert lock.acquire()
    (notice,) = [one for one in build(read_run(builder.path, NOW_NS))["notices"] if one.get("still")]
    assert notice["text"] == "The run goes on; this is how it stood at 2026-01-31 13:00:00 UTC."
    assert main(["show", "latest", "--json"]) == 0
    lock.release()
    assert any("The run goes on" in text for text in json.loads(capsys.readouterr().out)["notices"])
