"""Runs without a folder: no file is written anywhere, everything is sent, and the end says what was not."""

from __future__ import annotations

import json
import logging
import math
import os
import re
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from protobuf_receiver import Answer, GrpcReceiver, HttpReceiver, any_value, attributes_of

import otel_train
from otel_train.errors import ConfigError, RunFolderError
from otel_train.lineage.ranks import Ranks, detect_ranks
from otel_train.run.direct import DirectOpening, derived_run_id
from otel_train.runlog.reader import RunReader
from otel_train.testing import recorded
from tests.scripts import Scripts

NOTHING = {"git": False, "sample_machine": False, "dir": False}


@pytest.fixture
def receiver() -> Iterator[HttpReceiver]:
    with HttpReceiver() as made:
        yield made


def end_line(text: str) -> str:
    (line,) = [line for line in text.splitlines() if line.startswith("otel-train: run")]
    return line


# One process ---------------------------------------------------------------------------------------------------------


def test_a_run_without_a_folder_sends_every_signal(
    receiver: HttpReceiver, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Points with their steps and NaN, log records, events, spans, all by one run id; and no file at all."""
    monkeypatch.chdir(tmp_path)
    with otel_train.init(
        endpoint=receiver.url, project="digits", name="small", tags=["a", "b"], config={"lr": 0.1}, seed=3, **NOTHING
    ) as run:
        assert run.path is None
        for step in run.steps(range(30)):
            run.log({"loss": math.nan if step == 7 else 1 / (step + 1)})
            time.sleep(0.002)  # a millisecond for each
        logging.getLogger("user").warning("careful")
        with run.stage("prepare"):
            pass
        run.log_dataset("digits", [1, 2, 3], dropped=1)
    losses = receiver.points("train.loss")
    assert [str(point.value) for point in losses] == [str(math.nan if s == 7 else 1 / (s + 1)) for s in range(30)]
    assert {point.resource["run_id"] for point in losses} == {run.id}
    assert {point.resource["service.name"] for point in losses} == {"digits"}
    # A store keeps milliseconds, and so are points and their steps joined there.
    step_of = {point.time_ns // 1_000_000: point.value for point in receiver.points("dl.step")}
    assert [step_of[point.time_ns // 1_000_000] for point in losses] == list(range(30))
    assert len(receiver.points("dl.step.time")) == 30
    names = {record.event_name for record, _ in receiver.logs()}
    assert names >= {"run.start", "run.config", "run.environment", "dataset.described", "stage.end", "run.end"}
    assert {resource["run_id"] for _, resource in receiver.logs()} == {run.id}
    (start,) = receiver.events("run.start")
    about = attributes_of(start)
    assert {key: about[key] for key in ("project", "run_name", "tags", "seed", "world_size")} == {
        "project": "digits",
        "run_name": "small",
        "tags": ["a", "b"],
        "seed": 3,
        "world_size": 1,
    }
    (config,) = receiver.events("run.config")
    assert any_value(config.body) == {"lr": 0.1}
    (dataset,) = receiver.events("dataset.described")
    assert (attributes_of(dataset)["size"], attributes_of(dataset)["dropped"]["total"]) == (3, 1)
    assert "careful" in receiver.bodies()
    spans = {span.name: span for span, _ in receiver.spans()}
    assert spans["prepare"].trace_id == next(r.trace_id for r in receiver.events("stage.end"))
    states = {point.attributes["state"]: point.value for point in receiver.points("dl.run.state")}
    assert (states["running"], states["finished"]) == (0, 1)
    line = end_line(capsys.readouterr().err)
    assert re.search(r"finished: 90 points, \d+ log records, \d+ spans; nothing dropped; sent to http://127", line), (
        line
    )
    assert line.endswith("; without a folder")
    assert list(tmp_path.iterdir()) == []


def test_a_run_without_a_folder_over_grpc(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """OTEL_EXPORTER_OTLP_PROTOCOL=grpc."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    with GrpcReceiver() as receiver:
        with otel_train.init(endpoint=receiver.url, **NOTHING) as run:
            for step in range(10):
                run.log({"loss": float(step)}, step=step)
                time.sleep(0.002)  # a millisecond for each
        assert receiver.values("train.loss") == [float(step) for step in range(10)]
        assert [any_value(r.body) for r in receiver.events("run.end")] == ["run finished"]
    assert "nothing dropped" in end_line(capsys.readouterr().err)


@pytest.mark.parametrize("word", ["false", "None", "FALSE"])
def test_the_variable_can_say_it(word: str, receiver: HttpReceiver, monkeypatch: pytest.MonkeyPatch) -> None:
    """OTEL_TRAIN_DIR=false is no folder of that name."""
    monkeypatch.setenv("OTEL_TRAIN_DIR", word)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
    with otel_train.init(git=False, sample_machine=False) as run:
        assert run.path is None
        run.log({"loss": 1.0})
    assert receiver.values("train.loss") == [1.0]
    assert not Path(word).exists()


def test_without_an_endpoint_init_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing would be kept: argument, value and fix are named, and nothing is left open."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="nothing would be kept") as caught:
        otel_train.init(**NOTHING)
    assert (caught.value.field, caught.value.value) == ("dir", False)
    assert otel_train.current_run() is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("resume", ["auto", "20260101-000000-abcdefgh"])
def test_nothing_can_be_resumed(resume: str) -> None:
    """There is no folder that an earlier attempt could have left."""
    with pytest.raises(ConfigError, match="name a folder"):
        otel_train.init(endpoint="http://127.0.0.1:9", resume=resume, **NOTHING)


def test_without_a_sender_there_is_nothing_to_start() -> None:
    """dir=False and sender="none" together would keep nothing."""
    with pytest.raises(ConfigError) as caught:
        otel_train.init(endpoint="http://127.0.0.1:9", sender="none", **NOTHING)
    assert (caught.value.field, caught.value.value) == ("sender", "none")


def test_disabled_asks_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """With OTEL_SDK_DISABLED no endpoint is needed."""
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    with otel_train.init(**NOTHING) as run:
        run.log({"loss": 1.0})
        run.record_registry()
    assert run.id == ""


def test_a_checkpoint_goes_where_the_user_says_with_its_context(receiver: HttpReceiver, tmp_path: Path) -> None:
    """The model and what is known of it lie side by side; the facts are an event too."""
    with otel_train.init(endpoint=receiver.url, config={"lr": 0.5}, **NOTHING) as run:
        run.log({"loss": 0.25}, step=4)
        path = run.save_checkpoint(tmp_path / "out" / "model.bin", b"weights", best=True)
        run.log_base_model(path)
    assert path.read_bytes() == b"weights"
    assert sorted(found.name for found in (tmp_path / "out").iterdir()) == ["model.bin", "model.bin.context.json"]
    context = json.loads((tmp_path / "out" / "model.bin.context.json").read_text())
    assert (context["run"], context["config"]) == (run.id, {"lr": 0.5})
    (saved,) = receiver.events("checkpoint.saved")
    assert attributes_of(saved)["size"] == 7
    assert len(receiver.events("checkpoint.loaded")) == 1


def test_flush_waits_for_the_server(receiver: HttpReceiver) -> None:
    """True once all is there; False while the server does not take it, and training goes on."""
    with otel_train.init(endpoint=receiver.url, **NOTHING) as run:
        run.log({"loss": 1.0})
        assert run.flush(10.0)
        assert receiver.values("train.loss") == [1.0]
        receiver.answer = lambda signal, request: Answer(503)
        run.log({"loss": 2.0})
        assert not run.flush(0.5)
        receiver.answer = lambda signal, request: Answer()
    assert receiver.values("train.loss") == [1.0, 2.0]


def test_what_was_recorded_cannot_be_read_back() -> None:
    """testing.recorded says why, by name."""
    with HttpReceiver() as receiver:
        run = otel_train.init(endpoint=receiver.url, **NOTHING)
        with pytest.raises(RunFolderError, match="dir=False"):
            recorded(run)
        run.finish()


@pytest.mark.alone
def test_a_black_hole_keeps_finish_within_five_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    """The end comes in time, and says how many of each were not sent."""
    with socket.socket() as hole:
        hole.bind(("127.0.0.1", 0))
        hole.listen(8)
        environ = {"OTEL_EXPORTER_OTLP_TIMEOUT": "2500"}
        with pytest.MonkeyPatch.context() as patch:
            for name, value in environ.items():
                patch.setenv(name, value)
            run = otel_train.init(endpoint=f"http://127.0.0.1:{hole.getsockname()[1]}", **NOTHING)
            for step in range(20):
                run.log({"loss": 1.0}, step=step)
                time.sleep(0.002)  # a millisecond for each
            time.sleep(2.0)  # until the sending threads hang in the black hole
            began_s = time.monotonic()
            run.finish()
            took_s = time.monotonic() - began_s
    assert 3.0 < took_s < 5.3
    line = end_line(capsys.readouterr().err)
    assert "finished: 0 points, 0 log records, 0 spans; dropped: 20 points (not sent)" in line
    assert re.search(r"\d+ log records \(not sent\), \d+ spans? \(not sent\)", line)
    assert "did not take all of it; without a folder" in line


@pytest.mark.alone
def test_a_refused_connection_ends_no_later(capsys: pytest.CaptureFixture[str]) -> None:
    """Nobody listens: each try fails at once, and finish tries for as long as it has."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    run = otel_train.init(endpoint=f"http://127.0.0.1:{port}", finish_timeout_s=2.0, **NOTHING)
    run.log({"loss": 1.0})
    began_s = time.monotonic()
    run.finish()
    assert time.monotonic() - began_s < 2.6
    assert "dropped: 1 point (not sent)" in end_line(capsys.readouterr().err)


def test_the_senders_own_traffic_is_not_recorded(receiver: HttpReceiver) -> None:
    """With logging at DEBUG, urllib3 says a line for each request: recorded, each would cause the next."""
    logger = logging.getLogger()
    level = logger.level
    logger.setLevel(logging.DEBUG)
    try:
        with otel_train.init(endpoint=receiver.url, **NOTHING) as run:
            for _ in range(3):
                logging.getLogger("user").debug("mine")
                run.flush(5.0)
    finally:
        logger.setLevel(level)
    loggers = {attributes_of(record).get("log.logger") for record, _ in receiver.logs()}
    assert "user" in loggers
    assert not {name for name in loggers if name and name.startswith(("urllib3", "opentelemetry", "requests"))}


def test_the_heartbeat_says_what_became_of_the_items(receiver: HttpReceiver) -> None:
    """otel_train.export.* by signal and outcome, as the sender of a run with a folder has them."""
    with otel_train.init(endpoint=receiver.url, **NOTHING) as run:
        run.log({"loss": 1.0})
        run.flush(5.0)
    sent = {
        (point.attributes["signal"], point.attributes["outcome"]): point.value
        for point in receiver.points("otel_train.export.items")
    }
    assert sent[("logs", "sent")] >= 1
    assert sent[("metrics", "refused")] == 0
    assert receiver.points("otel_train.export.queue")


# Nothing on any disk ------------------------------------------------------------------------------------------------

WATCHED = """
import os, sys

WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_TRUNC
seen = []
def watch(event, arguments):
    if event == "open":
        path, mode, flags = arguments
        if isinstance(path, int) or str(path) in ("/dev/null", os.devnull):
            return
        if (flags or 0) & WRITES:
            seen.append(("open", str(path)))
    elif event in ("os.mkdir", "os.rename", "os.remove", "os.link", "os.symlink", "os.truncate", "os.rmdir"):
        seen.append((event, str(arguments[0])))
    elif event.startswith(("shutil.", "tempfile.", "sqlite3.")):
        seen.append((event, str(arguments[0])))
sys.addaudithook(watch)

import logging, time
import otel_train
run = otel_train.init(dir=False, project="digits", config={"lr": 0.1})
for step in run.steps(range(20)):
    run.log({"loss": 1 / (step + 1)})
    time.sleep(0.002)  # a millisecond for each
logging.getLogger("x").warning("hello")
with run.stage("prepare", inputs=["data.txt"], code=__file__):
    pass
run.log_dataset("digits", "data.txt")
time.sleep(1.0)  # a cycle of the sender, so that it is seen to write nothing
run.finish()
print("WRITTEN", seen)
"""


def test_no_file_is_written_anywhere(receiver: HttpReceiver, tmp_path: Path) -> None:
    """The whole process, watched by Python itself, opens no file for writing; its folders stay as they were.

    The working folder may not be written (also root's own writes are seen), git and the machine's readings are on.
    """
    work, home, temporary = (tmp_path / name for name in ("work", "home", "tmp"))
    for folder in (work, home, temporary):
        folder.mkdir()
    (work / "train.py").write_text(WATCHED)
    (work / "data.txt").write_text("1\n2\n")
    subprocess.run(["git", "init", "-q", "."], cwd=work, check=True)
    before = snapshot(tmp_path)
    os.chmod(work, 0o555)
    try:
        ended = subprocess.run(
            [os.sys.executable, "-B", "train.py"],  # type: ignore[attr-defined]
            cwd=work,
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(home),
                "TMPDIR": str(temporary),
                "PYTHONPATH": str(Path(__file__).parent.parent),
                "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url,
                "OTEL_TRAIN_SAMPLE_INTERVAL_S": "0.3",
            },
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    finally:
        os.chmod(work, 0o755)
    assert ended.returncode == 0, ended.stderr
    assert "WRITTEN []" in ended.stdout, ended.stdout + ended.stderr
    assert snapshot(tmp_path) == before
    assert receiver.values("train.loss") == [1 / (step + 1) for step in range(20)]
    assert receiver.points("system.memory.utilization")
    assert len(receiver.events("stage.end")) == len(receiver.events("dataset.described")) == 1
    (environment,) = receiver.events("run.environment")
    assert "code" in any_value(environment.body)
    assert "nothing dropped" in end_line(ended.stderr)


def snapshot(folder: Path) -> dict[str, tuple[int, int]]:
    """Every path below a folder with its size and time of change."""
    return {
        str(path): (path.lstat().st_size, path.lstat().st_mtime_ns)
        for path in sorted(folder.rglob("*"))
        if path.name != "work"
    }


@pytest.mark.slow
def test_the_page_about_it_runs(receiver: HttpReceiver, scripts: Scripts) -> None:
    """Every example of the documentation, with the receiver for its endpoint."""
    page = (Path(__file__).parent.parent / "docs" / "without-a-disk.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 3
    text = "\n".join(blocks)
    for shown, real in (("http://localhost:4318", receiver.url), ("=9464", "=0")):
        assert shown in text
        text = text.replace(shown, real)
    ended = scripts(text)
    assert ended.code == 0, ended.errors
    assert len(receiver.events("run.end")) == 1
    assert ended.errors.count("finished") == 3
    losses = [recorded(path).values("loss") for path in ended.paths]
    assert sorted(losses) == [[], [0.5]]
    counts = [
        point.value
        for path in ended.paths
        for point, _ in RunReader(path).points()
        if point.name == "loader_batches_total"
    ]
    assert counts[-1] == 1.0


# How a process ends --------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ending", "status"),
    [
        ("raise ValueError('diverged')", "failed"),
        ("sys.exit(3)", "failed"),
        ("os.kill(os.getpid(), signal.SIGTERM); time.sleep(9)", "killed"),
        ("pass", "finished"),
    ],
)
def test_the_end_arrives_however_the_process_ends(
    ending: str, status: str, receiver: HttpReceiver, scripts: Scripts
) -> None:
    """The last points and the state are sent while the interpreter or a signal ends the process."""
    text = f"""
    import os, signal, sys, time, otel_train
    run = otel_train.init(dir=False)
    run.log({{"loss": 0.5}})
    {ending}
    """
    ended = scripts(text, env={"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url})
    assert receiver.values("train.loss") == [0.5], ended.errors
    (end,) = receiver.events("run.end")
    assert attributes_of(end)["status"] == status
    assert f" {status}" in end_line(ended.errors)
    assert ended.seconds < 20
    assert not ended.root.exists()


@pytest.mark.slow
def test_a_forked_child_sends_nothing(receiver: HttpReceiver, scripts: Scripts) -> None:
    """What the parent holds is sent by the parent alone, once."""
    text = """
    import os, otel_train
    run = otel_train.init(dir=False, prometheus_port=0)
    for step in range(5):
        run.log({"loss": float(step)}, step=step)
    pids = []
    for _ in range(5):
        pid = os.fork()
        if not pid:
            run.log({"loss": 99.0})
            run.finish()
            os._exit(0)
        pids.append(pid)
    for pid in pids:
        os.waitpid(pid, 0)
    run.finish()
    """
    ended = scripts(text, env={"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url})
    assert ended.code == 0, ended.errors
    assert 99.0 not in receiver.values("train.loss")
    assert receiver.values("train.loss")[-1] == 4.0
    assert len(receiver.events("run.end")) == 1


# Several processes ---------------------------------------------------------------------------------------------------

JOB = """
import sys, time, otel_train
if len(sys.argv) > 2:
    import torch.distributed as dist
    dist.init_process_group("gloo", init_method=sys.argv[2], rank=int(sys.argv[1]), world_size=2)
run = otel_train.init(dir=False, project="job")
run.log({"loss": float(run.rank)})
for _ in run.steps(range(3)):
    time.sleep(0.002)  # a millisecond for each
print(run.id, run.attempt, run.rank)
run.finish()
if len(sys.argv) > 2:
    dist.barrier()
    dist.destroy_process_group()
"""


def launch(scripts: Scripts, receiver: HttpReceiver, environments: list[dict[str, str]], text: str = JOB) -> list[Any]:
    shared = {"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url}
    processes = [scripts.popen(text, env={**shared, **environ}) for environ in environments]
    return [scripts.end(process) for process in processes]


@pytest.mark.slow
@pytest.mark.parametrize(
    "shared",
    [
        {"OTEL_TRAIN_LAUNCH_KEY": "nightly-17"},
        {"SLURM_JOB_ID": "17", "SLURM_STEP_ID": "0", "SLURM_NTASKS": "2"},
        {"MASTER_PORT": "29555", "MASTER_ADDR": "127.0.0.1"},
    ],
)
def test_ranks_find_one_run_without_a_file(shared: Mapping[str, str], receiver: HttpReceiver, scripts: Scripts) -> None:
    """By a key of the launch every rank works out the same id; whole-run metrics are rank 0's, steps of each."""
    own = [{"RANK": str(rank), "WORLD_SIZE": "2"} for rank in range(2)]
    if "SLURM_JOB_ID" in shared:
        own = [{"SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank)} for rank in range(2)]
    ended = launch(scripts, receiver, [{**shared, **environ} for environ in own])
    assert [script.code for script in ended] == [0, 0], [script.errors for script in ended]
    words = [script.output.split() for script in ended]
    assert words[0][0] == words[1][0]
    assert [found[1:] for found in words] == [["1", "0"], ["1", "1"]]
    assert receiver.values("train.loss") == [0.0]
    ranks = sorted(point.resource["dl.rank"] for point in receiver.points("dl.step.time"))
    assert ranks == [0] * 3 + [1] * 3
    assert {point.resource["run_id"] for point in receiver.points("dl.step.time")} == {words[0][0]}
    assert not scripts.root.exists()


@pytest.mark.slow
def test_ranks_of_an_initialised_group_agree_by_its_store(receiver: HttpReceiver, scripts: Scripts) -> None:
    """Where nothing names the launch, torch.distributed's own store carries the id."""
    pytest.importorskip("torch")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url}
    processes = [scripts.popen(JOB, str(rank), f"tcp://127.0.0.1:{port}", env=environ) for rank in range(2)]
    ended = [scripts.end(process, timeout_s=90) for process in processes]
    assert [script.code for script in ended] == [0, 0], [script.errors for script in ended]
    ids = {next(line for line in script.output.splitlines() if "-" in line).split()[0] for script in ended}
    assert len(ids) == 1
    assert {point.resource["run_id"] for point in receiver.points("dl.step.time")} == ids


@pytest.mark.slow
def test_a_rank_that_can_join_nobody_says_so(receiver: HttpReceiver, scripts: Scripts) -> None:
    """A rendezvous name may come back: it names no launch for certain, so each records its own run, and is told how."""
    environments = [
        {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "1", "TORCHELASTIC_RUN_ID": "mine"}
        for rank in range(2)
    ]
    ended = launch(scripts, receiver, environments)
    assert [script.code for script in ended] == [0, 0], [script.errors for script in ended]
    assert len({script.output.split()[0] for script in ended}) == 2
    assert all("OTEL_TRAIN_LAUNCH_KEY" in script.errors for script in ended)
    # Nobody does it for rank 1: it stores its own.
    assert sorted(receiver.values("train.loss")) == [0.0, 1.0]


def test_a_restarted_launch_goes_on_with_the_same_run() -> None:
    """Torchrun's count of restarts is the number of the attempt."""
    environ = {
        "RANK": "1",
        "WORLD_SIZE": "2",
        "OTEL_TRAIN_LAUNCH_KEY": "nightly",
        "TORCHELASTIC_RUN_ID": "x",
        "TORCHELASTIC_RESTART_COUNT": "2",
    }
    first = DirectOpening(
        detect_ranks({**environ, "RANK": "0", "TORCHELASTIC_RESTART_COUNT": "0"}), run_id=None, sequence=0
    )
    again = DirectOpening(detect_ranks(environ), run_id=None, sequence=0)
    opened = [opening.open_main(lambda run_id, attempt: {}) for opening in (first, again)]
    assert opened[0].run_id == opened[1].run_id
    assert [one.attempt for one in opened] == [1, 3]
    other = DirectOpening(detect_ranks(environ), run_id=None, sequence=1).open_main(lambda run_id, attempt: {})
    assert other.run_id != opened[0].run_id


def test_a_given_id_is_that_of_every_rank() -> None:
    """run_id=… in all of them needs no exchange."""
    ranks = detect_ranks({"RANK": "1", "WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "x"})
    opening = DirectOpening(ranks, run_id="mine", sequence=0)
    assert not opening.must_wait
    assert opening.open_main(lambda run_id, attempt: {}).run_id == "mine"


@pytest.mark.parametrize(
    ("ranks", "has_store", "derived"),
    [
        (Ranks(world_size=2, launch_key="key-x"), True, True),
        (Ranks(world_size=2, launch_key="slurm-1-0-0", key_is_unique=True), True, True),
        (Ranks(world_size=2, launch_key="master-localhost-29500-parent-ab12-7-1.00"), True, True),
        (Ranks(world_size=2, launch_key="parent-ab12-7-1.00"), False, True),
        (Ranks(world_size=2, launch_key="parent-ab12-7-1.00"), True, False),
        (Ranks(world_size=2, launch_key="torchrun-mine"), False, False),
        (Ranks(world_size=2, launch_key=None), False, False),
        (Ranks(world_size=1, launch_key="key-x"), False, False),
    ],
)
def test_which_launches_name_their_run(ranks: Ranks, has_store: bool, derived: bool) -> None:
    """Only what no other launch can have, and what is the same in all ranks for certain."""
    found = derived_run_id(ranks, 0, has_store=has_store)
    assert (found is not None) == derived
    if found is not None:
        assert re.fullmatch(r"launch-[a-z2-7]{16}", found)
        assert found == derived_run_id(ranks, 0, has_store=has_store)
