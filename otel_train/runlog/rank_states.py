"""Says of each rank of an attempt how it is, or how it ended, and which one was the first to fall."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from otel_train.clock import NS_PER_S, from_iso
from otel_train.errors import RunFolderError
from otel_train.runlog.folder import RunFolder
from otel_train.runlog.lock import is_locked
from otel_train.runlog.processes import Processes
from otel_train.runlog.pulse import Pulse, read_pulse
from otel_train.runlog.rebuild import ENDED
from otel_train.runlog.stacks import read_stacks
from otel_train.runlog.status import HEARTBEAT_LIMIT_S, end_event, last_step

# What a rank says that a launcher, or a scheduler, has ended: it is never where the trouble began.
ENDED_BY_OTHERS: Final = ("killed", "interrupted")


@dataclass(frozen=True, slots=True, kw_only=True)
class RankState:
    """One rank. `state` is running, finished, failed, interrupted, killed (by a signal it heard) or lost."""

    rank: int
    state: str
    reason: str = ""
    host: str = ""
    pid: int = 0
    step: int | None = None
    # When it ended; of one that is lost, or runs, its last sign of life.
    time_ns: int = 0
    # Since when it made no step though one was due, up to its end or now; 0 where it went on.
    hung_since_ns: int = 0
    # Whether it waited for other ranks then.
    waits: bool = False
    # Usual whole and own time of a step, in seconds.
    step_s: float | None = None
    busy_s: float | None = None
    # Stacks of all its threads, where the interpreter itself stood still.
    stacks: str = ""

    @property
    def hangs(self) -> bool:
        """Whether it hung of itself, at the end or now: not one that only waits for such a one."""
        return bool(self.stacks) or (bool(self.hung_since_ns) and not self.waits)


def rank_states(
    folder: RunFolder | Path | str, attempt: int, now_ns: int, processes: Processes | None = None
) -> list[RankState]:
    """Return the state of each rank that wrote in an attempt, in order."""
    run = folder if isinstance(folder, RunFolder) else RunFolder(folder)
    processes = processes or Processes()
    ended_ns = cache(lambda: _ended_ns(run, attempt))
    return [rank_state(path, rank, now_ns, processes, ended_ns) for _, rank, path in run.rank_folders(attempt)]


def rank_state(
    folder: Path, rank: int, now_ns: int, processes: Processes, ended_ns: Callable[[], int] = lambda: 0
) -> RankState:
    """Return the state of the rank that writes, or wrote, in a folder.

    `ended_ns` gives when its attempt ended, 0 while it goes on; it is asked only of ranks whose files alone tell.
    """
    pulse = read_pulse(folder)
    facts: dict[str, Any] = {"rank": rank, "stacks": read_stacks(folder)}
    if pulse is not None:
        for name in ("host", "pid", "step", "hung_since_ns", "waits", "step_s", "busy_s"):
            facts[name] = getattr(pulse, name)
    is_here = pulse is None or pulse.host == processes.host()
    # Locks of other hosts are seen on some file systems only; there a rank is what its pulse says.
    locked = is_locked(folder, processes=processes) if is_here else None
    if locked and pulse is not None:
        return RankState(state="running", time_ns=pulse.time_ns, **facts)
    seen_ns = _seen_ns(folder, pulse)
    if locked:
        return RankState(state="running", time_ns=seen_ns, **facts)
    if pulse is not None and pulse.state in ENDED:
        return RankState(state=pulse.state, reason=pulse.reason, time_ns=pulse.time_ns, **facts)
    end = end_event(folder)
    if end:
        time_ns = _time(end.get("ended")) or seen_ns
        return RankState(state=str(end["status"]), reason=str(end.get("reason") or ""), time_ns=time_ns, **facts)
    outlived = False
    if locked is None and _lives(pulse, seen_ns, now_ns, processes, is_here):
        # Files are also fresh where they were copied. Other hosts may take a while to say how they ended.
        outlived = not (is_here and pulse is not None) and 0 < ended_ns() < now_ns - round(HEARTBEAT_LIMIT_S * NS_PER_S)
        if not outlived:
            return RankState(state="running", time_ns=seen_ns, **facts)
    # It lived on after its last pulse.
    facts["step"] = max((step for step in (facts.get("step"), last_step(folder)) if step is not None), default=None)
    if outlived:
        reason = "wrote no end, and the run has ended"
    elif is_here:
        pid = f" {pulse.pid}" if pulse is not None and pulse.pid else ""
        reason = f"process{pid} is gone and wrote no end"
    else:
        silent_s = max(0, now_ns - seen_ns) / NS_PER_S
        reason = f"no sign of life for {silent_s:.0f} seconds" if seen_ns else "nothing was recorded"
    return RankState(state="lost", reason=reason, time_ns=seen_ns, **facts)


def first_fallen(states: Sequence[RankState]) -> RankState | None:
    """Return the rank that ended an attempt: the first that was lost, failed or hung of itself; None where none did.

    Those that a launcher then ended, and those that only waited for one that hung, are not it. A lost rank counts by
    its last sign of life, which is before its death, as the others' errors about it are after.
    """
    fallen = [one for one in states if one.state in ("lost", "failed") or (one.hangs and one.state != "finished")]
    return min(fallen, key=_fell_ns, default=None)


def told(state: RankState, attempt: int, *, goes_on: bool = False) -> str:
    """Return one sentence on the rank that ended an attempt, or that fell while the attempt goes on."""
    where = f"rank {state.rank}"
    place = ", ".join(part for part in (state.host, f"process {state.pid}" if state.pid else "") if part)
    where += f" ({place})" if place else ""
    hung = "hangs" if goes_on else "hung"
    if state.stacks:
        what = f"{hung} with the interpreter's lock held"
    elif state.hangs:
        what = hung
    elif state.state == "lost":
        what = "was killed"
    else:
        what = "failed"
    at = f" at step {state.step}" if state.step is not None else ""
    reason = f": {state.reason}" if state.reason and state.state != "lost" else ""
    begin = f"in attempt {attempt}" if goes_on else f"attempt {attempt} ended because"
    return f"{begin} {where} {what}{at}{reason}"


def _fell_ns(state: RankState) -> int:
    return state.hung_since_ns if state.hangs and state.hung_since_ns else state.time_ns


def _seen_ns(folder: Path, pulse: Pulse | None) -> int:
    """Return the last sign of life: the pulse, or when the run log was last written."""
    newest_ns = 0 if pulse is None else pulse.time_ns
    try:
        for path in folder.iterdir():
            # A rank is not alive because somebody else dumped its stacks, or sends its lines.
            if path.suffix in (".jsonl", ".gz"):
                newest_ns = max(newest_ns, path.stat().st_mtime_ns)
    except OSError:
        pass
    return newest_ns


def _ended_ns(run: RunFolder, attempt: int) -> int:
    """Return when an attempt ended by run.json, 0 where that has no end of it."""
    try:
        described = run.read().get("attempts")
    except RunFolderError:
        return 0
    for one in described if isinstance(described, list) else ():
        if isinstance(one, dict) and one.get("attempt") == attempt and one.get("status") in ENDED:
            return _time(one.get("ended"))
    return 0


def _lives(pulse: Pulse | None, seen_ns: int, now_ns: int, processes: Processes, is_here: bool) -> bool:
    if is_here and pulse is not None:
        return processes.alive(pulse.pid, pulse.process_start)
    return now_ns - seen_ns <= HEARTBEAT_LIMIT_S * NS_PER_S


def _time(text: object) -> int:
    try:
        return from_iso(text) if isinstance(text, str) and text else 0
    except ValueError:
        return 0
