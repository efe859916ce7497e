"""Notices how the process ends: an exception, `sys.exit`, Ctrl-C, SIGTERM, a fork; and puts everything back after."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

from otel_train.run import current

if TYPE_CHECKING:
    from otel_train.run.run import Run


class ProcessEnd:
    """The hooks of this process; installed while a run is open. One object a process."""

    def __init__(self) -> None:
        self._installed = False
        self._excepthook: Any = None
        self._threading_hook: Any = None
        self._exit: Any = None
        self._sigterm: Any = None
        self._own_excepthook: Any = None
        self._own_exit: Any = None
        self._own_sigterm: Any = None
        # What was seen before the interpreter began to end.
        self.fault: BaseException | None = None
        self.exit_code: int | None = None
        self.exit_mark = -1
        self.signal_ns = 0

    def install(self) -> None:
        """Put the hooks in place; those of the user are called by ours."""
        if self._installed:
            return
        self._installed = True
        self.fault, self.exit_code, self.signal_ns = None, None, 0
        self._excepthook, self._exit = sys.excepthook, sys.exit
        self._own_excepthook, self._own_exit = self._on_exception, self._on_exit
        sys.excepthook = self._own_excepthook
        sys.exit = self._own_exit
        if threading.current_thread() is threading.main_thread() and hasattr(signal, "SIGTERM"):
            former = signal.getsignal(signal.SIGTERM)
            # None: a handler that C code set, which cannot be called from here; ignored: somebody's decision.
            if former is not None and former is not signal.SIG_IGN:
                self._sigterm, self._own_sigterm = former, self._on_sigterm
                signal.signal(signal.SIGTERM, self._own_sigterm)
        atexit.register(self._at_exit)

    def uninstall(self) -> None:
        """Take the hooks away, unless somebody has put his own over them."""
        if not self._installed:
            return
        self._installed = False
        if sys.excepthook is self._own_excepthook:
            sys.excepthook = self._excepthook
        if sys.exit is self._own_exit:
            sys.exit = self._exit
        if self._own_sigterm is not None and threading.current_thread() is threading.main_thread():
            if signal.getsignal(signal.SIGTERM) is self._own_sigterm:
                signal.signal(signal.SIGTERM, self._sigterm)
            self._own_sigterm = None
        atexit.unregister(self._at_exit)

    def _on_exception(self, kind: type[BaseException], fault: BaseException, traceback: TracebackType | None) -> None:
        self.fault = fault
        self._excepthook(kind, fault, traceback)

    def _on_exit(self, status: Any = None) -> None:
        # `raise SystemExit` passes by this; inside of `with init()` it is seen all the same.
        if threading.current_thread() is threading.main_thread():
            self.exit_code = exit_code_of(status)
            self.exit_mark = _progress()
        self._exit(status)

    def _on_sigterm(self, number: int, frame: FrameType | None) -> None:
        self.signal_ns = _mono_ns()
        if callable(self._sigterm):
            # The user's own handler decides; what was recorded up to here is on disk, however it goes on.
            _in_thread(lambda: [run.flush(1.0) for run in current.open_runs()], 2.0)
            self._sigterm(number, frame)
            return
        # Nothing else of the process runs after a default SIGTERM. In a thread of its own: this handler may have
        # interrupted a call that holds one of our locks, and a join has a deadline where a lock has none.
        runs = current.open_runs()
        _in_thread(lambda: _finish_killed(runs), 6.0)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)

    def _at_exit(self) -> None:
        for run in current.open_runs():
            if isinstance(self.fault, KeyboardInterrupt):
                run.finish(status="interrupted", reason="KeyboardInterrupt", exception=self.fault)
            elif self.fault is not None:
                run.finish(status="failed", exception=self.fault, exit_code=1)
            elif self.exit_code and self.exit_mark == _progress():
                run.finish(status="failed", exit_code=self.exit_code, reason=f"sys.exit({self.exit_code})")
            else:
                run.finish()

    def forget(self) -> None:
        """In a forked child: the hooks stay and find no open run."""
        self.fault, self.exit_code = None, None


def exit_code_of(status: Any) -> int:
    """Return the exit code that `sys.exit(status)` ends the process with."""
    if status is None:
        return 0
    return status if isinstance(status, int) else 1


def _finish_killed(runs: list[Run]) -> None:
    for run in runs:
        run.finish(status="killed", reason="SIGTERM")


def _progress() -> int:
    """Count what was logged: where it goes on after `sys.exit`, somebody caught that."""
    return sum(run.progress() for run in current.open_runs())


def _mono_ns() -> int:
    from otel_train.clock import mono_ns

    return mono_ns()


def _in_thread(work: Callable[[], Any], timeout_s: float) -> None:
    thread = threading.Thread(target=work, name="otel-train-end", daemon=True)
    thread.start()
    thread.join(timeout_s)


PROCESS_END = ProcessEnd()


def _after_fork_in_child() -> None:
    from otel_train.run import log_sources

    for run in current.forget_all():
        run.abandon()
    log_sources.forget()
    PROCESS_END.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
