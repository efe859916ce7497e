"""Tells processes apart beyond their number: host, boot, and the moment a process started."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from typing import Final

from otel_train.clock import SYSTEM, Clock, boottime_s

_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessIdentity:
    """A process and its parent. Starts are in seconds since the machine's boot, None where they can't be read.

    `host` differs between machines, boots and process namespaces: numbers of processes compare only within one.
    """

    host: str
    pid: int
    start_s: float | None
    parent_pid: int
    parent_start_s: float | None
    start_wall_ns: int | None = None


def read_identity(clock: Clock = SYSTEM, proc: str = "/proc") -> ProcessIdentity:
    """Return who this process is."""
    pid, parent_pid = os.getpid(), os.getppid()
    start_s = process_start_s(pid, proc)
    wall_ns = None
    if start_s is not None:
        wall_ns = clock.wall_ns() - round((_now_s(proc) - start_s) * 1e9)
    return ProcessIdentity(
        host=host_identity(proc),
        pid=pid,
        start_s=start_s,
        parent_pid=parent_pid,
        parent_start_s=process_start_s(parent_pid, proc),
        start_wall_ns=wall_ns,
    )


def host_identity(proc: str = "/proc") -> str:
    """Return a text that is equal exactly where process numbers mean the same."""
    parts = [socket.gethostname()]
    try:
        with open(f"{proc}/sys/kernel/random/boot_id", encoding="ascii") as file:
            parts.append(file.read().strip())
    except OSError:
        pass
    try:
        parts.append(os.readlink(f"{proc}/self/ns/pid"))
    except OSError:
        pass
    return "/".join(parts)


def process_start_s(pid: int, proc: str = "/proc") -> float | None:
    """Return when a process started; None where there is no such process or nothing tells."""
    try:
        with open(f"{proc}/{pid}/stat", "rb") as file:
            # The name in parentheses may hold anything, so count from its end; a zombie has ended.
            fields = file.read().rpartition(b")")[2].split()
        return None if fields[0] == b"Z" else int(fields[19]) / _TICKS_PER_S
    except (OSError, IndexError, ValueError):
        if os.path.isdir(f"{proc}/self"):
            return None
    import psutil  # only where there is no /proc: it costs 30 ms

    try:
        return float(psutil.Process(pid).create_time())
    except psutil.Error:
        return None


def _now_s(proc: str) -> float:
    """Return the present in the time of process starts."""
    try:
        with open(f"{proc}/uptime", encoding="ascii") as file:
            return float(file.read().split()[0])
    except (OSError, ValueError, IndexError):
        pass
    if os.path.isdir(f"{proc}/self"):
        return boottime_s()
    return SYSTEM.wall_ns() / 1e9  # psutil gives Unix times


def is_alive(host: str, pid: int, start_s: float | None, own_host: str, proc: str = "/proc") -> bool | None:
    """Tell whether that very process lives; None where another host's process is meant."""
    if host != own_host:
        return None
    now = process_start_s(pid, proc)
    return now is not None and (start_s is None or abs(now - start_s) < 0.05)
