"""Keeps one step in every N, or one point an epoch, of the metrics that the user names; everything else is kept."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

from otel_train.record.names import NameTable

Place = tuple[str, str | None, str]


class Thinner:
    """Decides by metric name and step, before any value is read from a device."""

    def __init__(self, every: Mapping[str, int], names: NameTable) -> None:
        self._every = dict(every)
        self._names = names
        self._intervals: dict[Place, int | None] = {}
        # The epoch, or the step, of the last point that was kept.
        self._last: dict[Place, int] = {}

    def keep(
        self, values: Mapping[str, Any], split: str | None, axis: str, step: int, epoch: int | None
    ) -> dict[str, Any]:
        """Return the values whose series has a point at this step."""
        return {key: value for key, value in values.items() if self._keeps((key, split, axis), step, epoch)}

    def _keeps(self, place: Place, step: int, epoch: int | None) -> bool:
        if place not in self._intervals:
            name = self._names.series(*place).name
            matching = [steps for pattern, steps in self._every.items() if fnmatchcase(name, pattern)]
            # Where several patterns match, the last one given decides.
            self._intervals[place] = matching[-1] if matching else None
        interval = self._intervals[place]
        if interval is None:
            return True
        last = self._last.get(place)
        if interval:
            # The first in each window of N steps: a metric of every 5th step from 1 on has no multiple of 10 at all.
            if last is not None and last != step and last // interval == step // interval and step > last:
                return False
            self._last[place] = step
            return True
        if epoch is None or last == epoch:
            return epoch is None
        self._last[place] = epoch
        return True
