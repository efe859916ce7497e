"""The lock is held by one process, ends with it however it dies, and is never dropped by a forked child."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from runlog_lines import FakeProcesses

from otel_train.runlog import lock as lock_module
from otel_train.runlog.lock import WriterLock, is_locked

HOLDER = """
import sys
from pathlib import Path
from otel_train.runlog.lock import WriterLock
lock = WriterLock(Path(sys.argv[1]))
print(lock.acquire(), flush=True)
sys.stdin.read()
"""


def hold(folder: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "True\n"
    return process


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout):
        assert stream is not None
        stream.close()


def test_a_folder_without_a_lock_says_nothing(tmp_path: Path) -> None:
    """None, where there has never been a writer, is told from False."""
    assert is_locked(tmp_path) is None
    lock = WriterLock(tmp_path)
    assert lock.acquire()
    assert lock.held
    assert is_locked(tmp_path) is True
    assert not WriterLock(tmp_path).acquire(timeout_s=0)
    lock.release()
    assert is_locked(tmp_path) is False
    assert WriterLock(tmp_path).acquire() is True


def test_looking_does_not_keep_a_writer_out(tmp_path: Path) -> None:
    """A reader that asks at the same moment delays a writer by milliseconds at most."""
    WriterLock(tmp_path).acquire()
    for _ in range(50):
        is_locked(tmp_path)
    lock = WriterLock(tmp_path)
    assert not lock.held
    lock.release()
    lock.abandon()


@pytest.mark.slow
def test_a_killed_holder_holds_nothing(tmp_path: Path) -> None:
    """Another process holds it, kill -9, and it is free."""
    holder = hold(tmp_path)
    try:
        assert is_locked(tmp_path) is True
        assert not WriterLock(tmp_path).acquire(timeout_s=0.05)
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        assert is_locked(tmp_path) is False
        lock = WriterLock(tmp_path)
        assert lock.acquire()
        lock.release()
    finally:
        end(holder)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_leaves_the_lock_with_its_parent(tmp_path: Path) -> None:
    """The child lets go of its copy without unlocking, and its end unlocks nothing."""
    lock = WriterLock(tmp_path)
    assert lock.acquire()
    pid = os.fork()
    if pid == 0:
        lock.abandon()
        os._exit(0 if is_locked(tmp_path) and not lock.held else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert is_locked(tmp_path) is True
    lock.release()
    assert is_locked(tmp_path) is False


class NoLocks:
    """A file system that knows no locks, as some network ones do."""

    LOCK_SH = LOCK_EX = LOCK_NB = LOCK_UN = 0

    @staticmethod
    def flock(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))


@pytest.mark.parametrize("fcntl", [None, NoLocks])
def test_without_locks_the_owners_process_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fcntl: Any) -> None:
    """The file names its owner; when that process is gone the folder is free."""
    monkeypatch.setattr(lock_module, "fcntl", fcntl)
    lock = WriterLock(tmp_path)
    assert lock.acquire()
    assert (tmp_path / "writer.lock").read_text().split()[0] == str(os.getpid())
    assert is_locked(tmp_path) is True
    assert not WriterLock(tmp_path).acquire(timeout_s=0)
    assert is_locked(tmp_path, processes=FakeProcesses(alive=False)) is False
    assert WriterLock(tmp_path, processes=FakeProcesses(alive=False)).acquire()
    lock.release()
    assert is_locked(tmp_path) is False
    (tmp_path / "writer.lock").write_text("nonsense\n")
    assert is_locked(tmp_path) is False


def test_a_folder_that_is_gone_is_an_error_for_the_writer_only(tmp_path: Path) -> None:
    """Who wants to write is told; who looks is not."""
    with pytest.raises(FileNotFoundError):
        WriterLock(tmp_path / "gone").acquire()
    assert is_locked(tmp_path / "gone") is None
