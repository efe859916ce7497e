"""Joins what is to be sent into parts: whole Resource objects that stand between a request's prefix and suffix."""

from __future__ import annotations

from typing import Final

from otel_train.export.held import Frame, Series

METRIC_END: Final = b"]}}"
HEAD_END: Final = b"]}]}"
# Small lines of one resource become one part; a store that refuses something is asked again part by part.
PART_BYTES: Final = 64 << 10


class MetricParts:
    """Collects points. For one batch."""

    def __init__(self) -> None:
        self.items = 0
        self.merged = 0
        self.unreadable = 0
        self.added = 0
        self._parts: list[bytes] = []
        self._chunks: dict[bytes, list[bytes]] = {}
        self._sizes: dict[bytes, int] = {}

    def points(self, frame: Frame, chunks: list[bytes], items: int) -> None:
        """Take points of one metric: pieces that joined are data points with commas between."""
        if not items:
            return
        self.items += items
        group = self._chunks.get(frame.head)
        if group is None:
            group = self._chunks[frame.head] = [frame.head]
            self._sizes[frame.head] = 0
        else:
            group.append(b",")
        group.append(frame.opening)
        group.extend(chunks)
        group.append(METRIC_END)
        self._sizes[frame.head] += sum(map(len, chunks)) + len(frame.opening)
        if self._sizes[frame.head] >= PART_BYTES:
            self._close(frame.head)

    def point(self, series: Series) -> None:
        """Take the point that a series holds."""
        self.points(series.frame, [series.point], 1)

    def _close(self, head: bytes) -> None:
        del self._sizes[head]
        self._parts.append(b"".join([*self._chunks.pop(head), HEAD_END]))

    def take(self) -> tuple[bytes, ...]:
        """Return the parts, once."""
        for head in list(self._chunks):
            self._close(head)
        parts, self._parts = tuple(self._parts), []
        return parts
