"""Starts a real Grafana with the provisioning of the repository, and asks it what its panels would show."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.stack import compose_file
from tests.stack.asking import free_port, get_json, post_json
from tests.stack.grafana_panels import Answer, Stores
from tests.stack.processes import ServerProcess
from tests.stack.programs import REPOSITORY
from tests.stack.servers import MissingProgramError, program

# Where Grafana's conf/ and public/ are, if not beside its program.
HOME = os.environ.get("OTEL_TRAIN_GRAFANA_HOME", "")


class Grafana(ServerProcess):
    """Grafana's backend: it needs its own folders conf/ and public/, with or without the built front end."""

    def __init__(self, folder: Path, stores: Stores, alertmanager: str) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        executable = program("grafana")
        home = Path(HOME) if HOME else executable.parent.parent
        if not (home / "conf" / "defaults.ini").is_file():
            raise MissingProgramError(f"no conf/defaults.ini in {home}: set OTEL_TRAIN_GRAFANA_HOME")
        shipped = {
            name: value for name, value in compose_file.environment("grafana").items() if not name.endswith("__FILE")
        }
        environment = {
            **shipped,
            "GF_PATHS_DATA": str(folder / "data"),
            "GF_PATHS_LOGS": str(folder / "logs"),
            "GF_PATHS_PROVISIONING": str(REPOSITORY / "grafana" / "provisioning"),
            "GF_SERVER_HTTP_ADDR": "127.0.0.1",
            "GF_SERVER_HTTP_PORT": str(self.port),
            "GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH": str(REPOSITORY / "grafana" / "dashboards" / "runs.json"),
            "OTEL_TRAIN_DASHBOARDS": str(REPOSITORY / "grafana" / "dashboards"),
            "OTEL_TRAIN_PROMETHEUS_URL": stores.prometheus,
            "OTEL_TRAIN_LOKI_URL": stores.loki or "http://127.0.0.1:1",
            "OTEL_TRAIN_TEMPO_URL": stores.tempo or "http://127.0.0.1:1",
            "OTEL_TRAIN_ALERTMANAGER_URL": alertmanager,
        }
        super().__init__(
            "grafana", [executable, "server", f"--homepath={home}"], folder, f"{self.url}/api/health", environment
        )

    def board(self, uid: str) -> dict[str, Any]:
        """Return a dashboard as Grafana has it; OSError where it is not provisioned."""
        found: dict[str, Any] = get_json(f"{self.url}/api/dashboards/uid/{uid}")
        return found

    def rows_of(self, answer: Answer, target: Mapping[str, Any], from_ms: int, to_ms: int) -> int:
        """Return how many rows Grafana has for a query that a store has answered already."""
        field = "query" if answer.kind == "tempo" else "expr"
        query = {
            **target,
            field: answer.query,
            "datasource": {"type": answer.kind, "uid": answer.kind},
            "intervalMs": 1000,
            "maxDataPoints": 1000,
        }
        body = json.dumps({"from": str(from_ms), "to": str(to_ms), "queries": [query]})
        status, text = post_json(f"{self.url}/api/ds/query", body)
        assert status == 200, f"{answer.place}: {text.decode()[:500]}"
        result = json.loads(text)["results"][answer.letter]
        assert "error" not in result, f"{answer.place}: {result['error']}"
        return sum(len(frame["data"]["values"][0]) for frame in result["frames"] if frame["data"]["values"])
