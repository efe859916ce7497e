"""Decides what every chart of the page shows: its lines with gaps, marks, bands, best values, and what is said below.

A chart is plain data for the page's script, which gives it to plotly in the reader's colours and on the axis chosen.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from operator import lt
from typing import Any

from otel_train.semconv import SPLIT
from otel_train.view import text
from otel_train.view.axes import Axes
from otel_train.view.inks import inks, split_order
from otel_train.view.reduce import RAW_POINTS, Row, is_finite, joined, rows_of
from otel_train.view.series import Effective, Series, series_id
from otel_train.view.summary import Summary

Chart = dict[str, Any]
Line = dict[str, Any]

# Rows of all charts together: at about 60 bytes a row in each of three places the page stays below 15 MB.
ALL_ROWS = 100_000
# More than a screen has pixels for one chart; a run of a million points then stays below a megabyte.
BUCKETS = 800
LINES_A_CHART = 40


@dataclass(slots=True)
class Detail:
    """How finely series are drawn, by how many of them share the page."""

    raw_points: int = RAW_POINTS
    buckets: int = BUCKETS
    # Takes the series that is drawn under each id, where somebody asks for it.
    drawn: dict[str, Series] | None = None

    @classmethod
    def for_series(cls, count: int) -> Detail:
        """Return the detail at which `count` series fit on one page."""
        share = ALL_ROWS // max(1, count)
        return cls(min(RAW_POINTS, max(120, share)), min(BUCKETS, max(60, share)))


@dataclass(slots=True)
class Named:
    """A series with the words and the role (which decides its colour) under which it is drawn."""

    series: Series
    label: str
    role: str
    summary: Summary | None = None
    replaced: Sequence[Series] = field(default_factory=tuple)
    faint: bool = False
    # Where the run has several.
    rank: int | None = None
    # "" for that of its place among the lines.
    dash: str = ""


def line(named: Named, axes: Axes, detail: Detail) -> Line:
    """Return one line: a value of None is a gap, and no gap is ever bridged."""
    series = named.series
    rows, reduced = rows_of(series.values, gaps=series.gaps, raw_points=detail.raw_points, buckets=detail.buckets)
    if reduced:
        rows = _with_breaks(rows)
    result: Line = {
        "id": series_id(series),
        "label": named.label,
        "role": named.role,
        "y": [_short(row.mean, reduced) for row in rows],
    }
    result["x"] = axes.places(series, [row.index for row in rows])
    if reduced:
        # Nine digits tell any two 32-bit floats apart, and 17 would be a third of the page.
        result["low"] = [row.low if row.low is None else float(f"{row.low:.9g}") for row in rows]
        result["high"] = [row.high if row.high is None else float(f"{row.high:.9g}") for row in rows]
        result["points"] = len(series.values)
    marks = [[position, *row.bad.counts] for position, row in enumerate(rows) if row.bad.total]
    if marks:
        result["marks"] = marks
    if named.rank is not None:
        result["rank"] = named.rank
    if named.dash:
        result["dash"] = named.dash
    if detail.drawn is not None:
        detail.drawn[result["id"]] = series
    if named.faint:
        result["faint"] = True
    return result


def marks_of(values: Sequence[float], gaps: Collection[int] = ()) -> list[list[int]]:
    """Return the marks of points that are drawn one by one: position, then one of NaN, +Inf, -Inf counted."""
    return [
        [position, int(value != value), int(value > 0), int(value < 0)]
        for position, value in enumerate(values)
        if value - value != 0.0 and position not in gaps
    ]


def best_of(series: Series, summary: Summary, axes: Axes) -> dict[str, Any] | None:
    """Return the best value of a series with its places; None where none is the best."""
    if summary.best is None or summary.best_index is None:
        return None
    places = axes.places(series, [summary.best_index])
    return {"value": summary.best.value, "x": {axis: found[0] for axis, found in places.items()}}


def _with_breaks(rows: Sequence[Row]) -> list[Row]:
    """Put a gap between neighbours that no line may join."""
    result: list[Row] = []
    for row in rows:
        if result and result[-1].mean is not None and row.mean is not None and not joined(result[-1], row):
            result.append(Row(row.index, None, None, None, 0))
        result.append(row)
    return result


def _short(value: float | None, reduced: bool) -> float | None:
    # A mean of many points has no use for 17 digits; a point is drawn as it is.
    return float(f"{value:.8g}") if reduced and value is not None else value


def chart(title: str, unit: str, lines: Sequence[Named], axes: Axes, detail: Detail, **more: Any) -> Chart:
    """Return one chart of at most `LINES_A_CHART` lines for each rank; what is left out is said."""
    shown = shown_of(lines)
    result: Chart = {"title": title, "unit": unit, "lines": [], "notes": [], **more}
    for named in shown:
        drawn = line(named, axes, detail)
        if named.summary and (best := best_of(named.series, named.summary, axes)) is not None:
            drawn["best"] = best
        result["lines"].append(drawn)
        for old in named.replaced:
            older = Named(old, f"{named.label} (attempt {old.attempt})", named.role, faint=True)
            drawn = line(older, axes, detail)
            result["lines"].append({**drawn, "id": f"{drawn['id']}-{old.attempt}", "replaced": True})
        if named.summary:
            result["notes"].extend(notes_of(named.series, named.label, named.summary))
    result["notes"].extend(_reduction_notes(result["lines"]))
    if len(lines) > len(shown):
        result["notes"].append({"kind": "info", "text": f"{len(lines) - len(shown)} more series are not drawn here."})
    return result


def shown_of(lines: Sequence[Named]) -> list[Named]:
    """Return the lines that a chart has room for: none is left out for being that of another rank."""
    of_rank: Counter[int] = Counter()
    shown = []
    for named in lines:
        of_rank[named.series.rank] += 1
        if of_rank[named.series.rank] <= LINES_A_CHART:
            shown.append(named)
    return shown


def notes_of(series: Series, label: str, summary: Summary) -> list[dict[str, str]]:
    """Return what is said below the chart of one line: its best value, and what was not finite."""
    notes = []
    name = label if label != "value" else ""
    if summary.best is not None:
        place = f" at {summary.best.place}" if summary.best.place else ""
        notes.append(
            {"kind": "best", "text": f"best {name} {text.number(summary.best.value)}{place}".replace("  ", " ")}
        )
    if summary.first_bad is not None:
        notes.append({"kind": "bad", "text": (f"{name}: " if name else "") + bad_sentence(summary)})
    return [{**note, "line": series_id(series)} for note in notes]


def _reduction_notes(lines: Sequence[Line]) -> list[dict[str, str]]:
    """Say which lines are not drawn point by point; lines of equal length in one sentence."""
    names: dict[tuple[int, int], list[str]] = {}
    for drawn in lines:
        if "points" in drawn and not drawn.get("replaced"):
            means = sum(1 for value in drawn["y"] if value is not None)
            names.setdefault((drawn["points"], means), []).append(drawn["label"])
    notes = []
    for (points, means), labels in names.items():
        if labels == ["value"] or len(labels) == len(lines) == 1:
            who = ""
        else:
            who = f"{labels[0]}: " if len(labels) == 1 else f"{len(labels)} series, each: "
        notes.append({"kind": "info", "text": f"{who}{points:,} points drawn as {means:,} means with their range"})
    return notes


def bad_sentence(summary: Summary) -> str:
    """Return how many values were not finite, by kind, and where the first one was."""
    bad = summary.bad
    kinds = ((bad.nan, "NaN"), (bad.positive_infinity, "+Inf"), (bad.negative_infinity, "-Inf"))
    counts = ", ".join(f"{count:,} {name}" for count, name in kinds if count)
    place = summary.first_bad.place if summary.first_bad else ""
    return counts + (f"; first bad {place}" if place else "")


def metric_charts(metrics: Sequence[tuple[Effective, Summary]], axes: Axes, detail: Detail) -> list[Chart]:
    """Return one chart for each of the user's metrics, its splits on it together."""
    groups = metric_groups(metrics)
    keys = [group.series[0].key for group in groups]
    charts = []
    for group in groups:
        first = group.series[0]
        title = first.key if keys.count(first.key) == 1 else f"{first.key} ({first.name})"
        made = chart(title, first.unit, [named for _, named in group.lines], axes, detail, kind="metric")
        used = sorted({series.axis for series in group.series if any(step == step for step in series.steps)})
        made["axis"] = ", ".join(used)
        charts.append(made)
    return sorted(charts, key=lambda made: 0 if "loss" in str(made["title"]).lower() else 1)


@dataclass(slots=True)
class MetricGroup:
    """The series of one metric, its splits and ranks, as the lines of one chart."""

    lines: list[tuple[Effective, Named]]

    @property
    def series(self) -> list[Series]:
        """The series, in the order of their lines."""
        return [named.series for _, named in self.lines]

    @property
    def shown(self) -> list[tuple[Effective, Named]]:
        """Those lines that the chart has room for."""
        kept = {id(named) for named in shown_of([named for _, named in self.lines])}
        return [(item, named) for item, named in self.lines if id(named) in kept]


def metric_groups(metrics: Sequence[tuple[Effective, Summary]]) -> list[MetricGroup]:
    """Return the user's metrics by name."""
    groups: dict[str, list[tuple[Effective, Summary]]] = {}
    for item in metrics:
        groups.setdefault(item[0].series.name, []).append(item)
    several_ranks = len({item[0].series.rank for item in metrics}) > 1
    result = []
    for items in groups.values():
        items.sort(key=lambda item: (split_order(item[0].series.split), item[0].series.rank))
        drawn = inks([item.series for item, _ in items], by_rank=False)
        result.append(
            MetricGroup(
                [
                    (
                        item,
                        Named(
                            item.series,
                            label_of(item.series, with_rank=several_ranks),
                            ink.role,
                            summary,
                            item.replaced,
                            faint=several_ranks and item.series.rank != 0,
                            rank=item.series.rank if several_ranks else None,
                            dash=ink.dash,
                        ),
                    )
                    for (item, summary), ink in zip(items, drawn, strict=True)
                ]
            )
        )
    return result


def label_of(series: Series, *, with_rank: bool = False, without: Sequence[str] = (SPLIT,)) -> str:
    """Return what tells this series from the others of its chart."""
    parts = [series.split] if series.split else []
    parts.extend(f"{key}={value!s}" for key, value in series.attributes if key not in (SPLIT, "axis", *without))
    if with_rank:
        parts.append(f"rank {series.rank}")
    return " · ".join(parts) or "value"


def axis_warnings(metrics: Sequence[tuple[Effective, Summary]]) -> list[str]:
    """Return a warning where series of this run count their steps on different axes, or seem to."""
    first: dict[str, str] = {}
    for item, _ in metrics:
        if any(step == step for step in item.series.steps):
            first.setdefault(item.series.axis, f"{item.series.key} ({item.series.split})".replace(" ()", ""))
    if len(first) > 1:
        named = "; ".join(f"{axis}: {example}" for axis, example in sorted(first.items()))
        return [
            f"Two step units are mixed in this run ({named}). Points of different axes are not comparable by step; "
            "choose time or epoch."
        ]
    return _suspicious_steps(metrics)


def _suspicious_steps(metrics: Sequence[tuple[Effective, Summary]]) -> list[str]:
    """Return a warning where a split's steps always lag far behind those of the training points around them in time."""
    longest: dict[str, Series] = {}
    for item, _ in metrics:
        kept = longest.get(item.series.split)
        if kept is None or len(item.series.values) > len(kept.values):
            longest[item.series.split] = item.series
    if len(longest) < 2 or "train" not in longest:
        return []
    times, steps = _steps_by_time(longest.pop("train"))
    if len(times) < 2:
        return []
    found = []
    for split, series in sorted(longest.items()):
        behind = total = 0
        for time_ns, step in zip(*_steps_by_time(series), strict=True):
            position = bisect_right(times, time_ns)
            if position:
                newest = steps[position - 1]
                total += 1
                behind += step <= newest / 2 and newest - step > 1
        # Twice is no accident; once may be a late first evaluation.
        if total >= 2 and behind == total:
            found.append(
                f"Two step units seem to be mixed: the steps of {split or 'values without a split'} stay behind half "
                "of those of train logged before them. Name one of them with axis=, or choose time."
            )
    return found


def _steps_by_time(series: Series) -> tuple[Sequence[int], Sequence[float]]:
    """Return the times of those points that have a step, in order, and the steps; of equal times the largest last."""
    times, steps = series.times_ns, series.steps
    if is_finite(steps) and all(map(lt, times, times[1:])):
        return times, steps
    pairs = sorted(pair for pair in zip(times, steps, strict=True) if pair[1] == pair[1])
    return [time_ns for time_ns, _ in pairs], [step for _, step in pairs]
