"""Speaks NumPy and torch alike for the checks of samples; of a tensor on a device nothing is read or waited for."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Final

# Values that are worked on at once: on the host they fit into a processor's cache, on a device one call is the cost.
HOST_CHUNK: Final = 1 << 16
DEVICE_CHUNK: Final = 1 << 22
# Values of a row that decide whether it may equal another, before the whole rows are compared.
PROBES: Final = 16


class NumpyLibrary:
    """Arrays of NumPy; a CPU tensor is one too, without a copy."""

    chunk = HOST_CHUNK
    on_host = True

    def __init__(self, numpy: Any) -> None:
        self.xp = numpy

    def floats(self, array: Any) -> Any:
        """Return the values as floats wide enough to hold them, the same array where they are."""
        kind, size = array.dtype.kind, array.dtype.itemsize
        if kind == "f" and size in (4, 8):
            return array
        return array.astype(self.xp.float64 if (kind in "iu" and size > 2) or size > 8 else self.xp.float32)

    def wide(self, array: Any) -> Any:
        """Return the values in float64."""
        return self.xp.asarray(array, dtype=self.xp.float64)

    def same_type(self, numbers: Any, array: Any) -> Any:
        """Return numbers in the type of the array: rounded alike, and compared without a copy in a wider type."""
        return numbers.astype(array.dtype)

    def distance(self, values: Any, pivot: Any) -> Any:
        """Return the differences in float64."""
        return self.xp.subtract(values, pivot, dtype=self.xp.float64)

    def packed(self, array: Any) -> Any:
        """Return the values beside one another: far apart, each would be fetched from memory again and again."""
        return self.xp.ascontiguousarray(array)

    def number(self, value: float) -> Any:
        """Return a number as this library has it."""
        return self.xp.float64(value)

    def extremes(self, rows: Any) -> tuple[Any, Any, Any]:
        """Return each row's least and greatest finite value (+Inf, -Inf without one), and whether all are finite."""
        xp = self.xp
        low, high = rows.min(axis=1), rows.max(axis=1)
        whole = xp.isfinite(low) & xp.isfinite(high)
        if not whole.all():
            finite = xp.isfinite(rows)
            low = xp.where(finite, rows, xp.inf).min(axis=1)
            high = xp.where(finite, rows, -xp.inf).max(axis=1)
        return low, high, whole

    def count(self, mask: Any) -> Any:
        """Return how many are true."""
        return self.xp.count_nonzero(mask)

    def sums(self, distance: Any) -> tuple[Any, Any]:
        """Return the sum and the sum of the squares."""
        return distance.sum(), self.xp.einsum("i,i->", distance, distance)

    def sort(self, array: Any) -> Any:
        """Return the values in order, NaN last."""
        return self.xp.sort(array)

    def places(self, numbers: Any) -> Any:
        """Return numbers as indices."""
        return numbers.astype(self.xp.int64)

    def at_most(self, values: Any, edges: Any) -> Any:
        """Return for each edge how many values are at most it."""
        edges = self.same_type(edges, values)
        return self.xp.array([self.xp.count_nonzero(values <= edge) for edge in edges], dtype=self.xp.float64)

    def order(self, scores: Any) -> Any:
        """Return the indices by score, greatest first, equal ones in their order."""
        return self.xp.argsort(-scores, kind="stable")

    def arange(self, start: int, end: int) -> Any:
        """Return the whole numbers from start up to but not end."""
        return self.xp.arange(start, end)

    def duplicates(self, parts: Sequence[Any]) -> Any:
        """Return for each row whether another has the same shape and bits."""
        found: dict[tuple[int, bytes], list[tuple[int, Any]]] = {}
        number = 0
        for rows in parts:
            step = max(1, rows.shape[1] // PROBES)
            probes = self.xp.ascontiguousarray(rows[:, ::step])
            for row, probe in zip(rows, probes, strict=True):
                found.setdefault((rows.shape[1], probe.tobytes()), []).append((number, row))
                number += 1
        result = self.xp.zeros(number, dtype=bool)
        for candidates in found.values():
            if len(candidates) > 1:
                equal: dict[bytes, list[int]] = {}
                for place, row in candidates:
                    equal.setdefault(row.tobytes(), []).append(place)
                for places in equal.values():
                    result[places] = len(places) > 1
        return result


class TorchLibrary:
    """Tensors of one device. Every call queues work there and returns at once."""

    chunk = DEVICE_CHUNK
    on_host = False

    def __init__(self, torch: Any, device: Any) -> None:
        self.xp = torch
        self.device = device
        # Apple's devices have no float64.
        self._wide = torch.float32 if device.type == "mps" else torch.float64

    def floats(self, array: Any) -> Any:
        """Return the values as floats wide enough to hold them, the same tensor where they are."""
        torch = self.xp
        if array.dtype in (torch.float32, torch.float64):
            return array
        narrow = array.is_floating_point() or array.dtype in (torch.uint8, torch.int8, torch.int16, torch.bool)
        return array.to(torch.float32 if narrow else self._wide)

    def wide(self, array: Any) -> Any:
        """Return the values in float64, where the device has it."""
        return array.to(self._wide)

    def same_type(self, numbers: Any, array: Any) -> Any:
        """Return numbers in the type of the array: rounded alike, and compared without a copy in a wider type."""
        return numbers.to(array.dtype)

    def distance(self, values: Any, pivot: Any) -> Any:
        """Return the differences in float64."""
        return values.to(self._wide) - pivot

    def packed(self, array: Any) -> Any:
        """Return the values beside one another."""
        return array.contiguous()

    def number(self, value: float) -> Any:
        """Return a number on the device; the copy of one value is queued as an argument of the call that fills it."""
        return self.xp.full((), value, dtype=self._wide, device=self.device)

    def extremes(self, rows: Any) -> tuple[Any, Any, Any]:
        """Return each row's least and greatest finite value (+Inf, -Inf without one), and whether all are finite."""
        torch = self.xp
        finite = torch.isfinite(rows)
        low = torch.where(finite, rows, float("inf")).amin(dim=1)
        high = torch.where(finite, rows, float("-inf")).amax(dim=1)
        return low, high, finite.all(dim=1)

    def count(self, mask: Any) -> Any:
        """Return how many are true."""
        return mask.sum()

    def sums(self, distance: Any) -> tuple[Any, Any]:
        """Return the sum and the sum of the squares."""
        return distance.sum(), (distance * distance).sum()

    def sort(self, array: Any) -> Any:
        """Return the values in order, NaN last."""
        return self.xp.sort(array).values

    def places(self, numbers: Any) -> Any:
        """Return numbers as indices."""
        return numbers.to(self.xp.int64)

    def at_most(self, values: Any, edges: Any) -> Any:
        """Return for each edge how many values are at most it."""
        return (values.reshape(1, -1) <= self.same_type(edges, values).reshape(-1, 1)).sum(dim=1)

    def order(self, scores: Any) -> Any:
        """Return the indices by score, greatest first, equal ones in their order."""
        return self.xp.argsort(scores, descending=True, stable=True)

    def arange(self, start: int, end: int) -> Any:
        """Return the whole numbers from start up to but not end."""
        return self.xp.arange(start, end, device=self.device)

    def duplicates(self, parts: Sequence[Any]) -> Any:
        """Return for each row whether another has the same bits, by a hash of 64 bits over words of 32.

        The words times pseudo-random factors, summed modulo 2**64: two different rows meet with a probability of at
        most 2**-32 (multilinear hashing: L. Carter and M. Wegman, Universal classes of hash functions, 1979).
        """
        torch = self.xp
        hashes = torch.cat([self._hashes(rows) for rows in parts])
        ordered, places = torch.sort(hashes)
        same = ordered[1:] == ordered[:-1]
        edge = torch.zeros(1, dtype=torch.bool, device=self.device)
        met = torch.cat((edge, same)) | torch.cat((same, edge))
        # Back in the order of the rows: the places in order of their numbers.
        return met[torch.argsort(places)]

    def _hashes(self, rows: Any) -> Any:
        torch = self.xp
        if rows.element_size() < 4:
            words = rows.contiguous().view(torch.uint8 if rows.element_size() == 1 else torch.int16)
        else:
            words = rows.contiguous().view(torch.int32)
        count = words.shape[1]
        factors = mixed(torch.arange(1, count + 1, dtype=torch.int64, device=self.device))
        # In parts of the row: the words in 64 bits take twice the room of the batch.
        step = max(1, DEVICE_CHUNK // max(1, words.shape[0]))
        total = torch.full((words.shape[0],), count, dtype=torch.int64, device=self.device)
        for start in range(0, count, step):
            part = words[:, start : start + step].to(torch.int64)
            total = total + (part * factors[start : start + step]).sum(dim=1)
        return total


def mixed(numbers: Any) -> Any:
    """Return 64 bits that look random for each number; no random state is touched.

    The finalizer of SplitMix64 (G. Steele, D. Lea, C. Flood, Fast splittable pseudorandom number generators, 2014).
    """
    state = numbers * _signed(0x9E3779B97F4A7C15)
    state = (state ^ ((state >> 30) & ((1 << 34) - 1))) * _signed(0xBF58476D1CE4E5B9)
    state = (state ^ ((state >> 27) & ((1 << 37) - 1))) * _signed(0x94D049BB133111EB)
    return state ^ ((state >> 31) & ((1 << 33) - 1))


def _signed(number: int) -> int:
    return number - (1 << 64) if number >= 1 << 63 else number


Library = NumpyLibrary | TorchLibrary


def is_tensor(value: object) -> bool:
    """Tell a torch tensor, without importing torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def is_array(value: object) -> bool:
    """Tell an array of NumPy, without importing it."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.ndarray)


def on_host(tensor: Any) -> Any:
    """Return a CPU tensor as an array of NumPy over the same memory where there is NumPy, else the tensor."""
    torch, numpy = sys.modules["torch"], sys.modules.get("numpy")
    if numpy is None or not tensor.is_cpu:
        return tensor
    if tensor.dtype == torch.bfloat16:
        tensor = tensor.float()
    return tensor.resolve_conj().resolve_neg().numpy()


def library_of(array: Any) -> Library:
    """Return the library of an array or tensor."""
    if is_array(array):
        return NumpyLibrary(sys.modules["numpy"])
    return TorchLibrary(sys.modules["torch"], array.device)
