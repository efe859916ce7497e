"""Reads a run's segments as they grow, each byte once: across rotation, gzip, new attempts and ranks."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from otel_train.otlp.decode import DamagedLine, Request, decode_line
from otel_train.runlog.folder import RunFolder
from otel_train.runlog.lines import Damage, RawLine, read_lines, whole_parts
from otel_train.runlog.lock import is_locked
from otel_train.runlog.processes import Processes
from otel_train.runlog.regular_file import open_regular
from otel_train.runlog.segments import SIGNALS, segment_name

_NAME = re.compile(r"(metrics|logs|traces)\.(\d{6,})\.jsonl(\.gz)?")


class LogReplacedError(Exception):
    """What was read before is not there any more, or is shorter: all is to be read anew."""


class LogGoneError(LogReplacedError):
    """A file or a folder of the log is missing: the run is being deleted, or something else takes its place."""


@dataclass(slots=True)
class _Segment:
    """How far one segment was read: lines, bytes of its plain form, and whether nothing can come any more."""

    lines: int = 0
    offset: int = 0
    # Read in its gzipped form, which never grows.
    closed: bool = False
    # Its last line was cut off, and counted as damage since nobody was writing.
    cut: bool = False
    missing: bool = False
    damage: list[int] = field(default_factory=list)


@dataclass(slots=True)
class _Seen:
    """One segment as it lies in its folder."""

    plain: os.DirEntry[str] | None = None
    gzipped: bool = False


class GrowingLog:
    """One run's segments. `damage` and `skipped` are what a reader of the whole would say of all that was read."""

    def __init__(self, folder: RunFolder, processes: Processes | None = None) -> None:
        self.folder = folder
        self.damage: list[Damage] = []
        self.skipped = 0
        # Rises whenever the damage is another one.
        self.damage_revision = 0
        self._processes = processes or Processes()
        self._segments: dict[Path, dict[tuple[str, int], _Segment]] = {}

    def news(self, signal: str | None = None) -> Iterator[tuple[str, Request, int, int]]:
        """Give signal, content, attempt and rank of each line that came since; of all signals, or of one.

        A last line that is half written waits while somebody writes. LogReplacedError where what was read is another,
        LogGoneError where it is gone.
        """
        folders = self.folder.rank_folders()
        if self._segments.keys() - {path for _, _, path in folders}:
            raise LogGoneError("a rank's folder is gone")
        for attempt, rank, path in folders:
            for found, request in self._news_of(path, signal):
                yield found, request, attempt, rank

    def _news_of(self, path: Path, wanted: str | None) -> Iterator[tuple[str, Request]]:
        known = self._segments.setdefault(path, {})
        seen = _scan(path)
        for place, segment in known.items():
            # While a segment is gzipped a listing may miss both of its names, but not twice.
            if place not in seen:
                if segment.missing:
                    raise LogGoneError(f"{path / segment_name(*place)} is gone")
                segment.missing = True
        newest = {signal: max((number for name, number in seen if name == signal), default=0) for signal in SIGNALS}
        for signal, number in sorted(seen):
            if wanted not in (None, signal):
                continue
            segment = known.setdefault((signal, number), _Segment())
            segment.missing = False
            source = self._to_read(path, signal, number, segment, seen[signal, number])
            if source is not None:
                last = number == newest[signal]
                yield from ((signal, request) for request in self._read(source, segment, path, last=last))

    def _to_read(self, path: Path, signal: str, number: int, segment: _Segment, seen: _Seen) -> Path | None:
        """Return the file that holds more than was read; None where none does."""
        plain = path / segment_name(signal, number)
        if seen.plain is not None:
            try:
                size = seen.plain.stat().st_size
            except OSError:
                return None
            if size < segment.offset or (segment.cut and size > segment.offset):
                raise LogReplacedError(f"{plain} is another file than before")
            return plain if size > segment.offset else None
        if segment.closed:
            return None
        gzipped = plain.with_name(plain.name + ".gz")
        segment.closed = True
        for index in segment.damage:
            found = self.damage[index]
            self.damage[index] = Damage(gzipped, found.line_number, found.offset, found.reason)
            self.damage_revision += 1
        return None if segment.offset and _plain_size(gzipped) == segment.offset % (1 << 32) else gzipped

    def _read(self, source: Path, segment: _Segment, folder: Path, *, last: bool) -> Iterator[Request]:
        broken: list[Damage] = []
        try:
            for raw in read_lines(source, broken, number=segment.lines, offset=segment.offset):
                found = self._requests(raw, source, segment, folder, last=last)
                if found is None:
                    return
                # Before the line is given: whoever stops here must not get it twice.
                segment.offset = raw.end
                # A line end that comes later still belongs to this line.
                segment.lines = raw.number if raw.ended else raw.number - 1
                yield from found
        except FileNotFoundError:
            # Just gzipped: the next look finds it under its new name.
            return
        for damage in broken:
            self._note(damage, segment)

    def _requests(
        self, raw: RawLine, source: Path, segment: _Segment, folder: Path, *, last: bool
    ) -> list[Request] | None:
        """Return what a line holds; None for one that somebody is writing."""
        reason = "longer than any line that is written"
        if not raw.too_long:
            try:
                return [self._counted(decode_line(raw.data))]
            except DamagedLine as fault:
                reason = str(fault)
        if last and not raw.ended and is_locked(folder, processes=self._processes):
            return None
        segment.cut = not raw.ended
        reason = reason if raw.ended else f"cut off: {reason}"
        self._note(Damage(source, raw.number, raw.offset, reason), segment)
        return [self._counted(decode_line(part)) for part in whole_parts(raw.data)]

    def _counted(self, request: Request) -> Request:
        self.skipped += request.skipped
        return request

    def _note(self, damage: Damage, segment: _Segment) -> None:
        segment.damage.append(len(self.damage))
        self.damage.append(damage)
        self.damage_revision += 1


def _scan(path: Path) -> dict[tuple[str, int], _Seen]:
    """Return the segments of all signals in one look at the folder."""
    found: dict[tuple[str, int], _Seen] = {}
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                match = _NAME.fullmatch(entry.name)
                if match:
                    seen = found.setdefault((match[1], int(match[2])), _Seen())
                    if match[3]:
                        seen.gzipped = True
                    else:
                        seen.plain = entry
    except OSError:
        pass
    return found


def _plain_size(gzipped: Path) -> int:
    """Return what a gzip says of its plain size, modulo 2^32; -1 where it cannot be read."""
    try:
        with open_regular(gzipped) as file:
            file.seek(-4, os.SEEK_END)
            return int.from_bytes(file.read(4), "little")
    except (OSError, ValueError):
        return -1
