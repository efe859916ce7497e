"""Lays out the part of a run's dashboard that shows log records and spans."""

from __future__ import annotations

from grafana.source import links, tiles
from grafana.source.grid import Grid
from grafana.source.queries.run import QUERIES


def place(grid: Grid) -> None:
    """Place log records and spans."""
    grid.row("Logs")
    grid.add(
        tiles.lines(
            "Warnings and errors",
            "The newest first. The details of a record lead to its trace.",
            QUERIES["problems"],
            width=12,
        ),
        tiles.lines(
            "Life of the run",
            "Start and end, stages, data sets, checkpoints, best values, early stop: events of the run.",
            QUERIES["lifecycle"],
            width=12,
        ),
        tiles.lines(
            "Health",
            "Onset and end of each watched condition: the same that alerts say, written by the run itself.",
            QUERIES["health"],
            height=7,
        ),
    )
    grid.row("Traces")
    grid.add(
        tiles.spans(
            "Stages",
            "Stages that ended, with their status. A click on an id opens the trace; the trace leads to the logs and "
            "metrics of its time.",
            QUERIES["stages"],
            width=8,
        ),
        tiles.spans(
            "Begun",
            "Short spans by which stages, epochs, evaluations and checkpoints say that they begin: what is here and "
            "not beside it still goes on.",
            QUERIES["begun"],
            width=8,
        ),
        tiles.spans(
            "Epochs, evaluations, checkpoints", "Spans of the training loop that ended.", QUERIES["epochs"], width=8
        ),
        tiles.spans(
            "Slow and damaged steps",
            "Steps that were slower than median + 3 MAD of those before, or whose values were not finite.",
            QUERIES["slow_steps"],
        ),
        tiles.spans(
            "Steps",
            "Steps within the range that have a span: one of every hundred, and the remarkable ones.",
            QUERIES["steps"],
            number=links.STEPS_PANEL,
        ),
    )
