"""Tells whether a gradient norm explodes, by what is usual for it, or has vanished."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from math import inf, isfinite
from statistics import median
from typing import Final

KEPT: Final = 100
FEWEST: Final = 20
# The median is taken anew after so many finite norms: each time costs some microseconds.
RENEW_EVERY: Final = 50
IN_A_ROW: Final = 3
# The same of norms that `run.watch` takes: it looks at one step of many, so a few of them must do.
SAMPLED_KEPT: Final = 20
SAMPLED_FEWEST: Final = 5

_GRADIENT_NORM: Final = re.compile(
    r"(^|[/._-])((global|total)[/._-])?(grad|grads|gradient|gradients)[/._-]?norm([/._-](global|total))?$"
    r"|(^|/)gnorm$|grad_\d+(\.\d+)?_norm_total$",
    re.IGNORECASE,
)


def is_gradient_norm(key: str) -> bool:
    """Tell whether a key names the norm of the whole gradient: grad_norm, train/gradient_norm, gnorm and the like."""
    return _GRADIENT_NORM.search(key) is not None


class GradientNorm:
    """The last 100 finite norms of one series, and how far the last three were above what was usual before them.

    Of one that is `sampled` the last 20, of which five are enough to say what is usual.
    """

    def __init__(self, *, sampled: bool = False) -> None:
        self.usual: float | None = None
        self.step = 0
        self._kept = SAMPLED_KEPT if sampled else KEPT
        self._renew_every = SAMPLED_FEWEST if sampled else RENEW_EVERY
        self._norms: deque[float] = deque(maxlen=self._kept)
        self._until_renewal = SAMPLED_FEWEST if sampled else FEWEST
        self._last: deque[float] = deque([0.0] * IN_A_ROW, maxlen=IN_A_ROW)

    @property
    def excess(self) -> float | None:
        """The least of the last three norms by the usual one; +Inf where none was finite; None while none is usual."""
        return None if self.usual is None else min(self._last)

    @property
    def recent_max(self) -> float | None:
        """The greatest of the finite norms that are kept; None before there were so many."""
        return max(self._norms) if len(self._norms) == self._kept else None

    def take(self, steps: Sequence[int], values: Sequence[float], limit: float) -> tuple[int, float] | None:
        """Take norms in order; return (step, excess) where the excess first went over `limit`, None where it did not.

        Also what was over and came back within these norms is found.
        """
        crossing: tuple[int, float] | None = None
        start = 0
        while start < len(values):
            stop = min(len(values), start + self._until_renewal)
            part = values[start:stop]
            if self._is_quiet(part, limit):
                self._last.extend([value / self.usual for value in part[-IN_A_ROW:]] if self.usual else [])
                self._keep(part)
            else:
                for step, value in zip(steps[start:stop], part, strict=True):
                    self._take_one(value)
                    if crossing is None and (self.excess or 0.0) > limit:
                        crossing = step, min(self._last)
            start = stop
        self.step = steps[-1]
        return crossing

    def _is_quiet(self, part: Sequence[float], limit: float) -> bool:
        """Tell whether no norm among these can be over the limit: almost always."""
        return isfinite(sum(part)) and (not self.usual or max(part) <= limit * self.usual)

    def _take_one(self, value: float) -> None:
        if not isfinite(value):
            if self.usual is not None:
                self._last.append(inf)
            return
        if self.usual:
            self._last.append(value / self.usual)
        self._keep((value,))

    def _keep(self, norms: Sequence[float]) -> None:
        self._norms.extend(norms)
        self._until_renewal -= len(norms)
        if self._until_renewal <= 0:
            self._until_renewal = self._renew_every
            self.usual = median(self._norms)
