"""The score that names the rank which holds up the others."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_train.watch.straggler import score, scores, usual_s


def test_one_slow_rank_of_two_four_and_eight() -> None:
    """With as little as two ranks the slow one gets the full factor, since the others' time is what is usual."""
    for ranks in (2, 4, 8):
        times = {rank: ([3.0], [1.0]) for rank in range(ranks)} | {1: ([3.0], [3.0])}
        found = scores(times)
        expected = 3.0 / np.quantile([1.0] * (ranks - 1) + [3.0], 0.25)
        assert found[1] == pytest.approx(expected)
        assert all(found[rank] == pytest.approx(3.0 / (3.0 - 1.0 + 3.0 / expected)) for rank in times if rank != 1)
    assert found[1] == pytest.approx(3.0)


def test_half_of_the_ranks_may_be_slow() -> None:
    """Two slow ones of four are both named."""
    found = scores({0: ([2.0], [1.0]), 1: ([2.0], [2.0]), 2: ([2.0], [1.0]), 3: ([2.0], [2.0])})
    assert [found[rank] > 1.5 for rank in range(4)] == [False, True, False, True]


def test_a_small_difference_beside_much_communication_is_none() -> None:
    """Twice the others' work, but a hundredth of the step: it delays nobody."""
    found = scores({rank: ([1.0], [0.01]) for rank in range(3)} | {3: ([1.0], [0.02])})
    assert found[3] == pytest.approx(1.0 / 0.99)


def test_a_few_long_steps_do_not_count() -> None:
    """Rank 0 saves a checkpoint in one step of ten: the median does not see it."""
    usual: tuple[Sequence[float], Sequence[float]] = ([1.0] * 10, [0.5] * 10)
    found = scores({0: ([1.0] * 9 + [30.0], [0.5] * 9 + [29.0]), 1: usual, 2: usual, 3: usual})
    assert found == {rank: pytest.approx(1.0) for rank in range(4)}


def test_a_rank_alone_and_one_without_steps_have_none() -> None:
    """There is nobody to compare with."""
    assert scores({0: ([1.0], [1.0])}) == {}
    assert scores({0: ([1.0], [1.0]), 1: ([], [])}) == {}
    assert usual_s([1.0]) is None
    assert score(0.0, 0.0, 0.0) == 1.0


@given(st.lists(st.floats(1e-6, 1e3), min_size=2, max_size=40))
def test_usual_is_the_lower_quartile_as_a_store_has_it(own: list[float]) -> None:
    """Linear between two ranks, as PromQL's quantile and NumPy's."""
    assert usual_s(own) == pytest.approx(float(np.quantile(own, 0.25)))
