"""Builds the resource: the attributes that every record of a process carries."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from importlib import metadata
from typing import Final

from otel_train import semconv
from otel_train.lineage.project import parse_resource_attributes
from otel_train.lineage.ranks import Ranks
from otel_train.lineage.run_id import service_instance_id

# The user's OTEL_RESOURCE_ATTRIBUTES add attributes and may set any but these, by which records belong to a run.
RESERVED: Final = frozenset(
    {
        semconv.SERVICE_NAME,  # the project, which the user names by its own settings
        semconv.SERVICE_INSTANCE_ID,
        semconv.RUN_ID,
        semconv.RUN_NAME,
        semconv.RUN_ATTEMPT,
        semconv.RANK,
        semconv.LOCAL_RANK,
        semconv.WORLD_SIZE,
        "process.pid",
        "telemetry.sdk.name",
        "telemetry.sdk.language",
        "telemetry.sdk.version",
        "telemetry.distro.name",
        "telemetry.distro.version",
    }
)

_SLURM: Final = (
    ("slurm.job.id", ("SLURM_JOB_ID", "SLURM_JOBID")),
    ("slurm.job.name", ("SLURM_JOB_NAME",)),
    ("slurm.step.id", ("SLURM_STEP_ID", "SLURM_STEPID")),
    ("slurm.array.job.id", ("SLURM_ARRAY_JOB_ID",)),
    ("slurm.array.task.id", ("SLURM_ARRAY_TASK_ID",)),
    ("slurm.cluster.name", ("SLURM_CLUSTER_NAME",)),
    ("slurm.partition", ("SLURM_JOB_PARTITION",)),
    ("slurm.node.id", ("SLURM_NODEID",)),
    ("slurm.restart.count", ("SLURM_RESTART_COUNT",)),
)
# Kubernetes sets none of these by itself; they are the names usual for its downward API.
_KUBERNETES: Final = (
    ("k8s.pod.name", ("K8S_POD_NAME", "POD_NAME", "MY_POD_NAME")),
    ("k8s.pod.uid", ("K8S_POD_UID", "POD_UID", "MY_POD_UID")),
    ("k8s.namespace.name", ("K8S_NAMESPACE_NAME", "K8S_NAMESPACE", "POD_NAMESPACE", "MY_POD_NAMESPACE")),
    ("k8s.node.name", ("K8S_NODE_NAME", "NODE_NAME", "MY_NODE_NAME")),
    ("k8s.container.name", ("K8S_CONTAINER_NAME", "CONTAINER_NAME")),
    ("k8s.job.name", ("K8S_JOB_NAME", "JOB_NAME")),
)
_CODE: Final = (
    ("vcs.ref.head.revision", "commit"),
    ("vcs.ref.head.name", "branch"),
    ("vcs.repository.url.full", "remote"),
)


def resource_attributes(
    *,
    project: str,
    run_id: str,
    run_name: str,
    attempt: int,
    ranks: Ranks,
    environ: Mapping[str, str],
    host_name: str | None = None,
    pid: int | None = None,
    code: Mapping[str, object] | None = None,
    parallel: Mapping[str, tuple[int, int]] | None = None,
) -> dict[str, str | int]:
    """Return the resource of this process.

    `code` is what `describe_code` returned, where it is known already. `parallel` gives rank and size of each kind of
    parallelism: `{"data": (0, 4), "tensor": (1, 2)}`.
    """
    given, _ = parse_resource_attributes(environ.get("OTEL_RESOURCE_ATTRIBUTES", ""))
    found: dict[str, str | int] = {"host.name": host_name or socket.gethostname()}
    found |= _from_environment(_SLURM, environ)
    if "KUBERNETES_SERVICE_HOST" in environ:
        found |= _from_environment(_KUBERNETES, environ)
        if "k8s.pod.name" not in found and environ.get("HOSTNAME"):
            found["k8s.pod.name"] = environ["HOSTNAME"]  # a pod's host name is its own unless it sets another
    for name, key in _CODE:
        value = (code or {}).get(key)
        if isinstance(value, str) and value:
            found[name] = value
    for kind, (rank, size) in (parallel or {}).items():
        found[f"dl.{kind}_parallel.rank"] = rank
        found[f"dl.{kind}_parallel.size"] = size
    found |= {key: value for key, value in given.items() if key not in RESERVED and value}
    return found | _own(project, run_id, run_name, attempt, ranks, os.getpid() if pid is None else pid)


def _own(project: str, run_id: str, run_name: str, attempt: int, ranks: Ranks, pid: int) -> dict[str, str | int]:
    own: dict[str, str | int] = {
        semconv.SERVICE_NAME: project,
        semconv.SERVICE_INSTANCE_ID: service_instance_id(run_id, ranks.rank),
        semconv.RUN_ID: run_id,
        semconv.RUN_NAME: run_name,
        semconv.RUN_ATTEMPT: attempt,
        semconv.RANK: ranks.rank,
        semconv.WORLD_SIZE: ranks.world_size,
        "process.pid": pid,
        "telemetry.sdk.name": "opentelemetry",
        "telemetry.sdk.language": "python",
        "telemetry.sdk.version": _version("opentelemetry-sdk"),
        "telemetry.distro.name": "otel-train",
        "telemetry.distro.version": _version("otel-train"),
    }
    if ranks.local_rank is not None:
        own[semconv.LOCAL_RANK] = ranks.local_rank
    return own


def _from_environment(
    table: tuple[tuple[str, tuple[str, ...]], ...], environ: Mapping[str, str]
) -> dict[str, str | int]:
    found: dict[str, str | int] = {}
    for name, variables in table:
        value = next((environ[variable] for variable in variables if environ.get(variable)), None)
        if value is not None:
            found[name] = value
    return found


def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "unknown"
