"""Unpacks gzips by zlib-ng where it is installed, in a third of the time, and by Python's own zlib elsewhere."""

from __future__ import annotations

import functools
import zlib
from pathlib import Path
from types import ModuleType
from typing import Any

_GZIP = 31  # zlib's window bits for a gzip frame


@functools.cache
def _library() -> ModuleType:
    try:
        from zlib_ng import zlib_ng
    except ImportError:
        return zlib
    return zlib_ng


def gunzipper() -> Any:
    """Return a fresh object that unpacks one gzip, with what a `zlib.decompressobj` has."""
    return _library().decompressobj(_GZIP)


def damage_errors() -> tuple[type[Exception], ...]:
    """Return what a gzip that is damaged raises."""
    return zlib.error, _library().error


def library_folder() -> str:
    """Return the folder from which a process that begins without any imports zlib-ng too; empty without it."""
    file = getattr(_library(), "__file__", None)
    return str(Path(file).parent.parent) if file and _library() is not zlib else ""
