"""`otel-train report`: one HTML file with everything about a run."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from otel_train.cli.arguments import UNREADABLE, UsageError, add_run, progress, read, run_path, tell_damage
from otel_train.view import text


def add(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "report",
        help="write a run's page: one HTML file that needs no network",
        description="Write one self-contained HTML file about a run: status, curves, system, timeline, logs, "
        "environment. A run that is going on is read as it is now and not disturbed.",
        epilog="example:\n  otel-train report latest -o run.html --open",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_run(parser)
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="where to write it (default: artifacts/report.html of the run)"
    )
    parser.add_argument("--open", action="store_true", help="open it in the browser")
    parser.set_defaults(execute=execute)


def execute(arguments: argparse.Namespace) -> int:
    """Write the page and print its path."""
    from otel_train.view.plotly_script import MissingPlotlyError, plotly_path
    from otel_train.view.report import write

    try:
        plotly_path()
    except MissingPlotlyError as fault:
        print(f"otel-train: {fault}", file=sys.stderr)
        return UNREADABLE
    if arguments.output and Path(arguments.output).is_dir():
        raise UsageError(f"--output {arguments.output!r} is a folder: name a file, such as report.html in it")
    run = read(arguments, run_path(arguments))
    try:
        with progress("drawing"):
            path = write(run, Path(arguments.output) if arguments.output else None)
    except OSError as fault:
        if arguments.output:
            raise
        why = fault.strerror or fault
        raise UsageError(f"{run.path} cannot take the report: {why}; name another place with -o FILE") from None
    code = tell_damage(run)
    print(f"{path} ({text.size(path.stat().st_size)})")
    if arguments.open:
        import webbrowser

        if not webbrowser.open(path.resolve().as_uri()):
            print("otel-train: no browser could be opened; open the file by hand", file=sys.stderr)
    return code
