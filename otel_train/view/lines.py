"""Gives the points of single lines of the page: finer within a range, or every one of them as CSV."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from otel_train.clock import NS_PER_S, iso
from otel_train.view.axes import Axes
from otel_train.view.charts import Detail, Named, label_of, line
from otel_train.view.parts import Page, drawn_series
from otel_train.view.run_data import RunData
from otel_train.view.series import Series, series_id

# As many points are drawn one by one; beyond, as many means with their range.
RAW_POINTS = 2_000
BUCKETS = 1_000
COLUMNS = ("series", "step", "epoch", "time", "elapsed_s", "value")
# What a spreadsheet takes for a formula where a cell begins with it.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def finer(run: RunData, line_id: str, axis: str, low: float | None, high: float | None) -> dict[str, Any] | None:
    """Return one line between two places of an axis, both included; None where there is no such line.

    A line that is drawn in another unit, as a rate or added up is given as it is drawn. Points that have no place on
    the axis are left out.
    """
    page = Page(run)
    series = find(page, line_id)
    if series is None:
        return None
    chosen = _within(series, page.axes, axis, low, high)
    part = series if chosen is None else series.take(chosen)
    made = line(Named(part, "", ""), page.axes, Detail(RAW_POINTS, BUCKETS))
    wanted = ("x", "y", "low", "high", "marks")
    return {"id": line_id, "points": len(part.values), **{key: made[key] for key in wanted if key in made}}


def find(page: Page, line_id: str) -> Series | None:
    """Return the series that is drawn under this id; None where none is."""
    identity, _, attempt = line_id.partition("-")
    for item in page.run.series():
        if item.series.name.startswith("train.") and series_id(item.series) == identity:
            if not attempt:
                return item.series
            return next((old for old in item.replaced if str(old.attempt) == attempt), None)
    return drawn_series(page).get(line_id)


def _within(series: Series, axes: Axes, axis: str, low: float | None, high: float | None) -> Sequence[int] | None:
    """Return the indices of the points within a range; None for all of them."""
    if low is None and high is None:
        return None
    least, most = -math.inf if low is None else low, math.inf if high is None else high
    places: Sequence[float | None]
    if axis == "step":
        places = series.steps
    elif axis == "epoch":
        # In pieces, since only the places that are asked for are wanted.
        places = axes.epochs(series)
    else:
        first, last = axes.time_ns(least), axes.time_ns(most)
        return [index for index, time_ns in enumerate(series.times_ns) if first <= time_ns <= last]
    return [index for index, place in enumerate(places) if place is not None and least <= place <= most]


# CSV -----------------------------------------------------------------------------------------------------------------


def csv_rows(run: RunData, ids: Iterable[str]) -> Iterator[str]:
    """Give the head and then a row for every point of these lines, as RFC 4180 has it; unknown ids are passed over.

    Numbers are written so that they read back the same, those that are not finite as NaN, Infinity, -Infinity, and
    nothing for a point that says "no value here". A name that a spreadsheet would take for a formula (one that begins
    with = + - @ or a control character) gets an apostrophe in front.
    """
    page = Page(run)
    found = [series for line_id in ids if (series := find(page, line_id)) is not None]
    # What is written is what there is now, also where the run goes on meanwhile.
    copies = [(series_name(series), *_columns(series)) for series in found]
    started_ns = run.started_ns
    return _rows(copies, started_ns)


def series_name(series: Series) -> str:
    """Return the name of a series in a table: key, split and other attributes, and the rank where it is not 0."""
    label = label_of(series, with_rank=series.rank != 0)
    return series.key if label == "value" else f"{series.key} · {label}"


def _columns(
    series: Series,
) -> tuple[array[int], array[float], array[float], array[float], frozenset[int]]:
    return series.times_ns[:], series.values[:], series.steps[:], series.epochs[:], frozenset(series.gaps)


def _rows(copies: Sequence[tuple[Any, ...]], started_ns: int) -> Iterator[str]:
    yield ",".join(COLUMNS) + "\r\n"
    for name, times_ns, values, steps, epochs, gaps in copies:
        cell = text_cell(name)
        for index, time_ns in enumerate(times_ns):
            value = "" if index in gaps else number_cell(values[index])
            elapsed = number_cell((time_ns - started_ns) / NS_PER_S)
            places = f"{_place(steps[index])},{_place(epochs[index])}"
            yield f"{cell},{places},{iso(time_ns)},{elapsed},{value}\r\n"


def text_cell(text: str) -> str:
    """Return a text as one cell of CSV that no spreadsheet takes for a formula."""
    if text.startswith(_FORMULA):
        text = "'" + text
    if any(letter in text for letter in ',"\r\n'):
        text = '"' + text.replace('"', '""') + '"'
    return text


def number_cell(number: float) -> str:
    """Return a number as it reads back the same; whole ones without a point."""
    if number - number != 0.0:
        return "NaN" if number != number else "Infinity" if number > 0 else "-Infinity"
    return str(int(number)) if number.is_integer() and abs(number) < 1e15 else repr(number)


def _place(number: float) -> str:
    return "" if number != number else number_cell(number)
