"""A store as strict as Prometheus, and what a run log should leave in it: for tests of the sender's reading half."""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

from otel_train.export.feed import Batch, RankFeed
from otel_train.otlp.encode import PREFIXES, SUFFIX
from otel_train.otlp.prometheus_names import label_name, prometheus_name

MS = 1_000_000
Key = tuple[str, tuple[tuple[str, str], ...]]
Place = tuple[Key, int]
KINDS = ("gauge", "sum", "histogram", "exponentialHistogram", "summary")


class Point:
    """One point as it stands in a line: its series, its millisecond, and a text that is equal where values are."""

    def __init__(self, key: Key, ms: int, value: str, nonfinite: bool, mark: bool) -> None:
        self.key, self.ms, self.value, self.nonfinite, self.mark = key, ms, value, nonfinite, mark

    @property
    def place(self) -> Place:
        return self.key, self.ms


def request_of(batch: Batch) -> dict[str, Any]:
    """The one request that a batch becomes."""
    document = json.loads(PREFIXES[batch.signal] + b",".join(batch.parts) + SUFFIX)
    assert isinstance(document, dict)
    return document


def points_of(document: dict[str, Any]) -> list[Point]:
    """The points of a request, in its order."""
    return [
        _point(metric, kind, point)
        for block in document.get("resourceMetrics", ())
        for scope in block["scopeMetrics"]
        for metric in scope["metrics"]
        for kind in KINDS
        for point in metric.get(kind, {}).get("dataPoints", ())
    ]


def _point(metric: dict[str, Any], kind: str, point: dict[str, Any]) -> Point:
    spelled = kind if kind != "sum" else "counter" if metric["sum"].get("isMonotonic") else "updowncounter"
    name = prometheus_name(metric["name"], metric.get("unit", ""), spelled)
    labels = sorted(
        (label_name(pair["key"]), str(next(iter(pair["value"].values())))) for pair in point.get("attributes", ())
    )
    mark = bool(point.get("flags"))
    ignored = ("attributes", "timeUnixNano", "startTimeUnixNano")
    value = "mark" if mark else json.dumps({key: entry for key, entry in point.items() if key not in ignored})
    number = point.get("asDouble", 0.0)
    nonfinite = isinstance(number, str) and not math.isfinite(float(number))
    return Point((name, tuple(labels)), int(point["timeUnixNano"]) // MS, value, nonfinite, mark)


class Store:
    """Takes requests; a second value at one place is what the real one would refuse a whole request for."""

    def __init__(self) -> None:
        self.values: dict[Place, str] = {}
        self.marks: dict[Place, int] = {}
        self.requests = 0

    def take(self, batch: Batch) -> None:
        self.requests += 1
        found = points_of(request_of(batch))
        assert len(found) == batch.items
        assert len({point.place for point in found}) == len(found), "one place twice in one request"
        for point in found:
            if point.mark:
                self.marks[point.place] = self.marks.get(point.place, 0) + 1
                continue
            assert self.values.setdefault(point.place, point.value) == point.value, f"two values at {point.place}"

    def drain(self, feed: RankFeed, signal: str = "metrics", *, ended: bool = True) -> None:
        """Take and acknowledge all that there is."""
        while (batch := feed.next(signal, ended=ended)) is not None:
            self.take(batch)
            feed.acknowledge(batch)


def expected(lines: Iterable[bytes]) -> tuple[dict[Place, str], int]:
    """What a store should hold after all lines, and how many points are merged: the rule, point by point."""
    held: dict[Key, Point] = {}
    before: set[Place] = set()
    values: dict[Place, str] = {}
    merged = 0
    for line in lines:
        for point in points_of(json.loads(line)):
            last = held.get(point.key)
            if last is not None and last.ms == point.ms:
                merged += 1
                if point.nonfinite or not last.nonfinite:
                    held[point.key] = point
            elif point.place in before:
                merged += 1
            else:
                held[point.key] = point
            before.add(point.place)
            if held[point.key].ms == point.ms:
                values[held[point.key].place] = held[point.key].value
    return values, merged


def write_log(folder: Path, lines: list[bytes], cuts: Iterable[int] = (), gzipped: Iterable[int] = ()) -> None:
    """Write lines as segments that end before the lines of `cuts`; of closed ones those in `gzipped` as gzips."""
    edges = [0, *sorted(set(cuts)), len(lines)]
    for number, (start, end) in enumerate(pairwise(edges), 1):
        path = folder / f"metrics.{number:06d}.jsonl"
        data = b"".join(lines[start:end])
        if number in gzipped and end < len(lines):
            path.with_name(path.name + ".gz").write_bytes(gzip.compress(data))
        else:
            path.write_bytes(data)
