"""Keeps tests apart: no variables of launchers or users, a root folder of their own, no run or thread left behind."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

FOREIGN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "GROUP_RANK", "MASTER_ADDR")
FOREIGN += ("MASTER_PORT", "TRACEPARENT", "TRACESTATE", "ENVIRONMENT", "PYTHONHASHSEED")
FOREIGN_PREFIXES = ("OTEL_", "SLURM_", "OMPI_", "PMI", "MV2_", "MPI_", "TORCHELASTIC_", "KUBERNETES_", "HF_")


def is_foreign(name: str) -> bool:
    return name in FOREIGN or name.startswith(FOREIGN_PREFIXES)


@pytest.fixture(autouse=True)
def own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No variable of a launcher, or of the user's own set-up, reaches a test."""
    for name in list(os.environ):
        if is_foreign(name):
            monkeypatch.delenv(name)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of this test's runs, which `init()` finds by itself."""
    folder = tmp_path / "runs"
    monkeypatch.setenv("OTEL_TRAIN_DIR", str(folder))
    return folder


@pytest.fixture(autouse=True)
def finish_all() -> Iterator[None]:
    """End what a test has left open, and fail it: the next test must not record into it."""
    yield
    current = sys.modules.get("otel_train.run.current")
    if current is None:
        return
    left = current.open_runs()
    for run in left:
        run.finish()
    threads = own_threads(patience_s=3.0)
    assert not left, f"the test left runs open: {left}"
    assert not threads, f"the test left threads: {threads}"


def own_threads(patience_s: float = 0.0) -> list[str]:
    """Return the names of otel-train's threads that still live after this time."""
    until_s = time.monotonic() + patience_s
    while True:
        names = [thread.name for thread in threading.enumerate() if thread.name.startswith("otel-train")]
        if not names or time.monotonic() >= until_s:
            return names
        time.sleep(0.005)  # between two looks; the loop ends as soon as the threads have


@pytest.fixture
def start(root: Path) -> Iterator[Callable[..., Any]]:
    """`otel_train.init` without what costs time; the runs are ended with the test."""
    import otel_train

    made: list[Any] = []

    def start(**arguments: Any) -> Any:
        made.append(otel_train.init(**{"git": False, "sample_machine": False, **arguments}))
        return made[-1]

    yield start
    for run in made:
        run.finish()


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


@pytest.fixture
def scripts(tmp_path: Path, root: Path) -> Iterator[Scripts]:
    """Run programs: `scripts(text)` gives exit code, output and the runs they left."""
    folder = tmp_path / "work"
    folder.mkdir()
    made = Scripts(folder, root)
    yield made
    made.stop_all()
