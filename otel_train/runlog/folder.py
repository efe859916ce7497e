"""The run's folder: its layout, its id, and run.json, which is replaced as a whole and never half written."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import threading
from collections.abc import Callable, Mapping
from math import isfinite, isnan
from pathlib import Path
from typing import Any

from otel_train.errors import ConfigError, RunFolderError, RunIdInUseError
from otel_train.runlog.lock import WriterLock
from otel_train.runlog.regular_file import read_regular

FORMAT = 1
RUN_FILE = "run.json"
OWN_RUN_ID = re.compile(r"\d{8}-\d{6}-[a-z2-7]{8}")
_ANY_RUN_ID = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}")
_ATTEMPT = re.compile(r"attempt-(\d+)")
_RANK = re.compile(r"rank-(\d+)")

_logger = logging.getLogger("otel_train")


def check_run_id(run_id: str) -> str:
    """Return the id if a folder can carry it; ConfigError where it cannot."""
    if not _ANY_RUN_ID.fullmatch(run_id):
        raise ConfigError("run_id", run_id, "use 1 to 128 of A-Z a-z 0-9 . _ - and no dot at the start")
    return run_id


class RunFolder:
    """One run's folder. Its methods may be called from any thread."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._lock = threading.RLock()
        self._last: dict[str, Any] | None = None
        self._said = False

    @classmethod
    def create(cls, root: Path | str, run_id: str, document: Mapping[str, Any]) -> RunFolder:
        """Make the folder of a new run and write its run.json.

        Raises RunIdInUseError where the id is taken, and OSError where the root cannot be written.
        """
        path = Path(root) / check_run_id(run_id)
        os.makedirs(root, exist_ok=True)
        try:
            os.mkdir(path)
        except FileExistsError:
            raise RunIdInUseError(
                f"run id {run_id!r} is in use in {root}: leave run_id out for a new run, or pass resume={run_id!r}"
            ) from None
        folder = cls(path)
        folder._last = {"format": FORMAT, **document}
        try:
            folder._write(folder._last)
        except OSError:
            # An id that was given must not be in use by a run that never was.
            with contextlib.suppress(OSError):
                os.rmdir(path)
            raise
        return folder

    @classmethod
    def open(cls, path: Path | str) -> RunFolder:
        """Return the folder of an existing run; RunFolderError where it is none."""
        folder = cls(path)
        folder.check()
        return folder

    def check(self) -> None:
        """Raise RunFolderError, with what is wrong, unless this is a run's folder."""
        if not self.path.is_dir():
            raise RunFolderError(
                f"{self.path} is {'a file' if self.path.exists() else 'not there'}, not a run's folder"
            )
        if not (self.path / RUN_FILE).exists() and not self.attempts():
            empty = not any(self.path.iterdir())
            what = "is empty" if empty else f"holds neither {RUN_FILE} nor attempt folders"
            raise RunFolderError(f"{self.path} {what}: it is not a run's folder")

    def read(self) -> dict[str, Any]:
        """Return run.json; RunFolderError where it is missing, damaged or of a newer format."""
        path = self.path / RUN_FILE
        try:
            document = json.loads(read_regular(path))
        except FileNotFoundError:
            raise RunFolderError(f"{path} is missing") from None
        except OSError as fault:
            raise RunFolderError(f"{path} cannot be read: {fault.strerror}") from None
        except (ValueError, RecursionError) as fault:
            raise RunFolderError(f"{path} is damaged: {fault}") from None
        if not isinstance(document, dict) or "run_id" not in document:
            raise RunFolderError(f"{path} is not a run's description")
        written_as = document.get("format")
        if not isinstance(written_as, int) or written_as > FORMAT:
            raise RunFolderError(f"{path} has format {written_as!r}; this otel-train reads up to {FORMAT}")
        return document

    def update(self, change: Callable[[dict[str, Any]], None]) -> bool:
        """Change run.json in place by `change` and replace the file; False, and a warning, where that failed.

        What could not be written is kept and goes out with the next update.
        """
        with self._lock:
            guard = self._guard()
            try:
                document = self._present()
                change(document)
                self._last = document
                self._write(document)
            except OSError as fault:
                if not self._said:
                    self._said = True
                    _logger.warning("cannot write %s: %s", self.path / RUN_FILE, fault.strerror or fault)
                return False
            finally:
                if guard is not None:
                    guard.release()
            self._said = False
            return True

    def create_attempt(self) -> int:
        """Make the folder of the next attempt and return its number; two processes never get the same."""
        number = max(self.attempts(), default=0) + 1
        while True:
            try:
                os.mkdir(self.path / f"attempt-{number}")
                return number
            except FileExistsError:
                number += 1

    def rank_folder(self, attempt: int, rank: int) -> Path:
        """Return the folder of one rank in one attempt, made where it is missing."""
        path = self.path / f"attempt-{attempt}" / f"rank-{rank}"
        path.mkdir(parents=True, exist_ok=True)
        return path

    def artifacts(self) -> Path:
        """Return the folder of what else belongs to the run, made where it is missing."""
        path = self.path / "artifacts"
        path.mkdir(exist_ok=True)
        return path

    def attempts(self) -> list[int]:
        """Return the numbers of the attempts, in order."""
        return _numbers(self.path, _ATTEMPT)

    def ranks(self, attempt: int) -> list[int]:
        """Return the ranks that wrote in an attempt, in order."""
        return _numbers(self.path / f"attempt-{attempt}", _RANK)

    def rank_folders(self, attempt: int | None = None, rank: int | None = None) -> list[tuple[int, int, Path]]:
        """Return (attempt, rank, folder) of all, or of the given attempt and rank, in order."""
        return [
            (a, r, self.path / f"attempt-{a}" / f"rank-{r}")
            for a in (self.attempts() if attempt is None else (attempt,))
            for r in self.ranks(a)
            if rank is None or r == rank
        ]

    def _present(self) -> dict[str, Any]:
        """The file where it can be read, else what was last known, so that damage is mended by the next update."""
        if self._said and self._last is not None:
            return self._last
        try:
            return self.read()
        except RunFolderError:
            if self._last is None:
                raise OSError(0, f"no readable {RUN_FILE} to change") from None
            return self._last

    def _guard(self) -> WriterLock | None:
        """Hold others off while the file is read and replaced; where that fails, a lost change is the worst case."""
        guard = WriterLock(self.path, "run.lock")
        try:
            return guard if guard.acquire(timeout_s=1.0) else None
        except OSError:
            return None

    def _write(self, document: Mapping[str, Any]) -> None:
        partial = self.path / f".{RUN_FILE}.{os.getpid()}.{threading.get_ident()}.tmp"
        text = _strict_json(document)
        try:
            with open(partial, "wb") as file:
                file.write(text.encode("utf-8", "replace"))
                file.flush()
                os.fsync(file.fileno())
            os.replace(partial, self.path / RUN_FILE)
        except OSError:
            try:
                os.unlink(partial)
            except OSError:
                pass
            raise


def _strict_json(document: Any) -> str:
    try:
        return json.dumps(document, indent=1, ensure_ascii=False, default=str, allow_nan=False)
    except ValueError:
        return json.dumps(_without_nan(document), indent=1, ensure_ascii=False, default=str)


def _without_nan(value: Any) -> Any:
    """Write numbers that JSON cannot hold as the strings that OTLP uses for them."""
    if isinstance(value, float) and not isfinite(value):
        return "NaN" if isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Mapping):
        return {key: _without_nan(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(item) for item in value]
    return value


def _numbers(folder: Path, pattern: re.Pattern[str]) -> list[int]:
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    return sorted(int(match[1]) for name in names if (match := pattern.fullmatch(name)))
