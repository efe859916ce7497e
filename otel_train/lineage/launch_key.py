"""Names a launch the same way in all its processes, and a scheduled job the same way when it is queued again."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Final

from otel_train.lineage.process_identity import ProcessIdentity

_LOCAL_ADDRESSES: Final = ("localhost", "127.0.0.1", "::1", "")
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._-]+")
_MAX_LENGTH: Final = 120


def launch_key(
    environ: Mapping[str, str], launcher: str, process: ProcessIdentity | None = None
) -> tuple[str | None, bool]:
    """Return a text that names the launch, fit as a file name, and whether no other launch can ever have it.

    In this order: `OTEL_TRAIN_LAUNCH_KEY`; torchrun's `--rdzv-id` (never its default `none`); the Slurm step; Open
    MPI's name of the job; the address and port that the processes meet at. Where all processes are known to be on
    this host the launcher's process joins the key, and where there is nothing else it is the key.
    """
    given = environ.get("OTEL_TRAIN_LAUNCH_KEY", "").strip()
    if given:
        return file_safe(f"key-{given}"), False
    step = _slurm_step(environ)
    parts = [step] if step else []
    if launcher == "slurm" and step:
        return file_safe(step), _step_id(environ) != ""
    rendezvous = environ.get("TORCHELASTIC_RUN_ID", "")
    namespace = environ.get("PMIX_NAMESPACE") or environ.get("OMPI_MCA_ess_base_jobid") or ""
    address, port = environ.get("MASTER_ADDR", ""), environ.get("MASTER_PORT", "")
    if rendezvous not in ("", "none"):
        parts.append(f"torchrun-{rendezvous}")
    elif launcher == "mpi" and namespace:
        parts.append(f"mpi-{namespace}")
    elif port:
        parts.append(f"master-{address or 'localhost'}-{port}")
    parent = _launcher_process(process)
    if parent and (not parts or _is_one_host(environ)):
        parts.append(parent)
    return (file_safe("-".join(parts)), False) if parts else (None, False)


def resume_key(environ: Mapping[str, str]) -> tuple[str | None, bool]:
    """Return what a job keeps when the scheduler queues it again, and whether this is such a time.

    `OTEL_TRAIN_RESUME_KEY` names a job by hand; whatever ran under it before is what goes on.
    """
    given = environ.get("OTEL_TRAIN_RESUME_KEY", "").strip()
    if given:
        return file_safe(f"key-{given}"), True
    job = environ.get("SLURM_JOB_ID") or environ.get("SLURM_JOBID")
    if not job:
        return None, False
    step = _step_id(environ) or "batch"
    count = environ.get("SLURM_RESTART_COUNT", "0").strip()
    return file_safe(f"slurm-{_cluster(environ)}{job}-{step}"), count.isdigit() and int(count) > 0


def file_safe(key: str) -> str:
    """Return `key` fit as a file name on every system; a changed or shortened one keeps a digest of what it was."""
    safe = _UNSAFE.sub("_", key)
    if safe == key and len(key) <= _MAX_LENGTH:
        return key
    return f"{safe[:_MAX_LENGTH]}-{hashlib.sha256(key.encode('utf-8', 'replace')).hexdigest()[:12]}"


def _slurm_step(environ: Mapping[str, str]) -> str | None:
    job = environ.get("SLURM_JOB_ID") or environ.get("SLURM_JOBID")
    if not job:
        return None
    # A job that is queued again keeps its number, and is a new launch.
    return f"slurm-{_cluster(environ)}{job}-{_step_id(environ)}-{environ.get('SLURM_RESTART_COUNT') or 0}"


def _step_id(environ: Mapping[str, str]) -> str:
    return environ.get("SLURM_STEP_ID") or environ.get("SLURM_STEPID") or ""


def _cluster(environ: Mapping[str, str]) -> str:
    name = environ.get("SLURM_CLUSTER_NAME")
    return f"{name}-" if name else ""


def _is_one_host(environ: Mapping[str, str]) -> bool:
    """Tell whether all processes of the launch are certain to be on this host."""
    for whole, here in (
        ("WORLD_SIZE", "LOCAL_WORLD_SIZE"),
        ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ):
        if environ.get(whole) and environ.get(whole) == environ.get(here):
            return True
    return bool(environ.get("MASTER_PORT")) and environ.get("MASTER_ADDR", "") in _LOCAL_ADDRESSES


def _launcher_process(process: ProcessIdentity | None) -> str | None:
    if process is None or process.parent_start_s is None:
        return None
    host = hashlib.sha256(process.host.encode("utf-8", "replace")).hexdigest()[:8]
    return f"parent-{host}-{process.parent_pid}-{process.parent_start_s:.2f}"
