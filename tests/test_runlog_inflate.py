"""Gzips are unpacked by zlib-ng or by Python's zlib: the same bytes, and of what is damaged the same is said."""

from __future__ import annotations

import gzip
import random
import subprocess
import sys
import zlib
from pathlib import Path
from types import ModuleType

import pytest

from otel_train.runlog import inflate, second_reader
from otel_train.runlog.lines import read_lines

zlib_ng = pytest.importorskip("zlib_ng.zlib_ng")


def read_by(
    library: ModuleType, path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[list[bytes], list[tuple[int, int]]]:
    monkeypatch.setattr(inflate, "_library", lambda: library)
    damage: list[inflate.Any] = []
    lines = [raw.data for raw in read_lines(path, damage)]
    return lines, [(one.line_number, one.offset) for one in damage]


@pytest.mark.parametrize("harm", ["none", "cut", "a byte", "what is behind it", "two in one", "empty"])
def test_both_libraries_give_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, harm: str) -> None:
    """Of whole and of damaged files, up to the very byte."""
    for seed in range(12):
        chosen = random.Random(seed)
        plain = b"".join(
            b'{"n":%d,"x":%r}\n' % (number, chosen.random()) for number in range(chosen.randrange(1, 4000))
        )
        packed = bytearray(gzip.compress(plain, 6, mtime=0))
        if harm == "cut":
            del packed[chosen.randrange(len(packed)) :]
        elif harm == "a byte":
            packed[chosen.randrange(10, len(packed))] ^= 1 << chosen.randrange(8)
        elif harm == "what is behind it":
            packed += bytes(chosen.randrange(256) for _ in range(50))
        elif harm == "two in one":
            packed *= 2
        elif harm == "empty":
            packed.clear()
        path = tmp_path / f"metrics.{seed:06}.jsonl.gz"
        path.write_bytes(packed)
        ours, theirs = (read_by(library, path, monkeypatch) for library in (zlib_ng, zlib))
        assert ours == theirs
        if harm in ("none", "two in one"):
            assert ours == (plain.splitlines() * (1 + (harm == "two in one")), [])


def test_the_quicker_one_is_used_where_it_is_installed() -> None:
    """Here, and in the second process, which begins without any library but Python's own."""
    assert type(inflate.gunzipper()).__module__ == "zlib_ng"
    program = second_reader.PROGRAM.replace("serve()", "")
    asked = f"{program} from otel_train.runlog.inflate import gunzipper; print(type(gunzipper()).__module__)"
    command = second_reader.command(asked)
    told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert told.strip() == "zlib_ng"
    assert command[0] == sys.executable


def test_without_it_pythons_own_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the second process is given no folder."""
    inflate._library.cache_clear()
    monkeypatch.setitem(sys.modules, "zlib_ng", None)
    try:
        assert isinstance(inflate.gunzipper(), type(zlib.decompressobj()))
        assert inflate.damage_errors() == (zlib.error, zlib.error)
        assert inflate.library_folder() == ""
    finally:
        inflate._library.cache_clear()
