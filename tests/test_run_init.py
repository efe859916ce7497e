"""`otel_train.init()`: its arguments, what a whole run records, and what it leaves of the process as it was."""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import otel_train
from otel_train.config import SETTINGS
from otel_train.errors import ConfigError, RunIdInUseError, RunNotFoundError
from otel_train.runlog.folder import OWN_RUN_ID
from otel_train.testing import recorded
from tests.scripts import Scripts, own_threads, run_paths

Start = Callable[..., Any]

EXAMPLE = """
import otel_train
import torch

torch.manual_seed(0)
x, y = torch.randn(64, 8), torch.randint(0, 3, (64,))
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
criterion = torch.nn.CrossEntropyLoss()
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=16)
train_set, y_train = torch.utils.data.TensorDataset(x, y), y
open("digits.csv", "w").write("1,2,3\\n")

with otel_train.init(project="digits", config={"lr": 1e-3, "epochs": 2}) as run:
    with run.stage("preprocess", inputs=["digits.csv"]) as stage:
        open("features.bin", "wb").write(b"features")
        stage.output("features.bin")
        run.log_dataset("train", train_set, labels=y_train, dropped=3, sampling="shuffled")
    for epoch in run.epochs(2):
        for x, y in run.steps(loader):
            with run.phase("model_forward"):
                loss = criterion(model(x), y)
            with run.phase("model_backward"):
                optimizer.zero_grad(); loss.backward(); optimizer.step()
            acc = 0.5
            run.log({"loss": loss, "accuracy": acc})
        vl, f1 = 1.0 / (epoch + 1), torch.tensor(0.25)
        run.log({"loss": vl, "f1": f1}, split="val")
        run.save_checkpoint("model.pt", model.state_dict(), best=True)
assert not torch.cuda.is_initialized()
print(run.id)
"""


@pytest.mark.slow
def test_the_example_records_everything_it_promises(scripts: Scripts) -> None:
    """The documented program, with a real model, leaves every record with its values, steps and checksums."""
    ended = scripts(EXAMPLE)
    assert ended.code == 0, ended.errors
    run_id = ended.output.strip()
    assert OWN_RUN_ID.fullmatch(run_id)
    record = recorded(ended.path)
    assert ended.path.name == run_id
    assert record.damage == []

    losses = record.of("loss", "train")
    assert [point.step for point in losses] == list(range(8))
    assert [point.epoch for point in losses] == [0] * 4 + [1] * 4
    assert all(0 < point.value < 3 for point in losses if point.value is not None)
    assert record.values("accuracy", "train") == [0.5] * 8
    assert [(point.value, point.step, point.epoch) for point in record.of("loss", "val")] == [(1.0, 3, 0), (0.5, 7, 1)]
    assert record.values("f1", "val") == [0.25, 0.25]
    assert [point.step for point in record.named("dl.step.time")] == list(range(8))
    assert len(record.named("dl.data.wait.time")) == 8
    phases = [point.attributes["phase"] for point in record.named("dl.phase.time")]
    assert sorted(phases) == ["model_backward"] * 8 + ["model_forward"] * 8

    order = [log.event for log in record.logs if log.event != "run.environment"]
    expected = ["run.start", "run.config", "stage.start", "dataset.described", "stage.end"]
    assert sorted(order) == sorted(
        [*expected, "model.best", "model.best", "checkpoint.saved", "checkpoint.saved", "run.end"]
    )
    assert order[0] == "run.start"
    assert order[-1] == "run.end"
    assert record.event("run.config").body == {"lr": 0.001, "epochs": 2}
    data = record.info["datasets"][0]
    assert (data["name"], data["size"], data["dropped"]["total"], data["sampling"]) == ("train", 64, 3, "shuffled")
    assert len(data["classes"]) == 3
    assert data["stage"] == "preprocess"
    stage = record.info["stages"][0]
    assert stage["inputs"][0]["checksum"]["value"] == hashlib.sha256(b"1,2,3\n").hexdigest()
    assert stage["outputs"][0]["checksum"]["value"] == hashlib.sha256(b"features").hexdigest()

    context = json.loads((scripts.folder / "model.pt.context.json").read_text())
    sha256 = hashlib.sha256((scripts.folder / "model.pt").read_bytes()).hexdigest()
    assert context["sha256"] == sha256
    assert record.info["checkpoints"][-1]["sha256"] == sha256
    assert [entry["step"] for entry in record.info["checkpoints"]] == [3, 7]
    assert record.event("run.environment").body["torch"]["version"]
    assert record.info["status"] == "finished"
    assert record.info["summary"]["val/loss"]["last"] == 0.5
    assert record.info["summary"]["val/loss"]["min"] == 0.5
    for name, count in (("run", 1), ("preprocess", 1), ("epoch", 2), ("checkpoint", 2)):
        assert len(record.spans_of(name)) == count, name
    assert {resource["run_id"] for resource in record.resources} == {run_id}
    assert {resource["service.name"] for resource in record.resources} == {"digits"}


def test_init_works_without_any_argument(root: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Project, root, name and id are found by themselves; the root is ./runs."""
    monkeypatch.delenv("OTEL_TRAIN_DIR")
    monkeypatch.chdir(tmp_path)
    with otel_train.init() as run:
        run.log({"loss": 1.5})
        assert OWN_RUN_ID.fullmatch(run.id)
        assert run.path.resolve() == (tmp_path / "runs" / run.id).resolve()
        assert (run.attempt, run.rank, run.name != "", run.project != "") == (1, 0, True, True)
        assert repr(run) == f"<Run {run.id}>"
    assert repr(run) == f"<Run {run.id} (ended)>"
    record = recorded(run)
    assert record.values("loss") == [1.5]
    assert record.info["status"] == "finished"
    assert record.info["project"] == run.project


def test_every_id_is_new(start: Start, root: Path) -> None:
    """Two runs of one program never share an id, whatever the seed."""
    ids = []
    for _ in range(2):
        run = start(seed=1)
        run.finish()
        ids.append(run.id)
    assert len(set(ids)) == 2
    assert [path.name for path in run_paths(root)] == sorted(ids)


def test_what_the_user_says_of_the_run_is_kept(start: Start) -> None:
    """Name, tags, notes and group stand in run.json and the name in the resource."""
    run = start(project="digits", name="first", tags=["a", "b"], notes="why", group="folds")
    run.log({"loss": 1.0})
    record = recorded(run)
    assert record.info["run_name"] == run.name == "first"
    assert record.info["tags"] == ["a", "b"]
    assert (record.info["notes"], record.info["group"], record.info["project"]) == ("why", "folds", "digits")
    assert record.resources[0]["run_name"] == "first"


@dataclasses.dataclass
class Hyper:
    lr: float = 0.5
    layers: tuple[int, ...] = (8, 4)


@pytest.mark.parametrize("kind", ["mapping", "namespace", "dataclass", "omegaconf"])
def test_a_configuration_may_be_of_four_kinds(start: Start, kind: str) -> None:
    """Mapping, Namespace, dataclass and OmegaConf give the same record."""
    config: Any = {"lr": 0.5, "layers": [8, 4]}
    if kind == "namespace":
        config = argparse.Namespace(**config)
    elif kind == "dataclass":
        config = Hyper()
    elif kind == "omegaconf":
        config = pytest.importorskip("omegaconf").OmegaConf.create(config)
    run = start(config=config)
    assert run.config["lr"] == run.config.lr == 0.5
    run.finish()
    record = recorded(run)
    assert record.info["attempts"][0]["config"] == {"lr": 0.5, "layers": [8, 4]}
    assert record.event("run.config").body == {"lr": 0.5, "layers": [8, 4]}


def test_an_update_of_the_configuration_is_recorded_with_what_changed(start: Start) -> None:
    """run.json has the newest values; an event holds them with the keys that differ."""
    run = start(config={"lr": 0.5, "layers": 2})
    run.config.update(lr=0.25, batch=16)
    run.config.update({"lr": 0.25})
    run.finish()
    record = recorded(run)
    assert record.info["attempts"][0]["config"] == {"lr": 0.25, "layers": 2, "batch": 16}
    first, second = record.events("run.config")
    assert first.body == {"lr": 0.5, "layers": 2}
    assert second.body == {"lr": 0.25, "layers": 2, "batch": 16}
    assert sorted(second.attributes["changed"]) == ["batch", "lr"]


def test_a_large_configuration_does_not_stop_a_run(start: Start) -> None:
    """300 keys in four levels and a value of 1,200 characters: all keys are there, the long value kept or marked."""
    config: dict[str, Any] = {f"key{n}": {"a": {"b": {"c": n}}} for n in range(299)}
    config["labels"] = "x" * 1200
    run = start(config=config)
    run.log({"loss": 1.0})
    run.finish()
    record = recorded(run)
    kept = record.info["attempts"][0]["config"]
    assert len(kept) == 300
    assert kept["key298"] == {"a": {"b": {"c": 298}}}
    assert kept["labels"].startswith("x" * 500)
    assert len(record.event("run.config").body) == 300
    assert record.values("loss") == [1.0]


def test_a_seed_sets_and_records_all_random_states(start: Start) -> None:
    """The same seed gives the same numbers of Python, NumPy and torch, and stands in run.json."""
    numpy, torch = pytest.importorskip("numpy"), pytest.importorskip("torch")
    drawn = []
    for _ in range(2):
        run = start(seed=7)
        drawn.append((random.random(), float(numpy.random.rand()), float(torch.rand(()))))
        run.finish()
    assert drawn[0] == drawn[1]
    seed = recorded(run).info["attempts"][0]["seed"]
    assert (seed["seed"], seed["set"]) == (7, ["python", "numpy", "torch"])


def test_without_a_seed_the_random_states_stay_as_they_were(start: Start) -> None:
    """A run, its ids and its spans draw nothing from the user's generators."""
    numpy, torch = pytest.importorskip("numpy"), pytest.importorskip("torch")

    def draw() -> tuple[float, float, float]:
        return random.random(), float(numpy.random.rand()), float(torch.rand(()))

    random.seed(5), numpy.random.seed(5), torch.manual_seed(5)
    expected = [draw() for _ in range(2)]
    random.seed(5), numpy.random.seed(5), torch.manual_seed(5)
    run = start()
    found = [draw()]
    with run.stage("a"):
        run.log({"loss": 1.0})
    run.finish()
    found.append(draw())
    assert found == expected


def test_a_wrong_argument_starts_no_run(root: Path) -> None:
    """The error comes before anything is made; the next init works."""
    for arguments, field in (
        ({"endpoint": "collector:4318"}, "endpoint"),
        ({"sample_interval_s": -5}, "sample_interval_s"),
        ({"config": 5}, "config"),
        ({"seed": -1}, "seed"),
        ({"seed": 1.5}, "seed"),
        ({"run_id": "a/b"}, "run_id"),
        ({"run_id": 5}, "run_id"),
        ({"resume": 5}, "resume"),
        ({"run_id": "a", "resume": "b"}, "run_id"),
        ({"redact": ["("]}, "redact"),
    ):
        with pytest.raises(ConfigError) as caught:
            otel_train.init(**arguments)
        assert caught.value.field == field, arguments
        assert caught.value.fix
    assert not root.exists()
    assert otel_train.current_run() is None
    assert own_threads() == []


def test_an_unknown_argument_is_named_with_those_there_are(root: Path) -> None:
    """A misspelt setting is no silent default."""
    with pytest.raises(ConfigError, match=r"epocs=3: init\(\) has no such argument; settings are .*sample_interval_s"):
        otel_train.init(epocs=3)


def test_a_root_that_cannot_be_written_is_named_with_the_fix(tmp_path: Path) -> None:
    """A file in the root's place: the error names argument, value, reason and what to do."""
    (tmp_path / "file").write_text("x")
    place = tmp_path / "file" / "runs"
    with pytest.raises(ConfigError, match="cannot be written") as caught:
        otel_train.init(dir=place)
    assert (caught.value.field, caught.value.value) == ("dir", str(place))
    assert "OTEL_TRAIN_DIR" in caught.value.fix
    assert otel_train.current_run() is None
    assert own_threads(1.0) == []


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs a folder that even root cannot write")
def test_a_folder_without_permission_is_named(tmp_path: Path) -> None:
    """The kernel's own folder takes no runs."""
    with pytest.raises(ConfigError, match=r"dir='/proc/runs': cannot be written"):
        otel_train.init(dir="/proc/runs")


def test_the_id_of_an_existing_run_is_refused_with_the_reason(start: Start, root: Path) -> None:
    """A changed experiment does not go under an old id unless resume= says so; the old run stays as it was."""
    run = start(run_id="mine")
    run.log({"loss": 1.0})
    run.finish()
    before = sorted(path.name for path in run.path.rglob("*"))
    with pytest.raises(RunIdInUseError, match=r"run id 'mine' is in use in .*resume='mine'"):
        otel_train.init(run_id="mine")
    assert sorted(path.name for path in run.path.rglob("*")) == before
    assert recorded(run).info["status"] == "finished"


def test_resuming_what_is_not_there_names_the_newest_runs(start: Start, root: Path) -> None:
    """The message helps with a mistyped id."""
    run = start()
    run.finish()
    with pytest.raises(RunNotFoundError, match=f"resume='nothing': no such run in .*the newest are {run.id}"):
        otel_train.init(resume="nothing")


def test_a_second_init_in_a_thread_ends_the_first_with_a_notice(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    """Cells of a notebook run again: the former run ends as finished, and the log says so."""
    first = start()
    first.log({"loss": 1.0})
    second = start()
    assert first.finished
    assert not second.finished
    assert f"init() ends run {first.id}, which was open in this thread" in caplog.messages
    assert recorded(first).event("otel_train.notice").body == "another init() in the same thread ends this run"
    second.log({"loss": 2.0})
    assert otel_train.current_run() is second
    second.finish()
    assert recorded(first).values("loss") == [1.0]
    assert recorded(second).values("loss") == [2.0]
    assert recorded(first).info["status"] == "finished"


def test_the_public_names_are_exactly_these() -> None:
    """Nothing slips into the public names by an import."""
    expected = ["init", "Run", "current_run", "log", "stage", "phase", "augmentation", "show"]
    expected += ["OtelTrainError", "ConfigError"]
    expected += ["RunIdInUseError", "RunNotFoundError", "RunFolderError", "CheckpointError", "__version__"]
    assert otel_train.__all__ == expected
    for name in expected:
        assert getattr(otel_train, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        otel_train.nothing  # noqa: B018 - the look-up is what is tested
    assert otel_train.testing.__all__ == ["ManualClock", "Point", "Recorded", "RecordedLog", "RecordedSpan", "recorded"]


def test_init_takes_every_setting_of_the_table(start: Start) -> None:
    """The table is the list of arguments: each default can be given by its name."""
    arguments = {setting.name: setting.default for setting in SETTINGS if setting.name not in ("dir", "sample_machine")}
    run = start(**arguments)
    assert run.settings.values["flood_per_s"] == 10


@pytest.mark.slow
def test_importing_brings_neither_torch_nor_numpy_nor_plotly(tmp_path: Path) -> None:
    """Recording costs its users no heavy import, and a run needs none either."""
    code = (
        "import sys, otel_train\n"
        "heavy = {'torch', 'numpy', 'plotly', 'pandas', 'loguru', 'structlog', 'omegaconf', 'tqdm'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
        "run = otel_train.init(dir='runs'); run.log({'loss': 1.0})\n"
        "run.session.surroundings.environment(10.0); run.finish()\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert ended.stdout == "[]\n[]\n"


@pytest.mark.slow
def test_a_run_without_an_endpoint_loads_nothing_of_the_network(tmp_path: Path) -> None:
    """Neither `import otel_train` nor a run pays for sending that nobody asked for."""
    code = (
        "import sys, otel_train\n"
        "def network():\n"
        "    names = {'urllib3', 'http.client', 'ssl', 'requests', 'grpc', 'prometheus_client'}\n"
        "    return sorted(name for name in sys.modules if name in names or name.startswith('otel_train.export'))\n"
        "run = otel_train.init(dir='runs'); run.log({'loss': 1.0}); print(network())\n"
        "run.session.surroundings.environment(10.0); run.finish(); print(network())\n"
    )
    environ = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    ended = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environ, capture_output=True, text=True)
    assert ended.stdout == "[]\n[]\n", ended.stderr


@pytest.mark.slow
def test_what_watches_a_run_is_loaded_by_the_writer(tmp_path: Path) -> None:
    """`init()` returns without having waited for it."""
    code = (
        "import sys, threading, time, otel_train\n"
        "seen = []\n"
        "class Look:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'otel_train.watch.health': seen.append(threading.current_thread().name)\n"
        "sys.meta_path.insert(0, Look())\n"
        "run = otel_train.init(dir='runs')\n"
        "until_s = time.monotonic() + 30\n"
        "while not seen and time.monotonic() < until_s: time.sleep(0.02)\n"
        "run.finish(); print(seen)\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert ended.stdout == "['otel-train-writer']\n", ended.stderr


def test_settings_from_the_environment_reach_the_run(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """OTEL_SERVICE_NAME names the project, and own settings begin with OTEL_TRAIN_."""
    monkeypatch.setenv("OTEL_SERVICE_NAME", "from-environment")
    monkeypatch.setenv("OTEL_TRAIN_TAGS", "a,b")
    run = start()
    assert run.project == "from-environment"
    assert run.settings["tags"] == ("a", "b")
    assert recorded(run).resources[0]["service.name"] == "from-environment"


def test_an_id_that_was_given_stays_free_where_the_disk_was_full(
    root: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The half-opened run does not block the next try."""
    from otel_train.runlog.folder import RunFolder

    def write(self: RunFolder, document: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "_write", write)
        with pytest.raises(ConfigError, match=r"dir=.*cannot be written \(No space left on device\)"):
            otel_train.init(run_id="mine")
    run = start(run_id="mine")
    run.log({"loss": 1.0})
    assert recorded(run).values("loss") == [1.0]
