"""Reads numbers from a device later: one small copy a call on a side stream, looked at once its event has passed.

The only module of `record` that knows torch; it never imports it: a device tensor exists only where the user has.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from otel_train.record.numbers import Float32


class Copied(Protocol):
    """Numbers on their way from a device."""

    def ready(self) -> bool:
        """Tell whether they have arrived, without waiting."""
        ...

    def numbers(self) -> Sequence[float]:
        """Return them; only once ready."""
        ...


class Backend(Protocol):
    """Starts a copy without synchronising; injected so that tests need no device."""

    def copy(self, tensors: Sequence[Any]) -> Copied | None:
        """Start one copy of one-element tensors; None while a graph is being captured."""
        ...


class DeferredValues:
    """The values of one call that are still on their way: a copy for each device that they are on."""

    __slots__ = ("_parts",)

    def __init__(self, parts: Sequence[tuple[Sequence[str], Sequence[type[float | int]], Copied]]) -> None:
        self._parts = parts

    def __len__(self) -> int:
        return sum(len(keys) for keys, _, _ in self._parts)

    def ready(self) -> bool:
        """Tell whether all values have arrived."""
        return all(copied.ready() for _, _, copied in self._parts)

    def values(self) -> dict[str, float]:
        """Return the values by key; only once ready."""
        return {
            key: _converted(kind, number)
            for keys, kinds, copied in self._parts
            for key, kind, number in zip(keys, kinds, copied.numbers(), strict=True)
        }


def _converted(kind: type[float | int], number: float) -> float | int:
    # An integer travels as a double, exact up to 2**53; it cannot have become NaN or infinite on its way.
    return int(number) if kind is int else kind(number)


class CudaCopy:
    """Pinned memory, and the event after which it holds the numbers."""

    __slots__ = ("_event", "_host")

    def __init__(self, host: Any, event: Any) -> None:
        self._host = host
        self._event = event

    def ready(self) -> bool:
        """Ask the event; never waits."""
        return bool(self._event.query())

    def numbers(self) -> Sequence[float]:
        """Return the values as Python floats."""
        return [float(number) for number in self._host.tolist()]


class CudaBackend:
    """One stacked float64 tensor a call, copied to pinned memory on a side stream of its device."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._streams: dict[Any, Any] = {}

    def copy(self, tensors: Sequence[Any]) -> Copied | None:
        """Stack, copy, mark; the copy waits for the work that makes the values, the host for nothing."""
        torch = self._torch
        if torch.cuda.is_current_stream_capturing():
            return None
        device = tensors[0].device
        with torch.no_grad(), torch.cuda.device(device):
            # A new tensor: the originals may be overwritten by the next step, and would keep their graph.
            stacked = torch.stack([tensor.detach().reshape(()).to(torch.float64) for tensor in tensors])
            side = self._streams.get(device)
            if side is None:
                side = self._streams[device] = torch.cuda.Stream(device)
            side.wait_stream(torch.cuda.current_stream(device))
            with torch.cuda.stream(side):
                host = torch.empty(len(tensors), dtype=torch.float64, pin_memory=True)
                host.copy_(stacked, non_blocking=True)
                event = torch.cuda.Event()
                event.record(side)
            stacked.record_stream(side)
        return CudaCopy(host, event)


class BlockingCopy:
    """Numbers of a device whose copies cannot be awaited apart; read at once."""

    __slots__ = ("_numbers",)

    def __init__(self, numbers: Sequence[float]) -> None:
        self._numbers = numbers

    def ready(self) -> bool:
        """They are there."""
        return True

    def numbers(self) -> Sequence[float]:
        """Return them."""
        return self._numbers


class OtherBackend:
    """Devices without CUDA's events (MPS, XPU and others): one read a call, which may wait for the device."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch

    def copy(self, tensors: Sequence[Any]) -> Copied | None:
        """Read the tensors together."""
        torch = self._torch
        with torch.no_grad():
            scalars = [tensor.detach().reshape(()) for tensor in tensors]
            try:
                stacked = torch.stack([scalar.to(torch.float64) for scalar in scalars])
            except (RuntimeError, TypeError):
                # MPS has no float64; float32 is what its values are.
                stacked = torch.stack([scalar.to(torch.float32) for scalar in scalars])
            return BlockingCopy([float(number) for number in stacked.tolist()])


class DeviceReader:
    """Chooses the way of reading by the device of the values."""

    def __init__(self, backend: Backend | None = None) -> None:
        self._injected = backend
        self._backends: dict[str, Backend] = {}

    def _backend(self, kind: str) -> Backend:
        if self._injected is not None:
            return self._injected
        if kind not in self._backends:
            torch = sys.modules["torch"]
            self._backends[kind] = CudaBackend(torch) if kind == "cuda" else OtherBackend(torch)
        return self._backends[kind]

    def read_later(self, tensors: Mapping[str, Any]) -> tuple[DeferredValues | None, dict[str, str]]:
        """Start reading one-element tensors, with one copy a device; for what cannot be read now, the reason by key."""
        by_device: dict[str, list[str]] = {}
        for key, tensor in tensors.items():
            by_device.setdefault(str(tensor.device), []).append(key)
        parts: list[tuple[Sequence[str], Sequence[type[float | int]], Copied]] = []
        refused: dict[str, str] = {}
        for keys in by_device.values():
            here = [tensors[key] for key in keys]
            try:
                copied = self._backend(here[0].device.type).copy(here)
                reason = "a CUDA graph is being captured"
            except Exception as fault:  # noqa: BLE001 - a device may raise anything; training goes on
                copied, reason = None, f"the device refused: {fault}"
            if copied is None:
                refused |= dict.fromkeys(keys, reason)
            else:
                parts.append((keys, [_kind(str(tensor.dtype)) for tensor in here], copied))
        return DeferredValues(parts) if parts else None, refused


def _kind(dtype: str) -> type[float | int]:
    if "float" not in dtype:
        return int
    return float if dtype == "torch.float64" else Float32


class CudaTimer:
    """Marks moments on the current stream of a CUDA device; an event costs some microseconds and waits for nothing."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch

    def mark(self) -> Any:
        """Record an event with a time; None while a graph is being captured."""
        cuda = self._torch.cuda
        if cuda.is_current_stream_capturing():
            return None
        event = cuda.Event(enable_timing=True)
        event.record()
        return event

    def elapsed_s(self, earlier: Any, later: Any) -> float | None:
        """Return the device's seconds between two events, None while one of them has not passed."""
        if earlier is None or later is None or not later.query() or not earlier.query():
            return None
        return float(earlier.elapsed_time(later)) / 1000.0


def cuda_timer() -> CudaTimer | None:
    """Return a timer where the user has CUDA in use; never initialises it."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available() or not torch.cuda.is_initialized():
        return None
    return CudaTimer(torch)
