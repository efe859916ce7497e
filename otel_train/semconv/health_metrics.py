"""Names what a run's health is judged by: each value stands beside the run's own threshold."""

from __future__ import annotations

from typing import Final

from otel_train.semconv.attributes import ALERT, CLOCK, GPU_ATTRIBUTES, LAYER, METRIC, MODEL, OPTIMIZER, PART, SPLIT
from otel_train.semconv.metric import Metric

HEALTH_METRICS: Final = (
    # Health: each value stands beside the run's own threshold, so that a rule compares two gauges.
    Metric(
        "dl.alert.threshold",
        "",
        "gauge",
        "The run's own threshold of a condition, in the unit of its value; +Inf (0 for a lower bound) where it is off.",
        (ALERT,),
    ),
    Metric(
        "dl.steps_since_improvement",
        "",
        "gauge",
        "Steps since a metric with a direction was last better by plateau_percent; 0 until three values in a row "
        "were not.",
        (METRIC, SPLIT),
    ),
    Metric(
        "dl.overfit.gap",
        "",
        "gauge",
        "Validation loss above training loss over the same steps, as a share of the training loss at the beginning.",
        (METRIC,),
    ),
    Metric(
        "dl.grad.usual",
        "",
        "gauge",
        "Median of the last 100 finite gradient norms; of those that run.watch samples, of the last 20.",
        (METRIC, MODEL, OPTIMIZER, PART),
    ),
    Metric(
        "dl.grad.excess",
        "",
        "gauge",
        "Least of the last three gradient norms, each by the usual one before it; +Inf where none is finite.",
        (METRIC, MODEL, OPTIMIZER, PART),
    ),
    Metric(
        "dl.grad.recent_max",
        "",
        "gauge",
        "Greatest of the last 100 gradient norms; of those that run.watch samples, of the last 20.",
        (METRIC, LAYER, MODEL, OPTIMIZER, PART),
    ),
    Metric(
        "dl.step.age",
        "s",
        "gauge",
        "Time since the last step ended; 0 in evaluation, checkpoints and stages other than training.",
    ),
    Metric(
        "dl.data.wait.share",
        "",
        "gauge",
        "Share of the step time of the last five minutes waiting for data. By the host's clock; clock=device where "
        "device events are used.",
        (CLOCK,),
    ),
    Metric(
        "dl.gpu.busy.share",
        "",
        "gauge",
        "Mean utilisation of a GPU over the last gpu_idle_s seconds of a run that makes steps, 0 to 1.",
        GPU_ATTRIBUTES,
    ),
    Metric(
        "dl.memory.share",
        "",
        "gauge",
        "Share of memory in use, of the host or of the control group's limit, whichever is greater, 0 to 1.",
    ),
    Metric(
        "dl.memory.time_to_full",
        "s",
        "gauge",
        "Time until memory of host or control group is full at the present slope; +Inf while it does not grow.",
    ),
    Metric(
        "dl.activation.dead.lasting",
        "",
        "gauge",
        "Least of the last three samplings of a layer's share of dead units, 0 to 1.",
        (LAYER, MODEL),
    ),
    Metric(
        "dl.amp.skipped.share",
        "",
        "gauge",
        "Share of the last 100 optimizer steps that a loss scaler skipped, 0 to 1.",
        (MODEL, OPTIMIZER, PART),
    ),
    Metric(
        "dl.samples.bad",
        "",
        "gauge",
        "Share of the last checked batch that was not finite or constant, 0 to 1.",
        (SPLIT,),
    ),
)
