"""The run as its user holds it: what it records, and what becomes of that at the end."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from otel_train.errors import ConfigError
from otel_train.record.amounts import AmountLog
from otel_train.record.buffer import Buffer
from otel_train.record.deferred import cuda_timer
from otel_train.record.digest import Digest
from otel_train.record.entries import AttributeValue, LogEntry
from otel_train.record.names import NameTable, normalise_split
from otel_train.record.optimizer_steps import OptimizerSteps, micro_batches
from otel_train.record.phases import NoPhase, Phase, PhaseTable
from otel_train.record.points import PointLog
from otel_train.record.steps import StepLoop
from otel_train.record.summary import Summaries
from otel_train.record.thinning import Thinner
from otel_train.run import current
from otel_train.run.activity import Activity
from otel_train.run.artifacts import Artifacts
from otel_train.run.ending import PROCESS_END
from otel_train.run.epochs import EpochLoop
from otel_train.run.events import Events, without_none
from otel_train.run.facts import RunFacts
from otel_train.run.guard import Guard, Warner
from otel_train.run.loaders import loaders_of, opener
from otel_train.run.looking import LookingInside
from otel_train.run.memory import RunMemory
from otel_train.run.progress import Progress
from otel_train.run.rank_watching import wait_measures
from otel_train.run.session import Session
from otel_train.run.showing import Showing
from otel_train.run.stage import Paths, Stage
from otel_train.run.verdict import Flight, check_status
from otel_train.semconv import STAGE
from otel_train.watch.flops import Flops

if TYPE_CHECKING:
    from otel_train.config import Settings
    from otel_train.lineage.run_config import RunConfig
    from otel_train.watch.accounts import Accounts

T = TypeVar("T")


class Run(RunFacts, LookingInside, Showing):
    """One run, made by `otel_train.init()`. All methods may be called from any thread, and none raises into training.

    Exceptions of the user's own pass through unchanged: from a loader, from inside a stage or phase, and
    `save_checkpoint` raises CheckpointError where a model could not be written.
    """

    def __init__(self, settings: Settings, session: Session, config: RunConfig, *, first_step: int = 0) -> None:
        self.guard = Guard()
        self._flight = Flight()
        self.settings = settings
        self.config = config
        self.session = session
        self.finished = False
        self.warn = Warner()
        names = NameTable(self.warn)
        thinner = Thinner(settings["every"], names) if settings["every"] else None
        self._summaries = Summaries()
        self.digest = Digest(names, self._summaries, span_every=settings["step_span_every"])
        self.points = PointLog(
            Buffer(settings["buffer_entries"]), names, self.warn, thinner=thinner, first_step=first_step
        )
        self.spans = session.spans
        self.log_sink = session.sink
        self.events = Events(self)
        self.loaders = loaders_of(self)
        self.rank_waits = wait_measures(self)
        self._artifacts = Artifacts(self)
        self._phases = PhaseTable()
        self.activity = Activity(self)
        self.progress = Progress(self.points)
        self.optimizer_steps = OptimizerSteps()
        self.points.on_optimizer_step = lambda done: self.optimizer_steps.note("log", done)
        self.amounts = AmountLog(self.points, aside=lambda: self.activity.is_evaluating)
        self.flop_count = Flops()
        # Set once the run is open.
        self.accounts: Accounts | None = None
        self.memory = RunMemory(self)
        self._stages: list[str] = []
        self._ending = threading.Lock()
        self._muted = not session.ranks.is_main and settings["log_ranks"] == "main"
        # The thread that made it: another init() there ends this run.
        self.thread = threading.current_thread()

    # Points ----------------------------------------------------------------------------------------------------------

    def log(
        self,
        values: Mapping[str, Any],
        step: int | None = None,
        *,
        split: str | None = None,
        epoch: int | None = None,
        axis: str | None = None,
    ) -> None:
        """Record numbers by name, at this moment: Python's, NumPy's, or tensors of one element on any device.

        Without `step` a point goes to the step of `run.steps`, else to the run's present step, which moves on when a
        key already has a point at it. An explicit step may go back or repeat and moves nothing. `split` is train, val
        or test ("valid", "eval" and others are understood); a key such as `val/loss` says it too. `axis` names another
        counter than the run's step (`axis="env_step"`), and then needs `step`. The keys `step` and `epoch` set these.
        A value that is not one number is left out, with one warning for its key.
        """
        if self._muted:
            self._log_muted(values)
            return
        try:
            self.points.log(values, step, split, epoch, axis)
        except Exception as fault:  # noqa: BLE001 - a fault of telemetry must not end training
            self._log_failed(values, fault)

    def store_own(self) -> None:
        """Store what this rank logs: there is no rank 0 that does it for all."""
        self._muted = False

    @property
    def stores_common(self) -> bool:
        """Whether this rank stores what is the same on all ranks."""
        return not self._muted

    def _log_muted(self, values: object) -> None:
        self.points.buffer.drop("not rank 0", len(values) if isinstance(values, Mapping) else 1)
        self.warn(
            f"rank {self.rank} does not store run.log, which rank 0 does for all; "
            'with init(log_ranks="all") every rank stores its own'
        )

    def _log_failed(self, values: object, fault: Exception) -> None:
        if not isinstance(values, Mapping):
            self.warn(f'log: {type(values).__name__} is not recorded; give names and numbers: run.log({{"loss": 0.5}})')
            return
        with self.guard("log"):
            raise fault

    def define(self, name: str, *, goal: str | None = None, unit: str | None = None) -> None:
        """Say of a metric which direction is better (`goal="min"` or `"max"`) and its unit (UCUM: "s", "By", "1").

        "loss" and "error" count down by themselves; without a direction there is no best value.
        """
        if goal not in (None, "min", "max"):
            raise ConfigError("goal", goal, 'use "min" or "max"')
        if goal is not None:
            self._summaries.goals[name] = "min" if goal == "min" else "max"
        if unit is not None:
            self.points.names.units[name] = str(unit)
        known = {key: str(value) for key, value in (("goal", goal), ("unit", unit)) if value is not None}
        self.session.file.change(
            lambda document: document.setdefault("metrics", {}).setdefault(name, {"unit": ""}).update(known)
        )

    # Loops -----------------------------------------------------------------------------------------------------------

    def steps(
        self, loader: Iterable[T], *, split: str = "train", start: int | None = None, accumulate: int | None = None
    ) -> StepLoop[T]:
        """Iterate over a loader's batches as steps: each is numbered, and timed with its wait for data.

        Numbering goes on from epoch to epoch; `start` sets the first. With another split than train the batches are
        timed under that split, within a span, and the run's step stays where it is.

        How many samples a batch has is seen by its shape, and its tokens where it has `input_ids`, padding included;
        `count` says both better. With `accumulate` that many batches (micro-batches) make one optimizer step; those
        at the end of the loop that are too few make none.
        """
        split = normalise_split(str(split))
        owns_step = split == "train"
        together = micro_batches(accumulate)
        if owns_step:
            self.progress.steps_begin(loader)
            if accumulate is not None:
                self.optimizer_steps.accumulates(together, self.points)
        return StepLoop(
            loader,
            self.points,
            split=split,
            start=start,
            owns_step=owns_step,
            accumulate=together,
            timer=cuda_timer if owns_step else lambda: None,
            on_begin=None if owns_step else lambda: self.activity.evaluation(split),
            on_loader_fault=self.events.loader_failed,
            open_loader=opener(self, split),
        )

    def epochs(self, epochs: int | Iterable[int], *, start: int = 0) -> EpochLoop:
        """Iterate over epochs, each a span: from `start` up to but not `epochs`, or the numbers of an iterable."""
        return EpochLoop(self, range(start, epochs) if isinstance(epochs, int) else epochs)

    def phase(self, name: str) -> Phase | NoPhase:
        """Time a part of a step: `with run.phase("model_forward"): …`; costs half a microsecond."""
        phases = self._phases.by_name
        if name in phases:
            return phases[name]
        phase = phases[name] = Phase(str(name), self.points)
        self.activity.note_phase(phase)
        return phase

    def stage(
        self,
        name: str,
        *,
        inputs: Paths | None = None,
        outputs: Paths | None = None,
        code: str | PathLike[str] | Callable[..., Any] | None = None,
        parameters: Mapping[str, Any] | None = None,
    ) -> Stage:
        """Record a stage of the pipeline as a span, with a checksum of each input, output and script.

        Paths may be files, folders, globs or URLs; a file that is missing is said, not raised.
        """
        return Stage(self, str(name), inputs=inputs, outputs=outputs, code=code, parameters=parameters)

    # Data, models, events: see `Artifacts` and `Events` --------------------------------------------------------------

    def log_dataset(
        self,
        name: str,
        data: Any = None,
        *,
        labels: Any = None,
        dropped: int | Mapping[str, int] | None = None,
        sampling: str | None = None,
        path: Any = None,
        classes: Any = None,
    ) -> None:
        """Record a data set's size, classes and their counts, sampling, dropped samples and checksum.

        `data` is a data set, array, tensor, path or a mapping of splits; of large ones a bounded sample is checked,
        and the record says so. Nothing is iterated beyond a few samples.
        """
        with self.guard("log_dataset"):
            self._artifacts.dataset(
                name, data, labels=labels, dropped=dropped, sampling=sampling, path=path, classes=classes
            )

    def save_checkpoint(
        self,
        path: str | PathLike[str],
        obj: Any,
        *,
        best: bool = False,
        save: Callable[[Any, str], Any] | None = None,
        iterations: int | None = None,
        metrics: Mapping[str, Any] | None = None,
    ) -> Path:
        """Write a model atomically, check what was written, and put `<path>.context.json` beside it.

        `save(obj, path)` is the writer; without it torch.save where torch is loaded, else pickle. `best` is your word
        that none before was as good: it is recorded, not checked. Raises CheckpointError where the file could not be
        written; the former one is then still whole.
        """
        with self.activity.during("checkpoint"):
            return self._artifacts.save(path, obj, best=best, save=save, iterations=iterations, metrics=metrics)

    def log_checkpoint(self, path: str | PathLike[str], *, best: bool = False, iterations: int | None = None) -> None:
        """Record a checkpoint, file or folder, that another library wrote; it is hashed off the training thread."""
        with self.guard("log_checkpoint"):
            self._artifacts.written_elsewhere(path, best=best, iterations=iterations)

    def log_base_model(self, path_or_name: str | PathLike[str]) -> None:
        """Record the checkpoint or published model that this run starts from: its parent in the lineage."""
        with self.guard("log_base_model"):
            self._artifacts.base_model(path_or_name)

    def early_stop(self, reason: str) -> None:
        """Record that training stops early, and why."""
        with self.guard("early_stop"):
            self.events.emit("training.early_stop", str(reason), self.position())
            self.session.file.set_attempt(early_stop={"reason": str(reason), **self.position()})

    def event(self, name: str, body: str = "", attributes: Mapping[str, AttributeValue] | None = None) -> None:
        """Record an event of the user's own, as a log record with this event name."""
        with self.guard("event"):
            self.events.emit(str(name), str(body), {**self.position(), **without_none(attributes or {})})

    def record_registry(
        self, registry: Any = None, *, every_s: float = 15.0, prefix: str = "", most_series: int = 2000
    ) -> None:
        """Record what a prometheus_client registry holds (None: its default one) every so often, off this thread.

        Families keep their names, after `prefix`. Series beyond `most_series` are left out, with one notice.
        """
        self.session.prometheus.record_registry(self, registry, every_s=every_s, prefix=prefix, most_series=most_series)

    def take_log(self, entry: LogEntry) -> None:
        """Take a record of OpenTelemetry's log API."""
        entry.attributes = {**self.position(), **entry.attributes}
        self.log_sink.emit_log(entry)

    # Stages ----------------------------------------------------------------------------------------------------------

    def stage_began(self, stage: Stage, span: Any) -> None:
        """Note an open stage; its event belongs to its span."""
        stage.parent = self._stages[-1] if self._stages else None
        self._stages.append(stage.name)
        self.activity.stage_begins(stage)
        self.events.emit("stage.start", f"stage {stage.name} began", {STAGE: stage.name}, span=span)

    def stage_ended(self, stage: Stage, span: Any) -> None:
        """Record an ended stage once its files are hashed."""
        self.activity.stage_ends(stage)
        if stage.name in self._stages:
            self._stages.remove(stage.name)
        self._artifacts.stage(stage, span)

    @property
    def present_stage(self) -> str | None:
        """The innermost open stage's name."""
        return self._stages[-1] if self._stages else None

    # Life ------------------------------------------------------------------------------------------------------------

    def use(self) -> AbstractContextManager[Run]:
        """Bind this thread or task to the run: `with run.use(): …` sends log records and spans to it."""
        return current.bound(self)

    def flush(self, timeout_s: float = 5.0) -> bool:
        """Put on disk what was recorded before this call; False where the disk does not answer in time."""
        with self.guard("flush"):
            return self.session.flush(timeout_s)
        return False

    def __enter__(self) -> Run:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # Not what is in flight around the block: the block itself has ended well where there is no fault.
        self._finish(None, None, fault, None)

    def finish(
        self,
        status: str | None = None,
        *,
        reason: str | None = None,
        exception: BaseException | None = None,
        exit_code: int | None = None,
    ) -> None:
        """End the run, within five seconds, and say in one line what was recorded, dropped, and where.

        Without `status` it is finished; failed where an exception is given or in flight; interrupted for Ctrl-C.
        ConfigError where the status is none of finished, failed, interrupted, killed. A second call does nothing.
        """
        check_status(status)
        self._finish(status, reason, exception or self._flight.present(), exit_code)

    def _finish(
        self, status: str | None, reason: str | None, fault: BaseException | None, exit_code: int | None
    ) -> None:
        with self._ending:
            if self.finished:
                return
            self.finished = True
        try:
            with PROCESS_END.finishing(), self.guard("finish"):
                self.session.end(self, status, reason, fault, exit_code)
        finally:
            self._end_panel()

    def abandon(self) -> None:
        """In a forked child: nothing is recorded here, and the parent's is left alone."""
        self.finished = True
        self.points.buffer.kill()
        self.points.overflow_cause = "in a forked child"
        self.loaders.forget()
        self.session.abandon()
