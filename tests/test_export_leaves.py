"""A request that is taken apart and put together again holds the same items, each in what stood around it."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from otlp_oracle import message
from otlp_servers import gauge, part, records

from otel_train.export.http_json import json_body
from otel_train.export.leaves import put_together, take_apart
from otel_train.otlp.encode import LineEncoder
from otel_train.record.entries import Column, LogEntry, Sample, SpanEntry

TEXTS = st.text(max_size=6)
NUMBERS = st.one_of(st.floats(), st.integers(-(2**63), 2**63 - 1))
ATTRIBUTES = st.dictionaries(TEXTS, st.one_of(TEXTS, st.booleans(), st.floats(), st.binary(max_size=4)), max_size=2)
columns = st.builds(
    lambda name, values, split: Column(name, list(range(len(values))), values, (("split", split),)),
    st.sampled_from(["train.loss", "dl.step", "é"]),
    st.lists(NUMBERS, min_size=1, max_size=4),
    st.sampled_from(["train", "val"]),
)
logs = st.builds(
    LogEntry,
    time_ns=st.integers(0, 2**62),
    severity_number=st.just(9),
    severity_text=st.just("INFO"),
    body=TEXTS,
    attributes=ATTRIBUTES,
    event_name=st.sampled_from(["", "run.start"]),
    scope=st.sampled_from(["", "other"]),
)
spans = st.builds(
    SpanEntry,
    name=st.sampled_from(["step", "epoch"]),
    trace_id=st.integers(1, 2**128 - 1),
    span_id=st.integers(1, 2**64 - 1),
    start_ns=st.just(1),
    end_ns=st.just(2),
    attributes=ATTRIBUTES,
)
resources = st.sampled_from([{"run_id": "a"}, {"run_id": "b", "dl.rank": 1}])


def flat(signal: str, parts: Any) -> list[tuple[bytes, ...]]:
    """Every item with its surroundings, as the official classes read it."""
    found: list[tuple[bytes, ...]] = []
    request = message(json_body(signal, parts) + b"\n")

    def text(value: Any) -> bytes:
        serialized: bytes = value.SerializeToString(deterministic=True)
        return serialized

    for block in getattr(
        request, {"metrics": "resource_metrics", "logs": "resource_logs"}.get(signal, "resource_spans")
    ):
        for scope in getattr(block, {"metrics": "scope_metrics", "logs": "scope_logs"}.get(signal, "scope_spans")):
            around = (text(block.resource), text(scope.scope))
            for record in getattr(scope, "log_records", []) or getattr(scope, "spans", []):
                found.append((*around, text(record)))
            for metric in getattr(scope, "metrics", []):
                data = getattr(metric, metric.WhichOneof("data"))
                points = [text(point) for point in data.data_points]
                del data.data_points[:]
                found += [(*around, text(metric), point) for point in points]
    return sorted(found)


def check(signal: str, parts: list[bytes], seed: int) -> None:
    leaves = take_apart(signal, parts)
    whole = flat(signal, parts)
    assert sum(leaf.items for leaf in leaves) == len(whole)
    assert flat(signal, put_together(signal, leaves)) == whole
    chosen = random.Random(seed).sample(range(len(leaves)), len(leaves) // 2)
    first = [leaf for place, leaf in enumerate(leaves) if place in chosen]
    second = [leaf for place, leaf in enumerate(leaves) if place not in chosen]
    halves = [*flat(signal, put_together(signal, first)), *flat(signal, put_together(signal, second))]
    assert sorted(halves) == whole


@settings(deadline=None)
@given(st.lists(st.tuples(resources, st.lists(columns, min_size=1, max_size=3)), min_size=1, max_size=3), st.integers())
def test_points_keep_their_surroundings(made: Any, seed: int) -> None:
    """Gauges and counters of several resources, whole and in any two halves."""
    parts = [part(LineEncoder(resource, "1").points(held)) for resource, held in made]
    parts.append(
        part(LineEncoder({"run_id": "c"}, "1").samples(5, 1, [Sample("otel_train.points", 5), Sample("x", 1.5)]))
    )
    check("metrics", parts, seed)


@settings(deadline=None)
@given(st.lists(st.tuples(resources, st.lists(logs, min_size=1, max_size=3)), min_size=1, max_size=3), st.integers())
def test_records_keep_their_surroundings(made: Any, seed: int) -> None:
    """Log records of several scopes and resources."""
    check("logs", [part(LineEncoder(resource, "1").logs(held), "logs") for resource, held in made], seed)


@settings(deadline=None)
@given(st.lists(st.tuples(resources, st.lists(spans, min_size=1, max_size=3)), min_size=1, max_size=3), st.integers())
def test_spans_keep_their_surroundings(made: Any, seed: int) -> None:
    """Spans of several resources, ids and all."""
    check("traces", [part(LineEncoder(resource, "1").spans(held), "traces") for resource, held in made], seed)


def test_leaves_of_a_group_stand_together() -> None:
    """A series that comes in several parts is one group, in the order of its points."""
    parts = [gauge("a", range(3)), gauge("b", range(3)), gauge("a", range(3, 5)), gauge("a", range(2), "val")]
    leaves = take_apart("metrics", parts)
    groups = [leaf.group for leaf in leaves]
    assert len(set(groups)) == 3
    assert groups == sorted(groups, key=groups.index)
    assert [leaf.item["asDouble"] for leaf in leaves[:5]] == [0.0, 1.0, 2.0, 3.0, 4.0]


def test_several_blocks_in_a_part_are_read() -> None:
    """A part may hold the blocks of several resources, as other writers' lines do."""
    leaves = take_apart("logs", [records(range(2)) + b"," + records(range(2, 5))])
    assert len(leaves) == 5
    assert len(put_together("logs", leaves)) == 2


@pytest.mark.parametrize("text", [b"{", b"[1]", b"7", b'{"scopeMetrics":7}', b'{"scopeMetrics":[{"metrics":[7]}]}'])
def test_a_damaged_part_is_one_leaf(text: bytes) -> None:
    """It is handed on as it stands, and counts its times as items, one at least."""
    (leaf,) = take_apart("metrics", [text])
    assert (leaf.raw, leaf.items) == (text, 1)
    assert put_together("metrics", [leaf]) == (text,)


def test_a_number_beyond_all_doubles_is_written_as_text() -> None:
    """A bare Infinity is no JSON; OTLP's own word for it is."""
    text = gauge("a", range(1)).replace(b'"asDouble":0.0', b'"asDouble":-1e999')
    (again,) = put_together("metrics", take_apart("metrics", [text]))
    point = json.loads(again)["scopeMetrics"][0]["metrics"][0]["gauge"]["dataPoints"][0]
    assert point["asDouble"] == "-Infinity"
