"""What a run was made from: in short on top of its page, and as the chain of models that it started from."""

from __future__ import annotations

import itertools
from pathlib import Path

from otel_train.view.origins import MOST_GENERATIONS, chain, lineage
from otel_train.view.reading import read_run
from otel_train.view.run_data import RunData
from tests.runs import NS_PER_S, START_NS, RunBuilder

SHA = "6dcd44f9555e450e734d774f1d6d85270f93786556c48434bce15d1907975f6e"


def data_of(builder: RunBuilder) -> RunData:
    return read_run(builder.end().path, START_NS + 900 * NS_PER_S)


def run_id(number: int) -> str:
    return f"20260131-120000-aaaaaaa{number}"


def loaded(name: str, *, run: str = "", **more: object) -> dict[str, object]:
    made = {"run": run} if run else {}
    return {"path": f"C:\\models\\{name}", "role": "loaded", "sha256": SHA, **made, **more}


def test_lineage_says_code_data_base_model_seed_and_best_in_short(tmp_path: Path) -> None:
    """Twelve digits of commit and checksums, as they are in run.json, and the section that tells more."""
    builder = RunBuilder(
        tmp_path,
        datasets=[
            {"name": "train", "checksum": {"algorithm": "sha256", "value": SHA, "whole": True}},
            {"name": "val"},
            *({"name": f"part {number}"} for number in range(4)),
        ],
        checkpoints=[
            loaded("base.pt", run=run_id(1), run_name="base"),
            {"path": "/out/best.pt", "role": "saved", "best": True, "step": 7},
            {"path": "/out/best.pt", "role": "saved", "best": True, "step": 9},
            {"path": "/out/last.pt", "role": "saved", "step": 12},
        ],
    )
    code = {"commit": "79d7f74000000000000000000000000000000000", "branch": "main", "dirty": True}
    builder.attempt(environment={"code": code}, seed={"seed": 3, "states": {}})
    assert lineage(data_of(builder)) == [
        ["Code", "79d7f7400000 on main, with changes", "environment"],
        ["Data sets", f"train {SHA[:12]}, val, part 0, part 1 and 2 more", "data"],
        ["Starts from", "base.pt of run base", "checkpoints"],
        ["Seed", "3", "environment"],
        ["Best checkpoint", "best.pt at step 9", "checkpoints"],
    ]


def test_nothing_known_is_nothing_said(tmp_path: Path) -> None:
    """No row without a text, also where the description holds other things than it should."""
    assert lineage(data_of(RunBuilder(tmp_path).attempt())) == []
    builder = RunBuilder(tmp_path, run_id(2), datasets="x", checkpoints=[1])
    builder.attempt(environment={"code": [1], "git": None}, seed=None)
    assert lineage(data_of(builder)) == []


def test_the_chain_goes_from_run_to_run_as_far_as_they_lie_here(tmp_path: Path) -> None:
    """The run of the base is here and tells of its own base, whose run is elsewhere: told by its description alone."""
    RunBuilder(
        tmp_path, run_id(1), checkpoints=[loaded("first.pt", run=run_id(9), step=40, base_model="resnet18")]
    ).attempt().end()
    builder = RunBuilder(
        tmp_path, checkpoints=[loaded("base.pt", run=run_id(1), epoch=3, problems=["the file was changed since"])]
    )
    found = chain(data_of(builder.attempt()))
    assert [(one["generation"], one["name"], one["run"], one["here"]) for one in found] == [
        (1, "base.pt", run_id(1), True),
        (2, "first.pt", run_id(9), False),
    ]
    assert [(one["step"], one["epoch"], one["base_model"]) for one in found] == [("", "3", ""), ("40", "", "resnet18")]
    assert found[0]["problems"] == ["the file was changed since"]
    assert found[0]["sha256"] == SHA


def test_runs_that_name_each_other_as_origin_end(tmp_path: Path) -> None:
    """A loop in the descriptions is followed once round; so is a path in place of a run's id not followed at all."""
    for number, other in ((1, 2), (2, 1)):
        RunBuilder(tmp_path, run_id(number), checkpoints=[loaded("x.pt", run=run_id(other))]).attempt().end()
    found = chain(read_run(tmp_path / run_id(1), START_NS + 900 * NS_PER_S))
    assert [one["run"] for one in found] == [run_id(2), run_id(1)]
    builder = RunBuilder(tmp_path, run_id(3), checkpoints=[loaded("x.pt", run=f"../{tmp_path.name}/{run_id(1)}")])
    (alone,) = chain(data_of(builder.attempt()))
    assert not alone["here"]


def test_a_long_chain_is_cut(tmp_path: Path) -> None:
    """Each generation reads one more description; there is an end to it."""
    names = [f"20260131-120000-{number:08d}" for number in range(MOST_GENERATIONS + 5)]
    for name, older in itertools.pairwise(names):
        RunBuilder(tmp_path, name, checkpoints=[loaded("x.pt", run=older, sha256=name)]).attempt().end()
    assert len(chain(read_run(tmp_path / names[0], START_NS + 900 * NS_PER_S))) == MOST_GENERATIONS
