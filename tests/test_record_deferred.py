"""Values on a device: one copy a call, read once it has arrived, in their order, and never waited for."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from otel_train.record.deferred import CudaBackend, CudaTimer, DeviceReader, OtherBackend, cuda_timer
from otel_train.record.numbers import Float32
from tests.recording import TRAIN, Recording

torch = pytest.importorskip("torch")


class Tensor:
    """A one-element tensor on a device that is not there."""

    is_cpu = False
    shape = ()

    def __init__(self, value: float, device: str = "cuda:0", dtype: str = "torch.float32") -> None:
        self.value = value
        self.device = torch.device(device)
        self.dtype = dtype

    def numel(self) -> int:
        return 1

    def is_complex(self) -> bool:
        return False


class Copy:
    """Arrives when the test says so."""

    def __init__(self, numbers: list[float]) -> None:
        self._numbers = numbers
        self.arrived = False

    def ready(self) -> bool:
        return self.arrived

    def numbers(self) -> Sequence[float]:
        assert self.arrived
        return self._numbers


class Device:
    """Starts copies and counts them."""

    def __init__(self) -> None:
        self.copies: list[Copy] = []
        self.refuses: Exception | None = None
        self.capturing = False

    def copy(self, tensors: Sequence[Tensor]) -> Copy | None:
        if self.refuses is not None:
            raise self.refuses
        if self.capturing:
            return None
        self.copies.append(Copy([float(tensor.value) for tensor in tensors]))
        return self.copies[-1]

    def arrive(self, count: int | None = None) -> None:
        for copy in self.copies[:count]:
            copy.arrived = True


def test_a_call_makes_one_copy_of_all_its_device_values() -> None:
    """Three tensors and a float are one copy; the float waits with them for the same point in time."""
    device = Device()
    run = Recording(backend=device)
    run.log.log({"loss": Tensor(0.5), "a": Tensor(1.5), "lr": 0.1, "b": Tensor(2.5)})
    assert len(device.copies) == 1
    assert run.stored(last=False) == {}
    assert run.digest.waiting == 1
    device.arrive()
    assert run.stored(last=False) == {
        ("train.loss", TRAIN): [(0, 0.5)],
        ("train.a", ()): [(0, 1.5)],
        ("train.b", ()): [(0, 2.5)],
        ("train.lr", ()): [(0, 0.1)],
    }
    assert run.digest.waiting == 0


def test_points_keep_their_order_while_a_copy_is_on_its_way() -> None:
    """The first has not arrived: what follows waits, though it has; then all come in the order of the calls."""
    device = Device()
    run = Recording(backend=device)
    for value in range(4):
        run.log.log({"loss": Tensor(value) if value != 2 else 2.0})
    assert run.stored(last=False) == {}
    device.arrive(1)
    assert run.stored(last=False)[("train.loss", TRAIN)] == [(0, 0.0)]
    device.arrive()
    assert run.stored(last=False)[("train.loss", TRAIN)] == [(1, 1.0), (2, 2.0), (3, 3.0)]


def test_each_number_keeps_its_kind() -> None:
    """float32 and bfloat16 are marked as 32-bit, float64 is a double, integers and booleans are integers."""
    device = Device()
    run = Recording(backend=device)
    kinds = {"torch.float32": Float32, "torch.bfloat16": Float32, "torch.float64": float, "torch.int64": int}
    run.log.log({dtype: Tensor(3, dtype=dtype) for dtype in [*kinds, "torch.bool"]})
    device.arrive()
    values = {name: rows[0][1] for (name, _), rows in run.stored().items()}
    assert {name.removeprefix("train."): type(value) for name, value in values.items()} == kinds | {"torch.bool": int}


def test_values_of_several_devices_in_one_call_are_one_copy_each() -> None:
    """Two on cuda:0 and one on cuda:1: two copies, and the point waits for both."""
    device = Device()
    run = Recording(backend=device)
    run.log.log({"a": Tensor(1), "b": Tensor(2, "cuda:1"), "c": Tensor(3)})
    assert [copy._numbers for copy in device.copies] == [[1.0, 3.0], [2.0]]
    device.arrive(1)
    assert run.stored(last=False) == {}
    device.arrive()
    found = run.stored()
    assert {name: rows[0][1] for (name, _), rows in found.items()} == {"train.a": 1.0, "train.b": 2.0, "train.c": 3.0}


def test_what_never_arrives_is_counted_at_the_end_and_its_neighbours_are_kept() -> None:
    """At last nobody waits: the host's value of the call and the next calls are stored, two values are lost."""
    device = Device()
    run = Recording(backend=device)
    run.log.log({"loss": Tensor(1), "acc": Tensor(1), "lr": 0.1})
    run.log.log({"loss": Tensor(2)})
    device.copies[1].arrived = True
    digested = run.take(last=True)
    assert digested.lost == {"still on the device at the end": 2}
    values = {column.name: list(column.values) for block in digested.blocks for column in block}
    assert (values["train.lr"], values["train.loss"]) == ([0.1], [2.0])


def test_a_tensor_is_not_kept_by_its_copy() -> None:
    """After the call nothing of ours holds the tensor."""
    run = Recording(backend=Device())
    tensor = Tensor(1)
    watch = weakref.ref(tensor)
    run.log.log({"loss": tensor})
    del tensor
    assert watch() is None


@pytest.mark.parametrize(
    ("capturing", "refuses", "reason"),
    [(True, None, "a CUDA graph is being captured"), (False, RuntimeError("gone"), "the device refused: gone")],
)
def test_what_cannot_be_read_now_is_refused_with_the_reason(
    capturing: bool, refuses: Exception | None, reason: str
) -> None:
    """While a graph is captured, or where the device raises, the value is counted and said once; others are stored."""
    device = Device()
    device.capturing, device.refuses = capturing, refuses
    run = Recording(backend=device)
    for _ in range(2):
        run.log.log({"loss": Tensor(1), "lr": 0.1})
        run.log.log({"acc": Tensor(1)})
    assert run.stored() == {("train.lr", ()): [(0, 0.1), (1, 0.1)]}
    assert run.buffer.dropped == {"device not readable": 4}
    assert run.warnings == [f"log: {key!r} is not recorded: {reason}" for key in ("loss", "acc")]


def test_a_copy_that_raises_costs_its_own_call() -> None:
    """An event that raises (a device-side assert) is one fault; the calls around it are stored."""

    class Broken(Device):
        def copy(self, tensors: Sequence[Tensor]) -> Copy | None:
            copy = super().copy(tensors)
            if copy is not None and tensors[0].value == 1:
                copy.ready = self.fail  # type: ignore[method-assign]  # the copy breaks under way
            return copy

        def fail(self) -> bool:
            raise RuntimeError("device-side assert")

    device = Broken()
    run = Recording(backend=device)
    for value in range(3):
        run.log.log({"loss": Tensor(value), "lr": 0.1})
    device.arrive()
    digested = run.digest.take(run.buffer.drain(), 0)
    assert [str(fault) for fault in digested.faults] == ["device-side assert"]
    assert digested.lost == {"fault of telemetry": 2}
    assert [list(column.values) for column in digested.blocks[0] if column.name == "train.loss"] == [[0.0, 2.0]]


def test_devices_without_events_are_read_with_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """MPS, XPU and others: the values are there at once, as doubles, or as float32 where the device has no doubles."""
    wide = torch.tensor(0.1, dtype=torch.float64)
    copied = OtherBackend(torch).copy([wide, torch.tensor([2**25 + 1])])
    assert copied is not None
    assert copied.ready()
    assert list(copied.numbers()) == [0.1, float(2**25 + 1)]

    class NoDoubles:
        """Like MPS."""

        def detach(self) -> NoDoubles:
            return self

        def reshape(self, shape: object) -> NoDoubles:
            return self

        def to(self, dtype: Any) -> Any:
            if dtype is torch.float64:
                raise TypeError("Cannot convert a MPS Tensor to float64 dtype")
            return torch.tensor(0.5)

    copied = OtherBackend(torch).copy([NoDoubles()])
    assert copied is not None
    assert list(copied.numbers()) == [0.5]


def test_the_kind_of_device_chooses_the_way_of_reading() -> None:
    """A meta tensor, which has no value, is refused by the way of devices without events."""
    reader = DeviceReader()
    deferred, refused = reader.read_later({"a": torch.zeros((), device="meta")})
    assert deferred is None
    assert "the device refused" in refused["a"]


class FakeCuda:
    """As much of torch.cuda as the way by events needs; `passed` says which events have passed."""

    def __init__(self) -> None:
        self.capturing = False
        self.streams = 0
        self.waits = 0
        self.passed = False
        self.cuda = self
        self.float64 = torch.float64
        self.no_grad = torch.no_grad
        self.available = self.initialised = True

    def is_current_stream_capturing(self) -> bool:
        return self.capturing

    def is_available(self) -> bool:
        return self.available

    def is_initialized(self) -> bool:
        return self.initialised

    def device(self, device: object) -> Any:
        return torch.no_grad()

    def current_stream(self, device: object) -> str:
        return "main"

    def stream(self, stream: object) -> Any:
        return torch.no_grad()

    def Stream(self, device: object) -> Any:
        self.streams += 1
        return SimpleNamespace(wait_stream=self.wait)

    def wait(self, stream: object) -> None:
        assert stream == "main"
        self.waits += 1

    def Event(self, enable_timing: bool = False) -> Any:
        return SimpleNamespace(
            record=lambda *stream: None, query=lambda: self.passed, elapsed_time=lambda later: 12.5 if later else 0.0
        )

    def stack(self, tensors: Sequence[Any]) -> Any:
        stacked = torch.stack(tensors)
        stacked.record_stream = lambda stream: None
        return stacked

    def empty(self, size: int, *, dtype: Any, pin_memory: bool) -> Any:
        assert pin_memory
        return torch.empty(size, dtype=dtype)


def test_cuda_values_go_by_a_side_stream_that_waits_for_the_main_one() -> None:
    """Two calls use one side stream, each waits for the work before it, and the numbers are there once the event is."""
    cuda = FakeCuda()
    backend = CudaBackend(cuda)
    first = backend.copy([torch.tensor(0.5, requires_grad=True), torch.tensor([3])])
    second = backend.copy([torch.tensor(1.5)])
    assert first is not None
    assert second is not None
    assert (cuda.streams, cuda.waits) == (1, 2)
    assert not first.ready()
    cuda.passed = True
    assert first.ready()
    assert (list(first.numbers()), list(second.numbers())) == ([0.5, 3.0], [1.5])
    cuda.capturing = True
    assert backend.copy([torch.tensor(1.5)]) is None


def test_a_cuda_device_is_read_by_events(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reader takes the way of CUDA for a tensor whose device says so."""
    cuda = FakeCuda()
    monkeypatch.setitem(sys.modules, "torch", cuda)
    reader = DeviceReader()

    class OnCuda(Tensor):
        def detach(self) -> Any:
            return torch.tensor(self.value)

    deferred, refused = reader.read_later({"a": OnCuda(0.25)})
    assert refused == {}
    assert deferred is not None
    assert len(deferred) == 1
    assert not deferred.ready()
    cuda.passed = True
    assert deferred.values() == {"a": 0.25}


def test_the_timer_measures_between_two_events_that_have_passed() -> None:
    """12.5 ms as seconds; None while an event has not passed, where a mark is missing, while a graph is captured."""
    cuda = FakeCuda()
    timer = CudaTimer(cuda)
    earlier, later = timer.mark(), timer.mark()
    assert timer.elapsed_s(earlier, later) is None
    cuda.passed = True
    assert timer.elapsed_s(earlier, later) == 0.0125
    assert timer.elapsed_s(None, later) is None
    cuda.capturing = True
    assert timer.mark() is None


def test_there_is_a_timer_only_where_cuda_is_in_use_already(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without torch, without a device, or before CUDA is initialised there is none, and nothing initialises it."""
    cuda = FakeCuda()
    monkeypatch.setitem(sys.modules, "torch", cuda)
    assert isinstance(cuda_timer(), CudaTimer)
    cuda.initialised = False
    assert cuda_timer() is None
    cuda.available = False
    assert cuda_timer() is None
    monkeypatch.delitem(sys.modules, "torch")
    assert cuda_timer() is None


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_values_of_a_real_device_are_recorded_without_any_synchronisation() -> None:
    """200 losses behind large products, under torch's alarm for synchronising calls: all come, in order and right."""
    run = Recording()
    weight = torch.randn(2048, 2048, device="cuda")
    expected = []
    run.log.log({"loss": torch.zeros((), device="cuda"), "count": torch.tensor(1, device="cuda")})  # allocates once
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for step in range(1, 200):
            loss = (weight @ weight).mul(0).sum() + step / 8
            run.log.log({"loss": loss, "count": torch.full((), step, device="cuda")})
            loss.fill_(-1.0)  # as the next step may overwrite it
            expected.append((step, step / 8))
    finally:
        torch.cuda.set_sync_debug_mode("default")
    torch.cuda.synchronize()
    found = run.stored()
    assert found[("train.loss", TRAIN)][1:] == expected
    assert found[("train.count", ())] == [(step, max(step, 1)) for step in range(200)]
