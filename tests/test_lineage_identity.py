import random
import re
import sys
import types
import uuid

import numpy as np
import pytest
import torch

from otel_train.errors import ConfigError
from otel_train.lineage.project import default_run_name, parse_resource_attributes, project_name
from otel_train.lineage.ranks import Ranks
from otel_train.lineage.resource import resource_attributes
from otel_train.lineage.run_id import new_run_id, new_span_id, new_trace_id, service_instance_id
from otel_train.lineage.seeds import check_seed, describe_seeds, seed_everything


class FixedClock:
    def wall_ns(self):
        return 1_764_547_200_999_999_999  # 2025-12-01 00:00:00.999999999 UTC

    def mono_ns(self):
        return 0


def test_a_run_id_is_the_time_and_forty_random_bits():
    """Eight characters of a-z and 2-7 follow the second in UTC."""
    assert new_run_id(FixedClock(), lambda size: bytes(range(size))) == "20251201-000000-aaaqeaye"
    assert re.fullmatch(r"\d{8}-\d{6}-[a-z2-7]{8}", new_run_id(FixedClock()))


def test_ids_do_not_follow_the_random_state_of_the_user():
    """Equal seeds, different ids."""
    random.seed(1)
    first = (new_run_id(FixedClock()), new_trace_id(), new_span_id())
    random.seed(1)
    second = (new_run_id(FixedClock()), new_trace_id(), new_span_id())
    assert all(one != other for one, other in zip(first, second, strict=True))


def test_span_and_trace_ids_are_never_zero():
    """Zero means no id in OpenTelemetry, so it is drawn again."""
    draws = iter([bytes(16), b"\x01" + bytes(15), bytes(8), bytes(7) + b"\x02"])
    assert new_trace_id(lambda size: next(draws)) == 1 << 120
    assert new_span_id(lambda size: next(draws)) == 2


def test_each_rank_of_a_run_has_an_instance_id_of_its_own():
    """The same in every attempt, a UUID of version 5."""
    one, two = (service_instance_id("20251201-000000-aaaqeaye", rank) for rank in (0, 1))
    assert one != two
    assert one == service_instance_id("20251201-000000-aaaqeaye", 0)
    assert uuid.UUID(one).version == 5


def test_seeding_makes_python_numpy_and_torch_repeat_themselves():
    """The record names what was set, and equal states have equal digests; CUDA stays untouched."""
    first = seed_everything(np.int64(42))
    drawn = (random.random(), np.random.rand(), torch.rand(1).item())
    after = describe_seeds()
    second = seed_everything(42)
    assert drawn == (random.random(), np.random.rand(), torch.rand(1).item())
    assert first == second
    assert (first["seed"], first["set"], first["torch_initial_seed"]) == (42, ["python", "numpy", "torch"], 42)
    assert type(first["seed"]) is int
    assert after["seed"] is None
    assert all(after["states"][name] != first["states"][name] for name in ("python", "numpy", "torch"))
    assert not torch.cuda.is_initialized()


def test_what_is_not_loaded_is_not_seeded_and_not_imported(monkeypatch):
    """The record says which library was not there; one that fails is reported with its reason."""
    monkeypatch.delitem(sys.modules, "torch")
    monkeypatch.setitem(sys.modules, "numpy", types.ModuleType("numpy"))
    record = seed_everything(1)
    assert (record["set"], record["not_loaded"]) == (["python"], ["torch"])
    assert record["problems"]["numpy"].startswith("AttributeError")
    assert list(record["states"]) == ["python"]
    assert "torch" not in sys.modules


@pytest.mark.parametrize("wrong", [-1, 2**32, 1.5, "1", True, None])
def test_a_wrong_seed_is_refused(wrong):
    """The error names the range."""
    with pytest.raises(ConfigError, match=r"seed=.*use a whole number from 0 to 4294967295"):
        check_seed(wrong)


def test_the_project_comes_from_argument_environment_or_the_scripts_folder():
    """In this order; a file in the root folder and an empty path leave a name all the same."""
    environ = {"OTEL_SERVICE_NAME": "named", "OTEL_RESOURCE_ATTRIBUTES": "service.name=attribute"}
    assert project_name("given", environ, "/a/digits/train.py", "/w") == "given"
    assert project_name(None, environ, "/a/digits/train.py", "/w") == "named"
    assert (
        project_name(None, {"OTEL_RESOURCE_ATTRIBUTES": "service.name=attribute"}, "/a/digits/t.py", "/w")
        == "attribute"
    )
    assert project_name(None, {}, "/a/digits/train.py", "/w") == "digits"
    assert project_name(None, {}, None, "/srv/folder") == "folder"
    assert project_name(None, {}, "/train.py", "/") == "default"


@pytest.mark.parametrize("wrong", ["", "  ", "a\nb", "x" * 257, 5])
def test_a_wrong_project_is_refused(wrong):
    """The error names the argument."""
    with pytest.raises(ConfigError, match="project="):
        project_name(wrong, {}, None, "/w")


def test_a_default_name_follows_from_the_id():
    """Two words and the first of the random characters, always the same."""
    name = default_run_name("20251201-000000-aaaqeaye")
    assert re.fullmatch(r"[a-z]+-[a-z]+-aaaq", name)
    assert name == default_run_name("20251201-000000-aaaqeaye")
    assert name != default_run_name("20251201-000001-aaaqeaye")


def test_resource_attributes_of_the_environment_are_read_as_the_specification_says():
    """Percent-encoding is undone; a text with a fault is left out as a whole, and that is said."""
    assert parse_resource_attributes("") == ({}, None)
    text = "team=vision, deployment.environment.name=a%2Cb ,k=v=w,"
    assert parse_resource_attributes(text) == (
        {"team": "vision", "deployment.environment.name": "a,b", "k": "v=w"},
        None,
    )
    for damaged in ("a=1,b", "=x", "a=%FF"):
        attributes, notice = parse_resource_attributes(damaged)
        assert attributes == {}
        assert notice.startswith("OTEL_RESOURCE_ATTRIBUTES is left out: ")


def test_the_resource_holds_identity_place_scheduler_and_code():
    """The user's attributes add to it and never replace what ties records to their run."""
    environ = {
        "OTEL_RESOURCE_ATTRIBUTES": "run_id=x,dl.rank=9,service.name=x,deployment.environment.name=lab,host.name=node7",
        "SLURM_JOB_ID": "77",
        "SLURM_ARRAY_TASK_ID": "3",
        "KUBERNETES_SERVICE_HOST": "10.0.0.1",
        "HOSTNAME": "digits-master-0",
        "POD_NAMESPACE": "ml",
    }
    found = resource_attributes(
        project="digits",
        run_id="20251201-000000-aaaqeaye",
        run_name="calm-otter-aaaq",
        attempt=2,
        ranks=Ranks(rank=3, local_rank=1, world_size=4),
        environ=environ,
        pid=123,
        code={"commit": "c0ffee", "branch": "main", "remote": "https://git.example/a/b.git", "dirty": True},
        parallel={"tensor": (1, 2)},
    )
    expected = {
        "service.name": "digits",
        "service.instance.id": service_instance_id("20251201-000000-aaaqeaye", 3),
        "run_id": "20251201-000000-aaaqeaye",
        "run_name": "calm-otter-aaaq",
        "run_attempt": 2,
        "dl.rank": 3,
        "dl.local_rank": 1,
        "dl.world_size": 4,
        "dl.tensor_parallel.rank": 1,
        "dl.tensor_parallel.size": 2,
        "host.name": "node7",
        "process.pid": 123,
        "slurm.job.id": "77",
        "slurm.array.task.id": "3",
        "k8s.pod.name": "digits-master-0",
        "k8s.namespace.name": "ml",
        "vcs.ref.head.revision": "c0ffee",
        "vcs.ref.head.name": "main",
        "vcs.repository.url.full": "https://git.example/a/b.git",
        "deployment.environment.name": "lab",
        "telemetry.sdk.name": "opentelemetry",
        "telemetry.sdk.language": "python",
        "telemetry.distro.name": "otel-train",
    }
    assert expected.items() <= found.items()
    assert found.keys() - expected.keys() == {"telemetry.sdk.version", "telemetry.distro.version"}


def test_an_unknown_local_rank_is_left_out_of_the_resource():
    """Absent, not zero."""
    ranks = Ranks(rank=3, local_rank=None, world_size=4)
    found = resource_attributes(
        project="p", run_id="r", run_name="n", attempt=1, ranks=ranks, environ={}, host_name="h"
    )
    assert "dl.local_rank" not in found
    assert found["host.name"] == "h"
