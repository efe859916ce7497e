"""Sends the runs of a folder behind their writers, and the rest of those that died: an agent, or one run's own process.

A run that sends itself holds its folders' locks; when it is killed they are free, and what it left is sent from here.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from otel_train.clock import NS_PER_S, SYSTEM, Clock
from otel_train.export.rank_ends import rank_ends
from otel_train.export.rank_source import SENDER_LOCK, RankSource
from otel_train.export.sender import Sender
from otel_train.runlog.catalogue import is_run, run_paths
from otel_train.runlog.folder import RunFolder
from otel_train.runlog.lock import is_locked
from otel_train.runlog.lost import mark_lost

if TYPE_CHECKING:
    from otel_train.export.destination import Destinations
    from otel_train.runlog.processes import Processes

_log = logging.getLogger("otel_train")

POLL_S: Final = 0.5
# A folder that somebody else sends, or whose status has to be read from its files, is looked at more rarely.
LOOK_AGAIN_NS: Final = 2 * NS_PER_S
# Folders at work at the same time: each takes some files, and a turn of the lanes goes through all.
MOST_FOLDERS: Final = 64
# Where there are more, those that have had so long and little left give way for a moment; positions are kept.
TAKE_TURNS_NS: Final = 10 * NS_PER_S
REST_NS: Final = 6 * NS_PER_S
LITTLE_BYTES: Final = 64 << 10
# For what is on disk when the agent is told to end.
ENDING_TIMEOUT_S: Final = 5.0


@dataclass(slots=True)
class _Followed:
    """A rank folder at work."""

    run: Path
    attempt: int
    rank: int
    folder: Path
    source: RankSource
    since_ns: int


class Follower:
    """Follows every run below a folder, or where the folder is a run's, that run, to its end.

    `attempt` and `rank` narrow it to some folders of one run. `give_up_after_s` is how long after the end of that run
    a server that takes nothing is tried.
    """

    def __init__(
        self,
        folder: Path,
        destinations: Destinations,
        *,
        max_log_age_s: float | None = None,
        attempt: int | None = None,
        rank: int | None = None,
        give_up_after_s: float = 600.0,
        clock: Clock = SYSTEM,
        processes: Processes | None = None,
        tell: Callable[[str], None] = _log.info,
    ) -> None:
        self.folder = folder
        self.one_run = is_run(folder)
        self.sender = Sender.to(destinations, clock=clock)
        self.complete = False
        self._endpoints = destinations.addresses
        self._max_log_age_s = max_log_age_s
        self._attempt = attempt
        self._rank = rank
        self._give_up_after_ns = int(give_up_after_s * NS_PER_S)
        self._clock = clock
        self._processes = processes
        self._tell = tell
        self._followed: dict[Path, _Followed] = {}
        self._done: set[Path] = set()
        # Runs that are over and sent, with the time of their folder then.
        self._over_at: dict[Path, int] = {}
        self._look_ns: dict[Path, int] = {}
        # Whether a folder found no place, and until when those that gave way to it rest.
        self._crowded = False
        self._rests_until_ns: dict[Path, int] = {}
        self._scan_ns = 0
        self._quiet_since_ns = 0
        self._acknowledged = -1

    def run(self, stop: threading.Event, poll_s: float = POLL_S) -> bool:
        """Follow until `stop` is set, or the one run is sent; True where nothing is left of what was at work.

        On `stop` what is on disk is still sent, for some seconds.
        """
        self.sender.start()
        try:
            while not stop.is_set() and not self._over():
                self.turn()
                stop.wait(poll_s)
        finally:
            self._end(stop.is_set())
        return self.complete

    def turn(self) -> None:
        """Look once for new folders, for ends, and for what is complete."""
        now_ns = self._clock.mono_ns()
        if self.one_run or now_ns >= self._scan_ns:
            self._scan_ns = now_ns + LOOK_AGAIN_NS
            for path in [self.folder] if self.one_run else run_paths(self.folder):
                try:
                    self._look_at(path)
                except OSError as fault:
                    self._tell(f"{path} cannot be looked at: {fault.strerror or fault}")
        self._settle()
        self.sender.keep()
        self.sender.wake()

    def _settle(self) -> None:
        """Let go of what is complete."""
        for item in list(self._followed.values()):
            if item.source.complete:
                self.sender.remove(item.source)
                del self._followed[item.folder]
                self._done.add(item.folder)
                self._tell(f"{item.run.name}: attempt {item.attempt} rank {item.rank} is sent")
        if self._crowded:
            self._give_way()

    def _give_way(self) -> None:
        """Make room for folders that wait, by those that were at work longest and have little left."""
        now_ns = self._clock.mono_ns()
        for item in list(self._followed.values())[: max(1, MOST_FOLDERS // 4)]:
            if now_ns - item.since_ns >= TAKE_TURNS_NS and item.source.queued_bytes() <= LITTLE_BYTES:
                self._crowded = False
                self._rests_until_ns[item.folder] = now_ns + REST_NS
                self.sender.remove(item.source)
                del self._followed[item.folder]

    # Runs ------------------------------------------------------------------------------------------------------------

    def _look_at(self, path: Path) -> None:
        # A further attempt makes a folder, and so changes the time of the run's.
        changed_ns = path.stat().st_mtime_ns
        if self._over_at.get(path) == changed_ns:
            return
        run = RunFolder(path)
        folders = run.rank_folders(self._attempt, self._rank)
        open_folders = [folder for _, _, folder in folders if folder not in self._done]
        now_ns = self._clock.mono_ns()
        if now_ns < self._look_ns.get(path, now_ns):
            return
        if open_folders and all(self._is_as_it_was(folder) for folder in open_folders):
            return
        self._look_ns[path] = now_ns + LOOK_AGAIN_NS
        status, ranks = rank_ends(run, self._clock.wall_ns(), self._processes, attempt=self._attempt, rank=self._rank)
        if not open_folders:
            if not status.is_running:
                self._over_at[path] = changed_ns
            return
        if status.state == "lost" and mark_lost(run, status):
            self._tell(f"{path.name} is lost: {status.reason}")
        for rank in ranks:
            if rank.folder in self._done:
                continue
            item = self._followed.get(rank.folder) or self._take(path, rank.attempt, rank.rank, rank.folder)
            if item is not None and rank.ended and not item.source.ended:
                item.source.final_state = rank.final_state
                item.source.ended = True

    def _is_as_it_was(self, folder: Path) -> bool:
        """Tell, without reading files, whether a folder is written and sent: by us, or by its run itself."""
        return bool(is_locked(folder, processes=self._processes)) and (
            folder in self._followed or bool(is_locked(folder, SENDER_LOCK, processes=self._processes))
        )

    def _take(self, path: Path, attempt: int, rank: int, folder: Path) -> _Followed | None:
        now_ns = self._clock.mono_ns()
        if self._rests_until_ns.get(folder, 0) > now_ns:
            return None
        if len(self._followed) >= MOST_FOLDERS:
            self._crowded = True
            return None
        self._rests_until_ns.pop(folder, None)
        source = RankSource.open(
            folder, self._endpoints, max_log_age_s=self._max_log_age_s, final_state="running", clock=self._clock
        )
        if source is None:
            return None  # it sends itself
        item = self._followed[folder] = _Followed(path, attempt, rank, folder, source, now_ns)
        self.sender.add(source)
        return item

    # The end ---------------------------------------------------------------------------------------------------------

    def _over(self) -> bool:
        """Tell whether the one run is sent, or has ended and no server takes it."""
        if not self.one_run:
            return False
        if not self._followed:
            folders = RunFolder(self.folder).rank_folders(self._attempt, self._rank)
            self.complete = bool(folders) and all(folder in self._done for _, _, folder in folders)
            return self.complete
        now_ns = self._clock.mono_ns()
        acknowledged = self.sender.accounting.acknowledged
        if acknowledged != self._acknowledged or not all(item.source.ended for item in self._followed.values()):
            self._acknowledged, self._quiet_since_ns = acknowledged, now_ns
        return now_ns - self._quiet_since_ns > self._give_up_after_ns

    def _end(self, stopped: bool) -> None:
        if self._followed and stopped:
            # What is on disk now; a run that goes on is not told to have ended.
            for lane in self.sender.lanes.values():
                lane.end(self._clock.mono_ns() + int(ENDING_TIMEOUT_S * NS_PER_S))
            self.sender.wait(self._clock.mono_ns() + int(ENDING_TIMEOUT_S * NS_PER_S))
            self._settle()
            # A run that goes on is sent up to here.
            self.complete = not self.sender.faults() and not any(item.source.ended for item in self._followed.values())
        elif not self.one_run and not self._followed:
            self.complete = True
        self.sender.stop(1.0)
