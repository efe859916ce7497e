"""`otel-train export`: a run's points, log records or spans as a table for other programs."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from otel_train.cli.arguments import UNREADABLE, UsageError, add_run, progress, run_path, tell_damage
from otel_train.view import text

FORMATS = ("parquet", "csv", "jsonl")


def add(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "export",
        help="write a run's points, log records or spans as Parquet, CSV or JSON lines",
        description="Write one table of a run: every point of every metric with its step, epoch and time (those of "
        "all attempts and ranks, also values that are not finite), or the log records, or the spans.",
        epilog="examples:\n  otel-train export latest --format parquet\n"
        "  otel-train export latest --what logs -o logs.csv",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_run(parser)
    parser.add_argument(
        "--format", choices=FORMATS, help="what to write (default: by the ending of -o's FILE; without -o csv)"
    )
    parser.add_argument(
        "--what", choices=("points", "logs", "spans"), default="points", help="which table (default: points)"
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="where to write it (default: in artifacts/ of the run, such as points.csv)",
    )
    parser.set_defaults(execute=execute)


def format_of(output: str | None) -> str:
    """Return what a file's name asks for, CSV where there is none; UsageError where its ending says nothing."""
    if not output or Path(output).is_dir():
        return "csv"
    ending = Path(output).suffix.lower().removeprefix(".")
    if ending not in FORMATS:
        endings = ", ".join(f".{form}" for form in FORMATS)
        raise UsageError(f"--output {output!r} tells no format: say --format, or end the name in one of {endings}")
    return ending


def execute(arguments: argparse.Namespace) -> int:
    """Write the table and print its path."""
    from otel_train.view.exporting import export
    from otel_train.view.table_files import MissingPyarrowError

    form = arguments.format or format_of(arguments.output)
    if arguments.output and Path(arguments.output).is_dir():
        name = f"{arguments.what}.{form}"
        raise UsageError(f"--output {arguments.output!r} is a folder: name a file, such as {name} in it")
    target = Path(arguments.output) if arguments.output else None
    with progress("exporting") as step:
        try:
            made = export(run_path(arguments), arguments.what, form, target, step)
        except MissingPyarrowError as fault:
            print(f"otel-train: {fault}", file=sys.stderr)
            return UNREADABLE
    code = tell_damage(made)
    print(f"{made.path} ({made.rows:,} rows, {text.size(made.path.stat().st_size)})")
    return code
