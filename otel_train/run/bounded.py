"""Runs what may hang with the disk on a thread of its own, so that waiting for it can end."""

from __future__ import annotations

import threading
from collections.abc import Callable


def within(timeout_s: float, work: Callable[[], object], name: str = "otel-train-end") -> bool:
    """Run `work` and wait for it; False where it has not ended in time, or where it raised.

    `work` then goes on by itself. At the end of the interpreter no thread can be started any more (since Python 3.12):
    there it runs in place.
    """
    ended: list[bool] = []

    def act() -> None:
        ended.append(bool(work()))

    try:
        thread = threading.Thread(target=act, name=name, daemon=True)
        thread.start()
    except RuntimeError:
        act()
    else:
        thread.join(timeout_s)
    return ended == [True]
