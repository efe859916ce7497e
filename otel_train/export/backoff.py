"""Says how long to wait before a request is tried again."""

from __future__ import annotations

import random
from collections.abc import Callable

FIRST_S = 0.5
LONGEST_S = 30.0
# A wrong token or path does not mend itself; once a minute finds out when it was mended.
FIRST_MISDIRECTED_S = 5.0
LONGEST_MISDIRECTED_S = 60.0
# A server that asks for more is asked again before; a run would look dead to its readers meanwhile.
LONGEST_ORDERED_S = 600.0


class Backoff:
    """Doubles the wait with every fault in a row, with jitter, so that many ranks do not come back as one."""

    def __init__(self, draw: Callable[[], float] | None = None) -> None:
        # Never the module's functions: they share the state that the user has seeded.
        self._draw = draw or random.SystemRandom().random
        self.faults_in_row = 0

    def next_s(self, ordered_s: float | None = None, *, misdirected: bool = False) -> float:
        """Count a fault and return the seconds to wait; what the server ordered is kept, and a tenth more at most."""
        doubling = min(self.faults_in_row, 20)
        self.faults_in_row += 1
        if ordered_s is not None:
            return min(max(ordered_s, 0.0), LONGEST_ORDERED_S) * (1 + 0.1 * self._draw()) + 0.05 * self._draw()
        first, longest = (FIRST_MISDIRECTED_S, LONGEST_MISDIRECTED_S) if misdirected else (FIRST_S, LONGEST_S)
        return min(longest, first * 2.0**doubling) * (0.5 + 0.5 * self._draw())

    def reset(self) -> None:
        """A request was answered: the next fault is the first one."""
        self.faults_in_row = 0
