"""Which run this is: the id on every record, the current run of a context, and ids that no seed repeats."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Any

import pytest

import otel_train
from otel_train.lineage.run_id import service_instance_id
from otel_train.testing import recorded
from tests.scripts import run_paths

Start = Callable[..., Any]


def test_every_record_carries_the_runs_id(start: Start) -> None:
    """Points, log records and spans stand under a resource with run id, attempt, rank and project."""
    import logging

    run = start(project="digits")
    with run.stage("a"):
        run.log({"loss": 1.0})
        logging.getLogger("user").warning("hello")
    run.finish()
    record = recorded(run)
    assert len(record.resources) >= 3
    for resource in record.resources:
        assert resource["run_id"] == run.id
        assert resource["run_attempt"] == 1
        assert resource["dl.rank"] == 0
        assert resource["service.name"] == "digits"
        assert resource["service.instance.id"] == service_instance_id(run.id, 0)


def test_equal_seeds_do_not_give_equal_ids(start: Start) -> None:
    """Run, trace and span ids come from the operating system, not from the user's generator."""
    ids = []
    for _ in range(2):
        random.seed(0)
        run = start()
        with run.stage("a"):
            pass
        run.finish()
        record = recorded(run)
        ids.append(
            {span.entry.span_id for span in record.spans} | {span.entry.trace_id for span in record.spans} | {run.id}
        )
    assert len(ids[0]) == 6  # two traces, three spans, one run
    assert not ids[0] & ids[1]


def test_without_a_run_module_level_calls_do_nothing(root: Any) -> None:
    """log, phase and stage may stand in a library that knows of no run."""
    assert otel_train.current_run() is None
    otel_train.log({"loss": 1.0})
    with otel_train.phase("forward"):
        pass
    with otel_train.stage("clean", inputs=["missing.csv"]) as stage:
        stage.output("missing.csv")
        stage.input("missing.csv")
    assert not root.exists()


def test_module_level_calls_reach_the_current_run(start: Start) -> None:
    """They record what the run's own methods record."""
    run = start()
    with otel_train.stage("clean"):
        for _ in run.steps([1]):
            with otel_train.phase("forward"):
                otel_train.log({"loss": 0.5}, split="val")
    run.finish()
    record = recorded(run)
    assert record.values("loss", "val") == [0.5]
    assert [point.attributes["phase"] for point in record.named("dl.phase.time")] == ["forward"]
    assert [stage["name"] for stage in record.info["stages"]] == ["clean"]


def test_the_current_run_is_the_contexts_else_the_only_one_else_none(start: Start) -> None:
    """A thread without a run of its own finds the only open one; where there are two it finds none."""
    found: list[Any] = []

    def look() -> None:
        found.append(otel_train.current_run())

    def elsewhere(target: Callable[[], None]) -> None:
        thread = threading.Thread(target=target)
        thread.start()
        thread.join()

    first = start()
    elsewhere(look)
    second: list[Any] = []
    elsewhere(lambda: second.append(start()))
    elsewhere(look)
    assert otel_train.current_run() is first
    with second[0].use() as used:
        assert used is second[0]
        assert otel_train.current_run() is second[0]
    assert otel_train.current_run() is first
    first.finish()
    assert otel_train.current_run() is second[0]
    elsewhere(look)
    second[0].finish()
    elsewhere(look)
    assert found == [first, None, second[0], None]


def test_a_later_thread_of_the_same_number_does_not_end_anothers_run(start: Start) -> None:
    """A run that a helper thread opened and handed over stays open, whoever gets its number."""
    made: list[Any] = []
    numbers = []

    def make() -> None:
        numbers.append(threading.get_ident())
        made.append(start())

    for _ in range(3):
        thread = threading.Thread(target=make)
        thread.start()
        thread.join()
    assert [run.finished for run in made] == [False] * 3
    assert len(set(numbers)) < 3, "this system gives no number twice: the test shows nothing"


def test_a_given_id_is_taken(start: Start, root: Any) -> None:
    """A scheduler may name the run; the folder has that name."""
    run = start(run_id="job-17.2")
    assert run.id == "job-17.2"
    assert [path.name for path in run_paths(root)] == ["job-17.2"]


@pytest.mark.parametrize("wrong", [".hidden", "a/b", "", "x" * 129, "ä"])
def test_an_id_that_no_folder_can_carry_is_refused(root: Any, wrong: str) -> None:
    """The error names the allowed characters."""
    with pytest.raises(otel_train.ConfigError, match="use 1 to 128 of A-Z"):
        otel_train.init(run_id=wrong)


def test_the_name_of_a_run_follows_from_its_id_unless_given(start: Start) -> None:
    """Two runs of one program are told apart by a readable name."""
    run = start()
    assert run.name.endswith(run.id.rpartition("-")[2][:4])
    assert recorded(run).info["run_name"] == run.name
