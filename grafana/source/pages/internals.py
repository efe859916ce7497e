"""Lays out the dashboard of what a run looks like inside: model, data, speed, time and memory."""

from __future__ import annotations

from typing import Any

from grafana.source import links, marks, tiles, variables
from grafana.source.board import dashboard
from grafana.source.grid import Grid
from grafana.source.pages import health
from grafana.source.queries.internals import LAYERS, QUERIES

SAMPLED = " As run.watch sampled it, every hundred optimizer steps unless told otherwise."
# Around a thousandth: see docs/internals.md.
USUAL_RATIO = (3e-4, 3e-3)


def _curves(title: str, description: str, key: str, unit: str = "none", **arguments: Any) -> tiles.Tile:
    return tiles.curves(title, description, QUERIES[key], unit, links=links.AT_A_POINT, **arguments)


def model(grid: Grid) -> None:
    """Place gradients, weights, updates and activations."""
    grid.row("The model")
    grid.add(
        _curves(
            "Gradient norm",
            "The 2-norm of the whole gradient before clipping, and of what the optimizer got." + SAMPLED,
            "grad_norm",
            logarithmic=True,
        ),
        _curves(
            "Gradient norm by layer",
            "First layers far below the last: the gradient vanishes on its way back." + SAMPLED,
            "grad_norm_by_layer",
            logarithmic=True,
        ),
        _curves(
            "Update ratio by layer",
            "Size of one update by size of the weights. The green area is what is usual, around 0.001; above it the "
            "learning rate is high for that layer, far below it hardly learns." + SAMPLED,
            "update_ratio",
            logarithmic=True,
            usual=USUAL_RATIO,
        ),
        _curves(
            "Weight norm by layer",
            "The 2-norm of the parameters of each layer. Without weight decay it may grow for ever." + SAMPLED,
            "weight_norm_by_layer",
            logarithmic=True,
        ),
        _curves("Mean of activations", "What each activation gave out, on average." + SAMPLED, "activation_mean"),
        _curves(
            "Deviation of activations",
            "Towards zero the signal dies out, towards thousands it explodes." + SAMPLED,
            "activation_std",
            logarithmic=True,
        ),
        _curves(
            "Dead units now",
            "Share of units whose output was zero for every sample of the sampling." + SAMPLED,
            "dead_now",
            "percentunit",
            at_least=0,
            at_most=1,
        ),
        health.panel("dead_units"),
        _curves(
            "Gradients that were not finite",
            "Sampled steps with NaN or an infinity in the gradient, by the layer that the backward pass met first.",
            "nonfinite_gradients",
            at_least=0,
        ),
        _curves(
            "Loss scale",
            "Scale of GradScaler: it doubles it now and then, and halves it with each skipped step.",
            "amp_scale",
            logarithmic=True,
        ),
        _curves(
            "Skipped optimizer steps",
            "All steps so far that GradScaler left out, of this attempt.",
            "skipped",
            at_least=0,
        ),
        health.panel("amp_skipping"),
        tiles.distribution(
            "Weights of $layer",
            "Distribution of the layer's weights over time, of the samplings of a quarter of an hour.",
            QUERIES["weights"],
            "none",
        ),
        tiles.distribution(
            "Gradients of $layer",
            "Distribution of the layer's gradients over time, of the samplings of a quarter of an hour.",
            QUERIES["gradients"],
            "none",
        ),
    )


def data(grid: Grid) -> None:
    """Place the path of batches, and what their samples look like."""
    grid.row("The path of the data")
    grid.add(
        _curves(
            "Making a batch",
            "Mean time of a batch within its worker. It passes beside training, and costs nothing while the workers "
            "keep up.",
            "batch",
            "s",
            stacked=True,
        ),
        _curves(
            "Queue and wait",
            "How long batches lay ready, and how long training waited for one. Both near zero: the loader just keeps "
            "up. A wait without a queue: it does not.",
            "queue",
            "s",
            at_least=0,
        ),
        _curves("Batch time by worker", "Mean since the last heartbeat, by worker.", "workers", "s", at_least=0),
    )
    grid.row("The samples")
    grid.add(
        _curves("Mean and deviation", "Of the values of each checked batch.", "samples_mean"),
        _curves(
            "Shares",
            "Share of values at the end of their range, and of samples that are constant, not finite, or the same as "
            "another one of the batch.",
            "samples_shares",
            "percentunit",
            at_least=0,
        ),
        _curves(
            "Classes",
            "Share of each class in the checked batches of training.",
            "classes",
            "percentunit",
            stacked=True,
            at_least=0,
            at_most=1,
        ),
        _curves(
            "Drift",
            "Jensen-Shannon divergence of values and classes from those of the first checks: 0 the same, 1 nothing in "
            "common. That of classes is less what chance alone gives.",
            "samples_drift",
            "none",
            at_least=0,
            at_most=1,
        ),
        *health.panels(health.OF_SAMPLES, width=12),
    )


def speed(grid: Grid) -> None:
    """Place rates, what time went to, and how much is left."""
    grid.row("Speed and time")
    grid.add(
        _curves(
            "Samples a second",
            "Of each rank and of all together, in training alone: evaluation and checkpoints are left out.",
            "samples",
            at_least=0,
        ),
        _curves("Tokens a second", "As samples a second; padding counts.", "tokens", at_least=0),
        _curves(
            "Model FLOP utilisation",
            "FLOPs of the model a second by the dense peak of the card, where both are known.",
            "mfu",
            "percentunit",
            at_least=0,
        ),
        _curves(
            "Where the time goes",
            "Seconds a second that went to each state, by rank 0. Lost is what an earlier attempt did after its last "
            "checkpoint.",
            "time_by_state",
            "percentunit",
            stacked=True,
            at_least=0,
            at_most=1,
        ),
        _curves(
            "Productive share",
            "Share of the attempt's time so far that was training.",
            "productive",
            "percentunit",
            at_least=0,
            at_most=1,
        ),
        _curves("Time left", "At the pace so far, evaluation and checkpoints included.", "time_left", "s", at_least=0),
        _curves(
            "Optimizer steps",
            "Steps of the optimizer, skipped ones left out, beside the micro-batches that they were made of.",
            "optimizer_steps",
            width=24,
            at_least=0,
        ),
    )


def memory(grid: Grid) -> None:
    """Place memory of devices and of processes."""
    grid.row("Memory")
    grid.add(
        _curves(
            "Device memory",
            "What tensors hold, what the allocator holds, and the most that tensors held.",
            "device_memory",
            "bytes",
            at_least=0,
        ),
        _curves(
            "Allocator retries",
            "Allocations that first had to give cached memory back: the card is nearly full.",
            "retries",
            at_least=0,
        ),
        _curves(
            "Memory of the process and its children",
            "Proportional set size where the system tells it, else resident memory.",
            "process_tree",
            "bytes",
            at_least=0,
        ),
        _curves("Growth of that memory", "Slope over ten minutes; a steady one above zero is a leak.", "slope", "Bps"),
    )


def happened(grid: Grid) -> None:
    """Place what was said of all that."""
    grid.row("What happened")
    grid.add(
        tiles.lines(
            "Findings inside training",
            "Events of gradients, units, samples, workers and memory, the newest first.",
            QUERIES["problems"],
        )
    )


def page() -> str:
    """Return the dashboard's JSON."""
    grid = Grid()
    for part in (model, data, speed, memory, happened):
        part(grid)
    return dashboard(
        links.INTERNALS,
        "otel-train: Internals",
        "One run inside: model by layer, data path, samples, speed, time, memory.",
        grid,
        variables=[
            *variables.sources(),
            variables.run(),
            variables.project_of_the_run(),
            variables.layer(LAYERS),
        ],
        annotations=marks.of_one_run(),
        since="now-1h",
        refresh="10s",
    )
