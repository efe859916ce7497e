"""Files of checked samples: what is kept of them, and pictures that other programs can read."""

from __future__ import annotations

import json
import struct
import zlib
from pathlib import Path

import pytest

from otel_train.clock import wall_ns
from otel_train.runlog.png import png
from otel_train.runlog.prune import apply, folder_bytes, plan_prune
from otel_train.runlog.sample_files import SampleFiles, folder_name, step_of
from tests.runs import RunBuilder


def decoded(data: bytes) -> tuple[int, int, int, bytes]:
    """Read a PNG by the specification: width, height, colour type and the rows with their filters."""
    assert data[:8] == bytes([137, 80, 78, 71, 13, 10, 26, 10])
    place, chunks = 8, []
    while place < len(data):
        (length,) = struct.unpack_from(">I", data, place)
        kind, body = data[place + 4 : place + 8], data[place + 8 : place + 8 + length]
        assert struct.unpack_from(">I", data, place + 8 + length)[0] == zlib.crc32(kind + body)
        chunks.append((kind, body))
        place += 12 + length
    assert [kind for kind, _ in chunks] == [b"IHDR", b"IDAT", b"IEND"]
    width, height, depth, colour, *rest = struct.unpack(">IIBBBBB", chunks[0][1])
    assert (depth, rest) == (8, [0, 0, 0])
    return width, height, colour, zlib.decompress(chunks[1][1])


@pytest.mark.parametrize(("channels", "colour"), [(1, 0), (2, 4), (3, 2), (4, 6)])
def test_a_png_holds_its_pixels_row_by_row(channels: int, colour: int) -> None:
    """Size, colour type and every byte; each row begins with filter 0."""
    pixels = bytes(number * 7 % 256 for number in range(3 * 2 * channels))
    width, height, found, rows = decoded(png(3, 2, channels, pixels))
    assert (width, height, found) == (3, 2, colour)
    assert rows == b"\0" + pixels[: 3 * channels] + b"\0" + pixels[3 * channels :]


@pytest.mark.parametrize(("width", "height", "channels", "size"), [(2, 2, 1, 3), (0, 1, 1, 0), (1, 1, 5, 5)])
def test_what_is_no_picture_is_refused(width: int, height: int, channels: int, size: int) -> None:
    """Too few bytes, no width, five channels."""
    with pytest.raises(ValueError, match="no picture"):
        png(width, height, channels, bytes(size))


def kept(root: Path, split: str = "train") -> list[int]:
    folders = (root / "artifacts" / "samples" / split).iterdir()
    return sorted(step for folder in folders if (step := step_of(folder)) is not None)


def test_paths_and_description_of_a_check(tmp_path: Path) -> None:
    """Paths are below the run's folder; the description is JSON, whatever it says."""
    files = SampleFiles(tmp_path)
    written = files.write("train", 500, [("0.txt", b"one"), ("1.txt", b"two")], {"kind": "text", "odd": "\ud800ä"})
    assert written == [f"artifacts/samples/train/step-000000500/{number}.txt" for number in (0, 1)]
    assert [(tmp_path / name).read_bytes() for name in written] == [b"one", b"two"]
    assert json.loads((tmp_path / written[0]).with_name("check.json").read_text())["kind"] == "text"
    other = SampleFiles(tmp_path, rank=3).write("val", 1, [("0.txt", b"")], {})
    assert other == ["artifacts/samples/rank-3/val/step-000000001/0.txt"]


def test_the_first_and_the_newest_stay(tmp_path: Path) -> None:
    """Of twenty checks with room for three newest: 0 and the last three; another split has its own."""
    files = SampleFiles(tmp_path, newest_checks=3)
    for step in range(20):
        files.write("train", step, [("0.txt", b"x")], {})
    files.write("val", 7, [("0.txt", b"x")], {})
    assert kept(tmp_path) == [0, 17, 18, 19]
    assert kept(tmp_path, "val") == [7]


def test_a_run_that_goes_on_knows_what_is_there(tmp_path: Path) -> None:
    """A new attempt counts the folders of the one before, and replaces a step that comes again."""
    for step in (0, 100, 200):
        SampleFiles(tmp_path, newest_checks=3).write("train", step, [("0.txt", b"old"), ("1.txt", b"old")], {})
    again = SampleFiles(tmp_path, newest_checks=3)
    again.write("train", 200, [("0.txt", b"new")], {})
    again.write("train", 300, [("0.txt", b"new")], {})
    again.write("train", 400, [("0.txt", b"new")], {})
    assert kept(tmp_path) == [0, 200, 300, 400]
    folder = tmp_path / "artifacts/samples/train/step-000000200"
    assert sorted(file.name for file in folder.iterdir()) == ["0.txt", "check.json"]


def test_bytes_are_bounded_over_all_splits(tmp_path: Path) -> None:
    """Beyond the limit the oldest go, of the split that has most; the newest of each is never touched."""
    files = SampleFiles(tmp_path, newest_checks=50, most_bytes=10_000)
    for step in range(30):
        files.write("train", step, [("0.txt", bytes(1_000))], {})
        files.write("val", step, [("0.txt", bytes(500))], {})
    assert folder_bytes(tmp_path) <= 10_000
    assert kept(tmp_path)[0] == kept(tmp_path, "val")[0] == 0
    assert kept(tmp_path)[-1] == kept(tmp_path, "val")[-1] == 29
    files.write("val", 30, [("0.txt", bytes(50_000))], {})
    assert kept(tmp_path, "val") == [30]


@pytest.mark.parametrize(
    ("split", "name"),
    [("train", "train"), ("../../etc", "_.._etc"), ("..", "_"), ("a/b c", "a_b_c"), ("x" * 99, "x" * 64), ("/", "_")],
)
def test_a_split_leads_to_no_other_folder(split: str, name: str) -> None:
    """Whatever the name, it is one folder below that of the samples."""
    assert folder_name(split) == name


def test_pruning_takes_the_samples_with_their_run(tmp_path: Path) -> None:
    """They count in its size, and nothing of them is left."""
    builder = RunBuilder(tmp_path).attempt().log({"loss": [1.0]}, steps=[1]).end()
    before = folder_bytes(builder.path)
    SampleFiles(builder.path).write("train", 0, [("0.txt", bytes(1_000))], {})
    plan = plan_prune(tmp_path, now_ns=wall_ns(), keep_last=0)
    assert plan.remove_bytes > before + 1_000
    assert apply(plan, wall_ns()).removed == [builder.path]
    assert list(tmp_path.iterdir()) == []
