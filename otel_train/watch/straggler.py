"""Says which rank holds up the others, from the whole and the own time of each rank's steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil, floor
from statistics import median
from typing import Final

# The lower quartile is what is usual: the median of two ranks would lie half-way to the slow one.
USUAL_SHARE: Final = 0.25


def scores(times: Mapping[int, tuple[Sequence[float], Sequence[float]]]) -> dict[int, float]:
    """Return each rank's score from its (step times, own times), in seconds; ranks without any are left out.

    T / (T - B + U) with the rank's median step time T, its median own time B, and U, the lower quartile of B over all
    ranks: by what factor its steps would be shorter if its own work took as long as is usual. The ranks of a job that
    waits for each other all have the same T, so T alone would name nobody; and where a job mostly communicates, a
    small difference of B delays nobody. The recording rule `rank:straggler` is the same formula.
    """
    medians = {rank: (median(whole), median(own)) for rank, (whole, own) in times.items() if whole and own}
    usual = usual_s([own for _, own in medians.values()])
    return {rank: score(whole, own, usual) for rank, (whole, own) in medians.items() if usual is not None}


def usual_s(own_times_s: Sequence[float]) -> float | None:
    """Return the lower quartile of the ranks' median own times, linear between two; None below two ranks."""
    if len(own_times_s) < 2:
        return None
    ordered = sorted(own_times_s)
    place = USUAL_SHARE * (len(ordered) - 1)
    low, high = ordered[floor(place)], ordered[ceil(place)]
    return low + (high - low) * (place - floor(place))


def score(whole_s: float, own_s: float, usual_own_s: float) -> float:
    """Return one rank's score, 1 where nothing is to be told."""
    shorter_s = whole_s - own_s + usual_own_s
    return whole_s / shorter_s if shorter_s > 0 else 1.0
