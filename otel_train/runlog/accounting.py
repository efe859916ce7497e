"""Counts what was recorded and what was not, by cause, and puts it into one line."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

_ITEMS = {"metrics": "points", "logs": "log records", "traces": "spans"}


@dataclass(slots=True)
class Accounting:
    """Items by signal: what reached the run log, and what was dropped, by cause."""

    recorded: Counter[str] = field(default_factory=Counter)
    _dropped: dict[str, Counter[str]] = field(default_factory=dict)
    # Re-entrant: a signal handler may record something while its thread is here.
    _lock: Any = field(default_factory=threading.RLock)

    def drop(self, signal: str, cause: str, items: int) -> None:
        """Count what was not kept."""
        if items:
            with self._lock:
                self._dropped.setdefault(signal, Counter())[cause] += items

    def set_dropped(self, signal: str, cause: str, items: int) -> None:
        """Take over a count that is kept elsewhere; zero takes an earlier one back."""
        with self._lock:
            if items:
                self._dropped.setdefault(signal, Counter())[cause] = items
            elif cause in self._dropped.get(signal, ()):
                del self._dropped[signal][cause]

    def causes(self, signal: str) -> dict[str, int]:
        """Return how many items of a signal were dropped, by cause."""
        with self._lock:
            return dict(self._dropped.get(signal, {}))

    @property
    def dropped(self) -> dict[str, dict[str, int]]:
        """What was dropped, by signal and cause."""
        with self._lock:
            return {signal: dict(causes) for signal, causes in self._dropped.items() if causes}

    def to_dict(self) -> dict[str, Any]:
        """Return it for run.json."""
        return {"recorded": dict(self.recorded), "dropped": self.dropped}

    def line(self) -> str:
        """Return one readable line: `1,200 points, 31 log records, 14 spans; dropped: 3 points (refused)`."""
        text = ", ".join(_counted(self.recorded[signal], signal) for signal in _ITEMS)
        losses = [
            f"{_counted(count, signal)} ({cause})"
            for signal, causes in self.dropped.items()
            for cause, count in causes.items()
        ]
        return f"{text}; dropped: {', '.join(losses)}" if losses else f"{text}; nothing dropped"


def _counted(count: int, signal: str) -> str:
    name = _ITEMS.get(signal, signal)
    return f"{count:,} {name if count != 1 else name.removesuffix('s')}"
