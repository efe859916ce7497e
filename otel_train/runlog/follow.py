"""Gives a run's lines as they are written, across rotation, gzip and new attempts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from otel_train.runlog.folder import RunFolder
from otel_train.runlog.lines import read_lines
from otel_train.runlog.regular_file import open_regular
from otel_train.runlog.segments import list_segments

_CHUNK_BYTES = 1 << 20


@dataclass(slots=True)
class Place:
    """How far one signal of a rank's folder has been read: the segment, and the offset in its plain bytes."""

    number: int = 0
    offset: int = 0


def follow_lines(
    folder: RunFolder,
    signal: str,
    poll: Callable[[], bool],
    attempt: int | None = None,
    rank: int | None = None,
    *,
    from_end: bool = False,
) -> Iterator[bytes]:
    """Give whole lines with their line ends; call `poll` when nothing is new, and end when it returns False."""
    places: dict[Path, Place] = {}
    if from_end:
        for _, _, path in folder.rank_folders(attempt, rank):
            places[path] = _end_of(path, signal)
    while True:
        anything = False
        for _, _, path in folder.rank_folders(attempt, rank):
            place = places.setdefault(path, Place())
            for line in new_lines(path, signal, place):
                anything = True
                yield line
        if not anything and not poll():
            return


def _end_of(path: Path, signal: str) -> Place:
    segments = list_segments(path, signal)
    if not segments:
        return Place()
    number, last = segments[-1]
    if last.suffix == ".gz":
        return Place(number + 1)
    # A line that is half written now is new when it is whole.
    data_end = 0
    for raw in read_lines(last, []):
        if raw.ended:
            data_end = raw.offset + len(raw.data) + 1
    return Place(number, data_end)


def new_lines(path: Path, signal: str, place: Place) -> Iterator[bytes]:
    """Give the whole lines of a rank's folder behind a place, which moves along: before a line is given, behind it."""
    for number, segment in list_segments(path, signal):
        if number < place.number:
            continue
        if number > place.number:
            place.number, place.offset = number, 0
        try:
            yield from _rest(segment, place)
        except FileNotFoundError:
            # Just gzipped: the next round finds it under its new name.
            return


def _rest(segment: Path, place: Place) -> Iterator[bytes]:
    if segment.suffix == ".gz":
        for raw in read_lines(segment, []):
            end = raw.offset + len(raw.data) + 1
            if raw.offset >= place.offset and raw.ended:
                place.offset = end
                yield raw.data + b"\n"
        return
    with open_regular(segment) as file:
        file.seek(place.offset)
        rest = b""
        while chunk := file.read(_CHUNK_BYTES):
            *whole, rest = (rest + chunk).split(b"\n")
            for line in whole:
                place.offset += len(line) + 1
                if line:
                    yield line + b"\n"
