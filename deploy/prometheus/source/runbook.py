"""Writes the runbook: for each alert what it means, what to look at and what to do."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from deploy.prometheus.source.alert import Alert

NOTE = "<!-- Written by deploy/prometheus/source from the tables of alerts; change those, then run `make rules`. -->"
INTRODUCTION = (
    "What to do when an alert of the stack fires: what it means, what to look at, what to do. Each alert links here by "
    "its condition. The same conditions write an event `health.<condition>` into the run log, once at their onset, for "
    "those who have no stack.",
    "A run sets its own thresholds, without touching Prometheus: "
    '`otel_train.init(alerts={"plateau_steps": 5000, "gpu_idle_s": 0})`, or `OTEL_TRAIN_ALERTS="plateau_steps=5000"`. '
    "Alerts about how a run goes end with the run; `failed` and `lost` are told once and resolve by themselves after "
    "ten to fifteen minutes, or when the run is resumed. While a run is failed or lost, its other alerts are silent; "
    "while a part of the stack is down, so is what follows from it.",
)


def runbook_page(groups: Sequence[tuple[str, Sequence[Alert]]]) -> str:
    """Return the page, a chapter for each group of alerts."""
    parts = ["# Runbook", NOTE, *map(_wrap, INTRODUCTION)]
    for title, alerts in groups:
        rows = [f"| [{alert.condition}](#{alert.condition}) | {alert.severity} | {alert.summary} |" for alert in alerts]
        parts += [f"## {title}", "\n".join(["| alert | severity | when |", "| --- | --- | --- |", *rows])]
        for alert in alerts:
            parts += _chapter(alert)
    return "\n\n".join(parts) + "\n"


def _chapter(alert: Alert) -> list[str]:
    waits = f" It must hold for {alert.for_s} s." if alert.for_s else ""
    return [
        # The anchor is the heading itself, as every viewer of Markdown makes it.
        f"### {alert.condition}",
        _wrap(f"**{alert.title}** (`{alert.name}`, {alert.severity}). {alert.summary}"),
        _wrap(f"*When:* {alert.threshold}{waits}"),
        _wrap(f"*What it means:* {alert.meaning}"),
        "*What to look at:*",
        _list(alert.look_at),
        "*What to do:*",
        _list(alert.remedies),
    ]


def _list(items: Sequence[str]) -> str:
    return "\n".join(_wrap(f"- {item}", "  ") for item in items)


def _wrap(text: str, following: str = "") -> str:
    return textwrap.fill(text, width=118, break_long_words=False, break_on_hyphens=False, subsequent_indent=following)
