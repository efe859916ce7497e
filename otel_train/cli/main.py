"""The command `otel-train`: reads the arguments, hands over to one command, and turns faults into exit codes."""

from __future__ import annotations

import argparse
import functools
import importlib
import os
import shlex
import sys
from collections.abc import Callable, Sequence

from otel_train import __version__
from otel_train.cli.arguments import OK, UNREADABLE, UsageError
from otel_train.cli.completion import LIST_RUNS, list_runs
from otel_train.errors import OtelTrainError

# Each names a module of this room with `add` and `execute`; modules of rooms below are imported by `execute` only.
COMMANDS = (
    "ui",
    "runs",
    "show",
    "compare",
    "logs",
    "follow",
    "report",
    "export",
    "lineage",
    "traceparent",
    "push",
    "prune",
    "doctor",
    "completion",
)

EPILOG = """\
A run is named by its id, the start of its id, its name, its folder, or the word 'latest'.
Runs are looked for in --dir, else in $OTEL_TRAIN_DIR, else in ./runs.

examples:
  otel-train ui                            the local page: watch, search and compare runs
  otel-train runs                          list the runs, newest first
  otel-train show latest                   all about the newest run
  otel-train compare RUN RUN               results of runs, and what differs between them
  otel-train report latest --open          make its page and open it
  otel-train logs latest --level warning   its warnings and errors
  otel-train export latest --format csv    its points as a table for other programs
  otel-train follow latest                 watch it while it trains
  otel-train lineage model.pt              which data, code and parents made this model
  otel-train traceparent                   a new trace for what a shell script starts
  otel-train push latest                   send what is missing of it to a Collector
  otel-train doctor                        what does not work here, and the fix

exit codes:
  0  done
  2  nothing could be read, or the command was not understood
  3  part of what was read is damaged; the result is of the rest
  4  push reached no server, or none that let it in
  5  the run that was followed did not finish: failed, interrupted, killed or lost
"""


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    parser = argparse.ArgumentParser(
        prog="otel-train",
        description="Look at training runs that otel-train recorded.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"otel-train {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    for name in COMMANDS:
        importlib.import_module(f"otel_train.cli.{name}").add(commands)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    _tolerate_narrow_consoles()
    words = list(sys.argv[1:] if argv is None else argv)
    execute: Callable[[], int]
    if words[:1] == [LIST_RUNS]:
        # At each press of a key: without the other commands and their options.
        execute = functools.partial(list_runs, words[1:])
    else:
        wrong = misplaced(words)
        if wrong:
            print(f"otel-train: {wrong}", file=sys.stderr)
            return UNREADABLE
        parser = build_parser()
        arguments = parser.parse_args(words)
        if arguments.command is None:
            parser.print_help()
            return UNREADABLE
        execute = functools.partial(arguments.execute, arguments)
    try:
        code = execute()
        if sys.stdout is not None:
            sys.stdout.flush()
        return code
    except BrokenPipeError:
        # The reader, such as `head`, has enough. What is still buffered must not fail again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    except KeyboardInterrupt:
        return 130
    except (OtelTrainError, UsageError) as fault:
        print(f"otel-train: {fault}", file=sys.stderr)
        return UNREADABLE
    except OSError as fault:
        place = f"{fault.filename}: " if fault.filename else ""
        print(f"otel-train: {place}{fault.strerror or fault}", file=sys.stderr)
        return UNREADABLE


def misplaced(words: Sequence[str]) -> str:
    """Return what to write instead where an option stands before the command; "" where none does."""
    option = words[0].partition("=")[0] if words else ""
    own = ("-h", "--help", "--version")
    if not option.startswith("-") or any(known.startswith(option) for known in own):
        return ""
    # The folder may be called like a command.
    first = 2 if words[0] == "--dir" else 1
    place = next((place for place, word in enumerate(words) if place >= first and word in COMMANDS), 0)
    if not place:
        return ""
    meant = shlex.join(["otel-train", *words[place:], *words[:place]])
    return f"{option} comes after the command: {meant}"


def _tolerate_narrow_consoles() -> None:
    """Let a console that lacks a character of a run's name print its escape instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


if __name__ == "__main__":
    sys.exit(main())
