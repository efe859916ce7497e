"""Lays out the dashboard of one run: from its state down to the spans of single steps."""

from __future__ import annotations

from grafana.source import links, looks, marks, tiles, variables
from grafana.source.board import dashboard
from grafana.source.fragments import THIS_RUN
from grafana.source.grid import Grid
from grafana.source.pages import health, machine, records
from grafana.source.queries.run import QUERIES

BY_STEP = (
    " The x axis is the step. At each step the last value within the range counts, so a panel shows no more points "
    "than it is wide: choose a shorter range to see each one."
)
GAPS = " Values that are not finite are gaps; they are counted among the watched values."


def head(grid: Grid) -> None:
    """Place what is known at a glance."""
    grid.add(
        tiles.number(
            "State",
            'State of the newest attempt; "silent": it runs, and has not been alive for two minutes.',
            QUERIES["state"],
            "none",
            width=4,
            mapping=looks.state_mapping(),
            names=True,
        ),
        tiles.number(
            "Progress",
            "Share of the training that is done: of the epochs that `run.epochs` was given, or of one loop of "
            "`run.steps`. Unknown where the script counts its epochs by hand.",
            QUERIES["progress"],
            "percentunit",
            decimals=0,
        ),
        tiles.number(
            "Time left",
            "How long the rest takes at the pace of the last quarter of an hour, evaluations and pauses included; "
            "while the run goes on.",
            QUERIES["left"],
            "dtdurations",
        ),
        tiles.number("Step", "The last step, by the run's own count.", QUERIES["step"], "locale", decimals=0),
        tiles.number(
            "Epoch", "The last epoch, where the script counts epochs.", QUERIES["epoch"], "none", width=2, decimals=0
        ),
        tiles.number("$measure, training", "The last value that training logged.", QUERIES["train"], "none"),
        tiles.number("$measure, validation", "The last value that validation logged.", QUERIES["validation"], "none"),
        tiles.number(
            "Lasted",
            "From the first to the last sign of life within the range, all attempts together.",
            QUERIES["lasted"],
            "dtdurations",
        ),
        tiles.cells(
            "Attempts",
            "Project, name, attempts and size of the run, and the host of its first rank.",
            QUERIES["identity"],
            {
                "job": "Project",
                "run_name": "Name",
                "run_id": "run_id",
                "run_attempt": "Attempt",
                "dl_world_size": "Ranks",
                "host_name": "Host of rank 0",
                "Value": "Last alive",
            },
            {"Last alive": {"unit": "dateTimeAsIso"}},
            width=15,
            height=4,
            sort=("Attempt", True),
        ),
        tiles.number(
            "Last alive",
            "When the process was last known to be alive: a heartbeat comes every 15 s.",
            QUERIES["seen"],
            "dateTimeFromNow",
            width=3,
        ),
        tiles.number(
            "Alerts",
            "Kinds of alerts that fired within the range.",
            QUERIES["alerts"],
            "none",
            width=3,
            limits={1: "red"},
        ),
        tiles.number(
            "Not finite",
            "Logged values that were NaN or infinite.",
            QUERIES["nonfinite"],
            "none",
            width=3,
            limits={1: "red"},
        ),
    )


def learning(grid: Grid) -> None:
    """Place what was logged, by time and by step, and what is watched of it."""
    grid.row("Is it learning?")
    grid.add(
        tiles.curves(
            "$measure by time",
            "The chosen metric: training, validation and test together." + GAPS,
            QUERIES["watched_by_time"],
            "none",
            width=12,
            height=9,
            interval=tiles.FINEST,
            calculations=("lastNotNull", "min", "max"),
            links=links.AT_A_POINT,
        ),
        tiles.by_step(
            "$measure by step",
            "The chosen metric: training, validation and test together." + BY_STEP,
            QUERIES["watched_by_step"],
            "none",
            links=links.AT_A_STEP,
        ),
    )
    grid.row("Every metric by time")
    grid.add(
        tiles.curves(
            "$metric",
            "One of the metrics that the run logged: by split, and by axis where it has one of its own." + GAPS,
            QUERIES["metric_by_time"],
            "none",
            width=6,
            height=7,
            interval=tiles.FINEST,
            links=links.AT_A_POINT,
            repeat="metric",
        ),
    )
    grid.row("Every metric by step")
    grid.add(
        tiles.by_step(
            "$metric by step",
            "One of the metrics that the run logged, by split." + BY_STEP,
            QUERIES["metric_by_step"],
            "none",
            width=6,
            height=7,
            links=links.AT_A_STEP,
            repeat="metric",
        ),
    )
    grid.row("Watched values and their alerts")
    grid.add(*health.panels(health.LEARNING))


def speed(grid: Grid) -> None:
    """Place how fast the run goes, and what holds it up."""
    grid.row("How fast is it?")
    grid.add(
        tiles.curves(
            "Step time",
            "Duration of training steps with their wait for data, by the host's clock. A point beside the curves "
            "is a step that has a trace: click it.",
            QUERIES["step_time"],
            "s",
            width=12,
            height=9,
            links=links.AT_A_POINT,
            at_least=0,
        ),
        tiles.curves(
            "Where a step's time goes",
            "Mean time within each phase, and waiting for data, over at least a minute. What is missing to the "
            "step time is outside of phases.",
            QUERIES["phases"],
            "s",
            width=12,
            height=9,
            links=links.AT_A_POINT,
            stacked=True,
        ),
        tiles.curves(
            "Steps a second",
            "Steps that ended a second, by split.",
            QUERIES["steps_a_second"],
            "none",
            links=links.AT_A_POINT,
            at_least=0,
        ),
        tiles.curves(
            "Step and epoch",
            "How far the run is.",
            QUERIES["steps_and_epochs"],
            "none",
            interval=tiles.FINEST,
            units={"epoch": "none"},
            links=links.AT_A_POINT,
        ),
        tiles.curves(
            "Checkpoints",
            "How long a save took, and how large the file is.",
            QUERIES["checkpoints"],
            "s",
            units={"size": "bytes"},
            links=links.AT_A_POINT,
            at_least=0,
        ),
        *health.panels(health.GOING_ON),
    )


def page() -> str:
    """Return the dashboard's JSON."""
    grid = Grid()
    for part in (head, learning, speed, machine.place, records.place):
        part(grid)
    return dashboard(
        links.RUN,
        "otel-train: Run",
        "One run: state, learning, speed, machine, logs and traces.",
        grid,
        variables=[
            *variables.sources(),
            variables.run(),
            variables.project_of_the_run(),
            variables.measure(THIS_RUN),
            variables.every_metric(THIS_RUN),
        ],
        annotations=marks.of_one_run(),
        since="now-1h",
        refresh="10s",
    )
