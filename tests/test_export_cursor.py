"""Reading behind a writer: whole lines, each once, across rotation, gzip, cut lines and restarts."""

from __future__ import annotations

import errno
import gzip
import os
import tempfile
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_train.export.cursor import LogCursor


def segment(folder: Path, number: int, data: bytes, *, zipped: bool = False) -> Path:
    path = folder / f"logs.{number:06d}.jsonl"
    if zipped:
        path.unlink(missing_ok=True)
        path = path.with_name(path.name + ".gz")
        path.write_bytes(gzip.compress(data))
    else:
        path.write_bytes(data)
    return path


def all_lines(cursor: LogCursor, *, ended: bool = False) -> list[bytes]:
    found = []
    while (line := cursor.next_line(ended=ended)) is not None:
        found.append(line)
    return found


def test_a_line_that_is_still_written_is_not_read(tmp_path: Path) -> None:
    """Half a line is given once its other half and its end are there."""
    path = segment(tmp_path, 1, b"one\ntw")
    cursor = LogCursor(tmp_path, "logs")
    assert all_lines(cursor) == [b"one"]
    assert (cursor.number, cursor.offset) == (1, 4)
    path.write_bytes(b"one\ntwo\n")
    assert all_lines(cursor) == [b"two"]


def test_a_cut_last_line_is_given_when_nothing_more_is_written(tmp_path: Path) -> None:
    """The reader judges whether it is whole; afterwards it is not given again."""
    segment(tmp_path, 1, b"one\ntw")
    cursor = LogCursor(tmp_path, "logs")
    assert all_lines(cursor, ended=True) == [b"one", b"tw"]
    assert (cursor.number, cursor.offset) == (1, 6)
    assert all_lines(LogCursor(tmp_path, "logs", 1, 6), ended=True) == []


def test_the_next_segment_follows_only_after_the_last_line_of_this_one(tmp_path: Path) -> None:
    """A segment is done with when the next is there; what was written to it until then is read first."""
    one = segment(tmp_path, 1, b"a\n")
    cursor = LogCursor(tmp_path, "logs")
    assert all_lines(cursor) == [b"a"]
    one.write_bytes(b"a\nb\n")
    segment(tmp_path, 2, b"c\n")
    assert all_lines(cursor) == [b"b", b"c"]
    assert (cursor.number, cursor.offset) == (2, 2)


def test_a_segment_that_is_gzipped_between_two_looks_keeps_its_offset(tmp_path: Path) -> None:
    """The plain offset holds in the gzip; nothing is given twice."""
    segment(tmp_path, 1, b"a\nbb\nccc\n")
    cursor = LogCursor(tmp_path, "logs", chunk_bytes=4)
    assert cursor.next_line() == b"a"
    segment(tmp_path, 1, b"a\nbb\nccc\n", zipped=True)
    segment(tmp_path, 2, b"d\n")
    assert all_lines(cursor) == [b"bb", b"ccc", b"d"]
    assert all_lines(LogCursor(tmp_path, "logs", 1, 2)) == [b"bb", b"ccc", b"d"]


def test_a_segment_that_vanishes_between_listing_and_opening_is_found_gzipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The compressor may be quicker than the reader."""
    plain = segment(tmp_path, 1, b"a\nb\n")
    segment(tmp_path, 2, b"c\n")
    cursor = LogCursor(tmp_path, "logs")
    real = cursor._read_plain

    def vanishing(path: Path, *, complete: bool) -> bool:
        if path == plain and plain.exists():
            segment(tmp_path, 1, b"a\nb\n", zipped=True)
        return real(path, complete=complete)

    monkeypatch.setattr(cursor, "_read_plain", vanishing)
    assert all_lines(cursor) == [b"a", b"b", b"c"]


def test_a_gzip_that_breaks_gives_what_is_sound_and_is_counted(tmp_path: Path) -> None:
    """The lines before the break are read, the break is counted once, and the next segment follows."""
    lines = b"".join(b"%d %s\n" % (number, os.urandom(30).hex().encode()) for number in range(200))
    path = segment(tmp_path, 1, lines, zipped=True)
    path.write_bytes(path.read_bytes()[:2000])
    segment(tmp_path, 2, b"end\n")
    cursor = LogCursor(tmp_path, "logs")
    *found, last = all_lines(cursor)
    assert last == b"end"
    assert 10 < len(found) < 200
    assert lines.startswith(b"\n".join(found[:-1]))
    assert cursor.unreadable == 1


def test_a_line_longer_than_any_is_skipped_and_counted(tmp_path: Path) -> None:
    """A file without line ends does not fill the memory."""
    for zipped in (False, True):
        segment(tmp_path, 1, b"a\n" + b"x" * 1000 + b"\nb\n", zipped=zipped)
        cursor = LogCursor(tmp_path, "logs", chunk_bytes=16, max_line_bytes=100)
        assert all_lines(cursor) == [b"a", b"b"], zipped
        assert cursor.unreadable == 1
        assert cursor.passed == 1005


def test_a_pruned_segment_is_passed_over(tmp_path: Path) -> None:
    """Where the segment of a position is gone, reading goes on with the first that is left."""
    segment(tmp_path, 3, b"c\n")
    assert all_lines(LogCursor(tmp_path, "logs", 1, 400)) == [b"c"]


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="needs a file that we may not read")
def test_a_segment_that_may_not_be_read_is_waited_for(tmp_path: Path) -> None:
    """While the run lives it may become readable; at the end it is counted and passed."""
    segment(tmp_path, 1, b"a\n").chmod(0)
    segment(tmp_path, 2, b"b\n")
    cursor = LogCursor(tmp_path, "logs")
    assert all_lines(cursor) == []
    assert all_lines(cursor, ended=True) == [b"b"]
    assert cursor.unreadable == 1


@pytest.mark.parametrize("zipped", [False, True])
def test_what_this_process_has_no_room_to_open_is_not_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, zipped: bool
) -> None:
    """With no descriptor left an ended log is neither read nor done; afterwards all of it comes."""
    segment(tmp_path, 1, b"a\n", zipped=zipped)
    cursor = LogCursor(tmp_path, "logs")

    def full(*arguments: object, **options: object) -> object:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr("otel_train.export.cursor.open", full, raising=False)
        patch.setattr("otel_train.export.cursor.os.open", full)
        with pytest.raises(OSError, match="Too many open files"):
            cursor.next_line(ended=True)
    with monkeypatch.context() as patch:
        patch.setattr(os, "listdir", full)
        with pytest.raises(OSError, match="Too many open files"):
            cursor.next_line(ended=True)
    assert all_lines(cursor, ended=True) == [b"a"]
    assert cursor.unreadable == 0


def test_pending_bytes_are_plain_bytes(tmp_path: Path) -> None:
    """Of a gzip as well as of a plain segment, and from the position on."""
    segment(tmp_path, 1, b"x" * 99 + b"\n", zipped=True)
    segment(tmp_path, 2, b"y" * 49 + b"\n")
    cursor = LogCursor(tmp_path, "logs")
    assert cursor.pending_bytes(0, 0) == 150
    assert cursor.pending_bytes(1, 60) == 90
    assert cursor.pending_bytes(2, 50) == 0


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize(
    ("distance", "expected"),
    [(0, []), (2, []), (3, [b"cc"]), (4, [b"cc"]), (6, [b"bb", b"cc"]), (99, [b"aa", b"bb", b"cc"])],
)
def test_a_cursor_before_a_position_gives_the_lines_that_start_within_the_distance(
    tmp_path: Path, zipped: bool, distance: int, expected: list[bytes]
) -> None:
    """A line that starts at the very place counts, and none from the position on."""
    segment(tmp_path, 1, b"aa\nbb\n", zipped=zipped)
    segment(tmp_path, 2, b"cc\ndd\n", zipped=zipped)
    cursor = LogCursor.before(tmp_path, "logs", 2, 3, distance)
    found = []
    while (line := cursor.next_line(until=(2, 3))) is not None:
        found.append(line)
    assert found == expected
    assert cursor.next_line() == b"dd"


LINES = st.lists(st.text("abc", max_size=6).map(str.encode), min_size=1, max_size=20)


@settings(max_examples=60, deadline=None)
@given(LINES, st.data())
def test_every_line_is_given_once_wherever_reading_stops(lines: list[bytes], data: st.DataObject) -> None:
    """Any cutting into segments, any of them gzipped, any chunk, and a new cursor at any position."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        cuts = sorted(data.draw(st.sets(st.integers(0, len(lines)), max_size=3)))
        edges = [0, *cuts, len(lines)]
        for number, (start, end) in enumerate(pairwise(edges), 1):
            whole = b"".join(line + b"\n" for line in lines[start:end])
            segment(folder, number, whole, zipped=data.draw(st.booleans()))
        wanted = [line for line in lines if line]
        cursor, found = LogCursor(folder, "logs", chunk_bytes=data.draw(st.integers(1, 30))), []
        places = []
        while (line := cursor.next_line(ended=True)) is not None:
            found.append(line)
            places.append((cursor.number, cursor.offset))
            if data.draw(st.booleans()):
                cursor = LogCursor(folder, "logs", *places[-1], chunk_bytes=data.draw(st.integers(1, 30)))
        assert found == wanted
        if not places:
            return
        # Standing some bytes before a position: the lines that start there or later, up to the position.
        index = data.draw(st.integers(0, len(places) - 1))
        distance = data.draw(st.integers(0, 60))
        cursor = LogCursor.before(folder, "logs", *places[index], distance)
        again = []
        while (line := cursor.next_line(until=places[index])) is not None:
            again.append(line)
        assert again == wanted[index + 1 - len(again) : index + 1]
        sizes = [len(line) + 1 for line in lines]
        positions = [sum(sizes[:number]) for number in range(len(lines))]
        kept = [number for number, line in enumerate(lines) if line][: index + 1]
        end = positions[kept[-1]] + sizes[kept[-1]]
        assert len(again) == sum(positions[number] >= end - distance for number in kept)
