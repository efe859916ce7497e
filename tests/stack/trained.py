"""Trains the digits example as a person would, with a sender to the stack, and tells what it wrote."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.stack.expected import Expected, expected_of
from tests.stack.programs import REPOSITORY


@dataclass(frozen=True)
class Trained:
    """A run that has ended: its folder, the process's output and exit code."""

    path: Path
    code: int
    output: str

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self.path.name

    def expected(self) -> Expected:
        """What stores must hold of it."""
        return expected_of(self.path)

    def sent(self, signal: str) -> dict[str, int]:
        """The account of what was sent of a signal, over all ranks, as it is kept beside the run log."""
        total: dict[str, int] = {}
        for path in self.path.glob("attempt-*/rank-*/sent.json"):
            for destination in json.loads(path.read_text())["signals"].get(signal, {}).values():
                for outcome, count in destination["counts"].items():
                    total[outcome] = total.get(outcome, 0) + count
        return total


def environment(**variables: str) -> dict[str, str]:
    """Return an environment without anybody's telemetry settings but these."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "PYTEST_"))}
    return inherited | {"OTEL_TRAIN_GIT": "0"} | variables


def start_digits(folder: Path, *arguments: str, **variables: str) -> subprocess.Popen[str]:
    """Start the digits example; its runs are in `folder`/runs."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, str(REPOSITORY / "examples" / "digits.py"), *arguments, "--dir", "runs"]
    return subprocess.Popen(
        [*command, "--output", "out"],
        cwd=folder,
        env=environment(**variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def end_of(process: subprocess.Popen[str], folder: Path, timeout_s: float = 110.0) -> Trained:
    """Wait for the example's end; AssertionError where it does not come."""
    try:
        output, _ = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        output, _ = process.communicate()
        raise AssertionError(f"the example did not end in {timeout_s:g} s:\n{output}") from None
    return Trained(run_folder(folder), process.returncode, output)


def run_folder(folder: Path) -> Path:
    """The only run's folder."""
    (path,) = (entry for entry in (folder / "runs").iterdir() if not entry.name.startswith("."))
    return path


def push(*arguments: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run `otel-train push` to its end."""
    command = [sys.executable, "-m", "otel_train.cli.main", "push", *map(str, arguments)]
    return subprocess.run(
        command, cwd=REPOSITORY, env=environment(**variables), capture_output=True, text=True, timeout=110, check=False
    )
