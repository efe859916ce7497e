"""Makes the run's spans with OpenTelemetry's SDK: stages, epochs, checkpoints, evaluations, and those of the user."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from opentelemetry import context as context_api
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanLimits, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from otel_train.clock import wall_ns
from otel_train.record.entries import AttributeValue, SpanEntry
from otel_train.record.ids import new_span_id, new_trace_id
from otel_train.run.verdict import message_of
from otel_train.semconv import ANNOUNCES, SCOPE_NAME, TRUNCATED

# Stages and epochs of one run in a trace that it shares with what else a script, or a sweep, starts: with their
# announcements a tenth of what a store takes as one trace.
MOST_IN_INHERITED: Final = 500


class SystemIds(IdGenerator):
    """Ids from the operating system: the SDK's own come from `random`, which users seed alike on all ranks."""

    def generate_trace_id(self) -> int:
        """Return a new trace id."""
        return new_trace_id()

    def generate_span_id(self) -> int:
        """Return a new span id."""
        return new_span_id()


class _Processor(SpanProcessor):
    def __init__(self, take: Callable[[ReadableSpan], None]) -> None:
        self._take = take

    def on_end(self, span: ReadableSpan) -> None:
        self._take(span)


class RunSpans:
    """The tracer of one run, and its open spans."""

    def __init__(
        self,
        resource: Mapping[str, Any],
        take_span: Callable[[ReadableSpan], None],
        emit: Callable[[SpanEntry], None],
        environ: Mapping[str, str],
        *,
        main: bool = True,
    ) -> None:
        # Sampling is for high rates; a run has few spans of its own, and each counts, whatever a parent decided.
        self.provider = TracerProvider(
            resource=Resource(dict(resource)),
            sampler=ALWAYS_ON,
            id_generator=SystemIds(),
            shutdown_on_exit=False,
            span_limits=SpanLimits(),
        )
        self.provider.add_span_processor(_Processor(take_span))
        self.tracer = self.provider.get_tracer(SCOPE_NAME)
        self._tracers: dict[tuple[str, str | None], trace.Tracer] = {}
        self._emit = emit
        self._open: dict[int, Span] = {}
        self._lock = threading.Lock()
        self._inherited = _inherited_context(environ)
        # Other ranks than the main one leave their stages and epochs out of a trace that all of them share.
        self._main = main
        self._in_inherited = 0
        # Drawn now, so that others can be told of it before there is a run.
        self._own = self._draw(self.parent)
        self.run_context: trace.SpanContext | None = None

    def tracer_for(self, name: str, version: str | None) -> trace.Tracer:
        """Return this run's tracer for an instrumenting library."""
        tracer = self._tracers.get((name, version))
        if tracer is None:
            tracer = self._tracers[(name, version)] = self.provider.get_tracer(name, version)
        return tracer

    @property
    def parent(self) -> trace.SpanContext | None:
        """The span that `TRACEPARENT` names, None without one."""
        return None if self._inherited is None else trace.get_current_span(self._inherited).get_span_context()

    @property
    def own(self) -> trace.SpanContext:
        """The place of the span that stands for the run, or will."""
        return self._own

    def mark_run(
        self, name: str, attributes: Mapping[str, AttributeValue], under: str = ""
    ) -> tuple[trace.SpanContext, trace.SpanContext | None]:
        """Write the short span that stands for the run: nothing waits for an end that may never come.

        It belongs under the span that `TRACEPARENT` names, else under that of rank 0, which `under` spells the same
        way, else in a trace of its own. Returns its place and that of the span above it.
        """
        parent = self.parent
        if parent is None and (told := _inherited_context({"TRACEPARENT": under})) is not None:
            parent = trace.get_current_span(told).get_span_context()
            self._own = self._draw(parent)
        now_ns = wall_ns()
        self._emit(
            SpanEntry(
                name="run",
                trace_id=self._own.trace_id,
                span_id=self._own.span_id,
                parent_span_id=0 if parent is None else parent.span_id,
                start_ns=now_ns,
                end_ns=now_ns,
                attributes={"dl.run.name": name, **attributes},
            )
        )
        self.run_context = self._own
        return self._own, parent

    def _draw(self, parent: trace.SpanContext | None) -> trace.SpanContext:
        return trace.SpanContext(
            trace_id=new_trace_id() if parent is None else parent.trace_id,
            span_id=new_span_id(),
            is_remote=False,
            trace_flags=trace.TraceFlags(trace.TraceFlags.SAMPLED),
        )

    def start(
        self,
        name: str,
        attributes: Mapping[str, AttributeValue],
        *,
        parent: Context | None = None,
        announce: bool = True,
    ) -> Span:
        """Start a span under the active one, else under `TRACEPARENT`'s, else in a new trace linked to the run's.

        A trace of `TRACEPARENT` gets the stages and epochs of one rank, and only so many: others share it.
        """
        context = parent if parent is not None else context_api.get_current()
        links: Sequence[trace.Link] = ()
        if not _is_open(trace.get_current_span(context)):
            joins = self._inherited is not None and self._main and self._in_inherited < MOST_IN_INHERITED
            self._in_inherited += joins
            context = self._inherited if joins and self._inherited is not None else Context()
            if self.run_context is not None:
                links = (trace.Link(self.run_context),)
        span = self.tracer.start_span(name, context=context, attributes=_plain(attributes), links=links)
        assert isinstance(span, Span)
        own = span.get_span_context()
        with self._lock:
            self._open[own.span_id] = span
        if announce:
            now_ns = wall_ns()
            self._emit(
                SpanEntry(
                    name=f"{name} (started)",
                    trace_id=own.trace_id,
                    span_id=new_span_id(),
                    parent_span_id=own.span_id,
                    start_ns=span.start_time or now_ns,
                    end_ns=span.start_time or now_ns,
                    attributes={ANNOUNCES: f"{own.span_id:016x}", "dl.span.name": name, **attributes},
                )
            )
        return span

    def innermost(self) -> trace.SpanContext | None:
        """Return the innermost open span of this thread or task, else the run's, None before there is one."""
        span = trace.get_current_span()
        return span.get_span_context() if _is_open(span) else self.run_context

    def context_of(self, span: trace.Span) -> trace.SpanContext | None:
        """Return what a record of this very span carries, ended or not; the run's where it is none."""
        context = span.get_span_context()
        return context if context.is_valid else self.run_context

    def end(self, span: Span, fault: BaseException | None = None) -> None:
        """End a span once; later calls do nothing."""
        with self._lock:
            if self._open.pop(span.get_span_context().span_id, None) is None:
                return
        if fault is not None:
            span.record_exception(fault)
            span.set_status(trace.StatusCode.ERROR, f"{type(fault).__name__}: {message_of(fault)}"[:1000])
        span.end()

    def truncate(self) -> int:
        """End what is still open, innermost first, marked as truncated; return how many."""
        with self._lock:
            spans = list(self._open.values())[::-1]
            self._open.clear()
        for span in spans:
            span.set_attribute(TRUNCATED, True)
            span.end()
        return len(spans)

    def abandon(self) -> None:
        """In a forked child: forget what the parent has open."""
        self._open = {}
        self._lock = threading.Lock()


@contextmanager
def active(span: Span) -> Iterator[None]:
    """Make a span the current one of this thread or task."""
    token_holder = Activation(span)
    try:
        yield
    finally:
        token_holder.close()


class Activation:
    """A span as the current one until `close`, which does nothing where the context has moved on meanwhile.

    A generator's end may run in another thread or task; the API's `detach` would log an error there.
    """

    def __init__(self, span: Span) -> None:
        self._context = trace.set_span_in_context(span)
        self._token: Any = context_api.attach(self._context)

    def close(self) -> None:
        """Give the former span back."""
        token, self._token = self._token, None
        if token is not None and context_api.get_current() == self._context:
            context_api.detach(token)


def _is_open(span: trace.Span) -> bool:
    """Tell whether a span is one that something can belong to.

    A loop that an exception has left may stay alive with its traceback, in a notebook say, and so the current span.
    """
    return span.get_span_context().is_valid and not (isinstance(span, Span) and span.end_time is not None)


def _inherited_context(environ: Mapping[str, str]) -> Context | None:
    carrier = {name.lower(): environ[name] for name in ("TRACEPARENT", "TRACESTATE") if environ.get(name)}
    if "traceparent" not in carrier:
        return None
    context = TraceContextTextMapPropagator().extract(carrier, Context())
    return context if trace.get_current_span(context).get_span_context().is_valid else None


def _plain(attributes: Mapping[str, AttributeValue]) -> dict[str, Any]:
    """Return attributes as the SDK takes them: scalars, and sequences of texts."""
    return {
        key: value if isinstance(value, (str, bool, int, float)) else [str(item) for item in _items(value)]
        for key, value in attributes.items()
    }


def _items(value: AttributeValue) -> Sequence[Any]:
    if isinstance(value, Mapping):
        return [f"{key}={item!s}" for key, item in value.items()]
    return value if isinstance(value, Sequence) and not isinstance(value, (str, bytes)) else [value]
