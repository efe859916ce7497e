"""Lines of other writers are read as their dialects mean them; what cannot be read is left out alone and counted."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_train.otlp.decode import DamagedLine, decode_line
from otel_train.otlp.encode import LineEncoder
from otel_train.record.entries import Column, LogEntry, SpanEntry


def gauge(*points: dict[str, Any], **metric: Any) -> str:
    body = {"name": "m", "gauge": {"dataPoints": list(points)}, **metric}
    return json.dumps({"resourceMetrics": [{"scopeMetrics": [{"metrics": [body]}]}]})


def logs(*records: Any) -> str:
    return json.dumps({"resourceLogs": [{"resource": {}, "scopeLogs": [{"logRecords": list(records)}]}]})


def any_value(value: Any) -> Any:
    (entry, _), *_ = decode_line(logs({"attributes": [{"key": "k", "value": value}]})).logs
    return entry.attributes.get("k")


def test_numbers_may_be_strings_and_strings_numbers() -> None:
    """64-bit integers exactly, doubles and non-finite ones as strings, times of either kind."""
    request = decode_line(
        gauge(
            {"timeUnixNano": "1", "asInt": "9007199254740993"},
            {"timeUnixNano": 2, "asInt": 9007199254740993},
            {"timeUnixNano": "3", "asDouble": "1.5"},
            {"timeUnixNano": "4", "asDouble": "NaN"},
            {"timeUnixNano": "5", "asDouble": "-Infinity"},
            {"timeUnixNano": "6", "asDouble": 2},
            {"timeUnixNano": "7", "asDouble": -0.0, "unknown": {"field": [1]}},
        )
    )
    points = [point for point, _ in request.points()]
    assert [point.time_ns for point in points] == [1, 2, 3, 4, 5, 6, 7]
    values = [point.value for point in points]
    assert values[:3] == [9007199254740993, 9007199254740993, 1.5]
    assert math.isnan(values[3] or 0)
    assert values[4:] == [-math.inf, 2.0, 0.0]
    assert request.skipped == 0


def test_a_null_value_is_skipped_alone_and_counted() -> None:
    """Its neighbours stay; nothing shows as a true 0."""
    request = decode_line(
        gauge({"timeUnixNano": "1", "asDouble": 1.0}, {"timeUnixNano": "2", "asDouble": None}, {"timeUnixNano": "3"})
    )
    assert [(point.time_ns, point.value) for point, _ in request.points()] == [(1, 1.0)]
    assert request.skipped == 2


def test_a_marked_gap_is_a_gap_and_not_zero() -> None:
    """Loss 1.0, no recorded value, 1.0: the middle has no value, and is told from a NaN that was measured."""
    request = decode_line(
        gauge(
            {"timeUnixNano": "1", "asDouble": 1.0},
            {"timeUnixNano": "2", "flags": 1},
            {"timeUnixNano": "3", "asDouble": 0.0, "flags": 1},
            {"timeUnixNano": "4", "asDouble": "NaN"},
            {"timeUnixNano": "5", "asDouble": 1.0},
        )
    )
    points = [point for point, _ in request.points()]
    assert [point.flags for point in points] == [0, 1, 1, 0, 0]
    assert points[1].value is None
    assert points[2].value is None
    assert math.isnan(points[3].value or 0)
    assert request.skipped == 0


@pytest.mark.parametrize("bad", [{"asDouble": "abc"}, {"asInt": True}, {"asInt": "1.5"}, {"asDouble": []}])
def test_a_value_that_is_no_number_is_skipped(bad: dict[str, Any]) -> None:
    """It does not become 0 or stop the rest."""
    request = decode_line(gauge({"timeUnixNano": "1", **bad}, {"timeUnixNano": "2", "asInt": "2"}))
    assert [(point.time_ns, point.value) for point, _ in request.points()] == [(2, 2)]
    assert request.skipped == 1


def test_a_number_beyond_doubles_is_skipped() -> None:
    """1e400 is no infinity that somebody measured."""
    line = gauge({"timeUnixNano": "1", "asDouble": 1.5}).replace("1.5", "1e400")
    assert (list(decode_line(line).points()), decode_line(line).skipped) == ([], 1)


def test_ids_are_hex_of_either_case_and_nothing_else() -> None:
    """Upper case equals lower case; base64 and wrong lengths are left out and counted, the record stays."""
    request = decode_line(
        logs(
            {"traceId": "ABCDEF00000000000000000000000001", "spanId": "00000000000000AB", "body": {"stringValue": "a"}},
            {"traceId": "abcdef00000000000000000000000001", "spanId": ""},
            {"traceId": "W47/95gDgQPSabYzgT/GDA==", "spanId": "ab"},
        )
    )
    first, second, third = (entry for entry, _ in request.logs)
    assert first.trace_id == second.trace_id == 0xABCDEF00000000000000000000000001
    assert (first.span_id, second.span_id) == (0xAB, 0)
    assert (third.trace_id, third.span_id) == (0, 0)
    assert request.skipped == 2


def test_enums_may_be_names() -> None:
    """Severity, kind, status and temporality by name are the numbers that they stand for."""
    (entry, _), *_ = decode_line(logs({"severityNumber": "SEVERITY_NUMBER_WARN3"})).logs
    assert entry.severity_number == 15
    span = {"name": "s", "kind": "SPAN_KIND_CONSUMER", "status": {"code": "STATUS_CODE_ERROR"}}
    (found, _), *_ = decode_line(json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]})).spans
    assert (found.kind, found.status_code) == (5, 2)
    total = {
        "dataPoints": [{"asInt": "1"}],
        "isMonotonic": True,
        "aggregationTemporality": "AGGREGATION_TEMPORALITY_DELTA",
    }
    request = decode_line(
        json.dumps({"resourceMetrics": [{"scopeMetrics": [{"metrics": [{"name": "n", "sum": total}]}]}]})
    )
    assert (request.series[0].kind, request.series[0].delta) == ("counter", True)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"stringValue": "x"}, "x"),
        ({"intValue": "9007199254740993"}, 9007199254740993),
        ({"intValue": 7}, 7),
        ({"doubleValue": "1.5"}, 1.5),
        ({"doubleValue": 2}, 2.0),
        ({"boolValue": False}, False),
        ({"bytesValue": "AP8="}, b"\x00\xff"),
        ({"arrayValue": {"values": [{"intValue": "1"}, {"stringValue": "a"}]}}, [1, "a"]),
        ({"arrayValue": {}}, []),
        ({"kvlistValue": {"values": [{"key": "a", "value": {"boolValue": True}}]}}, {"a": True}),
        ({"stringValue": 5}, None),
        ({"bytesValue": "not base64!"}, None),
        ({"newValue": 1}, None),
        ({}, None),
        (None, None),
    ],
)
def test_attribute_values(value: Any, expected: Any) -> None:
    """Each type of value, and none for what is unknown or of the wrong type."""
    assert any_value(value) == expected
    assert type(any_value(value)) is type(expected)


def test_names_leave_other_metrics_out() -> None:
    """Only what is asked for is built."""
    line = LineEncoder({}, "").points([Column("a", [1], [1.0]), Column("b", [1], [2.0])])
    assert [point.value for point, _ in decode_line(line, names={"b"}).points()] == [2.0]


def test_points_of_changing_attributes_keep_their_own() -> None:
    """Points of several series in turns are told apart, whatever their order."""
    key = lambda name: [{"key": "split", "value": {"stringValue": name}}]  # noqa: E731 - a line long, and used in the next lines only
    request = decode_line(
        gauge(
            {"timeUnixNano": "1", "asDouble": 1.0, "attributes": key("a")},
            {"timeUnixNano": "2", "asDouble": 2.0, "attributes": key("b")},
            {"timeUnixNano": "3", "asDouble": 3.0, "attributes": key("a")},
            {"timeUnixNano": "4", "asDouble": 4.0},
        )
    )
    rows = [(dict(point.attributes).get("split"), point.value) for point, _ in request.points()]
    assert rows == [("a", 1.0), ("b", 2.0), ("a", 3.0), (None, 4.0)]


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"nothing",
        b"[1]",
        b"5",
        b'{"resourceMetrics":[{"x":NaN}]}',
        b'{"a":Infinity}',
        b'{"resourceMetrics":[',
        b"{} {}",
        b"\x00" * 50,
        b'{"a":"\xff"}',
        b"[" * 100_000,
        b'{"a":' * 100_000,
    ],
)
def test_what_is_no_request_is_damaged(line: bytes) -> None:
    """Cut, foreign, binary and bottomless lines are refused in one way."""
    with pytest.raises(DamagedLine):
        decode_line(line)


def test_an_empty_request_and_unknown_fields_are_no_damage() -> None:
    """OTLP allows both."""
    assert decode_line(b"{}").signal == ""
    request = decode_line(b'{"resourceLogs":[],"later":1}')
    assert (request.signal, request.logs, request.skipped) == ("logs", [], 0)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=10,
)


@given(st.data())
def test_a_line_with_one_wrong_value_anywhere_is_read_without_a_crash(data: st.DataObject) -> None:
    """Whatever stands in place of any one field, the rest is read; nothing but DamagedLine is ever raised."""
    encoder = LineEncoder({"run_id": "r"}, "1")
    line = data.draw(
        st.sampled_from(
            [
                encoder.points([Column("a", [1, 2], [1.0, 2], (("split", "train"),))]),
                encoder.logs([LogEntry(time_ns=1, severity_number=9, severity_text="I", body={"a": [1]}, trace_id=1)]),
                encoder.spans(
                    [SpanEntry(name="s", trace_id=1, span_id=1, start_ns=1, end_ns=2, attributes={"a": "b"})]
                ),
                gauge()
                .encode()
                .replace(
                    b'"gauge": {"dataPoints": []}',
                    b'"exponentialHistogram":{"dataPoints":[{"count":'
                    b'"3","sum":1,"scale":2,"positive":{"offset":1,"bucketCounts":["1"]},"exemplars":[{"asInt":"1"}]}]}',
                ),
                gauge()
                .encode()
                .replace(
                    b'"gauge": {"dataPoints": []}',
                    b'"histogram":{"dataPoints":[{"count":"3","explicitBounds":[1,2],"bucketCounts":["1","2","0"]}]}',
                ),
                gauge()
                .encode()
                .replace(
                    b'"gauge": {"dataPoints": []}',
                    b'"summary":{"dataPoints":[{"count":"3","sum":2,"quantileValues":[{"quantile":0.5,"value":1}]}]}',
                ),
            ]
        )
    )
    document = json.loads(line)
    places: list[tuple[Any, Any]] = []
    todo = [document]
    while todo:
        holder = todo.pop()
        for key, item in holder.items() if isinstance(holder, dict) else enumerate(holder):
            places.append((holder, key))
            if isinstance(item, dict | list):
                todo.append(item)
    holder, key = data.draw(st.sampled_from(places))
    holder[key] = data.draw(JSON)
    request = decode_line(json.dumps(document))
    list(request.points())


def test_a_summary_has_its_quantiles() -> None:
    """Metrics of libraries that still make summaries are not lost."""
    line = gauge(
        summary={"dataPoints": [{"count": "3", "sum": 6.0, "quantileValues": [{"quantile": 0.5, "value": 2.0}]}]}
    )
    points = [point for point, _ in decode_line(line).points()]
    assert points[0].kind == "summary"
    assert points[0].histogram is not None
    assert (points[0].histogram.count, points[0].histogram.quantiles) == (3, ((0.5, 2.0),))
