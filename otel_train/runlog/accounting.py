"""Counts what was recorded and what was not, by cause, and puts it into one line."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

_ITEMS = {"metrics": "points", "logs": "log records", "traces": "spans"}


@dataclass(slots=True)
class Accounting:
    """Items by signal: what reached the run log, and what was dropped, by cause."""

    recorded: Counter[str] = field(default_factory=Counter)
    dropped: dict[str, Counter[str]] = field(default_factory=dict)

    def drop(self, signal: str, cause: str, items: int) -> None:
        """Count what was not kept."""
        if items:
            self.dropped.setdefault(signal, Counter())[cause] += items

    def to_dict(self) -> dict[str, Any]:
        """Return it for run.json."""
        return {
            "recorded": dict(self.recorded),
            "dropped": {signal: dict(causes) for signal, causes in self.dropped.items() if causes},
        }

    def line(self) -> str:
        """Return one readable line: `1,200 points, 31 log records, 14 spans; dropped: 3 points (refused)`."""
        text = ", ".join(
            f"{self.recorded[signal]:,} {name if self.recorded[signal] != 1 else name[:-1]}"
            for signal, name in _ITEMS.items()
        )
        losses = [
            f"{count:,} {_ITEMS.get(signal, signal)} ({cause})"
            for signal, causes in self.dropped.items()
            for cause, count in causes.items()
        ]
        return f"{text}; dropped: {', '.join(losses)}" if losses else f"{text}; nothing dropped"
