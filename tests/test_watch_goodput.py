"""Every second of an attempt is booked once, under what it went to; and how long the rest will take."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_train.clock import NS_PER_S
from otel_train.run.accounts import data_parallel_ranks, time_lost_s
from otel_train.watch.accounts import time_left_s
from otel_train.watch.elsewhere import Aside
from otel_train.watch.goodput import STATES, TimeAccount
from tests.accounting import CHECKPOINT, EVALUATION, OTHER, START_NS, Accounting


def test_a_training_with_everything_adds_up_to_the_time_it_took() -> None:
    """Start, two epochs of three steps, evaluation, a checkpoint within a step, a pause: each second once."""
    run = Accounting()
    run.pass_s(4.0)
    for epoch in range(2):
        loop = run.loop()
        for number in range(3):
            saves = epoch == 1 and number == 1
            run.step(loop, number, 2.0, 0.5, during=(lambda: run.aside(CHECKPOINT, 7.0)) if saves else None)
        run.aside(EVALUATION, 10.0)
        run.pass_s(1.0)
    assert run.times(ended=True) == {
        "start-up": 4.0,
        "data": 3.0,
        "productive": 9.0,
        "checkpoint": 7.0,
        "evaluation": 20.0,
        "idle": 2.0,
    }
    assert sum(run.times().values()) == run.elapsed_s == 45.0


def test_what_is_nested_has_its_own_time() -> None:
    """A stage around all; an evaluation in it that saves a checkpoint: 3 of its 10 seconds are the checkpoint's."""
    run = Accounting()
    stage = run.begin(OTHER)
    loop = run.loop()
    run.step(loop, 0, 1.0)
    evaluation = run.begin(EVALUATION)
    run.pass_s(5.0)
    run.aside(CHECKPOINT, 3.0)
    run.pass_s(2.0)
    evaluation.end_ns = run.now_ns
    run.pass_s(4.0)
    stage.end_ns = run.now_ns
    assert run.times(ended=True) == {"productive": 1.0, "evaluation": 7.0, "checkpoint": 3.0, "idle": 4.0}


def test_a_checkpoint_in_the_background_takes_no_training_time() -> None:
    """It is written by another thread while three steps go on: they are training, and what is left the checkpoint."""
    run = Accounting()
    loop = run.loop()
    run.step(loop, 0, 1.0)
    aside = run.begin(CHECKPOINT)
    for number in range(1, 4):
        run.pass_s(0.001)
        run.step(loop, number, 1.0)
    run.pass_s(2.0)
    aside.end_ns = run.now_ns
    times = run.times(ended=True)
    assert times["productive"] == 4.0
    assert times["checkpoint"] == pytest.approx(2.003)


def test_two_loops_at_once_share_the_time() -> None:
    """Two threads train over the same ten seconds: ten seconds, not twenty."""
    run = Accounting()
    one, other = run.loop(), run.loop()
    begin_ns = run.now_ns
    for number in range(10):
        run.step(one, number, 1.0)
        run.recording.buffer.extend((other, number, None, begin_ns + NS_PER_S * number, run.now_ns - 1, run.now_ns))
    assert run.times(ended=True) == {"productive": 10.0}


def test_a_long_evaluation_within_a_step_shows_while_it_lasts() -> None:
    """A step whose batch was there after 1 s began to evaluate 2 s later: half an hour on, that is known already."""
    run = Accounting()
    loop = run.loop()
    run.step(loop, 0, 1.0)
    began_ns = run.now_ns
    run.loops = (START_NS, began_ns + NS_PER_S)
    run.pass_s(3.0)
    evaluation = run.begin(EVALUATION)
    run.pass_s(1800.0)
    assert run.times() == {"productive": 3.0, "data": 1.0, "evaluation": 1800.0}
    evaluation.end_ns = run.now_ns
    run.pass_s(1.0)
    run.recording.buffer.extend((loop, 1, None, began_ns, began_ns + NS_PER_S, run.now_ns))
    assert run.times() == {"productive": 4.0, "data": 1.0, "evaluation": 1800.0}
    assert sum(run.times().values()) == run.elapsed_s


def test_waiting_for_a_batch_shows_while_it_lasts() -> None:
    """The loader hangs for an hour: it is data, as far as it goes, and nothing is booked twice when it comes."""
    run = Accounting()
    loop = run.loop()
    run.step(loop, 0, 2.0, 1.0)
    fetch_ns = run.now_ns
    run.loops = (START_NS, START_NS + NS_PER_S)
    run.pass_s(3600.0)
    assert run.times() == {"data": 3601.0, "productive": 1.0}
    run.recording.buffer.extend((loop, 1, None, fetch_ns, run.now_ns, run.now_ns + NS_PER_S))
    run.pass_s(1.0)
    assert run.times() == {"data": 3601.0, "productive": 2.0}


def test_what_is_not_digested_yet_is_not_booked_as_idle() -> None:
    """Steps wait for the writer: until they come the time stays open, and then it is theirs."""
    run = Accounting()
    loop = run.loop()
    run.step(loop, 0, 1.0)
    run.settle()
    fetch_ns = run.now_ns
    run.loops = None
    run.pass_s(20.0)
    assert run.times() == {"productive": 1.0}
    run.recording.buffer.extend((loop, 1, None, fetch_ns, fetch_ns, run.now_ns))
    assert run.times() == {"productive": 21.0}


def test_phases_that_are_no_training_are_seen_in_the_steps_they_lie_in() -> None:
    """run.phase("validation") takes 3 of a step's 4 seconds; while it lasts, it is known by when it began."""
    run = Accounting()
    loop = run.loop()
    run.step(loop, 0, 1.0)
    began_ns = run.now_ns
    run.loops = (START_NS, began_ns)
    run.pass_s(1.0)
    run.phases = [Aside(run.now_ns, EVALUATION)]
    run.pass_s(2.0)
    assert run.times() == {"productive": 2.0, "evaluation": 2.0}
    run.pass_s(1.0)
    run.phases = []
    digested = run.recording.take()
    digested.asides.append((EVALUATION, began_ns + NS_PER_S, run.now_ns))
    run.accounts.take(digested)
    run.recording.buffer.extend((loop, 1, None, began_ns, began_ns, run.now_ns))
    assert run.times() == {"productive": 2.0, "evaluation": 3.0}


@pytest.mark.parametrize("late", [0, 1, 3])
def test_a_host_that_waits_for_the_device_does_not_wait_for_data(late: int) -> None:
    """Work is given away at once and takes 100 ms on the device; the host meets it in the fetch, which takes 10 ms.

    The host waits 110 ms of each step's 110; the device told 10, some steps later: 9 % are data, not all of it.
    """
    run = Accounting()
    loop = run.loop()
    loop.timer = SilentTimer()
    for number in range(40):
        run.amounts.count(None, 110)
        run.step(loop, number, 0.110, 0.110)
        digested = run.recording.take()
        if number >= late:
            digested.device_waits.append(("train", number - late, 0.010))
        run.accounts.take(digested)
    spent = run.times()
    known = 40 - late
    assert spent["data"] == pytest.approx(known * 0.010)
    assert spent["productive"] == pytest.approx(known * 0.100)
    assert sum(spent.values()) + late * 0.110 == pytest.approx(run.elapsed_s)
    last = run.times(ended=True)
    assert last["data"] == pytest.approx(known * 0.010 + late * 0.110)
    assert sum(last.values()) == pytest.approx(run.elapsed_s)
    # What the time went to is no matter to the rate.
    assert all(rate == pytest.approx(1000.0) for rate in run.rates("dl.rank.tokens_per_second"))


def test_a_device_that_tells_of_a_step_before_it_has_ended_is_heard() -> None:
    """A long step: its wait of 1 s, of which the device knew 0.2 s, is told and shown while it lasts."""
    run = Accounting()
    loop = run.loop()
    loop.timer = SilentTimer()
    run.step(loop, 0, 1.0)
    run.settle()
    began_ns = run.now_ns
    run.loops = (START_NS, began_ns + NS_PER_S)
    run.pass_s(20.0)
    assert run.times() == {"productive": 20.0}
    digested = run.recording.take()
    digested.device_waits.append(("train", 1, 0.2))
    run.accounts.take(digested)
    run.pass_s(1.0)
    run.recording.buffer.extend((loop, 1, None, began_ns, began_ns + NS_PER_S, run.now_ns))
    run.loops = (0, 0)
    assert run.times() == {"productive": pytest.approx(21.8), "data": pytest.approx(0.2)}


def test_steps_that_the_device_never_tells_of_are_the_hosts() -> None:
    """Marks are missing for one step (a graph was captured): the next one's settle it."""
    run = Accounting()
    loop = run.loop()
    loop.timer = SilentTimer()
    for number in range(3):
        run.step(loop, number, 1.0, 0.5)
    digested = run.recording.take()
    digested.device_waits += [("train", 0, 0.1), ("train", 2, 0.2)]
    run.accounts.take(digested)
    assert run.times() == {"data": pytest.approx(0.1 + 0.5 + 0.2), "productive": pytest.approx(2.2)}


class SilentTimer:
    """A device's clock whose marks the test makes itself."""

    def mark(self) -> None:
        return None

    def elapsed_s(self, earlier: Any, later: Any) -> float | None:
        return None


def test_a_run_without_steps_has_no_accounts() -> None:
    """Nobody knows what its time went to: nothing is said."""
    run = Accounting()
    run.pass_s(60.0)
    assert run.heartbeat(ended=True) == {}


def test_an_evaluation_alone_has_its_time() -> None:
    """A script that only tests: start-up, evaluation, and what comes after is idle."""
    run = Accounting()
    run.pass_s(2.0)
    evaluation = run.begin(EVALUATION)
    loop = run.loop(split="test")
    for number in range(3):
        run.step(loop, number, 1.0)
    evaluation.end_ns = run.now_ns
    run.pass_s(4.0)
    assert run.times(ended=True) == {"start-up": 2.0, "evaluation": 3.0, "idle": 4.0}
    assert run.heartbeat(ended=True)["dl.productive.share"] == 0.0


@given(st.integers(0, 2**32))
def test_states_never_go_down_and_always_add_up(seed: int) -> None:
    """Whatever overlaps, in whatever pieces it is booked: no moment is lost or counted twice, and none taken back."""
    luck = random.Random(seed)
    account = TimeAccount(100)
    now, asides = 100, []
    for _ in range(30):
        before = account.totals_ns
        now += luck.randrange(0, 20)
        if luck.random() < 0.4:
            asides.append(Aside(now, luck.choice([EVALUATION, CHECKPOINT, OTHER])))
            account.take_aside(asides[-1])
        if asides and luck.random() < 0.3:
            asides.pop(luck.randrange(len(asides))).end_ns = now
        if luck.random() < 0.7:
            fetch = luck.randrange(max(0, now - 30), now + 1)
            account.take_step(fetch, luck.randrange(fetch, now + 1), now)
        else:
            account.take_rest(now)
        totals = account.totals_ns
        assert set(totals) == set(STATES)
        assert sum(totals.values()) == account.booked_ns - 100
        assert all(totals[state] >= before[state] for state in STATES)
    account.take_rest(now)
    assert account.booked_ns == now


# How long it takes yet ------------------------------------------------------------------------------------------------


def test_time_left_is_the_rest_at_the_pace_so_far() -> None:
    """A quarter was done when this attempt began, half is done now, after 50 s: the other half takes 100 s."""
    assert time_left_s((0.5, 0.25), 50.0) == 100.0
    assert time_left_s((0.5, 0.5), 50.0) is None
    assert time_left_s((1.0, 0.0), 50.0) == 0.0
    assert time_left_s(None, 50.0) is None


def test_evaluation_counts_in_the_pace_and_pauses_do_not() -> None:
    """10 steps of 1 s, 20 s of evaluation, 60 s of nothing: 30 s made half of it, so 30 s are left."""
    run = Accounting()
    loop = run.loop()
    for number in range(10):
        run.step(loop, number, 1.0)
    run.aside(EVALUATION, 20.0)
    run.pass_s(60.0)
    run.done = (0.5, 0.0)
    assert run.heartbeat()["dl.run.time_left"] == 30.0
    assert "dl.run.time_left" not in run.heartbeat(ended=True)


# What is lost ---------------------------------------------------------------------------------------------------------


FORMER: dict[str, Any] = {
    "attempts": [
        {"attempt": 1, "started": "2026-01-01T00:00:00Z", "ended": "2026-01-01T00:10:00Z", "status": "failed"},
        {"attempt": 2, "started": "2026-01-01T01:00:00Z", "ended": "2026-01-01T01:30:00Z", "status": "failed"},
    ],
    "checkpoints": [
        {"attempt": 1, "time": "2026-01-01T00:09:00Z", "role": "saved"},
        {"attempt": 2, "time": "2026-01-01T01:10:00Z", "role": "saved"},
        {"attempt": 2, "time": "2026-01-01T01:20:00Z", "role": "logged"},
        {"attempt": 2, "time": "2026-01-01T01:25:00Z", "role": "loaded"},
    ],
}
ENDED_NS = 1_767_231_000 * NS_PER_S


def _changed(change: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    former = {
        "attempts": [dict(entry) for entry in FORMER["attempts"]],
        "checkpoints": [dict(entry) for entry in FORMER["checkpoints"]],
    }
    change(former)
    return former


def test_what_came_after_the_last_checkpoint_of_the_newest_attempt_is_lost() -> None:
    """Saved at 1:20, failed at 1:30: 600 s. Killed without an end, last seen at 1:30: the same. No checkpoint: all."""
    assert time_lost_s(FORMER, 0) == 600.0
    killed = _changed(lambda former: former["attempts"][1].update(ended=None, status="running"))
    assert time_lost_s(killed, ENDED_NS) == 600.0
    assert time_lost_s(killed, 0) is None
    none = _changed(lambda former: former["checkpoints"].clear())
    assert time_lost_s(none, 0) == 1800.0


def test_nothing_is_lost_of_what_ended_well() -> None:
    """A finished training that goes on does nothing again; nor is anything known of a run without attempts."""
    assert time_lost_s(_changed(lambda former: former["attempts"][1].update(status="finished")), 0) is None
    assert time_lost_s({}, 0) is None


def test_lost_time_stands_beside_the_attempt_and_not_in_it() -> None:
    """The earlier attempt lost 600 s: said as a state, while the others add up to this attempt's 5 s."""
    run = Accounting(lost_s=lambda: 600.0)
    run.step(run.loop(), 0, 5.0)
    assert run.times(ended=True) == {"productive": 5.0, "lost": 600.0}


# The job --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("attributes", "ranks"),
    [
        ({}, 8),
        ({"dl.data_parallel.size": "2"}, 2),
        ({"dl.tensor_parallel.size": "2", "dl.pipeline_parallel.size": "2"}, 2),
        ({"dl.tensor_parallel.size": "x"}, 8),
    ],
)
def test_ranks_that_share_a_batch_count_once(attributes: dict[str, str], ranks: int) -> None:
    """Of eight ranks those that compute one batch together, by tensor or pipeline, are one in the job's rate."""
    from otel_train.lineage.ranks import Ranks

    assert data_parallel_ranks(Ranks(world_size=8), attributes) == ranks
