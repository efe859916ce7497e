"""Gzips a closed segment beside itself, in small pieces so that the training thread gets its turn."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable
from pathlib import Path

from otel_train import clock

LEVEL = 5
CHUNK_BYTES = 256 << 10
_GZIP = 31  # zlib's window bits for a gzip frame


def compress_file(
    path: Path,
    *,
    may_go_on: Callable[[], bool] = lambda: True,
    pause: Callable[[], None] = lambda: clock.sleep(0),
) -> Path | None:
    """Replace a file by its gzip; None, and the plain file stays, where there was no time or no space.

    The gzip has its name only once it is whole and on disk, and the plain file goes last: whatever happens between
    leaves at least one whole copy, and a reader takes the plain one where it sees both.
    """
    target = path.with_name(path.name + ".gz")
    partial = path.with_name(path.name + ".gz.tmp")
    try:
        if not _compress(path, partial, may_go_on, pause):
            _remove(partial)
            return None
        os.replace(partial, target)
        os.unlink(path)
    except OSError:
        _remove(partial)
        return None
    return target


def _compress(source: Path, target: Path, may_go_on: Callable[[], bool], pause: Callable[[], None]) -> bool:
    deflate = zlib.compressobj(LEVEL, zlib.DEFLATED, _GZIP)
    with open(source, "rb", buffering=0) as reader, open(target, "wb", buffering=0) as writer:
        while chunk := reader.read(CHUNK_BYTES):
            if not may_go_on():
                return False
            _write_all(writer.fileno(), deflate.compress(chunk))
            pause()
        _write_all(writer.fileno(), deflate.flush())
        os.fsync(writer.fileno())
    return True


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _remove(path: Path) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass
