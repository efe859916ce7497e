"""Lists the files of a run, and opens one for download if it lies within the run's folder."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import quote

from otel_train.clock import iso

# More would be a page that nobody reads; the folder itself can be opened.
MOST_FILES = 20_000
# Half written, or there only to be locked.
_OF_NO_INTEREST = (".tmp", ".lock")


@dataclass(slots=True)
class Listing:
    """The files of a folder, and how many more there are."""

    files: list[dict[str, Any]]
    left_out: int = 0


def list_files(folder: Path) -> Listing:
    """Return the regular files below a folder by path, without links that lead outside of it.

    Each is {"path", "bytes", "changed" (ISO 8601, UTC), "query" (what the download's address ends in)}. A path that is
    no UTF-8 is shown with the replacement character; its `query` has the bytes.
    """
    base = os.path.realpath(folder)
    found = Listing([])
    for place, folders, names in os.walk(base):
        # Linked folders are not walked, so that no circle is.
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            path = os.path.join(place, name)
            if name.startswith(".") or name.endswith(_OF_NO_INTEREST):
                continue
            try:
                about = os.stat(path)
            except OSError:
                continue
            if not stat.S_ISREG(about.st_mode) or not _within(path, base):
                continue
            if len(found.files) >= MOST_FILES:
                found.left_out += 1
                continue
            relative = os.path.relpath(path, base).replace(os.sep, "/")
            found.files.append(
                {
                    "path": os.fsencode(relative).decode("utf-8", "replace"),
                    "bytes": about.st_size,
                    "changed": iso(about.st_mtime_ns),
                    "query": "path=" + quote(os.fsencode(relative), safe=""),
                }
            )
    found.files.sort(key=lambda item: str(item["path"]))
    return found


def open_file(folder: Path, relative: str) -> tuple[BinaryIO, int] | None:
    """Return a file of a run, open, and its size; None where there is no such file within the folder."""
    if not relative or "\0" in relative or os.path.isabs(relative) or os.path.splitdrive(relative)[0]:
        return None
    parts = relative.replace("\\", "/").split("/") if os.sep == "\\" else relative.split("/")
    if any(part in ("", ".", "..") for part in parts):
        return None
    base = os.path.realpath(folder)
    path = os.path.join(base, *parts)
    try:
        if not _within(path, base) or not stat.S_ISREG(os.stat(path).st_mode):
            return None
        file = open(path, "rb")  # noqa: SIM115 - sent, and closed, by the caller
    except (OSError, ValueError):
        return None
    # A link that was put in its place since is not followed to another file.
    about = os.fstat(file.fileno())
    if not stat.S_ISREG(about.st_mode) or not _within(path, base):
        file.close()
        return None
    return file, about.st_size


def _within(path: str, base: str) -> bool:
    return os.path.realpath(path).startswith(base.rstrip(os.sep) + os.sep)
