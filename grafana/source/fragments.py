"""Builds the pieces that many PromQL queries share: the last value of a run, its newest attempt, its state."""

from __future__ import annotations

from typing import Final

from grafana.source.names import equal, foreign, like, metric
from otel_train.semconv import ALERT, HOST_NAME, RANK, RUN_ID, RUN_NAME, SPLIT, STATE

THIS_RUN: Final = equal(RUN_ID, "$run_id")
PROJECTS: Final = 'job=~"$project"'
# By these a run's row in a table is known; the same in each query of the table, or the rows do not meet.
RUN_LABELS: Final = "job, run_id, run_name"
# What rank 0 alone logs. A producer without ranks has no such label.
MAIN_RANK: Final = like(RANK, "0|")
TRAINING: Final = like(SPLIT, "train|")
VALIDATION: Final = equal(SPLIT, "val")
DEFAULT_AXIS: Final = 'axis=""'
# Heartbeats come every 15 s; what has been silent for longer than this is not running, whatever it said last.
SILENT_S: Final = 120
SILENT_CODE: Final = 4
# A run's state as a number: of several ranks the greatest counts. SILENT_CODE is that of a run which fell silent; what
# is greater did not end well.
STATE_CODES: Final = {"finished": 1, "running": 2, "interrupted": 3, "killed": 5, "lost": 6, "failed": 7}

WATCHED: Final = "$measure"


def user_metric(variable: str, *matchers: str) -> str:
    """Return a selector of the metric that a variable of the dashboard names."""
    return f'{{__name__="{variable}",{",".join(matchers)}}}'


def last(selector: str) -> str:
    """Return the last value within the dashboard's range: that of an ended run too."""
    return f"last_over_time({selector}[$__range])"


def by_run(expression: str, how: str = "max") -> str:
    """Return one value for each run."""
    return f"{how} by ({RUN_LABELS}) ({expression})"


def heartbeat(*matchers: str) -> str:
    """Return the selector of the series that says when a process was last alive."""
    return metric("dl.run.heartbeat", *matchers)


def newest_attempt(*matchers: str) -> str:
    """Return for each run the attempt that was alive last within the range."""
    return f"topk by (run_id) (1, max by (run_id, run_attempt) ({last(heartbeat(*matchers))}))"


def of_newest_attempt(expression: str, *matchers: str) -> str:
    """Return what of an expression over the range belongs to each run's newest attempt."""
    return f"({expression}) and on (run_id, run_attempt) {newest_attempt(*matchers)}"


def current(expression: str) -> str:
    """Return what of an expression, at each time, belongs to the attempt of this run that was alive then.

    A killed attempt's last values stay in queries for five minutes, beside those of the attempt that follows.
    """
    alive = f"topk(1, max by (run_attempt) ({heartbeat(THIS_RUN)}))"
    return f"({expression}) and on (run_attempt) {alive}"


def _state(state: str, *matchers: str) -> str:
    return metric("dl.run.state", equal(STATE, state), *matchers)


def last_state(*matchers: str) -> str:
    """Return the state of each run's newest attempt as a number of `STATE_CODES`."""
    running = f"{last(_state('running', *matchers))} == 1"
    # Before the running ones: of two with the same labels `or` takes the first.
    silent = (
        f"{SILENT_CODE} * ({running} and on (run_id, run_attempt, dl_rank) "
        f"time() - {last(heartbeat(*matchers))} > {SILENT_S})"
    )
    parts = [f"{code} * ({last(_state(state, *matchers))} == 1)" for state, code in STATE_CODES.items()]
    return by_run(of_newest_attempt(" or ".join([silent, *parts]), *matchers))


def state_then(*matchers: str) -> str:
    """Return the state of each run at each time, as a number of `STATE_CODES`."""
    parts = [f"{code} * ({_state(state, *matchers)} == 1)" for state, code in STATE_CODES.items()]
    return by_run(" or ".join(parts))


def threshold(condition: str) -> str:
    """Return this run's threshold of a condition; nothing where it is switched off (+Inf, or 0)."""
    return f"max by (alert) ({metric('dl.alert.threshold', THIS_RUN, equal(ALERT, condition))}) > 0 < Inf"


def named_split(expression: str) -> str:
    """Return series whose split is named "value" where they have none, so that each has a name in the legend."""
    return f'label_replace({expression}, "split", "value", "split", "")'


def named_run(expression: str, how: str = "max", *more_labels: str) -> str:
    """Return one value for each run under a label `run` of its name and id: two runs may have the same name."""
    labels = ", ".join(("run", *more_labels))
    return f'{how} by ({labels}) (label_join({expression}, "run", " ", "{RUN_NAME}", "{RUN_ID}"))'


def rate(selector: str) -> str:
    """Return the increase a second of a counter, over at least four of its points."""
    return f"rate({selector}[$__rate_interval])"


def alerts(*matchers: str) -> str:
    """Return the alerts that fire."""
    return foreign("ALERTS", 'alertstate="firing"', *matchers)


BY_RANK: Final = "dl_rank"
BY_RANK_AND_HOST: Final = f"{BY_RANK}, {HOST_NAME.replace('.', '_')}"
