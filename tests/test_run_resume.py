"""Going on with a run: a new attempt in its own folder, what changed since, and what is refused."""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import otel_train
from otel_train.errors import RunIdInUseError
from otel_train.testing import recorded
from tests.scripts import Scripts, run_paths

Start = Callable[..., Any]


def train(start: Start, steps: range, **arguments: Any) -> Any:
    run = start(**arguments)
    for step in steps:
        run.log({"loss": 1.0 + step}, step=step)
    run.session.surroundings.environment(20.0)
    run.finish()
    return run


def test_resuming_makes_a_second_attempt_and_keeps_the_first(start: Start) -> None:
    """Raw points of both stay, each in its own folder; the changed learning rate is stored by attempt and said."""
    first = train(start, range(10), config={"lr": 1e-4, "layers": 2})
    before = {path: path.read_bytes() for path in first.path.glob("attempt-1/**/*.gz")}
    second = train(start, range(8, 12), config={"lr": 5e-5, "layers": 2}, resume=first.id)
    assert second.id == first.id
    assert (first.attempt, second.attempt) == (1, 2)
    assert {path: path.read_bytes() for path in first.path.glob("attempt-1/**/*.gz")} == before
    record = recorded(second)
    points = [(point.attempt, point.step, point.value) for point in record.of("loss")]
    assert points == [(1, s, 1.0 + s) for s in range(10)] + [(2, s, 1.0 + s) for s in range(8, 12)]
    one, two = record.info["attempts"]
    assert (one["config"]["lr"], two["config"]["lr"]) == (1e-4, 5e-5)
    assert (one["resumed_from"], two["resumed_from"]) == (None, 1)
    assert two["changes"] == [{"what": "config", "key": "lr", "old": 1e-4, "new": 5e-5}]
    event = record.event("run.resumed")
    assert event.body == "lr 0.0001 → 5e-05"
    assert event.attributes["changes"] == ["config lr: 0.0001 -> 5e-05"]
    assert event.attempt == 2
    notices = [log.body for log in record.events("otel_train.notice")]
    assert f"run {first.id} goes on as attempt 2" in notices
    assert {resource["run_attempt"] for resource in record.resources} == {1, 2}
    assert {resource["service.instance.id"] for resource in record.resources if resource["run_attempt"] == 2} == {
        resource["service.instance.id"] for resource in record.resources if resource["run_attempt"] == 1
    }
    assert record.info["run_name"] == first.name == second.name


def test_nothing_changed_is_said_too(start: Start) -> None:
    """A plain restart says so."""
    first = train(start, range(1), config={"lr": 1.0})
    second = train(start, range(1, 2), config={"lr": 1.0}, resume=first.id)
    assert recorded(second).event("run.resumed").body == "nothing changed"
    assert recorded(second).info["attempts"][1]["changes"] == []


def test_a_resumed_run_goes_on_after_its_newest_checkpoint(start: Start, tmp_path: Path) -> None:
    """Steps without a number of their own continue where the model stands."""
    first = start()
    for step in first.steps(range(10)):
        first.log({"loss": 1.0})
        if step == 5:
            first.save_checkpoint(tmp_path / "model.pkl", {})
    first.finish()
    second = start(resume=first.id)
    assert second.step == 6
    for _ in second.steps(range(2)):
        second.log({"loss": 2.0})
    second.finish()
    assert [point.step for point in recorded(second).of("loss") if point.attempt == 2] == [6, 7]


def test_resuming_a_run_that_still_runs_is_refused(start: Start) -> None:
    """Two writers of one run would mix their attempts."""
    first = start()
    problem: list[BaseException] = []

    def resume() -> None:
        try:
            start(resume=first.id)
        except RunIdInUseError as fault:
            problem.append(fault)

    thread = threading.Thread(target=resume)
    thread.start()
    thread.join()
    assert "this run is still being written; end it first" in str(problem[0])
    assert not first.finished
    first.finish()
    assert [entry["attempt"] for entry in recorded(first).info["attempts"]] == [1]


def test_auto_without_a_scheduler_starts_a_new_run(start: Start, root: Path) -> None:
    """Each start on a laptop is a run of its own."""
    runs = [train(start, range(1), resume="auto") for _ in range(2)]
    assert [run.attempt for run in runs] == [1, 1]
    assert len(run_paths(root)) == 2


def test_auto_goes_on_with_the_scheduler_s_requeued_job(
    start: Start, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first start of the job is a new run, its second the second attempt; another job is another run."""
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    first = train(start, range(1), resume="auto", project="p")
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    second = train(start, range(1, 2), resume="auto", project="p")
    assert (second.id, second.attempt) == (first.id, 2)
    assert f"run {first.id} goes on by itself as attempt 2" in [
        log.body for log in recorded(second).events("otel_train.notice")
    ]
    monkeypatch.setenv("SLURM_JOB_ID", "18")
    assert train(start, range(1), resume="auto", project="p").id != first.id
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    assert train(start, range(1), project="p").id != first.id
    assert len(run_paths(root)) == 3


def test_a_run_whose_description_is_damaged_can_be_resumed(start: Start) -> None:
    """A kill may have torn run.json; the run goes on, and it is said that nothing was compared."""
    first = train(start, range(3), config={"lr": 1.0})
    (first.path / "run.json").write_text("{")
    second = train(start, range(3, 5), config={"lr": 2.0}, resume=first.id)
    record = recorded(second)
    assert [point.step for point in record.of("loss")] == [0, 1, 2, 3, 4]
    notice = next(log.body for log in record.events("otel_train.notice") if "attempt 2" in log.body)
    assert "is damaged" in notice
    assert "is not compared" in notice


def test_a_folder_that_was_moved_with_its_root_is_found(start: Start, root: Path, tmp_path: Path) -> None:
    """The id is looked up in the root that is given."""
    first = train(start, range(1))
    shutil.move(root, tmp_path / "elsewhere")
    second = train(start, range(1, 2), dir=tmp_path / "elsewhere", resume=first.id)
    assert second.path == tmp_path / "elsewhere" / first.id
    assert second.attempt == 2


@pytest.mark.slow
def test_a_killed_run_is_resumed(scripts: Scripts) -> None:
    """After kill -9 the same command with resume= makes attempt 2, which says of attempt 1 that it was lost."""
    text = """
import os, sys, otel_train
run = otel_train.init(resume=sys.argv[1] if len(sys.argv) > 1 else None)
for x in run.steps(range(5)):
    run.log({"loss": 1.0})
run.flush()
if len(sys.argv) == 1:
    os.kill(os.getpid(), 9)
"""
    first = scripts(text)
    assert first.code == -9
    second = scripts(text, first.path.name)
    assert second.code == 0, second.errors
    record = recorded(second.path)
    assert [(entry["attempt"], entry["status"]) for entry in record.info["attempts"]] == [
        (1, "lost"),
        (2, "finished"),
    ]
    assert record.event("attempt.ended").attributes["attempt"] == 1
    assert record.info["status"] == "finished"
    assert [point.attempt for point in record.of("loss")] == [1] * 5 + [2] * 5


def test_the_attempts_of_a_run_are_counted_whatever_is_in_run_json(start: Start) -> None:
    """The folders count: a lost description does not lead to a second attempt-1."""
    first = train(start, range(1))
    document = json.loads((first.path / "run.json").read_text())
    document["attempts"] = []
    (first.path / "run.json").write_text(json.dumps(document))
    second = train(start, range(1), resume=first.id)
    assert second.attempt == 2
    assert sorted(name for name in os.listdir(first.path) if name.startswith("attempt")) == ["attempt-1", "attempt-2"]
    assert otel_train.current_run() is None
