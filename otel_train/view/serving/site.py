"""Joins what the routes of the local page share: the root, its runs, the table, and who is there."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from otel_train.clock import NS_PER_S, SYSTEM, Clock
from otel_train.errors import RunNotFoundError
from otel_train.runlog.catalogue import find_run, is_run, near_runs, run_paths, runs_meant
from otel_train.view.serving.assets import Assets
from otel_train.view.serving.faults import Faults
from otel_train.view.serving.held_runs import HeldRun, HeldRuns
from otel_train.view.serving.run_list import RunList
from otel_train.view.serving.streams import Stream, event
from otel_train.view.serving.workers import Workers

# A browser opens six connections to a server, for all of its pages together; a stream holds one.
MANY_STREAMS = 4
_REST = event("rest", b"{}")


class Presence:
    """Counts the requests that are open, streams among them, and knows since when there is none."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._open = 0
        self._since_ns = clock.mono_ns()

    def enter(self) -> None:
        """One more."""
        self._open += 1

    def leave(self) -> None:
        """One less."""
        self._open -= 1
        self._since_ns = self._clock.mono_ns()

    @property
    def idle_s(self) -> float:
        """For how long nobody has been there."""
        return 0.0 if self._open else (self._clock.mono_ns() - self._since_ns) / NS_PER_S


class Site:
    """The local page over one root."""

    def __init__(self, root: Path, assets: Assets, *, clock: Clock = SYSTEM, faults: Faults | None = None) -> None:
        self.root = root
        self.assets = assets
        self.clock = clock
        self.faults = faults or Faults()
        self.workers = Workers()
        self.presence = Presence(clock)
        self.runs = HeldRuns(self.workers, clock, self.faults)
        # Threads of its own, so that reading large runs does not keep the table waiting; a filter not the look around.
        self.list = RunList(root, Workers(2), clock, self.faults)
        self.stopping = False
        self._streams: list[Stream] = []

    def find(self, run_id: str) -> Path | None:
        """Return the folder of a run by its id, which is its name in the root and nothing else."""
        if not run_id or run_id.startswith(".") or "\0" in run_id or Path(run_id).name != run_id:
            return None
        path = self.root / run_id
        try:
            return path if path.is_dir() and is_run(path) else None
        except OSError:
            return None

    def begin(self, run_id: str = "") -> None:
        """Begin to read a run, or the table of runs, for whoever asks next."""
        path = self.find(run_id)
        if path is not None:
            self.runs.hold(run_id, path).warm()
        elif not run_id:
            self.list.warm()

    def newest(self) -> str:
        """Return the id of the run that was created last, "" where there is none."""
        try:
            return "" if self.find("latest") else find_run(self.root, "latest").name
        except RunNotFoundError:
            return ""

    def meant(self, reference: str) -> str:
        """Return the id of the one run whose name, or the start of whose id, this is; "" where that is not one."""
        meant = [] if self.find(reference) else runs_meant(run_paths(self.root), reference)
        return meant[0].name if len(meant) == 1 else ""

    def near(self, run_id: str) -> tuple[str, list[str]]:
        """Return what to say of a run that is not there, and the ids that it says: those near, else the newest."""
        paths = run_paths(self.root)
        if not paths:
            return ", and no other run either", []
        near, runs = near_runs(paths, run_id)
        ids = [path.name for path in runs]
        return f"; {'near it:' if near else 'the newest is'} {', '.join(ids)}", ids

    @contextlib.asynccontextmanager
    async def listening(self, watched: HeldRun | RunList, stream: Stream) -> AsyncIterator[Stream]:
        """Hold a stream open. Where a browser has many, those of pages that nobody sees are asked to rest."""
        if len(self._streams) >= MANY_STREAMS:
            for earlier in self._streams:
                earlier.put(_REST)
        self._streams.append(stream)
        if self.stopping:
            stream.end()
        try:
            yield stream
        finally:
            self._streams.remove(stream)
            watched.unwatch(stream)

    def stop(self) -> None:
        """End the streams and the looking, so that no page holds the server up."""
        self.stopping = True
        self.runs.close()
        self.list.close()
        self.workers.stop()
