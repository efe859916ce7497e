"""What the script prints: each whole line a record, each progress bar one record of its last state."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any

from otel_train import semconv
from otel_train.clock import SYSTEM, Clock
from otel_train.record.entries import AttributeValue, Sink
from otel_train.sources.emission import ANY_LIBRARY_AT_WORK, EMISSION, called_by
from otel_train.sources.flood import FloodGate
from otel_train.sources.log_context import LogContext
from otel_train.sources.log_source import LogSource
from otel_train.sources.screen import Screen, Shown

_INFO = 20
_STREAMS = ("stdout", "stderr")

_Stamp = tuple[int, LogContext]


class TeeStream:
    """Stands in for `sys.stdout` or `sys.stderr`: everything goes to the original as it is, and a copy is looked at.

    All else (`isatty`, `encoding`, `fileno`, `buffer`, …) is the original's. What is written to `buffer` or to the
    descriptor itself passes unseen.
    """

    def __init__(self, original: Any, see: Callable[[str], None]) -> None:
        self.__dict__["_otel_train_original"] = original
        self.__dict__["_otel_train_see"] = see

    def write(self, text: str) -> Any:
        """Write to the original; its result and its errors are the caller's."""
        written = self._otel_train_original.write(text)
        see = self._otel_train_see
        if see is not None:
            see(text)
        return written

    def writelines(self, lines: Iterable[str]) -> None:
        """Write one after the other."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_otel_train_original"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.__dict__["_otel_train_original"], name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self.__dict__["_otel_train_original"], name)

    def __dir__(self) -> list[str]:
        return sorted({*dir(type(self)), *dir(self.__dict__["_otel_train_original"])})

    def __repr__(self) -> str:
        return repr(self.__dict__["_otel_train_original"])

    def __iter__(self) -> Any:
        return iter(self.__dict__["_otel_train_original"])

    def __enter__(self) -> Any:
        self.__dict__["_otel_train_original"].__enter__()
        return self

    def __exit__(self, *details: Any) -> Any:
        return self.__dict__["_otel_train_original"].__exit__(*details)


def untee(stream: Any) -> Any:
    """Return the original of one of our streams, and any other stream as it is."""
    return stream.__dict__["_otel_train_original"] if isinstance(stream, TeeStream) else stream


class OutputSource(LogSource):
    """Records whole lines of `sys.stdout` and `sys.stderr`, at INFO, and the last state of progress bars.

    What a handler or sink of a log library prints is not recorded again: the record is there already, or its level
    or the user kept it out. Where several runs are open, each has its own lines and bars.
    """

    def __init__(
        self,
        context: Callable[[], LogContext | None],
        *,
        redact: Callable[[str], str] | None = None,
        is_secret_key: Callable[[str, object], bool] | None = None,
        flood: FloodGate | None = None,
        clock: Clock = SYSTEM,
        on_fault: Callable[[Exception], None] | None = None,
    ) -> None:
        super().__init__(
            context,
            redact=redact,
            is_secret_key=is_secret_key,
            flood=flood,
            clock=clock,
            on_fault=on_fault,
        )
        self._active = False
        self._tees: dict[str, TeeStream] = {}
        self._screens: dict[tuple[str, int], tuple[Sink, Screen[_Stamp]]] = {}
        # Re-entrant: a signal handler that prints may interrupt the thread that holds it.
        self._lock = threading.RLock()

    def install(self) -> None:
        """Put our streams in place of the script's; once more does nothing."""
        if self._active:
            return
        self._active = True
        for name in _STREAMS:
            stream = getattr(sys, name)
            if stream is None:
                continue
            # A stream of ours that somebody has put back after the end of an earlier run is used again.
            tee = TeeStream(untee(stream), self._viewer(name))
            self._tees[name] = tee
            setattr(sys, name, tee)

    def uninstall(self) -> None:
        """Put the script's own streams back, where ours are still in place; elsewhere ours only pass things on."""
        if not self._active:
            return
        self._active = False
        for name, tee in self._tees.items():
            # A handler made meanwhile may hold our stream for as long as the process lives.
            tee.__dict__["_otel_train_see"] = None
            if getattr(sys, name) is tee:
                setattr(sys, name, untee(tee))
        self._tees.clear()
        self.flush()

    def flush(self, sink: Sink | None = None) -> None:
        """Record unfinished lines and the last state of each bar: of one run, or of all."""
        self._guarded(lambda: self._flush(sink))

    def _flush(self, sink: Sink | None) -> None:
        left: list[tuple[str, list[Shown[_Stamp]]]] = []
        with self._lock:
            for key, (owner, screen) in list(self._screens.items()):
                if sink is None or owner is sink:
                    left.append((key[0], screen.flush()))
                    del self._screens[key]
        for name, finished in left:
            self._hand_over(name, finished)

    def _viewer(self, name: str) -> Callable[[str], None]:
        def see(text: str) -> None:
            state = EMISSION
            if state.busy or not self._active or not text:
                return
            state.busy = True
            try:
                context = self._context()
                if context is not None and not called_by(ANY_LIBRARY_AT_WORK, skip=2):
                    self._feed(name, text, context)
            except Exception as fault:  # noqa: BLE001 - telemetry never raises into training
                self._fault(fault)
            finally:
                state.busy = False

        return see

    def _feed(self, name: str, text: str, context: LogContext) -> None:
        key = (name, id(context.sink))
        with self._lock:
            owned = self._screens.get(key)
            if owned is None:
                owned = self._screens[key] = (context.sink, Screen())
            finished = owned[1].feed(text, (self._clock.wall_ns(), context))
        if finished:
            self._hand_over(name, finished)

    def _hand_over(self, name: str, finished: list[Shown[_Stamp]]) -> None:
        for shown in finished:
            time_ns, context = shown.stamp
            attributes: dict[str, AttributeValue] = {semconv.LOG_IOSTREAM: name}
            event_name = ""
            if shown.redraws:
                event_name = "progress.bar"
                attributes[semconv.PROGRESS_REDRAWS] = shown.redraws
            elif self._flood is not None and not self._flood.admit(context, name, _INFO, shown.text, time_ns):
                continue
            self._deliver(context, time_ns, _INFO, "INFO", shown.text, attributes, event_name)
