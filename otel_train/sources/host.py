"""Samples the machine: CPU, memory, disks, network, the run folder's file system, and the container's limits."""

from __future__ import annotations

import importlib
import os
import platform
import socket
from collections.abc import Callable, Iterable
from typing import Any

from otel_train.record.entries import Sample
from otel_train.sources.cgroup import available_cpus, oom_kills_in, read_cgroup
from otel_train.sources.readings import MissingReadings, RisingCounter

# Traffic through these is counted again at the interface that carries it, and a cluster node has hundreds of them.
_VIRTUAL_INTERFACES = (
    *("loopback", "veth", "docker", "br-", "virbr", "vnet", "cali", "cni", "cilium", "lxc", "flannel", "tunl"),
    *("vxlan", "dummy", "ifb", "kube-", "nodelocaldns", "podman", "tap", "utun", "awdl", "llw"),
)
# Stacked on real disks, or in memory.
_VIRTUAL_DISKS = ("loop", "ram", "zram", "dm-", "md", "sr", "fd", "nbd")


class HostSampler:
    """Reads the whole machine through psutil, and the control group where there is one.

    A device that never moved a byte has no series. `psutil` is imported at the first use; the argument replaces it
    in tests. Not for two threads at once, except `identify`.
    """

    name = "host"

    def __init__(
        self,
        run_folder: str | os.PathLike[str] | None = None,
        *,
        psutil: Any = None,
        sys_root: str = "/sys",
        cgroup_root: str = "/sys/fs/cgroup",
        proc: str = "/proc",
    ) -> None:
        self._run_folder = None if run_folder is None else os.fspath(run_folder)
        self._given_psutil = psutil
        self._sys_root = sys_root
        self._cgroup_root = cgroup_root
        self._proc = proc
        self._missing = MissingReadings("host")
        self._counters = RisingCounter()
        self._cpu_before: tuple[float, float] | None = None

    def sample(self, now_ns: int) -> list[Sample]:
        """Return what the machine says now; the share of CPU time needs two calls and is absent from the first."""
        samples: list[Sample] = []
        readings: tuple[tuple[str, Callable[[], list[Sample] | None]], ...] = (
            ("CPU", self._cpu),
            ("memory", self._memory),
            ("disk I/O", self._disks),
            ("network I/O", self._network),
            ("run folder's file system", self._file_system),
            ("control group", self._control_group),
        )
        for reading, read in readings:
            samples += self._missing.guarded(reading, read) or ()
        return samples

    def close(self) -> None:
        """Nothing is held."""

    def identify(self) -> dict[str, Any]:
        """Return what this machine is, for the environment record: JSON-able, sizes in bytes, unknown fields absent."""
        missing = MissingReadings("host identity")
        group = read_cgroup(self._cgroup_root, self._proc)
        facts: dict[str, Callable[[], Any]] = {
            "host_name": socket.gethostname,
            # platform.platform() would start a process.
            "os": lambda: f"{platform.system()}-{platform.release()}-{platform.machine()}",
            "architecture": platform.machine,
            "cpu_model": lambda: cpu_model(self._proc),
            "cpu_logical_count": lambda: self._psutil.cpu_count(logical=True),
            "cpu_physical_count": lambda: self._psutil.cpu_count(logical=False),
            "cpu_available": lambda: available_cpus(group),
            "memory_total_bytes": lambda: self._psutil.virtual_memory().total,
        }
        identity = {key: missing.guarded(key, read) for key, read in facts.items()}
        if group and group.memory_limit_bytes is not None:
            identity["memory_limit_bytes"] = group.memory_limit_bytes
        identity = {key: value for key, value in identity.items() if value not in (None, "")}
        identity["unsupported"] = {**missing.reasons, **self._missing.reasons}
        return identity

    @property
    def _psutil(self) -> Any:
        if self._given_psutil is None:
            self._given_psutil = importlib.import_module("psutil")
        return self._given_psutil

    def _cpu(self) -> list[Sample]:
        count = self._psutil.cpu_count(logical=True)
        samples = [Sample("system.cpu.logical.count", count)] if count else []
        times = self._psutil.cpu_times()
        # Linux counts the time of guests within user and nice already.
        total = sum(times) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)
        idle = times.idle + getattr(times, "iowait", 0.0)
        before, self._cpu_before = self._cpu_before, (total, idle)
        if before is not None and total > before[0]:
            idle_share = (idle - before[1]) / (total - before[0])
            samples.append(Sample("system.cpu.utilization", min(1.0, max(0.0, 1.0 - idle_share))))
        return samples

    def _memory(self) -> list[Sample]:
        memory = self._psutil.virtual_memory()
        states = {"free": memory.free}
        for state in ("cached", "buffers"):
            if hasattr(memory, state):
                states[state] = getattr(memory, state)
        # So that the states add up to the whole, as the semantic conventions ask.
        states["used"] = max(0, memory.total - sum(states.values()))
        samples = [
            Sample("system.memory.usage", amount, (("system.memory.state", state),)) for state, amount in states.items()
        ]
        samples.append(Sample("system.memory.utilization", (memory.total - memory.available) / memory.total))
        return samples

    def _disks(self) -> list[Sample] | None:
        counters = self._psutil.disk_io_counters(perdisk=True, nowrap=False)
        if not counters:
            return None
        samples: list[Sample] = []
        for device in _whole_disks(counters, self._sys_root):
            moved = counters[device]
            samples += self._pair(
                "system.disk.io",
                ("system.device", device),
                "disk.io.direction",
                (("read", moved.read_bytes), ("write", moved.write_bytes)),
            )
        return samples

    def _network(self) -> list[Sample] | None:
        counters = self._psutil.net_io_counters(pernic=True, nowrap=False)
        if not counters:
            return None
        samples: list[Sample] = []
        for interface in _carrying_interfaces(counters, self._sys_root):
            moved = counters[interface]
            samples += self._pair(
                "system.network.io",
                ("network.interface.name", interface),
                "network.io.direction",
                (("receive", moved.bytes_recv), ("transmit", moved.bytes_sent)),
            )
        return samples

    def _pair(
        self, name: str, device: tuple[str, str], direction_key: str, moved: tuple[tuple[str, int], tuple[str, int]]
    ) -> list[Sample]:
        samples = []
        for direction, amount in moved:
            total = self._counters.total((name, device[1], direction), amount)
            samples.append(Sample(name, total, (device, (direction_key, direction))))
        return samples if any(sample.value for sample in samples) else []

    def _file_system(self) -> list[Sample]:
        if self._run_folder is None:
            return []
        usage = self._psutil.disk_usage(self._run_folder)
        # Blocks that only root may use belong to neither side, as `df` counts.
        usable = usage.used + usage.free
        return [Sample("system.filesystem.utilization", usage.used / usable)] if usable else []

    def _control_group(self) -> list[Sample]:
        group = read_cgroup(self._cgroup_root, self._proc)
        if group is None:
            return []
        samples = []
        if group.memory_limit_bytes is not None:
            samples.append(Sample("dl.container.memory.limit", group.memory_limit_bytes))
            if group.memory_usage_bytes is not None:
                samples.append(Sample("container.memory.usage", group.memory_usage_bytes))
            if group.memory_reclaimable_bytes is not None:
                samples.append(Sample("dl.container.memory.reclaimable", group.memory_reclaimable_bytes))
        if group.cpu_limit is not None:
            samples.append(Sample("dl.container.cpu.limit", group.cpu_limit))
        kills = oom_kills_in(group.oom_file) if group.oom_file else None
        if kills is not None:
            samples.append(Sample("dl.container.oom_kills", kills))
        return samples


def cpu_model(proc: str = "/proc") -> str:
    """Return the model name of the first CPU; what the platform calls it where /proc names none."""
    try:
        with open(f"{proc}/cpuinfo", encoding="utf-8", errors="replace") as file:
            for line in file:
                key, _, value = line.partition(":")
                if key.strip().lower() in ("model name", "cpu model", "hardware"):
                    return value.strip()
    except OSError:
        pass
    return platform.processor()


def _whole_disks(devices: Iterable[str], sys_root: str) -> list[str]:
    """Leave out partitions and stacked devices, whose traffic would be counted twice; all where that leaves none."""
    names = sorted(devices)
    block = f"{sys_root}/block"
    if not os.path.isdir(block):
        return names
    # The kernel spells a slash in a device's name as an exclamation mark.
    whole = [name for name in names if os.path.isdir(f"{block}/{name.replace('/', '!')}")]
    real = [name for name in whole if not name.startswith(_VIRTUAL_DISKS)]
    return real or whole or names


def _carrying_interfaces(interfaces: Iterable[str], sys_root: str) -> list[str]:
    """Leave out loopback, virtual interfaces, bonds and bridges, whose traffic another interface counts."""
    carrying = []
    for name in sorted(interfaces):
        folder = f"{sys_root}/class/net/{name}"
        stacked = os.path.isdir(f"{folder}/bonding") or os.path.isdir(f"{folder}/bridge")
        if not stacked and name not in ("lo", "lo0") and not name.lower().startswith(_VIRTUAL_INTERFACES):
            carrying.append(name)
    return carrying
