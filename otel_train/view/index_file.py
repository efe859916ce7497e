"""Keeps what an index knows in one file beside the runs, replaced as a whole; a line that is not sound is passed over.

The first line names the format. Each further line is ``{"sum":"<crc32>","run":{…}}``, so that a file that was cut,
damaged, written by another version or by something else costs no more than looking at the runs again.
"""

from __future__ import annotations

import json
import os
import stat
import threading
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

INDEX_FILE: Final = ".otel-train-index.jsonl"
_VERSION: Final = 1
_HEAD: Final = b'{"otel-train index":%d}\n' % _VERSION
_BEFORE, _BETWEEN, _AFTER = b'{"sum":"', b'","run":', b"}\n"
_PAYLOAD: Final = len(_BEFORE) + 8 + len(_BETWEEN)
_PARTIAL: Final = INDEX_FILE + "."
MOST_BYTES: Final = 1 << 30


def read_index(root: Path) -> Iterator[dict[str, Any]]:
    """Give what the file of a root says of each run; nothing where there is no such file, or none that can be read."""
    path = root / INDEX_FILE
    try:
        found = os.stat(path)
        if not stat.S_ISREG(found.st_mode) or found.st_size > MOST_BYTES:
            return
        with open(path, "rb") as file:
            if file.readline(len(_HEAD)) != _HEAD:
                return
            lines = file.read().split(b"\n")
    except OSError:
        return
    for line in lines:
        payload = line[_PAYLOAD:-1]
        if line != _line(payload)[:-1]:
            continue
        try:
            record = json.loads(payload)
        except (ValueError, RecursionError):
            continue
        if isinstance(record, dict):
            yield record


def write_index(root: Path, records: Iterable[dict[str, Any]]) -> None:
    """Replace the file of a root; OSError where that cannot be done."""
    partial = root / f"{_PARTIAL}{os.getpid()}.{threading.get_ident()}.tmp"
    # Whatever has that name, a link that somebody laid there for one, is not written through.
    remove_partial(partial)
    try:
        with open(partial, "xb") as file:
            file.write(_HEAD)
            file.writelines(_line(json.dumps(record, separators=(",", ":")).encode()) for record in records)
        os.replace(partial, root / INDEX_FILE)
    except OSError:
        remove_partial(partial)
        raise


def is_partial(name: str) -> bool:
    """Return whether a file of the root is what a process left that was killed while it wrote the index."""
    return name.startswith(_PARTIAL) and name.endswith(".tmp")


def remove_partial(path: Path, before_ns: int | None = None) -> None:
    """Remove such a file, if it was last changed before a time, where that can be done."""
    try:
        if before_ns is None or os.stat(path).st_mtime_ns < before_ns:
            os.unlink(path)
    except OSError:
        pass


def _line(payload: bytes) -> bytes:
    return b"".join((_BEFORE, b"%08x" % zlib.crc32(payload), _BETWEEN, payload, _AFTER))
