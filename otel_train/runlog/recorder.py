"""Drains what the training thread and the sources left and puts it on disk: one thread a run, at least every second."""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from opentelemetry.sdk.metrics.export import MetricsData

from otel_train.clock import NS_PER_S, SYSTEM, Clock, sleep
from otel_train.record.buffer import SLOTS, Buffer
from otel_train.record.digest import Digest, StepFacts, points_in
from otel_train.record.entries import AttributeValue, LogEntry, Sample, SpanEntry
from otel_train.runlog.accounting import Accounting
from otel_train.runlog.guarded_watcher import GuardedWatcher
from otel_train.runlog.own_metrics import OwnMetrics, best_event, nonfinite_event
from otel_train.runlog.own_readings import OwnReadings
from otel_train.runlog.run_lines import RunLines
from otel_train.runlog.step_spans import StepSpans
from otel_train.semconv import SEVERITIES

if TYPE_CHECKING:
    from otel_train.runlog.watcher import Watcher

_log = logging.getLogger("otel_train")
T = TypeVar("T")

# Entries of one turn of the writer. In small turns a loop that needs the interpreter every millisecond hardly notices
# it; but each turn then waits for the interpreter, 5 ms at a time, so a long backlog is written in large ones.
FINE_ENTRIES: Final = 50
COARSE_ENTRIES: Final = 200
LONG_BACKLOG: Final = 2_000
HEARTBEAT_NS: Final = 15 * NS_PER_S
QUIET_NS: Final = 60 * NS_PER_S
MOST_QUEUED: Final = 50_000
# Share of the time of `stop` that writing may take; the rest is for closing the files.
WRITING_SHARE: Final = 0.7
# Clocks drift, and reading two of them takes time: below this the former offset holds, so that times never cross.
STEADY_NS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class RunTrace:
    """Ids of the short span that stands for the run."""

    trace_id: int
    span_id: int


class Recorder:
    """The sink of one run and rank. Every method may be called from any thread and never raises."""

    def __init__(
        self,
        folder: Path | None,
        resource: Mapping[str, AttributeValue],
        buffer: Buffer,
        digest: Digest,
        trace: RunTrace,
        *,
        version: str,
        flush_interval_s: float = 0.5,
        segment_bytes: int = 64 << 20,
        max_run_bytes: int = 20_000_000_000,
        clock: Clock = SYSTEM,
        write: Callable[[int, bytes], int] = os.write,
        on_event: Callable[[LogEntry], None] = lambda entry: None,
        on_cycle: Callable[[], None] = lambda: None,
        on_heartbeat: Callable[[], Sequence[Sample]] = lambda: (),
        new_watcher: Callable[[], Watcher] | None = None,
    ) -> None:
        self.folder = folder
        self.buffer = buffer
        self.digest = digest
        self.trace = trace
        self.accounting = Accounting()
        self.state = "running"
        self.lines = RunLines(
            folder,
            resource,
            self.accounting,
            version=version,
            segment_bytes=segment_bytes,
            max_run_bytes=max_run_bytes,
            clock=clock,
            write=write,
            say_fault=self._say_fault,
        )
        self._start_ns = clock.wall_ns()
        self._step_spans = StepSpans(trace.trace_id, trace.span_id)
        self._own = OwnMetrics(digest, self.accounting, self._start_ns)
        self._readings_made = OwnReadings(self._start_ns)
        self._logs: deque[LogEntry] = deque()
        self._spans: deque[SpanEntry] = deque()
        self._readings: deque[tuple[int, Sequence[Sample] | MetricsData]] = deque()
        self._flush_interval_s = flush_interval_s
        self._clock = clock
        self._on_event = on_event
        self._on_cycle = on_cycle
        self._on_heartbeat = on_heartbeat
        self._watcher = None if new_watcher is None else GuardedWatcher(new_watcher, self._say_fault)
        self._offset_ns = 0
        self._next_heartbeat_ns: int | None = None
        self._said_ns: dict[str, int] = {}
        self._wake = threading.Event()
        self._stopping = False
        self._cycle_lock = threading.Lock()
        self._thread: threading.Thread | None = None
        # In a forked child, and after the end.
        self._dead = False

    # The sink ------------------------------------------------------------------------------------------------------

    def emit_log(self, entry: LogEntry) -> None:
        """Take one log record."""
        self._queue(self._logs, entry, "logs")

    def emit_span(self, entry: SpanEntry) -> None:
        """Take one finished span."""
        self._queue(self._spans, entry, "traces")

    def emit_samples(self, time_ns: int, samples: Sequence[Sample]) -> None:
        """Take readings made at one wall time."""
        self._queue(self._readings, (time_ns, samples), "metrics")

    def emit_sdk_metrics(self, data: MetricsData) -> None:
        """Take what instruments of OpenTelemetry's metrics API hold."""
        self._queue(self._readings, (0, data), "metrics")

    def _queue(self, queue: deque[Any], item: Any, signal: str) -> None:
        if self._dead:
            return
        if len(queue) >= MOST_QUEUED:
            self.accounting.drop(signal, "queue full", 1)
            return
        queue.append(item)

    # Life ----------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the thread; the first lines are on disk within the flush interval."""
        self._thread = threading.Thread(target=self._run, name="otel-train-writer", daemon=True)
        self._thread.start()

    def stop(self, deadline_ns: int, state: str) -> None:
        """Write everything that is left and the end of the run, close the files; by `deadline_ns` of monotonic time."""
        if self._dead:
            return
        self.state = state
        self._stopping = True
        self._wake.set()
        now_ns = self._clock.mono_ns()
        writing_until_ns = now_ns + int((deadline_ns - now_ns) * WRITING_SHARE)
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(max(0.0, (writing_until_ns - now_ns) / NS_PER_S))
        # A thread that is stuck in a write keeps the lock: what it holds is lost to this process, not the process.
        remaining_s = max(0.1, (writing_until_ns - self._clock.mono_ns()) / NS_PER_S)
        if not self._cycle_lock.acquire(timeout=remaining_s):
            _log.warning("the run log in %s does not answer; what is in memory is lost", self.folder or "memory")
            self._dead = True
            self._give_up("disk did not answer")
            return
        try:
            self._cycle(writing_until_ns)
            self.lines.close(deadline_ns)
            self.lines.account(self.buffer.dropped, ended=True)
        except Exception as fault:  # noqa: BLE001 - a fault of telemetry must not change how training ends
            self._say_fault("the end of the run log", fault)
        finally:
            self._dead = True
            self._cycle_lock.release()

    def flush(self, timeout_s: float = 5.0) -> bool:
        """Put on disk what was recorded before this call; False where disk or device do not answer in time."""
        until_ns = self._clock.mono_ns() + int(timeout_s * NS_PER_S)
        while not self._dead and self._cycle_lock.acquire(
            timeout=max(0.0, (until_ns - self._clock.mono_ns()) / NS_PER_S)
        ):
            try:
                if self._ended():
                    return False
                self._cycle()
                if not self.digest.unfinished:
                    return not self.lines.faulty
            except Exception as fault:  # noqa: BLE001 - a fault of telemetry must not end training
                self._say_fault("flush", fault)
                return False
            finally:
                self._cycle_lock.release()
            if self._clock.mono_ns() >= until_ns:
                return False
            # Values are on their way from a device.
            sleep(0.001)
        return False

    def abandon(self) -> None:
        """In a forked child: take nothing, write nothing, hold nothing. No lock, no join."""
        self._dead = True
        self._thread = None
        self._logs = deque()
        self._spans = deque()
        self._readings = deque()
        self.lines.abandon()

    def _ended(self) -> bool:
        return self._dead

    @property
    def bytes_written(self) -> int:
        """Bytes this process has written to the run's folder."""
        return self.lines.bytes_written

    # The thread ----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stopping:
            self._wake.wait(self._flush_interval_s)
            if self._stopping or self._dead:
                return
            try:
                with self._cycle_lock:
                    self._cycle()
                self._on_cycle()
            except Exception as fault:  # noqa: BLE001 - a fault of telemetry must not end the recording
                self._say_fault("a cycle of the run log's writer", fault)

    def _cycle(self, last_until_ns: int | None = None) -> None:
        """Write what is there; with a time, for the last time, and until then."""
        last = last_until_ns is not None
        self._note_offset()
        self._write_points(last_until_ns)
        self._write_readings(last)
        if self._stopping and not last:
            return  # the last cycle takes all that is left, and points first
        mono_ns = self._clock.mono_ns()
        self._settle(mono_ns, ended=last)
        self._write_readings(last)  # what who watches has to say
        # By the monotonic clock: when the wall clock is set back, the run must not fall silent.
        if last or self._next_heartbeat_ns is None or mono_ns >= self._next_heartbeat_ns:
            self._next_heartbeat_ns = mono_ns + HEARTBEAT_NS
            self._heartbeat(ended=last)
        self.lines.logs(_taken(self._logs))
        self.lines.spans(_taken(self._spans))
        self.lines.retry()
        self.lines.account(self.buffer.dropped, ended=False)

    def _heartbeat(self, *, ended: bool) -> None:
        self.lines.account(self.buffer.dropped, ended=False)
        now_ns = self._clock.wall_ns()
        samples = self._own.heartbeat(now_ns, self._offset_ns, self.state, self.bytes_written)
        samples += self._readings_made.heartbeat()
        samples += self._on_heartbeat()
        if self._watcher is not None:
            samples += self._watcher.heartbeat(ended=ended)
        self.lines.readings(now_ns, samples, self._start_ns, ended=ended)
        self.lines.histograms(self._own.histograms(now_ns), ended=ended)

    def _write_readings(self, last: bool) -> None:
        for _ in range(len(self._readings)):
            if self._stopping and not last:
                return
            time_ns, samples = self._readings.popleft()
            self.lines.readings(time_ns, samples, self._start_ns)
            if self._watcher is not None and not isinstance(samples, MetricsData):
                self._watcher.readings(time_ns, samples)

    def _settle(self, mono_ns: int, *, ended: bool) -> None:
        """Write what the watcher found, now that he has seen everything recorded so far."""
        if self._watcher is None:
            return
        for finding in self._watcher.settle(self._clock.wall_ns(), mono_ns, ended=ended):
            if finding.samples:
                self.lines.readings(finding.time_ns, finding.samples, self._start_ns, ended=ended)
            self._event(
                finding.event, finding.body, finding.attributes, severity=finding.severity, time_ns=finding.time_ns
            )

    def _note_offset(self) -> None:
        before_ns = self._clock.mono_ns()
        wall_ns = self._clock.wall_ns()
        offset_ns = wall_ns - (before_ns + self._clock.mono_ns()) // 2
        if abs(offset_ns - self._offset_ns) > STEADY_NS:
            self._offset_ns = offset_ns

    def _write_points(self, last_until_ns: int | None) -> None:
        if last_until_ns is not None:
            self._write_last_points(last_until_ns)
            return
        left = len(self.buffer.entries)
        self.lines.fine = left < LONG_BACKLOG * SLOTS
        turn = FINE_ENTRIES if self.lines.fine else COARSE_ENTRIES
        if self.digest.unfinished:
            self._digest([])
        # While values are on their way from a device, the others wait in the buffer, which is bounded.
        # Nor beyond the call that ends the run, which has the time that is left and says what it could not write.
        while left > 0 and not self.digest.waiting and not self._stopping:
            chunk = self.buffer.drain(turn)
            left = left - len(chunk) if chunk else 0
            self._digest(chunk, flush=left <= 0)
            # One long turn would stall a loop that needs the interpreter every millisecond.
            sleep(0)
        if left > 0:
            self._digest([])

    def _write_last_points(self, until_ns: int) -> None:
        now_ns = self._clock.mono_ns()
        patient_until_ns = now_ns + (until_ns - now_ns) // 2
        self.lines.fine = False
        while self.buffer.entries or self.digest.unfinished:
            now_ns = self._clock.mono_ns()
            if now_ns >= until_ns:
                self.accounting.drop("metrics", "no time left at the end", points_in(self.buffer.drain()))
                break
            if (self.digest.waiting or not self.buffer.entries) and now_ns < patient_until_ns:
                sleep(0.001)
                self._digest([], flush=not self.digest.waiting)
            else:
                self._digest(self.buffer.drain(COARSE_ENTRIES), flush=False, last=now_ns >= patient_until_ns)
                sleep(0)
        self._digest([], last=True)

    def _digest(self, entries: list[Any], *, flush: bool = True, last: bool = False) -> None:
        digested = self.digest.take(entries, self._offset_ns, flush=flush, last=last)
        for fault in digested.faults:
            self._say_fault("recording", fault)
        for cause, items in digested.lost.items():
            self.accounting.drop("metrics", cause, items)
        for block in digested.blocks:
            self.lines.points(block)
            sleep(0)
        for facts in digested.steps:
            self._take_step(facts)
        for arrived in digested.read:
            self._readings_made.write(arrived, self.lines, self._event)
        for bad in digested.nonfinite:
            self.emit_samples(self._clock.wall_ns(), self._own.take_nonfinite(bad))
            if bad.first:
                self._event("health.nonfinite", *nonfinite_event(bad), severity="ERROR", time_ns=bad.time_ns)
        for best in digested.best:
            self._event("model.best", *best_event(best), time_ns=best.time_ns)
        if self._watcher is not None:
            self._watcher.take(digested)

    def _take_step(self, facts: StepFacts) -> None:
        span = None
        if facts.remarkable:
            spans = self._step_spans.spans(facts, self._offset_ns)
            span = spans[0]
            for entry in spans:
                self.emit_span(entry)
        self._own.take_step(facts, self._offset_ns, span)

    def _give_up(self, cause: str) -> None:
        """Count what is still in memory as lost."""
        self.accounting.drop("metrics", cause, points_in(self.buffer.drain()))
        self.accounting.drop("logs", cause, len(_taken(self._logs)))
        self.accounting.drop("traces", cause, len(_taken(self._spans)))
        self.lines.account(self.buffer.dropped, ended=True)

    def _event(
        self,
        name: str,
        body: str,
        attributes: Mapping[str, AttributeValue],
        *,
        severity: str = "INFO",
        time_ns: int,
    ) -> None:
        entry = LogEntry(
            time_ns=time_ns,
            severity_number=SEVERITIES[severity],
            severity_text=severity,
            body=body,
            attributes=attributes,
            event_name=name,
            trace_id=self.trace.trace_id,
            span_id=self.trace.span_id,
        )
        self.emit_log(entry)
        self._on_event(entry)

    def _say_fault(self, place: str, fault: Exception) -> None:
        """Say a fault of our own, at most once a minute for each place."""
        now_ns = self._clock.mono_ns()
        if now_ns - self._said_ns.get(place, now_ns - QUIET_NS) >= QUIET_NS:
            self._said_ns[place] = now_ns
            _log.warning("%s: %s: %s; it goes on", place, type(fault).__name__, fault, exc_info=fault)


def _taken(queue: deque[T]) -> list[T]:
    """Take out what a queue holds now: who records faster than this writes must not keep the writer here."""
    return [queue.popleft() for _ in range(len(queue))]
