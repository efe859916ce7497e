"""`otel-train prune`: removes old runs by count, age and size; a running run is never touched."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any

from otel_train.cli.arguments import OK, PARTLY_READ, UsageError, add_root, print_json, progress, root_of
from otel_train.config import parse_duration, parse_size
from otel_train.view.text import Paint, plain, size, table


def add(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "prune",
        help="remove old runs by count, age and size",
        description="Remove runs, oldest first. The newest N of --keep-last are safe from the other rules. Runs that "
        "are going on are never touched. Nothing is asked: look with --dry-run first.",
        epilog="example:\n  otel-train prune --keep-last 20 --older-than 30d --max-size 20GB --dry-run",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_root(parser)
    parser.add_argument("--keep-last", metavar="N", type=_count, help="keep the newest N; alone: remove all others")
    parser.add_argument("--older-than", metavar="TIME", type=_duration, help="remove what is older: 30d, 12h, 45m")
    parser.add_argument("--max-size", metavar="SIZE", type=_size, help="until all runs fit: 20GB, 500MiB")
    parser.add_argument("--dry-run", action="store_true", help="only say what would be removed")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(execute=execute)


def _parsed(parse: Callable[[str], Any], text: str) -> Any:
    try:
        return parse(text)
    except ValueError as fault:
        raise argparse.ArgumentTypeError(f"{text!r}: {fault}") from None


def _count(text: str) -> int:
    def parse(text: str) -> int:
        if not text.isdecimal():
            raise ValueError("use a whole number of at least 0")
        return int(text)

    return int(_parsed(parse, text))


def _duration(text: str) -> float:
    return float(_parsed(parse_duration, text))


def _size(text: str) -> int:
    return int(_parsed(parse_size, text))


def execute(arguments: argparse.Namespace) -> int:
    """Remove, or say what would be removed."""
    from otel_train.clock import wall_ns
    from otel_train.runlog.prune import apply, plan_prune

    if arguments.keep_last is None and arguments.older_than is None and arguments.max_size is None:
        raise UsageError("prune needs --keep-last, --older-than or --max-size; see otel-train prune --help")
    root = root_of(arguments)
    if not root.is_dir():
        raise UsageError(f"{root} is not a folder; name the root of the runs with --dir")
    with progress("looking at runs") as step:
        plan = plan_prune(
            root,
            now_ns=wall_ns(),
            keep_last=arguments.keep_last,
            older_than_s=arguments.older_than,
            max_size=arguments.max_size,
            progress=lambda done, _: step("runs", done) if step else None,
        )
    failed: list[tuple[Any, str]] = []
    removed, removed_bytes = [path for path, _, _ in plan.remove], plan.remove_bytes
    running = list(plan.skipped_running)
    if not arguments.dry_run:
        with progress("removing", len(plan.remove)) as step:
            result = apply(plan, wall_ns(), progress=lambda done, _: step("runs", done) if step else None)
        failed, removed, removed_bytes = result.failed, result.removed, result.removed_bytes
        running.extend(result.left_running)
    listed = [(path, reason, count) for path, reason, count in plan.remove if path in set(removed)]
    if arguments.json:
        print_json(
            {
                "dry_run": arguments.dry_run,
                "removed": [{"path": str(path), "reason": reason, "bytes": count} for path, reason, count in listed],
                "removed_bytes": removed_bytes,
                "kept": [str(path) for path in plan.kept],
                "running": [str(path) for path in running],
                "foreign": [str(path) for path in plan.foreign],
                "failed": [{"path": str(path), "reason": reason} for path, reason in failed],
            }
        )
    else:
        _print(listed, removed_bytes, len(plan.kept), len(running), arguments.dry_run)
    for path in plan.foreign:
        print(Paint(sys.stderr)("left alone:", "yellow"), plain(f"{path} is not a run of otel-train"), file=sys.stderr)
    for path, reason in failed:
        print(Paint(sys.stderr)("not removed:", "red"), plain(f"{path}: {reason}"), file=sys.stderr)
    return PARTLY_READ if failed else OK


def _print(listed: list[tuple[Any, str, int]], removed_bytes: int, kept: int, running: int, dry_run: bool) -> None:
    if listed:
        rows = [[path.name, size(count), reason] for path, reason, count in listed]
        print(table(("run", "size", "why"), rows, Paint(sys.stdout), right=(1,)))
    verb = "would be removed" if dry_run else "removed"
    tail = f", {running} running and left alone" if running else ""
    count = f"{len(listed)} run{'' if len(listed) == 1 else 's'}"
    print(f"{count} ({size(removed_bytes)}) {verb}; {kept} kept{tail}")
