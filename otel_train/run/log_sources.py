"""Installs the log sources of the process once, while a run is open; each record goes to the run of its context."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from otel_train.run.current import current_run, open_runs
from otel_train.sources.flood import FloodGate
from otel_train.sources.log_context import LogContext
from otel_train.sources.logging_source import LoggingSource
from otel_train.sources.loguru_source import LoguruSource
from otel_train.sources.output import OutputSource
from otel_train.sources.structlog_source import StructlogSource

if TYPE_CHECKING:
    from otel_train.run.run import Run

_lock = threading.Lock()
_installed: LogSources | None = None
_inherited = False


def context() -> LogContext | None:
    """Return where a record emitted here and now belongs."""
    run = current_run()
    return None if run is None else run_context(run)


def run_context(run: Run) -> LogContext:
    """Return the place of a record of this run: its step, epoch, and innermost open span, else the run's."""
    sink = run.log_sink
    attributes = run.position()
    span = run.spans.innermost()
    return LogContext(sink, attributes) if span is None else LogContext(sink, attributes, span.trace_id, span.span_id)


class LogSources:
    """logging, loguru, structlog and, when asked for, what the script prints.

    They serve all runs of the process: level and flood limit are those of the run that installed them. The sink of the
    run that a record belongs to takes out secrets.
    """

    def __init__(self, *, level: str, flood_per_s: int, logs: bool, output: bool) -> None:
        self.flood = FloodGate(per_second=flood_per_s)
        shared: dict[str, Any] = {"flood": self.flood}
        self.output: OutputSource | None = OutputSource(context, **shared) if output else None
        self._sources: list[Any] = []
        if logs:
            self._sources += [
                LoggingSource(context, level=level, **shared),
                LoguruSource(context, level=level, **shared),
                StructlogSource(context, level=level, **shared),
            ]
        if self.output is not None:
            self._sources.append(self.output)

    def install(self) -> None:
        """Install all."""
        for source in self._sources:
            source.install()

    def uninstall(self) -> None:
        """Take all away, newest first."""
        for source in reversed(self._sources):
            source.uninstall()

    def heartbeat(self) -> None:
        """Put back what the user's own set-up took away."""
        for source in self._sources:
            source.heartbeat()

    def flush(self, sink: Any) -> None:
        """Hand over what waits for one run: half a line, a bar's last state, counts of a burst."""
        if self.output is not None:
            self.output.flush(sink)
        self.flood.flush(sink)


def ensure_installed(sources: LogSources) -> LogSources:
    """Install these sources unless others are installed already; return those that are."""
    global _installed, _inherited
    with _lock:
        if _inherited:
            # Of the process that this one was forked from: their locks may be held by threads that are not here.
            if _installed is not None:
                _installed.uninstall()
            _installed, _inherited = None, False
        if _installed is None:
            sources.install()
            _installed = sources
        return _installed


def uninstall() -> None:
    """Take the process's sources away, unless a run is open."""
    global _installed
    with _lock:
        if _installed is not None and not open_runs():
            _installed.uninstall()
            _installed = None


def forget() -> None:
    """In a forked child: leave everything in place (it asks for the current run and finds none), with a new lock."""
    global _lock, _inherited
    _lock = threading.Lock()
    _inherited = _installed is not None
