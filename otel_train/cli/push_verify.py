"""Counts pushed runs in the stores, for `otel-train push --verify`, and prints what differs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from otel_train.view.text import Paint, plain, table

if TYPE_CHECKING:
    from otel_train.export.verify import Verdict


def verify(
    arguments: argparse.Namespace, paths: Sequence[Path], patience_s: float
) -> tuple[list[dict[str, Any]], bool]:
    """Ask the stores for each run, print a table; return it for JSON, and whether all agree.

    A store that has less than it should is given so much time after it got anything.
    """
    from otel_train.export.verify import Stores

    stores = Stores(arguments.prometheus, arguments.loki, arguments.tempo)
    found: list[dict[str, Any]] = []
    agrees = True
    for path in paths:
        verdicts = stores.verify(path, patience_s=patience_s)
        agrees = agrees and all(verdict.agrees for verdict in verdicts)
        found += [{"run_id": path.name, **asdict(verdict)} for verdict in verdicts]
        if not arguments.json and not (arguments.quiet and all(verdict.agrees for verdict in verdicts)):
            _print(path.name, verdicts)
    return found, agrees


def _print(run_id: str, verdicts: Sequence[Verdict]) -> None:
    from otel_train.export.verify import MOST_DIFFERENCES

    paint = Paint(sys.stdout)
    rows = [
        [verdict.store, verdict.signal, f"{verdict.expected:,}", f"{verdict.found:,}", _word(verdict)]
        for verdict in verdicts
    ]
    print(table((run_id, "signal", "in the run log", "in the store", ""), rows, paint, right=(2, 3)))
    for verdict in verdicts:
        if verdict.fault:
            print(paint("not verified:", "red"), plain(f"{verdict.store} at {verdict.url}: {verdict.fault}"))
        for difference in verdict.differences[:MOST_DIFFERENCES]:
            print(paint("differs:", "yellow"), plain(difference))
        if len(verdict.differences) > MOST_DIFFERENCES:
            print(f"... and {len(verdict.differences) - MOST_DIFFERENCES:,} more that differ")


def _word(verdict: Verdict) -> str:
    return "not reachable" if verdict.fault else "same" if verdict.agrees else "differs"
