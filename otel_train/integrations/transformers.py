"""Connects Transformers' Trainer: `Trainer(…, callbacks=[OtelTrainCallback()])`.

The step is the number of the micro-batch, from 1; `state.global_step`, the optimizer's steps, stands beside it as
`dl.optimizer.step`. Without gradient accumulation they are the same.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, Final

from transformers import Trainer, TrainerCallback

import otel_train
from otel_train.integrations.at_work import AtWork
from otel_train.integrations.borrowed_run import BorrowedRun, telemetry
from otel_train.integrations.framework_loops import BACKWARD, FORWARD, OPTIMIZER, FrameworkLoops

# How long an evaluation took its span says.
_SPEEDS: Final = ("_runtime", "_samples_per_second", "_steps_per_second", "_model_preparation_time")
_SPLITS: Final = {"eval": "val", "test": "test"}


class OtelTrainCallback(TrainerCallback):
    """A callback for `Trainer(callbacks=[…])`.

    It records to the run that `otel_train.init()` has opened, else to one that it opens with these arguments, which are
    those of `init()`. A run of its own ends with `finish()` or with the process; in a search for hyperparameters each
    trial is a run. `watch`: every how many optimizer steps `run.watch` looks into the model, None for not at all.
    `watch_data`: whether the workers of the loaders are timed.
    """

    def __init__(
        self, project: str | None = None, *, watch: int | None = 100, watch_data: bool = True, **init: Any
    ) -> None:
        self.borrowed = BorrowedRun({"project": project, **init})
        self._loops = FrameworkLoops(self.borrowed)
        self._watch = watch
        self._watch_data = watch_data
        self._undo: list[Callable[[], Any]] = []
        self._micro_steps = 0
        self._model: Any = None
        self._saving: Any = None
        self._training: AtWork | None = None

    @property
    def run(self) -> otel_train.Run:
        """The run, which is opened if none is open."""
        if self._loops.train is None:
            self.borrowed.renew()
        return self.borrowed.run

    def finish(self, status: str | None = None) -> None:
        """End the run, where this callback has opened it."""
        self._leave()
        self.borrowed.finish(status)

    # Training --------------------------------------------------------------------------------------------------------

    @telemetry
    def on_train_begin(self, args: Any, state: Any, control: Any, **about: Any) -> None:
        """Open stage and loops, and look into the model."""
        self._leave()
        self.borrowed.renew()
        run = self.borrowed.run
        model, loader = about.get("model"), about.get("train_dataloader")
        run.config.update(training_arguments=args.to_dict(), **_model_config(model))
        batches = _length(loader)
        accumulate = max(1, int(args.gradient_accumulation_steps))
        self._micro_steps = _micro_steps(state.global_step, batches, accumulate)
        if state.global_step:
            self._link_resumed(args, state)
        self._loops.enter_stage("fit")
        self._loops.enter_training(
            first_epoch=int(state.epoch or 0),
            epochs=int(state.num_train_epochs) if state.num_train_epochs else None,
            batches=batches,
            accumulate=accumulate,
            total=_micro_steps(state.max_steps, batches, accumulate),
        )
        optimizer = about.get("optimizer")
        scaler = getattr(optimizer, "scaler", None)
        self._loops.look_into(model, getattr(optimizer, "optimizer", optimizer), every=self._watch, scaler=scaler)
        self._see_batches(model, compiled=bool(getattr(args, "torch_compile", False)))
        if self._watch_data and loader is not None:
            self._loops.watch_data(loader)
        self._loops.train.fetch()
        self._training = AtWork(Trainer, "train")

    def _link_resumed(self, args: Any, state: Any) -> None:
        # The Trainer does not say which folder it goes on from: that of this step is where it would be.
        path = os.path.join(args.output_dir, f"checkpoint-{state.global_step}")
        named = getattr(args, "resume_from_checkpoint", None)
        for candidate in (named, path):
            if isinstance(candidate, str) and os.path.isdir(candidate):
                self.borrowed.run.log_base_model(candidate)
                return

    def _see_batches(self, model: Any, *, compiled: bool) -> None:
        """See each forward pass by hooks of the module: when it is, and of which batch. Not of a compiled one."""
        self._model = model
        if model is None or compiled or not hasattr(model, "register_forward_pre_hook"):
            return
        before = model.register_forward_pre_hook(self._before_forward, with_kwargs=True)
        after = model.register_forward_hook(self._after_forward)
        self._undo += [before.remove, after.remove]

    @telemetry
    def _before_forward(self, module: Any, arguments: tuple[Any, ...], named: Mapping[str, Any]) -> None:
        loops = self._loops
        if self._training is not None and self._training.is_over():
            # An exception has left the training, and somebody uses the model without the Trainer.
            self._leave(RuntimeError("training was left by an exception"))
            return
        if not module.training:
            if loops.evaluation is None:
                # The second of several data sets, or one that is evaluated at the start.
                self._begin_evaluation()
            loops.evaluation.begin()
        elif module.training and loops.train is not None:
            loops.train.look_at(named or arguments)
            loops.phase(FORWARD)

    @telemetry
    def _after_forward(self, module: Any, arguments: Any, output: Any) -> None:
        if module.training:
            self._loops.phase(BACKWARD)

    @telemetry
    def on_epoch_begin(self, args: Any, state: Any, control: Any, **about: Any) -> None:
        """Begin an epoch."""
        self._end_evaluation()
        self._loops.reach_epoch(int(state.epoch or 0))
        self._fetch()

    @telemetry
    def on_step_begin(self, args: Any, state: Any, control: Any, **about: Any) -> None:
        """Begin the first micro-batch of an optimizer step: all of them have been fetched by now."""
        if self._loops.train is not None:
            self._loops.end_evaluation()
            self._loops.reach_epoch(int(state.epoch or 0))
            self._begin_step()

    def _begin_step(self) -> None:
        self._micro_steps += 1
        self._loops.train.begin(self._micro_steps)

    @telemetry
    def on_substep_end(self, args: Any, state: Any, control: Any, **about: Any) -> None:
        """End a micro-batch, which the next one follows at once."""
        if self._loops.train is not None:
            self._loops.phase(None)
            self._fetch()
            self._begin_step()

    @telemetry
    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **about: Any) -> None:
        """End the backward pass, to which clipping belongs, and begin the optimizer's step."""
        self._loops.phase(OPTIMIZER)

    @telemetry
    def on_optimizer_step(self, args: Any, state: Any, control: Any, **about: Any) -> None:
        """End the optimizer's step."""
        self._loops.phase(None)

    @telemetry
    def on_step_end(self, args: Any, state: Any, control: Any, **about: Any) -> None:
        """End the last micro-batch; then the Trainer logs, evaluates and saves, each if it is due, in this order."""
        if self._loops.train is None:
            return
        self._loops.phase(None)
        self._loops.train.end()
        if not control.should_log:
            self._after_log(args, state, control)

    @telemetry
    def on_epoch_end(self, args: Any, state: Any, control: Any, **about: Any) -> None:
        """Write the epoch's last step; what is due at the end of an epoch follows."""
        self._loops.pause()
        logged = any(entry.get("step") == state.global_step and "loss" in entry for entry in state.log_history[-3:])
        if logged or not control.should_log:
            self._after_log(args, state, control)

    def _after_log(self, args: Any, state: Any, control: Any) -> None:
        if control.should_evaluate:
            self._begin_evaluation()
        else:
            self._after_evaluation(args, state, control)

    def _after_evaluation(self, args: Any, state: Any, control: Any) -> None:
        if control.should_save:
            path = os.path.join(args.output_dir, f"checkpoint-{state.global_step}")
            self._saving = self._loops.writing(
                path, iterations=state.global_step, is_writer=state.is_world_process_zero
            )
            self._saving.__enter__()
        else:
            self._fetch()

    def _fetch(self) -> None:
        if self._loops.train is not None:
            self._loops.train.fetch()

    @telemetry
    def on_save(self, args: Any, state: Any, control: Any, **about: Any) -> None:
        """Record a checkpoint, which is the best one if the Trainer takes it for that."""
        path = os.path.join(args.output_dir, f"checkpoint-{state.global_step}")
        saving, self._saving = self._saving, None
        best = _is_best(args, state, path)
        if saving is not None:
            saving.best = best
            saving.__exit__(None, None, None)
        elif state.is_world_process_zero and os.path.isdir(path):
            self.borrowed.run.log_checkpoint(path, best=best, iterations=state.global_step)
        self._fetch()

    @telemetry
    def on_train_end(self, args: Any, state: Any, control: Any, **about: Any) -> None:
        """Say why training stopped, if before its time."""
        if self._loops.train is None:
            return
        if control.should_training_stop and state.global_step < state.max_steps and self.borrowed.stores_numbers():
            self.borrowed.run.early_stop(_why_early(args, state))
        self._leave()
        if state.is_hyper_param_search:
            self.borrowed.finish()

    def _leave(self, left_by: BaseException | None = None) -> None:
        training, self._training = self._training, None
        if training is not None:
            left_by = left_by or (RuntimeError("training was left by an exception") if training.is_over() else None)
            training.forget()
        if self._saving is not None:
            saving, self._saving = self._saving, None
            fault = RuntimeError("the checkpoint was not written")
            saving.__exit__(RuntimeError, fault, None)
        while self._undo:
            self._undo.pop()()
        self._model = None
        self._loops.leave_stage(left_by)

    # Evaluation ------------------------------------------------------------------------------------------------------

    def _begin_evaluation(self) -> None:
        stage = self.borrowed.run.present_stage or ""
        self._loops.begin_evaluation("test" if "test" in stage.lower() else "val")
        self._loops.evaluation.fetch()

    @telemetry
    def on_prediction_step(self, args: Any, state: Any, control: Any, **about: Any) -> None:
        """End a batch of an evaluation or prediction; of one outside of training the first batch opens the loop."""
        if self._loops.evaluation is None:
            if self._loops.train is None:
                self.borrowed.renew()
            self._begin_evaluation()
            # This one was over before anything was heard of it.
            self._loops.skip_batch()
            if self._model is None:
                self._see_batches(about.get("model"), compiled=bool(getattr(args, "torch_compile", False)))
        else:
            self._loops.evaluation.end()
            self._loops.evaluation.fetch()

    @telemetry
    def on_evaluate(self, args: Any, state: Any, control: Any, **about: Any) -> None:
        """Leave the loop of an evaluation; its numbers were logged before."""
        self._end_evaluation()
        # Of several data sets nobody says which is the last.
        if self._loops.train is not None and "eval_runtime" in (about.get("metrics") or {}):
            self._after_evaluation(args, state, control)
        else:
            self._fetch()

    @telemetry
    def on_predict(self, args: Any, state: Any, control: Any, metrics: Mapping[str, Any], **about: Any) -> None:
        """Leave the loop of a prediction, and record its numbers, which nobody logs."""
        self._end_evaluation()
        self._record(metrics, state)

    def _end_evaluation(self) -> None:
        self._loops.end_evaluation()
        if self._loops.train is None:
            while self._undo:
                self._undo.pop()()
            self._model = None

    # Numbers ---------------------------------------------------------------------------------------------------------

    @telemetry
    def on_log(self, args: Any, state: Any, control: Any, logs: Mapping[str, Any] | None = None, **about: Any) -> None:
        """Record what the Trainer logs."""
        self._record(logs or {}, state)
        loops = self._loops
        if loops.train is not None and loops.evaluation is None and "loss" in (logs or {}):
            loops.train.end()
            loops.train.pause()
            self._after_log(args, state, control)

    def _record(self, logs: Mapping[str, Any], state: Any) -> None:
        if not self.borrowed.stores_numbers():
            return
        run = self.borrowed.run
        if "train_runtime" in logs and "train_loss" in logs:
            # Of the whole training: its mean loss is no further point of the loss.
            run.event("trainer.summary", "what the Trainer says of the whole training", dict(logs))
            return
        by_split: dict[str | None, dict[str, Any]] = {}
        for key, value in logs.items():
            if key != "epoch" and not key.endswith(_SPEEDS):
                name, split = _plain_key(key)
                by_split.setdefault(split, {})[name] = value
        if "loss" in by_split.get(None, {}):
            by_split[None]["optimizer_step"] = state.global_step
        for split, values in by_split.items():
            run.log(values, self._micro_steps, split=split)


def _plain_key(key: str) -> tuple[str, str | None]:
    """Return the key and split that a loop by hand would log: `eval_loss` is the loss of val."""
    head, _, rest = key.partition("_")
    if head in _SPLITS and rest:
        return rest, _SPLITS[head]
    return ("lr" if key == "learning_rate" else key), None


def _model_config(model: Any) -> dict[str, Any]:
    config: Any = getattr(model, "config", None)
    return {"model": config.to_dict()} if hasattr(config, "to_dict") else {}


def _length(loader: Any) -> int | None:
    """Return the batches of an epoch, None where a loader over a stream does not know them."""
    try:
        return len(loader)
    except Exception:  # noqa: BLE001 - it may be the user's method
        return None


def _micro_steps(global_step: int, batches: int | None, accumulate: int) -> int:
    """Return how many micro-batches a resumed training has behind it; an epoch's last window may be short."""
    if not batches:
        return global_step * accumulate
    updates = -(-batches // accumulate)
    return global_step // updates * batches + global_step % updates * accumulate


def _is_best(args: Any, state: Any, path: str) -> bool:
    if args.metric_for_best_model is None:
        return False
    at = getattr(state, "best_global_step", None)
    return bool(at == state.global_step if at is not None else state.best_model_checkpoint == path)


def _why_early(args: Any, state: Any) -> str:
    if args.metric_for_best_model is None or state.best_metric is None:
        return "a callback stopped the training"
    at = getattr(state, "best_global_step", None)
    where = f" of optimizer step {at}" if at else ""
    return f"{args.metric_for_best_model} was no better than {state.best_metric:.6g}{where}"
