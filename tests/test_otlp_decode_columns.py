"""The quick way to read a line gives what the careful one gives, or leaves the line to it."""

from __future__ import annotations

import json
import math
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_train.otlp.decode import DamagedLine, Request, decode_document, decode_line, parse_line
from otel_train.otlp.decode_columns import take_out
from otel_train.otlp.encode import LineEncoder
from otel_train.record.entries import Column, Sample
from otel_train.record.numbers import Float32

ENCODER = LineEncoder({"run_id": "r", "dl.rank": 0}, "test")
TRAIN = (("split", "train"),)


def carefully(line: bytes) -> Request:
    return decode_document(parse_line(line))


def same(left: Request, right: Request) -> bool:
    # By their texts, in which NaN is NaN and 1 is not 1.0.
    return repr(left) == repr(right)


floats = st.floats(width=64)
numbers = st.one_of(floats, st.integers(-(2**63), 2**63 - 1), floats.map(Float32))
texts = st.text(max_size=6) | st.sampled_from(
    ["loss", 'a"b', "UU", "U", '"gauge":{"dataPoints":[', "]}}", '","asDouble":', "é"]
)


@given(
    st.lists(
        st.tuples(
            texts,
            st.lists(st.tuples(texts, texts | st.lists(texts, max_size=2).map(tuple) | floats), max_size=2),
            st.lists(numbers, min_size=1, max_size=5) | st.lists(floats, min_size=1, max_size=5),
            st.integers(0, 3),
        ),
        min_size=1,
        max_size=5,
    )
)
def test_what_our_encoder_writes_is_read_alike(
    columns: list[tuple[str, list[tuple[str, Any]], list[Any], int]],
) -> None:
    """Whatever the names, attributes and numbers; several series may share a name, or times."""
    made = []
    for name, attributes, values, shift in columns:
        times = [1_796_000_000_000_000_000 + shift + 10**shift * number for number in range(len(values))]
        made.append(Column(name, times, values, tuple(dict(attributes).items()), description=name))
    line = ENCODER.points(made)
    if line:
        assert same(decode_line(line.rstrip(b"\n")), carefully(line))


def test_a_line_of_the_recorder_is_taken_out() -> None:
    """The quick way is the way that is gone: two metrics, two siblings of different splits, NaN and infinities."""
    times = [1_796_000_000_000_000_000 + 7 * number for number in range(200)]
    values = [math.nan if number == 5 else math.inf if number == 6 else number / 3 for number in range(200)]
    whole = [Float32(number) for number in range(200)]
    columns = [
        Column("train.loss", times, values, TRAIN, description="loss"),
        Column("train.accuracy", times, whole, TRAIN),
        Column("dl.step", times, list(range(200)), TRAIN),
        Column("dl.step", times, list(range(200)), ()),
        Column("train.late", [time_ns + 1 for time_ns in times[:3]], values[:3]),
    ]
    line = ENCODER.points(columns).rstrip(b"\n")
    taken = take_out(line)
    assert taken is not None
    assert [len(times_ns) for times_ns, _ in taken.columns] == [200, 200, 200, 200, 3]
    assert len(taken.rest) < 4_000
    request = decode_line(line)
    assert same(request, carefully(line))
    by_name = {(series.name, series.attributes): series for series in request.series}
    assert by_name["train.loss", TRAIN].times_ns == times
    assert repr(by_name["train.loss", TRAIN].values) == repr(values)
    assert [series.name for series in decode_line(line, {"dl.step"}).series] == ["dl.step", "dl.step"]


@given(st.integers(0, 100_000))
def test_a_line_with_anything_changed_in_it_is_read_alike_or_refused_alike(seed: int) -> None:
    """Bytes removed, doubled, swapped or replaced: the same content, the same count of what is skipped, or a fault."""
    chosen = random.Random(seed)
    times = [1_796_000_000_000_000_000 + number for number in range(4)]
    columns = [
        Column("train.loss", times, [0.5, -1e300, 3.0, math.inf], TRAIN),
        Column("dl.step", times, [1, 2, 3, 4], TRAIN),
        Column("x", times[:2], [1, 2.5], (("layer", 3),), "s", "what it is"),
    ]
    line = bytearray(ENCODER.points(columns).rstrip(b"\n"))
    # Where the points are, mostly.
    for _ in range(chosen.choice([1, 1, 2, 5])):
        at = chosen.randrange(len(line))
        kind = chosen.randrange(5)
        if kind == 0:
            del line[at : at + chosen.choice([1, 2, 20])]
        elif kind == 1:
            line[at:at] = chosen.choice(
                [b" ", b"0", b"-", b".", b"e", b"_", b"+", b"NaN", b'"', b",", b"}", b"1e400", b"null", b"U"]
            )
        elif kind == 2:
            line[at] = chosen.randrange(256)
        elif kind == 3:
            other = chosen.randrange(len(line))
            line[at : at + 30] = line[other : other + 30]
        else:
            line[at:at] = chosen.choice(
                [b'"flags":1,', b'"asInt":"5",', b'"startTimeUnixNano":"5",', b'"exemplars":[],']
            )
    data = bytes(line)
    try:
        expected = carefully(data)
    except DamagedLine:
        with pytest.raises(DamagedLine):
            decode_line(data)
        return
    assert same(decode_line(data), expected)


POINT = '{"attributes":[{"key":"a","value":{"intValue":"1"}}],"timeUnixNano":"%s","asDouble":%s}'


@pytest.mark.parametrize(
    "points",
    [
        [("1", "1.0"), ("12", "2.0")],
        [("12", "1.0"), ("1", "12.0")],
        [("1", "NaN"), ("2", "1.0")],
        [("1", '"NaN"'), ("2", '"Infinity"'), ("3", '"-Infinity"'), ("4", "1")],
        [("1", '"nan"'), ("2", '" 1.5 "')],
        [("1", "1e400"), ("2", "-1e400")],
        [("1", "1,2"), ("2", "3")],
        [("1", "01"), ("2", "+1")],
        [("1", "1.")],
        [("1", ".5")],
        [("1", "1_0")],
        [("1", "null"), ("2", "true")],
        [("1", "[1]"), ("2", "{}")],
        [("007", "1.0"), ("1.5", "1.0")],
        [("-5", "1.0"), (" 6", "2.0")],
        [("1", '1.0,"flags":1')],
        [("9" * 30, "1.0")],
        [("1", "9" * 400)],
        [("1", "5"), ("2", str(2**70))],
        [("", "1.0")],
    ],
)
def test_what_is_unusual_is_left_to_the_careful_reader(points: list[tuple[str, str]]) -> None:
    """Numbers that Python would read and JSON does not have, and such as no point of ours has."""
    body = ",".join(POINT % point for point in points)
    metric = f'{{"name":"train.loss","gauge":{{"dataPoints":[{body}]}}}}'
    line = f'{{"resourceMetrics":[{{"scopeMetrics":[{{"metrics":[{metric}]}}]}}]}}'.encode()
    try:
        expected = carefully(line)
    except DamagedLine:
        with pytest.raises(DamagedLine):
            decode_line(line)
        return
    assert same(decode_line(line), expected)


def test_readings_and_other_kinds_are_left_to_the_careful_reader() -> None:
    """A counter has times of its beginning; what is no line of metrics has no points."""
    line = ENCODER.samples(5, 1, [Sample("system.network.io", 7), Sample("system.cpu.utilization", 0.5)]).rstrip(b"\n")
    assert take_out(line) is None
    assert same(decode_line(line), carefully(line))
    assert take_out(b"{}") is None
    assert take_out(b"\xff") is None


def test_columns_of_one_shape_are_told_apart_by_their_names() -> None:
    """Two lines that differ only in a name, then in an attribute, are not taken for each other."""
    for name, attributes in (("a", TRAIN), ("b", TRAIN), ("a", (("split", "val"),))):
        line = ENCODER.points([Column(name, [1, 2], [0.5, 1.5], attributes)]).rstrip(b"\n")
        (series,) = decode_line(line).series
        assert (series.name, series.attributes, series.values) == (name, attributes, [0.5, 1.5])
    assert json.loads(line)


@given(
    st.lists(st.tuples(texts, st.lists(numbers, min_size=1, max_size=4)), min_size=1, max_size=5),
    st.sets(texts, max_size=3),
)
def test_of_some_names_only_these_are_read(columns: list[tuple[str, list[Any]]], names: set[str]) -> None:
    """What is passed over unread changes nothing of the others, whatever stands in it."""
    made = [
        Column(name, [1_796_000_000_000_000_000 + number for number in range(len(values))], values, description=name)
        for name, values in columns
    ]
    line = ENCODER.points(made)
    assert same(decode_line(line, names), decode_document(parse_line(line), names))
