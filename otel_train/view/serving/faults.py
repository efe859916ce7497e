"""Keeps a fault that nobody expected: one traceback in the server's own log, and a short number for who met it."""

from __future__ import annotations

import hashlib
import sys
import traceback
from typing import TextIO

from otel_train.view.text import plain

MOST_KEPT = 100


class Faults:
    """What has been told already; the same fault again is the same number, and is not written twice."""

    def __init__(self, log: TextIO | None = None) -> None:
        self._log = log
        self._told: set[str] = set()

    def note(self, fault: BaseException, where: str) -> str:
        """Write the traceback where it is new, and return its number."""
        frames = [f"{frame.filename}:{frame.lineno}" for frame in traceback.extract_tb(fault.__traceback__)]
        told = "\n".join([type(fault).__name__, *frames])
        number = hashlib.blake2s(told.encode("utf-8", "replace"), digest_size=4).hexdigest()
        if number not in self._told and len(self._told) < MOST_KEPT:
            self._told.add(number)
            text = "".join(traceback.format_exception(fault)).rstrip()
            self.say(f"fault {number} at {where}\n{text}")
        return number

    def say(self, text: str) -> None:
        """Write a line to the log; where there is none, nothing."""
        log = self._log if self._log is not None else sys.stderr
        try:
            if log is not None:
                log.write("otel-train ui: " + "\n".join(plain(line) for line in text.split("\n")) + "\n")
                log.flush()
        except (OSError, ValueError):
            # The terminal that it was started from has gone.
            pass
