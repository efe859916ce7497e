"""Runs what may hang with the disk on a thread of its own, so that waiting for it can end."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from otel_train.clock import NS_PER_S, mono_ns

_log = logging.getLogger("otel_train")


def within(timeout_s: float, work: Callable[[], object], name: str = "otel-train-end") -> bool:
    """Run `work` and wait for it; False where it has not ended in time, or where it raised.

    `work` then goes on by itself. At the end of the interpreter no thread can be started any more (since Python 3.12):
    there it runs in place.
    """
    results: list[bool] = []
    # Not `join`: where Ctrl-C interrupts it, Python 3.11 takes the thread for ended.
    ended = threading.Event()

    def act() -> None:
        try:
            results.append(bool(work()))
        except Exception:  # noqa: BLE001 - nobody could catch it on this thread
            _log.exception("%s failed", name)
        finally:
            ended.set()

    try:
        threading.Thread(target=act, name=name, daemon=True).start()
    except RuntimeError:
        act()
    until_ns = mono_ns() + int(timeout_s * NS_PER_S)
    try:
        ended.wait(timeout_s)
    except BaseException:
        # Ctrl-C while a run ends: what is being written is still worth the rest of its time.
        ended.wait(max(0.0, (until_ns - mono_ns()) / NS_PER_S))
        raise
    return results == [True]
