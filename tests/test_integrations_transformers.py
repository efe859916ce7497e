"""Transformers' real Trainer, on digits and on a tiny text model: its steps, names, checkpoints, early stop, resume."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import otel_train
from otel_train.testing import Recorded, recorded

transformers = pytest.importorskip("transformers", reason="Transformers is not installed")
torch = pytest.importorskip("torch", reason="torch is not installed")

from otel_train.integrations.transformers import OtelTrainCallback  # noqa: E402
from tests.digits_training import QUIET, SIZES, splits, trainer_of  # noqa: E402

pytestmark = [
    pytest.mark.slow,
    # Early stopping without loading the best model at the end is meant so.
    pytest.mark.filterwarnings("ignore:Using EarlyStoppingCallback without load_best_model_at_end"),
]
BATCHES = SIZES["train"] // 64


@pytest.fixture
def callback(root: Path) -> OtelTrainCallback:
    return OtelTrainCallback("digits", watch=None, **QUIET)


def record_of(callback: OtelTrainCallback) -> Recorded:
    path = callback.run.path
    callback.finish()
    return recorded(path)


def test_gradient_accumulation_counts_batches_and_optimizer_steps(tmp_path: Path, callback: OtelTrainCallback) -> None:
    """Of 8 batches in windows of 3 the losses stand at batches 3, 6 and 8, after optimizer steps 1, 2 and 3."""
    trainer = trainer_of(
        tmp_path, [callback], gradient_accumulation_steps=3, num_train_epochs=1, eval_strategy="no", save_strategy="no"
    )
    trainer.train()
    assert trainer.state.global_step == 3
    record = record_of(callback)
    assert record.steps("loss", "train") == [3, 6, 8]
    said = [(point.step, point.value) for point in record.named("dl.optimizer.step") if point.step is not None]
    assert said == [(3, 1), (6, 2), (8, 3)]
    assert [point.step for point in record.named("dl.step.time", "train")] == list(range(1, 9))
    assert record.named("dl.micro_step")[-1].value == 8
    assert record.named("dl.rank.samples")[-1].value == SIZES["train"]
    phases = [(point.attributes["phase"], point.step) for point in record.named("dl.phase.time")]
    assert [step for phase, step in phases if phase == "model_forward"] == list(range(1, 9))
    assert [step for phase, step in phases if phase == "model_backward"] == list(range(1, 9))
    assert [step for phase, step in phases if phase == "optimizer"] == [3, 6, 8]


def test_evaluations_within_an_epoch_stand_at_their_batch(tmp_path: Path, callback: OtelTrainCallback) -> None:
    """Evaluating every third step, on two data sets: each metric names its set, and no wait holds an evaluation."""
    data = splits()
    trainer = trainer_of(
        tmp_path, [callback], num_train_epochs=1, eval_strategy="steps", eval_steps=3, save_strategy="no",
        metric_for_best_model=None,
    )  # fmt: skip
    trainer.eval_dataset = {"near": data["val"], "far": data["test"]}
    trainer.train()
    record = record_of(callback)
    # Newer Trainers evaluate at the end, too.
    places = [entry["step"] for entry in trainer.state.log_history if "eval_near_loss" in entry]
    assert places[:2] == [3, 6]
    for name in ("near_loss", "near_accuracy", "far_loss", "far_accuracy"):
        assert record.steps(name, "val") == places
    assert record.steps("loss", "val") == []
    assert len(record.named("dl.step.time", "val")) == len(places) * (SIZES["val"] + SIZES["test"]) // 64
    assert [point.step for point in record.named("dl.step.time", "train")] == list(range(1, BATCHES + 1))


def test_what_the_trainer_says_of_the_whole_is_no_point(tmp_path: Path, callback: OtelTrainCallback) -> None:
    """Its mean loss and speeds, told once at the end, are an event, not a further loss."""
    trainer = trainer_of(tmp_path, [callback], num_train_epochs=1, save_strategy="no", logging_steps=4)
    result = trainer.train()
    record = record_of(callback)
    assert record.steps("loss", "train") == [4, 8]
    summary = record.event("trainer.summary").attributes
    assert summary["train_loss"] == pytest.approx(result.training_loss)
    assert sum(record.values("loss", "train")) / 2 == pytest.approx(result.training_loss)
    names = {point.name for point in record.points if point.name.startswith("train.")}
    assert names == {"train.loss", "train.accuracy", "train.lr", "train.grad_norm"}


def test_arguments_and_model_are_the_configuration(tmp_path: Path, callback: OtelTrainCallback) -> None:
    """TrainingArguments stand under a key of their own; a token among them does not."""
    trainer = trainer_of(tmp_path, [callback], num_train_epochs=1, save_strategy="no", hub_token="hf_secret")
    trainer.train()
    record = record_of(callback)
    (attempt,) = record.info["attempts"]
    assert attempt["config"]["training_arguments"]["per_device_train_batch_size"] == 64
    assert attempt["config"]["training_arguments"]["lr_scheduler_type"] == "constant"
    assert "hf_secret" not in (record.path / "run.json").read_text()


def test_an_early_stop_is_told_with_its_reason(tmp_path: Path, callback: OtelTrainCallback) -> None:
    """A metric that cannot get better stops the training after its patience; the reason names it."""
    stopper = transformers.EarlyStoppingCallback(early_stopping_patience=2)
    trainer = trainer_of(tmp_path, [stopper, callback], num_train_epochs=20, metric_for_best_model="accuracy",
                         greater_is_better=True)  # fmt: skip
    trainer.compute_metrics = lambda found: {"accuracy": 0.5}
    trainer.train()
    record = record_of(callback)
    assert record.event("training.early_stop").body == f"accuracy was no better than 0.5 of optimizer step {BATCHES}"
    assert record.event("training.early_stop").attributes["dl.step"] == 3 * BATCHES
    assert len(record.spans_of("epoch")) == 3


def test_a_training_that_ends_in_time_was_not_stopped(tmp_path: Path, callback: OtelTrainCallback) -> None:
    """`max_steps` is an end, no early stop."""
    trainer_of(tmp_path, [callback], max_steps=5, eval_strategy="no", save_strategy="no").train()
    record = record_of(callback)
    assert record.events("training.early_stop") == []
    assert record.steps("loss", "train") == [1, 2, 3, 4, 5]


def test_checkpoints_are_recorded_once_with_the_best(tmp_path: Path, callback: OtelTrainCallback) -> None:
    """Each folder has its checksum, time and step; the best is what the Trainer's state says."""
    trainer = trainer_of(tmp_path, [callback], num_train_epochs=3, save_total_limit=2)
    trainer.train()
    record = record_of(callback)
    found = [(Path(entry["path"]).name, entry["best"], entry["step"]) for entry in record.info["checkpoints"]]
    steps = [BATCHES * epoch for epoch in (1, 2, 3)]
    assert found == [(f"checkpoint-{step}", True, step) for step in steps]
    assert trainer.state.best_model_checkpoint.endswith(f"checkpoint-{steps[-1]}")
    assert all(entry["sha256"] for entry in record.info["checkpoints"])
    assert len(record.named("dl.checkpoint.time")) == 3
    # The Trainer still finds its newest one among the contexts beside them.
    assert transformers.trainer_utils.get_last_checkpoint(str(tmp_path)).endswith(f"checkpoint-{steps[-1]}")


@pytest.mark.parametrize("accumulate", [1, 3])
def test_a_resumed_training_goes_on_with_its_steps_and_names_its_parent(
    tmp_path: Path, root: Path, accumulate: int
) -> None:
    """A new run begins at the batch after the checkpoint's, in the middle of an epoch, and points to the first run."""
    given = {"gradient_accumulation_steps": accumulate, "eval_strategy": "no", "save_strategy": "steps",
             "metric_for_best_model": None}  # fmt: skip
    first = OtelTrainCallback("digits", watch=None, **QUIET)
    trainer_of(tmp_path, [first], max_steps=4, save_steps=4, **given).train()
    first_run = first.run
    first.finish()
    second = OtelTrainCallback("digits", watch=None, **QUIET)
    trainer_of(tmp_path, [second], max_steps=6, save_steps=100, **given).train(resume_from_checkpoint=True)
    record = record_of(second)
    # Three optimizer steps an epoch of 8 batches: the fourth ends at batch 8 + 3.
    expected = {1: [5, 6], 3: [14, 16]}[accumulate]
    assert record.steps("loss", "train") == expected
    said = [(point.step, point.value) for point in record.named("dl.optimizer.step") if point.step is not None]
    assert said == [(expected[0], 5), (expected[1], 6)]
    (parent,) = [entry for entry in record.info["checkpoints"] if entry["role"] == "loaded"]
    assert parent["run"] == first_run.id


def test_the_users_run_is_used_and_left_open(tmp_path: Path, start: Callable[..., Any]) -> None:
    """Training and a later evaluation go to the run that is open, under its stage, and do not end it."""
    run = start(project="mine")
    callback = OtelTrainCallback("other", watch=None)
    trainer = trainer_of(tmp_path, [callback], num_train_epochs=1, save_strategy="no")
    trainer.train()
    metrics = trainer.evaluate()
    with run.stage("test"):
        predicted = trainer.predict(splits()["test"])
    callback.finish()
    assert not run.finished
    run.finish()
    record = recorded(run)
    assert record.steps("loss", "val") == [BATCHES, BATCHES]
    assert record.values("loss", "val")[1] == pytest.approx(metrics["eval_loss"])
    assert record.values("accuracy", "test") == [pytest.approx(predicted.metrics["test_accuracy"])]
    assert len(record.named("dl.step.time", "test")) == SIZES["test"] // 64 - 1


def test_the_model_is_left_as_it_was(tmp_path: Path, root: Path) -> None:
    """After training and evaluation no hook of ours is on model, optimizer or loader."""
    callback = OtelTrainCallback(watch=1, **QUIET)
    trainer = trainer_of(tmp_path, [callback], num_train_epochs=1, save_strategy="no")
    trainer.train()
    trainer.evaluate()
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in trainer.model.modules())
    inner = trainer.optimizer.optimizer
    assert not inner._optimizer_step_post_hooks
    assert not inner._optimizer_step_pre_hooks
    callback.finish()


def test_an_exception_comes_through(tmp_path: Path, start: Callable[..., Any]) -> None:
    """What the user's code raises within training ends the user's run as failed, with the stage closed."""

    class Failing(transformers.TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **about: Any) -> None:
            if state.global_step == 3:
                raise RuntimeError("on purpose")

    with pytest.raises(RuntimeError, match="on purpose"):
        with start() as run:
            trainer_of(tmp_path, [OtelTrainCallback(watch=None), Failing()], save_strategy="no").train()
    record = recorded(run)
    assert record.info["status"] == "failed"
    assert record.steps("loss", "train") == [1, 2]


def test_a_model_used_after_an_exception_is_no_longer_looked_at(tmp_path: Path, start: Callable[..., Any]) -> None:
    """Once the user has caught it, the next use of the model ends stage and hooks; the run goes on."""

    class Failing(transformers.TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **about: Any) -> None:
            raise RuntimeError("on purpose")

    run = start()
    trainer = trainer_of(tmp_path, [OtelTrainCallback(watch=1), Failing()], save_strategy="no")
    with pytest.raises(RuntimeError, match="on purpose"):
        trainer.train()
    assert run.present_stage == "fit"
    model = trainer.model.eval()
    model(*splits()["val"][:4])
    assert run.present_stage is None
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    run.finish()
    record = recorded(run)
    assert record.named("dl.step.time", "val") == []
    (ended,) = [event for event in record.events("stage.end") if "fit" in event.body]
    assert "failed" in ended.body


def test_tokens_of_a_text_model_are_counted(tmp_path: Path, root: Path) -> None:
    """A two-layer BERT, made from its configuration: each batch of 4 texts of 16 tokens counts 64 tokens."""
    config = transformers.BertConfig(
        vocab_size=50, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, num_labels=2
    )
    model = transformers.BertForSequenceClassification(config)
    generator = torch.Generator().manual_seed(3)
    tokens = torch.randint(0, 50, (24, 16), generator=generator)
    rows = [{"input_ids": row, "labels": int(row[0]) % 2} for row in tokens]
    callback = OtelTrainCallback("texts", watch=2, **QUIET)
    arguments = transformers.TrainingArguments(
        str(tmp_path), per_device_train_batch_size=4, max_steps=6, logging_steps=2, report_to="none", use_cpu=True,
        disable_tqdm=True, save_strategy="no", dataloader_pin_memory=False,
    )  # fmt: skip
    transformers.Trainer(model=model, args=arguments, train_dataset=rows, callbacks=[callback]).train()
    record = record_of(callback)
    assert record.named("dl.rank.tokens")[-1].value == 6 * 4 * 16
    assert record.named("dl.rank.samples")[-1].value == 24
    assert record.steps("loss", "train") == [2, 4, 6]
    assert record.info["attempts"][0]["config"]["model"]["hidden_size"] == 16
    layers = {point.attributes.get("layer") for point in record.named("dl.grad.norm")}
    assert None in layers
    assert len(layers) > 3


def test_each_trial_of_a_search_is_a_run(tmp_path: Path, root: Path) -> None:
    """Where the Trainer says that it searches hyperparameters, a run of our own ends with each trial."""
    callback = OtelTrainCallback("search", watch=None, **QUIET)
    for _ in range(2):
        trainer = trainer_of(tmp_path, [callback], max_steps=2, eval_strategy="no", save_strategy="no")
        handler = trainer.callback_handler
        begin = handler.on_train_begin

        def on_train_begin(args: Any, state: Any, control: Any, begin: Any = begin) -> Any:
            state.is_hyper_param_search = True
            return begin(args, state, control)

        handler.on_train_begin = on_train_begin
        trainer.train()
        assert otel_train.current_run() is None
    runs = [recorded(path) for path in sorted(root.iterdir()) if path.name[0] != "."]
    assert [record.steps("loss", "train") for record in runs] == [[1, 2], [1, 2]]
