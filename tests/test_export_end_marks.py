"""The end of a rank's series in the stores: each gets one mark, once, and a dead run's state is said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from otel_train.export.feed import RankFeed
from otel_train.otlp.histogram import ExponentialHistogram, HistogramData
from otel_train.record.entries import Column, Sample
from otel_train.semconv import RUN_STATES
from tests.export_store import KINDS, MS, Store, request_of
from tests.runlog_lines import ENCODER, START_NS, line

STATES = [Sample("dl.run.state", int(state == "running"), (("state", state),)) for state in RUN_STATES]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rank = tmp_path / "rank-0"
    rank.mkdir()
    return rank


def write(folder: Path, *lines: bytes) -> None:
    (folder / "metrics.000001.jsonl").write_bytes(b"".join(lines))


def sent(feed: RankFeed, **how: Any) -> list[tuple[str, str, dict[str, Any], dict[str, Any]]]:
    """Name, kind, what describes the metric, and each point, of all that comes."""
    found = []
    while (batch := feed.next("metrics", ended=True, **how)) is not None:
        for block in request_of(batch)["resourceMetrics"]:
            for metric in block["scopeMetrics"][0]["metrics"]:
                for kind in KINDS:
                    data = dict(metric.get(kind, {}))
                    for point in data.pop("dataPoints", ()):
                        found.append((metric["name"], kind, {"resource": block["resource"], **data}, point))
        feed.acknowledge(batch)
    return found


def test_each_series_ends_one_millisecond_after_its_newest_point(folder: Path) -> None:
    """With its attributes, its resource and a flag, and without a value."""
    column = Column("train.loss", [START_NS, START_NS + 7 * MS + 123], [1.0, 2.0], (("split", "train"),))
    write(folder, ENCODER.points([column]), line(1, "train.acc", START_NS + 2 * MS))
    marks = [entry for entry in sent(RankFeed(folder)) if entry[3].get("flags")]
    assert [(name, kind, point) for name, kind, _, point in marks] == [
        (
            "train.loss",
            "gauge",
            {
                "attributes": [{"key": "split", "value": {"stringValue": "train"}}],
                "timeUnixNano": str(START_NS + 8 * MS),
                "flags": 1,
            },
        ),
        ("train.acc", "gauge", {"timeUnixNano": str(START_NS + 3 * MS), "flags": 1}),
    ]
    attributes = marks[0][2]["resource"]["attributes"]
    assert {"key": "service.name", "value": {"stringValue": "digits"}} in attributes


def test_sums_and_histograms_end_in_their_own_kind(folder: Path) -> None:
    """A counter stays a cumulative, monotonic sum; a histogram keeps what its series in a store are made of."""
    histogram = ExponentialHistogram()
    histogram.record(0.5, None)
    value, exemplars = histogram.snapshot()
    data = HistogramData(
        name="dl.step.duration",
        unit="s",
        description="",
        attributes=(),
        start_ns=START_NS,
        time_ns=START_NS + MS,
        value=value,
        exemplars=exemplars,
    )
    samples = [Sample("process.cpu.time", 1.5, (("cpu.mode", "user"),)), Sample("process.memory.usage", 7)]
    write(folder, ENCODER.samples(START_NS + MS, START_NS, samples), ENCODER.histograms([data]))
    marks = {
        name: (kind, described, point) for name, kind, described, point in sent(RankFeed(folder)) if point.get("flags")
    }
    kind, described, point = marks["process.cpu.time"]
    assert (kind, described["aggregationTemporality"], described["isMonotonic"]) == ("sum", 2, True)
    assert point == {
        "attributes": [{"key": "cpu.mode", "value": {"stringValue": "user"}}],
        "startTimeUnixNano": str(START_NS),
        "timeUnixNano": str(START_NS + 2 * MS),
        "flags": 1,
    }
    assert "isMonotonic" not in marks["process.memory.usage"][1]
    kind, described, point = marks["dl.step.duration"]
    assert (kind, described["aggregationTemporality"]) == ("exponentialHistogram", 2)
    assert (point["count"], point["scale"], point["flags"]) == ("1", value.scale, 1)


def test_marks_come_once(folder: Path) -> None:
    """Neither the next push nor one after a restart brings them again; the counts say that they were added."""
    write(folder, line(1), line(2, "train.acc"))
    feed = RankFeed(folder)
    assert len(sent(feed)) == 4
    feed.save()
    assert sent(feed) == []
    again = RankFeed(folder)
    assert sent(again) == []
    assert again.done("metrics")
    assert again.counts("metrics").added == 2


def test_marks_are_as_many_batches_as_they_need(folder: Path) -> None:
    """Thousands of series do not become one huge request, and a restart between two goes on with the rest."""
    write(folder, *[line(0, f"train.m{number}", START_NS) for number in range(100)])
    store, batches = Store(), 0
    feed = RankFeed(folder, batch_bytes=1000)
    while (batch := feed.next("metrics", ended=True)) is not None:
        store.take(batch)
        feed.acknowledge(batch)
        feed.save()
        batches += 1
        feed = RankFeed(folder, batch_bytes=1000)
    assert batches > 5
    assert (len(store.values), len(store.marks), set(store.marks.values())) == (100, 100, {1})


def states_of(entries: list[tuple[str, str, dict[str, Any], dict[str, Any]]]) -> dict[str, list[tuple[int, str]]]:
    found: dict[str, list[tuple[int, str]]] = {}
    for name, _, _, point in entries:
        if name == "dl.run.state":
            state = point["attributes"][0]["value"]["stringValue"]
            value = "mark" if point.get("flags") else str(point["asInt"])
            found.setdefault(state, []).append(((int(point["timeUnixNano"]) - START_NS) // MS, value))
    return found


def test_a_run_that_died_is_said_to_be_lost(folder: Path) -> None:
    """The log's last word is that it runs: then it is lost one millisecond after all else, and no other state holds."""
    write(folder, ENCODER.samples(START_NS, START_NS, STATES), line(1, time_ns=START_NS + 9 * MS))
    found = states_of(sent(RankFeed(folder)))
    assert set(found) == set(RUN_STATES)
    assert found["running"] == [(0, "1"), (10, "0"), (11, "mark")]
    assert found["lost"] == [(0, "0"), (10, "1"), (11, "mark")]
    assert all(found[state] == [(0, "0"), (10, "0"), (11, "mark")] for state in ("finished", "failed", "killed"))


def test_a_state_that_the_log_does_not_know_begins_with_the_end(folder: Path) -> None:
    """Logs of earlier versions have no series for it."""
    write(folder, ENCODER.samples(START_NS, START_NS, STATES[:2]))
    found = states_of(sent(RankFeed(folder), final_state="killed"))
    assert found == {
        "running": [(0, "1"), (1, "0"), (2, "mark")],
        "finished": [(0, "0"), (1, "0"), (2, "mark")],
        "killed": [(1, "1"), (2, "mark")],
    }


def test_a_run_that_ended_by_itself_keeps_its_word(folder: Path) -> None:
    """Nothing is added but the marks."""
    ended = [Sample("dl.run.state", int(state == "failed"), (("state", state),)) for state in RUN_STATES]
    write(folder, ENCODER.samples(START_NS, START_NS, STATES), ENCODER.samples(START_NS + 5 * MS, START_NS, ended))
    found = states_of(sent(RankFeed(folder)))
    assert found["running"] == [(0, "1"), (5, "0"), (6, "mark")]
    assert found["failed"] == [(0, "0"), (5, "1"), (6, "mark")]
    assert found["lost"] == [(0, "0"), (5, "0"), (6, "mark")]


def test_a_series_that_goes_on_after_all_is_ended_again(folder: Path) -> None:
    """Who took a run for dead was wrong: its points are sent, and its end is marked anew."""
    write(folder, line(1, time_ns=START_NS))
    feed = RankFeed(folder)
    assert len(sent(feed)) == 2
    write(folder, line(1, time_ns=START_NS), line(2, time_ns=START_NS + MS + 5), line(3, time_ns=START_NS + 4 * MS))
    points = [(int(point["timeUnixNano"]), point.get("flags", 0)) for _, _, _, point in sent(feed)]
    assert points == [(START_NS + 4 * MS, 0), (START_NS + 5 * MS, 1)]
    assert feed.counts("metrics").merged == 1, "one point met the place of the first mark"
    assert json.loads((folder / "sent.json").read_bytes())["version"] == 1
