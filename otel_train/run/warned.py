"""Keeps the last warnings of a run, and which of its health conditions hold, for who shows the run while it goes on."""

from __future__ import annotations

from collections import deque
from typing import Any, Final

from otel_train.record.entries import LogEntry
from otel_train.semconv import CLEARED, METRIC, SEVERITIES

MOST_WARNINGS: Final = 20
MOST_CONDITIONS: Final = 100
_WARN: Final = SEVERITIES["WARN"]


class Warned:
    """Fed from any thread, one record at a time; asked from any other."""

    def __init__(self) -> None:
        self.last: deque[LogEntry] = deque(maxlen=MOST_WARNINGS)
        self._present: dict[tuple[Any, ...], LogEntry] = {}

    def see(self, entry: LogEntry) -> None:
        """Take note of one record."""
        if entry.event_name.startswith("health."):
            place = _place(entry)
            if entry.attributes.get(CLEARED):
                self._present.pop(place, None)
            elif entry.severity_number >= _WARN and len(self._present) < MOST_CONDITIONS:
                self._present[place] = entry
        if entry.severity_number >= _WARN:
            self.last.append(entry)

    def holding(self) -> list[LogEntry]:
        """Return the events of conditions that began and are not over, in that order."""
        return list(self._present.values())


def _place(entry: LogEntry) -> tuple[Any, ...]:
    """Return what a condition is known by: a later event of the same says that it is over."""
    if entry.event_name == "health.plateau":
        # By whichever series it is judged: there is one at a time.
        return (entry.event_name,)
    return entry.event_name, entry.attributes.get(METRIC), entry.attributes.get("hw.id")
