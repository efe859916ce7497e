"""`otel-train runs`: the runs of a root as a table, newest first."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from otel_train.cli.arguments import OK, PARTLY_READ, add_root, print_json, progress, root_of
from otel_train.view.text import Paint, duration, moment, number, plain, table

if TYPE_CHECKING:
    from otel_train.runlog.catalogue import RunSummary

STATES = ("running", "finished", "failed", "interrupted", "killed", "lost")
VALUES = 3
# A list must not take minutes: about 100,000 points, a second to read.
POINT_BYTES = 8_000_000


def add(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "runs",
        help="list the runs",
        description="List the runs of a root folder, newest first, with status, duration and their best metrics.",
        epilog="example:\n  otel-train runs --status failed --project digits",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_root(parser)
    parser.add_argument("--project", metavar="NAME", help="only runs of this project")
    parser.add_argument("--status", choices=STATES, help="only runs in this state")
    parser.add_argument("--last", metavar="N", type=_positive, help="only the newest N")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(execute=execute)


def _positive(value: str) -> int:
    number_of = int(value)
    if number_of < 1:
        raise argparse.ArgumentTypeError("use a whole number of at least 1")
    return number_of


def execute(arguments: argparse.Namespace) -> int:
    """Print the list."""
    from otel_train.clock import wall_ns
    from otel_train.runlog.catalogue import list_runs

    root = root_of(arguments)
    with progress("looking at runs") as step:
        found = list_runs(root, progress=lambda done, _: step("runs", done) if step else None)
    found = [
        run
        for run in found
        if (not arguments.project or run.project == arguments.project)
        and (not arguments.status or run.status.state == arguments.status)
    ][: arguments.last]
    if arguments.json:
        print_json([as_dict(run, wall_ns()) for run in found])
    elif found:
        print(as_table(found, wall_ns(), Paint(sys.stdout)))
    else:
        where = f"{root}" + ("" if root.is_dir() else ", which is not there")
        print(f"no run{' like that' if arguments.project or arguments.status else ''} in {where}", file=sys.stderr)
    for run in found:
        text = fallen_rank(run, wall_ns())
        if text and not arguments.json:
            print(Paint(sys.stderr)(f"{run.run_id}:", "yellow"), plain(text), file=sys.stderr)
        if run.problem:
            print(Paint(sys.stderr)("damaged:", "yellow"), plain(run.problem), file=sys.stderr)
    return PARTLY_READ if any(run.problem for run in found) else OK


def fallen_rank(run: RunSummary, now_ns: int) -> str:
    """Return which rank ended the newest attempt, or is lost while others go on; "" where none is."""
    from otel_train.runlog.folder import RunFolder
    from otel_train.runlog.rank_states import first_fallen, rank_states, told

    attempts = run.info.get("attempts")
    newest = attempts[-1] if isinstance(attempts, list) and attempts and isinstance(attempts[-1], Mapping) else {}
    cause = newest.get("cause")
    if isinstance(cause, Mapping):
        return str(cause.get("text") or "")
    # Most runs ended well: only of the others the ranks are looked at.
    if run.status.state not in ("running", "lost") or len(RunFolder(run.path).ranks(run.status.attempt)) < 2:
        return ""
    fallen = first_fallen(rank_states(run.path, run.status.attempt, now_ns))
    if fallen is None:
        return ""
    return told(fallen, run.status.attempt, goes_on=run.status.is_running)


def duration_s(run: RunSummary, now_ns: int) -> float | None:
    """Return how long a run went on, or has gone on."""
    until_ns = now_ns if run.status.is_running else max(run.status.last_seen_ns, run.status.since_ns)
    return max(0, until_ns - run.created_ns) / 1e9 if run.created_ns and until_ns else None


def key_values(run: RunSummary) -> dict[str, float | str]:
    """Return of each metric the best, where it has a direction, else the last value, by ``split/key``.

    They stand in run.json once a run has ended; of a run without an end they are taken from its points, unless those
    are many.
    """
    from otel_train.record.names import MINIMIZED

    summary = run.info.get("summary")
    if not isinstance(summary, Mapping) or not summary:
        return _from_points(run)
    goals = run.info.get("metrics")
    result: dict[str, float | str] = {}
    for name, row in summary.items():
        if not isinstance(row, Mapping):
            continue
        key = name.partition("/")[2] or name
        described = (goals.get(name) or goals.get(key)) if isinstance(goals, Mapping) else None
        goal = described.get("goal") if isinstance(described, Mapping) else None
        if goal is None and key.rsplit("/", 1)[-1].lower() in MINIMIZED:
            goal = "min"
        value = row.get(str(goal), row.get("last"))
        if isinstance(value, (int, float, str)):
            result[str(name)] = value
    return result


class _UserMetrics:
    """Contains the names of all metrics of the user, and of those that say where their points stand."""

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and (name.startswith("train.") or name in ("dl.step", "dl.epoch"))


def _from_points(run: RunSummary) -> dict[str, float | str]:
    from otel_train.clock import wall_ns
    from otel_train.errors import RunFolderError
    from otel_train.view.reading import read_run

    total = sum(path.stat().st_size for path in run.path.glob("attempt-*/rank-0/metrics.*"))
    if total > POINT_BYTES:
        return {}
    try:
        read = read_run(run.path, wall_ns(), names=_UserMetrics(), records=False)
    except (RunFolderError, OSError):
        return {}
    result: dict[str, float | str] = {}
    for item, found in read.metrics():
        point = found.best or found.last
        if point is not None and item.series.rank == 0:
            result[f"{found.split}/{found.key}" if found.split else found.key] = point.value
    return result


def as_dict(run: RunSummary, now_ns: int) -> dict[str, Any]:
    """Return a run for programs."""
    from otel_train.clock import iso

    return {
        "run_id": run.run_id,
        "name": run.run_name,
        "project": run.project,
        "status": run.status.state,
        "reason": run.status.reason,
        "fallen_rank": fallen_rank(run, now_ns) or None,
        "started": iso(run.created_ns) if run.created_ns else None,
        "duration_s": duration_s(run, now_ns),
        "attempts": run.status.attempt,
        "metrics": key_values(run),
        "group": run.info.get("group") or "",
        "tags": run.info.get("tags") or [],
        "path": str(run.path),
        "problem": run.problem,
    }


def as_table(found: list[RunSummary], now_ns: int, paint: Paint) -> str:
    """Return the runs as a table."""
    rows = []
    for run in found:
        values = sorted(key_values(run).items(), key=lambda pair: not pair[0].startswith("val"))[:VALUES]
        rows.append(
            [
                run.run_id,
                run.run_name if run.run_name != run.run_id else "",
                run.project,
                run.status.state,
                moment(run.created_ns),
                duration(duration_s(run, now_ns)),
                ", ".join(f"{key} {value if isinstance(value, str) else number(value)}" for key, value in values),
            ]
        )
    return table(
        ("id", "name", "project", "status", "started (UTC)", "duration", "metrics"), rows, paint, state_column=3
    )
