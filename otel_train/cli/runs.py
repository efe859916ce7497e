"""`otel-train runs`: the runs of a root as a table, newest first."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from otel_train.cli.arguments import OK, PARTLY_READ, UsageError, add_root, print_json, progress, root_of
from otel_train.view.text import Paint, duration, moment, number, plain, table

if TYPE_CHECKING:
    from otel_train.view.index import RunIndex
    from otel_train.view.index_row import IndexRow
    from otel_train.view.run_columns import Column

STATES = ("running", "finished", "failed", "interrupted", "killed", "lost")
VALUES = 3
# A list must not take minutes: what is not read of the points of lost runs by then, the next call goes on with.
READING_S = 3.0


def add(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "runs",
        help="list the runs, filtered and sorted",
        description="List the runs of a root folder, newest first, with status, duration and their best metrics.",
        epilog="""examples:
  otel-train runs --status failed --project digits
  otel-train runs --where 'loss < 0.2 and config.lr >= 1e-3 and state = failed'
  otel-train runs --where 'started > 7d and not tag = debug' --sort best.loss --last 5
  otel-train runs --search adam --columns state,loss,best.loss,config.lr

filter:
  = != < <= > >=, ~ (contains), in (a, b), and, or, not, brackets
  state name id project group tag notes host started duration step epoch attempts ranks reason problem
  loss, val/loss (the last value), best.loss, min.loss, max.loss, config.KEY
  1e-3, nan, failed, "two words", true, null (nothing there), 90s, 2h, 2026-01-31, 7d (so long ago)""",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_root(parser)
    parser.add_argument("--where", metavar="FILTER", default="", help="only runs that this is true of, see below")
    parser.add_argument("--search", metavar="WORDS", default="", help="only runs with these words somewhere")
    parser.add_argument("--sort", metavar="NAMES", default="", help="sort by these, 'loss desc' descends")
    parser.add_argument("--columns", metavar="NAMES", help="show these instead, with commas between")
    parser.add_argument("--project", metavar="NAME", help="only runs of this project")
    parser.add_argument("--status", choices=STATES, help="only runs in this state")
    parser.add_argument("--last", metavar="N", type=_positive, help="only the first N: the newest, unless sorted")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(execute=execute)


def _positive(value: str) -> int:
    number_of = int(value)
    if number_of < 1:
        raise argparse.ArgumentTypeError("use a whole number of at least 1")
    return number_of


def execute(arguments: argparse.Namespace) -> int:
    """Print the list."""
    from otel_train.view.index import RunIndex

    root = root_of(arguments)
    if not root.is_dir():
        raise UsageError(f"there is no run in {root}, which is {'a file' if root.exists() else 'not there'}")
    index = RunIndex(root)
    asked = (arguments.where, arguments.sort, arguments.columns or "")
    with progress("looking at runs") as step:
        # The last epoch of an ended run is not in its description.
        epochs = arguments.json or any("epoch" in text.lower() for text in asked)
        index.refresh(READING_S, lambda done, _: step("runs", done) if step else None, epochs=epochs)
    try:
        return show(index, arguments)
    finally:
        index.close()


def show(index: RunIndex, arguments: argparse.Namespace) -> int:
    """Print the runs that were asked for, and on standard error what is wrong with them."""
    from otel_train.clock import wall_ns

    now_ns = wall_ns()
    found = chosen(index, arguments, now_ns)
    if arguments.json:
        print_json([as_dict(row, now_ns) for row in found])
    elif found and arguments.columns:
        print(as_columns(found, index, arguments.columns, Paint(sys.stdout)))
    elif found:
        print(as_table(found, Paint(sys.stdout)))
    else:
        asked_for = any((arguments.where, arguments.search, arguments.project, arguments.status))
        print(f"no run{' like that' if asked_for else ''} in {index.root}", file=sys.stderr)
    say = Paint(sys.stderr)
    for row in found:
        text = "" if arguments.json else fallen_rank(row, now_ns)
        if text:
            print(say(f"{plain(row.run_id)}:", "yellow"), plain(text), file=sys.stderr)
        if row.problem:
            print(say("damaged:", "yellow"), plain(row.problem), file=sys.stderr)
    # A filter may have left out one that it would mean by then.
    unread = sum(row.partial for row in (index.rows if arguments.where or arguments.sort else found))
    if unread:
        text = f"the points of {unread} runs that wrote no end are still being read: the next call goes on with them"
        print(text, file=sys.stderr)
    return PARTLY_READ if any(row.problem for row in found) else OK


def chosen(index: RunIndex, arguments: argparse.Namespace, now_ns: int) -> list[IndexRow]:
    """Return the rows that were asked for, in the order asked for; UsageError points at what is not understood."""
    from otel_train.view.filter_syntax import FilterError
    from otel_train.view.run_table import DEFAULT_SORT, matching, sort_order, sort_rows

    rows = [
        row
        for row in index.rows
        if (not arguments.project or row.project == arguments.project)
        and (not arguments.status or row.state == arguments.status)
    ]
    try:
        order = sort_order(arguments.sort or DEFAULT_SORT, index.columns)
        found = sort_rows(matching(rows, index.columns, arguments.where, arguments.search, now_ns), order)
    except FilterError as fault:
        text = arguments.sort if fault.field == "sort" else arguments.where
        pointed = fault.pointed(text).replace("\n", "\n  ")
        raise UsageError(f"--{fault.field}: {plain(fault.message)}\n  {pointed}") from None
    return found[: arguments.last]


def fallen_rank(row: IndexRow, now_ns: int) -> str:
    """Return which rank ended the newest attempt, or is lost while others go on; "" where none is."""
    from otel_train.runlog.folder import RunFolder
    from otel_train.runlog.rank_states import first_fallen, rank_states, told

    if row.cause:
        return row.cause
    # Most runs ended well: only of the others the ranks are looked at.
    if row.state not in ("running", "lost") or len(RunFolder(row.path).ranks(row.attempt)) < 2:
        return ""
    fallen = first_fallen(rank_states(row.path, row.attempt, now_ns))
    if fallen is None:
        return ""
    return told(fallen, row.attempt, goes_on=row.state == "running")


def as_dict(row: IndexRow, now_ns: int) -> dict[str, Any]:
    """Return a run for programs."""
    from otel_train.clock import iso
    from otel_train.view.index_row import key_values

    return {
        "run_id": row.run_id,
        "name": row.run_name,
        "project": row.project,
        "status": row.state,
        "reason": row.reason,
        "fallen_rank": fallen_rank(row, now_ns) or None,
        "started": iso(row.created_ns) if row.created_ns else None,
        "duration_s": row.duration_s,
        "step": row.step,
        "epoch": row.epoch,
        "attempts": row.attempt,
        "ranks": row.ranks,
        "host": row.host,
        # The best value where the metric has a direction, else the last.
        "metrics": key_values(row.metrics),
        "values": {
            key: {"last": one.last, "best": one.best, "min": one.low, "max": one.high, "goal": one.goal or None}
            for key, one in row.metrics.items()
        },
        "config": row.config,
        "group": row.group,
        "tags": row.tags,
        "notes": row.notes,
        "path": row.path,
        "problem": row.problem,
        "still_reading": row.partial,
    }


def as_table(found: Sequence[IndexRow], paint: Paint) -> str:
    """Return the runs as a table."""
    from otel_train.view.index_row import key_values

    rows = []
    for row in found:
        values = sorted(key_values(row.metrics).items(), key=lambda pair: not pair[0].startswith("val"))[:VALUES]
        rows.append(
            [
                row.run_id,
                row.run_name if row.run_name != row.run_id else "",
                row.project,
                row.state,
                moment(row.created_ns),
                duration(row.duration_s),
                ", ".join(f"{key} {number(value)}" for key, value in values),
            ]
        )
    return table(
        ("id", "name", "project", "status", "started (UTC)", "duration", "metrics"), rows, paint, state_column=3
    )


def as_columns(found: Sequence[IndexRow], index: RunIndex, names: str, paint: Paint) -> str:
    """Return the runs as a table of their ids and these columns."""
    columns = found_columns(index, names)
    rows = [[row.run_id, *(cell(column, row) for column in columns)] for row in found]
    right = [place for place, column in enumerate(columns, 1) if all(is_number(column.get(row)) for row in found)]
    states = [place for place, column in enumerate(columns, 1) if column.kind == "state"]
    heads = ["id", *("started (UTC)" if column.kind == "time" else plain(column.id) for column in columns)]
    return table(heads, rows, paint, right=right, state_column=states[0] if states else None)


def found_columns(index: RunIndex, names: str) -> list[Column]:
    """Return the columns of a list of names; UsageError points at one that no run has."""
    from otel_train.view.filter_syntax import FilterError
    from otel_train.view.run_columns import UnknownColumn
    from otel_train.view.run_table import split_columns

    columns, end = [], 0
    for name in split_columns(names):
        start = names.index(name, end)
        end = start + len(name)
        try:
            columns.append(index.columns.find(name))
        except UnknownColumn as fault:
            message = plain(str(fault))
            pointed = FilterError(message, start, len(name), "columns").pointed(names).replace("\n", "\n  ")
            raise UsageError(f"--columns: {message}\n  {pointed}") from None
    return columns


def is_number(value: object) -> bool:
    """Tell whether a value looks well aligned to the right: a number, or nothing."""
    return value is None or (isinstance(value, (int, float)) and not isinstance(value, bool))


def cell(column: Column, row: IndexRow) -> str:
    """Return what a run has in a column as text, "" where it has nothing."""
    from otel_train.view.index_row import text_of

    value = column.get(row)
    if value is None or column.kind == "time":
        return moment(row.created_ns) if column.kind == "time" else ""
    if column.kind == "duration":
        return duration(value)
    if isinstance(value, list):
        return ", ".join(value)
    return number(value) if column.kind == "number" else text_of(value)
