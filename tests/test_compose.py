"""The stack's compose file, judged without an engine: what it mounts is there, what it reads is documented."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parent.parent
COMPOSE = ROOT / "docker-compose.yml"
OVERLAYS = sorted((ROOT / "deploy" / "compose").glob("*.yml"))
VARIABLE = re.compile(r"\$\{([A-Z_]+)(?::?[-+?][^}]*)?\}")


def services(path: Path = COMPOSE) -> dict[str, dict[str, Any]]:
    parsed: dict[str, dict[str, Any]] = yaml.safe_load(path.read_text(encoding="utf-8"))["services"]
    return parsed


def mounts(service: dict[str, Any]) -> list[tuple[str, str]]:
    """Return source and target of each mount, variables replaced by their defaults."""
    plain = [re.sub(r"\$\{[A-Z_]+:-([^}]*)\}", r"\1", volume) for volume in service.get("volumes", [])]
    return [(source, target) for source, target, *_ in (volume.split(":") for volume in plain)]


def test_every_mounted_file_is_in_the_repository() -> None:
    """A folder that is missing would be made by the engine, empty and owned by root."""
    missing = [
        (name, source)
        for path in (COMPOSE, *OVERLAYS)
        for name, service in services(path).items()
        for source, _ in mounts(service)
        if source.startswith(".") and not (ROOT / source).exists()
    ]
    assert not missing


def test_every_variable_is_documented_and_every_documented_one_is_read() -> None:
    """`.env.example` is the whole list of what can be set."""
    read = set(VARIABLE.findall(COMPOSE.read_text(encoding="utf-8")))
    documented = set(re.findall(r"^#?([A-Z][A-Z_]+)=", (ROOT / ".env.example").read_text(encoding="utf-8"), re.M))
    assert read == documented


def test_ports_are_open_on_loopback_only_unless_told_otherwise() -> None:
    """Each published port is bound to BIND_ADDRESS, whose default is 127.0.0.1."""
    ports = [port for service in services().values() for port in service.get("ports", [])]
    assert len(ports) >= 8
    assert all(port.startswith("${BIND_ADDRESS:-127.0.0.1}:") for port in ports), ports


@pytest.mark.parametrize(
    ("variables", "anonymous"),
    [
        ({}, "true"),
        ({"BIND_ADDRESS": "0.0.0.0"}, "0.0.0.0"),
        ({"BIND_ADDRESS": "0.0.0.0", "GRAFANA_ANONYMOUS": "true"}, "true"),
        ({"GRAFANA_ANONYMOUS": "false"}, "false"),
    ],
)
def test_reading_without_a_password_is_for_loopback_alone(variables: dict[str, str], anonymous: str) -> None:
    """Where the ports are open to others Grafana is told what is not true, unless somebody wants it so."""
    docker = shutil.which("docker")
    if not docker or subprocess.run([docker, "compose", "version"], capture_output=True).returncode:
        pytest.skip("docker compose is not installed")
    command = [docker, "compose", "-f", str(COMPOSE), "config", "--format", "json"]
    environment = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), **variables}
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["services"]["grafana"]["environment"]["GF_AUTH_ANONYMOUS_ENABLED"]
    assert found == anonymous


def test_images_are_pinned_and_memory_is_limited() -> None:
    """No image is `latest`, and no service may take the machine's memory."""
    for name, service in {**services(), **services(OVERLAYS[0])}.items():
        if "image" not in service:
            continue
        tag = service["image"].rpartition(":")[2]
        assert re.match(r"v?\d+\.\d+", tag), (name, service["image"])
        assert name == "prepare" or service["mem_limit"], name


def test_no_health_check_needs_a_shell() -> None:
    """Each names a program of its image; CMD-SHELL and plain strings would start a shell."""
    checks = {name: service["healthcheck"]["test"] for name, service in services().items() if "healthcheck" in service}
    assert {"prometheus", "loki", "tempo", "alertmanager", "grafana", "ready"} <= set(checks)
    assert all(isinstance(test, list) and test[0] == "CMD" for test in checks.values()), checks


def test_secrets_reach_no_command_line() -> None:
    """Tokens and passwords are variables of containers or files, not arguments that every process list shows."""
    for name, service in services().items():
        command = service.get("command", "")
        text = command if isinstance(command, str) else " ".join(command)
        assert not re.search(r"\$\{[A-Z_]*(TOKEN|PASSWORD)(:-[^}]*)?\}", text), name


@pytest.mark.parametrize("files", [[COMPOSE], [COMPOSE, *OVERLAYS]], ids=["alone", "with overlays"])
def test_docker_compose_takes_it_as_it_is(files: list[Path]) -> None:
    """`docker compose config` resolves the file with no variable set, and with the profiles."""
    docker = shutil.which("docker")
    if not docker or subprocess.run([docker, "compose", "version"], capture_output=True).returncode:
        pytest.skip("docker compose is not installed")
    arguments = [part for file in files for part in ("-f", str(file))]
    command = [docker, "compose", *arguments, "--profile", "*", "config", "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    resolved = json.loads(done.stdout)["services"]
    assert set(services()) <= set(resolved)
    assert resolved["collector"]["command"] == [
        "--config=/etc/otelcol-train/gateway.yaml",
        "--config=/etc/otelcol-train/extras.yaml",
    ]


def run_sh(script: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    path = ROOT / "deploy" / "prepare" / script
    return subprocess.run(["/bin/sh", str(path)], env={"PATH": "/usr/bin:/bin", **environment}, text=True,
                          capture_output=True, timeout=30)  # fmt: skip


def archived(folder: Path, run: str, ages_days: list[float], size: int = 10) -> None:
    """Make an archived run with one file of each age."""
    for number, days in enumerate(ages_days):
        file = folder / run / "attempt-1" / f"rank-{number}" / "metrics.000001.jsonl"
        file.parent.mkdir(parents=True)
        file.write_bytes(b"x" * size)
        os.utime(file, (time.time() - days * 86_400,) * 2)


def test_the_archive_keeps_runs_that_were_written_to_lately(tmp_path: Path) -> None:
    """A run goes when its newest file is older than ARCHIVE_DAYS; one young file keeps all of its run."""
    archived(tmp_path, "old", [500, 450])
    archived(tmp_path, "kept", [500, 3])
    archived(tmp_path, "young", [1.5])
    done = run_sh("keep-archive.sh", {"ARCHIVE_DIR": str(tmp_path), "ARCHIVE_DAYS": "400", "ONCE": "1"})
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept", "young"]
    assert done.stdout == "deleted the archived run old: nothing written for 400 days\n"


def test_an_archive_that_is_too_large_loses_the_runs_written_to_longest_ago(tmp_path: Path) -> None:
    """The oldest go until the rest fits; what was written to within a day stays, however large."""
    archived(tmp_path, "first", [9], size=2_000_000)
    archived(tmp_path, "second", [8], size=2_000_000)
    archived(tmp_path, "today", [0.5], size=2_000_000)
    settings = {"ARCHIVE_DIR": str(tmp_path), "ONCE": "1"}
    assert run_sh("keep-archive.sh", settings).stdout == ""
    done = run_sh("keep-archive.sh", {**settings, "ARCHIVE_MAX_GB": "0"})
    assert done.returncode == 0, done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["today"]
    assert [line.split(":")[0] for line in done.stdout.splitlines()] == [
        "deleted the archived run first",
        "deleted the archived run second",
    ]


def test_an_empty_archive_is_none_of_its_business(tmp_path: Path) -> None:
    """Before the first run there is no folder, or an empty one."""
    for folder in (tmp_path, tmp_path / "missing"):
        done = run_sh("keep-archive.sh", {"ARCHIVE_DIR": str(folder), "ONCE": "1"})
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("variable", ["ARCHIVE_DAYS", "ARCHIVE_MAX_GB"])
def test_a_wrong_number_deletes_nothing(tmp_path: Path, variable: str) -> None:
    """A mistyped variable is said, and stops the keeper before it looks at any run."""
    archived(tmp_path, "run", [900])
    done = run_sh("keep-archive.sh", {"ARCHIVE_DIR": str(tmp_path), variable: "4oo", "ONCE": "1"})
    assert done.returncode == 2
    assert f"{variable} is '4oo'" in done.stderr
    assert (tmp_path / "run").is_dir()
