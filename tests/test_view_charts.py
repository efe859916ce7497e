"""What a chart shows: its gaps and marks, its axes, its best value, and what is said below."""

from __future__ import annotations

import math

from otel_train.view.axes import Axes
from otel_train.view.charts import Detail, Named, axis_warnings, chart, label_of, line, metric_charts
from otel_train.view.machine_charts import machine_charts, rate, time_shares
from otel_train.view.series import Effective, Series, effective
from otel_train.view.series_store import SeriesStore
from otel_train.view.summary import Summary, summarize

S = 1_000_000_000
TRAIN = (("split", "train"),)
VAL = (("split", "val"),)


def series_of(
    values: list[float], steps: list[int] | None = None, split: str = "train", every_s: float = 1.0
) -> Series:
    store = SeriesStore()
    attributes = (("split", split),)
    for number, value in enumerate(values):
        time_ns = round(number * every_s * S)
        store.add("train.loss", attributes, 1, 0, time_ns, value, description="loss")
        if steps is not None:
            store.add("dl.step", attributes, 1, 0, time_ns, steps[number])
    return store.join()[0]


def metric(series: Series, goal: str = "") -> tuple[Effective, Summary]:
    return Effective(series), summarize(series, goal)


def test_non_finite_values_are_gaps_with_marks_of_their_kind() -> None:
    """Ten finite points of sixty are drawn, the rest is marked where it was, and no line crosses a gap."""
    values = [2.0 if step % 6 == 0 else math.nan for step in range(60)]
    values[31], values[32] = math.inf, -math.inf
    (made,) = metric_charts([metric(series_of(values, list(range(60))))], Axes(0), Detail())
    drawn = made["lines"][0]
    assert [place for place, value in enumerate(drawn["y"]) if value is not None] == list(range(0, 60, 6))
    assert drawn["x"]["step"] == list(range(60))
    assert sum(mark[1] for mark in drawn["marks"]) == 48
    assert [mark[0] for mark in drawn["marks"] if mark[2]] == [31]
    assert [mark[0] for mark in drawn["marks"] if mark[3]] == [32]
    said = "train: 48 NaN, 1 +Inf, 1 -Inf; first bad step 1"
    assert {"kind": "bad", "text": said, "line": drawn["id"]} in made["notes"]


def test_best_value_is_marked_at_its_step_by_the_metrics_direction() -> None:
    """The one low point of a hundred is the best of a metric that counts down."""
    values = [0.05 if step == 37 else 1.0 for step in range(100)]
    (made,) = metric_charts([metric(series_of(values, list(range(100))), "min")], Axes(0), Detail())
    assert made["lines"][0]["best"] == {"value": 0.05, "x": {"time": 37.0, "step": 37}}
    said = {"kind": "best", "text": "best train 0.05 at step 37", "line": made["lines"][0]["id"]}
    assert said in made["notes"]


def test_elapsed_time_counts_from_the_runs_start_for_every_metric() -> None:
    """A first evaluation after 400 seconds is drawn at 400 seconds."""
    store = SeriesStore()
    store.add("train.loss", VAL, 1, 0, 1000 * S + 400 * S, 0.5)
    drawn = line(Named(store.join()[0], "val", "val"), Axes(1000 * S), Detail())
    assert drawn["x"] == {"time": [400.0]}


def test_a_reduced_line_keeps_extremes_and_breaks_where_a_value_is_not_finite() -> None:
    """The band holds the exact extremes; a NaN has its own place, where the line is broken."""
    values = [float(number % 100) for number in range(10_000)]
    values[5_000] = math.nan
    values[7_777] = -123.456
    drawn = line(Named(series_of(values), "train", "train"), Axes(0), Detail(raw_points=2_000, buckets=100))
    assert drawn["points"] == 10_000
    assert min(value for value in drawn["low"] if value is not None) == -123.456
    assert max(value for value in drawn["high"] if value is not None) == 99.0
    (mark,) = drawn["marks"]
    assert mark[1:] == [1, 0, 0]
    assert (drawn["y"][mark[0]], drawn["x"]["time"][mark[0]]) == (None, 5000.0)
    assert (drawn["x"]["time"][0], drawn["x"]["time"][-1]) == (0.0, 9999.0)
    assert (drawn["y"][0], drawn["y"][-1]) == (0.0, 99.0)


def test_splits_of_one_metric_share_a_chart_in_a_fixed_order() -> None:
    """Train, val and test lie on one chart, with their own roles, which decide the colours."""
    metrics = [metric(series_of([1.0], split=split)) for split in ("test", "val", "train")]
    (made,) = metric_charts(metrics, Axes(0), Detail())
    assert [(drawn["label"], drawn["role"]) for drawn in made["lines"]] == [
        ("train", "train"),
        ("val", "val"),
        ("test", "test"),
    ]


def test_two_step_axes_are_said_by_their_names() -> None:
    """Points at named axes are kept apart in words, since they are not comparable by step."""
    train, val = series_of([1.0, 2.0], [4000, 8000]), series_of([1.0, 2.0], [1000, 2000], "val")
    train.axis = "env_step"
    (warning,) = axis_warnings([metric(train), metric(val)])
    assert warning.startswith("Two step units are mixed in this run (env_step: loss (train); step: loss (val)).")


def test_steps_that_lag_far_behind_are_taken_for_another_unit() -> None:
    """Training counts over four ranks, evaluation locally: 4000, 1000, 8000, 2000 in the order of time."""
    store = SeriesStore()
    for time_ns, step, attributes in ((1, 4000, TRAIN), (2, 1000, VAL), (3, 8000, TRAIN), (4, 2000, VAL)):
        store.add("train.loss", attributes, 1, 0, time_ns, 1.0, description="loss")
        store.add("dl.step", attributes, 1, 0, time_ns, step)
    (warning,) = axis_warnings([metric(series) for series in store.join()])
    assert warning.startswith("Two step units seem to be mixed: the steps of val")


def test_an_evaluation_at_the_step_of_training_gives_no_warning() -> None:
    """The usual run: each evaluation has the step of the training before it."""
    store = SeriesStore()
    for number in range(10):
        store.add("train.loss", TRAIN, 1, 0, number * 10, 1.0)
        store.add("dl.step", TRAIN, 1, 0, number * 10, number * 100)
        store.add("train.loss", VAL, 1, 0, number * 10 + 5, 1.0)
        store.add("dl.step", VAL, 1, 0, number * 10 + 5, number * 100)
    assert axis_warnings([metric(series) for series in store.join()]) == []


def test_points_within_an_epoch_lie_side_by_side_and_whole_epochs_stay_whole() -> None:
    """With several points an epoch the place is a fraction by time; with one it is the epoch's number."""
    store = SeriesStore()
    for number in range(4):
        store.add("train.loss", TRAIN, 1, 0, number * S, 1.0)
        store.add("dl.epoch", TRAIN, 1, 0, number * S, number // 2)
    axes = Axes(0)
    axes.learn_epochs(store.epochs_of(1))
    series = store.join()[0]
    assert axes.places(series, range(4))["epoch"] == [0, 0, 1, 1]
    axes.decide([series])
    assert axes.places(series, range(4))["epoch"] == [0.0, 0.5, 1.0, 2.0]


def test_replaced_points_of_older_attempts_are_lines_of_their_own() -> None:
    """What a resumed run did again is still to be seen."""
    store = SeriesStore()
    for attempt, first in ((1, 0), (2, 2)):
        for step in range(first, first + 4):
            store.add("train.loss", TRAIN, attempt, 0, attempt * 100 + step, float(attempt), description="loss")
            store.add("dl.step", TRAIN, attempt, 0, attempt * 100 + step, step)
    (item,) = effective(store.join())
    (made,) = metric_charts([(item, summarize(item.series))], Axes(0), Detail())
    assert [(drawn["label"], drawn["x"]["step"]) for drawn in made["lines"]] == [
        ("train", [0, 1, 2, 3, 4, 5]),
        ("train (attempt 1)", [2, 3]),
    ]


def test_reduction_is_said_once_for_lines_of_equal_length() -> None:
    """Three phases of 3,000 steps: one sentence, and none where every point is drawn."""
    long = series_of([1.0] * 3_000)
    lines = [Named(long, name, "value") for name in ("forward", "backward", "optimizer")]
    made = chart("Phases", "s", lines, Axes(0), Detail())
    assert made["notes"] == [
        {"kind": "info", "text": "3 series, each: 3,000 points drawn as 800 means with their range"}
    ]
    assert chart("x", "", [Named(series_of([1.0]), "value", "value")], Axes(0), Detail())["notes"] == []


def test_more_lines_than_a_chart_holds_are_counted() -> None:
    """Fifty layers: forty are drawn, ten are said."""
    lines = [Named(series_of([1.0]), f"layer {number}", "value") for number in range(50)]
    made = chart("norm", "", lines, Axes(0), Detail())
    assert len(made["lines"]) == 40
    assert {"kind": "info", "text": "10 more series are not drawn here."} in made["notes"]


def test_many_series_are_drawn_more_coarsely_so_that_the_page_stays_small() -> None:
    """The rows of all series together are bounded."""
    for count in (1, 10, 100, 1_000):
        detail = Detail.for_series(count)
        assert count * detail.buckets <= 100_000
    assert Detail.for_series(1) == Detail(2_000, 800)


def test_counters_become_rates_and_a_restart_is_no_negative_rate() -> None:
    """100 bytes in two seconds are 50 a second; a counter that falls began anew."""
    store = SeriesStore()
    for time_s, value in ((0, 0.0), (2, 100.0), (4, 10.0), (6, 40.0)):
        store.add(
            "system.disk.io", (("disk.io.direction", "read"),), 1, 0, time_s * S, value, kind="counter", unit="By"
        )
    result = rate(store.join()[0])
    assert list(result.values) == [50.0, 15.0]
    assert [time_ns // S for time_ns in result.times_ns] == [2, 6]


def test_devices_of_one_direction_are_added_up() -> None:
    """What a reader asks is how much is read, not by which disk."""
    store = SeriesStore()
    for device, factor in (("sda", 1.0), ("sdb", 3.0)):
        for time_s in (0, 1, 2):
            attributes = (("disk.io.direction", "read"), ("system.device", device))
            store.add("system.disk.io", attributes, 1, 0, time_s * S, time_s * factor * 10, kind="counter", unit="By")
    charts = machine_charts(store.join(), Axes(0), Detail())
    (made,) = charts["system"]
    assert (made["title"], made["unit"]) == ("Disks of the host", "By/s")
    assert [(drawn["label"], drawn["y"]) for drawn in made["lines"]] == [("read", [40.0, 40.0])]


def test_each_gpu_is_a_line_named_by_its_index_and_shares_are_per_cent() -> None:
    """Two cards, two lines; 0.5 is drawn as 50 per cent."""
    store = SeriesStore()
    for index, value in ((1, 0.5), (0, 0.25)):
        attributes = (("hw.id", f"GPU-{index}"), ("hw.name", "H200"), ("index", index), ("physical_index", index + 4))
        store.add("hw.gpu.utilization", attributes, 1, 0, 0, value, unit="1")
    (made,) = machine_charts(store.join(), Axes(0), Detail())["gpu"]
    assert made["unit"] == "%"
    assert [(drawn["label"], drawn["y"]) for drawn in made["lines"]] == [("GPU 0", [25.0]), ("GPU 1", [50.0])]


def test_metrics_without_a_chart_of_their_own_are_drawn_among_the_others() -> None:
    """Nothing that was recorded is hidden, but for what the page says in words."""
    store = SeriesStore()
    store.add("my.library.queue", (), 1, 0, 0, 3.0)
    store.add("dl.run.heartbeat", (), 1, 0, 0, 1.0)
    charts = machine_charts(store.join(), Axes(0), Detail())
    assert [made["title"] for made in charts["other"]] == ["my.library.queue"]
    assert charts["steps"] == charts["system"] == charts["gpu"] == []


def test_time_of_steps_is_divided_into_wait_and_phases() -> None:
    """10 of 110 milliseconds are waiting; percentiles are of the steps."""
    store = SeriesStore()
    for step in range(100):
        store.add("dl.step.time", TRAIN, 1, 0, step, 0.11, unit="s")
        store.add("dl.data.wait.time", TRAIN, 1, 0, step, 0.01, unit="s")
        store.add("dl.phase.time", (("phase", "forward"), *TRAIN), 1, 0, step, 0.05, unit="s")
    shares = time_shares(store.join())
    assert shares["steps"] == 100
    assert round(shares["wait_s"] / shares["total_s"], 3) == 0.091  # type: ignore[operator]
    assert shares["median_s"] == shares["p99_s"] == 0.11
    assert time_shares([]) == {}


def test_a_label_tells_series_of_one_chart_apart() -> None:
    """Split, other attributes and the rank, in words."""
    store = SeriesStore()
    store.add("train.norm", (("layer", "fc1"), ("split", "train")), 1, 2, 0, 1.0)
    store.add("train.plain", (), 1, 0, 0, 1.0)
    labels = [label_of(series, with_rank=True) for series in store.join()]
    assert labels == ["rank 0", "train · layer=fc1 · rank 2"]
