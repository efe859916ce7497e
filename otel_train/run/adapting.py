"""Lets an adapter tell of a loop that a framework owns: its steps, checkpoints and names; the part of `Run` for it."""

from __future__ import annotations

from contextlib import ExitStack
from os import PathLike
from types import TracebackType
from typing import TYPE_CHECKING, Any

from otel_train.clock import NS_PER_S, mono_ns, wall_ns
from otel_train.record.deferred import cuda_timer
from otel_train.record.entries import AttributeValue, Sample
from otel_train.record.names import normalise_split, split_of
from otel_train.record.open_loop import OpenLoop
from otel_train.run.spans import active

if TYPE_CHECKING:
    from otel_train.record.points import PointLog
    from otel_train.run.activity import Activity
    from otel_train.run.guard import Guard
    from otel_train.run.progress import Progress
    from otel_train.run.sink import RunSink
    from otel_train.run.spans import RunSpans


class Adapting:
    """The part of `Run` for whoever writes an adapter, or a loop that cannot go through `run.steps`."""

    points: PointLog
    guard: Guard
    activity: Activity
    progress: Progress
    spans: RunSpans
    log_sink: RunSink
    finished: bool

    if TYPE_CHECKING:

        def position(self) -> dict[str, AttributeValue]: ...  # noqa: D102

        def log_checkpoint(  # noqa: D102
            self, path: str | PathLike[str], *, best: bool = False, iterations: int | None = None
        ) -> None: ...

    def open_loop(
        self,
        *,
        split: str = "train",
        batches: int | None = None,
        accumulate: int = 1,
        total: int | None = None,
        first: int = 0,
    ) -> OpenLoop:
        """Open a loop over batches that something else drives, and tell it by calls where that is.

        `batches` is their number in an epoch, where it is known; `total` that of the whole training, earlier attempts
        included, of which the very first has the number `first`; `accumulate` how many make one optimizer step. With
        another split than train the batches are timed under that split, within a span, and the run's step stays where
        it is. Close it, or use it as a context manager.
        """
        split = normalise_split(str(split))
        owns_step = split == "train"
        if owns_step:
            with self.guard("open_loop"):
                if total:
                    self.progress.known_end(steps=total, first=first)
                self.progress.steps_begin(range(batches or 0))
        loop = OpenLoop(
            self.points,
            split=split,
            owns_step=owns_step,
            timer=cuda_timer if owns_step else lambda: None,
            on_begin=None if owns_step else lambda: self.activity.evaluation(split),
        )
        if accumulate > 1:
            loop.timed.accumulate = accumulate
        return loop

    def writing_checkpoint(
        self, path: str | PathLike[str], *, best: bool = False, iterations: int | None = None
    ) -> WritingCheckpoint:
        """Time what another library writes within the block, and then record it as `log_checkpoint` does.

        Where the block raises nothing is recorded but the failed span, and the exception passes through.
        """
        return WritingCheckpoint(self, path, best=best, iterations=iterations)

    @staticmethod
    def split_of(key: str, default: str | None = None) -> tuple[str, str | None]:
        """Return a key without its split, and that split; where it says none `default`.

        `val_loss` gives ("loss", "val"), `lr` gives ("lr", default): as `log` reads keys.
        """
        return split_of(key, default)


class WritingCheckpoint:
    """A context manager made by `Run.writing_checkpoint`; `best` may be set within it."""

    def __init__(self, run: Adapting, path: str | PathLike[str], *, best: bool, iterations: int | None) -> None:
        self._run = run
        self.path = path
        self.best = best
        self._iterations = iterations
        self._within = ExitStack()
        self._span: Any = None
        self._start_ns = 0

    def __enter__(self) -> WritingCheckpoint:
        run = self._run
        if not run.finished:
            with run.guard("writing_checkpoint"):
                self._span = run.spans.start("checkpoint", {"path": str(self.path), **run.position()})
                self._within.enter_context(run.activity.during("checkpoint"))
                self._within.enter_context(active(self._span))
                self._start_ns = mono_ns()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, traceback: TracebackType | None
    ) -> None:
        run = self._run
        with run.guard("writing_checkpoint"):
            if self._span is not None and fault is None:
                duration_s = (mono_ns() - self._start_ns) / NS_PER_S
                run.log_sink.emit_samples(wall_ns(), [Sample("dl.checkpoint.time", duration_s)])
                run.log_checkpoint(self.path, best=self.best, iterations=self._iterations)
                self._span.set_attribute("best", self.best)
            self._within.close()
            if self._span is not None:
                run.spans.end(self._span, fault)


class NoCheckpoint:
    """Stands in where nothing is recorded."""

    def __init__(self, path: str | PathLike[str]) -> None:
        self.path = path
        self.best = False

    def __enter__(self) -> NoCheckpoint:
        return self

    def __exit__(self, *exception: Any) -> None:
        return None
