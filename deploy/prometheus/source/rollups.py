"""Lists the recording rules that roll ranks up into their run: least, median, greatest, and the worst rank by name.

No collective in the training loop is needed for them. The worst rank keeps `dl_rank` and `host_name` as labels.
"""

from __future__ import annotations

from dataclasses import dataclass

from deploy.prometheus.source.alert import Recording
from otel_train.otlp.prometheus_names import known_name

RUN = ("run_id", "run_name", "service_name")
RANK = (*RUN, "dl_rank", "host_name")


@dataclass(frozen=True)
class Rollup:
    """One value of a rank: its name in rules, how it is had, one sentence, and whether less is worse."""

    name: str
    expr: str
    description: str
    worst: str = "topk"


def _by_rank(aggregation: str, metric: str) -> str:
    return f"{aggregation} by ({', '.join(RANK)}) ({known_name(metric)})"


ROLLUPS = (
    Rollup("step_time_seconds", _by_rank("max", "dl.step.usual_time"), "Usual step time of a rank (median)."),
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


def rollup_rules() -> list[Recording]:
    """Return the rules: each value by rank first, then its roll-ups from that."""
    rules = []
    for rollup in ROLLUPS:
        by_rank = f"rank:{rollup.name}"
        run = ", ".join(RUN)
        rules.append(Recording(name=by_rank, expr=rollup.expr, description=rollup.description))
        for name, expr, what in (
            ("min", f"min by ({run}) ({by_rank})", "Least of the ranks."),
            ("median", f"quantile by ({run}) (0.5, {by_rank})", "Median of the ranks."),
            ("max", f"max by ({run}) ({by_rank})", "Greatest of the ranks."),
            ("worst", f"{rollup.worst} by ({run}) (1, {by_rank})", "The worst rank, with dl_rank and host_name."),
        ):
            rules.append(Recording(name=f"run:{rollup.name}:{name}", expr=expr, description=what))
    return rules
