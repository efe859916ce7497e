"""Has the kernel wake a dump of all stacks where no Python code of the process gets its turn any more.

A C extension that hangs with the interpreter's lock keeps every thread from running, ours too. So a timer of the
kernel (POSIX `timer_create`) is put off every few seconds by a thread that does nothing else. Where that thread stands
still, the timer sends the process SIGURG, whose handler, `faulthandler`'s, needs no interpreter: it writes the stacks
into a file that was opened before. SIGURG, since its default is to be ignored: where somebody takes the handler away,
nothing happens. `faulthandler.dump_traceback_later` would be the process's only one, and perhaps the user's.

Linux alone; elsewhere, and where SIGURG is in use, `start` says no.
"""

from __future__ import annotations

import ctypes
import faulthandler
import signal
import sys
import threading
from typing import Any, Final

from otel_train.clock import NS_PER_S

_MONOTONIC: Final = 1
_SEND_SIGNAL: Final = 0
_PUT_OFF_SHARE: Final = 0.25


class _SigEvent(ctypes.Structure):
    _fields_ = (
        ("value", ctypes.c_void_p),
        ("signal_number", ctypes.c_int),
        ("notify", ctypes.c_int),
        ("rest", ctypes.c_char * (64 - 2 * ctypes.sizeof(ctypes.c_int) - ctypes.sizeof(ctypes.c_void_p))),
    )


class _TimerSpec(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_long) for name in ("every_s", "every_ns", "in_s", "in_ns"))


class StuckWatch:
    """One timer of this process. `descriptor` is an open file, which must stay open until `stop`."""

    def __init__(self, descriptor: int, limit_s: float, *, proc: str = "/proc") -> None:
        self._descriptor = descriptor
        self._limit_s = limit_s
        self._proc = proc
        self._library: Any = None
        self._timer = ctypes.c_void_p()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> bool:
        """Begin to watch; False where that cannot be done without being in somebody's way."""
        if sys.platform != "linux" or _is_in_use(signal.SIGURG, self._proc):
            return False
        library = _library_with_timers()
        if library is None:
            return False
        faulthandler.register(signal.SIGURG, file=self._descriptor, all_threads=True, chain=False)
        event = _SigEvent(signal_number=signal.SIGURG, notify=_SEND_SIGNAL)
        if library.timer_create(_MONOTONIC, ctypes.byref(event), ctypes.byref(self._timer)) != 0:
            faulthandler.unregister(signal.SIGURG)
            return False
        self._library = library
        self._put_off(self._limit_s)
        self._thread = threading.Thread(target=self._run, name="otel-train-watchdog", daemon=True)
        self._thread.start()
        return True

    def stop(self, timeout_s: float = 1.0) -> None:
        """Take timer and handler away."""
        self._stopping.set()
        library, self._library = self._library, None
        if library is None:
            return
        if self._thread is not None:
            self._thread.join(timeout_s)
        library.timer_delete(self._timer)
        if signal.getsignal(signal.SIGURG) is signal.SIG_DFL:
            # By what Python knows: a handler that the user has set since then stays.
            faulthandler.unregister(signal.SIGURG)

    def abandon(self) -> None:
        """In a forked child, which has neither the thread nor the timer."""
        self._stopping = threading.Event()
        library, self._library = self._library, None
        self._thread = None
        if library is not None and signal.getsignal(signal.SIGURG) is signal.SIG_DFL:
            faulthandler.unregister(signal.SIGURG)

    def _run(self) -> None:
        while not self._stopping.wait(self._limit_s * _PUT_OFF_SHARE):
            self._put_off(self._limit_s)
        self._put_off(0.0)

    def _put_off(self, in_s: float) -> None:
        """Have the timer ring in so many seconds from now; 0 stops it."""
        library = self._library
        if library is None:
            return
        whole, rest = divmod(round(in_s * NS_PER_S), NS_PER_S)
        library.timer_settime(self._timer, 0, ctypes.byref(_TimerSpec(0, 0, whole, rest)), None)


def _is_in_use(number: signal.Signals, proc: str) -> bool:
    """Tell whether the process catches, ignores or blocks a signal; True as well where that cannot be told."""
    try:
        with open(f"{proc}/self/status", encoding="ascii", errors="replace") as file:
            rows = dict(line.split(":", 1) for line in file if ":" in line)
        masks = [int(rows[name].strip(), 16) for name in ("SigCgt", "SigIgn", "SigBlk")]
    except (OSError, KeyError, ValueError):
        return True
    return any(mask >> (number - 1) & 1 for mask in masks)


def _library_with_timers() -> Any:
    """Return the C library, or that of its timers where an older one has them apart; None where there are none."""
    for name in (None, "librt.so.1"):
        try:
            library = ctypes.CDLL(name)
            if library.timer_create and library.timer_settime and library.timer_delete:
                return library
        except (OSError, AttributeError):
            continue
    return None
