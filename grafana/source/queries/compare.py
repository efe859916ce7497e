"""The queries of the dashboard that lays several runs over each other."""

from __future__ import annotations

from typing import Final

from grafana.source.fragments import DEFAULT_AXIS, MAIN_RANK, TRAINING, last, named_run, user_metric
from grafana.source.names import counter, events, metric
from grafana.source.query import Metrics, Table, lines_of, over_time, rows
from otel_train.semconv import RUN_ID

RUNS: Final = 'run_id=~"$runs"'
SPLIT: Final = 'split=~"$split"'
STEP: Final = metric("dl.step", DEFAULT_AXIS, SPLIT, MAIN_RANK, RUNS)
STEPS: Final = counter("dl.step.duration", TRAINING, MAIN_RANK, RUNS)
VARIABLE: Final = "$metric"


def by_step(variable: str) -> tuple[Metrics, ...]:
    """Return step and value of each run as rows; the panel joins them by time and run."""
    values = user_metric(variable, DEFAULT_AXIS, SPLIT, MAIN_RANK, RUNS)
    return Metrics(named_run(STEP), table=True), Metrics(named_run(values, "avg"), table=True)


def row(expression: str, how: str = "max") -> str:
    """Return one value for each run, by name and by id."""
    return named_run(expression, how, RUN_ID)


def of_each(selector: str, over: str, how: str = "max") -> str:
    """Return one value for each run, from a function over the dashboard's range."""
    return row(f"{over}({selector}[$__range])", how)


WATCHED_VALUES: Final = user_metric("$measure", DEFAULT_AXIS, SPLIT, MAIN_RANK, RUNS)
HEARTBEAT: Final = metric("dl.run.heartbeat", MAIN_RANK, RUNS)

QUERIES: Final[Table] = {
    "table": rows(
        of_each(WATCHED_VALUES, "last_over_time", "avg"),
        of_each(WATCHED_VALUES, "min_over_time", "min"),
        of_each(WATCHED_VALUES, "max_over_time", "max"),
        row(last(metric("dl.step", DEFAULT_AXIS, MAIN_RANK, RUNS))),
        f"{of_each(HEARTBEAT, 'last_over_time')} - {of_each(HEARTBEAT, 'min_over_time', 'min')}",
        row(last(metric("dl.step.usual_time", MAIN_RANK, RUNS))),
        of_each(metric("hw.gpu.utilization", RUNS), "avg_over_time", "avg"),
        of_each(metric("process.memory.usage", RUNS), "max_over_time"),
    ),
    "watched_by_step": by_step("$measure"),
    "metric_by_step": by_step(VARIABLE),
    "watched_by_time": over_time(named_run(WATCHED_VALUES, "avg"), "{{run}}"),
    "step_time": over_time(
        f"histogram_quantile(0.5, {named_run(f'rate({STEPS}[$__rate_interval])', 'sum')} or {named_run(STEPS, 'sum')})",
        "{{run}}",
    ),
    "gpu": over_time(named_run(metric("hw.gpu.utilization", RUNS), "avg"), "{{run}}"),
    "configurations": lines_of(f'event_name="{events("run.config")}"', run='run_id=~"$runs"', most_lines=50),
    "ends": lines_of(f'event_name=~"{events("run.end", "training.early_stop", "model.best")}"', run='run_id=~"$runs"'),
}
