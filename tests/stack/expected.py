"""Says from a run log alone what the stores must hold of it, without the code that sends: plain JSON, read anew.

Prometheus keeps milliseconds. Of a series' points that follow one another within one, the last is kept, a non-finite
one before all others; one that comes back to an earlier millisecond is left out. Each counts as merged.
"""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from otel_train.otlp.prometheus_names import label_name, prometheus_name
from tests.stack.programs import REPOSITORY

# Name and labels of a series as Prometheus has them.
SeriesKey = tuple[str, frozenset[tuple[str, str]]]
# A value, or count and sum of a histogram.
Value = float | tuple[float, float]
_KINDS = {"gauge": "gauge", "sum": "updowncounter", "histogram": "histogram", "exponentialHistogram": "histogram"}


@cache
def promoted() -> list[str]:
    """Return the resource attributes that the shipped Prometheus makes labels of."""
    configuration = yaml.safe_load((REPOSITORY / "deploy" / "prometheus" / "prometheus.yml").read_text())
    return list(configuration["otlp"]["promote_resource_attributes"])


@dataclass
class Expected:
    """What one run log holds, as stores spell it."""

    points: dict[SeriesKey, dict[int, Value]] = field(default_factory=dict)
    merged: int = 0
    # Time in nanoseconds, body, trace id, span id, event name.
    records: list[tuple[int, Any, str, str, str]] = field(default_factory=list)
    spans: dict[str, set[str]] = field(default_factory=dict)
    span_names: set[str] = field(default_factory=set)
    _newest: dict[SeriesKey, int] = field(default_factory=dict)

    def add(self, key: SeriesKey, time_ms: int, value: Value) -> None:
        """Take the next point of a series in the order of the log."""
        points = self.points.setdefault(key, {})
        if time_ms not in points:
            points[time_ms] = value
            self._newest[key] = time_ms
            return
        self.merged += 1
        if time_ms == self._newest[key] and not (_strange(points[time_ms]) and not _strange(value)):
            points[time_ms] = value

    @property
    def point_count(self) -> int:
        """Points after the merge."""
        return sum(len(points) for points in self.points.values())

    @property
    def span_ids(self) -> set[str]:
        """The ids of all spans."""
        return set().union(*self.spans.values()) if self.spans else set()

    def names(self) -> set[str]:
        """The names of all metrics in Prometheus' spelling."""
        return {name for name, _ in self.points}


def lines(folder: Path, signal: str) -> Iterator[dict[str, Any]]:
    """Yield every request of a signal in a run folder, all attempts and ranks, in the order of writing.

    What is no whole line (a killed run's last) is left out.
    """
    for rank in sorted(folder.glob("attempt-*/rank-*")):
        for path in sorted(rank.glob(f"{signal}.*.jsonl*")):
            opener = gzip.open if path.suffix == ".gz" else open
            with opener(path, "rb") as file:
                for line in file:
                    if line.endswith(b"\n"):
                        yield json.loads(line)


def expected_of(folder: Path) -> Expected:
    """Read a run folder."""
    expected = Expected()
    for request in lines(folder, "metrics"):
        for block in request["resourceMetrics"]:
            resource = attributes(block["resource"]["attributes"])
            for scope in block["scopeMetrics"]:
                for metric in scope["metrics"]:
                    _read_metric(expected, metric, _labels_of_resource(resource))
    for request in lines(folder, "logs"):
        for block in request["resourceLogs"]:
            for scope in block["scopeLogs"]:
                expected.records += [_record(record) for record in scope["logRecords"]]
    for request in lines(folder, "traces"):
        for block in request["resourceSpans"]:
            for scope in block["scopeSpans"]:
                for span in scope["spans"]:
                    expected.spans.setdefault(span["traceId"], set()).add(span["spanId"])
                    expected.span_names.add(span["name"])
    return expected


def attributes(pairs: list[dict[str, Any]]) -> dict[str, Any]:
    """Return OTLP JSON's attributes as a dictionary."""
    return {pair["key"]: value_of(pair["value"]) for pair in pairs}


def value_of(value: dict[str, Any]) -> Any:
    """Return one value of OTLP JSON."""
    ((kind, content),) = value.items()
    if kind == "intValue":
        return int(content)
    if kind == "doubleValue":
        return float(content)
    if kind == "kvlistValue":
        return attributes(content.get("values", []))
    if kind == "arrayValue":
        return [value_of(member) for member in content.get("values", [])]
    return content


def _labels_of_resource(resource: dict[str, Any]) -> dict[str, str]:
    labels = {label_name(name): label_value(resource[name]) for name in promoted() if name in resource}
    namespace = resource.get("service.namespace")
    service = label_value(resource["service.name"])
    return labels | {
        "job": f"{namespace}/{service}" if namespace else service,
        "instance": label_value(resource["service.instance.id"]),
    }


def label_value(value: Any) -> str:
    """Return an attribute as a label's text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _read_metric(expected: Expected, metric: dict[str, Any], labels: dict[str, str]) -> None:
    (kind,) = _KINDS.keys() & metric.keys()
    data = metric[kind]
    spelled = "counter" if kind == "sum" and data.get("isMonotonic") else _KINDS[kind]
    name = prometheus_name(metric["name"], metric.get("unit", ""), spelled)
    for point in data["dataPoints"]:
        if point.get("flags", 0) & 1:
            continue
        own = {label_name(key): label_value(value) for key, value in attributes(point.get("attributes", [])).items()}
        key = name, frozenset((label, text) for label, text in (labels | own).items() if text)
        expected.add(key, int(point["timeUnixNano"]) // 1_000_000, _value(kind, point))


def _value(kind: str, point: dict[str, Any]) -> Value:
    if _KINDS[kind] == "histogram":
        return float(point["count"]), float(point["sum"])
    return float(point["asInt"] if "asInt" in point else point["asDouble"])


def _strange(value: Value) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def _record(record: dict[str, Any]) -> tuple[int, Any, str, str, str]:
    time_ns = int(record.get("timeUnixNano", 0)) or int(record["observedTimeUnixNano"])
    body = value_of(record["body"]) if "body" in record else ""
    return time_ns, body, record.get("traceId", ""), record.get("spanId", ""), record.get("eventName", "")
