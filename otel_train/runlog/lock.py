"""Marks a rank's folder as being written, in a way that ends with the process however it dies."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from otel_train import clock
from otel_train.runlog.processes import Processes

fcntl: Any
msvcrt: Any
try:
    import fcntl
except ImportError:  # Windows
    fcntl = None
try:
    import msvcrt
except ImportError:  # everywhere else
    msvcrt = None

WRITER_LOCK = "writer.lock"
# Windows keeps others from reading a locked range, so the locked byte lies far behind the text.
_LOCKED_BYTE = 1 << 30
_FLAGS = os.O_RDWR | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOINHERIT", 0)


class WriterLock:
    """An exclusive lock on a folder, held by one process at a time.

    The file holds the owner's process id and start, which is what counts where a file system has no locks.
    """

    def __init__(self, folder: Path, name: str = WRITER_LOCK, processes: Processes | None = None) -> None:
        self.path = folder / name
        self._processes = processes or Processes()
        self._descriptor = -1

    @property
    def held(self) -> bool:
        """Whether this object holds the lock."""
        return self._descriptor >= 0

    def acquire(self, timeout_s: float = 0.2) -> bool:
        """Take the lock; False where another process has it. OSError where the file cannot be made."""
        descriptor = os.open(self.path, _FLAGS | os.O_CREAT, 0o644)
        try:
            # A reader that looks whether the folder is locked holds the lock for microseconds: so a few tries.
            tries = max(1, round(timeout_s / 0.02))
            for turn in range(tries):
                if self._take(descriptor):
                    self._sign(descriptor)
                    self._descriptor = descriptor
                    return True
                if turn < tries - 1:
                    clock.sleep(0.02)
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
        return False

    def release(self) -> None:
        """Give the lock back; the file stays, since removing it would let two others lock two files."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor < 0:
            return
        try:
            _truncate(descriptor)
            _unlock(descriptor)
        except OSError:
            pass
        finally:
            os.close(descriptor)

    def abandon(self) -> None:
        """In a forked child: close the descriptor without unlocking, for the lock is the parent's."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            try:
                os.close(descriptor)
            except OSError:
                pass

    def _take(self, descriptor: int) -> bool:
        locked = _try_lock(descriptor)
        if locked is None:
            return not _owner_alive(descriptor, self._processes)
        return locked

    def _sign(self, descriptor: int) -> None:
        pid = os.getpid()
        started = self._processes.started(pid)
        try:
            _truncate(descriptor)
            os.write(descriptor, f"{pid} {'' if started is None else started}\n".encode())
        except OSError:
            # A full disk: the lock itself holds all the same.
            pass


def is_locked(folder: Path, name: str = WRITER_LOCK, processes: Processes | None = None) -> bool | None:
    """Return whether some process is writing in the folder; None where there has never been a lock."""
    try:
        descriptor = os.open(folder / name, _FLAGS)
    except PermissionError:
        try:
            descriptor = os.open(folder / name, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
        except OSError:
            return None
    except OSError:
        return None
    try:
        locked = _try_lock(descriptor, shared=True)
        if locked is None:
            return _owner_alive(descriptor, processes or Processes())
        if locked:
            _unlock(descriptor)
        return not locked
    except OSError:
        return None
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int, *, shared: bool = False) -> bool | None:
    """Return whether the lock was taken; None where the file system knows no locks."""
    if fcntl is not None:
        try:
            fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:
            return None
        return True
    if msvcrt is not None:
        return _try_lock_windows(descriptor)
    return None


def _try_lock_windows(descriptor: int) -> bool:
    os.lseek(descriptor, _LOCKED_BYTE, os.SEEK_SET)
    try:
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
    except OSError:
        return False
    return True


def _unlock(descriptor: int) -> None:
    if fcntl is not None:
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    elif msvcrt is not None:
        os.lseek(descriptor, _LOCKED_BYTE, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_UNLCK, 1)


def _truncate(descriptor: int) -> None:
    os.lseek(descriptor, 0, os.SEEK_SET)
    os.ftruncate(descriptor, 0)


def _owner_alive(descriptor: int, processes: Processes) -> bool:
    os.lseek(descriptor, 0, os.SEEK_SET)
    words = os.read(descriptor, 200).decode("ascii", "replace").split()
    if not words or not words[0].isdigit():
        return False
    started = float(words[1]) if len(words) > 1 else None
    return processes.alive(int(words[0]), started)
