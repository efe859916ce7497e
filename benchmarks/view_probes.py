"""What benchmarks/view.py measures with: programs that listen on a port, and a training to follow."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil

HERE = Path(__file__).parent
PATIENCE_S = 120.0
# What a logger of the user's writes in one step of the training that is followed.
LIVE_METRICS, LIVE_STEPS_A_SECOND = 10, 100


class Program:
    """A server process on a port of 127.0.0.1, started fresh and ended with its children."""

    def __init__(self, command: Sequence[str], port: int) -> None:
        self.port = port
        self.address = f"http://127.0.0.1:{port}"
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `stop`
        environ = {key: value for key, value in os.environ.items() if not key.startswith("OTEL_")}
        self._process = subprocess.Popen(
            command, stdout=self._log, stderr=self._log, stdin=subprocess.DEVNULL, env=environ, start_new_session=True
        )
        self._started_s = time.perf_counter()
        self._own = psutil.Process(self._process.pid)
        self._peaks: dict[int, float] = {}

    def await_port(self) -> None:
        """Wait until it takes connections; RuntimeError with what it printed where it ends before."""
        until_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < until_s:
            if self._process.poll() is not None:
                break
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return
            time.sleep(0.01)
        self._log.seek(0)
        raise RuntimeError(f"{self._process.args} does not listen:\n{self._log.read().decode(errors='replace')}")

    def age_s(self) -> float:
        """Return the seconds since its command was started."""
        return time.perf_counter() - self._started_s

    def tree(self) -> list[psutil.Process]:
        """Return the process and its children."""
        with contextlib.suppress(psutil.NoSuchProcess):
            return [self._own, *self._own.children(recursive=True)]
        return []

    def cpu_s(self) -> float:
        """Return the CPU seconds of the process and its children so far, those that have ended among them."""
        total = 0.0
        for process in self.tree():
            with contextlib.suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                total += times.user + times.system + times.children_user + times.children_system
        return total

    def peak_mib(self) -> float:
        """Return the most memory that the process and its children held, each at its own peak, in MiB."""
        for process in self.tree():
            with contextlib.suppress(OSError, StopIteration):
                with open(f"/proc/{process.pid}/status", encoding="utf-8") as file:
                    line = next(line for line in file if line.startswith("VmHWM:"))
                self._peaks[process.pid] = int(line.split()[1]) / 1024
        return sum(self._peaks.values())

    def stop(self) -> None:
        """End it and its children."""
        left = self.tree()
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.terminate()
        _, alive = psutil.wait_procs(left, timeout=10)
        for process in alive:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self._process.wait()
        self._log.close()


def free_port() -> int:
    """Return a port that nobody has now."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port: int = held.getsockname()[1]
        return port


@contextlib.contextmanager
def running(command: Callable[[int], Sequence[str]]) -> Iterator[Program]:
    """Start a program for a free port, wait until it listens, and end it."""
    port = free_port()
    program = Program(command(port), port)
    try:
        program.await_port()
        yield program
    finally:
        program.stop()


def get_json(address: str) -> Any:
    """Return the JSON at an address."""
    with urllib.request.urlopen(address, timeout=PATIENCE_S) as answer:
        return json.load(answer)


@contextlib.contextmanager
def training(folder: Path, python: str, *, writer: str) -> Iterator[None]:
    """Have a process log ten metrics 100 times a second into a folder; `writer` is otel-train or tensorboard."""
    script = HERE / ("view_tensorboard.py" if writer == "tensorboard" else "view_probes.py")
    process = subprocess.Popen(
        [python, str(script), "live", str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        if not process.stdout.readline():
            raise RuntimeError(f"the training of {writer} did not start")
        yield
    finally:
        process.communicate()  # the end of its input ends it


def live_values(step: int) -> dict[str, float]:
    """Return what is logged at a step of the training that is followed."""
    return {f"metric{number}": 1 / (step + number + 1) for number in range(LIVE_METRICS)}


def pace(write: Callable[[int], None]) -> None:
    """Call once for each step, 100 times a second by the clock, until standard input ends."""
    import select

    print("started", flush=True)
    start_s, step = time.monotonic(), 0
    while not select.select([sys.stdin], [], [], 0)[0]:
        write(step)
        step += 1
        time.sleep(max(0.0, start_s + step / LIVE_STEPS_A_SECOND - time.monotonic()))


def live(folder: str) -> None:
    """Train with otel-train until standard input ends."""
    import otel_train

    with otel_train.init("bench", dir=folder, git=False) as run:
        pace(lambda step: run.log(live_values(step), step=step))


if __name__ == "__main__":
    assert sys.argv[1] == "live"
    live(sys.argv[2])
