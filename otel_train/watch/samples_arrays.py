"""Measures a batch of arrays: moments, ends of the range, constant, non-finite and equal samples, and a histogram.

Nothing here reads a value of a device: results stay numbers of the library, and `Numbers` brings them together.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from otel_train.watch.samples_drift import WINDOW_CHECKS, FirstWindow
from otel_train.watch.samples_library import Library

# Values of a batch that the histogram is made of, and those of the first batch that its edges are made of.
MOST_BINNED: Final = 1 << 18
MOST_SORTED: Final = 1 << 12
TENTHS: Final = 9
# Half a range from which on sums of squares are taken in units of it.
HUGE: Final = 1e15
# Faults of a sample, as the bits of one number; the worst have the greatest.
NONFINITE: Final = 4
CONSTANT: Final = 2
DUPLICATE: Final = 1
FAULTS: Final = ((NONFINITE, "non-finite"), (CONSTANT, "constant"), (DUPLICATE, "duplicate"))


Range = tuple[float, float] | None


class Spread:
    """Range and bins that the first checks of a split have set, as numbers of the library: on its device, if any."""

    def __init__(self) -> None:
        self.checks = 0
        self._low: Any = None
        self._high: Any = None
        self._edges: Any = None
        self._place: object = None
        # Counts over these bins: new bins, new window.
        self.window = FirstWindow()
        self._renew = False

    def begin(self, library: Library) -> None:
        """Count a check; another library or device begins anew."""
        place = str(getattr(library, "device", "host"))
        if place != self._place or self._renew:
            self.checks, self._low, self._high, self._edges = 0, None, None, None
            self._place, self._renew = place, False
            self.window = FirstWindow()
        self.checks += 1

    def renew(self, window: FirstWindow) -> None:
        """Have the next check begin anew: the one that made the bins of this window held nothing to make them of."""
        self._renew = window is self.window

    def range(self, library: Library, low: Any, high: Any, given: Range) -> tuple[Any, Any]:
        """Return the range: the one given, else the least and greatest value of the first window."""
        if given is not None:
            return library.number(given[0]), library.number(given[1])
        if self.checks <= WINDOW_CHECKS or self._low is None:
            xp = library.xp
            low, high = library.wide(low), library.wide(high)
            self._low = low if self._low is None else xp.minimum(self._low, low)
            self._high = high if self._high is None else xp.maximum(self._high, high)
        return self._low, self._high

    def edges(self, library: Library, values: Any) -> Any:
        """Return the edges of the bins: the ends of the first values, nine deciles, nine that part the range evenly.

        Deciles tell where most values lie; the even ones tell the rest apart where half of all values are the same;
        what lies beyond the ends has bins of its own.
        """
        if self._edges is None:
            xp = library.xp
            step = max(1, values.shape[0] // MOST_SORTED)
            ordered = library.sort(values[::step])
            finite = library.wide(xp.isfinite(ordered).sum())
            tenths = library.wide(library.arange(1, TENTHS + 1)) / (TENTHS + 1)
            last = xp.where(finite > 0, finite - 1, finite)
            ends = ordered[library.places(xp.stack((last * 0, last)))]
            deciles = ordered[library.places(xp.floor(tenths * last))]
            even = ends[0] + (ends[1] - ends[0]) * tenths
            # A bin holds what is at most its upper edge: the lower end itself belongs to the values.
            lower = xp.nextafter(ends[:1], xp.full_like(ends[:1], -math.inf))
            edges = library.sort(xp.concatenate([library.wide(each) for each in (lower, ends[1:], deciles, even)]))
            if library.on_host and not finite:
                # On a device nobody knows yet: `renew` comes later.
                return edges
            self._edges = edges
        return self._edges


def flat_chunks(parts: Sequence[Any], size: int) -> Any:
    """Yield all values, in pieces of at most `size`."""
    for rows in parts:
        flat = rows.reshape(-1)
        for start in range(0, flat.shape[0], size):
            yield flat[start : start + size]


def row_chunks(parts: Sequence[Any], size: int) -> Any:
    """Yield whole rows, about `size` values at once."""
    for rows in parts:
        step = max(1, size // max(1, rows.shape[1]))
        for start in range(0, rows.shape[0], step):
            yield rows[start : start + step]


def measure_values(
    library: Library, parts: Sequence[Any], spread: Spread, extremes: tuple[Any, Any], given: Range, *, whole: bool
) -> dict[str, Any]:
    """Return count, sums, ends and histogram of all values, whose least and greatest finite ones are given.

    `whole` says that none is NaN or infinite. Sums are taken about the middle of the batch, which keeps them exact
    where the values lie far from 0, and of values so large that their squares would overflow, in units of their range.
    """
    xp = library.xp
    least, greatest = library.wide(extremes[0]), library.wide(extremes[1])
    low, high = spread.range(library, least, greatest, given)
    middle, half = least / 2 + greatest / 2, greatest / 2 - least / 2
    pivot = xp.where(xp.isfinite(middle), middle, 0.0)
    scale = xp.where(xp.isfinite(half) & (half > HUGE), half, 1.0)
    unscaled = library.on_host and scale == 1
    count = first = second = at_ends = 0
    for piece in flat_chunks(parts, library.chunk):
        values = library.floats(piece)
        distance = library.distance(values, pivot)
        if not unscaled:
            distance = distance / scale
        if not whole:
            finite = xp.isfinite(values)
            distance = xp.where(finite, distance, 0.0)
            count = count + library.count(finite)
        else:
            count = count + values.shape[0]
        total, squares = library.sums(distance)
        first, second = first + total, second + squares
        ends = library.same_type(low, values), library.same_type(high, values)
        at_ends = at_ends + library.count((values <= ends[0]) | (values >= ends[1]))
    binned = _picked(library, parts)
    if not whole:
        binned = xp.where(xp.isfinite(binned), binned, float("nan"))
    edges = spread.edges(library, binned)
    return {
        "finite": count,
        "first": first,
        "second": second,
        "at_ends": at_ends,
        "pivot": pivot,
        "scale": scale,
        "low": low,
        "high": high,
        "binned": library.count(xp.isfinite(binned)),
        "at_most": library.at_most(binned, edges),
        "unbinned": library.count(~xp.isfinite(edges)),
    }


def _picked(library: Library, parts: Sequence[Any]) -> Any:
    """Return values spread evenly over the batch; the distance has no factor of its shape, so no column is favoured."""
    total = sum(math.prod(rows.shape) for rows in parts)
    picked = []
    for rows in parts:
        size = math.prod(rows.shape)
        step = max(1, -(-total // MOST_BINNED))
        while step > 1 and math.gcd(step, size) > 1:
            step += 1
        picked.append(library.floats(library.packed(rows.reshape(-1)[::step])))
    return picked[0] if len(picked) == 1 else library.xp.concatenate(picked)


def moments(found: Mapping[str, Any]) -> tuple[float | None, float | None]:
    """Return mean and standard deviation (of the values themselves, not an estimate) from what `measure_values` found.

    With d the distances from the pivot p in units of s: p + s sum(d) / n, and s times the root of
    sum(d²) / n - (sum(d) / n)².
    """
    count = found["finite"]
    if not count:
        return None, None
    first = found["first"] / count
    scale = found["scale"]
    return found["pivot"] + scale * first, scale * math.sqrt(max(0.0, found["second"] / count - first * first))


def bins_of(at_most: Sequence[float], binned: float) -> list[float]:
    """Return the count of each bin from how many values are at most each edge."""
    ends = [*at_most, binned]
    return [end - start for start, end in zip([0.0, *at_most], ends, strict=True)]


class Rows:
    """What is known of each sample of a batch, by flattened rows in parts of equal length."""

    def __init__(self, library: Library, parts: Sequence[Any]) -> None:
        xp = library.xp
        found = [library.extremes(library.floats(rows)) for rows in row_chunks(parts, library.chunk)]
        lows, highs, wholes = (_joined(xp, [library.wide(each[place]) for each in found]) for place in range(3))
        nonfinite = wholes < 1
        self.low, self.high = lows.min(), highs.max()
        # On a device nobody knows.
        self.whole = library.on_host and not bool(nonfinite.any())
        single = [rows.shape[1] < 2 for rows in parts]
        constant = (lows == highs) & (wholes > 0)
        duplicate = library.duplicates(parts)
        self.has_constant = not any(single)
        score = library.wide(nonfinite) * NONFINITE + library.wide(duplicate) * DUPLICATE
        self.faults = score + library.wide(constant) * CONSTANT if self.has_constant else score
        self.numbers = {
            "nonfinite": library.count(nonfinite),
            "duplicate": library.count(duplicate),
            "constant": library.count(constant),
        }


def _joined(xp: Any, arrays: Sequence[Any]) -> Any:
    return arrays[0] if len(arrays) == 1 else xp.concatenate(arrays)


def kept_rows(library: Library, faults: Any, keep: int) -> Any:
    """Return the indices of the samples to keep: the worst first, else the first."""
    return library.order(faults)[:keep]


def fault_names(bits: float) -> list[str]:
    """Return the names of a sample's faults."""
    return [name for bit, name in FAULTS if int(bits) & bit]


class Numbers:
    """Numbers of several lengths put into one vector, and taken out of it once it has come."""

    def __init__(self, library: Library, fields: Mapping[str, Any]) -> None:
        xp = library.xp
        arrays = []
        self._places: list[tuple[str, int]] = []
        for name, value in fields.items():
            array = library.number(value) if isinstance(value, int | float) else library.wide(value)
            self._places.append((name, math.prod(array.shape) if array.shape else 0))
            arrays.append(array.reshape(-1))
        self.vector = xp.concatenate(arrays)

    def read(self, vector: Any) -> dict[str, Any]:
        """Return the fields by name: numbers as floats, vectors as lists."""
        values = vector.tolist()
        result: dict[str, Any] = {}
        place = 0
        for name, length in self._places:
            result[name] = values[place : place + length] if length else values[place]
            place += length or 1
        return result
