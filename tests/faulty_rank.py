"""Runs a training script with a fault planted in one rank: `python faulty_rank.py FAULT script.py arguments…`.

FAULT is `rank:what[:number[:step]]`: `sleep` (seconds, after each optimizer step), `loading` (seconds, for each batch),
`work` (matrix products after each step), `kill`, `fail`, `hang` and `lock` (hang with the interpreter's lock), those
at an optimizer step of the first attempt.
"""

from __future__ import annotations

import ctypes
import os
import runpy
import signal
import sys
import time
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook


def plant(what: str, number: float, at_step: int) -> None:
    """Let the fault show in each, or that, optimizer step of this process."""
    done = 0

    def after_step(optimizer: Any, arguments: Any, keywords: Any) -> None:
        nonlocal done
        done += 1
        if what == "sleep":
            time.sleep(number)  # the planted delay
        elif what == "work":
            matrix = torch.ones(200, 200)
            for _ in range(int(number)):
                matrix = matrix @ matrix * 1e-3
        if done != at_step or os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0":
            return
        if what == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif what == "fail":
            raise ValueError("planted")
        elif what == "hang":
            hang_on_purpose(number)
        elif what == "lock":
            hang_with_the_lock(number)

    register_optimizer_step_post_hook(after_step)
    if what == "loading":
        fetch = torch.utils.data.TensorDataset.__getitem__

        def fetch_slowly(self: Any, index: Any) -> Any:
            time.sleep(number)  # the planted delay
            return fetch(self, index)

        # mypy: a method cannot be assigned; that is the planted fault.
        torch.utils.data.TensorDataset.__getitem__ = fetch_slowly  # type: ignore[method-assign]


def hang_on_purpose(seconds: float) -> None:
    time.sleep(seconds)  # the planted hang


def hang_with_the_lock(seconds: float) -> None:
    """Wait for a mutex that nobody gives back, in C, where no signal ends the wait, and with the interpreter's lock."""
    library = ctypes.PyDLL(None)  # unlike CDLL it keeps that lock during the call
    mutex = ctypes.create_string_buffer(64)
    library.pthread_mutex_lock(mutex)
    until = (ctypes.c_long * 2)(int(time.time() + seconds), 0)
    library.pthread_mutex_timedlock(mutex, until)


def main() -> None:
    fault, script, *arguments = sys.argv[1:]
    rank, what, number, step = (*fault.split(":"), "0", "0")[:4]
    if os.environ.get("RANK", "0") == rank:
        plant(what, float(number), int(step))
    sys.argv = [script, *arguments]
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main()
