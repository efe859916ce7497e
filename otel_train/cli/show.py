"""`otel-train show`: all about one run, on the terminal."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from otel_train.cli.arguments import add_run, print_json, read, run_path, tell_damage
from otel_train.view.text import Paint, number, plain, table

if TYPE_CHECKING:
    from otel_train.view.run_data import RunData
    from otel_train.view.summary import At

# A file's name and the start of its checksum; the rest is in --json.
MOST_CELL = 60
CONFIG_ROWS = 60
RANK_COLUMNS = ("rank", "host", "state", "step", "seen (UTC)", "step time", "own work", "straggler", "what befell it")


def add(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "show",
        help="show all about a run on the terminal",
        description="Show a run's status, cause of death, metrics in numbers, step times, configuration, data sets, "
        "stages, checkpoints and attempts.",
        epilog="example:\n  otel-train show latest\n  otel-train show 20260131-1200 --json",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_run(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(execute=execute)


def execute(arguments: argparse.Namespace) -> int:
    """Print the run."""
    run = read(arguments, run_path(arguments))
    if arguments.json:
        print_json(as_dict(run))
    else:
        print(as_text(run, Paint(sys.stdout)))
    return tell_damage(run)


def as_dict(run: RunData) -> dict[str, Any]:
    """Return the run for programs; numbers are exact, times ISO, absent values null."""
    from otel_train.clock import iso
    from otel_train.view import facts, overview
    from otel_train.view.machine_charts import time_shares

    def point(at: At | None) -> dict[str, Any] | None:
        return None if at is None else {"value": at.value, "step": at.step, "epoch": at.epoch, "time": iso(at.time_ns)}

    rows = []
    for item, summary in run.metrics():
        rows.append(
            {
                "key": summary.key,
                "name": item.series.name,
                "split": summary.split,
                "rank": item.series.rank,
                "unit": summary.unit,
                "goal": summary.goal or None,
                "points": summary.points,
                "finite": summary.finite,
                "nan": summary.bad.nan,
                "positive_infinity": summary.bad.positive_infinity,
                "negative_infinity": summary.bad.negative_infinity,
                "last": point(summary.last),
                "min": point(summary.low),
                "max": point(summary.high),
                "mean": summary.mean,
                "best": point(summary.best),
                "first_nonfinite": point(summary.first_bad),
            }
        )
    return {
        "run_id": run.run_id,
        "name": run.name,
        "project": run.info.get("project"),
        "path": str(run.path),
        "status": run.state,
        "reason": run.reason,
        "exception": overview.cause(run),
        "started": iso(run.started_ns) if run.started_ns else None,
        "ended": iso(run.ended_ns) if run.ended_ns else None,
        "duration_s": overview.elapsed_s(run),
        "last_step": run.last_step(),
        "last_epoch": run.last_epoch(),
        "dropped": overview.dropped(run),
        "notices": [notice["text"] for notice in overview.notices(run, run.metrics())],
        "health": overview.health(run),
        "metrics": rows,
        "steps": time_shares([item.series for item in run.series()]),
        "logs": {"records": run.logs.seen, "levels": dict(run.logs.levels)},
        "config": facts.configuration_values(run),
        "attempts": [dict(attempt, environment=None) for attempt in run.attempts],
        "causes": causes(run),
        "ranks": ranks(run),
        "environment": run.attempts[-1].get("environment") if run.attempts else None,
        "datasets": run.info.get("datasets") or [],
        "checkpoints": run.info.get("checkpoints") or [],
        "stages": run.info.get("stages") or [],
        "damage": [
            {"path": place.path, "line": place.line, "offset": place.offset, "reason": place.reason}
            for place in run.damage
        ],
    }


def causes(run: RunData) -> list[str]:
    """Return a sentence for each attempt in which a rank fell: which one was killed, failed or hung first."""
    from otel_train.runlog.rank_states import first_fallen, rank_states, told

    found = []
    for attempt in run.attempts:
        number = attempt.get("attempt")
        cause = attempt.get("cause")
        if isinstance(cause, dict) and cause.get("text"):
            found.append(str(cause["text"]))
        elif isinstance(number, int):
            # Nobody was left to say it, or it goes on; of one process its end says as much.
            states = rank_states(run.path, number, run.now_ns)
            fallen = first_fallen(states) if len(states) > 1 else None
            goes_on = attempt is run.attempts[-1] and run.state == "running"
            if fallen is not None:
                found.append(told(fallen, number, goes_on=goes_on))
    return found


def ranks(run: RunData) -> list[dict[str, Any]]:
    """Return how each rank of each attempt is, or how it ended; empty for a run of one process."""
    from dataclasses import asdict

    from otel_train.clock import iso
    from otel_train.runlog.rank_states import rank_states

    rows = []
    for attempt in run.attempts:
        number = attempt.get("attempt")
        states = rank_states(run.path, number, run.now_ns) if isinstance(number, int) else []
        for state in states if len(states) > 1 else ():
            row = {"attempt": number} | asdict(state)
            for name in ("time", "hung_since"):
                moment_ns = row.pop(f"{name}_ns")
                row[name] = iso(moment_ns) if moment_ns else None
            rows.append(row)
    return rows


def as_text(run: RunData, paint: Paint) -> str:
    """Return the run for people."""
    from otel_train.view import facts, happenings, overview
    from otel_train.view.machine_charts import time_shares

    metrics = run.metrics()
    status = overview.status(run)
    out = [f"{paint(plain(run.name), 'bold')}  {paint.state(run.state)}  {plain(run.run_id)}"]
    exception = status.get("exception")
    if run.reason and not (exception and _says_the_same(run.reason, exception)):
        out.append(plain(run.reason))
    out.extend(paint(plain(text), "red") for text in causes(run))
    if exception:
        out.append(f"{paint(plain(exception['type']), 'red')}: {plain(exception['message'])}")
    pairs = [["Project", plain(run.info.get("project") or "")], *overview.facts(run), ["Folder", plain(run.path)]]
    width = max(len(name) for name, _ in pairs)
    out.extend(f"  {name.ljust(width)}  {value}" for name, value in pairs if value)
    for notice in overview.notices(run, metrics):
        out.append(f"{paint('!', 'red' if notice['kind'] == 'bad' else 'yellow')} {plain(notice['text'])}")
    _part(out, paint, "Metrics")
    if metrics:
        out.append(
            table(
                ("metric", "split", "last", "min", "max", "mean", "best", "not finite"),
                _metric_rows(run),
                paint,
                right=(2, 3, 4, 5, 6),
            )
        )
    else:
        out.append("  none logged")
    shares = time_shares([item.series for item in run.series()])
    if shares:
        _part(out, paint, "Steps (host time)")
        out.append(_steps_text(shares))
    config = facts.configuration(run)["rows"]
    if config:
        _part(out, paint, "Configuration")
        rows = [[cell[:80] for cell in row["cells"]] for row in config[:CONFIG_ROWS]]
        head = ["key", *(["value"] if len(rows[0]) == 2 else [f"attempt {place}" for place in range(1, len(rows[0]))])]
        out.append(table(head, rows, paint))
        if len(config) > CONFIG_ROWS:
            out.append(f"  {len(config) - CONFIG_ROWS} more; see --json or the report")
    for card in facts.datasets(run):
        _part(out, paint, f"Data set {plain(card['name'])}")
        out.extend(f"  {plain(name)}: {plain(value)}" for name, value in card["rows"])
        if card["classes"]:
            out.append("  classes: " + ", ".join(f"{plain(label)}: {count:,}" for label, count in card["classes"][:20]))
    tables: tuple[tuple[str, tuple[str, ...], facts.Rows], ...] = (
        ("Stages", ("stage", "status", "duration", "inputs", "outputs", "code"), facts.stages(run)),
        (
            "Checkpoints",
            ("checkpoint", "role", "step", "epoch", "size", "sha-256", "metrics", "written in"),
            facts.checkpoints(run),
        ),
        ("Ranks", RANK_COLUMNS, happenings.ranks(run, [item.series for item in run.series()])),
        (
            "Attempts",
            ("attempt", "status", "started (UTC)", "duration", "host", "exit code", "reason", "changed"),
            facts.attempts(run),
        ),
    )
    for title, heads, found in tables:
        if found and (title != "Attempts" or len(found) > 1):
            _part(out, paint, title)
            out.append(table(heads, [[_cell(cell) for cell in row] for row in found], paint))
    levels = ", ".join(f"{count:,} {name}" for name, count in run.logs.levels.items())
    out.append("")
    out.append(
        f"{run.logs.seen:,} log records" + (f" ({levels})" if levels else "") + f"; otel-train logs {plain(run.run_id)}"
    )
    return "\n".join(out)


def _says_the_same(reason: str, exception: Mapping[str, str]) -> bool:
    # The type may have its module before it, and a long message is cut in the reason.
    told = f"{exception['type']}: {exception['message']}"
    return (
        told.startswith(reason) or told.partition(":")[0].rpartition(".")[2] + told[len(exception["type"]) :] == reason
    )


def _part(out: list[str], paint: Paint, title: str) -> None:
    out.append("")
    out.append(paint(title, "bold", "cyan"))


def _cell(cell: Any) -> str:
    if isinstance(cell, dict):
        cell = cell.get("mono") or cell.get("pill") or ""
    text = ", ".join(str(cell).split("\n"))
    if len(text) > MOST_CELL:
        text = text[: MOST_CELL - 3] + "..."
    # The page's star is not in every console's character set.
    return text.replace("\u2605 ", "* ").replace("\u00b7", "-").replace("\u2026", "...")


def _metric_rows(run: RunData) -> list[list[str]]:
    def at(point: At | None) -> str:
        if point is None:
            return ""
        place = f" @{point.step:.15g}" if point.step is not None else ""
        return number(point.value) + place

    rows = []
    for item, summary in run.metrics():
        split = summary.split + (f" rank {item.series.rank}" if item.series.rank else "")
        bad = f"{summary.bad.total:,} from {summary.first_bad.place or 'the start'}" if summary.first_bad else ""
        mean = number(summary.mean)
        rows.append(
            [summary.key, split, at(summary.last), at(summary.low), at(summary.high), mean, at(summary.best), bad]
        )
    return rows


def _steps_text(shares: dict[str, Any]) -> str:
    from otel_train.view.text import duration

    total = shares["total_s"] or 1.0
    parts = [("wait for data", shares["wait_s"]), *shares["phases_s"].items()]
    shown = ", ".join(f"{plain(name)} {100 * seconds / total:.1f} %" for name, seconds in parts)
    return (
        f"  {shares['steps']:,} steps: median {duration(shares['median_s'])}, "
        f"95th percentile {duration(shares['p95_s'])}"
        f", longest {duration(shares['max_s'])}\n  {shown}"
    )
