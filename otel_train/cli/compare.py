"""`otel-train compare`: two runs or more side by side on the terminal: results, and all that differs between them."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from otel_train.cli.arguments import OK, PARTLY_READ, UsageError, add_root, print_json, progress, root_of
from otel_train.view.text import Paint, plain

if TYPE_CHECKING:
    from otel_train.view.run_data import RunData

EXAMPLES = """\
examples:
  otel-train compare 20260131-1200 20260131-1300
  otel-train compare small-net wide-net deep-net --all
  otel-train compare latest small-net --json | jq '.results.rows[] | {key, winners}'
"""


def add(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "compare",
        help="compare runs: results, and what differs in configuration, code, data and environment",
        description="Compare two runs or more. The first is the base: differences are to it. Of each metric the best "
        "run is marked by *, where the metric has a direction.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("runs", metavar="RUN", nargs="+", help="id, the start of one, name, folder, or 'latest'")
    add_root(parser)
    parser.add_argument("--all", action="store_true", help="also what is the same in all runs")
    parser.add_argument("--json", action="store_true", help="print JSON: exact numbers, without the curves' points")
    parser.set_defaults(execute=execute)


def execute(arguments: argparse.Namespace) -> int:
    """Print the comparison."""
    from otel_train.cli.compare_text import as_text
    from otel_train.view.comparison import compare

    runs = _read(arguments)
    payload = compare(runs)
    if arguments.json:
        print_json(as_dict(payload))
    else:
        print(as_text(payload, Paint(sys.stdout), everything=arguments.all))
    return _tell_damage(runs)


def _read(arguments: argparse.Namespace) -> list[RunData]:
    from otel_train.cli.arguments import run_path
    from otel_train.clock import wall_ns
    from otel_train.view.comparison import MOST_CURVES
    from otel_train.view.reading import read_run

    paths: list[Path] = []
    for named in arguments.runs:
        path = run_path(argparse.Namespace(run=named, dir=arguments.dir)).resolve()
        if path not in paths:
            paths.append(path)
        else:
            print(f"otel-train: {plain(named)!r} is a run that was named before; it is taken once", file=sys.stderr)
    if len(paths) < 2:
        raise UsageError(f"one run cannot be compared: name two or more of those in {root_of(arguments)}")
    if len(paths) > MOST_CURVES:
        raise UsageError(f"{len(paths)} runs are too many to compare here: name at most {MOST_CURVES}")
    runs = []
    with progress("reading") as step:
        for number, path in enumerate(paths, 1):
            runs.append(read_run(path, wall_ns(), records=False))
            if step is not None:
                step("runs", number)
    ids = [run.path.name for run in runs]
    for path in paths:
        if ids.count(path.name) > 1:
            raise UsageError(f"{path.name} is the name of several of these folders: they are copies of one run")
    return runs


def as_dict(payload: dict[str, Any]) -> dict[str, Any]:
    """Return the comparison for programs, in the order of the runs that were named; curves are told by their names."""
    left_out = ("charts", "palette", "axes", "revision", "missing", "live", "columns")
    kept = {key: value for key, value in payload.items() if key not in left_out}
    runs = [{key: value for key, value in run.items() if key not in ("role", "number")} for run in payload["runs"]]
    return kept | {"runs": runs}


def _tell_damage(runs: list[RunData]) -> int:
    code = OK
    for run in runs:
        if run.damage or run.skipped:
            code = PARTLY_READ
            first = f": {run.damage[0].path}:{run.damage[0].line}: {run.damage[0].reason}" if run.damage else ""
            places = "1 damaged place" if len(run.damage) == 1 else f"{len(run.damage):,} damaged places"
            count = f"{places}, {run.skipped:,} values that could not be read"
            print(Paint(sys.stderr)(f"{run.run_id}:", "yellow"), plain(f"{count}{first}"), file=sys.stderr)
    return code
