"""Says on the log of otel-train itself that an endpoint cannot be reached, rarely enough not to be a flood."""

from __future__ import annotations

import logging
import threading

from otel_train.clock import NS_PER_S, Clock

# This logger is never recorded: a notice that was sent would fail, and make the next notice.
_log = logging.getLogger("otel_train")
REPEAT_NS = 600 * NS_PER_S
QUIET_NS = 60 * NS_PER_S


class OutageNotices:
    """One a process: three signals that go to one endpoint make one notice. Thread-safe."""

    def __init__(self) -> None:
        self._said_ns: dict[str, int] = {}
        self._open: set[str] = set()
        self._lock = threading.Lock()

    def faulty(self, key: str, text: str, clock: Clock) -> None:
        """Say an outage when it begins and every ten minutes, each key at most once a minute."""
        now_ns = clock.mono_ns()
        with self._lock:
            quiet_ns = REPEAT_NS if key in self._open else QUIET_NS
            self._open.add(key)
            said_ns = self._said_ns.get(key)
            if said_ns is not None and now_ns - said_ns < quiet_ns:
                return
            self._said_ns[key] = now_ns
        _log.warning("cannot send: %s; the run log keeps everything, sending is tried again", text)

    def well(self, key: str) -> None:
        """Say that it is over, where an outage was said."""
        if key not in self._open:
            return
        with self._lock:
            self._open.discard(key)
        _log.info("sending to %s works again", key)


NOTICES = OutageNotices()
