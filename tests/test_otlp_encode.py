"""Lines are strict OTLP JSON and mean what they should to OpenTelemetry's own definitions."""

from __future__ import annotations

import math
import struct
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality
from otlp_oracle import message, strict

from otel_train.otlp.decode import decode_line
from otel_train.otlp.encode import PREFIXES, SUFFIX, LineEncoder
from otel_train.otlp.values import float32_texts
from otel_train.record.entries import Column, LogEntry, Sample, SpanEntry, SpanEvent, SpanLink
from otel_train.record.numbers import Float32

ENCODER = LineEncoder({"run_id": "20260101-000000-abcdefgh", "run_attempt": 2, "service.name": "digits"}, "0.1.0")
TRAIN = (("split", "train"),)
FLOATS = st.floats(allow_nan=True, allow_infinity=True)
TEXTS = st.text()  # also U+2028, control characters; lone surrogates are tested by themselves
SCALARS = st.one_of(st.booleans(), st.integers(-(2**63), 2**63 - 1), FLOATS, TEXTS, st.binary())
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3), max_leaves=8
)


def same(left: Any, right: Any) -> bool:
    """Equality by type and value, where NaN equals NaN and lists equal tuples."""
    if isinstance(left, float) and isinstance(right, float):
        return struct.pack("d", left) == struct.pack("d", right) or (left != left and right != right)
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    return type(left) is type(right) and left == right


def float32(value: float) -> float:
    return struct.unpack("f", struct.pack("f", value))[0]


def test_points_are_a_gauge_with_times_values_and_resource() -> None:
    """Two columns of one name are one metric; unit, description, attributes and the run's id are there."""
    times = [1_700_000_000_000_000_001, 1_700_000_000_000_000_002]
    line = ENCODER.points(
        [
            Column("train.loss", times, [0.5, 0.25], TRAIN, "nat", "Loss"),
            Column("train.loss", times[:1], [0.75], (("split", "val"),), "nat", "Loss"),
            Column("dl.step", times, [7, 8], TRAIN),
        ]
    )
    (block,) = message(line).resource_metrics
    assert {a.key: a.value.string_value or a.value.int_value for a in block.resource.attributes} == {
        "run_id": "20260101-000000-abcdefgh",
        "run_attempt": 2,
        "service.name": "digits",
    }
    (scope,) = block.scope_metrics
    assert (scope.scope.name, scope.scope.version) == ("otel_train", "0.1.0")
    loss, step = scope.metrics
    assert (loss.name, loss.unit, loss.description) == ("train.loss", "nat", "Loss")
    rows = [(p.time_unix_nano, p.as_double, p.attributes[0].value.string_value) for p in loss.gauge.data_points]
    assert rows == [(times[0], 0.5, "train"), (times[1], 0.25, "train"), (times[0], 0.75, "val")]
    assert [(p.time_unix_nano, p.as_int) for p in step.gauge.data_points] == [(times[0], 7), (times[1], 8)]


def test_non_finite_points_are_strings_and_come_back() -> None:
    """NaN and the infinities are data: written as OTLP's strings, in the order in which they were recorded."""
    line = ENCODER.points([Column("train.loss", [1, 2, 3, 4], [2.0, math.nan, math.inf, -math.inf], TRAIN)])
    points = strict(line)["resourceMetrics"][0]["scopeMetrics"][0]["metrics"][0]["gauge"]["dataPoints"]
    assert [point["asDouble"] for point in points] == [2.0, "NaN", "Infinity", "-Infinity"]
    assert [
        same(p.value, v)
        for (p, _), v in zip(decode_line(line).points(), [2.0, math.nan, math.inf, -math.inf], strict=True)
    ]
    values = [
        point.as_double for point in message(line).resource_metrics[0].scope_metrics[0].metrics[0].gauge.data_points
    ]
    assert same(values, [2.0, math.nan, math.inf, -math.inf])


def test_64_bit_integers_are_exact() -> None:
    """Integers that no double holds survive; beyond 64 bits a point is the nearest double, infinity beyond those."""
    values = [2**63 - 1, 9007199254740993, -(2**63), 2**63, 10**400]
    line = ENCODER.points([Column("train.tokens", [1, 2, 3, 4, 5], values)])
    points = strict(line)["resourceMetrics"][0]["scopeMetrics"][0]["metrics"][0]["gauge"]["dataPoints"]
    assert [point.get("asInt") for point in points[:3]] == ["9223372036854775807", "9007199254740993", str(-(2**63))]
    found = [point.value for point, _ in decode_line(line).points()]
    assert found == [2**63 - 1, 9007199254740993, -(2**63), 2.0**63, math.inf]


@given(st.lists(st.one_of(FLOATS, st.integers(-(2**63), 2**63 - 1)), min_size=1, max_size=20))
def test_any_number_round_trips(values: list[float]) -> None:
    """Whatever mix of numbers a column holds, each comes back with its type, bit for bit (any NaN as NaN)."""
    line = ENCODER.points([Column("train.x", list(range(len(values))), values, TRAIN)])
    strict(line)
    assert same([point.value for point, _ in decode_line(line).points()], values)


@given(st.lists(st.floats(width=32), min_size=1, max_size=20))
def test_float32_round_trips_in_few_digits(values: list[float]) -> None:
    """A float32 is written with at most nine digits and reads back as the same float32."""
    column = Column("train.x", list(range(len(values))), [Float32(value) for value in values])
    found = [point.value for point, _ in decode_line(ENCODER.points([column])).points()]
    for value, back in zip(values, found, strict=True):
        # The largest float32 is written so that it still reads as a double; struct packs infinities as they are.
        assert same(float32(back), value)


def test_float32_texts_are_the_shortest() -> None:
    """Learning rates and the like look as they were typed, not with the noise of the wider type."""
    typed = [0.1, 0.9, 1e-3, 0.0009, 3.14159, 16777216.0, 1.17549435e-38, 123456.7, 1e10]
    texts = float32_texts([float32(value) for value in typed])
    shortest = ["0.1", "0.9", "0.001", "0.0009", "3.14159", "1.6777216e07", "1.1754944e-38", "123456.7", "1e10"]
    assert [text.replace("e+", "e") for text in texts] == shortest
    one_by_one = [float32_texts([float32(value)])[0] for value in typed]
    assert list(map(float, one_by_one)) == list(map(float, shortest))
    assert float32_texts([-0.0]) == ["-0.0"]
    assert float32_texts([-0.0, 3.4028234663852886e38])[0] == "-0.0"


def test_float32_texts_without_numpy_are_the_same_numbers_in_as_few_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where NumPy is not loaded the digits are found by trying; the result reads back alike and is as short."""
    values = [float32(value) for value in (0.1, 0.9, 0.0009, 1 / 3, 2e38, 3.4028234663852886e38, -0.0, 5.0, 1e-45)]
    values += [struct.unpack("f", struct.pack("I", bits))[0] for bits in range(1, 2**31 - 2**24, 9_999_991)]
    with_numpy = float32_texts(values)
    with monkeypatch.context() as patch:
        patch.delitem(sys.modules, "numpy")
        without = float32_texts(values)
    assert [float32(float(text)) for text in without] == values
    assert without[6] == "-0.0"

    def digits(text: str) -> int:
        return len(text.partition("e")[0].replace(".", "").replace("-", "").strip("0"))

    assert [digits(text) for text in without[:8]] == [digits(text) for text in with_numpy[:8]]
    assert max(map(digits, without)) <= 9


def test_numpy_scalars_are_written_as_numbers() -> None:
    """The text of a NumPy scalar is no JSON: floats, integers and truth values become Python's own."""
    values: list[Any] = [np.float32(0.1), np.float64(0.1), np.int64(5), np.bool_(True), np.float16(0.5)]
    line = ENCODER.points([Column("train.x", [1, 2, 3, 4, 5], values)])
    assert b"np." not in line
    assert [point.value for point, _ in decode_line(line).points()] == [0.1, 0.1, 5, 1, 0.5]
    entry = LogEntry(time_ns=1, severity_number=9, severity_text="INFO", body="", attributes={"a": np.float64(0.5)})
    assert decode_line(ENCODER.logs([entry])).logs[0][0].attributes == {"a": 0.5}


def test_columns_that_share_times_and_columns_that_do_not_keep_their_own() -> None:
    """Times are turned into text once for each list object, never mixed up between lists."""
    shared, own = [10, 20], [30, 40]
    line = ENCODER.points([Column("a", shared, [1.0, 2.0]), Column("b", shared, [3, 4]), Column("c", own, [5.0, 6.0])])
    rows = [(point.name, point.time_ns, point.value) for point, _ in decode_line(line).points()]
    assert rows == [("a", 10, 1.0), ("a", 20, 2.0), ("b", 10, 3), ("b", 20, 4), ("c", 30, 5.0), ("c", 40, 6.0)]


def test_nothing_to_write_is_no_line() -> None:
    """Empty input gives no bytes, not an empty request."""
    assert ENCODER.points([]) == ENCODER.points([Column("a", [], [])]) == b""
    assert ENCODER.samples(1, 1, []) == ENCODER.histograms([]) == ENCODER.logs([]) == ENCODER.spans([]) == b""


def test_samples_take_kind_and_unit_from_the_table() -> None:
    """A counter is a cumulative monotonic sum with a start, an up-down-counter not monotonic; others are gauges."""
    line = ENCODER.samples(
        50,
        10,
        [
            Sample("process.cpu.time", 1.5, (("cpu.mode", "user"),)),
            Sample("process.cpu.time", 0.5, (("cpu.mode", "system"),)),
            Sample("system.memory.usage", 2**40),
            Sample("hw.temperature", 41.0),
            Sample("my.own", 1),
            Sample("hw.power", "no number"),  # type: ignore[arg-type]  # a value that callers should not give
        ],
    )
    metrics = {m.name: m for m in message(line).resource_metrics[0].scope_metrics[0].metrics}
    assert set(metrics) == {"process.cpu.time", "system.memory.usage", "hw.temperature", "my.own"}
    cpu = metrics["process.cpu.time"]
    assert (cpu.unit, cpu.sum.is_monotonic) == ("s", True)
    assert cpu.sum.aggregation_temporality == AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
    assert [(p.start_time_unix_nano, p.time_unix_nano, p.as_double) for p in cpu.sum.data_points] == [
        (10, 50, 1.5),
        (10, 50, 0.5),
    ]
    memory = metrics["system.memory.usage"].sum
    assert (memory.is_monotonic, memory.data_points[0].as_int) == (False, 2**40)
    assert metrics["hw.temperature"].gauge.data_points[0].as_double == 41.0
    kinds = {point.name: point.kind for point, _ in decode_line(line).points()}
    assert kinds["process.cpu.time"] == "counter"
    assert kinds["system.memory.usage"] == "updowncounter"
    assert kinds["my.own"] == "gauge"


@given(st.dictionaries(TEXTS, VALUES, max_size=4), VALUES)
def test_any_attribute_and_body_round_trips(attributes: dict[str, Any], body: Any) -> None:
    """Nested, binary, non-finite and oddly named values come back as they were, through a line that is strict JSON."""
    entry = LogEntry(time_ns=5, severity_number=13, severity_text="WARN", body=body, attributes=attributes)
    line = ENCODER.logs([entry])
    message(line)
    (found, _), *rest = decode_line(line).logs
    assert not rest
    assert same(found.body, body)
    assert same(dict(found.attributes), attributes)


def test_what_otlp_cannot_hold_becomes_text() -> None:
    """An integer beyond 64 bits, an object and a set are written as text or list; None as an attribute is left out."""

    class Odd:
        def __str__(self) -> str:
            raise RuntimeError("no text either")

    deep: Any = "end"
    for _ in range(100):
        deep = [deep]
    attributes: dict[str, Any] = {
        "huge": 2**63,
        "vast": 10**5000,
        "none": None,
        "set": {"b", "a"},
        "type": int,
        "odd": Odd(),
        "listed": [1, None],
        "surrogate": "a\ud800b",
        "deep": deep,
        5: "number as key",
    }
    line = ENCODER.logs([LogEntry(time_ns=1, severity_number=9, severity_text="", body="x", attributes=attributes)])
    message(line)
    found = decode_line(line).logs[0][0].attributes
    assert found["huge"] == "9223372036854775808"
    assert str(found["vast"]).startswith("0x")
    assert "none" not in found
    assert found["set"] == ["a", "b"]
    assert found["type"] == "<class 'int'>"
    assert found["odd"] == "<Odd>"
    assert found["listed"] == [1, None]
    assert found["surrogate"] == "a?b"
    assert found["5"] == "number as key"


def test_an_event_name_is_a_field_and_an_attribute() -> None:
    """Stores that drop the field still have the attribute."""
    entry = LogEntry(
        time_ns=7,
        observed_time_ns=8,
        severity_number=9,
        severity_text="INFO",
        body={"lr": 0.1},
        event_name="run.config",
        trace_id=0xABC,
        span_id=0xDEF,
    )
    line = ENCODER.logs([entry])
    record = message(line).resource_logs[0].scope_logs[0].log_records[0]
    assert record.event_name == "run.config"
    assert [(a.key, a.value.string_value) for a in record.attributes] == [("event.name", "run.config")]
    assert (record.trace_id.hex(), record.span_id.hex()) == ("0" * 29 + "abc", "0" * 13 + "def")
    found = decode_line(line).logs[0][0]
    assert found == LogEntry(**{**{f: getattr(entry, f) for f in entry.__slots__}, "attributes": found.attributes})


def test_spans_come_back_as_they_were() -> None:
    """Events, links, status, parent, kind, flags and the counts of what was dropped are all there."""
    entry = SpanEntry(
        name="epoch",
        trace_id=2**127,
        span_id=2**63,
        parent_span_id=1,
        start_ns=10,
        end_ns=20,
        kind=3,
        attributes={"dl.epoch": 4, "names": ["a", "b"]},
        events=[SpanEvent(time_ns=15, name="best", attributes={"value": 0.5}, dropped_attributes=1)],
        links=[SpanLink(trace_id=5, span_id=6, attributes={"why": "resumed"}, flags=0x300)],
        status_code=2,
        status_message="RuntimeError: no",
        scope="user.lib",
        scope_version="2.0",
        trace_state="a=b",
        dropped_attributes=1,
        dropped_events=2,
        dropped_links=3,
    )
    own = SpanEntry(name="step", trace_id=1, span_id=2, start_ns=1, end_ns=2)
    line = ENCODER.spans([entry, own])
    scopes = message(line).resource_spans[0].scope_spans
    assert [scope.scope.name for scope in scopes] == ["user.lib", "otel_train"]
    found = [span for span, _ in decode_line(line).spans]
    assert found[0] == entry
    assert found[1].name == "step"
    assert (found[1].kind, found[1].flags, found[1].parent_span_id, found[1].status_code) == (1, 0x100, 0, 0)


def test_what_stands_between_prefix_and_suffix_can_be_joined() -> None:
    """A sender makes one request of many lines by slices, so both are the same for every line of a signal."""
    lines = [ENCODER.points([Column("a", [1], [float(i)])]) for i in range(3)]
    prefix = PREFIXES["metrics"]
    assert all(line.startswith(prefix) and line.endswith(SUFFIX) for line in lines)
    joined = prefix + b",".join(line[len(prefix) : -len(SUFFIX)] for line in lines) + SUFFIX
    assert [point.value for point, _ in decode_line(joined).points()] == [0.0, 1.0, 2.0]
    assert len(message(joined).resource_metrics) == 3
    logs = ENCODER.logs([LogEntry(time_ns=1, severity_number=9, severity_text="INFO", body="x")])
    assert logs.startswith(PREFIXES["logs"])
    assert logs.endswith(SUFFIX)
    spans = ENCODER.spans([SpanEntry(name="s", trace_id=1, span_id=1, start_ns=1, end_ns=1)])
    assert spans.startswith(PREFIXES["traces"])
    assert spans.endswith(SUFFIX)


@pytest.mark.parametrize("resource", [{}, {"run_id": 'quo"te\\', "list": [1, "a"], "nan": math.nan}])
def test_the_resource_may_hold_anything(resource: dict[str, Any]) -> None:
    """An empty resource and one with odd values give strict lines, and the values come back."""
    line = LineEncoder(resource, "").points([Column("a", [1], [1.0])])
    message(line)
    assert same(decode_line(line).resources, [resource])
