"""Gathers the values of one sampled step on their devices, and brings them over in one copy a device, unawaited."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

# Side streams for the copies, one a device.
_streams: dict[Any, Any] = {}


class Sampling:
    """Parts by name: what they are about, on the host, and their values, a tensor that nobody changes any more."""

    __slots__ = ("_parts", "steps")

    def __init__(self) -> None:
        self._parts: list[tuple[str, Any, Any]] = []
        self.steps: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._parts)

    def put(self, what: str, about: Any, values: Any) -> None:
        """Add a tensor of numbers, of one dimension or none."""
        self._parts.append((what, about, values))

    def forget(self, *names: str) -> None:
        """Take out again what was put under these names."""
        self._parts = [part for part in self._parts if part[0] not in names]

    def hand_over(self) -> Copies:
        """Start the copies; the sampling is empty afterwards."""
        parts, self._parts = self._parts, []
        return Copies(parts)


class Copies:
    """Values on their way to the host. Those that are on the CPU are there already."""

    __slots__ = ("_abouts", "_moving", "_there")

    def __init__(self, parts: list[tuple[str, Any, Any]]) -> None:
        self._there: list[tuple[str, Any, Any]] = []
        self._abouts: list[list[tuple[str, Any, int]]] = []
        self._moving: list[tuple[Any, Any]] = []
        by_device: dict[Any, list[tuple[str, Any, Any]]] = {}
        for part in parts:
            if part[2].device.type == "cpu":
                self._there.append(part)
            else:
                by_device.setdefault(part[2].device, []).append(part)
        for device, here in by_device.items():
            self._moving.append(_moved(device, [values for _, _, values in here]))
            self._abouts.append([(what, about, values.numel()) for what, about, values in here])

    def ready(self) -> bool:
        """Tell whether all have arrived; never waits."""
        return all(event is None or event.query() for _, event in self._moving)

    def parts(self) -> Iterator[tuple[str, Any, Any]]:
        """Yield name, what it is about, and the values as a CPU tensor; only once ready."""
        yield from self._there
        for (host, _), abouts in zip(self._moving, self._abouts, strict=True):
            start = 0
            for what, about, length in abouts:
                yield what, about, host[start : start + length]
                start += length


def _moved(device: Any, tensors: list[Any]) -> tuple[Any, Any]:
    """Return host memory and the event after which it holds all the numbers, one after the other."""
    torch = sys.modules["torch"]
    wide = torch.float32 if device.type == "mps" else torch.float64
    flat = torch.cat([tensor.detach().reshape(-1).to(wide) for tensor in tensors])
    if device.type != "cuda":
        # Devices without CUDA's events: one read, which may wait for the device.
        return flat.cpu(), None
    with torch.cuda.device(device):
        side = _streams.get(device)
        if side is None:
            side = _streams[device] = torch.cuda.Stream(device)
        side.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(side):
            host = torch.empty(flat.numel(), dtype=wide, pin_memory=True)
            host.copy_(flat, non_blocking=True)
            event = torch.cuda.Event()
            event.record(side)
        flat.record_stream(side)
    return host, event
