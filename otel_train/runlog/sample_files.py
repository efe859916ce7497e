"""Keeps the files of checked samples in the run's folder, within a bound on their number and bytes.

<run>/artifacts/samples/<split>/step-000000500/check.json     the check's values, and what the other files are
                                              /0.png …        the samples
Ranks other than 0 that keep files have theirs below `rank-<n>`.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

FOLDER: Final = ("artifacts", "samples")
DESCRIPTION: Final = "check.json"
# Of each split the first check and the newest are kept; older ones give way.
NEWEST_CHECKS: Final = 9
# Bytes of all samples of a run and rank: beyond it the oldest give way, the first of each split last.
MOST_BYTES: Final = 64_000_000

_STEP: Final = re.compile(r"step-(\d+)")
_NOT_IN_A_NAME: Final = re.compile(r"[^A-Za-z0-9_.-]")


def folder_name(split: str) -> str:
    """Return a split as the name of a folder, which leads to no other place."""
    return _NOT_IN_A_NAME.sub("_", split)[:64].lstrip(".") or "_"


def step_of(folder: Path) -> int | None:
    """Return the step of a check's folder, None where it is none."""
    match = _STEP.fullmatch(folder.name)
    return int(match[1]) if match else None


class SampleFiles:
    """The samples of one run and rank. For one thread."""

    def __init__(
        self, run: Path, *, rank: int = 0, newest_checks: int = NEWEST_CHECKS, most_bytes: int = MOST_BYTES
    ) -> None:
        self._run = run
        self._root = run.joinpath(*FOLDER, f"rank-{rank}" if rank else "")
        self._newest_checks = newest_checks
        self._most_bytes = most_bytes
        # Folders of each split with their bytes, the oldest first; found on the disk once, for a run that goes on.
        self._checks: dict[str, list[tuple[Path, int]]] = {}

    def write(
        self, split: str, step: int, files: Sequence[tuple[str, bytes]], description: Mapping[str, Any]
    ) -> list[str]:
        """Write a check's files and return their paths below the run's folder; OSError where that fails.

        The description comes last: a check that was cut short has none, and is no check. One at the same step is
        replaced.
        """
        name = folder_name(split)
        self._look(name)
        folder = self._root / name / f"step-{max(0, step):09d}"
        checks = self._checks[name] = [check for check in self._checks[name] if check[0] != folder]
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        written: list[str] = []
        size = 0
        for file_name, data in files:
            (folder / file_name).write_bytes(data)
            size += len(data)
            written.append((folder / file_name).relative_to(self._run).as_posix())
        text = json.dumps(description, ensure_ascii=False, indent=1).encode("utf-8", "backslashreplace")
        (folder / DESCRIPTION).write_bytes(text)
        checks.append((folder, size + len(text)))
        self._thin(name)
        return written

    def _look(self, name: str) -> None:
        """Take note of what an earlier attempt has left of this split."""
        if name in self._checks:
            return
        found = []
        root = self._root / name
        for folder in sorted(root.iterdir()) if root.is_dir() else ():
            if step_of(folder) is not None:
                found.append((folder, sum(file.stat().st_size for file in folder.iterdir())))
        self._checks[name] = found

    def _thin(self, name: str) -> None:
        checks = self._checks[name]
        while len(checks) > self._newest_checks + 1:
            self._remove(checks, 1)
        while sum(size for each in self._checks.values() for _, size in each) > self._most_bytes:
            # The oldest of the split that has most; its first stays as long as there are others, its newest always.
            fullest = max(self._checks.values(), key=len)
            if len(fullest) < 2:
                return
            self._remove(fullest, 1 if len(fullest) > 2 else 0)

    @staticmethod
    def _remove(checks: list[tuple[Path, int]], place: int) -> None:
        folder, _ = checks.pop(place)
        shutil.rmtree(folder, ignore_errors=True)
