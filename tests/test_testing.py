"""The public test doubles: a clock that a test moves, and a reader of what a run has on record."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from otel_train.errors import RunFolderError
from otel_train.testing import ManualClock, Point, recorded

Start = Callable[..., Any]


def test_the_clock_stands_still_until_it_is_moved() -> None:
    """Both clocks go on together; setting the wall clock leaves the other alone; time never goes back by itself."""
    clock = ManualClock(wall_ns=100, mono_ns=7)
    assert (clock.wall_ns(), clock.mono_ns()) == (100, 7)
    clock.advance(1.5)
    assert (clock.wall_ns(), clock.mono_ns()) == (1_500_000_100, 1_500_000_007)
    clock.set_wall(5)
    assert (clock.wall_ns(), clock.mono_ns()) == (5, 1_500_000_007)
    with pytest.raises(ValueError, match="set_wall"):
        clock.advance(-1)


def test_an_open_run_is_read_up_to_now(start: Start) -> None:
    """What was logged before the call is there, whatever the flush interval."""
    run = start(flush_interval_s=1)
    run.log({"loss": 0.5})
    assert recorded(run).values("loss") == [0.5]
    run.log({"loss": 0.25})
    assert recorded(run).values("loss") == [0.5, 0.25]


def test_points_are_found_by_key_split_and_full_name(start: Start) -> None:
    """A key with its split, a split beside it, and the metric's own name lead to the same points."""
    run = start()
    run.log({"loss": 1.0, "Loss/val": 2.0, "lr": 0.1}, step=4, epoch=2)
    run.finish()
    record = recorded(run.path)
    assert record.values("loss", "train") == [1.0]
    assert record.values("val/Loss") == record.values("Loss", "validation") == [2.0]
    assert record.values("lr") == [0.1]
    assert record.steps("lr") == [4]
    (point,) = record.named("train.lr")
    assert point == Point(
        name="train.lr", key="lr", split="", value=0.1, time_ns=point.time_ns, step=4, epoch=2, attributes={}
    )
    assert record.named("train.lr", "val") == []


def test_an_event_that_is_not_there_is_named_with_those_that_are(start: Start) -> None:
    """The message helps in a test that fails."""
    run = start()
    run.finish()
    with pytest.raises(LookupError, match=r"0 events 'model.best' instead of one; there are .*run\.start"):
        recorded(run).event("model.best")


def test_records_tell_level_and_event(start: Start) -> None:
    """A record has the short names that tests ask for."""
    run = start()
    run.event("mine", "text", {"a": 1})
    run.finish()
    log = recorded(str(run.path)).event("mine")
    assert (log.event, log.body, log.level, log.attributes["a"], log.attempt, log.rank) == (
        "mine",
        "text",
        "INFO",
        1,
        1,
        0,
    )
    assert recorded(run).messages == []


def test_a_folder_of_no_run_is_an_error(tmp_path: Path) -> None:
    """The error says what is wrong with the folder."""
    with pytest.raises(RunFolderError, match="not there"):
        recorded(tmp_path / "nothing")
