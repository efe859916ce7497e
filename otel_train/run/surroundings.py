"""Records what surrounds a run, without its asking: logs, output, instruments, environment and machine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from otel_train.clock import NS_PER_S, mono_ns
from otel_train.lineage.hash_pool import HashHandle, HashPool
from otel_train.run import current, log_sources, providers
from otel_train.run.comparing import compare
from otel_train.run.describing import describe, for_event
from otel_train.run.events import without_none

if TYPE_CHECKING:
    from otel_train.config import Settings
    from otel_train.lineage.ranks import Ranks
    from otel_train.lineage.redact import Redactor
    from otel_train.run.run import Run
    from otel_train.run.sink import RunSink
    from otel_train.sources.gpu import GpuSampler
    from otel_train.sources.host import HostSampler
    from otel_train.sources.sampler import Sampler


class Surroundings:
    """The sources of one run. `machine_root` is a folder of the file system whose use is told."""

    def __init__(
        self,
        settings: Settings,
        sink: RunSink,
        *,
        ranks: Ranks,
        redactor: Redactor,
        environ: Mapping[str, str],
        machine_root: Path,
    ) -> None:
        self._settings = settings
        self._sink = sink
        self._ranks = ranks
        self._redactor = redactor
        self._environ = environ
        self._machine_root = machine_root
        self._describing = HashPool("otel-train-describe")
        self._environment: HashHandle[dict[str, Any]] | None = None
        self._sampler: Sampler | None = None
        self._sources: log_sources.LogSources | None = None
        self._next_reading_ns = self._next_second_ns = 0

    def start(self, run: Run) -> None:
        """Install the log sources and start to read the machine and the environment; returns at once."""
        settings = self._settings
        sources = log_sources.LogSources(
            level=settings["log_level"] if not settings["console"] else "TRACE",
            flood_per_s=settings["flood_per_s"],
            logs=settings["capture_logs"],
            output=settings["capture_output"],
        )
        self._sources = log_sources.ensure_installed(sources)
        providers.install()

        def keep(environment: dict[str, Any] | None, fault: BaseException | None) -> None:
            with run.guard("environment"):
                if environment is None:
                    run.warn(f"the environment could not be described: {fault}")
                else:
                    run.session.file.set_attempt(environment=environment)
                    run.events.emit("run.environment", without_none(for_event(environment)), severity="INFO")
                compare(run, environment or {})

        self._environment = self._describing.submit(
            lambda: describe(self._redactor, *self._start_machine(run), self._environ, code=settings["git"]), then=keep
        )

    def _start_machine(self, run: Run) -> tuple[HostSampler, GpuSampler]:
        from otel_train.run.machine import start_machine

        host, gpu, self._sampler = start_machine(
            *(self._settings, self._ranks, self._machine_root, self._environ, self._sink),
            lambda: run.digest.last_step is not None or run.points.used,
        )
        return host, gpu

    def cycle(self) -> None:
        """Do what is due on the writer's thread: look after the log sources, read the instruments."""
        now_ns = mono_ns()
        if now_ns >= self._next_second_ns and self._sources is not None:
            self._next_second_ns = now_ns + NS_PER_S
            self._sources.flood.heartbeat()
        if now_ns >= self._next_reading_ns:
            self._next_reading_ns = now_ns + int(self._settings["sample_interval_s"] * NS_PER_S)
            if self._sources is not None:
                self._sources.heartbeat()
            self.collect()

    def collect(self, *, last: bool = False) -> None:
        """Read the instruments of the metrics API, which are the process's: the oldest open run has them."""
        runs = current.open_runs()
        if not runs or runs[0].session.surroundings is not self:
            return
        if last:
            # Callbacks of the user's own may take their time: what follows has a deadline, they have none.
            self._describing.submit(providers.collect, self._sink.emit_sdk_metrics)
        else:
            providers.collect(self._sink.emit_sdk_metrics)

    def environment(self, timeout_s: float) -> dict[str, Any]:
        """Return the environment record, {} where it is not there in time."""
        if self._environment is None:
            return {}
        try:
            return self._environment.result(timeout_s)
        except Exception:  # noqa: BLE001 - late or failed: the record says so elsewhere
            return {}

    def uninstall(self) -> None:
        """Have the log sources hand over what they hold, and take them away unless another run is open."""
        if self._sources is not None:
            self._sources.flush(self._sink)
        log_sources.uninstall()

    def close(self, timeout_s: float) -> int:
        """Stop describing and then reading, each within this time; return how much was not described."""
        left = self._describing.close(timeout_s)
        if self._sampler is not None:
            self._sampler.stop(timeout_s)
        return left

    def abandon(self) -> None:
        """In a forked child, where nothing is read."""
        if self._sampler is not None:
            self._sampler.abandon()
