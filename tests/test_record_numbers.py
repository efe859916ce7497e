"""What `log` takes for a number, and what it refuses."""

from __future__ import annotations

import enum
import gc
import math
import sys
import weakref
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from otel_train.record import numbers
from otel_train.record.columns import pythonic
from otel_train.record.numbers import Float32, freeze_all, freeze_tensors
from tests.recording import TRAIN, Recording

torch = pytest.importorskip("torch")


class Celsius(float):
    """A float of a user's own."""


class Level(enum.IntEnum):
    """An int of a user's own."""

    HIGH = 3


class Odd:
    """Raises from whatever is asked of it."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"no {name} today")


def recorded(value: Any) -> Any:
    """Return what is written for a value, None where it is refused."""
    run = Recording()
    run.log.log({"x": value})
    rows = run.stored().get(("train.x", ()))
    return rows[0][1] if rows else None


@pytest.mark.parametrize(
    ("value", "expected", "kind"),
    [
        (0.1, 0.1, float),
        (7, 7, int),
        (True, 1, int),
        (-(2**63), -(2**63), int),
        (2**63, float(2**63), float),
        (10**400, math.inf, float),
        (-(10**400), -math.inf, float),
        (Celsius(21.5), 21.5, float),
        (Level.HIGH, 3, int),
        (Fraction(1, 4), 0.25, float),
        (Decimal("0.1"), 0.1, float),
        (Decimal("Infinity"), math.inf, float),
        (Float32(0.1), 0.1, Float32),
        (np.float16(0.1), float(np.float16(0.1)), float),
        (np.float32(0.1), float(np.float32(0.1)), float),
        (np.float64(0.1), 0.1, float),
        (np.longdouble("0.1"), 0.1, float),
        (np.int8(-5), -5, int),
        (np.uint8(200), 200, int),
        (np.int64(2**62), 2**62, int),
        (np.uint64(2**64 - 1), float(2**64 - 1), float),
        (np.bool_(True), 1, int),
        (np.array(2.5), 2.5, float),
        (np.array([2.5], dtype=np.float64), 2.5, float),
        (np.array([[3]]), 3, int),
        (np.array(2.5, dtype=object), 2.5, float),
        (np.array(Fraction(1, 2), dtype=object), 0.5, float),
        (np.ma.masked_array(2.5), 2.5, float),
        (torch.tensor(0.1), float(np.float32(0.1)), float),
        (torch.tensor([0.1]), float(np.float32(0.1)), float),
        (torch.tensor(0.1, dtype=torch.float64), 0.1, float),
        (torch.tensor(0.1, dtype=torch.bfloat16), 0.10009765625, Float32),
        (torch.tensor(0.1, dtype=torch.float16), float(np.float16(0.1)), Float32),
        (torch.tensor(2**60), 2**60, int),
        (torch.tensor(True), 1, int),
        (torch.nn.Parameter(torch.tensor(0.5)), 0.5, float),
    ],
)
def test_every_kind_of_number_is_recorded_as_what_it_is(value: Any, expected: float, kind: type) -> None:
    """The number that is written equals the one logged, as float or integer, and is no object of NumPy or torch."""
    number = recorded(value)
    assert number == expected
    assert type(number) is kind


@pytest.mark.parametrize(
    "value",
    [
        None,
        "0.5",
        b"0.5",
        bytearray(b"0.5"),
        memoryview(b"0.5"),
        [0.5],
        {"a": 1},
        1 + 2j,
        Decimal("sNaN"),
        object(),
        np.complex64(1),
        np.datetime64("2026-01-01"),
        np.str_("0.5"),
        np.array([1.0, 2.0]),
        np.array([]),
        np.array("0.5"),
        np.array(None, dtype=object),
        torch.tensor([1.0, 2.0]),
        torch.zeros(0),
        torch.tensor(1 + 2j),
        torch.zeros(2, device="meta"),
        torch.zeros((), device="meta"),
        torch.zeros((), dtype=torch.complex64, device="meta"),
        np.ma.masked,
        np.ma.masked_array(2.5, mask=True),
    ],
)
def test_what_is_no_number_is_refused_for_its_key_alone_with_one_warning(value: Any) -> None:
    """Of two keys the good one is stored twice; the other is counted each time, said once, and moves no step."""
    run = Recording()
    for _ in range(2):
        run.log.log({"bad": value, "loss": 0.5})
    assert run.stored() == {("train.loss", TRAIN): [(0, 0.5), (1, 0.5)]}
    assert len(run.warnings) == 1
    assert "'bad' is not recorded" in run.warnings[0]
    assert sum(run.buffer.dropped.values()) == 2


def test_a_refusal_says_once_what_to_do_though_each_value_has_another_text() -> None:
    """A key that brings another text at each step is warned of once, not a thousand times."""
    run = Recording()
    for step in range(100):
        run.log.log({"note": f"step {step}"})
    assert len(run.warnings) == 1
    assert "tags or logs" in run.warnings[0]
    assert run.buffer.dropped == {"refused": 100}


def test_a_large_tensor_is_refused_with_its_shape() -> None:
    """The warning names the shape of the tensor and the way out."""
    run = Recording()
    run.log.log({"grad": torch.zeros(2, 3)})
    assert "shape (2, 3) is not one number; log its mean" in run.warnings[0]


def test_an_object_that_raises_whatever_it_is_asked_costs_only_its_own_key() -> None:
    """Its neighbour is recorded, and the reason is what it raised."""
    run = Recording()
    run.log.log({"bad": Odd(), "loss": 0.5})
    assert run.stored() == {("train.loss", TRAIN): [(0, 0.5)]}
    assert run.warnings == ["log: 'bad' is not recorded: its value cannot be read: no is_cpu today"]


@pytest.mark.parametrize("kind", [float, np.float32, torch.tensor])
def test_nan_and_infinities_are_data(kind: Any) -> None:
    """NaN and both infinities come through from Python's, NumPy's and torch's numbers."""
    assert math.isnan(recorded(kind(math.nan)))
    assert recorded(kind(math.inf)) == math.inf
    assert recorded(kind(-math.inf)) == -math.inf


def test_sums_of_narrow_numbers_do_not_overflow_into_warnings() -> None:
    """Ten int8 of 100 and ten float16 of 60,000, whose sums overflow their types, are finite numbers."""
    run = Recording()
    run.log.log({f"i{index}": np.int8(100) for index in range(10)})
    run.log.log({f"h{index}": np.float16(60_000) for index in range(10)})
    found = run.stored()
    assert found[("train.i9", ())] == [(0, 100)]
    assert found[("train.h9", ())] == [(0, 60_000.0)]
    assert run.summaries.by_series[run.names.series("h0", None)].nonfinite == {}


def test_32_bit_floats_are_marked_so_that_they_are_written_short() -> None:
    """Columns of NumPy's float32 and of such tensors are marked as a whole, one mixed with doubles value by value."""
    run = Recording()
    run.log.log({"a": np.float32(0.1)})
    run.log.log({"b": torch.tensor(0.1)})
    run.log.log({"c": 0.1})
    run.log.log({"d": torch.tensor(0.1, dtype=torch.bfloat16), "e": 0.1})
    run.log.log({"c": torch.tensor(0.1)})
    columns = {column.description: column for block in run.take(last=True).blocks for column in block}
    assert (columns["a"].narrow, columns["b"].narrow, columns["c"].narrow) == (True, True, False)
    assert [type(value) for value in columns["c"].values] == [float, Float32]
    assert type(columns["d"].values[0]) is Float32


def test_numbers_of_one_column_may_change_their_kind() -> None:
    """An int, a bool, a double and a float32 in one series keep their values."""
    values, narrow = pythonic((1, True, 0.5, np.float32(0.25), np.bool_(False)))
    assert list(values) == [1, 1, 0.5, 0.25, 0]
    assert narrow is False


def test_a_tensor_is_dead_after_the_call_and_its_graph_with_it() -> None:
    """1,000 losses with a graph to a large input: each is gone at once, though nothing is written yet."""
    run = Recording()
    weight = torch.ones(1000, requires_grad=True)
    alive = 0
    for _ in range(1000):
        large = torch.ones(1000)
        loss = (large * weight).sum()
        watch, graph = weakref.ref(loss), weakref.ref(large)
        run.log.log({"loss": loss})
        del loss, large
        alive += (watch() is not None) + (graph() is not None)
    gc.collect()
    assert alive == 0
    assert {type(value) for _, values in run.raw for value in values.values()} == {float}
    assert not any(isinstance(entry, torch.Tensor) for entry in gc.get_referents(run.buffer.entries))
    assert run.stored()[("train.loss", TRAIN)] == [(step, 1000.0) for step in range(1000)]


def test_a_refused_tensor_is_not_kept_either() -> None:
    """A tensor of several elements beside a good value is dead after the call, also in a loop of `run.steps`."""
    run = Recording()
    run.log.loops[object()] = 0
    big = torch.zeros(100)
    watch = weakref.ref(big)
    run.log.log({"big": big, "loss": torch.tensor(1.0)})
    del big
    assert watch() is None


def test_freeze_tensors_serves_only_a_call_of_float32_tensors() -> None:
    """With a float, a double or a larger tensor among them, or without torch, the slow way decides."""
    one = torch.tensor(1.5)
    assert freeze_tensors({"a": one, "b": one}) == {"a": 1.5, "b": 1.5}
    assert freeze_tensors({"a": one, "b": 0.5}) is None
    assert freeze_tensors({"a": one, "b": one.double()}) is None
    assert freeze_tensors({"a": one, "b": torch.zeros(2)}) is None


def test_numbers_work_without_torch_or_while_another_thread_imports_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without torch, and with a torch that has no `float32` yet, a Decimal is read all the same."""
    for module in (None, object()):
        if module is None:
            monkeypatch.delitem(sys.modules, "torch")
        else:
            monkeypatch.setitem(sys.modules, "torch", module)
        assert recorded(Decimal("0.5")) == 0.5


def test_a_tensor_that_cannot_be_read_is_refused_with_the_reason() -> None:
    """A sparse or otherwise odd one-element tensor whose conversion raises is said with what it raised."""

    class Broken:
        is_cpu = True
        shape = ()

        def item(self) -> float:
            raise ValueError("on strike")

    frozen, refused = freeze_all({"a": Broken(), "b": 1.0})
    assert frozen == {"b": 1.0}
    assert refused == {"a": "its value cannot be read: on strike"}


def test_numpy_scalars_take_the_quick_way_from_their_second_call_on() -> None:
    """Their types join the known ones when they are first seen; longdouble, which is no plain number, never does."""
    recorded(np.float32(1))
    recorded(np.longdouble(1))
    assert np.float32 in numbers.SAFE
    assert np.longdouble not in numbers.SAFE


def test_arrays_of_other_libraries_are_read_by_their_own_conversion() -> None:
    """One element counts as its number, several are refused with their shape: neither JAX nor CuPy need be known."""

    class Foreign:
        def __init__(self, *values: float) -> None:
            self.values = values
            self.size = len(values)
            self.shape = (len(values),)

        def __float__(self) -> float:
            return self.values[0]

    frozen, refused = freeze_all({"one": Foreign(0.5), "two": Foreign(0.5, 1.5)})
    assert frozen == {"one": 0.5}
    assert refused == {"two": "an array of shape (2,) is not one number; log its mean, or each element by its own key"}
