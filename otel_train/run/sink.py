"""Where a run's sources put what they have: held until the run is open, then the recorder; logs also to the console."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from opentelemetry.sdk.trace import ReadableSpan

from otel_train.lineage.redact import Redactor
from otel_train.otlp.from_sdk import span_entry
from otel_train.record.entries import LogEntry, Sample, SpanEntry, SpanEvent, SpanLink
from otel_train.run.warned import Warned
from otel_train.runlog.recorder import Recorder
from otel_train.sources.console import Console
from otel_train.sources.log_entry import level_number, severity_of

MOST_HELD: Final = 100_000


class RunSink:
    """One object a run for its life; a rank that waits for its run's id records into it all the same."""

    def __init__(self, *, level: str, console: Console | None, redactor: Redactor) -> None:
        self._recorder: Recorder | None = None
        self._held: list[Callable[[Recorder], None]] = []
        self._lock = threading.Lock()
        self._severity_number = severity_of(level_number(level))
        self._console = console
        self._redactor = redactor
        self.warned = Warned()
        self.lost = 0

    def attach(self, recorder: Recorder) -> None:
        """Hand over what was held, and everything from now on."""
        with self._lock:
            for give in self._held:
                give(recorder)
            self._held = []
            self._recorder = recorder

    def _give(self, give: Callable[[Recorder], None]) -> None:
        recorder = self._recorder
        if recorder is None:
            with self._lock:
                recorder = self._recorder
                if recorder is None:
                    if len(self._held) < MOST_HELD:
                        self._held.append(give)
                    else:
                        self.lost += 1
                    return
        give(recorder)

    def emit_log(self, entry: LogEntry) -> None:
        """Take one log record; below the run log's level it goes to the console only."""
        self._redact(entry)
        if self._console is not None:
            self._console.emit_log(entry)
        if entry.severity_number >= self._severity_number:
            self.warned.see(entry)
            self._give(lambda recorder: recorder.emit_log(entry))

    def emit_event(self, entry: LogEntry) -> None:
        """Take one event of our own: it is kept whatever the level."""
        self._redact(entry)
        self.warned.see(entry)
        if self._console is not None:
            # A person reads the sentence; what belongs to it is in the run log.
            body = entry.body if isinstance(entry.body, str) else "recorded"
            self._console.emit_log(replace(entry, body=body, attributes={}))
        self._give(lambda recorder: recorder.emit_log(entry))

    def show_health(self, entry: LogEntry) -> None:
        """Take note of an event of the writer's, and print it if it says how the run is; he has written it already."""
        self.warned.see(entry)
        if self._console is not None and entry.event_name.startswith("health."):
            self._console.emit_log(replace(entry, attributes={}))

    def _redact(self, entry: LogEntry) -> None:
        entry.body = self._redactor.value("", entry.body)  # type: ignore[assignment]
        entry.attributes = self._redactor.mapping(entry.attributes)  # type: ignore[assignment]

    def _redact_span(self, entry: SpanEntry) -> None:
        redactor = self._redactor
        entry.name = redactor.text(entry.name)
        entry.status_message = redactor.text(entry.status_message)
        holders: list[SpanEntry | SpanEvent | SpanLink] = [entry, *entry.events, *entry.links]
        for holder in holders:
            if holder.attributes:
                holder.attributes = redactor.mapping(holder.attributes)  # type: ignore[assignment]

    def emit_span(self, entry: SpanEntry) -> None:
        """Take one finished span."""
        self._redact_span(entry)
        self._give(lambda recorder: recorder.emit_span(entry))

    def emit_sdk_span(self, span: ReadableSpan) -> None:
        """Take one finished span of the SDK: a stage, an epoch, or one of the user's."""
        self.emit_span(span_entry(span))

    def emit_samples(self, time_ns: int, samples: Sequence[Sample]) -> None:
        """Take readings made at one wall time."""
        self._give(lambda recorder: recorder.emit_samples(time_ns, samples))

    def emit_sdk_metrics(self, data: Any) -> None:
        """Take what instruments of the metrics API hold."""
        self._give(lambda recorder: recorder.emit_sdk_metrics(data))
