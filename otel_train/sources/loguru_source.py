"""Records of loguru: seen by the filter of a sink of our own, in the thread that emits them.

The filter sees a record before loguru renders it: no lock of loguru is held, no exception is formatted for us, and
`enqueue=True` of the user's sinks changes nothing, since ours has none. Nothing ever reaches the sink itself.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from otel_train import semconv
from otel_train.clock import NS_PER_S
from otel_train.sources.emission import EMISSION, LOGGING_AT_WORK, RECORDING, called_by
from otel_train.sources.log_context import LogContext
from otel_train.sources.log_entry import attributes_of, exception_attributes, type_name
from otel_train.sources.log_source import LogSource


class LoguruTap:
    """The sink that is added to loguru, and its filter. A copy in another process is inert."""

    def __init__(self, source: LoguruSource | None = None) -> None:
        self._source = source

    def __call__(self, record: dict[str, Any]) -> bool:
        """See a record, as loguru's filter; always False, so that loguru stops there."""
        if self._source is not None:
            self._source._capture(record)
        return False

    def write(self, message: str) -> None:
        """Nothing comes here."""

    def stop(self) -> None:
        """Hear from loguru that the sink has been removed."""
        if self._source is not None:
            self._source._removed(self)

    def __reduce__(self) -> tuple[type[LoguruTap], tuple[()]]:
        # A logger that is handed to a spawned process takes its sinks along: ours must not forbid it.
        return (LoguruTap, ())


class LoguruSource(LogSource):
    """Records what loguru emits; the user's sinks, their levels and formats stay untouched.

    `logger.remove()` without an id, the usual first line of a configuration, takes our sink away too: it is added
    again at once, and by `heartbeat()` where that did not work. loguru is never imported by us.
    """

    _active = False
    _tap: LoguruTap | None = None
    _tap_id: int | None = None
    _logger: Any = None
    _remove_hook: Callable[..., None] | None = None
    _remove_before: Callable[..., None] | None = None

    def install(self) -> None:
        """Begin to record, now or once the user has imported loguru."""
        self._active = True
        self.heartbeat()

    def heartbeat(self) -> None:
        """Add our sink where it is missing."""
        if self._active and self._tap is None:
            self._guarded(self._attach)

    def uninstall(self) -> None:
        """Remove our sink, and the look-out for its removal."""
        self._active = RECORDING.loguru = False
        self._guarded(self._detach)

    def _attach(self) -> None:
        module = sys.modules.get("loguru")
        logger = getattr(module, "logger", None)
        if logger is None:
            return
        self._logger = logger
        if self._remove_hook is None:
            self._watch_removal(type(logger))
        tap = LoguruTap(self)
        self._tap_id = logger.add(
            tap, level=max(self._levelno, 0), format=_no_text, filter=tap, enqueue=False, backtrace=False,
            diagnose=False, colorize=False,
        )  # fmt: skip
        self._tap = tap
        RECORDING.loguru = True

    def _watch_removal(self, logger_class: Any) -> None:
        original: Callable[..., None] = logger_class.remove

        def remove(logger: Any, *arguments: Any, **named: Any) -> None:
            try:
                original(logger, *arguments, **named)
            finally:
                self.heartbeat()

        remove.__doc__ = original.__doc__
        self._remove_hook = remove
        self._remove_before = original
        logger_class.remove = remove

    def _detach(self) -> None:
        if self._logger is None:
            return
        logger_class = type(self._logger)
        if self._tap is not None and self._tap_id is not None:
            try:
                self._logger.remove(self._tap_id)
            except ValueError:
                pass  # gone already
        self._tap = self._tap_id = None
        # Where somebody has put theirs around our look-out, it stays within and does nothing.
        if logger_class.__dict__.get("remove") is self._remove_hook:
            logger_class.remove = self._remove_before
            self._remove_hook = self._remove_before = None

    def _removed(self, tap: LoguruTap) -> None:
        if tap is self._tap:
            self._tap = self._tap_id = None
            RECORDING.loguru = False

    def _capture(self, record: dict[str, Any]) -> None:
        state = EMISSION
        if not self._active or state.busy:
            return
        state.busy = True
        try:
            context = self._context()
            # From a handler of `logging` that forwards to loguru: recorded when `logging` accepted it.
            if context is not None and not (RECORDING.logging and called_by(LOGGING_AT_WORK, skip=4)):
                self._record(record, context)
        except Exception as fault:  # noqa: BLE001 - telemetry never raises into training
            self._fault(fault)
        finally:
            state.busy = False

    def _record(self, record: dict[str, Any], context: LogContext) -> None:
        level = record["level"]
        body = record["message"]
        name = record["name"] or ""
        exception = record["exception"]
        kind = type_name(exception.type) if exception is not None and exception.type is not None else ""
        time_ns = int(record["time"].timestamp() * NS_PER_S)
        if self._flood is not None and not self._flood.admit(context, name, level.no, body, time_ns, kind):
            return
        attributes = attributes_of(record["extra"])
        attributes[semconv.LOGGER] = name
        attributes[semconv.CODE_FILE] = record["file"].path
        attributes[semconv.CODE_LINE] = record["line"]
        attributes[semconv.CODE_FUNCTION] = record["function"]
        attributes[semconv.THREAD_NAME] = record["thread"].name
        if kind:
            attributes.update(exception_attributes(exception.type, exception.value, exception.traceback))
        self._deliver(context, time_ns, level.no, level.name, body.rstrip("\n"), attributes)


def _no_text(record: dict[str, Any]) -> str:
    return ""
