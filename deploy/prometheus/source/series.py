"""Writes PromQL that several rules have in common."""

from __future__ import annotations


def indent(text: str, spaces: int = 2) -> str:
    """Return a text with each of its lines moved to the right."""
    return "\n".join(" " * spaces + line for line in text.split("\n"))


def rise(counter: str, window: str) -> str:
    """Return by how much each series of a counter rose within a window, exactly.

    Unlike `increase` it counts the first value of a series that was not there before: what is never 0 appears with its
    first fault. The value before is looked for within an hour, so that a gap of the data counts nothing twice. After a
    restart all counts.
    """
    now = f"last_over_time({counter}[{window}])"
    return f"{now}\n-\n((last_over_time({counter}[1h] offset {window}) <= {now}) or {now} * 0)"


def number(value: float) -> str:
    """Return a number as PromQL and people read it: 2000, 0.1, 1e-07."""
    return f"{value:.12g}"
