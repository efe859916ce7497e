"""`otel-train follow`: how a run goes on, as one live picture on a terminal, or as plain lines anywhere else."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from otel_train.cli.arguments import ENDED_OTHERWISE, OK, PARTLY_READ, UNREADABLE, add_run, root_of, run_path
from otel_train.errors import RunNotFoundError, installing
from otel_train.view.text import plain

if TYPE_CHECKING:
    from otel_train.view.follow_picture import Picture
    from otel_train.view.following import Following

PICTURE_EVERY_S = 1.0
LINES_EVERY_S = 10.0
# Warnings, and the end, are told within this time also where lines are far apart.
POLL_S = 1.0
# A launcher that starts a failed training anew needs some seconds for that.
NEXT_ATTEMPT_S = 5.0


def add(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "follow",
        help="watch a run while it goes on",
        description="Watch a run while it goes on: progress and time left, the latest and best values, the pace, GPUs, "
        "warnings and ranks. On a terminal one picture that is kept up to date; anywhere else plain lines, one "
        "whenever something has changed, and warnings as they come. Ends with the run, or by Ctrl-C.",
        epilog="examples:\n  otel-train follow latest\n  otel-train follow latest --wait --interval 60 > log &\n\n"
        "exit codes:\n  0  the run finished; or Ctrl-C, or --once\n  2  there is no such run, or it was deleted\n"
        "  3  as 0, but part of the run is damaged and left out\n"
        "  5  the run failed, was interrupted or killed, or is lost",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_run(parser)
    parser.add_argument(
        "--interval",
        metavar="SECONDS",
        type=_seconds,
        help=f"time between two pictures (default {PICTURE_EVERY_S:g}), or between two lines ({LINES_EVERY_S:g})",
    )
    parser.add_argument("--once", action="store_true", help="show how it is now, and end")
    parser.add_argument("--wait", action="store_true", help="wait until there is such a run, and it goes on")
    parser.set_defaults(execute=execute)


def _seconds(value: str) -> float:
    try:
        seconds = float(value)
    except ValueError:
        seconds = 0.0
    if not 0.1 <= seconds <= 86_400:
        raise argparse.ArgumentTypeError("use a number of seconds from 0.1 to 86400")
    return seconds


def execute(arguments: argparse.Namespace) -> int:
    """Follow the run."""
    from otel_train.view.following import Following
    from otel_train.view.live import LiveRun

    try:
        path = _awaited(arguments) if arguments.wait else run_path(arguments)
        following = Following(LiveRun(path))
        picture = following.look()
        drawn = _can_draw()
        if arguments.once:
            _print(picture, drawn)
        elif drawn:
            picture = _drawn(following, picture, arguments.interval or PICTURE_EVERY_S)
        else:
            picture = _told(following, picture, arguments.interval or LINES_EVERY_S)
    except KeyboardInterrupt:
        # The usual end of watching.
        return OK
    if picture is None:
        print(f"otel-train: {plain(path)} was deleted", file=sys.stderr)
        return UNREADABLE
    if not arguments.once and picture.state not in ("running", "finished"):
        return ENDED_OTHERWISE
    return PARTLY_READ if picture.damaged else OK


# Which run ----------------------------------------------------------------------------------------------------------


def _awaited(arguments: argparse.Namespace) -> Path:
    """Return the run once it goes on; one that came while somebody waited may have ended already."""
    from otel_train.clock import sleep, wall_ns
    from otel_train.runlog.status import run_status

    before = _found(arguments)
    found, said = before, False
    while found is None or (found == before and not run_status(found, wall_ns()).is_running):
        if not said:
            print(f"waiting for {plain(arguments.run)} in {plain(root_of(arguments))}", file=sys.stderr, flush=True)
            said = True
        sleep(POLL_S / 2)
        found = _found(arguments)
    return found


def _found(arguments: argparse.Namespace) -> Path | None:
    try:
        return run_path(arguments)
    except RunNotFoundError:
        return None


def _looks(following: Following, picture: Picture | None, every_s: float) -> Iterator[Picture | None]:
    """Give the first picture, then one every so often up to the last one, which holds all that was written."""
    from otel_train.clock import NS_PER_S, mono_ns, sleep

    yield picture
    waits_until_ns = 0
    while picture is not None:
        now_ns = mono_ns()
        if picture.is_running:
            waits_until_ns = now_ns + int(NEXT_ATTEMPT_S * NS_PER_S)
        elif picture.state == "finished" or now_ns >= waits_until_ns:
            # Its last lines may have come between what was read and the look at its state.
            yield following.look()
            return
        sleep(max(0.01, every_s))
        picture = following.look()
        yield picture


# Showing -------------------------------------------------------------------------------------------------------------


def _can_draw() -> bool:
    """Tell whether standard output can be drawn upon: a terminal that is not dumb, and rich is installed."""
    if not sys.stdout.isatty() or os.environ.get("TERM") == "dumb":
        return False
    try:
        import rich  # noqa: F401 - asked whether it is there
    except ImportError:
        print(f"otel-train: the live picture needs rich: {installing('view')}", file=sys.stderr)
        return False
    return True


def _told(following: Following, first: Picture | None, every_s: float) -> Picture | None:
    """Print lines until the run ends; return the last picture, None where it was deleted."""
    from otel_train.view.follow_lines import Lines

    lines = Lines(every_s)
    picture = first
    for picture in _looks(following, first, min(every_s, POLL_S)):
        for line in lines.of(picture) if picture is not None else ():
            print(line, flush=True)
    return picture


def _drawn(following: Following, first: Picture | None, every_s: float) -> Picture | None:
    """Keep a picture on the terminal's second screen until the run ends or Ctrl-C; then leave the last one behind."""
    from rich.console import Console, Group
    from rich.live import Live

    from otel_train.view.follow_screen import Screen

    console = Console(highlight=False, emoji=False, markup=False)
    picture = shown = first
    try:
        with _terminated(), Live(console=console, screen=True, auto_refresh=False, redirect_stderr=False) as live:
            for picture in _looks(following, first, every_s):
                if picture is None:
                    break
                shown = picture
                # Asked each time: the terminal may have another size by now.
                width, height = console.size
                screen = Screen(width, height, ascii_only=not _has_blocks(console.encoding))
                live.update(Group(*screen.lines(picture)), refresh=True)
    finally:
        if shown is not None:
            _print(shown, drawn=True)
    return picture


def _print(picture: Picture | None, drawn: bool) -> None:
    """Print one picture, all of it."""
    if picture is None:
        return
    try:
        from rich.console import Console

        from otel_train.view.follow_screen import Screen
    except ImportError:
        from otel_train.view.follow_lines import Lines

        for line in Lines(0).of(picture):
            print(line)
        return
    console = Console(highlight=False, emoji=False, markup=False)
    width = console.width if drawn else 200
    for text in Screen(width, ascii_only=not _has_blocks(console.encoding)).lines(picture):
        # Without a terminal as plain text, with no space at the ends of lines.
        console.print(text, soft_wrap=True) if drawn else print(text.plain.rstrip())


def _has_blocks(encoding: str | None) -> bool:
    try:
        "▁█━─·°…".encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


@contextmanager
def _terminated() -> Iterator[None]:
    """End by an exception where SIGTERM comes, so that the terminal gets its first screen and its cursor back."""

    def end(number: int, frame: Any) -> None:
        sys.exit(128 + number)

    former = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, former)
