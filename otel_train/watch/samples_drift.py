"""Compares the distribution of a checked batch with that of the first window of checks, by one unit-free number."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

# The first window: what later checks are compared with.
WINDOW_CHECKS: Final = 5
# Names of one distribution by name; what comes beyond them counts as one.
MOST_NAMES: Final = 1_000
OTHER: Final = "other"


def divergence(counts: Sequence[float], reference: Sequence[float]) -> float | None:
    """Return the Jensen-Shannon divergence of two histograms over the same bins, None where one of them is empty.

    With p and q the shares and m = (p + q) / 2 it is (KL(p, m) + KL(q, m)) / 2, logarithms to base 2: 0 where they
    are equal, 1 where they have no bin in common. Two normal distributions half a standard deviation apart have 0.04,
    one apart 0.16. Source: J. Lin, Divergence measures based on the Shannon entropy, IEEE Transactions on Information
    Theory 37 (1991), pages 145 to 151.
    """
    total, reference_total = math.fsum(counts), math.fsum(reference)
    if not total > 0 or not reference_total > 0:
        return None
    parts = []
    for count, other in zip(counts, reference, strict=True):
        p, q = count / total, other / reference_total
        middle = (p + q) / 2
        parts += [share * math.log2(share / middle) for share in (p, q) if share > 0]
    return min(1.0, max(0.0, math.fsum(parts) / 2))


def by_chance(total: float, reference_total: float, bins: int) -> float:
    """Return the divergence to expect of two samples of one distribution over so many bins.

    8 ln 2 times the divergence over (1 / total + 1 / reference_total) is about chi-squared with bins - 1 degrees of
    freedom, whose mean is bins - 1. Of 32 samples and ten bins that is a sixth too little, of larger ones less.
    """
    return (bins - 1) * (1 / total + 1 / reference_total) / (8 * math.log(2))


class FirstWindow:
    """Counts of the first checks over fixed bins. Used by the writer's thread alone."""

    def __init__(self) -> None:
        self._counts: list[float] = []
        self._checks = 0

    def compare(self, counts: Sequence[float]) -> float | None:
        """Return the divergence from the checks of the window before this one, None for the first of all."""
        found = divergence(counts, self._counts) if self._counts else None
        if self._checks < WINDOW_CHECKS and math.fsum(counts) > 0:
            self._checks += 1
            before = self._counts or [0.0] * len(counts)
            self._counts = [old + new for old, new in zip(before, counts, strict=True)]
        return found


class FirstNames:
    """The same for counts by name, where new names may come at any time; less what chance alone gives."""

    def __init__(self) -> None:
        self._counts: dict[str, float] = {}
        self._checks = 0

    def compare(self, counts: Mapping[str, float]) -> float | None:
        """Return the divergence beyond chance from the checks of the window before this one, at least 0."""
        counts = self._bounded(counts)
        names = list({**self._counts, **counts})
        here = [counts.get(name, 0.0) for name in names]
        before = [self._counts.get(name, 0.0) for name in names]
        found = divergence(here, before)
        if found is not None:
            found = max(0.0, found - by_chance(math.fsum(here), math.fsum(before), len(names)))
        if self._checks < WINDOW_CHECKS and math.fsum(here) > 0:
            self._checks += 1
            for name, count in counts.items():
                self._counts[name] = self._counts.get(name, 0.0) + count
        return found

    def _bounded(self, counts: Mapping[str, float]) -> dict[str, float]:
        room = MOST_NAMES - len(self._counts)
        result: dict[str, float] = {}
        for name, count in counts.items():
            if name not in self._counts:
                room -= 1
            key = name if name in self._counts or room >= 0 else OTHER
            result[key] = result.get(key, 0.0) + count
        return result
