"""Lays out the dashboard of one run's ranks: who is slow, who lags, and on which host."""

from __future__ import annotations

from typing import Any, Final

from grafana.source import links, looks, marks, tiles, variables
from grafana.source.board import dashboard
from grafana.source.grid import Grid
from grafana.source.pages import health
from grafana.source.queries.ranks import QUERIES

COLUMNS = {
    "dl_rank": "Rank",
    "host_name": "Host",
    "Value #A": "State",
    "Value #B": "Step",
    "Value #C": "Step time",
    "Value #D": "Wait for data",
    "Value #E": "GPU busy",
    "Value #F": "GPU memory",
    "Value #G": "GPU temperature",
    "Value #H": "Memory",
    "Value #I": "Last alive",
    "Value #J": "Own work",
    "Value #K": "Straggler",
}
LOOKS: Final[dict[str, dict[str, Any]]] = {
    "State": {
        "unit": "none",
        "mappings": [looks.state_mapping()],
        "custom__cellOptions": {"type": "color-background", "mode": "basic"},
    },
    "Step": {"unit": "locale", "decimals": 0},
    "Step time": {"unit": "s", "custom__cellOptions": {"type": "gauge", "mode": "gradient"}},
    "Wait for data": {"unit": "s"},
    "GPU busy": {"unit": "percentunit", "decimals": 0},
    "GPU memory": {"unit": "percentunit", "decimals": 0},
    "GPU temperature": {"unit": "celsius", "decimals": 0},
    "Memory": {"unit": "bytes"},
    "Last alive": {"unit": "dateTimeAsIso"},
    "Own work": {"unit": "s"},
    "Straggler": {"unit": "none", "decimals": 2},
}


def page() -> str:
    """Return the dashboard's JSON."""
    grid = Grid()
    grid.add(
        tiles.number("Ranks", "Ranks that gave a sign of life within the range.", QUERIES["ranks"], "none", width=3),
        tiles.number("Hosts", "Hosts of these ranks.", QUERIES["hosts"], "none", width=3),
        tiles.number(
            "Slowest rank",
            "The rank with the greatest mean step time within the range.",
            QUERIES["slowest"],
            "s",
            width=7,
            names=True,
        ),
        tiles.number(
            "Fastest rank",
            "The rank with the least mean step time within the range.",
            QUERIES["fastest"],
            "s",
            width=7,
            names=True,
        ),
        tiles.number(
            "Imbalance",
            "By how much the slowest rank's mean step time is above the fastest's: in synchronous training all "
            "ranks wait that long.",
            QUERIES["imbalance"],
            "percentunit",
            width=4,
            decimals=0,
            limits={0.1: "orange", 0.3: "red"},
        ),
        tiles.cells(
            "Ranks",
            "Each rank within the range: means of step time, own work, wait and GPU, the greatest memory and "
            "temperature, and by what factor the rank's own work makes steps longer.",
            QUERIES["table"],
            COLUMNS,
            LOOKS,
            sort=("Step time", True),
            height=10,
        ),
    )
    grid.row("Spread")
    grid.add(
        tiles.curves(
            "Step time, spread",
            "Least, median and greatest of the ranks' step times, each a mean over at least a minute.",
            QUERIES["step_time_spread"],
            "s",
            width=12,
            links=links.AT_A_POINT,
            at_least=0,
        ),
        tiles.curves(
            "GPUs busy, spread",
            "Least, median and greatest of the ranks' GPU utilisation.",
            QUERIES["gpu_spread"],
            "percentunit",
            width=12,
            links=links.AT_A_POINT,
            at_least=0,
            at_most=1,
        ),
    )
    grid.row("Who holds up the others")
    grid.add(
        tiles.curves(
            "Own work of a step",
            "Step time without the wait for other ranks, mean over at least a minute. In a job that waits for each "
            "other all step times are the same; the straggler is who works longest.",
            QUERIES["busy"],
            "s",
            links=links.AT_A_POINT,
            at_least=0,
        ),
        *health.panels(health.OF_RANKS),
        tiles.curves(
            "Samples a second",
            "Of each rank, in training alone.",
            QUERIES["samples"],
            "none",
            links=links.AT_A_POINT,
            at_least=0,
        ),
        tiles.curves(
            "Since the last heartbeat",
            "Heartbeats come every 15 s. A rank that is silent was killed, or does not reach the stack.",
            QUERIES["beats"],
            "s",
            links=links.AT_A_POINT,
            at_least=0,
        ),
        tiles.curves(
            "Since the last step",
            "Time since each rank's last step; 0 in evaluation, checkpoints and other stages.",
            QUERIES["ages"],
            "s",
            links=links.AT_A_POINT,
            at_least=0,
        ),
    )
    grid.row("Each rank")
    grid.add(
        tiles.curves(
            "Step time",
            "Mean duration of steps over at least a minute.",
            QUERIES["step_time"],
            "s",
            links=links.AT_A_POINT,
            at_least=0,
        ),
        tiles.curves(
            "Wait for data",
            "Mean time that a step waited for its batch.",
            QUERIES["wait"],
            "s",
            links=links.AT_A_POINT,
            at_least=0,
        ),
        tiles.curves(
            "Steps behind the first",
            "How many steps a rank is behind the one that is farthest. A rank that stays behind holds up the others.",
            QUERIES["lag"],
            "none",
            links=links.AT_A_POINT,
            at_least=0,
        ),
        tiles.curves(
            "GPU busy",
            "Share of time that a kernel ran.",
            QUERIES["gpu"],
            "percentunit",
            links=links.AT_A_POINT,
            at_least=0,
            at_most=1,
        ),
        tiles.curves(
            "GPU memory",
            "Memory in use on the rank's card.",
            QUERIES["gpu_memory"],
            "bytes",
            links=links.AT_A_POINT,
            at_least=0,
        ),
        tiles.curves(
            "GPU temperature",
            "Temperature of the rank's card.",
            QUERIES["temperature"],
            "celsius",
            links=links.AT_A_POINT,
        ),
        tiles.curves(
            "Memory",
            "Resident memory of the rank's processes.",
            QUERIES["memory"],
            "bytes",
            links=links.AT_A_POINT,
            at_least=0,
        ),
        tiles.curves(
            "CPU of each host",
            "Share of all processors that are busy.",
            QUERIES["host_cpu"],
            "percentunit",
            links=links.AT_A_POINT,
            at_least=0,
            at_most=1,
        ),
        tiles.curves(
            "Network of each host",
            "Bytes received and sent a second, all interfaces.",
            QUERIES["host_network"],
            "Bps",
            links=links.AT_A_POINT,
            at_least=0,
        ),
    )
    grid.row("Logs")
    grid.add(
        tiles.lines(
            "Ranks that hung or were lost",
            "Events of ranks, the newest first; those of a rank that hangs hold the stacks of all its threads.",
            QUERIES["fallen"],
        ),
        tiles.lines(
            "Warnings and errors of all ranks",
            "The newest first; dl_rank and host_name are among the fields of a record.",
            QUERIES["problems"],
        ),
    )
    return dashboard(
        links.RANKS,
        "otel-train: Ranks",
        "The ranks of one run: spread, worst rank, hosts.",
        grid,
        variables=[*variables.sources(), variables.run(), variables.project_of_the_run()],
        annotations=marks.of_one_run(),
        since="now-1h",
        refresh="10s",
    )
