"""Tries whether a root folder can hold runs: rights, room, and whether locks work on its file system."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from otel_train.runlog.lock import WriterLock, is_locked

# A fresh interpreter on a busy machine.
LOOK_TIMEOUT_S: Final = 20.0
PREFIX: Final = ".otel-train-doctor-"
_LOOK: Final = (
    "import sys; from pathlib import Path; from otel_train.runlog.lock import is_locked; "
    "sys.exit(11 if is_locked(Path(sys.argv[1])) else 12)"
)
_SEEN_LOCKED, _SEEN_OPEN = 11, 12


@dataclass(frozen=True, slots=True)
class RootProbe:
    """What was found. `tried` is the root, or the nearest folder above it that is there.

    `fault` says what forbids runs there, and is empty where nothing does.

    `locks` is "work", "unseen" (another process does not see one that is held), "stay" (a lock given back is still
    seen), or "" where that could not be tried. `free_files` is None where the file system does not count them.
    """

    root: Path
    tried: Path
    fault: str = ""
    free_bytes: int | None = None
    free_files: int | None = None
    locks: str = ""
    lock_fault: str = ""

    @property
    def exists(self) -> bool:
        """Whether the root is there already."""
        return self.root == self.tried


def probe_root(root: Path) -> RootProbe:
    """Write, lock and remove a folder of our own in the root, or where the root would be made; nothing stays."""
    tried = root
    while not tried.exists() and tried != tried.parent:
        tried = tried.parent
    if not tried.is_dir():
        return RootProbe(root, tried, "is a file")
    if not os.access(tried, os.R_OK | os.X_OK):
        return RootProbe(root, tried, "cannot be read")
    free_bytes, free_files = _room(tried)
    try:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=tried))
    except OSError as fault:
        return RootProbe(root, tried, f"cannot be written ({fault.strerror})", free_bytes, free_files)
    try:
        (folder / "line").write_bytes(b"{}\n" * 1000)
        locks, lock_fault = _try_lock(folder)
    except OSError as fault:
        return RootProbe(root, tried, f"cannot be written ({fault.strerror})", free_bytes, free_files)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return RootProbe(root, tried, "", free_bytes, free_files, locks, lock_fault)


def _room(folder: Path) -> tuple[int | None, int | None]:
    try:
        free_bytes: int | None = shutil.disk_usage(folder).free
    except OSError:
        free_bytes = None
    try:
        counted = os.statvfs(folder)
        free_files = counted.f_favail if counted.f_files else None
    except (OSError, AttributeError):  # Windows has none
        free_files = None
    return free_bytes, free_files


def _try_lock(folder: Path) -> tuple[str, str]:
    """Hold a lock and let another process look: within one, some network file systems see their own locks never."""
    lock = WriterLock(folder)
    if not lock.acquire():
        return "unseen", "the lock of a folder that nobody else knows could not be taken"
    try:
        seen = _look(folder)
    finally:
        lock.release()
    if isinstance(seen, str):
        return "", seen
    if not seen:
        return "unseen", "another process does not see a lock that is held"
    if is_locked(folder):
        return "stay", "a lock that was given back is still seen"
    return "work", ""


def _look(folder: Path) -> bool | str:
    """Return whether another process sees the lock; a text says why it could not look."""
    package = str(Path(__file__).parents[2])
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH")]))}
    try:
        done = subprocess.run(
            [sys.executable, "-c", _LOOK, str(folder)],
            env=environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=LOOK_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as fault:
        return f"no second process could look at a lock ({fault})"
    if done.returncode not in (_SEEN_LOCKED, _SEEN_OPEN):
        return f"a second process that was to look at a lock ended with code {done.returncode}"
    return done.returncode == _SEEN_LOCKED
