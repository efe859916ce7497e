"""Merges points of one series within a millisecond on their way from memory to a store, which keeps one a millisecond.

The last one by its time wins, and one that is not finite wins over all. A series' newest millisecond is held for a
moment, since a further point of it may be on its way. What comes for one that has been sent already gives way.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from math import isfinite
from typing import Any, Final

from otel_train.clock import NS_PER_MS, NS_PER_S
from otel_train.export.metrics_to_sdk import SentPoint, end_mark
from otel_train.otlp.decode import MetricPoint
from otel_train.otlp.prometheus_names import label_name, prometheus_name

# The recorder writes at least once a second; values on their way from a device may take longer.
HOLD_NS: Final = 2 * NS_PER_S
# Threads that log one metric at once may cross by a little; values come late from a device.
_REMEMBERED: Final = 256


class _Series:
    """What is known of one series of a store."""

    __slots__ = ("held", "held_since_ns", "last", "sent_ms")

    def __init__(self) -> None:
        self.held: SentPoint | None = None
        self.held_since_ns = 0
        self.last: SentPoint | None = None
        self.sent_ms: deque[int] = deque(maxlen=_REMEMBERED)

    def give(self, sent: SentPoint) -> SentPoint:
        self.sent_ms.append(_ms(sent.point))
        if self.last is None or sent.point.time_ns >= self.last.point.time_ns:
            self.last = sent
        return sent


class Milliseconds:
    """For one thread. `merged` counts the points that gave way and that the account counts."""

    def __init__(self) -> None:
        self.merged = 0
        # Two names that a store spells alike are one series there.
        self._by_spelling: dict[Any, _Series] = {}
        self._by_name: dict[Any, _Series] = {}

    def take(self, points: Iterable[SentPoint], now_ns: int) -> Iterator[SentPoint]:
        """Take the points of one line at a monotonic time; give those that none can follow."""
        # Columns stand behind one another: what is read later may be of an earlier time.
        for sent in sorted(points, key=_time_ns):
            series = self._series(sent)
            ms = _ms(sent.point)
            held = series.held
            if held is not None and ms == _ms(held.point):
                series.held, gone = (held, sent) if _wins(held.point, sent.point) else (sent, held)
                self.merged += gone.counted
            elif ms in series.sent_ms:
                self.merged += sent.counted
            elif held is not None and ms < _ms(held.point):
                yield series.give(sent)
            else:
                series.held, series.held_since_ns = sent, now_ns
                if held is not None:
                    yield series.give(held)

    def release(self, since_ns: int | None = None) -> Iterator[SentPoint]:
        """Give what is held since before a monotonic time, or all."""
        for series in list(self._by_spelling.values()):
            if series.held is not None and (since_ns is None or series.held_since_ns <= since_ns):
                held, series.held = series.held, None
                yield series.give(held)

    def end_marks(self) -> Iterator[SentPoint]:
        """Give the point that ends each series that was given; the SDK's histograms by bounds have no form for it."""
        for series in self._by_spelling.values():
            last = series.last
            if last is not None and (last.point.histogram is None or last.point.histogram.scale is not None):
                yield end_mark(last)

    def _series(self, sent: SentPoint) -> _Series:
        point = sent.point
        name = (point.name, point.unit, point.kind, point.attributes)
        series = self._by_name.get(name)
        if series is None:
            labels = frozenset((label_name(key), str(value)) for key, value in point.attributes)
            spelling = (prometheus_name(point.name, point.unit, point.kind), labels)
            series = self._by_name[name] = self._by_spelling.setdefault(spelling, _Series())
        return series


def _ms(point: MetricPoint) -> int:
    return point.time_ns // NS_PER_MS


def _wins(held: MetricPoint, new: MetricPoint) -> bool:
    """Tell whether what is held stays: where it alone is not finite, else where it is the later one."""
    odd, new_odd = _is_odd(held), _is_odd(new)
    return odd if odd != new_odd else held.time_ns > new.time_ns


def _time_ns(sent: SentPoint) -> int:
    return sent.point.time_ns


def _is_odd(point: MetricPoint) -> bool:
    return point.value is not None and not isfinite(point.value)
