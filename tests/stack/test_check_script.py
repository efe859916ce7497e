"""The script that a person runs after `docker compose up`, against servers of the stack that run without Docker."""

from __future__ import annotations

import shutil
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tests.stack.asking import free_port
from tests.stack.programs import REPOSITORY
from tests.stack.trained import environment
from tests.stack.whole_stack import Stack


@pytest.fixture
def grafana_port() -> Iterator[int]:
    """Something that says of itself what Grafana says when it is well."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = b'{"database": "ok"}'
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield server.server_port
    server.shutdown()
    thread.join()
    server.server_close()


def check(stack: Stack, grafana_port: int, **ports: str) -> subprocess.CompletedProcess[str]:
    """Run the script on what is running."""
    if stack.loki is None or stack.tempo is None:
        pytest.skip(stack.missing.get("loki") or stack.missing["tempo"])
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    variables = {
        "OTLP_HTTP_PORT": str(stack.collector.http_port),
        "PROMETHEUS_PORT": str(stack.prometheus.port),
        "LOKI_PORT": str(stack.loki.port),
        "TEMPO_PORT": str(stack.tempo.port),
        "ALERTMANAGER_PORT": str(stack.alertmanager.port),
        "GRAFANA_PORT": str(grafana_port),
    }
    command = ["/bin/sh", str(REPOSITORY / "deploy" / "check-stack.sh"), "--no-start"]
    return subprocess.run(
        command, env=environment(**(variables | ports)), capture_output=True, text=True, timeout=200, check=False
    )


def test_a_stack_that_is_well_passes(stack: Stack, grafana_port: int) -> None:
    """Each part answers, and what was sent is found in each store."""
    done = check(stack, grafana_port)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = dict(line.rsplit(maxsplit=1) for line in done.stdout.splitlines()[:-1])
    assert set(lines.values()) == {"ok"}
    assert {"send metrics", "send logs", "send traces", "metric found", "record found", "span found"} <= set(lines)
    assert done.stdout.splitlines()[-1] == "the stack is well"


def test_a_collector_that_does_not_answer_is_named(stack: Stack, grafana_port: int) -> None:
    """Code 1, and the lines of what could not be sent say so."""
    done = check(stack, grafana_port, OTLP_HTTP_PORT=str(free_port()))
    assert done.returncode == 1
    assert "send metrics   FAILED: the Collector answered 000" in done.stdout
    assert "the stack is well" not in done.stdout
