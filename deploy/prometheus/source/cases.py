"""Writes the tests of the rules for `promtool test rules`: each condition over the runs that it may meet.

Each alert fires, by exactly its own labels, and nothing else does. It is silent on a healthy run, over NaN, after the
run's end and at its beginning, where the run's own threshold is another, and where the condition is off. A gap of a
minute neither ends nor starts it; attempts and hosts make it neither many nor none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from deploy.prometheus.source.cases_of_ends import end_tests
from deploy.prometheus.source.cases_of_pipeline import pipeline_tests
from deploy.prometheus.source.cases_of_ranks import rank_tests
from deploy.prometheus.source.expected import GPU, labels_of
from deploy.prometheus.source.run_alerts import LAST_COUNTS, alert_name, built_in
from deploy.prometheus.source.scenario import STEP_S, Run, Scene, as_test, constant, missing, named
from otel_train.watch.conditions import CONDITIONS, Condition

WELL_POINTS = 12
ILL_POINTS = 12
BEGIN_S = WELL_POINTS * STEP_S
# Until a value that came at a point has been seen by a rule, which is evaluated every 5 s.
SEEN_S = 10
OFF = float("inf")


@dataclass(frozen=True)
class Sign:
    """How a condition's metric looks when all is well, and when it is not; with the labels of its series."""

    well: float
    ill: float
    labels: Mapping[str, str]
    # A counter: `ill` is what it stands at afterwards, so it does not come back.
    counts: bool = False


# Both look at the same time: in tests of the one the other is off.
TWINS = {"stalled": "hung", "hung": "stalled"}
SIGNS = {
    "plateau": Sign(100, 2500, {"metric": "train.loss", "split": "train"}),
    "overfit": Sign(0.01, 0.3, {"metric": "train.loss"}),
    "gradient_exploding": Sign(1.1, 50, {"metric": "train.grad_norm"}),
    "gradient_vanishing": Sign(1, 1e-9, {"metric": "train.grad_norm"}),
    "stalled": Sign(20, 300, {}),
    "hung": Sign(20, 300, {}),
    "dead_units": Sign(0.1, 0.9, {"layer": "fc1"}),
    "amp_skipping": Sign(0.02, 0.9, {}),
    "samples_bad": Sign(0, 0.05, {"split": "train"}),
    "samples_drift": Sign(0.01, 0.4, {"split": "train"}),
    "memory_growth": Sign(1e6, 600, {}),
    "straggler": Sign(1, 3, {}),
    "data_wait": Sign(0.05, 0.5, {}),
    "gpu_idle": Sign(0.95, 0.1, GPU),
    "gpu_hot": Sign(60, 92, {**GPU, "hw_type": "gpu"}),
    "gpu_throttled": Sign(0, 1, {**GPU, "reason": "hw_thermal_slowdown"}),
    "gpu_ecc": Sign(3, 4, {**GPU, "hw_type": "gpu", "error_type": "uncorrected"}, counts=True),
    "disk_full": Sign(0.5, 0.99, {}),
    "memory_full": Sign(0.4, 0.97, {}),
}


def case_files() -> dict[str, dict[str, Any]]:
    """Return the test files by name."""
    tests = [as_test("a healthy run", [_healthy()])]
    tests += [as_test(name, _scenes(CONDITIONS[name], sign)) for name, sign in SIGNS.items()]
    # Heartbeats are those of every 15 s; that they come more often here does not matter.
    spikes = [_spike(CONDITIONS[name], sign) for name, sign in SIGNS.items() if not sign.counts]
    tests.append(as_test("a spike between two evaluations", spikes, interval_s=1))
    tests.append(as_test("nonfinite", _nonfinite()))
    tests.append(as_test("a loss by a capital name", [_capital()]))
    return {
        "conditions.yaml": _file(tests, "runs.yaml"),
        "ends.yaml": _file(end_tests(), "runs.yaml"),
        "pipeline.yaml": _file(pipeline_tests(), "pipeline.yaml"),
        # Those of ranks ask whether the attempt is running.
        "ranks.yaml": _file(rank_tests(), "runs.yaml", "ranks.yaml"),
    }


def _file(tests: list[dict[str, Any]], *rules: str) -> dict[str, Any]:
    return {"rule_files": [f"../rules/{name}" for name in rules], "evaluation_interval": "5s", "tests": tests}


def _sign(name: str, run: Run, values: list[str]) -> dict[str, str]:
    return run.metric(CONDITIONS[name].metric, values, **SIGNS[name].labels)


def _run(condition: str, what: str, **arguments: Any) -> Run:
    """Return the run of a scene; thresholds that are given come to those that keep other conditions out of it."""
    thresholds = {TWINS[condition]: OFF} if condition in TWINS else {}
    thresholds |= arguments.pop("thresholds", {})
    return Run(f"{condition}-{what}", thresholds=thresholds, **arguments)


def _healthy() -> Scene:
    """All metrics of a healthy run, among them what looks like a fault and is none."""
    run = Run("healthy", gap=(50, 54))
    given = run.own(all_states=True)
    signs = [_sign(name, run, constant(sign.well, run.points)) for name, sign in SIGNS.items()]
    given += {one["series"]: one for one in signs}.values()
    for reason in ("gpu_idle", "sw_power_cap", "applications_clocks_setting"):
        given.append(run.metric("hw.gpu.throttled", constant(1, run.points), **{**GPU, "reason": reason}))
    # Accuracy has long been at its best, while the loss still falls.
    given.append(run.metric("dl.steps_since_improvement", constant(9000, run.points), metric="train.accuracy"))
    corrected = {**GPU, "hw_type": "gpu", "error_type": "corrected"}
    given.append(run.metric("hw.errors", [str(point) for point in range(run.points)], **corrected))
    scene = Scene("healthy", given)
    for at_s in (5, 60, 600, 50 * STEP_S + 50, 55 * STEP_S, 1300):
        scene.at(at_s)
    return scene


def _scenes(condition: Condition, sign: Sign) -> list[Scene]:
    below = condition.comparison == "<"
    thresholds = {
        "own-not-reached": sign.ill / 2 if below else sign.ill * 2,
        "switched-off": 0.0 if below else OFF,
    }
    scenes = [
        _comes_and_goes(condition, sign),
        _ends(condition, sign),
        _has_gap(condition, sign),
        _begins(condition),
        _is_nan(condition),
        _attempts_and_hosts(condition, sign),
        *(_spared(condition, sign, what, threshold) for what, threshold in thresholds.items()),
    ]
    if sign.well and not sign.counts:
        scenes.append(_strict(condition, sign, sign.well * 2 if below else sign.well / 2))
    return scenes


def _ill(sign: Sign, points: int) -> list[str]:
    return [*constant(sign.well, WELL_POINTS), *constant(sign.ill, points - WELL_POINTS)]


def _comes_and_goes(condition: Condition, sign: Sign) -> Scene:
    name = condition.name
    run = _run(name, "comes-and-goes")
    ill = _ill(sign, run.points)
    back = [*ill[: WELL_POINTS + ILL_POINTS], *constant(sign.well, run.points - WELL_POINTS - ILL_POINTS)]
    over_s = BEGIN_S + ILL_POINTS * STEP_S
    fires = labels_of(name, run)
    scene = Scene(run.run_id, [*run.own(), _sign(name, run, ill if sign.counts else back)])
    scene.at(BEGIN_S - 5).at(BEGIN_S + condition.for_s + SEEN_S, fires).at(over_s - 5, fires)
    # A counter's rise is told for ten minutes.
    return scene.at(BEGIN_S + 615 if sign.counts else over_s + 45)


def _ends(condition: Condition, sign: Sign) -> Scene:
    run = _run(condition.name, "ends", points=WELL_POINTS + ILL_POINTS, end="finished")
    last_s = (run.points - 1) * STEP_S
    scene = Scene(run.run_id, [*run.own(), _sign(condition.name, run, _ill(sign, run.points))])
    scene.at(last_s - 5, labels_of(condition.name, run))
    for after_s in (5, 15, 60, 300):
        scene.at(last_s + after_s)
    return scene


def _has_gap(condition: Condition, sign: Sign) -> Scene:
    begin = WELL_POINTS + ILL_POINTS
    run = _run(condition.name, "has-gap", gap=(begin, begin + 4))
    scene = Scene(run.run_id, [*run.own(), _sign(condition.name, run, _ill(sign, run.points))])
    for point in range(begin, begin + 6):
        scene.at(point * STEP_S + 10, labels_of(condition.name, run))
    # It is still the alert that began then.
    since = f'min(ALERTS_FOR_STATE{{alertname="{alert_name(condition.name)}",run_id="{run.run_id}"}})'
    scene.checks.append(
        {
            "expr": since,
            "eval_time": f"{(begin + 8) * STEP_S}s",
            "exp_samples": [{"labels": "{}", "value": BEGIN_S}],
        }
    )
    return scene


def _begins(condition: Condition) -> Scene:
    """There is no value yet, but heartbeats and thresholds."""
    run = _run(condition.name, "begins", start=4, thresholds={condition.name: built_in(condition)})
    scene = Scene(run.run_id, run.own())
    for at_s in (60, 75, 90, 180):
        scene.at(at_s)
    return scene


def _is_nan(condition: Condition) -> Scene:
    run = _run(condition.name, "is-nan")
    return Scene(run.run_id, [*run.own(), _sign(condition.name, run, ["NaN"] * run.points)]).at(BEGIN_S).at(600)


def _spared(condition: Condition, sign: Sign, what: str, threshold: float) -> Scene:
    run = _run(condition.name, what, thresholds={condition.name: threshold})
    scene = Scene(run.run_id, [*run.own(), _sign(condition.name, run, _ill(sign, run.points))])
    return scene.at(BEGIN_S + condition.for_s + SEEN_S).at(BEGIN_S + 300)


def _strict(condition: Condition, sign: Sign, threshold: float) -> Scene:
    """The run's own threshold finds ill what others find healthy."""
    run = _run(condition.name, "strict", thresholds={condition.name: threshold})
    scene = Scene(run.run_id, [*run.own(), _sign(condition.name, run, constant(sign.well, run.points))])
    return scene.at(BEGIN_S, labels_of(condition.name, run))


def _attempts_and_hosts(condition: Condition, sign: Sign) -> Scene:
    """The first attempt ended on another host; then two ranks on two hosts are ill, each with its own thresholds."""
    name = condition.name
    thresholds = {name: built_in(condition)} | ({TWINS[name]: OFF} if name in TWINS else {})
    run_id = f"{name}-attempts-and-hosts"
    first = Run(run_id, points=WELL_POINTS - 4, end="interrupted", host="node-0", thresholds=thresholds)
    start = WELL_POINTS - 2
    second = [
        Run(run_id, attempt=2, rank=rank, host=f"node-{rank}", start=start, points=60, thresholds=thresholds)
        for rank in (0, 1)
    ]
    given = [*first.own(), _sign(name, first, constant(sign.well, first.points))]
    for run in second:
        given += [*run.own(), _sign(name, run, [*constant(sign.well, 8), *constant(sign.ill, 52)])]
    subjects = {str(labels_of(name, run)): labels_of(name, run) for run in second}.values()
    at_s = (start + 8) * STEP_S + condition.for_s + SEEN_S
    return Scene(run_id, given).at(at_s - condition.for_s - 15).at(at_s, *subjects).at(at_s + 120, *subjects)


def _capital() -> Scene:
    """The loss of `Loss/train` stands still; that an accuracy got better just now is no reason to be silent."""
    run = Run("plateau-of-a-capital-loss")
    values = _ill(SIGNS["plateau"], run.points)
    metric = CONDITIONS["plateau"].metric
    given = [run.metric(metric, values, metric="train.Loss", split="train")]
    given.append(run.metric(metric, constant(0, run.points), metric="train.accuracy", split="val"))
    scene = Scene(run.run_id, [*run.own(), *given])
    return scene.at(BEGIN_S - 5).at(BEGIN_S + SEEN_S, labels_of("plateau", run))


def _spike(condition: Condition, sign: Sign) -> Scene:
    """One point of a second is ill, and no evaluation falls on it."""
    run = _run(condition.name, "spike")
    values = [*constant(sign.well, 32), *constant(sign.ill, 1), *constant(sign.well, 57)]
    # What must last for a time by its meaning is not seen by its spike.
    fires = [] if condition.for_s or condition.name in LAST_COUNTS else [labels_of(condition.name, run)]
    return Scene(run.run_id, [*run.own(), _sign(condition.name, run, values)]).at(30).at(35, *fires).at(80)


def _nonfinite() -> list[Scene]:
    counter = {"metric": "train.loss", "kind": "nan"}
    split = {"split": "train"}
    rises = [*missing(WELL_POINTS), *constant(4, 90 - WELL_POINTS)]
    nan = [*constant(1, WELL_POINTS), *["NaN"] * 8, *["_"] * 8, *["NaN"] * 8, *constant(1, 54)]
    infinite = [*constant(1, WELL_POINTS), "+Inf", *constant(1, 77)]

    run = Run("nonfinite-first-value-of-a-counter")
    fires = labels_of("nonfinite", run)
    first = Scene(run.run_id, [*run.own(), run.metric("dl.nonfinite", rises, **counter)])
    first.at(BEGIN_S - 5).at(BEGIN_S + SEEN_S, fires).at(BEGIN_S + 115, fires).at(BEGIN_S + 145).at(BEGIN_S + 600)

    run = Run("nonfinite-old-values-after-a-gap", gap=(60, 70))
    gap = Scene(run.run_id, [*run.own(), run.metric("dl.nonfinite", rises, **counter)])
    gap.at(59 * STEP_S).at(71 * STEP_S).at(74 * STEP_S)

    run = Run("nonfinite-stays-while-steps-are-slow")
    slow = Scene(run.run_id, [*run.own(), named("train_loss", run, nan, **split)]).at(BEGIN_S - 5)
    for after_s in (SEEN_S, 130, 200, 350):
        slow.at(BEGIN_S + after_s, labels_of("nonfinite", run))
    slow.at((WELL_POINTS + 24) * STEP_S + SEEN_S)

    run = Run("nonfinite-gradient-and-loss-with-the-same-labels")
    both = [named(name, run, infinite, **split) for name in ("train_grad_norm", "train_loss", "dl_grad_norm")]
    infinity = Scene(run.run_id, [*run.own(), *both]).at(BEGIN_S + SEEN_S, labels_of("nonfinite", run))
    infinity.at(BEGIN_S + 30)

    # A loss scaler looks for its scale by gradients that overflow; of a layer nothing is said but by its count.
    run = Run("nonfinite-gradient-of-a-scaler")
    scaled = [named("dl_grad_norm", run, infinite), named("dl_amp_scale", run, constant(65536, run.points))]
    scaler = Scene(run.run_id, [*run.own(), *scaled]).at(BEGIN_S + SEEN_S).at(BEGIN_S + 30)
    run = Run("nonfinite-gradient-of-a-layer")
    layer = Scene(run.run_id, [*run.own(), named("dl_grad_norm", run, infinite, layer="fc1")]).at(BEGIN_S + SEEN_S)

    run = Run("nonfinite-ends", points=WELL_POINTS + 4, end="finished")
    last_s = (run.points - 1) * STEP_S
    own = [run.metric("dl.nonfinite", rises, **counter), named("train_loss", run, nan, **split)]
    ended = Scene(run.run_id, [*run.own(), *own]).at(last_s - 5, labels_of("nonfinite", run))
    ended.at(last_s + 5).at(last_s + 15).at(last_s + 60).at(last_s + 300)

    run = Run("nonfinite-switched-off", thresholds={"nonfinite": OFF})
    own = [run.metric("dl.nonfinite", rises, **counter), named("train_loss", run, nan, **split)]
    off = Scene(run.run_id, [*run.own(), *own]).at(5).at(15).at(BEGIN_S + SEEN_S).at(BEGIN_S + 100)
    return [first, gap, slow, infinity, scaler, layer, ended, off]
