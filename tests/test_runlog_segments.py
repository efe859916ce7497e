"""The writer loses nothing that it does not count: full disks, torn writes, rotation, gzip, kills and forks."""

from __future__ import annotations

import errno
import gzip
import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runlog_lines import SECOND, HandClock, line, value

from otel_train.runlog.compress import compress_file
from otel_train.runlog.lines import read_lines
from otel_train.runlog.ring import LineRing
from otel_train.runlog.segments import SegmentWriter, list_segments

ERRNOS = [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EIO]


class Disk:
    """An `os.write` whose disk can be full: after `room` bytes it writes what fits and then fails."""

    def __init__(self) -> None:
        self.room: int | None = None
        self.errno = errno.ENOSPC
        self.calls = 0

    def write(self, descriptor: int, data: bytes) -> int:
        self.calls += 1
        if self.room is None:
            return os.write(descriptor, data)
        if self.room == 0:
            raise OSError(self.errno, os.strerror(self.errno))
        count = os.write(descriptor, data[: self.room])
        self.room -= count
        return count


class Writing:
    """A writer on a disk and a clock in the test's hand."""

    def __init__(self, folder: Path, segment_bytes: int = 64 << 20, ring_bytes: int = 16 << 20) -> None:
        self.folder, self.disk, self.clock, self.faults = folder, Disk(), HandClock(), list[str]()
        self.ring = LineRing(ring_bytes)
        self.writer = SegmentWriter(
            folder,
            "metrics",
            ring=self.ring,
            on_fault=self.faults.append,
            segment_bytes=segment_bytes,
            clock=self.clock,
            write=self.disk.write,
        )

    def later(self) -> None:
        self.clock.now_ns += 2 * SECOND

    def values(self) -> list[float]:
        return values_in(self.folder)


def values_in(folder: Path) -> list[float]:
    """Values of all whole lines of all segments, in order."""
    found = []
    for _, path in list_segments(folder, "metrics"):
        for raw in read_lines(path, []):
            try:
                found.append(value(raw.data))
            except ValueError:
                continue
    return found


def test_lines_are_on_disk_at_once_and_counted(tmp_path: Path) -> None:
    """No buffer of our own: what write returned from is in the file, with the numbers of bytes and items."""
    writing = Writing(tmp_path)
    assert list(tmp_path.iterdir()) == []
    writing.writer.write(line(1) + line(2), 2)
    path = tmp_path / "metrics.000001.jsonl"
    assert path.read_bytes() == line(1) + line(2)
    assert (writing.writer.bytes_written, writing.writer.items_written) == (path.stat().st_size, 2)
    assert writing.writer.path == path


@pytest.mark.parametrize("number", ERRNOS)
@pytest.mark.parametrize("room", [0, 1, 50, 10_000])
def test_a_failed_write_loses_nothing_and_glues_nothing(tmp_path: Path, number: int, room: int) -> None:
    """Whatever fits of a write, what follows starts on a new line and each line is there once, in order."""
    writing = Writing(tmp_path)
    writing.writer.write(line(0), 1)
    writing.disk.room, writing.disk.errno = room, number
    for count in range(1, 40):
        writing.writer.write(line(count), 1)
    assert writing.writer.items_written + writing.writer.items_in_ring == 40
    writing.disk.room = None
    writing.later()
    writing.writer.write(line(40), 1)
    assert writing.values() == [float(count) for count in range(41)]
    assert (writing.writer.items_written, writing.writer.items_in_ring, writing.writer.items_lost) == (41, 0, 0)
    assert len(writing.faults) == 1
    assert str(tmp_path / "metrics.000001.jsonl") in writing.faults[0]
    assert os.strerror(number) in writing.faults[0]


def test_a_write_that_fails_within_several_lines_keeps_the_whole_ones(tmp_path: Path) -> None:
    """Of three lines in one call, two that fit stay and the third comes later: none twice."""
    writing = Writing(tmp_path)
    writing.disk.room = len(line(1)) + len(line(2)) + 5
    writing.writer.write(line(1) + line(2) + line(3), 3)
    assert (writing.writer.items_written, writing.writer.items_in_ring) == (2, 1)
    writing.disk.room = None
    writing.later()
    assert writing.writer.retry()
    assert writing.values() == [1.0, 2.0, 3.0]
    assert writing.writer.items_written == 3


def test_a_short_write_without_an_error_is_continued(tmp_path: Path) -> None:
    """A system call may take less than it was given; that alone is no fault."""
    faults: list[str] = []
    writer = SegmentWriter(
        tmp_path, "metrics", ring=LineRing(), on_fault=faults.append, write=lambda fd, data: os.write(fd, data[:7])
    )
    writer.write(line(1), 1)
    assert (values_in(tmp_path), faults) == ([1.0], [])


def test_the_disk_is_tried_at_most_every_second(tmp_path: Path) -> None:
    """While it is full each write costs an append in memory, not a system call; each outage is told once."""
    writing = Writing(tmp_path)
    writing.disk.room = 0
    for count in range(100):
        writing.writer.write(line(count), 1)
    assert writing.disk.calls == 1
    writing.later()
    writing.writer.write(line(100), 1)
    assert writing.disk.calls == 2
    assert len(writing.faults) == 1
    writing.disk.room = None
    writing.later()
    assert writing.writer.retry()
    writing.disk.room = 0
    writing.writer.write(line(101), 1)
    assert len(writing.faults) == 2
    assert writing.values() == [float(count) for count in range(101)]


def test_the_ring_is_bounded_and_counts_what_it_lost(tmp_path: Path) -> None:
    """The oldest give way; written, held and lost add up to what was handed over."""
    size = len(line(100))
    writing = Writing(tmp_path, ring_bytes=5 * size)
    writing.disk.room = 0
    for count in range(100, 120):
        writing.writer.write(line(count), 1)
    assert (writing.writer.items_in_ring, writing.writer.items_lost) == (5, 15)
    assert writing.ring.bytes <= 5 * size
    writing.disk.room = None
    writing.later()
    writing.writer.retry()
    assert writing.values() == [115.0, 116.0, 117.0, 118.0, 119.0]
    assert writing.ring.lost == {"metrics": 15}


def test_signals_share_a_ring_without_mixing() -> None:
    """Each writer takes its own lines back; a sender takes the oldest of any."""
    ring = LineRing()
    ring.append("logs", b"a\n", 1)
    ring.append("metrics", b"b\n", 2)
    ring.append("logs", b"c\n", 3)
    assert (ring.items("logs"), ring.items("metrics"), ring.bytes) == (4, 2, 6)
    metrics = ring.pop("metrics")
    assert metrics is not None
    assert (metrics.lines, metrics.items) == (b"b\n", 2)
    first = ring.pop()
    assert first is not None
    assert first.lines == b"a\n"
    ring.push_back(first)
    again = ring.pop("logs")
    assert again == first
    assert ring.pop("metrics") is None


def test_a_removed_folder_is_noticed_and_comes_back(tmp_path: Path) -> None:
    """Lines are not written into a file that nobody can find; when the folder is there again they are in it."""
    folder = tmp_path / "rank-0"
    folder.mkdir()
    writing = Writing(folder)
    writing.writer.write(line(1), 1)
    (folder / "metrics.000001.jsonl").unlink()
    folder.rmdir()
    writing.writer.write(line(2), 1)
    writing.later()
    writing.writer.write(line(3), 1)
    assert (writing.writer.items_in_ring, len(writing.faults)) == (2, 1)
    assert str(folder) in writing.faults[0]
    folder.mkdir()
    writing.later()
    assert writing.writer.retry()
    assert writing.values() == [2.0, 3.0]


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_made_read_only_before_the_first_line(tmp_path: Path) -> None:
    """No file can be made: the message names the path, and nothing is lost."""
    tmp_path.chmod(0o500)
    try:
        writing = Writing(tmp_path)
        writing.writer.write(line(1), 1)
        assert writing.writer.items_in_ring == 1
        assert str(tmp_path) in writing.faults[0]
    finally:
        tmp_path.chmod(0o700)


def test_an_opener_that_is_refused_is_a_fault_like_any_other(tmp_path: Path) -> None:
    """Lost permission at the start: one message with the path, lines held, written when permission is back."""
    allowed = False

    def opener(path: Path, flags: int, mode: int) -> int:
        if not allowed:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return os.open(path, flags, mode)

    clock, faults = HandClock(), list[str]()
    writer = SegmentWriter(tmp_path, "metrics", ring=LineRing(), on_fault=faults.append, opener=opener, clock=clock)
    writer.write(line(1), 1)
    assert faults == [
        f"cannot write {tmp_path / 'metrics.000001.jsonl'}: Permission denied; "
        "lines are held in memory until it can be written"
    ]
    allowed = True
    clock.now_ns += SECOND
    writer.write(line(2), 1)
    assert values_in(tmp_path) == [1.0, 2.0]


def test_a_fault_in_telling_of_a_fault_stays_inside(tmp_path: Path) -> None:
    """A broken warning does not reach training."""

    def broken(message: str) -> None:
        raise RuntimeError(message)

    disk = Disk()
    disk.room = 0
    writer = SegmentWriter(tmp_path, "metrics", ring=LineRing(), on_fault=broken, write=disk.write)
    writer.write(line(1), 1)
    assert writer.faulty


def test_rotation_gzips_closed_segments_and_keeps_every_line(tmp_path: Path) -> None:
    """Segments of bounded size, numbered without a hole, closed ones as sound gzips, all lines in order."""
    writing = Writing(tmp_path, segment_bytes=5 * len(line(100)))
    for count in range(100, 143):
        writing.writer.write(line(count), 1)
    writing.writer.close()
    segments = list_segments(tmp_path, "metrics")
    assert [number for number, _ in segments] == list(range(1, 10))
    assert {path.suffix for _, path in segments} == {".gz"}
    assert writing.values() == [float(count) for count in range(100, 143)]
    assert [path.name for path in tmp_path.iterdir() if "tmp" in path.name] == []
    assert writing.writer.disk_bytes == sum(path.stat().st_size for path in tmp_path.iterdir())
    assert gzip.decompress(segments[0][1].read_bytes()).count(b"\n") == 5


def test_close_stops_at_its_deadline_and_leaves_the_plain_file(tmp_path: Path) -> None:
    """No time for gzip: the lines stay as they are, and nothing half made is left behind."""
    writing = Writing(tmp_path)
    writing.writer.write(line(1), 1)
    writing.clock.now_ns = 10
    writing.writer.close(deadline_ns=5)
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.000001.jsonl"]
    writing.writer.write(line(2), 1)
    assert writing.writer.items_in_ring == 1
    writing.writer.close()
    assert writing.values() == [1.0]


def test_a_next_segment_that_cannot_be_opened_leaves_the_present_one_in_use(tmp_path: Path) -> None:
    """A segment may grow too large; no line is held back for that."""
    allowed = True

    def opener(path: Path, flags: int, mode: int) -> int:
        if not allowed:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return os.open(path, flags, mode)

    clock = HandClock()
    writer = SegmentWriter(
        tmp_path, "metrics", ring=LineRing(), on_fault=print, opener=opener, clock=clock, segment_bytes=10
    )
    writer.write(line(1), 1)
    allowed = False
    writer.write(line(2), 1)
    assert (writer.items_written, writer.faulty) == (2, False)
    assert values_in(tmp_path) == [1.0, 2.0]
    allowed = True
    clock.now_ns += SECOND
    writer.write(line(3), 1)
    assert [number for number, _ in list_segments(tmp_path, "metrics")][-1] == 2
    assert values_in(tmp_path) == [1.0, 2.0, 3.0]


def test_a_second_writer_on_a_folder_never_shares_a_file(tmp_path: Path) -> None:
    """Whatever happened to the lock, files are made exclusively: both writers' lines are whole."""
    first, second = Writing(tmp_path), Writing(tmp_path)
    for count in range(10):
        first.writer.write(line(count), 1)
        second.writer.write(line(100 + count), 1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["metrics.000001.jsonl", "metrics.000002.jsonl"]
    assert values_in(tmp_path) == [float(n) for n in [*range(10), *range(100, 110)]]


def test_a_crash_between_the_gzips_name_and_the_end_of_the_plain_file(tmp_path: Path) -> None:
    """Both forms are there: each line is read once, from the plain file."""
    writing = Writing(tmp_path)
    writing.writer.write(line(1) + line(2), 2)
    writing.writer.close(compress=False)
    plain = tmp_path / "metrics.000001.jsonl"
    (tmp_path / "metrics.000001.jsonl.gz").write_bytes(gzip.compress(plain.read_bytes()))
    (tmp_path / "metrics.000001.jsonl.gz.tmp").write_bytes(b"half made")
    assert list_segments(tmp_path, "metrics") == [(1, plain)]
    assert values_in(tmp_path) == [1.0, 2.0]
    assert compress_file(plain) == tmp_path / "metrics.000001.jsonl.gz"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["metrics.000001.jsonl.gz"]
    assert values_in(tmp_path) == [1.0, 2.0]


def test_a_gzip_that_cannot_be_made_leaves_the_plain_file(tmp_path: Path) -> None:
    """A folder in the place of the new file: no exception, nothing lost."""
    plain = tmp_path / "metrics.000001.jsonl"
    plain.write_bytes(line(1))
    (tmp_path / "metrics.000001.jsonl.gz.tmp").mkdir()
    assert compress_file(plain) is None
    assert values_in(tmp_path) == [1.0]


def test_compression_gives_way_between_its_pieces(tmp_path: Path) -> None:
    """A piece is a quarter of a MiB; after each the training thread may run."""
    plain = tmp_path / "metrics.000001.jsonl"
    plain.write_bytes(line(1) * (1 + (1 << 20) // len(line(1))))
    pauses: list[None] = []
    assert compress_file(plain, pause=lambda: pauses.append(None)) is not None
    assert len(pauses) == 5


def test_a_forked_child_writes_nothing_and_closes_only_its_own(tmp_path: Path) -> None:
    """After `abandon` writes go nowhere on disk, and the parent's file goes on."""
    if not hasattr(os, "fork"):
        pytest.skip("no fork here")
    writing = Writing(tmp_path)
    writing.writer.write(line(1), 1)
    writing.disk.room = 0
    writing.writer.write(line(2), 1)
    script = run_child(lambda: child(writing))
    assert script == 0
    writing.disk.room = None
    writing.later()
    writing.writer.write(line(3), 1)
    writing.writer.close()
    assert writing.values() == [1.0, 2.0, 3.0]


def child(writing: Writing) -> None:
    writing.writer.abandon()
    assert writing.writer.items_in_ring == 0
    writing.disk.room = None
    writing.later()
    writing.writer.write(line(99), 1)
    writing.writer.retry()
    writing.writer.close()


def run_child(work: Callable[[], None]) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except BaseException:  # noqa: BLE001 - a child must never come back into the test
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@settings(max_examples=60, deadline=None)
@given(rooms=st.lists(st.integers(0, 400) | st.none(), max_size=25), small=st.booleans())
def test_no_pattern_of_full_disks_loses_repeats_or_reorders_a_line(
    tmp_path_factory: pytest.TempPathFactory, rooms: list[int | None], small: bool
) -> None:
    """The disk has room for so many bytes before each write: every line is on disk or in the ring, once, in order."""
    writing = Writing(tmp_path_factory.mktemp("disk"), segment_bytes=700 if small else 1 << 20)
    for count, room in enumerate(rooms):
        writing.disk.room = room
        writing.clock.now_ns += SECOND // 2
        writing.writer.write(line(count), 1)
    assert writing.writer.items_written + writing.writer.items_in_ring == len(rooms)
    writing.disk.room = None
    writing.later()
    writing.writer.close()
    assert writing.values() == [float(count) for count in range(len(rooms))]


WRITER = """
    import sys
    sys.path.insert(0, "tests")
    from pathlib import Path
    from runlog_lines import line
    from otel_train.runlog.lock import WriterLock
    from otel_train.runlog.segments import LineRing, SegmentWriter

    folder = Path(sys.argv[1])
    assert WriterLock(folder).acquire()
    writer = SegmentWriter(folder, "metrics", ring=LineRing(), on_fault=print, segment_bytes=int(sys.argv[2]))
    count = 0
    while True:
        writer.write(line(count), 1)
        count += 1
        if count % 50 == 0:
            print(count, flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("segment_bytes", [64 << 20, 100_000])
def test_kill_9_in_mid_write_keeps_everything_that_was_written(tmp_path: Path, segment_bytes: int) -> None:
    """What the writer had said to have written is there, in order and whole; at most the last line is cut."""
    command = [sys.executable, "-c", textwrap.dedent(WRITER), str(tmp_path), str(segment_bytes)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    said = 0
    while said < 2_000:
        said = int(process.stdout.readline())
    process.send_signal(signal.SIGKILL)
    process.wait()
    said = max([said, *map(int, process.stdout.read().split())])
    process.stdout.close()
    found = values_in(tmp_path)
    assert len(found) >= said
    assert found == [float(count) for count in range(len(found))]


@pytest.mark.slow
def test_a_real_full_disk(tmp_path: Path) -> None:
    """On a file system of one MiB: no exception, one message, every line whole, the rest held and written later."""
    mount = tmp_path / "small"
    mount.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(mount)], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"cannot mount a tmpfs here: {mounted.stderr.strip()}")
    try:
        clock, faults = HandClock(), list[str]()
        writer = SegmentWriter(mount, "metrics", ring=LineRing(), on_fault=faults.append, clock=clock)
        ballast = mount / "ballast"
        ballast.write_bytes(bytes(600_000))
        total = 5_000
        for count in range(total):
            writer.write(line(count), 1)
        assert len(faults) == 1
        assert "No space left on device" in faults[0]
        assert 0 < writer.items_written < total
        assert writer.items_written + writer.items_in_ring == total
        held_back = values_in(mount)
        assert held_back == [float(count) for count in range(writer.items_written)]
        ballast.unlink()
        for count in range(total, total + 5):
            clock.now_ns += SECOND
            writer.write(line(count), 1)
        found = values_in(mount)
        assert len(found) > len(held_back)
        assert found == [float(count) for count in range(len(found))]
        writer.close(compress=False)
    finally:
        subprocess.run(["umount", str(mount)], check=False)


def test_every_line_that_is_written_is_json(tmp_path: Path) -> None:
    """Line by line, by the plainest of readers."""
    writing = Writing(tmp_path)
    for count in range(5):
        writing.writer.write(line(count), 1)
    writing.writer.close(compress=False)
    with (tmp_path / "metrics.000001.jsonl").open() as file:
        assert [list(json.loads(text)) for text in file] == [["resourceMetrics"]] * 5
