"""Holds one run in memory and follows it: each look reads only what is new, and says what changed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from otel_train import clock
from otel_train.clock import NS_PER_S
from otel_train.errors import RunFolderError
from otel_train.runlog.folder import RUN_FILE, RunFolder
from otel_train.runlog.growing import GrowingLog, LogGoneError, LogReplacedError
from otel_train.runlog.lines import Damage
from otel_train.runlog.lock import is_locked
from otel_train.runlog.processes import Processes
from otel_train.runlog.reader import RunReader
from otel_train.runlog.status import Status, run_status
from otel_train.view.changes import Changes
from otel_train.view.lines import csv_rows, finer
from otel_train.view.log_list import LogRow
from otel_train.view.parts import PARTS, build_parts
from otel_train.view.reading import PointTaker, nothing_read, places_of
from otel_train.view.run_data import RunData, mappings
from otel_train.view.timeline import SpanRow

# What the state says of a run that nobody has locked depends on the time: so it is looked at again after this while.
STATUS_NS = 5 * NS_PER_S
# A folder is deleted file by file: where something is missing, what was read is believed for this while.
DELETING_NS = 3 * NS_PER_S


@dataclass(slots=True)
class Change:
    """What a look found: "none", "append" with the payload of `changes`, "reload", or "gone"."""

    kind: str
    revision: int
    payload: dict[str, Any] = field(default_factory=dict)


class LiveRun:
    """One run. One thread may refresh while others make payloads: `lock` is held by each of them.

    Hold it while you make anything out of `data` yourself.
    """

    def __init__(
        self, path: Path, now_ns: Callable[[], int] = clock.wall_ns, processes: Processes | None = None
    ) -> None:
        self.path = Path(path)
        self.revision = 0
        self.lock = threading.RLock()
        self._now_ns = now_ns
        self._processes = processes or Processes()
        self._gone = False
        self._begin()

    def _begin(self) -> None:
        self._data: RunData | None = None
        self._folder = RunFolder(self.path)
        self._log = GrowingLog(self._folder, self._processes)
        self._damage_revision = 0
        self._info: dict[str, Any] = {}
        self._info_damage: list[Damage] = []
        self._info_stamp: tuple[int, ...] | None = None
        self._status: Status | None = None
        self._status_ns = 0
        self._locked: Path | None = None
        # When the run was made, by its description.
        self._created = ""
        # When something was first seen to be missing; 0 while nothing is.
        self._missing_ns = 0

    @property
    def data(self) -> RunData:
        """What was read; read now where nothing was. RunFolderError where the folder is no run's."""
        with self.lock:
            if self._data is None:
                self.refresh(payload=False)
            if self._data is None:
                raise RunFolderError(f"{self.path} is gone")
            return self._data

    @property
    def points(self) -> int:
        """How many points are in memory, at about 40 bytes each."""
        data = self._data
        return data.store.points if data is not None else 0

    def refresh(self, payload: bool = True) -> Change:
        """Read what is new. RunFolderError where the folder is no run's, or nothing in it can be read.

        Without `payload` only the kind of the change is told, which costs less.
        """
        with self.lock:
            if not self._gone:
                try:
                    try:
                        change = self._look(payload)
                        self._missing_ns = 0
                        return change
                    except LogReplacedError as fault:
                        if isinstance(fault, LogGoneError) and self._is_being_deleted():
                            return Change("none", self.revision)
                        self.forget()
                        return self._look(payload)
                except (OSError, LogReplacedError, RunFolderError):
                    if self.path.is_dir() or not self.revision:
                        raise
                    self.forget()
                    self._gone = True
            return Change("gone", self.revision)

    def parts(self, names: Iterable[str] = PARTS) -> dict[str, Any]:
        """Return parts of the run's page as they stand, with the revision and whether the run goes on."""
        with self.lock:
            data = self.data
            return {**build_parts(data, names), "revision": self.revision, "live": data.state == "running"}

    def described(self) -> dict[str, Any]:
        """Return the head of the page from run.json alone, without a look at any point, and without the lock."""
        folder = RunFolder.open(self.path)
        try:
            info = folder.read()
        except RunFolderError:
            info = {}
        now_ns = self._now_ns()
        status = run_status(folder, now_ns, self._processes, info)
        run_id = str(info.get("run_id") or self.path.name)
        data = RunData(self.path, run_id, info, status.state, status.reason, now_ns, last_ns=status.last_seen_ns)
        head = build_parts(data, ["head"])
        # What only the points can tell.
        head["facts"] = [fact for fact in head["facts"] if fact[0] not in ("Points, records, spans", "Dropped")]
        return head

    def finer(self, line_id: str, axis: str, low: float | None, high: float | None) -> dict[str, Any] | None:
        """Return one line within a range; see `lines.finer`."""
        with self.lock:
            return finer(self.data, line_id, axis, low, high)

    def csv_rows(self, ids: Iterable[str]) -> Iterator[str]:
        """Give every point of these lines; see `lines.csv_rows`."""
        with self.lock:
            return csv_rows(self.data, ids)

    def forget(self) -> None:
        """Let go of all that was read; the next look reads it anew."""
        with self.lock:
            self._begin()

    def _is_being_deleted(self) -> bool:
        """Return whether the folder may be on its way out: something of it is missing since a short while."""
        now_ns = self._now_ns()
        self._missing_ns = self._missing_ns or now_ns
        return self.path.is_dir() and 0 <= now_ns - self._missing_ns < DELETING_NS

    # Looking -----------------------------------------------------------------------------------------------------

    def _look(self, payload: bool) -> Change:
        now_ns = self._now_ns()
        data = self._data
        first = data is None
        if first or not self.path.is_dir():
            self._folder.check()
        described = self._describe(anew=False)
        if described:
            # A run that somebody has locked goes on whatever is added to its description, but for a new attempt.
            self._status_ns = 0
            if data is None or len(mappings(self._info.get("attempts"))) != len(data.attempts):
                self._locked = None
        status = self._look_at_status(now_ns)
        if data is None:
            run_id = str(self._info.get("run_id") or self.path.name)
            self._data = data = RunData(self.path, run_id, self._info, status.state, status.reason, now_ns)
            self._taker = PointTaker(data)
            self._changes = Changes(data)
        lines = self._read(data)
        if lines and self._info.get("rebuilt"):
            described = self._describe(anew=True) or described
        damaged = self._damage_revision != self._log.damage_revision
        if (lines or damaged) and self._locked is None:
            # Of a run that nobody has locked the last lines say how it is.
            self._status_ns = 0
            status = self._look_at_status(now_ns)
        ended = (data.state, data.reason) != (status.state, status.reason)
        data.state, data.reason, data.now_ns = status.state, status.reason, now_ns
        if described:
            data.info = self._info
            data.run_id = str(self._info.get("run_id") or self.path.name)
        if described or lines or damaged:
            self._damage_revision = self._log.damage_revision
            data.damage = places_of([*self._info_damage, *self._log.damage])
            data.skipped = self._log.skipped
        if first:
            self._check_readable(data)
        elif not (lines or ended or described or damaged):
            return Change("none", self.revision)
        self.revision += 1
        made = self._changes.take(payload=payload)
        if made is None:
            return Change("reload", self.revision, {"revision": self.revision})
        return Change("append", self.revision, {"revision": self.revision, **made} if payload else {})

    def _read(self, data: RunData) -> int:
        count = 0
        for signal, request, attempt, rank in self._log.news():
            count += 1
            if signal == "metrics":
                self._taker.take(request.series, attempt, rank)
            for entry, _ in request.logs:
                row = LogRow(entry, attempt, rank)
                data.add_log(row)
                self._changes.logs.append(row)
            for span, _ in request.spans:
                data.add_span(SpanRow(span, attempt, rank))
        return count

    def _check_readable(self, data: RunData) -> None:
        if data.info.get("rebuilt") and not (data.store.points or data.logs.seen or data.spans):
            self._begin()
            raise nothing_read(self.path, data.damage)

    def _describe(self, *, anew: bool) -> bool:
        """Read run.json where it was replaced; return whether it says anything else than before."""
        try:
            stat = (self.path / RUN_FILE).stat()
            stamp: tuple[int, ...] = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
        except OSError:
            stamp = ()
        if stamp == self._info_stamp and not anew:
            return False
        if self._info_stamp and not stamp:
            raise LogGoneError(f"{self.path / RUN_FILE} is gone")
        self._info_stamp = stamp
        reader = RunReader(self.path)
        before = self._info
        self._info = reader.info
        # A description that was made up from the lines is of the same run.
        created = "" if self._info.get("rebuilt") else str(self._info.get("created") or "")
        if self._created and created not in ("", self._created):
            # Its files may be as long as those were.
            raise LogReplacedError(f"another run has taken the name of {self.path}")
        self._created = created or self._created
        self._info_damage = [item for item in reader.damage if item.path.name == RUN_FILE]
        return self._info != before

    def _look_at_status(self, now_ns: int) -> Status:
        """Return the state; that of a run that somebody has locked costs next to nothing."""
        if self._status is None or not self._is_as_before(self._status, now_ns):
            info = None if self._info.get("rebuilt") else self._info
            self._status = run_status(self._folder, now_ns, self._processes, info)
            self._status_ns = now_ns
            self._locked = self._find_locked(self._status)
        return self._status

    def _is_as_before(self, before: Status, now_ns: int) -> bool:
        if before.attempt < max(self._folder.attempts(), default=0):
            return False
        if self._locked is not None:
            return bool(is_locked(self._locked, processes=self._processes))
        is_fresh = bool(self._status_ns) and 0 <= now_ns - self._status_ns < STATUS_NS
        return is_fresh and self._find_locked(before) is None

    def _find_locked(self, status: Status) -> Path | None:
        """Return a folder of the newest attempt in which somebody writes; none is looked for once it has ended."""
        if status.state not in ("running", "lost"):
            return None
        folders = self._folder.rank_folders(status.attempt)
        return next((path for _, _, path in folders if is_locked(path, processes=self._processes)), None)
