"""Knows what a thread is doing about log records at this moment, so that one record reaches the run once.

Nothing of ours stays on the stack while the handlers, sinks and processors of the user run: recipes that forward one
library's records to another count stack frames. So what is under way is read off the stack itself, when it matters.
"""

from __future__ import annotations

import sys
import threading
from dataclasses import dataclass
from typing import Any

from otel_train.record.entries import AttributeValue

# How far up to look. A console handler of the rich package writes from ten frames below the handler.
MAX_FRAMES = 16


@dataclass(slots=True)
class PendingEvent:
    """An event of structlog on its way to a logger of `logging`, which decides whether it is recorded."""

    logger_name: str
    levelno: int
    time_ns: int
    event: dict[str, Any]
    exception: tuple[Any, Any, Any] | None
    # Where it was said: a logger made before structlog was set up names structlog's own lines.
    place: dict[str, AttributeValue]


class Emission(threading.local):
    """State of one thread."""

    # Our own code is at work: what it logs or prints is not recorded.
    busy = False
    pending: PendingEvent | None = None


EMISSION = Emission()


class Recording:
    """Which libraries are recorded by their own source at present; the others' forwarded records are left to it."""

    logging = False
    loguru = False
    structlog = False


RECORDING = Recording()


# The modules whose frames are there while a record is handed on. Not whole packages: a function under loguru's
# decorator `catch` has a frame of loguru above it all the time.
LOGGING_AT_WORK = frozenset({"logging", "logging.handlers"})
LOGURU_AT_WORK = frozenset({"loguru._handler"})
STRUCTLOG_AT_WORK = frozenset({"structlog._base", "structlog._output"})
ANY_LIBRARY_AT_WORK = LOGGING_AT_WORK | LOGURU_AT_WORK | STRUCTLOG_AT_WORK


def called_by(modules: frozenset[str], skip: int) -> bool:
    """Tell whether one of the near callers, after `skip` frames, is in one of these modules."""
    try:
        frame = sys._getframe(skip + 1)
    except ValueError:
        return False
    for _ in range(MAX_FRAMES):
        if frame.f_globals.get("__name__") in modules:
            return True
        if frame.f_back is None:
            return False
        frame = frame.f_back
    return False


def is_own_diagnostic(logger_name: str) -> bool:
    """Tell whether otel-train itself is speaking: that never goes into the log it speaks about."""
    return logger_name == "otel_train" or logger_name.startswith("otel_train.")
