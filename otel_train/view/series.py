"""Holds the points of a run by series, each with the step and epoch that its sibling gauges give it."""

from __future__ import annotations

import itertools
import math
from array import array
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from otel_train.record.entries import SeriesAttributes
from otel_train.record.names import PREFIX, series_name
from otel_train.semconv import AXIS, DEFAULT_AXIS, EPOCH, SPLIT, STEP

NOTHING = math.nan


def _integers() -> array[int]:
    return array("q")


def _numbers() -> array[float]:
    return array("d")


@dataclass(slots=True)
class Series:
    """Points of one metric with one set of attributes, of one rank in one attempt, in the order of the run log.

    `steps` and `epochs` are as long as `values` once `SeriesStore.join` has run; NaN where a point has none.
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


class SeriesStore:
    """Collects points and gives them back as series with steps and epochs."""

    def __init__(self) -> None:
        self._series: dict[tuple[str, SeriesAttributes, int, int], Series] = {}
        self._siblings: dict[tuple[str, int, int], list[Series]] = defaultdict(list)
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
    ) -> None:
        """Append points of one series; None is a gap. Integers beyond a double's range become infinities."""
        series = self._series.get((name, attributes, attempt, rank))
        if series is None:
            series = Series(name, attributes, attempt, rank, unit, description, kind)
            self._series[name, attributes, attempt, rank] = series
            if name in (STEP, EPOCH):
                self._siblings[name, attempt, rank].append(series)
        series.times_ns.extend(times_ns)
        first = len(series.values)
        try:
            # array.extend leaves what came before a fault in place, so a list that has one is made good first.
            series.values.extend(array("d", values))  # type: ignore[arg-type]
        except (TypeError, OverflowError):
            for index, value in enumerate(values, first):
                if value is None:
                    series.gaps.add(index)
                series.values.append(_double(value))
        if name not in (STEP, EPOCH):
            self.points += len(values)

    def join(self) -> list[Series]:
        """Return all series but the siblings themselves, each point with its step and epoch."""
        result = []
        for series in self._series.values():
            if series.name in (STEP, EPOCH):
                continue
            series.steps, series.axis = self._matched(STEP, series)
            series.epochs, _ = self._matched(EPOCH, series)
            result.append(series)
        return result

    def epochs_of(self, attempt: int) -> list[tuple[int, float]]:
        """Return (time, epoch) of all points of an attempt that have one, by time."""
        pairs: list[tuple[int, float]] = []
        for (name, number, _), siblings in self._siblings.items():
            if name == EPOCH and number == attempt:
                for sibling in siblings:
                    pairs.extend(zip(sibling.times_ns, sibling.values, strict=True))
        return sorted(pairs)

    def _matched(self, name: str, series: Series) -> tuple[array[float], str]:
        """Return the sibling's value for each point, from the candidate that knows the most of them."""
        best, best_axis, best_known = array("d", [NOTHING]) * len(series.values), DEFAULT_AXIS, 0
        split, axis = series.attribute(SPLIT), series.attribute(AXIS)
        for sibling in self._siblings.get((name, series.attempt, series.rank), ()):
            sibling_axis = sibling.attribute(AXIS)
            if sibling.attribute(SPLIT) != split or (axis is not None and sibling_axis not in (axis, None)):
                continue
            found = _values_at(series.times_ns, sibling)
            known = sum(1 for value in found if value == value)
            if known > best_known:
                best, best_known = found, known
                best_axis = str(sibling_axis or axis or DEFAULT_AXIS)
        return best, best_axis


def _double(value: float | None) -> float:
    if value is None:
        return NOTHING
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _values_at(times_ns: array[int], sibling: Series) -> array[float]:
    """Return the sibling's value at each time, NaN where it has none; among equal times the first goes to the first."""
    # What is sampled together stands at the same times, nearly always.
    if len(times_ns) == len(sibling.times_ns) and times_ns.tobytes() == sibling.times_ns.tobytes():
        return sibling.values[:]
    found = array("d", [NOTHING]) * len(times_ns)
    if not found:
        return found
    order = _order(times_ns)
    sibling_order = _order(sibling.times_ns)
    position, count = 0, len(sibling_order)
    for index in order:
        time_ns = times_ns[index]
        while position < count and sibling.times_ns[sibling_order[position]] < time_ns:
            position += 1
        if position == count:
            break
        if sibling.times_ns[sibling_order[position]] == time_ns:
            found[index] = sibling.values[sibling_order[position]]
            # Two calls within one tick of the clock: the next point of this time is the next call's.
            if position + 1 < count and sibling.times_ns[sibling_order[position + 1]] == time_ns:
                position += 1
    return found


def _order(times_ns: array[int]) -> list[int] | range:
    """Return the indices by time; the wall clock may have been set back."""
    if all(left <= right for left, right in itertools.pairwise(times_ns)):
        return range(len(times_ns))
    return sorted(range(len(times_ns)), key=times_ns.__getitem__)


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
    return [_joined_attempts(parts, starts) for parts in groups.values()]


def _joined_attempts(parts: list[Series], starts: Mapping[tuple[int, str], float]) -> Effective:
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
