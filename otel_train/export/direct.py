"""Sends a run without a folder: lines from memory, by OpenTelemetry's own exporters, a thread for each signal.

A server that is away is tried again for as long as the run lives, and the ring keeps what fits meanwhile. What is lost
is counted by cause, item by item: no room in memory, refused by the server, not sent by the end.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from otel_train.clock import NS_PER_S, SYSTEM, Clock
from otel_train.export.backoff import Backoff
from otel_train.export.metrics_to_sdk import read_points
from otel_train.export.milliseconds import HOLD_NS, Milliseconds
from otel_train.export.official import Outcome
from otel_train.export.transport import observed_again, unobserved
from otel_train.otlp.decode import decode_line
from otel_train.record.entries import Sample
from otel_train.runlog.memory_lines import MERGED, NOT_SENT, REFUSED, MemoryWriter
from otel_train.runlog.ring import HeldLines
from otel_train.semconv import OUTCOME, SIGNAL

_log = logging.getLogger("otel_train")

# How often what is new is sent.
TURN_S: Final = 1.0
# While the run ends there are seconds left, not minutes.
LAST_WAIT_S: Final = 0.2
QUIET_NS: Final = 600 * NS_PER_S
# Of JSON; in protobuf a third of it. A server's limit is 4 MiB by default.
CHUNK_BYTES: Final = 256 << 10
UNREADABLE: Final = "fault of telemetry"


class Exporter(Protocol):
    """What carries items of one signal to a server."""

    def export(self, items: Sequence[Any]) -> Outcome:
        """Send; blocks until it is known what became of it."""
        ...

    def limit(self, left_s: Callable[[], float]) -> None:
        """Let no request that begins from now on take longer than this says."""
        ...

    def stop(self) -> None:
        """Wait for nothing any more."""
        ...


class _Lane:
    """One signal: takes lines out of the ring, sends them, and says what became of each item."""

    def __init__(
        self,
        signal: str,
        exporter: Exporter,
        writer: MemoryWriter,
        address: str,
        *,
        clock: Clock,
        on_thread: Callable[[], None],
        jitter: Callable[[], float] | None,
    ) -> None:
        self.signal = signal
        self.exporter = exporter
        self.writer = writer
        self.finished = threading.Event()
        self.sent = self.merged = self.refused = self.retries = 0
        self._address = address
        self._clock = clock
        self._on_thread = on_thread
        self._backoff = Backoff(jitter)
        self._retry_s = 0.0
        # Chunks of items that are out of the ring and not settled; counted items among these and those held back.
        self._chunks: deque[list[Any]] = deque()
        self._unsettled = 0
        self._milliseconds = Milliseconds()
        self._marked = False
        self._said_ns: int | None = None
        self._wake = threading.Event()
        self._ending = False
        self._dead = False
        self._lock = threading.Condition()
        self._flush_wanted = self._flush_done = 0

    # From other threads ----------------------------------------------------------------------------------------------

    def start(self) -> None:
        threading.Thread(target=self._run, name=f"otel-train-direct-{self.signal}", daemon=True).start()

    def ask_flush(self) -> int:
        with self._lock:
            self._flush_wanted += 1
            wanted = self._flush_wanted
        self._wake.set()
        return wanted

    def wait_flush(self, wanted: int, timeout_s: float) -> bool:
        with self._lock:
            return self._lock.wait_for(lambda: self._flush_done >= wanted or self._dead, timeout_s) and not self._dead

    def end(self) -> None:
        self._ending = True
        self._wake.set()

    def kill(self) -> bool:
        """Count what is not settled as not sent, and tell whether all was settled.

        What the thread still does changes nothing any more.
        """
        with self._lock:
            if self._dead:
                return False
            self._dead = True
            unsettled, self._unsettled = self._unsettled, 0
            self._lock.notify_all()
        self.writer.lost(NOT_SENT, unsettled)
        unsettled += self.writer.give_up()
        self._wake.set()
        return unsettled <= 0

    def abandon(self) -> None:
        self._dead = True
        self._lock = threading.Condition()
        self._wake = threading.Event()
        self._chunks = deque()

    # The thread ------------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        self._on_thread()
        token = unobserved()
        try:
            while not self._dead:
                self._wake.wait(self._pause_s())
                self._wake.clear()
                if self._turn() and self._ending:
                    return
        except Exception as fault:  # noqa: BLE001 - nobody could catch it on this thread; the end counts what is left
            _log.warning("%s are not sent any more: %s: %s", self.signal, type(fault).__name__, fault, exc_info=fault)
        finally:
            observed_again(token)
            self.finished.set()

    def _pause_s(self) -> float:
        if not self._backoff.faults_in_row:
            return 0.0 if self._ending else TURN_S
        return LAST_WAIT_S if self._ending else self._retry_s

    def _turn(self) -> bool:
        """Send what there is; True where nothing is left."""
        with self._lock:
            flush = self._flush_wanted
        everything = self._ending or flush > self._flush_done
        while not self._dead:
            if not self._chunks and not self._fill(everything):
                with self._lock:
                    self._flush_done = flush
                    self._lock.notify_all()
                return True
            if not self._send():
                return False
        return True

    def _fill(self, everything: bool) -> bool:
        """Take the next chunk out of the ring; at the end what is held back, and then the marks of the end."""
        ending = self._ending
        chunk: list[Any] = []
        size = 0
        while size < CHUNK_BYTES:
            with self._lock:
                held = None if self._dead else self.writer.ring.pop(self.signal)
                self._unsettled += held.items if held is not None else 0
            if held is None:
                break
            size += len(held.lines)
            chunk += self._items(held)
        if self.signal == "metrics":
            since_ns = None if everything and not size else self._clock.mono_ns() - HOLD_NS
            chunk += self._milliseconds.release(since_ns)
            if ending and not size and not chunk and not self._marked:
                self._marked = True
                chunk += self._milliseconds.end_marks()
        if not chunk:
            return size > 0 and self._fill(everything)
        # Long records: what one line holds may be more than a server takes at once.
        pieces = min(len(chunk), -(-size // (2 * CHUNK_BYTES)))
        step = -(-len(chunk) // max(1, pieces))
        self._chunks.extend(chunk[start : start + step] for start in range(0, len(chunk), step))
        return True

    def _items(self, held: HeldLines) -> list[Any]:
        found: list[Any] = []
        for line in held.lines.splitlines():
            try:
                if self.signal == "metrics":
                    found += read_points(line, counted=held.items > 0)
                else:
                    request = decode_line(line)
                    found += request.logs if self.signal == "logs" else request.spans
            except Exception as fault:  # noqa: BLE001 - one line must not cost the others
                self._say(f"a line of {self.signal} cannot be read and is lost: {type(fault).__name__}: {fault}")
        if self.signal != "metrics":
            self._settle(UNREADABLE, held.items - len(found))
            return found
        self._settle(UNREADABLE, held.items - sum(point.counted for point in found))
        before = self._milliseconds.merged
        ready = list(self._milliseconds.take(found, self._clock.mono_ns()))
        merged = self._milliseconds.merged - before
        self.merged += merged
        self._settle(MERGED, merged)
        return ready

    def _send(self) -> bool:
        """Send the first chunk; False where it must be tried again later."""
        chunk = self._chunks.popleft()
        outcome = self.exporter.export(chunk)
        if outcome.accepted:
            self._said_well()
            count = self._count(chunk)
            rejected = min(count, outcome.rejected)
            self.sent += len(chunk) - min(len(chunk), outcome.rejected)
            self._settle("", count - rejected)
            self._refuse(rejected, outcome.rejected, outcome.reason)
        elif not outcome.refused:
            self._chunks.appendleft(chunk)
            self._retry_s = self._backoff.next_s()
            self.retries += 1
            self._say_failure(outcome.reason)
            return False
        elif len(chunk) > 1:
            middle = len(chunk) // 2
            self._chunks.extendleft((chunk[middle:], chunk[:middle]))
        else:
            self._said_well()
            self._refuse(self._count(chunk), 1, outcome.reason)
        return True

    def _count(self, chunk: Sequence[Any]) -> int:
        """Return how many of these the account counts."""
        return sum(item.counted for item in chunk) if self.signal == "metrics" else len(chunk)

    def _refuse(self, counted: int, items: int, reason: str) -> None:
        if not items:
            return
        self.refused += items
        self._settle(REFUSED, counted)
        self._say(f"{self._address} refuses {items} of {self.signal}: {reason or 'no reason given'}; the rest is sent")

    def _settle(self, cause: str, items: int) -> None:
        if items <= 0:
            return
        with self._lock:
            # After the deadline all of it was counted as not sent.
            if self._dead:
                return
            self._unsettled -= items
            if cause:
                self.writer.lost(cause, items)
            else:
                self.writer.sent(items)

    def _say_failure(self, reason: str) -> None:
        # The second failure in a row: a single one is a hiccup.
        if self._backoff.faults_in_row >= 2:
            self._say(f"{self.signal} cannot be sent to {self._address}: {reason}; they wait in memory meanwhile")

    def _say(self, text: str) -> None:
        now_ns = self._clock.mono_ns()
        if self._said_ns is None or now_ns - self._said_ns >= QUIET_NS:
            self._said_ns = now_ns
            _log.warning("%s; training goes on", text)

    def _said_well(self) -> None:
        if self._backoff.faults_in_row >= 2:
            _log.info("%s are sent to %s again", self.signal, self._address)
            self._said_ns = None
        self._backoff.reset()


class DirectExport:
    """Sends one run's lines. Its methods may be called from any thread, and none raises."""

    def __init__(
        self,
        exporters: Mapping[str, Exporter],
        writers: Mapping[str, MemoryWriter],
        *,
        addresses: Mapping[str, str],
        clock: Clock = SYSTEM,
        on_thread: Callable[[], None] = lambda: None,
        jitter: Callable[[], float] | None = None,
    ) -> None:
        self._clock = clock
        self._writers = writers
        for signal in set(writers) - set(exporters):
            writers[signal].leave_out()
        self._lanes = [
            _Lane(
                signal,
                exporter,
                writers[signal],
                addresses[signal],
                clock=clock,
                on_thread=on_thread,
                jitter=jitter,
            )
            for signal, exporter in exporters.items()
        ]

    def start(self) -> None:
        """Start the threads."""
        for lane in self._lanes:
            lane.start()

    def flush(self, timeout_s: float) -> bool:
        """Have all that is in memory sent; False where the server does not take it in time."""
        until_ns = self._clock.mono_ns() + int(timeout_s * NS_PER_S)
        asked = [(lane, lane.ask_flush()) for lane in self._lanes]
        return all(
            lane.wait_flush(wanted, max(0.0, (until_ns - self._clock.mono_ns()) / NS_PER_S)) for lane, wanted in asked
        )

    def samples(self) -> list[Sample]:
        """Return what became of items so far, for the heartbeat."""
        found = []
        for lane in self._lanes:
            for outcome, count in (("sent", lane.sent), ("merged", lane.merged), ("refused", lane.refused)):
                found.append(Sample("otel_train.export.items", count, ((SIGNAL, lane.signal), (OUTCOME, outcome))))
            found.append(Sample("otel_train.export.retries", lane.retries, ((SIGNAL, lane.signal),)))
        ring = next((writer.ring for writer in self._writers.values()), None)
        if ring is not None:
            found.append(Sample("otel_train.export.queue", ring.bytes))
        return found

    def end(self, deadline_ns: int) -> bool:
        """Send the rest and the marks of the end by a time of the monotonic clock; True where all was taken."""

        def left_s() -> float:
            return max(0.0, (deadline_ns - self._clock.mono_ns()) / NS_PER_S)

        for lane in self._lanes:
            lane.exporter.limit(left_s)
            lane.end()
        complete = True
        for lane in self._lanes:
            finished = lane.finished.wait(left_s())
            complete &= lane.kill() and finished
        try:
            # An exporter may take its time to end: nobody waits for that.
            threading.Thread(target=self._stop, name="otel-train-direct-stop", daemon=True).start()
        except RuntimeError:
            # At the end of the interpreter no thread can be started, and nothing needs to be ended.
            pass
        return complete

    def _stop(self) -> None:
        for lane in self._lanes:
            lane.exporter.stop()

    def abandon(self) -> None:
        """In a forked child: nothing is sent here. No lock, no join."""
        for lane in self._lanes:
            lane.abandon()
