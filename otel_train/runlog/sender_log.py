"""Keeps what a sender that nobody watches has to say, in a small file beside the run log."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from otel_train.clock import SYSTEM, Clock, iso

SENDER_LOG: Final = "sender.log"
MOST_BYTES: Final = 1 << 20


class SenderLog:
    """Appends lines with their time, up to a MiB; a disk that takes none costs the lines only."""

    def __init__(self, folder: Path, clock: Clock = SYSTEM) -> None:
        self.path = folder / SENDER_LOG
        self._clock = clock

    def write(self, text: str) -> None:
        """Append one line."""
        line = f"{iso(self._clock.wall_ns())} {os.getpid()} {text}\n".encode("utf-8", "backslashreplace")
        try:
            with open(self.path, "ab") as file:
                if file.tell() + len(line) <= MOST_BYTES:
                    file.write(line)
        except OSError:
            pass

    def handler(self) -> logging.Handler:
        """Return a handler for `logging` that appends each record's message."""
        return _Handler(self.write)


class _Handler(logging.Handler):
    def __init__(self, write: Callable[[str], None]) -> None:
        super().__init__()
        self._write = write

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._write(f"{record.levelname} {record.getMessage()}")
        except Exception:  # noqa: BLE001 - a record whose text cannot be made
            self.handleError(record)
