"""Writes the series of a run as `promtool test rules` reads them: what it sends every 15 s, well or ill."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from deploy.prometheus.source.series import number
from otel_train.otlp.prometheus_names import known_name

STEP_S = 15
STATES = ("running", "finished", "failed", "lost")
Values = Sequence[str]


def constant(value: float, count: int) -> list[str]:
    """Return the same value so many times."""
    return ["+Inf" if value == math.inf else number(value)] * count


def missing(count: int) -> list[str]:
    """Return so many points that never came."""
    return ["_"] * count


def series(name: str, values: Values, labels: Mapping[str, str]) -> dict[str, str]:
    """Return one series; equal values that follow each other are written once, with their number."""
    inner = ",".join(f'{label}="{value}"' for label, value in labels.items())
    return {"series": f"{name}{{{inner}}}" if inner else name, "values": " ".join(_shortened(values))}


def _shortened(values: Values) -> list[str]:
    parts: list[str] = []
    start = 0
    while start < len(values):
        end = start
        while end < len(values) and values[end] == values[start]:
            end += 1
        count = end - start
        value = values[start]
        if value == "_":
            parts.append(f"_x{count}")
        elif value in ("stale", "NaN", "+Inf") or count == 1:
            parts += [value] * count
        else:
            parts.append(f"{value}x{count - 1}")
        start = end
    return parts


@dataclass
class Run:
    """One rank of one attempt of a run: it begins at a point in time, and lives for so many points.

    `end` is its last state, with end marks after it; without one it was killed. During `gap`, points from and to which
    nothing comes, it lives.
    """

    run_id: str
    attempt: int = 1
    rank: int = 0
    host: str = "node-1"
    start: int = 0
    points: int = 90
    end: str = ""
    gap: tuple[int, int] = (0, 0)
    thresholds: Mapping[str, float] = field(default_factory=dict)

    @property
    def labels(self) -> dict[str, str]:
        """The labels that all its series have."""
        return {
            "run_id": self.run_id,
            "run_name": f"name-{self.run_id}",
            "service_name": "digits",
            "run_attempt": str(self.attempt),
            "dl_rank": str(self.rank),
            "host_name": self.host,
        }

    def own(self, *, all_states: bool = False) -> list[dict[str, str]]:
        """Return heartbeat, states and thresholds; of the states, to be short, only those that it is ever in."""
        beats = [str((self.start + point) * STEP_S) for point in range(self.points)]
        made = [self.metric("dl.run.heartbeat", beats)]
        states = STATES if all_states else [state for state in STATES if state in ("running", self.end)]
        for state in states:
            values = constant(float(state == "running"), self.points)
            if self.end:
                values[-1] = str(int(state == self.end))
            made.append(self.metric("dl.run.state", values, state=state))
        for alert, threshold in self.thresholds.items():
            made.append(self.metric("dl.alert.threshold", constant(threshold, self.points), alert=alert))
        return made

    def metric(self, name: str, values: Values, /, **labels: str) -> dict[str, str]:
        """Return one series from the run's beginning on; its end mark follows where the run has ended."""
        begin, end = self.gap
        values = [*values[:begin], *missing(end - begin), *values[end:]]
        marks = ["stale"] if self.end else []
        return series(
            known_name(name), [*missing(self.start), *values[: self.points], *marks], {**self.labels, **labels}
        )


@dataclass
class Scene:
    """What one run sends, and which of its alerts fire at which times; the run's id says what it is about."""

    run_id: str
    given: list[dict[str, str]] = field(default_factory=list)
    checks: list[dict[str, Any]] = field(default_factory=list)

    def at(self, at_s: int, *firing: Mapping[str, str]) -> Scene:
        """Add the check that of this run exactly these alerts fire at this time, labels and all."""
        samples = [
            {"labels": "ALERTS" + _braces({**labels, "alertstate": "firing"}), "value": 1}
            for labels in sorted(firing, key=lambda labels: sorted(labels.items()))
        ]
        expr = f'ALERTS{{alertstate="firing",run_id="{self.run_id}"}}'
        self.checks.append({"expr": expr, "eval_time": f"{at_s}s", "exp_samples": samples})
        return self


def as_test(name: str, scenes: Sequence[Scene], interval_s: int = STEP_S) -> dict[str, Any]:
    """Return a test of runs that are there at the same time, as runs are."""
    assert len({scene.run_id for scene in scenes}) == len(scenes)
    return {
        "name": name,
        "interval": f"{interval_s}s",
        "input_series": [one for scene in scenes for one in scene.given],
        "promql_expr_test": [check for scene in scenes for check in scene.checks],
    }


def _braces(labels: Mapping[str, str]) -> str:
    return "{" + ",".join(f'{label}="{value}"' for label, value in sorted(labels.items())) + "}"


def named(name: str, run: Run, values: Values, **labels: str) -> dict[str, str]:
    """Return one series of a metric that is spelled as Prometheus has it, such as one of the user's own."""
    made = run.metric("dl.step", values, **labels)
    return {**made, "series": made["series"].replace("dl_step", name, 1)}
