"""Lays out what was seen inside training: the model by layer, the path of the data, speed, ranks and memory.

A section is there only where something of it was recorded.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from otel_train.semconv import ALERT, LAYER, SPLIT
from otel_train.view.axes import Axes
from otel_train.view.charts import Chart, Detail, Named, chart
from otel_train.view.inks import inks, split_order
from otel_train.view.reduce import mean
from otel_train.view.series import Series
from otel_train.watch.conditions import CONDITIONS

# With more layers than this, lines are a tangle: then a map, a row for each layer.
LAYERS_AS_LINES = 10
MAP_COLUMNS = 160
SMOOTH = Detail(raw_points=60, buckets=60)
# Andrej Karpathy's rule of thumb: an update is about a thousandth of the weights.
USUAL_RATIO = {"low": 3e-4, "high": 3e-3, "label": "usual: around 0.001"}


@dataclass(frozen=True, slots=True)
class Panel:
    """One chart: its section, title, metrics with the word for each, unit, and how it is drawn.

    `layers`: True for the series of layers, False for those of the whole, None for all. `hint` says how to read it.
    """

    section: str
    title: str
    metrics: Mapping[str, str]
    unit: str = ""
    layers: bool | None = None
    log: bool = False
    hint: str = ""
    band: Mapping[str, Any] | None = None
    # Condition whose threshold is drawn.
    condition: str = ""
    only_if_any: bool = False
    # What varies much from step to step is drawn as means.
    smooth: bool = False


PANELS = (
    Panel(
        "model",
        "Gradient norm",
        {"dl.grad.norm": "before clipping", "dl.grad.norm.clipped": "what the optimizer got"},
        layers=False,
        log=True,
        hint="steady or slowly falling is well; a climb over several powers of ten explodes",
    ),
    Panel(
        "model",
        "Gradient norm by layer",
        {"dl.grad.norm": ""},
        layers=True,
        log=True,
        hint="the first layers far below the last: the gradient vanishes on its way",
    ),
    Panel(
        "model",
        "Update ratio by layer",
        {"dl.update.ratio": ""},
        log=True,
        band=USUAL_RATIO,
        hint="size of an update by size of the weights",
    ),
    Panel("model", "Weight norm", {"dl.weight.norm": ""}, layers=False),
    Panel("model", "Weight norm by layer", {"dl.weight.norm": ""}, layers=True, log=True),
    Panel(
        "model",
        "Dead units by layer",
        {"dl.activation.dead": ""},
        "%",
        condition="dead_units",
        hint="share of units whose output was zero for every sample",
    ),
    Panel("model", "Mean of activations by layer", {"dl.activation.mean": ""}),
    Panel("model", "Deviation of activations by layer", {"dl.activation.std": ""}, log=True),
    Panel("model", "Loss scale", {"dl.amp.scale": ""}, log=True, hint="GradScaler halves it with each skipped step"),
    Panel("model", "Skipped optimizer steps", {"dl.optimizer.skipped": ""}, hint="all so far, of this attempt"),
    Panel("model", "Gradients that were not finite", {"dl.grad.nonfinite": ""}, only_if_any=True),
    Panel(
        "data-path",
        "Path of a batch",
        {
            "dl.data.fetch.time": "fetch",
            "dl.data.augment.time": "augment",
            "dl.data.collate.time": "collate",
            "dl.data.queue.time": "in the queue",
            "dl.data.wait.time": "training waits",
        },
        "s",
        log=True,
        smooth=True,
        hint="fetch, augment and collate pass in the worker, while training goes on; only the wait costs time",
    ),
    Panel("data-path", "Batch in its worker, whole", {"dl.data.batch.time": ""}, "s"),
    Panel("data-path", "Batch time by worker", {"dl.data.worker.batch.time": ""}, "s"),
    Panel(
        "speed",
        "Samples a second",
        {"dl.rank.samples_per_second": "rank", "dl.job.samples_per_second": "job"},
        "samples/s",
    ),
    Panel(
        "speed", "Tokens a second", {"dl.rank.tokens_per_second": "rank", "dl.job.tokens_per_second": "job"}, "tokens/s"
    ),
    Panel("speed", "Model FLOP utilisation", {"dl.mfu": ""}, "%", hint="of the peak of the card"),
    Panel("speed", "Optimizer steps", {"dl.optimizer.step": ""}, hint="skipped ones are not counted"),
    Panel("speed", "Productive share", {"dl.productive.share": ""}, "%", hint="of the wall time of the attempt so far"),
    Panel("speed", "Time left", {"dl.run.time_left": ""}, "s"),
    Panel("ranks", "Own work of a step", {"dl.rank.busy.time": ""}, "s", hint="without the wait for other ranks"),
    Panel(
        "ranks",
        "Straggler score",
        {"dl.rank.straggler": ""},
        "",
        condition="straggler",
        hint="by what factor the rank's own work makes steps longer; 1 is like the others",
    ),
    Panel(
        "memory",
        "Device memory",
        {
            "dl.device.memory.allocated": "allocated",
            "dl.device.memory.reserved": "reserved",
            "dl.device.memory.peak": "peak",
        },
        "By",
    ),
    Panel("memory", "Allocator retries", {"dl.device.memory.retries": ""}, only_if_any=True),
    Panel("memory", "Memory of the process and its children", {"dl.process_tree.memory": ""}, "By"),
    Panel("memory", "Growth of that memory", {"dl.process_tree.memory.slope": ""}, "By/s", hint="slope of the window"),
)
SECTIONS = {
    "model": (
        "Inside the model",
        "What run.watch sampled, at the steps of its samplings. Norms are those before clipping.",
    ),
    "data-path": ("Data path", "What each batch went through before training had it."),
    "speed": ("Throughput", "Rates are of training alone, evaluation and checkpoints left out."),
    "ranks": ("Ranks", "One line for each rank, by the clock of its host."),
    "memory": ("Memory", "What the allocator holds on devices, and what the processes hold on the host."),
}
NAMES = frozenset(name for panel in PANELS for name in panel.metrics)
# Those that machine charts draw as well.
SHARED = frozenset({"dl.data.wait.time"})
# Recorded for rules, or said in words.
SILENT = frozenset(
    {
        "dl.time",
        "dl.run.progress",
        "dl.rank.samples",
        "dl.rank.tokens",
        "dl.micro_step",
        "dl.optimizer.tried",
        "dl.activation.dead.lasting",
        "dl.amp.skipped.share",
        "dl.samples.bad",
        "dl.memory.time_to_full",
    }
)


@dataclass(slots=True)
class Internals:
    """The sections that there are, and their charts by section."""

    sections: list[dict[str, str]] = field(default_factory=list)
    charts: dict[str, list[Chart]] = field(default_factory=dict)


def internals(all_series: Iterable[Series], axes: Axes, detail: Detail, *, also: Iterable[str] = ()) -> Internals:
    """Return what is to be drawn; `also` names sections that have something else to show."""
    by_name: dict[str, list[Series]] = {}
    limits = {name: condition.threshold for name, condition in CONDITIONS.items()}
    for series in all_series:
        if series.name == "dl.alert.threshold" and len(series.values):
            limits[str(series.attribute(ALERT))] = series.values[-1]
        if series.name in NAMES and series.kind != "histogram":
            by_name.setdefault(series.name, []).append(series)
    result = Internals()
    for panel in PANELS:
        found = [series for name in panel.metrics for series in by_name.get(name, ()) if _fits(panel, series)]
        # The wait alone is drawn beside the step time.
        if not found or {series.name for series in found} <= SHARED:
            continue
        if panel.only_if_any and not any(any(series.values) for series in found):
            continue
        drawn = _drawn(panel, found, axes, detail, limits.get(panel.condition))
        result.charts.setdefault(panel.section, []).append(drawn)
    wanted = {*result.charts, *also}
    result.sections = [
        {"id": section, "title": title, "lead": lead}
        for section, (title, lead) in SECTIONS.items()
        if section in wanted
    ]
    return result


def _fits(panel: Panel, series: Series) -> bool:
    if panel.layers is not None and panel.layers != (series.attribute(LAYER) is not None):
        return False
    # Evaluation has its own loop: the path of its data is another chart's matter.
    return series.name not in SHARED or (series.split in ("train", "") and series.attribute("clock") is None)


def _drawn(panel: Panel, found: Sequence[Series], axes: Axes, detail: Detail, limit: float | None) -> Chart:
    found = [_at_steps(series) if series.kind == "counter" else series for series in found]
    if panel.unit == "%":
        found = [_per_cent(series) for series in found]
    layers = [series for series in found if series.attribute(LAYER) is not None]
    several_ranks = len({series.rank for series in found}) > 1
    several_splits = len({series.split for series in found if series.split}) > 1
    if len({series.attribute(LAYER) for series in layers}) > LAYERS_AS_LINES:
        return _map(panel, layers, axes)
    found = sorted(found, key=lambda series: (series.rank, split_order(series.split)))
    lines = [
        Named(
            series,
            _label(panel, series, several_ranks, several_splits) or ("whole" if layers else "value"),
            ink.role,
            dash=ink.dash,
        )
        for series, ink in zip(found, inks(found), strict=True)
    ]
    detail = replace(SMOOTH, drawn=detail.drawn) if panel.smooth else detail
    made = chart(panel.title, panel.unit, lines, axes, detail, kind="machine", note=panel.hint)
    if panel.log and _spans_decades(found):
        made["log"] = True
    if panel.band is not None:
        made["band"] = dict(panel.band)
    if limit and math.isfinite(limit):
        made["threshold"] = {"value": limit * (100 if panel.unit == "%" else 1), "label": "alert"}
    return made


def _spans_decades(found: Sequence[Series]) -> bool:
    """Tell whether a logarithmic axis shows more: all positive, and not all within the same power of ten."""
    values = [value for series in found for value in series.values if math.isfinite(value) and value > 0]
    return bool(values) and max(values) > 10 * min(values)


_BEFORE = {"worker": "worker ", "index": "device ", "clock": "by "}


def _label(panel: Panel, series: Series, several_ranks: bool, several_splits: bool) -> str:
    """Return what tells a series from the others of its chart: the word of its metric, its layer, split and rank."""
    parts = [panel.metrics[series.name]]
    for key, value in series.attributes:
        if key == SPLIT and value == "train" and not several_splits:
            continue
        parts.append(f"{_BEFORE.get(key, '')}{value!s}")
    if several_ranks:
        parts.append(f"rank {series.rank}")
    return " · ".join(part for part in parts if part)


def _at_steps(series: Series) -> Series:
    """Return a counter without its repetitions at heartbeats, which stand at no step, where it has others."""
    placed = [index for index, step in enumerate(series.steps) if step == step]
    return series.take(placed) if placed and len(placed) < len(series.steps) else series


def _per_cent(series: Series) -> Series:
    result = series.take(range(len(series.values)))
    for index, value in enumerate(result.values):
        result.values[index] = value * 100
    return result


def _map(panel: Panel, layers: Sequence[Series], axes: Axes) -> Chart:
    """Return one row for each layer, in the order of the model, of the first rank that has them."""
    rank = min(series.rank for series in layers)
    rows = [series for series in layers if series.rank == rank]
    longest = max(rows, key=lambda series: len(series.values))
    count = len(longest.values)
    columns = min(MAP_COLUMNS, count)
    edges = [count * number // columns for number in range(columns + 1)]
    cells = [_means(series, longest, edges) for series in rows]
    places = [start + (end - start) // 2 for start, end in itertools.pairwise(edges)]
    notes = []
    if count > columns:
        notes.append({"kind": "info", "text": f"{count:,} samplings drawn as {columns} means"})
    return {
        "title": panel.title,
        "unit": panel.unit,
        "kind": "map",
        "lines": [],
        "notes": notes,
        "note": panel.hint,
        "layers": [_label(panel, series, False, False) for series in rows],
        "x": axes.places(longest, places),
        "cells": cells,
        "log": panel.log and _spans_decades(rows),
    }


def _means(series: Series, longest: Series, edges: Sequence[int]) -> list[float | None]:
    """Return the means of the finite values between the edges, which are places of the longest of the series."""
    values: Sequence[float] = series.values
    if series.times_ns.tobytes() != longest.times_ns.tobytes():
        known = dict(zip(series.times_ns, series.values, strict=True))
        values = [known.get(time_ns, math.nan) for time_ns in longest.times_ns]
    means: list[float | None] = []
    for start, end in itertools.pairwise(edges):
        finite = [value for value in values[start:end] if math.isfinite(value)]
        means.append(float(f"{mean(finite):.4g}") if finite else None)
    return means
