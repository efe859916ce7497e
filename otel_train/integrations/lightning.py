"""Connects Lightning: `OtelTrainLogger` takes what modules log, `OtelTrainCallback` what the Trainer does.

Either is enough and brings the other; both together record once. The step is the number of the batch, from 1; what
`trainer.global_step` counts, the steps of all optimizers, stands beside it as `dl.optimizer.step`.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable, Mapping
from typing import Any

import otel_train
from otel_train.integrations import lightning_trainer as facts
from otel_train.integrations.borrowed_run import BorrowedRun, learning_rates, log_foreign, telemetry
from otel_train.integrations.framework_loops import BACKWARD, FORWARD, OPTIMIZER, FrameworkLoops
from otel_train.integrations.lightning_package import Callback, Logger


class OtelTrainLogger(Logger):
    """A logger for `Trainer(logger=…)`.

    It records to the run that `otel_train.init()` has opened, else to one that it opens with these arguments, which are
    those of `init()`. A run of its own ends with an exception in training, with `finish()`, or with the process.
    `watch`, `watch_data` and `learning_rate` are those of `OtelTrainCallback`.
    """

    def __init__(
        self,
        project: str | None = None,
        *,
        watch: int | None = 100,
        watch_data: bool = True,
        learning_rate: bool = True,
        **init: Any,
    ) -> None:
        super().__init__()
        self.borrowed = BorrowedRun({"project": project, **init})
        self.callback = OtelTrainCallback(watch=watch, watch_data=watch_data, learning_rate=learning_rate)
        self.callback.borrow(self.borrowed)
        # The Trainer has one of this kind before it, which records everything.
        self.is_another = False

    @property
    def experiment(self) -> otel_train.Run:
        """The run."""
        if not self.callback.is_at_work:
            self.borrowed.renew()
        return self.borrowed.run

    @property
    def name(self) -> str:
        """The run's project."""
        return self.borrowed.run.project

    @property
    def version(self) -> str:
        """The run's id; checkpoints without a folder of their own go to `<project>/<id>/checkpoints`."""
        return self.borrowed.run.id

    @telemetry
    def log_metrics(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        """Record what modules and callbacks log."""
        if not self.is_another:
            self.callback.record(metrics, step)

    @telemetry
    def log_hyperparams(self, params: dict[str, Any] | Namespace, *args: Any, **kwargs: Any) -> None:
        """Add hyperparameters to the run's configuration."""
        self.borrowed.run.config.update(params)

    @telemetry
    def log_graph(self, model: Any, input_array: Any = None) -> None:
        """Bring the callback: here a logger first sees the Trainer, before that begins to work."""
        trainer = model.trainer
        if not any(isinstance(callback, OtelTrainCallback) for callback in trainer.callbacks):
            # Before the others, so that their time is none of a step's.
            trainer.callbacks.insert(0, self.callback)
            self.callback.enter(trainer, model)

    @telemetry
    def finalize(self, status: str) -> None:
        """Put everything on disk; a run of its own that has failed ends here."""
        if not self.borrowed.is_open:
            return
        if status == "success":
            self.borrowed.run.flush()
        else:
            self.borrowed.finish(None if sys.exc_info()[1] else "failed")

    def finish(self, status: str | None = None) -> None:
        """End the run, where this logger has opened it."""
        self.borrowed.finish(status)


class OtelTrainCallback(Callback):
    """A callback for `Trainer(callbacks=[…])`; `init` are the arguments of `otel_train.init()`, as of the logger.

    `watch`: every how many steps `run.watch` looks into the model, None for not at all. `watch_data`: whether the
    workers of the loaders are timed. `learning_rate`: whether it is recorded with each of training's numbers.
    """

    def __init__(
        self, *, watch: int | None = 100, watch_data: bool = True, learning_rate: bool = True, **init: Any
    ) -> None:
        self._watch = watch
        self._watch_data = watch_data
        self._learning_rate = learning_rate
        # The Trainer that is at work; others are not recorded, such as one of `fast_dev_run`.
        self._trainer: Any = None
        # Whether what is logged next is of a whole epoch or evaluation, not of a batch.
        self._of_whole = False
        self._rates: dict[str, Any] = {}
        # Loaders that come while the Trainer only tries whether validation works.
        self._loaders_to_watch: list[Any] = []
        self._undo: list[Callable[[], Any]] = []
        # The number of the last batch, kept from one `fit` to what follows it.
        self._batches = 0
        self.borrow(BorrowedRun(init))

    def borrow(self, borrowed: BorrowedRun) -> None:
        """Record to this run."""
        self.borrowed = borrowed
        self._loops = FrameworkLoops(borrowed)

    @property
    def is_at_work(self) -> bool:
        """Whether a Trainer is recorded at the moment."""
        return self._trainer is not None

    def __getstate__(self) -> dict[str, Any]:
        # What is open belongs to this process and Trainer.
        return self.__dict__ | {"_trainer": None, "_undo": [], "_loops": FrameworkLoops(BorrowedRun({}))}

    # A Trainer begins and ends ---------------------------------------------------------------------------------------

    @telemetry
    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Begin to record, unless another of this kind does so already."""
        if next(callback for callback in trainer.callbacks if isinstance(callback, OtelTrainCallback)) is self:
            self.enter(trainer, pl_module)

    def enter(self, trainer: Any, module: Any) -> None:
        """Begin to record what this Trainer does."""
        if trainer.fast_dev_run:
            return
        self._leave(None)
        logger = self._logger_of(trainer)
        for one in trainer.loggers:
            if isinstance(one, OtelTrainLogger):
                one.is_another = one is not logger
        if logger is not None and logger.callback is not self:
            logger.callback = self
            self.borrow(logger.borrowed)
        self._trainer = trainer
        self.borrowed.renew()
        run = self.borrowed.run
        task = str(getattr(trainer.state.fn, "value", trainer.state.fn))
        run.config.update(trainer=facts.trainer_facts(trainer))
        if task == "fit" and trainer.ckpt_path:
            run.log_base_model(trainer.ckpt_path)
        self._loops.enter_stage(task)
        self._undo += facts.wrap(trainer, self._fetch, self._watched, self._writing)
        if logger is None and task != "fit":
            self._bring_logger(trainer, module)

    @staticmethod
    def _logger_of(trainer: Any) -> OtelTrainLogger | None:
        return next((logger for logger in trainer.loggers if isinstance(logger, OtelTrainLogger)), None)

    def _bring_logger(self, trainer: Any, module: Any) -> None:
        logger = OtelTrainLogger()
        logger.callback, logger.borrowed = self, self.borrowed
        before = list(trainer.loggers)
        trainer.loggers = [*before, logger]
        self._undo.append(lambda: setattr(trainer, "loggers", before))
        self.borrowed.run.config.update(dict(getattr(module, "hparams_initial", {})))

    @telemetry
    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Leave the Trainer as it was."""
        if self._trainer is trainer:
            self._leave(None)

    @telemetry
    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """End a run of our own as failed, or interrupted; the user's is his to end."""
        if self._trainer is trainer:
            self._leave(exception)
            self.borrowed.finish(exception=exception)

    def _leave(self, fault: BaseException | None) -> None:
        if self._trainer is None:
            return
        self._trainer = None
        while self._undo:
            self._undo.pop()()
        self._loops.leave_stage(fault)

    # Training --------------------------------------------------------------------------------------------------------

    @telemetry
    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Bring the logger, now that the folder of the checkpoints is settled."""
        if self._trainer is trainer and self._logger_of(trainer) is None:
            self._bring_logger(trainer, pl_module)

    @telemetry
    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Open the loops, and look into the model."""
        if self._trainer is not trainer:
            return
        batches, epochs = trainer.num_training_batches, trainer.max_epochs
        self._loops.enter_training(
            first_epoch=trainer.current_epoch,
            epochs=epochs if epochs is not None and epochs >= 0 else None,
            batches=None if batches == float("inf") else int(batches),
            accumulate=trainer.accumulate_grad_batches,
            total=facts.batches_in_all(trainer),
        )
        scaler = getattr(trainer.precision_plugin, "scaler", None)
        self._loops.look_into(pl_module, list(trainer.optimizers), every=self._watch, scaler=scaler)
        for optimizer in trainer.optimizers:
            if hasattr(optimizer, "register_step_post_hook"):
                # `on_before_optimizer_step` has no counterpart.
                handle = optimizer.register_step_post_hook(lambda *_: self._switch(None))
                self._undo.append(handle.remove)

    @telemetry
    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """Begin a step, and where it is an epoch's first, that: one that was resumed within does not say so."""
        if self._loops.train is None:
            return
        self._loops.reach_epoch(trainer.current_epoch)
        done = getattr(trainer.fit_loop, "total_batch_idx", None)
        self._batches = self._batches + 1 if done is None else done + 1
        self._of_whole = False
        if self._learning_rate:
            # Before the schedule goes on: the rate with which this batch is learned.
            self._rates = learning_rates(trainer.optimizers)
        self._loops.train.begin(self._batches, batch=batch)
        self._switch(FORWARD)

    @telemetry
    def _switch(self, phase: str | None) -> None:
        self._loops.phase(phase)

    @telemetry
    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        """Begin the next epoch."""
        self._loops.reach_epoch(trainer.current_epoch)

    def on_before_backward(self, trainer: Any, pl_module: Any, loss: Any) -> None:
        """Begin the backward pass."""
        self._switch(BACKWARD)

    def on_after_backward(self, trainer: Any, pl_module: Any) -> None:
        """End the backward pass."""
        self._switch(None)

    def on_before_zero_grad(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        """End the forward pass."""
        self._switch(None)

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        """Begin the optimizer's step, which its own hook ends."""
        self._switch(OPTIMIZER)

    @telemetry
    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """End a step."""
        self._switch(None)
        if self._loops.train is not None:
            self._loops.train.end()

    @telemetry
    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Write the last step of an epoch."""
        self._of_whole = True
        self._loops.pause()

    @telemetry
    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Say why training stopped, if before its time."""
        if self._trainer is trainer:
            reason = facts.why_early(trainer)
            if reason is not None and self.borrowed.stores_numbers():
                self.borrowed.run.early_stop(reason)
            self._loops.leave_training()

    # Validation, test, prediction ------------------------------------------------------------------------------------

    @telemetry
    def _begin_evaluation(self, trainer: Any, split: str) -> None:
        # The check of two batches before training is no validation.
        if self._trainer is trainer and not trainer.sanity_checking:
            self._of_whole = False
            self._loops.begin_evaluation(split)

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        """Open the loop of a validation."""
        self._begin_evaluation(trainer, "val")

    def on_test_start(self, trainer: Any, pl_module: Any) -> None:
        """Open the loop of a test."""
        self._begin_evaluation(trainer, "test")

    def on_predict_start(self, trainer: Any, pl_module: Any) -> None:
        """Open the loop of a prediction."""
        self._begin_evaluation(trainer, "predict")

    @telemetry
    def on_validation_batch_start(
        self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Begin a batch."""
        if self._loops.evaluation is not None:
            self._loops.evaluation.begin(batch=batch)

    @telemetry
    def on_validation_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """End a batch."""
        if self._loops.evaluation is not None:
            self._loops.evaluation.end()

    @telemetry
    def on_validation_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Note that what is logged now is of the whole, not of a batch."""
        self._of_whole = True
        if self._loops.evaluation is not None:
            self._loops.evaluation.pause()

    @telemetry
    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Leave the loop."""
        self._of_whole = False
        self._loops.end_evaluation()

    on_test_batch_start = on_predict_batch_start = on_validation_batch_start
    on_test_batch_end = on_predict_batch_end = on_validation_batch_end
    on_test_epoch_end = on_predict_epoch_end = on_validation_epoch_end
    on_test_end = on_predict_end = on_validation_end

    # Numbers ---------------------------------------------------------------------------------------------------------

    def record(self, metrics: Mapping[str, Any], step: int | None) -> None:
        """Record what the logger is given, with the number of the last batch."""
        run, trainer = self.borrowed.run, self._trainer
        if not self.borrowed.stores_numbers() or (trainer is not None and trainer.sanity_checking):
            return
        values = {key: value for key, value in metrics.items() if key != "epoch"}
        if trainer is None:
            # By the user, before training or after it.
            run.log(values, self._batches if step is None else step)
            return
        split = "val" if trainer.validating else "test" if trainer.testing else None
        by_batch = split is not None and not self._of_whole
        axis = facts.foreign_axis(trainer, metrics, step, f"{split}_batch" if by_batch else "logged_step")
        loop = self._loops.train
        if axis is None and split is None and loop is not None and not self._of_whole:
            values |= {"optimizer_step": trainer.global_step, **self._rates}
        values = facts.plain_keys(run, values, trainer, split, by_batch=by_batch)
        log_foreign(run, values, self._batches if axis is None else step, default_split=split, axis=axis)
        if loop is not None:
            loop.end()

    # What has no hook: see `wrap` ------------------------------------------------------------------------------------

    @telemetry
    def _fetch(self, mark: str) -> None:
        loop = self._loops.present
        if loop is not None:
            getattr(loop, mark)()

    @telemetry
    def _watched(self, loader: Any) -> None:
        if self._watch_data and self._trainer.sanity_checking:
            self._loaders_to_watch.append(loader)
        elif self._watch_data:
            self._loops.watch_data(loader)

    @telemetry
    def on_sanity_check_end(self, trainer: Any, pl_module: Any) -> None:
        """Watch what the check has only tried."""
        while self._loaders_to_watch:
            self._loops.watch_data(self._loaders_to_watch.pop())

    @telemetry
    def _writing(self, trainer: Any, path: Any) -> Any:
        steps, best = trainer.global_step, facts.is_best(trainer, path)
        return self._loops.writing(path, best=best, iterations=steps, is_writer=trainer.is_global_zero)
