"""Lays out the dashboard of all runs: which there are, how they do, and what is wrong."""

from __future__ import annotations

from grafana.source import links, looks, tiles, variables
from grafana.source.board import dashboard
from grafana.source.fragments import PROJECTS
from grafana.source.grid import Grid
from grafana.source.queries.runs import QUERIES

OPEN_RUN = [links.data_link("Open this run", links.RUN_OF_ROW)]
COLUMNS = {
    "Value #A": "State",
    "run_id": "run_id",
    "run_name": "Name",
    "job": "Project",
    "Value #D": "Began",
    "Value #E": "Lasted",
    "Value #F": "Step",
    "Value #G": "Epoch",
    "Value #L": "Progress",
    "Value #H": "Train",
    "Value #I": "Validation",
    "Value #J": "GPU busy",
    "Value #K": "Alerts",
    "from_ms": "from_ms",
    "until_ms": "until_ms",
}
COLORED = {"type": "color-background", "mode": "basic"}


def looks_of_columns() -> dict[str, dict[str, object]]:
    """Return units, colours and links of the table's columns."""
    return {
        "State": {"unit": "none", "mappings": [looks.state_mapping()], "custom__cellOptions": COLORED},
        "run_id": {"links": OPEN_RUN, "custom__minWidth": 210},
        "Name": {"links": OPEN_RUN},
        "Began": {"unit": "dateTimeAsIso", "custom__minWidth": 170},
        "Lasted": {"unit": "dtdurations"},
        "Step": {"unit": "locale", "decimals": 0},
        "Epoch": {"unit": "none", "decimals": 0},
        "Progress": {"unit": "percentunit", "decimals": 0},
        "Train": {"unit": "none", "decimals": 4},
        "Validation": {"unit": "none", "decimals": 4},
        "GPU busy": {"unit": "percentunit", "decimals": 0},
        "Alerts": {
            "unit": "none",
            "decimals": 0,
            "color": looks.fixed("red"),
            "custom__cellOptions": {"type": "color-text"},
        },
    }


def page() -> str:
    """Return the dashboard's JSON."""
    grid = Grid()
    grid.add(
        tiles.number(
            "Running",
            "Runs whose newest attempt runs, and has been alive within two minutes.",
            QUERIES["running"],
            "none",
            width=4,
            limits={1: "green"},
        ),
        tiles.number("Finished", "Runs within the range that ended well.", QUERIES["finished"], "none", width=4),
        tiles.number(
            "Failed, lost, killed",
            "Runs within the range that did not end well.",
            QUERIES["broken"],
            "none",
            width=4,
            limits={1: "red"},
        ),
        tiles.number(
            "Alerts",
            "Alerts that fire now, of runs and of the stack.",
            QUERIES["firing"],
            "none",
            width=4,
            limits={1: "red"},
        ),
        tiles.number(
            "GPUs busy",
            "Share of time that the GPUs of running runs had work, all of them together.",
            QUERIES["gpus"],
            "percentunit",
            width=8,
            decimals=0,
        ),
        tiles.cells(
            "Runs",
            "Runs within the range, the newest first; a click on one opens it, over the time that it lasted. The "
            'state is that of the newest attempt: "silent" says that it runs and has not been alive for two '
            "minutes. Train and Validation are the last values of the chosen metric. GPU busy is the mean, Alerts"
            " counts those that fired, both within the range.",
            QUERIES["table"],
            COLUMNS,
            looks_of_columns(),
            hidden=("from_ms", "until_ms"),
            sort=("Began", True),
            height=12,
        ),
    )
    grid.row("Over time")
    grid.add(
        tiles.timeline(
            "State", "State of each run over time.", QUERIES["states"], looks.state_mapping(), width=24, height=7
        ),
        tiles.curves(
            "$measure, training",
            "The chosen metric of each run, as training logged it.",
            QUERIES["losses"],
            "none",
            width=12,
            interval=tiles.FINEST,
        ),
        tiles.curves(
            "$measure, validation",
            "The chosen metric of each run, as validation logged it.",
            QUERIES["validation"],
            "none",
            width=12,
            interval=tiles.FINEST,
        ),
        tiles.curves(
            "GPUs busy",
            "Share of time that a kernel ran on the GPUs of each run.",
            QUERIES["gpu"],
            "percentunit",
            width=12,
            at_least=0,
            at_most=1,
        ),
        tiles.curves(
            "Memory",
            "Resident memory of each run's processes, on all hosts.",
            QUERIES["memory"],
            "bytes",
            width=12,
            at_least=0,
        ),
    )
    grid.row("What is wrong")
    grid.add(
        tiles.cells(
            "Alerts that fired",
            "Alerts within the range, and the run that they are about.",
            QUERIES["alerts"],
            {"severity": "Severity", "alertname": "Alert", "run_id": "run_id"},
            {"run_id": {"links": [links.data_link("Open this run", links.SAME_RANGE_RUN_OF_ROW)]}},
            width=10,
        ),
        tiles.lines(
            "Latest errors",
            "Error records of all runs, the newest first. The details of a record lead to its trace.",
            QUERIES["errors"],
            width=14,
            height=10,
        ),
    )
    return dashboard(
        links.RUNS,
        "otel-train: Runs",
        "All runs of the chosen projects: state, progress, loss, GPUs and alerts.",
        grid,
        variables=[*variables.sources(), variables.projects(), variables.measure(PROJECTS)],
        since="now-24h",
        refresh="30s",
    )
