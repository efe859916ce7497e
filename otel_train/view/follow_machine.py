"""Says of a run that is followed how its cards, its host and its ranks are, by their last readings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from otel_train.clock import NS_PER_S
from otel_train.runlog.rank_states import RankState, first_fallen, rank_states
from otel_train.semconv import PROCESS
from otel_train.view.follow_picture import Gpu, Host, Ranks
from otel_train.view.run_data import RunData
from otel_train.view.series import Series
from otel_train.view.shapes import Readings

# The states of ranks are read from their files: some milliseconds for dozens of them.
RANKS_EVERY_NS: Final = 5 * NS_PER_S
# Below this a rank is not slower than the others by anything that matters.
SLOWER: Final = 1.005
_CARD: Final = ("hw.gpu.utilization", "hw.gpu.memory.usage", "hw.gpu.memory.limit", "hw.temperature", "hw.power")


def gpus(readings: Readings, attempt: int) -> list[Gpu]:
    """Return each card once, however many ranks see it."""
    cards: dict[object, dict[str, Series]] = {}
    for series in readings.named(*_CARD, attempt=attempt):
        # Engines beside the main one, such as the encoder, have series of their own.
        if series.attribute("hw.gpu.task") is None:
            cards.setdefault(series.attribute("hw.id"), {}).setdefault(series.name, series)
    found = []
    for number, card in enumerate(cards.values()):
        some = next(iter(card.values()))
        index = some.attribute("index")
        rank = f" of rank {some.rank}" if some.rank else ""
        values = [card[name].values[-1] if name in card else None for name in _CARD]
        found.append(Gpu(f"GPU {number if index is None else index}{rank}", *values))
    return found


def host(readings: Readings, attempt: int) -> Host | None:
    """Return the host and the process of the first rank that was measured; None where none was."""
    values: list[float | None] = []
    for name in ("system.cpu.utilization", "system.memory.utilization"):
        found = readings.named(name, attempt=attempt)
        values.append(found[0].values[-1] if found else None)
    for name in ("process.cpu.utilization", "process.memory.usage"):
        # The process and its children, such as the workers of a loader.
        found = [series for series in readings.named(name, attempt=attempt) if series.attribute(PROCESS)]
        parts = [series.values[-1] for series in found if series.rank == found[0].rank]
        values.append(sum(parts) if parts else None)
    return None if values == [None] * 4 else Host(*values)


class RanksLook:
    """Looks at the states of ranks, not too often."""

    def __init__(self) -> None:
        self._looked_ns = 0
        self._of: tuple[str, int] = ("", 0)
        self._found: Ranks | None = None

    def look(self, run: RunData, readings: Readings, attempt: int, now_ns: int) -> Ranks | None:
        """Return how the ranks are; None for a run of one."""
        described = run.attempts[-1] if run.attempts else {}
        beating = {series.rank for series in readings.named("dl.run.heartbeat", attempt=attempt)}
        if described.get("world_size") in (None, 1) and len(beating) < 2:
            return None
        if now_ns - self._looked_ns >= RANKS_EVERY_NS or self._of != (run.state, attempt):
            states = rank_states(run.path, attempt, now_ns)
            self._found = Ranks(_counted(states), worst(states, readings, attempt)) if len(states) > 1 else None
            self._looked_ns, self._of = now_ns, (run.state, attempt)
        return self._found


def _counted(states: Sequence[RankState]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for state in states:
        counts[state.state] = counts.get(state.state, 0) + 1
    return counts


def worst(states: Sequence[RankState], readings: Readings, attempt: int) -> str:
    """Return in words which rank fell or hangs, else which one holds the others up; "" where none does."""
    fallen = first_fallen(states)
    if fallen is not None:
        what = "hangs" if fallen.hangs else fallen.state
        at = "" if fallen.step is None else f" at step {fallen.step}"
        return f"rank {fallen.rank} {what}{at}" + (f": {fallen.reason}" if fallen.reason else "")
    scores = [(series.values[-1], series.rank) for series in readings.named("dl.rank.straggler", attempt=attempt)]
    if scores:
        score, rank = max(scores)
        return (
            f"rank {rank} is the slowest: without it steps would be {score:.2f} times shorter" if score > SLOWER else ""
        )
    times = [(state.busy_s or state.step_s or 0.0, state.rank) for state in states]
    longest, rank = max(times, default=(0.0, 0))
    return f"rank {rank} is the slowest" if longest > SLOWER * min(times)[0] else ""
