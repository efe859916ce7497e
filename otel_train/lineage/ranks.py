"""Finds out which process of a job this is, from what launchers leave in the environment and from torch.distributed.

The global rank is never taken from the local one in silence: where only `LOCAL_RANK` is known the process is recorded
as a run of its own, and a notice says so.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from otel_train.lineage.launch_key import launch_key, resume_key
from otel_train.lineage.process_identity import ProcessIdentity

# srun numbers its steps from 0; these mean the batch script, an interactive shell and others that are no srun step.
_FIRST_SPECIAL_STEP: Final = 4_294_967_280
# Rank, size, local rank of MPI launchers: Open MPI, MVAPICH, Hydra (MPICH, Intel MPI).
_MPI: Final = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_RANK"),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    """One process's place in its job. `launch_key` names the launch for all its ranks, None where nothing does."""

    rank: int = 0
    local_rank: int | None = 0
    world_size: int = 1
    launcher: str = "single"
    launch_key: str | None = None
    restart_count: int = 0
    notices: tuple[str, ...] = ()
    world_size_known: bool = True
    resume_key: str | None = None
    is_requeue: bool = False
    # The key cannot come back with another launch, so what is published under it is never stale.
    key_is_unique: bool = False

    @property
    def shared(self) -> bool:
        """Whether other processes belong to the same run."""
        return self.world_size > 1 or not self.world_size_known

    @property
    def is_main(self) -> bool:
        """Whether this process writes what is the same on all ranks."""
        return self.rank == 0


def loaded_distributed() -> Any:
    """Return `torch.distributed` where the user's program has imported it, else None."""
    return sys.modules.get("torch.distributed")


def detect_ranks(environ: Mapping[str, str], distributed: Any = None, process: ProcessIdentity | None = None) -> Ranks:
    """Return this process's place. Nothing here raises: bad values lead to a notice and to what is known without them.

    `distributed` is `torch.distributed` or None; where its process group is initialised it has the last word.
    `process` serves as launch key where the launcher gives none; without it there may be no key.
    """
    variables = _Variables(environ)
    ranks = _from_group(_from_environment(variables), distributed, variables)
    if not ranks.world_size_known:
        variables.notices.append(
            f"the number of processes is not known: rank {ranks.rank} of at least {ranks.world_size}; "
            "set WORLD_SIZE to record it"
        )
    key, is_unique = launch_key(environ, ranks.launcher, process) if ranks.launcher != "single" else (None, False)
    if ranks.shared and key is None:
        variables.notices.append(
            f"rank {ranks.rank} of {ranks.world_size}: nothing names this launch, so each process records a run of its "
            "own; set OTEL_TRAIN_LAUNCH_KEY to a text that is new for each launch and the same in all its processes"
        )
    again, is_requeue = resume_key(environ)
    return replace(
        ranks,
        launch_key=key,
        key_is_unique=is_unique,
        restart_count=variables.number("TORCHELASTIC_RESTART_COUNT") or 0,
        resume_key=again,
        is_requeue=is_requeue,
        notices=tuple(variables.notices),
    )


class _Variables:
    """Reads whole numbers from the environment, and notes what is none."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.environ = environ
        self.notices: list[str] = []

    def number(self, name: str, low: int = 0) -> int | None:
        text = self.environ.get(name, "").strip()
        if not text:
            return None
        try:
            value = int(text)
        except ValueError:
            value = low - 1
        if value < low:
            self.notices.append(f"{name}={text[:40]!r} is left out: it is no whole number of at least {low}")
            return None
        return value

    def first(self, *names: str, low: int = 0) -> int | None:
        for name in names:
            if (value := self.number(name, low)) is not None:
                return value
        return None


def _from_environment(variables: _Variables) -> Ranks:
    world_size = variables.number("WORLD_SIZE", low=1)
    local_rank = variables.number("LOCAL_RANK")
    rank = variables.number("RANK")
    if rank is not None:
        launcher = "torchrun" if "TORCHELASTIC_RUN_ID" in variables.environ else "env"
        return _placed(variables, launcher, rank, world_size or _size_elsewhere(variables), local_rank)
    for names in _MPI:
        rank = variables.number(names[0])
        if rank is not None:
            size = variables.number(names[1], low=1)
            return _placed(variables, "mpi", rank, size or world_size, _or(variables.number(names[2]), local_rank))
    if "SLURM_PROCID" in variables.environ:
        return _from_slurm(variables, world_size, local_rank)
    if local_rank is not None or (world_size or 1) > 1:
        return _from_local_rank(variables, world_size, local_rank)
    return Ranks()


def _or(first: int | None, second: int | None) -> int | None:
    return second if first is None else first


def _size_elsewhere(variables: _Variables) -> int | None:
    return variables.first(*(names[1] for names in _MPI), "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", low=1)


def _placed(variables: _Variables, launcher: str, rank: int, world_size: int | None, local_rank: int | None) -> Ranks:
    """Return a rank whose size may be unknown or contradict it; the rank is kept, so that no two processes collide."""
    if world_size is not None and rank >= world_size:
        variables.notices.append(f"rank {rank} does not fit into {world_size} processes; the rank is kept")
        world_size = None
    if local_rank is None and world_size == 1:
        local_rank = 0
    return Ranks(
        rank=rank,
        local_rank=local_rank,
        world_size=world_size or rank + 1,
        launcher=launcher,
        world_size_known=world_size is not None,
    )


def _from_slurm(variables: _Variables, world_size: int | None, local_rank: int | None) -> Ranks:
    environ = variables.environ
    rank = variables.number("SLURM_PROCID")
    local_rank = _or(variables.number("SLURM_LOCALID"), local_rank)
    tasks = variables.first("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS", low=1)
    if rank is None:
        return Ranks(launcher="slurm")
    if rank == 0 and _is_outside_srun(environ, tasks):
        # Slurm gives its batch script and interactive shells rank 0 of the job's tasks; no task has been started yet.
        if tasks is not None and tasks > 1:
            variables.notices.append(
                f"the job has {tasks} tasks, but this process was not started by srun: recorded as one process"
            )
        return Ranks(launcher="slurm")
    return _placed(variables, "slurm", rank, tasks or world_size, local_rank)


def _is_outside_srun(environ: Mapping[str, str], tasks: int | None) -> bool:
    step = environ.get("SLURM_STEP_ID") or environ.get("SLURM_STEPID") or ""
    if step.isdigit():
        return int(step) >= _FIRST_SPECIAL_STEP
    has_job = bool(environ.get("SLURM_JOB_ID") or environ.get("SLURM_JOBID"))
    return has_job and (environ.get("ENVIRONMENT") == "BATCH" or tasks in (None, 1))


def _from_local_rank(variables: _Variables, world_size: int | None, local_rank: int | None) -> Ranks:
    """Derive the global rank where that takes no guess; else this process is one of its own, and a notice says so."""
    local_size = variables.number("LOCAL_WORLD_SIZE", low=1)
    node = variables.first("NODE_RANK", "GROUP_RANK")
    if local_rank is not None and world_size is not None:
        if local_size == world_size or node == 0:
            return _placed(variables, "env", local_rank, world_size, local_rank)
        if node is not None and local_size is not None:
            return _placed(variables, "env", node * local_size + local_rank, world_size, local_rank)
    what = f"LOCAL_RANK={local_rank}" if local_rank is not None else f"WORLD_SIZE={world_size}"
    variables.notices.append(
        f"{what} is set, but RANK is not: the rank among all processes is not known, so this process is recorded as a "
        "run of its own, as rank 0 of 1; set RANK and WORLD_SIZE to join the processes in one run"
    )
    return Ranks(local_rank=local_rank)


def _from_group(ranks: Ranks, distributed: Any, variables: _Variables) -> Ranks:
    try:
        if distributed is None or not distributed.is_available() or not distributed.is_initialized():
            return ranks
        rank, world_size = int(distributed.get_rank()), int(distributed.get_world_size())
    except Exception:  # noqa: BLE001 - half-imported or foreign; the environment stands
        return ranks
    if (rank, world_size) == (ranks.rank, ranks.world_size) and ranks.world_size_known:
        return ranks
    if ranks.launcher != "single":
        variables.notices.append(
            f"the environment says rank {ranks.rank} of {ranks.world_size}, torch.distributed rank {rank} of "
            f"{world_size}: the latter is recorded"
        )
    else:
        # What was said about missing variables is settled.
        variables.notices.clear()
    return replace(
        ranks,
        rank=rank,
        world_size=world_size,
        world_size_known=True,
        local_rank=ranks.local_rank if ranks.launcher != "single" else variables.number("LOCAL_RANK"),
        launcher="distributed" if ranks.launcher == "single" else ranks.launcher,
    )
