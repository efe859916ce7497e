"""Turns readings of the host, the process, the GPUs and the loop's own times into charts; counters become rates."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from otel_train.clock import NS_PER_S
from otel_train.semconv import METRICS, PHASE, SPLIT
from otel_train.view.axes import Axes
from otel_train.view.charts import Chart, Detail, Named, chart, label_of
from otel_train.view.inks import inks, split_order
from otel_train.view.reduce import finite_of
from otel_train.view.series import Series

# What has no chart of its own: siblings, heartbeats and counts that the page says in words.
SILENT = frozenset(
    {
        "dl.step",
        "dl.epoch",
        "dl.step.last_time",
        "dl.step.usual_time",
        "dl.step.duration",
        "dl.run.heartbeat",
        "dl.run.state",
        "dl.nonfinite",
        "hw.status",
        "otel_train.points",
        "otel_train.logs",
        "otel_train.spans",
        "otel_train.steps",
        "hw.gpu.memory.limit",
        "dl.container.memory.limit",
        "dl.container.cpu.limit",
        "system.cpu.logical.count",
        "dl.container.memory.reclaimable",
        # Health: the page says in words what was wrong, and charts what it was computed from.
        "dl.alert.threshold",
        "dl.steps_since_improvement",
        "dl.overfit.gap",
        "dl.grad.usual",
        "dl.grad.excess",
        "dl.grad.recent_max",
        "dl.step.age",
        "dl.data.wait.share",
        "dl.gpu.busy.share",
        "dl.memory.share",
        # The same as process.cpu.utilization, but for its division into user and system.
        "process.cpu.time",
    }
)


@dataclass(frozen=True, slots=True)
class Group:
    """One chart: its title, its metrics, and the unit in which it is drawn (None: that of the metric)."""

    section: str
    title: str
    metrics: tuple[str, ...]
    unit: str | None = None
    note: str = ""
    # Left out while all of its values are 0: a chart of "nothing went wrong" only takes room.
    only_if_any: bool = False


GROUPS = (
    Group("steps", "Step time", ("dl.step.time",), note="by the host's clock"),
    Group("steps", "Wait for data", ("dl.data.wait.time",), note="by the host's clock, unless named device"),
    Group("steps", "Phases", ("dl.phase.time",), note="by the host's clock"),
    Group("steps", "Checkpoint time", ("dl.checkpoint.time",), note="by the host's clock"),
    Group("steps", "Checkpoint size", ("dl.checkpoint.size",), "By"),
    Group("system", "CPU of the host", ("system.cpu.utilization",), "%"),
    Group("system", "CPU of the process", ("process.cpu.utilization",), "%", "100 % is one logical CPU kept busy"),
    Group("system", "Memory of the host", ("system.memory.usage",), "By"),
    Group("system", "Memory of the host, share in use", ("system.memory.utilization",), "%"),
    Group("system", "Memory of the process", ("process.memory.usage",), "By"),
    Group("system", "Memory of the container", ("container.memory.usage",), "By"),
    Group("system", "Processes killed for lack of memory", ("dl.container.oom_kills",), None, "", only_if_any=True),
    Group("system", "Threads of the process", ("process.thread.count",), ""),
    Group("system", "Disks of the host", ("system.disk.io",), "By/s"),
    Group("system", "Disk use of the process", ("process.disk.io",), "By/s"),
    Group("system", "Network", ("system.network.io",), "By/s"),
    Group("system", "File system of the run", ("system.filesystem.utilization",), "%"),
    Group("system", "Size of the run log", ("otel_train.runlog.size",), "By"),
    Group("gpu", "GPU utilisation", ("hw.gpu.utilization",), "%"),
    Group("gpu", "GPU memory", ("hw.gpu.memory.usage",), "By"),
    Group("gpu", "GPU memory, share in use", ("hw.gpu.memory.utilization",), "%"),
    Group("gpu", "GPU power", ("hw.power",), "W"),
    Group("gpu", "GPU temperature", ("hw.temperature",), "Cel"),
    Group("gpu", "GPU clock", ("hw.gpu.clock",), "MHz"),
    Group("gpu", "Clock held down, by reason", ("hw.gpu.throttled",), ""),
    Group("gpu", "PCIe traffic", ("hw.gpu.io",), "By/s"),
    Group("gpu", "Energy per second", ("hw.energy",), "W"),
    Group("gpu", "ECC errors per second", ("hw.errors",), "{error}/s", only_if_any=True),
)


def machine_charts(all_series: Iterable[Series], axes: Axes, detail: Detail) -> dict[str, list[Chart]]:
    """Return the charts by section: steps, system, gpu, other. Nothing recorded is left without a chart."""
    listed = [series for series in all_series if series.name not in SILENT and series.kind != "histogram"]
    by_name: dict[str, list[Series]] = defaultdict(list)
    for series in listed:
        by_name[series.name].append(series)
    result: dict[str, list[Chart]] = {"steps": [], "system": [], "gpu": [], "other": []}
    for group in GROUPS:
        found = [series for name in group.metrics for series in by_name.pop(name, [])]
        if found and not (group.only_if_any and not any(any(series.values) for series in found)):
            result[group.section].append(_group_chart(group, found, axes, detail))
    for name, found in sorted(by_name.items()):
        section = "gpu" if name.startswith("hw.") else "system" if name.startswith(("system.", "process.")) else "other"
        row = METRICS.get(name)
        group = Group(section, name, (name,), None, row.description if row else found[0].description)
        result[section].append(_group_chart(group, found, axes, detail))
    return result


def _group_chart(group: Group, found: Sequence[Series], axes: Axes, detail: Detail) -> Chart:
    if any(series.kind == "counter" for series in found):
        found = [rate(series) for series in _summed(found)]
    several_ranks = len({series.rank for series in found}) > 1
    unit = group.unit if group.unit is not None else _rate_unit(found)
    scaled = [_scaled(series, unit) for series in found]
    scaled.sort(key=lambda series: (series.rank, split_order(series.split), _gpu_index(series), series.attributes))
    several_splits = len({series.split for series in scaled if series.split}) > 1
    labels = [_machine_label(series, several_ranks, several_splits) for series in scaled]
    lines = [
        Named(series, label, ink.role, dash=ink.dash)
        for series, label, ink in zip(scaled, labels, inks(scaled), strict=True)
    ]
    return chart(group.title, unit, lines, axes, detail, kind="machine", note=group.note)


def _rate_unit(found: Sequence[Series]) -> str:
    unit = found[0].unit
    return f"{unit}/s" if found[0].kind == "counter" else unit


def _scaled(series: Series, unit: str) -> Series:
    """Return a share of one as per cent where the chart's unit says so."""
    if unit != "%" or series.unit == "%":
        return series
    result = series.take(range(len(series.values)))
    for index, value in enumerate(result.values):
        result.values[index] = value * 100
    return result


def rate(series: Series) -> Series:
    """Return the rate a second of a cumulative counter, at the end of each interval; a restart begins anew."""
    kept: list[int] = []
    rates: list[float] = []
    before = -1
    for index, value in enumerate(series.values):
        if not math.isfinite(value):
            if index in series.gaps:
                before = -1
                kept.append(index)
                rates.append(math.nan)
            continue
        if before >= 0:
            elapsed_s = (series.times_ns[index] - series.times_ns[before]) / NS_PER_S
            rise = value - series.values[before]
            if elapsed_s > 0 and rise >= 0:
                kept.append(index)
                rates.append(rise / elapsed_s)
        before = index
    result = series.take(kept)
    for position, value in enumerate(rates):
        result.values[position] = value
    return result


def _summed(found: Sequence[Series]) -> list[Series]:
    """Add up the devices of one direction: what a reader asks is how much is read, not by which disk."""
    groups: dict[tuple[str, object, int, int], list[Series]] = defaultdict(list)
    for series in found:
        direction = series.attribute("disk.io.direction") or series.attribute("network.io.direction")
        if direction is None or series.attribute("network.interface.name") == "lo":
            groups[series.name, series.attributes, series.rank, series.attempt].append(series)
        else:
            groups[series.name, direction, series.rank, series.attempt].append(series)
    return [_sum(parts) for parts in groups.values()]


def _sum(parts: Sequence[Series]) -> Series:
    if len(parts) == 1:
        return parts[0]
    longest = max(parts, key=lambda part: len(part.values))
    result = longest.take(range(len(longest.values)))
    result.attributes = tuple(pair for pair in longest.attributes if pair[0].endswith("direction"))
    for part in parts:
        if part is not longest:
            values = dict(zip(part.times_ns, part.values, strict=True))
            last = 0.0
            for index, time_ns in enumerate(result.times_ns):
                last = values.get(time_ns, last)
                result.values[index] += last
    return result


_LABELS: dict[str, Callable[[object], str]] = {
    "hw.id": lambda value: "",
    "hw.name": lambda value: "",
    "hw.type": lambda value: "",
    "physical_index": lambda value: "",
    "hw.parent": lambda value: "",
    "index": lambda value: f"GPU {value}",
    "mig.gpu_instance": lambda value: f"slice {value}",
    "mig.compute_instance": lambda value: "",
    "clock": lambda value: f"by {value}",
}


def _machine_label(series: Series, several_ranks: bool, several_splits: bool) -> str:
    parts = []
    for key, value in series.attributes:
        if key in _LABELS:
            parts.append(_LABELS[key](value))
        elif key != SPLIT or value != "train" or several_splits:
            parts.append(str(value))
    if "hw.id" in dict(series.attributes) and series.attribute("index") is None:
        parts.insert(0, str(series.attribute("hw.id")))
    if several_ranks:
        parts.append(f"rank {series.rank}")
    return " · ".join(part for part in parts if part) or (label_of(series) if series.split != "train" else "value")


def _gpu_index(series: Series) -> float:
    index = series.attribute("index")
    return float(index) if isinstance(index, (int, float)) else 0.0


def time_shares(all_series: Sequence[Series]) -> dict[str, object]:
    """Return how the host's time of training's steps divides, in seconds, on rank 0: total, wait for data, phases.

    Where no loop trains, those of any other loop.
    """
    if any(series.name == "dl.step.time" and series.attribute(SPLIT) == "train" for series in all_series):
        all_series = [series for series in all_series if series.attribute(SPLIT) in ("train", None, "")]
    total = _seconds(series for series in all_series if series.name == "dl.step.time" and series.rank == 0)
    wait = _seconds(series for series in all_series if series.name == "dl.data.wait.time" and series.rank == 0)
    phases: dict[str, float] = defaultdict(float)
    for series in all_series:
        if series.name == "dl.phase.time" and series.rank == 0:
            phases[str(series.attribute(PHASE) or "phase")] += _seconds([series])
    steps = [
        value
        for series in all_series
        if series.name == "dl.step.time" and series.rank == 0
        for value in finite_of(series.values)
    ]
    steps.sort()
    if not steps:
        return {}
    return {
        "total_s": total,
        "wait_s": wait,
        "phases_s": dict(sorted(phases.items(), key=lambda pair: -pair[1])),
        "steps": len(steps),
        "median_s": steps[len(steps) // 2],
        "p95_s": steps[min(len(steps) - 1, math.ceil(len(steps) * 0.95) - 1)],
        "p99_s": steps[min(len(steps) - 1, math.ceil(len(steps) * 0.99) - 1)],
        "max_s": steps[-1],
    }


def _seconds(found: Iterable[Series]) -> float:
    return math.fsum(value for series in found for value in finite_of(series.values))
