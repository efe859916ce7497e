"""Gives OpenTelemetry's API providers that follow the current run, where the user has set none."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from opentelemetry import _logs, metrics, trace
from opentelemetry.context import Context
from opentelemetry.sdk._logs import LoggerProvider, LogRecordProcessor, ReadWriteLogRecord
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricReader, MetricsData
from opentelemetry.util import types

from otel_train.otlp.from_sdk import log_entry
from otel_train.run.current import current_run

_lock = threading.Lock()
_reader: RunLogReader | None = None
_installed = False


class RunTracer(trace.Tracer):
    """Starts spans with the tracer of whichever run is current then; without a run they record nothing."""

    def __init__(self, name: str, version: str | None) -> None:
        self._name = name
        self._version = version
        self._nothing = trace.NoOpTracer()

    def _tracer(self) -> trace.Tracer:
        run = current_run()
        return self._nothing if run is None else run.spans.tracer_for(self._name, self._version)

    def start_span(
        self,
        name: str,
        context: Context | None = None,
        kind: trace.SpanKind = trace.SpanKind.INTERNAL,
        attributes: types.Attributes = None,
        links: Sequence[trace.Link] | None = None,
        start_time: int | None = None,
        record_exception: bool = True,
        set_status_on_exception: bool = True,
    ) -> trace.Span:
        """Start a span; see the API."""
        return self._tracer().start_span(
            name, context, kind, attributes, links, start_time, record_exception, set_status_on_exception
        )

    @contextmanager
    def _as_current(self, *args: Any, **kwargs: Any) -> Iterator[trace.Span]:
        with self._tracer().start_as_current_span(*args, **kwargs) as span:
            yield span

    # The API's own is an agnostic context manager, which serves as a decorator too; so does contextlib's.
    start_as_current_span = _as_current  # type: ignore[assignment]


class RunTracerProvider(trace.TracerProvider):
    """Stays in place after a run has ended, and records nothing then: the API lets a provider be set only once."""

    def get_tracer(
        self,
        instrumenting_module_name: str,
        instrumenting_library_version: str | None = None,
        schema_url: str | None = None,
        attributes: types.Attributes = None,
    ) -> trace.Tracer:
        """Return a tracer that follows the current run."""
        return RunTracer(instrumenting_module_name, instrumenting_library_version)


class _ToCurrentRun(LogRecordProcessor):
    """Hands records of OpenTelemetry's log API to the current run."""

    def on_emit(self, log_record: ReadWriteLogRecord) -> None:
        run = current_run()
        if run is not None:
            with run.guard("OpenTelemetry log record"):
                run.take_log(log_entry(log_record))

    def shutdown(self) -> None:
        """Nothing is held."""

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        """Nothing is held."""
        return True


class RunLogReader(MetricReader):
    """Collects instruments of OpenTelemetry's metrics API when the machine is read; has no thread of its own."""

    def __init__(self) -> None:
        super().__init__()
        self._take: Callable[[MetricsData], None] | None = None

    def read(self, take: Callable[[MetricsData], None]) -> None:
        """Collect now; `take` gets what there is."""
        self._take = take
        try:
            self.collect()
        finally:
            self._take = None

    def _receive_metrics(self, metrics_data: MetricsData, timeout_millis: float = 10_000, **kwargs: Any) -> None:
        if self._take is not None:
            self._take(metrics_data)

    def shutdown(self, timeout_millis: float = 30_000, **kwargs: Any) -> None:
        """Nothing is held."""


def install() -> None:
    """Set the three providers, each where none is set; a provider of the user's stays."""
    global _reader, _installed
    with _lock:
        if _installed:
            return
        _installed = True
        if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
            trace.set_tracer_provider(RunTracerProvider())
        if type(metrics.get_meter_provider()).__name__ == "_ProxyMeterProvider":
            _reader = RunLogReader()
            metrics.set_meter_provider(MeterProvider([_reader], shutdown_on_exit=False))
        if type(_logs.get_logger_provider()).__name__ == "ProxyLoggerProvider":
            provider = LoggerProvider(shutdown_on_exit=False)
            provider.add_log_record_processor(_ToCurrentRun())
            _logs.set_logger_provider(provider)


def collect(take: Callable[[MetricsData], None]) -> None:
    """Hand over what the instruments of the metrics API hold, where our provider is the one that is set."""
    if _reader is not None:
        _reader.read(take)
