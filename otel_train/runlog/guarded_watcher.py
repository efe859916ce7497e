"""Asks the watcher of a run, which is made when it is first asked; what it raises is said and costs nothing else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from otel_train.record.digest import Digested
    from otel_train.record.entries import Sample
    from otel_train.runlog.watcher import Finding, Watcher

T = TypeVar("T")


class GuardedWatcher:
    """A `Watcher` that never raises, for the writer's thread: there it is made, since to import it takes a while."""

    def __init__(self, new: Callable[[], Watcher], say_fault: Callable[[str, Exception], None]) -> None:
        self._new = new
        self._say_fault = say_fault
        self._made: Watcher | None = None

    def take(self, digested: Digested) -> None:
        """See points and steps."""
        self._ask(lambda watcher: watcher.take(digested), None)

    def readings(self, time_ns: int, samples: Sequence[Sample]) -> None:
        """See readings of the machine, made at one wall time."""
        self._ask(lambda watcher: watcher.readings(time_ns, samples), None)

    def settle(self, wall_ns: int, mono_ns: int, *, ended: bool) -> Sequence[Finding]:
        """Return what began or ended; nothing where that cannot be told."""
        nothing: Sequence[Finding] = ()
        return self._ask(lambda watcher: watcher.settle(wall_ns, mono_ns, ended=ended), nothing)

    def heartbeat(self, *, ended: bool) -> Sequence[Sample]:
        """Return present values and thresholds; nothing where they cannot be told."""
        nothing: Sequence[Sample] = ()
        return self._ask(lambda watcher: watcher.heartbeat(ended=ended), nothing)

    def _ask(self, ask: Callable[[Watcher], T], otherwise: T) -> T:
        try:
            if self._made is None:
                self._made = self._new()
            return ask(self._made)
        except Exception as fault:  # noqa: BLE001 - who watches must not keep anything from being recorded
            self._say_fault("watching the run", fault)
            return otherwise
