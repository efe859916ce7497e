"""A stage of a run: what went in, what came out, by which code, as a span and a record."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from types import TracebackType
from typing import TYPE_CHECKING, Any

from otel_train.clock import mono_ns, wall_ns
from otel_train.run.spans import Activation
from otel_train.run.trace_environ import TRACE_ENVIRONMENT
from otel_train.run.verdict import message_of
from otel_train.semconv import STAGE

if TYPE_CHECKING:
    from otel_train.run.run import Run

Paths = str | PathLike[str] | Sequence[Any] | Mapping[str, Any]


class Stage:
    """A context manager made by `Run.stage`; its span is the current one inside. Calls are safe from any thread."""

    def __init__(
        self,
        run: Run,
        name: str,
        *,
        inputs: Paths | None = None,
        outputs: Paths | None = None,
        code: str | PathLike[str] | Callable[..., Any] | None = None,
        parameters: Mapping[str, Any] | None = None,
    ) -> None:
        self.name = name
        self._run = run
        from otel_train.lineage.stages import StageRecord

        self.record = StageRecord(name)
        self._inputs = inputs
        self._outputs = outputs
        self._code = code
        self._parameters = parameters
        self._span: Any = None
        self._activation: Activation | None = None
        self.parent: str | None = None

    def __enter__(self) -> Stage:
        with self._run.guard("stage"):
            self.record.start(wall_ns(), mono_ns())
            if self._inputs is not None:
                self.record.add_inputs(self._inputs)
            if self._code is not None:
                self.record.add_code(self._code)
            if self._parameters is not None:
                # By key: what hides a value in the configuration hides it here.
                self.record.set_parameters(self._run.session.redactor.value("", self._parameters))
            self._span = self._run.spans.start(self.name, {STAGE: self.name})
            self._activation = Activation(self._span)
            TRACE_ENVIRONMENT.enter(self, self._span.get_span_context(), self._run.session)
            self._run.stage_began(self, self._span)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with self._run.guard("stage"):
            TRACE_ENVIRONMENT.leave(self)
            if self._outputs is not None:
                self.record.add_outputs(self._outputs)
            error = None if fault is None else f"{type(fault).__name__}: {message_of(fault)}"
            self.record.end(wall_ns(), mono_ns(), status="ok" if fault is None else "failed", error=error)
            if self._activation is not None:
                self._activation.close()
            if self._span is not None:
                self._span.set_attribute("dl.stage.status", "ok" if fault is None else "failed")
                self._run.spans.end(self._span, fault)
                self._run.stage_ended(self, self._span)

    def input(self, *paths: Any) -> None:
        """Record files, folders, globs or URLs that the stage reads."""
        with self._run.guard("stage.input"):
            self.record.add_inputs(list(paths))

    def output(self, *paths: Any) -> None:
        """Record files or folders that the stage made; they are hashed off the training thread."""
        with self._run.guard("stage.output"):
            self.record.add_outputs(list(paths))


class NoStage:
    """Stands in where nothing is recorded."""

    name = ""

    def __enter__(self) -> NoStage:
        return self

    def __exit__(self, *exception: Any) -> None:
        return None

    def input(self, *paths: Any) -> None:
        """Record nothing."""

    def output(self, *paths: Any) -> None:
        """Record nothing."""
