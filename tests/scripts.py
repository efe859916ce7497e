"""Starts programs as a user would, and says which runs and threads are left."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any


def own_threads(patience_s: float = 0.0) -> list[str]:
    """Return otel-train's threads that still live after this time, each with what it does."""
    until_s = time.monotonic() + patience_s
    while True:
        threads = [thread for thread in threading.enumerate() if thread.name.startswith("otel-train")]
        if not threads or time.monotonic() >= until_s:
            frames = sys._current_frames()
            return [f"{thread.name}:\n{_stack(frames.get(thread.ident or 0))}" for thread in threads]
        time.sleep(0.005)  # between two looks; the loop ends as soon as the threads have


def _stack(frame: FrameType | None) -> str:
    return "".join(traceback.format_stack(frame)) if frame is not None else "has ended"


@dataclass
class Script:
    """A program that has ended, and the runs that it left."""

    code: int
    output: str
    errors: str
    root: Path
    seconds: float

    @property
    def paths(self) -> list[Path]:
        """The run folders, oldest first."""
        return run_paths(self.root)

    @property
    def path(self) -> Path:
        """The only run's folder."""
        (path,) = self.paths
        return path


def run_paths(root: Path) -> list[Path]:
    """Return the run folders in a root, oldest first."""
    return sorted(path for path in root.iterdir() if path.is_dir() and not path.name.startswith("."))


class Scripts:
    """Starts programs in a folder of the test's own, as a user would: without pytest's variables."""

    def __init__(self, folder: Path, root: Path) -> None:
        self.folder = folder
        self.root = root
        self._started: list[Any] = []

    def popen(self, text: str, *arguments: str, env: dict[str, str] | None = None, **options: Any) -> Any:
        path = self.folder / f"train_{len(list(self.folder.glob('train_*.py')))}.py"
        path.write_text(textwrap.dedent(text), encoding="utf-8")
        variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        variables |= {
            "OTEL_TRAIN_DIR": str(self.root),
            "OTEL_TRAIN_GIT": "0",
            "OTEL_TRAIN_SAMPLE_MACHINE": "0",
            "PYTHONPATH": str(Path(__file__).parent.parent),
            **(env or {}),
        }
        process = subprocess.Popen(
            [sys.executable, "-W", "default", str(path), *arguments],
            cwd=self.folder,
            env=variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **options,
        )
        self._started.append(process)
        return process

    def stop_all(self) -> None:
        """End what a failed test has left."""
        for process in self._started:
            if process.poll() is None:
                process.kill()
            process.communicate()

    def end(self, process: Any, timeout_s: float = 60.0) -> Script:
        start_s = time.monotonic()
        try:
            output, errors = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            output, errors = process.communicate()
            raise AssertionError(f"the program did not end in {timeout_s} s: {output}{errors}") from None
        return Script(process.returncode, output, errors, self.root, time.monotonic() - start_s)

    def __call__(self, text: str, *arguments: str, env: dict[str, str] | None = None, **options: Any) -> Script:
        return self.end(self.popen(text, *arguments, env=env, **options))
