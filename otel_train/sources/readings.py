"""What all samplers share: why a reading is missing, said once, and counters that never go down."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable
from typing import TypeVar

_logger = logging.getLogger("otel_train")
_Value = TypeVar("_Value")


class MissingReadings:
    """Remembers which readings a source cannot give and why; each is said once, at level INFO.

    A missing reading is left out. It is never zero: zero is a value that somebody would believe.
    """

    def __init__(self, subject: str) -> None:
        self._subject = subject
        self.reasons: dict[str, str] = {}
        self._said: set[str] = set()

    def note(self, reading: str, reason: str) -> None:
        """Keep the newest reason of a reading; log the first."""
        if reading not in self._said:
            self._said.add(reading)
            _logger.info("%s: no reading of %s: %s", self._subject, reading, reason)
        self.reasons[reading] = reason

    def guarded(self, reading: str, read: Callable[[], _Value | None]) -> _Value | None:
        """Return what `read` gives, or None with the reason noted; what it raises loses this reading alone."""
        try:
            value = read()
        except Exception as error:  # noqa: BLE001  platforms raise what they like; the other readings go on
            self.note(reading, f"{type(error).__name__}: {error}")
            return None
        if value is None:
            self.note(reading, "not given by this platform")
        else:
            self.reasons.pop(reading, None)
        return value


class RisingCounter:
    """Keeps cumulative counts rising by series where the system begins again at zero (a device came back)."""

    def __init__(self) -> None:
        self._last: dict[Hashable, float] = {}
        self._base: dict[Hashable, float] = {}

    def total(self, series: Hashable, value: float) -> float:
        """Return the count so far, where `value` is what the system says now."""
        last = self._last.get(series)
        self._last[series] = value
        if last is not None and value < last:
            self._base[series] = self._base.get(series, 0) + last
        return self._base.get(series, 0) + value
