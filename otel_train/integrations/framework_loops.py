"""Keeps the open stage, epochs, loops and phase of a framework that owns the loop, as its hooks tell of them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import otel_train
from otel_train.integrations.borrowed_run import BorrowedRun

# What the plain loops of the examples call these parts of a step, too.
FORWARD, BACKWARD, OPTIMIZER = "model_forward", "model_backward", "optimizer"


class FrameworkLoops:
    """What is open of one run; all calls come from the thread of the training."""

    def __init__(self, borrowed: BorrowedRun) -> None:
        self.borrowed = borrowed
        self.train: Any = None
        self.evaluation: Any = None
        self._stage: AbstractContextManager[Any] | None = None
        self._phase: AbstractContextManager[Any] | None = None
        self._epochs: Iterator[int] | None = None
        self._watched: list[Any] = []
        self._epoch: int | None = None
        self._last_epoch: int | None = None

    @property
    def run(self) -> otel_train.Run:
        """The run."""
        return self.borrowed.run

    # Stages ----------------------------------------------------------------------------------------------------------

    def enter_stage(self, name: str) -> None:
        """Open a stage, after what an earlier one has left."""
        self.leave_stage(None)
        self._stage = self.run.stage(name)
        self._stage.__enter__()

    def leave_stage(self, fault: BaseException | None) -> None:
        """Close the stage and all that is open in it; a fault makes it a failed one."""
        self.leave_training()
        self.look_away()
        if self._stage is not None:
            stage, self._stage = self._stage, None
            stage.__exit__(type(fault) if fault else None, fault, fault.__traceback__ if fault else None)

    @property
    def in_stage(self) -> bool:
        """Whether a stage is open."""
        return self._stage is not None

    # Training --------------------------------------------------------------------------------------------------------

    def enter_training(
        self, *, first_epoch: int, epochs: int | None, batches: int | None, accumulate: int, total: int | None
    ) -> None:
        """Open the loop over steps and the one over epochs: from the first up to but not `epochs` (None: endless).

        `batches` of an epoch and `total` of the training are None where the framework does not know them.
        """
        self.leave_training()
        run = self.run
        self.train = run.open_loop(batches=batches, accumulate=accumulate, total=total, first=1)
        numbers = itertools.count(first_epoch) if epochs is None else range(first_epoch, epochs)
        self._epochs, self._epoch = iter(run.epochs(numbers)), None
        self._last_epoch = None if epochs is None else epochs - 1

    def reach_epoch(self, number: int) -> None:
        """Begin the epoch with this number, unless it has begun."""
        while self._epochs is not None and (self._epoch is None or self._epoch < number):
            self._epoch = next(self._epochs, number)

    def leave_training(self) -> None:
        """Close the loops. The end of the last epoch is noted when one more is asked for, else it ends early."""
        self.phase(None)
        self.end_evaluation()
        if self.train is not None:
            self.train.close()
            self.train = None
        if self._epochs is not None:
            epochs, self._epochs = self._epochs, None
            if self._epoch == self._last_epoch:
                next(epochs, None)
            elif isinstance(epochs, Iterator) and hasattr(epochs, "close"):
                epochs.close()

    def pause(self) -> None:
        """Write the step that has ended: what follows is no training."""
        self.phase(None)
        if self.train is not None:
            self.train.pause()

    def phase(self, name: str | None) -> None:
        """End the open phase of a step, and begin another, if there is a name."""
        if self._phase is not None:
            self._phase.__exit__(None, None, None)
            self._phase = None
        if name is not None and self.train is not None:
            phase = self.run.phase(name)
            phase.__enter__()
            self._phase = phase

    # Evaluation ------------------------------------------------------------------------------------------------------

    def begin_evaluation(self, split: str) -> None:
        """Open a loop beside training, or without one."""
        self.pause()
        self.end_evaluation()
        self.evaluation = self.run.open_loop(split=split)

    def skip_batch(self) -> None:
        """Count a batch of an evaluation of which nothing is known."""
        if self.evaluation is not None:
            self.evaluation.step += 1

    def end_evaluation(self) -> None:
        """Close it."""
        if self.evaluation is not None:
            self.evaluation.close()
            self.evaluation = None

    @property
    def present(self) -> Any:
        """The loop that is at work, None where none is."""
        return self.train if self.evaluation is None else self.evaluation

    # Checkpoints -----------------------------------------------------------------------------------------------------

    def writing(self, path: Any, *, iterations: int, is_writer: bool, best: bool = False) -> Any:
        """Time a checkpoint that the framework writes, and record it on the rank that writes it."""
        self.pause()
        if not is_writer:
            return nullcontext()
        return self.run.writing_checkpoint(path, best=best, iterations=iterations)

    # Looking inside --------------------------------------------------------------------------------------------------

    def look_into(self, model: Any, optimizers: Any, *, every: int | None, scaler: Any = None) -> None:
        """Have the run watch a model, every so many optimizer steps; None for not at all."""
        if not every:
            return
        # What a framework has in their place need not be torch's: then they are found while it trains.
        for chosen, chosen_scaler in ((optimizers, scaler), (None, None)):
            try:
                self.run.watch(model, chosen, every=every, scaler=chosen_scaler)
            except otel_train.ConfigError as fault:
                if fault.field not in ("model", "optimizer", "scaler", "name"):
                    raise
                said = str(fault)
            else:
                self._watched.append(model)
                return
        self.run.warn(f"watch: the framework's model is not looked into: {said}")

    def watch_data(self, loader: Any) -> None:
        """Have the run watch a loader that the framework iterates."""
        self.run.watch_data(loader)
        self._watched.append(loader)

    def look_away(self) -> None:
        """End that."""
        while self._watched:
            self.run.unwatch(self._watched.pop())
