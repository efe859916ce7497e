"""Phases within a step, in loops of `run.steps`, by hand, and in other threads."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from otel_train.record import phases, steps
from otel_train.record.phase_places import MOST_WAITING, Passage, time_within
from otel_train.record.phases import NoPhase, Phase, PhaseTable
from otel_train.record.steps import StepLoop
from tests.recording import TRAIN, VAL, Recording, columns_of


class Clock:
    """A monotonic clock in milliseconds, the same for steps and phases."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_ms = 1_000.0
        for module in (steps, phases):
            monkeypatch.setattr(module, "mono_ns", lambda: int(self.now_ms * 1e6))


def phase_of(name: str, split: tuple[tuple[str, str], ...] = ()) -> tuple[str, tuple[tuple[str, str], ...]]:
    return ("dl.phase.time", (*split, ("phase", name)))


def in_thread(work: Any) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def test_phases_are_points_and_parts_of_their_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forward 20 ms and backward 30 ms in each of three steps; the step knows when they were."""
    run, clock = Recording(), Clock(monkeypatch)
    forward, backward = Phase("forward", run.log), Phase("backward", run.log)
    for _ in StepLoop(range(3), run.log):
        with forward:
            clock.now_ms += 20
        with backward:
            clock.now_ms += 30
    digested = run.take()
    columns = {column.attributes: column for column in columns_of(digested) if column.name == "dl.phase.time"}
    assert list(columns[(*TRAIN, ("phase", "forward"))].values) == [0.02] * 3
    assert list(columns[(*TRAIN, ("phase", "backward"))].values) == [0.03] * 3
    assert digested.steps[1].phases == [
        ("forward", 1_050_000_000, 1_070_000_000),
        ("backward", 1_070_000_000, 1_100_000_000),
    ]
    assert digested.points == 12


def test_a_phase_entered_several_times_within_a_step_is_summed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four micro-batches of 5 ms are one point of 20 ms; a step without the phase has none."""
    run, clock = Recording(), Clock(monkeypatch)
    forward = Phase("forward", run.log)
    for batch in StepLoop(range(3), run.log):
        for _ in range(4 if batch != 1 else 0):
            with forward:
                clock.now_ms += 5
        clock.now_ms += 1
    assert run.stored()[phase_of("forward", TRAIN)] == [(0, 0.02), (2, 0.02)]


def test_a_phase_within_itself_counts_its_time_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A recursive phase of 10 ms whose inner passages take 6 is 10 ms, and other phases within it keep their own."""
    run, clock = Recording(), Clock(monkeypatch)
    recursive, other = Phase("recursive", run.log), Phase("other", run.log)
    for _ in StepLoop(range(1), run.log):
        with recursive:
            clock.now_ms += 2
            with recursive, other:
                clock.now_ms += 3
                with recursive:
                    clock.now_ms += 3
            clock.now_ms += 2
        with recursive:
            clock.now_ms += 1
    found = run.stored()
    assert found[phase_of("recursive", TRAIN)] == [(0, 0.011)]
    assert found[phase_of("other", TRAIN)] == [(0, 0.006)]


def test_time_within_tells_threads_apart() -> None:
    """Two threads that are in a phase at the same time spend twice the time."""
    passages = [Passage(1, "a", 0, 10, 0, None), Passage(2, "a", 5, 15, 0, None), Passage(1, "a", 20, 25, 0, None)]
    assert time_within(passages) == {"a": 25}


def test_an_exception_within_a_phase_passes_through_and_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The phase is recorded with the time up to the exception, and may be entered again."""
    run, clock = Recording(), Clock(monkeypatch)
    forward = Phase("forward", run.log)
    for batch in StepLoop(range(2), run.log):
        try:
            with forward:
                clock.now_ms += 4
                if batch == 0:
                    raise ValueError
        except ValueError:
            clock.now_ms += 1
    assert run.stored()[phase_of("forward", TRAIN)] == [(0, 0.004), (1, 0.004)]


def test_in_a_loop_by_hand_phases_go_to_the_step_of_the_next_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """Phases of 20 and 5 ms before log(step=10 · i): points at 0, 10, 20, summed, on few lines, without a split."""
    run, clock = Recording(), Clock(monkeypatch)
    forward = Phase("forward", run.log)
    for step in range(300):
        for spent_ms in (20, 5):
            with forward:
                clock.now_ms += spent_ms
        run.log.log({"loss": 1.0}, step=10 * step)
    digested = run.take(offset_ns=500)
    rows = [column for column in columns_of(digested) if column.name == "dl.phase.time"]
    assert [len(column.values) for column in rows] == [200, 100]
    assert [value for column in rows for value in column.values] == [0.025] * 300
    assert list(rows[0].times_ns[:2]) == [1_025_000_500, 1_050_000_500]
    siblings = [column for column in columns_of(digested) if column.name == "dl.step" and not column.attributes]
    assert [step for column in siblings for step in column.values] == [10 * step for step in range(300)]


def test_points_on_another_axis_do_not_place_phases(monkeypatch: pytest.MonkeyPatch) -> None:
    """The step of axis env_step is not the run's: the next point on the run's own axis takes the phase."""
    run, clock = Recording(), Clock(monkeypatch)
    with Phase("forward", run.log):
        clock.now_ms += 5
    run.log.log({"reward": 1.0}, step=4000, axis="env_step")
    run.log.log({"loss": 1.0}, step=3)
    assert run.stored()[phase_of("forward")] == [(3, 0.005)]


def test_phases_that_no_log_follows_are_kept_at_the_step_the_run_was_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the end of the run, and when very many wait, they are written all the same."""
    run, clock = Recording(), Clock(monkeypatch)
    run.log.log({"loss": 1.0})
    forward = Phase("forward", run.log)
    for _ in range(3):
        with forward:
            clock.now_ms += 5
    assert phase_of("forward") not in run.stored(last=False)
    assert run.stored()[phase_of("forward")] == [(0, 0.015)]
    for _ in range(MOST_WAITING + 1):
        with forward:
            clock.now_ms += 1
    assert run.stored(last=False)[phase_of("forward")] == [(0, pytest.approx((MOST_WAITING + 1) / 1000))]


def test_phases_before_a_nested_loop_stay_with_the_outer_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of two training steps has its own forward, and the validation batches within it theirs."""
    run, clock = Recording(), Clock(monkeypatch)
    forward = Phase("forward", run.log)
    for _ in StepLoop(range(2), run.log):
        with forward:
            clock.now_ms += 20
        for _ in StepLoop(range(3), run.log, split="val", owns_step=False):
            with forward:
                clock.now_ms += 1
        with forward:
            clock.now_ms += 2
    found = run.stored()
    assert found[phase_of("forward", TRAIN)] == [(0, 0.022), (1, 0.022)]
    assert found[phase_of("forward", VAL)] == [(0, 0.001), (1, 0.001), (2, 0.001)] * 2


def test_phases_of_a_validation_loop_alone_belong_to_its_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """After training, each batch of validation has its phase; none is left for the next log."""
    run, clock = Recording(), Clock(monkeypatch)
    forward = Phase("forward", run.log)
    for _ in StepLoop(range(2), run.log, split="val", owns_step=False):
        with forward:
            clock.now_ms += 3
    run.log.log({"loss": 1.0}, split="val")
    assert run.stored()[phase_of("forward", VAL)] == [(0, 0.003), (1, 0.003)]


def test_phases_of_another_thread_stand_at_the_step_that_the_run_was_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that fetches ahead has its own points, one a step, though the writer comes in the midst of a step."""
    run, clock = Recording(), Clock(monkeypatch)
    found: list[tuple[int, float]] = []

    def fetch() -> None:
        with Phase("fetch", run.log):
            clock.now_ms += 4

    for _ in StepLoop(range(3), run.log):
        in_thread(fetch)
        found += run.stored(last=False).get(phase_of("fetch"), [])
        in_thread(fetch)
    found += run.stored()[phase_of("fetch")]
    assert found == [(0, 0.008), (1, 0.008), (2, 0.008)]


def test_very_many_phases_of_other_threads_do_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside a loop that stands still they are written once there are too many to hold."""
    run, clock = Recording(), Clock(monkeypatch)

    def fetch() -> None:
        phase = Phase("fetch", run.log)
        for _ in range(MOST_WAITING + 5):
            with phase:
                clock.now_ms += 1

    for _ in StepLoop(range(1), run.log):
        in_thread(fetch)
        assert run.stored(last=False)[phase_of("fetch")] == [(0, pytest.approx((MOST_WAITING + 5) / 1000))]


def test_phases_whose_step_never_ends_are_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step's own entry found the buffer full: its phases are written at the end, or when too many wait."""
    run, clock = Recording(), Clock(monkeypatch)
    forward = Phase("forward", run.log)
    for _ in StepLoop(range(1), run.log):
        for _ in range(MOST_WAITING + 1):
            with forward:
                clock.now_ms += 1
        run.buffer.capacity_slots = 0
    assert run.stored(last=False) == {}
    assert run.stored()[phase_of("forward")] == [(0, pytest.approx((MOST_WAITING + 1) / 1000))]


def test_each_thread_has_phase_objects_of_its_own() -> None:
    """The table of another thread is empty: a phase that two threads shared would mix up their times."""
    table = PhaseTable()
    table.by_name["a"] = Phase("a", Recording().log)
    seen: list[int] = []
    in_thread(lambda: seen.append(len(table.by_name)))
    assert seen == [0]


def test_a_phase_that_finds_the_buffer_full_is_counted() -> None:
    """One dropped point, and nothing raised."""
    run = Recording(capacity=0)
    with Phase("forward", run.log):
        pass
    assert run.buffer.dropped == {"buffer full": 1}


def test_where_nothing_is_recorded_a_phase_does_nothing() -> None:
    """It can be entered, and the exception within it passes through."""
    with NoPhase() as nothing:
        assert isinstance(nothing, NoPhase)
    with pytest.raises(ValueError, match="mine"), NoPhase():
        raise ValueError("mine")
