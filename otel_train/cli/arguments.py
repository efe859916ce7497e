"""What all commands share: exit codes, the root of the runs, finding a run, telling faults and damage, progress."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from otel_train.view.text import Paint, plain

if TYPE_CHECKING:
    from otel_train.view.exporting import Exported
    from otel_train.view.run_data import RunData

OK = 0
UNREADABLE = 2
PARTLY_READ = 3
# The run that was followed did not finish well. 4 is `push`'s.
ENDED_OTHERWISE = 5
DAMAGE_LINES = 5


class UsageError(Exception):
    """What the user asked for makes no sense; its text says what would."""


def add_root(parser: argparse.ArgumentParser) -> None:
    """Add the option for the root of the runs."""
    parser.add_argument(
        "--dir",
        metavar="FOLDER",
        default=None,
        help="root folder of the runs (default: $OTEL_TRAIN_DIR, else ./runs)",
    )


def add_run(parser: argparse.ArgumentParser) -> None:
    """Add the run to look at."""
    parser.add_argument("run", metavar="RUN", help="id, the start of one, name, folder, or 'latest'")
    add_root(parser)


def root_of(arguments: argparse.Namespace) -> Path:
    """Return the root folder: argument, environment, else ``./runs``."""
    return Path(arguments.dir or os.environ.get("OTEL_TRAIN_DIR") or "./runs")


def run_path(arguments: argparse.Namespace) -> Path:
    """Return the folder of the run that was asked for; RunNotFoundError names near ones."""
    from otel_train.runlog.catalogue import find_run
    from otel_train.runlog.folder import RUN_FILE, RunFolder

    named = Path(arguments.run)
    if named.name == RUN_FILE and named.is_file():
        return named.parent
    looks_like_a_path = named.is_absolute() or len(named.parts) > 1
    if looks_like_a_path and named.exists():
        # Says what is wrong with it, where looking for a run of that name would only find none.
        RunFolder(named).check()
    return find_run(root_of(arguments), arguments.run)


def read(arguments: argparse.Namespace, path: Path, **options: Any) -> RunData:
    """Return the run, with progress on a terminal."""
    from otel_train.clock import wall_ns
    from otel_train.view.reading import read_run

    with progress("reading") as step:
        return read_run(path, wall_ns(), progress=step, **options)


def tell_damage(run: RunData | Exported) -> int:
    """Say on standard error what could not be read, and return the exit code that says so."""
    if not run.damage and not run.skipped:
        return OK
    say = Paint(sys.stderr)
    for place in run.damage[:DAMAGE_LINES]:
        where = f"{place.path}:{place.line}" if place.line else place.path
        print(say("damaged:", "yellow"), plain(f"{where}: {place.reason}"), file=sys.stderr)
    if len(run.damage) > DAMAGE_LINES:
        print(f"... and {len(run.damage) - DAMAGE_LINES:,} more damaged places", file=sys.stderr)
    if run.skipped:
        print(f"{run.skipped:,} values within whole lines could not be read", file=sys.stderr)
    return PARTLY_READ


@contextlib.contextmanager
def progress(words: str, total: int | None = None) -> Iterator[Callable[[str, int], None] | None]:
    """Give a function that takes a unit and the count so far, where standard error is a terminal and tqdm is there."""
    try:
        terminal = sys.stderr.isatty()
    except (AttributeError, ValueError):
        terminal = False
    if not terminal:
        yield None
        return
    try:
        from tqdm import tqdm
    except ImportError:
        yield None
        return
    # Nothing is drawn for what takes less than half a second.
    with tqdm(total=total, desc=words, leave=False, delay=0.5, file=sys.stderr, unit_scale=True) as bar:
        last = 0

        def step(unit: str, count: int) -> None:
            nonlocal last
            if unit != bar.unit:
                bar.unit, last = unit, 0
            bar.update(count - last)
            last = count

        yield step


def print_json(value: Any) -> None:
    """Print strict JSON: numbers that are not finite become the names that OTLP has for them."""
    import json

    print(json.dumps(strict(value), indent=2, ensure_ascii=True, allow_nan=False))


def strict(value: Any) -> Any:
    """Return a value that strict JSON can hold."""
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {str(key): strict(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [strict(item) for item in value]
    return value
