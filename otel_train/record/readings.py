"""Holds readings: values of our own made at one step, perhaps still on a device, until the writer can take them."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from otel_train.record.columns import Blocks, Rows, own_column, sibling_columns
from otel_train.record.entries import AttributeValue, Sample, SeriesAttributes
from otel_train.record.histogram_value import HistogramValue
from otel_train.semconv import SPLIT

MOST_WAITING: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """One point of an exponential histogram of `semconv.METRICS`: all that this attempt has counted so far."""

    name: str
    attributes: SeriesAttributes
    value: HistogramValue


@dataclass(frozen=True, slots=True, kw_only=True)
class Occurrence:
    """Something worth an event of `semconv.EVENTS`; its severity is the one there unless given."""

    event: str
    body: str
    attributes: Mapping[str, AttributeValue] = field(default_factory=dict)
    severity: str = ""


@dataclass(slots=True)
class Read:
    """What a reading holds. `points` are gauges and stand at the reading's step; `counters` are totals so far."""

    points: list[Sample] = field(default_factory=list)
    counters: list[Sample] = field(default_factory=list)
    distributions: list[Distribution] = field(default_factory=list)
    occurrences: list[Occurrence] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Arrived:
    """A reading that could be read, and where it stands."""

    time_ns: int
    step: int
    epoch: int | None
    read: Read


class Reading:
    """Base of what `PointLog.add_reading` takes. Made on the training thread, read on the writer's."""

    __slots__ = ()

    # The split of the `dl.step` that stands beside the points; "" for none.
    split: str = "train"

    def ready(self) -> bool:
        """Tell whether `read` would wait for no device."""
        return True

    def read(self) -> Read:
        """Return the values; called once."""
        raise NotImplementedError


class ReadingPlaces:
    """Readings that wait for a device, and the points of those that have come."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[Reading, int, int, int | None]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def take(self, reading: Reading, time_ns: int, step: int, epoch: int | None, result: Blocks) -> None:
        """Take one; of too many the oldest is lost."""
        if len(self._waiting) >= MOST_WAITING:
            self._waiting.popleft()
            result.lost["waiting for a device"] += 1
        self._waiting.append((reading, time_ns, step, epoch))

    def flush(self, result: Blocks, *, last: bool) -> list[Arrived]:
        """Write the points of what is ready, and return it; each kind of reading keeps its order."""
        arrived: list[Arrived] = []
        blocked: set[type[Reading]] = set()
        kept: deque[tuple[Reading, int, int, int | None]] = deque()
        rows: dict[tuple[str, SeriesAttributes], Rows] = {}
        siblings: dict[str, Rows] = {}
        while self._waiting:
            waiting = self._waiting.popleft()
            reading, time_ns, step, epoch = waiting
            try:
                if type(reading) in blocked or not reading.ready():
                    if last:
                        result.lost["still on the device at the end"] += 1
                    else:
                        blocked.add(type(reading))
                        kept.append(waiting)
                    continue
                read = reading.read()
            except Exception as fault:  # noqa: BLE001 - one reading must not cost those that follow
                result.fail(fault, 1)
                continue
            arrived.append(Arrived(time_ns, step, epoch, read))
            for sample in read.points:
                rows.setdefault((sample.name, sample.attributes), Rows()).add(time_ns, step, epoch, sample.value)
            if read.points:
                siblings.setdefault(reading.split, Rows()).add(time_ns, step, epoch, None)
        self._waiting = kept
        _emit(rows, siblings, result)
        return arrived


def _emit(rows: dict[tuple[str, SeriesAttributes], Rows], siblings: dict[str, Rows], result: Blocks) -> None:
    if not rows:
        return
    columns = [own_column(name, one.times_ns, one.rows, attributes) for (name, attributes), one in rows.items()]
    result.points += sum(len(one.rows) for one in rows.values())
    for split, one in siblings.items():
        columns.extend(sibling_columns(one, [((SPLIT, split),) if split else ()]))
    result.blocks.append(columns)
