"""Sends one signal of all rank folders, one request after the other, on a thread of its own.

A server that takes no logs, Loki's absence behind a Collector say, holds up the lane of the logs and no other.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from otel_train.clock import NS_PER_S, Clock
from otel_train.export.accounting import UNWRITTEN, ExportAccounting
from otel_train.export.delivery import Request
from otel_train.export.rank_source import RankSource

if TYPE_CHECKING:
    from otel_train.export.delivery import Delivered, Delivery

# Looks for new lines where nobody wakes the lane.
POLL_S: Final = 0.5
PAUSE_S: Final = 1.0
MOST_FAULTS: Final = 5


class Lane:
    """One signal. `say(key, text)` tells of faults; it decides how often.

    What its delivery gives back undelivered is tried for as long as the process lives, or with `gives_up` not again.
    """

    def __init__(
        self,
        signal: str,
        delivery: Delivery,
        sources: Callable[[], Sequence[RankSource]],
        accounting: ExportAccounting,
        *,
        clock: Clock,
        say: Callable[[str, str], None],
        gives_up: bool = False,
        on_thread: Callable[[], None] = lambda: None,
    ) -> None:
        self.signal = signal
        # Why the lane has given up; empty where it has not.
        self.given_up = ""
        self.finished = threading.Event()
        self.answered = False
        self._delivery = delivery
        self._sources = sources
        self._accounting = accounting
        self._clock = clock
        self._say = say
        self._gives_up = gives_up
        self._on_thread = on_thread
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._over = False
        self._ending = False
        self._deadline_ns: int | None = None
        self._faults = 0
        self._thread: threading.Thread | None = None

    @property
    def fault(self) -> str:
        """What is in the way at present; empty where all is well."""
        return self.given_up or self._delivery.fault

    def start(self, *, ending: bool = False) -> None:
        """Start the thread; with `ending` it ends by itself once nothing more is there."""
        self._ending = ending
        self._thread = threading.Thread(target=self._run, name="otel-train-sender", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Have the thread look for new lines at once."""
        self._wake.set()

    def end(self, deadline_ns: int | None) -> None:
        """Have the thread send what is left, by a time of the monotonic clock, and end."""
        self._deadline_ns = deadline_ns
        self._ending = True
        # A request that waits for its next try returns, and is tried at once: there is no time to lose.
        stop, self._stop = self._stop, threading.Event()
        stop.set()
        self._wake.set()

    def stop(self) -> None:
        """Have the thread end after the request that is under way."""
        self._over = True
        self._stop.set()
        self._wake.set()

    def abandon(self) -> None:
        """In a forked child, where there is no such thread."""
        self._over = True
        self._thread = None

    # The thread ------------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._on_thread()
            while not self._over:
                # Asked before the turn: an end that is said in the midst of one needs another turn.
                ending = self._ending
                busy = self._guarded_turn()
                if busy:
                    continue
                if ending and not self._faults:
                    return
                self._wake.wait(POLL_S)
                self._wake.clear()
        finally:
            self.finished.set()
            self._delivery.close()

    def _guarded_turn(self) -> bool:
        """Take one turn; a fault of our own is told, and given up on only where somebody waits for the end."""
        try:
            busy = self._turn()
        except Exception as fault:  # noqa: BLE001 - on this thread nobody could catch it
            text = f"{type(fault).__name__}: {fault}"
            self._say("fault", f"sending {self.signal}: {text}; it goes on")
            self._faults += 1
            if self._ending and (self._faults >= MOST_FAULTS or self._late()):
                self._over, self.given_up = True, text
            return False
        self._faults = 0
        return busy

    def _turn(self) -> bool:
        """Send one batch of each folder; False where none had any."""
        busy = False
        for source in self._sources():
            if self._over:
                break
            batch = source.take(self.signal)
            for notice in source.notices():
                self._say(notice, notice)
            if batch is None:
                # Another signal's lane may be waiting for its server, with something acknowledged just before.
                source.keep()
                self._count(source)
                continue
            busy = True
            delivered = self._deliver(batch.parts, batch.items) if batch.parts else None
            if batch.parts and delivered is None:
                # Not delivered, and there is no time left for it: the folder gives it again.
                break
            refused = delivered.refused if delivered is not None else 0
            if not source.acknowledge(batch, refused):
                break
            if delivered is not None:
                self._tell_refused(delivered)
            self._accounting.note(self.signal, UNWRITTEN, max(0, min(batch.unwritten, batch.items) - refused))
            self._count(source)
        return busy

    def _count(self, source: RankSource) -> None:
        for outcome, items in source.changes(self.signal).items():
            self._accounting.note(self.signal, outcome, items)

    def _tell_refused(self, delivered: Delivered) -> None:
        if delivered.refused:
            self._accounting.explain(self.signal, delivered.reasons)
            reasons = "; ".join(f"{reason} ({count:,})" for reason, count in list(delivered.reasons.items())[:3])
            self._say(
                f"refused {self.signal}",
                f"{delivered.refused:,} items of the {self.signal} were refused and are not sent again: {reasons}",
            )

    def _deliver(self, parts: tuple[bytes, ...], items: int) -> Delivered | None:
        """Send until it is delivered; None where the lane has to end before."""
        request = Request(self.signal, parts, items)
        while not self._over:
            stop = self._stop
            until_ns = self._deadline_ns
            delivered = self._delivery.send(request, stop=stop, deadline_ns=until_ns)
            self._accounting.retry(self.signal, delivered.retries)
            if delivered.finished:
                self.given_up, self.answered = "", True
                return delivered
            interrupted = stop.is_set()
            if self._late() or (self._gives_up and not interrupted):
                self._over = True
                self.given_up = delivered.fault or self._delivery.fault or "no answer in time"
            elif not interrupted:
                # A server that wants to be asked later than the deadline, or a fault of ours: back at once.
                stop.wait(PAUSE_S if until_ns is None else min(PAUSE_S, self._left_s(until_ns)))
        return None

    def _left_s(self, until_ns: int) -> float:
        return max(0.0, (until_ns - self._clock.mono_ns()) / NS_PER_S)

    def _late(self) -> bool:
        return self._deadline_ns is not None and self._clock.mono_ns() >= self._deadline_ns
