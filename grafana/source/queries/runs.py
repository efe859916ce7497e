"""The queries of the dashboard of all runs."""

from __future__ import annotations

from typing import Final

from grafana.source.fragments import (
    DEFAULT_AXIS,
    MAIN_RANK,
    PROJECTS,
    RUN_LABELS,
    SILENT_CODE,
    STATE_CODES,
    TRAINING,
    VALIDATION,
    WATCHED,
    alerts,
    by_run,
    heartbeat,
    last,
    last_state,
    of_newest_attempt,
    state_then,
    user_metric,
)
from grafana.source.names import metric
from grafana.source.query import Logs, Metrics, Table, now, over_time, rows

STATE: Final = last_state(PROJECTS)
BEGAN: Final = f"min_over_time({heartbeat(PROJECTS)}[$__range])"
ENDED: Final = last(heartbeat(PROJECTS))


def counted(comparison: str) -> str:
    """Return how many runs have a state, or states, of these codes, 0 where there is none."""
    return f"count({STATE} {comparison}) or vector(0)"


def newest(selector: str) -> str:
    """Return the last value of each run's newest attempt."""
    return by_run(of_newest_attempt(last(selector), PROJECTS))


WITH_A_RUN: Final = 'run_id!=""'
# The range of each run as labels, in milliseconds, for the link to it; a run that goes on reaches to now.
FROM: Final = f'count_values by ({RUN_LABELS}) ("from_ms", floor(1000 * {by_run(BEGAN, "min")}) - 5000)'
UNTIL: Final = (
    f'label_replace({STATE} == {STATE_CODES["running"]}, "until_ms", "now", "", "") or on (run_id) '
    f'count_values by ({RUN_LABELS}) ("until_ms", floor(1000 * {by_run(ENDED)}) + 15000)'
)
ALERTS: Final = (
    f"group by ({RUN_LABELS}) ({ENDED}) * on (run_id) group_left () "
    f"count by (run_id) (last_over_time({alerts(WITH_A_RUN)}[$__range]))"
)

QUERIES: Final[Table] = {
    "running": now(counted(f"== {STATE_CODES['running']}")),
    "finished": now(counted(f"== {STATE_CODES['finished']}")),
    "broken": now(counted(f"> {SILENT_CODE}")),
    "firing": now(f"count({alerts()}) or vector(0)"),
    "gpus": now(f"avg({metric('hw.gpu.utilization', PROJECTS)})"),
    "table": rows(
        STATE,
        FROM,
        UNTIL,
        f"1000 * {by_run(BEGAN, 'min')}",
        f"{by_run(ENDED)} - {by_run(BEGAN, 'min')}",
        newest(metric("dl.step", DEFAULT_AXIS, MAIN_RANK, PROJECTS)),
        newest(metric("dl.epoch", DEFAULT_AXIS, MAIN_RANK, PROJECTS)),
        newest(user_metric(WATCHED, TRAINING, MAIN_RANK, PROJECTS)),
        newest(user_metric(WATCHED, VALIDATION, MAIN_RANK, PROJECTS)),
        by_run(f"avg_over_time({metric('hw.gpu.utilization', PROJECTS)}[$__range])", "avg"),
        ALERTS,
        newest(metric("dl.run.progress", MAIN_RANK, PROJECTS)),
    ),
    "states": over_time(state_then(PROJECTS), "{{run_name}}"),
    "losses": over_time(by_run(user_metric(WATCHED, TRAINING, MAIN_RANK, PROJECTS)), "{{run_name}}"),
    "validation": over_time(by_run(user_metric(WATCHED, VALIDATION, MAIN_RANK, PROJECTS)), "{{run_name}}"),
    "gpu": over_time(by_run(metric("hw.gpu.utilization", PROJECTS), "avg"), "{{run_name}}"),
    "memory": over_time(by_run(metric("process.memory.usage", PROJECTS), "sum"), "{{run_name}}"),
    "alerts": (
        Metrics(
            f"max by (alertname, severity, run_id) (last_over_time({alerts()}[$__range]))", instant=True, table=True
        ),
    ),
    "errors": (Logs('{service_name=~"$project"} | run_id!="" | detected_level=~"error|fatal|critical"'),),
}
