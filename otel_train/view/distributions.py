"""Turns distributions of weights and gradients, counted up to each sampling, into pictures over time for the page.

A point of the run log holds all that was counted so far; what one sampling saw is the difference of two neighbours.
"""

from __future__ import annotations

import base64
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from otel_train.record.entries import SeriesAttributes
from otel_train.record.histogram_value import HistogramValue
from otel_train.semconv import LAYER
from otel_train.view.axes import Axes
from otel_train.view.series import Series

# Metric, title, and whether absolute values are drawn by their order of magnitude.
DRAWN: tuple[tuple[str, str, bool], ...] = (
    ("dl.weight.distribution", "Weights", False),
    ("dl.grad.distribution", "Gradients", True),
)
COLUMNS = 60
ROWS = 40
# Held in memory of one series; beyond that every second point goes: the neighbours' difference then spans both.
MOST_POINTS = 8 * COLUMNS
MOST_DECADES = 12
# What lies outside of these quantiles is drawn at the edge.
QUANTILES = (0.002, 0.998)
Buckets = list[tuple[float, float, int]]
Place = tuple[str, SeriesAttributes, int, int]


@dataclass(slots=True)
class Distributions:
    """The points of the distributions of one run, by series, attempt and rank."""

    points: dict[Place, list[tuple[int, HistogramValue]]] = field(default_factory=dict)

    def add(self, place: Place, time_ns: int, value: HistogramValue) -> None:
        """Keep one point."""
        kept = self.points.setdefault(place, [])
        kept.append((time_ns, value))
        if len(kept) > MOST_POINTS:
            # The last one stays, whose counts are those of all.
            del kept[len(kept) % 2 : -1 : 2]

    def pictures(self, all_series: Iterable[Series], axes: Axes) -> list[dict[str, Any]]:
        """Return for each kind of distribution its layers, each as a picture; of the first rank that has any."""
        listed = list(all_series)
        result = []
        for name, title, by_magnitude in DRAWN:
            found = [series for series in listed if series.name == name]
            rank = min((series.rank for series in found), default=0)
            layers = [self._picture(series, axes, by_magnitude) for series in found if series.rank == rank]
            if drawn := [layer for layer in layers if layer is not None]:
                result.append({"title": title, "log": by_magnitude, "layers": drawn})
        return result

    def _picture(self, series: Series, axes: Axes, by_magnitude: bool) -> dict[str, Any] | None:
        seen: dict[int, Buckets] = {}
        for (name, attributes, _, rank), points in self.points.items():
            if (name, attributes, rank) == series.identity:
                seen |= differences(thinned(points))
        columns = [(index, seen[time_ns]) for index, time_ns in enumerate(series.times_ns) if time_ns in seen]
        columns = [(index, buckets) for index, buckets in columns[-COLUMNS:] if buckets]
        scale = _Scale.of([buckets for _, buckets in columns], by_magnitude=by_magnitude)
        if scale is None:
            return None
        shares = [scale.shares(buckets) for _, buckets in columns]
        greatest = max(map(max, shares))
        # The eye sees few of many: roots keep the thin ends of a distribution visible.
        cells = bytes(round(255 * math.sqrt(share / greatest)) for column in shares for share in column)
        return {
            "name": str(series.attribute(LAYER) or "whole"),
            "x": axes.places(series, [index for index, _ in columns]),
            "low": scale.low,
            "high": scale.high,
            "rows": ROWS,
            "cells": base64.b64encode(cells).decode("ascii"),
            "greatest": greatest,
        }


def thinned(points: Sequence[tuple[int, HistogramValue]]) -> Sequence[tuple[int, HistogramValue]]:
    """Return at most `COLUMNS` points, the last one among them."""
    if len(points) <= COLUMNS:
        return points
    return [points[(number + 1) * len(points) // COLUMNS - 1] for number in range(COLUMNS)]


def differences(points: Sequence[tuple[int, HistogramValue]]) -> dict[int, Buckets]:
    """Return what was counted since the point before, as (lower, upper, count), by time; the first one whole."""
    result: dict[int, Buckets] = {}
    before: HistogramValue | None = None
    for time_ns, value in points:
        result[time_ns] = value.buckets() if before is None else _less(value, before).buckets()
        before = value
    return result


def _less(value: HistogramValue, before: HistogramValue) -> HistogramValue:
    """Return one state less an earlier one, which may have finer buckets; whole where counting began anew."""
    if value.scale is None or before.scale is None or before.count > value.count or before.scale < value.scale:
        return value
    shift = before.scale - value.scale
    positive = _indexed(value.positive_offset, value.positive_counts)
    negative = _indexed(value.negative_offset, value.negative_counts)
    for counts, offset, earlier in (
        (positive, before.positive_offset, before.positive_counts),
        (negative, before.negative_offset, before.negative_counts),
    ):
        for index, count in _indexed(offset, earlier).items():
            counts[index >> shift] -= count
    if min((0, *positive.values(), *negative.values())) < 0:
        return value
    return HistogramValue(
        count=value.count - before.count,
        sum=value.sum - before.sum,
        scale=value.scale,
        zero_count=max(0, value.zero_count - before.zero_count),
        positive_offset=min(positive, default=0),
        positive_counts=_dense(positive),
        negative_offset=min(negative, default=0),
        negative_counts=_dense(negative),
    )


def _indexed(offset: int, counts: Sequence[int]) -> dict[int, int]:
    found: dict[int, int] = defaultdict(int)
    for index, count in enumerate(counts, offset):
        if count:
            found[index] = count
    return found


def _dense(counts: Mapping[int, int]) -> tuple[int, ...]:
    return tuple([counts.get(index, 0) for index in range(min(counts), max(counts) + 1)]) if counts else ()


@dataclass(slots=True)
class _Scale:
    """Rows of equal height from `low` to `high`: values, or powers of ten of absolute values."""

    low: float
    high: float
    by_magnitude: bool

    @classmethod
    def of(cls, columns: Sequence[Buckets], *, by_magnitude: bool) -> _Scale | None:
        """Return the scale that shows nearly all of what was counted; None where there is nothing to show."""
        total: dict[tuple[float, float], int] = defaultdict(int)
        for buckets in columns:
            for low, high, count in _spread(buckets, by_magnitude):
                total[low, high] += count
        whole = sum(total.values())
        if not whole:
            return None
        edges: list[float] = []
        passed = 0.0
        wanted = [QUANTILES[0] * whole, QUANTILES[1] * whole]
        for low, high in sorted(total):
            passed += total[low, high]
            while len(edges) < 2 and passed >= wanted[len(edges)]:
                edges.append(low if not edges else high)
        least, most = edges if len(edges) == 2 else (edges[0], max(high for _, high in total))
        if by_magnitude:
            least = max(least, most - MOST_DECADES)
        else:
            # Weights lie around zero: so is their picture.
            most = max(abs(least), abs(most))
            least = -most
        if not most > least:
            least, most = least - 0.5, most + 0.5
        return cls(least, most, by_magnitude)

    def shares(self, buckets: Buckets) -> list[float]:
        """Return the share of what was counted in each row; what is wider than a row is spread evenly."""
        rows = [0.0] * ROWS
        height = (self.high - self.low) / ROWS
        whole = sum(count for _, _, count in buckets)
        for low, high, count in _spread(buckets, self.by_magnitude):
            first = min(ROWS - 1, max(0, int((low - self.low) / height)))
            last = min(ROWS - 1, max(0, int((high - self.low) / height)))
            if first == last or high <= low:
                rows[first] += count / whole
                continue
            for row in range(first, last + 1):
                # Beyond the picture counts as its edge.
                begin = low if row == 0 else max(low, self.low + row * height)
                end = high if row == ROWS - 1 else min(high, self.low + (row + 1) * height)
                rows[row] += max(0.0, end - begin) / (high - low) * count / whole
        return rows


def _spread(buckets: Buckets, by_magnitude: bool) -> Iterable[tuple[float, float, int]]:
    """Return buckets on the axis that is drawn; by magnitude both signs together, and zeros left out."""
    if not by_magnitude:
        return buckets
    return [
        (math.log10(min(abs(low), abs(high))), math.log10(max(abs(low), abs(high))), count)
        for low, high, count in buckets
        if low and high and math.isfinite(low) and math.isfinite(high)
    ]
