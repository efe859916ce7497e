"""Reads the lines of one segment, plain or gzipped, and says which of them are cut or damaged."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import re
import threading
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import IO, Any

from otel_train.otlp.decode import DamagedLine, parse_line
from otel_train.otlp.decode_columns import TakenOut
from otel_train.runlog.inflate import damage_errors, gunzipper
from otel_train.runlog.regular_file import open_regular

# Longer than any line that is written; a file without line ends must not fill the memory.
MAX_LINE_BYTES = 64 << 20
_CHUNK_BYTES = 256 << 10
# Of gzips from this size on a thread unpacks ahead, in pieces of this size.
_LARGE_BYTES = 1 << 20
_AHEAD_BYTES = 4 << 20
_START = re.compile(rb'\{"resource(?:Metrics|Logs|Spans)":\[')


@dataclass(frozen=True, slots=True)
class Damage:
    """What could not be read: where (line numbers from 1, offsets in the plain bytes) and why."""

    path: Path
    line_number: int
    offset: int
    reason: str


@dataclass(frozen=True, slots=True)
class RawLine:
    """The bytes of one line without its line end, and where it stands."""

    number: int
    offset: int
    data: bytes
    ended: bool  # False for a last line without its line end
    too_long: bool = False
    # Where the next line begins.
    end: int = 0
    # What another process took out of it already; then there are no data.
    taken: TakenOut | None = None


def read_lines(
    path: Path,
    damage: list[Damage],
    *,
    max_line_bytes: int = MAX_LINE_BYTES,
    number: int = 0,
    offset: int = 0,
) -> Iterator[RawLine]:
    """Give every line that is not empty. What cannot be read of a gzip, or of the file at all, goes to `damage`.

    Reading begins behind the first `number` lines, which end at `offset` of the plain bytes.
    """
    try:
        with open_regular(path) as file, contextlib.closing(_pieces(file, path, damage, offset)) as pieces:
            for data, length, ended in _cut(pieces, max_line_bytes):
                number += 1
                start, offset = offset, offset + length
                too_long = len(data) < length - ended
                data = data.rstrip(b"\r")
                if data:
                    yield RawLine(number, start, data, ended, too_long, offset)
    except FileNotFoundError:
        raise
    except OSError as fault:
        damage.append(Damage(path, number + 1, offset, f"cannot be read: {fault.strerror or fault}"))


def _cut(pieces: Iterable[bytes], max_line_bytes: int) -> Iterator[tuple[bytes, int, bool]]:
    """Give each line without its line end, at most so much of it; its length with the line end; whether it has one."""
    held: list[bytes] = []
    size = kept = 0
    for piece in pieces:
        first, *lines = piece.split(b"\n")
        # Of a line that is longer than any only the beginning is held.
        held.append(first[: max_line_bytes - kept] if kept + len(first) > max_line_bytes else first)
        kept += len(held[-1])
        size += len(first)
        if not lines:
            continue
        yield b"".join(held), size + 1, True
        *whole, last = lines
        for line in whole:
            yield line[:max_line_bytes] if len(line) > max_line_bytes else line, len(line) + 1, True
        held, size = [last[:max_line_bytes]], len(last)
        kept = len(held[0])
    if size:
        yield b"".join(held), size, False


def _pieces(file: IO[bytes], path: Path, damage: list[Damage], offset: int) -> Generator[bytes, None, None]:
    """Give the plain bytes of a file from an offset on."""
    if path.suffix != ".gz":
        file.seek(offset)
        while piece := file.read(_CHUNK_BYTES):
            yield piece
        return
    gunzip = _Gunzip(file, path, damage)
    is_large = os.fstat(file.fileno()).st_size >= _LARGE_BYTES
    with contextlib.closing(_ahead(gunzip) if is_large else gunzip.pieces(_CHUNK_BYTES)) as pieces:
        for piece in pieces:
            if offset < len(piece):
                yield piece[offset:] if offset else piece
            offset = max(0, offset - len(piece))


def _ahead(gunzip: _Gunzip) -> Generator[bytes, None, None]:
    """Unpack the next piece in another thread while the present one is read: unpacking leaves the interpreter alone.

    The pieces are few and large, since each costs that thread a turn of the interpreter.
    """
    ready: queue.Queue[bytes | BaseException] = queue.Queue(2)
    stopped = threading.Event()

    def work() -> None:
        try:
            for piece in gunzip.pieces(_AHEAD_BYTES):
                ready.put(piece)
                if stopped.is_set():
                    break
            ready.put(b"")
        except BaseException as fault:  # noqa: BLE001 - it is raised where the piece is read
            ready.put(fault)

    thread = threading.Thread(target=work, name="otel-train-gunzip", daemon=True)
    thread.start()
    piece: bytes | BaseException = b"x"
    try:
        while piece:
            piece = ready.get()
            if isinstance(piece, BaseException):
                raise piece
            if piece:
                yield piece
    finally:
        stopped.set()
        # The thread may wait for room.
        while thread.is_alive():
            with contextlib.suppress(queue.Empty):
                ready.get(timeout=0.01)
        thread.join()


def whole_parts(data: bytes) -> list[bytes]:
    """Return the requests that stand unharmed within a damaged line: where a line end was lost, two may be glued."""
    starts = [match.start() for match in _START.finditer(data)] + [len(data)]
    parts = []
    for start, end in pairwise(starts):
        piece = data[start:end]
        try:
            text = piece.decode()
        except UnicodeDecodeError as fault:
            text = piece[: fault.start].decode()
        try:
            _, length = json.JSONDecoder().raw_decode(text)
            part = text[:length].encode()
            parse_line(part)
        except (ValueError, RecursionError, DamagedLine):
            continue
        parts.append(part)
    return parts


class _Gunzip:
    """Unpacks a gzip as far as it is sound: up to the very byte where it breaks."""

    def __init__(self, file: IO[bytes], path: Path, damage: list[Damage]) -> None:
        self._file = file
        self._path = path
        self._damage = damage
        self._inflate = gunzipper()
        self._ready = b""
        self._given = 0
        self._over = False

    def pieces(self, size: int) -> Generator[bytes, None, None]:
        """Give the plain bytes, at most so many at once."""
        while not self._over:
            self._fill(size)
            piece, self._ready = self._ready, b""
            self._given += len(piece)
            if piece:
                yield piece

    def _fill(self, size: int) -> None:
        if self._inflate.eof:
            # Gzips may follow one another; anything else behind one is damage.
            rest = self._inflate.unused_data or self._file.read(_CHUNK_BYTES)
            if not rest:
                self._over = True
                return
            self._inflate = gunzipper()
        else:
            # Bounded output: a few bytes may unpack to gigabytes.
            rest = self._inflate.unconsumed_tail or self._file.read(max(64 << 10, size >> 3))
        if not rest:
            self._over = True
            self._say("the gzip is cut off")
            return
        before = self._inflate.copy()
        try:
            self._ready = self._inflate.decompress(rest, max(size, 1))
        except damage_errors() as fault:
            self._over = True
            self._ready = _byte_by_byte(before, rest)
            self._say(f"the gzip is damaged: {fault}")

    def _say(self, reason: str) -> None:
        self._damage.append(Damage(self._path, 0, self._given + len(self._ready), reason))


def _byte_by_byte(inflate: Any, data: bytes) -> bytes:
    found = bytearray()
    try:
        for index in range(len(data)):
            found += inflate.decompress(data[index : index + 1])
    except damage_errors():
        pass
    return bytes(found)
