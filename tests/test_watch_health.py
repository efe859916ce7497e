"""The watcher beside planted faults: each is said once, at its step, with its value; what is healthy is silent."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from itertools import pairwise
from statistics import median
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_train.clock import NS_PER_S
from otel_train.record.digest import Digested, StepFacts
from otel_train.record.entries import Sample
from otel_train.runlog.watcher import Finding
from otel_train.semconv import METRICS
from otel_train.watch.conditions import CONDITIONS
from otel_train.watch.elsewhere import IN_A_STAGE, OUTSIDE
from otel_train.watch.gradients import GradientNorm, is_gradient_norm
from otel_train.watch.health import Health
from otel_train.watch.improvement import Improvement, Windows
from otel_train.watch.overfit import OverfitGap
from otel_train.watch.thresholds import Thresholds
from tests.recording import Recording

WALL_NS = 1_800_000_000 * NS_PER_S


class Watched:
    """A recording, its watcher, and a clock that is moved by hand; the wall is `WALL_NS` ahead of the other clock."""

    def __init__(self, alerts: dict[str, Any] | None = None, **options: Any) -> None:
        self.recording = Recording()
        self.now_ns = 1_000 * NS_PER_S
        self.doing = ""
        self.kept: list[dict[str, float]] = []
        self.health = Health(
            Thresholds(alerts),
            self.recording.digest,
            elsewhere=lambda: self.doing,
            keep=lambda scales: self.kept.append(dict(scales)),
            **options,
        )
        self.findings: list[Finding] = []

    def log(self, values: dict[str, float], step: int | None = None, split: str | None = None) -> None:
        self.recording.log.log(values, step, split)

    def pass_s(self, seconds: float) -> None:
        self.now_ns += round(seconds * NS_PER_S)

    def step(self, number: int, took_s: float = 0.1, waited_s: float = 0.0, split: str = "train") -> None:
        """A step of a loop that ends now, after it took its time."""
        fetch_ns = self.now_ns
        self.pass_s(took_s)
        ready_ns = fetch_ns + round(waited_s * NS_PER_S)
        facts = StepFacts(split, number, None, fetch_ns, ready_ns, self.now_ns, (), "")
        usual = self.recording.digest.usual.setdefault(split, _usual())
        usual.is_slow(self.now_ns - fetch_ns)
        self.recording.digest.last_step = facts
        self.health.take(Digested(steps=[facts]))

    def settle(self, *, ended: bool = False) -> list[Finding]:
        """Digest what was logged; return what was found."""
        self.health.take(self.recording.take(offset_ns=0))
        found = self.health.settle(WALL_NS + self.now_ns, self.now_ns, ended=ended)
        self.findings += found
        return found

    def samples(self, *samples: Sample) -> None:
        """Readings of the machine, now."""
        self.health.readings(WALL_NS + self.now_ns, samples)

    def values(self, name: str) -> list[float]:
        """Present values of a metric."""
        return [sample.value for sample in self.health.heartbeat(ended=False) if sample.name == name]

    @property
    def told(self) -> list[tuple[str, Any, Any, bool]]:
        """Name, step, value and whether it is over, of each finding."""
        return [
            (
                found.event.removeprefix("health."),
                found.attributes.get("dl.step"),
                found.attributes["value"],
                "cleared" in found.attributes,
            )
            for found in self.findings
        ]


def _usual() -> Any:
    from otel_train.record.digest import UsualStep

    return UsualStep()


def train(watched: Watched, steps: range, loss: Callable[[int], float], *, every: int = 25, key: str = "loss") -> None:
    """Log a loss at each step; look every so many."""
    for step in steps:
        watched.log({key: loss(step)}, step)
        if step % every == every - 1:
            watched.settle()


# Plateau --------------------------------------------------------------------------------------------------------------


def test_a_constant_loss_is_a_plateau_after_two_thousand_steps() -> None:
    """Windows are of 100 steps: the first is the best and ends with step 99, that of step 2,099 is 2,000 later."""
    watched = Watched()
    train(watched, range(6_000), lambda step: 0.5)
    assert watched.told == [("plateau", 2_099, 2_000, False)]
    (found,) = watched.findings
    assert found.event == "health.plateau"
    assert found.severity == "WARN"
    assert found.body == "Loss stands still (train loss): 2000 steps at step 2099; threshold 2000"
    assert dict(found.attributes) == {
        "metric": "train.loss",
        "split": "train",
        "best": 0.5,
        "value": 2_000,
        "threshold": 2_000,
        "dl.step": 2_099,
    }
    assert watched.values("dl.steps_since_improvement") == [5_899 - 99]


def test_a_falling_loss_is_none() -> None:
    """1.1 % lower within 2,000 steps is enough."""
    watched = Watched()
    train(watched, range(20_000), lambda step: 0.989 ** (step / 2_000))
    assert watched.told == []


def test_nine_tenths_of_a_percent_are_not_enough() -> None:
    """The loss falls all the time, but its improvement comes 200 steps late; then the condition is over."""
    watched = Watched()
    train(watched, range(4_000), lambda step: 0.991 ** (step / 2_000))
    assert [row[0::3] for row in watched.told] == [("plateau", False), ("plateau", True)]
    assert watched.told[0][1:3] == (2_099, 2_000)
    assert watched.told[1][2] < 2_000


@pytest.mark.parametrize("noise", [0.02, 0.1, 0.3])
@pytest.mark.parametrize("seed", range(5))
def test_a_noisy_loss_that_stands_still_is_found_within_twice_the_time(noise: float, seed: int) -> None:
    """Single lucky batches are no improvement."""
    draw = random.Random(seed)
    watched = Watched()
    train(watched, range(4_200), lambda step: abs(draw.gauss(1, noise)))
    assert [row[0] for row in watched.told if not row[3]][:1] == ["plateau"]
    assert 2_099 <= watched.told[0][1] <= 4_099


@pytest.mark.parametrize("seed", range(5))
def test_a_noisy_loss_that_falls_by_a_tenth_is_none(seed: int) -> None:
    """The long windows see through noise of 30 % a batch that the short ones do not."""
    draw = random.Random(seed)
    watched = Watched()
    train(watched, range(12_000), lambda step: 0.9 ** (step / 2_000) * abs(draw.gauss(1, 0.3)))
    assert watched.told == []


@pytest.mark.parametrize("last", [500, 900])
def test_a_smooth_loss_that_falls_after_a_spike_is_none(last: int) -> None:
    """The one rise of a warm-up is not taken for noise, which a loss without any could never get below again."""
    watched = Watched()
    train(watched, range(9_000), lambda step: 3.0 if 400 <= step < last else 0.9 ** (step / 2_000))
    assert watched.told == []


def test_a_plateau_is_over_when_the_loss_falls_again() -> None:
    """The window of steps 3,000 to 3,099 is better; it is told as over, and a second plateau as a second one."""
    watched = Watched()
    train(watched, range(7_000), lambda step: 0.5 if step < 3_000 else 0.4)
    assert watched.told == [
        ("plateau", 2_099, 2_000, False),
        ("plateau", 3_099, 0, True),
        ("plateau", 5_099, 2_000, False),
    ]


def test_validation_counts_where_it_is_logged() -> None:
    """Training's loss falls for ever; that of validation has its best at step 400, and evaluations come each 100."""
    watched = Watched({"plateau_steps": 1_000, "overfit_gap": 0})
    for step in range(2_000):
        watched.log({"loss": math.exp(-step / 500)}, step)
        if step % 100 == 0:
            watched.log({"loss": 1 - min(step, 400) / 1_000}, step, "val")
            watched.settle()
    assert watched.told == [("plateau", 1_400, 1_000, False)]
    assert watched.findings[0].attributes["split"] == "val"


def test_one_bad_evaluation_is_no_plateau() -> None:
    """Evaluations that are rarer than plateau_steps: it takes three in a row that are no better."""
    watched = Watched({"plateau_steps": 1_000, "overfit_gap": 0})
    losses = [1.0, 0.8, 0.9, 0.85, 0.6, 0.7, 0.65, 0.62, 0.7]
    for number, loss in enumerate(losses):
        watched.log({"val_loss": loss}, number * 5_000)
        watched.settle()
    watched.log({"loss": 0.1}, 50_000)
    watched.settle()
    assert watched.told == [("plateau", 35_000, 15_000, False)]


def test_batches_of_one_evaluation_are_one_value() -> None:
    """Ten batches each, of 0.1 to 1.9, have the mean 1.0: nothing becomes better for its best batch."""
    watched = Watched({"plateau_steps": 100, "overfit_gap": 0})
    for step in range(0, 400, 20):
        for batch in range(10):
            watched.log({"loss": 0.1 + 0.2 * batch}, step, "val")
        watched.log({"other": 1.0}, step + 1, "train")
        watched.settle()
    assert watched.told == [("plateau", 100, 100, False)]


def test_a_metric_that_counts_up_improves_upwards() -> None:
    """With a direction of the user's: half as good after it was 0.8 is no improvement."""
    watched = Watched({"plateau_steps": 200})
    watched.recording.summaries.goals["score"] = "max"
    train(watched, range(1_000), lambda step: min(0.8, step / 500), key="score", every=10)
    # It reaches 0.8 at step 400; better by 1 % than the window before was the one up to 399: 0.788 or so.
    ((name, step, value, over),) = watched.told
    assert (name, value, over) == ("plateau", 200, False)
    assert 599 <= step <= 619


def test_the_loss_counts_and_not_every_metric_with_a_direction() -> None:
    """An accuracy that stands still beside a loss that falls is no plateau; its own steps are told all the same."""
    watched = Watched({"plateau_steps": 100})
    watched.recording.summaries.goals["accuracy"] = "max"
    for step in range(1_000):
        watched.log({"loss": 0.999**step, "accuracy": 0.9}, step)
    watched.settle()
    assert watched.told == []
    assert watched.values("dl.steps_since_improvement") == [0, 990]


def test_a_direction_may_be_given_late() -> None:
    """`run.define` after the first points: from then on it is watched."""
    watched = Watched({"plateau_steps": 100})
    train(watched, range(100), lambda step: 1.0, key="reward")
    assert watched.values("dl.steps_since_improvement") == []
    watched.recording.summaries.goals["reward"] = "max"
    train(watched, range(100, 300), lambda step: 1.0, key="reward")
    assert watched.told == [("plateau", 204, 100, False)]


def test_another_axis_is_not_watched() -> None:
    """Its steps are not those that plateau_steps counts."""
    watched = Watched({"plateau_steps": 100})
    for step in range(2_000):
        watched.recording.log.log({"loss": 1.0}, step, axis="env_step")
    watched.settle()
    assert watched.told == []


def test_calls_without_steps_count_as_steps() -> None:
    """A run that logs once an epoch, by epochs alone: each call is a step."""
    watched = Watched({"plateau_steps": 20})
    for epoch in range(60):
        watched.recording.log.log({"train/loss": 1.0 if epoch else 2.0, "val/loss": 1.1}, epoch=epoch)
        watched.settle()
    assert watched.told == [("plateau", 20, 20, False)]


model_values = st.one_of(
    st.floats(-1e3, 1e3),
    st.sampled_from([0.0, 1.0, 0.995, 0.99, 0.985, math.nan, math.inf, -math.inf]),
)


def model(values: Sequence[float], steps: Sequence[int], share: float, *, maximise: bool) -> list[tuple[int, int]]:
    """Say the same as `Improvement` for single values, by looking at the whole past each time."""
    sign = -1 if maximise else 1
    told = []
    for count in range(1, len(values) + 1):
        best, better, changes, before, misses = None, 0, [], None, 0
        for value, step in zip(values[:count], steps[:count], strict=True):
            value = sign * value
            misses += 1
            if not math.isfinite(value):
                continue
            changes += [value - before] if before is not None else []
            before = value
            rises = [change for change in changes[-18:] if change > 0]
            margin = 0.0 if best is None else max(share * abs(best), 2 * median(rises) if len(rises) >= 3 else 0)
            if best is None or value < best - margin:
                best, better, misses = value, step, 0
        told.append((steps[count - 1], steps[count - 1] - better if misses >= 3 else 0))
    return told


@given(
    values=st.lists(model_values, min_size=1, max_size=40),
    gaps=st.lists(st.integers(1, 9), min_size=40, max_size=40),
    cuts=st.sets(st.integers(1, 39)),
    percent=st.sampled_from([0.0, 1.0, 5.0]),
    maximise=st.booleans(),
)
def test_steps_since_improvement_are_those_of_a_plain_model(
    values: list[float], gaps: list[int], cuts: set[int], percent: float, maximise: bool
) -> None:
    """However the points are cut into batches, for zero, negative and non-finite values too."""
    steps = [sum(gaps[: place + 1]) for place in range(len(values))]
    improvement = Improvement(percent=percent, maximise=maximise)
    edges = sorted({0, len(values)} | {cut for cut in cuts if cut < len(values)})
    for start, stop in pairwise(edges):
        improvement.take(steps[start:stop], values[start:stop])
    improvement.pass_by(steps[-1] + 1)
    assert improvement.judged == model(values, steps, percent / 100, maximise=maximise)
    assert improvement.steps_since == improvement.judged[-1][1]


@given(
    points=st.lists(st.tuples(st.integers(0, 50), st.sampled_from([1.0, 2.0, 4.0, math.nan])), min_size=1, max_size=60),
    width=st.integers(1, 12),
    cuts=st.sets(st.integers(1, 59)),
    in_order=st.booleans(),
)
def test_windows_are_means_over_steps(
    points: list[tuple[int, float]], width: int, cuts: set[int], in_order: bool
) -> None:
    """Whatever the order and the batches; steps that go back begin another window."""
    points = sorted(points, key=lambda point: point[0]) if in_order else points
    steps, values = [step for step, _ in points], [value for _, value in points]
    windows = Windows(width)
    ended = []
    edges = sorted({0, len(points)} | {cut for cut in cuts if cut < len(points)})
    for start, stop in pairwise(edges):
        ended += windows.take(steps[start:stop], values[start:stop])
    ended += windows.pass_by(10_000)
    expected: list[tuple[int, list[float]]] = []
    window = None
    for step, value in points:
        if step // width != window:
            expected.append((step, []))
        window = step // width
        expected[-1] = step, [*expected[-1][1], value]
    assert [step for step, _ in ended] == [step for step, _ in expected]
    for (_, mean), (_, together) in zip(ended, expected, strict=True):
        finite = [value for value in together if math.isfinite(value)]
        assert mean == pytest.approx(sum(finite) / len(finite)) if finite else math.isnan(mean)


def test_going_back_to_an_earlier_step_gives_training_its_time_again() -> None:
    """After a roll-back to step 300 the count begins there."""
    improvement = Improvement(percent=1.0, maximise=False)
    improvement.take([0, 100, 500], [3.0, 2.0, 1.0])
    improvement.take([300, 301, 302, 303], [2.0, 2.0, 2.0, 2.0])
    improvement.pass_by(304)
    assert improvement.judged[-2:] == [(302, 2), (303, 3)]


# Overfit --------------------------------------------------------------------------------------------------------------


def test_the_gap_is_measured_by_the_loss_at_the_beginning() -> None:
    """Training 2.0 at first and 0.2 now, validation 0.5: the gap is 0.3 / 2.0."""
    watched = Watched()
    for step in range(5):
        watched.log({"loss": 2.0}, step)
    watched.log({"val_loss": 2.0}, 4)
    for step in range(5, 10):
        watched.log({"loss": 0.2}, step)
    watched.log({"val_loss": 0.5}, 9)
    watched.log({"loss": 0.0}, 10)
    watched.settle()
    assert watched.values("dl.overfit.gap") == [pytest.approx(0.15)]
    assert watched.told == [("overfit", 9, pytest.approx(0.15), False)]
    assert watched.findings[0].attributes["metric"] == "train.loss"
    assert watched.kept == [{"train.loss": 2.0}]


def test_drifting_apart_is_told_once_and_its_end_too() -> None:
    """Validation rises from epoch to epoch: over 0.1 in the fourth, further on nothing more, at last back at 0.05."""
    watched = Watched({"plateau_steps": 0})
    for epoch, validation in enumerate([1.0, 0.9, 0.95, 1.15, 1.3, 1.1, 1.05]):
        for step in range(epoch * 10, epoch * 10 + 10):
            watched.log({"loss": 1.0}, step)
        watched.log({"loss": validation}, epoch * 10 + 9, "val")
        watched.settle()
    watched.log({"loss": 1.0}, 70)
    watched.settle()
    # 1.10 is within the share by which a value must come back.
    assert watched.told == [
        ("overfit", 39, pytest.approx(0.15), False),
        ("overfit", 69, pytest.approx(0.05), True),
    ]


def test_training_is_averaged_since_the_evaluation_before() -> None:
    """Later points of the same batch are left for the next evaluation."""
    gap = OverfitGap()
    gap.take_training(range(10), [4.0] * 10)
    gap.take_validation([4], [5.0])
    gap.take_training(range(10, 20), [2.0] * 10)
    assert gap.settle(19) == [(4, 0.25)]
    gap.take_validation([19], [5.0])
    # Steps 5 to 9 with 4.0 and ten with 2.0: a mean of 40 / 15.
    assert gap.settle(20) == [(19, pytest.approx((5 - 40 / 15) / 4))]


def test_an_evaluation_before_training_is_compared_with_nothing() -> None:
    """There is no gap yet, and no scale; the second evaluation has both."""
    gap = OverfitGap()
    gap.take_validation([0], [9.0])
    assert gap.settle(1) == []
    gap.take_training([1], [3.0])
    gap.take_validation([1], [3.3])
    assert gap.settle(2) == [(1, pytest.approx(0.1))]


def test_the_loss_counts_for_the_gap_where_it_has_one() -> None:
    """A second loss that drifts apart is left out beside it; where the loss has no validation it is what there is."""
    watched = Watched()
    for step in range(3):
        watched.log({"loss": 1.0, "aux_loss": 1.0}, step)
        watched.log({"aux_loss": 2.0}, step, "val")
        watched.settle()
    assert watched.told == [("overfit", 0, 1.0, False)]
    assert watched.findings[0].attributes["metric"] == "train.aux_loss"
    other = Watched()
    for step in range(3):
        other.log({"loss": 1.0, "aux_loss": 1.0}, step)
        other.log({"loss": 1.0, "aux_loss": 2.0}, step, "val")
    other.settle()
    assert other.told == []
    assert other.values("dl.overfit.gap") == [0.0]


def test_values_that_are_not_finite_make_no_gap() -> None:
    """They have a condition of their own."""
    gap = OverfitGap()
    gap.take_training([0, 1, 2], [math.nan, 1.0, math.inf])
    gap.take_validation([2], [math.nan])
    gap.take_validation([3], [1.5])
    assert gap.settle(4) == [(3, 0.5)]


def test_a_healthy_run_with_a_loss_near_zero_is_silent() -> None:
    """Training reaches 0.001 and validation stays at 0.1 of 2.3 at the beginning: seen relatively a hundredfold."""
    watched = Watched()
    for step in range(2_000):
        watched.log({"loss": 2.3 * math.exp(-step / 250) + 0.001}, step)
        if step % 100 == 99:
            watched.log({"loss": 2.3 * math.exp(-step / 250) + 0.1}, step, "val")
            watched.settle()
    assert watched.told == []
    assert watched.values("dl.overfit.gap")[0] == pytest.approx(0.05, abs=0.01)


def test_a_resumed_run_knows_the_loss_of_its_beginning() -> None:
    """Else the small loss that it goes on with would be the measure."""
    watched = Watched(scales={"train.loss": 2.0})
    watched.log({"loss": 0.1}, 500)
    watched.log({"val_loss": 0.2}, 500)
    watched.log({"loss": 0.1}, 501)
    watched.settle()
    assert watched.values("dl.overfit.gap") == [pytest.approx(0.05)]
    assert watched.told == watched.kept == []


# Gradients ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "is_one"),
    [
        ("grad_norm", True),
        ("train/grad_norm", True),
        ("gradient_norm", True),
        ("global_grad_norm", True),
        ("grad/norm", True),
        ("optim.grad_norm.total", True),
        ("gnorm", True),
        ("grad_2.0_norm_total", True),
        ("grad_norm/layer1", False),
        ("layer_norm", False),
        ("upgrade_norm", False),
        ("grad_norm_clip", False),
    ],
)
def test_names_of_gradient_norms(key: str, is_one: bool) -> None:
    """What people call it; not those of single layers."""
    assert is_gradient_norm(key) is is_one


def test_three_norms_in_a_row_explode() -> None:
    """Ten times the usual 2.0 is exceeded at steps 60 to 64; the third of them is the onset, and it is over after."""
    watched = Watched()
    train(watched, range(100), lambda step: 50.0 if 60 <= step < 65 else 2.0, key="grad_norm", every=10)
    assert watched.told == [("gradient_exploding", 62, 25.0, False), ("gradient_exploding", 69, 1.0, True)]
    assert watched.findings[0].attributes["metric"] == "train.grad_norm"
    assert watched.values("dl.grad.usual") == [2.0]
    assert watched.values("dl.grad.excess") == [1.0]
    assert watched.values("dl.grad.recent_max") == [50.0]


def test_a_burst_within_one_look_is_two_values_in_any_store() -> None:
    """Its begin and its end are milliseconds apart, since of one millisecond a store keeps the last value alone."""
    watched = Watched()
    train(watched, range(100), lambda step: 50.0 if 60 <= step < 65 else 2.0, key="grad_norm", every=100)
    begin, end = watched.findings
    assert ([s.value for s in begin.samples], [s.value for s in end.samples]) == ([25.0], [1.0])
    assert end.time_ns - begin.time_ns == 2_000_000


def test_two_norms_in_a_row_do_not() -> None:
    """A single bad batch, or two, happen."""
    watched = Watched()
    train(watched, range(200), lambda step: 90.0 if step % 50 in (7, 8) else 1.0, key="grad_norm")
    assert watched.told == []


def test_norms_that_are_not_finite_explode() -> None:
    """Their excess is infinite, which strict JSON writes as a text."""
    watched = Watched()
    norms = {40: math.nan, 41: math.inf, 42: math.nan}
    train(watched, range(60), lambda step: norms.get(step, 1.0), key="grad_norm", every=60)
    assert watched.told == [("gradient_exploding", 42, "Infinity", False), ("gradient_exploding", 59, 1.0, True)]


def test_the_search_for_a_loss_scale_at_the_start_is_normal() -> None:
    """Before twenty norms were finite none is usual."""
    watched = Watched()
    train(watched, range(40), lambda step: math.inf if step < 12 else 1.0, key="grad_norm", every=5)
    assert watched.told == []


def test_a_gradient_that_has_vanished_for_a_hundred_norms() -> None:
    """From step 200 on it is 1e-9: at step 299 all of the last hundred are."""
    watched = Watched()
    train(watched, range(400), lambda step: 1.0 if step < 200 else 1e-9, key="grad_norm", every=1)
    assert watched.told == [("gradient_vanishing", 299, 1e-9, False)]


def test_what_is_usual_does_not_hang_on_batches() -> None:
    """The same norms in one batch or one by one find the same onset."""
    draw = random.Random(1)
    norms = [draw.lognormvariate(0, 0.3) for _ in range(300)] + [40.0] * 4
    whole, single = GradientNorm(), GradientNorm()
    found = whole.take(range(304), norms, 10.0)
    one_by_one = [single.take([step], [norm], 10.0) for step, norm in enumerate(norms)]
    assert found is not None
    assert found == next(crossing for crossing in one_by_one if crossing)
    assert found[0] == 302
    assert whole.usual == single.usual
    assert whole.excess == single.excess


# Pace -----------------------------------------------------------------------------------------------------------------


def test_a_run_that_makes_no_steps_has_stalled_after_two_minutes() -> None:
    """Steps of 0.1 s: the limit is 120 s. It is told once, and its end with the next step."""
    watched = Watched()
    for number in range(50):
        watched.step(number)
    watched.settle()
    assert watched.values("dl.step.age") == [0.0]
    for _ in range(4):
        watched.pass_s(60)
        watched.settle()
    assert watched.told == [("stalled", 49, 180.0, False)]
    assert watched.findings[0].severity == "ERROR"
    assert watched.findings[0].attributes["threshold"] == 120
    watched.step(50)
    watched.settle()
    assert watched.told[1:] == [("stalled", 50, 0.0, True)]


def test_slow_steps_have_their_own_limit() -> None:
    """Ten times 30 s are 300 s; after 290 s nothing is told."""
    watched = Watched()
    for number in range(3):
        watched.step(number, took_s=30)
    watched.pass_s(290)
    assert watched.settle() == []
    watched.pass_s(20)
    watched.settle()
    assert watched.told == [("stalled", 2, 310.0, False)]


@pytest.mark.parametrize("steps", [0, 1])
def test_a_run_that_has_just_begun_has_not_stalled(steps: int) -> None:
    """Loading data and compiling take their time: nothing is late before the second step."""
    watched = Watched()
    for number in range(steps):
        watched.step(number)
    watched.pass_s(3_600)
    assert watched.settle() == []
    assert watched.values("dl.step.age") == []


@pytest.mark.parametrize("doing", ["evaluation", "checkpoint", IN_A_STAGE, OUTSIDE])
def test_a_run_that_does_something_else_has_not_stalled(doing: str) -> None:
    """Half an hour of it; then its time begins anew."""
    watched = Watched()
    for number in range(20):
        watched.step(number)
    watched.doing = doing
    for _ in range(30):
        watched.pass_s(60)
        assert watched.settle() == []
        assert watched.values("dl.step.age") == [0.0]
    watched.doing = ""
    watched.pass_s(119)
    assert watched.settle() == []
    watched.pass_s(2)
    assert [found.event for found in watched.settle()] == ["health.stalled"]


def test_a_run_that_has_ended_has_not_stalled() -> None:
    """Its last look finds nothing, and its last heartbeat gives thresholds alone."""
    watched = Watched()
    for number in range(20):
        watched.step(number)
    watched.pass_s(1_000)
    assert watched.settle(ended=True) == []
    assert {sample.name for sample in watched.health.heartbeat(ended=True)} == {"dl.alert.threshold"}


def test_a_loop_by_hand_can_stall_too() -> None:
    """Calls of `log` that are 60 s apart: it has stalled after 600 s."""
    watched = Watched()
    watched.doing = OUTSIDE
    for step in range(5):
        time_ns = WALL_NS + watched.now_ns
        watched.recording.buffer.extend((_group(watched), time_ns, step, None, {"loss": 1.0 / (1 + step)}, None))
        watched.settle()
        watched.pass_s(60)
    watched.pass_s(540)
    assert watched.settle() == []
    watched.pass_s(10)
    watched.settle()
    assert watched.told == [("stalled", 4, 610.0, False)]


def test_calls_of_log_may_come_in_bursts() -> None:
    """A hundred for each evaluation, then none for ten minutes: what went well once is no stall the next time."""
    watched = Watched()
    step = 0
    for _ in range(3):
        for _ in range(100):
            time_ns = WALL_NS + watched.now_ns
            watched.recording.buffer.extend((_group(watched), time_ns, step, None, {"val_loss": 1.0}, None))
            watched.pass_s(0.01)
            step += 1
            watched.settle()
        for _ in range(10):
            watched.pass_s(60)
            watched.settle()
    # The first pause was told: nobody knew.
    assert [row[0::3] for row in watched.told if row[0] == "stalled"] == [("stalled", False), ("stalled", True)]
    watched.pass_s(601)
    assert [found.event for found in watched.settle()] == ["health.stalled"]


def _group(watched: Watched) -> Any:
    return watched.recording.log._groups[None]


def test_the_share_of_waiting_is_that_of_the_last_minutes() -> None:
    """3 of 10 tenths of each step: told once a minute of steps is there; without the first step, the loader's start."""
    watched = Watched()
    watched.step(0, took_s=30, waited_s=29)
    for number in range(1, 80):
        watched.step(number, took_s=1.0, waited_s=0.3)
        watched.settle()
    assert watched.told == [("data_wait", 60, pytest.approx(0.3), False)]
    assert watched.values("dl.data.wait.share") == [pytest.approx(0.3)]
    for number in range(80, 400):
        watched.step(number, took_s=1.0, waited_s=0.0)
        watched.settle()
    assert [row[0::3] for row in watched.told] == [("data_wait", False), ("data_wait", True)]
    assert watched.values("dl.data.wait.share") == [0.0]


def test_waiting_of_an_evaluation_is_not_trainings() -> None:
    """Its batches are another loop's."""
    watched = Watched()
    for number in range(200):
        watched.step(number, took_s=1.0, waited_s=0.05)
        watched.step(number, took_s=1.0, waited_s=0.9, split="val")
        watched.settle()
    assert watched.told == []


# The machine ----------------------------------------------------------------------------------------------------------

CARD = (("hw.id", "GPU-1"), ("hw.name", "H200"), ("index", 0))


def every_5_s(watched: Watched, seconds: int, *samples: Sample, step: bool = True) -> None:
    """Readings of the machine each five seconds, beside a step."""
    for _ in range(seconds // 5):
        if step:
            watched.step(0, took_s=5.0)
        else:
            watched.pass_s(5)
        watched.samples(*samples)
        watched.settle()


def busy(share: float) -> Sample:
    return Sample("hw.gpu.utilization", share, (*CARD, ("hw.gpu.task", "general")))


def test_a_gpu_that_idles_for_ten_minutes_of_training() -> None:
    """40 % are too little once ten minutes of training are over, and no sooner; it is over when it works again."""
    watched = Watched()
    every_5_s(watched, 600, busy(0.4))
    assert watched.told == []
    every_5_s(watched, 10, busy(0.4))
    assert watched.told == [("gpu_idle", 0, pytest.approx(0.4), False)]
    assert watched.findings[0].attributes["hw.id"] == "GPU-1"
    assert watched.findings[0].body.startswith("GPU idles (GPU 0): 0.4 share of time")
    assert watched.values("dl.gpu.busy.share") == [pytest.approx(0.4)]
    every_5_s(watched, 600, busy(0.9))
    assert [row[0::3] for row in watched.told] == [("gpu_idle", False), ("gpu_idle", True)]


def test_a_gpu_is_not_idle_before_training_nor_in_another_stage_nor_after_a_gap() -> None:
    """What does not train may leave it alone, and after a pause its ten minutes begin anew."""
    watched = Watched()
    every_5_s(watched, 1_200, busy(0.0), step=False)
    watched.doing = IN_A_STAGE
    watched.step(0)
    every_5_s(watched, 1_200, busy(0.0), step=False)
    watched.doing = ""
    every_5_s(watched, 590, busy(0.0))
    watched.pass_s(100)
    every_5_s(watched, 590, busy(0.0))
    assert "gpu_idle" not in [row[0] for row in watched.told]
    assert watched.values("dl.gpu.busy.share") == []


def test_alternating_readings_count_by_their_mean() -> None:
    """A card that is read at 100 % and 40 % in turn is busy for 70 %."""
    watched = Watched()
    for _ in range(200):
        every_5_s(watched, 5, busy(1.0))
        every_5_s(watched, 5, busy(0.4))
    assert watched.told == []


@pytest.mark.parametrize(
    ("name", "bad", "good", "value"),
    [
        ("gpu_hot", Sample("hw.temperature", 91, (*CARD, ("hw.type", "gpu"))), 70, 91),
        ("gpu_throttled", Sample("hw.gpu.throttled", 1, (*CARD, ("reason", "hw_thermal_slowdown"))), 0, 1),
        ("disk_full", Sample("system.filesystem.utilization", 0.97), 0.5, 0.97),
        ("memory_full", Sample("system.memory.utilization", 0.99), 0.5, 0.99),
    ],
)
def test_conditions_of_the_machine_hold_for_a_minute(name: str, bad: Sample, good: float, value: float) -> None:
    """55 s are none, 60 s are one, ten minutes are no more; then it is over."""
    fine = Sample(bad.name, good, bad.attributes)
    watched = Watched()
    every_5_s(watched, 60, bad)
    every_5_s(watched, 5, fine)
    assert watched.told == []
    every_5_s(watched, 65, bad)
    assert [row[0] for row in watched.told] == [name]
    assert watched.told[0][2] == value
    every_5_s(watched, 600, bad)
    every_5_s(watched, 60, fine)
    assert [row[0::3] for row in watched.told] == [(name, False), (name, True)]


@pytest.mark.parametrize("reason", ["gpu_idle", "sw_power_cap", "applications_clocks_setting"])
def test_normal_reasons_for_a_low_clock_are_none(reason: str) -> None:
    """Idleness, set clocks, and the power cap of every busy card."""
    watched = Watched()
    every_5_s(watched, 300, Sample("hw.gpu.throttled", 1, (*CARD, ("reason", reason))))
    assert watched.told == []


def ecc(count: int, kind: str = "uncorrected") -> Sample:
    return Sample("hw.errors", count, (*CARD, ("hw.type", "gpu"), ("error.type", kind)))


def test_memory_errors_of_a_card_count_from_the_runs_beginning() -> None:
    """Seven from before are none; two more are, once; corrected ones never are."""
    watched = Watched()
    every_5_s(watched, 60, ecc(7), ecc(900, "corrected"))
    assert watched.told == []
    every_5_s(watched, 60, ecc(9), ecc(99_900, "corrected"))
    assert watched.told == [("gpu_ecc", 0, 2, False)]
    assert watched.findings[0].severity == "ERROR"
    every_5_s(watched, 600, ecc(9))
    assert watched.told[1:] == [("gpu_ecc", 0, 0, True)]


def test_memory_is_that_of_the_control_group_where_that_is_nearer() -> None:
    """97 of 100 GB, of which 50 are cached files that the kernel gives back: 47 %. Without these it is nearly full."""
    watched = Watched()
    host = Sample("system.memory.utilization", 0.3)
    limit = Sample("dl.container.memory.limit", 100e9)
    used = Sample("container.memory.usage", 97e9)
    every_5_s(watched, 300, host, limit, used, Sample("dl.container.memory.reclaimable", 50e9))
    assert watched.told == []
    assert watched.values("dl.memory.share") == [pytest.approx(0.47)]
    every_5_s(watched, 65, host, limit, used, Sample("dl.container.memory.reclaimable", 1e9))
    assert watched.told == [("memory_full", 0, pytest.approx(0.96), False)]
    assert watched.findings[0].attributes["of"] == "control group"


# The whole ------------------------------------------------------------------------------------------------------------


def test_thresholds_are_given_at_each_heartbeat() -> None:
    """The main rank gives all of them, as its user set them; another only the two that its step times make."""
    watched = Watched({"plateau_steps": 500, "overfit_gap": 0, "gpu_utilization": "off"})
    given = {
        dict(sample.attributes)["alert"]: sample.value
        for sample in watched.health.heartbeat(ended=False)
        if sample.name == "dl.alert.threshold"
    }
    assert list(given) == list(CONDITIONS)
    assert given["plateau"] == 500
    assert given["overfit"] == math.inf
    assert given["gpu_idle"] == 0
    assert given["data_wait"] == 0.2
    other = Watched(main=False)
    for number in range(3):
        other.step(number, took_s=20)
    other.settle()
    assert [(s.name, s.value) for s in other.health.heartbeat(ended=False)] == [
        ("dl.alert.threshold", 200.0),
        ("dl.alert.threshold", 200.0),
        ("dl.step.age", 0.0),
    ]


def test_what_is_switched_off_is_not_told() -> None:
    """A plateau, an explosion and a stall of a run that wants to hear of none."""
    watched = Watched({"plateau_steps": 0, "gradient_max": 0, "gradient_min": 0, "stalled_factor": 0})
    for step in range(5_000):
        watched.log({"loss": 1.0, "grad_norm": 1e-9 if step < 200 else math.inf}, step)
    watched.settle()
    for number in range(20):
        watched.step(number)
    watched.pass_s(3_600)
    watched.settle()
    assert watched.told == []


def test_an_onset_brings_its_value_at_once() -> None:
    """A rule need not wait for the heartbeat; every reading is of the table of names."""
    watched = Watched({"plateau_steps": 100})
    train(watched, range(400), lambda step: 1.0)
    (found,) = watched.findings
    assert [(s.name, s.value, s.attributes) for s in found.samples] == [
        ("dl.steps_since_improvement", 100, (("metric", "train.loss"), ("split", "train")))
    ]
    for sample in [*found.samples, *watched.health.heartbeat(ended=False)]:
        assert {key for key, _ in sample.attributes} <= set(METRICS[sample.name].attributes)
