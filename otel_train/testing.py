"""For tests of code that records: what a run has on record, in memory, and a clock that a test moves.

```python
with otel_train.init(dir=tmp_path) as run:
    train(run)
record = otel_train.testing.recorded(run)
assert record.values("loss") == [0.5, 0.25]
assert record.event("run.end").attributes["status"] == "finished"
```
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from otel_train.clock import NS_PER_S
from otel_train.errors import RunFolderError
from otel_train.record.entries import LogEntry, SpanEntry
from otel_train.record.names import normalise_split, series_name
from otel_train.runlog.reader import RunReader
from otel_train.semconv import ANNOUNCES, AXIS, EPOCH, SPLIT, STEP

if TYPE_CHECKING:
    from otel_train.otlp.decode import Request
    from otel_train.run.run import Run

__all__ = ["ManualClock", "Point", "Recorded", "RecordedLog", "RecordedSpan", "recorded"]


class ManualClock:
    """A clock that stands still until a test moves it; the wall clock may be set, the monotonic one only goes on."""

    def __init__(self, wall_ns: int = 1_770_000_000 * NS_PER_S, mono_ns: int = 0) -> None:
        self._wall_ns = wall_ns
        self._mono_ns = mono_ns

    def wall_ns(self) -> int:
        """Nanoseconds since the Unix epoch."""
        return self._wall_ns

    def mono_ns(self) -> int:
        """Nanoseconds of the clock that never goes back."""
        return self._mono_ns

    def advance(self, seconds: float) -> None:
        """Let time go by on both clocks; ValueError for a negative number."""
        if seconds < 0:
            raise ValueError("time goes on; set_wall() sets the wall clock back")
        self._wall_ns += round(seconds * NS_PER_S)
        self._mono_ns += round(seconds * NS_PER_S)

    def set_wall(self, wall_ns: int) -> None:
        """Set the wall clock, as an administrator would: the monotonic one stays."""
        self._wall_ns = wall_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One point of one metric. `step` and `epoch` are None where none was recorded; `key` is the user's own."""

    name: str
    key: str
    split: str
    value: float | int | None
    time_ns: int
    step: int | None = None
    epoch: int | None = None
    unit: str = ""
    kind: str = "gauge"
    attributes: Mapping[str, Any] = field(default_factory=dict)
    attempt: int = 1
    rank: int = 0


@dataclass(frozen=True, slots=True)
class RecordedLog:
    """One log record or event, with the attempt and rank that wrote it."""

    entry: LogEntry
    attempt: int
    rank: int

    @property
    def body(self) -> Any:
        """The message; a mapping for some events."""
        return self.entry.body

    @property
    def level(self) -> str:
        """TRACE, DEBUG, INFO, WARN, ERROR, FATAL, or the name that the source gave."""
        return self.entry.severity_text

    @property
    def event(self) -> str:
        """The event's name, empty for a plain record."""
        return self.entry.event_name

    @property
    def attributes(self) -> Mapping[str, Any]:
        """The attributes."""
        return self.entry.attributes


@dataclass(frozen=True, slots=True)
class RecordedSpan:
    """One finished span, with the attempt and rank that wrote it."""

    entry: SpanEntry
    attempt: int
    rank: int

    @property
    def name(self) -> str:
        """The span's name."""
        return self.entry.name

    @property
    def attributes(self) -> Mapping[str, Any]:
        """The attributes."""
        return self.entry.attributes

    @property
    def announces(self) -> bool:
        """Whether it only says that another span has begun."""
        return ANNOUNCES in self.entry.attributes


@dataclass(slots=True)
class Recorded:
    """What a run has on record: `info` is run.json, `damage` what could not be read, `resources` those of each line."""

    path: Path
    info: dict[str, Any]
    points: list[Point]
    logs: list[RecordedLog]
    spans: list[RecordedSpan]
    resources: list[Mapping[str, Any]]
    damage: Sequence[Any]

    def named(self, name: str, split: str | None = None) -> list[Point]:
        """Return the points of a metric by its full name (`train.loss`, `dl.step.time`), in the order of writing."""
        split = None if split is None else normalise_split(split)
        return [point for point in self.points if point.name == name and split in (None, point.split)]

    def of(self, key: str, split: str | None = None) -> list[Point]:
        """Return the points of a user's key (`loss`, `val/loss`), of all splits by default, in the order of writing."""
        named = series_name(key) if split is None and "/" in key else series_name(key, split or "")
        return self.named(named.name, named.split or None)

    def values(self, key: str, split: str | None = None) -> list[float | int | None]:
        """Return the values of a user's key, in the order of writing."""
        return [point.value for point in self.of(key, split)]

    def steps(self, key: str, split: str | None = None) -> list[int | None]:
        """Return the steps of a user's key, in the order of writing."""
        return [point.step for point in self.of(key, split)]

    def events(self, name: str) -> list[RecordedLog]:
        """Return the events of one name."""
        return [log for log in self.logs if log.event == name]

    def event(self, name: str) -> RecordedLog:
        """Return the only event of a name; LookupError where there is none or more."""
        found = self.events(name)
        if len(found) != 1:
            raise LookupError(f"{len(found)} events {name!r} instead of one; there are {self._event_names()}")
        return found[0]

    @property
    def messages(self) -> list[Any]:
        """The bodies of the records that are no events."""
        return [log.body for log in self.logs if not log.event]

    def spans_of(self, name: str) -> list[RecordedSpan]:
        """Return the spans of one name, without those that only announce another."""
        return [span for span in self.spans if span.name == name and not span.announces]

    def _event_names(self) -> str:
        return ", ".join(sorted({log.event for log in self.logs if log.event})) or "none"


def recorded(run: Run | str | PathLike[str]) -> Recorded:
    """Return what a run has on record: of an open run up to now, of any other by its folder.

    RunFolderError where the folder is none of a run.
    """
    if isinstance(run, (str, PathLike)):
        path = Path(run)
    else:
        if not run.finished:
            run.flush()
        if run.path is None:
            raise RunFolderError(f"run {run.id} has no folder: it was made with dir=False")
        path = run.path
    reader = RunReader(path)
    points: list[Point] = []
    resources: list[Mapping[str, Any]] = []
    for request, attempt, rank in reader.requests("metrics"):
        points += _points(request, attempt, rank)
        resources += request.resources
    logs: list[RecordedLog] = []
    for request, attempt, rank in reader.requests("logs"):
        logs += [RecordedLog(entry, attempt, rank) for entry, _ in request.logs]
        resources += request.resources
    spans: list[RecordedSpan] = []
    for request, attempt, rank in reader.requests("traces"):
        spans += [RecordedSpan(entry, attempt, rank) for entry, _ in request.spans]
        resources += request.resources
    return Recorded(path, reader.info, points, logs, spans, resources, reader.damage)


def _points(request: Request, attempt: int, rank: int) -> list[Point]:
    """Return the points of one line, each with the step and epoch of its siblings."""
    places: dict[tuple[str, str, str, int], int] = {}
    for series in request.series:
        if series.name in (STEP, EPOCH):
            attributes = dict(series.attributes)
            where = str(attributes.get(SPLIT, "")), str(attributes.get(AXIS, ""))
            places |= {
                (series.name, *where, time_ns): int(value)
                for time_ns, value in zip(series.times_ns, series.values, strict=True)
                if value is not None
            }
    points: list[Point] = []
    for series in request.series:
        if series.name in (STEP, EPOCH):
            continue
        attributes = dict(series.attributes)
        split, axis = str(attributes.get(SPLIT, "")), str(attributes.get(AXIS, ""))
        points += [
            Point(
                name=series.name,
                key=series.description if series.name.startswith("train.") else series.name,
                split=split,
                value=value,
                time_ns=time_ns,
                step=places.get((STEP, split, axis, time_ns)),
                epoch=places.get((EPOCH, split, axis, time_ns)),
                unit=series.unit,
                kind=series.kind,
                attributes=attributes,
                attempt=attempt,
                rank=rank,
            )
            for time_ns, value in zip(series.times_ns, series.values, strict=True)
        ]
    return points
