"""Finds out which run this process belongs to: a new one, a further attempt of an old one, or that of rank 0."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from otel_train.clock import NS_PER_S, SYSTEM, mono_ns, sleep, wall_ns
from otel_train.errors import ConfigError, RunFolderError, RunIdInUseError, RunNotFoundError
from otel_train.lineage.launch import LaunchFolder, resume_note, resume_target
from otel_train.lineage.launch_exchange import StoreExchange, default_store, wait_for
from otel_train.lineage.ranks import Ranks, loaded_distributed
from otel_train.lineage.run_id import new_run_id
from otel_train.runlog.folder import RunFolder
from otel_train.runlog.lock import WriterLock

# How long ranks wait for rank 0's id before they record a run of their own.
RANK_WAIT_NS = 120 * NS_PER_S


@dataclass(frozen=True, slots=True)
class Place:
    """Where a run is on disk: its folder, this rank's folder in it, and the lock of who writes there."""

    folder: RunFolder
    rank_folder: Path
    lock: WriterLock


@dataclass(slots=True)
class Opened:
    """The run that this process writes to. `former` is run.json as an earlier attempt left it."""

    run_id: str
    attempt: int
    # None without a folder: nothing is written to any disk.
    place: Place | None
    former: Mapping[str, Any] | None = None
    resumed_from: int | None = None
    notice: str = ""
    # A rank other than 0 that found nobody to join.
    alone: bool = False
    # On another rank the span that stands for the run of rank 0, as `TRACEPARENT` spells it.
    traceparent: str = ""

    @property
    def placed(self) -> Place:
        """The place on disk; RunFolderError where there is none."""
        if self.place is None:
            raise RunFolderError(f"run {self.run_id} has no folder: it was made with dir=False")
        return self.place

    @property
    def folder(self) -> RunFolder:
        """The run's folder; RunFolderError where there is none."""
        return self.placed.folder

    @property
    def rank_folder(self) -> Path:
        """The folder of this rank; RunFolderError where there is none."""
        return self.placed.rank_folder


class Opening:
    """What `init()` was told about identity, and how to act on it."""

    def __init__(
        self, root: Path, ranks: Ranks, *, run_id: str | None, resume: str | None, project: str, sequence: int
    ) -> None:
        self.root = root
        self.ranks = ranks
        self._run_id = run_id
        self._resume = resume
        self._project = project
        self._sequence = sequence
        # What rank 0 tells the others of its trace.
        self.traceparent = ""
        # Set when the run has ended before its id was known: then nobody waits for that any more.
        self.given_up = threading.Event()
        self._launch = LaunchFolder(root)
        self._store = StoreExchange(store) if (store := default_store(loaded_distributed())) is not None else None

    @property
    def must_wait(self) -> bool:
        """Whether another rank draws the id, and there is a way to hear of it."""
        found = self.ranks.launch_key is not None or self._store is not None
        return self.ranks.shared and not self.ranks.is_main and found

    def open_main(self, document: Callable[[str, int], dict[str, Any]]) -> Opened:
        """Open the run as rank 0, or alone; `document` makes run.json for a new run. Errors name the argument."""
        if not self.ranks.is_main:
            opened = self._create(document)
            opened.alone = True
            opened.notice = f"rank {self.ranks.rank} records the run {opened.run_id} of its own"
            return opened
        former_launch = self._launch.former(self.ranks, self._sequence) if self.ranks.shared else None
        target = self._resume
        automatic = target == "auto"
        if automatic:
            target = resume_target(self._launch, self.ranks, self._project)
        if target is None and former_launch is not None:
            # The launcher started its processes anew: the same run goes on.
            target, automatic = former_launch.run_id, True
        opened = self._create(document) if target is None else self._continue(target, automatic)
        if self.ranks.shared:
            told = self.ranks, opened.run_id, opened.attempt, self._sequence, self.traceparent
            self._launch.publish(*told)
            if self._store is not None:
                self._store.publish(*told)
        if self.ranks.resume_key:
            self._launch.remember(resume_note(self.ranks.resume_key, self._project), opened.run_id, opened.attempt)
        return opened

    def _create(self, document: Callable[[str, int], dict[str, Any]]) -> Opened:
        run_id = self._run_id or new_run_id(SYSTEM)
        try:
            folder = RunFolder.create(self.root, run_id, document(run_id, 1))
            return self._take(folder, run_id, folder.create_attempt())
        except OSError as fault:
            raise ConfigError(
                "dir",
                str(self.root),
                f"cannot be written ({fault.strerror}); name a folder that can, or set OTEL_TRAIN_DIR",
            ) from None

    def _continue(self, target: str, automatic: bool) -> Opened:
        from otel_train.runlog.status import run_status

        path = self.root / target
        if not path.is_dir():
            known = sorted(entry.name for entry in _folders(self.root))[-3:]
            hint = f"; the newest are {', '.join(known)}" if known else ""
            raise RunNotFoundError(f"resume={target!r}: no such run in {self.root}{hint}")
        folder = RunFolder.open(path)
        if run_status(folder, wall_ns()).state == "running":
            raise RunIdInUseError(
                f"resume={target!r}: this run is still being written; end it first, or leave resume out for a new run"
            )
        try:
            former: Mapping[str, Any] | None = folder.read()
        except RunFolderError as fault:
            former, note = None, f" ({fault}; what it held is not compared)"
        else:
            note = ""
        numbers = folder.attempts()
        try:
            opened = self._take(folder, target, folder.create_attempt())
        except OSError as fault:
            raise ConfigError("dir", str(self.root), f"cannot be written ({fault.strerror})") from None
        opened.former = former
        opened.resumed_from = max(numbers, default=None)
        how = "goes on by itself" if automatic else "goes on"
        opened.notice = f"run {target} {how} as attempt {opened.attempt}{note}"
        return opened

    def wait(self, document: Callable[[str, int], dict[str, Any]]) -> Opened | None:
        """Open the run as another rank, once rank 0 has published its id; blocks: not for the training thread.

        None where the run has been given up meanwhile.
        """

        def read() -> Any:
            if self.given_up.is_set():
                return self.given_up
            found = self._launch.try_read(self.ranks, self._sequence)
            if found is None and self._store is not None:
                found = self._store.try_read(self.ranks, self._sequence)
            return found

        found = wait_for(read, deadline_ns=mono_ns() + RANK_WAIT_NS, clock=SYSTEM, sleep=sleep)
        if self.given_up.is_set():
            return None
        if found is not None:
            folder = RunFolder(self.root / found.run_id)
            opened = self._take(folder, found.run_id, found.attempt)
            opened.traceparent = found.traceparent
            return opened
        opened = self._create(document)
        opened.alone = True
        opened.notice = (
            f"rank {self.ranks.rank} saw no run id of rank 0 within {RANK_WAIT_NS // NS_PER_S} s and records "
            f"the run {opened.run_id} of its own; give all ranks the same root folder"
        )
        return opened

    def _take(self, folder: RunFolder, run_id: str, attempt: int) -> Opened:
        rank_folder = folder.rank_folder(attempt, self.ranks.rank)
        lock = WriterLock(rank_folder)
        if not lock.acquire():
            raise RunIdInUseError(
                f"run {run_id}: another process writes as rank {self.ranks.rank} of attempt {attempt}; "
                "each process of a launch needs its own RANK"
            )
        return Opened(run_id, attempt, Place(folder, rank_folder, lock))

    def retire(self, run_id: str) -> None:
        """Take the launch's published id back at the end, so that a later launch with the same key is a new run."""
        if self.ranks.shared and self.ranks.is_main:
            self._launch.retire(self.ranks, run_id, self._sequence)


def _folders(root: Path) -> list[os.DirEntry[str]]:
    try:
        return [entry for entry in os.scandir(root) if entry.is_dir() and not entry.name.startswith(".")]
    except OSError:
        return []
