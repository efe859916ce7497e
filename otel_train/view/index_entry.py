"""Knows whether what was found out about one run still holds, and finds it out again where it does not."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

from otel_train.runlog.catalogue import RunSummary, describe, is_run, summarize
from otel_train.runlog.folder import RUN_FILE, RunFolder
from otel_train.runlog.processes import Processes
from otel_train.runlog.rebuild import ENDED
from otel_train.runlog.segments import SIGNALS
from otel_train.semconv import EPOCH, STEP
from otel_train.view.index_points import WHOLE_BYTES, WHOLE_RUNNING_BYTES, Points, last_epoch, over_attempts
from otel_train.view.index_row import IndexRow, Values, joined, named, number_of, row_of

# The state of files: name, and time of the last change, size and inode, None for one that is not there.
Sign: TypeAlias = list[tuple[str, int, int, int] | None]
# How much longer a silence may grow before the text that tells its length is made anew.
SILENCE_FACTOR: Final = 1.5
_RANK_FOLDER = re.compile(r"attempt-\d+/rank-\d+", re.ASCII)


class Entry:
    """One run of an index: its row, the files that the row was made of, and what is still to be read.

    `left` is "points" of the newest attempt, "attempts" for the points of several, "epoch" for the end of the log, "".
    """

    def __init__(self, path: str, row: IndexRow, sign: Sign, looked_ns: int) -> None:
        self.path = path
        self.row = row
        self.sign = sign
        self.looked_ns = looked_ns
        self.left = ""
        self.is_unreadable = False
        self.points: Points | None = None
        # What run.json says of the directions of metrics; of a running run all that it says, until it changes.
        self.goals: Any = None
        self.described: tuple[dict[str, Any], str] | None = None
        # Of a running run of several attempts: the numbers of all of them at a time, and whether the newest had any.
        self.earlier: dict[str, Values] | None = None
        self.is_joined = False
        # The folder of the newest attempt's first rank, where the description alone did not say it all.
        self.rank_folder = ""

    @property
    def is_settled(self) -> bool:
        """Whether the run goes on no more, so that its row is worth keeping for other processes."""
        return self.row.state != "running"

    def holds(self, now_ns: int) -> bool:
        """Return whether the row is still true, by the state of its files alone; that of a running run never is."""
        row = self.row
        if not self.is_settled or os.path.exists(f"{self.path}/attempt-{row.attempt + 1}"):
            return False
        if row.state not in ENDED:
            seen_ns = max(row.last_seen_ns, row.since_ns)
            silent_ns, was_ns = now_ns - seen_ns, self.looked_ns - seen_ns
            if now_ns < self.looked_ns or silent_ns > SILENCE_FACTOR * was_ns:
                return False
        return self.sign == _sign(self.path, row.state, row.attempt, self.rank_folder)

    def work(self, now_ns: int, until_ns: int | None) -> bool:
        """Read of what is left until a time of the monotonic clock; True where the row has changed."""
        row = self.row
        before = row.metrics, row.step, row.epoch, row.partial
        if self.left == "epoch":
            ranks = RunFolder(self.path).rank_folders(row.attempt)
            row.epoch = last_epoch(ranks[0][2]) if ranks else None
            self.left = ""
        elif self.left == "attempts":
            found = over_attempts(Path(self.path), now_ns)
            self.left = ""
            if found is not None:
                row.metrics, row.step, row.epoch = found
            elif not row.metrics:
                self.begin_points()
        if self.left == "points":
            points = self.points or self.begin_points()
            if points.advance(until_ns):
                self.left = ""
                self._join_attempts(points, now_ns)
            self._take_points(points)
        row.partial = self.left in ("points", "attempts")
        if not self.left and self.is_settled:
            self.points = None
        return before != (row.metrics, row.step, row.epoch, row.partial)

    def give_up(self, problem: str) -> None:
        """Leave what cannot be read."""
        self.left, self.points, self.is_unreadable = "", None, True
        self.row.problem, self.row.partial = self.row.problem or problem, False

    def begin_points(self) -> Points:
        """Read on in the points of the newest attempt, or begin with them."""
        running = not self.is_settled
        if not self.rank_folder:
            ranks = RunFolder(self.path).rank_folders(self.row.attempt)
            self.rank_folder = str(ranks[0][2]) if ranks else f"{self.path}/attempt-{self.row.attempt}/rank-0"
        folder = Path(self.rank_folder)
        points = self.points
        if points is None or not points.goes_on(folder) or not (points.whole or running):
            points = Points.begun(folder, WHOLE_RUNNING_BYTES if running else WHOLE_BYTES)
        self.points, self.left = points, "points"
        self._take_points(points)
        self.row.partial = not points.is_complete
        return points

    def _join_attempts(self, points: Points, now_ns: int) -> None:
        """Have the numbers of a running run's earlier attempts, once more when the newest replaces points of them."""
        if self.is_settled or self.row.attempt < 2 or self.is_joined or not points.whole:
            return
        self.is_joined = bool(points.sums)
        if self.earlier is None or self.is_joined:
            found = over_attempts(Path(self.path), now_ns)
            self.earlier, self.is_joined = ({}, True) if found is None else (found[0], self.is_joined)

    def _take_points(self, points: Points) -> None:
        row, step = self.row, points.newest(STEP)
        row.metrics = joined(self.earlier if self.earlier and points.whole else {}, points.values(self.goals))
        row.step, row.epoch = row.step if step is None else step, points.newest(EPOCH)


def look(path: str, before: Entry | None, now_ns: int, processes: Processes) -> Entry | None:
    """Return what a run's files tell now; None where it is no run. `before` is what an earlier look found."""
    folder = RunFolder(path)
    # First the state of the files: what changes while they are read, the next look sees.
    sign = _sign(path, "", 0, "")
    known = before.described if before is not None and before.sign[:1] == sign else None
    described = known or describe(folder.path)
    if described[1] and not is_run(folder.path):
        return None
    if _says_ended(described[0]):
        # So it is with most, and then no other file is looked at.
        run = summarize(folder.path, now_ns, processes, described)
        if run.status.state in ENDED:
            entry = Entry(path, row_of(run, now_ns), sign, now_ns)
            entry.goals = run.info.get("metrics")
            _plan(entry, run, before)
            return entry
    attempt = max(folder.attempts(), default=0)
    ranks = folder.rank_folders(attempt) if attempt else []
    rank_folder = str(ranks[0][2]) if ranks else ""
    files = _sign(path, "lost", attempt, rank_folder)[1:]
    run = summarize(folder.path, now_ns, processes, described)
    row = row_of(run, now_ns)
    entry = Entry(path, row, sign if row.state in ENDED else sign + files, now_ns)
    entry.rank_folder, entry.goals = rank_folder, run.info.get("metrics")
    entry.described = None if entry.is_settled or run.problem else described
    _plan(entry, run, before)
    return entry


def unreadable(path: str, problem: str, now_ns: int) -> Entry:
    """Return what is left to say of a run that could not be looked at; it holds until its files change."""
    attempt = max(RunFolder(path).attempts(), default=0)
    row = IndexRow(os.path.basename(path), path, state="lost", reason=problem, problem=problem, attempt=attempt)
    entry = Entry(path, row, _sign(path, "lost", attempt, ""), now_ns)
    entry.is_unreadable = True
    return entry


def _says_ended(info: Mapping[str, Any]) -> bool:
    attempts = info.get("attempts")
    newest = attempts[-1] if isinstance(attempts, list) and attempts else None
    return isinstance(newest, Mapping) and newest.get("status") in ENDED


def _plan(entry: Entry, run: RunSummary, before: Entry | None) -> None:
    """Decide what is to be read besides the description."""
    row = entry.row
    if before is not None and before.row.attempt == row.attempt:
        entry.points, entry.earlier, entry.is_joined = before.points, before.earlier, before.is_joined
        if before.is_unreadable and not before.is_settled and not entry.is_settled:
            # What could not be read a second ago, cannot now.
            entry.give_up(before.row.problem)
            return
        if entry.is_settled:
            entry.earlier = None
        if before.sign == entry.sign and entry.is_settled and before.is_settled and not before.left:
            row.metrics, row.step, row.epoch = before.row.metrics, before.row.step, before.row.epoch
            return
    attempts = run.info.get("attempts")
    if not entry.is_settled:
        entry.begin_points()
    elif row.attempt > 1 or (isinstance(attempts, list) and len(attempts) > 1):
        # A summary is of one attempt only.
        entry.left, row.partial = "attempts", True
    elif row.metrics:
        entry.left, entry.points = "epoch", None
    else:
        entry.begin_points()
        row.partial = True


def record_of(entry: Entry) -> dict[str, Any]:
    """Return what other processes need of an entry, as JSON holds it."""
    row = entry.row
    facts = {name: getattr(row, name) for name in _FACTS} | {"step": named(row.step), "epoch": named(row.epoch)}
    return {
        "name": row.run_id,
        "sign": entry.sign,
        "looked": entry.looked_ns,
        "left": entry.left,
        "rank": entry.rank_folder[len(entry.path) + 1 :].replace(os.sep, "/"),
        "goals": entry.goals if entry.left else None,
        "points": None if entry.points is None else entry.points.state(),
        "earlier": None if entry.earlier is None else [entry.is_joined, _metrics_record(entry.earlier)],
        "row": facts | {"metrics": _metrics_record(row.metrics), "config": row.config},
    }


def _metrics_record(metrics: Mapping[str, Values]) -> dict[str, Any]:
    return {key: [named(one.last), named(one.low), named(one.high), one.goal] for key, one in metrics.items()}


def _metrics_of(record: Mapping[str, Any]) -> dict[str, Values]:
    return {
        key: Values(number_of(last), number_of(low), number_of(high), goal)
        for key, (last, low, high, goal) in record.items()
    }


def entry_of(root: str, record: dict[str, Any]) -> Entry:
    """Return the entry that a record is of; KeyError, TypeError, ValueError or AttributeError where it is none."""
    facts = record["row"]
    path = f"{root}/{record['name']}"
    row = IndexRow(path=path, **{name: facts[name] for name in _FACTS}, config=dict(facts["config"]))
    row.metrics = _metrics_of(facts["metrics"])
    row.step, row.epoch = number_of(row.step), number_of(row.epoch)
    sign: Sign = [None if one is None else tuple(one) for one in record["sign"]]
    entry = Entry(path, row, sign, record["looked"])
    entry.left, entry.goals = record["left"], record["goals"]
    if record["rank"]:
        if not _RANK_FOLDER.fullmatch(record["rank"]):
            raise ValueError(record["rank"])
        entry.rank_folder = f"{path}/{record['rank']}"
    if record["points"] is not None:
        entry.points = Points.of_state(Path(entry.rank_folder), record["points"])
    if record["earlier"] is not None:
        entry.is_joined, entry.earlier = record["earlier"][0], _metrics_of(record["earlier"][1])
    return entry


_FACTS: Final = (
    *("run_id", "run_name", "project", "group", "tags", "notes", "state", "reason", "cause", "created_ns", "since_ns"),
    *("last_seen_ns", "step", "epoch", "host", "attempt", "ranks", "problem", "partial"),
)


def _sign(path: str, state: str, attempt: int, rank_folder: str) -> Sign:
    """Return the state of run.json, and for a run without an end that of the files that tell whether it lives."""
    sign: Sign = [_stat(f"{path}/{RUN_FILE}", RUN_FILE)]
    if state == "lost":
        sign.append(_stat(f"{path}/attempt-{attempt}", ""))
        try:
            with os.scandir(rank_folder or path) as entries:
                names = sorted(entry.name for entry in entries if entry.name.startswith(SIGNALS))
        except OSError:
            names = []
        sign += [_stat(f"{rank_folder}/{name}", name) for name in names]
    return sign


def _stat(path: str, name: str) -> tuple[str, int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return name, found.st_mtime_ns, found.st_size, found.st_ino
