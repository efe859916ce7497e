"""The queries of what a run looks like inside: its model by layer, its data, its speed, its time and its memory."""

from __future__ import annotations

from typing import Final

from grafana.source.fragments import MAIN_RANK, THIS_RUN, TRAINING, current, rate
from grafana.source.names import counter, equal, events, metric
from grafana.source.query import Metrics, Query, Table, lines_of, over_time
from otel_train.semconv import CLOCK, LAYER, SPLIT, STATE

# Of a model that ranks divide (FSDP), each has a part of every norm.
SHARD: Final = 'part="shard"'
WHOLE_MODEL: Final = 'part=""'
EACH_LAYER: Final = f'{LAYER}!=""'
ALL_LAYERS: Final = f'{LAYER}=""'
OF: Final = "layer, model, optimizer"
NAMED: Final = "{{layer}} {{model}} {{optimizer}}"
# Samplings may lie minutes apart.
SAMPLINGS: Final = "[15m]"
HAPPENED: Final = events(
    "gradient.nonfinite",
    "health.nonfinite",
    "health.dead_units",
    "health.amp_skipping",
    "health.gradient_exploding",
    "health.gradient_vanishing",
    "health.samples_bad",
    "health.samples_drift",
    "health.data_loading",
    "data.worker_died",
    "samples.checked",
    "health.out_of_memory",
    "health.memory_growth",
)


def norm(name: str, layers: str) -> str:
    """Return a norm by layer; squares of shards add up."""
    shards = f"sqrt(sum by ({OF}) (({current(metric(name, layers, SHARD, THIS_RUN))}) ^ 2))"
    return f"{shards} or max by ({OF}) ({current(metric(name, layers, WHOLE_MODEL, THIS_RUN))})"


def ratio() -> str:
    """Return the update ratio by layer; of shards, by the squares of their updates and of their weights."""
    updates = f"({current(metric('dl.update.ratio', SHARD, THIS_RUN))})"
    weights = f"({current(metric('dl.weight.norm', SHARD, THIS_RUN))})"
    shards = f"sqrt(sum by ({OF}) (({updates} * {weights}) ^ 2) / sum by ({OF}) ({weights} ^ 2))"
    return f"{shards} or max by ({OF}) ({current(metric('dl.update.ratio', WHOLE_MODEL, THIS_RUN))})"


def of_the_model(name: str, *matchers: str) -> str:
    """Return a value by layer, of the rank that has the greatest."""
    return f"max by ({OF}) ({current(metric(name, *matchers, THIS_RUN))})"


def distribution(name: str) -> tuple[Query, ...]:
    """Return the distribution of one layer over time: of the samplings of a quarter of an hour, else of all so far."""
    selector = counter(name, equal(LAYER, "$layer"), THIS_RUN)
    lately = f"sum(rate({selector}{SAMPLINGS}))"
    return (Metrics(f"{lately} or sum({selector})", "{{le}}", heatmap=True),)


def per_batch(name: str, legend: str, *matchers: str) -> tuple[Query, ...]:
    """Return the mean of a batch's time over at least a minute."""
    return over_time(f"avg(avg_over_time({metric(name, TRAINING, *matchers, THIS_RUN)}[$__rate_interval]))", legend)


def samples(name: str, legend: str = "{{split}}") -> tuple[Query, ...]:
    """Return a value of the checks of samples, by split."""
    return over_time(f"max by ({SPLIT}) ({current(metric(name, THIS_RUN))})", legend)


def rates(of_ranks: str, of_job: str) -> tuple[Query, ...]:
    """Return each rank's rate, the sum of all, and what rank 0 takes for the job's."""
    ranks = current(metric(of_ranks, THIS_RUN))
    return (
        Metrics(f"sum({ranks})", "all ranks together"),
        Metrics(f"max by (dl_rank) ({ranks})", "rank {{dl_rank}}"),
        Metrics(f"max({current(metric(of_job, THIS_RUN))})", "job, by rank 0"),
    )


QUERIES: Final[Table] = {
    # The model
    "grad_norm": over_time(norm("dl.grad.norm", ALL_LAYERS), f"before clipping {NAMED}")
    + over_time(of_the_model("dl.grad.norm.clipped"), f"what the optimizer got {NAMED}"),
    "grad_norm_by_layer": over_time(norm("dl.grad.norm", EACH_LAYER), NAMED),
    "weight_norm_by_layer": over_time(norm("dl.weight.norm", EACH_LAYER), NAMED),
    "update_ratio": over_time(ratio(), NAMED),
    "activation_mean": over_time(of_the_model("dl.activation.mean"), NAMED),
    "activation_std": over_time(of_the_model("dl.activation.std"), NAMED),
    "dead_now": over_time(of_the_model("dl.activation.dead"), NAMED),
    "amp_scale": over_time(of_the_model("dl.amp.scale"), f"scale {NAMED}"),
    "skipped": over_time(f"max by ({OF}) ({current(counter('dl.optimizer.skipped', THIS_RUN))})", f"skipped {NAMED}"),
    "nonfinite_gradients": over_time(
        f"max by ({OF}) ({current(counter('dl.grad.nonfinite', THIS_RUN))})", f"first in {NAMED}"
    ),
    "weights": distribution("dl.weight.distribution"),
    "gradients": distribution("dl.grad.distribution"),
    # The data
    "batch": (
        *per_batch("dl.data.fetch.time", "fetch"),
        *per_batch("dl.data.augment.time", "augment"),
        *per_batch("dl.data.collate.time", "collate"),
    ),
    "queue": (
        *per_batch("dl.data.queue.time", "in the queue"),
        *per_batch("dl.data.wait.time", "training waits", equal(CLOCK, "")),
    ),
    "workers": over_time(
        f"max by (dl_rank, loader, worker) ({current(metric('dl.data.worker.batch.time', THIS_RUN))})",
        "rank {{dl_rank}} {{loader}} worker {{worker}}",
    ),
    "samples_mean": samples("dl.samples.mean", "mean, {{split}}") + samples("dl.samples.std", "deviation, {{split}}"),
    "samples_shares": samples("dl.samples.saturated", "saturated, {{split}}")
    + samples("dl.samples.constant", "constant, {{split}}")
    + samples("dl.samples.nonfinite", "not finite, {{split}}")
    + samples("dl.samples.duplicate", "duplicate, {{split}}"),
    "samples_drift": samples("dl.samples.drift", "values, {{split}}")
    + samples("dl.samples.class.drift", "classes, {{split}}"),
    "classes": over_time(
        f"max by ({SPLIT}, class) ({current(metric('dl.samples.class.share', TRAINING, THIS_RUN))})", "{{class}}"
    ),
    # Speed and time
    "samples": rates("dl.rank.samples_per_second", "dl.job.samples_per_second"),
    "tokens": rates("dl.rank.tokens_per_second", "dl.job.tokens_per_second"),
    "mfu": over_time(f"max by (dl_rank) ({current(metric('dl.mfu', THIS_RUN))})", "rank {{dl_rank}}"),
    "optimizer_steps": over_time(
        f"max by (optimizer) ({current(metric('dl.optimizer.step', MAIN_RANK, THIS_RUN))})", "optimizer {{optimizer}}"
    )
    + over_time(f"max({current(counter('dl.micro_step', MAIN_RANK, THIS_RUN))})", "micro-batches"),
    "time_by_state": over_time(f"sum by ({STATE}) ({rate(counter('dl.time', MAIN_RANK, THIS_RUN))})", "{{state}}"),
    "productive": over_time(f"max({current(metric('dl.productive.share', MAIN_RANK, THIS_RUN))})", "productive"),
    "time_left": over_time(f"max({current(metric('dl.run.time_left', MAIN_RANK, THIS_RUN))})", "time left"),
    # Memory
    "device_memory": over_time(
        f"max by (dl_rank, index) ({current(metric('dl.device.memory.allocated', THIS_RUN))})",
        "rank {{dl_rank}} device {{index}}: allocated",
    )
    + over_time(
        f"max by (dl_rank, index) ({current(metric('dl.device.memory.reserved', THIS_RUN))})",
        "rank {{dl_rank}} device {{index}}: reserved",
    )
    + over_time(
        f"max by (dl_rank, index) ({current(metric('dl.device.memory.peak', THIS_RUN))})",
        "rank {{dl_rank}} device {{index}}: peak",
    ),
    "retries": over_time(
        f"max by (dl_rank, index) ({current(counter('dl.device.memory.retries', THIS_RUN))})",
        "rank {{dl_rank}} device {{index}}",
    ),
    "process_tree": over_time(
        f"max by (dl_rank, kind) ({current(metric('dl.process_tree.memory', THIS_RUN))})", "rank {{dl_rank}} {{kind}}"
    ),
    "slope": over_time(
        f"max by (dl_rank, kind) ({current(metric('dl.process_tree.memory.slope', THIS_RUN))})",
        "rank {{dl_rank}} {{kind}}",
    ),
    "problems": lines_of(f'event_name=~"{HAPPENED}"'),
}
LAYERS: Final = metric("dl.weight.norm", EACH_LAYER, THIS_RUN)
