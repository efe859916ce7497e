"""What the log sources have in common: threshold, context, redaction, flood control, and that no fault gets out."""

from __future__ import annotations

from collections.abc import Callable

from otel_train.clock import SYSTEM, Clock
from otel_train.record.entries import AttributeValue, LogEntry, Sink
from otel_train.sources.emission import EMISSION
from otel_train.sources.flood import FloodGate
from otel_train.sources.log_context import LogContext
from otel_train.sources.log_entry import (
    MAX_BODY_CHARS,
    bounded,
    level_number,
    redact_entry,
    severity_of,
    without_codes,
)

# The usual levels, for the hot path.
_SEVERITIES = {levelno: severity_of(levelno) for levelno in (10, 20, 25, 30, 40, 50)}


class LogSource:
    """One process-wide source of log records.

    `context` is asked at each record, in the thread that emits it; where it returns None (no run, or a forked child)
    the record passes unrecorded and no lock is taken. `on_fault` hears of each exception within ourselves; what it
    raises reaches the user's call, so only tests let it raise.
    """

    def __init__(
        self,
        context: Callable[[], LogContext | None],
        *,
        level: str | int = "INFO",
        redact: Callable[[str], str] | None = None,
        is_secret_key: Callable[[str, object], bool] | None = None,
        flood: FloodGate | None = None,
        clock: Clock = SYSTEM,
        on_fault: Callable[[Exception], None] | None = None,
    ) -> None:
        self._context = context
        self._levelno = level_number(level)
        self._redact = redact
        self._is_secret_key = is_secret_key
        self._must_redact = redact is not None or is_secret_key is not None
        self._flood = flood
        self._clock = clock
        self._on_fault = on_fault
        self.faults = 0

    def install(self) -> None:
        """Begin to record; once more does nothing."""
        raise NotImplementedError

    def uninstall(self) -> None:
        """Take everything of ours away again; once more does nothing."""
        raise NotImplementedError

    def heartbeat(self) -> None:
        """Look after what the user may have removed or imported since; call it every few seconds."""

    def flush(self, sink: Sink | None = None) -> None:
        """Hand over what is held back: for one run, or for all."""

    def _fault(self, fault: Exception) -> None:
        self.faults += 1
        if self._on_fault is not None:
            self._on_fault(fault)

    def _guarded(self, action: Callable[[], None]) -> None:
        """Run something of ours so that no exception and no record of its own gets out."""
        was_busy = EMISSION.busy
        EMISSION.busy = True
        try:
            action()
        except Exception as fault:  # noqa: BLE001 - telemetry never raises into training
            self._fault(fault)
        finally:
            EMISSION.busy = was_busy

    def _deliver(
        self,
        context: LogContext,
        time_ns: int,
        levelno: int,
        level_name: str,
        body: str,
        attributes: dict[str, AttributeValue],
        event_name: str = "",
    ) -> None:
        """Hand one record to its run; `attributes` becomes ours, the context's win over the user's."""
        attributes.update(context.attributes)
        if "\x1b" in body or "\r" in body:
            body = without_codes(body)
        entry = LogEntry(
            time_ns=time_ns,
            severity_number=_SEVERITIES.get(levelno) or severity_of(levelno),
            severity_text=level_name,
            body=body if len(body) <= MAX_BODY_CHARS else bounded(body, MAX_BODY_CHARS),
            attributes=attributes,
            event_name=event_name,
            observed_time_ns=self._clock.wall_ns(),
            trace_id=context.trace_id,
            span_id=context.span_id,
        )
        if self._must_redact:
            redact_entry(entry, self._redact, self._is_secret_key)
        context.sink.emit_log(entry)
