"""Times the phases within a step, at half a microsecond each; they become points and spans off the training thread."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from otel_train.clock import mono_ns

if TYPE_CHECKING:
    from otel_train.record.points import PointLog


# Where a phase ran: within a loop of its own thread, whose step it belongs to; beside the loop of another thread, at
# the step that the run was at; or in a loop by hand, where the next call of `log` says the step.
ALONE: Final = 0
WITHIN: Final = 1
BESIDE: Final = 2


class Phase:
    """A context manager for one name and thread, used again for each step; may be entered within itself."""

    __slots__ = ("_log", "_outer", "_start_ns", "aside", "name", "thread")

    def __init__(self, name: str, log: PointLog) -> None:
        self.name = name
        self._log = log
        self.thread = threading.get_ident()
        # What the run does within it where that is no training: evaluation, checkpoint; else "".
        self.aside = ""
        self._start_ns = 0
        self._outer: list[int] = []

    def __enter__(self) -> Phase:
        if self._start_ns:
            self._outer.append(self._start_ns)
        self._start_ns = mono_ns()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, traceback: TracebackType | None
    ) -> None:
        end_ns = mono_ns()
        log = self._log
        buffer = log.buffer
        if len(buffer.entries) < buffer.capacity_slots:
            where = WITHIN if self.thread in log.looping else BESIDE if log.loops else ALONE
            buffer.extend((self, log.step, log.epoch, self._start_ns, end_ns, where))
        else:
            buffer.drop(log.overflow_cause, 1)
        self._start_ns = self._outer.pop() if self._outer else 0

    @property
    def is_open(self) -> bool:
        """Whether its thread is within it."""
        return self._start_ns != 0

    @property
    def open_since_ns(self) -> int:
        """The monotonic time at which its thread entered it, 0 where it is not within."""
        return self._start_ns


class PhaseTable(threading.local):
    """The phases of the calling thread by name."""

    def __init__(self) -> None:
        self.by_name: dict[str, Phase] = {}


class NoPhase:
    """Stands in where nothing is recorded."""

    __slots__ = ()

    def __enter__(self) -> NoPhase:
        return self

    def __exit__(self, *exception: Any) -> None:
        return None
