"""Reads from Lightning's Trainer what its hooks do not say, and wraps the three calls of it that have no hook."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

import otel_train

_FACTS: Final = (
    *("max_epochs", "max_steps", "accumulate_grad_batches", "gradient_clip_val", "gradient_clip_algorithm"),
    *("precision", "num_nodes", "num_devices", "log_every_n_steps", "val_check_interval"),
)


def trainer_facts(trainer: Any) -> dict[str, Any]:
    """Return what the Trainer was told, for the run's configuration."""
    facts = {key: getattr(trainer, key, None) for key in _FACTS}
    return {**facts, "strategy": type(trainer.strategy).__name__}


def batches_in_all(trainer: Any) -> int | None:
    """Return the batches of the whole training, None where nobody knows, as where it is `max_time` that ends it."""
    batches, epochs, steps = trainer.num_training_batches, trainer.max_epochs, trainer.max_steps
    ends = []
    if epochs is not None and epochs >= 0 and batches != float("inf"):
        ends.append(int(batches) * epochs)
    # Of several optimizers `max_steps` counts each one's.
    if steps is not None and steps >= 0 and len(trainer.optimizers) == 1:
        ends.append(steps * trainer.accumulate_grad_batches)
    return min(ends, default=None)


def wrap(
    trainer: Any,
    on_fetch: Callable[[str], None],
    on_loader: Callable[[Any], None],
    writing: Callable[[Any, Any], AbstractContextManager[None] | None],
) -> list[Callable[[], Any]]:
    """Be told of each fetch of a batch, each loader and each checkpoint; return what undoes it.

    All are methods that Lightning documents for others to override: of the profiler, whose actions ending in `_next`
    fetch a batch, of the strategy, and of the Trainer itself.
    """
    profiler, strategy = trainer.profiler, trainer.strategy
    start, stop, process, save = profiler.start, profiler.stop, strategy.process_dataloader, trainer.save_checkpoint

    def start_action(action_name: str) -> None:
        start(action_name)
        if action_name.endswith("_next"):
            on_fetch("fetch")

    def stop_action(action_name: str) -> None:
        if action_name.endswith("_next"):
            on_fetch("fetched")
        stop(action_name)

    def process_dataloader(dataloader: Any) -> Any:
        processed = process(dataloader)
        on_loader(processed)
        return processed

    def save_checkpoint(filepath: Any, *arguments: Any, **named: Any) -> None:
        with writing(trainer, filepath) or nullcontext():
            save(filepath, *arguments, **named)

    undo: list[Callable[[], Any]] = []
    for owner, name, wrapper in (
        (profiler, "start", start_action),
        (profiler, "stop", stop_action),
        (strategy, "process_dataloader", process_dataloader),
        (trainer, "save_checkpoint", save_checkpoint),
    ):
        before = vars(owner).get(name)
        setattr(owner, name, wrapper)
        undo.append(_restoring(owner, name, before))
    return undo


def _restoring(owner: Any, name: str, before: Any) -> Callable[[], None]:
    def restore() -> None:
        if before is None:
            vars(owner).pop(name, None)
        else:
            setattr(owner, name, before)

    return restore


def foreign_axis(trainer: Any, metrics: Mapping[str, Any], step: int | None, name: str) -> str | None:
    """Return the name of the axis that a logged step is on, None where it is Lightning's own of training.

    The batches of an evaluation have a counter of their own, and so has who logs a "step" himself. Lightning's own
    comes with the epoch; its callbacks give the same numbers without.
    """
    epoch_loop = getattr(trainer.fit_loop, "epoch_loop", None)
    own = (None, getattr(epoch_loop, "_batches_that_stepped", None), trainer.global_step)
    return None if "epoch" in metrics or step in own else name


def plain_keys(
    run: otel_train.Run, values: dict[str, Any], trainer: Any, split: str | None, *, by_batch: bool
) -> dict[str, Any]:
    """Return the values by the keys that a loop by hand would log.

    Of a metric that is logged by step and by epoch, training's by step and an evaluation's by epoch lose what
    Lightning adds to tell them apart. Of several loaders the number stands after the name. `by_batch`: the values are
    of one batch of an evaluation, of whose whole nothing is known yet.
    """
    known = trainer.callback_metrics
    plain: dict[str, Any] = {}
    for given, value in values.items():
        key, _, loader = given.partition("/dataloader_idx_")
        for ending, is_plain in (("_step", split is None), ("_epoch", split is not None)):
            base = key.removesuffix(ending)
            if base != key and (base in known or (by_batch and ending == "_step")):
                name, own = run.split_of(base, split or "train")
                key = f"{own}/{name}" if is_plain else f"{own}/{name}{ending}"
                break
        if loader:
            name, own = run.split_of(key, split)
            key = f"{own}/{name}/dataloader_{loader}" if own else f"{name}/dataloader_{loader}"
        plain[key] = value
    return plain


def is_best(trainer: Any, path: Any) -> bool:
    """Tell whether a checkpoint that is being written is the best one by some metric.

    Without a metric to go by, Lightning takes the last one for the best, which says nothing.
    """
    judges = [callback for callback in trainer.checkpoint_callbacks if getattr(callback, "monitor", None)]
    return any(str(getattr(judge, "best_model_path", "")) == str(path) for judge in judges)


def why_early(trainer: Any) -> str | None:
    """Return why training stopped before its time, None where it did not."""
    if not trainer.should_stop:
        return None
    for callback in trainer.early_stopping_callbacks:
        if callback.stopped_epoch:
            said = getattr(callback, "stopping_reason_message", None)
            checks = f"{callback.monitor} was no better for {callback.wait_count} checks"
            return str(said) if said else f"{checks}; best {float(callback.best_score):.6g}"
    return "trainer.should_stop was set"
