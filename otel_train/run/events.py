"""Writes the run's own events, each tied to the innermost open span."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from otel_train.clock import wall_ns
from otel_train.record.entries import AttributeValue, LogEntry
from otel_train.run.verdict import message_of
from otel_train.semconv import EVENTS, SEVERITIES

if TYPE_CHECKING:
    from otel_train.run.run import Run

# The end of a long traceback holds what matters; stores limit a record to 64 KiB of attributes.
MOST_TRACEBACK = 30_000


class Events:
    """Makes log records with event names."""

    def __init__(self, run: Run) -> None:
        self._run = run
        # The exception that was told last, with its samples, on its way up through the loop that asked for the batch.
        self._told = 0

    def emit(
        self,
        name: str,
        body: AttributeValue,
        attributes: Mapping[str, AttributeValue] | None = None,
        *,
        severity: str | None = None,
        span: Any = None,
        time_ns: int | None = None,
    ) -> None:
        """Write one event; its severity is the one of `semconv.EVENTS` unless given."""
        run = self._run
        known = EVENTS.get(name)
        text = severity or (known.severity if known else "INFO")
        context = run.spans.innermost() if span is None else run.spans.context_of(span)
        run.log_sink.emit_event(
            LogEntry(
                time_ns=time_ns or wall_ns(),
                severity_number=SEVERITIES[text],
                severity_text=text,
                body=body,
                attributes=dict(attributes or {}),
                event_name=name,
                trace_id=0 if context is None else context.trace_id,
                span_id=0 if context is None else context.span_id,
            )
        )

    def notice(self, text: str, severity: str = "INFO") -> None:
        """Write what otel-train has to say of its own work."""
        self.emit("otel_train.notice", text, severity=severity)

    def loader_failed(self, fault: Exception) -> None:
        """Write that fetching a batch failed; the exception itself passes through."""
        told, self._told = self._told, 0
        if told != id(fault):
            self._write_failed(fault, "", "", {})

    def batch_failed(self, fault: Exception, place: str, said: str, attributes: Mapping[str, AttributeValue]) -> None:
        """Write the same of a watched loader: with the place in words, what was said there, and its attributes."""
        self._write_failed(fault, place, said, attributes)
        # Without a reference, which would keep the batches of all frames alive that it went through.
        self._told = id(fault)

    def _write_failed(self, fault: Exception, place: str, said: str, attributes: Mapping[str, AttributeValue]) -> None:
        run = self._run
        with run.guard("steps"):
            where = f" {place}" if place else ""
            body = f"the data loader raised {type(fault).__name__}{where}: {said or message_of(fault)}"
            self.emit("health.data_loading", body, {**run.position(), **attributes, **self.exception(fault)})

    def exception(self, fault: BaseException) -> dict[str, AttributeValue]:
        """Return type, message and traceback as the semantic conventions name them; the sink redacts secrets."""
        lines = "".join(traceback.format_exception(fault))
        if len(lines) > MOST_TRACEBACK:
            lines = f"[cut]\n{lines[-MOST_TRACEBACK:]}"
        kind = type(fault)
        name = kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
        return {
            "exception.type": name,
            "exception.message": message_of(fault),
            "exception.stacktrace": lines,
        }


def is_out_of_memory(fault: BaseException) -> bool:
    """Tell whether an exception says that the host or a device has no memory left."""
    return isinstance(fault, MemoryError) or type(fault).__name__ == "OutOfMemoryError"


def without_none(value: Any) -> Any:
    """Return a record as nested attributes without nulls: a null makes a server refuse the whole request."""
    if isinstance(value, Mapping):
        return {str(key): without_none(item) for key, item in value.items() if item is not None}
    if isinstance(value, (list, tuple)):
        return [without_none(item) for item in value if item is not None]
    return value if isinstance(value, (str, bool, int, float)) else str(value)
