"""Everything that a run's folder says, read once: description, points, records, spans, and what was damaged."""

from __future__ import annotations

from bisect import insort_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from otel_train.clock import NS_PER_S, from_iso
from otel_train.view.attempts import Attempts, News
from otel_train.view.axes import Axes, EpochSpans
from otel_train.view.distributions import Distributions
from otel_train.view.log_list import LogKeeper, LogRow, in_order
from otel_train.view.running import Running
from otel_train.view.series import Effective, Series
from otel_train.view.series_store import SeriesStore
from otel_train.view.summary import Summary, goal_of, summary_of
from otel_train.view.timeline import SpanRow

# Spans kept in memory; a run's own thinning stays far below.
MAX_SPANS = 200_000
MAX_HEALTH_EVENTS = 10_000
# Events that a section of the page shows whole, by the section.
SECTION_OF = {
    "rank.lost": "ranks",
    "attempt.ended": "ranks",
    "health.hung": "ranks",
    "data.worker_died": "data-path",
    "health.data_loading": "data-path",
    "health.out_of_memory": "memory",
    "gradient.nonfinite": "model",
}
MAX_HAPPENED = 400


@dataclass(slots=True)
class DamagedPlace:
    """One line that could not be read."""

    path: str
    line: int
    offset: int
    reason: str


@dataclass(slots=True)
class RunData:
    """One run as it is now. Times are nanoseconds since the Unix epoch."""

    path: Path
    run_id: str
    info: Mapping[str, Any]
    state: str
    reason: str
    now_ns: int
    store: SeriesStore = field(default_factory=SeriesStore)
    logs: LogKeeper = field(default_factory=LogKeeper)
    spans: list[SpanRow] = field(default_factory=list)
    spans_left_out: int = 0
    damage: list[DamagedPlace] = field(default_factory=list)
    skipped: int = 0
    last_ns: int = 0
    first_ns: int = 0
    last_of_attempt: dict[int, int] = field(default_factory=dict)
    failure: LogRow | None = None
    # Events of health conditions, but for values that were not finite: those are seen in the points themselves.
    health: list[LogRow] = field(default_factory=list)
    distributions: Distributions = field(default_factory=Distributions)
    _attempts: Attempts | None = None
    _happened: list[LogRow] = field(default_factory=list)
    # How many there were, also of those that were let go.
    happened_seen: int = 0
    _epochs: dict[int, EpochSpans] = field(default_factory=dict)

    def see(self, time_ns: int, attempt: int) -> None:
        """Take note of a time at which an attempt was alive."""
        if time_ns > self.last_of_attempt.get(attempt, 0):
            self.last_of_attempt[attempt] = time_ns
        if time_ns > self.last_ns:
            self.last_ns = time_ns
        if time_ns and (not self.first_ns or time_ns < self.first_ns):
            self.first_ns = time_ns

    def add_log(self, row: LogRow) -> None:
        """Take one record; the last one with an exception tells what a run died of."""
        self.see(row.entry.time_ns, row.attempt)
        self.logs.add(row)
        name = row.entry.event_name
        if name.startswith("health.") and name != "health.nonfinite" and len(self.health) < MAX_HEALTH_EVENTS:
            self.health.append(row)
        if name in SECTION_OF:
            self.happened_seen += 1
            self._happened.append(row)
            if len(self._happened) >= 2 * MAX_HAPPENED:
                self._happened = self.happened
        # Ranks may be read one after the other, or all a little at a time.
        if "exception.type" in row.entry.attributes and (self.failure is None or _ends(row) >= _ends(self.failure)):
            self.failure = row

    @property
    def happened(self) -> list[LogRow]:
        """What happened to ranks, loaders and memory last, with stacks, by time."""
        return sorted(self._happened, key=in_order)[-MAX_HAPPENED:]

    def add_span(self, row: SpanRow) -> None:
        """Take one span."""
        self.see(row.span.end_ns, row.attempt)
        if len(self.spans) >= MAX_SPANS:
            self.spans_left_out += 1
        elif not self.spans or _of_rank(row) >= _of_rank(self.spans[-1]):
            self.spans.append(row)
        else:
            insort_right(self.spans, row, key=_of_rank)

    @property
    def name(self) -> str:
        """The run's name, else its id."""
        return str(self.info.get("run_name") or self.run_id)

    @property
    def attempts(self) -> list[Mapping[str, Any]]:
        """The attempts of run.json, empty where it is damaged; one without a number has that of its place."""
        found = mappings(self.info.get("attempts"))
        return [
            attempt if type(attempt.get("attempt")) is int else {**attempt, "attempt": place}
            for place, attempt in enumerate(found, 1)
        ]

    @property
    def started_ns(self) -> int:
        """Start of the first attempt; without a description the first point or record."""
        for text in (self.attempts[0].get("started") if self.attempts else None, self.info.get("created")):
            time_ns = time_of(text)
            if time_ns:
                # A clock that was set back must not give negative times to the first points.
                return (
                    min(time_ns, self.first_ns)
                    if self.first_ns and time_ns - self.first_ns < 60 * NS_PER_S
                    else time_ns
                )
        return self.first_ns

    @property
    def ended_ns(self) -> int:
        """End of the newest attempt; 0 where it has none."""
        return time_of(self.attempts[-1].get("ended")) if self.attempts else 0

    @property
    def until_ns(self) -> int:
        """End of the run, now where it is running, else its last sign of life."""
        if self.state == "running":
            return max(self.now_ns, self.last_ns)
        return max(self.ended_ns, self.last_ns)

    def ends(self) -> dict[int, int]:
        """Return when each attempt ended, by its last sign of life; the newest as the run does."""
        result = dict(self.last_of_attempt)
        if result:
            result[max(result)] = self.until_ns
        return result

    def update(self) -> News:
        """Bring the series up to date with what was read; return what is new."""
        if self._attempts is None:
            self._attempts = Attempts(self.store)
        return self._attempts.update()

    def series(self) -> list[Effective]:
        """Return every series over all attempts."""
        if self._attempts is None or self.store.has_news:
            self.update()
        return [] if self._attempts is None else self._attempts.effective

    def numbers(self, series: Series) -> Running:
        """Return the numbers of one of these series."""
        return Running(series) if self._attempts is None else self._attempts.numbers(series)

    def metrics(self) -> list[tuple[Effective, Summary]]:
        """Return the user's metrics, each with its numbers."""
        return [(item, self.summary(item)) for item in self.series() if item.series.name.startswith("train.")]

    def summary(self, item: Effective) -> Summary:
        """Return the numbers of one series with their places, and the best by the direction of its metric."""
        directions = self.info.get("metrics")
        directions = directions if isinstance(directions, Mapping) else {}
        return summary_of(self.numbers(item.series), goal_of(item.series, directions))

    def axes(self) -> Axes:
        """Return the places of all points, elapsed times from the run's start."""
        axes = Axes(self.started_ns)
        numbers = {item.series.attempt for item in self.series()} | set(range(1, len(self.attempts) + 1))
        for attempt in sorted(numbers):
            spans = self._epochs.setdefault(attempt, EpochSpans())
            spans.update(self.store.epoch_siblings(attempt))
            axes.take(spans)
        metrics = [item.series for item in self.series() if item.series.name.startswith("train.")]
        axes.fractional = any(self.numbers(series).repeats for series in metrics)
        return axes

    def last_step(self) -> float | None:
        """Return the step of the newest point of training, else of any metric."""
        return self._last("steps")

    def last_epoch(self) -> float | None:
        """Return the epoch of the newest point of training, else of any metric."""
        return self._last("epochs")

    def _last(self, which: str) -> float | None:
        best: tuple[bool, int, float] | None = None
        for item in self.series():
            series = item.series
            if series.axis != "step" or not series.name.startswith(("train.", "dl.step.time")):
                continue
            numbers: Sequence[float] = getattr(series, which)
            known = self.numbers(series)
            if not (known.has_steps if which == "steps" else known.has_epochs):
                # There is none to be found, in however many points.
                continue
            for index in range(len(numbers) - 1, -1, -1):
                if numbers[index] == numbers[index]:
                    found = (series.split in ("train", ""), series.times_ns[index], numbers[index])
                    best = found if best is None else max(best, found)
                    break
        return best[2] if best else None


def _of_rank(row: SpanRow) -> tuple[int, int]:
    return row.attempt, row.rank


def _ends(row: LogRow) -> tuple[bool, int, int]:
    return row.entry.event_name == "run.end", row.attempt, row.rank


def time_of(text: object) -> int:
    """Return the time of an ISO text in nanoseconds, 0 where it is none."""
    try:
        return from_iso(text) if isinstance(text, str) and text else 0
    except ValueError:
        return 0


def listed(value: object) -> list[Any]:
    """Return the items of a list; of a damaged description a value that is none as its only item, nothing for null."""
    return value if isinstance(value, list) else [] if value is None else [value]


def mappings(value: object) -> list[Mapping[str, Any]]:
    """Return the mappings of a list, leaving out whatever else a damaged description holds."""
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []
