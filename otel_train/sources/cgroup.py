"""Reads what the process's control group allows it and whether the kernel killed in it for lack of memory.

In a container the host's totals say little: the limit of the control group is what a training run meets first.
Version 1 (a hierarchy for each controller) and version 2 (one for all) are read, also side by side.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

_Number = TypeVar("_Number", int, float)

# Version 1 writes "no limit" as the largest number of whole pages; real limits are far below.
_NO_LIMIT_BYTES = 1 << 62


@dataclass(frozen=True, slots=True)
class Cgroup:
    """Limits and usage of a control group; None where there is no limit or where it cannot be read.

    `memory_reclaimable_bytes` is the part of the usage that is cached files not used of late. `cpu_limit` is in CPUs
    (1.5 is one and a half). `oom_file` is the file that counts the kernel's kills.
    """

    version: int
    memory_limit_bytes: int | None = None
    memory_usage_bytes: int | None = None
    cpu_limit: float | None = None
    oom_file: str | None = None
    memory_reclaimable_bytes: int | None = None


def read_cgroup(root: str = "/sys/fs/cgroup", proc: str = "/proc", pid: int | str = "self") -> Cgroup | None:
    """Return the control group of a process; None where there are none (not Linux, or not mounted)."""
    paths = _paths_by_controller(proc, pid)
    memory = _find_folder(root, paths, "memory")
    if memory is not None:
        cpu = _find_folder(root, paths, "cpu") or _find_folder(root, paths, "cpu,cpuacct")
        return Cgroup(
            version=1,
            memory_limit_bytes=_smallest(_number(f"{folder}/memory.limit_in_bytes") for folder in _upwards(memory)),
            memory_usage_bytes=_number(f"{memory[1]}/memory.usage_in_bytes"),
            memory_reclaimable_bytes=_counted(f"{memory[1]}/memory.stat", "total_inactive_file"),
            cpu_limit=_smallest(_quota_v1(folder) for folder in _upwards(cpu)) if cpu else None,
            oom_file=_existing(f"{memory[1]}/memory.oom_control"),
        )
    unified = _find_folder(root, paths, "")
    if unified is None:
        return None
    return Cgroup(
        version=2,
        memory_limit_bytes=_smallest(_number(f"{folder}/memory.max") for folder in _upwards(unified)),
        memory_usage_bytes=_number(f"{unified[1]}/memory.current"),
        memory_reclaimable_bytes=_counted(f"{unified[1]}/memory.stat", "inactive_file"),
        cpu_limit=_smallest(_quota_v2(folder) for folder in _upwards(unified)),
        oom_file=_existing(f"{unified[1]}/memory.events"),
    )


def available_cpus(group: Cgroup | None) -> float:
    """Return how many CPUs this process may keep busy: its affinity, and the control group's quota."""
    affinity = getattr(os, "sched_getaffinity", None)
    allowed = float(len(affinity(0)) if affinity else os.cpu_count() or 1)
    return min(allowed, group.cpu_limit) if group and group.cpu_limit else allowed


def oom_file(root: str = "/sys/fs/cgroup", proc: str = "/proc", pid: int | str = "self") -> str | None:
    """Return the path of the file that counts kills for lack of memory in the process's control group."""
    group = read_cgroup(root, proc, pid)
    return group.oom_file if group else None


def oom_kills_in(path: str) -> int | None:
    """Return the number of kills that such a file counts; None where it is gone or counts none (old kernels)."""
    return _counted(path, "oom_kill")


def oom_kills(root: str = "/sys/fs/cgroup", proc: str = "/proc", pid: int | str = "self") -> int | None:
    """Return how many processes of this control group the kernel has killed for lack of memory."""
    path = oom_file(root, proc, pid)
    return None if path is None else oom_kills_in(path)


def _paths_by_controller(proc: str, pid: int | str) -> dict[str, str]:
    """Return ``{"memory": "/a/b"}`` of version 1; version 2 has the one key ``""``."""
    paths: dict[str, str] = {}
    for line in (_text(f"{proc}/{pid}/cgroup") or "").splitlines():
        _, _, rest = line.partition(":")
        controllers, colon, path = rest.partition(":")
        if colon:
            paths[controllers] = path
            for name in controllers.split(","):
                paths.setdefault(name, path)
    return paths


def _find_folder(root: str, paths: dict[str, str], controller: str) -> tuple[str, str] | None:
    """Return the mount of a controller and the group's folder in it.

    A container without a namespace of its own sees the host's path, which its mount does not have: then the mount
    itself is the group.
    """
    if controller not in paths:
        return None
    # Beside version 1 the unified hierarchy holds no memory controller; alone it is the root itself.
    mount = f"{root}/{controller}" if controller else root
    if not os.path.isdir(mount):
        return None
    if not controller and not os.path.exists(f"{mount}/cgroup.controllers"):
        return None
    folder = mount + paths[controller].rstrip("/")
    if "/.." in paths[controller] or not os.path.isdir(folder):
        folder = mount
    return mount, folder


def _upwards(place: tuple[str, str]) -> Iterator[str]:
    """Yield the group's folder and its parents within the mount: each one's limit holds."""
    mount, folder = place
    while True:
        yield folder
        if len(folder) <= len(mount):
            return
        folder = os.path.dirname(folder)


def _quota_v1(folder: str) -> float | None:
    quota_us, period_us = _number(f"{folder}/cpu.cfs_quota_us"), _number(f"{folder}/cpu.cfs_period_us")
    return quota_us / period_us if quota_us is not None and quota_us > 0 and period_us else None


def _quota_v2(folder: str) -> float | None:
    words = (_text(f"{folder}/cpu.max") or "").split()
    if len(words) != 2 or not words[0].isdigit() or not words[1].isdigit() or words[1] == "0":
        return None
    return int(words[0]) / int(words[1])


def _smallest(limits: Iterator[_Number | None]) -> _Number | None:
    return min((limit for limit in limits if limit is not None), default=None)


def _number(path: str) -> int | None:
    text = (_text(path) or "").strip()
    try:
        value = int(text)
    except ValueError:  # "max", or nothing
        return None
    return None if value >= _NO_LIMIT_BYTES else value


def _counted(path: str, wanted: str) -> int | None:
    """Return the number beside a name in a file of names and numbers."""
    for line in (_text(path) or "").splitlines():
        name, _, count = line.partition(" ")
        if name == wanted and count.strip().isdigit():
            return int(count)
    return None


def _existing(path: str) -> str | None:
    return os.path.abspath(path) if os.path.isfile(path) else None


def _text(path: str) -> str | None:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read()
    except OSError:
        return None
