"""`otel-train ui`: the local page over a folder of runs, live while they train."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from pathlib import Path
from typing import Any

from otel_train.cli.arguments import OK, UNREADABLE, UsageError, add_root, root_of
from otel_train.errors import installing
from otel_train.view.text import plain

MISSING = "the local page needs {name}, which is not installed: " + installing("view")


def add(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "ui",
        help="serve the local page: watch, search and compare runs",
        description="Serve a page over a folder of runs, on this machine alone unless --host says otherwise. It "
        "follows runs while they train, needs no network, and never changes a run. Ctrl-C ends it.",
        epilog="examples:\n  otel-train ui                    the runs of ./runs\n"
        "  otel-train ui latest --open      the page of the newest run, in the browser\n"
        "  otel-train ui --host 0.0.0.0     for other machines, too: the printed address holds a token",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "where",
        metavar="FOLDER|RUN",
        nargs="?",
        help="a folder of runs, or a run, whose page is opened (default: the folder of --dir)",
    )
    add_root(parser)
    parser.add_argument("--port", metavar="N", type=_port, help="port (default: 6160, else the next free one; 0: any)")
    parser.add_argument("--host", metavar="H", default="127.0.0.1", help="address to listen on (default: 127.0.0.1)")
    parser.add_argument("--open", action="store_true", help="open it in the browser")
    parser.add_argument(
        "--token",
        metavar="TOKEN",
        nargs="?",
        const="",
        help="ask for this token, without a value for a random one; other hosts than this are always asked for one",
    )
    parser.add_argument(
        "--allow-host",
        metavar="NAME",
        action="append",
        default=[],
        help="another name by which the page is called, as by a proxy; may be repeated",
    )
    parser.add_argument(
        "--until-idle", metavar="SECONDS", type=_seconds, help="end this long after the last page was closed"
    )
    parser.add_argument("--verbose", action="store_true", help="write a line for each request to standard error")
    parser.set_defaults(execute=execute)


def _port(value: str) -> int:
    number = int(value)
    if not 0 <= number <= 65_535:
        raise argparse.ArgumentTypeError("use a number from 0 to 65535")
    return number


def _seconds(value: str) -> float:
    seconds = float(value)
    if not 0 < seconds < 1e9:
        raise argparse.ArgumentTypeError("use a number of seconds above 0")
    return seconds


def execute(arguments: argparse.Namespace) -> int:
    """Serve until it is ended."""
    from otel_train.view.plotly_script import MissingPlotlyError

    root, run_id = _meant(arguments)
    try:
        from otel_train.view.serving.server import LocalServer, Options

        options = Options(
            host=arguments.host,
            port=arguments.port,
            token=arguments.token,
            allowed_hosts=tuple(arguments.allow_host),
            until_idle_s=arguments.until_idle,
            verbose=arguments.verbose,
            run_id=run_id,
        )
        server = LocalServer(root, options)
    except ImportError as fault:
        if (fault.name or "").startswith("otel_train"):
            raise
        print(f"otel-train: {MISSING.format(name=fault.name or 'a package')}", file=sys.stderr)
        return UNREADABLE
    except MissingPlotlyError as fault:
        print(f"otel-train: {fault}", file=sys.stderr)
        return UNREADABLE
    if server.listener.notice:
        print(f"otel-train: {server.listener.notice}", file=sys.stderr)
    if not arguments.verbose:
        # Pages that were closed in the middle of an answer are nobody's business.
        logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    missing = "" if root.is_dir() else " (not there yet)"
    print(f"{plain(str(root))}{missing}: {server.address()}  (Ctrl-C ends it)", flush=True)
    server.serve(lambda: _open(server.address(here=True)) if arguments.open else None)
    return OK


def _meant(arguments: argparse.Namespace) -> tuple[Path, str]:
    """Return the root, and the run whose page is opened: "" for the table of runs."""
    from otel_train.errors import RunNotFoundError
    from otel_train.runlog.catalogue import find_run, is_run, run_paths
    from otel_train.runlog.folder import RUN_FILE

    where = arguments.where
    if where is None:
        return _absolute(root_of(arguments)), ""
    path = _absolute(Path(where))
    if path.name == RUN_FILE and path.is_file():
        path = path.parent
    if path.is_dir():
        return (path.parent, path.name) if is_run(path) else (path, "")
    if path.exists():
        raise UsageError(f"{where!r} is a file: name a folder of runs, or a run")
    root = _absolute(root_of(arguments))
    is_word = Path(where).name == where
    if is_word and (where == "latest" or run_paths(root)):
        try:
            found = _absolute(find_run(root, where))
        except RunNotFoundError as fault:
            raise UsageError(f"there is no folder {where!r}, and {fault}") from None
        return found.parent, found.name
    # A folder that is not there yet: its runs appear when they do.
    return path, ""


def _absolute(path: Path) -> Path:
    return Path(os.path.abspath(path))


def _open(address: str) -> None:
    import webbrowser

    # Without a desktop there may be a browser for the terminal, which would take it over.
    headless = sys.platform.startswith("linux") and not any(
        os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
    )
    if headless or not webbrowser.open(address):
        print("otel-train: no browser could be opened here; open the address by hand", file=sys.stderr)
