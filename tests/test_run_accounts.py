"""A run keeps its accounts: what its time went to, what it processed, and what an earlier attempt lost."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from otel_train.record.optimizer_steps import OptimizerSteps
from otel_train.run.activity import state_of
from otel_train.testing import Recorded, recorded
from tests.scripts import Scripts

Start = Callable[..., Any]


def newest(record: Recorded, name: str) -> Any:
    """The last value of a metric without attributes."""
    return [point.value for point in record.points if point.name == name and not point.attributes][-1]


def times(record: Recorded, attempt: int = 1) -> dict[str, float]:
    """Seconds by state, as they were said last."""
    return {
        str(point.attributes["state"]): float(point.value or 0)
        for point in record.points
        if point.name == "dl.time" and point.attempt == attempt
    }


def work(seconds: float) -> None:
    """Keep this thread for a while."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        time.sleep(0.001)


def test_all_states_of_a_real_run_add_up_to_its_time(start: Start, tmp_path: Path) -> None:
    """Steps, an evaluation, a phase for validation, a checkpoint, a stage: each has its time, and no more."""
    outside = dict.fromkeys(("run", "evaluation", "checkpoint", "idle", "loop"), 0.0)

    @contextmanager
    def around(what: str) -> Iterator[None]:
        began_s = time.perf_counter()
        yield
        outside[what] += time.perf_counter() - began_s

    with around("run"):
        run = start()
        began_s = time.perf_counter()
        with around("loop"):
            for step in run.steps(range(4)):
                work(0.02)
                if step == 1:
                    with around("evaluation"):
                        for _ in run.steps(range(2), split="val"):
                            work(0.04)
                if step == 2:
                    with around("evaluation"), run.phase("validation"):
                        work(0.03)
                    with around("checkpoint"):
                        run.save_checkpoint(tmp_path / "model.bin", b"x", save=_write_slowly)
                if step == 3:
                    with around("idle"), run.stage("export"):
                        work(0.06)
        used_s = time.perf_counter() - began_s
        run.finish()
    spent = times(recorded(run))
    assert set(spent) == {"productive", "data", "evaluation", "checkpoint", "start-up", "idle"}
    assert used_s <= sum(spent.values()) <= outside["run"]
    assert 0.11 <= spent["evaluation"] <= outside["evaluation"]
    assert 0.05 <= spent["checkpoint"] <= outside["checkpoint"]
    training_s = spent["productive"] + spent["data"]
    elsewhere_s = outside["evaluation"] + outside["checkpoint"] + outside["idle"]
    assert max(0.08, outside["loop"] - elsewhere_s - 0.01) <= training_s
    assert training_s <= outside["loop"] - 0.06 - spent["evaluation"] - spent["checkpoint"]
    assert newest(recorded(run), "dl.productive.share") == pytest.approx(spent["productive"] / sum(spent.values()))


def _write_slowly(obj: Any, path: str) -> None:
    work(0.05)
    Path(path).write_bytes(obj)


def test_a_run_that_fails_within_a_step_has_all_its_time(start: Start) -> None:
    """The exception ends the loop's body: that step counts up to there."""
    run = start()

    def train() -> None:
        for _ in run.steps(range(3)):
            work(0.02)
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"), run:
        train()
    spent = times(recorded(run))
    assert 0.02 <= spent["productive"] <= sum(spent.values())


def test_the_job_has_as_many_times_a_rank_as_there_are_ranks(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rank 0 of four, of which two compute one batch together: twice its own rate."""
    for name, value in (("RANK", "0"), ("WORLD_SIZE", "4"), ("LOCAL_RANK", "0")):
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("OTEL_TRAIN_LAUNCH_KEY", "accounts")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "dl.tensor_parallel.size=2")
    run = start()
    for _ in run.steps(range(8), accumulate=4):
        run.count(tokens=1000, samples=2)
    run.finish()
    record = recorded(run)
    for what in ("samples", "tokens"):
        rank, job = newest(record, f"dl.rank.{what}_per_second"), newest(record, f"dl.job.{what}_per_second")
        assert job == pytest.approx(2 * rank)
    assert newest(record, "dl.rank.tokens") == 8000
    assert newest(record, "dl.optimizer.step") == 2


TWO_RANKS = """
import otel_train

run = otel_train.init()
for step in run.steps(range(5)):
    run.count(samples=3)
run.finish()
"""


@pytest.mark.slow
def test_another_rank_says_nothing_of_the_job(scripts: Scripts) -> None:
    """Two processes of one launch: each has its own rate, rank 0 that of the job as well."""
    launch = {"WORLD_SIZE": "2", "OTEL_TRAIN_LAUNCH_KEY": "accounts of two"}
    processes = [scripts.popen(TWO_RANKS, env={**launch, "RANK": str(rank)}) for rank in range(2)]
    for process in processes:
        assert scripts.end(process).code == 0
    (path,) = [path for path in scripts.root.iterdir() if not path.name.startswith(".")]
    rates = {(point.rank, point.name) for point in recorded(path).points if point.name.endswith("_per_second")}
    assert rates == {
        (0, "dl.rank.samples_per_second"),
        (0, "dl.job.samples_per_second"),
        (1, "dl.rank.samples_per_second"),
    }


def test_time_left_is_known_with_the_end(start: Start) -> None:
    """Two of four steps are done, at 50 ms each: about 0.1 s is left; a loop without an end says nothing."""
    run = start()
    steps = iter(run.steps(range(4)))
    for _ in range(2):
        next(steps)
        work(0.05)
    run.flush()
    watcher = run.session._recorder._watcher._made
    samples = watcher.heartbeat(ended=False)
    spent = {dict(sample.attributes).get("state"): sample.value for sample in samples if sample.name == "dl.time"}
    found = {sample.name: sample.value for sample in samples}
    # The second step is under way, and counts as begun; its time so far is booked: half is done, half is left.
    assert found["dl.run.time_left"] == pytest.approx(spent["productive"] + spent["data"])
    assert found["dl.run.time_left"] >= 0.1
    list(steps)
    run.finish()
    assert "dl.run.time_left" not in {point.name for point in recorded(run).points if point.value == 0}
    endless = start()
    for _ in endless.steps(iter(range(4))):
        pass
    endless.finish()
    assert "dl.run.time_left" not in {point.name for point in recorded(endless).points}


def test_the_length_of_a_training_may_be_said(start: Start) -> None:
    """A framework knows its last step, or its epochs: 3 of 12, numbered from 0; epoch 1 of 4 and half of it."""
    run = start()
    run.progress.known_end(steps=12)
    for _ in run.steps(range(3)):
        pass
    assert run.progress.share() == pytest.approx(3 / 12)
    other = start()
    other.progress.known_end(epochs=4)
    for epoch in range(2):
        other.points.epoch = epoch
        for number, _ in enumerate(other.steps(range(10))):
            if epoch == 1 and number == 4:
                break
    assert other.progress.share() == pytest.approx(1.5 / 4)


@pytest.mark.slow
def test_a_sampled_run_has_the_memory_of_its_tree(root: Path) -> None:
    """The machine's sampler reads it beside the process: about what the process itself has resident."""
    import otel_train

    with otel_train.init(git=False, sample_interval_s=0.1) as run:
        until_s = time.monotonic() + 20
        found: list[Any] = []
        while not found and time.monotonic() < until_s:
            work(0.2)
            run.flush()
            found = [point for point in recorded(run).points if point.name == "dl.process_tree.memory"]
    own = [point for point in recorded(run).points if point.name == "process.memory.usage"]
    assert own[0].value is not None
    assert own[0].value / 4 < found[0].value < own[0].value * 4
    assert found[0].kind == "updowncounter"


KILLED = """
import os, time
import otel_train

run = otel_train.init(run_id="20260101-000000-aaaaaaaa")
for step in run.steps(range(100)):
    time.sleep(0.01)
    if step == 10:
        run.save_checkpoint("model.bin", b"x", save=lambda obj, path: open(path, "wb").write(obj))
    if step == 60:
        run.flush()
        os.kill(os.getpid(), 9)
"""
RESUMED = """
import otel_train

run = otel_train.init(resume="20260101-000000-aaaaaaaa")
for step in run.steps(range(4), accumulate=2):
    run.count(samples=8)
run.finish()
"""


@pytest.mark.slow
@pytest.mark.alone
def test_a_resumed_run_says_what_was_lost_and_counts_its_own_work(scripts: Scripts) -> None:
    """Killed 50 steps of 10 ms after its checkpoint: half a second of it is done again; 4 micro-batches are new."""
    assert scripts(KILLED).code == -9
    assert scripts(RESUMED).code == 0
    record = recorded(scripts.root / "20260101-000000-aaaaaaaa")
    lost_s = times(record, attempt=2)["lost"]
    assert 0.5 <= lost_s < 2.0
    second = {point.name: point.value for point in record.points if point.attempt == 2 and not point.attributes}
    assert second["dl.rank.samples"] == 32
    assert second["dl.micro_step"] == 4
    # It goes on at micro-batch 11, after the checkpoint: five optimizer steps were done, and two more are.
    assert second["dl.optimizer.step"] == 7
    assert "lost" not in times(record, attempt=1)


def test_the_best_source_of_optimizer_steps_counts() -> None:
    """What a framework says with its numbers goes before what hooks saw, and that before micro-batches."""
    steps = OptimizerSteps()
    assert (steps.source, steps.done) == ("", None)
    steps.note("accumulate", 5)
    steps.advance("hooks")
    steps.advance("hooks", by=2)
    assert (steps.source, steps.done) == ("hooks", 3)
    steps.note("log", 40)
    steps.advance("hooks")
    assert (steps.source, steps.done) == ("log", 40)
    with pytest.raises(ValueError, match="guess"):
        steps.note("guess", 1)


def test_optimizer_steps_that_are_logged_are_the_runs(start: Start) -> None:
    """`optimizer_step` in `run.log` is what the heartbeat says as well."""
    run = start()
    for step in run.steps(range(4), accumulate=4):
        run.log({"loss": 1.0, "optimizer_step": 7 + step})
    run.finish()
    assert newest(recorded(run), "dl.optimizer.step") == 10


@pytest.mark.parametrize(
    ("name", "state"),
    [
        ("validation", "evaluation"),
        ("eval_step", "evaluation"),
        ("test", "evaluation"),
        ("save_checkpoint", "checkpoint"),
        ("ckpt", "checkpoint"),
        ("export", ""),
        ("latest_batch", ""),
    ],
)
def test_phases_and_stages_are_known_by_their_name(name: str, state: str) -> None:
    """Evaluation and checkpoints have states of their own; what else is no training is idle."""
    assert state_of(name) == state


def test_without_steps_nothing_is_said(start: Start) -> None:
    """A run that only logs: nobody knows what its time went to."""
    run = start()
    run.log({"loss": 1.0})
    run.finish()
    names = {point.name for point in recorded(run).points}
    assert not names & {"dl.time", "dl.productive.share", "dl.micro_step", "dl.rank.samples", "dl.optimizer.step"}


def test_a_loop_told_by_calls_rests_between_its_steps(start: Start) -> None:
    """A framework's loop evaluates between two steps: that is evaluation, what follows idle, and none of it data."""
    run = start()
    with run.open_loop() as loop:
        for number in range(2):
            loop.fetch()
            loop.fetched()
            loop.begin(number + 1)
            work(0.02)
            if number == 0:
                run.flush()
                spent = {
                    dict(sample.attributes).get("state"): sample.value
                    for sample in run.session._recorder._watcher._made.heartbeat(ended=False)
                    if sample.name == "dl.time"
                }
            loop.end()
            loop.pause()
            end = run.activity.evaluation("val")
            work(0.03)
            end()
            work(0.02)
            run.flush()
            run.session._recorder._watcher._made.heartbeat(ended=False)
    run.finish()
    # Nothing was known of the first step before it had ended: the heartbeat had seen none.
    assert spent == {}
    whole = times(recorded(run))
    assert whole["productive"] >= 0.04
    assert whole["evaluation"] >= 0.06
    assert whole["idle"] >= 0.04
    assert whole["data"] < 0.02
