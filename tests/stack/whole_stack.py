"""All servers of the stack that this machine has, joined as compose joins them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from tests.stack.asking import free_port
from tests.stack.processes import ServerProcess
from tests.stack.programs import find, why_missing
from tests.stack.servers import Alertmanager, Collector, Loki, MissingProgramError, Prometheus, Tempo
from tests.stack.webhook import Webhook


@dataclass
class Stack:
    """Collector, Prometheus, Alertmanager and a webhook; Loki and Tempo where their programs are, else None."""

    collector: Collector
    prometheus: Prometheus
    alertmanager: Alertmanager
    webhook: Webhook
    loki: Loki | None
    tempo: Tempo | None
    missing: dict[str, str] = field(default_factory=dict)

    @property
    def servers(self) -> list[ServerProcess]:
        """Those that run, stores first."""
        found = (self.prometheus, self.alertmanager, self.loki, self.tempo, self.collector)
        return [server for server in found if server is not None]

    def close(self) -> None:
        """End all. What is still in memory is not wanted any more."""
        for server in reversed(self.servers):
            server.kill()
        self.webhook.close()


def start_stack(folder: Path) -> Stack:
    """Start the stack; MissingProgramError where a server that Go's modules give is missing."""
    for program in ("otelcol", "prometheus", "alertmanager"):
        if find(program) is None:
            raise MissingProgramError(why_missing(program))
    webhook = Webhook()
    telemetry_port = free_port()
    alertmanager = Alertmanager(folder / "alertmanager", {"ALERT_WEBHOOK_URL": webhook.url})
    loki = Loki(folder / "loki", alertmanager.url) if find("loki") else None
    tempo = Tempo(folder / "tempo") if find("tempo") else None
    parts = {"collector:8888": f"127.0.0.1:{telemetry_port}", "alertmanager:9093": f"127.0.0.1:{alertmanager.port}"}
    if loki is not None:
        parts["loki:3100"] = f"127.0.0.1:{loki.port}"
    if tempo is not None:
        parts["tempo:3200"] = f"127.0.0.1:{tempo.port}"
    prometheus = Prometheus(folder / "prometheus", parts)
    collector = Collector(
        folder / "collector",
        prometheus=prometheus.otlp_url,
        loki=loki.otlp_url if loki else None,
        tempo=tempo.otlp_url if tempo else None,
        telemetry_port=telemetry_port,
    )
    missing = {name: why_missing(name) for name in ("loki", "tempo", "grafana") if find(name) is None}
    stack = Stack(collector, prometheus, alertmanager, webhook, loki, tempo, missing)
    try:
        for server in stack.servers:
            server.start(wait=False)
        for server in stack.servers:
            server.wait_ready(120.0)
    except BaseException:
        stack.close()
        raise
    return stack
