"""Keeps what counts of each series over all attempts up to date while a run goes on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from otel_train.record.entries import SeriesAttributes
from otel_train.view.running import Running
from otel_train.view.series import Effective, Series, joined_attempts
from otel_train.view.series_store import SeriesStore

_Identity = tuple[str, SeriesAttributes, int]
Starts = dict[tuple[int, str], float]


@dataclass(slots=True)
class News:
    """What an update brought: series with the first point that is new or stands elsewhere, and series that came.

    `restarted` says that points of older attempts are other ones than before.
    """

    changed: list[tuple[Series, int]] = field(default_factory=list)
    came: list[Series] = field(default_factory=list)
    restarted: bool = False


@dataclass(slots=True)
class _Group:
    """The parts of one series, by attempt, and how long the newest was when they were joined."""

    parts: list[Series]
    effective: Effective
    taken: int = 0
    had_steps: bool = False

    @property
    def is_shared(self) -> bool:
        """Whether the only part is itself what counts."""
        return self.effective.series is self.parts[-1]


class Attempts:
    """The effective series of a run, each with its numbers."""

    def __init__(self, store: SeriesStore) -> None:
        self._store = store
        self._listed: Sequence[Series] = ()
        self._starts: Starts = {}
        self._groups: dict[_Identity, _Group] = {}
        self._running: dict[int, Running] = {}
        self.effective: list[Effective] = []

    def update(self) -> News:
        """Take what came to the store; `effective` then holds every series over all attempts, rank after rank."""
        grown = self._store.settle()
        if not grown:
            return News()
        listed = self._store.join()
        # What stands elsewhere now may have had the smallest step.
        elsewhere = [self._number(series, moved) for series, moved in grown]
        anew = listed is not self._listed or any(elsewhere)
        starts = self._first_steps(listed if anew else [series for series, _ in grown], {} if anew else self._starts)
        replaces = starts != self._starts and len({attempt for attempt, _ in starts}) > 1
        if listed is not self._listed or replaces:
            return self._join_all(listed, starts, grown)
        self._starts = starts
        news = News()
        for series, moved in grown:
            group = self._groups[series.identity]
            if group.is_shared:
                news.changed.append((series, moved))
            else:
                self._join(group, series, moved, news)
        return news

    def numbers(self, series: Series) -> Running:
        """Return the numbers of a series, a part of one or a whole."""
        running = self._running.get(id(series))
        if running is None:
            running = self._running[id(series)] = Running(series)
            running.update()
        return running

    def _number(self, series: Series, moved: int) -> bool:
        """Bring the numbers of a part up to date; return whether old points of it stand elsewhere now."""
        if id(series) in self._running:
            return self._running[id(series)].update(moved)
        self.numbers(series)
        return False

    def _first_steps(self, listed: Sequence[Series], before: Starts) -> Starts:
        """Return the smallest step of each attempt on each axis, these series taken into account."""
        starts = dict(before)
        for series in listed:
            least = self.numbers(series).least_step
            if least is not None:
                place = series.attempt, series.axis
                starts[place] = min(starts.get(place, least), least)
        return starts

    def _join_all(self, listed: Sequence[Series], starts: Starts, grown: list[tuple[Series, int]]) -> News:
        several = len({attempt for attempt, _ in starts}) > 1
        known = {id(series) for series in self._listed}
        came = [series for series in listed if id(series) not in known]
        news = News([], came, restarted=bool(known) and several)
        self._listed, self._starts = listed, starts
        parts: dict[_Identity, list[Series]] = {}
        for series in listed:
            parts.setdefault(series.identity, []).append(series)
        self._groups = {}
        for identity, found in parts.items():
            found.sort(key=lambda part: part.attempt)
            joined = joined_attempts(found, starts) if several or len(found) > 1 else Effective(found[0])
            group = self._groups[identity] = _Group(found, joined, len(found[-1].values))
            group.had_steps = self.numbers(found[-1]).has_steps
            if not group.is_shared:
                news.changed.append((joined.series, 0))
        self.effective = [group.effective for group in self._groups.values()]
        kept = {id(series) for series in listed}
        self._running = {place: running for place, running in self._running.items() if place in kept}
        news.changed.extend((series, moved) for series, moved in grown if self._groups[series.identity].is_shared)
        return news

    def _join(self, group: _Group, series: Series, moved: int, news: News) -> None:
        """Append what is new of the newest attempt, else join all attempts of one series anew."""
        whole, newest, taken = group.effective.series, group.parts[-1], group.taken
        later = (axis == newest.axis and attempt > newest.attempt for attempt, axis in self._starts)
        # Whether there is a gap before the newest attempt was decided by whether it had steps.
        as_before = self.numbers(newest).has_steps == group.had_steps
        if series is newest and taken and moved >= taken and as_before and not any(later):
            first = len(whole.values)
            whole.extend(newest.take(range(taken, len(newest.values))))
            group.taken = len(newest.values)
            self.numbers(whole).update(first)
            news.changed.append((whole, first))
            return
        self._running.pop(id(whole), None)
        joined = joined_attempts(group.parts, self._starts)
        group.effective.series, group.effective.replaced = joined.series, joined.replaced
        group.taken, group.had_steps = len(newest.values), self.numbers(newest).has_steps
        news.changed.append((joined.series, 0))
        news.restarted = True
