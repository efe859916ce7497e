"""Runs `git` with one deadline, a bound on what is kept, and nothing that could prompt, lock or connect."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import IO, Final, cast

from otel_train.clock import NS_PER_S, Clock

_KEPT_BYTES: Final = 8 << 20
_CHUNK_BYTES: Final = 1 << 16
# A hook's or another tool's idea of which repository this is would hide the script's own.
_DROPPED: Final = (
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_COMMON_DIR",
    "GIT_NAMESPACE",
    "GIT_PREFIX",
    "GIT_EXTERNAL_DIFF",
)
_SET: Final = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_NO_LAZY_FETCH": "1",
    # No transport has this name, so a partial clone cannot fetch what it lacks.
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_ASKPASS": "",
    "SSH_ASKPASS": "",
    "GIT_PAGER": "cat",
    "LC_ALL": "C",
}
# A monitor of the file system would be started as a program of its own.
_OPTIONS: Final = ("-c", "core.fsmonitor=false", "-c", "core.quotePath=false", "-c", "diff.noprefix=false")


class GitFault(Exception):  # noqa: N818 - never seen outside
    """Git is missing, refused, or took too long; the text says which."""


class GitTimeout(GitFault):
    """Git took longer than all calls together may."""


class NoRepository(GitFault):
    """The folder is in no git work tree."""


@dataclass(frozen=True, slots=True)
class Output:
    """What a call printed: the first bytes, the size of all, and the digest of all."""

    kept: bytes
    size: int
    sha256: str


class Git:
    """Calls of one `git` in one folder; `timeout_s` is for all of them together."""

    def __init__(self, program: str, folder: str, environ: Mapping[str, str], timeout_s: float, clock: Clock) -> None:
        self.folder = folder
        self._program = program
        self._environ = {
            key: value for key, value in environ.items() if key not in _DROPPED and not key.startswith("GIT_TRACE")
        } | _SET
        self._clock = clock
        self._timeout_s = timeout_s
        self._deadline_ns = clock.mono_ns() + round(timeout_s * NS_PER_S)

    def text(self, *arguments: str) -> str:
        """Return what the call prints, at most 8 MiB of it. Raises GitFault."""
        return self.output(*arguments, keep=_KEPT_BYTES).kept.decode("utf-8", "replace")

    def output(self, *arguments: str, keep: int) -> Output:
        """Return the first `keep` bytes of what the call prints, and size and digest of everything. Raises GitFault."""
        left_s = (self._deadline_ns - self._clock.mono_ns()) / NS_PER_S
        if left_s <= 0:
            raise GitTimeout(f"git took longer than {self._timeout_s:g} s")
        try:
            process = subprocess.Popen(
                [self._program, *_OPTIONS, *arguments],
                cwd=self.folder,
                env=self._environ,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                # A session of its own: its filters can be stopped with it, and Ctrl-C in training does not reach it.
                start_new_session=True,
                creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
            )
        except FileNotFoundError:
            raise GitFault("git is not installed, or the folder is gone") from None
        except (OSError, ValueError) as fault:
            raise GitFault(f"git could not be started: {fault}") from None
        return self._collect(process, arguments[0], keep, left_s)

    def _collect(self, process: subprocess.Popen[bytes], what: str, keep: int, left_s: float) -> Output:
        late = threading.Event()

        def stop() -> None:
            late.set()
            _kill(process)

        stdout, stderr = cast(IO[bytes], process.stdout), cast(IO[bytes], process.stderr)
        errors: list[bytes] = []
        timer = threading.Timer(left_s, stop)
        reader = threading.Thread(target=lambda: errors.append(stderr.read()), daemon=True)
        timer.daemon = True
        with process:
            timer.start()
            reader.start()
            kept, size, digest = bytearray(), 0, hashlib.sha256()
            while chunk := stdout.read(_CHUNK_BYTES):
                digest.update(chunk)
                kept += chunk[: keep - len(kept)]
                size += len(chunk)
            reader.join()
            process.wait()
            timer.cancel()
        if late.is_set():
            raise GitTimeout(f"git took longer than {self._timeout_s:g} s ({what})")
        if process.returncode:
            raise _fault(b"".join(errors).decode("utf-8", "replace").strip(), what)
        return Output(bytes(kept), size, digest.hexdigest())


def _kill(process: subprocess.Popen[bytes]) -> None:
    try:
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    except OSError:
        pass  # it has just ended


def _fault(message: str, what: str) -> GitFault:
    if "dubious ownership" in message:
        return GitFault(
            "git refuses the folder because another user owns it; allow it with "
            "`git config --global --add safe.directory FOLDER`"
        )
    if "not a git repository" in message or "must be run in a work tree" in message:
        return NoRepository("the folder is in no git work tree")
    first = message.splitlines()[0] if message else "no message"
    return GitFault(f"git {what} failed: {first[:300]}")
