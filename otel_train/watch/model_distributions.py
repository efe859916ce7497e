"""Counts weights and gradients in exponential buckets where they lie, exactly, and adds the counts up by layer.

Two buckets an octave (scale 1) from the smallest 32-bit number to the largest, upper bounds inclusive, are counted
on the device. On the host they are added up over the samplings, and neighbours merge until a sign has at most
`MOST_BUCKETS` of them, as `otlp.histogram` does it: no count is estimated. Numbers of 64 bits that are beyond the
32-bit range are counted in the outermost bucket of their sign.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from math import isfinite
from typing import Any, Final, NamedTuple

from otel_train.record.histogram_value import HistogramValue, lower_bound

SCALE: Final = 1
MOST_BUCKETS: Final = 80
# Of an octave. More would cost more, and hardly stay: a layer's numbers lie within twenty octaves and more.
SHARES: Final = 1 << SCALE
# Bucket j holds numbers above 2^(j/2) up to 2^((j+1)/2); the smallest 32-bit number is 2^-149.
FIRST: Final = -149 * SHARES - 1
LAST: Final = 128 * SHARES - 1
BUCKETS: Final = LAST - FIRST + 1
# Of each sign: zeros, the buckets, and what is not finite.
ROW: Final = BUCKETS + 2
# So many numbers are counted at a time: what lies between stays in the processor's cache, and is small on a device.
CPU_CHUNK: Final = 1 << 17
DEVICE_CHUNK: Final = 1 << 23
# Tensors up to this size are counted together, since the calls cost more than the numbers.
CPU_SMALL: Final = 1 << 15
DEVICE_SMALL: Final = 1 << 13
# Packs whose offsets are kept from one sampling to the next: 4 MB at most.
MOST_OFFSETS: Final = 8
_MANTISSA_BITS: Final = 23
# By how much a mantissa must be raised so that it reaches the next octave where it lies above 2^(k/2); of numbers
# less one unit in the last place, so that a bound belongs to the bucket below.
_RAISES: Final = tuple(
    (1 << _MANTISSA_BITS) - int((2.0 ** (k / SHARES) - 1) * (1 << _MANTISSA_BITS)) for k in range(1, SHARES)
)
# The bits of a 32-bit number, read as an integer and shifted, are its octave, less 256 where it is below zero. So the
# buckets of both signs lie in one row: first those below zero, then those above, and both zeros just before these.
_BITS_SIGN: Final = 256 * SHARES
_BITS_ZERO: Final = _BITS_SIGN - 1
# Octave 0 is that of the smallest numbers, which have no full mantissa: those are counted the slow way. The last one
# is that of what is not finite.
_TINY: Final = SHARES
_LAST_BITS: Final = 255 * SHARES
# Bucket 2^-127 is the first that the bits' octaves give: where it lies among the buckets.
_SHIFT: Final = -127 * SHARES - FIRST

_bounds: dict[tuple[Any, Any], Any] = {}
_offsets: dict[tuple[int, ...], Any] = {}


class Counts:
    """The counts of one sampling: `table[layer]` has a row for numbers from zero up and one for those below."""

    __slots__ = ("sums", "table")

    def __init__(self, table: Any, sums: Any) -> None:
        self.table = table
        self.sums = sums


def count(tensors: Sequence[tuple[int, Any]], layers: int, *, factor: Any = None) -> list[Counts]:
    """Return counts by layer of (layer, tensor), one result for each device. `factor` multiplies every number."""
    torch = sys.modules["torch"]
    by_device: dict[Any, list[tuple[int, Any]]] = {}
    for layer, tensor in tensors:
        if tensor.numel():
            by_device.setdefault(tensor.device, []).append((layer, tensor))
    found = []
    for device, here in by_device.items():
        wide = torch.float32 if device.type == "mps" else torch.float64
        counts = Counts(
            torch.zeros((layers, 2, ROW), dtype=torch.int64, device=device),
            torch.zeros(layers, dtype=wide, device=device),
        )
        on_cpu = device.type == "cpu"
        for pack in _packs(here, *((CPU_CHUNK, CPU_SMALL) if on_cpu else (DEVICE_CHUNK, DEVICE_SMALL))):
            numbers = pack[0][1] if len(pack) == 1 else torch.cat([piece for _, piece in pack])
            if factor is not None:
                numbers = numbers * factor.to(device=device, dtype=numbers.dtype)
            sizes = _runs(pack)
            if not on_cpu:
                _count_on_device(torch, numbers, sizes, counts)
            elif numbers.dtype == torch.float64 or not _count_bits(torch, numbers.float(), sizes, counts):
                _count_by_search(torch, numbers, sizes, counts)
        found.append(counts)
    return found


def _packs(tensors: Sequence[tuple[int, Any]], most: int, small: int) -> Iterator[list[tuple[int, Any]]]:
    """Yield flat pieces in packs of at most so many numbers: large tensors in parts, `small` ones together."""
    pack: list[tuple[int, Any]] = []
    room = most
    for layer, tensor in tensors:
        for piece in _flat(tensor).split(most):
            if len(piece) > small:
                yield [(layer, piece)]
                continue
            if pack and (len(piece) > room or piece.dtype != pack[0][1].dtype):
                yield pack
                pack, room = [], most
            pack.append((layer, piece))
            room -= len(piece)
    if pack:
        yield pack


def _runs(pack: list[tuple[int, Any]]) -> list[tuple[int, int]]:
    """Return layer and numbers of a pack's runs: a layer's weight and bias follow one another, and are one."""
    runs: list[tuple[int, int]] = []
    for layer, piece in pack:
        before = runs.pop()[1] if runs and runs[-1][0] == layer else 0
        runs.append((layer, before + len(piece)))
    return runs


def _flat(tensor: Any) -> Any:
    if tensor.is_contiguous():
        return tensor.view(-1)
    if tensor.dim() == 4 and tensor.permute(0, 2, 3, 1).is_contiguous():
        return tensor.permute(0, 2, 3, 1).view(-1)
    return tensor.t().view(-1) if tensor.dim() == 2 and tensor.t().is_contiguous() else tensor.reshape(-1)


def _count_bits(torch: Any, numbers: Any, sizes: list[tuple[int, int]], counts: Counts) -> bool:
    """Count 32-bit numbers on the CPU by their bits, without a search; False where some of them need one."""
    total = numbers.sum()
    if not isfinite(total):
        return False
    raised = numbers.view(torch.int32) - 1
    places = raised >> _MANTISSA_BITS
    before = 0
    for raising in _RAISES:
        raised += raising - before
        before = raising
        places += raised >> _MANTISSA_BITS
    places += _offsets_of(torch, sizes)
    found = torch.bincount(places, minlength=2 * _BITS_SIGN * len(sizes)).view(len(sizes), 2, _BITS_SIGN)
    if found[:, :, :_TINY].any():
        return False
    rows = torch.zeros((len(sizes), 2, ROW), dtype=torch.int64)
    # The row of bits begins with the numbers below zero, ours with those above.
    rows[:, 0, 0] = found[:, 0, _BITS_ZERO]
    rows[:, :, 1 + _SHIFT + _TINY : 1 + _SHIFT + _LAST_BITS] = found.flip(1)[:, :, _TINY:_LAST_BITS]
    _add(torch, counts, sizes, rows, numbers, total)
    return True


def _count_by_search(torch: Any, numbers: Any, sizes: list[tuple[int, int]], counts: Counts) -> None:
    """Count numbers of any kind on the CPU."""
    places, finite = _searched(torch, numbers)
    lengths = torch.tensor([length for _, length in sizes])
    places += torch.repeat_interleave(lengths) * (2 * ROW)
    rows = torch.bincount(places, minlength=2 * ROW * len(sizes)).view(len(sizes), 2, ROW)
    _add(torch, counts, sizes, rows, finite, finite.double().sum())


def _offsets_of(torch: Any, sizes: list[tuple[int, int]]) -> Any:
    """Return what is to be added to the bits of each number of a pack, so that each run has a row of its own."""
    lengths = tuple(length for _, length in sizes)
    if len(lengths) == 1:
        return _BITS_SIGN
    offsets = _offsets.get(lengths)
    if offsets is None:
        if len(_offsets) >= MOST_OFFSETS:
            _offsets.clear()
        rows = torch.arange(len(lengths), dtype=torch.int32) * (2 * _BITS_SIGN) + _BITS_SIGN
        offsets = _offsets[lengths] = torch.repeat_interleave(rows, torch.tensor(lengths))
    return offsets


def _add(torch: Any, counts: Counts, sizes: list[tuple[int, int]], rows: Any, numbers: Any, total: Any) -> None:
    if len(sizes) == 1:
        counts.table[sizes[0][0]] += rows[0]
        counts.sums[sizes[0][0]] += total
        return
    at = torch.tensor([layer for layer, _ in sizes])
    counts.table.index_add_(0, at, rows)
    pieces = numbers.split([length for _, length in sizes])
    sums = torch.tensor([float(piece.sum(dtype=torch.float64)) for piece in pieces], dtype=counts.sums.dtype)
    counts.sums.index_add_(0, at, sums)


def _count_on_device(torch: Any, numbers: Any, sizes: list[tuple[int, int]], counts: Counts) -> None:
    """Count numbers of any kind on another device, and wait for nothing: bincount would, to know the greatest."""
    places, finite = _searched(torch, numbers)
    ones = torch.ones_like(places)
    start = 0
    for layer, size in sizes:
        here = slice(start, start + size)
        counts.table[layer].view(-1).scatter_add_(0, places[here], ones[here])
        counts.sums[layer] += finite[here].sum(dtype=counts.sums.dtype)
        start += size


def _searched(torch: Any, numbers: Any) -> tuple[Any, Any]:
    """Return the places of numbers by a search among the bounds, and the numbers with 0 for what is not finite."""
    magnitudes = torch.nan_to_num(numbers.abs(), nan=float("inf"), posinf=float("inf"))
    places = torch.bucketize(magnitudes, _bounds_for(torch, numbers.dtype, numbers.device))
    places += (numbers < 0) * ROW
    return places, torch.nan_to_num(numbers, nan=0.0, posinf=0.0, neginf=0.0)


def _bounds_for(torch: Any, dtype: Any, device: Any) -> Any:
    """Return the upper bounds of zeros and of all buckets, each the greatest number of this kind that is no greater."""
    bounds = _bounds.get((dtype, device))
    if bounds is None:
        exact = [0.0, *(lower_bound(j + 1, SCALE) for j in range(FIRST, LAST)), torch.finfo(dtype).max]
        rounded = torch.tensor(exact, dtype=torch.float64)
        if dtype != torch.float64:
            narrow = rounded.to(dtype)
            # The last is the greatest finite number; where the kind has none so great, infinity must stay above it.
            narrow = narrow.nan_to_num(posinf=torch.finfo(dtype).max)
            lower = torch.nextafter(narrow, torch.full_like(narrow, -1.0))
            rounded = torch.where(narrow.double() > rounded, lower, narrow)
        if device.type == "cuda":
            # From memory that is not pinned the copy would wait for the device.
            rounded = rounded.pin_memory()
        bounds = _bounds[dtype, device] = rounded.to(device, non_blocking=True)
    return bounds


class Totals:
    """The counts of all samplings so far, by layer; for the writer's thread.

    They stay a tensor, since most columns are empty: a call over all layers costs less than their numbers one by one.
    """

    def __init__(self) -> None:
        self._labels: list[str] = []
        # (layers, 2, ROW), as in `Counts`; their sums beside.
        self._table: Any = None
        self._sums: list[float] = []
        self._values: dict[str, _Found] | None = None

    def __contains__(self, label: str) -> bool:
        return label in self._found()

    def add(self, labels: Sequence[str], tables: Any, sums: Sequence[float]) -> None:
        """Add the counts of one sampling: a CPU tensor of a `Counts.table` for these layers, and their sums."""
        self._values = None
        if self._table is None:
            self._labels, self._table, self._sums = list(labels), tables.clone(), list(sums)
            return
        if self._labels == labels:
            self._table += tables
            self._sums = [before + new for before, new in zip(self._sums, sums, strict=True)]
            return
        # Modules came later, and have made new layers.
        new = [label for label in dict.fromkeys(labels) if label not in self._labels]
        if new:
            self._labels += new
            self._table = sys.modules["torch"].cat([self._table, tables.new_zeros((len(new), 2, ROW))])
            self._sums += [0.0] * len(new)
        for layer, label in enumerate(labels):
            place = self._labels.index(label)
            self._table[place] += tables[layer]
            self._sums[place] += sums[layer]

    def value(self, label: str) -> HistogramValue:
        """Return the distribution of a layer so far."""
        return self._found()[label].value

    def nonfinite(self, label: str) -> int:
        """Return how many numbers of a layer were not finite so far."""
        return self._found()[label].nonfinite

    def _found(self) -> dict[str, _Found]:
        """Return what each layer that has any number has."""
        if self._values is None:
            self._values = {}
            if self._table is not None:
                for label, total, found in zip(self._labels, self._sums, _layers_of(self._table), strict=True):
                    if found is not None:
                        self._values[label] = _found_of(*found, total)
        return self._values


class _Found(NamedTuple):
    value: HistogramValue
    nonfinite: int


# Index of the first bucket, and counts from there up to the last that is not empty.
_Buckets = tuple[int, list[int]]


def _layers_of(table: Any) -> Iterator[tuple[int, int, list[_Buckets]] | None]:
    """Yield of each layer zeros, numbers that are not finite, and the buckets of both signs; None of an empty one."""
    # Few calls, and each over all: on small models they cost more than the numbers.
    ends = table[:, :, :: ROW - 1].sum(1).tolist()
    low, used = _trimmed(FIRST, table.sum((0, 1)).tolist()[1:-1])
    start = 1 + low - FIRST if used else 1
    rows = table[:, :, start : start + len(used)].tolist()
    for (zeros, nonfinite), signs in zip(ends, rows, strict=True):
        buckets = [_trimmed(low, counts) for counts in signs]
        yield (zeros, nonfinite, buckets) if zeros or nonfinite or any(counts for _, counts in buckets) else None


def _found_of(zeros: int, nonfinite: int, buckets: list[_Buckets], total: float) -> _Found:
    scale = SCALE
    # Neighbours merge until each sign has few enough.
    while any(len(counts) > MOST_BUCKETS for _, counts in buckets):
        buckets, scale = [_merged(*one) for one in buckets], scale - 1
    (positive_offset, positive), (negative_offset, negative) = buckets
    value = HistogramValue(
        count=zeros + sum(positive) + sum(negative),
        sum=total,
        scale=scale,
        zero_count=zeros,
        positive_offset=positive_offset,
        positive_counts=tuple(positive),
        negative_offset=negative_offset,
        negative_counts=tuple(negative),
    )
    return _Found(value, nonfinite)


def _trimmed(first: int, counts: list[int]) -> _Buckets:
    """Return a row without its empty ends; (0, []) where it is empty."""
    start, end = 0, len(counts)
    while end and not counts[end - 1]:
        end -= 1
    while start < end and not counts[start]:
        start += 1
    return (first + start, counts[start:end]) if start < end else (0, [])


def _merged(first: int, counts: list[int]) -> _Buckets:
    """Add up neighbours: buckets 2j and 2j + 1 become bucket j."""
    padded = [0] * (first & 1) + counts
    padded += [0] * (len(padded) & 1)
    return first >> 1, [one + other for one, other in zip(padded[::2], padded[1::2], strict=True)]
