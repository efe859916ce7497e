"""`otel-train lineage`: the chain from a model, or a run, back to data, code and parents."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

from otel_train.cli.arguments import OK, UNREADABLE, add_root, print_json, progress, root_of


def add(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "lineage",
        help="print which data, code and parents made a model",
        description="Print the chain behind a model file or a run: the run that made it, its data with checksums, its "
        "code, its configuration, its parent models, and what made those, also across runs.",
        epilog="examples:\n  otel-train lineage model.pt\n  otel-train lineage latest --json",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "target", metavar="FILE|RUN", help="a model or data file, a run's id, name or folder, or 'latest'"
    )
    add_root(parser)
    parser.add_argument(
        "--no-verify", action="store_true", help="believe the record beside the file, do not hash the file"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(execute=execute)


def execute(arguments: argparse.Namespace) -> int:
    """Print the chain."""
    from otel_train.lineage.chain import trace_lineage
    from otel_train.lineage.chain_text import render
    from otel_train.runlog.catalogue import find_run

    root = root_of(arguments)
    target = arguments.target
    if target == "latest" or not os.path.lexists(target):
        # RunNotFoundError names what comes near.
        target = str(find_run(root, target))
    with progress("reading runs") as step:
        chain = trace_lineage(
            target,
            [root],
            verify=not arguments.no_verify,
            progress=lambda done, _: step("runs", done) if step else None,
        )
    if arguments.json:
        print_json(chain.to_dict())
    elif chain.found:
        print(render(chain, unicode=_draws_lines()))
    if not chain.found:
        print(f"otel-train: nothing is known of {target} in the runs of {root}", file=sys.stderr)
        for problem in chain.problems:
            print(f"  {problem}", file=sys.stderr)
        return UNREADABLE
    return OK


def _draws_lines() -> bool:
    try:
        "\u251c\u2500\u2514\u2502".encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
