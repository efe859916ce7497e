"""Finds the current run from anywhere: the context's, else the only open one, else none."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from otel_train.run.run import Run

_bound: ContextVar[Run | None] = ContextVar("otel_train_run", default=None)
_open: dict[int, Run] = {}
_lock = threading.Lock()


def current_run() -> Run | None:
    """Return the run of this context (see `Run.use`), else the only open one, else None."""
    run = _bound.get()
    if run is not None and not run.finished:
        return run
    if len(_open) == 1:
        for run in list(_open.values()):
            return run
    return None


def made_here() -> Run | None:
    """Return the open run that this very thread made."""
    # Not by its number, which a later thread gets again.
    thread = threading.current_thread()
    return next((run for run in open_runs() if run.thread is thread), None)


def open_runs() -> list[Run]:
    """Return the runs of this process that have not ended, oldest first."""
    with _lock:
        return list(_open.values())


def register(run: Run) -> None:
    """Count a run among the open ones, and bind it to this context."""
    with _lock:
        _open[id(run)] = run
    _bound.set(run)


def unregister(run: Run) -> None:
    """Take a run out."""
    with _lock:
        _open.pop(id(run), None)
    if _bound.get() is run:
        _bound.set(None)


@contextmanager
def bound(run: Run) -> Iterator[Run]:
    """Make a run the current one of this context."""
    token = _bound.set(run)
    try:
        yield run
    finally:
        _bound.reset(token)


def forget_all() -> list[Run]:
    """In a forked child: no run is open here. The lock is new, since another thread may have held the old one."""
    global _lock
    _lock = threading.Lock()
    runs = list(_open.values())
    _open.clear()
    return runs
