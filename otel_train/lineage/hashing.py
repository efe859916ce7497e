"""Checksums of files and folders: whole where that is cheap, else of a bounded sample that is said to be one."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

MIB = 1 << 20
# A file up to this size is read whole: one to three seconds off-thread.
WHOLE_FILE_BYTES = 1 << 30
SAMPLE_BLOCKS = 64
SAMPLE_BLOCK_BYTES = MIB
FOLDER_SAMPLE_BLOCKS = 256
MAX_FOLDER_FILES = 1_000_000


@dataclass(frozen=True, slots=True)
class Checksum:
    """A digest together with what it covers.

    `value` is lower-case hex, `size` the bytes of the thing itself, `bytes_read` how many of them went in. `whole` is
    False where only a sample was read; `how` says so in words. A sample finds most changes, not every one. `files` is
    how many files a folder's checksum covers, 0 where it is no folder's.
    """

    algorithm: str
    value: str
    bytes_read: int
    whole: bool
    how: str
    size: int
    files: int = 0

    @property
    def short(self) -> str:
        """The first twelve hex digits, for people."""
        return self.value[:12]

    def to_dict(self) -> dict[str, Any]:
        """Return it as the entry of a record."""
        entry = asdict(self)
        if not self.files:
            del entry["files"]
        return entry


class Digest(Protocol):
    """What of hashlib's objects is used here."""

    def update(self, data: Any, /) -> None:
        """Take more bytes."""
        ...

    def hexdigest(self) -> str:
        """Return the digest of everything so far."""
        ...


def spread(total: int, block: int, count: int) -> list[int]:
    """Return up to `count` offsets of blocks within `total`: the first, the last, and evenly spaced ones between."""
    last = max(0, total - block)
    if count < 2 or last == 0:
        return [0]
    return sorted({index * last // (count - 1) for index in range(count)})


def file_checksum(
    path: str | os.PathLike[str],
    *,
    whole_bytes: int = WHOLE_FILE_BYTES,
    blocks: int = SAMPLE_BLOCKS,
    block_bytes: int = SAMPLE_BLOCK_BYTES,
) -> Checksum:
    """Return the SHA-256 of a file, as sha256sum prints it; above `whole_bytes` that of a sample and the size.

    Raises OSError where the file cannot be read or is not a regular one (a pipe would block for ever).
    """
    with _open_regular(path) as handle:
        before = os.fstat(handle.fileno())
        size = before.st_size
        digest = hashlib.sha256()
        if size <= max(whole_bytes, 0) or size <= blocks * block_bytes:
            read, whole, how = _feed(digest, handle), True, "the whole file"
        else:
            digest.update(f"sample of {size} bytes\n".encode())
            offsets = spread(size, block_bytes, blocks)
            read = sum(_feed_block(digest, handle, offset, block_bytes) for offset in offsets)
            whole = False
            how = f"the size and a sample of {len(offsets)} blocks of {block_bytes} bytes, first and last included"
        after = os.fstat(handle.fileno())
    if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
        how += "; it was changed while it was read"
    return Checksum("sha256", digest.hexdigest(), read, whole, how, size)


def folder_checksum(
    path: str | os.PathLike[str],
    *,
    whole_bytes: int = WHOLE_FILE_BYTES,
    blocks: int = FOLDER_SAMPLE_BLOCKS,
    block_bytes: int = SAMPLE_BLOCK_BYTES,
    max_files: int = MAX_FOLDER_FILES,
    skip: Collection[str] = (),
) -> Checksum:
    r"""Return the SHA-256 of the list that sha256sum prints for a folder's files, sorted by their relative names.

    ``find . -type f -printf '%P\0' | LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum`` gives the same. Above
    `whole_bytes` in all: of every name and size, and of blocks spread over the contents laid end to end. `skip` names
    files and folders to leave out; more than `max_files` files are not listed, which is said. Raises OSError.
    """
    names = hashlib.sha256()
    total = count = 0
    complete = True
    for name, size, _ in _walk(os.fspath(path), b"", skip):
        if count == max_files:
            complete = False
            break
        names.update(f"{size}  ".encode() + _list_name(name) + b"\n")
        total += size
        count += 1
    files = f"{count} file{'' if count == 1 else 's'}"
    if total <= whole_bytes and complete:
        lines = hashlib.sha256()
        read = 0
        for name, _, where in _walk(os.fspath(path), b"", skip):
            one = file_checksum(where, whole_bytes=1 << 62)
            lines.update((b"\\" if _list_name(name) != name else b"") + one.value.encode() + b"  ")
            lines.update(_list_name(name) + b"\n")
            read += one.bytes_read
        return Checksum("sha256", lines.hexdigest(), read, True, f"names and contents of {files}", total, count)
    offsets = spread(total, block_bytes, blocks)
    read = _feed_folder_blocks(names, os.fspath(path), skip, offsets, block_bytes)
    how = f"names and sizes of {files} and a sample of {len(offsets)} blocks of up to {block_bytes} bytes"
    if not complete:
        how += f"; more than {max_files} files, the rest was not read"
    return Checksum("sha256", names.hexdigest(), read, False, how, total, count)


def path_checksum(path: str | os.PathLike[str], *, skip: Collection[str] = ()) -> Checksum:
    """Return the checksum of a file or a folder; OSError where it cannot be read."""
    if Path(path).is_dir():
        return folder_checksum(path, skip=skip)
    return file_checksum(path)


class _Readable(Protocol):
    def fileno(self) -> int: ...
    def readinto(self, buffer: Any, /) -> int | None: ...
    def seek(self, offset: int, /) -> int: ...


def _open_regular(path: str | os.PathLike[str]) -> Any:
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise OSError(f"{os.fspath(path)} is not a regular file")
    return open(path, "rb", buffering=0)


def _feed(digest: Digest, handle: _Readable) -> int:
    """Hash to the end; hashlib gives the interpreter lock away for each block, so training goes on beside it."""
    buffer = memoryview(bytearray(MIB))
    read = 0
    while got := handle.readinto(buffer):
        digest.update(buffer[:got])
        read += got
    return read


def _feed_block(digest: Digest, handle: _Readable, offset: int, length: int) -> int:
    handle.seek(offset)
    buffer = memoryview(bytearray(length))
    filled = 0
    while filled < length and (got := handle.readinto(buffer[filled:])):
        filled += got
    digest.update(f"{offset}:".encode())
    digest.update(buffer[:filled])
    return filled


def _walk(top: str, prefix: bytes, skip: Collection[str]) -> Iterator[tuple[bytes, int, str]]:
    """Yield (relative name with '/', size, path) of all files in the byte order of their names; one folder in memory.

    A folder sorts as its name with '/' behind it, which makes the walk's order that of the sorted list. Links to
    files count as files, links to folders are not entered (they may lead in circles).
    """
    entries = []
    with os.scandir(top) as found:
        for entry in found:
            if entry.name in skip:
                continue
            name = os.fsencode(entry.name)
            if entry.is_dir(follow_symlinks=False):
                entries.append((name + b"/", True))
            elif entry.is_file():
                entries.append((name, False))
    entries.sort()
    for name, is_folder in entries:
        where = os.path.join(top, os.fsdecode(name))
        if is_folder:
            yield from _walk(where, prefix + name, skip)
        else:
            yield prefix + name, os.stat(where).st_size, where


def _list_name(name: bytes) -> bytes:
    """Return a name as sha256sum lists it: line breaks and backslashes escaped."""
    return name.replace(b"\\", b"\\\\").replace(b"\n", b"\\n").replace(b"\r", b"\\r")


def _feed_folder_blocks(digest: Digest, top: str, skip: Collection[str], offsets: list[int], block_bytes: int) -> int:
    pending = iter(offsets)
    target = next(pending, None)
    start = read = 0
    for _, size, where in _walk(top, b"", skip):
        if target is None:
            break
        if target < start + size:
            with _open_regular(where) as handle:
                while target is not None and target < start + size:
                    read += _feed_block(digest, handle, target - start, min(block_bytes, size - (target - start)))
                    target = next(pending, None)
        start += size
    return read
