"""Keeps the series of one rank: each with the point that is held back, and the milliseconds that were sent lately."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from otel_train.export.identity import SeriesKey

# Milliseconds are 13 digits: bytes of equal length compare as the numbers do, and need not be converted.
NEVER: Final = b""
# What stood in so many bytes of the log before the present line is known to be sent: about 100,000 points.
WINDOW_BYTES: Final = 8 << 20
# A point is let go when so many lines without its series and so much time in them have passed: nobody would wait an
# hour for a value that is logged once an hour.
QUIET_LINES: Final = 8
QUIET_MS: Final = 5_000
_FAR: Final = -(1 << 62)
_SPARE: Final = 4_096


class Frame(NamedTuple):
    """What stands before the points of a metric: resource and scope, and the metric's own description."""

    head: bytes
    opening: bytes


@dataclass(slots=True, eq=False)
class Series:
    """One series as Prometheus knows it. `point` is its last point in the order of the log, a whole JSON object."""

    frame: Frame
    point: bytes = b""
    ms: bytes = NEVER
    # Whether the point waits to be sent; else it is kept for the end mark alone.
    open: bool = False
    nonfinite: bool = False
    newest: bytes = NEVER
    marked: bool = False
    line: int = _FAR
    # The milliseconds of the last lines, by the place of the line, `known` in all; and, once there was a late point,
    # places by millisecond.
    recent: deque[tuple[int, list[bytes]]] | None = None
    seen: dict[bytes, int] | None = None
    known: int = 0

    def knows(self, ms: bytes, limit: int) -> bool:
        """Tell whether a point of this millisecond stood in the log since a place."""
        if self.seen is None:
            self.seen = {known: at for at, times in self.recent or () for known in times}
        return self.seen.get(ms, _FAR) >= limit


class Snapshot(NamedTuple):
    """The series as they stand at one position of the log; what they hold does not change any more."""

    rows: list[tuple[Frame, bytes, bytes, bool, bool]]


class SeriesTable:
    """All series of one rank folder, and where in the log we are: a place in bytes, a line's number, a newest time."""

    def __init__(self, window_bytes: int = WINDOW_BYTES) -> None:
        self.by_key: dict[SeriesKey, Series] = {}
        self.newest = NEVER
        self.at = 0
        self.limit = 0
        self.line = 0
        self._window_bytes = window_bytes
        self._recent: deque[tuple[int, Series]] = deque()
        # Series whose point waits, the longest untouched first.
        self._waiting: dict[Series, None] = {}

    def series(self, key: SeriesKey, frame: Frame) -> Series:
        """Return the series of a key, which begins with this frame."""
        found = self.by_key.get(key)
        if found is None:
            found = self.by_key[key] = Series(frame)
        return found

    def begin_line(self, at: int) -> None:
        """Go on to the line at a place of the log."""
        self.at = at
        self.line += 1
        self.limit = limit = at - self._window_bytes
        recent = self._recent
        while recent and recent[0][0] < limit:
            _, series = recent.popleft()
            assert series.recent is not None
            series.known -= len(series.recent.popleft()[1])
            if series.seen is not None and len(series.seen) > 4 * series.known + _SPARE:
                series.seen = {ms: place for ms, place in series.seen.items() if place >= limit}

    def register(self, series: Series, times: list[bytes]) -> None:
        """Note milliseconds of the present line. The list is kept, and may be made longer here."""
        if series.recent is None:
            series.recent = deque()
        if series.recent and series.recent[-1][0] == self.at:
            series.recent[-1][1].extend(times)
        else:
            series.recent.append((self.at, times))
            self._recent.append((self.at, series))
        series.known += len(times)
        if series.seen is not None:
            series.seen.update(dict.fromkeys(times, self.at))

    def hold(self, series: Series, frame: Frame, ms: bytes, point: bytes, nonfinite: bool) -> None:
        """Make a point of the present line the one that is held back."""
        series.frame, series.ms, series.point, series.nonfinite = frame, ms, point, nonfinite
        series.open, series.marked, series.line = True, False, self.line
        if ms > series.newest:
            series.newest = ms
            if ms > self.newest:
                self.newest = ms
        self._waiting.pop(series, None)
        self._waiting[series] = None

    def let_go(self) -> list[Series]:
        """Return the series whose point has waited long enough, at the end of a line; it does not wait any more.

        That depends on nothing but the lines, so it happens alike whenever and however often they are read.
        """
        if not self._waiting:
            return []
        until_line = self.line - QUIET_LINES
        found: list[Series] = []
        for series in self._waiting:
            if series.line > until_line:
                break
            if int(self.newest) - int(series.ms) >= QUIET_MS:
                found.append(series)
        for series in found:
            self.release(series)
        return found

    def release(self, series: Series) -> None:
        """Note that a series' point is sent."""
        series.open = False
        self._waiting.pop(series, None)

    @property
    def held(self) -> int:
        """How many points wait."""
        return len(self._waiting)

    # What outlives the process ---------------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """Return what must be known to go on from here."""
        return Snapshot(
            [(one.frame, one.point, one.newest, one.open, one.marked) for one in self.by_key.values() if one.point]
        )

    def restore(
        self, rows: Iterable[tuple[Frame, bytes, int, bool, bool]], read: Callable[[Frame, bytes], Held | None]
    ) -> None:
        """Take over what `content` gave, after the lines before the position were read for their milliseconds."""
        for series in self.by_key.values():
            series.open = False
        self._waiting.clear()
        in_order: dict[SeriesKey, Series] = {}
        for frame, point, newest, waits, marked in rows:
            held = read(frame, point)
            if held is None:
                continue
            series = in_order[held.key] = self.series(held.key, frame)
            line = series.line
            self.hold(series, frame, held.ms, point, held.nonfinite)
            series.line, series.newest = line, b"%013d" % newest
            series.marked = marked
            self.newest = max(self.newest, series.newest)
            if not waits:
                self.release(series)
        # Ends come in the order in which the series began; of those that wait the longest untouched is the first.
        self.by_key = in_order | {key: one for key, one in self.by_key.items() if key not in in_order}
        self._waiting = dict.fromkeys(sorted(self._waiting, key=lambda one: one.line))


class Held(NamedTuple):
    """What is told by a point and its frame."""

    key: SeriesKey
    ms: bytes
    nonfinite: bool


def content(snapshot: Snapshot) -> dict[str, Any]:
    """Return a snapshot as JSON has it; repeated texts stand there once."""
    heads: dict[bytes, int] = {}
    frames: dict[Frame, int] = {}
    rows: list[list[Any]] = []
    for frame, point, newest, waits, marked in snapshot.rows:
        heads.setdefault(frame.head, len(heads))
        place = frames.setdefault(frame, len(frames))
        rows.append([place, _text(point), int(newest), int(waits), int(marked)])
    return {
        "heads": list(map(_text, heads)),
        "metrics": [[heads[frame.head], _text(frame.opening)] for frame in frames],
        "points": rows,
    }


def rows_of(stored: Any) -> list[tuple[Frame, bytes, int, bool, bool]]:
    """Return the rows that `content` made; ValueError where it is not such."""
    try:
        heads = [head.encode() for head in stored["heads"]]
        frames = [Frame(heads[head], opening.encode()) for head, opening in stored["metrics"]]
        return [
            (frames[place], point.encode(), int(newest), bool(waits), bool(marked))
            for place, point, newest, waits, marked in stored["points"]
        ]
    except (TypeError, KeyError, IndexError, AttributeError) as fault:
        raise ValueError(f"held points: {fault}") from None


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")
