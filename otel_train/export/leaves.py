"""Takes a request apart into its smallest pieces (data point, log record, span), and puts some of them together."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from math import isinf
from typing import Any, NamedTuple

from otel_train.export.identity import KINDS
from otel_train.otlp.encode import PREFIXES, SUFFIX

_SCOPES = {"metrics": "scopeMetrics", "logs": "scopeLogs", "traces": "scopeSpans"}
_ITEMS = {"logs": "logRecords", "traces": "spans"}


class Leaf(NamedTuple):
    """One smallest piece. `block`, `scope` and `metric` are what stands around it, without the pieces in it."""

    block: dict[str, Any]
    scope: dict[str, Any]
    metric: dict[str, Any]  # empty for log records and spans
    kind: str  # the metric's type
    item: dict[str, Any]
    # What is likely to be refused together: a series; a scope's records of one name; a scope's spans of one name.
    group: str
    # A part that is no JSON, as it stands; the fields above are empty then.
    raw: bytes = b""
    items: int = 1


def take_apart(signal: str, parts: Iterable[bytes]) -> list[Leaf]:
    """Return the leaves, those of one group together, in the order in which they stood."""
    leaves = [leaf for part in parts for leaf in _leaves_of_part(signal, part)]
    places: dict[str, int] = {}
    for leaf in leaves:
        places.setdefault(leaf.group, len(places))
    leaves.sort(key=lambda leaf: places[leaf.group])
    return leaves


def put_together(signal: str, leaves: Sequence[Leaf]) -> tuple[bytes, ...]:
    """Return parts that hold these leaves and nothing else."""
    parts: list[bytes] = []
    scopes_key = _SCOPES[signal]
    for _, of_block in groupby(leaves, key=lambda leaf: id(leaf.block)):
        held = list(of_block)
        if held[0].raw:
            parts.extend(leaf.raw for leaf in held)
            continue
        scopes = []
        for _, of_scope in groupby(held, key=lambda leaf: id(leaf.scope)):
            in_scope = list(of_scope)
            if signal == "metrics":
                content: dict[str, Any] = {"metrics": list(_metrics(in_scope))}
            else:
                content = {_ITEMS[signal]: [leaf.item for leaf in in_scope]}
            scopes.append({**in_scope[0].scope, **content})
        block = {**held[0].block, scopes_key: scopes}
        parts.append(json.dumps(block, separators=(",", ":"), allow_nan=False).encode())
    return tuple(parts)


def _metrics(leaves: Iterable[Leaf]) -> Iterator[dict[str, Any]]:
    for _, of_metric in groupby(leaves, key=lambda leaf: id(leaf.metric)):
        held = list(of_metric)
        metric, kind = held[0].metric, held[0].kind
        yield {**metric, kind: {**metric[kind], "dataPoints": [leaf.item for leaf in held]}}


def _leaves_of_part(signal: str, part: bytes) -> Iterator[Leaf]:
    try:
        document = json.loads(PREFIXES[signal] + part + SUFFIX, parse_float=_float, parse_constant=_refuse)
        (blocks,) = document.values()
        yield from [leaf for block in blocks for leaf in _leaves_of_block(signal, block)]
    except (ValueError, RecursionError, AttributeError, TypeError, KeyError):
        yield Leaf({"damaged": id(part)}, {}, {}, "", {}, "damaged", part, max(1, part.count(b'imeUnixNano":')))


def _leaves_of_block(signal: str, block: dict[str, Any]) -> Iterator[Leaf]:
    block = dict(block)
    for scope in block.pop(_SCOPES[signal], ()):
        scope = dict(scope)
        name = str(scope.get("scope", {}).get("name", ""))
        if signal == "metrics":
            yield from _leaves_of_metrics(block, scope, scope.pop("metrics", ()))
            continue
        for item in scope.pop(_ITEMS[signal], ()):
            group = f"{name}\0{item.get('eventName' if signal == 'logs' else 'name', '')}"
            yield Leaf(block, scope, {}, "", item, group)


def _leaves_of_metrics(
    block: dict[str, Any], scope: dict[str, Any], metrics: Iterable[dict[str, Any]]
) -> Iterator[Leaf]:
    for metric in metrics:
        kind = next((kind for kind in KINDS if kind in metric), None)
        if kind is None:
            continue
        shell = {**metric, kind: {key: value for key, value in metric[kind].items() if key != "dataPoints"}}
        for point in metric[kind].get("dataPoints", ()):
            group = f"{metric.get('name', '')}\0{json.dumps(point.get('attributes', ()))}"
            yield Leaf(block, scope, shell, kind, point, group)


def _float(text: str) -> float | str:
    """Read a number; one beyond all doubles is written as OTLP's string, since a bare Infinity is no JSON."""
    value = float(text)
    if isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return value


def _refuse(name: str) -> float:
    raise ValueError(f"{name} is no JSON")
