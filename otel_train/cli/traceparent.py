"""`otel-train traceparent`: a new trace for the programs that a shell script starts one after the other."""

from __future__ import annotations

import argparse
from typing import Any

from otel_train.cli.arguments import OK


def add(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "traceparent",
        help="print a new TRACEPARENT for a shell script",
        description="Print a new TRACEPARENT (W3C trace context). The runs of all programs that are started with it "
        "belong to one trace, and 'otel-train lineage' shows them as one chain, also where no files join them.",
        epilog="examples:\n"
        "  export TRACEPARENT=$(otel-train traceparent)\n"
        "  python preprocess.py && python train.py\n\n"
        "In a script that others may start, which then belongs to their trace:\n"
        '  export TRACEPARENT="${TRACEPARENT:-$(otel-train traceparent)}"',
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(execute=execute)


def execute(arguments: argparse.Namespace) -> int:
    """Print it."""
    from otel_train.record.ids import new_span_id, new_trace_id

    print(f"00-{new_trace_id():032x}-{new_span_id():016x}-01")
    return OK
