"""Reads the lines of one segment, plain or gzipped, and says which of them are cut or damaged."""

from __future__ import annotations

import io
import json
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import IO

from otel_train.otlp.decode import DamagedLine, parse_line

# Longer than any line that is written; a file without line ends must not fill the memory.
MAX_LINE_BYTES = 64 << 20
_CHUNK_BYTES = 256 << 10
_GZIP = 31
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


def read_lines(path: Path, damage: list[Damage], *, max_line_bytes: int = MAX_LINE_BYTES) -> Iterator[RawLine]:
    """Give every line that is not empty. What cannot be read of a gzip, or of the file at all, goes to `damage`."""
    number, offset = 0, 0
    try:
        with open(path, "rb") as file:
            source: IO[bytes] = (
                io.BufferedReader(_Gunzip(file, path, damage), _CHUNK_BYTES) if path.suffix == ".gz" else file
            )
            while data := source.readline(max_line_bytes):
                number += 1
                start = offset
                offset += len(data)
                ended = data.endswith(b"\n")
                too_long = False
                while not ended and len(data) >= max_line_bytes and (more := source.readline(max_line_bytes)):
                    too_long = True
                    offset += len(more)
                    ended = more.endswith(b"\n")
                data = data.rstrip(b"\r\n")
                if data:
                    yield RawLine(number, start, data, ended, too_long)
    except FileNotFoundError:
        raise
    except OSError as fault:
        damage.append(Damage(path, number + 1, offset, f"cannot be read: {fault.strerror or fault}"))


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


class _Gunzip(io.RawIOBase):
    """Unpacks a gzip as far as it is sound: up to the very byte where it breaks."""

    def __init__(self, file: IO[bytes], path: Path, damage: list[Damage]) -> None:
        self._file = file
        self._path = path
        self._damage = damage
        self._inflate = zlib.decompressobj(_GZIP)
        self._ready = b""
        self._given = 0
        self._over = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        while not self._ready and not self._over:
            self._fill(len(buffer))
        count = min(len(buffer), len(self._ready))
        buffer[:count] = self._ready[:count]
        self._ready = self._ready[count:]
        self._given += count
        return count

    def _fill(self, size: int) -> None:
        if self._inflate.eof:
            # Gzips may follow one another; anything else behind one is damage.
            rest = self._inflate.unused_data or self._file.read(_CHUNK_BYTES)
            if not rest:
                self._over = True
                return
            self._inflate = zlib.decompressobj(_GZIP)
        else:
            # Bounded output: a few bytes may unpack to gigabytes.
            rest = self._inflate.unconsumed_tail or self._file.read(64 << 10)
        if not rest:
            self._over = True
            self._say("the gzip is cut off")
            return
        before = self._inflate.copy()
        try:
            self._ready = self._inflate.decompress(rest, max(size, 1))
        except zlib.error as fault:
            self._over = True
            self._ready = _byte_by_byte(before, rest)
            self._say(f"the gzip is damaged: {fault}")

    def _say(self, reason: str) -> None:
        self._damage.append(Damage(self._path, 0, self._given + len(self._ready), reason))


def _byte_by_byte(inflate: zlib._Decompress, data: bytes) -> bytes:
    found = bytearray()
    try:
        for index in range(len(data)):
            found += inflate.decompress(data[index : index + 1])
    except zlib.error:
        pass
    return bytes(found)
