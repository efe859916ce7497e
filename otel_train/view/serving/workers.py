"""Runs what reads or computes in a few threads, so that the event loop answers others meanwhile."""

from __future__ import annotations

import asyncio
import concurrent.futures
import queue
import threading
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

THREADS = 3

T = TypeVar("T")
P = ParamSpec("P")


class Stopped(Exception):  # noqa: N818 - says what the server is
    """The server is about to end, and begins nothing any more."""


class Workers:
    """Threads that end with the process: the interpreter does not wait for a read that nobody wants any more."""

    def __init__(self, threads: int = THREADS) -> None:
        self._queue: queue.SimpleQueue[tuple[concurrent.futures.Future[Any], Callable[[], Any]] | None]
        self._queue = queue.SimpleQueue()
        self._stopped = threading.Event()
        self._waiting: set[asyncio.Future[Any]] = set()
        self._threads = [
            threading.Thread(target=self._work, name=f"page-worker-{number}", daemon=True) for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return what `work` returns, called in one of the threads. Stopped once `stop` was called."""
        if self._stopped.is_set():
            raise Stopped("the server is ending")
        future: concurrent.futures.Future[T] = concurrent.futures.Future()
        self._queue.put((future, lambda: work(*args, **kwargs)))
        waiting = asyncio.wrap_future(future)
        self._waiting.add(waiting)
        waiting.add_done_callback(self._waiting.discard)
        try:
            return await waiting
        except asyncio.CancelledError:
            if self._stopped.is_set() and waiting.cancelled():
                raise Stopped("the server is ending") from None
            raise

    def stop(self) -> None:
        """Let nobody wait any longer, and the threads end after what they are at."""
        if self._stopped.is_set():
            return
        self._stopped.set()
        for waiting in list(self._waiting):
            waiting.cancel()
        for _ in self._threads:
            self._queue.put(None)

    def _work(self) -> None:
        while (item := self._queue.get()) is not None:
            future, work = item
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(work())
            except BaseException as fault:  # noqa: BLE001 - raised again where it is waited for
                future.set_exception(fault)
