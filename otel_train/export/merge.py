"""Merges what stands within one millisecond of one series, and holds each series' last point back.

Stores keep milliseconds and refuse, or lose, a second value of one. So, in the order of the log: points of one series
and millisecond that follow one another become one, the last, or the last that is not finite; a millisecond that the
log comes back to later (two writers of one series, a clock that was set back) has been sent already, and what comes
then is not sent. Both are counted as merged. What is known of milliseconds reaches back `WINDOW_BYTES` in the log; a
point that is older than what is known is sent.

All this depends on the lines alone, not on how they are cut into batches, so sending again sends the same.

Lines of our own encoder are taken apart by bytes, a column at a time: parsing costs ten times as much. All others,
and single metrics that are not plain columns, are parsed.
"""

from __future__ import annotations

import json
import re
from operator import lt
from typing import Any, Final, NamedTuple

from otel_train.export.held import Frame, Held, Series, SeriesTable
from otel_train.export.identity import labels, metric_kind, spelled_name
from otel_train.export.merge_json import JsonMerge, is_nonfinite
from otel_train.export.parts import HEAD_END, METRIC_END, MetricParts
from otel_train.otlp.encode import PREFIXES, SUFFIX
from otel_train.semconv import SCOPE_NAME

_PREFIX: Final = PREFIXES["metrics"]
_METRICS: Final = b'"metrics":['
_LINE_END: Final = HEAD_END + SUFFIX.rstrip(b"\n")
_BETWEEN_METRICS: Final = METRIC_END + b',{"name":'
_FIRST_METRIC: Final = b'{"name":'
_GAUGE: Final = b'"gauge":{"dataPoints":['
_TIME: Final = b'"timeUnixNano":"'
# That the 13 are digits is asked once for all: here it would cost a third more.
_TIMES: Final = re.compile(rb'Nano":"(.{13}).{6}","as')
_DATA_POINTS: Final = b'"dataPoints"'
# Only a double that is not finite is written as a text.
_TEXT_VALUE: Final = b'"asDouble":"'


class _Column(NamedTuple):
    """Points of one series as they stand together in a line, and their milliseconds in that order.

    Each point begins with `head`. They are cut out of the line as late as can be: copying costs as much as reading.
    """

    frame: Frame
    series: Series
    head: bytes
    line: bytes
    start: int
    stop: int
    times: list[bytes]

    def texts(self) -> list[bytes]:
        """Return what follows the head of each point, without the closing brace."""
        return self.line[self.start + len(self.head) : self.stop - 1].split(b"}," + self.head)


class _KnownMetric:
    """A metric of our own encoder that was seen before, and its columns by what their points begin with."""

    __slots__ = ("columns", "document", "frame")

    def __init__(self, frame: Frame, document: dict[str, Any]) -> None:
        self.frame = frame
        self.document = document
        self.columns: dict[bytes, Series] = {}


class _KnownHead:
    """A resource with our scope that was seen before, and its metrics by their description."""

    __slots__ = ("head", "labels", "metrics")

    def __init__(self, head: bytes, resource_labels: tuple[tuple[str, str], ...]) -> None:
        self.head = head
        self.labels = resource_labels
        self.metrics: dict[bytes, _KnownMetric] = {}


_Piece = _Column | dict[str, Any]


class MetricMerge:
    """Takes the lines of one rank's metrics in the order of the log; what is to be sent goes to `parts`."""

    def __init__(self, table: SeriesTable) -> None:
        self.table = table
        self._json = JsonMerge(table)
        self._heads: dict[bytes, _KnownHead] = {}

    def line(self, line: bytes, at: int, parts: MetricParts) -> None:
        """Take one line, given without its line end, that starts at a place in the log."""
        self.table.begin_line(at)
        known, pieces = self._taken_apart(line)
        if known is None or pieces is None:
            self._json.line(line, parts)
        else:
            for piece in pieces:
                if isinstance(piece, _Column):
                    self._column(piece, parts)
                else:
                    self._json.metric(known.head, known.labels, piece, parts)
        for series in self.table.let_go():
            parts.point(series)

    def add(self, series: Series, frame: Frame, held: Held, point: bytes, parts: MetricParts) -> None:
        """Take a point that no line holds."""
        due = self._json.take(series, frame, held.ms, point, held.nonfinite, parts)
        if due:
            parts.points(frame, [due], 1)
        parts.added += 1

    # Taking lines apart ----------------------------------------------------------------------------------------------

    def _taken_apart(self, line: bytes) -> tuple[_KnownHead | None, list[_Piece] | None]:
        """Return the columns of a line of our encoder, and parsed what of its metrics is none; else nothing."""
        start = line.find(_METRICS)
        if start < 0 or not line.startswith(_PREFIX) or not line.endswith(_LINE_END):
            return None, None
        body_start = start + len(_METRICS)
        head = line[len(_PREFIX) : body_start]
        known = self._heads.get(head) or self._new_head(head)
        body_end = len(line) - len(_LINE_END) - len(METRIC_END)
        if known is None or not line.startswith(_FIRST_METRIC, body_start) or not line.startswith(METRIC_END, body_end):
            return None, None
        pieces: list[_Piece] = []
        start = body_start + len(_FIRST_METRIC)
        while True:
            stop = line.find(_BETWEEN_METRICS, start, body_end)
            if not self._add_pieces(known, line, start, body_end if stop < 0 else stop, pieces):
                return None, None
            if stop < 0:
                return known, pieces
            start = stop + len(_BETWEEN_METRICS)

    def _add_pieces(self, known: _KnownHead, line: bytes, start: int, stop: int, pieces: list[_Piece]) -> bool:
        """Take one metric apart that stands between ``{"name":`` and its end; False where it is not whole."""
        place = line.find(_GAUGE, start, stop)
        if place >= 0:
            points_start = place + len(_GAUGE)
            opening = line[start:points_start]
            if opening.count(_DATA_POINTS) > 1:
                # Metrics of another kind stand before the gauge.
                return False
            metric = known.metrics.get(opening) or _new_metric(known, opening)
            if metric is not None and (columns := self._columns(known, metric, line, points_start, stop)):
                pieces.extend(columns)
                return True
        try:
            document = json.loads(_FIRST_METRIC + line[start:stop] + METRIC_END)
        except (ValueError, RecursionError):
            return False
        pieces.append(document)
        return True

    def _columns(
        self, known: _KnownHead, metric: _KnownMetric, line: bytes, start: int, end: int
    ) -> list[_Column] | None:
        """Return the columns of a gauge's points; None where they are not such as our encoder writes."""
        columns: list[_Column] = []
        while True:
            time_at = line.find(_TIME, start, end)
            if time_at < 0:
                return None
            head = line[start : time_at + len(_TIME)]
            series = metric.columns.get(head) or self._new_column(known, metric, head)
            if series is None:
                return None
            between = b"}," + head
            # A number is followed by the first brace behind it. Our encoder writes a column as a whole.
            last = line.rfind(between, start, end)
            stop = line.find(b"}", (start if last < 0 else last + 2) + len(head), end) + 1
            times = _TIMES.findall(line, start, stop)
            if len(times) != line.count(between, start, stop) + 1 or not b"".join(times).isdigit():
                return None
            columns.append(_Column(metric.frame, series, head, line, start, stop, times))
            if stop == end:
                return columns
            if line[stop : stop + 1] != b",":
                return None
            start = stop + 1

    # What is seen for the first time; what cannot be taken apart is not remembered, since it may differ each time.

    def _new_head(self, head: bytes) -> _KnownHead | None:
        try:
            block = json.loads(head + HEAD_END)
            (scope,) = block["scopeMetrics"]
            ours = scope["scope"]["name"] == SCOPE_NAME and not scope["metrics"]
            attributes = block["resource"].get("attributes")
        except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
            return None
        if not ours:
            return None
        known = self._heads[head] = _KnownHead(head, labels(attributes))
        return known

    def _new_column(self, known: _KnownHead, metric: _KnownMetric, head: bytes) -> Series | None:
        try:
            point = json.loads(head + b'0"}')
        except (ValueError, RecursionError):
            return None
        if not point.keys() <= {"attributes", "timeUnixNano"}:
            return None
        key = (spelled_name(metric.document, "gauge"), labels(point.get("attributes")), known.labels)
        series = metric.columns[head] = self.table.series(key, metric.frame)
        return series

    # Merging ---------------------------------------------------------------------------------------------------------

    def _column(self, column: _Column, parts: MetricParts) -> None:
        series, times = column.series, column.times
        newest, first = series.newest, times[0]
        if all(map(lt, times, times[1:])) and (first > newest or self._all_new(series, times)):
            self._clean(column, parts)
        elif (
            (first > newest or (first == newest == series.ms and series.open and not series.nonfinite))
            and column.line.find(_TEXT_VALUE, column.start, column.stop) < 0
            and times == sorted(times)
        ):
            self._crowded(column, parts)
        else:
            self._one_by_one(column, parts)

    def _all_new(self, series: Series, times: list[bytes]) -> bool:
        """Tell whether none of these milliseconds has been sent or is held: a column that came late as a whole."""
        series.knows(times[0], self.table.limit)
        if series.ms in times or (series.marked and series.newest in times):
            return False
        return series.seen is not None and series.seen.keys().isdisjoint(times)

    def _clean(self, column: _Column, parts: MetricParts) -> None:
        """Take a column of one point a millisecond, all new: the last point is taken out, the held one put in."""
        frame, series, head, line, start, stop, times = column
        chunks = self._held(series, frame, parts)
        items = len(chunks) + len(times) - 1
        last = start
        if len(times) > 1:
            last = line.rfind(b"}," + head, start, stop) + 2
            if chunks:
                chunks.append(b",")
            chunks.append(line[start : last - 1])
        point = line[last:stop]
        parts.points(frame, chunks, items)
        self.table.hold(series, frame, times[-1], point, _nonfinite(point))
        self.table.register(series, times)

    def _crowded(self, column: _Column, parts: MetricParts) -> None:
        """Merge a column of finite points in the order of time: the last of each millisecond."""
        frame, series, head, times = column.frame, column.series, column.head, column.times
        pieces = dict(zip(times, column.texts(), strict=True))
        parts.merged += len(times) - len(pieces)
        chunks: list[bytes] = []
        if series.ms == times[0]:
            parts.merged += 1
        else:
            chunks = self._held(series, frame, parts)
        last_ms, last = pieces.popitem()
        items = len(chunks) + len(pieces)
        if pieces:
            if chunks:
                chunks.append(b",")
            chunks += [head, (b"}," + head).join(pieces.values()), b"}"]
        parts.points(frame, chunks, items)
        self.table.hold(series, frame, last_ms, head + last + b"}", False)
        self.table.register(series, times)

    def _one_by_one(self, column: _Column, parts: MetricParts) -> None:
        frame = column.frame
        sent: list[bytes] = []
        for ms, text in zip(column.times, column.texts(), strict=True):
            point = column.head + text + b"}"
            due = self._json.take(column.series, frame, ms, point, _nonfinite(point), parts)
            if due:
                sent.append(due)
        parts.points(frame, [b",".join(sent)], len(sent))

    def _held(self, series: Series, frame: Frame, parts: MetricParts) -> list[bytes]:
        """Return the held point as the first of a metric's; of another metric with the same spelling it goes alone."""
        if not series.open:
            return []
        if series.frame != frame:
            parts.point(series)
            return []
        return [series.point]


def _nonfinite(point: bytes) -> bool:
    return _TEXT_VALUE in point and is_nonfinite(json.loads(point))


def _new_metric(known: _KnownHead, opening: bytes) -> _KnownMetric | None:
    try:
        document = json.loads(_FIRST_METRIC + opening + METRIC_END)
    except (ValueError, RecursionError):
        return None
    if metric_kind(document) != "gauge" or document["gauge"]["dataPoints"]:
        return None
    metric = known.metrics[opening] = _KnownMetric(Frame(known.head, _FIRST_METRIC + opening), document)
    return metric
