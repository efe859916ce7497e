"""From a drained batch to columns, steps and what is worth an event; and back again through the wire."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_train.otlp.decode import decode_line
from otel_train.otlp.encode import LineEncoder
from otel_train.record.columns import POINTS_PER_LINE
from otel_train.record.digest import Digest, UsualStep, points_in
from otel_train.record.entries import Column
from otel_train.record.names import Series, series_name
from otel_train.record.phases import Phase
from otel_train.record.points import PointGroup
from otel_train.record.steps import DEVICE_WAIT, StepLoop, TimedLoop
from tests.recording import TRAIN, VAL, Recording, columns_of, stored, stored_columns

MS = 1_000_000


def steps_of(run: Recording, durations_ms: Sequence[float], **options: Any) -> TimedLoop:
    """Put steps of these durations into the buffer, one after the other."""
    loop = TimedLoop(run.log, **options)
    now_ns = 10**9
    for step, duration_ms in enumerate(durations_ms):
        end_ns = now_ns + int(duration_ms * MS)
        run.buffer.extend((loop, step, None, now_ns, now_ns + 1, end_ns))
        now_ns = end_ns
    return loop


def test_every_hundredth_step_is_sampled() -> None:
    """Of 250 like steps 0, 100 and 200 become spans."""
    run = Recording()
    steps_of(run, [10] * 250)
    assert [facts.step for facts in run.take().steps if facts.remarkable == "sampled"] == [0, 100, 200]


def test_a_step_slower_than_median_and_three_deviations_is_remarkable() -> None:
    """Durations of 9, 10 and 11 ms have a median of 10 and a deviation of 1: 13.1 ms is slow, 12.9 ms is not."""
    run = Recording(span_every=1000)
    steps_of(run, [9, 10, 11] * 10 + [12.9, 13.1])
    facts = run.take().steps
    assert [(one.step, one.remarkable) for one in facts if one.remarkable] == [(0, "sampled"), (31, "slow")]
    assert facts[31].duration_s == 0.0131
    assert run.digest.usual["train"].median_ns == 10 * MS


def test_the_usual_step_is_known_from_the_second_on() -> None:
    """The median of few, which says what is late; what is slow it does not say yet."""
    usual = UsualStep()
    medians = []
    for duration_ms in (60_000, 10, 10, 20):
        assert not usual.is_slow(duration_ms * MS)
        medians.append(usual.median_ns / MS)
    assert medians == [0, 30_005, 10, 15]


def test_no_step_is_slow_before_twenty_are_known_and_the_usual_follows() -> None:
    """A first step of a minute is not slow; after a change of pace the new pace is the usual one."""
    usual = UsualStep()
    assert not usual.is_slow(60_000 * MS)
    assert not any(usual.is_slow(10 * MS) for _ in range(19))
    assert usual.is_slow(20 * MS)
    slow = [usual.is_slow(20 * MS) for _ in range(300)]
    assert slow[0] is True
    assert slow[-1] is False
    assert usual.median_ns == 20 * MS


def test_a_step_with_a_value_that_is_not_finite_is_remarkable() -> None:
    """NaN as the first of two calls in step 3, infinity in step 5: those two; a finite neighbour does not hide it."""
    run = Recording(span_every=1000)
    for step in StepLoop(range(8), run.log):
        run.log.log({"loss": math.nan if step == 3 else 1.0})
        run.log.log({"loss": 1.0})
        run.log.log({"acc": np.float32(math.inf) if step == 5 else np.float32(0.5)})
    steps = run.take().steps
    assert [(one.step, one.remarkable) for one in steps if one.remarkable] == [
        (0, "sampled"),
        (3, "non-finite"),
        (5, "non-finite"),
    ]


def test_the_point_that_fills_a_line_can_make_its_step_remarkable() -> None:
    """The 200th point is NaN and its line is written before the step ends: the step is remarkable all the same."""
    run = Recording(span_every=1000)
    for step in StepLoop(range(POINTS_PER_LINE), run.log):
        run.log.log({"loss": math.nan if step == POINTS_PER_LINE - 1 else 1.0})
    assert run.take().steps[-1].remarkable == "non-finite"


def test_batches_of_validation_are_not_remarkable_for_training_steps_of_the_same_number() -> None:
    """NaN in training's step 3 says nothing of validation's batch 3."""
    run = Recording(span_every=1000)
    for step in StepLoop(range(4), run.log):
        run.log.log({"loss": math.nan if step == 3 else 1.0})
        if step == 3:
            for _ in StepLoop(range(5), run.log, split="val", owns_step=False):
                pass
    found = {(one.split, one.step): one.remarkable for one in run.take().steps}
    assert found[("val", 3)] == ""
    assert found[("train", 3)] == "non-finite"


def test_bad_steps_without_a_loop_are_not_remembered_for_ever() -> None:
    """1,000 NaNs in a loop by hand leave at most 256 numbers in memory, and the newest of them are known."""
    run = Recording(span_every=10_000)
    for step in range(1_000):
        run.log.log({"loss": math.nan}, step=step)
    run.take()
    loop = TimedLoop(run.log)
    for step in (5, 999):
        run.buffer.extend((loop, step, None, 0, 1, 2))
    assert [one.remarkable for one in run.take().steps] == ["", "non-finite"]


def test_not_a_number_and_infinities_are_kept_and_counted() -> None:
    """60 steps: 2.0 where 6 divides the step, else NaN, +Inf at 31, -Inf at 32: 10, 48, 1 and 1; first bad step 1."""
    run = Recording()
    for step in range(60):
        value = 2.0 if step % 6 == 0 else math.inf if step == 31 else -math.inf if step == 32 else math.nan
        run.log.log({"loss": value}, step=step)
    digested = run.take()
    values = [value for _, value in stored(digested)[("train.loss", TRAIN)]]
    assert len(values) == 60
    assert [value for value in values if math.isfinite(value)] == [2.0] * 10
    assert sum(math.isnan(value) for value in values) == 48
    assert (values[31], values[32]) == (math.inf, -math.inf)
    (bad,) = digested.nonfinite
    assert (bad.kinds, bad.first, bad.step, bad.series.name) == (
        {"NaN": 48, "Infinity": 1, "-Infinity": 1},
        True,
        1,
        "train.loss",
    )
    assert math.isnan(bad.value)
    summary = run.summaries.by_series[bad.series]
    assert (summary.minimum, summary.maximum, summary.finite, summary.count) == (2.0, 2.0, 10, 60)


def test_a_line_holds_at_most_200_points_of_a_series() -> None:
    """450 points are lines of 200, 200 and 50, in order."""
    run = Recording()
    for step in range(450):
        run.log.log({"loss": float(step)})
    blocks = run.take().blocks
    assert [len(block[0].values) for block in blocks] == [200, 200, 50]
    assert [value for block in blocks for value in block[0].values] == [float(step) for step in range(450)]


def test_steps_of_all_epochs_share_lines() -> None:
    """Three epochs of ten steps, each a loop of its own, are one line with 30 steps, not three."""
    run = Recording()
    for epoch in range(3):
        run.log.epoch = epoch
        for _ in StepLoop(range(10), run.log):
            pass
    digested = run.take()
    assert len(digested.blocks) == 1
    columns = {column.name: list(column.values) for column in digested.blocks[0]}
    assert columns["dl.step"] == list(range(30))
    assert columns["dl.epoch"] == [0] * 10 + [1] * 10 + [2] * 10


def test_steps_fill_lines_too() -> None:
    """450 steps are lines of 200, 200 and 50."""
    run = Recording()
    steps_of(run, [10] * 450)
    assert [len(block[0].values) for block in run.take().blocks] == [200, 200, 50]


def test_a_series_that_is_logged_with_changing_neighbours_keeps_its_order() -> None:
    """Key a alone, a with b, a alone, also as float32: its points stand in one column in the order of the calls."""
    run = Recording()
    run.log.log({"a": 1.0})
    run.log.log({"a": 2.0, "b": 20.0})
    run.log.log({"a": 3.0})
    run.log.log({"b": np.array([40.0]), "a": np.array([4.0])})
    digested = run.take()
    assert len(digested.blocks) == 1
    columns = {(column.name, column.attributes): column for column in digested.blocks[0]}
    assert list(columns[("train.a", ())].values) == [1.0, 2.0, 3.0, 4.0]
    assert list(columns[("train.b", ())].values) == [20.0, 40.0]
    assert list(columns[("dl.step", ())].values) == [0, 1, 2, 3]
    assert list(columns[("train.a", ())].times_ns) == list(columns[("dl.step", ())].times_ns)
    summary = run.summaries.by_series[run.names.series("a", None)]
    assert (summary.last, summary.last_step) == (4.0, 3)


def test_a_full_line_of_a_mixed_series_takes_the_others_along() -> None:
    """With every 10th call carrying a second key, 1,000 points come out in order over several lines."""
    run = Recording()
    for step in range(1_000):
        run.log.log({"a": float(step)} if step % 10 else {"a": float(step), "b": 1.0})
    digested = run.take()
    values = [value for column in columns_of(digested) if column.name == "train.a" for value in column.values]
    assert values == [float(step) for step in range(1_000)]
    assert len(digested.blocks) <= 6


def test_without_flush_what_fills_no_line_is_kept_for_the_next_batch() -> None:
    """150 and 150 points: nothing, then a line of 200, and 100 at the flush."""
    run = Recording()
    sizes = []
    for _ in range(2):
        for _ in range(150):
            run.log.log({"a": 1.0})
        sizes.append([len(block[0].values) for block in run.take(flush=False).blocks])
    sizes.append([len(block[0].values) for block in run.take().blocks])
    assert sizes == [[], [200], [100]]


def test_a_fault_with_one_entry_costs_that_entry_alone() -> None:
    """An entry that cannot be read is counted with its points, and what stands around it is stored."""
    run = Recording()
    run.log.log({"a": 1.0})
    run.buffer.extend((PointGroup(None, "", False), 5, 0, None, {"x": "no number", "y": 1.0}, None))
    run.log.log({"a": 2.0})
    digested = run.digest.take(run.buffer.drain(), 0)
    assert stored(digested)[("train.a", ())] == [(0, 1.0), (1, 2.0)]
    assert digested.lost == {"fault of telemetry": 2}
    assert [type(fault) for fault in digested.faults] == [TypeError]
    assert run.digest.take([], 0, last=True).faults == []


def test_a_column_that_cannot_be_made_does_not_stand_in_the_way_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """The summaries raise once: those points are counted as lost, the next ones are stored."""
    run = Recording()
    run.log.log({"a": 1.0, "b": 1.0})

    def broken(*_: object) -> None:
        raise RuntimeError("summary")

    with monkeypatch.context() as patch:
        patch.setattr(run.summaries, "add", broken)
        digested = run.digest.take(run.buffer.drain(), 0)
    assert digested.lost == {"fault of telemetry": 2}
    assert [str(fault) for fault in digested.faults] == ["summary"]
    run.log.log({"a": 2.0})
    assert run.stored() == {("train.a", ()): [(1, 2.0)]}


def test_points_in_counts_what_nobody_will_digest() -> None:
    """Two points of a call, two of a step, one of a phase and one of a device's wait: six."""
    run = Recording()
    run.log.log({"a": 1.0, "b": 2.0})
    loop = steps_of(run, [10])
    with Phase("p", run.log):
        pass
    run.buffer.extend((DEVICE_WAIT, 0, None, 0, loop, (None, None)))
    assert points_in(run.buffer.drain()) == 6


# Whatever is logged comes back --------------------------------------------------------------------------------------

KEYS = ["loss", "acc", "lr", "val/loss", "train_loss", "train.loss", "a/b", "a_b", "layer.0.grad", "é", "x y"]
numbers = st.one_of(
    st.floats(width=64),
    st.integers(-(2**63), 2**63 - 1),
    st.booleans(),
    st.floats(width=32).map(np.float32),
    st.floats(width=16).map(np.float16),
    st.integers(-(2**31), 2**31 - 1).map(np.int32),
)
calls = st.tuples(
    st.dictionaries(st.sampled_from(KEYS), numbers, min_size=1, max_size=4),
    st.one_of(st.none(), st.integers(-5, 10**12)),
    st.sampled_from([None, "train", "val", "valid", "test"]),
    st.sampled_from([None, None, None, "env_step"]),
    st.booleans(),
)


class Model:
    """What must come of a sequence of calls, by the words of the documentation, slowly."""

    def __init__(self) -> None:
        self.step = 0
        self.there: set[tuple[str, str, str]] = set()
        self.points: dict[tuple[str, ...], list[tuple[int, Any]]] = {}

    def log(self, values: dict[str, Any], step: int | None, split: str | None, axis: str | None) -> None:
        places = {}
        for key in values:
            named = series_name(key, split)
            places[key] = (key, named.name, named.split)
        if axis is not None:
            at = self.step if step is None else step
        elif step is None:
            if self.there & set(places.values()):
                self.step += 1
                self.there = set()
            at = self.step
            self.there |= set(places.values())
        else:
            at = step
            if step == self.step:
                self.there |= set(places.values())
        for key, value in values.items():
            self.points.setdefault((*places[key], axis or ""), []).append((at, value))


def wire(blocks: Sequence[list[Column]]) -> list[Column]:
    """Write columns as lines and read them back."""
    encoder = LineEncoder({"run_id": "r"}, "test")
    columns: list[Column] = []
    for block in blocks:
        request = decode_line(encoder.points(block))
        assert request.skipped == 0
        for series in request.series:
            values = [value for value in series.values if value is not None]
            columns.append(Column(series.name, series.times_ns, values, series.attributes, "", series.description))
    return columns


def same(logged: Any, read: Any) -> bool:
    """Tell whether a number came back: bit by bit, 16 and 32-bit floats as 32-bit ones."""
    if isinstance(logged, np.float32 | np.float16):
        return bool(
            np.float32(logged).tobytes() == np.float32(read).tobytes() or (np.isnan(logged) and math.isnan(read))
        )
    if isinstance(logged, float):
        return (
            math.isnan(read)
            if math.isnan(logged)
            else (logged, math.copysign(1, logged))
            == (
                read,
                math.copysign(1, read),
            )
        )
    return int(logged) == read and type(read) is int


@settings(deadline=None, max_examples=300)
@given(st.lists(calls, max_size=40), st.integers(1, 7))
def test_what_was_logged_is_what_is_read_back(sequence: list[Any], batch_calls: int) -> None:
    """For any calls of any keys, splits, axes, explicit and implicit steps, written in batches of any size.

    Each series holds the values logged, bit by bit and in their order, at the right steps; times never go back.
    """
    run, model, blocks = Recording(), Model(), []
    for number, (values, step, split, axis, flush) in enumerate(sequence):
        run.log.log(values, step=step, split=split, axis=axis)
        model.log(values, step, split, axis)
        if number % batch_calls == 0:
            blocks += run.take(flush=flush).blocks
    blocks += run.take(last=True).blocks
    columns = wire(blocks)
    found = stored_columns(columns)
    by_series: dict[tuple[str, ...], list[tuple[int, Any]]] = {}
    newest: dict[Any, int] = {}
    for column in columns:
        place = (column.name, column.attributes)
        assert list(column.times_ns) == sorted(column.times_ns)
        attributes = dict(column.attributes)
        if column.name not in ("dl.step", "dl.epoch"):
            assert newest.get(place, 0) < column.times_ns[0]
            newest[place] = column.times_ns[-1]
            key = (column.description, column.name, str(attributes.get("split", "")), str(attributes.get("axis", "")))
            by_series[key] = found[place]
    assert by_series.keys() == model.points.keys()
    for key, expected in model.points.items():
        assert [step for step, _ in by_series[key]] == [step for step, _ in expected]
        assert all(same(logged, read) for (_, logged), (_, read) in zip(expected, by_series[key], strict=True))
    assert run.buffer.dropped == {}
    counted = {
        (series.description, series.name, series.split, str(dict(series.attributes).get("axis", ""))): summary.count
        for series, summary in run.summaries.by_series.items()
    }
    assert counted == {key: len(rows) for key, rows in model.points.items()}


def test_the_digest_starts_with_nothing() -> None:
    """An empty batch gives no lines, also at last."""
    run = Recording()
    assert run.take(last=True).blocks == []
    assert isinstance(run.digest, Digest)
    assert run.digest.waiting == 0
    assert isinstance(run.names.series("a", None), Series)
    assert VAL == (("split", "val"),)
