"""Says what there is to say of a metric: the row of the tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["gauge", "counter", "updowncounter", "histogram"]


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric: its OTLP name, unit (UCUM), kind, one sentence, and the attributes its points carry."""

    name: str
    unit: str
    kind: Kind
    description: str
    attributes: tuple[str, ...] = ()
