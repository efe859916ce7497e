"""Says what one alert consists of: its rule for Prometheus, and its chapter of the runbook."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

RUNBOOK = "docs/runbook.md"


@dataclass(frozen=True, kw_only=True)
class Alert:
    """One alert. `condition` is a label of it, and its anchor in the runbook."""

    name: str
    condition: str
    title: str
    severity: str
    expr: str
    for_s: int = 0
    keep_firing_for_s: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str]
    # The rest is for the runbook alone.
    summary: str
    threshold: str
    meaning: str
    look_at: tuple[str, ...]
    remedies: tuple[str, ...]

    def rule(self) -> dict[str, Any]:
        """Return the rule as Prometheus reads it."""
        rule: dict[str, Any] = {"alert": self.name, "expr": self.expr}
        if self.for_s:
            rule["for"] = duration(self.for_s)
        if self.keep_firing_for_s:
            rule["keep_firing_for"] = duration(self.keep_firing_for_s)
        rule["labels"] = {"severity": self.severity, "condition": self.condition, **self.labels}
        rule["annotations"] = {**self.annotations, "runbook": f"{RUNBOOK}#{self.condition}"}
        return rule


@dataclass(frozen=True, kw_only=True)
class Recording:
    """One recording rule: a name, what it is, and one sentence about it for people."""

    name: str
    expr: str
    labels: Mapping[str, str] = field(default_factory=dict)
    description: str

    def rule(self) -> dict[str, Any]:
        """Return the rule as Prometheus reads it."""
        rule: dict[str, Any] = {"record": self.name, "expr": self.expr}
        return rule | {"labels": dict(self.labels)} if self.labels else rule


def duration(seconds: int) -> str:
    """Return a duration as Prometheus writes it."""
    return f"{seconds // 60}m" if seconds % 60 == 0 else f"{seconds}s"
