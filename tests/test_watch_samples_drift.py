"""The measure of drift, against SciPy and against what chance gives."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import jensenshannon
from scipy.stats import norm

from otel_train.watch.samples_drift import FirstNames, FirstWindow, by_chance, divergence


@given(st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 1000)), min_size=1, max_size=20))
def test_divergence_is_scipys(pairs: list[tuple[int, int]]) -> None:
    """The square of its distance to base 2; None where a histogram is empty."""
    one, other = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    found = divergence(one, other)
    if not sum(one) or not sum(other):
        assert found is None
        return
    assert found == pytest.approx(np.nan_to_num(jensenshannon(one, other, base=2)) ** 2, abs=1e-9)
    assert 0.0 <= found <= 1.0
    assert found == pytest.approx(divergence(other, one), abs=1e-12)


def test_divergence_has_its_ends() -> None:
    """0 for the same shares at another size, 1 for nothing in common."""
    assert divergence([1, 2, 3], [10, 20, 30]) == pytest.approx(0.0, abs=1e-15)
    assert divergence([5, 0], [0, 9]) == 1.0


@pytest.mark.parametrize(("deviations", "expected"), [(0.5, 0.04), (1.0, 0.16)])
def test_normal_distributions_apart_have_what_is_documented(deviations: float, expected: float) -> None:
    """Two normal distributions so many deviations apart, in bins of a thousandth."""
    edges = np.arange(-8, 9, 0.001)
    one, other = np.diff(norm.cdf(edges)), np.diff(norm.cdf(edges - deviations))
    assert divergence(list(one), list(other)) == pytest.approx(expected, abs=0.005)


@pytest.mark.parametrize(
    ("size", "window", "bins", "within"), [(32, 160, 10, 0.2), (200, 1000, 19, 0.1), (1000, 1000, 5, 0.1)]
)
def test_chance_gives_what_the_formula_says(size: int, window: int, bins: int, within: float) -> None:
    """The mean over 2,000 pairs of samples of one distribution, within a tenth; of few samples within a fifth."""
    random = np.random.default_rng(11)
    shares = random.dirichlet(np.full(bins, 20.0))
    found = [
        divergence(list(random.multinomial(size, shares)), list(random.multinomial(window, shares)))
        for _ in range(2_000)
    ]
    assert np.mean(found) == pytest.approx(by_chance(size, window, bins), rel=within)


def test_the_window_ends_after_five_checks() -> None:
    """From the sixth on the reference stays; an empty check is no check."""
    window = FirstWindow()
    assert window.compare([4, 0]) is None
    assert window.compare([0, 0]) is None
    for _ in range(4):
        assert window.compare([4, 0]) == 0.0
    expected = jensenshannon([0, 4], [20, 0], base=2) ** 2
    assert [window.compare([0, 4]) for _ in range(3)] == [pytest.approx(expected)] * 3


def test_names_that_are_new_or_gone_are_a_difference() -> None:
    """Shares by name: the same names are no drift, others are all of it less what chance gives."""
    names = FirstNames()
    assert names.compare({"a": 50, "b": 50}) is None
    assert names.compare({"b": 50, "a": 50}) == 0.0
    assert names.compare({"c": 100}) == pytest.approx(1.0 - by_chance(100, 200, 3))


def test_names_without_end_are_bounded() -> None:
    """A thousand names are told apart, the rest counts as one."""
    names = FirstNames()
    names.compare({str(number): 1 for number in range(5_000)})
    assert len(names._counts) == 1_001
    assert math.fsum(names._counts.values()) == 5_000
