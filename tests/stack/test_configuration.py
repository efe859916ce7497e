"""Every configuration of the stack, judged by the program that will read it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml

from tests.stack import compose_file
from tests.stack.programs import BUILT, COLLECTOR, REPOSITORY, SERVERS, find, why_missing

OVERLAYS = sorted((COLLECTOR / "overlays").glob("*.yaml"))
# What the contrib image has and Go's module proxy does not serve at any version.
NOT_BUILT = {"elasticsearch": "elasticsearch", "influxdb": "influxdb"}
VALUES = {
    "OTEL_TRAIN_TOKEN": "a-token",
    "INFLUXDB_TOKEN": "a-token",
    "OTEL_TRAIN_TLS_CERT": "/tls/server.crt",
    "OTEL_TRAIN_TLS_KEY": "/tls/server.key",
}


def run(program: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a program of the stack; the test is left out where it is missing."""
    path = find(program)
    if path is None:
        pytest.skip(why_missing(program))
    environ = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")} | VALUES
    return subprocess.run([path, *arguments], capture_output=True, text=True, env=environ, check=False, timeout=60)


def validate(*configurations: Path) -> None:
    """Assert that the Collector takes these configurations together."""
    done = run("otelcol", "validate", *(f"--config={path}" for path in configurations))
    assert done.returncode == 0, done.stderr


def test_versions_are_those_of_compose() -> None:
    """What tests build and what compose pulls is the same version of each server."""
    images = {name: service["image"] for name, service in compose_file.services().items() if name in SERVERS}
    assert images == {name: server.tag for name, server in SERVERS.items()}
    manifest = yaml.safe_load((COLLECTOR / "manifest.yaml").read_text())
    assert manifest["dist"]["version"] == SERVERS["collector"].version
    assert SERVERS["collector"].module_version == f"v{SERVERS['collector'].version}"
    assert SERVERS["alertmanager"].module_version == SERVERS["alertmanager"].version
    # Prometheus 3.16.0 is the Go module v0.316.0.
    major, minor, patch = SERVERS["prometheus"].version.removeprefix("v").split(".")
    assert SERVERS["prometheus"].module_version == f"v0.{major}{int(minor):02d}.{patch}"


def test_the_manifest_has_every_component_that_the_configurations_use() -> None:
    """A component that is used and not built would leave a configuration untested without a word."""
    manifest = yaml.safe_load((COLLECTOR / "manifest.yaml").read_text())
    modules = " ".join(row["gomod"].split()[0] for rows in manifest.values() if isinstance(rows, list) for row in rows)
    used: set[tuple[str, str]] = set()
    for path in (COLLECTOR / "gateway.yaml", COLLECTOR / "agent.yaml", *OVERLAYS):
        document = yaml.safe_load(path.read_text())
        for kind in ("receivers", "processors", "exporters", "connectors", "extensions"):
            used |= {(kind.removesuffix("s"), name.partition("/")[0]) for name in document.get(kind, {})}
    found = {(kind, name): f"/{name.replace('_', '')}{kind}" in modules for kind, name in used}
    renamed = {("exporter", "otlp_http"): "/otlphttpexporter", ("extension", "file_storage"): "/storage/filestorage"}
    missing = {
        name for (kind, name), there in found.items() if not there and renamed.get((kind, name), "?") not in modules
    }
    assert missing == set(NOT_BUILT.values())


def test_build_modules_are_those_of_the_manifest() -> None:
    """build/go.mod was resolved from the manifest as it is: same modules, same versions."""
    manifest = yaml.safe_load((COLLECTOR / "manifest.yaml").read_text())
    wanted = {row["gomod"] for rows in manifest.values() if isinstance(rows, list) for row in rows}
    resolved = (COLLECTOR / "build" / "go.mod").read_text()
    direct = set(re.findall(r"^\t(\S+ v\S+)$", resolved, re.M))
    assert wanted <= direct


@pytest.mark.parametrize("name", ["gateway.yaml", "agent.yaml"])
def test_the_collector_takes_its_configuration(name: str) -> None:
    """`otelcol validate` as it is, and for the gateway with the users' empty file, too."""
    validate(COLLECTOR / name)
    if name == "gateway.yaml":
        validate(COLLECTOR / name, COLLECTOR / "extras.yaml")


@pytest.mark.parametrize("overlay", OVERLAYS, ids=lambda path: path.stem)
def test_the_gateway_takes_each_overlay(overlay: Path) -> None:
    """`otelcol validate` of gateway, overlay and extras; where the build lacks the exporter another takes its place."""
    if overlay.stem not in NOT_BUILT:
        validate(COLLECTOR / "gateway.yaml", overlay, COLLECTOR / "extras.yaml")
        return
    pytest.skip(
        f"Go's module proxy serves no {NOT_BUILT[overlay.stem]} exporter; the contrib image has it. "
        "The rest of this overlay is judged by the next test"
    )


@pytest.mark.parametrize("name", sorted(NOT_BUILT))
def test_the_rest_of_an_overlay_is_valid(name: str, tmp_path: Path) -> None:
    """Pipelines, processors, queue and timeout of an overlay whose exporter is not built: with otlp_http instead."""
    document = yaml.safe_load((COLLECTOR / "overlays" / f"{name}.yaml").read_text())
    own = document["exporters"].pop(name)
    common = {key: own[key] for key in ("endpoint", "timeout", "sending_queue", "retry_on_failure") if key in own}
    document["exporters"][f"otlp_http/{name}"] = common
    for pipeline in document["service"]["pipelines"].values():
        assert pipeline["exporters"] == [name]
        pipeline["exporters"] = [f"otlp_http/{name}"]
    path = tmp_path / "overlay.yaml"
    path.write_text(yaml.safe_dump(document))
    validate(COLLECTOR / "gateway.yaml", path, COLLECTOR / "extras.yaml")


def test_all_overlays_can_be_on_together() -> None:
    """Token, TLS and Kafka in one gateway: an overlay repeats no list of another, but that of the extensions."""
    built = [path for path in OVERLAYS if path.stem not in NOT_BUILT]
    validate(COLLECTOR / "gateway.yaml", *built, COLLECTOR / "extras.yaml")
    services = [yaml.safe_load(path.read_text()).get("service", {}) for path in OVERLAYS]
    pipelines = [name for service in services for name in service.get("pipelines", {})]
    shipped = yaml.safe_load((COLLECTOR / "gateway.yaml").read_text())["service"]["pipelines"]
    assert len(set(pipelines) | set(shipped)) == len(pipelines) + len(shipped)


def test_prometheus_takes_its_configuration_and_rules() -> None:
    """`promtool check config`, which reads the rules as well."""
    done = run("promtool", "check", "config", REPOSITORY / "deploy" / "prometheus" / "prometheus.yml")
    assert done.returncode == 0, done.stdout + done.stderr
    rules = sorted((REPOSITORY / "deploy" / "prometheus" / "rules").glob("*.yaml"))
    assert rules, "no rules in deploy/prometheus/rules"
    done = run("promtool", "check", "rules", *rules)
    assert done.returncode == 0, done.stdout + done.stderr


def test_alertmanager_takes_its_configuration(tmp_path: Path) -> None:
    """`amtool check-config`, with the templates where they are in the repository."""
    folder = REPOSITORY / "deploy" / "alertmanager"
    text = (folder / "alertmanager.yml").read_text()
    path = tmp_path / "alertmanager.yml"
    path.write_text(text.replace("/etc/otel-train/alertmanager", str(folder)))
    done = run("amtool", "check-config", path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_loki_takes_its_configuration() -> None:
    """`loki -verify-config`."""
    path = REPOSITORY / "deploy" / "loki" / "loki.yaml"
    done = run("loki", f"-config.file={path}", "-config.expand-env=true", "-verify-config")
    assert done.returncode == 0, done.stdout + done.stderr


def _compose(*arguments: str) -> subprocess.CompletedProcess[str]:
    docker = shutil.which("docker")
    command: Sequence[str] = [docker, "compose"] if docker else [shutil.which("docker-compose") or ""]
    environ = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    try:
        version = subprocess.run([*command, "version"], capture_output=True, text=True, env=environ, check=False)
    except OSError:
        version = None
    if version is None or version.returncode != 0:
        pytest.skip("no docker compose: its own check of docker-compose.yml is left out")
    return subprocess.run(
        [*command, *arguments], cwd=REPOSITORY, capture_output=True, text=True, env=environ, check=False
    )


def test_compose_takes_its_file() -> None:
    """`docker compose config` with every profile: what compose makes of it has the same images."""
    done = _compose("--profile", "*", "--env-file", "/dev/null", "config")
    assert done.returncode == 0, done.stderr
    images = {name: service["image"] for name, service in yaml.safe_load(done.stdout)["services"].items()}
    assert {name: images[name] for name in SERVERS} == {name: server.tag for name, server in SERVERS.items()}


def test_what_is_missing_is_said_with_the_way_to_get_it() -> None:
    """The reason of a left-out test names the program and what to do."""
    for server in SERVERS.values():
        for program in server.programs:
            reason = why_missing(program)
            assert program in reason
            assert ("OTEL_TRAIN_BACKENDS" in reason) or ("make servers" in reason and program in BUILT)
