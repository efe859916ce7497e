"""Reads one signal of one rank's folder behind its writer: whole lines, each once, from a position that survives.

A position is the number of a segment and an offset in its plain bytes, so it holds whether the segment is still plain
or has been gzipped since.
"""

from __future__ import annotations

import errno
import os
from collections import deque
from collections.abc import Iterator
from io import FileIO
from pathlib import Path
from typing import Final

from otel_train.runlog.lines import MAX_LINE_BYTES, Damage, RawLine, read_lines
from otel_train.runlog.segments import list_segments

CHUNK_BYTES: Final = 1 << 20
# A gzip ends with the size of its content, modulo 2**32.
_SIZE_BYTES: Final = 4
_MOST_LOOKS: Final = 3
# Faults of this process, which say nothing of a file: what is passed over for them would never be sent.
_OURS: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})


class LogCursor:
    """Where reading stands. For one thread; disk faults give no lines, and the next look tries again.

    At the end, OSError where a folder cannot be listed: nothing found there is no proof that nothing is left.

    `number` and `offset` are the position behind the last line given. `passed` counts the plain bytes since the
    cursor was made, `unreadable` the places that were skipped: gzips that break, lines longer than any that is
    written, files that cannot be read.
    """

    def __init__(
        self,
        folder: Path,
        signal: str,
        number: int = 0,
        offset: int = 0,
        *,
        chunk_bytes: int = CHUNK_BYTES,
        max_line_bytes: int = MAX_LINE_BYTES,
    ) -> None:
        self.folder = folder
        self.signal = signal
        self.number = number
        self.offset = offset
        self.passed = 0
        self.unreadable = 0
        self._chunk_bytes = chunk_bytes
        self._max_line_bytes = max_line_bytes
        # Each with the plain bytes that it takes, its line end included.
        self._lines: deque[tuple[bytes, int]] = deque()
        self._drop_to_line_end = False
        self._buffer = bytearray()
        self._gzip: tuple[int, Iterator[RawLine]] | None = None
        self._damage: list[Damage] = []

    @classmethod
    def before(cls, folder: Path, signal: str, number: int, offset: int, distance_bytes: int) -> LogCursor:
        """Return a cursor that stands so many plain bytes before a position, or at the first line that is left.

        The first line it gives starts at or behind that place.
        """
        start, segments = offset - distance_bytes, dict(list_segments(folder, signal))
        earlier = sorted((known for known in segments if known < number), reverse=True)
        while start < 0 and earlier:
            number = earlier.pop(0)
            start += _plain_size(segments[number])
        if start <= 0:
            return cls(folder, signal, number)
        # One byte before: where a line starts at the very place, that byte is the line end before it.
        cursor = cls(folder, signal, number, start - 1)
        cursor._drop_to_line_end = True
        return cursor

    def next_line(self, *, ended: bool = False, until: tuple[int, int] | None = None) -> bytes | None:
        """Return the next whole line without its line end, or None where there is none at present.

        With `ended` (nothing more will be written) a last line without its line end is given as well. No line that
        starts at the position `until`, or behind it, is given.
        """
        while True:
            while self._lines:
                if until is not None and (self.number, self.offset) >= until:
                    return None
                line, size = self._lines.popleft()
                self._advance(size)
                if line:
                    return line
            if until is not None and (self.number, self.offset) >= until:
                return None
            if not self._fill(ended):
                return None

    def reaches(self, number: int, offset: int) -> bool:
        """Tell whether the log has such a place, or had it: a segment that is not there any more is taken for read."""
        path = dict(list_segments(self.folder, self.signal)).get(number)
        return offset >= 0 and (path is None or offset <= _plain_size(path) or path.suffix == ".gz")

    def pending_bytes(self, number: int, offset: int) -> int:
        """Return the plain bytes that lie behind a position."""
        pending = 0
        for known, path in list_segments(self.folder, self.signal):
            if known >= number:
                pending += max(0, _plain_size(path) - (offset if known == number else 0))
        return pending

    def _advance(self, count: int) -> None:
        self.offset += count
        self.passed += count

    def _fill(self, ended: bool) -> bool:
        """Read on; False where nothing is new."""
        vanished = 0
        while True:
            # Listed before reading: when the next segment is there, this one grows no more.
            segments = [entry for entry in list_segments(self.folder, self.signal) if entry[0] >= self.number]
            if not segments:
                if ended:
                    self._prove_listed()
                return False
            number, path = segments[0]
            if number > self.number:
                self.number, self.offset = number, 0
            gzipped = path.suffix == ".gz"
            closed = gzipped or len(segments) > 1
            try:
                if self._read_gzip(path) if gzipped else self._read_plain(path, complete=closed or ended):
                    return True
            except FileNotFoundError:
                # Gzipped since it was listed.
                vanished += 1
                if vanished < _MOST_LOOKS:
                    continue
                return False
            except OSError as fault:
                if fault.errno in _OURS:
                    raise
                if not ended:
                    return False
                self.unreadable += 1
            if not closed:
                return False
            self.number, self.offset = number + 1, 0
            self._drop_to_line_end = False

    def _prove_listed(self) -> None:
        try:
            os.listdir(self.folder)
        except FileNotFoundError:
            return

    def _read_plain(self, path: Path, *, complete: bool) -> bool:
        """Read some lines on; where the segment is `complete`, also what stands behind the last line end."""
        with open(path, "rb", buffering=0) as file:
            left = os.fstat(file.fileno()).st_size - self.offset
            if left <= 0:
                return False
            size = min(left, self._chunk_bytes)
            data = self._read(file, size)
            while b"\n" not in data and size < min(left, self._max_line_bytes):
                # A line longer than a chunk.
                size = min(size * 4, left, self._max_line_bytes)
                data = self._read(file, size)
        start = 0
        if self._drop_to_line_end:
            # Behind the first line end a line begins; up to it stands the rest of one that is not wanted.
            start = data.find(b"\n") + 1
            self._advance(start or len(data))
            if not start:
                return True
            self._drop_to_line_end = False
        with memoryview(data) as view:
            while (end := data.find(b"\n", start)) >= 0:
                self._lines.append((bytes(view[start:end]), end + 1 - start))
                start = end + 1
            if self._lines or start:
                return True
            if size >= self._max_line_bytes and not (complete and size == left):
                self.unreadable += 1
                self._drop_to_line_end = True
                self._advance(len(data))
                return True
            if complete and size == left:
                self._lines.append((bytes(view), len(data)))
                return True
        return False

    def _read(self, file: FileIO, size: int) -> bytearray:
        """Return so many bytes from the present offset on, or as many as there are; the next call uses it again."""
        if len(self._buffer) != size:
            # New pages cost more than what is copied into them: a long backlog is read through the same buffer.
            self._buffer = bytearray(size)
        file.seek(self.offset)
        filled = 0
        with memoryview(self._buffer) as view:
            while filled < size and (count := file.readinto(view[filled:])):
                filled += count
        if filled < size:
            del self._buffer[filled:]
        return self._buffer

    def _read_gzip(self, path: Path) -> bool:
        if self._gzip is None or self._gzip[0] != self.number:
            self._damage = []
            # The reader of lines takes any fault for one of the file.
            os.close(os.open(path, os.O_RDONLY))
            self._gzip = (self.number, read_lines(path, self._damage, max_line_bytes=self._max_line_bytes))
        at = self.offset
        for raw in self._gzip[1]:
            if raw.offset < at + self._drop_to_line_end:
                continue
            self._drop_to_line_end = False
            if not self._lines:
                self._advance(raw.offset - at)
                at = raw.offset
            end = raw.offset + len(raw.data) + raw.ended
            if raw.too_long:
                self.unreadable += 1
                self._lines.append((b"", end - at))
            else:
                # From the end of the line before: blank lines and other systems' line ends may lie between.
                self._lines.append((raw.data, end - at))
            at = end
            if at - self.offset >= self._chunk_bytes:
                return True
        if self._lines:
            return True
        self.unreadable += len(self._damage)
        self._gzip = None
        return False


def _plain_size(path: Path) -> int:
    """Return the size of a segment's plain bytes; 0 where it cannot be told."""
    try:
        size = path.stat().st_size
        if path.suffix != ".gz":
            return size
        with open(path, "rb") as file:
            file.seek(max(0, size - _SIZE_BYTES))
            return int.from_bytes(file.read(_SIZE_BYTES), "little")
    except OSError:
        return 0
