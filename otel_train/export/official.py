"""Makes OpenTelemetry's own OTLP exporters for a destination, and finds out from each export what became of it.

They tell success from failure and nothing more. Whether to try again, and why not, is read off the HTTP session that
they are given and off what they log, which is kept out of the user's logs: an outage is said once, by ourselves.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any, Final

from otel_train.clock import wall_ns
from otel_train.errors import ConfigError, installing
from otel_train.export.destination import GRPC, HTTP_JSON, HTTP_PROTOBUF, Destination, Destinations
from otel_train.export.http_answers import read_answer
from otel_train.export.metrics_to_sdk import metrics_data
from otel_train.export.to_sdk import Resources, log_records, spans
from otel_train.export.transport import Answer, Verdict, shortened

_PACKAGE: Final = "opentelemetry.exporter.otlp.proto"
_LOGGERS: Final = (
    f"{_PACKAGE}.grpc.exporter",
    f"{_PACKAGE}.http.metric_exporter",
    f"{_PACKAGE}.http._log_exporter",
    f"{_PACKAGE}.http.trace_exporter",
    f"{_PACKAGE}.common._internal.metrics_encoder",
)
# What gRPC says of data that is at fault itself. All else may pass, or be put right at the server.
_REFUSED_CODES: Final = frozenset({"INVALID_ARGUMENT", "OUT_OF_RANGE", "DATA_LOSS"})


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one export."""

    accepted: bool
    # The server has refused this very data: to send it again is of no use, a part of it may be good.
    refused: bool = False
    # Items that the server says it did not take of an accepted request.
    rejected: int = 0
    reason: str = ""


def direct_destinations(environ: Mapping[str, str], endpoint: str | None) -> Destinations:
    """Return where a run without a folder sends each signal; ConfigError where that is nowhere, or cannot be.

    The protocol is `http/protobuf` unless the variables say `grpc`: the official exporters speak no JSON.
    """
    try:
        installed = find_spec(_PACKAGE + ".http") is not None and find_spec(_PACKAGE + ".grpc") is not None
    except ModuleNotFoundError:
        installed = False
    if not installed:
        fix = f"{installing('otlp')}: without a folder the official OTLP exporters send what is recorded"
        raise ConfigError("dir", False, fix)
    found = Destinations.from_environ(environ, endpoint)
    if not found:
        fix = "name an endpoint (endpoint=…, or OTEL_EXPORTER_OTLP_ENDPOINT) or a folder, else nothing would be kept"
        raise ConfigError("dir", False, fix)
    spoken = {
        made.signal: replace(made, protocol=HTTP_PROTOBUF) if made.protocol == HTTP_JSON else made for made in found
    }
    return Destinations(**spoken)


class OfficialExporter:
    """One signal's exporter. `export` is for one thread, which blocks in it; `stop` may be called from any."""

    def __init__(self, destination: Destination) -> None:
        self.destination = destination
        self.signal = destination.signal
        self._resources = Resources()
        self._watch = _Watch()
        self._exporter = _make(destination, self._watch)

    def export(self, items: Sequence[Any]) -> Outcome:
        """Send points (`SentPoint`), or pairs of an entry and its resource; never raises."""
        self._watch.begin()
        try:
            result = self._exporter.export(self._translated(items))
        except Exception as fault:  # noqa: BLE001 - foreign code; what the network does it does not raise
            return Outcome(False, refused=True, reason=shortened(f"{type(fault).__name__}: {fault}"))
        finally:
            self._watch.end()
        seen = self._watch.seen
        if seen is not None:
            # An exporter takes a redirection for success, and a page of a proxy.
            refused = seen.verdict in (Verdict.REFUSED, Verdict.TOO_LARGE)
            return Outcome(seen.verdict is Verdict.ACCEPTED, refused, seen.rejected, seen.text)
        # An exporter that asked nobody could not encode what it was given.
        refused = self._watch.refused or not self._watch.asked
        return Outcome(result.name == "SUCCESS", refused, reason=self._watch.reason or "no answer")

    def _translated(self, items: Sequence[Any]) -> Any:
        if self.signal == "metrics":
            return metrics_data(items, self._resources)
        return (log_records if self.signal == "logs" else spans)(items, self._resources)

    def limit(self, left_s: Callable[[], float]) -> None:
        """Let requests that begin from now on take no longer than this says; none that is under way is cut short."""
        self._watch.left_s = left_s

    def stop(self) -> None:
        """Wait for nothing any more: end waits between two tries, and let go of the connection."""
        try:
            self._exporter.shutdown()
        except Exception:  # noqa: BLE001 - at the end nobody could make use of it
            pass


class _Watch:
    """What is seen of the present export."""

    def __init__(self) -> None:
        self.left_s: Callable[[], float] | None = None
        self.seen: Answer | None = None
        self.asked = False
        self.refused = False
        self.reason = ""

    def begin(self) -> None:
        self.seen = None
        self.asked = False
        self.refused = False
        self.reason = ""
        _watches[threading.get_ident()] = self

    def end(self) -> None:
        _watches.pop(threading.get_ident(), None)

    def take_log(self, record: logging.LogRecord) -> None:
        """Read what a gRPC exporter says of a try: a code and details. Other words are kept as they are."""
        arguments = record.args if isinstance(record.args, tuple) else ()
        code = next((argument for argument in arguments if hasattr(argument, "name")), None)
        if code is not None:
            self.asked = True
            self.refused = code.name in _REFUSED_CODES
            self.reason = shortened(f"{code.name}: {arguments[-1] or ''}")
        elif not self.reason:
            self.reason = shortened(record.getMessage())


# Exports under way, by thread.
_watches: dict[int, _Watch] = {}
_lock = threading.Lock()


class _Filter(logging.Filter):
    """Takes what exporters log on our threads; everybody else's passes."""

    def filter(self, record: logging.LogRecord) -> bool:
        watch = _watches.get(threading.get_ident())
        if watch is None:
            return True
        try:
            watch.take_log(record)
        except Exception:  # noqa: BLE001 - the words of a later version may be others
            pass
        return False


_FILTER: Final = _Filter()


def _listen() -> None:
    with _lock:
        for name in _LOGGERS:
            logger = logging.getLogger(name)
            if _FILTER not in logger.filters:
                # Before theirs, which drop what is said again within a minute.
                logger.filters.insert(0, _FILTER)


def _make(destination: Destination, watch: _Watch) -> Any:
    made = _grpc_exporter(destination) if destination.protocol == GRPC else _http_exporter(destination, watch)
    # Once its modules are loaded: they put filters of their own in place.
    _listen()
    return made


def _http_exporter(destination: Destination, watch: _Watch) -> Any:
    from opentelemetry.exporter.otlp.proto.http import Compression
    from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    made = {"metrics": OTLPMetricExporter, "logs": OTLPLogExporter, "traces": OTLPSpanExporter}[destination.signal]
    return made(
        endpoint=destination.url,
        certificate_file=destination.certificate,
        client_key_file=destination.client_key,
        client_certificate_file=destination.client_certificate,
        headers=dict(destination.headers),
        timeout=destination.timeout_s,
        compression=Compression.Gzip if destination.compression == "gzip" else Compression.NoCompression,
        session=_session(destination, watch),
    )


def _session(destination: Destination, watch: _Watch) -> Any:
    import requests

    class Session(requests.Session):
        """Notes how each request went, and lets none outlast the run."""

        def request(self, *args: Any, **kwargs: Any) -> requests.Response:
            if watch.left_s is not None:
                kwargs["timeout"] = max(0.05, min(kwargs.get("timeout") or watch.left_s(), watch.left_s()))
            watch.asked = True
            if destination.certificate:
                # Else requests takes that of REQUESTS_CA_BUNDLE in place of the session's.
                kwargs["verify"] = destination.certificate
            try:
                response = super().request(*args, **kwargs)
            except Exception as fault:
                watch.seen = None
                # Its text names the whole address, with what may be a secret in it.
                watch.reason = type(fault).__name__
                raise
            watch.seen = read_answer(
                response.status_code,
                {name.lower(): value for name, value in response.headers.items()},
                response.content,
                address=destination.shown_url,
                protocol=destination.protocol,
                signal=destination.signal,
                now_ns=wall_ns(),
            )
            return response

    return Session()


def _grpc_exporter(destination: Destination) -> Any:
    from opentelemetry.exporter.otlp.proto.grpc._log_exporter import OTLPLogExporter
    from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

    from otel_train.export.grpc_transport import compression_of, credentials_of

    made = {"metrics": OTLPMetricExporter, "logs": OTLPLogExporter, "traces": OTLPSpanExporter}[destination.signal]
    return made(
        endpoint=destination.url,
        insecure=not destination.secure,
        credentials=credentials_of(destination) if destination.secure else None,
        headers=tuple(destination.headers.items()),
        timeout=destination.timeout_s,
        compression=compression_of(destination),
    )
