"""Dumps the stacks of all threads as text, and keeps the file that a dump without the interpreter's lock goes to."""

from __future__ import annotations

import faulthandler
import os
import tempfile
from pathlib import Path
from typing import Final

from otel_train.runlog.regular_file import open_regular

STACKS_FILE: Final = "stacks.txt"
# Stores limit a record to 64 KiB of attributes; the first threads are the newest, the main one comes last.
MOST_STACKS: Final = 30_000


def stacks_of_all_threads() -> str:
    """Return the stacks of all threads, of the last 100 frames each. Needs the interpreter's lock for milliseconds."""
    # In memory where the system can: the disk may be what everybody waits for.
    memory = getattr(os, "memfd_create", None)
    with tempfile.TemporaryFile() if memory is None else os.fdopen(memory("stacks"), "w+b") as file:
        faulthandler.dump_traceback(file, all_threads=True)
        file.seek(0)
        return bounded(file.read().decode("utf-8", "replace"))


def bounded(text: str) -> str:
    """Return at most `MOST_STACKS` characters: of more threads than fit those in the middle are left out."""
    if len(text) <= MOST_STACKS:
        return text
    threads = text.split("\n\n")
    # The main thread, which trains, stands last; what looks, as we do, stands first.
    kept_last: list[str] = []
    length = 0
    for stack in reversed(threads):
        if length + len(stack) + 2 > MOST_STACKS - 100:
            break
        kept_last.insert(0, stack)
        length += len(stack) + 2
    if not kept_last:
        return f"{text[: MOST_STACKS - 6]}\n[cut]"
    left = len(threads) - len(kept_last)
    return "\n\n".join([f"[{left} more threads left out]", *kept_last])


class StacksFile:
    """The file in a rank's folder that is written without the interpreter. Empty as long as all is well."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / STACKS_FILE
        # Opened now: whoever dumps then may only write.
        self.descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0), 0o644)

    def take(self) -> str:
        """Return what was dumped since the last call, and forget it."""
        try:
            if not os.fstat(self.descriptor).st_size:
                return ""
            text = os.pread(self.descriptor, 8 * MOST_STACKS, 0).decode("utf-8", "replace")
            os.ftruncate(self.descriptor, 0)
        except OSError:
            return ""
        return bounded(text)

    def close(self) -> None:
        """Close it, and remove it if it holds nothing."""
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor < 0:
            return
        try:
            if not os.fstat(descriptor).st_size:
                os.unlink(self.path)
        except OSError:
            pass
        finally:
            os.close(descriptor)


def read_stacks(folder: Path) -> str:
    """Return the stacks that a rank left whose interpreter stood still, "" where it did not."""
    try:
        with open_regular(folder / STACKS_FILE) as file:
            return bounded(file.read(8 * MOST_STACKS).decode("utf-8", "replace"))
    except OSError:
        return ""


def keep(folder: Path, name: str, data: bytes) -> str:
    """Write what belongs to a dump into a rank's folder and return its path, "" where there is nothing or no room."""
    if not data:
        return ""
    path = folder / name
    try:
        path.write_bytes(data)
    except OSError:
        return ""
    return str(path)
