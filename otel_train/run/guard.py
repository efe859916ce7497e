"""Swallows faults of telemetry in training, counts them and says each kind at most once a minute."""

from __future__ import annotations

import logging
import os
import threading
from types import TracebackType

from otel_train.clock import NS_PER_S, mono_ns

_log = logging.getLogger("otel_train")
QUIET_NS = 60 * NS_PER_S


class Guard:
    """One a run. Under pytest a fault is raised, so that tests see it; `raises` says otherwise."""

    def __init__(self, *, raises: bool | None = None) -> None:
        self.faults = 0
        self._raises = raises
        self._said: dict[str, int] = {}
        self._lock = threading.Lock()

    @property
    def raises(self) -> bool:
        """Whether faults come through."""
        return "PYTEST_CURRENT_TEST" in os.environ if self._raises is None else self._raises

    def __call__(self, place: str) -> _Guarded:
        """Return a context manager for one call of the user's."""
        return _Guarded(self, place)

    def take(self, place: str, fault: BaseException) -> None:
        """Count a fault, and say it if this place was quiet for a minute."""
        now_ns = mono_ns()
        with self._lock:
            self.faults += 1
            quiet = now_ns - self._said.get(place, -QUIET_NS) < QUIET_NS
            if not quiet:
                self._said[place] = now_ns
        if not quiet:
            _log.warning(
                "%s: %s: %s; training goes on without this record", place, type(fault).__name__, fault, exc_info=fault
            )


class _Guarded:
    __slots__ = ("_guard", "_place")

    def __init__(self, guard: Guard, place: str) -> None:
        self._guard = guard
        self._place = place

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        if not isinstance(fault, Exception) or self._guard.raises:
            return False
        self._guard.take(self._place, fault)
        return True


class Warner:
    """Says each text once; the recurring warning of a loop would hide everything else."""

    def __init__(self) -> None:
        self.said: set[str] = set()

    def __call__(self, text: str) -> None:
        """Say a text, unless it was said before."""
        if text in self.said or len(self.said) > 1000:
            return
        self.said.add(text)
        _log.warning("%s", text)
