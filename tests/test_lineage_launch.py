import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest

from otel_train.lineage.launch import LaunchFolder, group_hint, next_sequence, resume_note, resume_target
from otel_train.lineage.launch_exchange import SeveralExchanges, StoreExchange, default_store, wait_for
from otel_train.lineage.process_identity import (
    ProcessIdentity,
    host_identity,
    is_alive,
    process_start_s,
    read_identity,
)
from otel_train.lineage.ranks import Ranks

SECOND = 10**9
RANK_0 = Ranks(rank=0, world_size=2, launcher="env", launch_key="key-a")
RANK_1 = Ranks(rank=1, world_size=2, launcher="env", launch_key="key-a")


class FakeClock:
    def __init__(self, now_s=1_000_000):
        self.now_ns = now_s * SECOND

    def wall_ns(self):
        return self.now_ns

    def mono_ns(self):
        return self.now_ns

    def sleep(self, seconds):
        self.now_ns += round(seconds * SECOND)


def process(started_s, *, host="here", pid=1, parent_age_s=100):
    """A process that does not exist, started at this wall time by a launcher that is older."""
    return ProcessIdentity(
        host=host,
        pid=pid,
        start_s=1000.0,
        parent_pid=2,
        parent_start_s=1000.0 - parent_age_s,
        start_wall_ns=started_s * SECOND,
    )


def gone():
    """A process of this host that has ended."""
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return replace(read_identity(), pid=child.pid, start_s=1.0)


def test_the_others_read_what_rank_0_published(tmp_path):
    """Nothing before, the run's id and attempt after, under this key and for this run of the process only."""
    folder = LaunchFolder(tmp_path)
    assert folder.try_read(RANK_1) is None
    published = folder.publish(RANK_0, "run-1", 1)
    assert (published.run_id, published.attempt) == ("run-1", 1)
    assert folder.try_read(RANK_1) == published
    assert folder.try_read(RANK_1, sequence=1) is None
    assert folder.try_read(replace(RANK_1, launch_key="key-b")) is None
    assert folder.try_read(replace(RANK_1, launch_key=None)) is None
    assert folder.publish(replace(RANK_0, launch_key=None), "run-1", 1) is None


def test_a_second_live_rank_0_is_told_of_the_first(tmp_path):
    """It must not take over the launch of a process that lives."""
    live = replace(read_identity(), pid=os.getppid(), start_s=process_start_s(os.getppid()))
    LaunchFolder(tmp_path, live).publish(RANK_0, "run-1", 1)
    assert LaunchFolder(tmp_path).publish(RANK_0, "run-2", 1).run_id == "run-1"


def test_rank_0_replaces_what_an_earlier_launch_left(tmp_path):
    """The same port again: the others read the new id only."""
    LaunchFolder(tmp_path, gone()).publish(RANK_0, "run-1", 1)
    assert LaunchFolder(tmp_path).publish(RANK_0, "run-2", 1).run_id == "run-2"
    assert LaunchFolder(tmp_path).try_read(RANK_1).run_id == "run-2"


def test_on_one_host_an_earlier_launch_is_not_joined(tmp_path):
    """Its rank 0 is gone and wrote before this process started; a key that never comes back needs no such check."""
    clock = FakeClock()
    LaunchFolder(tmp_path, gone(), clock).publish(RANK_0, "run-1", 1)
    now_s = clock.now_ns // SECOND
    here = gone().host
    assert LaunchFolder(tmp_path, process(now_s + 1, host=here), clock).try_read(RANK_1) is None
    assert LaunchFolder(tmp_path, process(now_s - 1, host=here), clock).try_read(RANK_1).run_id == "run-1"
    unique = replace(RANK_1, key_is_unique=True)
    assert LaunchFolder(tmp_path, process(now_s + 600, host=here), clock).try_read(unique).run_id == "run-1"


def test_a_live_rank_0_is_joined_however_late_until_it_has_ended_the_run(tmp_path):
    """A process started by hand an hour later belongs to the launch; after the end it does not."""
    clock = FakeClock()
    folder = LaunchFolder(tmp_path, read_identity(), clock)
    folder.publish(RANK_0, "run-1", 1)
    late = LaunchFolder(tmp_path, process(clock.now_ns // SECOND + 3600, host=host_identity()), clock)
    assert late.try_read(RANK_1).run_id == "run-1"
    folder.retire(RANK_0, "another")
    assert late.try_read(RANK_1).run_id == "run-1"
    folder.retire(RANK_0, "run-1")
    assert late.try_read(RANK_1) is None


def test_between_hosts_the_time_decides(tmp_path):
    """Ten minutes for starting and for clocks that differ, one minute where the run has ended."""
    clock = FakeClock()
    there = LaunchFolder(tmp_path, process(0, host="there"), clock)
    there.publish(RANK_0, "run-1", 1)
    now_s = clock.now_ns // SECOND

    def read(started_s):
        found = LaunchFolder(tmp_path, process(started_s), clock).try_read(RANK_1)
        return found.run_id if found else None

    assert [read(now_s - 60), read(now_s + 590), read(now_s + 610)] == ["run-1", "run-1", None]
    there.retire(RANK_0, "run-1")
    assert [read(now_s + 50), read(now_s + 70)] == ["run-1", None]


def test_a_restart_of_the_launcher_goes_on_with_its_run(tmp_path):
    """The highest restart before counts, also where its workers had time to end it; an earlier launch does not.

    Under the same count a run that ended is that of an earlier `init()`, and is left alone.
    """
    clock = FakeClock()
    torchrun = replace(RANK_0, launcher="torchrun")
    LaunchFolder(tmp_path, gone(), clock).publish(torchrun, "run-1", 1)
    again = replace(torchrun, restart_count=2)
    restarted = LaunchFolder(tmp_path, replace(process(clock.now_ns // SECOND + 60), host=gone().host), clock)
    assert (restarted.former(again).run_id, restarted.former(again).attempt) == ("run-1", 1)
    assert restarted.former(torchrun).run_id == "run-1"  # new members, same count
    assert restarted.former(replace(again, launcher="env")) is None
    assert restarted.former(again, sequence=1) is None
    young = process(clock.now_ns // SECOND + 60, host=gone().host, parent_age_s=1)
    assert LaunchFolder(tmp_path, young, clock).former(again) is None
    LaunchFolder(tmp_path, gone(), clock).retire(torchrun, "run-1")
    assert restarted.former(again).run_id == "run-1"
    assert restarted.former(torchrun) is None


def test_a_restart_does_not_read_what_the_workers_before_published(tmp_path):
    """Each restart has a file of its own."""
    folder = LaunchFolder(tmp_path)
    folder.publish(RANK_0, "run-1", 1)
    assert folder.try_read(replace(RANK_1, restart_count=1)) is None


def test_damaged_and_unwritable_files_are_as_if_there_were_none(tmp_path):
    """A half-written file is not yet there; a root that takes no file gives None."""
    folder = LaunchFolder(tmp_path)
    folder.publish(RANK_0, "run-1", 1)
    (path,) = (tmp_path / ".launches").glob("*.json")
    for text in ('{"run_id": "ru', "[]", '{"attempt": 1}', '{"run_id": 5}', ""):
        path.write_text(text)
        assert folder.try_read(RANK_1) is None
    (tmp_path / "file").write_text("")
    assert LaunchFolder(tmp_path / "file").publish(RANK_0, "run-1", 1) is None
    LaunchFolder(tmp_path / "file").remember("k", "run-1", 1)
    assert LaunchFolder(tmp_path / "file").recall("k") is None


def test_files_of_a_month_ago_are_removed(tmp_path):
    """Every start leaves a small file; none stays for ever."""
    folder = LaunchFolder(tmp_path)
    folder.publish(RANK_0, "run-1", 1)
    (old,) = (tmp_path / ".launches").glob("*.json")
    os.utime(old, (0, 0))
    folder.publish(replace(RANK_0, launch_key="key-b"), "run-2", 1)
    assert not old.exists()


def test_a_queued_again_job_finds_the_run_that_it_recorded(tmp_path):
    """Only its second start does, and only the run of the same project."""
    folder = LaunchFolder(tmp_path)
    first = Ranks(resume_key="slurm-77-batch")
    assert resume_target(folder, first, "digits") is None
    folder.remember(resume_note("slurm-77-batch", "digits"), "run-1", 1)
    assert resume_target(folder, first, "digits") is None
    assert resume_target(folder, replace(first, is_requeue=True), "digits") == "run-1"
    assert resume_target(folder, replace(first, is_requeue=True), "other") is None


class FakeStore:
    def __init__(self):
        self.content = {}

    def set(self, key, value):
        self.content[key] = value.encode()

    def get(self, key):
        return self.content[key]

    def check(self, keys):
        return all(key in self.content for key in keys)


def test_the_jobs_store_carries_the_id_without_a_shared_folder(tmp_path):
    """Found there first; a store that fails leaves the folder."""
    store = FakeStore()
    exchange = StoreExchange(store, FakeClock())
    assert exchange.try_read(RANK_1) is None
    both = SeveralExchanges([exchange, LaunchFolder(tmp_path)])
    assert both.publish(RANK_0, "run-1", 1).run_id == "run-1"
    assert exchange.try_read(RANK_1).run_id == both.try_read(RANK_1).run_id == "run-1"
    assert json.loads(store.content["otel_train/0/0"])["attempt"] == 1
    broken = SeveralExchanges([StoreExchange(None), LaunchFolder(tmp_path)])
    assert broken.publish(RANK_0, "run-1", 2).run_id == "run-1"
    assert broken.try_read(RANK_1).attempt == 2
    assert SeveralExchanges([StoreExchange(None)]).try_read(RANK_1) is None


def test_torchs_own_store_serves():
    """Set, check and get are what its stores have; without a process group there is none."""
    import torch.distributed as distributed

    exchange = StoreExchange(distributed.HashStore())
    assert exchange.try_read(RANK_1) is None
    exchange.publish(RANK_0, "run-1", 3)
    assert (exchange.try_read(RANK_1).run_id, exchange.try_read(RANK_1).attempt) == ("run-1", 3)
    assert default_store(distributed) is None
    assert default_store(None) is None
    assert default_store(object()) is None


def test_waiting_ends_with_the_id_or_at_the_deadline():
    """Polled every 50 ms, and not a moment past the deadline."""
    clock = FakeClock(0)
    answers = iter([None, None, "found"])
    assert wait_for(lambda: next(answers), deadline_ns=SECOND, clock=clock, sleep=clock.sleep) == "found"
    assert clock.now_ns == SECOND // 10
    assert wait_for(lambda: None, deadline_ns=SECOND, clock=clock, sleep=clock.sleep) is None
    assert clock.now_ns == SECOND


def test_a_process_is_known_by_number_start_and_host():
    """A number used again is another process."""
    own = read_identity()
    assert (own.pid, own.parent_pid) == (os.getpid(), os.getppid())
    assert is_alive(own.host, own.pid, own.start_s, own.host) is True
    assert is_alive(own.host, own.pid, own.start_s - 1, own.host) is False
    assert is_alive("elsewhere", own.pid, own.start_s, own.host) is None
    assert is_alive(gone().host, gone().pid, None, own.host) is False


def test_where_there_is_no_proc_the_start_is_read_by_psutil(tmp_path):
    """As on macOS and Windows."""
    start_s = process_start_s(os.getpid(), str(tmp_path))
    assert start_s == pytest.approx(read_identity().start_wall_ns / 1e9, abs=2)
    assert read_identity(proc=str(tmp_path)).host == host_identity().partition("/")[0]


def test_ranks_that_share_no_run_share_a_group():
    """The launch's key, else the launcher's process, names it."""
    assert group_hint(RANK_1, process(0)) == "launch-key-a"
    assert group_hint(Ranks(), process(0)) == "launch-here-2-900"
    assert group_hint(Ranks(), replace(process(0), parent_start_s=None)) is None


def test_runs_of_one_process_are_counted():
    """Each is shared under a number of its own."""
    first = next_sequence()
    assert next_sequence() == first + 1


SCRIPT = """
import json, os, sys, time
from otel_train.clock import SYSTEM
from otel_train.lineage.launch import LaunchFolder
from otel_train.lineage.launch_exchange import wait_for
from otel_train.lineage.process_identity import read_identity
from otel_train.lineage.ranks import detect_ranks, loaded_distributed
from otel_train.lineage.run_id import new_run_id

identity = read_identity()
ranks = detect_ranks(os.environ, loaded_distributed(), identity)
folder = LaunchFolder(sys.argv[1], identity)
if ranks.is_main:
    found = folder.publish(ranks, new_run_id(SYSTEM), 1)
else:
    deadline_ns = SYSTEM.mono_ns() + 60 * 10**9
    found = wait_for(lambda: folder.try_read(ranks), deadline_ns=deadline_ns, clock=SYSTEM, sleep=time.sleep)
print(json.dumps([ranks.rank, ranks.world_size, found and found.run_id]))
"""


def launch(root, environs):
    base = {key: value for key, value in os.environ.items() if not key.startswith(("SLURM", "MASTER", "OTEL"))}
    children = [
        subprocess.Popen([sys.executable, "-c", SCRIPT, str(root)], env=base | environ, stdout=subprocess.PIPE)
        for environ in environs
    ]
    return [json.loads(child.communicate(timeout=90)[0]) for child in children]


@pytest.mark.slow
@pytest.mark.parametrize(
    "environs",
    [
        [{"RANK": str(rank), "WORLD_SIZE": "4"} for rank in (3, 2, 1, 0)],
        [{"SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank % 2)} for rank in range(4)],
    ],
)
def test_four_racing_processes_have_one_run_and_the_next_launch_another(tmp_path, environs):
    """Two launches one after the other by the same parent, whose keys are equal: two ids, ranks 0 to 3 each."""
    first, second = launch(tmp_path, environs), launch(tmp_path, environs)
    for found in (first, second):
        assert sorted(rank for rank, _, _ in found) == [0, 1, 2, 3]
        assert len({run_id for _, _, run_id in found}) == 1
    assert first[0][2] != second[0][2]
    assert None not in (first[0][2], second[0][2])
