"""Collects the points of a run by series, each with the step and epoch that its sibling gauges give it."""

from __future__ import annotations

import math
from array import array
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from otel_train.record.entries import SeriesAttributes
from otel_train.semconv import AXIS, DEFAULT_AXIS, EPOCH, SPLIT, STEP
from otel_train.view.reduce import is_finite
from otel_train.view.series import Series
from otel_train.view.siblings import NOTHING, ByTime, Match, values_at

# What is measured of each batch of a loop.
LOOP_TIMES = ("dl.step.time", "dl.phase.time", "dl.rank.busy.time", "dl.data.")
_Key = tuple[str, SeriesAttributes, int, int]


@dataclass(slots=True)
class Beside:
    """A sibling as it stands in one line, beside the other points of that line."""

    series: Series
    times_ns: Sequence[int]
    values: array[float]
    # How many of the values are numbers.
    known: int


@dataclass(slots=True)
class _Source:
    """Where the steps, or the epochs, of one series come from: the sibling that knows the most of its points."""

    name: str
    siblings: list[Series] = field(default_factory=list)
    matches: list[Match] = field(default_factory=list)
    # Siblings of the rank that were looked at, whether they fit or not.
    looked_at: int = 0

    def find(self, series: Series, siblings: Sequence[Series]) -> None:
        """Take the siblings of the rank into account that are new."""
        if self.looked_at == len(siblings):
            return
        if self.name == STEP and counts_by_itself(series):
            self.looked_at = len(siblings)
            return
        split, axis = series.attribute(SPLIT), series.attribute(AXIS)
        for sibling in siblings[self.looked_at :]:
            if sibling.attribute(SPLIT) == split and (axis is None or sibling.attribute(AXIS) in (axis, None)):
                self.siblings.append(sibling)
                self.matches.append(Match())
        self.looked_at = len(siblings)

    def best(self) -> int | None:
        """Return the number of the sibling that knows the most, the first among equals; None where there is none."""
        if not self.matches:
            return None
        return max(range(len(self.matches)), key=lambda number: self.matches[number].known)


@dataclass(slots=True)
class _Held:
    """One series, and where its places come from."""

    series: Series
    sources: tuple[_Source, _Source] = field(default_factory=lambda: (_Source(STEP), _Source(EPOCH)))
    # Points that had their places when these were given last.
    settled: int = 0

    @property
    def is_sibling(self) -> bool:
        return self.series.name in (STEP, EPOCH)

    @property
    def loose(self) -> bool:
        """Whether a line that is still to come may give older points their places."""
        return any(match.loose for source in self.sources for match in source.matches)


class SeriesStore:
    """Collects points and gives them back as series with steps and epochs; more may come at any time."""

    def __init__(self) -> None:
        self._held: dict[_Key, _Held] = {}
        self._of_rank: dict[tuple[int, int], list[_Held]] = defaultdict(list)
        self._siblings: dict[tuple[str, int, int], list[Series]] = defaultdict(list)
        self._by_time: dict[int, ByTime] = {}
        self._grown: dict[int, _Held] = {}
        self._ranks_with_news: set[tuple[int, int]] = set()
        self._ordered: list[Series] | None = []
        self.points = 0

    def add(
        self,
        name: str,
        attributes: SeriesAttributes,
        attempt: int,
        rank: int,
        time_ns: int,
        value: float | None,
        *,
        unit: str = "",
        description: str = "",
        kind: str = "gauge",
    ) -> None:
        """Append one point; None is a gap."""
        self.extend(name, attributes, attempt, rank, [time_ns], [value], unit=unit, description=description, kind=kind)

    def extend(
        self,
        name: str,
        attributes: SeriesAttributes,
        attempt: int,
        rank: int,
        times_ns: Sequence[int],
        values: Sequence[float | None],
        *,
        unit: str = "",
        description: str = "",
        kind: str = "gauge",
        beside: Sequence[Beside] = (),
    ) -> Series:
        """Append points of one series; None is a gap. Integers beyond a double's range become infinities.

        `beside` are the siblings of the same line, which know these points first of all.
        """
        held = self._held.get((name, attributes, attempt, rank))
        if held is None:
            held = self._begin(Series(name, attributes, attempt, rank, unit, description, kind))
        series = held.series
        first = len(series.values)
        series.times_ns.extend(times_ns)
        try:
            # array.extend leaves what came before a fault in place, so a list that has one is made good first.
            series.values.extend(array("d", values))  # type: ignore[arg-type]
        except (TypeError, OverflowError):
            series.gaps.update(first + place for place, value in enumerate(values) if value is None)
            series.values.extend(map(_double, values))
        if held.is_sibling:
            self._ranks_with_news.add((attempt, rank))
        else:
            self.points += len(values)
            self._grown[id(series)] = held
            for sibling in beside:
                self._stand_beside(held, sibling, first, times_ns)
        return series

    def beside(
        self, name: str, attributes: SeriesAttributes, attempt: int, rank: int, times_ns: Sequence[int], values: Any
    ) -> Beside:
        """Append points of a sibling, and return it as it stands beside the other points of its line."""
        series = self.extend(name, attributes, attempt, rank, times_ns, values)
        mine = series.values[len(series.values) - len(times_ns) :]
        known = len(mine) if is_finite(mine) else sum(1 for value in mine if value == value)
        return Beside(series, times_ns, mine, known)

    def raw(self) -> Iterator[Series]:
        """Give all series as they were read, siblings among them; points since the last `join` have no places yet.

        They are appended to while more is read, and remain the same for as long as the store does.
        """
        return (held.series for held in list(self._held.values()))

    def join(self) -> list[Series]:
        """Return all series but the siblings themselves, each point with its step and epoch, rank after rank."""
        self.settle()
        if self._ordered is None:
            self._ordered = [held.series for rank in sorted(self._of_rank) for held in self._of_rank[rank]]
        return self._ordered

    @property
    def has_news(self) -> bool:
        """Whether anything came since `join` or `settle`."""
        return bool(self._grown or self._ranks_with_news)

    def settle(self) -> list[tuple[Series, int]]:
        """Give places to new points, and to old ones whose sibling is new.

        Return the series that changed, each with the first point whose place is another than before.
        """
        for rank in self._ranks_with_news:
            for held in self._of_rank[rank]:
                if held.loose or any(
                    source.looked_at < len(self._siblings[source.name, *rank]) for source in held.sources
                ):
                    self._grown.setdefault(id(held.series), held)
        self._ranks_with_news.clear()
        changed = [(held.series, self._give_places(held)) for held in self._grown.values()]
        self._grown.clear()
        return changed

    def epoch_siblings(self, attempt: int) -> list[Series]:
        """Return the series that hold the epochs of an attempt."""
        return [
            sibling
            for (name, number, _), siblings in self._siblings.items()
            if name == EPOCH and number == attempt
            for sibling in siblings
        ]

    def epochs_of(self, attempt: int) -> list[tuple[int, float]]:
        """Return (time, epoch) of all points of an attempt that have one, by time."""
        pairs: list[tuple[int, float]] = []
        for sibling in self.epoch_siblings(attempt):
            pairs.extend(zip(sibling.times_ns, sibling.values, strict=True))
        return sorted(pairs)

    def _begin(self, series: Series) -> _Held:
        held = _Held(series)
        self._held[series.name, series.attributes, series.attempt, series.rank] = held
        if held.is_sibling:
            self._siblings[series.name, series.attempt, series.rank].append(series)
        else:
            self._of_rank[series.attempt, series.rank].append(held)
            self._ordered = None
        return held

    def _stand_beside(self, held: _Held, beside: Beside, first: int, times_ns: Sequence[int]) -> None:
        """Take the values of a sibling in the same line, where it is one of this series."""
        series, sibling = held.series, beside.series
        source = held.sources[sibling.name == EPOCH]
        source.find(series, self._siblings[sibling.name, sibling.attempt, sibling.rank])
        for candidate, match in zip(source.siblings, source.matches, strict=True):
            if candidate is not sibling:
                continue
            if len(match.found) < first:
                match.add_loose(series.times_ns[len(match.found) : first])
            if times_ns is beside.times_ns or times_ns == beside.times_ns:
                match.add(beside.values, beside.known)
            else:
                match.add_loose(times_ns, values_at(times_ns, beside.times_ns, beside.values))

    def _give_places(self, held: _Held) -> int:
        series = held.series
        count = len(series.values)
        moved = held.settled
        for source in held.sources:
            source.find(series, self._siblings[source.name, series.attempt, series.rank])
            for sibling, match in zip(source.siblings, source.matches, strict=True):
                if len(match.found) < count:
                    match.add_loose(series.times_ns[len(match.found) :])
                if match.loose:
                    by_time = self._by_time.setdefault(id(sibling), ByTime())
                    by_time.update(sibling.times_ns, sibling.values)
                    changed = match.settle(by_time, sibling.times_ns)
                    moved = moved if changed is None else min(moved, changed)
            moved = min(moved, _take_places(series, source, count))
        held.settled = count
        return moved


def counts_by_itself(series: Series) -> bool:
    """Tell whether a series is of the times of a loop beside training's, whose numbers count that loop's own batches.

    They begin again with each evaluation, so they are no steps of the run and stand on no axis of steps.
    """
    return series.name.startswith(LOOP_TIMES) and series.split not in ("train", "")


def _take_places(series: Series, source: _Source, count: int) -> int:
    """Give a series the places of its source; return the first point for which another sibling speaks than before."""
    best = source.best()
    before = series.steps if source.name == STEP else series.epochs
    if best is None:
        before.extend(array("d", [NOTHING]) * (count - len(before)))
        return count
    match, sibling = source.matches[best], source.siblings[best]
    if source.name == STEP:
        series.steps = match.found
        if match.known:
            series.axis = str(sibling.attribute(AXIS) or series.attribute(AXIS) or DEFAULT_AXIS)
    else:
        series.epochs = match.found
    return count if match.found is before or not match.known else 0


def _double(value: float | None) -> float:
    if value is None:
        return NOTHING
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
