"""Writes the tests of what is recorded of ranks: roll-ups, sums, the straggler by name, norms of a divided model."""

from __future__ import annotations

from typing import Any

from deploy.prometheus.source.expected import labels_of
from deploy.prometheus.source.scenario import STEP_S, Run, Scene, as_test, constant, named

TRAINING = {"split": "train"}


def rank_tests() -> list[dict[str, Any]]:
    """Return the tests."""
    return [_rollups(), _stragglers(), _shards()]


def _rollups() -> dict[str, Any]:
    """Four ranks on two hosts, one of them slow."""
    given = []
    for rank, step_s in enumerate((1.0, 2.0, 3.0, 10.0)):
        run = Run("four-ranks", rank=rank, host=f"node-{rank // 2}")
        given += run.own()
        given.append(run.metric("dl.step.usual_time", constant(step_s, run.points)))
        given.append(run.metric("dl.rank.samples_per_second", constant((64, 32, 20, 6.5)[rank], run.points)))
        given.append(run.metric("dl.rank.tokens_per_second", constant(1000 * (rank + 1), run.points)))
        for card in ("a", "b"):
            busy = 0.9 - rank / 10 if card == "a" else 0.5
            given.append(run.metric("hw.gpu.utilization", constant(busy, run.points), hw_id=card))
    worst = {"dl_rank": "3", "host_name": "node-1"}
    values: list[tuple[str, dict[str, str], float]] = [
        ("step_time_seconds:min", {}, 1),
        ("step_time_seconds:median", {}, 2.5),
        ("step_time_seconds:max", {}, 10),
        ("step_time_seconds:worst", worst, 10),
        # Of a rank's cards the mean; of ranks the one that does least is the worst.
        ("gpu_utilization_ratio:max", {}, 0.7),
        ("gpu_utilization_ratio:worst", worst, 0.55),
        # The job's rate is that of all ranks, each at its own pace.
        ("samples_per_second:sum", {}, 64 + 32 + 20 + 6.5),
        ("samples_per_second:worst", worst, 6.5),
        ("tokens_per_second:sum", {}, 10_000),
        ("tokens_per_second:min", {}, 1_000),
        # The last heartbeat before 310 s was at 300 s.
        ("heartbeat_age_seconds:max", {}, 10),
    ]
    return _test("roll-ups of ranks", given, [_value(f"run:{name}", "four-ranks", *rest) for name, *rest in values])


def _stragglers() -> dict[str, Any]:
    """All ranks have the same step time; the one that works longest is the straggler, not those that wait for it."""
    slow = _job("slow-rank", (0.4, 0.4, 0.5, 0.9))
    # 1 / (1 - 0.9 + 0.4), where 0.4 is the lower quartile of the four.
    slow.checks += [
        _value("run:straggler:worst", "slow-rank", {"dl_rank": "3", "host_name": "node-3"}, 2.0),
        _value("run:straggler:min", "slow-rank", {}, 1.0),
        _value("run:busy_time_seconds:median", "slow-rank", {}, 0.45),
    ]
    fires = labels_of("straggler", Run("slow-rank", rank=3, host="node-3"))
    slow.at(45).at(310, fires).at(600, fires)
    two = _job("slow-rank-of-two", (0.2, 0.9))
    # 1 / (1 - 0.9 + 0.375): the lower quartile of two lies near the quick one.
    two.checks.append(
        _value("run:straggler:worst", "slow-rank-of-two", {"dl_rank": "1", "host_name": "node-1"}, 1 / 0.475)
    )
    two.at(310, labels_of("straggler", Run("slow-rank-of-two", rank=1, host="node-1")))
    even = _job("even-ranks", (0.5, 0.52, 0.5, 0.48)).at(310).at(600)
    # Mostly communication: that one works twice as long delays nobody much.
    talking = _job("talking-ranks", (0.05, 0.05, 0.05, 0.1)).at(310).at(600)
    alone = _job("one-rank-alone", (0.9,)).at(310).at(600)
    patient = _job("slow-rank-own-threshold", (0.4, 0.4, 0.5, 0.9), thresholds={"straggler": 2.5}).at(310).at(600)
    ended = _job("slow-rank-ends", (0.4, 0.4, 0.5, 0.9), points=30, end="finished")
    ended.at(430, labels_of("straggler", Run("slow-rank-ends", rank=3, host="node-3"))).at(450).at(600)
    return as_test("stragglers", [slow, two, even, talking, alone, patient, ended])


def _job(run_id: str, busy_s: tuple[float, ...], **arguments: Any) -> Scene:
    scene = Scene(run_id)
    for rank, own_s in enumerate(busy_s):
        run = Run(run_id, rank=rank, host=f"node-{rank}", **arguments)
        scene.given += run.own()
        scene.given.append(run.metric("dl.step.time", constant(1.0, run.points), **TRAINING))
        scene.given.append(run.metric("dl.rank.busy.time", constant(own_s, run.points), **TRAINING))
    return scene


def _shards() -> dict[str, Any]:
    """Two ranks hold half of each layer; another run holds its model whole."""
    given = []
    for rank, (grad, weight, ratio) in enumerate(((3.0, 6.0, 0.001), (4.0, 8.0, 0.003))):
        run = Run("divided", rank=rank, host="node-1")
        given += run.own()
        for name, value in (("dl_grad_norm", grad), ("dl_weight_norm", weight), ("dl_update_ratio", ratio)):
            given.append(named(name, run, constant(value, run.points), part="shard", layer="fc1"))
    run = Run("undivided")
    given += [*run.own(), named("dl_grad_norm", run, constant(7, run.points), layer="fc1")]
    given.append(named("dl_update_ratio", run, constant(0.002, run.points)))
    layer = {"layer": "fc1"}
    # The updates are 0.006 and 0.024 long, together sqrt(0.006^2 + 0.024^2), of weights that are 10 long.
    together = (0.006**2 + 0.024**2) ** 0.5 / 10
    checks = [
        _value('run:grad_norm{run_id="divided"}', "divided", layer, 5),
        _value('run:weight_norm{run_id="divided"}', "divided", layer, 10),
        _value('run:update_ratio{run_id="divided"}', "divided", layer, together),
        _value('run:grad_norm{run_id="undivided"}', "undivided", layer, 7),
        _value('run:update_ratio{run_id="undivided"}', "undivided", {}, 0.002),
    ]
    return _test("norms of a model that ranks divide", given, checks)


def _test(name: str, given: list[dict[str, str]], checks: list[dict[str, Any]]) -> dict[str, Any]:
    return {"name": name, "interval": f"{STEP_S}s", "input_series": given, "promql_expr_test": checks}


def _value(name: str, run_id: str, labels: dict[str, str], value: float) -> dict[str, Any]:
    """Return the check of one recorded value of a run, labels and all."""
    all_labels = {"run_id": run_id, "run_name": f"name-{run_id}", "service_name": "digits", **labels}
    inner = ",".join(f'{label}="{text}"' for label, text in sorted(all_labels.items()))
    metric = name.partition("{")[0]
    expr = name if "{" in name else f'{name}{{run_id="{run_id}"}}'
    return {"expr": expr, "eval_time": "310s", "exp_samples": [{"labels": f"{metric}{{{inner}}}", "value": value}]}
