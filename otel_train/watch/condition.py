"""Says what is known of one condition that is watched for, from its threshold to what a person does about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["critical", "warning", "info"]
Comparison = Literal[">", ">=", "<"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One condition: it holds while the value of `metric` stands in this `comparison` to the run's threshold.

    `dl.alert.threshold{alert=<name>}` carries that threshold, in the value's unit. A condition that is switched off
    has one that no value reaches: +Inf, or 0 where the comparison is "<".
    """

    name: str
    title: str
    # The key of `init(alerts=…)` that sets the threshold, its default, and other keys that shape the condition.
    setting: str
    threshold: float
    also: tuple[str, ...] = ()
    unit: str
    comparison: Comparison
    # Metric whose value is compared (OTLP name), and attributes that choose among its series.
    metric: str
    where: tuple[tuple[str, str], ...] = ()
    # How long a rule over the stored series waits; 0 where the value itself is already taken over a window.
    for_s: int = 0
    severity: Severity
    summary: str
    meaning: str
    look_at: tuple[str, ...]
    remedies: tuple[str, ...]

    @property
    def event(self) -> str:
        """Name of the event at the onset."""
        return f"health.{self.name}"
