"""What was seen inside training is judged: each fault is said once, at its step; what is healthy is silent."""

from __future__ import annotations

import math
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_train.clock import NS_PER_S
from otel_train.record.digest import Digested
from otel_train.record.entries import Sample, SeriesAttributes
from otel_train.record.readings import Arrived, Occurrence, Read
from otel_train.semconv import METRICS
from otel_train.watch.gradients import GradientNorm
from otel_train.watch.inside import SkippedSteps
from tests.test_watch_health import WALL_NS, Watched

NORM = "dl.grad.norm"


def seen(
    watched: Watched,
    step: int,
    points: Iterable[tuple[str, float, SeriesAttributes]] = (),
    counters: Iterable[tuple[str, float, SeriesAttributes]] = (),
) -> None:
    """A sampling at a step; then the watcher is asked."""
    read = Read(points=[Sample(*one) for one in points], counters=[Sample(*one) for one in counters])
    watched.health.take(Digested(read=[Arrived(WALL_NS + watched.now_ns, step, None, read)]))
    watched.settle()


def norms(watched: Watched, values: Iterable[float], *, every: int = 100, **layers: Iterable[float]) -> None:
    """Samplings of the whole gradient's norm, and of layers' beside it."""
    columns = {name: list(column) for name, column in layers.items()}
    for number, value in enumerate(values):
        points = [(NORM, value, ())]
        points += [(NORM, column[number], (("layer", name),)) for name, column in columns.items()]
        seen(watched, number * every, points)


# Gradients ------------------------------------------------------------------------------------------------------------


def test_a_sampled_gradient_that_explodes_is_told_at_the_third_norm() -> None:
    """Usual is 2.0; from the eighth sampling on it is 30, 40, 50: the least of three is 15 times the usual."""
    watched = Watched()
    norms(watched, [2.0] * 8 + [30.0, 40.0, 50.0, 60.0])
    assert watched.told == [("gradient_exploding", 1_000, 15.0, False)]
    (found,) = watched.findings
    assert found.attributes["metric"] == NORM
    assert "dl.grad.norm" in found.body
    assert watched.values("dl.grad.excess")[0] > 10


def test_a_healthy_gradient_is_silent_from_its_first_norm_on() -> None:
    """It falls by a half with each sampling, with a spike of twenty times in between."""
    watched = Watched()
    norms(watched, [2.0**-number * (20 if number == 9 else 1) for number in range(20)])
    assert watched.told == []
    assert watched.values("dl.grad.usual") == [pytest.approx(sorted(2.0**-n for n in range(20))[10], rel=0.6)]


def test_a_vanished_gradient_of_one_layer_is_told_by_its_name() -> None:
    """The whole norm is that of the last layer; the first layer's is below 1e-7 for twenty samplings."""
    watched = Watched()
    norms(watched, [1.0] * 22, first=[1e-9] * 22, last=[1.0] * 22)
    assert watched.told == [("gradient_vanishing", 1_900, 1e-9, False)]
    assert watched.findings[0].attributes["layer"] == "first"
    assert sorted(watched.values("dl.grad.recent_max")) == [1e-9, 1.0, 1.0]


def test_a_gradient_that_vanishes_as_a_whole_is_one_event() -> None:
    """Not one for each of its layers."""
    watched = Watched()
    norms(watched, [1e-9] * 25, first=[5e-10] * 25, last=[5e-10] * 25)
    assert [row[0] for row in watched.told] == ["gradient_vanishing"]


def test_where_the_user_logs_the_norm_too_there_is_one_event() -> None:
    """The same explosion, seen at each step by the user's key and at each tenth by the samplings."""
    watched = Watched()
    for step in range(300):
        value = 2.0 if step < 200 else 50.0
        watched.log({"grad_norm": value}, step)
        if step % 10 == 0:
            seen(watched, step, [(NORM, value, ())])
    assert watched.told[0] == ("gradient_exploding", 202, 25.0, False)
    # What is usual has risen after a hundred of them: then it is over.
    assert [(row[0], row[3]) for row in watched.told[1:]] == [("gradient_exploding", True)]
    assert watched.findings[0].attributes["metric"] == "train.grad_norm"
    names = {dict(s.attributes)["metric"] for s in watched.health.heartbeat(ended=False) if s.name == "dl.grad.excess"}
    assert names == {"train.grad_norm"}


def test_a_vanished_norm_of_the_user_and_of_layers_is_one_event() -> None:
    """The user's norm, seen at each step, is found first; the layers then say nothing more."""
    watched = Watched()
    for step in range(400):
        watched.log({"grad_norm": 1e-9}, step)
        if step % 10 == 0:
            seen(watched, step, [(NORM, 1e-9, ()), (NORM, 1e-9, (("layer", "fc"),))])
    assert [row[0] for row in watched.told] == ["gradient_vanishing"]
    assert watched.findings[0].attributes["metric"] == "train.grad_norm"


def test_a_norm_that_is_not_finite_is_told_once_and_counted() -> None:
    """NaN twice and an infinity: one event of the first, and counters by kind."""
    watched = Watched()
    norms(watched, [1.0, math.nan, math.inf, math.nan])
    assert watched.told == [("nonfinite", 100, "NaN", False)]
    assert watched.findings[0].severity == "ERROR"
    counts = {
        dict(s.attributes)["kind"]: s.value for s in watched.health.heartbeat(ended=False) if s.name == "dl.nonfinite"
    }
    assert counts == {"NaN": 2, "Infinity": 1}


def test_a_norm_that_is_not_finite_is_left_to_the_user_who_logs_it() -> None:
    """The writer tells of the user's own value; and of a layer nothing is told but by the whole."""
    watched = Watched()
    watched.log({"grad_norm": math.nan}, 0)
    seen(watched, 0, [(NORM, math.nan, ())])
    assert [row for row in watched.told if row[0] == "nonfinite"] == []
    other = Watched()
    norms(other, [1.0] * 3, first=[math.nan] * 3)
    assert other.told == []


def test_a_loss_scaler_looks_for_its_scale_without_an_event() -> None:
    """Gradients overflow at its first steps, and those are skipped."""
    watched = Watched()
    seen(watched, 0, [(NORM, math.inf, ()), ("dl.amp.scale", 65_536.0, ())])
    assert watched.told == []


def test_what_is_not_sampled_any_more_says_nothing_of_the_present() -> None:
    """After unwatch() its last values end, five samplings later; steps are those of the user's logs."""
    watched = Watched()
    norms(watched, [1.0] * 22, first=[1e-9] * 22)
    for step in range(2_100, 2_700, 10):
        watched.log({"loss": 1.0}, step)
    watched.settle()
    assert watched.values("dl.grad.recent_max") == []


@given(st.lists(st.floats(1e-3, 1e3), min_size=25, max_size=60))
def test_sampled_norms_are_measured_by_the_last_twenty(values: list[float]) -> None:
    """The greatest of late is that of the last twenty; known from the twentieth on."""
    norm = GradientNorm(sampled=True)
    for number, value in enumerate(values):
        norm.take([number], [value], 10.0)
        assert norm.recent_max == (max(values[number - 19 : number + 1]) if number >= 19 else None)
    assert (norm.usual is None) == (len(values) < 5)


# Dead units -----------------------------------------------------------------------------------------------------------


def dead(watched: Watched, step: int, **shares: float) -> None:
    seen(watched, step, [("dl.activation.dead", share, (("layer", name),)) for name, share in shares.items()])


def test_dead_units_are_told_when_three_samplings_agree() -> None:
    """0.6, 0.7, 0.9 are over a half; two are not enough, and 0.4 begins anew."""
    watched = Watched()
    for number, share in enumerate([0.6, 0.7, 0.4, 0.6, 0.7, 0.9, 0.9, 0.4]):
        dead(watched, number * 100, relu1=share, relu2=0.1)
    assert watched.told == [("dead_units", 500, 0.6, False), ("dead_units", 700, 0.4, True)]
    assert watched.findings[0].attributes["layer"] == "relu1"
    assert "relu1" in watched.findings[0].body
    assert watched.findings[0].samples[0].name == "dl.activation.dead.lasting"


def test_many_dead_layers_are_one_event() -> None:
    """Sixty layers die at once: one event, by the worst of them; rules have a value for each."""
    watched = Watched()
    for number in range(5):
        dead(watched, number, **{f"layer{index}": 0.6 + index / 1_000 for index in range(60)})
    assert [row[0] for row in watched.told] == ["dead_units"]
    assert watched.findings[0].attributes["layer"] == "layer59"
    assert len(watched.values("dl.activation.dead.lasting")) == 60


def test_a_run_sets_its_own_share_of_dead_units() -> None:
    """Where sparsity is wanted it is no fault."""
    watched = Watched({"dead_share": 0.95})
    for number in range(5):
        dead(watched, number, gate=0.9)
    assert watched.told == []


# Loss scale -----------------------------------------------------------------------------------------------------------


def totals(watched: Watched, step: int, tried: float, skipped: float) -> None:
    seen(watched, step, counters=[("dl.optimizer.tried", tried, ()), ("dl.optimizer.skipped", skipped, ())])


def test_a_scaler_that_skips_most_steps_is_told_and_its_end_too() -> None:
    """Ten skipped at the start are normal; 70 of the last 100 are not; 20 of 100 later is over."""
    watched = Watched()
    totals(watched, 0, 10, 10)
    totals(watched, 100, 110, 10)
    totals(watched, 200, 210, 80)
    totals(watched, 300, 310, 100)
    assert watched.told == [("amp_skipping", None, 0.7, False), ("amp_skipping", None, 0.2, True)]


@given(st.lists(st.tuples(st.integers(0, 40), st.floats(0, 1)), min_size=1, max_size=40))
def test_the_share_is_that_of_at_least_the_last_hundred_steps(rows: list[tuple[int, float]]) -> None:
    """By the youngest totals that lie a hundred steps back; None before."""
    skipped_steps = SkippedSteps()
    history: list[tuple[int, int]] = []
    tried = skipped = 0
    for steps, part in rows:
        tried, skipped = tried + steps, skipped + int(steps * part)
        history.append((tried, skipped))
        skipped_steps.take(tried, skipped)
        before = [row for row in history if row[0] <= tried - 100]
        if not before:
            assert skipped_steps.share is None
            continue
        # Of equal totals of steps the last one counts.
        base = before[-1]
        assert skipped_steps.share == pytest.approx((skipped - base[1]) / (tried - base[0]))


# Samples, ranks, memory -----------------------------------------------------------------------------------------------


def test_broken_samples_are_told_with_their_split() -> None:
    """One of 32 is NaN and one is constant: 2/32; the next check is clean."""
    train: SeriesAttributes = (("split", "train"),)
    watched = Watched()
    seen(watched, 0, [("dl.samples.nonfinite", 0.0, train), ("dl.samples.constant", 0.0, train)])
    seen(watched, 500, [("dl.samples.nonfinite", 1 / 32, train), ("dl.samples.constant", 1 / 32, train)])
    assert watched.values("dl.samples.bad") == [1 / 16]
    seen(watched, 1_000, [("dl.samples.nonfinite", 0.0, train), ("dl.samples.constant", 0.0, train)])
    assert watched.told == [("samples_bad", 500, 0.0625, False), ("samples_bad", 1_000, 0.0, True)]
    assert watched.findings[0].attributes["split"] == "train"


@pytest.mark.parametrize(("kind", "told"), [("image", 1), ("array", 1), ("table", 0), ("text", 0), ("tokens", 0)])
def test_missing_cells_of_tables_and_empty_texts_are_no_fault(kind: str, told: int) -> None:
    """What a batch holds is said by the event beside its values."""
    watched = Watched()
    read = Read(
        points=[Sample("dl.samples.nonfinite", 0.5), Sample("dl.samples.constant", 0.5)],
        occurrences=[Occurrence(event="samples.checked", body="", attributes={"kind": kind})],
    )
    watched.health.take(Digested(read=[Arrived(WALL_NS, 0, None, read)]))
    watched.settle()
    assert len(watched.told) == told


def test_drifting_samples_are_told() -> None:
    """0.02 is chance; 0.3 is another distribution."""
    watched = Watched()
    for step, drift in ((500, 0.01), (1_000, 0.02), (1_500, 0.3)):
        seen(watched, step, [("dl.samples.drift", drift, (("split", "train"),))])
    assert watched.told == [("samples_drift", 1_500, 0.3, False)]


def test_a_straggler_must_be_slow_for_a_minute() -> None:
    """A score of 2 for 45 s is none; for a minute it is, by the rank's own watcher."""
    watched = Watched()
    for _ in range(4):
        watched.samples(Sample("dl.rank.straggler", 2.0))
        watched.settle()
        watched.pass_s(15)
    assert watched.told == []
    watched.samples(Sample("dl.rank.straggler", 2.0))
    watched.settle()
    assert watched.told == [("straggler", None, 2.0, False)]


def memory(watched: Watched, slope: float, *, share: float = 0.5, **group: float) -> None:
    watched.samples(
        Sample("system.memory.usage", 6e9, (("system.memory.state", "used"),)),
        Sample("system.memory.usage", 2e9, (("system.memory.state", "free"),)),
        Sample("system.memory.utilization", share),
        *[Sample(name, value) for name, value in group.items()],
    )
    watched.samples(Sample("dl.process_tree.memory.slope", slope, (("kind", "pss"),)))
    watched.settle()


def test_growing_memory_is_told_when_it_would_be_full_within_the_hour() -> None:
    """4 GB are free of 8; at 2 MB/s they last 2,000 s, at 1 MB/s 4,000 s."""
    watched = Watched()
    memory(watched, 1e6)
    assert watched.values("dl.memory.time_to_full") == [pytest.approx(4_000)]
    watched.pass_s(61)
    memory(watched, 1e6)
    assert watched.told == []
    memory(watched, 2e6)
    watched.pass_s(61)
    memory(watched, 2e6)
    assert watched.told == [("memory_growth", None, 2_000.0, False)]
    memory(watched, 0.0)
    assert watched.told[1:] == [("memory_growth", None, "Infinity", True)]


def test_a_control_group_that_is_smaller_than_the_host_counts() -> None:
    """Of 1 GB 0.7 is used, of which 0.1 the kernel gives back: 0.4 GB last 400 s at 1 MB/s."""
    watched = Watched()
    group = {
        "container.memory.usage": 7e8,
        "dl.container.memory.limit": 1e9,
        "dl.container.memory.reclaimable": 1e8,
    }
    memory(watched, 1e6, **group)
    assert watched.values("dl.memory.time_to_full") == [pytest.approx(400)]


def test_all_values_are_of_the_table_of_names() -> None:
    """With the attributes that the table gives them."""
    watched = Watched()
    norms(watched, [1.0] * 22 + [math.nan], first=[1.0] * 23)
    for number in range(3):
        dead(watched, 2_200 + number, relu=0.1)
    totals(watched, 2_203, 10, 0)
    totals(watched, 2_204, 200, 0)
    memory(watched, 1.0)
    made = watched.health.heartbeat(ended=False)
    assert {sample.name for sample in made} >= {
        "dl.grad.usual",
        "dl.grad.excess",
        "dl.grad.recent_max",
        "dl.activation.dead.lasting",
        "dl.amp.skipped.share",
        "dl.memory.time_to_full",
    }
    for sample in made:
        assert {key for key, _ in sample.attributes} <= set(METRICS[sample.name].attributes), sample


def test_the_clock_is_not_needed_for_any_of_it() -> None:
    """Samplings that lie apart by a day are samplings all the same."""
    watched = Watched()
    for number in range(3):
        dead(watched, number * 100, relu=0.9)
        watched.now_ns += 86_400 * NS_PER_S
    assert [row[0] for row in watched.told] == ["dead_units"]
