"""Gives points the step or epoch that stands at their time: in their own line, else anywhere in the log, also later.

What is logged together stands in one line at the same times, nearly always; then there is nothing to look for. The
rest, readings and logs of others, is looked up by time, and again only where something new stands at that time.
"""

from __future__ import annotations

import itertools
import math
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence

NOTHING = math.nan
# So many points more or less are put in one by one; for more all are sorted again.
_FEW = 256


class ByTime:
    """The points of a sibling in the order of time, at one time in the order of the log."""

    def __init__(self) -> None:
        self.times_ns: array[int] = array("q")
        self.values: array[float] = array("d")
        self.taken = 0
        # As long as the log is in the order of time its own arrays serve.
        self._own = False

    def update(self, times_ns: array[int], values: array[float]) -> None:
        """Take what came behind the points that were taken before."""
        first, count = self.taken, len(times_ns)
        if first == count:
            return
        self.taken = count
        if not self._own:
            if _rises(times_ns, max(0, first - 1)):
                self.times_ns, self.values = times_ns, values
                return
            self._own = True
            self.times_ns, self.values = times_ns[:first], values[:first]
        # Nearly in order: only what lies behind the earliest of the new points is sorted anew.
        place = bisect_right(self.times_ns, min(times_ns[first:]))
        tail_ns, tail = self.times_ns[place:] + times_ns[first:], self.values[place:] + values[first:]
        order = sorted(range(len(tail)), key=tail_ns.__getitem__)
        del self.times_ns[place:], self.values[place:]
        self.times_ns.extend(map(tail_ns.__getitem__, order))
        self.values.extend(map(tail.__getitem__, order))


class Match:
    """The values of one sibling at the points of one series; NaN where it has none.

    The r-th of several points of a series at one time has the r-th value that the sibling has there, or its last.
    """

    def __init__(self) -> None:
        self.found: array[float] = array("d")
        self.known = 0
        # Points without a value in their own line, by time and place in the log; as many times as indices.
        self._times_ns: array[int] = array("q")
        self._indices: array[int] = array("q")
        self._new: set[int] = set()
        self._seen = 0

    @property
    def loose(self) -> int:
        """How many points have no value in their own line."""
        return len(self._indices)

    def add(self, values: array[float], known: int) -> None:
        """Take points whose values are known, but for those that are NaN."""
        self.known += known
        self.found.extend(values)

    def add_loose(self, times_ns: Sequence[int], values: Sequence[float] = ()) -> None:
        """Take points of which some or all are to be looked for: those without a value, or whose value is NaN."""
        first = len(self.found)
        known = array("d", values or [NOTHING]) * (1 if values else len(times_ns))
        self.found.extend(known)
        wanted = [place for place, value in enumerate(known) if value != value]
        self.known += len(known) - len(wanted)
        if not wanted:
            return
        times = [times_ns[place] for place in wanted]
        self._new.update(times)
        if (not self._times_ns or times[0] >= self._times_ns[-1]) and _rises(times, 0):
            self._times_ns.extend(times)
            self._indices.extend([first + place for place in wanted])
            return
        if len(times) > _FEW:
            self._times_ns.extend(times)
            self._indices.extend([first + place for place in wanted])
            order = sorted(range(len(self._times_ns)), key=self._times_ns.__getitem__)
            self._times_ns = array("q", map(self._times_ns.__getitem__, order))
            self._indices = array("q", map(self._indices.__getitem__, order))
            return
        for time_ns, place in zip(times, wanted, strict=True):
            position = bisect_right(self._times_ns, time_ns)
            self._times_ns.insert(position, time_ns)
            self._indices.insert(position, first + place)

    def settle(self, sibling: ByTime, log_times_ns: array[int]) -> int | None:
        """Look for what is new on either side; return the first point whose value changed, None where none did.

        `log_times_ns` are the sibling's times in the order of the log.
        """
        wanted, self._new = self._new, set()
        if not self._times_ns or not sibling.times_ns:
            self._seen = sibling.taken
            return None
        if self._seen == 0 and len(self._times_ns) * 16 > len(sibling.times_ns):
            self._seen = sibling.taken
            return self._assign(zip(self._indices, _merged(self._times_ns, sibling), strict=True))
        if self._seen == 0:
            wanted.update(self._times_ns)
        elif new_times_ns := log_times_ns[self._seen :]:
            low = bisect_left(self._times_ns, min(new_times_ns))
            high = bisect_right(self._times_ns, max(new_times_ns))
            nearby: Iterable[int] = self._times_ns[low:high] if high - low <= len(new_times_ns) else new_times_ns
            wanted.update(nearby)
        self._seen = sibling.taken
        return self._assign(itertools.chain.from_iterable(self._at(time_ns, sibling) for time_ns in wanted))

    def _at(self, time_ns: int, sibling: ByTime) -> list[tuple[int, float]]:
        low, high = bisect_left(self._times_ns, time_ns), bisect_right(self._times_ns, time_ns)
        if low == high:
            return []
        first, end = bisect_left(sibling.times_ns, time_ns), bisect_right(sibling.times_ns, time_ns)
        if first == end:
            return []
        return [(self._indices[place], sibling.values[min(first + place - low, end - 1)]) for place in range(low, high)]

    def _assign(self, pairs: Iterable[tuple[int, float]]) -> int | None:
        changed: int | None = None
        found = self.found
        for index, value in pairs:
            before = found[index]
            if before == value or (before != before and value != value):
                continue
            self.known += (value == value) - (before == before)
            found[index] = value
            if changed is None or index < changed:
                changed = index
        return changed


def values_at(times_ns: Sequence[int], sibling_times_ns: Sequence[int], values: Sequence[float]) -> array[float]:
    """Return the sibling's value at each of a few times, NaN where it has none; both in whatever order."""
    if times_ns == sibling_times_ns:
        return array("d", values)
    places: dict[int, list[float]] = {}
    for time_ns, value in zip(sibling_times_ns, values, strict=True):
        places.setdefault(time_ns, []).append(value)
    passed: dict[int, int] = {}
    found = array("d")
    for time_ns in times_ns:
        here = places.get(time_ns)
        if here is None:
            found.append(NOTHING)
            continue
        turn = passed.get(time_ns, 0)
        passed[time_ns] = turn + 1
        found.append(here[min(turn, len(here) - 1)])
    return found


def _merged(times_ns: array[int], sibling: ByTime) -> Iterable[float]:
    """Give the sibling's value at each time; both rise."""
    theirs, values = sibling.times_ns, sibling.values
    position, count = 0, len(theirs)
    before, taken = None, False
    for time_ns in times_ns:
        if taken and time_ns == before and position + 1 < count and theirs[position + 1] == time_ns:
            position += 1
        while position < count and theirs[position] < time_ns:
            position += 1
        taken = position < count and theirs[position] == time_ns
        before = time_ns
        yield values[position] if taken else NOTHING


def _rises(times_ns: Sequence[int], first: int) -> bool:
    part = times_ns[first:] if first else times_ns
    return all(left <= right for left, right in itertools.pairwise(part))
