"""Segments that grow are read once each, whatever happens to them meanwhile."""

from __future__ import annotations

import gzip
import random
import threading
from pathlib import Path
from typing import Any

import pytest

from otel_train.runlog import growing, lines
from otel_train.runlog.compress import compress_file
from otel_train.runlog.folder import RunFolder
from otel_train.runlog.growing import GrowingLog, LogReplacedError
from otel_train.runlog.lines import Damage, read_lines
from otel_train.runlog.lock import WriterLock
from tests.runs import RunBuilder


def bodies(log: GrowingLog) -> list[object]:
    return [entry.body for _, request, _, _ in log.news() for entry, _ in request.logs]


@pytest.fixture
def builder(tmp_path: Path) -> RunBuilder:
    return RunBuilder(tmp_path).attempt()


def segment(builder: RunBuilder, number: int = 1) -> Path:
    return builder.folder.rank_folder(1, 0) / f"logs.{number:06d}.jsonl"


def following(builder: RunBuilder) -> GrowingLog:
    return GrowingLog(RunFolder.open(builder.path))


def test_each_line_comes_once(builder: RunBuilder) -> None:
    """Also those of ranks and attempts that came later."""
    log = following(builder.record("one"))
    assert bodies(log) == ["one"]
    assert bodies(log) == []
    builder.record("two").record("of rank 1", rank=1)
    assert bodies(log) == ["two", "of rank 1"]
    builder.attempt(2).record("of attempt 2", attempt=2)
    assert bodies(log) == ["of attempt 2"]
    assert bodies(log) == []


def test_a_segment_that_was_gzipped_is_not_read_again(builder: RunBuilder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once read in plain, its gzip is not even opened but for the size that it tells."""
    log = following(builder.record("one").record("two"))
    assert bodies(log) == ["one", "two"]
    assert compress_file(segment(builder)) is not None
    opened: list[Path] = []

    def counted(path: Path, *arguments: Any, **options: Any) -> Any:
        opened.append(path)
        return read_lines(path, *arguments, **options)

    monkeypatch.setattr(growing, "read_lines", counted)
    segment(builder, 2).write_bytes(builder.encoder(1, 0).logs([]) or b"")
    assert bodies(log) == []
    assert [path for path in opened if path.suffix == ".gz"] == []


def test_what_came_between_the_last_look_and_the_gzip_is_read_from_the_gzip(builder: RunBuilder) -> None:
    """Its first part, which was read in plain, is passed over."""
    log = following(builder.record("one"))
    assert bodies(log) == ["one"]
    builder.record("two").record("three")
    assert compress_file(segment(builder)) is not None
    assert bodies(log) == ["two", "three"]
    assert bodies(log) == []


def test_a_half_line_waits_while_somebody_writes_and_is_damage_when_nobody_does(builder: RunBuilder) -> None:
    """It is counted once; when it goes on after all, all is to be read anew."""
    builder.record("one")
    whole = segment(builder).read_bytes()
    log = following(builder)
    lock = WriterLock(segment(builder).parent)
    assert lock.acquire()
    segment(builder).write_bytes(whole + whole[:40])
    assert bodies(log) == ["one"]
    assert log.damage == []
    lock.release()
    for _ in range(2):
        assert bodies(log) == []
        assert [(item.line_number, item.offset, item.reason[:8]) for item in log.damage] == [
            (2, len(whole), "cut off:")
        ]
    segment(builder).write_bytes(whole + whole)
    with pytest.raises(LogReplacedError):
        bodies(log)


def test_a_line_of_which_only_the_end_is_missing_is_a_line(builder: RunBuilder) -> None:
    """It comes at once, and not again with its line end; the numbers of later lines stay right."""
    builder.record("one")
    whole = segment(builder).read_bytes()
    segment(builder).write_bytes(whole[:-1])
    log = following(builder)
    assert bodies(log) == ["one"]
    segment(builder).write_bytes(whole + b'{"damaged\n')
    assert bodies(log) == []
    assert [(item.line_number, item.offset) for item in log.damage] == [(2, len(whole))]


def test_damage_in_a_segment_keeps_its_place_when_that_is_gzipped(builder: RunBuilder) -> None:
    """As a reader of the gzip would tell it."""
    builder.lines("logs", b'{"damaged\n').record("one")
    log = following(builder)
    assert bodies(log) == ["one"]
    target = compress_file(segment(builder))
    assert target is not None
    assert bodies(log) == []
    assert [(item.path, item.line_number) for item in log.damage] == [(target, 1)]
    assert log.damage_revision == 2


@pytest.mark.parametrize("change", ["shorter", "removed", "folder"])
def test_what_was_read_and_is_gone_is_a_reason_to_read_all_anew(builder: RunBuilder, change: str) -> None:
    """A segment may be missing at one look, while it is renamed, but not at two."""
    builder.record("one").record("two")
    log = following(builder)
    assert bodies(log) == ["one", "two"]
    if change == "shorter":
        segment(builder).write_bytes(b"")
    elif change == "removed":
        segment(builder).unlink()
        assert bodies(log) == []
    else:
        segment(builder).unlink()
        segment(builder).parent.rmdir()
    with pytest.raises(LogReplacedError):
        bodies(log)


def large(path: Path) -> bytes:
    """Write a gzip that is large enough to be unpacked ahead; return its plain bytes."""
    chosen = random.Random(3)
    data = b"".join(chosen.randbytes(chosen.randrange(20_000)).hex().encode() + b"\n" for _ in range(400))
    path.write_bytes(gzip.compress(data, 1))
    assert path.stat().st_size > lines._LARGE_BYTES
    return data


def test_a_large_gzip_is_unpacked_ahead_and_gives_the_same_lines(tmp_path: Path) -> None:
    """From the beginning and from any offset; and its thread ends also where the reader stops early."""
    path = tmp_path / "x.gz"
    data = large(path)
    expected = data.split(b"\n")[:-1]
    assert [raw.data for raw in read_lines(path, [])] == [line for line in expected if line]
    offset = len(b"\n".join(expected[:7])) + 1
    first = next(iter(read_lines(path, [], number=7, offset=offset)))
    assert (first.number, first.offset, first.data) == (8, offset, expected[7])
    reader = read_lines(path, [])
    next(reader)
    reader.close()  # type: ignore[attr-defined]  # it is a generator
    assert [thread.name for thread in threading.enumerate() if thread.name == "otel-train-gunzip"] == []


def test_a_large_gzip_that_is_cut_gives_what_is_sound(tmp_path: Path) -> None:
    """All up to the cut, and one place of damage."""
    path = tmp_path / "x.gz"
    data = large(path)
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 2 // 3])
    damage: list[Damage] = []
    found = b"".join(raw.data + b"\n" * raw.ended for raw in read_lines(path, damage))
    assert found
    assert data.startswith(found)
    assert [item.reason for item in damage] == ["the gzip is cut off"]
