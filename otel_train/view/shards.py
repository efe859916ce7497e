"""Puts the norms of a model's shards together: each rank of FSDP tells of the part that it holds."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Mapping, Sequence

from otel_train.record.entries import SeriesAttributes
from otel_train.semconv import PART
from otel_train.view.series import Series

NORMS = frozenset({"dl.grad.norm", "dl.grad.norm.clipped", "dl.weight.norm"})
RATIO = "dl.update.ratio"
WEIGHT = "dl.weight.norm"
_SHARD = (PART, "shard")
Group = dict[tuple[str, SeriesAttributes], list[Series]]


def joined(all_series: Iterable[Series]) -> list[Series]:
    """Return the series with those of shards replaced by that of the whole, at the steps that all of their ranks have.

    The norm of the whole is the root of the sum of squares; its update ratio is sqrt(sum((r w)^2) / sum(w^2)) with the
    ratio r and weight norm w of each shard.
    """
    result: list[Series] = []
    shards: Group = {}
    for series in all_series:
        if _SHARD in series.attributes and (series.name in NORMS or series.name == RATIO):
            shards.setdefault((series.name, _whole(series.attributes)), []).append(series)
        else:
            result.append(series)
    for (name, attributes), parts in shards.items():
        if name == RATIO:
            weights = [_by_step(series) for series in shards.get((WEIGHT, attributes), ())]
            made = _ratios([_by_step(series) for series in parts], weights)
        else:
            made = _norms([_by_step(series) for series in parts])
        result.append(_like(parts[0], attributes, made))
    return result


def _whole(attributes: SeriesAttributes) -> SeriesAttributes:
    return tuple([pair for pair in attributes if pair != _SHARD])


def _by_step(series: Series) -> dict[float, float]:
    return dict(zip(series.steps, series.values, strict=True))


def _common(parts: Sequence[Mapping[float, float]]) -> list[float]:
    return [step for step in parts[0] if all(step in part for part in parts)] if parts else []


def _norms(parts: Sequence[Mapping[float, float]]) -> dict[float, float]:
    return {step: math.sqrt(math.fsum(part[step] ** 2 for part in parts)) for step in _common(parts)}


def _ratios(ratios: Sequence[Mapping[float, float]], weights: Sequence[Mapping[float, float]]) -> dict[float, float]:
    if len(ratios) != len(weights):
        return {}
    found = {}
    for step in _common([*ratios, *weights]):
        size = math.fsum(weight[step] ** 2 for weight in weights)
        moved = math.fsum((ratio[step] * weight[step]) ** 2 for ratio, weight in zip(ratios, weights, strict=True))
        found[step] = math.sqrt(moved / size) if size else 0.0
    return found


def _like(series: Series, attributes: SeriesAttributes, values: Mapping[float, float]) -> Series:
    """Return a series at the places of the first rank's, where the whole is known."""
    kept = [index for index, step in enumerate(series.steps) if step in values]
    result = series.take(kept)
    result.attributes = attributes
    result.values = array("d", [values[step] for step in result.steps])
    return result
