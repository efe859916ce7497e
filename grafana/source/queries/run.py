"""The queries of the dashboard of one run: what it is, how it learns, how fast it goes."""

from __future__ import annotations

from typing import Final

from grafana.source.fragments import (
    DEFAULT_AXIS,
    MAIN_RANK,
    RUN_LABELS,
    THIS_RUN,
    TRAINING,
    VALIDATION,
    WATCHED,
    alerts,
    current,
    heartbeat,
    last,
    last_state,
    named_split,
    of_newest_attempt,
    rate,
    user_metric,
)
from grafana.source.names import counter, equal, events, metric
from grafana.source.query import Metrics, Table, Traces, lines_of, now, over_time, rows
from otel_train.semconv import ANNOUNCES, CLOCK, EPOCH, PHASE, SPLIT, STATE, STEP

EVERY: Final = "$metric"
# Two keys that a store would spell alike are told apart by a label.
ONE_KEY: Final = 'key=""'
# Of the heartbeats: the first, and the last, of all attempts.
BEGAN: Final = f"min(min_over_time({heartbeat(THIS_RUN)}[$__range]))"
ENDED: Final = f"max({last(heartbeat(THIS_RUN))})"
STEP_NOW: Final = metric("dl.step", DEFAULT_AXIS, MAIN_RANK, THIS_RUN)
PROGRESS: Final = metric("dl.run.progress", MAIN_RANK, THIS_RUN)
STEP_DURATION: Final = counter("dl.step.duration", TRAINING, THIS_RUN)
# Where there is a wait by the device's clock beside it, the host's is the one that all runs have.
WAIT: Final = metric("dl.data.wait.time", TRAINING, equal(CLOCK, ""), THIS_RUN)
LIFECYCLE: Final = events(
    "run.start",
    "run.resumed",
    "run.end",
    "stage.start",
    "stage.end",
    "checkpoint.saved",
    "checkpoint.loaded",
    "model.best",
    "training.early_stop",
    "dataset.described",
)


def newest(selector: str, how: str = "max") -> str:
    """Return the last value of the run's newest attempt."""
    return f"{how}({of_newest_attempt(last(selector), THIS_RUN)})"


def by_split(variable: str, *matchers: str) -> str:
    """Return a user's metric by split, of the attempt that was alive at each time."""
    return named_split(f"avg by (split) ({current(user_metric(variable, *matchers, THIS_RUN))})")


def by_time(variable: str) -> tuple[Metrics, ...]:
    """Return all series of a user's metric: by split, and what an axis or a like-spelled key of its own sets apart."""

    def apart(*matchers: str) -> str:
        return f"avg by (split, axis, key) ({current(user_metric(variable, *matchers, THIS_RUN))})"

    return (
        Metrics(by_split(variable, DEFAULT_AXIS, ONE_KEY), "{{split}}"),
        Metrics(apart('axis!=""'), "{{split}} by {{axis}}"),
        Metrics(apart(DEFAULT_AXIS, 'key!=""'), "{{key}} {{split}}"),
    )


def by_step(variable: str) -> tuple[Metrics, ...]:
    """Return a user's metric by split, and the step beside it, which becomes the x axis."""
    step = Metrics(f"max({current(STEP_NOW)})", "step")
    return Metrics(by_split(variable, DEFAULT_AXIS, ONE_KEY), "{{split}}"), step


def duration(share: float) -> str:
    """Return a quantile of the step's duration; of all steps so far where a rate has too few points."""
    buckets = f"sum by (split) ({rate(STEP_DURATION)}) or sum by (split) ({STEP_DURATION})"
    return f"histogram_quantile({share}, {buckets})"


# What Tempo is asked for, and which attributes become columns.
OF_RUN: Final = 'resource.run_id = "$run_id"'
OF_STEP: Final = f"select(name, span.{STEP}, span.{EPOCH}, span.dl.sampled_because)"

QUERIES: Final[Table] = {
    # The run
    "state": now(last_state(THIS_RUN), "{{run_name}}"),
    "step": now(newest(STEP_NOW)),
    "epoch": now(newest(metric("dl.epoch", DEFAULT_AXIS, MAIN_RANK, THIS_RUN))),
    "train": now(newest(user_metric(WATCHED, TRAINING, MAIN_RANK, THIS_RUN))),
    "validation": now(newest(user_metric(WATCHED, VALIDATION, MAIN_RANK, THIS_RUN))),
    "progress": now(newest(PROGRESS)),
    # At the pace of the last quarter of an hour, evaluations and pauses included.
    "left": now(
        f"max by (run_id) ((1 - {last(PROGRESS)}) / (deriv({PROGRESS}[15m]) > 0)) "
        f"and on (run_id) max by (run_id) ({last(metric('dl.run.state', equal(STATE, 'running'), THIS_RUN))}) == 1"
    ),
    "lasted": now(f"{ENDED} - {BEGAN}"),
    "seen": now(f"1000 * {ENDED}"),
    "alerts": now(f"count(max by (alertname) (last_over_time({alerts(THIS_RUN)}[$__range]))) or vector(0)"),
    "nonfinite": now(f"sum({last(counter('dl.nonfinite', THIS_RUN))}) or vector(0)"),
    "identity": rows(
        f"max by ({RUN_LABELS}, run_attempt, dl_world_size, host_name) ({last(heartbeat(MAIN_RANK, THIS_RUN))}) * 1000"
    ),
    # How it learns
    "watched_by_time": by_time(WATCHED),
    "watched_by_step": by_step(WATCHED),
    "metric_by_time": by_time(EVERY),
    "metric_by_step": by_step(EVERY),
    # How fast it goes
    "step_time": (
        Metrics(duration(0.5), "median", exemplars=True),
        Metrics(duration(0.95), "95 of 100 are faster"),
        Metrics(f"max({current(metric('dl.step.usual_time', THIS_RUN))})", "usual"),
    ),
    "phases": over_time(
        f"avg by ({PHASE}) (avg_over_time({metric('dl.phase.time', TRAINING, THIS_RUN)}[$__rate_interval]))",
        "{{phase}}",
    )
    + over_time(
        f"avg(avg_over_time({WAIT}[$__rate_interval]))",
        "wait for data",
    ),
    "steps_a_second": over_time(
        f"sum by (split) (histogram_count({rate(counter('dl.step.duration', THIS_RUN, MAIN_RANK))}))", "{{split}}"
    ),
    "steps_and_epochs": over_time(f"max({current(STEP_NOW)})", "step")
    + over_time(f"max({current(metric('dl.epoch', DEFAULT_AXIS, MAIN_RANK, THIS_RUN))})", "epoch"),
    "checkpoints": over_time(f"max({current(metric('dl.checkpoint.time', THIS_RUN))})", "duration")
    + over_time(f"max({current(metric('dl.checkpoint.size', THIS_RUN))})", "size"),
    # What it said
    "problems": lines_of('detected_level=~"warn|error|fatal|critical"'),
    "lifecycle": lines_of(f'event_name=~"{LIFECYCLE}"'),
    "health": lines_of('event_name=~"health[.].+"'),
    # Its spans
    # A search gives of each trace the spans of one block only, so the beginning of a stage is asked for by itself.
    "stages": (Traces(f"{{ {OF_RUN} && span.dl.stage.status != nil }} | select(name, span.dl.stage.status)"),),
    "begun": (Traces(f"{{ {OF_RUN} && span.{ANNOUNCES} != nil }} | select(name, span.{EPOCH})"),),
    "epochs": (
        Traces(
            f'{{ {OF_RUN} && name =~ "epoch|evaluation|checkpoint" }}'
            f" | select(name, span.{EPOCH}, span.{STEP}, span.{SPLIT})"
        ),
    ),
    "slow_steps": (Traces(f'{{ {OF_RUN} && name = "step" && span.dl.sampled_because != "sampled" }} | {OF_STEP}'),),
    "steps": (Traces(f'{{ {OF_RUN} && name = "step" }} | {OF_STEP}'),),
}
