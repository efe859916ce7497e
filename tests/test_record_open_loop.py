"""A loop that is told by calls: its numbers, times and waits, by a clock that the test moves."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from otel_train.clock import NS_PER_S
from otel_train.record.open_loop import OpenLoop
from otel_train.record.phases import PhaseTable
from otel_train.testing import ManualClock
from tests.recording import TRAIN, VAL, Recording


@pytest.fixture
def recording() -> Recording:
    return Recording()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(mono_ns=NS_PER_S)


def open_loop(recording: Recording, clock: ManualClock, **given: Any) -> OpenLoop:
    return OpenLoop(recording.log, now_ns=clock.mono_ns, **given)


def walk(loop: OpenLoop, clock: ManualClock, *, fetch_s: float, work_s: float, step: int | None = None) -> None:
    loop.fetch()
    clock.advance(fetch_s)
    loop.fetched()
    loop.begin(step)
    clock.advance(work_s)
    loop.end()


def test_steps_are_timed_from_fetch_to_end(recording: Recording, clock: ManualClock) -> None:
    """What is between one step's end and the next fetch, such as a validation, belongs to neither."""
    with open_loop(recording, clock) as loop:
        walk(loop, clock, fetch_s=0.25, work_s=1.0, step=1)
        loop.pause()
        clock.advance(60)
        walk(loop, clock, fetch_s=0.5, work_s=2.0)
    stored = recording.stored()
    assert stored["dl.step.time", TRAIN] == [(1, 1.25), (2, 2.5)]
    assert stored["dl.data.wait.time", TRAIN] == [(1, 0.25), (2, 0.5)]


def test_begin_and_end_alone_are_enough(recording: Recording, clock: ManualClock) -> None:
    """Without marks of the fetch the wait is 0, and a step ends with the next one at the latest."""
    loop = open_loop(recording, clock)
    for _ in range(3):
        loop.begin()
        clock.advance(1)
    loop.close()
    stored = recording.stored()
    assert stored["dl.step.time", TRAIN] == [(0, 1.0), (1, 1.0), (2, 1.0)]
    assert stored["dl.data.wait.time", TRAIN] == [(0, 0.0), (1, 0.0), (2, 0.0)]


def test_the_last_end_counts(recording: Recording, clock: ManualClock) -> None:
    """Logging after the step's end is the step's, waiting for the next fetch is not."""
    loop = open_loop(recording, clock)
    walk(loop, clock, fetch_s=0, work_s=1.0)
    clock.advance(0.5)
    loop.end()
    clock.advance(10)
    loop.fetch()
    loop.close()
    assert recording.stored()["dl.step.time", TRAIN] == [(0, 1.5)]


def test_what_follows_the_batch_before_the_step_is_no_wait(recording: Recording, clock: ManualClock) -> None:
    """The way of a batch to a device, between `fetched` and `begin`, is the step's own time."""
    loop = open_loop(recording, clock)
    loop.fetch()
    clock.advance(1)
    loop.fetched()
    clock.advance(2)
    loop.begin(7)
    clock.advance(4)
    loop.end()
    loop.close()
    stored = recording.stored()
    assert stored["dl.data.wait.time", TRAIN] == [(7, 1.0)]
    assert stored["dl.step.time", TRAIN] == [(7, 7.0)]


def test_a_fetch_without_a_batch_leaves_nothing(recording: Recording, clock: ManualClock) -> None:
    """At the end of an epoch the loader has no more; the next epoch's fetch is what counts."""
    loop = open_loop(recording, clock)
    walk(loop, clock, fetch_s=1, work_s=1)
    loop.fetch()
    clock.advance(30)
    walk(loop, clock, fetch_s=1, work_s=1)
    loop.close()
    assert recording.stored()["dl.step.time", TRAIN] == [(0, 2.0), (1, 2.0)]


def test_another_split_leaves_the_runs_step_where_it_is(recording: Recording, clock: ManualClock) -> None:
    """Within an open training an evaluation has numbers of its own, and what is logged in it the step of training."""
    training = open_loop(recording, clock)
    walk(training, clock, fetch_s=0, work_s=1, step=5)
    ended: list[str] = []
    with open_loop(
        recording, clock, split="val", owns_step=False, on_begin=lambda: lambda: ended.append("end")
    ) as evaluation:
        for _ in range(2):
            walk(evaluation, clock, fetch_s=0.5, work_s=0.5)
        recording.log.log({"accuracy": 0.5}, split="val")
        assert ended == []
    assert ended == ["end"]
    training.close()
    stored = recording.stored()
    assert stored["dl.step.time", VAL] == [(0, 1.0), (1, 1.0)]
    assert stored["train.accuracy", VAL] == [(5, 0.5)]
    assert stored["dl.step.time", TRAIN] == [(5, 1.0)]


def test_numbers_without_a_step_go_to_the_open_one(recording: Recording, clock: ManualClock) -> None:
    """As within `run.steps`, and after the loop is closed the run counts for itself again."""
    loop = open_loop(recording, clock)
    loop.begin(3)
    recording.log.log({"loss": 1.0})
    recording.log.log({"loss": 2.0})
    loop.close()
    recording.log.log({"loss": 3.0})
    assert recording.stored()["train.loss", TRAIN] == [(3, 1.0), (3, 2.0), (4, 3.0)]
    assert recording.log.loops == {}
    assert recording.log.looping == {}


def test_phases_belong_to_the_step_that_is_open(recording: Recording, clock: ManualClock) -> None:
    """A phase is in the step during which it was passed, as the steps are written later than it."""
    loop, table = open_loop(recording, ManualClock()), PhaseTable()
    from otel_train.clock import mono_ns
    from otel_train.record.phases import Phase

    loop = OpenLoop(recording.log, now_ns=mono_ns)
    phase = table.by_name["forward"] = Phase("forward", recording.log)
    for _ in range(2):
        loop.begin()
        with phase:
            pass
        loop.end()
    loop.close()
    found = recording.stored()["dl.phase.time", (*TRAIN, ("phase", "forward"))]
    assert [step for step, _ in found] == [0, 1]


def test_a_closed_loop_takes_no_more_marks(recording: Recording, clock: ManualClock) -> None:
    """A framework's hook that comes late does no harm."""
    loop = open_loop(recording, clock)
    walk(loop, clock, fetch_s=0, work_s=1)
    loop.close()
    walk(loop, clock, fetch_s=0, work_s=1)
    loop.pause()
    loop.close()
    assert recording.stored()["dl.step.time", TRAIN] == [(0, 1.0)]


def test_a_full_buffer_counts_what_it_lost(clock: ManualClock) -> None:
    """Two points a step are counted, and the loop goes on."""
    recording = Recording(capacity=2)
    loop = open_loop(recording, clock)
    for _ in range(5):
        walk(loop, clock, fetch_s=0, work_s=1)
    loop.close()
    kept = len(recording.stored().get(("dl.step.time", TRAIN), []))
    assert kept < 5
    assert recording.buffer.dropped["buffer full"] == 2 * (5 - kept)


def test_sizes_of_batches_are_learned_as_by_run_steps(recording: Recording, clock: ManualClock) -> None:
    """From shapes alone, with `begin` or after it; a smaller last batch is noticed."""
    loop = open_loop(recording, clock)
    loop.begin(batch={"input_ids": torch.zeros(4, 16, dtype=torch.long)})
    loop.end()
    loop.begin()
    loop.look_at({"input_ids": torch.zeros(3, 16, dtype=torch.long)})
    loop.end()
    sizes = [
        tuple(recording.buffer.entries[start + 3 : start + 5])
        for start in range(0, len(recording.buffer.entries), 6)
        if type(recording.buffer.entries[start]).__name__ == "BatchSize"
    ]
    assert sizes == [(4, 64), (3, 48)]
    loop.close()
