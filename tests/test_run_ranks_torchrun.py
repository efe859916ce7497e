"""Jobs started by the real torchrun: one rank slowed, killed, hung or failed on purpose, and what is said of it."""

from __future__ import annotations

import contextlib
import io
import json
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import numpy as np
import pytest

from otel_train.cli.main import main
from otel_train.clock import wall_ns
from otel_train.runlog.folder import RunFolder
from otel_train.runlog.rank_states import rank_states
from otel_train.runlog.reader import RunReader
from otel_train.testing import Recorded, recorded
from otel_train.watch.straggler import scores
from tests.torchruns import Torchrun, faulty

# A loaded machine with two cores takes half a minute to start four processes with torch.
pytestmark = [pytest.mark.slow, pytest.mark.alone, pytest.mark.timeout(420)]
START_S = 150.0
HUNG_S = 3.0
ALERTS = f"hung_min_s={HUNG_S:.0f},hung_factor=10"


@pytest.fixture
def job(tmp_path: Path) -> Iterator[list[Torchrun]]:
    """The launches of a test, which are ended with it."""
    started: list[Torchrun] = []
    yield started
    for one in started:
        one.kill()


def times_of(record: Recorded, attempt: int = 1) -> dict[int, tuple[list[float], list[float]]]:
    """Return step times and own times of each rank."""
    times: dict[int, tuple[list[float], list[float]]] = {}
    for place, name in enumerate(("dl.step.time", "dl.rank.busy.time")):
        for point in record.named(name):
            if point.attempt == attempt:
                times.setdefault(point.rank, ([], []))[place].append(point.value)
    return times


def scores_by_numpy(times: dict[int, tuple[list[float], list[float]]]) -> dict[int, float]:
    """Return the scores as the recording rule works them out."""
    usual = np.quantile([median(own) for _, own in times.values()], 0.25)
    return {rank: median(whole) / (median(whole) - median(own) + usual) for rank, (whole, own) in times.items()}


def shown(path: Path, *command: str) -> str:
    """Return what a command prints of a run."""
    with contextlib.redirect_stdout(io.StringIO()) as output:
        assert main([command[0], str(path), *command[1:]]) == 0
    return output.getvalue()


@pytest.mark.parametrize("fault", ["2:sleep:0.05", "1:loading:0.003", "3:work:40"])
def test_a_slow_rank_is_named_and_no_other(tmp_path: Path, job: list[Torchrun], fault: str) -> None:
    """Sleeping, loading data for long, or more work: only that rank's own time grows, though all steps take as long."""
    job.append(faulty(tmp_path, fault))
    assert job[0].end(START_S + 100) == 0, job[0].output
    record = recorded(job[0].path)
    assert sorted({resource["dl.rank"] for resource in record.resources}) == [0, 1, 2, 3]
    times = times_of(record)
    assert {rank: (len(whole), len(own)) for rank, (whole, own) in times.items()} == dict.fromkeys(range(4), (69, 69))
    slow = int(fault[0])
    found = scores(times)
    assert found == pytest.approx(scores_by_numpy(times))
    assert found[slow] > 1.5
    assert max(score for rank, score in found.items() if rank != slow) < 1.5
    whole = [median(of_rank) for of_rank, _ in times.values()]
    assert max(whole) < 1.3 * min(whole), "all ranks wait for the slow one, so their steps take as long"
    if "sleep" in fault:
        assert 0.05 <= median(times[slow][1]) < 0.1
    gauges = {point.rank: point.value for point in record.named("dl.rank.straggler")}
    assert max(gauges, key=lambda rank: gauges[rank]) == slow
    assert gauges[slow] > 1.5
    assert record.events("health.hung") == []
    assert record.events("rank.lost") == []
    assert len({span.entry.trace_id for span in record.spans if span.name == "run"}) == 1
    (row,) = [line.split() for line in shown(job[0].path, "show").splitlines() if line.startswith(f"{slow}  ")]
    assert row[2] == "finished"


def test_a_healthy_job_names_nobody(tmp_path: Path, job: list[Torchrun]) -> None:
    """Four equal ranks on two cores: nobody's score comes near the threshold, and no rank is said to hang."""
    job.append(faulty(tmp_path, "9:sleep:1"))
    assert job[0].end(START_S + 60) == 0, job[0].output
    record = recorded(job[0].path)
    assert max(scores(times_of(record)).values()) < 1.5
    assert [log.event for log in record.logs if log.level == "ERROR"] == []
    assert "straggler" in shown(job[0].path, "show")


def test_a_killed_rank_is_named_and_the_restart_joins(tmp_path: Path, job: list[Torchrun]) -> None:
    """Rank 2 gets SIGKILL at its 45th step: rank 0 says so; torchrun's restart is attempt 2, which says it again."""
    job.append(faulty(tmp_path, "2:kill:0:45", restarts=1))
    assert job[0].end(2 * START_S) == 0, job[0].output
    record = recorded(job[0].path)
    pids = {r["dl.rank"]: r["process.pid"] for r in record.resources if r["run_attempt"] == 1}
    (lost,) = record.events("rank.lost")
    assert (lost.attempt, lost.rank, lost.level) == (1, 0, "ERROR")
    assert (lost.attributes["rank"], lost.attributes["process.pid"]) == (2, pids[2])
    assert lost.attributes["state"] == "lost"
    # It was killed in step 44; its writer puts steps on disk every half a second.
    assert 1 <= lost.attributes["dl.step"] <= 44
    (ended,) = record.events("attempt.ended")
    assert (ended.attempt, ended.rank) == (2, 0)
    assert (ended.attributes["attempt"], ended.attributes["rank"], ended.attributes["state"]) == (1, 2, "lost")
    first, second = record.info["attempts"]
    assert (first["cause"]["rank"], first["cause"]["state"], first["cause"]["pid"]) == (2, "lost", pids[2])
    assert first["status"] in ("failed", "killed", "lost")
    assert (second["attempt"], second["status"], second["resumed_from"]) == (2, "finished", 1)
    assert sorted({r["dl.rank"] for r in record.resources if r["run_attempt"] == 2}) == [0, 1, 2, 3]
    assert record.info["status"] == "finished"
    text = shown(job[0].path, "show")
    assert "attempt 1 ended because rank 2" in text
    assert f"process {pids[2]}) was killed at step" in text
    rows = json.loads(shown(job[0].path, "show", "--json"))["ranks"]
    assert [row["rank"] for row in rows if row["state"] == "lost"] == [2]
    assert {row["state"] for row in rows if row["attempt"] == 2} == {"finished"}


def test_a_failed_rank_is_the_first_though_others_fail_of_it(tmp_path: Path, job: list[Torchrun]) -> None:
    """Rank 1 raises: the others' errors about lost connections, and torchrun's SIGTERM, are not taken for the cause."""
    job.append(faulty(tmp_path, "1:fail:0:8"))
    assert job[0].end(START_S) != 0
    states = rank_states(RunFolder(job[0].path), 1, wall_ns())
    assert states[1].state == "failed"
    assert states[1].reason == "ValueError: planted"
    cause = recorded(job[0].path).info["attempts"][0]["cause"]
    assert (cause["rank"], cause["state"], cause["reason"]) == (1, "failed", "ValueError: planted")
    assert "attempt 1 ended because rank 1" in shown(job[0].path, "show")


def hung_ranks(folder: RunFolder) -> set[int]:
    """Return the ranks in whose logs, or about whom, a hang is said."""
    found = set()
    for _, rank, _ in folder.rank_folders(1):
        for entry, _ in RunReader(folder.path).logs(1, rank):
            if entry.event_name == "health.hung":
                found.add(int(entry.attributes.get("rank", rank)))
    return found


def test_a_hung_rank_writes_its_stacks_and_the_others_say_that_they_wait(tmp_path: Path, job: list[Torchrun]) -> None:
    """Rank 3 stands still in its 12th step: within the stated time all stacks are there; later only it is blamed."""
    job.append(faulty(tmp_path, "3:hang:1000:12", OTEL_TRAIN_ALERTS=ALERTS))
    job[0].wait_for(lambda folder: hung_ranks(folder) == {0, 1, 2, 3}, START_S + 60)
    time.sleep(2.5)  # the next pulse of each rank, every two seconds, says that it hangs
    job[0].kill()
    record = recorded(job[0].path)
    events = {log.rank: log for log in record.events("health.hung")}
    assert sorted(events) == [0, 1, 2, 3]
    stacks = {rank: str(log.attributes["code.stacktrace"]) for rank, log in events.items()}
    assert "in hang_on_purpose" in stacks[3]
    assert "in after_step" in stacks[3]
    for rank in (0, 1, 2):
        assert "hang_on_purpose" not in stacks[rank]
        assert "torch/nn/parallel/distributed.py" in stacks[rank] or "torch/autograd" in stacks[rank]
    assert {rank: log.attributes["waits_for_others"] for rank, log in events.items()} == {
        0: True,
        1: True,
        2: True,
        3: False,
    }
    for rank, log in events.items():
        assert log.level == "ERROR"
        limit_s = float(log.attributes["threshold"])  # type: ignore[arg-type]
        assert limit_s >= HUNG_S
        assert limit_s < float(log.attributes["value"]) < limit_s + 10  # type: ignore[arg-type]
        kept = Path(str(log.attributes["flight_recorder"]))
        assert kept.parent.name == f"rank-{rank}"
        assert {entry["profiling_name"] for entry in json.loads(kept.read_bytes())["entries"]} >= {"gloo:all_reduce"}
    states = rank_states(RunFolder(job[0].path), 1, wall_ns())
    assert [state.hangs for state in states] == [False, False, False, True]
    text = shown(job[0].path, "show")
    assert "attempt 1 ended because rank 3" in text
    assert ") hung at step " in text


def test_a_rank_that_hangs_with_the_interpreters_lock_is_seen_too(tmp_path: Path, job: list[Torchrun]) -> None:
    """No Python code of rank 3 runs any more: the kernel's timer has its stacks written, and rank 0 records them."""
    job.append(faulty(tmp_path, "3:lock:1000:12", OTEL_TRAIN_ALERTS=ALERTS))
    job[0].wait_for(lambda folder: 3 in hung_ranks(folder), START_S + 60)
    job[0].kill()
    record = recorded(job[0].path)
    (event,) = [log for log in record.events("health.hung") if log.attributes.get("rank") == 3]
    assert (event.rank, event.level) == (0, "ERROR")
    assert "in hang_with_the_lock" in str(event.attributes["code.stacktrace"])
    assert "in hang_with_the_lock" in (job[0].path / "attempt-1/rank-3/stacks.txt").read_text(encoding="utf-8")
    assert "rank 3" in shown(job[0].path, "show")
    assert "hung with the interpreter's lock held" in shown(job[0].path, "show")
