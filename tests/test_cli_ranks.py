"""What `runs` and `show` tell of the ranks of a job, while it goes on and after it fell."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from otel_train.cli.main import main
from otel_train.clock import NS_PER_S
from otel_train.record.entries import Sample
from otel_train.runlog.lock import WriterLock
from otel_train.runlog.processes import Processes
from otel_train.runlog.pulse import Pulse, PulseFile
from tests.runs import RUN_ID, START_NS, RunBuilder


@pytest.fixture
def job(tmp_path: Path) -> RunBuilder:
    """Three ranks on this machine, of which none is alive; rank 1 has the oldest sign of life."""
    builder = RunBuilder(tmp_path).attempt(host=Processes().host(), pid=99_999_999)
    for rank, at_s in ((0, 9), (1, 5), (2, 8)):
        file = PulseFile(builder.folder.rank_folder(1, rank))
        time_ns = START_NS + at_s * NS_PER_S
        file.write(Pulse(time_ns=time_ns, rank=rank, host=Processes().host(), pid=99_999_990 + rank, step=3 + rank))
        file.close()
    return builder


def test_a_job_of_which_all_ranks_were_killed(job: RunBuilder, capsys: pytest.CaptureFixture[str]) -> None:
    """Nobody was left to say so: both commands name the first, by its last sign of life."""
    root = str(job.path.parent)
    assert main(["runs", "--dir", root]) == 0
    sentence = f"attempt 1 ended because rank 1 ({Processes().host()}, process 99999991) was killed at step 4"
    printed = capsys.readouterr()
    assert f"{RUN_ID}: {sentence}" in printed.err
    assert "lost" in printed.out
    assert main(["runs", "--dir", root, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["fallen_rank"] == sentence
    assert main(["show", str(job.path)]) == 0
    shown = capsys.readouterr().out
    assert sentence in shown
    assert [line.split()[:4] for line in shown.splitlines() if line.startswith(("0  ", "1  ", "2  "))] == [
        [str(rank), Processes().host(), "lost", str(3 + rank)] for rank in range(3)
    ]
    assert main(["show", str(job.path), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["causes"] == [sentence]
    assert [(row["rank"], row["state"], row["step"]) for row in told["ranks"]] == [
        (0, "lost", 3),
        (1, "lost", 4),
        (2, "lost", 5),
    ]


def test_a_job_that_goes_on_without_one_rank(job: RunBuilder, capsys: pytest.CaptureFixture[str]) -> None:
    """Ranks 0 and 2 hold their locks: the run goes on, and rank 1 is named all the same."""
    locks = [WriterLock(job.folder.rank_folder(1, rank)) for rank in (0, 2)]
    assert all(lock.acquire() for lock in locks)
    try:
        assert main(["runs", "--dir", str(job.path.parent)]) == 0
        assert main(["show", str(job.path), "--json"]) == 0
    finally:
        for lock in locks:
            lock.release()
    printed = capsys.readouterr()
    assert "running" in printed.out
    assert "in attempt 1 rank 1" in printed.err
    assert "was killed at step 4" in printed.err
    shown, told = printed.out.partition("causes")[::2]
    assert "in attempt 1 rank 1" in told
    assert shown


def test_a_run_of_one_process_has_no_ranks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is said of ranks where there is one, however it ended."""
    path = RunBuilder(tmp_path).attempt().samples(1.0, [Sample("dl.run.heartbeat", 1.0)]).path
    assert main(["show", str(path), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["causes"], told["ranks"]) == ([], [])
    assert main(["runs", "--dir", str(tmp_path)]) == 0
    assert "rank" not in capsys.readouterr().err
    assert os.listdir(path / "attempt-1") == ["rank-0"]
