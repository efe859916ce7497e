"""Says how a run is: running, ended in some way, or lost; and what is known of the cause."""

from __future__ import annotations

import json
import os
import re
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, Any

from otel_train.clock import NS_PER_S, from_iso, iso
from otel_train.errors import RunFolderError
from otel_train.otlp.decode import DamagedLine, decode_line
from otel_train.runlog.folder import RUN_FILE, RunFolder
from otel_train.runlog.lines import read_lines
from otel_train.runlog.lock import is_locked
from otel_train.runlog.processes import Processes
from otel_train.runlog.rebuild import ENDED, end_of
from otel_train.runlog.regular_file import open_regular
from otel_train.runlog.segments import SIGNALS, list_segments
from otel_train.semconv import SPLIT

HEARTBEAT_LIMIT_S = 60.0
_TAIL_BYTES = 4 << 20
_STEP_BYTES = 16 << 10
_TIME = re.compile(rb'"(?:timeUnixNano|endTimeUnixNano)"\s*:\s*"?(\d+)')


@dataclass(frozen=True, slots=True)
class Status:
    """How a run is. `state` is running, finished, failed, interrupted, killed or lost."""

    state: str
    reason: str = ""
    # When the state began: start of a running attempt, end of an ended one, last sign of life of a lost one.
    since_ns: int = 0
    last_seen_ns: int = 0
    attempt: int = 0
    exit_code: int | None = None

    @property
    def is_running(self) -> bool:
        """Whether somebody is still writing."""
        return self.state == "running"


def run_status(
    folder: RunFolder | Path | str,
    now_ns: int,
    processes: Processes | None = None,
    info: Mapping[str, Any] | None = None,
) -> Status:
    """Return the status of a run's newest attempt, from its files and, on its own host, from its process.

    `info` is what was just read of run.json, empty where it cannot be read; without it the file is read.
    """
    run = folder if isinstance(folder, RunFolder) else RunFolder(folder)
    processes = processes or Processes()
    attempt = _newest_attempt(run, info)
    number = attempt.get("attempt", 0)
    locked = _locked(run, number, processes)
    ended_ns = _time(attempt.get("ended")) if attempt.get("status") in ENDED and not locked else 0
    # The end is the last sign of life, so of an ended run, and most are, no line is read.
    seen_ns = ended_ns or last_sign_of_life_ns(run, number)
    started_ns = _time(attempt.get("started"))
    if locked:
        return Status("running", "", started_ns or seen_ns, seen_ns, number)
    if attempt.get("status") not in ENDED:
        # The end is written to the log before run.json: a run killed in between has ended all the same.
        first = _first_rank(run, number)
        attempt = {**attempt, **(end_event(first) if first else {})}
    state = attempt.get("status")
    if state in ENDED:
        code = attempt.get("exit_code")
        ended_ns = _time(attempt.get("ended")) or seen_ns
        return Status(str(state), str(attempt.get("reason") or ""), ended_ns, seen_ns, number, code)
    return _without_end(attempt, number, started_ns, seen_ns, now_ns, processes)


def _without_end(
    attempt: Mapping[str, Any], number: int, started_ns: int, seen_ns: int, now_ns: int, processes: Processes
) -> Status:
    last_ns = max(seen_ns, started_ns)
    pid, host = attempt.get("pid"), attempt.get("host")
    if isinstance(pid, int) and host == processes.host():
        boot, present = attempt.get("boot_id"), processes.boot_id()
        if boot and present and boot != present:
            return Status("lost", "the machine was restarted", last_ns, seen_ns, number)
        if processes.alive(pid, attempt.get("process_start")):
            return Status("running", "", started_ns, seen_ns, number)
        reason = f"process {pid} is gone and wrote no end"
        return Status("lost", reason + _oom_text(attempt, processes), last_ns, seen_ns, number)
    if not last_ns:
        reason = "nothing was recorded" if attempt else f"{RUN_FILE} is missing or damaged, and nothing was recorded"
        return Status("lost", reason, 0, 0, number)
    silent_s = (now_ns - last_ns) / NS_PER_S
    if silent_s <= HEARTBEAT_LIMIT_S:
        return Status("running", "", started_ns, seen_ns, number)
    where = f" from {host}" if host else ""
    return Status("lost", f"no sign of life{where} for {_duration(silent_s)}", last_ns, seen_ns, number)


def _oom_text(attempt: Mapping[str, Any], processes: Processes) -> str:
    before = attempt.get("oom_kill_at_start")
    after = processes.oom_kills(str(attempt.get("cgroup") or ""))
    if isinstance(before, int) and after is not None and after > before:
        return f"; out of memory: the kernel killed in its cgroup meanwhile (oom_kill rose from {before} to {after})"
    return ""


def _duration(seconds: float) -> str:
    for size, unit in ((86_400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} seconds"


def _newest_attempt(run: RunFolder, info: Mapping[str, Any] | None) -> dict[str, Any]:
    try:
        attempts = (run.read() if info is None else info).get("attempts")
    except RunFolderError:
        attempts = None
    described = [item for item in attempts if isinstance(item, dict)] if isinstance(attempts, list) else []
    newest = max(described, key=lambda item: _number(item.get("attempt")), default={})
    on_disk = max(run.attempts(), default=0)
    if on_disk > _number(newest.get("attempt")):
        # run.json could not be written, on a full disk say: the folder knows better.
        return {"attempt": on_disk}
    return newest


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0


def _time(text: object) -> int:
    try:
        # What lies before 1970 is no time of a run.
        return max(0, from_iso(text)) if isinstance(text, str) and text else 0
    except ValueError:
        return 0


def _locked(run: RunFolder, attempt: int, processes: Processes) -> bool:
    return any(is_locked(path, processes=processes) for _, _, path in run.rank_folders(attempt))


def _first_rank(run: RunFolder, attempt: int) -> Path | None:
    folders = run.rank_folders(attempt)
    return folders[0][2] if folders else None


def last_sign_of_life_ns(run: RunFolder, attempt: int) -> int:
    """Return the newest time in the last lines of the first rank; where none can be read, when its files changed."""
    folder = _first_rank(run, attempt)
    if folder is None:
        return 0
    newest, changed = 0, 0
    for signal in SIGNALS:
        segments = list_segments(folder, signal)
        if not segments:
            continue
        path = segments[-1][1]
        for line in islice(last_lines(path), 2):
            newest = max([newest, *map(int, _TIME.findall(line))])
        try:
            changed = max(changed, path.stat().st_mtime_ns)
        except OSError:
            pass
    return newest or changed


def end_event(folder: Path) -> dict[str, Any]:
    """Return status, reason, exit code and time of a `run.end` event in the last lines of a rank's log; else {}."""
    segments = list_segments(folder, "logs")
    for line in last_lines(segments[-1][1], b"run.end") if segments else ():
        try:
            entries = decode_line(line).logs
        except DamagedLine:
            continue
        for entry, _ in reversed(entries):
            if entry.event_name == "run.end":
                return {**end_of(entry.attributes), "ended": iso(entry.time_ns)}
    return {}


def last_step(folder: Path) -> int | None:
    """Return the newest training step in the last lines of a rank's metrics; None where there is none."""
    segments = list_segments(folder, "metrics")
    for line in last_lines(segments[-1][1], b'"dl.step"') if segments else ():
        try:
            found = [point for point, _ in decode_line(line, ("dl.step",)).points()]
        except DamagedLine:
            continue
        steps = [point for point in found if dict(point.attributes).get(SPLIT, "train") == "train"]
        if steps:
            newest = max(steps, key=lambda point: point.time_ns)
            return None if newest.value is None else int(newest.value)
    return None


def last_lines(path: Path, containing: bytes = b"") -> Iterator[bytes]:
    """Give the whole lines of a segment's last MiB that contain these bytes, the last one first.

    Of a gzipped segment these are among the last ten.
    """
    try:
        if path.suffix == ".gz":
            lines: Iterator[bytes] = reversed([raw.data for raw in deque(read_lines(path, []), 10)])
            yield from (line for line in lines if containing in line)
            return
        with open_regular(path) as file:
            # Looking for bytes is quick, checking a line is not.
            yield from (line for line in _backwards(file) if containing in line and _whole(line))
    except OSError:
        return


def _backwards(file: IO[bytes]) -> Iterator[bytes]:
    """Give lines from the end, read in ever larger pieces, since mostly the last line is enough."""
    end = size = file.seek(0, os.SEEK_END)
    rest, step = b"", _STEP_BYTES
    while end > 0 and size - end < _TAIL_BYTES:
        start = max(0, end - step, size - _TAIL_BYTES)
        file.seek(start)
        rest, *lines = (file.read(end - start) + rest).split(b"\n")
        yield from reversed(lines)
        end, step = start, 4 * step
    if end == 0:
        yield rest


def _whole(line: bytes) -> bool:
    if not line.startswith(b"{"):
        return False
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True
