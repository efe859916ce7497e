"""Gives what was measured of checkpoints the step and epoch that run.json has of each of them."""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, Sequence
from typing import Any

from otel_train.view.run_data import mappings
from otel_train.view.series import Series

_TIME = "dl.checkpoint.time"
NAMES = frozenset({_TIME, "dl.checkpoint.size"})
_Place = tuple[float, float]
_NOWHERE: _Place = (math.nan, math.nan)


def placed(found: Sequence[Series], info: Mapping[str, Any]) -> list[Series]:
    """Return the same series, those of checkpoints with places: a checkpoint is known by how long it took to write.

    The readings themselves are of a moment between two steps and have none.
    """
    of_duration = {
        record["duration_s"]: (_number(record.get("step")), _number(record.get("epoch")))
        for record in mappings(info.get("checkpoints"))
        if record.get("role") == "saved" and isinstance(record.get("duration_s"), float)
    }
    of_time: dict[tuple[int, int], _Place] = {}
    for series in found:
        if series.name == _TIME:
            for time_ns, duration_s in zip(series.times_ns, series.values, strict=True):
                of_time[series.rank, time_ns] = of_duration.get(duration_s, _NOWHERE)
    return [_with_places(series, of_time) if series.name in NAMES else series for series in found]


def _with_places(series: Series, of_time: Mapping[tuple[int, int], _Place]) -> Series:
    result = series.take(range(len(series.values)))
    places = [of_time.get((series.rank, time_ns), _NOWHERE) for time_ns in series.times_ns]
    result.steps = array("d", (step for step, _ in places))
    result.epochs = array("d", (epoch for _, epoch in places))
    return result


def _number(value: object) -> float:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else math.nan
