"""The queries of the panels that draw a watched value with the run's own threshold, from the table of conditions."""

from __future__ import annotations

from typing import Final

from grafana.source.fragments import THIS_RUN, current, heartbeat, threshold
from grafana.source.names import counter, equal, foreign, like, metric
from grafana.source.query import Metrics, Query, Table
from otel_train.semconv import METRIC, SPLIT
from otel_train.watch.conditions import CONDITIONS

# How the threshold's line is called, in all panels.
THRESHOLD: Final = "alert threshold"
GPU: Final = "dl_rank, index"
GPU_LEGEND: Final = "rank {{dl_rank}} GPU {{index}}"
# The driver's reasons that slow a card down without anybody's wish.
FAULTS: Final = "hw_slowdown|hw_thermal_slowdown|sw_thermal_slowdown|hw_power_brake_slowdown"


def value(name: str, labels: str = "", legend: str = "", how: str = "max") -> Metrics:
    """Return the values that a condition compares, by these labels."""
    condition = CONDITIONS[name]
    selector = metric(condition.metric, *(equal(key, text) for key, text in condition.where), THIS_RUN)
    by = f" by ({labels})" if labels else ""
    return Metrics(f"{how}{by} ({current(selector)})", legend or condition.unit)


def with_threshold(name: str, *values: Query) -> tuple[Query, ...]:
    """Return these queries and the threshold's."""
    return (*values, Metrics(threshold(name), THRESHOLD))


def rise(selector: str, by: str) -> str:
    """Return how much a counter rose within the range up to each time."""
    return f"sum by ({by}) (increase({selector}[$__range]))"


def series(condition: str) -> tuple[Query, ...]:
    """Return the queries of one condition's panel."""
    return with_threshold(condition, value(condition))


QUERIES: Final[Table] = {
    "plateau": with_threshold("plateau", value("plateau", f"{METRIC}, {SPLIT}", "{{metric}} {{split}}")),
    "overfit": with_threshold("overfit", value("overfit", METRIC, "{{metric}}")),
    "nonfinite": with_threshold(
        "nonfinite",
        Metrics(
            f"sum by ({METRIC}, {SPLIT}, kind) ({current(counter('dl.nonfinite', THIS_RUN))})",
            "{{metric}} {{split}} {{kind}}",
        ),
    ),
    "gradient_exploding": with_threshold(
        "gradient_exploding", value("gradient_exploding", METRIC, "{{metric}} by its usual norm")
    ),
    "gradient_vanishing": with_threshold(
        "gradient_vanishing",
        value("gradient_vanishing", METRIC, "{{metric}}: greatest of late, least of the layers", how="min"),
        Metrics(f"max by ({METRIC}) ({current(metric('dl.grad.usual', THIS_RUN))})", "{{metric}}: median"),
    ),
    "stalled": with_threshold("stalled", value("stalled", "dl_rank", "rank {{dl_rank}}")),
    "lost": with_threshold(
        "lost", Metrics(f"min by (dl_rank) (time() - {current(heartbeat(THIS_RUN))})", "rank {{dl_rank}}")
    ),
    "data_wait": with_threshold("data_wait", value("data_wait", "dl_rank", "rank {{dl_rank}}")),
    "hung": with_threshold("hung", value("hung", "dl_rank", "rank {{dl_rank}}")),
    "rank_lost": with_threshold(
        "rank_lost", Metrics(f"min by (dl_rank) (time() - {current(heartbeat(THIS_RUN))})", "rank {{dl_rank}}")
    ),
    "straggler": with_threshold(
        "straggler",
        Metrics(
            f"max by (dl_rank) ({foreign('rank:straggler', THIS_RUN)}) or "
            f"max by (dl_rank) ({current(metric('dl.rank.straggler', THIS_RUN))})",
            "rank {{dl_rank}}",
        ),
    ),
    "dead_units": with_threshold("dead_units", value("dead_units", "layer, model", "{{layer}} {{model}}")),
    "amp_skipping": with_threshold(
        "amp_skipping", value("amp_skipping", "optimizer, model", "{{optimizer}} {{model}}")
    ),
    "samples_bad": with_threshold("samples_bad", value("samples_bad", SPLIT, "{{split}}")),
    "samples_drift": with_threshold("samples_drift", value("samples_drift", SPLIT, "{{split}}")),
    # Nothing while it does not grow.
    "memory_growth": with_threshold(
        "memory_growth",
        Metrics(f"min by (host_name) ({current(metric('dl.memory.time_to_full', THIS_RUN))}) < Inf", "{{host_name}}"),
    ),
    "gpu_idle": with_threshold(
        "gpu_idle",
        Metrics(f"max by ({GPU}) ({current(metric('hw.gpu.utilization', THIS_RUN))})", f"{GPU_LEGEND} now"),
        value("gpu_idle", GPU, f"{GPU_LEGEND} over minutes"),
    ),
    "gpu_hot": with_threshold("gpu_hot", value("gpu_hot", GPU, GPU_LEGEND)),
    "gpu_throttled": with_threshold(
        "gpu_throttled",
        Metrics(
            f"max by ({GPU}, reason) ({current(metric('hw.gpu.throttled', like('reason', FAULTS), THIS_RUN))})",
            f"{GPU_LEGEND} {{{{reason}}}}",
        ),
    ),
    "gpu_ecc": with_threshold(
        "gpu_ecc",
        Metrics(
            rise(counter("hw.errors", equal("error.type", "uncorrected"), equal("hw.type", "gpu"), THIS_RUN), GPU),
            GPU_LEGEND,
        ),
    ),
    "disk_full": with_threshold("disk_full", value("disk_full", "host_name", "{{host_name}}")),
    "memory_full": with_threshold(
        "memory_full",
        value("memory_full", "host_name", "{{host_name}}"),
        Metrics(
            f"max by (host_name) ({current(metric('system.memory.utilization', THIS_RUN))})", "{{host_name}}: host"
        ),
    ),
}
