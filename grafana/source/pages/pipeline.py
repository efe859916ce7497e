"""Lays out the dashboard of the stack's own health, in the order in which data passes through it."""

from __future__ import annotations

from typing import Final

from grafana.source import links, looks, tiles, variables
from grafana.source.board import dashboard
from grafana.source.grid import Grid
from grafana.source.queries.pipeline import QUERIES

LOST: Final[dict[float, str]] = {1: "red"}


def page() -> str:
    """Return the dashboard's JSON."""
    grid = Grid()
    grid.add(
        tiles.number(
            "Programs",
            "Whether each program of the stack answers when Prometheus asks it.",
            QUERIES["up"],
            "none",
            width=9,
            mapping=looks.up_mapping(),
            names=True,
            limits={1: "green"},
        ),
        tiles.number(
            "Refused",
            "Items that the Collector refused within the range, for lack of memory say. Senders send them again.",
            QUERIES["refused"],
            "locale",
            decimals=0,
            limits=LOST,
        ),
        tiles.number(
            "Not delivered",
            "Items that the Collector gave up within the range: a store refused them for good.",
            QUERIES["failed"],
            "locale",
            decimals=0,
            limits=LOST,
        ),
        tiles.number(
            "Discarded",
            "Records and spans that Loki and Tempo discarded, and points whose times Prometheus does not take.",
            QUERIES["discarded"],
            "locale",
            decimals=0,
            limits=LOST,
        ),
        tiles.number(
            "Fullest queue",
            "Share of the Collector's fullest queue that is in use. A queue that fills belongs to a store that is"
            " away.",
            QUERIES["queue_share"],
            "percentunit",
            decimals=0,
            limits={0.5: "orange", 0.8: "red"},
        ),
        tiles.number("Alerts", "Alerts that fire, of runs and of the stack.", QUERIES["firing"], "none", limits=LOST),
    )
    grid.row("Training processes")
    grid.add(
        tiles.curves(
            "Recorded",
            "Points, log records and spans a second, by what became of them in the process.",
            QUERIES["points"],
            "none",
            width=6,
            at_least=0,
        ),
        tiles.curves(
            "Sent by runs",
            "Items a second by what became of them at the first hop.",
            QUERIES["sent_by_runs"],
            "none",
            width=6,
            at_least=0,
        ),
        tiles.curves(
            "Waiting in run logs",
            "Bytes on the disks of training processes that no server has acknowledged yet. They are sent when it "
            "answers again.",
            QUERIES["waiting"],
            "bytes",
            width=6,
            at_least=0,
        ),
        tiles.curves(
            "Sent again",
            "Requests a second that had to be sent again.",
            QUERIES["retries"],
            "none",
            width=6,
            at_least=0,
        ),
    )
    grid.row("Collector")
    grid.add(
        tiles.curves("Accepted", "Items a second that came in.", QUERIES["accepted"], "none", at_least=0),
        tiles.curves("Sent", "Items a second that the stores took.", QUERIES["sent"], "none", at_least=0),
        tiles.curves(
            "Queues",
            "Items that wait for a store, and how many there is room for.",
            QUERIES["queue"],
            "locale",
            at_least=0,
        ),
        tiles.curves(
            "Refused", "Items a second that were refused on arrival.", QUERIES["refused_then"], "none", at_least=0
        ),
        tiles.curves(
            "Not delivered", "Items a second that a store refused for good.", QUERIES["failed_then"], "none", at_least=0
        ),
        tiles.timeline(
            "Programs over time",
            "Whether each program answered when Prometheus asked it.",
            QUERIES["up_then"],
            looks.up_mapping(),
            width=8,
        ),
    )
    grid.row("Stores")
    grid.add(
        tiles.curves(
            "Prometheus: points", "Points a second that were stored.", QUERIES["samples"], "none", width=6, at_least=0
        ),
        tiles.curves(
            "Prometheus: series",
            "Series in memory. A label with many values shows here first.",
            QUERIES["series"],
            "locale",
            width=6,
            at_least=0,
        ),
        tiles.curves(
            "Prometheus: disk", "Bytes of the blocks on disk.", QUERIES["blocks"], "bytes", width=6, at_least=0
        ),
        tiles.curves(
            "Prometheus: rules",
            "How long the slowest group of rules took, and rules that failed.",
            QUERIES["rules"],
            "s",
            width=6,
            units={"failures a second": "none"},
            at_least=0,
        ),
        tiles.curves(
            "Loki",
            "Log records a second, and those discarded, by reason.",
            QUERIES["loki_lines"],
            "none",
            width=6,
            at_least=0,
        ),
        tiles.curves(
            "Tempo",
            "Spans a second, and those discarded, by reason.",
            QUERIES["tempo_spans"],
            "none",
            width=6,
            at_least=0,
        ),
        tiles.curves(
            "Alertmanager: notifications",
            "Notifications a second by receiver, and those that failed.",
            QUERIES["notifications"],
            "none",
            width=6,
            at_least=0,
        ),
        tiles.curves(
            "Alertmanager: alerts",
            "Alerts that it holds, by state.",
            QUERIES["alerts_held"],
            "none",
            width=6,
            at_least=0,
        ),
    )
    grid.row("What the stack takes")
    grid.add(
        tiles.curves("Memory", "Resident memory of each program.", QUERIES["collector_memory"], "bytes", at_least=0),
        tiles.curves("CPU", "Processors that each program keeps busy.", QUERIES["cpu"], "none", at_least=0),
        tiles.curves(
            "Scrapes", "How long each program took to answer Prometheus.", QUERIES["scrapes"], "s", at_least=0
        ),
    )
    return dashboard(
        links.PIPELINE,
        "otel-train: Pipeline",
        "The stack's own health: Collector, Prometheus, Loki, Tempo, Alertmanager, and what runs wait to send.",
        grid,
        variables=variables.sources(),
        since="now-1h",
        refresh="30s",
    )
