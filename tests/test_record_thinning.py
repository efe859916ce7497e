"""Every N-th step, or one point an epoch, where the user wants that; counted, and decided before a value is read."""

from __future__ import annotations

from typing import Any

import pytest

from tests.recording import TRAIN, VAL, Recording

torch = pytest.importorskip("torch")


def test_every_tenth_step_of_matching_metrics_is_kept_and_the_rest_counted() -> None:
    """Of 100 losses 10 are kept; lr, which no pattern names, is whole."""
    run = Recording(every={"train.loss": 10})
    for step in range(100):
        run.log.log({"loss": float(step), "lr": 0.1})
    found = run.stored()
    assert found[("train.loss", TRAIN)] == [(step, float(step)) for step in range(0, 100, 10)]
    assert len(found[("train.lr", ())]) == 100
    assert run.buffer.dropped == {"thinned by every=": 90}


def test_a_metric_logged_at_other_steps_than_multiples_keeps_one_in_each_window() -> None:
    """Logged at 5, 11, 15, 22, 31, 38 and thinned to every 10: the first in each ten, never nothing at all."""
    run = Recording(every={"*": 10})
    for step in (5, 11, 15, 22, 31, 38):
        run.log.log({"loss": 1.0}, step=step)
    assert [step for step, _ in run.stored()[("train.loss", TRAIN)]] == [5, 11, 22, 31]


def test_all_points_of_a_step_that_is_kept_are_kept_and_steps_may_go_back() -> None:
    """Two points at step 10 are both there; going back to step 3 begins a window anew."""
    run = Recording(every={"*": 10})
    for step in (10, 10, 12, 3, 4, 10):
        run.log.log({"loss": 1.0}, step=step)
    assert [step for step, _ in run.stored()[("train.loss", TRAIN)]] == [10, 10, 3, 10]


def test_one_point_an_epoch_is_kept() -> None:
    """Three epochs of five steps keep their first points; what comes before any epoch is kept whole."""
    run = Recording(every={"train.*": 0})
    run.log.log({"loss": 9.0})
    run.log.log({"loss": 8.0})
    for epoch in range(3):
        run.log.epoch = epoch
        for value in range(5):
            run.log.log({"loss": float(value)})
    assert [value for _, value in run.stored()[("train.loss", TRAIN)]] == [9.0, 8.0, 0.0, 0.0, 0.0]
    assert run.buffer.dropped == {"thinned by every=": 12}


def test_splits_are_thinned_apart_and_the_last_pattern_that_matches_decides() -> None:
    """Everything each 2 steps, acc each 5; validation counts for itself."""
    run = Recording(every={"*": 2, "train.acc*": 5})
    for step in range(10):
        run.log.log({"loss": 1.0, "acc": 1.0}, step=step)
        run.log.log({"loss": 1.0}, step=step, split="val")
    found = run.stored()
    assert [step for step, _ in found[("train.loss", TRAIN)]] == [0, 2, 4, 6, 8]
    assert [step for step, _ in found[("train.acc", TRAIN)]] == [0, 5]
    assert [step for step, _ in found[("train.loss", VAL)]] == [0, 2, 4, 6, 8]


def test_a_thinned_point_counts_for_the_present_step() -> None:
    """The implicit step moves on though nothing of it is stored."""
    run = Recording(every={"*": 100})
    for _ in range(5):
        run.log.log({"a": 1.0})
    assert run.log.step == 4
    assert run.stored() == {("train.a", ()): [(0, 1.0)]}


def test_no_value_is_read_from_a_device_for_a_point_that_is_not_kept() -> None:
    """Of 20 calls with a device's tensor, two copies are started."""
    copies: list[int] = []

    class Backend:
        def copy(self, tensors: Any) -> Any:
            copies.append(len(tensors))

    run = Recording(every={"*": 10}, backend=Backend())
    for _ in range(20):
        run.log.log({"loss": torch.zeros((), device="meta")})
    assert copies == [1, 1]


def test_what_is_refused_among_the_kept_is_refused_still() -> None:
    """A text where a number should be: counted and said; alone in its call it leaves no entry."""
    run = Recording(every={"*": 2})
    run.log.log({"loss": "x"})
    run.log.log({"acc": "x", "lr": 0.5})
    assert run.stored() == {("train.lr", ()): [(0, 0.5)]}
    assert run.buffer.dropped == {"refused": 2}
