"""Faults of telemetry: swallowed and counted in training, seen in tests, and said at most once a minute."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from otel_train.lineage.ranks import Ranks
from otel_train.run.bounded import within
from otel_train.run.guard import Guard, Warner
from otel_train.run.opening import Opening
from otel_train.testing import recorded
from tests.scripts import run_paths

Start = Callable[..., Any]


def test_a_fault_is_swallowed_counted_and_said_once(caplog: pytest.LogCaptureFixture) -> None:
    """Each place is quiet for a minute after it was heard; every fault counts."""
    guard = Guard(raises=False)
    for place in ("log", "log", "stage"):
        with guard(place):
            raise ValueError("inside")
    assert guard.faults == 3
    assert caplog.messages == [
        "log: ValueError: inside; training goes on without this record",
        "stage: ValueError: inside; training goes on without this record",
    ]


def test_under_pytest_a_fault_comes_through() -> None:
    """A test of the user's sees what training would not."""
    guard = Guard()
    assert guard.raises
    with pytest.raises(ValueError, match="inside"), guard("log"):
        raise ValueError("inside")
    assert guard.faults == 0


def test_what_is_no_fault_of_telemetry_passes_through() -> None:
    """Ctrl-C within a call of ours is the user's."""
    with pytest.raises(KeyboardInterrupt), Guard(raises=False)("log"):
        raise KeyboardInterrupt


def test_a_warning_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    """The recurring warning of a loop would hide everything else."""
    warn = Warner()
    for _ in range(3):
        warn("the same")
    warn("another")
    assert caplog.messages == ["the same", "another"]


def test_faults_in_training_are_counted_in_the_last_line(
    start: Start, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """log() with a broken inside does not raise; the end says how often that was."""
    run = start()
    monkeypatch.setattr(run.guard, "_raises", False)
    monkeypatch.setattr(run.points, "log", lambda *about: 1 / 0)
    run.log({"loss": 1.0})
    run.log({"loss": 1.0})
    run.finish()
    assert "2 faults of telemetry, see the log" in capsys.readouterr().err


def test_logging_something_that_is_no_mapping_is_told(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    """The message shows how it is meant."""
    run = start()
    run.log(0.5)
    run.log([("loss", 0.5)])
    run.finish()
    assert 'log: float is not recorded; give names and numbers: run.log({"loss": 0.5})' in caplog.messages
    assert recorded(run).info["status"] == "finished"


def test_work_that_hangs_is_left_behind_in_time(caplog: pytest.LogCaptureFixture) -> None:
    """What ends in time and says True is done; what hangs, raises or says False is not."""
    hang = threading.Event()
    begin_s = time.monotonic()
    assert within(5.0, lambda: True) is True
    assert within(0.05, lambda: hang.wait(10)) is False
    assert within(5.0, lambda: False) is False
    assert within(5.0, lambda: 1 / 0 > 0, "the end") is False
    assert caplog.messages == ["the end failed"]
    assert time.monotonic() - begin_s < 4.0
    hang.set()


def test_where_no_thread_can_be_started_work_is_done_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """As at the end of the interpreter."""

    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    done: list[int] = []
    assert within(5.0, lambda: (done.append(threading.get_ident()), True)[1]) is True
    assert done == [threading.get_ident()]


def test_a_rank_that_nothing_joins_to_others_records_its_own_run(tmp_path: Path) -> None:
    """Without a name of the launch there is nobody to wait for; the run says so."""
    opening = Opening(
        tmp_path, Ranks(rank=2, world_size=4, launcher="env"), run_id=None, resume=None, project="p", sequence=0
    )
    assert not opening.must_wait
    opened = opening.open_main(lambda run_id, attempt: {"run_id": run_id, "attempts": []})
    opened.placed.lock.release()
    assert opened.alone
    assert opened.notice == f"rank 2 records the run {opened.run_id} of its own"
    assert opened.rank_folder == run_paths(tmp_path)[0] / "attempt-1" / "rank-2"


def test_own_diagnostics_go_to_the_logger_of_that_name(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    """Whoever wants silence sets the level of the logger otel_train."""
    with caplog.at_level(logging.ERROR, logger="otel_train"):
        run = start()
        run.log({"text": None})
        run.finish()
    assert caplog.messages == []
