"""How much of a training is done, as the heartbeat says it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from otel_train.testing import recorded

Start = Callable[..., Any]


class Endless:
    """A loader over a stream: it has a length that raises, as PyTorch's has."""

    def __iter__(self) -> Iterator[int]:
        return iter(range(3))

    def __len__(self) -> int:
        raise TypeError("nobody knows")


def test_epochs_count_whole_and_the_present_one_by_its_batches(start: Start) -> None:
    """Four epochs of five batches: each batch that began is a twentieth."""
    run = start()
    seen = []
    assert run.progress.share() is None
    for _ in run.epochs(4):
        for _ in run.steps(range(5)):
            run.log({"loss": 1.0})
            seen.append(run.progress.share())
    assert seen == pytest.approx([step / 20 for step in range(1, 21)])
    assert run.progress.share() == 1.0


def test_a_resumed_training_begins_where_it_goes_on(start: Start) -> None:
    """`epochs(10, start=6)`: six of ten are behind."""
    run = start()
    for _ in run.epochs(10, start=6):
        assert run.progress.share() == pytest.approx(0.6)
        break
    assert run.progress.share() == pytest.approx(0.6)


def test_validation_and_inner_epochs_do_not_count(start: Start) -> None:
    """What stands beside the training loop, or within an epoch, is no progress of the whole."""
    run = start()
    for _ in run.epochs(2):
        for _ in run.steps(range(2)):
            pass
        for _ in run.steps(range(50), split="val"):
            assert run.progress.share() in (0.5, 1.0)
        for _ in run.epochs(3):
            pass
    assert run.progress.share() == 1.0


def test_one_loop_over_all_steps_is_known_and_epochs_by_hand_are_not(start: Start) -> None:
    """With a second loop that nobody announced the whole is unknown."""
    run = start()
    seen = []
    for _ in run.steps(range(4)):
        seen.append(run.progress.share())
    assert seen == [0.25, 0.5, 0.75, 1.0]
    for _ in run.steps(range(4)):
        assert run.progress.share() is None


def test_a_loader_without_a_length_leaves_whole_epochs(start: Start) -> None:
    """Its length raises; training goes on, and epochs count when they end."""
    run = start()
    seen = []
    for _ in run.epochs(2):
        seen.append(run.progress.share())
        assert len(list(run.steps(Endless()))) == 3
    assert [*seen, run.progress.share()] == [0.0, 0.5, 1.0]
    other = start()
    for _ in other.steps(Endless()):
        assert other.progress.share() is None


def test_the_last_heartbeat_says_how_far_it_came(start: Start) -> None:
    """A training that stops early keeps the share that it reached."""
    run = start()
    for epoch in run.epochs(10):
        for _ in run.steps(range(4)):
            run.log({"loss": 1.0})
        if epoch == 2:
            run.early_stop("enough")
            break
    run.finish()
    points = [point for point in recorded(run).points if point.name == "dl.run.progress"]
    assert points[-1].value == pytest.approx(0.3)
