"""Sends rank folders' run logs behind their writers: three lanes over any number of folders, and one account of it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from otel_train.clock import NS_PER_S, SYSTEM, Clock
from otel_train.export.accounting import ExportAccounting
from otel_train.export.delivery import Delivery
from otel_train.export.lane import Lane
from otel_train.export.rank_source import RankSource
from otel_train.runlog.segments import SIGNALS

if TYPE_CHECKING:
    from otel_train.export.destination import Destinations
    from otel_train.record.entries import Sample

_log = logging.getLogger("otel_train")

FIRST_QUIET_NS: Final = 60 * NS_PER_S
LONGEST_QUIET_NS: Final = 3600 * NS_PER_S


class Quiet:
    """Tells of each kind of fault at most once a minute, and of one that stays ever more rarely, up to once an hour."""

    def __init__(self, tell: Callable[[str], None], clock: Clock = SYSTEM) -> None:
        self._tell = tell
        self._clock = clock
        self._until: dict[str, tuple[int, int]] = {}
        self._lock = threading.Lock()

    def __call__(self, key: str, text: str) -> None:
        """Tell a text of this kind, unless one was told shortly before."""
        now_ns = self._clock.mono_ns()
        with self._lock:
            until_ns, quiet_ns = self._until.get(key, (now_ns, FIRST_QUIET_NS))
            if now_ns < until_ns:
                return
            if now_ns - until_ns > LONGEST_QUIET_NS:
                quiet_ns = FIRST_QUIET_NS
            self._until[key] = (now_ns + quiet_ns, min(2 * quiet_ns, LONGEST_QUIET_NS))
        self._tell(text)


class Sender:
    """Sends what its sources hold. Its methods may be called from any thread, and none raises or waits for a server.

    `end` alone waits, for as long as it is told. `on_thread` is called once on each of the sender's threads. Without
    `gives_up` a server that does not answer is tried for as long as the process lives; with it a lane ends with the
    first request that its delivery, which has a patience, gives back.
    """

    def __init__(
        self,
        deliveries: Mapping[str, Delivery],
        *,
        clock: Clock = SYSTEM,
        gives_up: bool = False,
        on_thread: Callable[[], None] = lambda: None,
        tell: Callable[[str], None] = lambda text: _log.warning("%s", text),
    ) -> None:
        self.accounting = ExportAccounting()
        self._clock = clock
        self._sources: tuple[RankSource, ...] = ()
        say = Quiet(tell, clock)
        self.lanes: dict[str, Lane] = {
            signal: Lane(
                signal,
                delivery,
                lambda: self._sources,
                self.accounting,
                clock=clock,
                say=say,
                gives_up=gives_up,
                on_thread=on_thread,
            )
            for signal, delivery in deliveries.items()
        }

    @classmethod
    def to(cls, destinations: Destinations, *, patience_s: float | None = None, **options: Any) -> Sender:
        """Return a sender with a connection of its own for each signal that has a destination.

        With `patience_s` it gives up on a server that has not answered for so long.
        """
        found = {where.signal: Delivery(where, patience_s=patience_s) for where in destinations}
        return cls(found, gives_up=patience_s is not None, **options)

    # Folders ---------------------------------------------------------------------------------------------------------

    @property
    def sources(self) -> tuple[RankSource, ...]:
        """The folders that are being sent."""
        return self._sources

    def add(self, source: RankSource) -> None:
        """Send this folder too, from the next turn on. A signal that has no endpoint counts as sent."""
        source.done |= set(SIGNALS) - set(self.lanes)
        self._sources = (*self._sources, source)
        self.wake()

    def remove(self, source: RankSource) -> None:
        """Send this folder no more, keep its positions, and give it back."""
        self._sources = tuple(other for other in self._sources if other is not source)
        source.close()

    # Life ------------------------------------------------------------------------------------------------------------

    def start(self, *, ending: bool = False) -> None:
        """Start the threads; with `ending` they end by themselves once nothing more is there."""
        for lane in self.lanes.values():
            lane.start(ending=ending)

    def wake(self) -> None:
        """Say that something new has been written."""
        for lane in self.lanes.values():
            lane.wake()

    def end(self, deadline_ns: int) -> bool:
        """Send the rest, end marks too, by a time of the monotonic clock; True where everything is acknowledged."""
        for source in self._sources:
            source.ended = True
        for lane in self.lanes.values():
            lane.end(deadline_ns)
        self.wait(deadline_ns)
        complete = all(source.complete for source in self._sources)
        self.stop()
        return complete

    def wait(self, until_ns: int) -> bool:
        """Wait until all threads have ended; False where that takes longer than this."""
        return all(
            lane.finished.wait(max(0.0, (until_ns - self._clock.mono_ns()) / NS_PER_S)) for lane in self.lanes.values()
        )

    def stop(self, patience_s: float = 0.0) -> None:
        """End at once, or after so long for requests under way, and give the folders back."""
        for lane in self.lanes.values():
            lane.stop()
        if patience_s:
            self.wait(self._clock.mono_ns() + int(patience_s * NS_PER_S))
        for source in self._sources:
            source.close()

    def abandon(self) -> None:
        """In a forked child: nothing is sent here. No lock, no join."""
        for lane in self.lanes.values():
            lane.abandon()
        for source in self._sources:
            source.abandon()
        self._sources = ()

    def keep(self) -> None:
        """Have all folders keep what was acknowledged, where that is due."""
        for source in self._sources:
            source.keep()

    # What is known ---------------------------------------------------------------------------------------------------

    @property
    def queued_bytes(self) -> int:
        """Bytes of run log that are not acknowledged yet."""
        return sum(source.queued_bytes() for source in self._sources)

    def samples(self) -> list[Sample]:
        """Return the sender's own metrics, for the run log's heartbeat."""
        return self.accounting.samples(self.queued_bytes)

    def left_items(self, until_ns: int) -> tuple[int, bool]:
        """Count what was not acknowledged, after the end; False beside it where there was no time to count all."""
        counts = [source.left_items(signal, until_ns) for source in self._sources for signal in self.lanes]
        return sum(count for count, _ in counts), all(exact for _, exact in counts)

    def faults(self) -> dict[str, str]:
        """Return by signal what is in the way at present."""
        return {signal: lane.fault for signal, lane in self.lanes.items() if lane.fault}
