"""Saves a checkpoint so that there is always a whole one: written aside, checked, and only then renamed into place."""

from __future__ import annotations

import errno
import hashlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from otel_train import clock
from otel_train.errors import CheckpointError
from otel_train.lineage.checkpoint_format import Writer, check_content, choose_writer
from otel_train.lineage.documents import sync_folder
from otel_train.lineage.hashing import Checksum, file_checksum, folder_checksum
from otel_train.lineage.unfinished import clear_leftovers, former_path, mark_done, unfinished_path

# Errors of file systems that have no fsync.
_NO_SYNC = frozenset({errno.EINVAL, errno.ENOSYS, getattr(errno, "ENOTSUP", errno.EINVAL), errno.EROFS})
_WHOLE = 1 << 62


class HashingFile:
    """A file open for writing that hashes the bytes on their way."""

    def __init__(self, path: Path) -> None:
        self._handle = open(path, "xb", buffering=1 << 20)  # noqa: SIM115 - closed by `close` or `abandon`
        self._digest = hashlib.sha256()
        self.size = 0

    def write(self, data: Any) -> int:
        """Write the bytes of any buffer and return how many these are."""
        view = memoryview(data).cast("B")
        self._handle.write(view)
        self._digest.update(view)
        self.size += len(view)
        return len(view)

    def flush(self) -> None:
        """Hand everything to the operating system."""
        self._handle.flush()

    def close(self) -> str:
        """Bring the bytes to the disk and return the SHA-256 of all that was written."""
        self._handle.flush()
        _sync(self._handle.fileno())
        self._handle.close()
        return self._digest.hexdigest()

    def abandon(self) -> None:
        """Close without a word: the write has failed already."""
        try:
            self._handle.close()
        except OSError:
            pass


def save_checkpoint(
    path: str | os.PathLike[str],
    obj: Any,
    *,
    save: Callable[[Any, str], Any] | None = None,
    describe: Callable[[dict[str, Any]], None] | None = None,
    mono_ns: Callable[[], int] = clock.mono_ns,
    wall_ns: Callable[[], int] = clock.wall_ns,
) -> dict[str, Any]:
    """Write `obj` to `path` and return the facts: path, kind, format, size, sha256, duration_s, checks.

    `save(obj, temporary_path)` writes a file or folder where it is given; else bytes are written as they are, a name
    ending in .pkl or .pickle is pickled, .safetensors goes through that package, and the rest through torch.save
    where torch is loaded, or pickle. The temporary name ends like `path`. What was written is read again and compared
    before it takes the place of the former file, which stays whole whatever fails. A link is followed. `describe` gets
    the facts before the rename; its faults become ``problems`` and nothing more.

    Raises CheckpointError, with the path and the cause; interruptions pass as they are.
    """
    started_ns = mono_ns()
    shown = os.fspath(path)
    target = Path(os.path.realpath(shown))
    temporary = unfinished_path(target)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        clear_leftovers(target, wall_ns())
        format_name, checksum, checks = _write_and_check(temporary, target, obj, save)
        facts: dict[str, Any] = {
            "path": str(target),
            "kind": "folder" if temporary.is_dir() else "file",
            "format": format_name,
            "size": checksum.size,
            "sha256": checksum.value,
            "checks": checks,
        }
        if checksum.files:
            facts["files"] = checksum.files
        if describe is not None:
            try:
                describe(facts)
            except Exception as fault:  # noqa: BLE001 - telemetry must not keep the model from being saved
                facts.setdefault("problems", []).append(f"its context was not kept: {fault}")
        _publish(temporary, target)
    except CheckpointError:
        raise
    except Exception as fault:
        cause = f"{type(fault).__name__}: {fault}"
        raise CheckpointError(f"{shown} was not saved, the former one is as it was: {cause}") from fault
    finally:
        _discard(temporary)
        mark_done(temporary)
    facts["duration_s"] = (mono_ns() - started_ns) / clock.NS_PER_S
    return facts


def _write_and_check(
    temporary: Path, target: Path, obj: Any, save: Callable[[Any, str], Any] | None
) -> tuple[str, Checksum, list[str]]:
    written: str | None = None
    writer = Writer("custom", save, to_path=True) if save is not None else choose_writer(target, obj)
    if writer.to_path:
        writer.write(obj, str(temporary))
        if not os.path.lexists(temporary):
            raise CheckpointError(
                f"{target} was not saved: save(obj, path) returned, yet nothing is at the path it was given "
                f"({temporary.name}); write exactly there"
            )
        if temporary.is_dir():
            return writer.format_name, *_check_folder(temporary, target)
        # Windows flushes only what is open for writing; a writer may have made its file read-only.
        with open(temporary, "rb+" if sys.platform == "win32" else "rb") as handle:
            _sync(handle.fileno())
    else:
        stream = HashingFile(temporary)
        try:
            writer.write(obj, stream)
            written = stream.close()
        finally:
            stream.abandon()
    checksum = file_checksum(temporary, whole_bytes=_WHOLE)
    if checksum.size == 0:
        raise CheckpointError(f"{target} was not saved, the former one is as it was: the new file is empty")
    checks = ["size", "sha256"]
    if written is not None and (written, stream.size) != (checksum.value, checksum.size):
        raise CheckpointError(
            f"{target} was not saved, the former one is as it was: {stream.size} bytes with SHA-256 {written} were "
            f"written, {checksum.size} bytes with {checksum.value} were read back"
        )
    # What went through our hands was compared byte for byte already.
    problem = check_content(temporary, checks, read_all=written is None)
    if problem:
        raise CheckpointError(f"{target} was not saved, the former one is as it was: {problem}")
    return writer.format_name, checksum, checks


def _check_folder(temporary: Path, target: Path) -> tuple[Checksum, list[str]]:
    for folder, _, names in os.walk(temporary):
        for name in names:
            with open(os.path.join(folder, name), "rb") as handle:
                _sync(handle.fileno())
        sync_folder(Path(folder))
    checksum = folder_checksum(temporary, whole_bytes=_WHOLE)
    if checksum.size == 0:
        raise CheckpointError(f"{target} was not saved, the former one is as it was: the new folder is empty")
    return checksum, ["size", "sha256"]


def _publish(temporary: Path, target: Path) -> None:
    """Put the checked file or folder in the place of the former one, in one step where the system has such a step."""
    if not temporary.is_dir():
        if target.is_file():
            # A team's group-writable file stays one.
            os.chmod(temporary, os.stat(target).st_mode & 0o7777)
        os.replace(temporary, target)
    elif os.path.lexists(target):
        # A folder cannot be renamed onto a full one. Between the two renames the former one has another name, which
        # the next save or `clear_leftovers` puts right.
        former = former_path(target)
        os.rename(target, former)
        try:
            os.rename(temporary, target)
        except BaseException:
            os.rename(former, target)
            raise
        _discard(former)
    else:
        os.rename(temporary, target)
    sync_folder(target.parent)


def _discard(path: Path) -> None:
    try:
        if path.is_dir() and not path.is_symlink():
            import shutil

            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
    except OSError:
        pass


def _sync(descriptor: int) -> None:
    try:
        os.fsync(descriptor)
    except OSError as fault:
        if fault.errno not in _NO_SYNC:
            raise
