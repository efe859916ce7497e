"""Names what is measured inside training: model, data path, samples, memory."""

from __future__ import annotations

from typing import Final

from otel_train.semconv.attributes import CLASS, LAYER, LOADER, MODEL, OPTIMIZER, PART, SPLIT, WORKER
from otel_train.semconv.metric import Metric

INSIDE_METRICS: Final = (
    # Of each batch of a watched data loader. Fetching, augmenting and collating add up to the batch's time.
    Metric(
        "dl.data.fetch.time",
        "s",
        "gauge",
        "Time in the data set for one batch, in its worker, without augmentation where that can be told apart.",
        (SPLIT, LOADER),
    ),
    Metric(
        "dl.data.augment.time",
        "s",
        "gauge",
        "Time in the data set's transforms for one batch, in its worker; absent where they cannot be told apart.",
        (SPLIT, LOADER),
    ),
    Metric("dl.data.collate.time", "s", "gauge", "Time to collate one batch, in its worker.", (SPLIT, LOADER)),
    Metric(
        "dl.data.batch.time",
        "s",
        "gauge",
        "Time to make one batch in its worker: fetching, augmenting and collating.",
        (SPLIT, LOADER),
    ),
    Metric(
        "dl.data.queue.time",
        "s",
        "gauge",
        "Time from a batch being ready in its worker to training taking it; absent without workers.",
        (SPLIT, LOADER),
    ),
    Metric(
        "dl.data.worker.batch.time",
        "s",
        "gauge",
        "Mean time to make a batch since the last heartbeat, by worker.",
        (LOADER, WORKER),
    ),
    # Quality of the samples that run.check_samples looks at.
    Metric(
        "dl.samples.mean",
        "",
        "gauge",
        "Mean of the finite values of a checked batch; of texts their length in characters or tokens.",
        (SPLIT,),
    ),
    Metric(
        "dl.samples.std",
        "",
        "gauge",
        "Standard deviation of the finite values of a checked batch; of texts that of their lengths.",
        (SPLIT,),
    ),
    Metric(
        "dl.samples.saturated",
        "",
        "gauge",
        "Share of a checked batch's values that lie at or beyond an end of their range, 0 to 1.",
        (SPLIT,),
    ),
    Metric(
        "dl.samples.constant",
        "",
        "gauge",
        "Share of a checked batch's samples whose values are all the same, 0 to 1; of a table's columns.",
        (SPLIT,),
    ),
    Metric(
        "dl.samples.nonfinite",
        "",
        "gauge",
        "Share of a checked batch's samples that hold NaN, an infinity or a missing value, 0 to 1.",
        (SPLIT,),
    ),
    Metric(
        "dl.samples.duplicate",
        "",
        "gauge",
        "Share of a checked batch's samples that equal another of the same batch bit by bit, 0 to 1.",
        (SPLIT,),
    ),
    Metric(
        "dl.samples.class.share",
        "",
        "gauge",
        "Share of a checked batch's samples that are of this class, 0 to 1; beyond 100 classes the rest is other.",
        (SPLIT, CLASS),
    ),
    Metric(
        "dl.samples.drift",
        "",
        "gauge",
        "Jensen-Shannon divergence, base 2, of a checked batch's values from those of the first five checks, 0 to 1.",
        (SPLIT,),
    ),
    Metric(
        "dl.samples.class.drift",
        "",
        "gauge",
        "Jensen-Shannon divergence, base 2, of a checked batch's classes from those of the first five checks, less "
        "what chance alone gives, 0 to 1.",
        (SPLIT,),
    ),
    # Memory as torch's allocator and the kernel tell it.
    Metric("dl.device.memory.allocated", "By", "gauge", "Memory of a device that tensors hold.", ("index",)),
    Metric("dl.device.memory.reserved", "By", "gauge", "Memory of a device that torch's allocator holds.", ("index",)),
    Metric("dl.device.memory.peak", "By", "gauge", "Greatest memory of a device that tensors held.", ("index",)),
    Metric(
        "dl.device.memory.retries",
        "",
        "counter",
        "Allocations that had to give cached memory back to the device first: it is nearly full.",
        ("index",),
    ),
    Metric(
        "dl.process_tree.memory",
        "By",
        "updowncounter",
        "Memory of this process and all below it. kind=pss: pages that several share count once; rss: in each.",
        ("kind",),
    ),
    Metric(
        "dl.process_tree.memory.slope",
        "By/s",
        "gauge",
        "Growth of the process tree's memory: least squares over the last ten minutes, once training has settled.",
        ("kind",),
    ),
    # Model internals, at the steps that run.watch samples: gradients as they are before clipping.
    Metric(
        "dl.grad.norm",
        "",
        "gauge",
        "2-norm of the gradient before clipping, without the loss scale; absent for what has no gradient.",
        (LAYER, MODEL, OPTIMIZER, PART),
    ),
    Metric(
        "dl.grad.norm.clipped",
        "",
        "gauge",
        "2-norm of the gradient that the optimizer got, where the user clips.",
        (MODEL, OPTIMIZER, PART),
    ),
    Metric("dl.weight.norm", "", "gauge", "2-norm of the parameters before the step.", (LAYER, MODEL, OPTIMIZER, PART)),
    Metric(
        "dl.update.ratio",
        "",
        "gauge",
        "2-norm of what one step changed by that of the parameters before it, of those that have a gradient.",
        (LAYER, MODEL, OPTIMIZER, PART),
    ),
    Metric("dl.activation.mean", "", "gauge", "Mean of what an activation gave out in one step.", (LAYER, MODEL)),
    Metric(
        "dl.activation.std",
        "",
        "gauge",
        "Standard deviation of what an activation gave out in one step, by the number of values.",
        (LAYER, MODEL),
    ),
    Metric(
        "dl.activation.dead",
        "",
        "gauge",
        "Share of the units of a ReLU whose output was zero for every sample of the window, 0 to 1.",
        (LAYER, MODEL),
    ),
    Metric(
        "dl.weight.distribution",
        "",
        "histogram",
        "Parameters by size, added up over the samplings.",
        (LAYER, MODEL, OPTIMIZER, PART),
    ),
    Metric(
        "dl.grad.distribution",
        "",
        "histogram",
        "Gradients by size before clipping, added up over the samplings; those that are not finite are left out.",
        (LAYER, MODEL, OPTIMIZER, PART),
    ),
    Metric(
        "dl.grad.nonfinite",
        "{step}",
        "counter",
        "Sampled steps whose gradient was not finite, by the layer where the backward pass met that first.",
        (LAYER, MODEL, OPTIMIZER, PART),
    ),
    Metric(
        "dl.optimizer.skipped",
        "{step}",
        "counter",
        "Optimizer steps that a loss scaler left out.",
        (MODEL, OPTIMIZER, PART),
    ),
    Metric(
        "dl.optimizer.tried",
        "{step}",
        "counter",
        "Optimizer steps, those included that a loss scaler left out.",
        (MODEL, OPTIMIZER, PART),
    ),
    Metric("dl.amp.scale", "", "gauge", "Loss scale of mixed precision.", (MODEL, OPTIMIZER, PART)),
)
