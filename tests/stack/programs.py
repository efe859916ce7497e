"""Finds the server programs that the stack tests start, and says why one is missing.

A program is taken from the folders of OTEL_TRAIN_BACKENDS, from the build cache that `make servers` fills, or from
PATH, in this order. The table below is the only place beside `docker-compose.yml` with versions of servers; a test
compares the two.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
COLLECTOR = REPOSITORY / "collector"
# Read once, at import: a fixture takes every OTEL_ variable away from each test.
_BACKENDS = [Path(folder) for folder in os.environ.get("OTEL_TRAIN_BACKENDS", "").split(os.pathsep) if folder]


@dataclass(frozen=True, slots=True)
class Server:
    """One server of the stack: the image that compose starts, and the Go module that the same version is built from.

    `programs` are what tests need of it. A module is empty where Go's proxy alone cannot build the server.
    """

    name: str
    image: str
    version: str
    programs: tuple[str, ...]
    module: str = ""
    module_version: str = ""

    @property
    def tag(self) -> str:
        """The image with its tag, as compose has it."""
        return f"{self.image}:{self.version}"


SERVERS = {
    server.name: server
    for server in (
        Server(
            "collector",
            "otel/opentelemetry-collector-contrib",
            "0.149.0",
            ("otelcol",),
            "go.opentelemetry.io/collector/cmd/builder",
            "v0.149.0",
        ),
        Server(
            "prometheus",
            "prom/prometheus",
            "v3.16.0",
            ("prometheus", "promtool"),
            "github.com/prometheus/prometheus",
            "v0.316.0",
        ),
        Server(
            "alertmanager",
            "prom/alertmanager",
            "v0.35.0",
            ("alertmanager", "amtool"),
            "github.com/prometheus/alertmanager",
            "v0.35.0",
        ),
        Server("loki", "grafana/loki", "3.7.6", ("loki",)),
        Server("tempo", "grafana/tempo", "3.0.3", ("tempo",)),
        Server("grafana", "grafana/grafana", "12.3.0", ("grafana",)),
    )
}
# What distributions and packages call the same program.
_OTHER_NAMES = {"otelcol": ("otelcol-contrib",), "grafana": ("grafana-server",)}
BUILT = tuple(program for server in SERVERS.values() if server.module for program in server.programs)


def cache_folder() -> Path:
    """Return the folder of programs built for exactly these versions and this manifest."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    digest = hashlib.sha256(repr(sorted((s.module, s.module_version) for s in SERVERS.values())).encode())
    for name in ("manifest.yaml", "build/go.mod", "build/go.sum"):
        digest.update((COLLECTOR / name).read_bytes())
    return Path(home) / "otel-train" / "servers" / digest.hexdigest()[:16]


def find(program: str) -> Path | None:
    """Return the path of a program, None where there is none."""
    names = (program, *_OTHER_NAMES.get(program, ()))
    for folder in (*_BACKENDS, cache_folder()):
        for name in names:
            path = folder / name
            if path.is_file() and os.access(path, os.X_OK):
                return path
    for name in names:
        if found := shutil.which(name):
            return Path(found)
    return None


def why_missing(program: str) -> str:
    """Return the sentence with which a test that needs this program is left out."""
    if program not in BUILT:
        return f"no {program}: it cannot be built from Go modules; put it on PATH or in a folder of OTEL_TRAIN_BACKENDS"
    if shutil.which("go") is None:
        return f"no {program} and no Go to build it with: put it on PATH or in a folder of OTEL_TRAIN_BACKENDS"
    return f"no {program}: `make servers` builds it"
