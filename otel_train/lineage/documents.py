"""Writes and reads the small JSON documents of lineage: strict JSON, whole or not at all."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

MAX_DOCUMENT_BYTES = 64 << 20
_MAX_DEPTH = 32


def plain(value: Any, depth: int = 0) -> Any:
    """Return a value as strict JSON can hold it: non-finite numbers and foreign objects become texts."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else _name_of(float(value))
    if depth >= _MAX_DEPTH:
        return f"({type(value).__name__}, nested too deeply)"
    if isinstance(value, Mapping):
        return {str(key): plain(inner, depth + 1) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(inner, depth + 1) for inner in value]
    if isinstance(value, (set, frozenset)):
        return sorted((plain(inner, depth + 1) for inner in value), key=str)
    if isinstance(value, os.PathLike):
        return str(value)
    item = getattr(value, "item", None)
    if callable(item) and getattr(value, "size", getattr(value, "numel", None)) is not None:
        try:
            return plain(item(), depth + 1)
        except (RuntimeError, TypeError, ValueError):
            return f"({type(value).__name__})"
    return str(value)


def write_document(path: Path, document: Mapping[str, Any]) -> None:
    """Write a document beside its name and rename it into place; raises OSError and leaves no half of it."""
    text = json.dumps(plain(document), ensure_ascii=False, allow_nan=False, indent=1)
    temporary = path.with_name(f".{path.name}.{os.urandom(4).hex()}.tmp")
    try:
        with open(temporary, "xb") as handle:
            # A name that is not UTF-8 is kept by its surrogates' escapes.
            handle.write(text.encode("utf-8", "backslashreplace") + b"\n")
            handle.flush()
            os.fsync(handle.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def read_document(path: Path) -> dict[str, Any]:
    """Return a document; OSError where it cannot be read, ValueError with the reason where it is none."""
    size = os.stat(path).st_size
    if size > MAX_DOCUMENT_BYTES:
        raise ValueError(f"{size} bytes are too many for such a document")
    content = Path(path).read_bytes()
    try:
        document = json.loads(content.decode("utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as fault:
        raise ValueError(f"it is not whole JSON ({fault})") from fault
    if not isinstance(document, dict):
        raise ValueError(f"it holds a {type(document).__name__} where an object was expected")
    return document


def sync_folder(path: Path) -> None:
    """Make a rename within a folder last through a power cut, where the system can."""
    if sys.platform == "win32":
        return
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
    except OSError:
        return
    try:
        os.fsync(descriptor)
    except OSError:
        # Some network file systems cannot; the rename itself has happened.
        pass
    finally:
        os.close(descriptor)


def _name_of(number: float) -> str:
    if math.isnan(number):
        return "NaN"
    return "Infinity" if number > 0 else "-Infinity"
