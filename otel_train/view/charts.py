"""Decides what every chart of the page shows: its lines with gaps, marks, bands, best values, and what is said below.

A chart is plain data for the page's script, which gives it to plotly in the reader's colours and on the axis chosen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from otel_train.semconv import SPLIT
from otel_train.view import text
from otel_train.view.axes import Axes
from otel_train.view.reduce import RAW_POINTS, Row, joined, rows_of
from otel_train.view.series import Effective, Series
from otel_train.view.summary import Summary

Chart = dict[str, Any]
Line = dict[str, Any]

# Rows of all charts together: at about 60 bytes a row in each of three places the page stays below 15 MB.
ALL_ROWS = 100_000
LINES_A_CHART = 40


@dataclass(slots=True)
class Detail:
    """How finely series are drawn, by how many of them share the page."""

    raw_points: int = RAW_POINTS
    buckets: int = 1_000

    @classmethod
    def for_series(cls, count: int) -> Detail:
        """Return the detail at which `count` series fit on one page."""
        share = ALL_ROWS // max(1, count)
        return cls(min(RAW_POINTS, max(120, share)), min(1_000, max(60, share)))


@dataclass(slots=True)
class Named:
    """A series with the words and the role (which decides its colour) under which it is drawn."""

    series: Series
    label: str
    role: str
    summary: Summary | None = None
    replaced: Sequence[Series] = field(default_factory=tuple)
    faint: bool = False


def line(named: Named, axes: Axes, detail: Detail) -> Line:
    """Return one line: a value of None is a gap, and no gap is ever bridged."""
    series = named.series
    rows, reduced = rows_of(series.values, gaps=series.gaps, raw_points=detail.raw_points, buckets=detail.buckets)
    if reduced:
        rows = _with_breaks(rows)
    result: Line = {"label": named.label, "role": named.role, "y": [_short(row.mean, reduced) for row in rows]}
    result["x"] = axes.places(series, [row.index for row in rows])
    if reduced:
        result["low"], result["high"] = [row.low for row in rows], [row.high for row in rows]
        result["points"] = len(series.values)
    marks = [
        [position, row.bad.nan, row.bad.positive_infinity, row.bad.negative_infinity]
        for position, row in enumerate(rows)
        if row.bad.total
    ]
    if marks:
        result["marks"] = marks
    if named.faint:
        result["faint"] = True
    return result


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
    """Return one chart of at most `LINES_A_CHART` lines; what is left out is said."""
    shown = list(lines[:LINES_A_CHART])
    result: Chart = {"title": title, "unit": unit, "lines": [], "notes": [], **more}
    for named in shown:
        drawn = line(named, axes, detail)
        best = named.summary.best if named.summary else None
        if named.summary and best is not None:
            index = named.series.values.index(best.value)
            drawn["best"] = {
                "value": best.value,
                "x": {axis: places[0] for axis, places in axes.places(named.series, [index]).items()},
            }
        result["lines"].append(drawn)
        for old in named.replaced:
            older = Named(old, f"{named.label} (attempt {old.attempt})", named.role, faint=True)
            result["lines"].append({**line(older, axes, detail), "replaced": True})
        result["notes"].extend(_notes(named))
    result["notes"].extend(_reduction_notes(result["lines"]))
    if len(lines) > len(shown):
        result["notes"].append({"kind": "info", "text": f"{len(lines) - len(shown)} more series are not drawn here."})
    return result


def _notes(named: Named) -> list[dict[str, str]]:
    notes = []
    summary = named.summary
    name = named.label if named.label != "value" else ""
    if summary and summary.best is not None:
        place = f" at {summary.best.place}" if summary.best.place else ""
        notes.append(
            {"kind": "best", "text": f"best {name} {text.number(summary.best.value)}{place}".replace("  ", " ")}
        )
    if summary and summary.first_bad is not None:
        notes.append({"kind": "bad", "text": (f"{name}: " if name else "") + bad_sentence(summary)})
    return notes


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
    groups: dict[str, list[tuple[Effective, Summary]]] = {}
    for item in metrics:
        groups.setdefault(item[0].series.name, []).append(item)
    several_ranks = len({item[0].series.rank for item in metrics}) > 1
    keys = [items[0][0].series.key for items in groups.values()]
    charts = []
    for name, items in groups.items():
        items.sort(key=lambda item: (_split_order(item[0].series.split), item[0].series.rank))
        lines = [
            Named(
                item.series,
                label_of(item.series, with_rank=several_ranks),
                item.series.split or "value",
                summary,
                item.replaced,
                faint=several_ranks and item.series.rank != 0,
            )
            for item, summary in items
        ]
        key = items[0][0].series.key
        title = key if keys.count(key) == 1 else f"{key} ({name})"
        made = chart(title, items[0][0].series.unit, lines, axes, detail, kind="metric")
        used = sorted({item.series.axis for item, _ in items if any(step == step for step in item.series.steps)})
        made["axis"] = ", ".join(used)
        charts.append(made)
    return sorted(charts, key=lambda made: 0 if "loss" in str(made["title"]).lower() else 1)


def _split_order(split: str) -> int:
    return {"train": 0, "val": 1, "test": 2}.get(split, 3)


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
    ranges = {split: _steps_by_time(series) for split, series in longest.items()}
    train = ranges.pop("train", [])
    if len(train) < 2:
        return []
    found = []
    for split, pairs in sorted(ranges.items()):
        behind = total = 0
        position, newest = 0, 0.0
        for time_ns, step in pairs:
            while position < len(train) and train[position][0] <= time_ns:
                newest = train[position][1]
                position += 1
            if position:
                total += 1
                behind += step <= newest / 2 and newest - step > 1
        # Twice is no accident; once may be a late first evaluation.
        if total >= 2 and behind == total:
            found.append(
                f"Two step units seem to be mixed: the steps of {split or 'values without a split'} stay behind half "
                "of those of train logged before them. Name one of them with axis=, or choose time."
            )
    return found


def _steps_by_time(series: Series) -> list[tuple[int, float]]:
    pairs = zip(series.times_ns, series.steps, strict=True)
    return sorted((time_ns, step) for time_ns, step in pairs if step == step)
