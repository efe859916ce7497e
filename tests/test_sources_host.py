"""The host's readings agree with what /proc says, and each is lost alone where the platform does not give it."""

import json
import logging
import os
import socket
import sys
from collections import namedtuple
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from machine_samples import assert_named_in_table, value, values

from otel_train.sources.host import HostSampler, cpu_model

GIB = 1 << 30
on_linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="compares with Linux's /proc")

Times = namedtuple("Times", "user nice system idle iowait guest guest_nice")
Moved = namedtuple("Moved", "read_bytes write_bytes bytes_recv bytes_sent", defaults=(0, 0, 0, 0))


class Machine(SimpleNamespace):
    """Stands in for the module psutil; a test changes what it says between two readings."""

    def __init__(self) -> None:
        super().__init__(
            times=Times(100.0, 0.0, 50.0, 800.0, 50.0, 0.0, 0.0),
            memory=SimpleNamespace(total=16 * GIB, available=12 * GIB, free=8 * GIB, cached=3 * GIB, buffers=1 * GIB),
            disks={"sda": Moved(1000, 2000)},
            nics={"eth0": Moved(bytes_recv=10, bytes_sent=20)},
            usage=SimpleNamespace(total=110, used=75, free=25),
        )

    def cpu_count(self, logical: bool) -> int:
        return 8 if logical else 4

    def cpu_times(self) -> Times:
        return self.times

    def virtual_memory(self) -> SimpleNamespace:
        return self.memory

    def disk_io_counters(self, perdisk: bool, nowrap: bool) -> object:
        return self.disks

    def net_io_counters(self, pernic: bool, nowrap: bool) -> object:
        return self.nics

    def disk_usage(self, path: str) -> SimpleNamespace:
        return self.usage


@pytest.fixture
def machine():
    return Machine()


def host(machine: Machine, folder: Path, **options: object) -> HostSampler:
    nowhere = str(folder / "nowhere")
    return HostSampler(folder, psutil=machine, **{"sys_root": nowhere, "cgroup_root": nowhere, **options})


def test_cpu_share_is_what_was_busy_between_two_readings(machine, tmp_path):
    """Of 100 s, 60 idle and 15 waiting for disks: 0.25 busy; guests' time is in user's already."""
    sampler = host(machine, tmp_path)
    assert values(sampler.sample(0), "system.cpu.utilization") == []
    machine.times = Times(120.0, 0.0, 55.0, 860.0, 65.0, 20.0, 0.0)
    samples = sampler.sample(0)
    assert value(samples, "system.cpu.utilization") == 0.25
    assert value(samples, "system.cpu.logical.count") == 8


def test_memory_states_add_up_to_the_whole(machine, tmp_path):
    """Used is what is neither free nor cache: 4 of 16 GiB; a quarter is not available."""
    samples = host(machine, tmp_path).sample(0)
    state = {s: value(samples, "system.memory.usage", system__memory__state=s) for s in ("used", "free", "cached")}
    assert state == {"used": 4 * GIB, "free": 8 * GIB, "cached": 3 * GIB}
    assert sum(values(samples, "system.memory.usage")) == 16 * GIB
    assert value(samples, "system.memory.utilization") == 0.25


def test_file_system_share_leaves_out_what_only_root_may_use(machine, tmp_path):
    """75 used and 25 free of 110: 0.75, as df says; without a run folder there is no reading."""
    assert value(host(machine, tmp_path).sample(0), "system.filesystem.utilization") == 0.75
    nowhere = HostSampler(None, psutil=machine)
    assert values(nowhere.sample(0), "system.filesystem.utilization") == []


def test_counters_go_on_when_a_device_begins_again(machine, tmp_path):
    """1,000 bytes, then a new device of that name with 30: 1,030; while it is gone it has no point."""
    sampler = host(machine, tmp_path)
    read = {"disk__io__direction": "read", "system__device": "sda"}
    first = value(sampler.sample(0), "system.disk.io", **read)
    machine.disks = {"sdb": Moved(5, 5)}
    gone = values(sampler.sample(0), "system.disk.io", **read)
    machine.disks = {"sda": Moved(30, 40)}
    back = value(sampler.sample(0), "system.disk.io", **read)
    machine.disks = {"sda": Moved(50, 60)}
    last = value(sampler.sample(0), "system.disk.io", **read)
    assert (first, gone, back, last) == (1000, [], 1030, 1050)


def test_partitions_and_stacked_disks_are_not_counted_twice(machine, tmp_path):
    """Only the whole disk counts; on a machine with nothing but stacked ones these do."""
    for name in ("sda", "dm-0", "loop0", "cciss!c0d0"):
        (tmp_path / "sys" / "block" / name).mkdir(parents=True)
    moved = Moved(1, 2)
    machine.disks = dict.fromkeys(["sda", "sda1", "dm-0", "loop0", "cciss/c0d0"], moved)
    samples = host(machine, tmp_path, sys_root=str(tmp_path / "sys")).sample(0)
    devices = {dict(s.attributes)["system.device"] for s in samples if s.name == "system.disk.io"}
    assert devices == {"sda", "cciss/c0d0"}
    machine.disks = dict.fromkeys(["dm-0", "dm-0p1"], moved)
    samples = host(machine, tmp_path, sys_root=str(tmp_path / "sys")).sample(0)
    assert value(samples, "system.disk.io", disk__io__direction="write", system__device="dm-0") == 2


def test_virtual_interfaces_are_left_out(machine, tmp_path):
    """A cluster node's hundreds of pairs, its bridges, bonds and the loopback carry what a card counts already."""
    for stacked in ("bond0/bonding", "cbr0/bridge", "eth0"):
        (tmp_path / "sys" / "class" / "net" / stacked).mkdir(parents=True)
    used = Moved(bytes_recv=7, bytes_sent=9)
    names = ["lo", "eth0", "bond0", "cbr0", "vethabc", "docker0", "cali123", "ib0", "Local Area Connection"]
    machine.nics = {**dict.fromkeys(names, used), "idle0": Moved()}
    samples = host(machine, tmp_path, sys_root=str(tmp_path / "sys")).sample(0)
    interfaces = {dict(s.attributes)["network.interface.name"] for s in samples if s.name == "system.network.io"}
    assert interfaces == {"eth0", "ib0", "Local Area Connection"}
    assert value(samples, "system.network.io", network__io__direction="receive", network__interface__name="ib0") == 7
    assert value(samples, "system.network.io", network__io__direction="transmit", network__interface__name="ib0") == 9


def test_a_platform_without_disk_counters_loses_these_alone(machine, tmp_path, caplog):
    """The reason is said once in three rounds, and everything else is there."""
    caplog.set_level(logging.INFO, logger="otel_train")
    machine.disks = None
    sampler = host(machine, tmp_path)
    rounds = [sampler.sample(0) for _ in range(3)]
    assert [values(samples, "system.disk.io") for samples in rounds] == [[], [], []]
    assert value(rounds[2], "system.memory.utilization") == 0.25
    assert [r.getMessage() for r in caplog.records] == ["host: no reading of disk I/O: not given by this platform"]
    assert sampler.identify()["unsupported"] == {"disk I/O": "not given by this platform"}


def test_a_reading_that_raises_is_lost_alone_and_comes_back(machine, tmp_path, caplog):
    """The run folder vanishes and is there again: the first is said once, nothing else suffers."""
    caplog.set_level(logging.INFO, logger="otel_train")
    sampler = host(machine, tmp_path)
    usage = machine.usage
    machine.disk_usage = lambda path: (_ for _ in ()).throw(FileNotFoundError(2, "No such file", "runs/x"))
    assert values(sampler.sample(0) + sampler.sample(0), "system.filesystem.utilization") == []
    machine.disk_usage = lambda path: usage
    assert value(sampler.sample(0), "system.filesystem.utilization") == 0.75
    assert [r.getMessage() for r in caplog.records] == [
        "host: no reading of run folder's file system: FileNotFoundError: [Errno 2] No such file: 'runs/x'"
    ]
    assert sampler.identify()["unsupported"] == {}


def test_a_containers_limits_are_written_beside_the_hosts_totals(machine, tmp_path):
    """4 GiB allowed, 3 in use, two CPUs, one process killed."""
    (tmp_path / "proc" / "self").mkdir(parents=True)
    (tmp_path / "proc" / "self" / "cgroup").write_text("0::/\n")
    group = tmp_path / "cgroup"
    group.mkdir()
    for name, text in {
        "cgroup.controllers": "memory",
        "memory.max": 4 * GIB,
        "memory.current": 3 * GIB,
        "memory.stat": f"inactive_file {GIB}",
        "cpu.max": "200000 100000",
        "memory.events": "oom_kill 1",
    }.items():
        (group / name).write_text(f"{text}\n")
    sampler = host(machine, tmp_path, cgroup_root=str(group), proc=str(tmp_path / "proc"))
    samples = sampler.sample(0)
    assert value(samples, "dl.container.memory.limit") == 4 * GIB
    assert value(samples, "container.memory.usage") == 3 * GIB
    assert value(samples, "dl.container.memory.reclaimable") == GIB
    assert value(samples, "dl.container.cpu.limit") == 2.0
    assert value(samples, "dl.container.oom_kills") == 1
    identity = sampler.identify()
    assert identity["memory_limit_bytes"] == 4 * GIB
    assert identity["memory_total_bytes"] == 16 * GIB
    assert_named_in_table(samples)


def test_identify_is_json_and_leaves_out_what_is_unknown(machine, tmp_path):
    """Counts and sizes are those of the machine; a count that the platform refuses is absent with its reason."""
    machine.cpu_count = lambda logical: 8 if logical else None
    identity = json.loads(json.dumps(host(machine, tmp_path, proc=str(tmp_path)).identify()))
    assert identity["host_name"] == socket.gethostname()
    assert identity["cpu_logical_count"] == 8
    assert "cpu_physical_count" not in identity
    assert identity["unsupported"] == {"cpu_physical_count": "not given by this platform"}


def test_cpu_model_is_read_from_proc(tmp_path):
    """The first processor's name; none where there is no such file."""
    (tmp_path / "cpuinfo").write_text("processor : 0\nmodel name\t: Some CPU @ 2.10GHz\nmodel name : Other\n")
    assert cpu_model(str(tmp_path)) == "Some CPU @ 2.10GHz"
    assert cpu_model(str(tmp_path / "nowhere")) != "Some CPU @ 2.10GHz"


@on_linux
def test_real_readings_lie_between_two_looks_at_proc(tmp_path):
    """Network and disk counters, memory and CPU time of this machine, each read independently before and after."""

    def network() -> dict[str, tuple[int, int]]:
        lines = Path("/proc/net/dev").read_text().splitlines()[2:]
        parts = {line.split(":")[0].strip(): line.split(":")[1].split() for line in lines}
        return {name: (int(words[0]), int(words[8])) for name, words in parts.items()}

    def disks() -> dict[str, tuple[int, int]]:
        lines = [line.split() for line in Path("/proc/diskstats").read_text().splitlines()]
        return {words[2]: (int(words[5]) * 512, int(words[9]) * 512) for words in lines}

    def meminfo(field: str) -> int:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))

    sampler = HostSampler(tmp_path)
    sampler.sample(0)
    before = (network(), disks())
    samples = sampler.sample(0)
    after = (network(), disks())
    checked = 0
    for name, key, directions, low, high in (
        ("system.network.io", "network.interface.name", ("receive", "transmit"), before[0], after[0]),
        ("system.disk.io", "system.device", ("read", "write"), before[1], after[1]),
    ):
        for sample in (s for s in samples if s.name == name):
            attributes = dict(sample.attributes)
            which = directions.index(attributes.get("network.io.direction") or attributes["disk.io.direction"])
            assert low[attributes[key]][which] <= sample.value <= high[attributes[key]][which]
            checked += 1
    assert checked >= 2
    assert sum(values(samples, "system.memory.usage")) == meminfo("MemTotal")
    available = meminfo("MemTotal") * (1 - value(samples, "system.memory.utilization"))
    assert abs(available - meminfo("MemAvailable")) < 0.1 * meminfo("MemTotal")
    statvfs = os.statvfs(tmp_path)
    used = (statvfs.f_blocks - statvfs.f_bfree) * statvfs.f_frsize
    share = used / (used + statvfs.f_bavail * statvfs.f_frsize)
    assert value(samples, "system.filesystem.utilization") == pytest.approx(share, abs=0.01)
    assert_named_in_table(samples)


@on_linux
def test_real_identity_agrees_with_proc():
    """Logical CPUs and memory as the kernel lists them."""
    identity = HostSampler().identify()
    cpuinfo = Path("/proc/cpuinfo").read_text()
    assert identity["cpu_logical_count"] == sum(line.startswith("processor") for line in cpuinfo.splitlines())
    assert identity["memory_total_bytes"] == psutil.virtual_memory().total
    assert identity["cpu_available"] <= identity["cpu_logical_count"]
