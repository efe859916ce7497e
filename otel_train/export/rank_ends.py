"""Says which ranks of a run will write no more, and what the stores are to be told of their state."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from otel_train.runlog.folder import RunFolder
from otel_train.runlog.lock import is_locked
from otel_train.runlog.processes import Processes
from otel_train.runlog.status import Status, run_status


@dataclass(frozen=True, slots=True)
class RankEnd:
    """One rank of one attempt: its folder, whether its writer has ended, and in which state."""

    attempt: int
    rank: int
    folder: Path
    ended: bool
    final_state: str


def rank_ends(
    run: RunFolder,
    now_ns: int,
    processes: Processes | None = None,
    *,
    attempt: int | None = None,
    rank: int | None = None,
) -> tuple[Status, list[RankEnd]]:
    """Return the run's status and its ranks, of one attempt or all: those of an earlier attempt have ended."""
    status = run_status(run, now_ns, processes)
    ends = []
    for number, place, folder in run.rank_folders(attempt, rank):
        if is_locked(folder, processes=processes) or (number >= status.attempt and status.is_running):
            ends.append(RankEnd(number, place, folder, ended=False, final_state="running"))
        else:
            state = status.state if number >= status.attempt else "lost"
            ends.append(RankEnd(number, place, folder, ended=True, final_state=state))
    return status, ends
