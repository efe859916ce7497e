"""Tells which points are one series to Prometheus: the spelled name, the labels, and the resource."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any, Final

from otel_train.otlp.prometheus_names import label_name, prometheus_name, taken_name

SeriesKey = tuple[str, tuple[tuple[str, str], ...], tuple[tuple[str, str], ...]]
NUMBER_KINDS: Final = ("gauge", "sum")
KINDS: Final = (*NUMBER_KINDS, "histogram", "exponentialHistogram", "summary")


def metric_kind(metric: dict[str, Any]) -> str:
    """Return the key under which a metric holds its data points; empty where it holds none that can be read."""
    for kind in KINDS:
        data = metric.get(kind)
        if isinstance(data, dict) and isinstance(data.get("dataPoints"), list):
            return kind
    return ""


def spelled_name(metric: dict[str, Any], kind: str) -> str:
    """Return the metric's name as Prometheus spells it."""
    name, unit = metric.get("name"), metric.get("unit")
    spelled_kind = kind
    if kind == "sum":
        spelled_kind = "counter" if metric["sum"].get("isMonotonic") is True else "updowncounter"
    return prometheus_name(str(name or ""), str(unit or ""), spelled_kind)


def fit_names(holder: dict[str, Any]) -> bool:
    """Rename attributes of a point or record whose name no store takes; True where there was one."""
    found = holder.get("attributes")
    changed = False
    for pair in found if isinstance(found, list) else ():
        if isinstance(pair, dict) and isinstance(pair.get("key"), str):
            name = taken_name(pair["key"])
            changed |= name != pair["key"]
            pair["key"] = name
    return changed


def labels(attributes: Any) -> tuple[tuple[str, str], ...]:
    """Return OTLP attributes as Prometheus labels, sorted.

    Two attributes with one spelling become one label, their values joined by ";"; an empty value is no label.
    """
    found: defaultdict[str, list[str]] = defaultdict(list)
    if isinstance(attributes, list):
        pairs = [pair for pair in attributes if isinstance(pair, dict) and isinstance(pair.get("key"), str)]
        for pair in sorted(pairs, key=lambda pair: str(pair["key"])):
            found[label_name(pair["key"])].append(_text(pair.get("value")))
    joined = ((name, ";".join(values)) for name, values in found.items())
    return tuple(sorted((name, value) for name, value in joined if value))


def _text(value: Any) -> str:
    """Return an attribute value as a label's text. Only equal or not matters here, not how it is written."""
    if not isinstance(value, dict) or not value:
        return ""
    kind, entry = next(iter(value.items()))
    if kind == "stringValue":
        return str(entry)
    if kind == "boolValue":
        return "true" if entry is True else "false"
    if kind == "doubleValue":
        try:
            number = float(entry)
        except (TypeError, ValueError):
            return str(entry)
        return str(int(number)) if number.is_integer() and abs(number) < 1e21 else repr(number)
    if kind == "intValue":
        return str(entry)
    return json.dumps(entry, ensure_ascii=False, separators=(",", ":"))
