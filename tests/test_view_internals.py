"""The page's sections of what was seen inside training: what is drawn, of which values, and what is left out."""

from __future__ import annotations

import base64
import json
import math
import random
import re
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from otel_train.otlp.histogram import ExponentialHistogram, HistogramData
from otel_train.record.entries import Column, LogEntry, Sample, SeriesAttributes
from otel_train.record.histogram_value import HistogramValue
from otel_train.view.axes import Axes
from otel_train.view.distributions import COLUMNS, MOST_POINTS, ROWS, Distributions, differences, thinned
from otel_train.view.happenings import happenings
from otel_train.view.log_list import LogRow
from otel_train.view.page import embed_json
from otel_train.view.reading import read_run
from otel_train.view.report import build, write
from otel_train.view.series_store import SeriesStore
from tests.runs import NS_PER_S, START_NS, RunBuilder
from tests.test_view_browser import open_page

NOW_NS = START_NS + 3600 * NS_PER_S


def page_data(builder: RunBuilder) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(embed_json(build(read_run(builder.path, NOW_NS))))
    return data


def sampled(
    builder: RunBuilder,
    name: str,
    values: list[float],
    attributes: SeriesAttributes = (),
    *,
    every: int = 100,
    rank: int = 0,
    beside: SeriesAttributes = (),
) -> None:
    """Write a gauge as run.watch does: at steps of samplings, beside `dl.step`."""
    times = [START_NS + (number + 1) * NS_PER_S for number in range(len(values))]
    columns = [Column(name, times, values, attributes)]
    columns.append(Column("dl.step", times, [number * every for number in range(len(values))], beside))
    builder.lines("metrics", builder.encoder(1, rank).points(columns), rank=rank)


def layer(name: str) -> SeriesAttributes:
    return (("layer", name),)


def charts(data: dict[str, Any], section: str) -> dict[str, Any]:
    return {chart["title"]: chart for chart in data["charts"].get(section, ())}


def test_nothing_is_there_where_nothing_was_recorded(tmp_path: Path) -> None:
    """No section, no chart, no picture: a run that only logs looks as before."""
    data = page_data(RunBuilder(tmp_path).attempt().log({"loss": [1.0]}).end())
    assert data["inside"] == []
    assert data["distributions"] == []
    assert data["happenings"] == {}
    assert set(data["charts"]) == {"metrics", "steps", "system", "gpu", "other"}


def test_the_model_is_drawn_by_step_with_the_whole_apart_from_its_layers(tmp_path: Path) -> None:
    """Two lines of the whole gradient, one for each layer; logarithmic where it spans powers of ten."""
    builder = RunBuilder(tmp_path).attempt()
    sampled(builder, "dl.grad.norm", [8.0, 80.0, math.nan])
    sampled(builder, "dl.grad.norm.clipped", [5.0, 5.0, 5.0])
    for name in ("fc1", "fc2"):
        sampled(builder, "dl.grad.norm", [1.0, 2.0, 3.0], layer(name))
        sampled(builder, "dl.update.ratio", [1e-2, 1e-3, 1e-4], layer(name))
    data = page_data(builder.end())
    assert data["inside"] == [{"id": "model", "title": "Inside the model", "lead": data["inside"][0]["lead"]}]
    found = charts(data, "model")
    assert list(found) == ["Gradient norm", "Gradient norm by layer", "Update ratio by layer"]
    whole = found["Gradient norm"]
    assert [(line["label"], line["y"]) for line in whole["lines"]] == [
        ("before clipping", [8.0, 80.0, None]),
        ("what the optimizer got", [5.0, 5.0, 5.0]),
    ]
    assert whole["lines"][0]["x"]["step"] == [0, 100, 200]
    assert whole["lines"][0]["marks"] == [[2, 1, 0, 0]]
    assert whole["log"] is True
    by_layer = found["Gradient norm by layer"]
    assert [line["label"] for line in by_layer["lines"]] == ["fc1", "fc2"]
    # One power of ten needs no logarithm.
    assert "log" not in by_layer
    assert found["Update ratio by layer"]["band"] == {"low": 3e-4, "high": 3e-3, "label": "usual: around 0.001"}
    assert data["charts"]["other"] == []


def test_dead_units_are_per_cent_with_the_threshold_of_the_run(tmp_path: Path) -> None:
    """The run's own share where it sets one; no line where the condition is off."""
    for number, (limit, drawn) in enumerate(((None, 50.0), (0.8, 80.0), (math.inf, None))):
        builder = RunBuilder(tmp_path, f"20260131-120000-abcdefg{number}").attempt()
        sampled(builder, "dl.activation.dead", [0.25, 0.75], layer("relu"))
        if limit is not None:
            builder.samples(1, [Sample("dl.alert.threshold", limit, (("alert", "dead_units"),))])
        chart = charts(page_data(builder.end()), "model")["Dead units by layer"]
        assert chart["unit"] == "%"
        assert chart["lines"][0]["y"] == [25.0, 75.0]
        assert chart.get("threshold") == (None if drawn is None else {"value": drawn, "label": "alert"})


def test_many_layers_are_a_map_in_the_order_of_the_model(tmp_path: Path) -> None:
    """A row for each of thirty layers, a column for each sampling; NaN is a hole."""
    builder = RunBuilder(tmp_path).attempt()
    for number in range(30):
        values = [10.0**-number, 1.0, math.nan if number == 7 else 2.0]
        sampled(builder, "dl.grad.norm", values, layer(f"block{number}"))
    chart = charts(page_data(builder.end()), "model")["Gradient norm by layer"]
    assert chart["kind"] == "map"
    assert chart["layers"] == [f"block{number}" for number in range(30)]
    assert chart["x"]["step"] == [0, 100, 200]
    assert chart["cells"][3] == [0.001, 1.0, 2.0]
    assert chart["cells"][7][2] is None
    assert chart["log"] is True


def test_a_long_map_is_drawn_as_means(tmp_path: Path) -> None:
    """Of 1,000 samplings 160 means; that of the first column is the mean of its six values."""
    builder = RunBuilder(tmp_path).attempt()
    for number in range(12):
        sampled(builder, "dl.weight.norm", [float(index + number) for index in range(1_000)], layer(f"l{number}"))
    chart = charts(page_data(builder.end()), "model")["Weight norm by layer"]
    assert len(chart["cells"][0]) == 160
    assert chart["cells"][0][0] == pytest.approx(2.5)
    assert chart["cells"][11][0] == pytest.approx(13.5)
    assert {"kind": "info", "text": "1,000 samplings drawn as 160 means"} in chart["notes"]


def test_the_path_of_a_batch_has_each_of_its_parts(tmp_path: Path) -> None:
    """Fetch, augment, collate, queue and wait on one chart; that of evaluation and of devices is not mixed in."""
    train: SeriesAttributes = (("split", "train"),)
    builder = RunBuilder(tmp_path).attempt()
    for number, part in enumerate(("fetch", "augment", "collate", "queue", "wait")):
        sampled(builder, f"dl.data.{part}.time", [0.001 * (number + 1)] * 3, train, beside=train)
    sampled(builder, "dl.data.wait.time", [9.0] * 3, (("split", "val"),), beside=(("split", "val"),))
    sampled(builder, "dl.data.wait.time", [9.0] * 3, (*train, ("clock", "device")), beside=train)
    data = page_data(builder.end())
    lines = {line["label"]: line["y"][0] for line in charts(data, "data-path")["Path of a batch"]["lines"]}
    assert lines == {"fetch": 0.001, "augment": 0.002, "collate": 0.003, "in the queue": 0.004, "training waits": 0.005}
    # The wait stands beside the step time as well.
    assert [chart["title"] for chart in data["charts"]["steps"]] == ["Wait for data"]


def test_a_wait_alone_makes_no_section_of_the_data_path(tmp_path: Path) -> None:
    """A loop over a list has no loader to look into."""
    train: SeriesAttributes = (("split", "train"),)
    builder = RunBuilder(tmp_path).attempt()
    sampled(builder, "dl.data.wait.time", [0.1] * 3, train, beside=train)
    assert page_data(builder.end())["inside"] == []


def test_a_worker_that_died_is_shown_with_its_samples(tmp_path: Path) -> None:
    """Event, place and details; the section is there though nothing else of the path was recorded."""
    builder = RunBuilder(tmp_path).attempt()
    builder.record(
        "worker 1 was killed",
        "ERROR",
        at_s=65,
        event="data.worker_died",
        dl__step=40,
        dl__data__worker=1,
        dl__data__samples="[3, 4]",
        exception__stacktrace="Traceback of it",
    )
    data = page_data(builder.end())
    (event,) = data["happenings"]["data-path"]
    assert event["text"] == "worker 1 was killed"
    assert event["place"] == "rank 0 · attempt 1 · step 40 · after 1 min 05 s"
    assert ["dl.data.worker", "1"] in event["pairs"]
    assert event["folded"] == [["Traceback", "Traceback of it"]]
    assert [section["id"] for section in data["inside"]] == ["data-path"]
    # It is told on top of the page, too.
    assert data["notices"] == [{"kind": "bad", "text": "worker 1 was killed.", "step": 40}]


def test_time_by_state_adds_up_over_attempts(tmp_path: Path) -> None:
    """Counters begin anew with each attempt; the states keep their order, other ranks are left out."""
    builder = RunBuilder(tmp_path).attempt().attempt(2, start_s=300)
    for attempt, at_s, productive in ((1, 10, 5.0), (1, 20, 8.0), (2, 310, 4.0)):
        samples = [
            Sample("dl.time", productive, (("state", "productive"),)),
            Sample("dl.time", 1.0, (("state", "data"),)),
        ]
        builder.samples(at_s, samples, attempt=attempt)
    builder.samples(20, [Sample("dl.time", 99.0, (("state", "productive"),))], rank=1)
    data = page_data(builder.end())
    assert data["time_by_state"] == {"productive": 12.0, "data": 2.0}
    assert list(data["time_by_state"]) == ["productive", "data"]
    assert [section["id"] for section in data["inside"]] == ["speed"]


def test_ranks_are_rows_with_their_score(tmp_path: Path) -> None:
    """All steps take a second; rank 2 works 0.9 s of it, the others 0.4 s: 1 / (1 - 0.9 + 0.4) is 2."""
    train: SeriesAttributes = (("split", "train"),)
    builder = RunBuilder(tmp_path).attempt(world_size=3)
    for rank, own_s in enumerate((0.4, 0.4, 0.9)):
        sampled(builder, "dl.step.time", [1.0] * 5, train, every=1, rank=rank, beside=train)
        sampled(builder, "dl.rank.busy.time", [own_s] * 5, train, every=1, rank=rank, beside=train)
    data = page_data(builder.end())
    rows = {row[0]: row for row in data["ranks"]}
    assert set(rows) == {0, 1, 2}
    assert [rows[rank][7] for rank in range(3)] == ["1.00", "1.00", "2.00"]
    assert [rows[rank][6] for rank in range(3)] == ["400 ms", "400 ms", "900 ms"]
    chart = charts(data, "ranks")["Own work of a step"]
    assert [line["label"] for line in chart["lines"]] == ["rank 0", "rank 1", "rank 2"]


def test_stacks_of_a_rank_that_hung_can_be_unfolded(tmp_path: Path) -> None:
    """Onset with its stacks; the event that it is over is no second one."""
    builder = RunBuilder(tmp_path).attempt()
    stacks = "Thread 0x1 (MainThread):\n  File train.py, line 9 in all_reduce"
    builder.record("rank 1 hangs", "ERROR", event="health.hung", rank=1, code__stacktrace=stacks, value=31.0)
    builder.record("rank 1 goes on", "INFO", event="health.hung", rank=1, cleared=True)
    data = page_data(builder.end())
    (event,) = data["happenings"]["ranks"]
    assert event["folded"] == [["Stacks of all threads", stacks]]
    assert event["severity"] == "ERROR"


def test_memory_is_told_with_its_slope(tmp_path: Path) -> None:
    """512 MiB that grow by 1 MiB a second are 60 MiB a minute; full in 20 minutes."""
    builder = RunBuilder(tmp_path).attempt()
    pss: SeriesAttributes = (("kind", "pss"),)
    builder.samples(5, [Sample("dl.process_tree.memory", 400 * 2**20, pss)])
    builder.samples(
        10,
        [
            Sample("dl.process_tree.memory", 512 * 2**20, pss),
            Sample("dl.process_tree.memory.slope", 2**20, pss),
            Sample("dl.memory.time_to_full", 1200.0),
        ],
    )
    data = page_data(builder.end())
    assert data["memory_facts"] == [
        ["Full at that growth", "in 20 min 00 s"],
        ["Memory of the processes", "512.0 MiB"],
        ["Growth", "60.0 MiB a minute"],
    ]
    assert list(charts(data, "memory")) == ["Memory of the process and its children", "Growth of that memory"]


def test_norms_of_shards_become_those_of_the_model(tmp_path: Path) -> None:
    """Two ranks hold 3 and 4 of a gradient that is 5 long; their updates of 0.3 and 0.8 move 5 by 0.17."""
    builder = RunBuilder(tmp_path).attempt(world_size=2)
    part: SeriesAttributes = (("layer", "fc1"), ("part", "shard"))
    for rank, (norm, ratio) in enumerate(((3.0, 0.1), (4.0, 0.2))):
        # The second rank was lost before the third sampling.
        count = 3 - rank
        sampled(builder, "dl.grad.norm", [norm] * count, part, rank=rank)
        sampled(builder, "dl.weight.norm", [norm] * count, part, rank=rank)
        sampled(builder, "dl.update.ratio", [ratio] * count, part, rank=rank)
    found = charts(page_data(builder.end()), "model")
    lines = {title: (chart["lines"][0]["label"], chart["lines"][0]["y"]) for title, chart in found.items()}
    assert lines["Gradient norm by layer"] == ("fc1", [5.0, 5.0])
    assert lines["Update ratio by layer"] == ("fc1", pytest.approx([math.sqrt(0.3**2 + 0.8**2) / 5] * 2))
    assert all(len(chart["lines"]) == 1 for chart in found.values())


# Distributions --------------------------------------------------------------------------------------------------------


def counted(samplings: list[list[float]]) -> list[tuple[int, HistogramValue]]:
    """What an exponential histogram holds after each sampling."""
    histogram = ExponentialHistogram()
    points = []
    for number, values in enumerate(samplings):
        for value in values:
            histogram.record(value)
        points.append((number, histogram.snapshot()[0]))
    return points


def test_a_sampling_is_the_difference_of_two_states() -> None:
    """Also across a change of scale: counts are those of the sampling alone, in the buckets of the later state."""
    draw = random.Random(1)
    # The third one has values far away, for which the histogram must coarsen its buckets.
    samplings = [
        [draw.gauss(0, 1) for _ in range(500)],
        [draw.gauss(0, 1) for _ in range(300)],
        [draw.gauss(0, 1e6) for _ in range(200)],
        [0.0] * 50,
    ]
    seen = differences(counted(samplings))
    for number, values in enumerate(samplings):
        assert sum(count for _, _, count in seen[number]) == len(values)
        for low, high, count in seen[number]:
            if low != high:
                # At the edges of buckets rounding may move a value by one.
                inside = sum(
                    1
                    for value in values
                    if min(abs(low), abs(high)) < abs(value) <= max(abs(low), abs(high)) and (value > 0) == (high > 0)
                )
                assert abs(inside - count) <= 1
    assert seen[3] == [(0.0, 0.0, 50)]


def test_counts_that_began_anew_are_taken_whole() -> None:
    """A later state with fewer counts belongs to another attempt."""
    first, second = counted([[1.0] * 9]), counted([[2.0] * 3])
    seen = differences([first[0], (7, second[0][1])])
    assert [count for _, _, count in seen[7]] == [3]


def test_many_samplings_become_sixty_columns_that_hold_all_counts() -> None:
    """Counts up to each column are kept, so the differences of what is left out go to the next one."""
    points = counted([[1.0]] * 500)
    kept = thinned(points)
    assert len(kept) == COLUMNS
    assert kept[-1] is points[-1]
    assert sum(count for buckets in differences(kept).values() for _, _, count in buckets) == 500
    store = Distributions()
    place = ("dl.weight.distribution", layer("fc"), 1, 0)
    for time_ns, value in counted([[1.0]] * 2_000):
        store.add(place, time_ns, value)
    assert len(store.points[place]) <= MOST_POINTS
    assert store.points[place][-1][1].count == 2_000


def test_a_picture_has_its_values_where_they_are(tmp_path: Path) -> None:
    """Weights of deviation one at first, then all near two: the brightest row moves from zero to two."""
    draw = random.Random(2)
    samplings = [[draw.gauss(0, 1) for _ in range(2_000)], [draw.gauss(2, 0.05) for _ in range(2_000)]]
    builder = RunBuilder(tmp_path).attempt()
    encoder = builder.encoder(1, 0)
    for number, value in counted(samplings):
        time_ns = START_NS + (number + 1) * NS_PER_S
        data = HistogramData(
            name="dl.weight.distribution",
            unit="",
            description="",
            attributes=layer("fc"),
            start_ns=START_NS,
            time_ns=time_ns,
            value=value,
        )
        builder.lines("metrics", encoder.histograms([data]))
        builder.lines("metrics", encoder.points([Column("dl.step", [time_ns], [number * 100])]))
    (group,) = page_data(builder.end())["distributions"]
    assert (group["title"], group["log"]) == ("Weights", False)
    (picture,) = group["layers"]
    assert picture["name"] == "fc"
    assert picture["x"]["step"] == [0, 100]
    assert picture["low"] == -picture["high"]
    cells = base64.b64decode(picture["cells"])
    assert len(cells) == 2 * ROWS
    height = (picture["high"] - picture["low"]) / ROWS

    def brightest(column: int) -> float:
        part = cells[column * ROWS : (column + 1) * ROWS]
        return picture["low"] + (part.index(max(part)) + 0.5) * height

    assert abs(brightest(0)) < 0.4
    assert abs(brightest(1) - 2) < 0.2
    # The square of a cell by 255 is its share of the greatest; a column's shares add up to one.
    shares = [(cell / 255) ** 2 * picture["greatest"] for cell in cells[ROWS:]]
    assert sum(shares) == pytest.approx(1, abs=0.05)


def test_gradients_are_drawn_by_their_order_of_magnitude() -> None:
    """Of 1e-6 and -1e-6 alike; exact zeros have none."""
    store = SeriesStore()
    distributions = Distributions()
    place = ("dl.grad.distribution", layer("fc"), 1, 0)
    for time_ns, value in counted([[1e-6, -1e-6, 0.0] * 10, [1e-2] * 10]):
        distributions.add(place, time_ns, value)
        store.extend(*place, [time_ns], [value.count], kind="histogram")
    (group,) = distributions.pictures(store.join(), Axes(0))
    (picture,) = group["layers"]
    assert group["log"] is True
    assert picture["low"] == pytest.approx(-6, abs=0.2)
    assert picture["high"] == pytest.approx(-2, abs=0.2)


# The page -------------------------------------------------------------------------------------------------------------


def large(root: Path) -> RunBuilder:
    """64 layers by 10,000 points of two metrics, and distributions of all layers."""
    builder = RunBuilder(root).attempt()
    encoder = builder.encoder(1, 0)
    count = 10_000
    times = [START_NS + (number + 1) * NS_PER_S // 10 for number in range(count)]
    draw = random.Random(3)
    values = [draw.random() for _ in range(count)]
    # As the writer does: so many points of a series stand in one line.
    for start in range(0, count, 200):
        part = slice(start, start + 200)
        columns = [Column("dl.step", times[part], list(range(100 * start, 100 * start + 20_000, 100)))]
        columns += [
            Column(f"dl.{name}", times[part], values[part], layer(f"block.{number}"))
            for name in ("grad.norm", "activation.dead")
            for number in range(64)
        ]
        builder.lines("metrics", encoder.points(columns))
    histogram = ExponentialHistogram()
    for place in range(0, count, 200):
        for _ in range(50):
            histogram.record(draw.gauss(0, 1))
        value, _ = histogram.snapshot()
        for number in range(64):
            for name in ("weight", "grad"):
                data = HistogramData(
                    name=f"dl.{name}.distribution",
                    unit="",
                    description="",
                    attributes=layer(f"block.{number}"),
                    start_ns=START_NS,
                    time_ns=times[place],
                    value=value,
                )
                builder.lines("metrics", encoder.histograms([data]))
    return builder.end(at_s=1_100)


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_page_of_sixty_four_layers_stays_small_and_is_built_soon(tmp_path: Path) -> None:
    """More than a million points: three megabytes of data at most, beside plotly's script, and half a minute of CPU."""
    builder = large(tmp_path)
    run = read_run(builder.path, NOW_NS)
    began = time.process_time()
    data = build(run)
    assert time.process_time() - began < 30
    assert len(embed_json(data)) < 3_000_000
    assert [layer["name"] for layer in data["distributions"][0]["layers"]] == [f"block.{n}" for n in range(64)]
    assert all(chart["kind"] == "map" for chart in data["charts"]["model"])


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("chromium") is None, reason="chromium is not on the PATH")
def test_the_sections_open_in_a_browser_without_a_script_error(tmp_path: Path) -> None:
    """Lines, maps, distributions, ranks, the bar of time, stacks: all drawn, and the console is empty."""
    builder = RunBuilder(tmp_path).attempt(world_size=2)
    train: SeriesAttributes = (("split", "train"),)
    for number in range(12):
        sampled(builder, "dl.grad.norm", [1.0, 0.01, math.nan, 2.0], layer(f"<b>{number}</b>"))
        sampled(builder, "dl.activation.dead", [0.1, 0.7, 0.9, 0.9], layer(f"relu{number % 3}"))
    sampled(builder, "dl.update.ratio", [1e-3, 1e-2, 1e-3, 1e-3])
    for rank in range(2):
        sampled(builder, "dl.step.time", [1.0] * 4, train, every=1, rank=rank, beside=train)
        sampled(builder, "dl.rank.busy.time", [0.5] * 4, train, every=1, rank=rank, beside=train)
    builder.samples(
        3, [Sample("dl.time", 3.0, (("state", "productive"),)), Sample("dl.time", 1.0, (("state", "lost"),))]
    )
    builder.samples(3, [Sample("dl.process_tree.memory", 1e9, (("kind", "pss"),))])
    builder.record("hangs", "ERROR", event="health.hung", code__stacktrace="<script>alert(1)</script>")
    encoder = builder.encoder(1, 0)
    for number, value in counted([[1.0, 2.0, -3.0], [0.5]]):
        data = HistogramData(
            name="dl.weight.distribution",
            unit="",
            description="",
            attributes=layer("<i>fc</i>"),
            start_ns=START_NS,
            time_ns=START_NS + (number + 1) * NS_PER_S,
            value=value,
        )
        builder.lines("metrics", encoder.histograms([data]))
    document, complaints = open_page(write(read_run(builder.end().path, NOW_NS)), tmp_path / "profile")
    assert complaints == ""
    assert 'data-ready="yes"' in document
    model = document[document.index('<section id="model"') :].split("</section>")[0]
    assert len(re.findall(r'data-drawn="yes"', model)) == 4
    assert model.count('class="hm"') == 2
    assert "usual: around 0.001" in model
    assert "<b>3</b>" not in model
    assert "Where the time went" in document
    assert "Stacks of all threads" in document
    assert "<script>alert(1)</script>" not in document.replace("\\u003c", "<").split('id="data"')[0]
    assert len(re.findall(r"<script", document)) == 3


def test_of_many_events_a_section_shows_the_newest() -> None:
    """Of 50 ranks that were lost one after the other the last 40 stand there, in order."""
    rows = [
        LogRow(
            LogEntry(
                time_ns=place, severity_number=17, severity_text="ERROR", body=f"rank {place} was lost",
                event_name="rank.lost",
            ),
            1,
            0,
        )
        for place in range(1, 51)
    ]  # fmt: skip
    shown = happenings(rows, 0)["ranks"]
    assert [one["text"] for one in shown] == [f"rank {place} was lost" for place in range(11, 51)]
