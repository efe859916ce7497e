"""Limits and kills of control groups are read from trees of files such as the kernel shows."""

import os
import sys
from pathlib import Path

import pytest

from otel_train.sources.cgroup import Cgroup, available_cpus, oom_file, oom_kills, oom_kills_in, read_cgroup

GIB = 1 << 30
NO_LIMIT_V1 = 9223372036854771712


class Tree:
    """A made-up /proc and /sys/fs/cgroup."""

    def __init__(self, root: Path) -> None:
        self.proc = root / "proc"
        self.root = root / "cgroup"
        (self.proc / "self").mkdir(parents=True)
        self.root.mkdir()

    def member(self, text: str) -> None:
        (self.proc / "self" / "cgroup").write_text(text)

    def file(self, path: str, text: object) -> str:
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(f"{text}\n")
        return str(place)

    def read(self) -> Cgroup | None:
        return read_cgroup(str(self.root), str(self.proc))

    def kills(self) -> int | None:
        return oom_kills(str(self.root), str(self.proc))


@pytest.fixture
def tree(tmp_path):
    return Tree(tmp_path)


def test_version_2_in_a_container(tree):
    """Memory 8 GiB, one and a half CPUs, two kills, at the mount itself."""
    tree.member("0::/\n")
    tree.file("cgroup.controllers", "cpu memory")
    tree.file("memory.max", 8 * GIB)
    tree.file("memory.current", 3 * GIB)
    tree.file("cpu.max", "150000 100000")
    events = tree.file("memory.events", "low 0\nhigh 0\nmax 17\noom 2\noom_kill 2\noom_group_kill 0")
    tree.file("memory.stat", f"anon 5\nactive_file 4\ninactive_file {GIB}\nslab 3")
    assert tree.read() == Cgroup(2, 8 * GIB, 3 * GIB, 1.5, events, GIB)
    assert tree.kills() == 2


def test_limits_of_the_groups_above_hold_too(tree):
    """The pod allows 4 GiB and the container says max: 4 GiB; the smaller of two quotas counts."""
    tree.member("0::/pod/container\n")
    tree.file("cgroup.controllers", "")
    tree.file("pod/memory.max", 4 * GIB)
    tree.file("pod/cpu.max", "400000 100000")
    tree.file("pod/container/memory.max", "max")
    tree.file("pod/container/memory.current", GIB)
    tree.file("pod/container/cpu.max", "max 100000")
    tree.file("pod/memory.events", "oom_kill 9")
    events = tree.file("pod/container/memory.events", "oom_kill 1")
    assert tree.read() == Cgroup(2, 4 * GIB, GIB, 4.0, events)
    assert tree.kills() == 1


def test_version_1_has_a_hierarchy_for_each_controller(tree):
    """The number that stands for no limit is none; beside it an empty unified hierarchy does not matter."""
    tree.member("12:memory:/job/7\n3:cpu,cpuacct:/job\n1:name=systemd:/x\n0::/\n")
    tree.file("unified/cgroup.controllers", "")
    tree.file("memory/memory.limit_in_bytes", NO_LIMIT_V1)
    tree.file("memory/job/memory.limit_in_bytes", 2 * GIB)
    tree.file("memory/job/7/memory.limit_in_bytes", NO_LIMIT_V1)
    tree.file("memory/job/7/memory.usage_in_bytes", GIB)
    events = tree.file("memory/job/7/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 3")
    tree.file("cpu,cpuacct/job/cpu.cfs_quota_us", 50_000)
    tree.file("cpu,cpuacct/job/cpu.cfs_period_us", 100_000)
    tree.file("cpu,cpuacct/cpu.cfs_quota_us", -1)
    tree.file("cpu,cpuacct/cpu.cfs_period_us", 100_000)
    tree.file("memory/job/7/memory.stat", "inactive_file 1\ntotal_inactive_file 4096\n")
    assert tree.read() == Cgroup(1, 2 * GIB, GIB, 0.5, events, 4096)
    assert tree.kills() == 3


def test_a_container_that_sees_the_hosts_path_reads_its_mount(tree):
    """Without a namespace for control groups the path is the host's and does not exist below the mount."""
    tree.member("4:memory:/docker/0123abcd\n")
    tree.file("memory/memory.limit_in_bytes", 6 * GIB)
    tree.file("memory/memory.usage_in_bytes", 5 * GIB)
    assert tree.read() == Cgroup(1, 6 * GIB, 5 * GIB, None, None)
    assert tree.kills() is None


def test_a_path_outside_the_namespace_reads_the_mount(tree):
    """The kernel writes /.. for a group above the namespace's root; nothing outside the mount is read."""
    tree.member("0::/../other\n")
    tree.file("cgroup.controllers", "memory")
    tree.file("memory.max", GIB)
    (tree.root.parent / "other").mkdir()
    (tree.root.parent / "other" / "memory.max").write_text("1\n")
    group = tree.read()
    assert group is not None
    assert group.memory_limit_bytes == GIB


def test_where_there_are_no_control_groups_there_is_none(tree):
    """No /proc entry, no mount, or an empty one: None, no error."""
    assert tree.read() is None
    tree.member("0::/\n4:memory:/x\nnonsense\n")
    assert tree.read() is None
    assert tree.kills() is None
    assert oom_file(str(tree.root), str(tree.proc)) is None


@pytest.mark.parametrize("text", ["max", "150000", "x 100000", "150000 0", ""])
def test_a_damaged_quota_is_no_quota(tree, text):
    """What is not two numbers sets no limit."""
    tree.member("0::/\n")
    tree.file("cgroup.controllers", "")
    tree.file("cpu.max", text)
    group = tree.read()
    assert group is not None
    assert group.cpu_limit is None


def test_kills_are_read_again_from_a_remembered_file(tree):
    """A reader in another process compares the count with that at the start; a vanished group tells nothing."""
    path = tree.file("job/memory.events", "oom 1\noom_kill 1")
    assert oom_kills_in(path) == 1
    Path(path).unlink()
    assert oom_kills_in(path) is None


def test_an_old_kernel_counts_no_kills(tree):
    """Before 4.13 version 1 has no such line: unknown, not zero."""
    assert oom_kills_in(tree.file("memory.oom_control", "oom_kill_disable 0\nunder_oom 0")) is None


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="needs CPU affinity")
def test_available_cpus_are_affinity_and_quota():
    """The smaller of both."""
    allowed = len(os.sched_getaffinity(0))
    assert available_cpus(None) == allowed
    assert available_cpus(Cgroup(2, cpu_limit=0.25)) == 0.25
    assert available_cpus(Cgroup(2, cpu_limit=1e6)) == allowed


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux")
def test_this_machines_own_group_reads_without_error():
    """Whatever this machine has, the answer fits the files that it names."""
    group = read_cgroup()
    if group is not None and group.oom_file is not None:
        lines = Path(group.oom_file).read_text().splitlines()
        counts = [int(line.split()[1]) for line in lines if line.startswith("oom_kill ")]
        assert [oom_kills()] == (counts or [None])
