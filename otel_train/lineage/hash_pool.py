"""One background thread that hashes what would hold up the training thread."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from otel_train import clock

Result = TypeVar("Result")
MAX_PENDING = 10_000


class HashHandle(Generic[Result]):
    """The result to come of one submitted call."""

    __slots__ = ("_finished", "error", "value")

    def __init__(self) -> None:
        self._finished = threading.Event()
        self.value: Result | None = None
        self.error: BaseException | None = None

    @property
    def done(self) -> bool:
        """Whether there is a result, an error, or the pool was closed before."""
        return self._finished.is_set()

    def result(self, timeout_s: float | None = None) -> Result:
        """Wait for the result; raises the call's own error, or TimeoutError."""
        if not self._finished.wait(timeout_s):
            raise TimeoutError(f"no result after {timeout_s} s")
        if self.error is not None:
            raise self.error
        return self.value  # type: ignore[return-value]

    def _settle(self, value: Result | None, error: BaseException | None) -> None:
        self.value = value
        self.error = error
        self._finished.set()


class PoolClosedError(RuntimeError):
    """The pool was closed before the call ran."""


_Task = tuple[Callable[..., Any], tuple[Any, ...], HashHandle[Any], Callable[[Any, BaseException | None], None] | None]


class HashPool:
    """Runs calls one after the other on a daemon thread that starts with the first of them.

    A forked child finds its pool empty: what was pending belongs to the parent. Nothing here raises but `result`.
    """

    def __init__(self, name: str = "otel-train-hash", mono_ns: Callable[[], int] = clock.mono_ns) -> None:
        self._name = name
        self._mono_ns = mono_ns
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._tasks: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
        self._idle = threading.Condition(self._lock)
        self._pending = 0
        self._thread: threading.Thread | None = None
        self._closed = False

    @property
    def pending(self) -> int:
        """How many calls have not ended."""
        return self._pending if self._pid == os.getpid() else 0

    def submit(
        self,
        call: Callable[..., Result],
        *args: Any,
        then: Callable[[Result | None, BaseException | None], None] | None = None,
    ) -> HashHandle[Result]:
        """Queue ``call(*args)``; `then(result, error)` runs on the pool's thread. Returns at once."""
        if self._pid != os.getpid():
            self._reset()
        handle: HashHandle[Result] = HashHandle()
        with self._lock:
            refused = self._closed or self._pending >= MAX_PENDING
            if not refused:
                self._pending += 1
                if self._thread is None:
                    self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
                    self._thread.start()
                self._tasks.put((call, args, handle, then))
        if refused:
            handle._settle(None, PoolClosedError("the hashing thread takes no more work"))
        return handle

    def wait(self, timeout_s: float) -> bool:
        """Wait until nothing is pending; False where time ran out first."""
        if self._pid != os.getpid():
            return True
        deadline_ns = self._mono_ns() + int(timeout_s * clock.NS_PER_S)
        with self._idle:
            while self._pending:
                left_s = (deadline_ns - self._mono_ns()) / clock.NS_PER_S
                if left_s <= 0 or not self._idle.wait(left_s):
                    return self._pending == 0
        return True

    def close(self, timeout_s: float = 0.0) -> int:
        """Take no more work, wait at most `timeout_s` for what is pending, and return how many calls did not end."""
        if self._pid != os.getpid():
            return 0
        with self._lock:
            self._closed = True
        self.wait(timeout_s)
        left = 0
        while True:
            try:
                task = self._tasks.get_nowait()
            except queue.Empty:
                break
            if task is not None:
                left += 1
                task[2]._settle(None, PoolClosedError("the run ended before this was hashed"))
        with self._lock:
            self._pending -= left
            running = self._pending
        self._tasks.put(None)
        return left + running

    def _work(self) -> None:
        tasks = self._tasks
        while (task := tasks.get()) is not None:
            call, args, handle, then = task
            value: Any = None
            error: BaseException | None = None
            try:
                value = call(*args)
            except BaseException as fault:  # noqa: BLE001 - handed to whoever asks for the result
                error = fault
            handle._settle(value, error)
            if then is not None:
                try:
                    then(value, error)
                except Exception:  # noqa: BLE001 - the thread must go on; the caller guards what it passes in
                    pass
            del task, call, args, handle, then, value, error
            with self._idle:
                self._pending -= 1
                self._idle.notify_all()
