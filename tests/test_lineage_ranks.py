import types

import pytest

from otel_train.lineage.launch_key import file_safe, launch_key, resume_key
from otel_train.lineage.process_identity import ProcessIdentity
from otel_train.lineage.ranks import detect_ranks

PARENT = ProcessIdentity(host="h/boot/pid", pid=20, start_s=11.0, parent_pid=10, parent_start_s=9.5, start_wall_ns=0)


def place(environ, distributed=None):
    ranks = detect_ranks(environ, distributed, PARENT)
    return ranks.rank, ranks.local_rank, ranks.world_size, ranks.launcher


def keys(environs):
    return {detect_ranks(environ, None, PARENT).launch_key for environ in environs}


def group(rank, size, initialized=True):
    return types.SimpleNamespace(
        is_available=lambda: True,
        is_initialized=lambda: initialized,
        get_rank=lambda: rank,
        get_world_size=lambda: size,
    )


def test_a_process_without_a_launcher_is_the_only_one():
    """No variable, no notice, no key."""
    ranks = detect_ranks({})
    assert place({}) == (0, 0, 1, "single")
    assert (ranks.launch_key, ranks.notices, ranks.shared, ranks.is_main) == (None, (), False, True)


def test_four_processes_with_rank_and_size_share_one_key():
    """Ranks 0 to 3 of 4, no notice."""
    environs = [{"RANK": str(rank), "WORLD_SIZE": "4", "LOCAL_RANK": str(rank % 2)} for rank in range(4)]
    assert [place(environ) for environ in environs] == [(rank, rank % 2, 4, "env") for rank in range(4)]
    assert len(keys(environs)) == 1
    assert None not in keys(environs)
    assert [detect_ranks(environ, None, PARENT).is_main for environ in environs] == [True, False, False, False]


def test_two_nodes_of_which_only_slurms_ranks_are_known_are_one_launch():
    """Global ranks 0 to 3 with local ranks 0 and 1; that the size is unknown is said."""
    environs = [{"SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank % 2)} for rank in range(4)]
    found = [detect_ranks(environ, None, PARENT) for environ in environs]
    assert [(ranks.rank, ranks.local_rank) for ranks in found] == [(0, 0), (1, 1), (2, 0), (3, 1)]
    assert all(ranks.shared for ranks in found)
    assert len({ranks.launch_key for ranks in found}) == 1
    assert found[2].notices == (
        "the number of processes is not known: rank 2 of at least 3; set WORLD_SIZE to record it",
    )


def test_tasks_of_srun_are_ranks_under_the_steps_key():
    """The step's own number of tasks counts, and the key is the job's step, which never comes back."""
    environ = {
        "SLURM_JOB_ID": "77",
        "SLURM_STEP_ID": "1",
        "SLURM_PROCID": "3",
        "SLURM_LOCALID": "1",
        "SLURM_NTASKS": "8",
        "SLURM_STEP_NUM_TASKS": "4",
        "ENVIRONMENT": "BATCH",
    }
    ranks = detect_ranks(environ)
    assert place(environ) == (3, 1, 4, "slurm")
    assert (ranks.launch_key, ranks.key_is_unique, ranks.notices) == ("slurm-77-1-0", True, ())


@pytest.mark.parametrize(
    "environ",
    [
        {"SLURM_JOB_ID": "77"},
        {"SLURM_JOB_ID": "77", "SLURM_NTASKS": "1"},
        {"SLURM_JOB_ID": "77", "SLURM_NTASKS": "4", "ENVIRONMENT": "BATCH"},
        {"SLURM_JOB_ID": "77", "SLURM_NTASKS": "4", "SLURM_STEP_ID": "4294967290"},
        {"SLURM_JOB_ID": "77", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "1"},
    ],
)
def test_a_batch_script_and_an_interactive_shell_are_one_process(environ):
    """Slurm gives them rank 0 of the job's tasks, but nobody has started the others."""
    environ = environ | {"SLURM_PROCID": "0", "SLURM_LOCALID": "0"}
    assert place(environ) == (0, 0, 1, "slurm")
    notices = detect_ranks(environ).notices
    assert bool(notices) == (environ.get("SLURM_NTASKS") == "4")
    assert not notices or "the job has 4 tasks, but this process was not started by srun" in notices[0]


def test_a_local_rank_alone_is_not_taken_for_the_global_one():
    """The process is recorded as a run of its own, and that is said."""
    ranks = detect_ranks({"LOCAL_RANK": "2"}, None, PARENT)
    assert (ranks.rank, ranks.local_rank, ranks.world_size, ranks.shared) == (0, 2, 1, False)
    assert ranks.notices[0].startswith(
        "LOCAL_RANK=2 is set, but RANK is not: the rank among all processes is not known"
    )
    assert "WORLD_SIZE=4 is set, but RANK is not" in detect_ranks({"WORLD_SIZE": "4"}).notices[0]


def test_a_local_rank_is_enough_where_the_rest_follows():
    """One node, the first node, or a known number of processes a node."""
    assert place({"LOCAL_RANK": "2", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "4"}) == (2, 2, 4, "env")
    assert place({"LOCAL_RANK": "1", "WORLD_SIZE": "4", "NODE_RANK": "0"}) == (1, 1, 4, "env")
    assert place({"LOCAL_RANK": "1", "WORLD_SIZE": "4", "NODE_RANK": "1", "LOCAL_WORLD_SIZE": "2"}) == (3, 1, 4, "env")
    assert place({"LOCAL_RANK": "1", "WORLD_SIZE": "4", "NODE_RANK": "1"})[:3] == (0, 1, 1)


def test_mpi_comes_before_the_rank_that_a_batch_script_inherits():
    """A batch script that calls mpirun leaves SLURM_PROCID=0 to all its processes on the first node."""
    inherited = {"SLURM_PROCID": "0", "SLURM_JOB_ID": "77", "SLURM_NTASKS": "4"}
    mpi = {"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_RANK": "1"}
    assert place(inherited | mpi) == (3, 1, 4, "mpi")
    assert place({"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1"}) == (1, 1, 2, "mpi")
    assert place({"MV2_COMM_WORLD_RANK": "1", "MV2_COMM_WORLD_SIZE": "2"}) == (1, None, 2, "mpi")


@pytest.mark.parametrize(
    ("environ", "expected", "notice"),
    [
        ({"RANK": "abc", "WORLD_SIZE": "1"}, (0, 0, 1), "RANK='abc' is left out: it is no whole number of at least 0"),
        ({"RANK": "-1"}, (0, 0, 1), "RANK='-1' is left out: it is no whole number of at least 0"),
        ({"RANK": "0", "WORLD_SIZE": "0"}, (0, None, 1), "WORLD_SIZE='0' is left out"),
        ({"RANK": "5", "WORLD_SIZE": "4"}, (5, None, 6), "rank 5 does not fit into 4 processes; the rank is kept"),
        ({"SLURM_PROCID": "x"}, (0, 0, 1), "SLURM_PROCID='x' is left out"),
        ({"RANK": "1"}, (1, None, 2), "the number of processes is not known: rank 1 of at least 2"),
    ],
)
def test_bad_values_lead_to_a_notice_and_to_what_is_known_without_them(environ, expected, notice):
    """Nothing raises, and no two processes are given one rank."""
    ranks = detect_ranks(environ, None, PARENT)
    assert (ranks.rank, ranks.local_rank, ranks.world_size) == expected
    assert any(text.startswith(notice) for text in ranks.notices)


def test_an_initialised_process_group_has_the_last_word():
    """It fills what the environment lacks, and where both speak the difference is said."""
    assert place({}, group(2, 4)) == (2, None, 4, "distributed")
    assert detect_ranks({}, group(2, 4), PARENT).launch_key is not None
    assert place({"LOCAL_RANK": "1"}, group(3, 4)) == (3, 1, 4, "distributed")
    assert detect_ranks({"LOCAL_RANK": "1"}, group(3, 4), PARENT).notices == ()
    assert place({"RANK": "0", "WORLD_SIZE": "2"}, group(1, 2))[0] == 1
    assert (
        "torch.distributed rank 1 of 2: the latter is recorded"
        in (detect_ranks({"RANK": "0", "WORLD_SIZE": "2"}, group(1, 2), PARENT).notices[0])
    )
    assert place({"RANK": "1", "WORLD_SIZE": "2"}, group(1, 2)) == (1, None, 2, "env")
    assert place({}, group(2, 4, initialized=False)) == (0, 0, 1, "single")
    assert place({}, object()) == (0, 0, 1, "single")


def test_torchruns_id_is_the_key_but_never_its_default():
    """`none` is everybody's id: the meeting point and, on one host, the launcher's process take its place."""
    base = {
        "RANK": "0",
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "node1",
        "MASTER_PORT": "29500",
        "TORCHELASTIC_RESTART_COUNT": "3",
    }
    named = detect_ranks(base | {"TORCHELASTIC_RUN_ID": "exp 1"}, None, PARENT)
    assert named.launch_key == file_safe("torchrun-exp 1")
    assert (named.launcher, named.restart_count, named.key_is_unique) == ("torchrun", 3, False)
    none = base | {"TORCHELASTIC_RUN_ID": "none"}
    assert detect_ranks(none, None, PARENT).launch_key == "master-node1-29500"
    one_host = detect_ranks(none | {"LOCAL_WORLD_SIZE": "2"}, None, PARENT).launch_key
    assert one_host.startswith("master-node1-29500-parent-")
    assert one_host.endswith("-10-9.50")
    job = {"SLURM_JOB_ID": "77", "SLURM_STEP_ID": "0", "SLURM_RESTART_COUNT": "1"}
    assert detect_ranks(none | job, None, PARENT).launch_key == "slurm-77-0-1-master-node1-29500"


def test_without_any_name_a_launch_says_how_to_give_it_one():
    """The processes record runs of their own."""
    ranks = detect_ranks({"RANK": "1", "WORLD_SIZE": "2"})
    assert ranks.launch_key is None
    assert "set OTEL_TRAIN_LAUNCH_KEY" in ranks.notices[0]
    assert launch_key({"OTEL_TRAIN_LAUNCH_KEY": "mine"}, "env") == ("key-mine", False)
    assert launch_key({"PMIX_NAMESPACE": "prterun-1@1"}, "mpi")[0] == file_safe("mpi-prterun-1@1")


def test_a_job_that_is_queued_again_keeps_its_resume_key():
    """Only its second start is one; a key by hand always is."""
    job = {"SLURM_JOB_ID": "77", "SLURM_CLUSTER_NAME": "c"}
    assert resume_key(job) == ("slurm-c-77-batch", False)
    assert resume_key(job | {"SLURM_RESTART_COUNT": "1", "SLURM_STEP_ID": "0"}) == ("slurm-c-77-0", True)
    assert resume_key({"OTEL_TRAIN_RESUME_KEY": "nightly"}) == ("key-nightly", True)
    assert resume_key({}) == (None, False)


def test_keys_are_fit_as_file_names_and_stay_different():
    """What is replaced or cut leaves a digest."""
    assert file_safe("slurm-77-0") == "slurm-77-0"
    assert file_safe("a/b") != file_safe("a b")
    assert len(file_safe("x" * 1000)) == 133
