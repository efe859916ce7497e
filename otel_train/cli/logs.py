"""`otel-train logs`: the log records of a run, as lines or as JSON, also while it goes on."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from heapq import merge
from typing import TYPE_CHECKING, Any

from otel_train.cli.arguments import PARTLY_READ, UsageError, add_run, run_path, strict
from otel_train.view.text import Paint, plain

if TYPE_CHECKING:
    from otel_train.record.entries import LogEntry
    from otel_train.runlog.reader import RunReader

POLL_S = 0.5
# A run that writes nothing for so many polls is looked at: it may have ended.
POLLS_A_STATUS = 4
_STYLES = {"DEBUG": "dim", "TRACE": "dim", "INFO": "", "WARN": "yellow", "ERROR": "red", "FATAL": "red"}


def add(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "logs",
        help="print a run's log records",
        description="Print the log records and events of a run, oldest first, those of all ranks together.",
        epilog="examples:\n  otel-train logs latest --level warning\n"
        "  otel-train logs latest --follow --grep 'loss|nan'",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_run(parser)
    parser.add_argument(
        "--level", metavar="LEVEL", default="trace", help="lowest level: debug, info, warning, error, fatal"
    )
    parser.add_argument("--grep", metavar="REGEX", help="only records whose text, event or traceback has a match")
    parser.add_argument("--follow", "-f", action="store_true", help="wait for more until the run ends or Ctrl-C")
    parser.add_argument("--json", action="store_true", help="print one JSON object a line")
    parser.add_argument("--attempt", type=int, metavar="N", help="only this attempt")
    parser.add_argument("--rank", type=int, metavar="N", help="only this rank")
    parser.set_defaults(execute=execute)


def execute(arguments: argparse.Namespace) -> int:
    """Print the records."""
    from otel_train.runlog.reader import RunReader
    from otel_train.semconv import severity_number

    try:
        lowest = severity_number(arguments.level)
    except KeyError:
        raise UsageError(f"--level {arguments.level!r}: use debug, info, warning, error or fatal") from None
    try:
        pattern = re.compile(arguments.grep) if arguments.grep else None
    except re.error as fault:
        raise UsageError(f"--grep {arguments.grep!r} is no regular expression: {fault}") from None
    reader = RunReader(run_path(arguments))
    _check_place(reader, arguments)
    source = _followed(reader, arguments) if arguments.follow else _present(reader, arguments)
    paint = Paint(sys.stdout)
    try:
        for entry, attempt, rank in source:
            if entry.severity_number < lowest or (pattern and not pattern.search(_searched(entry))):
                continue
            print(
                as_json(entry, attempt, rank) if arguments.json else as_line(entry, rank, paint), flush=arguments.follow
            )
    except KeyboardInterrupt:
        # The usual end of following.
        if not arguments.follow:
            raise
    for place in reader.damage:
        where = f"{place.path}:{place.line_number}" if place.line_number else str(place.path)
        print(Paint(sys.stderr)("damaged:", "yellow"), plain(f"{where}: {place.reason}"), file=sys.stderr)
    return PARTLY_READ if reader.damage or reader.skipped else 0


def _check_place(reader: RunReader, arguments: argparse.Namespace) -> None:
    """Refuse an attempt or rank that the run does not have; what a followed run will have is not known."""
    if arguments.follow or (arguments.attempt is None and arguments.rank is None):
        return
    folders = reader.folder.rank_folders()
    for name, wanted, there in (
        ("attempt", arguments.attempt, sorted({number for number, _, _ in folders})),
        ("rank", arguments.rank, sorted({rank for _, rank, _ in folders})),
    ):
        if wanted is not None and wanted not in there:
            raise UsageError(f"--{name} {wanted}: the run has {', '.join(map(str, there)) or 'none'}")


def _present(reader: RunReader, arguments: argparse.Namespace) -> Iterator[tuple[LogEntry, int, int]]:
    """Give the records of each attempt, those of its ranks merged by time; a rank's own stay in their order."""
    folders = reader.folder.rank_folders(arguments.attempt, arguments.rank)
    for attempt in sorted({number for number, _, _ in folders}):
        ranks = [rank for number, rank, _ in folders if number == attempt]
        for _, entry, rank in merge(
            *(_of_rank(reader, attempt, rank) for rank in ranks), key=lambda record: (record[0], record[2])
        ):
            yield entry, attempt, rank


def _of_rank(reader: RunReader, attempt: int, rank: int) -> Iterator[tuple[int, LogEntry, int]]:
    newest_ns = 0
    for entry, _ in reader.logs(attempt, rank):
        # A record may be written a little after a later one; for the merge it stands where it was written.
        newest_ns = max(newest_ns, entry.time_ns)
        yield newest_ns, entry, rank


def _followed(reader: RunReader, arguments: argparse.Namespace) -> Iterator[tuple[LogEntry, int, int]]:
    """Give what is there, then what comes, until the run has ended and all of it was given."""
    from otel_train.clock import sleep, wall_ns
    from otel_train.otlp.decode import DamagedLine, decode_line
    from otel_train.runlog.status import run_status
    from otel_train.semconv import RANK, RUN_ATTEMPT

    quiet = 0
    ended = False

    def poll() -> bool:
        nonlocal quiet, ended
        if ended:
            return False
        quiet += 1
        # Asked for once more after the end, since the last lines may have come between.
        ended = quiet % POLLS_A_STATUS == 1 and not run_status(reader.folder, wall_ns()).is_running
        if not ended:
            sleep(POLL_S)
        return True

    for line in reader.follow("logs", poll, arguments.attempt, arguments.rank):
        quiet = 0
        try:
            request = decode_line(line)
        except DamagedLine:
            continue
        for entry, resource in request.logs:
            yield entry, _whole(resource.get(RUN_ATTEMPT), 1), _whole(resource.get(RANK), 0)


def _whole(value: object, otherwise: int) -> int:
    return value if isinstance(value, int) else otherwise


def _searched(entry: LogEntry) -> str:
    from otel_train.view.log_list import body_text

    stack = entry.attributes.get("exception.stacktrace", "")
    return f"{entry.event_name} {body_text(entry.body)} {stack}"


def as_line(entry: LogEntry, rank: int, paint: Paint) -> str:
    """Return a record as lines for people: time, level, place, text, and the traceback below."""
    from otel_train.clock import iso
    from otel_train.semconv import EPOCH, STEP
    from otel_train.view.log_list import body_text, level_name

    level = level_name(entry)
    time = iso(entry.time_ns or entry.observed_time_ns)[:23].replace("T", " ")
    place = [f"rank {rank}"] if rank else []
    place.extend(
        f"{name} {entry.attributes[key]!s}"
        for key, name in ((EPOCH, "epoch"), (STEP, "step"))
        if key in entry.attributes
    )
    event = f"{entry.event_name}: " if entry.event_name else ""
    body = plain(body_text(entry.body))
    # The other lines of a long message stand below its first one.
    body = body.replace("\n", "\n    ")
    line = f"{paint(time, 'dim')} {paint(level.ljust(5), _STYLES.get(level, ''))} {event}{body}"
    if place:
        line += paint(f"  [{', '.join(place)}]", "dim")
    stack = entry.attributes.get("exception.stacktrace")
    if isinstance(stack, str) and stack:
        line += "\n" + paint("\n".join("    " + part for part in plain(stack).rstrip().split("\n")), "dim")
    return line


def as_json(entry: LogEntry, attempt: int, rank: int) -> str:
    """Return a record as one line of JSON."""
    import json

    from otel_train.clock import iso
    from otel_train.view.log_list import level_name

    document = {
        "time": iso(entry.time_ns or entry.observed_time_ns),
        "level": level_name(entry),
        "body": entry.body,
        "event": entry.event_name or None,
        "attributes": dict(entry.attributes),
        "trace_id": f"{entry.trace_id:032x}" if entry.trace_id else None,
        "span_id": f"{entry.span_id:016x}" if entry.span_id else None,
        "attempt": attempt,
        "rank": rank,
    }
    return json.dumps(strict(document), default=lambda value: value.hex() if isinstance(value, bytes) else str(value))
