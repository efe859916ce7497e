"""Knows every run below a root, in a file beside the runs too, so that a table of a thousand is there at once."""

from __future__ import annotations

import logging
import os
import secrets
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

from otel_train.clock import NS_PER_S, mono_ns, wall_ns
from otel_train.runlog.catalogue import is_run
from otel_train.runlog.processes import Processes
from otel_train.view.index_entry import Entry, entry_of, look, record_of, unreadable
from otel_train.view.index_file import INDEX_FILE, is_partial, read_index, remove_partial, write_index
from otel_train.view.index_row import IndexRow
from otel_train.view.run_columns import Columns

# A file that a process left when it was killed is this old before another one removes it.
LEFT_BEHIND_NS: Final = 3600 * NS_PER_S
# At most a twentieth of the time goes into writing the file.
WRITE_SHARE: Final = 20
WRITE_EVERY_NS: Final = 10 * NS_PER_S

_logger = logging.getLogger("otel_train")


class RunIndex:
    """The runs below a root. Its methods may be called from any thread; rows are for reading only.

    What is kept between processes is a cache: each row carries the state of the files that it was made of, and is made
    again where they have changed. Two processes may keep the same file. Nothing is written into a run's folder.
    """

    def __init__(
        self,
        root: Path | str,
        now_ns: Callable[[], int] = wall_ns,
        processes: Processes | None = None,
        *,
        keep: bool = True,
    ) -> None:
        self.root = Path(root)
        # The newest first; another list whenever something has changed.
        self.rows: list[IndexRow] = []
        self.notice = ""
        self._now_ns = now_ns
        self._processes = processes or Processes()
        self._keep = keep
        self._entries: dict[str, Entry] = {}
        self._lock = threading.RLock()
        self._is_loaded = False
        self._is_changed = False
        self._write_after_ns = 0
        # Another process counts from the start again, and must not seem to be at the same place.
        self._life = secrets.token_hex(4)
        self._turn = 0
        self._columns: tuple[int, Columns] = (-1, Columns())

    @property
    def revision(self) -> str:
        """What changes whenever a row does, but for the duration of a running run."""
        return f"{self._life}-{self._turn}"

    @property
    def columns(self) -> Columns:
        """What the present rows have."""
        turn, columns = self._columns
        if turn != self._turn:
            turn, found = self._turn, Columns(self.rows)
            # What was worked out of the keys is worth keeping while runs go on and only their values change.
            columns = columns if found.is_like(columns) else found
            self._columns = turn, columns
        return columns

    @property
    def pending(self) -> int:
        """How many rows have values that are still being read."""
        return sum(row.partial for row in self.rows)

    def row(self, run_id: str) -> IndexRow | None:
        """Return one run's row; None where there is none."""
        entry = self._entries.get(run_id)
        return None if entry is None else entry.row

    def refresh(
        self,
        budget_s: float | None = 0.2,
        progress: Callable[[int, int], None] = lambda done, total: None,
        *,
        epochs: bool = True,
    ) -> bool:
        """Look what has changed; True where a row has.

        Points of runs without an end are read until `budget_s` seconds are over, or a tenth of them more where looking
        alone took as long; what is left, the next call reads. With None all of them are read. `progress` is called with
        the number of runs that were looked at and of all. Without `epochs` the last epoch of ended runs, which stands
        in their logs alone, is not looked for.
        """
        with self._lock:
            began_ns, now_ns = mono_ns(), self._now_ns()
            # The first table is there sooner without the writing.
            may_write = self._is_loaded
            if not self._is_loaded:
                self._load()
            changed = self._look(now_ns, progress)
            budget_ns = None if budget_s is None else int(budget_s * NS_PER_S)
            until_ns = None if budget_ns is None else max(began_ns + budget_ns, mono_ns() + budget_ns // 10)
            changed |= self._work(now_ns, until_ns, epochs)
            if changed or not self._turn:
                self.rows = sorted(
                    (entry.row for entry in self._entries.values()),
                    key=lambda row: (row.created_ns, row.run_id),
                    reverse=True,
                )
                self._turn += 1
            for row in self.rows:
                if row.state == "running" or row.duration_s is None:
                    row.age(now_ns)
            if may_write and self._is_changed and mono_ns() >= self._write_after_ns:
                self._write()
            return changed

    def close(self) -> None:
        """Keep what is not kept yet."""
        with self._lock:
            if self._is_changed:
                self._write()

    def _load(self) -> None:
        self._is_loaded = True
        for record in read_index(self.root) if self._keep else ():
            try:
                entry = entry_of(str(self.root), record)
                self._entries[record["name"]] = entry
            except (KeyError, TypeError, ValueError, AttributeError):
                continue

    def _look(self, now_ns: int, progress: Callable[[int, int], None]) -> bool:
        names = self._names(now_ns)
        changed = False
        for name in set(self._entries).difference(names):
            del self._entries[name]
            changed = self._is_changed = True
        for done, name in enumerate(names):
            progress(done, len(names))
            before = self._entries.get(name)
            if before is not None and before.holds(now_ns):
                continue
            entry = self._look_at(name, before, now_ns)
            if entry is None:
                changed |= self._entries.pop(name, None) is not None
                continue
            self._entries[name] = entry
            if before is None or before.row != entry.row:
                changed = True
            # A running run is looked at by everybody anew.
            self._is_changed |= entry.is_settled or (before is not None and before.is_settled)
        progress(len(names), len(names))
        return changed

    def _look_at(self, name: str, before: Entry | None, now_ns: int) -> Entry | None:
        path = f"{self.root}/{name}"
        try:
            return look(path, before, now_ns, self._processes)
        except Exception as fault:
            # One odd run must not hide all the others.
            if before is None or not before.is_unreadable:
                _logger.warning("%s cannot be looked at", path, exc_info=True)
            return unreadable(path, f"{path} cannot be looked at: {type(fault).__name__}: {fault}", now_ns)

    def _names(self, now_ns: int) -> list[str]:
        """Return the names of the folders of the root that may be runs."""
        found = []
        try:
            with os.scandir(self.root) as entries:
                for entry in entries:
                    if not entry.name.startswith("."):
                        if entry.name in self._entries or _is_folder(entry):
                            found.append(entry.name)
                    elif self._keep and is_partial(entry.name):
                        remove_partial(Path(entry.path), now_ns - LEFT_BEHIND_NS)
        except OSError:
            return []
        return sorted(found)

    def _work(self, now_ns: int, until_ns: int | None, epochs: bool) -> bool:
        """Read what is left of the points, of running runs and of new ones first."""
        left = [entry for entry in self._entries.values() if entry.left and (epochs or entry.left != "epoch")]
        left.sort(key=lambda entry: (entry.left == "epoch", entry.is_settled, -entry.row.created_ns))
        changed = False
        for entry in left:
            if until_ns is not None and mono_ns() >= until_ns:
                break
            knew = entry.points is not None and entry.points.is_complete
            try:
                changed |= entry.work(now_ns, until_ns)
            except Exception as fault:
                _logger.warning("%s cannot be read", entry.path, exc_info=True)
                entry.give_up(f"its points cannot be read: {type(fault).__name__}: {fault}")
                changed = True
            # Of a running run the first reading is worth keeping, what is added each time is not.
            self._is_changed |= entry.is_settled or not knew
        return changed

    def _write(self) -> None:
        self._is_changed = False
        if not self._keep or is_run(self.root) or not (self._entries or (self.root / INDEX_FILE).exists()):
            return
        began_ns = mono_ns()
        try:
            write_index(self.root, (record_of(entry) for entry in self._entries.values() if not entry.is_unreadable))
        except OSError as fault:
            self._keep = False
            self.notice = (
                f"cannot keep the index of the runs in {self.root / INDEX_FILE}: {fault.strerror or fault}; "
                "the runs are looked at anew each time"
            )
            _logger.warning("%s", self.notice)
        ended_ns = mono_ns()
        self._write_after_ns = ended_ns + max(WRITE_EVERY_NS, WRITE_SHARE * (ended_ns - began_ns))


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        # A link that leads round in a circle.
        return False
