"""Says of a rank that it lives and how fast its own work is; on rank 0, which other one was lost or stands still.

By files in the run's folder, so it works where ranks share one; for the others the stores' rules see their series.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from otel_train.clock import NS_PER_S
from otel_train.record.entries import AttributeValue, Sample
from otel_train.runlog.folder import RunFolder
from otel_train.runlog.processes import Processes
from otel_train.runlog.pulse import Pulse, PulseFile, read_pace, write_pace
from otel_train.runlog.rank_states import RankState, first_fallen, rank_state, rank_states, told
from otel_train.semconv import CODE_STACK, HOST_NAME, PROCESS_PID, STEP
from otel_train.watch.straggler import score, usual_s

PULSE_NS: Final = 2 * NS_PER_S
# To look at one rank takes some tenths of a millisecond, more on a network's file system.
LOOK_NS_A_RANK: Final = 20_000_000
SCORE_NS: Final = 15 * NS_PER_S
# A rank whose process lives and whose writer is silent for so long stands still as a whole.
SILENT_NS: Final = 30 * NS_PER_S

Emit = Callable[[str, str, Mapping[str, AttributeValue]], None]


@dataclass(frozen=True, slots=True)
class Self:
    """What the present rank says of itself when it is asked."""

    step: int | None
    hung_since_ns: int
    waits: bool
    # Usual whole and own time of a step.
    times_s: tuple[float, float] | None


class RankWatch:
    """For the writer's thread, and at the end for the one that ends the run; never for two at once."""

    def __init__(
        self,
        folder: RunFolder,
        attempt: int,
        rank: int,
        world_size: int,
        *,
        pid: int,
        ask: Callable[[], Self],
        emit: Emit,
        give: Callable[[int, Sequence[Sample]], None],
        tells_hangs: bool = True,
        processes: Processes | None = None,
    ) -> None:
        self._folder = folder
        self._attempt = attempt
        self._rank = rank
        self._several = world_size > 1
        self._pid = pid
        self._ask = ask
        self._emit = emit
        self._give = give
        self._tells_hangs = tells_hangs
        self._processes = processes or Processes()
        self._host = self._processes.host()
        self._started = self._processes.started(pid)
        self._pulse = PulseFile(folder.path / f"attempt-{attempt}" / f"rank-{rank}")
        self._next_pulse_ns = self._next_look_ns = self._next_score_ns = 0
        # Ranks that have ended: what has been said of them is said once. And those that are known to stand still.
        self._ended: dict[int, RankState] = {}
        self._still: set[int] = set()
        # When a rank without a pulse was seen first.
        self._first_seen_ns: dict[int, int] = {}

    def cycle(self, wall_ns: int, mono_ns: int) -> None:
        """Do what is due."""
        if mono_ns < self._next_pulse_ns:
            return
        self._next_pulse_ns = mono_ns + PULSE_NS
        self._beat(wall_ns, "running", "")
        if not self._several:
            return
        if mono_ns >= self._next_look_ns:
            looked = self.look(wall_ns)
            self._next_look_ns = mono_ns + LOOK_NS_A_RANK * looked
        if mono_ns >= self._next_score_ns:
            # Until there is one it is asked for again soon.
            self._next_score_ns = mono_ns + (SCORE_NS if self.score(wall_ns) else 0)

    def end(self, wall_ns: int, state: str, reason: str) -> None:
        """Say how this rank ends: the last that it says."""
        self._beat(wall_ns, state, reason)
        self._pulse.close()

    def abandon(self) -> None:
        """In a forked child: the file is the parent's."""
        self._pulse.close()

    # Others ----------------------------------------------------------------------------------------------------------

    def look(self, wall_ns: int) -> int:
        """Look after the ranks that this one watches over, and say what befell them; return how many those are."""
        watched = self._watched()
        for rank, path in watched:
            state = rank_state(path, rank, wall_ns, self._processes)
            if state.state == "running":
                if self._tells_hangs:
                    self._tell_still(state, wall_ns)
            elif not self._is_opening(state, wall_ns):
                self._ended[rank] = state
        first = first_fallen(list(self._ended.values()))
        for rank, _ in watched:
            ended = self._ended.get(rank)
            # One that failed after another fell has most likely lost its connection to that one; its own log says it.
            if ended is not None and (ended.state == "lost" or (ended is first and self._rank == 0)):
                self._tell_lost(ended)
        return len(watched)

    def _is_opening(self, state: RankState, wall_ns: int) -> bool:
        """Tell whether a rank may be about to lock its folder and to give its first pulse: it looks like a lost one."""
        if state.state != "lost" or state.pid:
            return False
        return wall_ns - self._first_seen_ns.setdefault(state.rank, wall_ns) < SILENT_NS

    def _watched(self) -> list[tuple[int, Path]]:
        """Return the ranks that have not ended: rank 0 watches over all others, and rank 1, while it lives, over it."""
        if self._rank > 1:
            return []
        return [
            (rank, path)
            for _, rank, path in self._folder.rank_folders(self._attempt)
            if rank != self._rank and rank not in self._ended and 0 in (rank, self._rank)
        ]

    def _tell_lost(self, state: RankState) -> None:
        attributes = _about(state, self._attempt) | {"state": state.state}
        what = "was killed" if state.state == "lost" else "hung" if state.hangs else "failed"
        at = "" if state.step is None else f" at step {state.step}"
        reason = f": {state.reason}" if state.reason else ""
        self._emit("rank.lost", f"rank {state.rank} {what}{at}{reason}", attributes)

    def _tell_still(self, state: RankState, wall_ns: int) -> None:
        """Say that a rank stands still as a whole: it cannot do so itself."""
        silent_ns = wall_ns - state.time_ns
        if not state.stacks and silent_ns < SILENT_NS:
            self._still.discard(state.rank)
            return
        if state.rank in self._still or state.host != self._host:
            # The clocks of two hosts may differ by more than that.
            return
        self._still.add(state.rank)
        attributes = _about(state, self._attempt) | {"value": silent_ns / NS_PER_S, "waits_for_others": False}
        if state.stacks:
            attributes[CODE_STACK] = state.stacks
        what = "its interpreter's lock is held" if state.stacks else "its process lives and is stopped, or cannot write"
        body = f"rank {state.rank} gives no sign of life for {silent_ns / NS_PER_S:.3g} s: {what}"
        self._emit("health.hung", body, attributes)

    def cause(self, wall_ns: int, own_state: str, own_reason: str) -> dict[str, Any] | None:
        """Return why this attempt ends, as run.json has it; None where no rank fell. Its own end is not on disk yet."""
        states = rank_states(self._folder, self._attempt, wall_ns, self._processes)
        asked = self._ask()
        own = RankState(
            rank=self._rank,
            state=own_state,
            reason=own_reason,
            host=self._host,
            pid=self._pid,
            step=asked.step,
            time_ns=wall_ns,
            hung_since_ns=asked.hung_since_ns,
            waits=asked.waits,
        )
        return cause_of([one for one in states if one.rank != self._rank] + [own], self._attempt)

    # Itself ----------------------------------------------------------------------------------------------------------

    def _beat(self, wall_ns: int, state: str, reason: str) -> None:
        asked = self._ask()
        self._pulse.write(
            Pulse(
                time_ns=wall_ns,
                rank=self._rank,
                host=self._host,
                pid=self._pid,
                process_start=self._started,
                state=state,
                reason=reason,
                step=asked.step,
                hung_since_ns=asked.hung_since_ns,
                waits=asked.waits,
                step_s=None if asked.times_s is None else asked.times_s[0],
                busy_s=None if asked.times_s is None else asked.times_s[1],
            )
        )

    def score(self, wall_ns: int) -> bool:
        """Give this rank's score, False where it cannot be told yet; rank 0 first tells all what is usual."""
        path = self._folder.path / f"attempt-{self._attempt}"
        if self._rank == 0:
            states = rank_states(self._folder, self._attempt, wall_ns, self._processes)
            usual = usual_s([one.busy_s for one in states if one.busy_s is not None and one.state == "running"])
            if usual is not None:
                write_pace(path, usual)
        times_s = self._ask().times_s
        usual_own_s = read_pace(path)
        if times_s is None or usual_own_s is None:
            return False
        self._give(wall_ns, [Sample("dl.rank.straggler", score(*times_s, usual_own_s))])
        return True


def cause_of(states: Sequence[RankState], attempt: int) -> dict[str, Any] | None:
    """Return which rank ended an attempt, as run.json has it; None where none fell."""
    fallen = first_fallen(states)
    if fallen is None:
        return None
    return {
        "rank": fallen.rank,
        "state": "hung" if fallen.hangs else fallen.state,
        "reason": fallen.reason,
        "host": fallen.host,
        "pid": fallen.pid,
        "step": fallen.step,
        "text": told(fallen, attempt),
    }


def _about(state: RankState, attempt: int) -> dict[str, AttributeValue]:
    attributes: dict[str, AttributeValue] = {"rank": state.rank, "attempt": attempt, "reason": state.reason}
    if state.host:
        attributes |= {HOST_NAME: state.host, PROCESS_PID: state.pid}
    if state.step is not None:
        attributes[STEP] = state.step
    return attributes
