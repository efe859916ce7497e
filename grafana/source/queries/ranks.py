"""The queries of the dashboard of a run's ranks: how far apart they are, which is the worst, and on which host."""

from __future__ import annotations

from typing import Final

from grafana.source.fragments import (
    BY_RANK,
    BY_RANK_AND_HOST,
    DEFAULT_AXIS,
    STATE_CODES,
    THIS_RUN,
    TRAINING,
    current,
    heartbeat,
    last,
    of_newest_attempt,
    rate,
)
from grafana.source.names import counter, equal, events, metric
from grafana.source.query import Metrics, Query, Table, lines_of, now, over_time, rows
from otel_train.semconv import STATE

RANK: Final = "rank {{dl_rank}}"
STEP_TIME: Final = metric("dl.step.time", TRAINING, THIS_RUN)
WAIT: Final = metric("dl.data.wait.time", TRAINING, 'clock=""', THIS_RUN)
OWN_WORK: Final = metric("dl.rank.busy.time", TRAINING, THIS_RUN)
BUSY: Final = metric("hw.gpu.utilization", THIS_RUN)
OVER: Final = "[$__rate_interval]"


def each(selector: str, how: str = "max") -> str:
    """Return one series for each rank."""
    return f"{how} by ({BY_RANK}) ({current(selector)})"


def smooth(selector: str) -> str:
    """Return for each rank the mean over at least a minute."""
    return f"avg by ({BY_RANK}) ({current(f'avg_over_time({selector}{OVER})')})"


def spread(per_rank: str) -> tuple[Query, ...]:
    """Return least, median and greatest of the ranks' values at each time."""
    return (
        Metrics(f"min({per_rank})", "least"),
        Metrics(f"quantile(0.5, {per_rank})", "median"),
        Metrics(f"max({per_rank})", "greatest"),
    )


def row(expression: str, how: str = "max") -> str:
    """Return one value for each rank and host, of the newest attempt within the range."""
    return f"{how} by ({BY_RANK_AND_HOST}) ({of_newest_attempt(expression, THIS_RUN)})"


def worst(per_rank: str, pick: str = "topk") -> tuple[Query, ...]:
    """Return the rank with the greatest (or least) value over the range, by name."""
    return now(f"{pick}(1, {per_rank})", "rank {{dl_rank}} on {{host_name}}")


MEAN_STEP_TIME: Final = row(f"avg_over_time({STEP_TIME}[$__range])", "avg")
STATES: Final = row(
    " or ".join(
        f"{code} * ({last(metric('dl.run.state', equal(STATE, state), THIS_RUN))} == 1)"
        for state, code in STATE_CODES.items()
    )
)

QUERIES: Final[Table] = {
    "ranks": now(f"count(count by ({BY_RANK}) ({last(heartbeat(THIS_RUN))}))"),
    "hosts": now(f"count(count by (host_name) ({last(heartbeat(THIS_RUN))}))"),
    "slowest": worst(MEAN_STEP_TIME),
    "fastest": worst(MEAN_STEP_TIME, "bottomk"),
    "imbalance": now(f"max({MEAN_STEP_TIME}) / min({MEAN_STEP_TIME}) - 1"),
    "table": rows(
        STATES,
        row(last(metric("dl.step", DEFAULT_AXIS, THIS_RUN))),
        MEAN_STEP_TIME,
        row(f"avg_over_time({WAIT}[$__range])", "avg"),
        row(f"avg_over_time({BUSY}[$__range])", "avg"),
        row(f"max_over_time({metric('hw.gpu.memory.utilization', THIS_RUN)}[$__range])"),
        row(f"max_over_time({metric('hw.temperature', equal('hw.type', 'gpu'), THIS_RUN)}[$__range])"),
        row(f"max_over_time({metric('process.memory.usage', THIS_RUN)}[$__range])", "sum"),
        f"1000 * {row(last(heartbeat(THIS_RUN)))}",
        row(f"avg_over_time({OWN_WORK}[$__range])", "avg"),
        row(last(metric("dl.rank.straggler", THIS_RUN))),
    ),
    "busy": over_time(smooth(OWN_WORK), RANK),
    "samples": over_time(each(metric("dl.rank.samples_per_second", THIS_RUN)), RANK),
    "beats": over_time(f"min by ({BY_RANK}) (time() - {current(heartbeat(THIS_RUN))})", RANK),
    "ages": over_time(each(metric("dl.step.age", THIS_RUN)), RANK),
    "step_time": over_time(smooth(STEP_TIME), RANK),
    "step_time_spread": spread(smooth(STEP_TIME)),
    "wait": over_time(smooth(WAIT), RANK),
    "lag": over_time(
        f"scalar(max({current(metric('dl.step', DEFAULT_AXIS, THIS_RUN))})) - "
        f"{each(metric('dl.step', DEFAULT_AXIS, THIS_RUN))}",
        RANK,
    ),
    "gpu": over_time(each(BUSY, "avg"), RANK),
    "gpu_spread": spread(each(BUSY, "avg")),
    "gpu_memory": over_time(each(metric("hw.gpu.memory.usage", THIS_RUN)), RANK),
    "temperature": over_time(each(metric("hw.temperature", equal("hw.type", "gpu"), THIS_RUN)), RANK),
    "memory": over_time(each(metric("process.memory.usage", THIS_RUN), "sum"), RANK),
    "host_cpu": over_time(
        f"max by (host_name) ({current(metric('system.cpu.utilization', THIS_RUN))})", "{{host_name}}"
    ),
    "host_network": over_time(
        f"sum by (host_name, network_io_direction) (max by (host_name, network_interface_name, network_io_direction) "
        f"({rate(counter('system.network.io', THIS_RUN))}))",
        "{{host_name}} {{network_io_direction}}",
    ),
    "fallen": lines_of(f'event_name=~"{events("health.hung", "rank.lost", "attempt.ended", "health.straggler")}"'),
    "problems": lines_of('detected_level=~"warn|error|fatal|critical"'),
}
