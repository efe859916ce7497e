"""Lays out the dashboard that compares runs: by step, by time, and as a table."""

from __future__ import annotations

from typing import Any, Final

from grafana.source import links, looks, tiles, variables
from grafana.source.board import dashboard
from grafana.source.grid import Grid
from grafana.source.queries.compare import QUERIES, RUNS

COLUMNS = {
    "run": "Run",
    "run_id": "run_id",
    "Value #A": "Last",
    "Value #B": "Lowest",
    "Value #C": "Highest",
    "Value #D": "Step",
    "Value #E": "Lasted",
    "Value #F": "Step time",
    "Value #G": "GPU busy",
    "Value #H": "Memory",
}
VALUE = {"unit": "none", "decimals": 4}
LOOKS: Final[dict[str, dict[str, Any]]] = {
    "Run": {"links": [links.data_link("Open this run", links.SAME_RANGE_RUN_OF_ROW)], "custom__minWidth": 260},
    "Last": VALUE,
    "Lowest": VALUE,
    "Highest": VALUE,
    "Step": {"unit": "locale", "decimals": 0},
    "Lasted": {"unit": "dtdurations"},
    "Step time": {"unit": looks.unit_of("dl.step.usual_time")},
    "GPU busy": {"unit": "percentunit", "decimals": 0},
    "Memory": {"unit": "bytes"},
}
NOTE = " The range has to reach back to the beginning of the oldest run."


def page() -> str:
    """Return the dashboard's JSON."""
    grid = Grid()
    grid.add(
        tiles.cells(
            "Runs",
            "Values of the chosen metric and split, and what each run took. Step time is the usual one at the "
            "end, GPU busy the mean, memory the most of one process." + NOTE,
            QUERIES["table"],
            COLUMNS,
            LOOKS,
            hidden=("run_id",),
            sort=("Run", True),
            height=8,
        ),
        tiles.runs_by_step(
            "$measure by step",
            "The chosen metric of each run, by its own steps." + NOTE,
            QUERIES["watched_by_step"],
            "none",
        ),
    )
    grid.row("Every metric by step")
    grid.add(
        tiles.runs_by_step(
            "$metric by step",
            "One of the metrics that the runs logged, by their own steps." + NOTE,
            QUERIES["metric_by_step"],
            "none",
            width=8,
            height=8,
            repeat="metric",
        )
    )
    grid.row("Over time")
    grid.add(
        tiles.curves(
            "$measure by time",
            "The chosen metric of each run.",
            QUERIES["watched_by_time"],
            "none",
            interval=tiles.FINEST,
        ),
        tiles.curves(
            "Step time",
            "Median duration of training steps on each run's first rank.",
            QUERIES["step_time"],
            "s",
            at_least=0,
        ),
        tiles.curves(
            "GPUs busy",
            "Share of time that a kernel ran, mean of each run's cards.",
            QUERIES["gpu"],
            "percentunit",
            at_least=0,
            at_most=1,
        ),
    )
    grid.row("What made the difference")
    grid.add(
        tiles.lines(
            "Configurations",
            "Each run's configuration, secrets redacted: open two records and compare their fields.",
            QUERIES["configurations"],
            width=12,
            height=10,
        ),
        tiles.lines(
            "Best values and ends",
            "New best values, early stops and ends of these runs.",
            QUERIES["ends"],
            width=12,
            height=10,
        ),
    )
    return dashboard(
        links.COMPARE,
        "otel-train: Compare",
        "Several runs laid over each other by step.",
        grid,
        variables=[
            *variables.sources(),
            variables.projects(),
            variables.runs(),
            variables.measure(RUNS),
            variables.split(),
            variables.every_metric(RUNS),
        ],
        since="now-6h",
        refresh="1m",
    )
