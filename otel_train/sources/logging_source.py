"""Records of `logging`: seen when a logger has accepted them, before its handlers run.

The hook is `logging.Logger.filter`, which every logger calls once for each record that its level lets pass. A handler
on the root logger would be simpler and would change the user's program: `basicConfig()` does nothing once the root
has a handler, the handler of last resort falls silent, `force=True` and `dictConfig()` remove it, and it never sees
loggers that do not propagate, as those of training libraries often do. Around `Logger.callHandlers` a frame of ours
would stay on the stack while the user's handlers run, and the recipes that forward to loguru count those frames.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from otel_train.clock import NS_PER_S
from otel_train.record.entries import AttributeValue
from otel_train.semconv import CODE_FILE, CODE_FUNCTION, CODE_LINE, CODE_STACK, LOGGER, THREAD_NAME
from otel_train.sources.emission import (
    EMISSION,
    LOGURU_AT_WORK,
    RECORDING,
    PendingEvent,
    called_by,
    is_own_diagnostic,
)
from otel_train.sources.log_context import LogContext
from otel_train.sources.log_entry import (
    MAX_STACK_CHARS,
    attributes_of,
    bounded,
    exception_attributes,
    formatted_exception_attributes,
    text_of,
    type_name,
)
from otel_train.sources.log_source import LogSource
from otel_train.sources.structlog_event import body_of, event_attributes

_BLANK = logging.makeLogRecord({}).__dict__
# What a formatter adds to a record, and asyncio's field, which only newer versions of Python have.
_OWN_FIELDS = frozenset(_BLANK) | {"message", "asctime", "taskName"}
_OWN_FIELD_COUNT = len(_BLANK)


class LoggingSource(LogSource):
    """Records what the loggers of `logging` accept; loggers, handlers, levels and propagation stay untouched."""

    _active = False
    _hook: Callable[[logging.Logger, logging.LogRecord], Any] | None = None
    _before: Any = None

    def install(self) -> None:
        """Begin to record; once more does nothing."""
        self._active = RECORDING.logging = True
        if self._hook is not None:
            return  # installed, or somebody has put theirs around our hook: it is still called
        self._before = logging.Logger.__dict__.get("filter")
        original: Callable[[logging.Logger, logging.LogRecord], Any] = logging.Logger.filter
        is_stock = original is logging.Filterer.filter

        def hook(logger: logging.Logger, record: logging.LogRecord) -> Any:
            # Python's own method does nothing where there are no filters: spares a twentieth of a logging call.
            kept = original(logger, record) if logger.filters or not is_stock else True
            if not kept:
                # An event of structlog that is refused must not keep its exception's frames alive.
                EMISSION.pending = None
            elif self._active:
                # Since Python 3.12 a filter may hand back another record in the record's place.
                self._capture(kept if isinstance(kept, logging.LogRecord) else record)
            return kept

        self._hook = hook
        _set_filter(hook)

    def uninstall(self) -> None:
        """Take the hook away; where somebody has put theirs around it, ours stays within and does nothing."""
        if self._active:
            self._active = RECORDING.logging = False
        if self._hook is not None and logging.Logger.__dict__.get("filter") is self._hook:
            _set_filter(self._before)
            self._hook = self._before = None

    def _capture(self, record: logging.LogRecord) -> None:
        state = EMISSION
        if record.levelno < self._levelno or state.busy:
            return
        if record.name.startswith("otel_train") and is_own_diagnostic(record.name):
            return
        state.busy = True
        try:
            context = self._context()
            if context is not None:
                self._record(record, context)
        except Exception as fault:  # noqa: BLE001 - telemetry never raises into training
            self._fault(fault)
        finally:
            state.busy = False

    def _record(self, record: logging.LogRecord, context: LogContext) -> None:
        if RECORDING.loguru and called_by(LOGURU_AT_WORK, skip=3):
            return  # loguru's own source has it
        time_ns = int(record.created * NS_PER_S)
        if RECORDING.structlog and (pending := EMISSION.pending) is not None:
            EMISSION.pending = None
            if _belongs(pending, record, time_ns):
                self._record_event(record, context, time_ns, pending)
                return
        message = record.msg
        body = message if type(message) is str and not record.args else _body(record)
        info = record.exc_info
        failed = isinstance(info, tuple) and info[0] is not None
        if self._flood is not None:
            exception_type = type_name(info[0]) if failed else ""  # type: ignore[index, arg-type]
            # Formatted templates are told apart before their arguments, other messages by their text.
            template = message if type(message) is str else body
            if not self._flood.admit(context, record.name, record.levelno, template, time_ns, exception_type):
                return
        attributes = _described(record)
        fields = record.__dict__
        if len(fields) > _OWN_FIELD_COUNT:
            attributes = {**_extra(fields), **attributes}
        if failed:
            attributes.update(exception_attributes(*info))  # type: ignore[misc]
        elif record.exc_text and record.exc_text.strip():
            attributes.update(formatted_exception_attributes(record.exc_text))
        if record.stack_info:
            attributes[CODE_STACK] = bounded(record.stack_info, MAX_STACK_CHARS)
        self._deliver(context, time_ns, record.levelno, record.levelname, body, attributes)

    def _record_event(
        self, record: logging.LogRecord, context: LogContext, time_ns: int, pending: PendingEvent
    ) -> None:
        """Record an event of structlog that `logging` has accepted: its words, and the record's level and place."""
        kind = type_name(pending.exception[0]) if pending.exception else ""
        template = text_of(pending.event.get("event", ""))
        if self._flood is not None and not self._flood.admit(
            context, record.name, record.levelno, template, time_ns, kind
        ):
            return
        said = event_attributes(pending.event, pending.exception)
        attributes = {**said, **_described(record), **pending.place}
        self._deliver(context, time_ns, record.levelno, record.levelname, body_of(pending.event), attributes)


def _set_filter(method: Any) -> None:
    if method is None:
        # The class inherits its method; deleting ours brings it back.
        del logging.Logger.filter
    else:
        setattr(logging.Logger, "filter", method)  # noqa: B010 - mypy forbids to assign to a method


def _belongs(pending: PendingEvent, record: logging.LogRecord, time_ns: int) -> bool:
    """Tell whether this record is what structlog has made of the event that was seen last in this thread."""
    return (
        pending.logger_name == record.name
        and pending.levelno == record.levelno
        # Dropped by its renderer, an event stays behind: a later record is none of its business.
        and abs(time_ns - pending.time_ns) < NS_PER_S
    )


def _body(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception:  # noqa: BLE001 - arguments that do not fit, or whose text raises
        # The user's handlers complain about it on the console; the words are kept as they are.
        return f"{text_of(record.msg)} {text_of(record.args)}"


def _described(record: logging.LogRecord) -> dict[str, AttributeValue]:
    return {
        LOGGER: record.name,
        CODE_FILE: record.pathname,
        CODE_LINE: record.lineno,
        CODE_FUNCTION: record.funcName or "",
        THREAD_NAME: record.threadName or "",
    }


def _extra(fields: dict[str, Any]) -> dict[str, AttributeValue]:
    extra = {key: value for key, value in fields.items() if key not in _OWN_FIELDS}
    return attributes_of(extra) if extra else {}
