"""Segments that a second process reads are read as if there had been one."""

from __future__ import annotations

import gzip
import math
import random
import subprocess
import sys
from collections.abc import Container, Generator
from pathlib import Path
from typing import Any

import pytest

from otel_train.record.entries import Column
from otel_train.runlog import second_reader
from otel_train.runlog.folder import RunFolder
from otel_train.runlog.lines import Damage, read_lines
from otel_train.runlog.reader import RunReader
from otel_train.runlog.second_reader import SecondReader, started_for
from tests.runlog_lines import ENCODER, RUN_ID, START_NS, line

TRAIN = (("split", "train"),)
MIB = 1 << 20
# What a damaged line looks like: torn, of another kind, no text, no object.
ODD = (line(3)[:-20] + b"\n", b'{"resourceMetrics":7}\n', b"\xff\xfe\n", b"[]\n", b"\n", line(1)[:-1] + line(2))


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[SecondReader]:
    """Have every reader take a second one, however little there is to read; give those that were started."""
    monkeypatch.setattr(second_reader, "_START_BYTES", 0)
    monkeypatch.setattr(second_reader, "_WORTH_BYTES", 1)
    monkeypatch.setattr(second_reader, "_cores", lambda: 2)
    found: list[SecondReader] = []
    before = SecondReader.__init__

    def noted(self: SecondReader, *arguments: Any) -> None:
        before(self, *arguments)
        found.append(self)

    monkeypatch.setattr(SecondReader, "__init__", noted)
    return found


def block(first: int, count: int = 50) -> bytes:
    """One line with three metrics; the losses are the square roots of the steps, some are not finite."""
    steps = range(first, first + count)
    times = [START_NS + step for step in steps]
    losses = [math.nan if step % 17 == 3 else math.inf if step % 29 == 5 else math.sqrt(step) for step in steps]
    columns = [Column("train.loss", times, losses, TRAIN), Column("train.seen", times, [7 * s for s in steps], TRAIN)]
    return ENCODER.points([*columns, Column("dl.step", times, list(steps), TRAIN)])


def made(root: Path, *, odd: bool = False, plain_last: bool = False) -> RunFolder:
    """A run of two ranks with five segments each, gzipped but for one: 100 steps a segment."""
    folder = RunFolder.create(root, RUN_ID, {"run_id": RUN_ID, "attempts": []})
    attempt = folder.create_attempt()
    for rank in (0, 1):
        path = folder.rank_folder(attempt, rank)
        for number in range(5):
            lines = [block(100 * number), block(100 * number + 50)]
            if odd:
                chosen = random.Random(10 * rank + number)
                for _ in range(4):
                    lines.insert(chosen.randrange(len(lines) + 1), chosen.choice(ODD))
            data = b"".join(lines)
            name = f"metrics.{number + 1:06d}.jsonl"
            if number == 2 or (plain_last and number == 4):
                (path / name).write_bytes(data)
            else:
                packed = gzip.compress(data)
                # The last but one is cut off.
                (path / f"{name}.gz").write_bytes(packed[: len(packed) // 2] if odd and number == 3 else packed)
    return folder


def read(folder: RunFolder, names: Container[str] | None = None, holding: bytes = b"") -> Any:
    """All that a reader gives, as text, since NaN is not equal to itself; and what it says of damage."""
    reader = RunReader(folder.path)
    found = [repr((request, *place)) for request, *place in reader.requests("metrics", names=names, holding=holding)]
    return found, reader.damage, reader.skipped


def alone(folder: RunFolder, monkeypatch: pytest.MonkeyPatch, *arguments: Any) -> Any:
    """The same without a second process."""
    with monkeypatch.context() as patched:
        patched.setattr(second_reader, "_cores", lambda: 1)
        return read(folder, *arguments)


def test_every_point_has_its_value_and_place(tmp_path: Path, started: list[SecondReader]) -> None:
    """In the order of the log, ranks one after the other, values bit by bit, times shared by those that stand there."""
    folder = made(tmp_path)
    for rank in (0, 1):
        reader = RunReader(folder.path)
        losses: list[float | None] = []
        for request, _, _ in reader.requests("metrics", rank=rank):
            loss, seen, step = request.series
            losses.extend(loss.values)
            assert step.times_ns == [START_NS + int(number or 0) for number in step.values]
            assert seen.values == [7 * int(number or 0) for number in step.values]
            assert {type(number) for number in seen.values} == {int}
            assert loss.times_ns is step.times_ns
        assert len(losses) == 500
        for step_number, value in enumerate(losses):
            assert value is not None
            if step_number % 17 == 3:
                assert math.isnan(value)
            else:
                assert value == (math.inf if step_number % 29 == 5 else math.sqrt(step_number))
        assert (reader.damage, reader.skipped) == ([], 0)
    assert len(started) == 2


@pytest.mark.parametrize("odd", [False, True], ids=["sound", "damaged"])
@pytest.mark.parametrize(
    ("names", "holding"),
    [(None, b""), (frozenset({"train.loss", "dl.step"}), b"train.loss"), ({"train.seen"}, b""), (None, b"nowhere")],
    ids=["all", "one-metric", "another", "none"],
)
def test_it_is_as_if_one_had_read_all(
    tmp_path: Path,
    started: list[SecondReader],
    monkeypatch: pytest.MonkeyPatch,
    odd: bool,
    names: Container[str] | None,
    holding: bytes,
) -> None:
    """Also of damaged lines, glued ones, a gzip that is cut off, and with names: what is given and what is said."""
    folder = made(tmp_path, odd=odd)
    expected = alone(folder, monkeypatch, names, holding)
    assert started == []
    assert read(folder, names, holding) == expected
    assert len(started) == 1
    assert bool(expected[1]) is odd


@pytest.mark.parametrize(
    "program",
    [
        "raise SystemExit(3)",
        "import os; os.write(1, (100).to_bytes(4, 'little') + b'half'); os._exit(0)",
        "import os; os.write(1, (4).to_bytes(4, 'little') + b'nope')",
        second_reader.PROGRAM.replace(
            "serve()",
            "import otel_train.runlog.second_reader as own; own._BATCH_BYTES = 1; before = own._send; left = [3]\n"
            "def send(batch):\n"
            "    if not left[0]: raise SystemExit(1)\n"
            "    left[0] -= 1; before(batch)\n"
            "own._send = send; own.serve()",
        ),
    ],
    ids=["at-once", "half-a-batch", "no-batch", "in-the-middle"],
)
def test_where_the_process_ends_early_the_rest_is_read_here(
    tmp_path: Path, started: list[SecondReader], monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    """Nothing is lost or given twice."""
    folder = made(tmp_path, odd=True)
    expected = alone(folder, monkeypatch)
    monkeypatch.setattr(second_reader, "PROGRAM", program)
    assert read(folder) == expected
    assert len(started) == 1


def test_a_segment_that_has_vanished_is_left_to_the_reader_here(tmp_path: Path) -> None:
    """Who asks for it is told; those behind it are read here, and those before it are read already."""
    first, gone, last = (tmp_path / f"metrics.{number:06d}.jsonl" for number in (1, 2, 3))
    first.write_bytes(block(0))
    last.write_bytes(block(50) + line(7))
    second = SecondReader([first, gone, last])
    try:
        damage: list[Damage] = []
        (taken,) = second.lines(first, damage)
        assert taken.taken is not None
        assert len(taken.taken.columns) == 3
        assert second.reads(gone)
        with pytest.raises(FileNotFoundError):
            list(second.lines(gone, damage))
        assert list(second.lines(last, damage)) == list(read_lines(last, []))
        assert damage == []
    finally:
        second.close()


def test_a_plain_segment_gzipped_meanwhile_is_read_in_its_new_form(
    tmp_path: Path, started: list[SecondReader], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by one reader."""
    folder = made(tmp_path)
    expected = read(folder)[0]
    before = SecondReader.__init__

    def packed(self: SecondReader, *arguments: Any) -> None:
        for path in sorted(folder.path.glob("attempt-1/*/*.jsonl")):
            path.with_name(path.name + ".gz").write_bytes(gzip.compress(path.read_bytes()))
            path.unlink()
        before(self, *arguments)

    monkeypatch.setattr(SecondReader, "__init__", packed)
    found, damage, _ = read(folder)
    assert (found, damage) == (expected, [])
    assert len(started) == 2


def test_who_stops_early_leaves_no_process(tmp_path: Path, started: list[SecondReader]) -> None:
    """The process and the thread end with the reading, also of one who wants only the first line."""
    requests = RunReader(made(tmp_path).path).requests("metrics")
    next(requests)
    (second,) = started
    assert second._process.poll() is None or second._process.returncode == 0
    assert isinstance(requests, Generator)
    requests.close()
    assert second._process.returncode is not None
    assert not second._thread.is_alive()


def test_what_is_being_written_is_read_by_nobody_else(tmp_path: Path, started: list[SecondReader]) -> None:
    """The last segment of a rank, in its plain form, may grow."""
    folder = made(tmp_path, plain_last=True)
    assert len(read(folder)[0]) == 20
    segments = RunReader(folder.path)._segments(None, None)
    assert [closed for _, closed in segments] == [True, True, True, True, False] * 2
    (second,) = started
    assert second._left == []


def sized(root: Path, *plain_mib: int) -> list[tuple[Path, bool]]:
    """Closed segments of so many MiB each, in holes of files."""
    found = []
    for number, size in enumerate(plain_mib):
        path = root / f"metrics.{number:06d}.jsonl"
        with path.open("wb") as file:
            file.truncate(size * MIB)
        found.append((path, True))
    return found


@pytest.mark.parametrize(
    ("plain_mib", "theirs"),
    [
        # While the first is read here, the process reads what follows; it costs its start.
        ([64, 64, 24], [1, 2]),
        ([64, 64, 64, 64, 64], [1, 2, 4]),
        ([64], []),
        ([6, 64], []),
        ([64, 20], []),
        ([64, 30], [1]),
        ([], []),
    ],
)
def test_both_are_done_at_about_the_same_time(tmp_path: Path, plain_mib: list[int], theirs: list[int]) -> None:
    """Segments are shared out by their sizes; for little there is no second process."""
    segments = sized(tmp_path, *plain_mib)
    assert second_reader._shared(segments) == [segments[number][0] for number in theirs]


def test_without_a_core_or_an_interpreter_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One core, a program that only embeds Python, one that cannot be started, and names that cannot be listed."""
    segments = sized(tmp_path, 64, 64)
    monkeypatch.setattr(second_reader, "_cores", lambda: 1)
    assert started_for(segments) is None
    monkeypatch.setattr(second_reader, "_cores", lambda: 2)

    class All:
        def __contains__(self, name: object) -> bool:
            return True

    assert started_for(segments, All()) is None
    for program in ("", "/usr/bin/blender", str(tmp_path / "python3")):
        monkeypatch.setattr(sys, "executable", program)
        assert started_for(segments) is None


def test_the_process_needs_nothing_that_is_installed(tmp_path: Path) -> None:
    """It starts without the site's packages and without the recorder, whose import takes longer than some reading."""
    program = second_reader.PROGRAM.replace("serve()", "print(sorted(sys.modules))")
    package = str(Path(second_reader.__file__).parent.parent)
    command = [sys.executable, "-I", "-S", "-c", program, package]
    found = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    assert "'otel_train.runlog.second_reader'" in found
    assert "opentelemetry" not in found
    assert "'asyncio'" not in found
