"""Draws each metric of several runs on one chart: a colour for each run, a dash for each split."""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from otel_train.semconv import AXIS, SPLIT
from otel_train.view import text
from otel_train.view.axes import Axes
from otel_train.view.charts import Chart, Detail, Line, Named, axis_warnings, bad_sentence, line
from otel_train.view.comparison_runs import id_of
from otel_train.view.inks import dashes_of, split_order
from otel_train.view.run_data import RunData
from otel_train.view.series import Effective, Series
from otel_train.view.summary import Summary

LINES_A_CHART = 120
BAD_NOTES = 8
Metrics = Sequence[tuple[Effective, Summary]]
Attributes = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Metric:
    """What the series of several runs have in common that are one metric: name, split, and other attributes."""

    name: str
    split: str
    attributes: Attributes

    @classmethod
    def of(cls, series: Series) -> Metric:
        """Return the metric of a series; on which axis it counts its steps makes no other metric of it."""
        others = tuple((key, str(value)) for key, value in series.attributes if key not in (SPLIT, AXIS))
        return cls(series.name, series.split, others)

    @property
    def also(self) -> str:
        """What tells it from the same metric of the same split, in words."""
        return ", ".join(f"{key}={value}" for key, value in self.attributes)


@dataclass(slots=True)
class ComparedRun:
    """A run with what is computed of it once for the whole comparison."""

    run: RunData
    label: str
    role: str
    number: int
    metrics: dict[Metric, tuple[Effective, Summary]] = field(default_factory=dict)
    # Ranks whose lines are not drawn, since a lower rank has the same metric.
    ranks_left_out: int = 0

    @classmethod
    def of(cls, run: RunData, label: str, role: str, number: int) -> ComparedRun:
        """Return a run with its metrics: each of the lowest rank that has it, on the axis with the most points."""
        found = cls(run, label, role, number)
        ranks = set()
        for item, summary in run.metrics():
            ranks.add(item.series.rank)
            metric = Metric.of(item.series)
            kept = found.metrics.get(metric)
            if kept is None or _order(item) < _order(kept[0]):
                found.metrics[metric] = item, summary
        found.ranks_left_out = len(ranks - {item.series.rank for item, _ in found.metrics.values()})
        return found


def _order(item: Effective) -> tuple[int, int]:
    return item.series.rank, -len(item.series.values)


def curves(runs: Sequence[ComparedRun]) -> dict[str, list[Chart]]:
    """Return the charts: metrics of the user, and pace, which is how quickly and on what the runs went."""
    detail = Detail.for_series(sum(len(one.metrics) + len(PACE) // 2 for one in runs))
    axes = [one.run.axes() for one in runs]
    names = dict.fromkeys(metric.name for one in runs for metric in one.metrics)
    keys = {name: _key(runs, name) for name in names}
    listed = list(keys.values())
    made = [
        _metric_chart(name, key if listed.count(key) == 1 else f"{key} ({name})", runs, axes, detail)
        for name, key in keys.items()
    ]
    made.sort(key=lambda chart: 0 if "loss" in str(chart["title"]).lower() else 1)
    return {"metrics": made, "pace": _pace(runs, axes, detail)}


def _key(runs: Sequence[ComparedRun], name: str) -> str:
    return next(item.series.key for one in runs for metric, (item, _) in one.metrics.items() if metric.name == name)


def _metric_chart(name: str, title: str, runs: Sequence[ComparedRun], axes: Sequence[Axes], detail: Detail) -> Chart:
    found: list[tuple[ComparedRun, Axes, Metric, Effective, Summary]] = []
    for one, places in zip(runs, axes, strict=True):
        own = [(metric, *pair) for metric, pair in one.metrics.items() if metric.name == name]
        own.sort(key=lambda each: (split_order(each[0].split), each[0].attributes))
        found.extend((one, places, *each) for each in own)
    dashes = dashes_of([metric.split for _, _, metric, _, _ in found])
    lines = [
        _line(one, item.series, places, detail, _words(metric), dashes[metric.split], summary)
        for one, places, metric, item, summary in found[:LINES_A_CHART]
    ]
    units = sorted({item.series.unit for _, _, _, item, _ in found})
    used = sorted({item.series.axis for _, _, _, item, _ in found if any(step == step for step in item.series.steps)})
    notes = [*_best_notes(found), *_bad_notes(found), *_drawing_notes(lines)]
    if len(found) > len(lines):
        notes.append({"kind": "info", "text": f"{len(found) - len(lines)} more lines are not drawn here."})
    without = [one.label for one in runs if not any(metric.name == name for metric in one.metrics)]
    if without:
        notes.append({"kind": "info", "text": f"Not logged by {_listed(without)}."})
    if len(units) > 1:
        named = ", ".join(unit or "none" for unit in units)
        notes.append({"kind": "bad", "text": f"The runs give this metric different units: {named}."})
    return {
        "title": title,
        "unit": units[0] if len(units) == 1 else "",
        "kind": "metric",
        "axis": ", ".join(used),
        "lines": lines,
        "notes": notes,
        "legend": False,
    }


def _words(metric: Metric) -> str:
    return " · ".join(filter(None, (metric.split, metric.also)))


def _line(
    one: ComparedRun,
    series: Series,
    axes: Axes,
    detail: Detail,
    words: str,
    dash: str,
    summary: Summary | None = None,
) -> Line:
    label = f"{one.label} · {words}" if words else one.label
    drawn = line(Named(series, label, one.role, summary), axes, detail)
    best = summary.best if summary else None
    if best is not None:
        index = series.values.index(best.value)
        drawn["best"] = {
            "value": best.value,
            "x": {axis: places[0] for axis, places in axes.places(series, [index]).items()},
        }
    # One series of two runs has one id by its name; on this page a line is of a run.
    drawn["series"] = drawn["id"]
    drawn["id"] = f"{drawn['id']}-{id_of(one.run)}"
    return drawn | {"run": id_of(one.run), "split": words, "dash": dash, "end": str(one.number)}


def _best_notes(
    found: Sequence[tuple[ComparedRun, Axes, Metric, Effective, Summary]],
) -> list[dict[str, str]]:
    """Say for each split which run has the best value."""
    notes = []
    for metric in dict.fromkeys(metric for _, _, metric, _, _ in found):
        own = [(one, summary) for one, _, its, _, summary in found if its == metric and summary.best is not None]
        goals = {summary.goal for _, summary in own}
        if len(own) < 2 or len(goals) != 1:
            continue
        values = [summary.best.value for _, summary in own if summary.best]
        best = min(values) if goals == {"min"} else max(values)
        winners = [(one, summary.best) for one, summary in own if summary.best and summary.best.value == best]
        names = _listed([one.label for one, _ in winners])
        place = f" at {winners[0][1].place}" if len(winners) == 1 and winners[0][1].place else ""
        words = f" {_words(metric)}" if _words(metric) else ""
        notes.append({"kind": "best", "text": f"best{words}: {names}, {text.number(best)}{place}"})
    return notes[:BAD_NOTES]


def _bad_notes(found: Sequence[tuple[ComparedRun, Axes, Metric, Effective, Summary]]) -> list[dict[str, str]]:
    notes = []
    for one, _, metric, _, summary in found:
        if summary.first_bad is not None:
            who = " · ".join(filter(None, (one.label, _words(metric))))
            notes.append({"kind": "bad", "text": f"{who}: {bad_sentence(summary)}"})
    if len(notes) > BAD_NOTES:
        more = len(notes) - BAD_NOTES
        return [*notes[:BAD_NOTES], {"kind": "bad", "text": f"{more} more lines have values that are not finite."}]
    return notes


def _drawing_notes(lines: Iterable[Line]) -> list[dict[str, str]]:
    reduced = [drawn["points"] for drawn in lines if "points" in drawn]
    if not reduced:
        return []
    return [
        {
            "kind": "info",
            "text": f"{len(reduced)} {'line' if len(reduced) == 1 else 'lines'} of up to {max(reduced):,} points drawn "
            "as means with their range",
        }
    ]


def _listed(names: Sequence[str], most: int = 4) -> str:
    shown = ", ".join(names[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown


# Title, metric, unit in which it is drawn, factor, and the attributes that the one line of a run has.
PACE: tuple[tuple[str, str, str, float, Mapping[str, str]], ...] = (
    ("Step time", "dl.step.time", "s", 1.0, {SPLIT: "train"}),
    ("Wait for data", "dl.data.wait.time", "s", 1.0, {SPLIT: "train"}),
    ("Samples per second", "dl.rank.samples_per_second", "samples/s", 1.0, {}),
    ("Tokens per second", "dl.rank.tokens_per_second", "tokens/s", 1.0, {}),
    ("Gradient norm", "dl.grad.norm", "", 1.0, {}),
    ("GPU utilisation", "hw.gpu.utilization", "%", 100.0, {}),
    ("GPU memory", "hw.gpu.memory.usage", "By", 1.0, {}),
    ("CPU of the host", "system.cpu.utilization", "%", 100.0, {}),
    ("Memory of the process", "process.memory.usage", "By", 1.0, {}),
)


def _pace(runs: Sequence[ComparedRun], axes: Sequence[Axes], detail: Detail) -> list[Chart]:
    charts = []
    for title, name, unit, factor, attributes in PACE:
        lines, several = [], False
        for one, places in zip(runs, axes, strict=True):
            own = [item.series for item in one.run.series() if item.series.name == name]
            own = [series for series in own if all(series.attribute(key) == value for key, value in attributes.items())]
            own.sort(
                key=lambda series: (series.rank, len(series.attributes), [str(pair) for pair in series.attributes])
            )
            several |= len(own) > 1
            if own:
                drawn = _line(one, _times(own[0], factor), places, detail, "", "solid")
                # Finer lines are there of metrics alone.
                del drawn["id"]
                lines.append(drawn)
        if len(lines) > 0:
            note = "of each run the first of several series; the run's own page has all" if several else ""
            charts.append(
                {
                    "title": title,
                    "unit": unit,
                    "kind": "machine",
                    "axis": "",
                    "lines": lines[:LINES_A_CHART],
                    "notes": _drawing_notes(lines),
                    "note": note,
                    "legend": False,
                }
            )
    return charts


def _times(series: Series, factor: float) -> Series:
    if factor == 1.0:
        return series
    scaled = series.take(range(len(series.values)))
    scaled.values = array("d", (value * factor for value in series.values))
    return scaled


def warnings(runs: Sequence[ComparedRun]) -> list[str]:
    """Return what makes curves of these runs hard to compare by step: other units of steps within one run or between.

    Within a run the warning is the run page's own.
    """
    found: list[str] = []
    for one in runs:
        found.extend(f"{one.label}: {warning}" for warning in axis_warnings(list(one.metrics.values())))
    units: dict[str, dict[str, list[str]]] = {}
    for one in runs:
        for metric, (item, summary) in one.metrics.items():
            if any(step == step for step in item.series.steps):
                key = f"{summary.key} ({metric.split})" if metric.split else summary.key
                labels = units.setdefault(key, {}).setdefault(item.series.axis, [])
                if one.label not in labels:
                    labels.append(one.label)
    mixed = [(key, axes) for key, axes in units.items() if len(axes) > 1]
    for key, axes_of in itertools.islice(mixed, 3):
        named = "; ".join(f"{axis}: {_listed(labels)}" for axis, labels in sorted(axes_of.items()))
        found.append(
            f"The runs count the steps of {key} in different units ({named}). Their curves are not comparable by step; "
            "choose relative time."
        )
    ranks = [one.label for one in runs if one.ranks_left_out]
    if ranks:
        found.append(
            f"Only the first rank's lines are drawn of {_listed(ranks)}: see the run's own page for the others."
        )
    return found
