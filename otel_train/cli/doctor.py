"""`otel-train doctor`: checks what recording, sending and looking at runs depend on, and says the fix of a fault."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from otel_train.cli.arguments import OK, UNREADABLE, UsageError, add_root, print_json, progress
from otel_train.config import parse_duration
from otel_train.view.text import Paint, plain

if TYPE_CHECKING:
    from otel_train.cli.doctor_checks import Check
    from otel_train.config import Settings

STYLES: Final = {"ok": "green", "warn": "yellow", "fail": "red"}


def add(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "doctor",
        help="check versions, GPU library, endpoint, folder, clock and variables",
        description="Check versions, the GPU library, the root folder, the runs, the variables, and the endpoint: "
        "where one is set, a test record and a test metric are sent, of no run (service otel-train-doctor).",
        epilog="exit codes:\n  0  all is well, warnings aside\n  2  there is a fault\n\n"
        "example:\n  otel-train doctor --endpoint http://localhost:4318",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_root(parser)
    parser.add_argument("--endpoint", metavar="URL", help="OTLP endpoint (default: $OTEL_EXPORTER_OTLP_ENDPOINT)")
    parser.add_argument("--timeout", metavar="TIME", default="5s", help="how long an endpoint has to answer (5s)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(execute=execute)


def execute(arguments: argparse.Namespace) -> int:
    """Check, print a line for each, and return 2 where there is a fault."""
    from otel_train.cli import doctor_checks as checks
    from otel_train.clock import wall_ns

    try:
        timeout_s = parse_duration(arguments.timeout)
    except ValueError as fault:
        raise UsageError(f"--timeout {arguments.timeout!r}: {fault}") from None
    if timeout_s <= 0:
        raise UsageError(f"--timeout {arguments.timeout!r}: use more than 0")
    settings = _settings(arguments)
    root = _root(arguments, settings)
    todo: list[tuple[str, Callable[[], Iterable[Check]]]] = [
        ("versions", checks.versions),
        ("GPU", lambda: checks.gpu(os.environ)),
        ("variables", lambda: checks.variables(os.environ, Path.cwd())),
    ]
    if root is None:
        todo.append(("folder", lambda: [checks.Check("folder", checks.OK, "none: runs are only sent")]))
    else:
        todo += [
            ("folder", lambda: checks.root_folder(root, named=bool(arguments.dir))),
            ("runs", lambda: checks.runs(root, wall_ns())),
        ]
    todo.append(("endpoint", lambda: checks.endpoint(settings, os.environ, timeout_s)))
    found: list[Check] = []
    with progress("checking", total=len(todo)) as step:
        for number, (name, check) in enumerate(todo, start=1):
            found += _safely(name, check)
            if step is not None:
                step("checks", number)
    if arguments.json:
        print_json({"ok": not _faults(found), "checks": [asdict(check) for check in found]})
    else:
        _print(found, Paint(sys.stdout))
    return UNREADABLE if _faults(found) else OK


def _settings(arguments: argparse.Namespace) -> Settings | None:
    """Return the settings; None where one of them is wrong, which the check of variables tells."""
    from otel_train.config import resolve
    from otel_train.errors import ConfigError

    given = {"endpoint": arguments.endpoint, "dir": arguments.dir}
    try:
        return resolve(given, os.environ)
    except ConfigError as fault:
        if fault.field in given:
            raise UsageError(f"--{fault.field} {fault.value!r}: {fault.fix}") from None
        return None


def _root(arguments: argparse.Namespace, settings: Settings | None) -> Path | None:
    if settings is None:
        return Path(arguments.dir or os.environ.get("OTEL_TRAIN_DIR") or "./runs")
    return Path(settings["dir"]) if settings["dir"] else None


def _safely(name: str, check: Callable[[], Iterable[Check]]) -> list[Check]:
    """Run one check; one that fails itself is a fault that is told, and the others go on."""
    from otel_train.cli.doctor_checks import FAIL, Check

    found: list[Check] = []
    try:
        found.extend(check())
    except Exception as fault:  # noqa: BLE001 - a doctor that falls over helps nobody
        text = f"could not be checked: {type(fault).__name__}: {fault}"
        found.append(Check(name, FAIL, text, "this is a fault of otel-train: please report it"))
    return found


def _faults(found: Iterable[Check]) -> int:
    return sum(check.state == "fail" for check in found)


def _print(found: list[Check], paint: Paint) -> None:
    width = max(len(check.name) for check in found)
    for check in found:
        text = plain(check.text).replace("\n", " ")
        fix = f"  {paint('fix:', 'bold')} {plain(check.fix)}".replace("\n", " ") if check.fix else ""
        print(f"{paint(check.state.ljust(4), STYLES[check.state], 'bold')}  {check.name.ljust(width)}  {text}{fix}")
    faults, warnings = _faults(found), sum(check.state == "warn" for check in found)
    said = [_counted(faults, "fault"), _counted(warnings, "warning")]
    print(f"\n{' and '.join(filter(None, said)) or 'all is well'}")


def _counted(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}" if count else ""
