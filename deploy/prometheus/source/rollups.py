"""Lists the recording rules that roll ranks up into their run: least, median, greatest, and the worst rank by name.

No collective in the training loop is needed for them. The worst rank keeps `dl_rank` and `host_name` as labels. What
ranks have of one whole, such as samples a second, is added up.
"""

from __future__ import annotations

from dataclasses import dataclass

from deploy.prometheus.source.alert import Recording
from deploy.prometheus.source.run_alerts import RUNNING_ATTEMPT
from deploy.prometheus.source.series import indent
from otel_train.otlp.prometheus_names import known_name

RUN = ("run_id", "run_name", "service_name")
RANK = (*RUN, "dl_rank", "host_name")


@dataclass(frozen=True)
class Rollup:
    """One value of a rank: its name in rules, how it is had, a sentence, whether less is worse, whether it adds up."""

    name: str
    expr: str
    description: str
    worst: str = "topk"
    adds_up: bool = False


def _by_rank(aggregation: str, metric: str) -> str:
    return f"{aggregation} by ({', '.join(RANK)}) ({known_name(metric)})"


# What a series of the model is of.
LAYERS = ("layer", "model", "optimizer")
TRAINING = '{split="train"}'
STEP_MEDIAN = "rank_attempt:step_time_seconds:median5m"
BUSY_MEDIAN = "rank_attempt:busy_time_seconds:median5m"
# By what factor a rank's own work makes its steps longer than they would be with the work of a quick rank: the lower
# quartile, so that it holds for two ranks, and where half of them are slow. What is spent on communication counts too,
# so in a job that mostly communicates a small difference makes no straggler.
STRAGGLER = f"""(
  {STEP_MEDIAN}
  /
  (
    {STEP_MEDIAN} - {BUSY_MEDIAN}
    + on (run_id, run_attempt) group_left ()
    quantile by (run_id, run_attempt) (0.25, {BUSY_MEDIAN})
  )
)
and on (run_id, run_attempt)
(count by (run_id, run_attempt) ({BUSY_MEDIAN}) > 1)"""

ROLLUPS = (
    Rollup("step_time_seconds", _by_rank("max", "dl.step.usual_time"), "Usual step time of a rank (median)."),
    Rollup(
        "busy_time_seconds",
        f"max by ({', '.join(RANK)}) ({BUSY_MEDIAN})",
        "A rank's own work of a step, without the wait for other ranks (median of five minutes).",
    ),
    Rollup(
        "straggler",
        f"max by ({', '.join(RANK)}) (\n{indent(STRAGGLER)}\n)",
        "By what factor a rank's own work makes its steps longer than they would be among equals.",
    ),
    Rollup(
        "samples_per_second",
        _by_rank("max", "dl.rank.samples_per_second"),
        "Samples a second of a rank.",
        worst="bottomk",
        adds_up=True,
    ),
    Rollup(
        "tokens_per_second",
        _by_rank("max", "dl.rank.tokens_per_second"),
        "Tokens a second of a rank.",
        worst="bottomk",
        adds_up=True,
    ),
    Rollup(
        "process_tree_memory_bytes",
        _by_rank("max", "dl.process_tree.memory"),
        "Memory of a rank's process and its children.",
    ),
    Rollup("data_wait_share", _by_rank("max", "dl.data.wait.share"), "Share of a rank's step time waiting for data."),
    Rollup(
        "gpu_utilization_ratio", _by_rank("avg", "hw.gpu.utilization"), "Utilisation of a rank's GPUs.", worst="bottomk"
    ),
    Rollup("gpu_memory_ratio", _by_rank("max", "hw.gpu.memory.utilization"), "Fullest GPU memory of a rank."),
    Rollup("memory_share", _by_rank("max", "dl.memory.share"), "Memory in use on a rank's host or container."),
    Rollup(
        "heartbeat_age_seconds", f"time() - {_by_rank('max', 'dl.run.heartbeat')}", "Time since a rank's heartbeat."
    ),
)


def _of_attempts() -> list[Recording]:
    """Return what is needed first: medians by rank and attempt, which a killed attempt's last values stay out of."""
    labels = ", ".join(("run_attempt", *RANK))
    return [
        Recording(
            name=name,
            expr=f"max by ({labels}) (quantile_over_time(0.5, {known_name(metric)}{TRAINING}[5m]))\n"
            f"and on (run_id, run_attempt) {RUNNING_ATTEMPT}",
            description=description,
        )
        for name, metric, description in (
            (STEP_MEDIAN, "dl.step.time", "Median step time of a rank over five minutes of an attempt that runs."),
            (BUSY_MEDIAN, "dl.rank.busy.time", "Median own work of a rank's steps over five minutes, of such one."),
        )
    ]


def _of_the_model() -> list[Recording]:
    """Return the norms of the whole model: ranks that hold shards of it have a part of each, and squares add up."""
    labels = ", ".join((*RUN, *LAYERS))
    running = f"and on (run_id, run_attempt) {RUNNING_ATTEMPT}"

    def whole(name: str) -> str:
        return f'max by ({labels}) ({name}{{part=""}} {running})'

    def norm(name: str) -> str:
        return f'sqrt(sum by ({labels}) ({name}{{part="shard"}} ^ 2 {running}))\nor\n{whole(name)}'

    ratio, weight = "dl_update_ratio", 'dl_weight_norm{part="shard"}'
    same = f"on (run_id, run_attempt, dl_rank, {', '.join(LAYERS)})"
    updates = f'sum by ({labels}) (({ratio}{{part="shard"}} * {same} group_left () {weight}) ^ 2 {running})'
    ratios = f"sqrt(\n  {updates}\n  / sum by ({labels}) ({weight} ^ 2 {running})\n)\nor\n{whole(ratio)}"
    return [
        Recording(name="run:grad_norm", expr=norm("dl_grad_norm"), description="Gradient norm, by layer and whole."),
        Recording(name="run:weight_norm", expr=norm("dl_weight_norm"), description="Weight norm, by layer and whole."),
        Recording(name="run:update_ratio", expr=ratios, description="Update ratio, by layer and whole."),
    ]


def rollup_rules() -> list[Recording]:
    """Return the rules: each value by rank first, then its roll-ups from that."""
    rules = [*_of_attempts(), *_of_the_model()]
    for rollup in ROLLUPS:
        by_rank = f"rank:{rollup.name}"
        run = ", ".join(RUN)
        rules.append(Recording(name=by_rank, expr=rollup.expr, description=rollup.description))
        made = [
            ("min", f"min by ({run}) ({by_rank})", "Least of the ranks."),
            ("median", f"quantile by ({run}) (0.5, {by_rank})", "Median of the ranks."),
            ("max", f"max by ({run}) ({by_rank})", "Greatest of the ranks."),
            ("worst", f"{rollup.worst} by ({run}) (1, {by_rank})", "The worst rank, with dl_rank and host_name."),
        ]
        if rollup.adds_up:
            made.append(("sum", f"sum by ({run}) ({by_rank})", "All ranks together: that of the job."))
        for name, expr, what in made:
            rules.append(Recording(name=f"run:{rollup.name}:{name}", expr=expr, description=what))
    return rules
