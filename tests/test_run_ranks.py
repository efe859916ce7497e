"""Jobs of several processes: one run for all ranks, each rank's own series, and what is said of an unknown rank."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from otel_train.run import opening
from otel_train.testing import recorded
from tests.scripts import Script, Scripts, own_threads, run_paths

pytestmark = pytest.mark.slow

TRAIN = """
import os, time, logging, otel_train
run = otel_train.init(project="job", config={"lr": 0.1})
for x in run.steps(range(20)):
    run.log({"loss": 1.0 / (x + 1)})
logging.getLogger("user").warning("from rank %s", run.rank)
print(run.id, run.attempt, run.rank)
run.finish()
"""


def launch(
    scripts: Scripts, environments: list[dict[str, str]], text: str = TRAIN, stagger_s: float = 0.0
) -> list[Script]:
    """Start one process for each environment, the last first, and wait for all."""
    processes = []
    for environment in reversed(environments):
        processes.append(scripts.popen(text, env=environment))
        time.sleep(stagger_s)
    return [scripts.end(process) for process in reversed(processes)]


def test_four_processes_are_one_run_of_four_ranks(scripts: Scripts) -> None:
    """One id, ranks 0 to 3, whole-run metrics once, step times of each; nobody opens an empty run."""
    ended = launch(
        scripts, [{"RANK": str(r), "WORLD_SIZE": "4", "LOCAL_RANK": str(r), "MASTER_PORT": "29500"} for r in range(4)]
    )
    assert [script.code for script in ended] == [0] * 4, [script.errors for script in ended]
    said = [script.output.split() for script in ended]
    assert len({words[0] for words in said}) == 1
    assert [words[1:] for words in said] == [["1", str(r)] for r in range(4)]
    path = ended[0].path
    assert sorted(folder.name for folder in path.glob("attempt-1/*")) == [f"rank-{r}" for r in range(4)]
    record = recorded(path)
    losses = record.of("loss")
    assert [point.rank for point in losses] == [0] * 20
    for rank in range(4):
        steps = [point.step for point in record.named("dl.step.time") if point.rank == rank]
        assert steps == list(range(20))
        (mine,) = {r["service.instance.id"] for r in record.resources if r["dl.rank"] == rank}
        assert mine
    assert len({resource["service.instance.id"] for resource in record.resources}) == 4
    assert {resource["dl.world_size"] for resource in record.resources} == {4}
    assert sorted((log.rank, log.body) for log in record.logs if not log.event and log.body.startswith("from")) == [
        (rank, f"from rank {rank}") for rank in range(4)
    ]
    assert [log.rank for log in record.events("run.config")] == [0]
    assert len(record.info["attempts"]) == 1
    assert record.info["attempts"][0]["world_size"] == 4
    assert record.info["status"] == "finished"
    assert "rank 2 does not store run.log" in ended[2].errors
    trace_ids = [{s.entry.trace_id for s in record.spans if s.name == "run" and s.rank == rank} for rank in range(4)]
    assert len(set.union(*trace_ids)) == 1


def test_ids_differ_on_all_ranks_though_seeds_are_equal(scripts: Scripts) -> None:
    """Every rank sets seed 0, as distributed training does; no two spans or traces share an id."""
    text = TRAIN.replace('config={"lr": 0.1}', "seed=0")
    ended = launch(scripts, [{"RANK": str(r), "WORLD_SIZE": "2", "MASTER_PORT": "29501"} for r in range(2)], text)
    record = recorded(ended[0].path)
    ids = [(span.rank, span.entry.span_id) for span in record.spans]
    assert len({number for _, number in ids}) == len(ids) >= 2


def test_every_rank_may_store_its_own_values(scripts: Scripts) -> None:
    """log_ranks="all": each rank's points are there, told apart by the resource."""
    text = TRAIN.replace('project="job"', 'project="job", log_ranks="all"')
    ended = launch(scripts, [{"RANK": str(r), "WORLD_SIZE": "2", "MASTER_PORT": "29502"} for r in range(2)], text)
    record = recorded(ended[0].path)
    assert sorted(point.rank for point in record.of("loss")) == [0] * 20 + [1] * 20


def test_slurm_variables_alone_are_enough(scripts: Scripts) -> None:
    """Two nodes with two tasks each, known by SLURM_PROCID and SLURM_LOCALID: one run, ranks 0 to 3."""
    ended = launch(
        scripts,
        [
            {
                "SLURM_PROCID": str(r),
                "SLURM_LOCALID": str(r % 2),
                "SLURM_NTASKS": "4",
                "SLURM_STEP_ID": "0",
                "SLURM_JOB_ID": "17",
            }
            for r in range(4)
        ],
    )
    assert [script.code for script in ended] == [0] * 4, [script.errors for script in ended]
    record = recorded(ended[0].path)
    assert sorted({(r["dl.rank"], r["dl.local_rank"]) for r in record.resources}) == [(0, 0), (1, 1), (2, 0), (3, 1)]
    assert [point.rank for point in record.of("loss")] == [0] * 20


def test_only_procid_and_localid_of_slurm(scripts: Scripts) -> None:
    """Without the number of tasks the ranks still find one run, and the unknown size is said."""
    ended = launch(scripts, [{"SLURM_PROCID": str(r), "SLURM_LOCALID": str(r % 2)} for r in range(4)])
    assert [script.code for script in ended] == [0] * 4, [script.errors for script in ended]
    record = recorded(ended[0].path)
    assert sorted({resource["dl.rank"] for resource in record.resources}) == [0, 1, 2, 3]
    assert [point.rank for point in record.of("loss")] == [0] * 20
    assert "the number of processes is not known" in ended[3].errors


def test_a_local_rank_alone_is_no_global_rank(scripts: Scripts) -> None:
    """The process records a run of its own as rank 0, and says why."""
    (ended,) = launch(scripts, [{"LOCAL_RANK": "1"}])
    record = recorded(ended.path)
    assert {resource["dl.rank"] for resource in record.resources} == {0}
    assert {resource["dl.local_rank"] for resource in record.resources} == {1}
    assert "LOCAL_RANK=1 is set, but RANK is not" in ended.errors
    notices = [log.body for log in record.events("otel_train.notice")]
    assert any("LOCAL_RANK=1 is set, but RANK is not" in notice for notice in notices)
    assert len(record.of("loss")) == 20


def test_the_launchers_restart_is_the_next_attempt(scripts: Scripts) -> None:
    """The workers that torchrun starts anew go on with the same run, each in its own folder."""
    text = TRAIN.replace("run.finish()", "os._exit(1) if os.environ['TORCHELASTIC_RESTART_COUNT'] == '0' else None")
    text = text.replace("run.rank)\nos", "run.rank, flush=True)\nrun.flush()\nos")

    def workers(restart: int) -> list[Script]:
        return launch(
            scripts,
            [
                {
                    "RANK": str(r),
                    "WORLD_SIZE": "2",
                    "LOCAL_RANK": str(r),
                    "LOCAL_WORLD_SIZE": "2",
                    "TORCHELASTIC_RUN_ID": "none",
                    "TORCHELASTIC_RESTART_COUNT": str(restart),
                    "MASTER_ADDR": "127.0.0.1",
                    "MASTER_PORT": "29503",
                }
                for r in range(2)
            ],
            text,
        )

    first, second = workers(0), workers(1)
    assert [script.code for script in first + second] == [1, 1, 0, 0], [script.errors for script in first + second]
    record = recorded(second[0].path)
    assert [entry["attempt"] for entry in record.info["attempts"]] == [1, 2]
    assert sorted({(r["run_attempt"], r["dl.rank"]) for r in record.resources}) == [(1, 0), (1, 1), (2, 0), (2, 1)]
    assert [(point.attempt, point.rank) for point in record.of("loss")] == [(1, 0)] * 20 + [(2, 0)] * 20
    assert record.info["attempts"][1]["resumed_from"] == 1


def test_a_rank_that_is_done_before_rank_0_has_begun_loses_nothing(scripts: Scripts) -> None:
    """Its records wait for the id, also within finish()."""
    environments = [{"RANK": str(r), "WORLD_SIZE": "2", "MASTER_PORT": "29504"} for r in range(2)]
    text = TRAIN.replace("print(run.id, run.attempt, run.rank)\n", "")
    ended = launch(scripts, environments, text, stagger_s=1.5)
    assert [script.code for script in ended] == [0, 0], [script.errors for script in ended]
    record = recorded(ended[0].path)
    assert [point.step for point in record.named("dl.step.time") if point.rank == 1] == list(range(20))
    assert [log.body for log in record.logs if log.rank == 1 and not log.event] == [
        "rank 1 does not store run.log, which rank 0 does for all; "
        'with init(log_ranks="all") every rank stores its own',
        "from rank 1",
    ][1:]


def test_a_rank_without_rank_0_ends_in_time_and_says_what_is_lost(scripts: Scripts) -> None:
    """Rank 0 never comes: training is not held up, and the end takes its five seconds at most."""
    text = TRAIN.replace("print(run.id, run.attempt, run.rank)\n", "").replace(
        'project="job"', 'project="job", finish_timeout_s=1'
    )
    (ended,) = launch(scripts, [{"RANK": "1", "WORLD_SIZE": "2", "MASTER_PORT": "29505"}], text)
    assert ended.code == 0
    assert ended.seconds < 20
    assert re.search("the run ended before its id was known; 2[01] entries and all records are lost", ended.errors)


def test_two_processes_of_one_rank_are_told(scripts: Scripts) -> None:
    """A launcher that gives one rank twice: two runs where nothing joins them, never one folder with two writers."""
    first = scripts.popen(TRAIN.replace("run.finish()", "time.sleep(3); run.finish()"), env={"OTEL_TRAIN_NAME": "a"})
    ended = scripts(TRAIN)
    other = scripts.end(first)
    assert (ended.code, other.code) == (0, 0)
    assert len(ended.paths) == 2
    for path in ended.paths:
        assert len(recorded(path).of("loss")) == 20


def test_a_run_that_was_given_up_waits_for_nobody(start: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """After the end no thread looks for rank 0 any more, and none opens a run of its own."""
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("MASTER_PORT", "29506")
    run = start(finish_timeout_s=0.8)
    assert repr(run) == "<Run (waiting for rank 0)>"
    run.log({"loss": 1.0})
    assert run.flush(0.1) is False
    run.finish()
    assert own_threads(2.0) == []
    root = run.session.root
    assert not root.exists() or run_paths(root) == []


def test_a_rank_that_hears_of_no_rank_0_records_a_run_of_its_own(
    start: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, root: Path
) -> None:
    """After the wait what it held, and what it logs from then on, goes into a run that says why."""
    monkeypatch.setattr(opening, "RANK_WAIT_NS", 300_000_000)
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("MASTER_PORT", "29507")
    run = start(project="job", config={"lr": 0.5})
    run.event("early", "held")
    assert run.id == run.path.name
    run.log({"loss": 1.0})
    run.finish()
    (path,) = run_paths(root)
    record = recorded(path)
    assert record.event("early").body == "held"
    assert record.values("loss") == [1.0]
    assert (record.info["status"], record.info["project"]) == ("finished", "job")
    assert record.info["attempts"][0]["config"] == {"lr": 0.5}
    notices = [log.body for log in record.events("otel_train.notice")]
    assert any("rank 1 saw no run id of rank 0" in notice for notice in notices)
