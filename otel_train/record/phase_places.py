"""Finds the step that each phase belongs to, and turns phases outside of `run.steps` into points."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from otel_train.record.columns import POINTS_PER_LINE, Blocks, Rows, own_column, sibling_columns
from otel_train.record.phases import ALONE, WITHIN, Phase
from otel_train.semconv import PHASE

MOST_WAITING: Final = 10_000
# Divided, not multiplied by 1e-9: the quotient has no more digits than the nanoseconds, which halves its text.
NS: Final = 1e9


class Passage(NamedTuple):
    """One passage through a phase, in monotonic nanoseconds; step and epoch are those that the run was at."""

    thread: int
    name: str
    start_ns: int
    end_ns: int
    step: int
    epoch: int | None


def time_within(passages: Sequence[Passage]) -> dict[str, int]:
    """Return the nanoseconds within each phase; where one was entered within itself, its time counts once."""
    spent = {passage.name: 0 for passage in passages}
    earliest: dict[tuple[int, str], int] = {}
    # They are in the order of their ends: seen from the last, an inner passage starts after its outer one did.
    for passage in reversed(passages):
        place = (passage.thread, passage.name)
        if passage.start_ns < earliest.get(place, passage.end_ns + 1):
            earliest[place] = passage.start_ns
            spent[passage.name] += passage.end_ns - passage.start_ns
    return spent


class PhasePlaces:
    """Phases that wait for their step to end, or for the call of `log` that says it."""

    def __init__(self) -> None:
        self._within: dict[int, list[Passage]] = {}
        self._alone: list[Passage] = []
        self._beside: list[Passage] = []
        self._rows: dict[str, Rows] = {}

    def take(self, phase: Phase, step: int, epoch: int | None, start_ns: int, end_ns: int, where: int) -> None:
        """Take one passage as `Phase` left it."""
        passage = Passage(phase.thread, phase.name, start_ns, end_ns, step, epoch)
        if where == WITHIN:
            waiting = self._within.setdefault(phase.thread, [])
            waiting.append(passage)
            if len(waiting) > MOST_WAITING:
                # Their step never ended: its own entry found the buffer full.
                self._beside += waiting[: MOST_WAITING // 2]
                del waiting[: MOST_WAITING // 2]
        elif where == ALONE:
            self._alone.append(passage)
        else:
            self._beside.append(passage)

    def of_step(self, thread: int, fetch_ns: int) -> list[Passage]:
        """Take out the passages of a step that has just ended; those of a loop around it stay."""
        waiting = self._within.pop(thread, None)
        if not waiting:
            return []
        passages = [passage for passage in waiting if passage.start_ns >= fetch_ns]
        if len(passages) < len(waiting):
            self._within[thread] = [passage for passage in waiting if passage.start_ns < fetch_ns]
        return passages

    def logged(self, step: int, epoch: int | None, offset_ns: int, result: Blocks) -> None:
        """Place the phases of a loop by hand: in it, `log` closes the step."""
        if self._alone:
            alone, self._alone = self._alone, []
            self._add(alone, step, epoch, offset_ns, result)

    def flush(self, offset_ns: int, result: Blocks, *, last: bool) -> None:
        """Write out what is placed; at last also what no step was found for, at the step that the run was at."""
        if last or len(self._alone) > MOST_WAITING:
            self._beside += self._alone
            self._alone = []
        if last:
            for waiting in self._within.values():
                self._beside += waiting
            self._within.clear()
        if self._beside:
            self._place_beside(offset_ns, result, last=last)
        for name, rows in self._rows.items():
            self._emit(name, rows, result)
        self._rows.clear()

    def _place_beside(self, offset_ns: int, result: Blocks, *, last: bool) -> None:
        beside, self._beside = self._beside, []
        if not last and len(beside) <= MOST_WAITING:
            # More of the present step may follow, and is one point with this.
            newest = beside[-1].step
            self._beside = [passage for passage in beside if passage.step == newest]
            beside = [passage for passage in beside if passage.step != newest]
        by_step: dict[tuple[int, int | None], list[Passage]] = {}
        for passage in beside:
            by_step.setdefault((passage.step, passage.epoch), []).append(passage)
        for (step, epoch), passages in by_step.items():
            self._add(passages, step, epoch, offset_ns, result)

    def _add(self, passages: list[Passage], step: int, epoch: int | None, offset_ns: int, result: Blocks) -> None:
        ends = {passage.name: passage.end_ns for passage in passages}
        for name, spent_ns in time_within(passages).items():
            rows = self._rows.get(name)
            if rows is None:
                rows = self._rows[name] = Rows()
            rows.add(ends[name] + offset_ns, step, epoch, spent_ns / NS)
            if len(rows.rows) >= POINTS_PER_LINE:
                self._emit(name, self._rows.pop(name), result)

    def _emit(self, name: str, rows: Rows, result: Blocks) -> None:
        column = own_column("dl.phase.time", rows.times_ns, rows.rows, ((PHASE, name),))
        result.points += len(rows.rows)
        result.blocks.append([column, *sibling_columns(rows, [()])])
