"""Brings small arrays of a check to the host: at once where they are there, else by a copy that nobody waits for."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Protocol

from otel_train.watch.samples_library import is_tensor, on_host


class Copied(Protocol):
    """Arrays on their way."""

    def ready(self) -> bool:
        """Tell whether they have come, without waiting."""
        ...

    def arrays(self) -> Sequence[Any]:
        """Return them, on the host; only once ready."""
        ...


class AtHand:
    """Arrays of the host."""

    __slots__ = ("_arrays",)

    def __init__(self, arrays: Sequence[Any]) -> None:
        self._arrays = arrays

    def ready(self) -> bool:
        """They are there."""
        return True

    def arrays(self) -> Sequence[Any]:
        """Return them."""
        return self._arrays


class CudaArrays:
    """Copies to pinned memory on a side stream, and the event after which they hold the values."""

    __slots__ = ("_event", "_hosts")

    def __init__(self, torch: Any, tensors: Sequence[Any], side: Any) -> None:
        side.wait_stream(torch.cuda.current_stream(tensors[0].device))
        self._hosts = []
        with torch.cuda.stream(side):
            for tensor in tensors:
                host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
                host.copy_(tensor, non_blocking=True)
                # The check made it, so nobody writes into it; its memory must not be used again too early.
                tensor.record_stream(side)
                self._hosts.append(host)
            self._event = torch.cuda.Event()
            self._event.record(side)

    def ready(self) -> bool:
        """Ask the event; never waits."""
        return bool(self._event.query())

    def arrays(self) -> Sequence[Any]:
        """Return the copies."""
        return [on_host(host) for host in self._hosts]


class ArrayReader:
    """Starts the copies; one side stream for each CUDA device."""

    def __init__(self) -> None:
        self._streams: dict[Any, Any] = {}

    def read_later(self, arrays: Sequence[Any]) -> Copied:
        """Return arrays that were made for this, on their way to the host."""
        first = arrays[0]
        if not is_tensor(first) or first.is_cpu:
            return AtHand([on_host(array) if is_tensor(array) else array for array in arrays])
        torch = sys.modules["torch"]
        device = first.device
        if device.type != "cuda":
            # Devices without CUDA's events (MPS, XPU and others): this read may wait for them.
            return AtHand([on_host(array.to("cpu")) for array in arrays])
        with torch.cuda.device(device):
            if device not in self._streams:
                self._streams[device] = torch.cuda.Stream(device)
            return CudaArrays(torch, arrays, self._streams[device])


def is_capturing(*values: Any) -> bool:
    """Tell whether one is on a CUDA device while a graph is captured there, into which nothing of ours must get."""
    tensors = [value[0] if isinstance(value, list) and value else value for value in values]
    if not any(is_tensor(tensor) and tensor.device.type == "cuda" for tensor in tensors):
        return False
    return bool(sys.modules["torch"].cuda.is_current_stream_capturing())
