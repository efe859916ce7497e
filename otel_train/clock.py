"""The only module that reads clocks: timestamps from the wall clock, durations from a monotonic one."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Protocol

# For the hot path: bound once, a call costs 50 ns.
wall_ns = time.time_ns
mono_ns = time.perf_counter_ns
thread_cpu_ns = time.thread_time_ns
process_cpu_ns = time.process_time_ns
# A shared starting point with the kernel's process start times.
boottime_s = time.monotonic
sleep = time.sleep

NS_PER_S = 1_000_000_000
NS_PER_MS = 1_000_000


class Clock(Protocol):
    """What everything that is tested with a made-up time takes as an argument."""

    def wall_ns(self) -> int:
        """Nanoseconds since the Unix epoch; may jump when the clock is set."""
        ...

    def mono_ns(self) -> int:
        """Nanoseconds of a clock that never goes back."""
        ...


class SystemClock:
    """The machine's clocks."""

    wall_ns = staticmethod(time.time_ns)
    mono_ns = staticmethod(time.perf_counter_ns)


SYSTEM = SystemClock()


def iso(ns: int) -> str:
    """Return a wall time as ISO 8601 in UTC with microseconds: ``2026-01-31T12:00:00.000000Z``."""
    seconds, rest = divmod(ns, NS_PER_S)
    moment = datetime.fromtimestamp(seconds, UTC) + timedelta(microseconds=rest // 1000)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def from_iso(text: str) -> int:
    """Return the wall time in nanoseconds of an ISO 8601 text; ValueError where it is none."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    delta = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (delta.days * 86_400 + delta.seconds) * NS_PER_S + delta.microseconds * 1000


def compact(ns: int) -> str:
    """Return a wall time as ``YYYYMMDD-HHMMSS`` in UTC, the sortable start of a run id."""
    return datetime.fromtimestamp(ns // NS_PER_S, UTC).strftime("%Y%m%d-%H%M%S")


def local_time(ns: int) -> str:
    """Return a wall time as ``HH:MM:SS`` in the machine's time zone, for the console."""
    return datetime.fromtimestamp(ns // NS_PER_S).astimezone().strftime("%H:%M:%S")
