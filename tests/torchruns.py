"""Starts trainings of several processes by the real torchrun, with faults planted in one rank, and reads their run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from otel_train.runlog.folder import RunFolder
from otel_train.runlog.lock import is_locked
from otel_train.runlog.processes import Processes
from tests.conftest import is_foreign
from tests.scripts import run_paths

REPOSITORY = Path(__file__).parent.parent
DIGITS_DDP = REPOSITORY / "examples" / "digits_ddp.py"
FAULTY_RANK = REPOSITORY / "tests" / "faulty_rank.py"


class Torchrun:
    """One launch on this host. Its processes are a group of their own, which `kill` ends as a scheduler does."""

    def __init__(self, folder: Path, *command: str | Path, ranks: int = 4, restarts: int = 0, **variables: str) -> None:
        self.root = folder / "runs"
        environ = {key: value for key, value in os.environ.items() if not is_foreign(key)}
        environ |= {
            "OTEL_TRAIN_DIR": str(self.root),
            "OTEL_TRAIN_GIT": "0",
            "OTEL_TRAIN_SAMPLE_MACHINE": "0",
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(REPOSITORY),
            # torch 2.15: with the agent's store, processes that are started anew find the addresses of the dead ones.
            "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
            **variables,
        }
        options = ("--nproc-per-node", str(ranks), "--max-restarts", str(restarts))
        self._output = open(folder / "output.txt", "w+", encoding="utf-8")  # noqa: SIM115 - until `end`
        self._process = subprocess.Popen(
            [sys.executable, "-m", "torch.distributed.run", *options, *map(str, command)],
            cwd=folder,
            env=environ,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    @property
    def output(self) -> str:
        """What all processes have printed so far."""
        return Path(self._output.name).read_text(encoding="utf-8", errors="replace")

    @property
    def path(self) -> Path:
        """The folder of the only run."""
        (path,) = run_paths(self.root)
        return path

    def end(self, timeout_s: float) -> int:
        """Wait for the end and return the exit code."""
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"no end within {timeout_s} s: {self.output[-5000:]}") from None
        finally:
            self.kill()

    def wait_for(self, seen: Callable[[RunFolder], bool], timeout_s: float) -> None:
        """Wait until something is seen in the run's folder."""
        until_s = time.monotonic() + timeout_s
        while time.monotonic() < until_s:
            if self.root.is_dir() and len(run_paths(self.root)) == 1 and seen(RunFolder(self.path)):
                return
            assert self._process.poll() is None, self.output[-5000:]
            time.sleep(0.25)  # between two looks; the loop ends as soon as it is seen
        raise AssertionError(f"not seen within {timeout_s} s: {self.output[-5000:]}")

    def kill(self) -> None:
        """End all processes at once, without a word to them."""
        # torchrun gives its workers sessions of their own, so by their parent.
        children = subprocess.run(
            ["pgrep", "-P", str(self._process.pid)], capture_output=True, text=True, check=False
        ).stdout.split()
        pids = [int(pid) for pid in (*children, self._process.pid)]
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self._process.wait()
        until_s = time.monotonic() + 20
        while self._lives(pids) and time.monotonic() < until_s:
            time.sleep(0.02)  # until the system has ended them
        self._output.close()

    def _lives(self, pids: list[int]) -> bool:
        """Whether one of the processes is there, or a last thread that holds its lock when its first is gone."""
        runs = [RunFolder(path) for path in run_paths(self.root)] if self.root.is_dir() else []
        locked = any(is_locked(folder) for run in runs for _, _, folder in run.rank_folders())
        return locked or any(Processes().started(pid) is not None for pid in pids)


def faulty(folder: Path, fault: str, *arguments: str, epochs: int = 3, restarts: int = 0, **variables: str) -> Torchrun:
    """Start the digits example on four ranks, one of them with a fault; see `faulty_rank`."""
    command = (FAULTY_RANK, fault, DIGITS_DDP, "--epochs", str(epochs), *arguments)
    return Torchrun(folder, *command, restarts=restarts, **variables)
