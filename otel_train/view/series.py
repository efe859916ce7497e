"""Holds the points of one series, and joins those of several attempts to what counts."""

from __future__ import annotations

import hashlib
import math
from array import array
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from otel_train.record.entries import SeriesAttributes
from otel_train.record.names import PREFIX, series_name
from otel_train.semconv import DEFAULT_AXIS, SPLIT
from otel_train.view.siblings import NOTHING


def _integers() -> array[int]:
    return array("q")


def _numbers() -> array[float]:
    return array("d")


@dataclass(slots=True)
class Series:
    """Points of one metric with one set of attributes, of one rank in one attempt, in the order of the run log.

    `steps` and `epochs` are as long as `values` once the store has joined them; NaN where a point has none.
    `gaps` holds the indices of points that say "no value here": NaN among `values`, yet not a NaN that was measured.
    """

    name: str
    attributes: SeriesAttributes
    attempt: int
    rank: int
    unit: str = ""
    description: str = ""
    kind: str = "gauge"
    times_ns: array[int] = field(default_factory=_integers)
    values: array[float] = field(default_factory=_numbers)
    steps: array[float] = field(default_factory=_numbers)
    epochs: array[float] = field(default_factory=_numbers)
    axis: str = DEFAULT_AXIS
    gaps: set[int] = field(default_factory=set)

    @property
    def key(self) -> str:
        """The user's own key of a metric, without its split; of any other metric its name."""
        if not self.name.startswith(PREFIX):
            return self.name
        if not self.description:
            return self.name.removeprefix(PREFIX)
        named = series_name(self.description)
        return named.key if (named.name, named.split) == (self.name, self.split) else self.description

    @property
    def split(self) -> str:
        """The value of the attribute `split`, empty where there is none."""
        return str(self.attribute(SPLIT) or "")

    def attribute(self, name: str) -> object:
        """Return one attribute's value, None where there is none."""
        for key, value in self.attributes:
            if key == name:
                return value
        return None

    @property
    def identity(self) -> tuple[str, SeriesAttributes, int]:
        """What the parts of one series in several attempts have in common."""
        return self.name, self.attributes, self.rank

    def take(self, indices: Iterable[int]) -> Series:
        """Return a series of only these points."""
        chosen = list(indices)
        part = Series(
            self.name, self.attributes, self.attempt, self.rank, self.unit, self.description, self.kind, axis=self.axis
        )
        part.times_ns = array("q", (self.times_ns[index] for index in chosen))
        part.values = array("d", (self.values[index] for index in chosen))
        part.steps = array("d", (self.steps[index] for index in chosen))
        part.epochs = array("d", (self.epochs[index] for index in chosen))
        part.gaps = {place for place, index in enumerate(chosen) if index in self.gaps} if self.gaps else set()
        return part

    def extend(self, other: Series) -> None:
        """Append the points of another series."""
        self.gaps.update(len(self.values) + index for index in other.gaps)
        self.times_ns.extend(other.times_ns)
        self.values.extend(other.values)
        self.steps.extend(other.steps)
        self.epochs.extend(other.epochs)


def series_id(series: Series) -> str:
    """Return 12 hex digits that name a series over reads and attempts: of its name, attributes and rank."""
    identity = repr((series.name, series.attributes, series.rank))
    return hashlib.blake2s(identity.encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()


@dataclass(slots=True)
class Effective:
    """One series over all attempts: what counts, and the points of older attempts that newer ones replaced."""

    series: Series
    replaced: list[Series] = field(default_factory=list)


def first_steps(all_series: Iterable[Series]) -> dict[tuple[int, str], float]:
    """Return the smallest step of each attempt on each axis."""
    result: dict[tuple[int, str], float] = {}
    for series in all_series:
        smallest = min((step for step in series.steps if step == step), default=None)
        if smallest is not None:
            place = series.attempt, series.axis
            result[place] = min(result.get(place, smallest), smallest)
    return result


def effective(all_series: Iterable[Series]) -> list[Effective]:
    """Return each series as the newest attempt from its first step on, before that the attempt before it, and so on.

    Points without a step are of the time of their attempt and are never replaced.
    """
    listed = list(all_series)
    starts = first_steps(listed)
    groups: dict[tuple[str, SeriesAttributes, int], list[Series]] = defaultdict(list)
    for series in listed:
        groups[series.identity].append(series)
    return [joined_attempts(parts, starts) for parts in groups.values()]


def joined_attempts(parts: list[Series], starts: Mapping[tuple[int, str], float]) -> Effective:
    """Return one series over its attempts; `starts` holds the first step of each attempt on each axis."""
    if len(parts) == 1 and len({attempt for attempt, _ in starts}) <= 1:
        return Effective(parts[0])
    parts = sorted(parts, key=lambda part: part.attempt)
    whole = parts[-1].take(())
    whole.description, whole.unit = parts[-1].description, parts[-1].unit
    result = Effective(whole)
    for part in parts:
        later = [start for (attempt, axis), start in starts.items() if attempt > part.attempt and axis == part.axis]
        limit = min(later, default=math.inf)
        # A point without a step compares false, so it stays.
        gone = [index for index, step in enumerate(part.steps) if step >= limit]
        kept = part.take(sorted(set(range(len(part.values))).difference(gone))) if gone else part
        if len(whole.values) and len(kept.values) and not _has_steps(kept):
            # By time nothing was measured between two attempts; a line there would be made up.
            whole.extend(_gap_at(kept))
        whole.extend(kept)
        if gone:
            result.replaced.append(part.take(gone))
    return result


def _has_steps(series: Series) -> bool:
    return any(step == step for step in series.steps)


def _gap_at(series: Series) -> Series:
    gap = series.take([0])
    gap.values[0] = NOTHING
    gap.gaps = {0}
    return gap
