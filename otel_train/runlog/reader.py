"""Reads a run, live or dead, whole or damaged: its description, lines, points, log records and spans."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from otel_train.errors import RunFolderError
from otel_train.otlp.decode import (
    DamagedLine,
    MetricPoint,
    Request,
    Resource,
    Series,
    decode_line,
    parse_line,
    put_back,
)
from otel_train.otlp.decode_columns import TakenOut
from otel_train.record.entries import LogEntry, SpanEntry
from otel_train.runlog.folder import RUN_FILE, RunFolder
from otel_train.runlog.follow import follow_lines
from otel_train.runlog.lines import Damage, RawLine, read_lines, whole_parts
from otel_train.runlog.lock import is_locked
from otel_train.runlog.rebuild import rebuild_info
from otel_train.runlog.second_reader import SecondReader, started_for
from otel_train.runlog.segments import list_segments, segment_name

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Context:
    """Where an entry comes from."""

    attempt: int
    rank: int
    resource: Resource


class RunReader:
    """One run's folder, read without disturbing its writer. RunFolderError where the folder is no run's.

    `damage` grows while things are read: each place once, however often it is passed. `skipped` counts single values
    within whole lines that could not be read.
    """

    def __init__(self, path: Path | str) -> None:
        self.folder = RunFolder.open(path)
        self.path = self.folder.path
        self.damage: list[Damage] = []
        self.skipped = 0
        self._seen: set[tuple[Path, int, str]] = set()
        self._counted: set[tuple[Path, int]] = set()
        self._info: dict[str, Any] | None = None

    @property
    def info(self) -> dict[str, Any]:
        """The content of run.json; rebuilt from the lines, with ``"rebuilt": true``, where it cannot be read."""
        if self._info is None:
            try:
                self._info = self.folder.read()
            except RunFolderError as fault:
                reason = str(fault).removeprefix(f"{self.path / RUN_FILE} ")
                self._note(Damage(self.path / RUN_FILE, 0, 0, reason))
                self._info = rebuild_info(self)
        return self._info

    def lines(self, signal: str, attempt: int | None = None, rank: int | None = None) -> Iterator[bytes]:
        """Give every whole line of metrics, logs or traces, with its line end, in the order of writing."""
        for data, _, _, _ in self._read(signal, attempt, rank, lambda line, _: parse_line(line)):
            yield data + b"\n"

    def requests(
        self,
        signal: str,
        attempt: int | None = None,
        rank: int | None = None,
        names: Container[str] | None = None,
        holding: bytes = b"",
    ) -> Iterator[tuple[Request, int, int]]:
        """Give each line decoded, with its attempt and rank; with `names`, only those metrics.

        With `holding`, lines without this text are passed over unread. Of a long run a second process reads a part.
        """

        def decode(line: bytes, taken: TakenOut | None) -> Request:
            request = put_back(taken, names) if taken is not None else None
            if request is not None:
                return request
            return decode_line(line, names) if holding in line else Request("")

        second = started_for(self._segments(attempt, rank), names, holding) if signal == "metrics" else None
        try:
            for _, request, place, where in self._read(signal, attempt, rank, decode, second):
                if request.skipped and where not in self._counted:
                    self._counted.add(where)
                    self.skipped += request.skipped
                yield request, *place
        finally:
            if second is not None:
                second.close()

    def series(
        self, attempt: int | None = None, rank: int | None = None, names: Container[str] | None = None
    ) -> Iterator[tuple[Series, Context]]:
        """Give points by columns, as they stand together in the lines: the fast way to read a million of them."""
        for request, a, r in self.requests("metrics", attempt, rank, names):
            for series in request.series:
                yield series, Context(a, r, series.resource)

    def points(
        self, attempt: int | None = None, rank: int | None = None, names: Container[str] | None = None
    ) -> Iterator[tuple[MetricPoint, Context]]:
        """Give every point of every metric, or of the named ones."""
        for request, a, r in self.requests("metrics", attempt, rank, names):
            contexts = {id(resource): Context(a, r, resource) for resource in request.resources}
            for point, resource in request.points():
                yield point, contexts[id(resource)]

    def logs(self, attempt: int | None = None, rank: int | None = None) -> Iterator[tuple[LogEntry, Context]]:
        """Give every log record and event, rank after rank."""
        for request, a, r in self.requests("logs", attempt, rank):
            for entry, resource in request.logs:
                yield entry, Context(a, r, resource)

    def spans(self, attempt: int | None = None, rank: int | None = None) -> Iterator[tuple[SpanEntry, Context]]:
        """Give every span, rank after rank."""
        for request, a, r in self.requests("traces", attempt, rank):
            for entry, resource in request.spans:
                yield entry, Context(a, r, resource)

    def follow(
        self,
        signal: str,
        poll: Callable[[], bool],
        attempt: int | None = None,
        rank: int | None = None,
        *,
        from_end: bool = False,
    ) -> Iterator[bytes]:
        """Give lines as they come, across rotation and new attempts.

        Whenever nothing is new `poll` is called: it waits, and returns False to end. Unlike `lines`, what is given is
        not checked.
        """
        return follow_lines(self.folder, signal, poll, attempt, rank, from_end=from_end)

    def _read(
        self,
        signal: str,
        attempt: int | None,
        rank: int | None,
        parse: Callable[[bytes, TakenOut | None], T],
        second: SecondReader | None = None,
    ) -> Iterator[tuple[bytes, T, tuple[int, int], tuple[Path, int]]]:
        for a, r, folder in self.folder.rank_folders(attempt, rank):
            segments = list_segments(folder, signal)
            for position, (number, path) in enumerate(segments):
                last = position == len(segments) - 1
                for source, raw in self._raw_lines(path, folder / f"{segment_name(signal, number)}.gz", second):
                    where = (source, raw.offset)
                    try:
                        if raw.too_long:
                            raise DamagedLine("longer than any line that is written")
                        yield raw.data, parse(raw.data, raw.taken), (a, r), where
                        continue
                    except DamagedLine as fault:
                        reason = str(fault)
                    if last and not raw.ended and is_locked(folder):
                        # The writer is in the midst of it.
                        continue
                    self._note(Damage(source, raw.number, raw.offset, reason if raw.ended else f"cut off: {reason}"))
                    for index, part in enumerate(whole_parts(raw.data)):
                        yield part, parse(part, None), (a, r), (source, raw.offset + index)

    def _segments(self, attempt: int | None, rank: int | None) -> list[tuple[Path, bool]]:
        """Return the segments of metrics in the order of reading, each with whether nothing is added to it any more."""
        found: list[tuple[Path, bool]] = []
        for _, _, folder in self.folder.rank_folders(attempt, rank):
            paths = [path for _, path in list_segments(folder, "metrics")]
            found.extend((path, path.suffix == ".gz" or path is not paths[-1]) for path in paths)
        return found

    def _raw_lines(self, path: Path, gzipped: Path, second: SecondReader | None) -> Iterator[tuple[Path, RawLine]]:
        found: list[Damage] = []
        try:
            lines = second.lines(path, found) if second is not None and second.reads(path) else read_lines(path, found)
            yield from ((path, raw) for raw in lines)
        except FileNotFoundError:
            # It was gzipped since the folder was listed.
            try:
                yield from ((gzipped, raw) for raw in read_lines(gzipped, found))
            except FileNotFoundError:
                found.append(Damage(path, 0, 0, "vanished while the run was read"))
        for damage in found:
            self._note(damage)

    def _note(self, damage: Damage) -> None:
        key = (damage.path, damage.offset, damage.reason)
        if key not in self._seen:
            self._seen.add(key)
            self.damage.append(damage)
