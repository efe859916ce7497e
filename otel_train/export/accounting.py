"""Counts what became of the items on their way to the first hop, by signal, outcome and reason."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from typing import Final

from otel_train.record.entries import Sample
from otel_train.semconv import OUTCOME, SIGNAL

SENT: Final = "sent"
MERGED: Final = "merged"
REFUSED: Final = "refused"
AGED: Final = "aged"
UNREADABLE: Final = "unreadable"
# Of the sent ones: end marks, which no line of the run log holds.
ADDED: Final = "added"
# Of the sent ones: from memory, since the disk had not taken them.
UNWRITTEN: Final = "unwritten"
# Counted in the sent ones already: the sum over the outcomes of the metric is that of all items.
_PARTS_OF_SENT: Final = (ADDED, UNWRITTEN)


class ExportAccounting:
    """What one sender did since it was started. Any thread may count."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._items: dict[str, Counter[str]] = {}
        self._reasons: dict[str, Counter[str]] = {}
        self._retries: Counter[str] = Counter()

    def note(self, signal: str, outcome: str, items: int) -> None:
        """Count items of a signal with one outcome."""
        if items:
            with self._lock:
                self._items.setdefault(signal, Counter())[outcome] += items

    def explain(self, signal: str, reasons: Mapping[str, int]) -> None:
        """Count why items were refused."""
        if reasons:
            with self._lock:
                self._reasons.setdefault(signal, Counter()).update(reasons)

    def retry(self, signal: str, requests: int) -> None:
        """Count requests that were sent again."""
        if requests:
            with self._lock:
                self._retries[signal] += requests

    def items(self, outcome: str, signal: str | None = None) -> int:
        """Return how many items of a signal, or of all, had this outcome."""
        with self._lock:
            return sum(counts[outcome] for name, counts in self._items.items() if signal in (None, name))

    @property
    def acknowledged(self) -> int:
        """How many items are over and done with, whatever became of them."""
        return self.items(SENT) + self.items(REFUSED) + self.items(AGED) + self.items(MERGED)

    def reasons(self, signal: str | None = None) -> dict[str, int]:
        """Return why items of a signal, or of all, were refused, with their number; the commonest first."""
        with self._lock:
            found: Counter[str] = Counter()
            for name, reasons in self._reasons.items():
                if signal in (None, name):
                    found.update(reasons)
        return dict(found.most_common())

    def samples(self, queue_bytes: int) -> list[Sample]:
        """Return it as own metrics: what is unchanged is there as well, since stores forget a silent series."""
        with self._lock:
            samples = [
                Sample("otel_train.export.items", count, ((SIGNAL, signal), (OUTCOME, outcome)))
                for signal, counts in self._items.items()
                for outcome, count in counts.items()
                if outcome not in _PARTS_OF_SENT
            ]
            samples += [
                Sample("otel_train.export.retries", count, ((SIGNAL, signal),))
                for signal, count in self._retries.items()
            ]
        samples.append(Sample("otel_train.export.queue", queue_bytes))
        return samples
