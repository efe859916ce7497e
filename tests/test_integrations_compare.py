"""The same training of digits through a loop by hand and three frameworks: what is on record is the same."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest

from otel_train.testing import Recorded, recorded
from tests.digits_training import BATCH, EPOCHS, SIZES, by_accelerate, by_hand, by_lightning, by_transformers

pytestmark = [
    pytest.mark.slow,
    # Lightning's own use of what torch has renamed.
    pytest.mark.filterwarnings("ignore:`isinstance\\(treespec, LeafSpec\\)` is deprecated"),
    # Advice on loaders without workers, of which a test of a few seconds has none.
    pytest.mark.filterwarnings("ignore:The '\\w+_dataloader' does not have many workers"),
]

STEPS = SIZES["train"] // BATCH * EPOCHS
OWNERS: dict[str, Callable[[Path, Path], Path]] = {
    "lightning": by_lightning,
    "transformers": by_transformers,
    "accelerate": by_accelerate,
}
# What run.watch finds, and its layers.
INTERNALS = ("dl.grad.norm", "dl.weight.norm", "dl.update.ratio", "dl.activation.mean", "dl.activation.std")
INTERNALS += ("dl.activation.dead",)


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Recorded]:
    found = {}
    for name, train in {"by hand": by_hand, **OWNERS}.items():
        folders = [tmp_path_factory.mktemp(kind) for kind in ("models", "runs")]
        found[name] = recorded(train(*folders))
    return found


def rows(record: Recorded, name: str) -> dict[tuple[object, ...], float]:
    """Return the values of a metric by split, layer and step; no two points may share a place."""
    points = [point for point in record.named(name) if point.step is not None]
    found = {(point.split, point.attributes.get("layer"), point.step): point.value for point in points}
    assert len(found) == len(points), f"{name} is recorded twice"
    return {place: float(value) for place, value in found.items() if value is not None}


def assert_same(given: dict[tuple[object, ...], float], expected: dict[tuple[object, ...], float]) -> None:
    assert given.keys() == expected.keys()
    wrong = {place: (given[place], expected[place]) for place in expected}
    assert [pair for pair in wrong.values() if not math.isclose(*pair, rel_tol=1e-5, abs_tol=1e-7)] == []


def test_the_loop_by_hand_is_a_whole_record(records: dict[str, Recorded]) -> None:
    """What the others are compared with has a loss for each step, each evaluation, and the internals at each fourth."""
    record = records["by hand"]
    assert record.steps("loss", "train") == list(range(1, STEPS + 1))
    assert record.steps("loss", "val") == [STEPS // 2, STEPS]
    assert record.steps("loss", "test") == [STEPS]
    assert {step for _, _, step in rows(record, "dl.grad.norm")} == set(range(1, STEPS + 1, 4))


@pytest.mark.parametrize("owner", OWNERS)
def test_metrics_have_the_same_names_splits_steps_and_values(records: dict[str, Recorded], owner: str) -> None:
    """Loss, accuracy and learning rate are equal point by point; a framework only adds what it alone computes."""
    expected, given = records["by hand"], records[owner]
    names = {point.name for point in expected.points if point.name.startswith("train.")}
    assert names == {"train.loss", "train.accuracy", "train.lr"}
    for name in names:
        assert_same(rows(given, name), rows(expected, name))
    added = {point.name for point in given.points if point.name.startswith("train.")} - names
    assert added == ({"train.grad_norm"} if owner == "transformers" else set())


@pytest.mark.parametrize("owner", OWNERS)
def test_the_model_shows_the_same_internals(records: dict[str, Recorded], owner: str) -> None:
    """Norms, update ratios and activations are those of the loop by hand, layer by layer."""
    for name in INTERNALS:
        assert_same(rows(records[owner], name), rows(records["by hand"], name))


@pytest.mark.parametrize("owner", OWNERS)
def test_steps_and_evaluations_are_timed_alike(records: dict[str, Recorded], owner: str) -> None:
    """Each batch of each split has its step time and wait once, with the numbers that the loop by hand gives."""
    for name in ("dl.step.time", "dl.data.wait.time"):
        given, expected = (
            # Whether a line holds train or val first is the writer's affair.
            sorted((point.split, point.epoch, point.step) for point in record.named(name))
            for record in (records[owner], records["by hand"])
        )
        if owner == "transformers":
            # The Trainer says of an evaluation outside of training only that its first batch is done.
            expected.remove(("test", None, 0))
        assert given == expected
        assert all(point.value is not None and point.value >= 0 for point in records[owner].named(name))
    phases = {point.attributes["phase"] for point in records[owner].named("dl.phase.time")}
    assert phases == {"model_forward", "model_backward", "optimizer"}
    for phase in phases:
        points = [point for point in records[owner].named("dl.phase.time") if point.attributes["phase"] == phase]
        assert [point.step for point in points] == list(range(1, STEPS + 1))


@pytest.mark.parametrize("owner", OWNERS)
def test_stages_epochs_and_evaluations_are_the_same_spans(records: dict[str, Recorded], owner: str) -> None:
    """Fit and test are stages, each epoch is a span, each evaluation too; a check before training is none."""

    def spans(record: Recorded) -> list[tuple[str, object]]:
        kinds = {"fit": "dl.stage", "test": "dl.stage", "epoch": "dl.epoch", "evaluation": "split"}
        return sorted(
            (span.name, span.attributes[kinds[span.name]]) for kind in kinds for span in record.spans_of(kind)
        )

    assert spans(records[owner]) == spans(records["by hand"])
    assert [stage["name"] for stage in records[owner].info["stages"]] == ["fit", "test"]
    assert {stage["status"] for stage in records[owner].info["stages"]} == {"ok"}


@pytest.mark.parametrize("owner", OWNERS)
def test_checkpoints_stand_at_the_same_steps(records: dict[str, Recorded], owner: str) -> None:
    """Each epoch's model is on record once, with its checksum, and the best ones are known as such."""

    def saved(record: Recorded) -> list[tuple[object, ...]]:
        return [(entry["step"], entry["epoch"], entry["best"]) for entry in record.info["checkpoints"]]

    assert saved(records[owner]) == saved(records["by hand"]) == [(STEPS // 2, 0, True), (STEPS, 1, True)]
    assert len({entry["sha256"] for entry in records[owner].info["checkpoints"]}) == EPOCHS
    assert len(records[owner].spans_of("checkpoint")) == EPOCHS


@pytest.mark.parametrize("owner", OWNERS)
def test_amounts_and_the_end_are_the_same(records: dict[str, Recorded], owner: str) -> None:
    """All samples are counted, optimizer steps and micro-batches too, and the run has finished without a fault."""
    for name, expected in (("dl.rank.samples", BATCH * STEPS), ("dl.micro_step", STEPS), ("dl.optimizer.step", STEPS)):
        assert records[owner].named(name)[-1].value == records["by hand"].named(name)[-1].value == expected
    assert records[owner].info["status"] == "finished"
    assert records[owner].damage == []
    assert [log.body for log in records[owner].logs if log.level in ("WARN", "ERROR")] == []
    assert records[owner].info["attempts"][0]["config"].get("lr", 0.1) == 0.1
