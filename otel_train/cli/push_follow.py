"""`otel-train push --follow`: the sender as a process of its own, for a folder of runs or for one run."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from otel_train.cli.arguments import OK, PARTLY_READ, UsageError

if TYPE_CHECKING:
    from otel_train.config import Settings
    from otel_train.export.destination import Destinations


def _teller(arguments: argparse.Namespace) -> Callable[[str], None]:
    """Return what tells of the work: on standard error, or in a file where nobody sees that."""
    if arguments.log:
        from otel_train.runlog.sender_log import SenderLog

        log = SenderLog(Path(arguments.log))
        logging.getLogger("otel_train").addHandler(log.handler())
        return log.write

    def tell(text: str) -> None:
        if not arguments.quiet:
            print(text, file=sys.stderr, flush=True)

    return tell


def follow(arguments: argparse.Namespace, settings: Settings, destinations: Destinations) -> int:
    """Send until SIGTERM or Ctrl-C, or until the one run is sent. Exit code 0, or 3 where something is left."""
    from otel_train.cli.arguments import run_path
    from otel_train.export.follow import Follower

    if len(arguments.runs) != 1:
        raise UsageError("push --follow takes one folder: that of one run, or one that holds runs")
    if arguments.verify:
        raise UsageError("push --follow and --verify do not go together: verify a run that has ended")
    folder = Path(arguments.runs[0])
    if not folder.is_dir():
        folder = run_path(argparse.Namespace(dir=arguments.dir, run=arguments.runs[0]))
    stop = threading.Event()

    def end(number: int, frame: Any) -> None:
        stop.set()

    former = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGINT)}
    if arguments.rank is not None and hasattr(os, "nice"):
        # Beside a training, which goes first.
        os.nice(10)

    tell = _teller(arguments)
    follower = Follower(
        folder,
        destinations,
        max_log_age_s=settings["max_log_age"],
        attempt=arguments.attempt,
        rank=arguments.rank,
        tell=tell,
    )
    where = next(iter(destinations)).place
    tell(f"following {folder}, sending to {where}; end it with SIGTERM or Ctrl-C")
    try:
        complete = follower.run(stop)
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
    items = follower.sender.accounting
    tell(f"sent {items.items('sent'):,} items, {items.items('refused'):,} refused")
    return OK if complete and not items.items("refused") else PARTLY_READ
