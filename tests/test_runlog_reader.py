"""Whatever was damaged, cut or is being written: undamaged lines all come back, and damage is said."""

from __future__ import annotations

import gzip
import math
import os
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runlog_lines import ENCODER, RUN_ID, START_NS, line, log_line, make_run, value

from otel_train.errors import RunFolderError
from otel_train.otlp.encode import LineEncoder
from otel_train.record.entries import Column, LogEntry, SpanEntry
from otel_train.runlog.folder import RUN_FILE
from otel_train.runlog.lines import Damage, read_lines
from otel_train.runlog.lock import WriterLock
from otel_train.runlog.pulse import read_pulse
from otel_train.runlog.reader import RunReader
from otel_train.runlog.segments import LineRing, SegmentWriter
from otel_train.runlog.status import run_status

PLAIN = "metrics.000001.jsonl"


def rank_folder(root: Path) -> Path:
    return root / RUN_ID / "attempt-1" / "rank-0"


def values(reader: RunReader) -> list[float]:
    return [value(data) for data in reader.lines("metrics")]


def test_a_whole_run_is_read_with_where_each_entry_comes_from(tmp_path: Path) -> None:
    """Attempts, ranks and resources stay apart; points, records and spans each by their own signal."""
    folder = make_run(tmp_path, lines=2)
    encoder = LineEncoder({"run_id": RUN_ID, "dl.rank": 1}, "")
    second = folder.rank_folder(folder.create_attempt(), 1)
    (second / PLAIN).write_bytes(encoder.points([Column("dl.step", [5], [7])]))
    (second / "logs.000001.jsonl").write_bytes(log_line("hello"))
    (second / "traces.000001.jsonl").write_bytes(
        encoder.spans([SpanEntry(name="epoch", trace_id=1, span_id=2, start_ns=3, end_ns=4)])
    )
    reader = RunReader(folder.path)
    rows = [(c.attempt, c.rank, c.resource.get("dl.rank"), p.name, p.value) for p, c in reader.points()]
    assert rows == [
        (1, 0, None, "train.loss", 0.0),
        (1, 0, None, "train.loss", 1.0),
        (2, 1, 1, "dl.step", 7),
    ]
    assert [p.value for p, _ in reader.points(attempt=2)] == [7]
    assert [p.value for p, _ in reader.points(rank=0)] == [0.0, 1.0]
    assert [p.value for p, _ in reader.points(names={"dl.step"})] == [7]
    assert [(series.values, c.attempt) for series, c in reader.series(names=["train.loss"])] == [([0.0], 1), ([1.0], 1)]
    assert [(entry.body, c.rank) for entry, c in reader.logs()] == [("hello", 1)]
    assert [(span.name, c.attempt) for span, c in reader.spans()] == [("epoch", 2)]
    assert reader.info["run_name"] == "first"
    assert (reader.damage, reader.skipped) == ([], 0)


def test_segments_are_read_in_order_of_their_numbers(tmp_path: Path) -> None:
    """Gzipped and plain ones together, ten after nine."""
    folder = make_run(tmp_path, lines=0)
    path = rank_folder(tmp_path)
    for number in (10, 1, 2, 9):
        data = line(number)
        name = f"metrics.{number:06d}.jsonl"
        if number < 9:
            (path / f"{name}.gz").write_bytes(gzip.compress(data))
        else:
            (path / name).write_bytes(data)
    (path / "metrics.backup.jsonl").write_bytes(line(99))
    assert values(RunReader(folder.path)) == [1.0, 2.0, 9.0, 10.0]


def test_a_cut_last_line_of_a_dead_run_is_skipped_and_said(tmp_path: Path) -> None:
    """The rest is given; the place is named with file, line and offset, and only once."""
    folder = make_run(tmp_path, lines=2)
    path = rank_folder(tmp_path) / PLAIN
    with path.open("ab") as file:
        file.write(line(2)[:-30])
    reader = RunReader(folder.path)
    assert values(reader) == [0.0, 1.0]
    assert values(reader) == [0.0, 1.0]
    (damage,) = reader.damage
    assert (damage.path, damage.line_number, damage.offset) == (path, 3, len(line(0)) + len(line(1)))
    assert damage.reason.startswith("cut off: ")


def test_a_last_line_that_lacks_only_its_end_is_whole(tmp_path: Path) -> None:
    """The data is there: it is given, and nothing is damaged."""
    folder = make_run(tmp_path, lines=2)
    path = rank_folder(tmp_path) / PLAIN
    path.write_bytes(path.read_bytes()[:-1])
    reader = RunReader(folder.path)
    assert (values(reader), reader.damage) == ([0.0, 1.0], [])


def test_what_a_live_writer_has_half_written_is_no_damage(tmp_path: Path) -> None:
    """While the folder is locked the cut line is on its way."""
    folder = make_run(tmp_path, lines=2)
    path = rank_folder(tmp_path)
    with (path / PLAIN).open("ab") as file:
        file.write(line(2)[:20])
    lock = WriterLock(path)
    assert lock.acquire()
    reader = RunReader(folder.path)
    assert (values(reader), reader.damage) == ([0.0, 1.0], [])
    lock.release()
    assert (values(reader), len(reader.damage)) == ([0.0, 1.0], 1)


def test_lines_after_a_torn_one_and_empty_lines_are_read(tmp_path: Path) -> None:
    """What a full disk left: a torn line with its own end, then the next; empty lines are nothing."""
    folder = make_run(tmp_path, lines=0)
    (rank_folder(tmp_path) / PLAIN).write_bytes(line(0) + line(1)[:25] + b"\n\n\n" + line(2))
    reader = RunReader(folder.path)
    assert values(reader) == [0.0, 2.0]
    assert [damage.line_number for damage in reader.damage] == [2]


def test_glued_lines_are_told_apart(tmp_path: Path) -> None:
    """A lost line end harms neither of its lines; a torn line does not take the next one with it."""
    folder = make_run(tmp_path, lines=0)
    (rank_folder(tmp_path) / PLAIN).write_bytes(
        line(0) + line(1)[:-1] + b"X" + line(2)[:-1] + line(3)[:40] + line(4) + line(5)
    )
    reader = RunReader(folder.path)
    assert values(reader) == [0.0, 1.0, 2.0, 4.0, 5.0]
    assert [damage.line_number for damage in reader.damage] == [2]


def test_a_bare_nan_is_damage_and_a_null_is_counted(tmp_path: Path) -> None:
    """A line that no server would take is said to be damaged; one value that is null is left out alone."""
    folder = make_run(tmp_path, lines=0)
    bare = line(0).replace(b'"asDouble":0.0', b'"asDouble":NaN')
    null = ENCODER.points([Column("a", [1, 2], [1.5, 2.5])]).replace(b"1.5", b"null")
    (rank_folder(tmp_path) / PLAIN).write_bytes(bare + null)
    reader = RunReader(folder.path)
    assert [point.value for point, _ in reader.points()] == [2.5]
    assert [point.value for point, _ in reader.points()] == [2.5]
    assert (len(reader.damage), reader.skipped) == (1, 1)
    assert "bare NaN" in reader.damage[0].reason


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_cut_at_any_byte(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """All lines before the cut come back, plain or gzipped; a cut within a line is said."""
    count = 6
    whole = b"".join(line(number) for number in range(count))
    zipped = data.draw(st.booleans())
    content = gzip.compress(whole) if zipped else whole
    cut = data.draw(st.integers(0, len(content)))
    root = tmp_path_factory.mktemp("cut")
    folder = make_run(root, lines=0)
    (rank_folder(root) / (PLAIN + ".gz" if zipped else PLAIN)).write_bytes(content[:cut])
    reader = RunReader(folder.path)
    found = values(reader)
    if not zipped:
        ends = [0]
        for number in range(count):
            ends.append(ends[-1] + len(line(number)))
        # A line that lacks only its line end is whole.
        assert found == [float(n) for n in range(count) if ends[n + 1] - 1 <= cut]
        clean = any(cut in (end, end - 1) for end in ends)
        assert bool(reader.damage) == (not clean)
    else:
        assert found == [float(n) for n in range(len(found))]
        if cut == len(content):
            assert (len(found), reader.damage) == (count, [])
        else:
            assert reader.damage or cut == 0


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_damage_at_any_byte(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Bytes overwritten, removed or put in anywhere: every line that they do not touch comes back."""
    count = 6
    lines = [line(number) for number in range(count)]
    content = b"".join(lines)
    start = data.draw(st.integers(0, len(content) - 1))
    length = data.draw(st.integers(0, 300))
    garbage = data.draw(st.binary(max_size=300))
    end = min(len(content), start + length)
    root = tmp_path_factory.mktemp("damage")
    folder = make_run(root, lines=0)
    (rank_folder(root) / PLAIN).write_bytes(content[:start] + garbage + content[end:])
    reader = RunReader(folder.path)
    # White space around a line is none of its value.
    found = {bytes(item).strip() + b"\n" for item in reader.lines("metrics")}
    offset = 0
    for item in lines:
        # The line end may be harmed: it belongs to no value.
        body_end = offset + len(item) - 1
        if end <= offset or start >= body_end:
            assert item in found, (start, end, garbage)
        offset += len(item)
    survivors = found & set(lines)
    if content[:start] + garbage + content[end:] != content and len(survivors) < count:
        assert reader.damage or found - set(lines) or removed_whole_lines(lines, start, end, garbage)


def removed_whole_lines(lines: list[bytes], start: int, end: int, garbage: bytes) -> bool:
    """Whether exactly whole lines went, with nothing but line ends put in: that leaves no trace."""
    offsets = [0]
    for item in lines:
        offsets.append(offsets[-1] + len(item))
    near = {*offsets, *(offset - 1 for offset in offsets[1:])}
    return start in near and end in near and not garbage.strip(b"\r\n")


@settings(max_examples=100, deadline=None)
@given(place=st.integers(0, 10_000), byte=st.integers(0, 255))
def test_one_wrong_byte_in_a_gzip(tmp_path_factory: pytest.TempPathFactory, place: int, byte: int) -> None:
    """No exception; either everything comes back as it was, or the damage is said."""
    count = 200
    content = bytearray(gzip.compress(b"".join(line(number) for number in range(count)), mtime=0))
    place %= len(content)
    content[place] = byte
    root = tmp_path_factory.mktemp("gzip")
    folder = make_run(root, lines=0)
    (rank_folder(root) / (PLAIN + ".gz")).write_bytes(content)
    reader = RunReader(folder.path)
    found = [point.value for point, _ in reader.points()]
    # Some bits carry no meaning: time and system in the header, the padding behind the last code.
    assert reader.damage or found == [float(n) for n in range(count)]


def test_a_gzip_with_a_wrong_checksum_still_gives_its_lines(tmp_path: Path) -> None:
    """The last bytes of the frame are wrong: all lines are there, and the damage is said."""
    folder = make_run(tmp_path, lines=0)
    content = bytearray(gzip.compress(b"".join(line(number) for number in range(50))))
    content[-6] ^= 0xFF
    (rank_folder(tmp_path) / (PLAIN + ".gz")).write_bytes(content)
    reader = RunReader(folder.path)
    assert values(reader) == [float(n) for n in range(50)]
    assert "damaged" in reader.damage[0].reason


def test_gzips_that_follow_one_another_are_one(tmp_path: Path) -> None:
    """As gzip itself has it."""
    path = tmp_path / "metrics.000001.jsonl.gz"
    path.write_bytes(gzip.compress(line(1)) + gzip.compress(line(2)))
    damage: list[Damage] = []
    assert [value(raw.data) for raw in read_lines(path, damage)] == [1.0, 2.0]
    assert damage == []


def test_a_file_without_line_ends_fills_no_memory(tmp_path: Path) -> None:
    """Longer than any line that is written: passed over in pieces, and lines behind it are read."""
    path = tmp_path / PLAIN
    path.write_bytes(b"x" * 5_000 + b"\n" + line(1))
    raws = list(read_lines(path, [], max_line_bytes=1_000))
    assert [(len(raw.data), raw.too_long, raw.ended) for raw in raws] == [
        (1_000, True, True),
        (len(line(1)) - 1, False, True),
    ]
    assert raws[1].offset == 5_001


def test_files_that_cannot_be_read_are_damage(tmp_path: Path) -> None:
    """A folder in the place of a segment: said, and the next one is read."""
    folder = make_run(tmp_path, lines=0)
    (rank_folder(tmp_path) / PLAIN).mkdir()
    (rank_folder(tmp_path) / "metrics.000002.jsonl").write_bytes(line(2))
    reader = RunReader(folder.path)
    assert values(reader) == [2.0]
    assert "cannot be read" in reader.damage[0].reason


@pytest.mark.timeout(60)
@pytest.mark.parametrize("what", ["pipe", "device"])
def test_a_pipe_or_a_device_is_not_read(tmp_path: Path, what: str) -> None:
    """At a pipe that nobody writes into a reader would wait for ever, and a device never ends: both are damage."""
    folder = make_run(tmp_path, lines=1)
    for name in ("metrics.000002.jsonl", "metrics.000003.jsonl.gz", "pulse.json"):
        if what == "pipe":
            os.mkfifo(rank_folder(tmp_path) / name)
        else:
            (rank_folder(tmp_path) / name).symlink_to("/dev/zero")
    (folder.path / RUN_FILE).unlink()
    os.mkfifo(folder.path / RUN_FILE)
    reader = RunReader(folder.path)
    assert values(reader) == [0.0]
    assert {place.path.name for place in reader.damage} == {"metrics.000002.jsonl", "metrics.000003.jsonl.gz"}
    assert reader.info["rebuilt"] is True
    assert "pipe or a device" in reader.damage[-1].reason
    assert read_pulse(rank_folder(tmp_path)) is None
    assert run_status(folder.path, START_NS + 10**12).attempt == 1


def test_a_segment_that_is_gzipped_while_the_run_is_read(tmp_path: Path) -> None:
    """Listed as plain, gone when it is opened: its gzip is read instead."""
    folder = make_run(tmp_path, lines=3)
    path = rank_folder(tmp_path)
    (path / "metrics.000002.jsonl").write_bytes(line(3))
    lines = RunReader(folder.path).lines("metrics")
    assert value(next(lines)) == 0.0
    second = path / "metrics.000002.jsonl"
    (path / "metrics.000002.jsonl.gz").write_bytes(gzip.compress(second.read_bytes()))
    second.unlink()
    assert [value(data) for data in lines] == [1.0, 2.0, 3.0]


@pytest.mark.parametrize("content", [None, b"", b'{"format": 1, "run_id": "2026'])
def test_a_lost_description_is_rebuilt_from_the_lines(tmp_path: Path, content: bytes | None) -> None:
    """Name, project, start, configuration and end come from resources and events; that it was rebuilt is said."""
    folder = make_run(tmp_path, lines=2)
    (folder.path / "run.json").unlink()
    if content is not None:
        (folder.path / "run.json").write_bytes(content)
    config = ENCODER.logs(
        [
            LogEntry(
                time_ns=START_NS + 1, severity_number=9, severity_text="INFO", body={"lr": 0.1}, event_name="run.config"
            )
        ]
    )
    (rank_folder(tmp_path) / "logs.000001.jsonl").write_bytes(
        log_line("started", "run.start")
        + config
        + log_line("ended", "run.end", START_NS + 9_000_000_000, status="failed", reason="ValueError", exit_code=1)
    )
    reader = RunReader(folder.path)
    info = reader.info
    assert (info["rebuilt"], info["run_id"], info["run_name"], info["project"]) == (True, RUN_ID, "first", "digits")
    (attempt,) = info["attempts"]
    assert attempt["started"] == info["created"] == "2023-11-14T22:13:20.000000Z"
    assert (attempt["ended"], attempt["status"]) == ("2023-11-14T22:13:29.000000Z", "failed")
    assert (attempt["reason"], attempt["exit_code"], attempt["config"]) == ("ValueError", 1, {"lr": 0.1})
    assert info["status"] == "failed"
    assert [damage.path.name for damage in reader.damage] == ["run.json"]


def test_a_run_without_records_is_rebuilt_from_its_points(tmp_path: Path) -> None:
    """The first point gives the start."""
    folder = make_run(tmp_path, lines=2)
    (folder.path / "run.json").unlink()
    info = RunReader(folder.path).info
    assert (info["run_name"], info["status"], info["created"]) == ("first", "running", "2023-11-14T22:13:20.000000Z")


def test_an_empty_folder_is_no_run(tmp_path: Path) -> None:
    """A clear message instead of an empty page."""
    with pytest.raises(RunFolderError, match="is empty"):
        RunReader(tmp_path)


def test_following_crosses_rotation_gzip_and_attempts(tmp_path: Path) -> None:
    """Every line once, in order, whatever becomes of the files; half a line waits for its other half."""
    folder = make_run(tmp_path, lines=0)
    path = rank_folder(tmp_path)
    reader = RunReader(folder.path)
    writer = SegmentWriter(path, "metrics", ring=LineRing(), on_fault=print, segment_bytes=3 * len(line(100)))
    written = 100

    def write(count: int) -> None:
        nonlocal written
        for _ in range(count):
            writer.write(line(written), 1)
            written += 1

    def half() -> None:
        with (path / PLAIN).open("ab") as file:
            file.write(line(written)[:10])

    def other_half() -> None:
        nonlocal written
        with (path / PLAIN).open("ab") as file:
            file.write(line(written)[10:])
        written += 1

    def next_attempt() -> None:
        nonlocal written
        writer.close()
        (folder.rank_folder(folder.create_attempt(), 0) / PLAIN).write_bytes(line(written))
        written += 1

    turns = iter(
        [
            lambda: write(1),
            half,
            other_half,
            lambda: write(1),
            lambda: None,
            lambda: write(8),
            next_attempt,
            lambda: None,
        ]
    )

    def poll() -> bool:
        turn = next(turns, None)
        if turn is None:
            return False
        turn()
        return True

    found = [value(data) for data in reader.follow("metrics", poll)]
    assert found == [float(n) for n in range(100, written)]
    assert len(found) == 12


def test_following_from_the_end_gives_only_what_is_new(tmp_path: Path) -> None:
    """Old lines are passed over, also gzipped ones, and a half written one is new when it is whole."""
    folder = make_run(tmp_path, lines=3)
    path = rank_folder(tmp_path)
    with (path / PLAIN).open("ab") as file:
        file.write(line(3)[:10])
    zipped = folder.rank_folder(1, 1) / "metrics.000001.jsonl.gz"
    zipped.write_bytes(gzip.compress(line(50)))
    turns = iter([True, False])

    def poll() -> bool:
        if not next(turns):
            return False
        with (path / PLAIN).open("ab") as file:
            file.write(line(3)[10:])
        (folder.rank_folder(1, 1) / "metrics.000002.jsonl").write_bytes(line(51))
        return True

    found = [value(data) for data in RunReader(folder.path).follow("metrics", poll, from_end=True)]
    assert found == [3.0, 51.0]


def test_reading_a_live_run_disturbs_nobody(tmp_path: Path) -> None:
    """A reader in a loop beside a writer that rotates: what it sees is a beginning of what was written, unharmed."""
    folder = make_run(tmp_path, lines=0)
    path = rank_folder(tmp_path)
    lock = WriterLock(path)
    assert lock.acquire()
    writer = SegmentWriter(path, "metrics", ring=LineRing(), on_fault=print, segment_bytes=4_000)
    total = 600

    def write() -> None:
        for number in range(total):
            writer.write(line(number), 1)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        seen = 0
        while thread.is_alive():
            reader = RunReader(folder.path)
            found = values(reader)
            assert found == [float(n) for n in range(len(found))]
            assert reader.damage == []
            assert len(found) >= seen
            seen = len(found)
    finally:
        thread.join()
        writer.close()
        lock.release()
    assert values(RunReader(folder.path)) == [float(n) for n in range(total)]


def test_non_finite_values_are_read_back(tmp_path: Path) -> None:
    """Through encoder, file, gzip and reader."""
    folder = make_run(tmp_path, lines=0)
    data = ENCODER.points([Column("train.loss", [1, 2, 3], [math.nan, math.inf, -math.inf])])
    with gzip.open(rank_folder(tmp_path) / (PLAIN + ".gz"), "wb") as file:
        file.write(data)
    found = [point.value for point, _ in RunReader(folder.path).points()]
    assert math.isnan(found[0] or 0)
    assert found[1:] == [math.inf, -math.inf]
