"""Knows how many optimizer steps were done, by the best of those who count them."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, Final

from otel_train.errors import ConfigError

if TYPE_CHECKING:
    from otel_train.record.points import PointLog

# Best first: the number that the user or a framework says with its values, what hooks of a watched optimizer saw, and
# micro-batches by the number that makes one step.
SOURCES: Final = ("log", "hooks", "accumulate")


class OptimizerSteps:
    """One count a source; each is written by one thread and read by any."""

    def __init__(self) -> None:
        self._done: dict[str, int] = {}
        # What earlier attempts did, for those who count from nought.
        self.before = 0

    def note(self, source: str, done: int) -> None:
        """Take how many steps a source has seen so far; ValueError for a source that is none of `SOURCES`."""
        if source not in SOURCES:
            raise ValueError(f"{source!r} counts no optimizer steps; use one of {', '.join(SOURCES)}")
        self._done[source] = done

    def advance(self, source: str, by: int = 1) -> None:
        """Count further steps of a source."""
        self.note(source, self._done.get(source, 0) + by)

    def accumulates(self, micro_batches: int, points: PointLog) -> None:
        """Note that steps are told by micro-batches from here on; a resumed training goes on from the step it is at."""
        if "accumulate" not in self._done:
            self.before = 0 if points.used else points.step // micro_batches
            self.note("accumulate", self.before)

    @property
    def source(self) -> str:
        """The best source that has said anything, "" before one has."""
        done = self._done
        return next((source for source in SOURCES if source in done), "")

    @property
    def done(self) -> int | None:
        """Steps done by that source; None before one has said anything."""
        return self._done.get(self.source)


def micro_batches(accumulate: Any) -> int:
    """Return the micro-batches of one optimizer step, 1 where none are said; ConfigError where it is no such number."""
    if accumulate is None:
        return 1
    try:
        number = operator.index(accumulate)
    except TypeError:
        number = 0
    if number < 1 or isinstance(accumulate, bool):
        raise ConfigError("accumulate", accumulate, "use the whole number of micro-batches in one optimizer step")
    return number
