"""Keeps a flood of like records as samples plus a count: the first of each second are kept, the others counted."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from dataclasses import dataclass

from otel_train import semconv
from otel_train.clock import NS_PER_S, SYSTEM, Clock, iso
from otel_train.record.entries import LogEntry, Sink
from otel_train.sources.log_context import LogContext
from otel_train.sources.log_entry import bounded, redact_entry

MAX_TEMPLATE_CHARS = 500
_KEY_BYTES = 200
_DIGITS = b"0123456789"
_RUN_OF_DIGITS = re.compile(r"\d+")

# Sink, logger, level, text without digits, type of the exception.
_Key = tuple[int, str, int, bytes, str]


@dataclass(slots=True)
class _Bucket:
    """What is known of one kind of record. Times are wall times in nanoseconds."""

    window_start_ns: int
    in_window: int
    context: LogContext
    logger: str
    levelno: int
    template: str
    suppressed: int = 0
    first_suppressed_ns: int = 0
    last_suppressed_ns: int = 0


class FloodGate:
    """Decides for each record whether it is kept, and accounts for those that are not.

    Records are alike when run, logger, level, exception type and template agree; a template is the message before its
    arguments are put in, or the message itself, its digits left out of account. A count is written as the event
    `log.suppressed` when the burst is over (a second without one) or `report_every_s` after it began. Nothing is left
    out without a count: a kind that has to go, since only `max_templates` are remembered, is written first.
    """

    def __init__(
        self,
        clock: Clock = SYSTEM,
        *,
        per_second: int = 10,
        report_every_s: float = 10.0,
        max_templates: int = 1024,
        redact: Callable[[str], str] | None = None,
    ) -> None:
        self._clock = clock
        self._per_second = per_second
        self._report_every_ns = int(report_every_s * NS_PER_S)
        self._max_templates = max_templates
        self._redact = redact
        self._buckets: dict[_Key, _Bucket] = {}
        # Re-entrant: a signal handler that logs may interrupt the thread that holds it.
        self._lock = threading.RLock()
        self.suppressed = 0

    def admit(
        self, context: LogContext, logger: str, levelno: int, template: str, time_ns: int, exception_type: str = ""
    ) -> bool:
        """Return whether this record is to be kept; False counts it as suppressed."""
        # Deleting bytes costs a tenth of what a translation of the text does.
        text = template.encode("utf-8", "surrogatepass").translate(None, _DIGITS)[:_KEY_BYTES]
        key = (id(context.sink), logger, levelno, text, exception_type)
        reports: list[tuple[Sink, LogEntry]] = []
        with self._lock:
            bucket = self._buckets.get(key)
            if bucket is not None and 0 <= time_ns - bucket.window_start_ns < NS_PER_S:
                bucket.in_window += 1
                return bucket.in_window <= self._per_second or self._suppress(bucket, context, time_ns)
            if bucket is None:
                if len(self._buckets) >= self._max_templates:
                    self._make_room(reports)
                template = bounded(template, MAX_TEMPLATE_CHARS)
                self._buckets[key] = _Bucket(time_ns, 1, context, logger, levelno, template)
            else:
                # The next second; or the clock was set back, which begins a new window as well.
                bucket.window_start_ns = time_ns
                bucket.in_window = 1
                self._report_if_due(bucket, time_ns, reports)
        for sink, report in reports:
            sink.emit_log(report)
        return True

    def _suppress(self, bucket: _Bucket, context: LogContext, time_ns: int) -> bool:
        if not bucket.suppressed:
            bucket.first_suppressed_ns = time_ns
        bucket.suppressed += 1
        bucket.last_suppressed_ns = time_ns
        bucket.context = context
        self.suppressed += 1
        return False

    def heartbeat(self) -> None:
        """Write the counts of bursts that are over or older than the interval of reports."""
        now_ns = self._clock.wall_ns()
        reports: list[tuple[Sink, LogEntry]] = []
        with self._lock:
            for bucket in self._buckets.values():
                self._report_if_due(bucket, now_ns, reports)
        for sink, report in reports:
            sink.emit_log(report)

    def flush(self, sink: Sink | None = None) -> None:
        """Write all counts now and forget the kinds: of one run, or of all."""
        reports: list[tuple[Sink, LogEntry]] = []
        with self._lock:
            for key, bucket in list(self._buckets.items()):
                if sink is None or bucket.context.sink is sink:
                    self._report(bucket, reports)
                    del self._buckets[key]
        for owner, report in reports:
            owner.emit_log(report)

    def _make_room(self, reports: list[tuple[Sink, LogEntry]]) -> None:
        """Forget the half that has not been seen for longest, so that the sorting is paid once in many records."""
        by_age = sorted(self._buckets.items(), key=lambda pair: pair[1].window_start_ns)
        for key, bucket in by_age[: max(1, len(by_age) // 2)]:
            self._report(bucket, reports)
            del self._buckets[key]

    def _report_if_due(self, bucket: _Bucket, now_ns: int, reports: list[tuple[Sink, LogEntry]]) -> None:
        if not bucket.suppressed:
            return
        over = now_ns - bucket.last_suppressed_ns >= NS_PER_S or now_ns < bucket.last_suppressed_ns
        if over or now_ns - bucket.first_suppressed_ns >= self._report_every_ns:
            self._report(bucket, reports)

    def _report(self, bucket: _Bucket, reports: list[tuple[Sink, LogEntry]]) -> None:
        if not bucket.suppressed:
            return
        template = _RUN_OF_DIGITS.sub("#", bucket.template)
        now_ns = self._clock.wall_ns()
        event = semconv.EVENTS["log.suppressed"]
        entry = LogEntry(
            time_ns=now_ns,
            observed_time_ns=now_ns,
            severity_number=semconv.severity_number(event.severity),
            severity_text=event.severity,
            event_name=event.name,
            body=f"{bucket.suppressed} more like: {template}",
            attributes={
                **bucket.context.attributes,
                semconv.LOGGER: bucket.logger,
                semconv.SUPPRESSED_COUNT: bucket.suppressed,
                semconv.SUPPRESSED_TEMPLATE: template,
                semconv.SUPPRESSED_LEVEL: bucket.levelno,
                semconv.SUPPRESSED_FIRST: iso(bucket.first_suppressed_ns),
                semconv.SUPPRESSED_LAST: iso(bucket.last_suppressed_ns),
            },
            trace_id=bucket.context.trace_id,
            span_id=bucket.context.span_id,
        )
        bucket.suppressed = 0
        redact_entry(entry, self._redact)
        reports.append((bucket.context.sink, entry))
