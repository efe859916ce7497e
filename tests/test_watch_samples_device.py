"""Checks of samples on a device: nothing waits for it, and the numbers are those of the host."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode

from otel_train.watch import samples_classes, samples_taken
from otel_train.watch.samples_batch import find
from otel_train.watch.samples_copy import ArrayReader, AtHand
from otel_train.watch.samples_library import NumpyLibrary, TorchLibrary, mixed
from otel_train.watch.samples_measured import ArrayCheck, Facts, LabelsTaken, SplitState


class Late:
    """A reader whose arrays come when it is told so."""

    def __init__(self) -> None:
        self.here = False
        self.sent: list[Any] = []

    def read_later(self, arrays: Sequence[Any]) -> Any:
        self.sent.append([tuple(array.shape) for array in arrays])
        late = self

        class Coming(AtHand):
            def ready(self) -> bool:
                return late.here

        return Coming(arrays)


def take(batch: Any, labels: Any = None, *, reader: Any = None, state: SplitState | None = None, **more: Any) -> Any:
    found = find(batch, labels, more.get("kind"))
    assert not isinstance(found, str), found
    reader = reader or ArrayReader()
    taken = None if found.labels is None else LabelsTaken(found.labels, reader)
    return ArrayCheck(found, state or SplitState(), reader, taken, more.get("given"), more.get("keep", 4))


def images(**about: Any) -> torch.Tensor:
    return torch.empty(32, 3, 16, 16, **about)


def tokens(**about: Any) -> dict[str, torch.Tensor]:
    whole = {"dtype": torch.int64, **about}
    return {"input_ids": torch.empty(4, 9, **whole), "attention_mask": torch.empty(4, 9, **whole)}


@pytest.mark.parametrize(
    "batch",
    [
        lambda **about: (images(**about), torch.empty(32, dtype=torch.int64, **about)),
        lambda **about: images(**about).to(torch.bfloat16).to(memory_format=torch.channels_last),
        lambda **about: images(**about).to(torch.uint8),
        lambda **about: (torch.empty(8, 5, **about), torch.empty(8, **about)),
        lambda **about: torch.empty(8, dtype=torch.bool, **about),
        lambda **about: [torch.empty(3, 8, 8, **about), torch.empty(3, 9, 7, **about), torch.empty(3, 8, 8, **about)],
        tokens,
    ],
    ids=["pictures", "bfloat16", "bytes", "quantities", "flags", "shapes", "tokens"],
)
def test_no_value_of_a_device_is_asked_for(batch: Callable[..., Any]) -> None:
    """With tensors of a device that have no values: whoever asked for one would get an exception, which is shown."""
    with FakeTensorMode():
        with pytest.raises(DataDependentOutputException):
            images(device="cuda").sum().item()
        state, reader = SplitState(), Late()
        for _ in range(7):
            check = take(batch(device="cuda"), reader=reader, state=state)
        assert check.ready() is False
        reader.here = True
        assert check.ready() is True


def test_one_vector_and_the_kept_samples_are_all_that_is_copied() -> None:
    """Of 32 pictures the numbers, four pictures, and the counts of the classes."""
    reader = Late()
    with FakeTensorMode():
        take((images(device="cuda"), torch.empty(32, dtype=torch.int64, device="cuda")), reader=reader, keep=4)
    counts, (numbers, kept) = reader.sent
    assert counts == [(101,)]
    assert kept == (4, 3, 16, 16)
    assert len(numbers) == 1
    assert numbers[0] < 60


def on_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have CPU tensors measured as those of a device are."""
    for module in (samples_taken, samples_classes):
        monkeypatch.setattr(module, "on_host", lambda tensor: tensor)


def planted(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(4)
    batch = torch.randn(24, 2, 5, 5, generator=generator).to(dtype)
    batch[2] = 0.5
    batch[4, 0, 1, 1] = math.nan
    batch[5, 1, 0, 0] = -math.inf
    batch[8] = batch[17] = batch[9]
    return batch


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_a_device_finds_what_the_host_finds(monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype) -> None:
    """Seven checks of a growing range, each number alike; the same samples are kept."""
    labels = torch.arange(24) % 5

    def found() -> list[Facts]:
        state = SplitState()
        checks = [take((planted(dtype) * (1 + step / 4), labels), state=state) for step in range(7)]
        return [check.facts() for check in checks]

    host = found()
    on_device(monkeypatch)
    device = found()
    for here, there in zip(host, device, strict=True):
        assert there.values == pytest.approx(here.values, rel=1e-9)
        assert there.drift == (None if here.drift is None else pytest.approx(here.drift, abs=1e-12))
        assert there.range == pytest.approx(here.range)
        assert there.classes == here.classes == {0: 5.0, 1: 5.0, 2: 5.0, 3: 5.0, 4: 4.0}
        described = [(kept.row, kept.faults, kept.label) for kept in here.kept]
        assert [(kept.row, kept.faults, kept.label) for kept in there.kept] == described
        assert described[0] == (4, ["non-finite"], 4)
        for mine, other in zip(here.kept, there.kept, strict=True):
            assert np.array_equal(np.asarray(mine.content.tolist()), np.asarray(other.content.tolist()), equal_nan=True)
    assert host[0].values["constant"] == 1 / 24
    assert host[0].values["nonfinite"] == 2 / 24
    assert host[0].values["duplicate"] == 3 / 24


def test_tokens_on_a_device_are_those_of_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lengths without padding, an empty row, a row of one id, two equal ones whose padding differs."""
    ids = torch.tensor([[5, 6, 7, 0], [5, 6, 7, 9], [8, 8, 8, 8], [3, 3, 3, 3], [1, 2, 0, 0]])
    mask = torch.tensor([[1, 1, 1, 0], [1, 1, 1, 0], [1, 1, 1, 1], [0, 0, 0, 0], [1, 1, 0, 0]])
    batch = {"input_ids": ids, "attention_mask": mask, "labels": ids}
    host = take(batch).facts()
    on_device(monkeypatch)
    device = take(batch).facts()
    assert device.values == pytest.approx(host.values)
    lengths = [3, 3, 4, 0, 2]
    assert host.values["mean"] == pytest.approx(np.mean(lengths))
    assert host.values["std"] == pytest.approx(np.std(lengths))
    assert host.values["saturated"] == 2 / 5  # the longest, and the shortest
    assert host.values["constant"] == 2 / 5
    assert host.values["duplicate"] == 2 / 5
    assert host.more["empty"] == 1 / 5


def test_classes_on_a_device_beyond_those_that_are_counted_are_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """-1 to 99 by number; nothing else is told apart without reading it."""
    on_device(monkeypatch)
    facts = take(torch.rand(6, 2), torch.tensor([-1, 0, 2, 2, 150, 999])).facts()
    assert facts.classes == {-1: 1.0, 0: 1.0, 1: 0.0, 2: 2.0, "other": 2.0}
    assert take(torch.rand(2, 2), torch.tensor([0.5, 1.0])).facts().classes is None


def test_equal_rows_are_found_by_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """NaN equals itself, 0.0 is not -0.0, and rows that differ in their last value differ; both libraries agree."""
    rows = torch.zeros(7, 100_000)
    rows[1] = rows[2] = math.nan
    rows[3] = -0.0
    rows[4, -1] = 1e-30
    rows[6] = torch.rand(100_000)
    expected = [True, True, True, False, False, True, False]
    assert NumpyLibrary(np).duplicates([rows.numpy()]).tolist() == expected
    assert TorchLibrary(torch, torch.device("cpu")).duplicates([rows]).tolist() == expected


@pytest.mark.parametrize("dtype", [torch.uint8, torch.bool, torch.int16, torch.float16, torch.int64, torch.float64])
def test_equal_rows_are_found_in_every_type(dtype: torch.dtype) -> None:
    """Against a comparison row by row, with about half of the rows alike."""
    generator = torch.Generator().manual_seed(1)
    rows = torch.randint(0, 2, (40, 5), generator=generator).to(dtype)
    listed = [tuple(row) for row in rows.tolist()]
    expected = [listed.count(row) > 1 for row in listed]
    assert 5 < sum(expected) < 40
    assert NumpyLibrary(np).duplicates([rows.numpy()]).tolist() == expected
    assert TorchLibrary(torch, torch.device("cpu")).duplicates([rows]).tolist() == expected


def test_the_factors_of_the_hash_are_those_of_splitmix() -> None:
    """Against the published algorithm in whole numbers of Python."""

    def splitmix(number: int) -> int:
        state = number * 0x9E3779B97F4A7C15 % 2**64
        state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        state = (state ^ (state >> 27)) * 0x94D049BB133111EB % 2**64
        return state ^ (state >> 31)

    numbers = torch.arange(1, 1000)
    assert [value % 2**64 for value in mixed(numbers).tolist()] == [splitmix(number) for number in numbers.tolist()]


def test_torch_without_numpy_finds_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where NumPy is not installed CPU tensors are measured by torch."""
    expected = take(planted()).facts()
    monkeypatch.delitem(sys.modules, "numpy")
    facts = take(planted()).facts()
    assert facts.values == pytest.approx(expected.values, rel=1e-9)
    assert all(torch.is_tensor(kept.content) for kept in facts.kept)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_on_a_real_device_nothing_is_waited_for() -> None:
    """CUDA itself raises at any synchronisation; the numbers are those of the host."""
    batch, labels = planted(), torch.arange(24) % 5
    expected = take((batch, labels)).facts()
    device_batch, device_labels = batch.cuda(), labels.cuda()
    take((device_batch, device_labels)).facts()  # compiles and loads what is needed
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        check = take((device_batch, device_labels))
    finally:
        torch.cuda.set_sync_debug_mode("default")
    torch.cuda.synchronize()
    assert check.ready()
    facts = check.facts()
    assert facts.values == pytest.approx(expected.values, rel=1e-9)
    assert facts.classes == expected.classes
    assert [kept.row for kept in facts.kept] == [kept.row for kept in expected.kept]


DTYPES = ["float16", "float32", "float64", "uint8", "int8", "int16", "int32", "int64", "bool"]
SPECIAL = [0.0, -0.0, 1.0, -1.0, 1e-30, 3e38, -3e38, 1e308, math.nan, math.inf, -math.inf, 255.0, 1e6 + 0.5]


@settings(max_examples=150, deadline=None)
@given(
    dtype=st.sampled_from(DTYPES),
    shape=st.lists(st.integers(1, 5), min_size=1, max_size=4),
    seed=st.integers(0, 1000),
    given_range=st.sampled_from([None, (0.0, 1.0), (-1e300, 1e300)]),
)
def test_whatever_the_values_the_numbers_are_numpys(
    dtype: str, shape: list[int], seed: int, given_range: tuple[float, float] | None
) -> None:
    """Any type and shape, with the greatest and smallest values: no fault, and NumPy's results in float64."""
    random = np.random.default_rng(seed)
    with np.errstate(all="ignore"):
        batch = random.choice(SPECIAL, size=shape).astype(dtype)
    facts = take(batch, kind="array", given=given_range).facts()
    wide = batch.astype(np.float64)
    finite = wide[np.isfinite(wide)]
    rows = wide.reshape(shape[0], -1)
    assert facts.values["nonfinite"] == np.mean(~np.isfinite(rows).all(axis=1))
    if not finite.size:
        assert facts.values["mean"] is None
        return
    scale = float(np.abs(finite).max()) or 1.0
    expected_std = scale * np.std(finite / scale)
    assert facts.values["mean"] == pytest.approx(scale * np.mean(finite / scale), abs=scale * 1e-12)
    assert facts.values["std"] == pytest.approx(expected_std, rel=1e-6, abs=scale * 1e-7)
    low, high = facts.range
    if given_range is None and dtype != "uint8":
        assert (low, high) == (finite.min(), finite.max())
    ends = (wide <= low) | (wide >= high)
    assert facts.values["saturated"] == pytest.approx(np.mean(ends))
