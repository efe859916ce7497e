"""Sums up the points of a run that wrote no end, each line of its log read once, in slices of time."""

from __future__ import annotations

import math
import os
from collections.abc import Container, Iterator, Mapping
from pathlib import Path
from typing import Any

from otel_train.clock import mono_ns
from otel_train.errors import RunFolderError
from otel_train.otlp.decode import DamagedLine, decode_line
from otel_train.otlp.decode import Series as Columns
from otel_train.record.names import PREFIX
from otel_train.runlog.follow import Place, new_lines
from otel_train.runlog.regular_file import open_regular
from otel_train.runlog.segments import list_segments
from otel_train.runlog.status import last_lines
from otel_train.semconv import AXIS, DEFAULT_AXIS, EPOCH, SPLIT, STEP
from otel_train.view.index_row import MOST_METRICS, NAN, Values, cut, goal_of, named, number_of
from otel_train.view.series import Series

# Of longer logs only the end is read: their extremes are not known until the run writes its summary.
WHOLE_BYTES = 64 << 20
WHOLE_RUNNING_BYTES = 8 << 20
# Several attempts are joined in memory, point by point.
WHOLE_ATTEMPTS_BYTES = 16 << 20
TAIL_BYTES = 256 << 10
# What a gzipped segment unpacks to, about.
GZIP_FACTOR = 10


class _UserMetrics:
    """Contains the names of all metrics of the user, and of those that say where their points stand."""

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and (name.startswith(PREFIX) or name in (STEP, EPOCH))


USER_METRICS = _UserMetrics()


class Points:
    """Last value and extremes of each metric of one rank in one attempt, as far as its log has been read."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.inode = _inode(folder)
        self.place = Place()
        # Whether every line from the first on has been, or will be read.
        self.whole = True
        # Whether what was there has been read once.
        self.is_complete = False
        # By the metric's key: last value, lowest and highest finite one.
        self.sums: dict[str, list[float | None]] = {}
        # By whether it is training's: time and value of the newest step and epoch.
        self.places: dict[str, dict[bool, tuple[int, float]]] = {STEP: {}, EPOCH: {}}
        self._labels: dict[tuple[Any, ...], str] = {}
        self._lines: Iterator[bytes] | None = None

    @classmethod
    def begun(cls, folder: Path, most_bytes: int) -> Points:
        """Return one that begins at the start of a log, or near the end of one that has more bytes."""
        points = cls(folder)
        segments = list_segments(folder, "metrics")
        if sum(_plain_bytes(path) for _, path in segments) > most_bytes:
            points.whole = False
            points.place = _near_end(*segments[-1])
        return points

    def goes_on(self, folder: Path) -> bool:
        """Return whether this is the folder whose points are summed up here."""
        return folder == self.folder and _inode(folder) == self.inode

    def advance(self, until_ns: int | None) -> bool:
        """Read on until a time of the monotonic clock; True where all that is there has been read."""
        resumed = self._lines is not None
        lines = self._lines or new_lines(self.folder, "metrics", self.place)
        self._lines = None
        try:
            for line in lines:
                self.take(line)
                if until_ns is not None and mono_ns() >= until_ns:
                    self._lines = lines
                    return False
        except OSError:
            # It may not be read, or the folder is just going away: what was read counts.
            pass
        if resumed:
            # Segments may have come since that began.
            return self.advance(until_ns)
        self.is_complete = True
        return True

    def values(self, goals: object) -> dict[str, Values]:
        """Return the numbers of each metric; `goals` is what run.json says of their directions."""
        if self.whole:
            return {key: Values(sums[0], sums[1], sums[2], goal_of(key, goals)) for key, sums in self.sums.items()}
        return {key: Values(sums[0], None, None, goal_of(key, goals)) for key, sums in self.sums.items()}

    def newest(self, name: str) -> float | None:
        """Return the newest step or epoch, of training where there is one."""
        found = self.places[name]
        place = found.get(True, found.get(False))
        return None if place is None else place[1]

    def state(self) -> dict[str, Any]:
        """Return what goes on from here in another process, as JSON holds it."""
        places = {name: [[trains, *place] for trains, place in found.items()] for name, found in self.places.items()}
        return {
            "inode": self.inode,
            "place": [self.place.number, self.place.offset],
            "whole": self.whole,
            "complete": self.is_complete,
            "sums": {key: [named(number) for number in sums] for key, sums in self.sums.items()},
            "places": places,
        }

    @classmethod
    def of_state(cls, folder: Path, state: Mapping[str, Any]) -> Points | None:
        """Return what a state has come to; None where the folder is not the one that it is of."""
        points = cls(folder)
        if points.inode != state["inode"]:
            return None
        points.place = Place(*state["place"])
        points.whole, points.is_complete = state["whole"], state["complete"]
        points.sums = {key: [number_of(number) for number in sums] for key, sums in state["sums"].items()}
        for name in (STEP, EPOCH):
            points.places[name] = {trains: (time_ns, value) for trains, time_ns, value in state["places"][name]}
        return points

    def take(self, line: bytes, names: Container[str] = USER_METRICS) -> None:
        """Sum up one line, or of it only some metrics."""
        try:
            request = decode_line(line, names)
        except DamagedLine:
            return
        for columns in request.series:
            if columns.name in self.places:
                self._take_place(columns)
            elif columns.kind == "gauge":
                self._take_values(columns)

    def _take_place(self, columns: Columns) -> None:
        attributes = dict(columns.attributes)
        value = columns.values[-1]
        if value is None or attributes.get(AXIS, DEFAULT_AXIS) != DEFAULT_AXIS:
            return
        found, trains = self.places[columns.name], attributes.get(SPLIT, "train") in ("train", "")
        if trains not in found or columns.times_ns[-1] >= found[trains][0]:
            found[trains] = (columns.times_ns[-1], float(value))

    def _take_values(self, columns: Columns) -> None:
        known = [float(value) for value in columns.values if value is not None]
        key = self._label(columns)
        if not known or not key:
            return
        sums = self.sums.setdefault(key, [None, None, None])
        sums[0] = known[-1] if known[-1] == known[-1] else NAN
        if not math.isfinite(sum(known)):
            known = [value for value in known if math.isfinite(value)]
        if known:
            low, high = min(known), max(known)
            sums[1] = low if sums[1] is None or low < sums[1] else sums[1]
            sums[2] = high if sums[2] is None or high > sums[2] else sums[2]

    def _label(self, columns: Columns) -> str:
        """Return a metric's key with its split, as run.json names it; "" for one too many."""
        head = columns.name, columns.attributes, columns.description
        label = self._labels.get(head)
        if label is None:
            series = Series(columns.name, columns.attributes, 1, 0, "", columns.description)
            label = cut(f"{series.split}/{series.key}" if series.split else series.key)
            if label not in self.sums and len(self.sums) >= MOST_METRICS:
                return ""
            self._labels[head] = label
        return label


def last_epoch(folder: Path) -> float | None:
    """Return the newest epoch in the last lines of a rank's metrics, of training where there is one."""
    points = Points(folder)
    segments = list_segments(folder, "metrics")
    if not segments or _plain_bytes(segments[-1][1]) > WHOLE_BYTES:
        return None
    for line in last_lines(segments[-1][1], b'"dl.epoch"'):
        points.take(line, (EPOCH,))
        if True in points.places[EPOCH]:
            break
    return points.newest(EPOCH)


def over_attempts(path: Path, now_ns: int) -> tuple[dict[str, Values], float | None, float | None] | None:
    """Return metrics, step and epoch of a run of several attempts, without the points that newer attempts replaced.

    None where its log is too long, or cannot be read.
    """
    if sum(_plain_bytes(Path(file)) for file in path.glob("attempt-*/rank-*/metrics.*.jsonl*")) > WHOLE_ATTEMPTS_BYTES:
        return None
    # It knows all about a run, and takes as long to import as the rest together.
    from otel_train.view.reading import read_run

    try:
        run = read_run(path, now_ns, names=USER_METRICS, records=False)
    except (RunFolderError, OSError):
        return None
    found = run.metrics()
    first = min((item.series.rank for item, _ in found), default=0)
    result: dict[str, Values] = {}
    for item, summary in found:
        if item.series.rank == first and summary.last is not None and len(result) < MOST_METRICS:
            low, high = (None if at is None else at.value for at in (summary.low, summary.high))
            key = cut(f"{summary.split}/{summary.key}" if summary.split else summary.key)
            last = summary.last.value if summary.last.value == summary.last.value else NAN
            result[key] = Values(last, low, high, summary.goal)
    return result, run.last_step(), run.last_epoch()


def _plain_bytes(path: Path) -> int:
    try:
        return os.stat(path).st_size * (GZIP_FACTOR if path.suffix == ".gz" else 1)
    except OSError:
        return 0


def _near_end(number: int, segment: Path) -> Place:
    """Return the place of the first whole line in the last bytes of a segment, of a gzipped one its start."""
    if segment.suffix == ".gz":
        return Place(number)
    try:
        with open_regular(segment) as file:
            start = max(0, file.seek(0, os.SEEK_END) - TAIL_BYTES)
            file.seek(start)
            return Place(number, start + file.read(TAIL_BYTES).find(b"\n") + 1 if start else 0)
    except OSError:
        return Place(number)


def _inode(folder: Path) -> int:
    try:
        return os.stat(folder).st_ino
    except OSError:
        return 0
