"""Log records and spans as the stores take them: age, times, sizes."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_train.export.limits import MOST_BODY_BYTES, MOST_METADATA, MOST_METADATA_BYTES
from otel_train.export.records import Fitted, LogFitter, fit_spans
from otel_train.otlp.encode import PREFIXES, SUFFIX, LineEncoder
from otel_train.record.entries import LogEntry, SpanEntry, SpanEvent
from tests.runlog_lines import ENCODER, SECOND, START_NS, HandClock

DAY_S = 86_400


def fit(entries: list[LogEntry], fitter: LogFitter | None = None, encoder: LineEncoder = ENCODER) -> Fitted:
    return (fitter or LogFitter()).line(encoder.logs(entries)[:-1])


def records_of(fitted: Fitted, signal: str = "logs") -> list[dict[str, Any]]:
    document = json.loads(PREFIXES[signal] + b",".join(fitted.parts) + SUFFIX)
    blocks, scopes, items = (
        ("resourceLogs", "scopeLogs", "logRecords") if signal == "logs" else ("resourceSpans", "scopeSpans", "spans")
    )
    return [item for block in document[blocks] for scope in block[scopes] for item in scope[items]]


def values_of(record: dict[str, Any]) -> dict[str, Any]:
    return {pair["key"]: next(iter(pair["value"].values())) for pair in record.get("attributes", ())}


def metadata_of(pairs: list[dict[str, Any]], above: str = "") -> list[tuple[str, str]]:
    """Names and texts as Loki makes them: maps become an entry for each of their values, lists become JSON."""
    found: list[tuple[str, str]] = []
    for pair in pairs:
        kind, value = next(iter(pair["value"].items()), ("", ""))
        name = above + pair["key"]
        if kind == "kvlistValue":
            found += metadata_of(value["values"], name + "_")
        elif kind == "arrayValue":
            text = json.dumps(plain_value(pair["value"]), ensure_ascii=False, separators=(",", ":"))
            found.append((name, re.sub("[<>&\u2028\u2029]", "......", text)))
        else:
            found.append((name, value if isinstance(value, str) else json.dumps(value)))
    return found


def plain_value(value: dict[str, Any]) -> Any:
    kind, entry = next(iter(value.items()), ("", None))
    if kind == "arrayValue":
        return [plain_value(item) for item in entry["values"]]
    if kind == "kvlistValue":
        return {pair["key"]: plain_value(pair["value"]) for pair in entry["values"]}
    return entry


def entry(body: Any = "text", time_ns: int = START_NS, **others: Any) -> LogEntry:
    return LogEntry(time_ns=time_ns, severity_number=9, severity_text="INFO", body=body, **others)


def test_a_name_that_no_store_takes_gets_one_that_they_do() -> None:
    """Names without a letter or digit of ASCII: Loki would refuse the whole request for one, others' records too."""
    names = {"": 1, "学習率": 2, "_": 3, "rate.率": 4, "7": 5}
    (record,) = records_of(fit([entry(attributes=names)]))
    assert {name: int(value) for name, value in values_of(record).items()} == {
        "key_": 1,
        "key_学習率": 2,
        "key__": 3,
        "rate.率": 4,
        "7": 5,
    }


def test_a_line_that_needs_nothing_goes_as_it_stands() -> None:
    """Byte by byte what stands in the log."""
    line = ENCODER.logs([entry(attributes={"a": 1}), entry("ü")])
    fitted = LogFitter(max_age_s=7 * DAY_S, clock=HandClock()).line(line[:-1])
    assert PREFIXES["logs"] + fitted.parts[0] + SUFFIX == line
    assert (fitted.items, fitted.aged, fitted.unreadable) == (2, 0, 0)


def test_records_over_the_age_are_left_out_and_counted() -> None:
    """60 fresh records, 40 aged ten days, one without a time: 61 are sent, 40 counted, and the one has its time."""
    old = [entry(f"old {number}", START_NS - 10 * DAY_S * SECOND) for number in range(40)]
    fresh = [entry(f"fresh {number}", START_NS - number * SECOND) for number in range(60)]
    timeless = entry("timeless", 0, observed_time_ns=START_NS - 5)
    fitted = fit([*old[:20], *fresh, timeless, *old[20:]], LogFitter(7 * DAY_S, HandClock()))
    records = records_of(fitted)
    assert (len(records), fitted.items, fitted.aged) == (61, 61, 40)
    assert {record["timeUnixNano"] for record in records if record["body"]["stringValue"] == "timeless"} == {
        str(START_NS - 5)
    }
    assert [record["body"]["stringValue"] for record in records[:60]] == [f"fresh {number}" for number in range(60)]


def test_without_a_limit_nothing_is_too_old() -> None:
    """A run of last year is sent as it is, where nobody has said otherwise."""
    assert fit([entry(time_ns=START_NS - 400 * DAY_S * SECOND)], LogFitter(None, HandClock())).items == 1


def test_a_line_of_aged_records_alone_gives_nothing() -> None:
    """No empty request is made of it."""
    fitted = fit([entry(time_ns=1)], LogFitter(7 * DAY_S, HandClock()))
    assert (fitted.parts, fitted.items, fitted.aged) == ([], 0, 1)


def test_a_record_without_any_time_gets_that_of_the_one_before() -> None:
    """And where there was none before, the present: never the year 1970."""
    fitter = LogFitter(7 * DAY_S, HandClock())
    first = records_of(fit([entry(time_ns=0)], fitter))
    assert first[0]["timeUnixNano"] == str(START_NS)
    second = records_of(fit([entry(time_ns=START_NS - 77), entry("timeless", 0)], fitter))
    assert [record["timeUnixNano"] for record in second] == [str(START_NS - 77)] * 2
    document = b'{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"body":{"stringValue":"x"}}]}]}]}'
    assert records_of(fitter.line(document))[0]["timeUnixNano"] == str(START_NS - 77)


def test_attributes_beyond_the_limit_are_cut_the_largest_first() -> None:
    """Small ones stay whole; what was cut ends with its whole size, and is listed."""
    fitted = fit([entry(attributes={"small": "s" * 100, "large": "l" * 200_000, "larger": "ü" * 200_000, "n": 3})])
    (record,) = records_of(fitted)
    values = values_of(record)
    assert values["small"] == "s" * 100
    assert values["n"] == "3"
    assert values["large"].endswith("… [cut, 200,000 bytes in all]")
    assert values["larger"].endswith("… [cut, 400,000 bytes in all]")
    assert values["larger"].startswith("ü" * 10_000)
    assert values["otel_train.attributes_cut"] == {"values": [{"stringValue": "large"}, {"stringValue": "larger"}]}
    total = sum(len(name.encode()) + len(value.encode()) for name, value in metadata_of(record["attributes"]))
    assert 55_000 < total < 65_536


def test_a_list_that_is_too_large_is_cut_as_its_text() -> None:
    """It stays readable as far as it goes."""
    (record,) = records_of(fit([entry(attributes={"numbers": list(range(50_000))})]))
    assert values_of(record)["numbers"].startswith('["0","1","2",')


def test_the_resource_counts_with_the_attributes() -> None:
    """A store adds it to each record; one that is too large by itself is cut, too."""
    encoder = LineEncoder({"run_id": "r", "notes": "n" * 100_000}, "1")
    fitted = fit([entry(attributes={"text": "t" * 50_000})], encoder=encoder)
    block = json.loads(PREFIXES["logs"] + fitted.parts[0] + SUFFIX)["resourceLogs"][0]
    pairs = block["resource"]["attributes"] + block["scopeLogs"][0]["logRecords"][0]["attributes"]
    assert sum(len(name.encode()) + len(value.encode()) for name, value in metadata_of(pairs)) < 65_536
    assert values_of(block["resource"])["run_id"] == "r"
    assert values_of(block["resource"])["notes"].endswith("[cut, 100,000 bytes in all]")


def test_too_many_attributes_become_one_with_the_rest() -> None:
    """None is lost: those beyond the number that a store takes stand as JSON in one; an event keeps its name."""
    attributes = {f"key {number}": number for number in range(300)}
    (record,) = records_of(fit([entry(attributes=attributes, event_name="dataset.described")]))
    values = values_of(record)
    assert len(record["attributes"]) <= MOST_METADATA
    assert values["event.name"] == "dataset.described"
    rest = json.loads(values["otel_train.attributes_rest"])
    assert {**{key: value for key, value in values.items() if key.startswith("key")}, **rest} == {
        key: str(number) for key, number in attributes.items()
    }


def test_a_map_counts_as_many_attributes_as_it_has_values() -> None:
    """A store flattens maps, so one attribute may be three hundred."""
    (record,) = records_of(fit([entry(attributes={"config": {f"k{n}": {"a": n, "b": n} for n in range(150)}})]))
    assert len(metadata_of(record["attributes"])) <= MOST_METADATA
    assert json.loads(values_of(record)["otel_train.attributes_rest"])["config"].startswith('{"k0":{"a":"0"')


def test_a_body_beyond_the_limit_of_a_line_is_cut() -> None:
    """Text or map; its size is said beside it."""
    for body, start in (("b" * 400_000, "bbb"), ({"list": ["b" * 400_000]}, '{"list":["bbb')):
        (record,) = records_of(fit([entry(body)]))
        text = record["body"]["stringValue"]
        assert text.startswith(start)
        assert len(text.encode()) <= MOST_BODY_BYTES
        assert text.endswith("bytes in all]")
        assert int(values_of(record)["otel_train.body_cut"]) >= 400_000


# A text that begins so stands for a long one, so that what is shown of a failure stays short.
LONG = "long: "
ATTRIBUTE_VALUES = st.recursive(
    st.one_of(
        st.text(max_size=30),
        st.integers(-5, 5),
        st.booleans(),
        st.text("a<\x7f\u2028ü\x01", min_size=1, max_size=2).map(lambda text: LONG + text),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(min_size=1, max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)


def grown(value: Any) -> Any:
    """The value with its long texts."""
    if isinstance(value, str):
        return value.removeprefix(LONG) * 30_000 if value.startswith(LONG) else value
    if isinstance(value, list):
        return list(map(grown, value))
    return {key: grown(entry) for key, entry in value.items()} if isinstance(value, dict) else value


@settings(max_examples=50, deadline=None)
@given(
    st.dictionaries(st.text(min_size=1, max_size=5), ATTRIBUTE_VALUES, max_size=5),
    st.integers(0, 160),
    ATTRIBUTE_VALUES,
)
def test_no_record_passes_the_limits(attributes: dict[str, Any], more: int, body: Any) -> None:
    """Whatever a user logs: fewer entries and bytes than the store takes, and one record still."""
    attributes = {**grown(attributes), **{f"more {number}": number for number in range(more)}}
    (record,) = records_of(fit([entry(grown(body), attributes=attributes)]))
    metadata = metadata_of(record.get("attributes", []))
    resource = 3
    assert len(metadata) + resource <= MOST_METADATA + 2
    assert sum(len(name.encode()) + len(text.encode()) for name, text in metadata) <= MOST_METADATA_BYTES
    assert len(json.dumps(record.get("body", ""), ensure_ascii=False).encode()) < MOST_BODY_BYTES + 100_000


def test_damage_is_counted_and_what_is_whole_beside_it_goes() -> None:
    """Two lines glued where a line end was lost, the first of them cut."""
    whole = ENCODER.logs([entry("whole")])[:-1]
    cut = ENCODER.logs([entry("cut")])[:-20]
    fitted = LogFitter().line(cut + whole)
    assert [record["body"]["stringValue"] for record in records_of(fitted)] == ["whole"]
    assert (fitted.items, fitted.unreadable) == (1, 1)
    fitted = LogFitter().line(b'{"resourceLogs":[{"scopeLogs":[{"logRecords":[null,7,{"timeUnixNano":"5"}]}]}]}')
    assert (records_of(fitted), fitted.unreadable) == ([{"timeUnixNano": "5"}], 2)


@pytest.mark.parametrize("line", [b"{}", b'{"resourceLogs":[]}', b'{"resourceLogs":[{"scopeLogs":[]}]}'])
def test_an_empty_request_gives_nothing(line: bytes) -> None:
    """It is whole, and there is nothing in it."""
    fitted = LogFitter().line(line)
    assert (fitted.parts, fitted.items, fitted.unreadable) == ([], 0, 0)


def span(**others: Any) -> SpanEntry:
    return SpanEntry(name="step", trace_id=1, span_id=2, start_ns=START_NS, end_ns=START_NS + 5, **others)


def test_spans_go_as_they_stand() -> None:
    """Byte by byte, with their number."""
    line = ENCODER.spans([span(), span()])
    fitted = fit_spans(line[:-1])
    assert PREFIXES["traces"] + fitted.parts[0] + SUFFIX == line
    assert fitted.items == 2


def test_values_of_a_span_that_are_too_long_are_cut() -> None:
    """Those of its events, too; the others stay."""
    events = [SpanEvent(time_ns=START_NS, name="e", attributes={"stack": "s" * 90_000, "n": 1})]
    fitted = fit_spans(ENCODER.spans([span(attributes={"text": "t" * 90_000, "short": "x"}, events=events)])[:-1])
    (found,) = records_of(fitted, "traces")
    values = values_of(found)
    assert len(values["text"].encode()) < 65_536
    assert values["text"].endswith("… [cut, 90,000 bytes in all]")
    assert values["short"] == "x"
    assert values["otel_train.attributes_cut"] == {"values": [{"stringValue": "text"}]}
    assert values_of(found["events"][0])["stack"].endswith("… [cut, 90,000 bytes in all]")
