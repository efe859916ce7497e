"""Drains what the training thread and the sources left and puts it on disk: one thread a run, at least every second."""

from __future__ import annotations

import logging
import threading
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from opentelemetry.sdk.metrics.export import MetricsData
from opentelemetry.sdk.trace import ReadableSpan

from otel_train.clock import NS_PER_S, SYSTEM, Clock, sleep
from otel_train.otlp.encode import LineEncoder
from otel_train.otlp.from_sdk import metrics_line, span_entry
from otel_train.otlp.histogram import Exemplar, ExponentialHistogram, HistogramData
from otel_train.record.buffer import Buffer
from otel_train.record.digest import Digest, Digested, StepFacts
from otel_train.record.entries import AttributeValue, Column, LogEntry, Sample, SpanEntry
from otel_train.record.summary import Best, NonFinite, plain
from otel_train.runlog.accounting import Accounting
from otel_train.runlog.segments import LineRing, SegmentWriter
from otel_train.runlog.step_spans import StepSpans
from otel_train.semconv import METRICS, RUN_STATES, SEVERITIES, SPLIT, STEP

_log = logging.getLogger("otel_train")

CHUNK_ENTRIES: Final = 200
HEARTBEAT_NS: Final = 15 * NS_PER_S
MOST_QUEUED: Final = 50_000
LOGS_PER_LINE: Final = 200
# Kept free under `max_run_size`, so that the end of a run that reached it is still written.
END_RESERVE_BYTES: Final = 64 * 1024
SIGNALS: Final = ("metrics", "logs", "traces")


@dataclass(frozen=True, slots=True)
class RunTrace:
    """Ids of the short span that stands for the run."""

    trace_id: int
    span_id: int


class Recorder:
    """The sink of one run and rank. Every method may be called from any thread and never raises."""

    def __init__(
        self,
        folder: Path,
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
        on_event: Callable[[LogEntry], None] = lambda entry: None,
        on_cycle: Callable[[], None] = lambda: None,
    ) -> None:
        self.folder = folder
        self.buffer = buffer
        self.digest = digest
        self.trace = trace
        self.accounting = Accounting()
        self.state = "running"
        self._encoder = LineEncoder(resource, version)
        self._ring = LineRing()
        self._writers = {
            signal: SegmentWriter(folder, signal, segment_bytes=segment_bytes, ring=self._ring, on_fault=self._fault)
            for signal in SIGNALS
        }
        self._step_spans = StepSpans(trace.trace_id, trace.span_id)
        self._durations: dict[str, ExponentialHistogram] = {}
        self._nonfinite: Counter[tuple[str, str, str]] = Counter()
        self._logs: deque[LogEntry] = deque()
        self._spans: deque[SpanEntry | ReadableSpan] = deque()
        self._readings: deque[tuple[int, Sequence[Sample] | MetricsData]] = deque()
        self._flush_interval_s = flush_interval_s
        self._max_run_bytes = max_run_bytes
        self._over_cap = False
        self._clock = clock
        self._on_event = on_event
        self._on_cycle = on_cycle
        self._start_ns = clock.wall_ns()
        self._next_heartbeat_ns = 0
        self._wake = threading.Event()
        self._stopping = False
        self._cycle_lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._dead = False

    # The sink ------------------------------------------------------------------------------------------------------

    def emit_log(self, entry: LogEntry) -> None:
        """Take one log record."""
        self._queue(self._logs, entry, "logs")

    def emit_span(self, entry: SpanEntry) -> None:
        """Take one finished span."""
        self._queue(self._spans, entry, "traces")

    def emit_sdk_span(self, span: ReadableSpan) -> None:
        """Take a finished span of the SDK; it is turned into an entry on the writer's thread."""
        self._queue(self._spans, span, "traces")

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
        self.state = state
        self._stopping = True
        self._wake.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(max(0.0, (deadline_ns - self._clock.mono_ns()) / NS_PER_S))
        # A thread that is stuck in a write keeps the lock: what it holds is lost to this process, not the process.
        remaining_s = max(0.1, (deadline_ns - self._clock.mono_ns()) / NS_PER_S)
        if not self._cycle_lock.acquire(timeout=remaining_s):
            _log.warning("the run log in %s does not answer; what is in memory is lost", self.folder)
            return
        try:
            self._cycle(last=True)
            for writer in self._writers.values():
                writer.close(compress=True, deadline_ns=deadline_ns)
            self._account()
        except Exception:  # noqa: BLE001 - a fault of telemetry must not change how training ends
            _log.exception("the run log could not be closed")
        finally:
            self._cycle_lock.release()

    def flush(self, timeout_s: float = 5.0) -> bool:
        """Put on disk what was recorded before this call; False where the disk does not answer in time."""
        if self._dead or not self._cycle_lock.acquire(timeout=timeout_s):
            return False
        try:
            self._cycle()
        finally:
            self._cycle_lock.release()
        return True

    def abandon(self) -> None:
        """In a forked child: take nothing, write nothing, hold nothing. No lock, no join."""
        self._dead = True
        self._thread = None
        self._logs = deque()
        self._spans = deque()
        self._readings = deque()
        for writer in self._writers.values():
            writer.abandon()

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
            except Exception:  # noqa: BLE001 - a fault of telemetry must not end the recording
                _log.exception("a cycle of the run log's writer failed; it goes on")

    def _cycle(self, *, last: bool = False) -> None:
        offset_ns = self._clock.wall_ns() - self._clock.mono_ns()
        left = len(self.buffer.entries)
        while left > 0 or last:
            chunk = self.buffer.drain(CHUNK_ENTRIES)
            left -= len(chunk)
            final = left <= 0 or not chunk
            digested = self.digest.take(chunk, offset_ns, flush=final, last=last and final)
            self._write_digested(digested, offset_ns)
            if final:
                break
            # One long turn would stall a loop that needs the interpreter every millisecond.
            sleep(0)
        if not left and not last and self.digest.waiting:
            self._write_digested(self.digest.take([], offset_ns), offset_ns)
        self._write_readings()
        now_ns = self._clock.wall_ns()
        if last or now_ns >= self._next_heartbeat_ns:
            self._next_heartbeat_ns = now_ns + HEARTBEAT_NS
            self._heartbeat(now_ns, offset_ns)
        self._write_logs()
        self._write_spans()
        for writer in self._writers.values():
            writer.retry()

    def _write_digested(self, digested: Digested, offset_ns: int) -> None:
        for block in digested.blocks:
            self._write("metrics", self._encoder.points(block), _points_in(block))
            sleep(0)
        for facts in digested.steps:
            self._take_step(facts, offset_ns)
        for bad in digested.nonfinite:
            self._take_nonfinite(bad)
        for best in digested.best:
            self._event("model.best", *_best_event(best), time_ns=best.time_ns)

    def _take_step(self, facts: StepFacts, offset_ns: int) -> None:
        exemplar = None
        if facts.remarkable:
            spans = self._step_spans.spans(facts, offset_ns)
            for span in spans:
                self.emit_span(span)
            exemplar = Exemplar(
                time_ns=facts.end_ns + offset_ns,
                value=facts.duration_s,
                trace_id=spans[0].trace_id,
                span_id=spans[0].span_id,
            )
        histogram = self._durations.get(facts.split)
        if histogram is None:
            histogram = self._durations[facts.split] = ExponentialHistogram()
        histogram.record(facts.duration_s, exemplar)

    def _take_nonfinite(self, bad: NonFinite) -> None:
        for kind, count in bad.kinds.items():
            self._nonfinite[(bad.series.name, bad.series.split, kind)] += count
        if bad.first:
            attributes: dict[str, AttributeValue] = {
                "metric": bad.series.name,
                STEP: bad.step,
                "value": str(plain(bad.value)),
            }
            if bad.series.split:
                attributes[SPLIT] = bad.series.split
            body = f"{bad.series.description} is {plain(bad.value)} at step {bad.step}"
            self._event("health.nonfinite", body, attributes, severity="ERROR", time_ns=bad.time_ns)
        rows = [
            Sample("dl.nonfinite", count, (("metric", name), (SPLIT, split), ("kind", kind)))
            for (name, split, kind), count in self._nonfinite.items()
        ]
        self.emit_samples(self._clock.wall_ns(), rows)

    def _heartbeat(self, now_ns: int, offset_ns: int) -> None:
        samples = [Sample("dl.run.heartbeat", now_ns / NS_PER_S)]
        samples += [Sample("dl.run.state", int(state == self.state), (("state", state),)) for state in RUN_STATES]
        step = self.digest.last_step
        if step is not None:
            samples.append(Sample("dl.step.last_time", (step.end_ns + offset_ns) / NS_PER_S))
            usual = self.digest.usual.get("train") or self.digest.usual[step.split]
            if usual.median_ns:
                samples.append(Sample("dl.step.usual_time", usual.median_ns / NS_PER_S))
        self._account()
        for signal, name in (
            ("metrics", "otel_train.points"),
            ("logs", "otel_train.logs"),
            ("traces", "otel_train.spans"),
        ):
            samples.append(Sample(name, self.accounting.recorded[signal], (("outcome", "recorded"),)))
            samples += [
                Sample(name, count, (("outcome", cause),))
                for cause, count in self.accounting.dropped.get(signal, {}).items()
            ]
        samples.append(Sample("otel_train.runlog.size", self.bytes_written))
        self._write("metrics", self._encoder.samples(now_ns, self._start_ns, samples), len(samples), own=True)
        metric = METRICS["dl.step.duration"]
        histograms = []
        for split, histogram in self._durations.items():
            value, exemplars = histogram.snapshot()
            histograms.append(
                HistogramData(
                    name=metric.name,
                    unit=metric.unit,
                    description=metric.description,
                    attributes=((SPLIT, split),),
                    start_ns=self._start_ns,
                    time_ns=now_ns,
                    value=value,
                    exemplars=exemplars,
                )
            )
        if histograms:
            self._write("metrics", self._encoder.histograms(histograms), len(histograms), own=True)

    def _write_readings(self) -> None:
        while self._readings:
            time_ns, samples = self._readings.popleft()
            if isinstance(samples, MetricsData):
                line = metrics_line(samples, self._encoder.resource)
                self._write("metrics", line, 1, own=True)
                continue
            self._write("metrics", self._encoder.samples(time_ns, self._start_ns, samples), len(samples), own=True)

    def _write_logs(self) -> None:
        while self._logs:
            batch = [self._logs.popleft() for _ in range(min(LOGS_PER_LINE, len(self._logs)))]
            self._write("logs", self._encoder.logs(batch), len(batch))
            sleep(0)

    def _write_spans(self) -> None:
        while self._spans:
            batch = [self._spans.popleft() for _ in range(min(LOGS_PER_LINE, len(self._spans)))]
            entries = [item if isinstance(item, SpanEntry) else span_entry(item) for item in batch]
            self._write("traces", self._encoder.spans(entries), len(entries))
            sleep(0)

    def _write(self, signal: str, line: bytes, items: int, *, own: bool = False) -> None:
        """Write one line; `own` readings are not counted among the user's points."""
        if not line:
            return
        size = sum(writer.disk_bytes for writer in self._writers.values())
        limit = self._max_run_bytes - (0 if self.state != "running" and own else END_RESERVE_BYTES)
        if size + len(line) > limit and not (signal == "logs" and self.state != "running"):
            if not self._over_cap:
                self._over_cap = True
                _log.warning(
                    "%s has reached max_run_size (%s bytes); what follows is counted, not stored",
                    self.folder,
                    f"{self._max_run_bytes:,}",
                )
            self.accounting.drop(signal, "over max_run_size", items)
            return
        self._writers[signal].write(line, items)
        if not own:
            self.accounting.recorded[signal] += items

    @property
    def bytes_written(self) -> int:
        """Bytes this process has written to the run's folder."""
        return sum(writer.bytes_written for writer in self._writers.values())

    def _account(self) -> None:
        """Bring counts that are kept elsewhere into the accounting."""
        metrics = self.accounting.dropped.setdefault("metrics", Counter())
        for cause, count in list(self.buffer.dropped.items()):
            metrics[cause] = count
        for signal, lost in self._ring.lost.items():
            self.accounting.dropped.setdefault(signal, Counter())["disk not writable"] = lost
        if self.state != "running":
            for signal, writer in self._writers.items():
                if writer.items_in_ring:
                    self.accounting.dropped.setdefault(signal, Counter())["disk not writable"] = (
                        writer.items_lost + writer.items_in_ring
                    )

    def _event(
        self,
        name: str,
        body: str,
        attributes: Mapping[str, AttributeValue],
        *,
        severity: str = "INFO",
        time_ns: int | None = None,
    ) -> None:
        entry = LogEntry(
            time_ns=time_ns or self._clock.wall_ns(),
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

    def _fault(self, message: str) -> None:
        _log.warning("%s; training goes on, records wait in memory", message)


def _points_in(block: Sequence[Column]) -> int:
    """Count the points of a line without the siblings that only say where they stand."""
    return sum(len(column.values) for column in block if column.name not in ("dl.step", "dl.epoch"))


def _best_event(best: Best) -> tuple[str, dict[str, AttributeValue]]:
    attributes: dict[str, AttributeValue] = {
        "metric": best.series.name,
        "value": best.value,
        "goal": best.goal,
        STEP: best.step,
    }
    if best.series.split:
        attributes[SPLIT] = best.series.split
    if best.previous is not None:
        attributes["previous"] = best.previous
    place = f"{best.series.split} {best.series.key}".strip()
    return f"new best {place} {best.value:.6g} at step {best.step}", attributes
