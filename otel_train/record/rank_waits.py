"""Holds how long this rank waited for the others of its job, and tells what of a step was its own work."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

from otel_train.clock import NS_PER_S
from otel_train.record.columns import Blocks, Rows, own_column, sibling_columns
from otel_train.record.entries import SeriesAttributes
from otel_train.semconv import SPLIT

# A step of a model whose every layer gathers its weights waits some hundred times.
MOST_WAITS: Final = 100_000
MOST_PENDING: Final = 10_000
WINDOW_NS: Final = 300 * NS_PER_S
WINDOW_STEPS: Final = 500


@dataclass(frozen=True, slots=True)
class DeviceWait:
    """A stretch of a device's own time line: two events, and the timer that reads them."""

    timer: Any
    before: Any
    after: Any

    def elapsed_s(self) -> float | None:
        """Return its seconds, None while the device is not through."""
        seconds: float | None = self.timer.elapsed_s(self.before, self.after)
        return seconds

    @property
    def stands(self) -> bool:
        """Whether the device is in it now."""
        return bool(self.before.query() and not self.after.query())


# Start and end by the host's monotonic clock, and the device's part where the host does not wait itself.
_Wait = tuple[int, int, DeviceWait | None]


@dataclass(slots=True)
class _Pending:
    """A step whose waits a device has not measured yet."""

    split: str
    time_ns: int
    step: int
    epoch: int | None
    end_ns: int
    took_ns: int
    waits: list[_Wait]


class RankWaits:
    """The waits of one rank. The training thread adds, the writer's thread asks; neither waits for the other."""

    def __init__(self) -> None:
        # Since when a thread of this process waits for other ranks at this moment; 0 where none does.
        self.since_ns = 0
        self._waits: deque[_Wait] = deque(maxlen=MOST_WAITS)
        self._pending: deque[_Pending] = deque(maxlen=MOST_PENDING)
        self._newest_device: DeviceWait | None = None
        # (end, whole time, own time) of the last steps, in nanoseconds.
        self._recent: deque[tuple[int, int, int]] = deque(maxlen=WINDOW_STEPS)

    def add(self, start_ns: int, end_ns: int, device: DeviceWait | None = None) -> None:
        """Note one wait that is over for the host."""
        self._waits.append((start_ns, end_ns, device))
        if device is not None:
            self._newest_device = device

    def standing(self) -> bool:
        """Tell whether this rank, or its device, waits for other ranks now."""
        if self.since_ns:
            return True
        device = self._newest_device
        return device is not None and device.stands

    def own_ns(self, split: str, time_ns: int, step: int, epoch: int | None, fetch_ns: int, end_ns: int) -> int | None:
        """Return the time of a step without its waits; None where a device has yet to say: then `flush` writes it."""
        within: list[_Wait] = []
        waits = self._waits
        while waits and waits[0][1] <= end_ns:
            wait = waits.popleft()
            if wait[0] >= fetch_ns:
                within.append(wait)
        took_ns = end_ns - fetch_ns
        if any(device is not None for _, _, device in within):
            self._pending.append(_Pending(split, time_ns, step, epoch, end_ns, took_ns, within))
            return None
        own_ns = max(0, took_ns - sum([end - start for start, end, _ in within]))
        self._recent.append((end_ns, took_ns, own_ns))
        return own_ns

    def flush(self, result: Blocks, *, last: bool) -> None:
        """Write the own time of steps that a device has measured by now; they keep their order."""
        by_split: dict[str, Rows] = {}
        while self._pending:
            pending = self._pending[0]
            try:
                waited_ns = _waited_ns(pending.waits)
            except Exception as fault:  # noqa: BLE001 - a device may raise anything
                result.fail(fault, 1)
                self._pending.popleft()
                continue
            if waited_ns is None:
                if not last:
                    break
                result.lost["still on the device at the end"] += 1
            else:
                own_ns = max(0, pending.took_ns - waited_ns)
                self._recent.append((pending.end_ns, pending.took_ns, own_ns))
                rows = by_split.setdefault(pending.split, Rows())
                rows.add(pending.time_ns, pending.step, pending.epoch, own_ns / NS_PER_S)
            self._pending.popleft()
        for split, rows in by_split.items():
            attributes: SeriesAttributes = ((SPLIT, split),)
            result.points += len(rows.rows)
            column = own_column("dl.rank.busy.time", rows.times_ns, rows.rows, attributes)
            result.blocks.append([column, *sibling_columns(rows, [attributes])])

    @property
    def pending(self) -> int:
        """Steps that wait for a device."""
        return len(self._pending)

    def medians_s(self, now_ns: int) -> tuple[float, float] | None:
        """Return the usual whole and own time of the steps of the last five minutes; None where there were none."""
        recent = [row for row in list(self._recent) if row[0] >= now_ns - WINDOW_NS]
        if not recent:
            return None
        whole, own = median([row[1] for row in recent]), median([row[2] for row in recent])
        return whole / NS_PER_S, own / NS_PER_S


def _waited_ns(waits: Sequence[_Wait]) -> int | None:
    """Return the sum of some waits, each by host or device, whichever waited longer; None while a device is busy."""
    total_ns = 0
    for start_ns, end_ns, device in waits:
        waited_ns = end_ns - start_ns
        if device is not None:
            elapsed_s = device.elapsed_s()
            if elapsed_s is None:
                return None
            waited_ns = max(waited_ns, round(elapsed_s * NS_PER_S))
        total_ns += waited_ns
    return total_ns
