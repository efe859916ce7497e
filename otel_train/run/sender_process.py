"""Starts the sender of one rank as a process of its own, which lives on when the training is killed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import otel_train
from otel_train.clock import NS_PER_S, mono_ns, sleep
from otel_train.run.opening import Opened

POLL_S = 0.02


class SenderProcess:
    """`otel-train push --follow` for one rank's folder, detached: neither Ctrl-C nor our end reaches it."""

    def __init__(self, opened: Opened, rank: int, environ: Mapping[str, str]) -> None:
        folder = opened.folder.path
        places = [f"--attempt={opened.attempt}", f"--rank={rank}", f"--log={opened.rank_folder}"]
        # Nothing of the parent's is inherited: whoever reads its output waits for its end, and not for this one's.
        self._process = subprocess.Popen(
            [sys.executable, "-m", "otel_train.cli.main", "push", "--follow", str(folder), *places],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**environ, "PYTHONPATH": _path(environ)},
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def ended(self) -> bool:
        """Whether it has ended, by itself or otherwise."""
        return self._process.poll() is not None

    @property
    def sent_all(self) -> bool:
        """Whether it has ended and nothing is left."""
        return self._process.poll() == 0

    def wait(self, until_ns: int) -> bool:
        """Wait for its end, which comes when all is sent; False where it is not over by this monotonic time."""
        while not self.ended:
            left_ns = until_ns - mono_ns()
            if left_ns <= 0:
                return False
            sleep(min(POLL_S, left_ns / NS_PER_S))
        return True

    def leave(self) -> None:
        """Let it go on by itself, without Python's warning that it was not waited for."""
        if self._process.returncode is None:
            self._process.returncode = 0


def _path(environ: Mapping[str, str]) -> str:
    """Return where Python looks, with this package first: it may have been found by a path of the script's own."""
    package = str(Path(otel_train.__file__).parent.parent)
    return os.pathsep.join([package, *filter(None, [environ.get("PYTHONPATH")])])
