"""The stack's servers, each with the configuration that compose ships: only addresses and folders are replaced."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.stack import compose_file
from tests.stack.asking import free_port
from tests.stack.processes import ServerProcess
from tests.stack.programs import COLLECTOR, REPOSITORY, find, why_missing


class MissingProgramError(Exception):
    """A server's program is not on this machine; the text is the reason for leaving a test out."""


def program(name: str) -> Path:
    """Return a program's path; MissingProgramError with the reason where there is none."""
    path = find(name)
    if path is None:
        raise MissingProgramError(why_missing(name))
    return path


def _address(port: int) -> str:
    return f"127.0.0.1:{port}"


class Collector(ServerProcess):
    """The gateway. The stores' addresses may be those of nobody: then its queues keep what comes."""

    def __init__(
        self,
        folder: Path,
        *,
        prometheus: str | None = None,
        loki: str | None = None,
        tempo: str | None = None,
        variables: Mapping[str, str] | None = None,
        more: Sequence[Path | str] = (),
        telemetry_port: int | None = None,
    ) -> None:
        self.grpc_port, self.http_port, self.health_port = (free_port() for _ in range(3))
        self.telemetry_port = telemetry_port or free_port()
        self.url = f"http://{_address(self.http_port)}"
        self.queue, self.archive = folder / "queue", folder / "archive"
        nobody = f"http://{_address(free_port())}"
        command = [
            part.replace("/etc/otelcol-train", str(COLLECTOR))
            for part in compose_file.command("collector", variables or {})
        ]
        environment = {
            "OTLP_GRPC_ADDRESS": _address(self.grpc_port),
            "OTLP_HTTP_ADDRESS": _address(self.http_port),
            "ARCHIVE_ADDRESS": _address(free_port()),
            "HEALTH_ADDRESS": _address(self.health_port),
            "TELEMETRY_HOST": "127.0.0.1",
            "TELEMETRY_PORT": str(self.telemetry_port),
            "QUEUE_DIR": str(self.queue),
            "ARCHIVE_DIR": str(self.archive),
            "PROMETHEUS_OTLP_ENDPOINT": prometheus or nobody,
            "LOKI_OTLP_ENDPOINT": loki or nobody,
            "TEMPO_OTLP_ENDPOINT": tempo or nobody,
            **(variables or {}),
        }
        super().__init__(
            "collector",
            [program("otelcol"), *command, *(f"--config={path}" for path in more)],
            folder,
            f"http://{_address(self.health_port)}/",
            environment,
        )

    @property
    def telemetry_url(self) -> str:
        """Where its own metrics are served."""
        return f"http://{_address(self.telemetry_port)}/metrics"


class Agent(ServerProcess):
    """The Collector of one node, which forwards to a gateway."""

    def __init__(self, folder: Path, gateway: str, variables: Mapping[str, str] | None = None) -> None:
        self.grpc_port, self.http_port, health_port, telemetry_port = (free_port() for _ in range(4))
        self.url = f"http://{_address(self.http_port)}"
        environment = {
            "OTLP_GRPC_ADDRESS": _address(self.grpc_port),
            "OTLP_HTTP_ADDRESS": _address(self.http_port),
            "HEALTH_ADDRESS": _address(health_port),
            "TELEMETRY_PORT": str(telemetry_port),
            "QUEUE_DIR": str(folder / "queue"),
            "GATEWAY_ENDPOINT": gateway,
            **(variables or {}),
        }
        command = [program("otelcol"), f"--config={COLLECTOR / 'agent.yaml'}"]
        super().__init__("agent", command, folder, f"http://{_address(health_port)}/", environment)


class Prometheus(ServerProcess):
    """Prometheus with the stack's rules. `parts` says where the parts are that it scrapes or notifies."""

    def __init__(self, folder: Path, parts: Mapping[str, str] | None = None) -> None:
        self.port = free_port()
        self.url = f"http://{_address(self.port)}"
        self.otlp_url = f"{self.url}/api/v1/otlp"
        addresses = {"localhost:9090": _address(self.port), **(parts or {})}
        configuration = folder / "configuration"
        shutil.copytree(REPOSITORY / "deploy" / "prometheus", configuration, dirs_exist_ok=True)
        text = (configuration / "prometheus.yml").read_text()
        for name, address in addresses.items():
            text = text.replace(name, address)
        text = text.replace("/etc/prometheus", str(configuration))
        (configuration / "prometheus.yml").write_text(text)
        command = [
            part.replace("/etc/prometheus", str(configuration)).replace("/prometheus", str(folder / "data"))
            if part.startswith("--storage.tsdb.path=")
            else part.replace("/etc/prometheus", str(configuration))
            for part in compose_file.command("prometheus")
        ]
        super().__init__(
            "prometheus",
            [program("prometheus"), *command, f"--web.listen-address={_address(self.port)}"],
            folder,
            f"{self.url}/-/ready",
            compose_file.environment("prometheus"),
        )


class Loki(ServerProcess):
    """Loki with its ruler."""

    def __init__(self, folder: Path, alertmanager: str | None = None) -> None:
        self.port = free_port()
        self.url = f"http://{_address(self.port)}"
        self.otlp_url = f"{self.url}/otlp"
        folder.mkdir(parents=True, exist_ok=True)
        rules = folder / "rules"
        shipped = REPOSITORY / "deploy" / "loki" / "rules"
        if shipped.is_dir():
            shutil.copytree(shipped, rules, dirs_exist_ok=True)
        rules.mkdir(exist_ok=True)
        environment = {
            **compose_file.environment("loki"),
            "LOKI_LISTEN_ADDRESS": "127.0.0.1",
            "LOKI_HTTP_PORT": str(self.port),
            "LOKI_GRPC_PORT": str(free_port()),
            "LOKI_DATA": str(folder / "data"),
            "LOKI_RULES": str(rules),
            "ALERTMANAGER_URL": alertmanager or f"http://{_address(free_port())}",
        }
        command = [
            part.replace("/etc/loki", str(REPOSITORY / "deploy" / "loki")) for part in compose_file.command("loki")
        ]
        super().__init__("loki", [program("loki"), *command], folder, f"{self.url}/ready", environment)


class Tempo(ServerProcess):
    """Tempo; it hands over what it has in memory when it stops, which takes it half a minute, so tests kill it."""

    def __init__(self, folder: Path) -> None:
        self.port, otlp_port = free_port(), free_port()
        self.url = f"http://{_address(self.port)}"
        self.otlp_url = f"http://{_address(otlp_port)}"
        environment = {
            **compose_file.environment("tempo"),
            "TEMPO_LISTEN_ADDRESS": "127.0.0.1",
            "TEMPO_HTTP_PORT": str(self.port),
            "TEMPO_GRPC_PORT": str(free_port()),
            "TEMPO_OTLP_GRPC_PORT": str(free_port()),
            "TEMPO_OTLP_HTTP_PORT": str(otlp_port),
            "TEMPO_DATA": str(folder / "data"),
        }
        command = [
            part.replace("/etc/tempo", str(REPOSITORY / "deploy" / "tempo")) for part in compose_file.command("tempo")
        ]
        super().__init__("tempo", [program("tempo"), *command], folder, f"{self.url}/ready", environment)


class Alertmanager(ServerProcess):
    """Alertmanager with the receivers that compose's own preparation writes for these variables."""

    def __init__(self, folder: Path, variables: Mapping[str, str] | None = None) -> None:
        self.port = free_port()
        self.url = f"http://{_address(self.port)}"
        shipped = REPOSITORY / "deploy" / "alertmanager"
        secrets = folder / "secrets"
        secrets.mkdir(parents=True, exist_ok=True)
        places = {"DATA": str(folder / "volumes"), "SECRETS": str(secrets), "CONFIGURATION": str(shipped)}
        script = REPOSITORY / "deploy" / "prepare" / "prepare.sh"
        subprocess.run(["/bin/sh", script], env={"PATH": os.defpath, **places, **(variables or {})}, check=True)
        configuration = secrets / "alertmanager" / "alertmanager.yml"
        text = configuration.read_text().replace("/etc/otel-train/alertmanager", str(shipped))
        configuration.write_text(text)
        command = [
            part.replace("/secrets/", f"{secrets}/").replace("=/alertmanager", f"={folder / 'data'}")
            for part in compose_file.command("alertmanager", {"ALERTMANAGER_URL": self.url})
        ]
        super().__init__(
            "alertmanager",
            [program("alertmanager"), *command, f"--web.listen-address={_address(self.port)}"],
            folder,
            f"{self.url}/-/ready",
        )
