"""Points become series with steps and epochs; several attempts become one effective series."""

from __future__ import annotations

import math
import random

from hypothesis import given
from hypothesis import strategies as st

from otel_train.view.reduce import Bad, mean
from otel_train.view.running import Running
from otel_train.view.series import effective
from otel_train.view.series_store import SeriesStore
from otel_train.view.summary import goal_of, summarize

TRAIN = (("split", "train"),)


def fill(store: SeriesStore, attempt: int, steps: list[int], values: list[float], start_ns: int = 0) -> None:
    for number, (step, value) in enumerate(zip(steps, values, strict=True)):
        store.add("train.loss", TRAIN, attempt, 0, start_ns + number, value)
        store.add("dl.step", TRAIN, attempt, 0, start_ns + number, step)


def test_each_point_gets_the_step_and_epoch_of_its_time_and_split() -> None:
    """Siblings are matched by time within the split; a point without a sibling has no step."""
    store = SeriesStore()
    store.add("train.loss", TRAIN, 1, 0, 10, 1.0)
    store.add("train.loss", TRAIN, 1, 0, 30, 2.0)
    store.add("train.loss", (("split", "val"),), 1, 0, 30, 3.0)
    store.add("dl.step", TRAIN, 1, 0, 10, 7)
    store.add("dl.step", TRAIN, 1, 0, 30, 8)
    store.add("dl.epoch", TRAIN, 1, 0, 30, 2)
    by_split = {series.split: series for series in store.join()}
    assert list(by_split["train"].steps) == [7.0, 8.0]
    assert math.isnan(by_split["train"].epochs[0])
    assert by_split["train"].epochs[1] == 2.0
    assert math.isnan(by_split["val"].steps[0])


def test_points_within_one_tick_of_the_clock_get_their_own_steps() -> None:
    """Two calls at the same time are two steps, in the order of the calls."""
    store = SeriesStore()
    for step in (1, 2, 3):
        store.add("train.loss", TRAIN, 1, 0, 500, float(step))
        store.add("dl.step", TRAIN, 1, 0, 500, step)
    assert list(store.join()[0].steps) == [1.0, 2.0, 3.0]


@given(st.lists(st.integers(0, 30), min_size=1, max_size=60))
def test_steps_match_also_when_the_clock_was_set_back(times: list[int]) -> None:
    """Whatever the order of the times, a point whose time is unique has the step logged at that time."""
    store = SeriesStore()
    for step, time_ns in enumerate(times):
        store.add("train.loss", TRAIN, 1, 0, time_ns, 0.5)
        store.add("dl.step", TRAIN, 1, 0, time_ns, step)
    steps = list(store.join()[0].steps)
    for step, time_ns in enumerate(times):
        if times.count(time_ns) == 1:
            assert steps[step] == step


def test_a_named_axis_is_known_by_its_sibling() -> None:
    """Training counts environment steps, evaluation its own: both axes keep their names and all points."""
    store = SeriesStore()
    for time_ns, step in ((1, 4000), (3, 8000)):
        store.add("train.reward", TRAIN, 1, 0, time_ns, 1.0)
        store.add("dl.step", (("axis", "env_step"), ("split", "train")), 1, 0, time_ns, step)
    for time_ns, step in ((2, 1000), (4, 2000)):
        store.add("train.reward", (("split", "val"),), 1, 0, time_ns, 2.0)
        store.add("dl.step", (("split", "val"),), 1, 0, time_ns, step)
    found = {series.split: (series.axis, list(series.steps)) for series in store.join()}
    assert found == {"train": ("env_step", [4000.0, 8000.0]), "val": ("step", [1000.0, 2000.0])}


def test_the_effective_series_is_the_newest_attempt_from_its_first_step_on() -> None:
    """Steps that were done again count once, with the newer value; what they replaced is kept aside."""
    store = SeriesStore()
    fill(store, 1, [0, 1, 2, 3, 4], [5.0, 4.0, 3.0, 2.0, 1.0])
    fill(store, 2, [3, 4, 5], [20.0, 10.0, 5.0], start_ns=100)
    (result,) = effective(store.join())
    assert list(result.series.steps) == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    assert list(result.series.values) == [5.0, 4.0, 3.0, 20.0, 10.0, 5.0]
    assert [list(part.values) for part in result.replaced] == [[2.0, 1.0]]


def test_a_series_that_the_newest_attempt_lacks_is_cut_at_its_first_step_too() -> None:
    """A validation of an undone step is replaced although the newer attempt has not validated yet."""
    store = SeriesStore()
    fill(store, 1, [0, 1, 2, 3], [4.0, 3.0, 2.0, 1.0])
    for time_ns, step in ((0, 0), (3, 3)):
        store.add("train.loss", (("split", "val"),), 1, 0, time_ns, 9.0)
        store.add("dl.step", (("split", "val"),), 1, 0, time_ns, step)
    fill(store, 2, [2], [2.5], start_ns=100)
    by_split = {item.series.split: item for item in effective(store.join())}
    assert list(by_split["val"].series.steps) == [0.0]
    assert list(by_split["val"].replaced[0].steps) == [3.0]


def test_batches_of_an_evaluation_are_no_steps_and_replace_nothing() -> None:
    """A run that goes on at step 3 and evaluates: its batch 0 is no step 0, so steps 0 to 2 still count."""
    store = SeriesStore()
    val = (("split", "val"),)
    for attempt, steps, start_ns in ((1, [0, 1, 2], 0), (2, [3, 4], 100)):
        fill(store, attempt, steps, [1.0] * len(steps), start_ns)
        for batch in (0, 1):
            for name, attributes in (("dl.step.time", val), ("dl.data.fetch.time", val)):
                store.add(name, attributes, attempt, 0, start_ns + 50 + batch, 0.1)
            store.add("dl.step", val, attempt, 0, start_ns + 50 + batch, batch)
            store.add("dl.epoch", val, attempt, 0, start_ns + 50 + batch, 7)
    by_name = {item.series.name: item for item in effective(store.join())}
    assert list(by_name["train.loss"].series.steps) == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert by_name["train.loss"].replaced == []
    for name in ("dl.step.time", "dl.data.fetch.time"):
        times = by_name[name].series
        assert all(math.isnan(step) for step in times.steps)
        # Two of each attempt, with the gap between two attempts.
        assert [value for value in times.values if value == value] == [0.1] * 4
        assert {epoch for epoch in times.epochs if epoch == epoch} == {7.0}
        assert by_name[name].replaced == []


def test_points_without_a_step_are_never_replaced() -> None:
    """System series of all attempts stay: they belong to their time."""
    store = SeriesStore()
    for attempt in (1, 2):
        store.add("system.cpu.utilization", (), attempt, 0, attempt * 100, 0.5)
        fill(store, attempt, [0], [1.0], start_ns=attempt * 100)
    by_name = {item.series.name: item for item in effective(store.join())}
    series = by_name["system.cpu.utilization"].series
    assert list(series.times_ns) == [100, 200, 200]
    assert series.gaps == {1}
    assert by_name["system.cpu.utilization"].replaced == []


def test_summary_counts_what_is_not_finite_and_takes_extremes_of_the_rest() -> None:
    """60 steps, 2.0 where six divides the step, else NaN, with one infinity of either sign."""
    values = [2.0 if step % 6 == 0 else math.nan for step in range(60)]
    values[31], values[32] = math.inf, -math.inf
    store = SeriesStore()
    fill(store, 1, list(range(60)), values)
    summary = summarize(store.join()[0])
    assert (summary.finite, summary.bad) == (10, Bad(48, 1, 1))
    assert summary.low is not None
    assert summary.high is not None
    assert (summary.low.value, summary.high.value, summary.mean) == (2.0, 2.0, 2.0)
    assert summary.first_bad is not None
    assert summary.first_bad.place == "step 1"


def test_a_single_low_point_is_the_minimum_at_its_step() -> None:
    """100 steps of 1.0 but 0.05 at step 37."""
    store = SeriesStore()
    fill(store, 1, list(range(100)), [0.05 if step == 37 else 1.0 for step in range(100)])
    summary = summarize(store.join()[0], "min")
    assert summary.best is not None
    assert (summary.best.value, summary.best.step) == (0.05, 37.0)


def test_best_follows_the_direction_of_the_metric() -> None:
    """run.json says which direction is better, by the user's key; without one there is no best."""
    store = SeriesStore()
    store.add("train.accuracy", TRAIN, 1, 0, 1, 0.5, description="accuracy")
    store.add("train.accuracy", TRAIN, 1, 0, 2, 0.9, description="accuracy")
    series = store.join()[0]
    assert goal_of(series, {"accuracy": {"goal": "max"}}) == "max"
    assert goal_of(series, {}) == ""
    store.add("train.loss", TRAIN, 1, 0, 1, 0.5, description="val/loss")
    assert goal_of(store.join()[1], {}) == "min"
    best = summarize(series, "max").best
    assert best is not None
    assert best.value == 0.9
    assert summarize(series).best is None


def test_an_integer_beyond_a_double_becomes_an_infinity() -> None:
    """It does not stop the reading of the rest."""
    store = SeriesStore()
    store.add("train.x", (), 1, 0, 1, 10**400)
    store.add("train.x", (), 1, 0, 2, None)
    assert store.join()[0].values[0] == math.inf
    assert store.join()[0].gaps == {1}


# Series that grow ----------------------------------------------------------------------------------------------------


@given(st.lists(st.lists(st.tuples(st.sampled_from(["loss", "lr", "step", "env"]), st.integers(0, 12)), max_size=6)))
def test_steps_are_the_same_whenever_they_are_asked_for(lines: list[list[tuple[str, int]]]) -> None:
    """Points and siblings in lines of their own, at any times, in any order: joined after each line, or at the end."""

    def fill_line(store: SeriesStore, line: list[tuple[str, int]], value: int) -> None:
        for name, time_ns in line:
            if name in ("loss", "lr"):
                store.add(f"train.{name}", TRAIN if name == "loss" else (), 1, 0, time_ns, float(value))
            elif name == "step":
                store.add("dl.step", TRAIN, 1, 0, time_ns, value)
            else:
                store.add("dl.step", (("axis", "env"), *TRAIN), 1, 0, time_ns, -value)

    growing, once = SeriesStore(), SeriesStore()
    for value, line in enumerate(lines):
        fill_line(growing, line, value)
        growing.join()
    for value, line in enumerate(lines):
        fill_line(once, line, value)

    def places(store: SeriesStore) -> list[tuple[str, str, str]]:
        return [(series.name, series.axis, repr(series.steps)) for series in store.join()]

    assert places(growing) == places(once)
    for series in once.join():
        for time_ns, step in zip(series.times_ns, series.steps, strict=True):
            siblings = [one for one in once.raw() if one.name == "dl.step"]
            here = [
                value
                for one in siblings
                if one.attribute("split") == series.attribute("split")
                for at_ns, value in zip(one.times_ns, one.values, strict=True)
                if at_ns == time_ns
            ]
            assert step in here if step == step else True


def test_a_point_has_the_step_of_its_own_line_first_of_all() -> None:
    """Two calls within one tick of the clock, each with its own keys and line: each point has the step of its call."""
    store = SeriesStore()
    for name, step in (("loss", 4), ("lr", 5)):
        beside = [store.beside("dl.step", TRAIN, 1, 0, [500], [step])]
        store.extend(f"train.{name}", TRAIN, 1, 0, [500], [0.5], beside=beside)
    assert {series.name: list(series.steps) for series in store.join()} == {"train.loss": [4.0], "train.lr": [5.0]}


def test_what_settles_says_from_where_on_places_are_other_ones() -> None:
    """A step that comes in a later line; and a sibling that knows more points than the one before."""
    store = SeriesStore()
    store.extend("train.loss", TRAIN, 1, 0, [1, 2, 3], [0.5, 0.5, 0.5])
    ((series, moved),) = store.settle()
    assert (len(series.values), moved) == (3, 0)
    store.add("dl.step", TRAIN, 1, 0, 2, 7)
    ((series, moved),) = store.settle()
    # All of them: until now there was nobody who could know any.
    assert moved == 0
    assert repr(list(series.steps)) == "[nan, 7.0, nan]"
    store.add("dl.step", TRAIN, 1, 0, 3, 8)
    ((series, moved),) = store.settle()
    assert (moved, series.steps[2]) == (2, 8.0)
    assert store.settle() == []


values_of_any_kind = st.lists(st.floats(allow_nan=True, allow_infinity=True, width=64), max_size=60)


@given(st.lists(values_of_any_kind, max_size=8))
def test_numbers_that_are_kept_up_are_those_of_the_whole(pieces: list[list[float]]) -> None:
    """Counts, extremes with their places, and the exactly rounded mean, after any pieces."""
    store = SeriesStore()
    store.extend("train.x", (), 1, 0, [], [])
    running = Running(next(store.raw()))
    seen: list[float] = []
    for piece in pieces:
        store.extend("train.x", (), 1, 0, range(len(piece)), piece)
        store.join()
        running.update()
        seen.extend(piece)
        finite = [value for value in seen if math.isfinite(value)]
        bad = [index for index, value in enumerate(seen) if not math.isfinite(value)]
        assert (running.count, running.finite) == (len(seen), len(finite))
        assert running.bad.counts == (sum(v != v for v in seen), seen.count(math.inf), seen.count(-math.inf))
        assert running.first_bad == (bad[0] if bad else None)
        assert (running.low, running.high) == (
            (seen.index(min(finite)), seen.index(max(finite))) if finite else (None, None)
        )
        assert running.mean() == (mean(finite) if finite else None)


def test_a_mean_over_many_looks_is_rounded_once() -> None:
    """A million tenths of many sizes, a thousand at a time: exactly the mean that all of them have."""
    chosen = random.Random(1)
    values = [chosen.choice([0.1, 1e16, -1e16, 1e-20, 3.3]) * chosen.random() for _ in range(100_000)]
    store = SeriesStore()
    running: Running | None = None
    for start in range(0, len(values), 1_000):
        store.extend("train.x", (), 1, 0, range(1_000), values[start : start + 1_000])
        running = running or Running(next(store.raw()))
        store.join()
        running.update()
    assert running is not None
    assert running.mean() == math.fsum(values) / len(values)
