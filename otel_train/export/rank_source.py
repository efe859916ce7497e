"""One rank's folder on its way to the servers: its feed, the lock that makes it ours, and what no disk has taken."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

from otel_train.clock import NS_PER_S, SYSTEM, Clock
from otel_train.export.feed import RankFeed
from otel_train.export.signal_feed import BATCH_BYTES
from otel_train.runlog.lock import WriterLock
from otel_train.runlog.segments import SIGNALS

if TYPE_CHECKING:
    from otel_train.export.feed import Batch
    from otel_train.runlog.ring import HeldLines, LineRing

SENDER_LOCK: Final = "sender.lock"
# A disk that is full for a moment takes the lines itself, and then they are on record; after that the network has them.
RING_PATIENCE_NS: Final = 5 * NS_PER_S
MOST_RING_BYTES: Final = 1 << 20
CLOSING_TIMEOUT_S: Final = 0.3


class RankSource:
    """What the lanes of all signals take from one rank's folder, and what they acknowledge. Any thread may call.

    `ended` is set once nothing more will be written there: then what was held back comes too, and the end marks;
    `final_state` is the run's state for the stores where the log itself does not say it.
    """

    def __init__(
        self,
        feed: RankFeed,
        *,
        lock: WriterLock | None = None,
        ring: LineRing | None = None,
        ended: bool = False,
        final_state: str = "lost",
        clock: Clock = SYSTEM,
    ) -> None:
        self.feed = feed
        self.ended = ended
        self.final_state = final_state
        # Signals of which everything is acknowledged, the end marks too.
        self.done: set[str] = set()
        self.closed = False
        self._lock = lock
        self._ring = ring
        self._clock = clock
        # The feed is for one thread at a time.
        self._guard = threading.Lock()
        self._ring_since_ns: dict[str, int] = {}
        # Out of the ring, and not acknowledged yet.
        self._from_ring: dict[str, list[HeldLines]] = {}
        self._queued_bytes = 0
        # What was sent before this process, and what it has told of its own.
        self._counts_at_first = {signal: asdict(feed.counts(signal)) for signal in SIGNALS}
        self._counted: dict[str, dict[str, int]] = {}

    @classmethod
    def open(
        cls,
        folder: Path,
        endpoints: Mapping[str, str],
        *,
        max_log_age_s: float | None = None,
        ring: LineRing | None = None,
        ended: bool = False,
        final_state: str = "lost",
        batch_bytes: int = BATCH_BYTES,
        again: bool = False,
        clock: Clock = SYSTEM,
    ) -> RankSource | None:
        """Take a rank's folder for sending to these endpoints, by signal; None where another process sends it."""
        own = WriterLock(folder, SENDER_LOCK)
        lock: WriterLock | None = own
        try:
            if not own.acquire():
                return None
        except OSError:
            # A folder that cannot be written can still be sent; nobody else can take it either.
            lock = None
        feed = RankFeed(
            folder, endpoint=endpoints, max_log_age_s=max_log_age_s, batch_bytes=batch_bytes, again=again, clock=clock
        )
        return cls(feed, lock=lock, ring=ring, ended=ended, final_state=final_state, clock=clock)

    def take(self, signal: str) -> Batch | None:
        """Return the next batch, the same again until it is acknowledged; None where there is nothing at present."""
        with self._guard:
            if self.closed:
                return None
            # The end marks come behind all else.
            ended = self.ended and not self.ring_items(signal)
            batch = self.feed.next(signal, ended=ended, final_state=self.final_state)
            while batch is None and (held := self._take_from_ring(signal)):
                batch = self.feed.fold(signal, [line for lines in held for line in lines.lines.split(b"\n") if line])
                if batch is not None:
                    self._from_ring[signal] = held
            if batch is None and self.feed.done(signal) and not self.ring_items(signal):
                self.done.add(signal)
            return batch

    def changes(self, signal: str) -> dict[str, int]:
        """Return what became of the signal's items since this was asked last, by outcome."""
        with self._guard:
            counts = asdict(self.feed.counts(signal))
        before = self._counted.get(signal) or self._counts_at_first[signal]
        self._counted[signal] = counts
        return {outcome: count - before[outcome] for outcome, count in counts.items()}

    def acknowledge(self, batch: Batch, refused: int) -> bool:
        """Have a batch never come again; False where this folder is no longer ours."""
        with self._guard:
            if self.closed:
                return False
            self.feed.acknowledge(batch, refused)
            self._from_ring.pop(batch.signal, None)
            return True

    def keep(self) -> None:
        """Have what is acknowledged reach the disk while nothing new is: another process goes on from there."""
        if self._guard.acquire(blocking=False):
            try:
                if not self.closed:
                    self.feed.save_due()
            finally:
                self._guard.release()

    def queued_bytes(self) -> int:
        """Return how much of the run log is not acknowledged; the last known figure while the feed is at work."""
        if self._guard.acquire(blocking=False):
            try:
                if not self.closed:
                    self._queued_bytes = self.feed.pending_bytes()
            finally:
                self._guard.release()
        return self._queued_bytes

    def notices(self) -> list[str]:
        """Take out what the feed has to say of itself."""
        found, self.feed.notices = self.feed.notices, []
        return found

    # What no disk has taken ------------------------------------------------------------------------------------------

    def ring_items(self, signal: str) -> int:
        """Return how many items wait in memory since the disk does not take them."""
        return 0 if self._ring is None else self._ring.items(signal)

    def _take_from_ring(self, signal: str) -> list[HeldLines]:
        """Take out lines that the disk has not taken for a while, about a MiB."""
        if self._ring is None or not self._ring.items(signal):
            self._ring_since_ns.pop(signal, None)
            return []
        now_ns = self._clock.mono_ns()
        since_ns = self._ring_since_ns.setdefault(signal, now_ns)
        if not self.ended and now_ns - since_ns < RING_PATIENCE_NS:
            return []
        held: list[HeldLines] = []
        size = 0
        while size < MOST_RING_BYTES and (lines := self._ring.pop(signal)) is not None:
            held.append(lines)
            size += len(lines.lines)
        return held

    def _return_to_ring(self) -> None:
        """Give back what could not be sent, in its order: it counts as lost there."""
        while self._ring is not None and self._from_ring:
            _, held = self._from_ring.popitem()
            for lines in reversed(held):
                self._ring.push_back(lines)

    def left_items(self, signal: str, until_ns: int) -> tuple[int, bool]:
        """Count what was not acknowledged, once it is closed; False beside it where there was no time to count all."""
        left_s = max(0.0, (until_ns - self._clock.mono_ns()) / NS_PER_S)
        if not self.closed or not self._guard.acquire(timeout=left_s):
            return 0, False
        try:
            count, exact = self.feed.left_items(signal, until_ns)
        finally:
            self._guard.release()
        return count + self.ring_items(signal), exact

    # Life ------------------------------------------------------------------------------------------------------------

    @property
    def complete(self) -> bool:
        """Whether the writer has ended and everything is acknowledged."""
        return self.ended and self.done >= set(SIGNALS)

    def close(self) -> None:
        """Keep the positions on disk and give the folder back; what is acknowledged later does not count."""
        # A feed that hangs with the disk keeps its guard: what it has acknowledged is then sent twice at worst.
        ours = self._guard.acquire(timeout=CLOSING_TIMEOUT_S)
        try:
            if self.closed:
                return
            self.closed = True
            self._return_to_ring()
            if ours:
                self.feed.save()
        finally:
            if ours:
                self._guard.release()
            if self._lock is not None:
                self._lock.release()

    def abandon(self) -> None:
        """In a forked child: send nothing, keep nothing, and leave the lock to the parent."""
        self.closed = True
        self._guard = threading.Lock()
        self._ring = None
        if self._lock is not None:
            self._lock.abandon()
