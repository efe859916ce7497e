"""From a user's key to a metric's name, split and attributes."""

from __future__ import annotations

import threading

import pytest

from otel_train.record.names import NameTable, normalise_split, prometheus_spelling, series_name, split_of
from tests.recording import TRAIN, VAL, Recording


@pytest.mark.parametrize(
    ("key", "split", "name", "found"),
    [
        ("loss", None, "train.loss", "train"),
        ("Loss", None, "train.Loss", "train"),
        ("lr", None, "train.lr", ""),
        ("val/loss", None, "train.loss", "val"),
        ("Loss/train", None, "train.Loss", "train"),
        ("eval/bleu", None, "train.bleu", "val"),
        ("mAP/test", None, "train.mAP", "test"),
        ("dev/f1", None, "train.f1", "val"),
        ("validation/acc", None, "train.acc", "val"),
        ("val_loss", None, "train.loss", "val"),
        ("eval_accuracy", None, "train.accuracy", "val"),
        ("test_f1", None, "train.f1", "test"),
        ("test_time_augmentation", None, "train.test_time_augmentation", ""),
        ("val_bleu", None, "train.val_bleu", ""),
        ("train_loss", None, "train.loss", "train"),
        ("train.loss", None, "train.train.loss", ""),
        ("loss", "val", "train.loss", "val"),
        ("loss", "Validation", "train.loss", "val"),
        ("loss", "dev", "train.loss", "val"),
        ("loss", "holdout", "train.loss", "holdout"),
        ("train/loss", "val", "train.train.loss", "val"),
        ("a/b/c", None, "train.a.b.c", ""),
        ("val/a/b", None, "train.a.b", "val"),
        ("train", None, "train.train", ""),
        ("val/", None, "train.val", "val"),
        ("", None, "train._", ""),
        ("f1 score (%)", None, "train.f1_score____", ""),
        ("損失", None, "train.__", ""),
        ("x" * 300, None, "train." + "x" * 200, ""),
        *[(measure, None, f"train.{measure}", "train") for measure in ("acc", "precision", "recall", "perplexity")],
    ],
)
def test_a_key_becomes_a_name_and_a_split(key: str, split: str | None, name: str, found: str) -> None:
    """The documented mapping, row by row."""
    named = series_name(key, split)
    assert (named.name, named.split) == (name, found)


@pytest.mark.parametrize(
    ("given", "expected"),
    [("train", "train"), ("Training", "train"), ("valid", "val"), ("eval", "val"), ("testing", "test"), ("x", "x")],
)
def test_splits_have_three_spellings_of_their_own(given: str, expected: str) -> None:
    """Aliases in any case become train, val or test; another text stays."""
    assert normalise_split(given) == expected


def test_the_store_spelling_knows_only_letters_digits_and_single_underscores() -> None:
    """Dots, dashes and doubled underscores are one underscore."""
    assert prometheus_spelling("train.a-b__c_") == "train_a_b_c"


def test_keys_that_a_store_would_merge_are_told_apart_with_one_warning() -> None:
    """train/loss, train.loss and train_loss are three series; the last has its key as attribute, and that is said."""
    run = Recording()
    for _ in range(3):
        run.log.log({"train/loss": 1.0, "train.loss": 2.0, "train_loss": 3.0})
        run.take()
    run.log.log({"train/loss": 1.0, "train.loss": 2.0, "train_loss": 3.0})
    assert run.stored() == {
        ("train.loss", TRAIN): [(3, 1.0)],
        ("train.train.loss", ()): [(3, 2.0)],
        ("train.loss", (*TRAIN, ("key", "train_loss"))): [(3, 3.0)],
    }
    assert len(run.warnings) == 1
    assert "'train/loss' and 'train_loss' would be one series" in run.warnings[0]


def test_spellings_that_differ_only_by_what_a_store_rewrites_are_told_apart() -> None:
    """a/b, a.b and a_b are one word to Prometheus; two of them carry their key."""
    run = Recording()
    run.log.log({"a/b": 1.0, "a.b": 2.0, "a_b": 3.0})
    found = run.stored()
    assert found[("train.a.b", ())] == [(0, 1.0)]
    assert found[("train.a.b", (("key", "a.b"),))] == [(0, 2.0)]
    assert found[("train.a_b", (("key", "a_b"),))] == [(0, 3.0)]
    assert len(run.warnings) == 2


def test_the_same_key_with_its_split_said_in_another_way_is_one_series() -> None:
    """Without a split and with train, and with val and valid, loss is two series without any warning."""
    run = Recording()
    run.log.log({"loss": 1.0})
    run.log.log({"loss": 2.0}, split="train")
    run.log.log({"loss": 3.0}, split="val")
    run.log.log({"loss": 4.0}, split="valid")
    run.log.log({"loss": 5.0}, split="Eval")
    assert run.stored() == {
        ("train.loss", TRAIN): [(0, 1.0), (1, 2.0)],
        ("train.loss", VAL): [(1, 3.0), (2, 4.0), (3, 5.0)],
    }
    assert run.warnings == []


def test_the_description_keeps_the_users_key_and_units_come_from_define() -> None:
    """A unit is found by the key with or without its split; a key without one has none."""
    run = Recording()
    run.names.units.update({"accuracy": "1", "val/time": "s"})
    run.log.log({"val/accuracy": 0.5, "val/time": 2.0, "lr": 0.1})
    columns = {column.description: column for block in run.take().blocks for column in block}
    assert columns["val/accuracy"].unit == "1"
    assert columns["val/time"].unit == "s"
    assert columns["lr"].unit == ""


def test_a_key_that_is_no_text_is_recorded_by_its_text() -> None:
    """A number as key becomes its digits."""
    run = Recording()
    run.log.log({7: 0.5})  # type: ignore[dict-item]  # a key that callers should not give
    assert run.stored() == {("train.7", ()): [(0, 0.5)]}


def test_axes_are_series_of_their_own() -> None:
    """The same key on two axes is two series, each with its axis named, without a warning."""
    names = NameTable(pytest.fail)
    assert names.series("reward", None).attributes == ()
    assert names.series("reward", None, "env_step").attributes == (("axis", "env_step"),)
    assert names.series("reward", None) is names.series("reward", None)


def test_a_warning_may_record_something_in_turn() -> None:
    """Who hears the warning asks for another series of the same table, in the same thread, and gets it."""
    heard: list[str] = []

    def warn(text: str) -> None:
        heard.append(table.series("warnings", None).name)

    table = NameTable(warn)
    thread = threading.Thread(target=lambda: [table.series(key, None) for key in ("a/b", "a.b")], daemon=True)
    thread.start()
    thread.join(5.0)
    assert heard == ["train.warnings"]


@pytest.mark.parametrize(
    ("key", "default", "expected"),
    [
        ("val_loss", None, ("loss", "val")),
        ("val_loss", "test", ("loss", "val")),
        ("eval/f1_macro", "train", ("f1_macro", "val")),
        ("Loss/train", None, ("Loss", "train")),
        ("loss", None, ("loss", None)),
        ("loss", "val", ("loss", "val")),
        ("lr", None, ("lr", None)),
        ("test_time_augmentation", "val", ("test_time_augmentation", "val")),
    ],
)
def test_a_key_is_told_from_the_split_that_it_says(
    key: str, default: str | None, expected: tuple[str, str | None]
) -> None:
    """A split in the key wins; one that only measures have by themselves gives way to what an adapter knows."""
    assert split_of(key, default) == expected


def test_optimizer_steps_are_a_metric_of_our_own() -> None:
    """The key fills `dl.optimizer.step`, whatever the split of the call, and is no metric of the user's."""
    recording = Recording()
    told: list[int] = []
    recording.log.on_optimizer_step = told.append
    recording.log.log({"loss": 1.0, "optimizer_step": 20}, 10, "train")
    recording.log.log({"loss": 0.5, "optimizer_step": 40}, 20)
    recording.log.log({"reward": 0.5, "optimizer_step": 50}, 4000, axis="env_step")
    stored = recording.stored()
    assert stored["dl.optimizer.step", ()] == [(10, 20), (20, 40)]
    assert stored["dl.optimizer.step", (("axis", "env_step"),)] == [(4000, 50)]
    assert stored["train.loss", (("split", "train"),)] == [(10, 1.0), (20, 0.5)]
    assert not any(name == "train.optimizer_step" for name, _ in stored)
    assert {series.key for series in recording.summaries.by_series} == {"loss", "reward"}
    assert told == [20, 40, 50]
