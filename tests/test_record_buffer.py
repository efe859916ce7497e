"""The buffer between the training thread and the writer."""

from __future__ import annotations

import gc
import threading

import numpy as np
import pytest

from otel_train.record.buffer import SLOTS, Buffer
from otel_train.record.points import FORKED
from otel_train.record.steps import StepLoop
from tests.recording import Recording


def test_drain_takes_the_oldest_entries_first_and_all_by_default() -> None:
    """Two of five entries come out first, then the other three, in their order."""
    buffer = Buffer(10)
    for number in range(5):
        buffer.extend((number, 0, 0, 0, 0, 0))
    first = buffer.drain(2)
    rest = buffer.drain()
    assert first[::SLOTS] == [0, 1]
    assert rest[::SLOTS] == [2, 3, 4]
    assert buffer.entries == []
    assert buffer.drain() == []


def test_overflow_keeps_the_first_entries_and_counts_the_rest_by_cause() -> None:
    """Of 7 calls with two points each, 5 fit: 4 points are counted as dropped, and the next batch fits again."""
    run = Recording(capacity=5)
    for value in range(7):
        run.log.log({"a": float(value), "b": 1.0})
    assert run.buffer.dropped == {"buffer full": 4}
    assert run.stored()[("train.a", ())] == [(step, float(step)) for step in range(5)]
    run.log.log({"a": 9.0})
    assert [value for _, value in run.stored()[("train.a", ())]] == [9.0]


def test_overflow_counts_steps_and_phases_that_find_no_room() -> None:
    """A full buffer drops two points a step (duration and wait), also for the step that a `break` ends."""
    run = Recording(capacity=1)
    for _ in StepLoop(range(3), run.log):
        pass
    assert run.buffer.dropped == {"buffer full": 4}
    for _ in StepLoop(range(3), run.log):
        break
    for _ in StepLoop(range(1), run.log, split="val", owns_step=False):
        pass
    assert run.buffer.dropped == {"buffer full": 8}


def test_dropped_counts_of_many_threads_add_up() -> None:
    """Eight threads that each drop 5,000 points one by one count 40,000."""
    buffer = Buffer(1)

    def drop() -> None:
        for _ in range(5_000):
            buffer.drop("buffer full", 1)

    threads = [threading.Thread(target=drop) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert buffer.dropped == {"buffer full": 40_000}


def test_a_killed_buffer_takes_nothing_even_by_a_method_that_was_bound_before() -> None:
    """In a forked child log, steps and phases leave the buffer empty, though the loop holds its `extend`."""
    run = Recording()
    loop = iter(StepLoop(range(10), run.log))
    next(loop)
    run.log.log({"a": 1.0})
    with run.buffer.lock:  # as another thread may hold it at the moment of the fork
        run.buffer.kill()
    run.log.overflow_cause = FORKED
    next(loop)
    run.log.log({"a": 2.0, "b": 3.0})
    loop.close()  # type: ignore[attr-defined]  # an iterator by its type, a generator in fact
    assert run.buffer.entries == []
    assert run.buffer.dropped == {FORKED: 6}


@pytest.mark.parametrize("value", [0.5, 3, True, np.float32(0.5), np.int64(3)])
def test_values_that_wait_are_not_walked_by_the_garbage_collector(value: float) -> None:
    """The dict of an entry, whatever numbers it holds, is not tracked: a long buffer costs collections nothing."""
    run = Recording()
    run.log.log({"a": np.float32(1)})  # from here on NumPy's scalars are known
    run.log.log({"a": np.int64(1)})
    run.buffer.drain()
    run.log.log({f"k{index}": value for index in range(10)})
    assert not gc.is_tracked(run.raw[0][1])
