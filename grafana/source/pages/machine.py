"""Lays out the part of a run's dashboard that is about its cards and hosts."""

from __future__ import annotations

from grafana.source import links, tiles
from grafana.source.grid import Grid
from grafana.source.pages import health
from grafana.source.queries.machine import QUERIES


def place(grid: Grid) -> None:
    """Place what the run takes from its cards and hosts."""
    grid.row("GPUs")
    grid.add(
        *health.panels(health.GPUS, width=6),
        tiles.curves(
            "GPU memory",
            "Memory in use on each card, of all processes, and what it has.",
            QUERIES["gpu_memory"],
            "bytes",
            width=6,
            links=links.AT_A_POINT,
            at_least=0,
        ),
        tiles.curves(
            "GPU power",
            "Power draw of each card.",
            QUERIES["gpu_power"],
            "watt",
            width=6,
            links=links.AT_A_POINT,
            at_least=0,
        ),
        tiles.curves(
            "GPU clock",
            "Clock of the streaming multiprocessors.",
            QUERIES["gpu_clock"],
            "hertz",
            width=6,
            links=links.AT_A_POINT,
        ),
        tiles.curves(
            "GPU traffic",
            "Bytes over PCIe, estimated by the driver.",
            QUERIES["gpu_io"],
            "Bps",
            width=6,
            links=links.AT_A_POINT,
            at_least=0,
        ),
    )
    grid.row("Hosts")
    grid.add(
        tiles.curves(
            "CPU",
            "Share of all processors that are busy, and share of those that the run may use which its main "
            "process and its children (loader workers) keep busy.",
            QUERIES["cpu"],
            "percentunit",
            links=links.AT_A_POINT,
            at_least=0,
            at_most=1,
        ),
        tiles.curves(
            "Memory",
            "Resident memory of the run's main process and of its children, beside the host's, and the "
            "container's limit.",
            QUERIES["memory"],
            "bytes",
            links=links.AT_A_POINT,
            at_least=0,
        ),
        health.panel("memory_full"),
        tiles.curves(
            "Disks",
            "Bytes read and written a second: by the run, and by the whole host for each disk.",
            QUERIES["disk"],
            "Bps",
            links=links.AT_A_POINT,
            at_least=0,
        ),
        tiles.curves(
            "Network",
            "Bytes received and sent a second, of the whole host.",
            QUERIES["network"],
            "Bps",
            links=links.AT_A_POINT,
            at_least=0,
        ),
        health.panel("disk_full"),
        health.panel("memory_growth"),
        tiles.curves(
            "Threads",
            "Threads of the run's main processes.",
            QUERIES["threads"],
            "none",
            width=8,
            links=links.AT_A_POINT,
            at_least=0,
        ),
        tiles.curves(
            "Run log",
            "Bytes that the run has written to its folder.",
            QUERIES["run_log"],
            "bytes",
            width=8,
            links=links.AT_A_POINT,
            at_least=0,
        ),
    )
