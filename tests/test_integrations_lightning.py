"""Lightning's real Trainer, on a small model: its steps, names, ends, resumed trainings, and nothing stands twice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import otel_train
from otel_train.testing import Recorded, recorded
from tests.scripts import Scripts

pl = pytest.importorskip("lightning.pytorch", reason="Lightning is not installed")
torch = pytest.importorskip("torch", reason="torch is not installed")

from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

from otel_train.integrations.lightning import OtelTrainCallback, OtelTrainLogger  # noqa: E402

pytestmark = [
    pytest.mark.slow,
    # Lightning's own use of what torch has renamed.
    pytest.mark.filterwarnings("ignore:`isinstance\\(treespec, LeafSpec\\)` is deprecated"),
    # Advice on loaders without workers, of which a test of a second has none, and on how seldom it logs.
    pytest.mark.filterwarnings("ignore:The '\\w+_dataloader' does not have many workers"),
    pytest.mark.filterwarnings("ignore:The number of training batches"),
    # Not each test validates.
    pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no `val_dataloader`"),
]
QUIET: dict[str, Any] = {"git": False, "sample_machine": False}


class Line(pl.LightningModule):
    """Fits y = 3 x; what it logs, and when, each test says."""

    def __init__(self, lr: float = 0.05, fail_at: int | None = None, fault: type[BaseException] = RuntimeError) -> None:
        super().__init__()
        self.save_hyperparameters("lr")
        self.layer = torch.nn.Linear(1, 1)
        self.fail_at, self.fault = fail_at, fault
        self.how: dict[str, Any] = {}

    def loss(self, batch: Any) -> Any:
        return ((self.layer(batch[0]) - batch[1]) ** 2).mean()

    def training_step(self, batch: Any, index: int) -> Any:
        if self.fail_at is not None and index + 1 == self.fail_at:
            raise self.fault("on purpose")
        loss = self.loss(batch)
        self.log("train_loss", loss, **self.how)
        return loss

    def validation_step(self, batch: Any, index: int) -> None:
        self.log("val_loss", self.loss(batch), **self.how)
        self.log("spread", float(batch[0].std()))

    def test_step(self, batch: Any, index: int) -> None:
        self.log("loss", self.loss(batch))

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=self.hparams["lr"])


class TwoOptimizers(Line):
    """Steps two optimizers for each batch, by hand: `trainer.global_step` counts both."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.second = torch.nn.Linear(1, 1)

    def training_step(self, batch: Any, index: int) -> None:
        for optimizer, layer in zip(self.optimizers(), (self.layer, self.second), strict=True):
            loss = ((layer(batch[0]) - batch[1]) ** 2).mean()
            optimizer.zero_grad()
            self.manual_backward(loss)
            optimizer.step()
        self.log("train_loss", loss)

    def configure_optimizers(self) -> Any:
        return [
            torch.optim.SGD(layer.parameters(), lr=rate) for layer, rate in ((self.layer, 0.05), (self.second, 0.01))
        ]


def batches(count: int, size: int = 2) -> DataLoader[Any]:
    x = torch.linspace(-1, 1, count * size).unsqueeze(1)
    return DataLoader(TensorDataset(x, 3 * x), size)


def trainer_of(tmp_path: Path, **given: Any) -> Any:
    arguments = {
        "max_epochs": 1,
        "accelerator": "cpu",
        "default_root_dir": tmp_path,
        "log_every_n_steps": 1,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "logger": False,
        **given,
    }
    return pl.Trainer(**arguments)


@pytest.fixture
def logger(root: Path) -> OtelTrainLogger:
    return OtelTrainLogger("line", watch=None, **QUIET)


def record_of(logger: OtelTrainLogger) -> Recorded:
    path = logger.experiment.path
    logger.finish()
    return recorded(path)


def test_steps_are_batches_whatever_the_optimizers_do(tmp_path: Path, logger: OtelTrainLogger) -> None:
    """Of 50 batches with two optimizers each tenth is logged at its number, with twice as many optimizer steps."""
    trainer = trainer_of(tmp_path, logger=logger, log_every_n_steps=10, val_check_interval=25)
    trainer.fit(TwoOptimizers(), batches(50), batches(4))
    record = record_of(logger)
    assert record.steps("loss", "train") == [10, 20, 30, 40, 50]
    steps = [(point.step, point.value) for point in record.named("dl.optimizer.step") if point.step is not None]
    assert steps == [(10, 20), (20, 40), (30, 60), (40, 80), (50, 100)]
    assert record.steps("loss", "val") == [25, 50]
    assert record.steps("lr/0") == record.steps("lr/1") == [10, 20, 30, 40, 50]
    assert record.values("lr/1")[0] == 0.01


def test_phases_of_two_optimizers_add_up_within_a_step(tmp_path: Path, logger: OtelTrainLogger) -> None:
    """Each batch has one time for each phase, and together they are no longer than the step."""
    trainer_of(tmp_path, logger=logger).fit(TwoOptimizers(), batches(3))
    record = record_of(logger)
    durations = {point.step: point.value for point in record.named("dl.step.time", "train")}
    spent: dict[Any, float] = {}
    for point in record.named("dl.phase.time"):
        spent[point.step] = spent.get(point.step, 0.0) + point.value
    assert sorted(durations) == sorted(spent) == [1, 2, 3]
    assert all(0 < spent[step] <= durations[step] for step in spent)


def test_gradient_accumulation_keeps_the_number_of_the_batch(tmp_path: Path, logger: OtelTrainLogger) -> None:
    """Of 8 batches in windows of 4 the losses stand at batches 4 and 8, after optimizer steps 1 and 2."""
    trainer_of(tmp_path, logger=logger, accumulate_grad_batches=4).fit(Line(), batches(8))
    record = record_of(logger)
    assert record.steps("loss", "train") == [4, 8]
    said = [(point.step, point.value) for point in record.named("dl.optimizer.step") if point.step is not None]
    assert said[:2] == [(4, 1), (8, 2)]
    assert [point.step for point in record.named("dl.step.time", "train")] == list(range(1, 9))
    assert record.named("dl.micro_step")[-1].value == 8
    assert record.named("dl.optimizer.step")[-1].value == 2


def test_the_check_before_training_is_no_validation(tmp_path: Path, logger: OtelTrainLogger) -> None:
    """The two batches that Lightning tries out leave no evaluation, number or step time."""
    trainer_of(tmp_path, logger=logger, num_sanity_val_steps=2).fit(Line(), batches(3), batches(4))
    record = record_of(logger)
    (evaluation,) = record.spans_of("evaluation")
    assert evaluation.attributes["dl.step"] == 3
    assert len(record.named("dl.step.time", "val")) == len(record.named("dl.data.fetch.time", "val")) == 4
    assert record.steps("loss", "val") == record.steps("spread", "val") == [3]


def test_what_is_logged_by_step_and_epoch_keeps_its_plain_name(tmp_path: Path, logger: OtelTrainLogger) -> None:
    """Training's loss by step and validation's by epoch are the loss; the other one of each pair stands apart."""
    model = Line()
    model.how = {"on_step": True, "on_epoch": True}
    trainer_of(tmp_path, logger=logger).fit(model, batches(3), batches(2))
    record = record_of(logger)
    assert record.steps("loss", "train") == [1, 2, 3]
    (mean,) = record.values("loss_epoch", "train")
    assert mean == pytest.approx(sum(record.values("loss", "train")) / 3)
    assert record.steps("loss", "val") == [3]
    by_batch = record.of("loss_step", "val")
    assert [(point.step, point.attributes["axis"]) for point in by_batch] == [(0, "val_batch"), (1, "val_batch")]
    assert record.values("loss", "val") == [pytest.approx(sum(point.value for point in by_batch) / 2)]


def test_several_loaders_are_told_apart(tmp_path: Path, logger: OtelTrainLogger) -> None:
    """The number of a loader stands after the metric's name, which keeps its split."""

    class Two(Line):
        def validation_step(self, batch: Any, index: int, dataloader_idx: int) -> None:
            self.log("val_loss", self.loss(batch))

    trainer_of(tmp_path, logger=logger).fit(Two(), batches(2), [batches(2), batches(3)])
    record = record_of(logger)
    for name in ("train.loss.dataloader_0", "train.loss.dataloader_1"):
        assert [(point.split, point.step) for point in record.named(name)] == [("val", 2)]
    assert len(record.named("dl.step.time", "val")) == 5


def test_a_step_of_the_users_own_is_an_axis_of_its_own(tmp_path: Path, logger: OtelTrainLogger) -> None:
    """Training logged at steps summed over ranks, validation at the batch: all are kept, and each axis has its name."""

    class Summed(Line):
        def training_step(self, batch: Any, index: int) -> Any:
            self.log("step", float((index + 1) * 4000))
            return super().training_step(batch, index)

    trainer = trainer_of(tmp_path, logger=logger, val_check_interval=1)
    trainer.fit(Summed(), batches(2), batches(1))
    record = record_of(logger)
    places = [(point.step, point.attributes.get("axis")) for point in record.of("loss", "train")]
    assert places == [(4000, "logged_step"), (8000, "logged_step")]
    assert [(point.step, point.attributes.get("axis")) for point in record.of("loss", "val")] == [(1, None), (2, None)]


def test_numbers_with_and_without_steps_are_all_kept(tmp_path: Path, logger: OtelTrainLogger) -> None:
    """By the logger's own method, before any training: five points, none refused for being old."""
    for value in (1, 2, 3):
        logger.log_metrics({"a": value}, step=value - 1)
    logger.log_metrics({"b": 9}, step=1)
    logger.log_metrics({"a": 4}, step=3)
    record = record_of(logger)
    assert record.values("a") == [1, 2, 3, 4]
    assert (record.steps("b"), record.values("b")) == ([1], [9])


@pytest.mark.parametrize("given", ["logger", "callback", "both", "two of each"])
def test_logger_and_callback_record_once(tmp_path: Path, root: Path, given: str) -> None:
    """Either is enough, together they are one, and a second pair adds nothing."""
    logger, callback = OtelTrainLogger("line", watch=None, **QUIET), OtelTrainCallback(watch=None, **QUIET)
    loggers: list[Any] = {"callback": [], "two of each": [logger, OtelTrainLogger(**QUIET)]}.get(given, [logger])
    callbacks = {"logger": [], "two of each": [callback, OtelTrainCallback()]}.get(given, [callback])
    trainer = trainer_of(tmp_path, logger=loggers, callbacks=callbacks)
    trainer.fit(Line(lr=0.02), batches(3), batches(2))
    assert len(trainer.loggers) == len(loggers)
    run = otel_train.current_run()
    assert run is not None
    run.finish()
    record = recorded(run)
    assert record.steps("loss", "train") == [1, 2, 3]
    assert record.steps("loss", "val") == [3]
    assert [point.step for point in record.named("dl.step.time", "train")] == [1, 2, 3]
    assert [span.attributes["dl.stage"] for span in record.spans_of("fit")] == ["fit"]
    assert run.config["lr"] == 0.02
    assert run.config["trainer"]["max_epochs"] == 1
    assert [path.name for path in root.iterdir() if path.name[0] != "."] == [run.id]


def test_the_users_run_is_used_and_left_open(tmp_path: Path, start: Callable[..., Any]) -> None:
    """`fit` and `test` go to the run that is open, under its present stage, and do not end it."""
    run = start(project="mine")
    logger = OtelTrainLogger("other", watch=None)
    trainer = trainer_of(tmp_path, logger=logger)
    with run.stage("experiment"):
        trainer.fit(Line(), batches(2))
        trainer.test(trainer.model, batches(3), verbose=False)
    assert logger.experiment is run
    assert not run.finished
    assert (logger.name, logger.version) == ("mine", run.id)
    run.finish()
    record = recorded(run)
    assert record.steps("loss", "test") == [2]
    assert [stage["name"] for stage in record.info["stages"]] == ["fit", "test", "experiment"]


def test_a_trainer_is_left_as_it_was(tmp_path: Path, root: Path) -> None:
    """After `fit` neither Trainer nor profiler, strategy, model or optimizer holds anything of ours."""
    callback, model = OtelTrainCallback(watch=1, **QUIET), Line()
    loader = batches(2)
    trainer = trainer_of(tmp_path, callbacks=[callback])
    before = {owner: set(vars(owner)) for owner in (trainer, trainer.profiler)}
    trainer.fit(model, loader)
    assert trainer.loggers == []
    assert {"save_checkpoint"} & (set(vars(trainer)) - before[trainer]) == set()
    assert {"start", "stop"} & set(vars(trainer.profiler)) == set()
    assert "process_dataloader" not in vars(trainer.strategy)
    assert "_get_iterator" not in vars(loader)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    assert all(not optimizer._optimizer_step_post_hooks for optimizer in trainer.optimizers)
    callback.borrowed.finish()


def test_an_exception_ends_a_run_of_the_loggers_own_as_failed(tmp_path: Path, logger: OtelTrainLogger) -> None:
    """The exception comes out of `fit`; run and stage are failed, with its text."""
    trainer = trainer_of(tmp_path, logger=logger)
    run = logger.experiment
    with pytest.raises(RuntimeError, match="on purpose"):
        trainer.fit(Line(fail_at=3), batches(4))
    assert run.finished
    record = recorded(run)
    assert record.info["status"] == "failed"
    assert record.event("run.end").attributes["exception.type"] == "RuntimeError"
    assert [stage["status"] for stage in record.info["stages"]] == ["failed"]
    assert record.steps("loss", "train") == [1, 2]


def test_the_users_run_outlives_an_exception(tmp_path: Path, start: Callable[..., Any]) -> None:
    """Somebody who catches it trains again in the same run, and both trainings are whole."""
    run = start()
    logger = OtelTrainLogger(watch=None)
    trainer = trainer_of(tmp_path, logger=logger)
    with pytest.raises(RuntimeError, match="on purpose"):
        trainer.fit(Line(fail_at=2), batches(4))
    assert not run.finished
    trainer_of(tmp_path, logger=logger).fit(Line(), batches(2))
    run.finish()
    record = recorded(run)
    assert [stage["status"] for stage in record.info["stages"]] == ["failed", "ok"]
    assert [point.step for point in record.named("dl.step.time", "train")] == [1, 2, 1, 2]
    assert record.info["status"] == "finished"


@pytest.mark.parametrize("own", [True, False])
def test_ctrl_c_makes_an_interrupted_run(tmp_path: Path, root: Path, own: bool) -> None:
    """Lightning turns Ctrl-C into an exit with code 1: a run, the logger's or the user's, is interrupted still."""
    run = None if own else otel_train.init(**QUIET)
    logger = OtelTrainLogger(watch=None, **QUIET)
    trainer = trainer_of(tmp_path, logger=logger)
    run = run or logger.experiment
    with pytest.raises(SystemExit):
        with run:
            trainer.fit(Line(fail_at=2, fault=KeyboardInterrupt), batches(4))
    assert recorded(run).info["status"] == "interrupted"


def test_an_early_stop_is_told_with_its_reason(tmp_path: Path, logger: OtelTrainLogger) -> None:
    """What EarlyStopping says is the reason, at the epoch in which it stopped."""
    stopper = pl.callbacks.EarlyStopping("spread", patience=2)
    trainer = trainer_of(tmp_path, logger=logger, max_epochs=50, callbacks=[stopper])
    trainer.fit(Line(), batches(2), batches(2))
    run = logger.experiment
    record = record_of(logger)
    stop = record.event("training.early_stop")
    assert "spread did not improve in the last 2 records" in stop.body
    assert stop.attributes["dl.epoch"] == 2
    assert record.info["attempts"][0]["early_stop"]["reason"] == stop.body
    assert len(record.spans_of("epoch")) == 3
    assert run.finished


def test_checkpoints_are_recorded_once_with_the_best(tmp_path: Path, logger: OtelTrainLogger) -> None:
    """Each file of ModelCheckpoint is hashed and dated; the best is the one that the Trainer holds for it."""
    saver = pl.callbacks.ModelCheckpoint(tmp_path / "models", monitor="val_loss", save_top_k=-1, save_last=True)
    trainer = trainer_of(tmp_path, logger=logger, max_epochs=2, enable_checkpointing=True, callbacks=[saver])
    trainer.fit(Line(), batches(2), batches(2))
    trainer.save_checkpoint(tmp_path / "by-hand.ckpt")
    record = record_of(logger)
    found = [(Path(entry["path"]).name, entry["best"], entry["step"]) for entry in record.info["checkpoints"]]
    assert found == [
        ("epoch=0-step=2.ckpt", True, 2),
        ("last.ckpt", False, 2),
        ("epoch=1-step=4.ckpt", True, 4),
        ("last.ckpt", False, 4),
    ]
    assert Path(saver.best_model_path).name == "epoch=1-step=4.ckpt"
    assert len(record.named("dl.checkpoint.time")) == len(record.spans_of("checkpoint")) == 4
    for point, span in zip(record.named("dl.checkpoint.time"), record.spans_of("checkpoint"), strict=True):
        # The span holds the hashing, too.
        assert 0 < point.value <= (span.entry.end_ns - span.entry.start_ns) / 1e9


def test_writing_a_checkpoint_is_no_wait_for_data(tmp_path: Path, logger: OtelTrainLogger) -> None:
    """A slow save after a batch is in its own time, neither in the wait of the next batch nor in any step."""
    import time

    class Slow(pl.plugins.io.TorchCheckpointIO):
        def save_checkpoint(self, *arguments: Any, **named: Any) -> None:
            time.sleep(0.3)  # the planted time of the save
            super().save_checkpoint(*arguments, **named)

    saver = pl.callbacks.ModelCheckpoint(tmp_path / "models", every_n_train_steps=2)
    trainer = trainer_of(tmp_path, logger=logger, enable_checkpointing=True, callbacks=[saver], plugins=[Slow()])
    trainer.fit(Line(), batches(4))
    record = record_of(logger)
    assert [point.value > 0.3 for point in record.named("dl.checkpoint.time")] == [True, True]
    assert max(point.value for point in record.named("dl.step.time", "train")) < 0.3
    assert max(point.value for point in record.named("dl.data.wait.time", "train")) < 0.3


def test_a_slow_loader_is_waited_for_and_nothing_else(tmp_path: Path, logger: OtelTrainLogger) -> None:
    """Wait for data is the time of the fetch: planted 50 ms each, also where a validation of 200 ms is in between."""
    import time

    class Slow(TensorDataset):
        def __getitem__(self, index: int) -> Any:
            time.sleep(0.05)  # the planted time of one sample
            return super().__getitem__(index)

    class SlowValidation(Line):
        def validation_step(self, batch: Any, index: int) -> None:
            time.sleep(0.2)  # the planted time of a validation
            super().validation_step(batch, index)

    x = torch.linspace(-1, 1, 4).unsqueeze(1)
    trainer = trainer_of(tmp_path, logger=logger, val_check_interval=1, num_sanity_val_steps=0)
    trainer.fit(SlowValidation(), DataLoader(Slow(x, 3 * x), 1), batches(1))
    waits = [point.value for point in record_of(logger).named("dl.data.wait.time", "train")]
    assert len(waits) == 4
    assert all(0.05 <= wait < 0.15 for wait in waits)


def test_a_resumed_training_goes_on_with_its_steps_and_names_its_parent(tmp_path: Path, root: Path) -> None:
    """With `ckpt_path` a new run begins at the batch after the checkpoint's, and points to the run that wrote it."""
    first = OtelTrainLogger("line", watch=None, **QUIET)
    trainer = trainer_of(tmp_path, logger=first)
    trainer.fit(Line(), batches(3))
    trainer.save_checkpoint(tmp_path / "one.ckpt")
    first_run = first.experiment
    first_run.log_checkpoint(tmp_path / "one.ckpt")
    first.finish()

    second = OtelTrainLogger("line", watch=None, **QUIET)
    trainer_of(tmp_path, logger=second, max_epochs=3).fit(Line(), batches(3), ckpt_path=tmp_path / "one.ckpt")
    record = record_of(second)
    assert record.steps("loss", "train") == [4, 5, 6, 7, 8, 9]
    assert [point.epoch for point in record.of("loss", "train")] == [1, 1, 1, 2, 2, 2]
    (parent,) = [entry for entry in record.info["checkpoints"] if entry["role"] == "loaded"]
    assert parent["run"] == first_run.id


def test_the_same_run_goes_on_as_its_next_attempt_when_asked(tmp_path: Path, root: Path) -> None:
    """`resume=` is that of `init`: attempt 2 of the run, with the steps that the checkpoint goes on with."""
    first = OtelTrainLogger("line", watch=None, **QUIET)
    trainer = trainer_of(tmp_path, logger=first)
    trainer.fit(Line(), batches(3))
    trainer.save_checkpoint(tmp_path / "one.ckpt")
    run_id = first.version
    first.finish()
    second = OtelTrainLogger(watch=None, resume=run_id, **QUIET)
    trainer_of(tmp_path, logger=second, max_epochs=2).fit(Line(), batches(3), ckpt_path=tmp_path / "one.ckpt")
    record = record_of(second)
    assert record.path.name == run_id
    assert [(point.attempt, point.step) for point in record.of("loss", "train")] == [
        *((1, step) for step in (1, 2, 3)),
        *((2, step) for step in (4, 5, 6)),
    ]


def test_a_fast_dev_run_is_not_recorded(tmp_path: Path, root: Path) -> None:
    """One batch to see whether the code works makes no run."""
    trainer_of(tmp_path, fast_dev_run=True, callbacks=[OtelTrainCallback()]).fit(Line(), batches(2))
    assert otel_train.current_run() is None
    assert not root.exists()


def test_without_opentelemetry_training_goes_on(tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the SDK disabled nothing is written, and all calls are harmless."""
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    logger = OtelTrainLogger("line", **QUIET)
    trainer = trainer_of(tmp_path, logger=logger)
    trainer.fit(Line(), batches(2), batches(2))
    trainer.save_checkpoint(tmp_path / "one.ckpt")
    logger.finish()
    assert (tmp_path / "one.ckpt").is_file()
    assert not root.exists()


def test_a_fault_of_ours_does_not_end_training(
    tmp_path: Path, logger: OtelTrainLogger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a hook of ours fails the Trainer goes on, and the run counts the fault."""
    monkeypatch.delenv("PYTEST_CURRENT_TEST")
    monkeypatch.setattr(logger.callback, "_loops", None)
    trainer = trainer_of(tmp_path, logger=logger)
    trainer.fit(Line(), batches(3))
    assert trainer.global_step == 3
    run = logger.experiment
    assert run.guard.faults > 0
    logger.finish()


def test_rates_of_groups_and_schedules_are_those_of_the_batch(tmp_path: Path, logger: OtelTrainLogger) -> None:
    """The rate stands at the batch that was learned with it, a group with its own beside."""

    class Scheduled(Line):
        def configure_optimizers(self) -> Any:
            groups = [{"params": [self.layer.weight]}, {"params": [self.layer.bias], "lr": 0.5}]
            optimizer = torch.optim.SGD(groups, lr=0.1)
            schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))
            return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    trainer_of(tmp_path, logger=logger).fit(Scheduled(), batches(3))
    record = record_of(logger)
    assert record.values("lr") == pytest.approx([0.1, 0.05, 0.1 / 3])
    assert record.values("lr/group1") == pytest.approx([0.5, 0.25, 0.5 / 3])


def test_how_far_it_is_is_known_from_the_first_batch_on(tmp_path: Path, logger: OtelTrainLogger) -> None:
    """By epochs, or by `max_steps` where that ends the training; a share of all batches, with windows as they are."""

    class Looking(Line):
        shares: tuple[float, ...] = ()

        def training_step(self, batch: Any, index: int) -> Any:
            self.shares = (*self.shares, logger.experiment.progress.share())
            return super().training_step(batch, index)

    for given, expected in (
        ({"max_epochs": 2}, [step / 8 for step in range(1, 9)]),
        ({"max_epochs": 9, "max_steps": 3, "accumulate_grad_batches": 2}, [step / 6 for step in range(1, 7)]),
    ):
        model = Looking()
        trainer_of(tmp_path, logger=logger, **given).fit(model, batches(4))
        assert list(model.shares) == pytest.approx(expected)
    logger.finish()


def test_the_older_package_is_used_where_the_script_imports_it(scripts: Scripts) -> None:
    """With `import pytorch_lightning` logger and callback are of that package, and `lightning` is not loaded."""
    done = scripts(
        """
        import sys
        import pytorch_lightning as pl, torch
        from torch.utils.data import DataLoader, TensorDataset
        from otel_train.integrations.lightning import OtelTrainCallback, OtelTrainLogger

        class Line(pl.LightningModule):
            def __init__(self):
                super().__init__()
                self.layer = torch.nn.Linear(1, 1)
            def training_step(self, batch, index):
                loss = (self.layer(batch[0]) ** 2).mean()
                self.log("train_loss", loss)
                return loss
            def configure_optimizers(self):
                return torch.optim.SGD(self.parameters(), lr=0.1)

        assert issubclass(OtelTrainLogger, pl.loggers.Logger) and issubclass(OtelTrainCallback, pl.Callback)
        loader = DataLoader(TensorDataset(torch.ones(4, 1)), 2)
        trainer = pl.Trainer(max_epochs=1, accelerator="cpu", logger=OtelTrainLogger("line"), log_every_n_steps=1,
                             enable_checkpointing=False, enable_progress_bar=False)
        trainer.fit(Line(), loader)
        assert "lightning.pytorch" not in sys.modules
        """
    )
    assert done.code == 0, done.errors
    record = recorded(done.path)
    assert record.steps("loss", "train") == [1, 2]
    assert record.info["status"] == "finished"


class Untrained(Line):
    """Has no optimizer: Lightning puts one of its own kind in the place."""

    def configure_optimizers(self) -> Any:
        return None


@pytest.mark.filterwarnings("ignore:`LightningModule.configure_optimizers` returned `None`")
def test_a_module_without_an_optimizer_trains_as_ever(root: Path, tmp_path: Path) -> None:
    """Nothing that Lightning itself puts in the place of an optimizer is a wrong argument of the user's."""
    logger = OtelTrainLogger("line", watch=1, **QUIET)
    trainer_of(tmp_path, logger=logger).fit(Untrained(), batches(3))
    path = logger.experiment.path
    logger.finish()
    assert [point.step for point in recorded(path).named("train.loss")] == [1, 2, 3]
