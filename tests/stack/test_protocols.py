"""Each protocol of OTLP through the real gateway, over TLS with a client's certificate and a token: all arrives."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.otlp_servers import Certificates
from tests.stack import stores
from tests.stack.asking import wait_for
from tests.stack.expected import Expected, expected_of
from tests.stack.servers import Collector
from tests.stack.trained import Trained, environment, push, run_folder

SCRIPT = Path(__file__).parent / "drill_script.py"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """A run that was recorded without an endpoint."""
    folder = tmp_path_factory.mktemp("protocols")
    command = [sys.executable, str(SCRIPT), "1000", "200"]
    done = subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return Trained(run_folder(folder), 0, done.stderr)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Those of an authority, the server and a client."""
    return Certificates.make(tmp_path_factory.mktemp("certificates"))


@pytest.mark.parametrize("compression", ["gzip", "none"])
@pytest.mark.parametrize("protocol", ["http/json", "http/protobuf", "grpc"])
def test_every_item_arrives_by_each_protocol(
    protocol: str,
    compression: str,
    run: Trained,
    certificates: Certificates,
    run_server: Callable[..., Any],
    tmp_path: Path,
) -> None:
    """Points, records and spans in the gateway's archive are those of the run log; without a token nothing is taken."""
    variables = {
        "OTEL_TRAIN_TOKEN": "correct-horse",
        "OTEL_TRAIN_TLS_CERT": certificates.server_pem,
        "OTEL_TRAIN_TLS_KEY": certificates.server_key,
        "OTEL_TRAIN_TLS_CLIENT_CA": certificates.ca_pem,
    }
    gateway: Collector = run_server(lambda: Collector(tmp_path / "gateway", variables=variables))
    port = gateway.grpc_port if protocol == "grpc" else gateway.http_port
    settings = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"https://127.0.0.1:{port}",
        "OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
        "OTEL_EXPORTER_OTLP_COMPRESSION": compression,
        "OTEL_EXPORTER_OTLP_CERTIFICATE": certificates.ca_pem,
        "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE": certificates.client_pem,
        "OTEL_EXPORTER_OTLP_CLIENT_KEY": certificates.client_key,
    }
    refused = push(run.path, "--patience", "1s", **settings)
    assert refused.returncode == 4, refused.stdout + refused.stderr
    assert "correct-horse" not in refused.stderr
    done = push(run.path, **settings, OTEL_EXPORTER_OTLP_HEADERS="authorization=Bearer%20correct-horse")
    assert done.returncode == 0, done.stdout + done.stderr
    expected = run.expected()
    assert expected.point_count >= 1_000

    def archived() -> Expected | None:
        found = expected_of(gateway.archive / run.run_id)
        whole = found.spans == expected.spans and len(found.records) == len(expected.records)
        return found if whole and not stores.differences(expected, found.points) else None

    found = wait_for("the archive", archived, timeout_s=30, every_s=0.5)
    assert Counter(map(stores.comparable, found.records)) == Counter(map(stores.comparable, expected.records))
