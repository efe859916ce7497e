"""Notices how the process ends: an exception, `sys.exit`, Ctrl-C, SIGTERM, a fork; and puts everything back after."""

from __future__ import annotations

import atexit
import builtins
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Final

from otel_train.clock import NS_PER_S, mono_ns
from otel_train.run import current
from otel_train.run.bounded import within
from otel_train.run.hooks import Hook
from otel_train.run.verdict import exit_code_of

if TYPE_CHECKING:
    from otel_train.run.run import Run

# A user's handler of SIGTERM may take its time to end the training in good order: to save a model, say.
TERMINATION_NS: Final = 120 * NS_PER_S


class ProcessEnd:
    """The hooks of this process; installed while a run is open. One object a process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._installed = False
        self._hooks = (
            Hook(sys, "excepthook", self._on_exception),
            Hook(threading, "excepthook", self._on_thread_exception),
            Hook(sys, "exit", self._on_exit),
            Hook(builtins, "exit", self._on_exit),
            Hook(builtins, "quit", self._on_exit),
        )
        self._sigterm: Any = None
        # One object: a bound method is a new one each time, and then is not found to be ours.
        self._own_sigterm: Any = self._on_sigterm
        # What was seen before the interpreter began to end, and where each run was then.
        self._fault: BaseException | None = None
        self._exit_code: int | None = None
        # Whether that exit is how somebody answers to Ctrl-C.
        self._interrupted = False
        self._places: dict[int, object] = {}
        self._signal_ns = 0
        # Runs that are being closed, and whether a default SIGTERM came meanwhile.
        self._closing = 0
        self._must_die = False

    @contextmanager
    def finishing(self) -> Iterator[None]:
        """Around the closing of a run, which takes seconds at most: a default SIGTERM waits for it."""
        with self._lock:
            self._closing += 1
        try:
            yield
        finally:
            with self._lock:
                self._closing -= 1
                dies = self._must_die and not self._closing
            self.uninstall()
            if dies:
                # By the handler that is in place now: ours where runs are still open, else the default one.
                os.kill(os.getpid(), signal.SIGTERM)

    @property
    def terminated(self) -> bool:
        """Whether SIGTERM came shortly before."""
        return bool(self._signal_ns) and mono_ns() - self._signal_ns < TERMINATION_NS

    def install(self) -> None:
        """Put the hooks in place; those of the user are called by ours."""
        with self._lock:
            self._install_signal()
            if self._installed:
                return
            self._installed = True
            self._fault, self._exit_code, self._signal_ns, self._must_die = None, None, 0, False
            for hook in self._hooks:
                hook.install()
            atexit.register(self._at_exit)

    def uninstall(self) -> None:
        """Take the hooks away, unless a run is open; where somebody has put his own over them, ours do nothing."""
        with self._lock:
            if not self._installed or self._closing or current.open_runs():
                return
            self._installed = False
            for hook in self._hooks:
                hook.uninstall()
            # Another thread than the main one may not: the handler stays, and hands on what comes.
            if _is_main_thread() and signal.getsignal(signal.SIGTERM) is self._own_sigterm:
                signal.signal(signal.SIGTERM, self._sigterm)
            atexit.unregister(self._at_exit)
            self._fault = None

    def _install_signal(self) -> None:
        if not _is_main_thread():
            return
        former = signal.getsignal(signal.SIGTERM)
        # None: a handler that C code set, which cannot be called from here; ignored: somebody's decision.
        if former in (None, signal.SIG_IGN) or former is self._own_sigterm:
            return
        self._sigterm = former
        signal.signal(signal.SIGTERM, self._own_sigterm)

    def _on_exception(self, kind: type[BaseException], fault: BaseException, traceback: TracebackType | None) -> None:
        self._fault, self._places = fault, _places()

    def _on_thread_exception(self, what: Any) -> None:
        run = current.made_here()
        if run is not None and not isinstance(what.exc_value, SystemExit):
            run.finish(exception=what.exc_value)

    def _on_exit(self, status: Any = None) -> None:
        # `raise SystemExit` passes by this; inside of `with init()` it is seen all the same.
        if _is_main_thread():
            self._exit_code, self._places = exit_code_of(status), _places()
            self._interrupted = isinstance(sys.exc_info()[1], KeyboardInterrupt) and self._exit_code != 0

    def _on_sigterm(self, number: int, frame: FrameType | None) -> None:
        self._signal_ns = mono_ns()
        runs = current.open_runs()
        if callable(self._sigterm):
            # The user's own handler decides; what was recorded up to here is on disk, however it goes on.
            within(2.0, lambda: [run.flush(1.0) for run in runs])
            self._sigterm(number, frame)
            return
        if self._closing and not runs:
            self._must_die = True
            return
        # Nothing else of the process runs after a default SIGTERM. In a thread of its own: this handler may have
        # interrupted a call that holds one of our locks, and a join has a deadline where a lock has none.
        within(6.0, lambda: _finish_killed(runs))
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)

    def _at_exit(self) -> None:
        fault, exit_code, places = self._fault, self._exit_code, self._places
        for run in current.open_runs():
            # Where a run went on meanwhile, somebody caught `sys.exit`, or it was a line of an interactive session.
            if places.get(id(run)) != run.place:
                run.finish()
            elif fault is not None and not isinstance(fault, KeyboardInterrupt):
                run.finish(exception=fault, exit_code=1)
            elif self._interrupted and fault is None:
                run.finish("interrupted", reason="KeyboardInterrupt", exit_code=exit_code)
            else:
                run.finish(exception=fault, exit_code=exit_code)
        if isinstance(fault, KeyboardInterrupt):
            _note_interrupt_again()

    def forget(self) -> None:
        """In a forked child: the hooks stay and find no open run. The lock may have been held by another thread."""
        self._lock = threading.Lock()
        self._fault, self._exit_code, self._signal_ns = None, None, 0
        self._closing, self._must_die = 0, False


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _finish_killed(runs: list[Run]) -> None:
    for run in runs:
        run.finish(status="killed", reason="SIGTERM")


def _places() -> dict[int, object]:
    return {id(run): run.place for run in current.open_runs()}


def _note_interrupt_again() -> None:
    """Have the interpreter end the process by SIGINT, as it would have without us.

    It notes an interrupt that nobody caught, and forgets it with the next text that is executed: each dataclass does
    that while its module is imported, here or on a thread of ours. Then a shell sees code 1 and goes on with its loop.
    """
    try:
        exec("raise KeyboardInterrupt")
    except KeyboardInterrupt:
        pass


PROCESS_END = ProcessEnd()


def at_end_of_worker() -> None:
    """In a process of `multiprocessing`, which ends by `os._exit` after its own list of finalizers: join that list."""
    util = sys.modules.get("multiprocessing.util")
    process = sys.modules.get("multiprocessing.process")
    if util is None or process is None or process.parent_process() is None:
        return
    util.Finalize(None, PROCESS_END._at_exit, exitpriority=100)


def _after_fork_in_child() -> None:
    from otel_train.run import log_sources

    for run in current.forget_all():
        run.abandon()
    log_sources.forget()
    PROCESS_END.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
