"""Lines become the protobuf messages that they mean; the oracle is the official parser, ids converted for it."""

from __future__ import annotations

import json
import math
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from otlp_oracle import message
from otlp_servers import START_NS, part

from otel_train.export.protobuf import REQUESTS, protobuf_body
from otel_train.export.protobuf_points import take_points
from otel_train.otlp.encode import LineEncoder
from otel_train.otlp.histogram import Exemplar, ExponentialHistogram, HistogramData
from otel_train.record.entries import Column, LogEntry, Sample, SpanEntry, SpanEvent, SpanLink

ENCODER = LineEncoder({"run_id": "20260101-000000-abcdefgh", "run_attempt": 2, "dl.ok": True, "lr": 0.1}, "0.1.0")
FLOATS = st.floats(allow_nan=True, allow_infinity=True)
TEXTS = st.text(max_size=12)
SCALARS = st.one_of(st.booleans(), st.integers(-(2**63), 2**63 - 1), FLOATS, TEXTS, st.binary(max_size=8))
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3), max_leaves=6
)
ATTRIBUTES = st.dictionaries(TEXTS, VALUES, max_size=3)
TIMES = st.integers(0, 2**63 - 1)
TRACE_IDS = st.integers(1, 2**128 - 1)
SPAN_IDS = st.integers(1, 2**64 - 1)
NUMBERS = st.one_of(FLOATS, st.integers(-(2**63), 2**63 - 1))

columns = st.builds(
    lambda name, points, attributes, unit, description: Column(
        name, [time for time, _ in points], [value for _, value in points], tuple(attributes.items()), unit, description
    ),
    TEXTS.filter(bool),
    st.lists(st.tuples(TIMES, NUMBERS), min_size=1, max_size=6),
    st.dictionaries(TEXTS, st.one_of(TEXTS, st.integers(-(2**63), 2**63 - 1)), max_size=2),
    TEXTS,
    TEXTS,
)
logs = st.builds(
    LogEntry,
    time_ns=TIMES,
    observed_time_ns=TIMES,
    severity_number=st.integers(0, 24),
    severity_text=TEXTS,
    body=VALUES,
    attributes=ATTRIBUTES,
    event_name=TEXTS,
    trace_id=st.one_of(st.just(0), TRACE_IDS),
    span_id=st.one_of(st.just(0), SPAN_IDS),
    flags=st.integers(0, 2**32 - 1),
    dropped_attributes=st.integers(0, 9),
    scope=TEXTS,
    scope_version=TEXTS,
)
spans = st.builds(
    SpanEntry,
    name=TEXTS,
    trace_id=TRACE_IDS,
    span_id=SPAN_IDS,
    parent_span_id=st.one_of(st.just(0), SPAN_IDS),
    start_ns=TIMES,
    end_ns=TIMES,
    kind=st.integers(0, 5),
    attributes=ATTRIBUTES,
    events=st.lists(st.builds(SpanEvent, time_ns=TIMES, name=TEXTS, attributes=ATTRIBUTES), max_size=2),
    links=st.lists(
        st.builds(SpanLink, trace_id=TRACE_IDS, span_id=SPAN_IDS, attributes=ATTRIBUTES, flags=st.integers(0, 9)),
        max_size=2,
    ),
    status_code=st.integers(0, 2),
    status_message=TEXTS,
    trace_state=st.sampled_from(["", "a=b"]),
)


def same(body: bytes, line: bytes) -> bool:
    """Whether a body means to the official classes what the line does; NaN equals NaN."""
    expected = message(line)
    return bool(type(expected).FromString(body).SerializeToString(deterministic=True) == _bytes(expected))


def _bytes(expected: Any) -> bytes:
    serialized: bytes = expected.SerializeToString(deterministic=True)
    return serialized


@settings(deadline=None)
@given(st.lists(columns, min_size=1, max_size=3))
def test_any_points_become_the_same_message(made: list[Column]) -> None:
    """Gauges written byte by byte: any number, name, unit, attribute and time."""
    line = ENCODER.points(made)
    assert same(protobuf_body("metrics", [part(line)]), line)


@settings(deadline=None)
@given(st.lists(logs, min_size=1, max_size=3))
def test_any_log_records_become_the_same_message(made: list[LogEntry]) -> None:
    """Any body and attribute, nested ones too, ids as bytes."""
    line = ENCODER.logs(made)
    assert same(protobuf_body("logs", [part(line, "logs")]), line)


@settings(deadline=None)
@given(st.lists(spans, min_size=1, max_size=3))
def test_any_spans_become_the_same_message(made: list[SpanEntry]) -> None:
    """Ids of span, parent and links, events, status."""
    line = ENCODER.spans(made)
    assert same(protobuf_body("traces", [part(line, "traces")]), line)


def test_sums_and_histograms_become_the_same_message() -> None:
    """Counters, exponential histograms with zero bucket and exemplars, next to gauges in one request."""
    histogram = ExponentialHistogram()
    for value in (0.1, -3.0, 0.0, 2.5, 1e-9):
        histogram.record(value, Exemplar(time_ns=START_NS, value=value, trace_id=7, span_id=9, attributes={"step": 3}))
    value, exemplars = histogram.snapshot()
    data = HistogramData(
        name="dl.step.duration",
        unit="s",
        description="Step.",
        attributes=(("split", "train"),),
        start_ns=1,
        time_ns=START_NS,
        value=value,
        exemplars=exemplars,
    )
    lines = [
        ENCODER.histograms([data]),
        ENCODER.samples(START_NS, 1, [Sample("otel_train.points", 5, (("outcome", "kept"),)), Sample("x.y", 1.5)]),
        ENCODER.points([Column("train.loss", [1, 2], [0.5, math.nan])]),
    ]
    body = protobuf_body("metrics", [part(line) for line in lines])
    expected = ExportMetricsServiceRequest()
    for line in lines:
        expected.MergeFrom(message(line))
    assert ExportMetricsServiceRequest.FromString(body).SerializeToString(deterministic=True) == _bytes(expected)
    kinds = [
        metric.WhichOneof("data")
        for block in ExportMetricsServiceRequest.FromString(body).resource_metrics
        for metric in block.scope_metrics[0].metrics
    ]
    assert kinds == ["exponential_histogram", "sum", "gauge", "gauge"]


TRICKY = '"gauge":{"dataPoints":[{"timeUnixNano":"1","asDouble":1.0}]}'
TRICKY_POINTS: list[list[dict[str, Any]]] = [
    [{"timeUnixNano": "1", "asDouble": 1.5}, {"timeUnixNano": "2", "asDouble": -2e-7}],
    [{"timeUnixNano": "1", "asInt": "7"}, {"timeUnixNano": "2", "asInt": "-7"}],
    [{"timeUnixNano": "1", "asInt": "7"}, {"timeUnixNano": "2", "asDouble": "NaN"}],
    [{"timeUnixNano": "1", "asDouble": 1}, {"timeUnixNano": "2", "asDouble": 2, "flags": 1}],
    [{"startTimeUnixNano": "1", "timeUnixNano": "2", "asDouble": 2}],
    [{"timeUnixNano": "2", "asDouble": 2, "exemplars": [{"timeUnixNano": "1", "asDouble": 5}]}],
    [{"timeUnixNano": "2"}, {"timeUnixNano": "3", "asDouble": 2}],
    [{"timeUnixNano": "2", "asDouble": 2}, {}],
    [],
    [{"asDouble": 2, "timeUnixNano": "2"}],
    [
        {"attributes": [{"key": "a", "value": {"stringValue": TRICKY}}], "timeUnixNano": "2", "asDouble": 2},
        {"attributes": [{"key": '}],"timeUnixNano":"', "value": {}}], "timeUnixNano": "3", "asInt": "1"},
    ],
    [
        {
            "attributes": [{"key": "a", "value": {"arrayValue": {"values": [{"stringValue": "}]}"}]}}}],
            "timeUnixNano": "2",
            "asDouble": number,
        }
        for number in (1.0, 2.0)
    ],
    [
        {"attributes": [{"key": "k", "value": {"stringValue": split}}], "timeUnixNano": "2", "asDouble": number}
        for split in ("train", "val")
        for number in (1.0, 2.0)
    ],
]


@pytest.mark.parametrize("points", TRICKY_POINTS)
@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
def test_points_of_any_form_become_the_same_message(points: list[dict[str, Any]], separators: tuple[str, str]) -> None:
    """Whatever shortcut is taken for points as we write them, others mean the same, with spaces or without."""
    metrics = [
        {"name": TRICKY, "unit": TRICKY, "gauge": {"dataPoints": points}, "description": "after"},
        {"name": "n", "gauge": {"dataPoints": [{"timeUnixNano": "9", "asDouble": 9.0}]}},
    ]
    text = json.dumps({"scopeMetrics": [{"metrics": metrics}]}, separators=separators).encode()
    assert same(protobuf_body("metrics", [text]), b'{"resourceMetrics":[' + text + b"]}\n")


def test_points_as_we_write_them_are_not_parsed_as_json() -> None:
    """The shortcut is taken for all that is common: one series or several, doubles, integers, NaN."""
    line = ENCODER.points(
        [
            Column("a", [1, 2], [1.0, 2.0], (("split", "train"),)),
            Column("b", [1, 2], [1, 2]),
            Column("c", [1, 2], [1.0, math.nan], (("split", "train"),)),
            Column("c", [1, 2], [3.0, 4.0], (("split", "val"),)),
        ]
    )
    text, taken = take_points(line, lambda pair: b"")
    assert b"timeUnixNano" not in text
    assert len(taken) == 3


def test_a_point_that_is_no_json_is_refused_by_the_shortcut_too() -> None:
    """A bare word for a number, or a cut in the middle, is a fault of the part."""
    text = gauge_text(b'{"timeUnixNano":"1","asDouble":1.0},{"timeUnixNano":"2","asDouble":x}')
    with pytest.raises(ValueError, match="Expecting value"):
        protobuf_body("metrics", [text])


def gauge_text(points: bytes) -> bytes:
    return b'{"scopeMetrics":[{"metrics":[{"name":"m","gauge":{"dataPoints":[' + points + b"]}}]}]}"


def points_of(part_text: dict[str, Any]) -> Any:
    body = protobuf_body("metrics", [json.dumps(part_text).encode()])
    return ExportMetricsServiceRequest.FromString(body).resource_metrics[0]


def gauge_part(*points: dict[str, Any], **metric: Any) -> dict[str, Any]:
    return {"scopeMetrics": [{"metrics": [{"name": "m", "gauge": {"dataPoints": list(points)}, **metric}]}]}


def test_non_finite_numbers_and_zero_are_values() -> None:
    """NaN and the infinities come from their names, and a 0 is a 0 and not the absence of a value."""
    found = points_of(
        gauge_part(
            {"timeUnixNano": "1", "asDouble": "NaN"},
            {"timeUnixNano": "2", "asDouble": "Infinity"},
            {"timeUnixNano": "3", "asDouble": "-Infinity"},
            {"timeUnixNano": "4", "asDouble": 0.0},
            {"timeUnixNano": "5", "asInt": "0"},
        )
    )
    points = found.scope_metrics[0].metrics[0].gauge.data_points
    # The bit pattern by which Prometheus marks a series as ended is another NaN: a loss must not become that.
    assert struct.pack(">d", points[0].as_double) == bytes.fromhex("7ff8000000000000")
    assert [point.as_double for point in points[1:4]] == [math.inf, -math.inf, 0.0]
    assert [point.WhichOneof("value") for point in points] == ["as_double"] * 4 + ["as_int"]


def test_other_writers_forms_are_read() -> None:
    """Numbers as numbers or strings, ids in capitals, enums by name or number, unknown and null fields passed over."""
    found = points_of(
        {
            "resource": {"attributes": [{"key": "k", "value": {"intValue": 7}}], "futureField": 1},
            "schemaUrl": "https://x/1",
            "scopeMetrics": [
                {
                    "scope": {"name": "s", "version": "2"},
                    "schemaUrl": "https://x/2",
                    "metrics": [
                        {"name": "g", "unit": "By", "gauge": {"dataPoints": [{"timeUnixNano": 5, "asInt": 7}]}},
                        {"name": "f", "gauge": {"dataPoints": [{"timeUnixNano": "5", "flags": 1}]}},
                        {"name": "n", "gauge": {"dataPoints": [{"timeUnixNano": "5", "asDouble": None}]}},
                        {
                            "name": "c",
                            "metadata": [{"key": "a", "value": {"boolValue": True}}],
                            "sum": {
                                "aggregationTemporality": "AGGREGATION_TEMPORALITY_CUMULATIVE",
                                "isMonotonic": True,
                                "dataPoints": [
                                    {
                                        "timeUnixNano": 6.0,
                                        "asDouble": 1,
                                        "exemplars": [{"spanId": "00F067AA0BA902B7", "asInt": "3"}],
                                    }
                                ],
                            },
                        },
                    ],
                }
            ],
        }
    )
    assert found.resource.attributes[0].value.int_value == 7
    assert (found.schema_url, found.scope_metrics[0].schema_url) == ("https://x/1", "https://x/2")
    gauge, flagged, empty, counter = found.scope_metrics[0].metrics
    assert (gauge.unit, gauge.gauge.data_points[0].as_int, gauge.gauge.data_points[0].time_unix_nano) == ("By", 7, 5)
    assert flagged.gauge.data_points[0].flags == 1
    assert empty.gauge.data_points[0].WhichOneof("value") is None
    assert counter.sum.aggregation_temporality == 2
    assert counter.sum.data_points[0].time_unix_nano == 6
    assert counter.sum.data_points[0].exemplars[0].span_id == bytes.fromhex("00f067aa0ba902b7")
    assert counter.metadata[0].value.bool_value is True


def test_a_flag_of_no_recorded_value_stays() -> None:
    """The mark of a series' end is a point with a flag and no value."""
    found = points_of(gauge_part({"timeUnixNano": "9", "flags": 1, "attributes": []}))
    (point,) = found.scope_metrics[0].metrics[0].gauge.data_points
    assert (point.flags, point.time_unix_nano, point.WhichOneof("value")) == (1, 9, None)


@pytest.mark.parametrize("signal", ["metrics", "logs", "traces"])
@pytest.mark.parametrize(
    "text",
    [
        b"{cut",
        b"[]",
        b'{"resource":7}',
        b'{"resource":{"attributes":[{"key":5}]}}',
        b'{"resource":{"attributes":[{"key":"k","value":{"intValue":"x"}}]}}',
        b'{"resource":{"attributes":[{"key":"k","value":{"intValue":"99999999999999999999"}}]}}',
    ],
)
def test_what_is_not_otlp_is_refused(signal: str, text: bytes) -> None:
    """A ValueError, by which the damaged part is found and counted, never another exception."""
    with pytest.raises(ValueError):  # noqa: PT011 - whatever its words
        protobuf_body(signal, [text])


@pytest.mark.parametrize(
    "point",
    [{"timeUnixNano": -1, "asDouble": 1}, {"timeUnixNano": "x", "asDouble": 1}, {"timeUnixNano": 1, "asInt": 2**70}],
)
def test_a_point_that_cannot_be_is_refused(point: dict[str, Any]) -> None:
    """Numbers outside of what the format holds are faults of the point."""
    with pytest.raises(ValueError):  # noqa: PT011 - whatever its words
        points_of(gauge_part(point))


def test_an_id_that_is_no_hex_is_refused() -> None:
    """Base64, as protobuf's own JSON would have it, makes no other id without a word."""
    with pytest.raises(ValueError):  # noqa: PT011 - whatever its words
        protobuf_body("traces", [b'{"scopeSpans":[{"spans":[{"traceId":"W47/95gDgQPSabYzgT/GDA=="}]}]}'])


def test_a_lone_surrogate_becomes_a_question_mark() -> None:
    """No UTF-8 holds it; the rest of the text arrives."""
    body = protobuf_body("logs", [b'{"scopeLogs":[{"logRecords":[{"body":{"stringValue":"a\\ud800b"}}]}]}'])
    request = REQUESTS["logs"].FromString(body)
    assert request.resource_logs[0].scope_logs[0].log_records[0].body.string_value == "a?b"


def test_parts_of_several_lines_are_one_message() -> None:
    """Joined parts keep their order and their resources."""
    lines = [LineEncoder({"run_id": f"r{n}"}, "1").points([Column("a", [n], [float(n)])]) for n in range(3)]
    request = ExportMetricsServiceRequest.FromString(protobuf_body("metrics", [part(line) for line in lines]))
    assert [block.resource.attributes[0].value.string_value for block in request.resource_metrics] == ["r0", "r1", "r2"]
