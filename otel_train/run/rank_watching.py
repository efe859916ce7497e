"""Joins a run with what watches its ranks: pulses, the look at the others, hangs, and waits in collectives."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from otel_train.clock import mono_ns, wall_ns
from otel_train.record.entries import AttributeValue
from otel_train.record.rank_waits import RankWaits
from otel_train.run.bounded import within
from otel_train.runlog.processes import Processes

if TYPE_CHECKING:
    from otel_train.run.opening import Opened
    from otel_train.run.run import Run
    from otel_train.runlog.stacks import StacksFile
    from otel_train.watch.hang import HangWatch
    from otel_train.watch.rank_watch import RankWatch, Self
    from otel_train.watch.stuck import StuckWatch
    from otel_train.watch.thresholds import Thresholds

COLLECTIVES_FILE: Final = "collectives.json"
LAST_LOOK_S: Final = 1.0


def wait_measures(run: Run) -> RankWaits | None:
    """Have the waits for other ranks measured in each training loop; None where there are none."""
    if not run.session.ranks.shared:
        return None
    waits = RankWaits()

    def attach() -> None:
        with run.guard("ranks"):
            if "torch.distributed" in sys.modules:
                from otel_train.watch.collectives import COLLECTIVES

                COLLECTIVES.attach(waits)

    run.digest.rank_waits = waits
    run.points.on_loop = attach
    return waits


def stop_measuring(run: Run) -> None:
    """Take away what measures the waits of a run."""
    if run.rank_waits is not None and "otel_train.watch.collectives" in sys.modules:
        from otel_train.watch.collectives import COLLECTIVES

        COLLECTIVES.detach(run.rank_waits)


class RankWatching:
    """One run's. Made before its id is known; `open` is called once it is, then `cycle` on the writer's thread."""

    def __init__(self) -> None:
        self._run: Run | None = None
        self._watch: RankWatch | None = None
        self._stacks: StacksFile | None = None
        self._stuck: StuckWatch | None = None
        self._hang: HangWatch | None = None
        self._opened: Opened | None = None
        # The writer's thread is still at work when the run ends.
        self._lock = threading.Lock()
        self._begun = self._ending = False

    def open(self, run: Run, opened: Opened) -> None:
        """Take what is known now; the rest begins on the writer's thread, since to import it takes a while."""
        self._run, self._opened = run, opened

    def _begin(self, run: Run, opened: Opened) -> None:
        """Begin; without a folder only hangs are seen."""
        if opened.place is None:
            return
        from otel_train.run.watching import thresholds_of
        from otel_train.runlog.stacks import StacksFile
        from otel_train.watch.rank_watch import RankWatch

        ranks = run.session.ranks
        limits = thresholds_of(run.settings)
        limit_s = limits["hung_min_s"]
        sees_hangs = bool(limit_s and limits["hung_factor"])
        self._watch = RankWatch(
            opened.place.folder,
            opened.attempt,
            ranks.rank,
            ranks.world_size,
            pid=os.getpid(),
            ask=self._asked,
            emit=run.events.emit,
            give=run.session.sink.emit_samples,
            tells_hangs=sees_hangs,
        )
        if not sees_hangs:
            return
        from otel_train.watch.stuck import StuckWatch

        try:
            self._stacks = StacksFile(opened.place.rank_folder)
        except OSError:
            return
        stuck = StuckWatch(self._stacks.descriptor, limit_s)
        self._stuck = stuck if stuck.start() else None

    def hang_watch(self, thresholds: Thresholds) -> HangWatch:
        """Return what sees that no step ends, for the watcher of this run."""
        from otel_train.runlog.stacks import stacks_of_all_threads
        from otel_train.watch.hang import HangWatch

        waits = None if self._run is None else self._run.rank_waits
        self._hang = HangWatch(
            thresholds,
            stacks=stacks_of_all_threads,
            dumped=lambda: "" if self._stacks is None else self._stacks.take(),
            waits=(lambda: False) if waits is None else waits.standing,
            recorder=self._flight_recorder,
        )
        return self._hang

    def cycle(self) -> None:
        """Do what is due."""
        run, opened = self._run, self._opened
        if run is None or opened is None:
            return
        with run.guard("ranks"), self._lock:
            if self._ending:
                return
            if not self._begun:
                self._begun = True
                self._begin(run, opened)
                self._look_back(run, opened)
            if self._watch is not None:
                self._watch.cycle(wall_ns(), mono_ns())

    def ending(self, status: str, reason: str | None) -> None:
        """Before the log's end: look once more at the others, who may have fallen first, and note what ended it all."""
        self._ending = True
        run, opened, watch = self._run, self._opened, self._watch
        if run is not None and opened is not None and opened.former is not None:
            # A short run ends before the writer's thread has come to it, or while it is at it.
            within(LAST_LOOK_S, lambda: self._look_back_late(run, opened), "otel-train-ranks")
        if run is None or watch is None or not run.session.ranks.shared:
            return

        def look() -> None:
            with run.guard("ranks"), self._lock:
                self._look_at_the_end(run, watch, status, reason or "")

        # A disk that does not answer must not keep the end from what else it has to do.
        within(LAST_LOOK_S, look, "otel-train-ranks")

    def _look_at_the_end(self, run: Run, watch: RankWatch, status: str, reason: str) -> None:
        now_ns = wall_ns()
        watch.score(now_ns)
        if status == "finished":
            return
        watch.look(now_ns)
        if run.session.ranks.is_main:
            cause = watch.cause(now_ns, status, reason)
            if cause is not None:
                run.session.file.set_attempt(cause=cause)

    def close(self, status: str, reason: str | None) -> None:
        """After the log's end: the last pulse, and everything taken away again."""
        if self._stuck is not None:
            self._stuck.stop()
        if self._watch is not None:
            self._watch.end(wall_ns(), status, reason or "")
        if self._stacks is not None:
            self._stacks.close()

    def abandon(self) -> None:
        """In a forked child, where nothing is watched."""
        self._lock = threading.Lock()
        self._ending = True
        if self._stuck is not None:
            self._stuck.abandon()
        if self._watch is not None:
            self._watch.abandon()
        if "otel_train.watch.collectives" in sys.modules:
            from otel_train.watch.collectives import COLLECTIVES

            COLLECTIVES.forget()
        self._watch = self._stacks = self._stuck = None

    # What is asked of this rank --------------------------------------------------------------------------------------

    def _asked(self) -> Self:
        from otel_train.watch.rank_watch import Self

        run = self._run
        assert run is not None
        hang, waits = self._hang, run.rank_waits
        position = run.position()
        step = position.get("dl.step")
        return Self(
            step=step if isinstance(step, int) else None,
            hung_since_ns=0 if hang is None else hang.since_ns,
            waits=hang is not None and hang.waiting,
            times_s=None if waits is None else waits.medians_s(mono_ns()),
        )

    def _flight_recorder(self) -> str:
        """Keep what PyTorch recorded of the last collectives, and say where that is, and torch's own dump."""
        run, opened = self._run, self._opened
        if run is None or "torch.distributed" not in sys.modules:
            return ""
        from otel_train.runlog.stacks import keep
        from otel_train.watch.flight_recorder import last_collectives, torchs_own

        kept = ""
        if opened is not None and opened.place is not None:
            kept = keep(opened.place.rank_folder, COLLECTIVES_FILE, last_collectives())
        return ", ".join(path for path in (kept, torchs_own(run.session.environ, run.session.ranks.rank)) if path)

    # Looking back ----------------------------------------------------------------------------------------------------

    def _look_back_late(self, run: Run, opened: Opened) -> None:
        with run.guard("ranks"), self._lock:
            if not self._begun:
                self._begun = True
                self._look_back(run, opened)

    def _look_back(self, run: Run, opened: Opened) -> None:
        """Say why the attempt that this one goes on from ended, where a rank of it fell."""
        if opened.former is None or opened.resumed_from is None:
            return
        if not run.session.ranks.is_main or opened.place is None:
            return
        from otel_train.runlog.rank_states import rank_states
        from otel_train.watch.rank_watch import cause_of

        number = opened.resumed_from
        states = rank_states(opened.place.folder, number, wall_ns(), Processes())
        cause = cause_of(states, number)
        if cause is None:
            return
        first = next((one for one in states if one.rank == 0), None)

        def note(document: dict[str, Any]) -> None:
            for entry in document.get("attempts", []):
                if isinstance(entry, dict) and entry.get("attempt") == number:
                    entry["cause"] = cause
                    if entry.get("status") in ("running", None) and first is not None:
                        # It could not say so itself.
                        entry.update(status=first.state, reason=first.reason or None)

        run.session.file.change(note)
        run.events.emit("attempt.ended", cause["text"], _attributes(cause, number))


def _attributes(cause: Mapping[str, Any], attempt: int) -> dict[str, AttributeValue]:
    named = {"rank": "rank", "state": "state", "reason": "reason", "host": "host.name", "pid": "process.pid"}
    found = {name: cause[key] for key, name in named.items() if cause[key] not in (None, "", 0) or key == "rank"}
    if cause["step"] is not None:
        found["dl.step"] = cause["step"]
    return {**found, "attempt": attempt}
