import json
import platform
import sys
import types
from importlib import metadata

import numpy
import pytest
import torch

from otel_train.lineage import packages
from otel_train.lineage.container import describe_container
from otel_train.lineage.environment import describe_environment, notebook_name, script_path, without_home
from otel_train.lineage.packages import installed_packages
from otel_train.lineage.redact import Redactor
from otel_train.lineage.torch_facts import describe_torch
from otel_train.lineage.variables import harmless_variables

REDACTOR = Redactor()


def test_the_record_holds_interpreter_packages_torch_command_and_code(tmp_path, monkeypatch):
    """Each with its right value, as JSON, without a secret or a user's name; CUDA stays untouched."""
    monkeypatch.setenv("HOME", "/home/FAKEuser")
    argv = ["/home/FAKEuser/t.py", "--api-key", "FAKEKEY1", "--use_cls_token", "True", "--num_memory_tokens", "16"]
    environ = {"HF_TOKEN": "FAKE3", "OMP_NUM_THREADS": "2", "GIT_CEILING_DIRECTORIES": str(tmp_path.parent)}
    found = describe_environment(
        REDACTOR, machine={"cpu": {"model": "X"}}, folder=str(tmp_path), environ=environ, argv=argv, root=str(tmp_path)
    )
    assert found["python"]["version"] == platform.python_version()
    assert found["python"]["implementation"] == "CPython"
    assert found["platform"]["system"] == platform.system()
    assert found["host"] == platform.node()
    assert found["machine"] == {"cpu": {"model": "X"}}
    assert found["torch"]["version"] == torch.__version__
    assert found["packages"]["numpy"] == numpy.__version__
    assert found["packages"]["opentelemetry-sdk"] == metadata.version("opentelemetry-sdk")
    assert found["command"]["argv"] == [
        *("~/t.py", "--api-key", "[redacted]", "--use_cls_token", "True", "--num_memory_tokens", "16")
    ]
    assert found["variables"] == {"OMP_NUM_THREADS": "2"}
    assert found["code"]["reasons"]["code"]
    assert "container" not in found
    assert "FAKE" not in json.dumps(found)
    assert not torch.cuda.is_initialized()


def test_a_part_that_fails_leaves_its_reason_and_the_others(monkeypatch):
    """A damaged installation costs the list of packages, nothing else."""

    def fail():
        raise OSError("password=FAKE")

    monkeypatch.setattr(packages, "installed_packages", fail)
    found = describe_environment(REDACTOR, code=False)
    assert found["reasons"] == {"packages": "OSError: password=[redacted]"}
    assert "packages" not in found
    assert "code" not in found
    assert found["python"]


def test_torch_is_described_only_where_it_is_loaded(monkeypatch):
    """What a version of torch does not have is left out; nothing is imported."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        found = describe_torch()
    finally:
        torch.use_deterministic_algorithms(False)
    assert (found["deterministic_algorithms"], found["deterministic_warn_only"]) == (True, True)
    assert (found["cudnn_benchmark"], found["default_dtype"]) == (False, "torch.float32")
    assert found["threads"] == torch.get_num_threads()
    assert describe_torch(types.SimpleNamespace(__version__="9")) == {"version": "9"}
    monkeypatch.delitem(sys.modules, "torch")
    assert describe_torch() == {}
    assert "torch" not in sys.modules


class Distribution:
    def __init__(self, name, version, url=None):
        self.metadata = {"Name": name, "Version": version}
        self.url = url

    def read_text(self, name):
        return json.dumps(self.url) if self.url is not None else None


class Damaged:
    @property
    def metadata(self):
        raise ValueError("damaged")


def test_packages_are_named_alike_and_the_first_on_the_path_counts():
    """A commit says more than the version that many commits have; a damaged folder hides no other."""
    distributions = [
        Distribution("Scikit_Learn", "1.7"),
        Damaged(),
        Distribution("scikit-learn", "1.0"),
        Distribution(
            "mine", "0.1", {"url": "https://git.example/m", "vcs_info": {"vcs": "git", "commit_id": "c0ffee"}}
        ),
        Distribution("local", "0.2", {"url": "file:///src", "dir_info": {"editable": True}}),
        Distribution("odd", "1", ["no mapping"]),
        Distribution(None, "1"),
    ]
    assert installed_packages(distributions) == (
        {"local": "0.2", "mine": "0.1", "odd": "1", "scikit-learn": "1.7"},
        {"local": "editable file:///src", "mine": "https://git.example/m@c0ffee"},
    )


def test_only_listed_variables_are_kept_and_they_are_redacted_too():
    """What nobody knows to be harmless stays out."""
    environ = {
        "CUDA_VISIBLE_DEVICES": "0,1",
        "NCCL_DEBUG": "INFO",
        "SLURM_JOB_ID": "77",
        "SLURM_JOB_USER": "FAKEuser",
        "HF_TOKEN": "FAKE",
        "OTEL_TRAIN_API_TOKEN": "FAKE",
        "OTEL_RESOURCE_ATTRIBUTES": "team=a,api_key=FAKE",
        "OTEL_EXPORTER_OTLP_ENDPOINT": "https://u:FAKE@h:4318",
        "PYTHONPATH": "/home/FAKEuser/src:/opt/x",
        "MY_VARIABLE": "1",
    }
    assert harmless_variables(environ, REDACTOR, "/home/FAKEuser") == {
        "CUDA_VISIBLE_DEVICES": "0,1",
        "NCCL_DEBUG": "INFO",
        "OTEL_EXPORTER_OTLP_ENDPOINT": "https://[redacted]@h:4318",
        "OTEL_RESOURCE_ATTRIBUTES": "team=a,api_key=[redacted]",
        "OTEL_TRAIN_API_TOKEN": "[redacted]",
        "PYTHONPATH": "~/src:/opt/x",
        "SLURM_JOB_ID": "77",
    }


ID = "0123456789abcdef" * 4


def tree(root, **files):
    for name, text in files.items():
        path = root / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return str(root)


def test_containers_are_told_by_the_files_that_their_engines_leave(tmp_path):
    """Docker of either cgroup version, podman with its image, Kubernetes with its namespace, none outside."""
    assert describe_container({}, str(tmp_path)) == {}
    docker = tree(tmp_path / "a", _dot_dockerenv="", proc__self__cgroup=f"12:cpu:/docker/{ID}\n")
    assert describe_container({}, docker) == {"kind": "docker", "id": ID}
    mounts = f"1 2 0:1 /var/lib/docker/containers/{ID}/hostname /etc/hostname rw\n"
    second = tree(tmp_path / "b", _dot_dockerenv="", proc__self__cgroup="0::/\n", proc__self__mountinfo=mounts)
    assert describe_container({"CONTAINER_IMAGE": "img:1"}, second) == {"kind": "docker", "id": ID, "image": "img:1"}
    podman = tree(tmp_path / "c", run___dot_containerenv='engine="podman-4"\nname="x"\nid="abc"\nimage="reg/img:2"\n')
    assert describe_container({}, podman) == {"kind": "podman", "id": "abc", "image": "reg/img:2"}
    pod = tree(tmp_path / "d", proc__self__cgroup=f"0::/kubepods/burstable/podx/{ID}\n")
    secrets = "var__run__secrets__kubernetes_dot_io__serviceaccount__namespace"
    tree(tmp_path / "d", **{secrets: "ml\n"})
    assert describe_container({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, pod) == {
        "kind": "kubernetes",
        "id": ID,
        "namespace": "ml",
    }
    apptainer = {"APPTAINER_CONTAINER": "/images/t.sif"}
    assert describe_container(apptainer, str(tmp_path)) == {"kind": "apptainer", "image": "/images/t.sif"}


def test_scripts_and_notebooks_are_told_apart(tmp_path, monkeypatch):
    """A script has an absolute path; a notebook its name where the front end tells it."""
    script = tmp_path / "train.py"
    script.write_text("")
    monkeypatch.chdir(tmp_path)
    assert script_path(["train.py", "--lr", "1"]) == str(script)
    assert script_path(["-c"]) is None
    assert script_path([]) is None
    assert script_path(["/x/ipykernel_launcher.py"]) is None
    assert notebook_name({"JPY_SESSION_NAME": "/home/a/digits.ipynb"}) == "digits.ipynb"
    assert notebook_name({"COLAB_RELEASE_TAG": "1"}) == "Colab notebook"
    # Also where something has imported the kernel, as another test may have.
    monkeypatch.setitem(sys.modules, "ipykernel", types.ModuleType("ipykernel"))
    main = types.ModuleType("__main__")
    main.__file__ = str(script)
    monkeypatch.setitem(sys.modules, "__main__", main)
    assert notebook_name({}) is None
    del main.__file__
    assert notebook_name({}) == "notebook"
    monkeypatch.delitem(sys.modules, "ipykernel")
    assert notebook_name({}) is None


@pytest.mark.parametrize(
    ("path", "shown"), [("/home/u/a", "~/a"), ("/home/u", "~"), ("/home/user2/a", "/home/user2/a"), ("a", "a")]
)
def test_the_home_folder_is_a_tilde(path, shown):
    """It holds the user's name."""
    assert without_home(path, "/home/u") == shown
    assert without_home(path, "/") == path
