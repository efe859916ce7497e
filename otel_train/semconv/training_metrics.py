"""Names what is measured of the training loop: steps, time, amounts, where the run stands."""

from __future__ import annotations

from typing import Final

from otel_train.semconv.attributes import AXIS, CLOCK, LOADER, METRIC, MODEL, OPTIMIZER, PART, PHASE, SPLIT, STATE
from otel_train.semconv.metric import Metric

TRAINING_METRICS: Final = (
    Metric("dl.step", "", "gauge", "Step of the points with the same times.", (SPLIT, AXIS)),
    Metric("dl.epoch", "", "gauge", "Epoch of the points with the same times.", (SPLIT, AXIS)),
    Metric(
        "dl.optimizer.step",
        "",
        "gauge",
        "Steps that the optimizers have done, skipped ones left out; of several optimizers as its framework counts.",
        (AXIS,),
    ),
    Metric(
        "dl.step.time",
        "s",
        "gauge",
        "Duration of one step, wait for data included, by the host's clock.",
        (SPLIT,),
    ),
    Metric(
        "dl.data.wait.time",
        "s",
        "gauge",
        "Time the training loop waited for a batch. By the host's clock; clock=device where device events are used.",
        (SPLIT, CLOCK, LOADER),
    ),
    Metric("dl.phase.time", "s", "gauge", "Time within a phase of one step, by the host's clock.", (SPLIT, PHASE)),
    Metric("dl.step.duration", "s", "histogram", "Distribution of step durations, by the host's clock.", (SPLIT,)),
    Metric(
        "dl.rank.busy.time",
        "s",
        "gauge",
        "Own work of one step of a rank: its duration without the waiting for other ranks, by host or device events.",
        (SPLIT,),
    ),
    Metric(
        "dl.rank.straggler",
        "",
        "gauge",
        "By what factor steps would be shorter if this rank's own work took as long as the others': 1 for like them.",
    ),
    Metric("dl.step.last_time", "s", "gauge", "Unix time at which the last step ended."),
    Metric("dl.step.usual_time", "s", "gauge", "Median duration of the last steps, by the host's clock."),
    Metric("dl.run.heartbeat", "s", "gauge", "Unix time at which the process was last alive."),
    Metric(
        "dl.run.progress", "1", "gauge", "Share of the training that is done, 0 to 1: of its epochs, or its one loop."
    ),
    Metric(
        "dl.run.time_left",
        "s",
        "gauge",
        "Time until training is done, at its pace so far with evaluation and checkpoints; where its end is known.",
    ),
    Metric(
        "dl.time",
        "s",
        "counter",
        "Time of this attempt by what it went to. All states add up to it but lost: an earlier attempt's time after "
        "its last checkpoint.",
        (STATE,),
    ),
    Metric("dl.productive.share", "", "gauge", "Share of this attempt's time that was productive, 0 to 1."),
    Metric("dl.micro_step", "", "counter", "Micro-batches of training in this attempt."),
    Metric("dl.rank.samples", "", "counter", "Samples that this rank has trained on in this attempt."),
    Metric("dl.rank.tokens", "", "counter", "Tokens that this rank has trained on in this attempt."),
    Metric(
        "dl.rank.samples_per_second",
        "",
        "gauge",
        "Samples a second of training time that this rank processed: evaluation, checkpoints and pauses left out.",
    ),
    Metric(
        "dl.rank.tokens_per_second",
        "",
        "gauge",
        "Tokens a second of training time that this rank processed, padding included where the batch tells them.",
    ),
    Metric(
        "dl.job.samples_per_second",
        "",
        "gauge",
        "Samples a second of the whole job: rank 0's value times the number of data-parallel ranks.",
    ),
    Metric(
        "dl.job.tokens_per_second",
        "",
        "gauge",
        "Tokens a second of the whole job: rank 0's value times the number of data-parallel ranks.",
    ),
    Metric(
        "dl.mfu",
        "",
        "gauge",
        "Model FLOP utilisation of this rank, 0 to 1: the model's FLOPs a second by the card's dense peak.",
    ),
    Metric("dl.run.state", "", "gauge", "1 for the present state of the run, 0 for the others.", (STATE,)),
    Metric(
        "dl.nonfinite",
        "",
        "counter",
        "Values that were NaN or infinite.",
        (METRIC, SPLIT, MODEL, OPTIMIZER, PART, "kind"),
    ),
    Metric("dl.checkpoint.time", "s", "gauge", "Duration of one checkpoint save, by the host's clock."),
    Metric("dl.checkpoint.size", "By", "gauge", "Size of a saved checkpoint."),
)
