"""What was not kept of a run: by the recorder's counters, by the accounts at its ends, and where there is none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from otel_train.record.entries import Sample
from otel_train.view import overview
from otel_train.view.reading import read_run
from otel_train.view.run_data import RunData
from tests.runs import NS_PER_S, START_NS, RunBuilder


def read(builder: RunBuilder) -> RunData:
    return read_run(builder.path, START_NS + 900 * NS_PER_S)


def account(**causes: int) -> dict[str, Any]:
    return {"recorded": {"metrics": 5}, "dropped": {"metrics": {key.replace("_", " "): n for key, n in causes.items()}}}


def test_the_accounts_of_the_attempts_are_added_and_the_larger_count_is_told(tmp_path: Path) -> None:
    """Readings stop where a disk takes no more; the account, made after them, knows the rest."""
    builder = RunBuilder(tmp_path).attempt(accounting=account(disk_not_writable=7)).attempt(2)
    builder.samples(1, [Sample("otel_train.points", 3, (("outcome", "disk not writable"),))])
    builder.samples(1, [Sample("otel_train.points", 4, (("outcome", "buffer full"),))])
    builder.end(accounting=account(disk_not_writable=2, buffer_full=1))
    assert overview.dropped(read(builder)) == {"points": {"disk not writable": 9, "buffer full": 4}}


@pytest.mark.parametrize(
    "broken",
    [None, "text", [], {"dropped": []}, {"dropped": {"metrics": 3}}, {"dropped": {"metrics": {"cause": "many"}}}],
)
def test_an_account_that_is_damaged_counts_nothing(tmp_path: Path, broken: Any) -> None:
    """A description of any kind is read without a fault."""
    run = read(RunBuilder(tmp_path).attempt(accounting=broken).end())
    assert overview.dropped(run) == {}
    assert overview.dropped_text(run) == "nothing"


def test_a_run_whose_end_is_in_its_log_alone_has_no_account(tmp_path: Path) -> None:
    """On a full disk the last line of the log may still fit where run.json does not: then nothing is claimed."""
    builder = RunBuilder(tmp_path).attempt().log({"loss": [1.0]}, steps=[0])
    builder.record("run finished", event="run.end", at_s=30, status="finished")
    run = read(builder)
    assert run.state == "finished"
    assert overview.dropped_text(run) == "not known: no account was written at the end"
    assert "could not be written to run.json" in str(overview.notices(run, run.metrics()))


def test_a_lost_run_says_what_was_counted_so_far(tmp_path: Path) -> None:
    """Its process wrote no account; what its readings counted is told, as all that is known."""
    builder = RunBuilder(tmp_path).attempt()
    builder.samples(1, [Sample("otel_train.points", 3, (("outcome", "buffer full"),))])
    run = read(builder)
    assert run.state == "lost"
    assert overview.dropped_text(run) == "3 points (buffer full): no account was written at the end"
