"""Connects Accelerate: `Accelerator(log_with=OtelTrainTracker())`; the loop is the user's own, through the run.

The step is that of `run.steps`, or what `accelerator.log(…, step=…)` is given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from accelerate.tracking import GeneralTracker

import otel_train
from otel_train.integrations.borrowed_run import BorrowedRun, telemetry
from otel_train.integrations.framework_loops import BACKWARD, FrameworkLoops


class OtelTrainTracker(GeneralTracker):
    """A tracker for `Accelerator(log_with=…)`.

    It records to the run that `otel_train.init()` has opened, else to one that it opens with these arguments, which are
    those of `init()`; a run of its own ends with `accelerator.end_training()`. `watch`: every how many optimizer steps
    `run.watch` looks into the model that `attach` is given, None for not at all.
    """

    name = "otel_train"
    requires_logging_directory = False
    # Each rank has its own machine, GPU and step times; numbers are stored by rank 0 all the same.
    main_process_only = False

    def __init__(self, project: str | None = None, *, watch: int | None = 100, **init: Any) -> None:
        super().__init__()
        self.borrowed = BorrowedRun({"project": project, **init})
        self._loops = FrameworkLoops(self.borrowed)
        self._watch = watch
        self._undo: list[Callable[[], Any]] = []

    @property
    def tracker(self) -> otel_train.Run:
        """The run, which `accelerator.get_tracker("otel_train", unwrap=True)` gives too."""
        return self.borrowed.run

    def start(self) -> None:
        """Find or open the run, now that Accelerate knows the ranks."""
        self.borrowed.renew()
        self.borrowed.run  # noqa: B018 - it opens when it is asked for

    @telemetry
    def store_init_configuration(self, values: dict[str, Any]) -> None:
        """Add to the run's configuration."""
        self.borrowed.run.config.update(values)

    @telemetry
    def log(self, values: Mapping[str, Any], step: int | None = None, **about: Any) -> None:
        """Record numbers, without `step` at the run's present one; `about` are other arguments of `run.log`."""
        if self.borrowed.stores_numbers():
            self.borrowed.run.log(values, step, **about)

    @telemetry
    def attach(self, accelerator: Any, model: Any = None, optimizer: Any = None) -> None:
        """Look into a prepared model, time the backward pass, and record the states that Accelerate saves and loads.

        Call it after `accelerator.init_trackers` and `accelerator.prepare`; `optimizer` may be several.
        """
        self._detach()
        if model is not None:
            several = optimizer if isinstance(optimizer, (list, tuple)) or optimizer is None else [optimizer]
            inner = None if several is None else [getattr(one, "optimizer", one) for one in several]
            scaler = getattr(accelerator, "scaler", None)
            self._loops.look_into(accelerator.unwrap_model(model), inner, every=self._watch, scaler=scaler)
        self._wrap(accelerator)

    def _wrap(self, accelerator: Any) -> None:
        backward, save, load = accelerator.backward, accelerator.save_state, accelerator.load_state
        run = self.borrowed.run

        def timed_backward(loss: Any, **named: Any) -> None:
            with run.phase(BACKWARD):
                backward(loss, **named)

        def recorded_save(output_dir: Any = None, *arguments: Any, **named: Any) -> Any:
            # Where Accelerate names the folder itself, only its answer says it.
            if not accelerator.is_main_process:
                return save(output_dir, *arguments, **named)
            with run.writing_checkpoint(output_dir or accelerator.project_dir or "state") as writing:
                written = save(output_dir, *arguments, **named)
                writing.path = written or writing.path
            return written

        def recorded_load(input_dir: Any = None, *arguments: Any, **named: Any) -> Any:
            if input_dir is not None:
                run.log_base_model(input_dir)
            return load(input_dir, *arguments, **named)

        for name, wrapper in (
            ("backward", timed_backward),
            ("save_state", recorded_save),
            ("load_state", recorded_load),
        ):
            setattr(accelerator, name, wrapper)
            self._undo.append(lambda name=name: vars(accelerator).pop(name, None))  # type: ignore[misc]

    def _detach(self) -> None:
        while self._undo:
            self._undo.pop()()
        if self.borrowed.is_open:
            self._loops.look_away()

    def finish(self) -> None:
        """End the run, where this tracker has opened it; after an exception it is a failed one."""
        self._detach()
        self.borrowed.finish()
