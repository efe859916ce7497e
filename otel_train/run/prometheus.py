"""Joins a run with Prometheus' own ways: a port to be scraped, and registries whose values are recorded."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from otel_train.clock import NS_PER_S, mono_ns, wall_ns
from otel_train.errors import ConfigError, installing

if TYPE_CHECKING:
    from otel_train.config import Settings
    from otel_train.export.pull import PullServer
    from otel_train.lineage.ranks import Ranks
    from otel_train.record.entries import AttributeValue
    from otel_train.run.run import Run
    from otel_train.runlog.recorder import Recorder
    from otel_train.sources.prometheus_registry import RegistrySource

_log = logging.getLogger("otel_train")


class RunPrometheus:
    """One run and rank; it does nothing where nothing is asked for."""

    def __init__(self, settings: Settings, ranks: Ranks) -> None:
        """Check what was set; ConfigError where prometheus-client is not installed."""
        self._host: str = settings["prometheus_host"]
        self._port: int | None = settings["prometheus_port"]
        self._server: PullServer | None = None
        self._sources: list[RegistrySource] = []
        if self._port is None:
            return
        if find_spec("prometheus_client") is None:
            raise ConfigError("prometheus_port", self._port, f"{installing('prometheus')}, or leave it out")
        if self._port and ranks.shared:
            # Each process of a host has a port of its own.
            self._port += ranks.local_rank or 0

    @property
    def port(self) -> int | None:
        """The port that is served; None where there is none."""
        return None if self._server is None else self._server.port

    def start(self, run: Run, resource: Mapping[str, AttributeValue], recorder: Recorder) -> None:
        """Serve from now on. Where the port is taken this is said, and training goes on: a restart must not end it."""
        if self._port is None:
            return
        from otel_train.export.pull import PresentValues, PullServer

        values = PresentValues(resource)
        try:
            self._server = PullServer(values, self._host, self._port)
        except (OSError, OverflowError) as fault:
            reason = getattr(fault, "strerror", None) or fault
            text = (
                f"prometheus_port={self._port}: {self._host}:{self._port} cannot be listened on ({reason}); this run "
                "is not served to a Prometheus: choose a port that is free"
            )
            _log.warning("%s", text)
            run.events.notice(text, "WARN")
            return
        recorder.lines.tap = values
        _log.info("present values at http://%s:%d/metrics", self._host, self._server.port)

    def record_registry(self, run: Run, registry: Any, *, every_s: float, prefix: str, most_series: int) -> None:
        """See `Run.record_registry`."""
        from otel_train.sources.prometheus_registry import RegistryReader, RegistrySource, is_interval

        if registry is None:
            if find_spec("prometheus_client") is None:
                raise ConfigError("registry", None, "pip install prometheus-client, whose registry is recorded then")
            from prometheus_client import REGISTRY

            registry = REGISTRY
        if not callable(getattr(registry, "collect", None)):
            raise ConfigError("registry", registry, "use a CollectorRegistry of prometheus_client")
        if not is_interval(every_s):
            raise ConfigError("every_s", every_s, "use a number of seconds of at least 0.1")
        if not isinstance(prefix, str):
            raise ConfigError("prefix", prefix, "use a text")
        if not isinstance(most_series, int) or isinstance(most_series, bool) or most_series < 1:
            raise ConfigError("most_series", most_series, "use a whole number of at least 1")

        def warn(text: str) -> None:
            if text not in run.warn.said:
                run.events.notice(text, "WARN")
            run.warn(text)

        reader = RegistryReader(registry, prefix=prefix, most_series=most_series, warn=warn, start_ns=wall_ns())
        source = RegistrySource(reader, run.log_sink.emit_sdk_metrics, every_s=every_s)
        self._sources.append(source)
        source.start()

    def stop_recording(self, timeout_s: float) -> None:
        """Read each registry a last time, all within this time."""
        until_ns = mono_ns() + int(timeout_s * NS_PER_S)
        sources, self._sources = self._sources, []
        for source in sources:
            source.stop(max(0.0, (until_ns - mono_ns()) / NS_PER_S))

    def stop(self) -> None:
        """Serve no more."""
        server, self._server = self._server, None
        if server is not None:
            server.stop()

    def abandon(self) -> None:
        """In a forked child: the port is the parent's alone, and nothing is read here."""
        server, self._server = self._server, None
        if server is not None:
            server.abandon()
        for source in self._sources:
            source.abandon()
