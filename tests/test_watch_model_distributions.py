"""Bucket counts of weights and gradients, each number placed a second time by NumPy in 64 bits."""

from __future__ import annotations

from typing import Any

import pytest

from otel_train.otlp.histogram import ExponentialHistogram
from otel_train.record.histogram_value import HistogramValue, lower_bound
from otel_train.watch.model_distributions import FIRST, LAST, MOST_BUCKETS, SCALE, Totals, count
from tests.model_watching import Sampled, network, sampled, train_step

torch: Any = pytest.importorskip("torch")
np: Any = pytest.importorskip("numpy")

__all__ = ["sampled"]


def placed(numbers: Any, scale: int) -> tuple[dict[int, int], dict[int, int], int, int]:
    """Return NumPy's counts by bucket of the positive and the negative numbers, of zeros, and of what is not finite.

    Upper bounds belong to their bucket: searchsorted with side="left" among the exact bounds.
    """
    values = np.concatenate([np.asarray(one.detach().double()).ravel() for one in numbers])
    finite = values[np.isfinite(values)]
    step = 1 << (SCALE - scale)
    first = -1 + (FIRST // step)
    bounds = np.array([lower_bound(index + 1, scale) for index in range(first, (LAST // step) + 2)])
    found = []
    for magnitudes in (finite[finite > 0], -finite[finite < 0]):
        places, counts = np.unique(np.searchsorted(bounds, magnitudes, side="left"), return_counts=True)
        found.append({int(place) + first: int(number) for place, number in zip(places, counts, strict=True)})
    return found[0], found[1], int((finite == 0).sum()), len(values) - len(finite)


def buckets(value: HistogramValue) -> tuple[dict[int, int], dict[int, int]]:
    return (
        {value.positive_offset + i: n for i, n in enumerate(value.positive_counts) if n},
        {value.negative_offset + i: n for i, n in enumerate(value.negative_counts) if n},
    )


def totals_of(*tensors: Any) -> Totals:
    totals = Totals()
    for one in count([(0, tensor) for tensor in tensors], 1):
        totals.add(["x"], one.table[:1], one.sums[:1].tolist())
    return totals


def edges() -> Any:
    """All bucket bounds that 32 bits hold, with their neighbours on both sides, and the smallest numbers."""
    bounds = torch.tensor([lower_bound(j, SCALE) for j in range(FIRST, LAST + 1)], dtype=torch.float64).float()
    around = [bounds, torch.nextafter(bounds, torch.tensor(0.0)), torch.nextafter(bounds, torch.tensor(float("inf")))]
    found = torch.cat(around)
    return found[found.isfinite() & (found > 0)]


KINDS = {
    "normal": lambda: torch.randn(200_000) * 0.02,
    "every bound and its neighbours": lambda: torch.cat([edges(), -edges()]),
    "normal bounds only": lambda: edges()[edges() > 1e-30],
    "zeros of both signs": lambda: torch.tensor([0.0, -0.0, 1.0, -1.0]),
    "the largest": lambda: torch.tensor([3.4028234663852886e38]),
    "the largest below zero": lambda: torch.tensor([-3.4028234663852886e38, 1.0]),
    "without full mantissa": lambda: torch.tensor([1e-45, -1e-45, 1e-40, 1.1754943508222875e-38, 0.5]),
    "not finite": lambda: torch.tensor([float("nan"), float("inf"), -float("inf"), 2.0, 0.0]),
    "half": lambda: torch.randn(5000).half(),
    "bfloat16": lambda: torch.randn(5000).bfloat16(),
    "double": lambda: torch.randn(5000, dtype=torch.float64),
    "channels last": lambda: torch.randn(8, 3, 5, 5).to(memory_format=torch.channels_last),
    "transposed": lambda: torch.randn(30, 70).t(),
    "every other": lambda: torch.randn(301)[::2],
    "one": lambda: torch.tensor(2.0),
}


@pytest.mark.parametrize("kind", KINDS)
def test_each_number_is_in_its_bucket(kind: str) -> None:
    """Counts, zeros, sum and what is left out, of numbers of all kinds and orders in memory."""
    torch.manual_seed(1)
    numbers = KINDS[kind]()
    totals = totals_of(numbers)
    value = totals.value("x")
    assert value.scale is not None
    positive, negative, zeros, bad = placed([numbers], value.scale)
    assert buckets(value) == (positive, negative)
    assert (value.zero_count, totals.nonfinite("x")) == (zeros, bad)
    assert value.count == numbers.numel() - bad
    finite = numbers.double()[numbers.double().isfinite()]
    assert value.sum == pytest.approx(float(finite.sum()), rel=1e-4, abs=1e-5 * float(finite.abs().sum()))
    assert max(len(value.positive_counts), len(value.negative_counts)) <= MOST_BUCKETS


def test_the_counts_are_those_of_the_histogram_that_records_one_by_one() -> None:
    """Brought to the same scale, the numbers lie as `otlp.histogram` puts them; powers of two on its bounds too."""
    torch.manual_seed(2)
    numbers = torch.cat([torch.randn(2000), 2.0 ** torch.arange(-20.0, 20.0), -(2.0 ** torch.arange(-5.0, 5.0))])
    value = totals_of(numbers).value("x")
    single = ExponentialHistogram(max_buckets=40)
    for number in numbers.tolist():
        single.record(number)
    other, _ = single.snapshot()
    assert value.scale is not None
    assert other.scale is not None
    assert other.scale <= value.scale
    folded = []
    for side in buckets(value):
        merged: dict[int, int] = {}
        for index, found in side.items():
            place = index >> (value.scale - other.scale)
            merged[place] = merged.get(place, 0) + found
        folded.append(merged)
    assert tuple(folded) == buckets(other)


def test_small_and_large_tensors_of_many_layers_are_kept_apart() -> None:
    """Tensors that are counted together, in parts, or alone, give each layer its own counts."""
    torch.manual_seed(3)
    sizes = [5, 70, 300_000, 1, 12, 40, 9, 9000, 0, 8192]
    tensors = [(number // 2, torch.randn(size) * 10.0**-number) for number, size in enumerate(sizes)]
    (counts,) = count(tensors, 5)
    for layer in range(5):
        totals = Totals()
        totals.add(["x"], counts.table[layer : layer + 1], counts.sums[layer : layer + 1].tolist())
        value = totals.value("x")
        assert value.scale is not None
        own = [tensor for number, tensor in tensors if number == layer]
        positive, negative, _, _ = placed(own, value.scale)
        assert buckets(value) == (positive, negative)
        assert value.sum == pytest.approx(float(sum(one.double().sum() for one in own)), rel=1e-3, abs=1e-6)


def test_a_factor_is_applied_before_counting() -> None:
    """A loss scale that is no power of two moves numbers to other buckets."""
    torch.manual_seed(4)
    numbers = torch.randn(10_000)
    (counts,) = count([(0, numbers)], 1, factor=torch.tensor(1 / 3))
    totals = Totals()
    totals.add(["x"], counts.table[:1], counts.sums[:1].tolist())
    value = totals.value("x")
    assert value.scale is not None
    assert buckets(value) == placed([numbers * torch.tensor(1 / 3)], value.scale)[:2]


def test_distributions_of_a_training_add_up_over_the_samplings(sampled: Sampled) -> None:
    """After each sampled step the counts are those of all gradients and weights so far, NumPy says so too."""
    model = network(6, 40, 3)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    watch = sampled.watch(model, optimizer)
    weights: list[Any] = []
    gradients: list[Any] = []
    for sampling in range(3):
        weights += [one.detach().clone() for one in model[0].parameters()]
        train_step(model, optimizer, torch.randn(16, 6), torch.randn(16, 3), clip=0.01)
        # The clipped ones that are there now, times what the clipping took off, would not be exact: take them anew.
        gradients += [one.grad.clone() for one in model[0].parameters()]
        value = sampled.distribution("dl.weight.distribution", "0", sampling)
        assert value.scale is not None
        positive, negative, zeros, _ = placed(weights, value.scale)
        assert buckets(value) == (positive, negative)
        assert value.zero_count == zeros
        assert value.count == (sampling + 1) * (6 * 40 + 40)
        assert value.sum == pytest.approx(float(sum(one.double().sum() for one in weights)), rel=1e-4, abs=1e-4)
    watch.close()
    assert sampled.distribution("dl.grad.distribution", "0").count == 3 * (6 * 40 + 40)


def test_gradients_are_counted_as_they_are_before_clipping(sampled: Sampled) -> None:
    """Clipping takes off a factor of a hundred and more: the buckets are those of the gradient before it."""
    model = network(6, 40, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    watch = sampled.watch(model, optimizer)
    torch.nn.functional.mse_loss(model(torch.randn(16, 6)), torch.randn(16, 3)).backward()
    before = [one.grad.clone() for one in model[0].parameters()]
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
    optimizer.step()
    watch.close()
    value = sampled.distribution("dl.grad.distribution", "0")
    assert value.scale is not None
    positive, negative, zeros, _ = placed(before, value.scale)
    assert buckets(value) == (positive, negative)
    assert value.zero_count == zeros


def test_no_distributions_where_none_are_wanted(sampled: Sampled) -> None:
    """`distributions=False` counts nothing; norms are there."""
    model = network(4, 4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    watch = sampled.watch(model, optimizer, distributions=False)
    train_step(model, optimizer, torch.randn(4, 4), torch.randn(4, 2))
    watch.close()
    assert [read.distributions for read in sampled.reads] == [[]]
    assert len(sampled.values("dl.grad.norm")) == 1


def test_a_later_sampling_that_is_wider_merges_what_was_counted_before() -> None:
    """Numbers of two samplings, the second with tiny ones and the third as the first, lie where all together would."""
    torch.manual_seed(6)
    parts = [torch.randn(500), torch.randn(500) * 1e-20, torch.randn(500)]
    one_by_one = Totals()
    for part in parts:
        (counts,) = count([(0, part)], 1)
        one_by_one.add(["x"], counts.table, counts.sums.tolist())
    value = one_by_one.value("x")
    assert value.scale is not None
    assert value.scale < SCALE
    assert buckets(value) == placed(parts, value.scale)[:2]
    assert value.sum == pytest.approx(float(sum(part.double().sum() for part in parts)), abs=1e-3)
