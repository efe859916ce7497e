"""Reads one signal of one rank's folder into batches: what is read, what is under way, and what is acknowledged."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Final

from otel_train.clock import SYSTEM, Clock
from otel_train.export.cursor import LogCursor
from otel_train.export.end_marks import end_mark, last_states, mark_ms
from otel_train.export.held import WINDOW_BYTES, SeriesTable, Snapshot, content, rows_of
from otel_train.export.merge import MetricMerge
from otel_train.export.merge_json import read_held
from otel_train.export.parts import MetricParts
from otel_train.export.records import LogFitter, fit_spans

BATCH_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Batch:
    """What is to be sent together. `parts` stand between PREFIXES[signal] and SUFFIX, joined by commas.

    `items` counts what is in them; `merged`, `aged` and `unreadable` what was read along and is not sent; `added` what
    of all that no line of the log holds: end marks, the last run state, and the `unwritten`, which no disk has taken.
    `plain_bytes` is the size of the lines.
    """

    signal: str
    parts: tuple[bytes, ...]
    items: int
    added: int
    merged: int
    aged: int
    unreadable: int
    plain_bytes: int
    unwritten: int = 0


@dataclass(slots=True)
class Counts:
    """What became of a signal's items since the beginning of the log, for one endpoint, whichever process sent them.

    Items of the log = sent - added + refused + merged + aged + unreadable + those held back or not read yet.
    """

    sent: int = 0
    refused: int = 0
    merged: int = 0
    aged: int = 0
    unreadable: int = 0
    added: int = 0

    @property
    def log_items(self) -> int:
        """Items of the log that are done with, whatever became of them."""
        return self.sent - self.added + self.refused + self.merged + self.aged + self.unreadable

    @classmethod
    def of(cls, stored: Any) -> Counts:
        """Return counts as they were stored; zero for what cannot be read."""
        found = stored if isinstance(stored, dict) else {}
        return cls(**{field.name: int(found.get(field.name, 0)) for field in fields(cls)})

    def add(self, batch: Batch, refused: int) -> None:
        """Count a batch that is done with. Of its end marks it counts only those that cannot be among the refused."""
        marks = batch.added - batch.unwritten
        lost = max(0, refused - (batch.items - marks))
        self.sent += batch.items - refused
        self.refused += refused - lost
        self.merged += batch.merged
        self.aged += batch.aged
        self.unreadable += batch.unreadable
        self.added += batch.added - lost


class SignalFeed:
    """What is common to all signals. `stored` is what `to_store` gave, in this process or another."""

    def __init__(self, folder: Path, signal: str, stored: Any, *, batch_bytes: int = BATCH_BYTES) -> None:
        self.signal = signal
        self.counts = Counts()
        # Whether the position moved on by itself, over lines that hold nothing to be sent now.
        self.moved = False
        # What is wrong with `stored`, if anything: then everything is sent again.
        self.fault = ""
        self.cursor = LogCursor(folder, signal)
        self._folder = folder
        self.batch_bytes = batch_bytes
        self._under_way: Batch | None = None
        self._exhausted = False
        if stored is not None:
            try:
                self.counts = Counts.of(stored.get("counts"))
                self._go_to(int(stored["segment"]), int(stored["offset"]), stored)
            except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as fault:
                self.fault = f"{folder}: the position of {signal} is of no use ({fault}); they are sent again"
                self.counts = Counts()
                self._begin()
        self._position = (self.cursor.number, self.cursor.offset)

    # What differs by signal

    def _begin(self) -> None:
        """Stand at the beginning of the log."""
        self.cursor = LogCursor(self._folder, self.signal)

    def _go_to(self, number: int, offset: int, stored: dict[str, Any]) -> None:
        """Stand at a stored position; ValueError where the log has no such place."""
        if not self.cursor.reaches(number, offset):
            raise ValueError(f"the log does not reach segment {number}, byte {offset}")
        self.cursor = LogCursor(self._folder, self.signal, number, offset)

    def _read(self, ended: bool, final_state: str) -> Batch | None:
        raise NotImplementedError

    def _fold(self, lines: Iterable[bytes]) -> Batch:
        raise NotImplementedError

    def _extra(self) -> dict[str, Any]:
        return {}

    @property
    def held(self) -> int:
        """Points that are held back."""
        return 0

    # What is common

    def next(self, *, ended: bool, final_state: str) -> Batch | None:
        """Return the batch under way, or else the next; None where there is nothing to be sent at present."""
        if self._under_way is None:
            self._under_way = self._read(ended, final_state)
            if self._under_way is None:
                self._settle()
        return self._under_way

    def fold(self, lines: Iterable[bytes]) -> Batch | None:
        """Take lines that come behind the log and are not in it; return what is to be sent now, if anything.

        None may be under way. What is returned is, until it is acknowledged.
        """
        batch = self._fold(lines)
        if batch.items:
            self._under_way = batch
            return batch
        self.counts.add(batch, 0)
        return None

    def acknowledge(self, batch: Batch, refused: int) -> None:
        """Have the batch under way done with; any other has been already, and is passed over."""
        if batch is not self._under_way:
            return
        self._under_way = None
        self.counts.add(batch, refused)
        self._settle()

    def _settle(self) -> None:
        position = (self.cursor.number, self.cursor.offset)
        self.moved |= position != self._position
        self._position = position

    @property
    def done(self) -> bool:
        """Whether everything of an ended log is acknowledged."""
        return self._exhausted and self._under_way is None

    def pending_bytes(self) -> int:
        """Return the plain bytes behind the acknowledged position."""
        return self.cursor.pending_bytes(*self._position)

    def to_store(self) -> dict[str, Any]:
        """Return what is acknowledged, as JSON has it."""
        number, offset = self._position
        return {"segment": number, "offset": offset, "counts": asdict(self.counts), **self._extra()}


class RecordFeed(SignalFeed):
    """Log records, or spans: each line by itself."""

    def __init__(
        self,
        folder: Path,
        signal: str,
        stored: Any,
        *,
        batch_bytes: int = BATCH_BYTES,
        max_log_age_s: float | None = None,
        clock: Clock = SYSTEM,
    ) -> None:
        self._fit = LogFitter(max_log_age_s, clock).line if signal == "logs" else fit_spans
        super().__init__(folder, signal, stored, batch_bytes=batch_bytes)

    def _read(self, ended: bool, final_state: str) -> Batch | None:
        parts: list[bytes] = []
        items = aged = unreadable = size = 0
        unreadable_before = self.cursor.unreadable
        self._exhausted = False
        while size < self.batch_bytes or not items:
            line = self.cursor.next_line(ended=ended)
            if line is None:
                self._exhausted = ended
                break
            size += len(line) + 1
            fitted = self._fit(line)
            parts += fitted.parts
            items += fitted.items
            aged += fitted.aged
            unreadable += fitted.unreadable
        unreadable += self.cursor.unreadable - unreadable_before
        batch = Batch(self.signal, tuple(parts), items, 0, 0, aged, unreadable, size)
        if items:
            return batch
        self.counts.add(batch, 0)
        return None

    def _fold(self, lines: Iterable[bytes]) -> Batch:
        fitted = [self._fit(line) for line in lines]
        parts = tuple(part for line in fitted for part in line.parts)
        items, aged, unreadable = (
            sum(counts) for counts in zip(*((line.items, line.aged, line.unreadable) for line in fitted), strict=True)
        )
        taken = items + aged + unreadable
        return Batch(self.signal, parts, items, taken, 0, aged, unreadable, 0, taken)


class MetricFeed(SignalFeed):
    """Points, merged within milliseconds, the last of each series held back; at the end the marks."""

    def __init__(
        self,
        folder: Path,
        stored: Any,
        *,
        batch_bytes: int = BATCH_BYTES,
        window_bytes: int = WINDOW_BYTES,
    ) -> None:
        self._window_bytes = window_bytes
        self._table = SeriesTable(window_bytes)
        self._merge = MetricMerge(self._table)
        self._kept: Snapshot | None = None
        super().__init__(folder, "metrics", stored, batch_bytes=batch_bytes)

    @property
    def held(self) -> int:
        """Points that are held back."""
        return self._table.held

    def _begin(self) -> None:
        super()._begin()
        self._table = SeriesTable(self._window_bytes)
        self._merge = MetricMerge(self._table)

    def _go_to(self, number: int, offset: int, stored: dict[str, Any]) -> None:
        super()._go_to(number, offset, stored)
        rows = rows_of(stored)
        # What stands before the position is read for its milliseconds: they are known to be sent.
        self.cursor = LogCursor.before(self._folder, self.signal, number, offset, self._window_bytes)
        passed_over = MetricParts()
        while (line := self.cursor.next_line(until=(number, offset))) is not None:
            self._merge.line(line, self.cursor.passed - len(line) - 1, passed_over)
            passed_over.take()
        if (self.cursor.number, self.cursor.offset) > (number, offset) and self.cursor.number == number:
            raise ValueError(f"no line ends at segment {number}, byte {offset}")
        if self.cursor.number <= number:
            self.cursor.number, self.cursor.offset = number, offset
        self.cursor.unreadable = 0
        self._table.restore(rows, read_held)

    def _read(self, ended: bool, final_state: str) -> Batch | None:
        parts = MetricParts()
        size = 0
        unreadable_before = self.cursor.unreadable
        self._exhausted = False
        snapshot: Snapshot | None = None
        exhausted = False
        while not exhausted and (size < self.batch_bytes or not parts.items):
            line = self.cursor.next_line(ended=ended)
            if line is None:
                exhausted = True
                continue
            # What is acknowledged so far, should it be asked for while this is under way.
            snapshot = snapshot or self._table.snapshot()
            size += len(line) + 1
            self._merge.line(line, self.cursor.passed - len(line) - 1, parts)
        if exhausted and ended:
            snapshot = snapshot or self._table.snapshot()
            self._exhausted = self._end(parts, final_state, self.batch_bytes - size)
        parts.unreadable += self.cursor.unreadable - unreadable_before
        batch = Batch("metrics", parts.take(), parts.items, parts.added, parts.merged, 0, parts.unreadable, size)
        if batch.items:
            self._kept = snapshot
            return batch
        self.counts.add(batch, 0)
        return None

    def _fold(self, lines: Iterable[bytes]) -> Batch:
        parts = MetricParts()
        snapshot, held = self._table.snapshot(), self._table.held
        for line in lines:
            self._merge.line(line, self.cursor.passed, parts)
        self._kept = snapshot if parts.items else None
        taken = parts.items + parts.merged + parts.unreadable + self._table.held - held
        return Batch("metrics", parts.take(), parts.items, taken, parts.merged, 0, parts.unreadable, 0, taken)

    def _end(self, parts: MetricParts, final_state: str, room_bytes: int) -> bool:
        """Add held points and end marks, as many as there is room for; True where that is all."""
        unmarked = [series for series in self._table.by_key.values() if series.point and not series.marked]
        if unmarked:
            for frame, point in last_states(self._table, final_state):
                held = read_held(frame, point)
                assert held is not None
                series = self._table.series(held.key, frame)
                if not series.point:
                    unmarked.append(series)
                self._merge.add(series, frame, held, point, parts)
        for series in unmarked:
            if room_bytes <= 0 and parts.items:
                return False
            if series.open:
                parts.point(series)
                self._table.release(series)
            mark = end_mark(series)
            if mark is not None:
                parts.points(series.frame, [mark], 1)
                parts.added += 1
                series.newest = b"%013d" % mark_ms(series)
            series.marked = True
            room_bytes -= 2 * len(series.point)
        return True

    def _settle(self) -> None:
        super()._settle()
        self._kept = None

    def _extra(self) -> dict[str, Any]:
        return content(self._kept if self._kept is not None else self._table.snapshot())
