"""Merging within milliseconds: what a store is sent equals a plain model, however the log is cut, read and re-read."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_train.export.feed import RankFeed
from otel_train.export.held import SeriesTable
from otel_train.export.merge import MetricMerge
from otel_train.export.parts import MetricParts
from otel_train.otlp.encode import LineEncoder
from otel_train.otlp.histogram import ExponentialHistogram, HistogramData
from otel_train.record.entries import Column, Sample
from tests.export_store import MS, Store, expected, points_of, write_log

START_NS = 1_700_000_000_123 * MS
RESOURCE = {"run_id": "20260101-000000-abcdefgh", "service.name": "digits", "note": 'a "},{" in it'}
ENCODER = LineEncoder(RESOURCE, "0.1.0")
NAN, INF = float("nan"), float("inf")

# Two of these names are one to Prometheus, and so are two of the attribute sets.
NAMES = st.sampled_from(["train.loss", "train.a_b", "train.a.b", "dl.step"])
ATTRIBUTES = st.sampled_from(
    [(), (("split", "train"),), (("split", 'v"},{"timeUnixNano":"'),), (("a.b", 1),), (("a_b", 1),)]
)
VALUES = st.sampled_from([0.5, 1.0, -2.25, 3, 7, NAN, INF, -INF, 1e300])
# Close together, so that milliseconds meet; within five seconds, so that nothing is let go early.
TIMES = st.integers(0, 30 * MS).map(lambda offset: START_NS + offset)


@st.composite
def columns(draw: st.DrawFn) -> Column:
    values = draw(st.lists(VALUES, min_size=1, max_size=6))
    times = draw(st.lists(TIMES, min_size=len(values), max_size=len(values)))
    if draw(st.booleans()):
        times.sort()
    return Column(draw(NAMES), times, values, draw(ATTRIBUTES))


@st.composite
def lines_of_columns(draw: st.DrawFn) -> bytes:
    return ENCODER.points(draw(st.lists(columns(), min_size=1, max_size=4)))


@st.composite
def lines_of_samples(draw: st.DrawFn) -> bytes:
    names = st.sampled_from(["dl.run.heartbeat", "process.cpu.time", "dl.run.state", "process.memory.usage"])
    samples = [
        Sample(name, value, (("state", "used"),))
        for name, value in draw(st.lists(st.tuples(names, VALUES), min_size=1, max_size=4))
    ]
    return ENCODER.samples(draw(TIMES), START_NS, samples)


@st.composite
def lines_of_histograms(draw: st.DrawFn) -> bytes:
    histogram = ExponentialHistogram()
    for value in draw(st.lists(st.sampled_from([0.1, 0.2, 5.0]), min_size=1, max_size=3)):
        histogram.record(value, None)
    value, exemplars = histogram.snapshot()
    data = HistogramData(
        name="dl.step.duration",
        unit="s",
        description="",
        attributes=(("split", "train"),),
        start_ns=START_NS,
        time_ns=draw(TIMES),
        value=value,
        exemplars=exemplars,
    )
    return ENCODER.histograms([data])


def spaced(line: bytes) -> bytes:
    """The same line as another program might write it."""
    return json.dumps(json.loads(line)).encode() + b"\n"


OWN_LINES = st.one_of(lines_of_columns(), lines_of_samples(), lines_of_histograms())
LINES = st.lists(st.one_of(OWN_LINES, lines_of_columns(), OWN_LINES.map(spaced)), min_size=1, max_size=12)


def merged_by_lines(lines: list[bytes]) -> tuple[Store, int]:
    """What comes of the lines when each is taken by itself, and how many points were merged."""
    table = SeriesTable()
    merge = MetricMerge(table)
    store, at, merged = Store(), 0, 0
    for line in lines:
        parts = MetricParts()
        merge.line(line[:-1], at, parts)
        at += len(line)
        merged += parts.merged
        for part in parts.take():
            for point in points_of(json.loads(b'{"resourceMetrics":[' + part + b"]}")):
                assert store.values.setdefault(point.place, point.value) == point.value
        assert parts.unreadable == 0
    for series in table.by_key.values():
        if series.open:
            metric = json.loads(series.frame.opening + series.point + b"]}}")
            (point,) = points_of({"resourceMetrics": [{"scopeMetrics": [{"metrics": [metric]}]}]})
            assert store.values.setdefault(point.place, point.value) == point.value
    return store, merged


@settings(max_examples=100, deadline=None)
@given(LINES)
def test_a_store_gets_one_point_a_millisecond(lines: list[bytes]) -> None:
    """The last in the order of the log, or the last non-finite one; the count of merged points is exact."""
    store, merged = merged_by_lines(lines)
    assert (store.values, merged) == expected(lines)


@settings(max_examples=60, deadline=None)
@given(st.lists(OWN_LINES, min_size=1, max_size=8))
def test_parsing_gives_what_taking_apart_by_bytes_gives(lines: list[bytes]) -> None:
    """The general way and the quick one store the same."""
    by_bytes, merged_by_bytes = merged_by_lines(lines)
    parsed, merged_parsed = merged_by_lines(list(map(spaced, lines)))
    assert by_bytes.values == parsed.values
    assert merged_by_bytes == merged_parsed


def written(line_columns: list[Column]) -> bytes:
    return ENCODER.points(line_columns)


def test_our_own_columns_are_never_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The quick way is taken for what it was made for: else it would be right and ten times as slow."""
    lines = [
        written(
            [
                Column(name, [START_NS + (line * 50 + i) * 3 * MS for i in range(50)], [float(i) for i in range(50)])
                for name in ("train.loss", "train.acc")
            ]
        )
        for line in range(3)
    ]
    parsed: list[object] = []
    table = SeriesTable()
    merge = MetricMerge(table)
    monkeypatch.setattr(merge._json, "line", lambda *given: parsed.append(given))
    monkeypatch.setattr(merge._json, "metric", lambda *given: parsed.append(given))
    monkeypatch.setattr(merge._json, "take", lambda *given: parsed.append(given))
    parts = MetricParts()
    for line in lines:
        merge.line(line[:-1], 0, parts)
    assert parsed == []
    assert (parts.items, table.held) == (298, 2)


def test_three_points_of_one_millisecond_become_the_last() -> None:
    """Points at 0.2, 0.5 and 0.9 ms with 3, 2 and 1: the store is given 1, and two are counted as merged."""
    line = written(
        [Column("train.loss", [START_NS + 200_000, START_NS + 500_000, START_NS + 900_000], [3.0, 2.0, 1.0])]
    )
    store, merged = merged_by_lines([line])
    assert list(store.values.values()) == ['{"asDouble": 1.0}']
    assert merged == 2


def test_a_value_that_is_not_finite_wins_over_later_finite_ones() -> None:
    """NaN is the first sign of a dying run: no finite value of the same millisecond may hide it."""
    times = [START_NS + step * 100_000 for step in range(4)]
    store, merged = merged_by_lines([written([Column("train.loss", times, [1.0, NAN, INF, 2.0])])])
    assert list(store.values.values()) == ['{"asDouble": "Infinity"}']
    assert merged == 3


def test_points_of_a_millisecond_meet_across_lines() -> None:
    """A line may end in the midst of a millisecond: the point that is held back waits for the next line."""
    one = written([Column("train.loss", [START_NS, START_NS + 5 * MS], [1.0, 2.0])])
    two = written([Column("train.loss", [START_NS + 5 * MS + 10, START_NS + 9 * MS], [3.0, 4.0])])
    store, merged = merged_by_lines([one, two])
    assert list(store.values.values()) == ['{"asDouble": 1.0}', '{"asDouble": 3.0}', '{"asDouble": 4.0}']
    assert merged == 1


def test_a_name_that_no_store_takes_gets_one_that_they_do() -> None:
    """An instrument of the user's may name an attribute in his language: for it Prometheus would refuse all else."""
    names = ("学習率", "", "rate")
    pairs = [{"key": name, "value": {"stringValue": "x"}} for name in names]
    points = [
        {"timeUnixNano": str(START_NS + number * MS), "asInt": "1", "attributes": pairs[:number]} for number in range(4)
    ]
    metric = {"name": "mine", "gauge": {"dataPoints": points}}
    line = json.dumps({"resourceMetrics": [{"scopeMetrics": [{"scope": {"name": "users"}, "metrics": [metric]}]}]})
    table, parts = SeriesTable(), MetricParts()
    MetricMerge(table).line(line.encode(), 0, parts)
    held = [json.loads(series.point) for series in table.by_key.values()]
    assert [[pair["key"] for pair in point["attributes"]] for point in held] == [
        [],
        ["key_学習率"],
        ["key_学習率", "key_"],
        ["key_学習率", "key_", "rate"],
    ]


def test_a_millisecond_that_was_sent_is_not_sent_again_with_another_value() -> None:
    """Where the clock is set back the log comes back to milliseconds that are in the store already."""
    first = written([Column("train.loss", [START_NS + step * MS for step in range(5)], [0.0, 1.0, 2.0, 3.0, 4.0])])
    again = written(
        [Column("train.loss", [START_NS + 2 * MS, START_NS + 2_500_000, START_NS + 7 * MS], [9.0, 9.0, 7.0])]
    )
    between = written([Column("train.loss", [START_NS - MS], [5.0])])
    store, merged = merged_by_lines([first, again, between])
    assert {place[1] - START_NS // MS: value for place, value in store.values.items()} == {
        -1: '{"asDouble": 5.0}',
        **{step: f'{{"asDouble": {step}.0}}' for step in range(5)},
        7: '{"asDouble": 7.0}',
    }
    assert merged == 2


def test_metrics_that_prometheus_spells_alike_are_one_series() -> None:
    """`train.a_b` and `train.a.b` at one millisecond: one is sent, and the other counted, though they are two here."""
    store, merged = merged_by_lines(
        [written([Column("train.a_b", [START_NS], [1.0]), Column("train.a.b", [START_NS + 1], [2.0])])]
    )
    assert list(store.values.values()) == ['{"asDouble": 2.0}']
    assert merged == 1


def test_each_point_stays_with_its_own_metric() -> None:
    """Where two metrics are one series, a point that was held back goes out under the name it was written with."""
    merge = MetricMerge(SeriesTable())
    parts = MetricParts()
    for index, name in enumerate(["train.a_b", "train.a.b", "train.a_b"]):
        merge.line(written([Column(name, [START_NS + index * MS], [float(index)])])[:-1], index, parts)
    (part,) = parts.take()
    metrics = json.loads(part)["scopeMetrics"][0]["metrics"]
    assert [(metric["name"], metric["gauge"]["dataPoints"][0]["asDouble"]) for metric in metrics] == [
        ("train.a_b", 0.0),
        ("train.a.b", 1.0),
    ]


def test_columns_of_one_metric_that_take_turns_are_told_apart() -> None:
    """Points of one split before and behind those of another: no encoder of ours does so, and it is read rightly."""
    train, val = (("split", "train"),), (("split", "val"),)
    times = [START_NS, START_NS + 2 * MS]
    lines = [
        written(
            [
                Column("train.loss", times, [1.0, 2.0], train),
                Column("train.loss", times, [3.0, 4.0], val),
                Column("train.loss", [START_NS + 5 * MS, START_NS + 6 * MS], [5.0, 6.0], train),
            ]
        )
    ]
    store, merged = merged_by_lines(lines)
    assert (store.values, merged) == expected(lines)
    assert len(store.values) == 6


@pytest.mark.parametrize("bad", [b"17000000x0123000000", b"", b"-1700000000123000000", b"99999999999999999999", b"0"])
def test_a_point_whose_time_is_no_time_is_left_out_and_counted(bad: bytes) -> None:
    """The others of its line are sent."""
    times = [START_NS + step * MS for step in range(3)]
    line = written([Column("train.loss", times, [1.0, 2.0, 3.0])]).replace(str(times[1]).encode(), bad)
    merge = MetricMerge(SeriesTable())
    parts = MetricParts()
    merge.line(line[:-1], 0, parts)
    assert (parts.items, merge.table.held, parts.unreadable) == (1, 1, 1)


@pytest.mark.parametrize("cut", [1, 5, 30, 100])
def test_a_cut_line_is_counted_and_the_next_one_read(cut: int) -> None:
    """A torn line costs its own points, and what is glued to it is saved."""
    whole = written([Column("train.loss", [START_NS], [1.0])])[:-1]
    next_one = written([Column("train.loss", [START_NS + MS], [2.0])])[:-1]
    for line in (whole[:-cut], whole[:-cut] + next_one):
        merge = MetricMerge(SeriesTable())
        parts = MetricParts()
        merge.line(line, 0, parts)
        assert parts.unreadable == 1
        assert merge.table.held == (line != whole[:-cut])


def test_a_point_without_followers_is_let_go_after_some_lines() -> None:
    """A value logged once an hour does not wait for the next: five seconds and eight lines of the log suffice."""
    table = SeriesTable()
    merge = MetricMerge(table)
    parts = MetricParts()
    merge.line(written([Column("train.val", [START_NS], [1.0])])[:-1], 0, parts)
    sent_after = None
    for second in range(1, 12):
        merge.line(written([Column("train.loss", [START_NS + second * 1000 * MS], [0.0])])[:-1], second * 500, parts)
        values = [
            point.key[0]
            for part in parts.take()
            for point in points_of(json.loads(b'{"resourceMetrics":[' + part + b"]}"))
        ]
        if "train_val" in values:
            assert sent_after is None
            sent_after = second
    assert sent_after == 8
    late = written([Column("train.val", [START_NS + 10], [2.0])])[:-1]
    merge.line(late, 9000, parts)
    assert parts.merged == 1, "the millisecond has been sent with its first value"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rank = tmp_path / "rank-0"
    rank.mkdir()
    return rank


@settings(max_examples=60, deadline=None)
@given(
    LINES,
    st.data(),
)
def test_any_cutting_and_any_restart_gives_the_same(lines: list[bytes], data: st.DataObject) -> None:
    """Segments, gzips, batches, kills, a lost, damaged or older sent.json: never two values, and at the end all."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sent, old = folder / "sent.json", folder.parent / f"{folder.name}.old"
        cuts = data.draw(st.sets(st.integers(1, max(1, len(lines) - 1)), max_size=3))
        gzipped = data.draw(st.sets(st.integers(1, 4)))
        grown = data.draw(st.integers(0, len(lines)))
        write_log(folder, lines[:grown], [cut for cut in cuts if cut < grown], gzipped)
        store = Store()
        feed = RankFeed(folder, batch_bytes=data.draw(st.integers(1, 3000)))
        clean = True
        try:
            for _ in range(data.draw(st.integers(0, 12))):
                match data.draw(
                    st.sampled_from(["send", "send", "lose", "save", "kill", "copy", "older", "gone", "torn"])
                ):
                    case "send":
                        if (batch := feed.next("metrics")) is not None:
                            store.take(batch)
                            feed.acknowledge(batch)
                    case "lose":
                        # It arrived, and the answer was lost.
                        if (batch := feed.next("metrics")) is not None:
                            store.take(batch)
                    case "save":
                        feed.save()
                    case "copy" if sent.exists():
                        shutil.copy(sent, old)
                    case kind:
                        clean = False
                        if kind == "older" and old.exists():
                            shutil.copy(old, sent)
                        elif kind == "gone":
                            sent.unlink(missing_ok=True)
                        elif kind == "torn" and sent.exists():
                            sent.write_bytes(sent.read_bytes()[: data.draw(st.integers(0, 40))])
                        feed = RankFeed(folder, batch_bytes=data.draw(st.integers(1, 3000)))
            for path in folder.glob("metrics.*"):
                path.unlink()
            write_log(folder, lines, cuts, gzipped)
            store.drain(feed)
            values, merged = expected(lines)
            assert store.values == values
            assert feed.done("metrics")
            counts = feed.counts("metrics")
            total = sum(len(points_of(json.loads(line))) for line in lines)
            assert counts.sent - counts.added + counts.merged == total
            assert counts.merged == merged
            before = dict(store.marks)
            feed.save()
            store.drain(RankFeed(folder))
            assert store.marks == before, "the second push brings nothing"
            if clean:
                assert set(store.marks.values()) == {1}
            store.drain(RankFeed(folder, keep=False))
            assert store.values == values, "and sending all again changes nothing"
        finally:
            old.unlink(missing_ok=True)
