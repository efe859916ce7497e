"""Records of structlog: seen by a processor of our own that stands before the renderer of every chain.

Chains are configured globally, kept by cached loggers, and given one by one to `wrap_logger`, as lists and tuples. So
the processor is not put into them: while installed, the attribute in which a bound logger finds its chain is a
property that hands out the chain with ours before its last member. Everything of the user's has run by then (context
variables, redaction, filters that drop an event), and no frame of ours stays on the stack, where structlog looks for
the caller.
"""

from __future__ import annotations

import logging
import sys
import threading
from types import FrameType
from typing import Any

from otel_train import semconv
from otel_train.record.entries import AttributeValue
from otel_train.sources.emission import EMISSION, RECORDING, PendingEvent, is_own_diagnostic
from otel_train.sources.log_context import LogContext
from otel_train.sources.log_entry import text_of, type_name
from otel_train.sources.log_source import LogSource
from otel_train.sources.structlog_event import active_exception, body_of, event_attributes

_CHAIN = "_processors"
_LEVELS_BY_METHOD = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "msg": logging.INFO,
    "warning": logging.WARNING,
    "warn": logging.WARNING,
    "error": logging.ERROR,
    "err": logging.ERROR,
    "exception": logging.ERROR,
    "failure": logging.ERROR,
    "critical": logging.CRITICAL,
    "fatal": logging.CRITICAL,
}
_NOT_THE_CALLER = ("structlog", "otel_train.sources")


class _Chain(tuple[Any, ...]):
    """A chain with our processor in it, which remembers the user's."""

    users: Any


class StructlogSource(LogSource):
    """Records what structlog emits, also by loggers made or cached before; its configuration stays untouched.

    Where events go on to loggers of `logging`, that decides by its levels and filters whether they are recorded.
    structlog is never imported by us.
    """

    _active = False
    _logger_class: Any = None
    _hook: property | None = None

    def install(self) -> None:
        """Begin to record, now or once the user has imported structlog."""
        self._active = RECORDING.structlog = True
        self.heartbeat()

    def heartbeat(self) -> None:
        """Put the property in place where it is missing."""
        if self._active and self._hook is None:
            self._guarded(self._attach)

    def uninstall(self) -> None:
        """Take the property away: loggers find their own chain again."""
        self._active = RECORDING.structlog = False
        logger_class = self._logger_class
        if logger_class is not None and logger_class.__dict__.get(_CHAIN) is self._hook:
            delattr(logger_class, _CHAIN)
        self._logger_class = self._hook = None

    def _attach(self) -> None:
        logger_class = getattr(sys.modules.get("structlog"), "BoundLoggerBase", None)
        if logger_class is None or _CHAIN in logger_class.__dict__:
            return
        processor = self._process

        def chain(logger: Any) -> Any:
            users = logger.__dict__[_CHAIN]
            members = tuple(users)
            extended = _Chain((*members[:-1], processor, *members[-1:]))
            extended.users = users
            return extended

        def set_chain(logger: Any, value: Any) -> None:
            # A new logger is bound from an old one's chain: what it gets must be the user's.
            logger.__dict__[_CHAIN] = value.users if isinstance(value, _Chain) else value

        self._hook = property(chain, set_chain)
        self._logger_class = logger_class
        setattr(logger_class, _CHAIN, self._hook)

    def _process(self, wrapped: Any, method: str, event: Any) -> Any:
        state = EMISSION
        if self._active and not state.busy:
            state.busy = True
            try:
                self._see(wrapped, method, event if isinstance(event, dict) else {"event": text_of(event)})
            except Exception as fault:  # noqa: BLE001 - telemetry never raises into training
                self._fault(fault)
            finally:
                state.busy = False
        return event

    def _see(self, wrapped: Any, method: str, event: dict[str, Any]) -> None:
        levelno = _level_of(method, event)
        if levelno < self._levelno:
            return
        is_standard = isinstance(wrapped, logging.Logger)
        name = str(event.get("logger") or getattr(wrapped, "name", None) or "")
        if is_own_diagnostic(name):
            return
        if is_standard and not wrapped.isEnabledFor(levelno):
            return
        context = self._context()
        if context is None:
            return
        exception = active_exception(event)
        time_ns = self._clock.wall_ns()
        if is_standard and RECORDING.logging:
            # The renderer takes the dictionary apart, hence the copy.
            EMISSION.pending = PendingEvent(wrapped.name, levelno, time_ns, dict(event), exception, _place(event))
            return
        template = text_of(event.get("event", ""))
        kind = type_name(exception[0]) if exception else ""
        if self._flood is not None and not self._flood.admit(context, name, levelno, template, time_ns, kind):
            return
        self._record(context, time_ns, levelno, name, event, exception)

    def _record(
        self,
        context: LogContext,
        time_ns: int,
        levelno: int,
        name: str,
        event: dict[str, Any],
        exception: tuple[Any, Any, Any] | None,
    ) -> None:
        attributes = event_attributes(event, exception)
        if name:
            attributes[semconv.LOGGER] = name
        attributes[semconv.THREAD_NAME] = text_of(event.get("thread_name") or threading.current_thread().name)
        attributes.update(_place(event))
        level_name = logging.getLevelName(levelno)
        self._deliver(context, time_ns, levelno, level_name, body_of(event), attributes)


def _level_of(method: str, event: dict[str, Any]) -> int:
    levelno = _LEVELS_BY_METHOD.get(method)
    if levelno is None:
        levelno = _LEVELS_BY_METHOD.get(str(event.get("level", "")).lower(), logging.INFO)
    return levelno


def _place(event: dict[str, Any]) -> dict[str, AttributeValue]:
    """Return the caller's place in the code, as structlog says it or as the stack shows it."""
    if "pathname" in event and "lineno" in event:
        place = {semconv.CODE_FILE: text_of(event["pathname"]), semconv.CODE_LINE: event["lineno"]}
        if "func_name" in event:
            place[semconv.CODE_FUNCTION] = text_of(event["func_name"])
        return place
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if not module.startswith(_NOT_THE_CALLER):
            # The asynchronous methods run on a pool's thread, where no frame of the user is to be found.
            if module.startswith("concurrent."):
                return {}
            return {
                semconv.CODE_FILE: frame.f_code.co_filename,
                semconv.CODE_LINE: frame.f_lineno,
                semconv.CODE_FUNCTION: frame.f_code.co_name,
            }
        frame = frame.f_back
    return {}
