"""Hands the trace on to child processes: `TRACEPARENT` in the environment while a run is open, put back at its end."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, MutableMapping
from typing import Final

from opentelemetry.trace import SpanContext

PARENT: Final = "TRACEPARENT"


def traceparent(context: SpanContext) -> str:
    """Return a span's place as the W3C's header spells it: sampled, since what a run records is always kept."""
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-01"


class TraceEnvironment:
    """The variable is the process's: of several open runs and stages the one that was opened last stands there."""

    def __init__(self, environ: MutableMapping[str, str]) -> None:
        self._environ = environ
        self._lock = threading.Lock()
        # Run or stage, what it belongs to, and its place.
        self._open: list[tuple[object, object, str]] = []
        # What stood there before us, None for nothing; and what we put there last.
        self._former: str | None = None
        self._put: str | None = None

    def inherited(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Return an environment as it was given to this process: a run within it is no child of one beside it."""
        found = dict(environ)
        with self._lock:
            if self._put is not None and found.get(PARENT) == self._put:
                found.pop(PARENT)
                if self._former is not None:
                    found[PARENT] = self._former
        return found

    def enter(self, owner: object, context: SpanContext, within: object = None) -> None:
        """Have child processes that start now belong under a span, until its owner or what is around it leaves."""
        with self._lock:
            present = self._environ.get(PARENT)
            if self._put is None or present != self._put:
                # The first, or the user has set it anew meanwhile: that is what comes back.
                self._former = present
            self._open.append((owner, within, traceparent(context)))
            self._set(self._open[-1][-1])

    def leave(self, owner: object) -> None:
        """Take a span back, and those within it; what the user has put there meanwhile stays."""
        with self._lock:
            self._open = [entry for entry in self._open if owner is not entry[0] and owner is not entry[1]]
            if self._put is None or self._environ.get(PARENT) != self._put:
                return
            self._set(self._open[-1][-1] if self._open else None)

    def forget(self) -> None:
        """In a forked child: it inherits what stands there, as any other child process does."""
        self._lock = threading.Lock()
        self._open, self._put, self._former = [], None, None

    def _set(self, value: str | None) -> None:
        self._put = value
        if value is not None:
            self._environ[PARENT] = value
        elif self._former is not None:
            self._environ[PARENT] = self._former
        else:
            self._environ.pop(PARENT, None)


TRACE_ENVIRONMENT: Final = TraceEnvironment(os.environ)
