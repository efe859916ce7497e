"""Where points go: implicit and explicit steps, splits, axes, epochs; nothing is dropped for being old."""

from __future__ import annotations

import math
import threading
from typing import Any

import numpy as np
import pytest

from otel_train.record import points
from otel_train.record.points import MOST_RECENT
from otel_train.record.steps import StepLoop
from tests.recording import TRAIN, VAL, Recording, columns_of


def test_every_point_is_kept_with_its_own_step_and_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """100 steps in 2 s give 100 points 20 ms apart, among them the one odd value at step 37."""
    now_ns = 1_000_000_000_000

    def tick() -> int:
        nonlocal now_ns
        now_ns += 20_000_000
        return now_ns

    monkeypatch.setattr(points, "wall_ns", tick)
    run = Recording()
    for step in range(100):
        run.log.log({"loss": 0.05 if step == 37 else 1.0})
    digested = run.take()
    loss, steps = columns_of(digested)
    assert (loss.name, loss.attributes, steps.name) == ("train.loss", TRAIN, "dl.step")
    assert list(loss.values) == [0.05 if step == 37 else 1.0 for step in range(100)]
    assert list(steps.values) == list(range(100))
    assert list(loss.times_ns) == [1_000_020_000_000 + 20_000_000 * step for step in range(100)]
    assert steps.times_ns == loss.times_ns
    summary = run.summaries.by_series[run.names.series("loss", None)]
    assert (summary.minimum, summary.minimum_step, summary.count) == (0.05, 37, 100)


def test_implicit_and_explicit_steps_may_be_mixed() -> None:
    """Five points: b at step 1, a with 1, 2, 3, 4 at steps 0 to 3; the explicit step moves nothing."""
    run = Recording()
    run.log.log({"a": 1})
    run.log.log({"a": 2})
    run.log.log({"a": 3})
    run.log.log({"b": 9}, step=1)
    run.log.log({"a": 4})
    assert run.stored() == {
        ("train.a", ()): [(0, 1), (1, 2), (2, 3), (3, 4)],
        ("train.b", ()): [(1, 9)],
    }
    assert run.buffer.dropped == {}


def test_an_explicit_step_at_the_present_step_counts_as_a_point_there() -> None:
    """After log(a, step=0) an implicit a goes to step 1, while b still fits at step 0 before that."""
    run = Recording()
    run.log.log({"a": 1}, step=0)
    run.log.log({"b": 1})
    run.log.log({"a": 2})
    run.log.log({"b": 2})
    assert run.stored() == {("train.a", ()): [(0, 1), (1, 2)], ("train.b", ()): [(0, 1), (1, 2)]}


def test_explicit_steps_may_go_back_and_repeat() -> None:
    """Steps 5, 3, 3 and -1 are kept in the order of the calls."""
    run = Recording()
    for step in (5, 3, 3, -1):
        run.log.log({"a": step * 10}, step=step)
    assert run.stored() == {("train.a", ()): [(5, 50), (3, 30), (3, 30), (-1, -10)]}
    assert run.log.step == 0


def test_the_present_step_moves_only_when_a_key_with_its_split_is_there_already() -> None:
    """Training and validation of one step share it; a second training point begins the next."""
    run = Recording()
    for value in (1.0, 2.0):
        run.log.log({"loss": value})
        run.log.log({"lr": 0.1})
        run.log.log({"loss": value + 0.5}, split="val")
    assert run.stored() == {
        ("train.loss", TRAIN): [(0, 1.0), (1, 2.0)],
        ("train.lr", ()): [(0, 0.1), (1, 0.1)],
        ("train.loss", VAL): [(0, 1.5), (1, 2.5)],
    }


@pytest.mark.parametrize("slow", [False, True])
def test_a_split_that_a_key_has_by_itself_meets_the_same_split_as_argument(slow: bool) -> None:
    """As loss is training's, log(loss) and log(loss, split="train") are two steps, in either order and either way."""
    value: Any = np.array(1.0) if slow else 1.0
    run = Recording()
    run.log.log({"loss": value})
    run.log.log({"loss": value}, split="train")
    run.log.log({"loss": value})
    run.log.log({"loss": value}, split="training")
    run.log.log({"loss": value}, split="val")
    run.log.log({"loss": value}, split="valid")
    assert run.stored() == {
        ("train.loss", TRAIN): [(step, 1.0) for step in range(4)],
        ("train.loss", VAL): [(3, 1.0), (4, 1.0)],
    }


def test_many_calls_at_one_step_are_all_remembered() -> None:
    """100 keys, one a call, share step 0; the first of them again begins step 1."""
    run = Recording()
    for key in range(100):
        run.log.log({f"k{key}": 1.0})
    run.log.log({"k0": 2.0})
    run.log.log({"k99": 2.0}, split="val")
    found = run.stored()
    assert found[("train.k0", ())] == [(0, 1.0), (1, 2.0)]
    assert found[("train.k99", ())] == [(0, 1.0)]
    assert found[("train.k99", VAL)] == [(1, 2.0)]


def test_many_calls_within_a_step_of_a_loop_are_remembered_after_it() -> None:
    """50 calls in the last step of a loop: what any of them logged moves the step on afterwards."""
    run = Recording()
    for _ in StepLoop(range(1), run.log):
        for key in range(MOST_RECENT + 18):
            run.log.log({f"k{key}": 1.0})
    run.log.log({f"k{MOST_RECENT + 17}": 2.0})
    assert run.stored()[(f"train.k{MOST_RECENT + 17}", ())] == [(0, 1.0), (1, 2.0)]


def test_two_axes_keep_all_their_points() -> None:
    """Training at 4000 and 8000 samples, evaluation at 1000 and 2000 updates: four points, each axis named."""
    run = Recording()
    run.log.log({"loss": 1.0}, step=4000, axis="env_step")
    run.log.log({"loss": 2.0}, step=1000, split="val", axis="update")
    run.log.log({"loss": 3.0}, step=8000, axis="env_step")
    run.log.log({"loss": 4.0}, step=2000, split="val", axis="update")
    assert run.stored() == {
        ("train.loss", (*TRAIN, ("axis", "env_step"))): [(4000, 1.0), (8000, 3.0)],
        ("train.loss", (*VAL, ("axis", "update"))): [(1000, 2.0), (2000, 4.0)],
    }
    assert (run.log.step, run.log.at, run.warnings) == (0, 0, [])


def test_one_axis_beside_the_runs_own_keeps_all_points() -> None:
    """The default axis has no name of its own: train at env_step 4000 and 8000, eval at steps 1000 and 2000."""
    run = Recording()
    run.log.log({"loss": 1.0}, step=4000, axis="env_step")
    run.log.log({"loss": 2.0}, step=1000, split="eval")
    run.log.log({"loss": 3.0}, step=8000, axis="env_step")
    run.log.log({"loss": 4.0}, step=2000, split="eval", axis="step")
    assert run.stored() == {
        ("train.loss", (*TRAIN, ("axis", "env_step"))): [(4000, 1.0), (8000, 3.0)],
        ("train.loss", VAL): [(1000, 2.0), (2000, 4.0)],
    }


def test_an_axis_without_a_step_is_said_once_and_moves_nothing() -> None:
    """The points go to the run's step on that axis, and the run's own step stays."""
    run = Recording()
    run.log.log({"a": 1.0})
    for _ in range(3):
        run.log.log({"reward": 1.0}, axis="env_step")
    run.log.log({"b": 1.0})
    assert run.stored()[("train.reward", (("axis", "env_step"),))] == [(0, 1.0)] * 3
    assert run.log.step == 0
    assert len(run.warnings) == 1
    assert "needs a step of its own" in run.warnings[0]


def test_the_keys_step_and_epoch_set_the_siblings() -> None:
    """They are no metrics themselves; an argument wins over the key; the user's dict stays as it was."""
    run = Recording()
    values = {"loss": 0.5, "step": 7, "epoch": 2}
    run.log.log(values)
    run.log.log({"loss": 0.25, "step": 7}, step=8, epoch=3)
    columns = {(column.name, column.attributes): list(column.values) for column in columns_of(run.take())}
    assert columns == {
        ("train.loss", TRAIN): [0.5, 0.25],
        ("dl.step", TRAIN): [7, 8],
        ("dl.epoch", TRAIN): [2, 3],
    }
    assert values == {"loss": 0.5, "step": 7, "epoch": 2}


def test_the_epoch_of_the_run_stands_beside_points_from_when_it_is_known() -> None:
    """Three points, the last two within epoch 0 and 1: the epoch's column has two."""
    run = Recording()
    run.log.log({"loss": 1.0})
    run.log.epoch = 0
    run.log.log({"loss": 1.0})
    run.log.epoch = 1
    run.log.log({"loss": np.array(1.0)})
    columns = {column.name: column for column in columns_of(run.take())}
    assert list(columns["dl.epoch"].values) == [0, 1]
    assert list(columns["dl.epoch"].times_ns) == list(columns["train.loss"].times_ns)[1:]


@pytest.mark.parametrize(
    ("step", "expected"), [(np.int64(5), 5), (5.0, 5), (True, 1), (np.array(5), 5), ("5", 5), (2**70, 2**70)]
)
def test_whole_numbers_of_any_kind_are_steps(step: Any, expected: int) -> None:
    """NumPy's integers, whole floats and digits are taken for the integer they are."""
    run = Recording()
    run.log.log({"a": 1.0}, step=step)
    assert run.raw == [(expected, {"a": 1.0})]
    assert run.warnings == []


@pytest.mark.parametrize("step", [1.5, math.nan, math.inf, "five", [1, 2], object()])
def test_what_is_no_whole_number_is_said_once_and_the_present_step_is_used(step: Any) -> None:
    """The points are kept; ten such calls give one warning."""
    run = Recording()
    for _ in range(10):
        run.log.log({"a": 1.0}, step=step)
    assert run.stored() == {("train.a", ()): [(number, 1.0) for number in range(10)]}
    assert len(run.warnings) == 1
    assert "is not a whole number" in run.warnings[0]


def test_a_dict_that_is_changed_after_the_call_changes_no_point() -> None:
    """The values of the moment are kept."""
    run = Recording()
    values = {"a": 1.0}
    run.log.log(values)
    values["a"] = 2.0
    assert run.stored() == {("train.a", ()): [(0, 1.0)]}


def test_a_call_without_values_records_nothing() -> None:
    """Neither an empty dict nor one of which only a step is left makes a point or moves a step."""
    run = Recording()
    run.log.log({})
    run.log.log({"step": 5})
    run.log.log({"a": 1.0})
    assert run.stored() == {("train.a", ()): [(0, 1.0)]}


def test_ten_thousand_steps_give_as_many_series_as_ten() -> None:
    """Step numbers are values of a sibling, never attributes."""
    sizes = []
    for steps in (10, 10_000):
        run = Recording()
        for step in range(steps):
            run.log.log({"loss": 1.0, "lr": 0.1}, step=step)
        sizes.append({(column.name, column.attributes) for column in columns_of(run.take())})
    assert sizes[0] == sizes[1]
    assert len(sizes[0]) == 4


def test_the_clock_set_back_between_points_is_what_their_times_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """Times come from the wall clock, also when it goes back 5 s; the order of the points stays."""
    times = iter([100_000_000_000, 95_000_000_000, 96_000_000_000])
    monkeypatch.setattr(points, "wall_ns", lambda: next(times))
    run = Recording()
    for value in (1.0, 2.0, 3.0):
        run.log.log({"loss": value})
    loss = columns_of(run.take())[0]
    assert list(loss.values) == [1.0, 2.0, 3.0]
    assert list(loss.times_ns) == [100_000_000_000, 95_000_000_000, 96_000_000_000]


def test_points_within_one_tick_of_the_clock_have_times_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five calls at the same nanosecond are told apart, so that each finds the step that stands beside it."""
    monkeypatch.setattr(points, "wall_ns", lambda: 1_000)
    run = Recording()
    for value in range(5):
        run.log.log({"loss": float(value)})
    digested = run.take()
    assert list(columns_of(digested)[0].times_ns) == [1_000, 1_001, 1_002, 1_003, 1_004]


def test_threads_that_log_at_once_lose_nothing() -> None:
    """Four threads with 2,000 points each under keys of their own: 8,000 points, each thread's in its order."""
    run = Recording()

    def work(name: str) -> None:
        for value in range(2_000):
            run.log.log({name: float(value)})

    threads = [threading.Thread(target=work, args=(f"t{index}",)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = run.stored()
    for index in range(4):
        rows = found[(f"train.t{index}", ())]
        assert [value for _, value in rows] == [float(value) for value in range(2_000)]
        assert [step for step, _ in rows] == sorted({step for step, _ in rows})


def test_a_resumed_run_goes_on_from_its_first_step() -> None:
    """With a first step of 500 the first implicit point goes there, a loop begins there."""
    run = Recording(first_step=500)
    assert run.log.at == 500
    run.log.log({"a": 1.0})
    other = Recording(first_step=500)
    for _ in StepLoop(range(2), other.log):
        other.log.log({"a": 1.0})
    assert run.stored() == {("train.a", ()): [(500, 1.0)]}
    assert other.stored()[("train.a", ())] == [(500, 1.0), (501, 1.0)]


def test_a_split_that_is_no_text_is_taken_by_its_text() -> None:
    """A number as split becomes its digits."""
    run = Recording()
    run.log.log({"a": 1.0}, split=3)  # type: ignore[arg-type]  # an argument that callers should not give
    assert run.stored() == {("train.a", (("split", "3"),)): [(0, 1.0)]}
