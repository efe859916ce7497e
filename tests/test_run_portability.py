"""Elsewhere than on a good Linux: without POSIX's modules, on a full disk, in a folder that cannot be written."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from otel_train.runlog.catalogue import list_runs
from otel_train.testing import recorded
from tests.scripts import Scripts

Start = Callable[..., Any]

HIDDEN = """
import os, signal, sys
class Hidden:
    def find_spec(self, name, path=None, target=None):
        # psutil's own module for this system may have what it needs: on another it has another one.
        frame, asked_by = sys._getframe(1), ""
        while frame is not None and not asked_by:
            asked_by = "psutil" if "psutil" in frame.f_code.co_filename else ""
            frame = frame.f_back
        if name in ("fcntl", "resource", "pwd", "grp", "termios") and not asked_by:
            raise ImportError(f"no module named {name}")
for name in ("fcntl", "resource", "pwd", "grp", "termios"):
    sys.modules.pop(name, None)
sys.meta_path.insert(0, Hidden())
for name in ("fork", "register_at_fork", "forkpty"):
    if hasattr(os, name):
        delattr(os, name)
import logging, otel_train
with otel_train.init(sample_machine=True, sample_interval_s=0.1, git=True) as run:
    with run.stage("a"):
        for x in run.steps(range(10)):
            run.log({"loss": 1.0})
        logging.getLogger("user").warning("hello")
    run.save_checkpoint("model.pkl", {"a": 1})
    run.session.surroundings.environment(20.0)
assert "fcntl" not in sys.modules and not hasattr(os, "fork")
print(run.id)
"""


@pytest.mark.slow
def test_without_posix_modules_and_fork_a_run_is_recorded(scripts: Scripts) -> None:
    """fcntl, resource, pwd, fork and register_at_fork are hidden: everything still arrives."""
    ended = scripts(HIDDEN, env={"OTEL_TRAIN_SAMPLE_MACHINE": "1"})
    assert ended.code == 0, ended.errors
    assert "Traceback" not in ended.errors
    record = recorded(ended.path)
    assert record.values("loss") == [1.0] * 10
    assert record.messages == ["hello"]
    assert record.info["status"] == "finished"
    assert record.info["attempts"][0]["environment"]["python"]["version"]
    assert len(record.info["checkpoints"]) == 1
    assert [point for point in record.points if point.name.startswith(("system.", "process."))]


def failing(code: int) -> Callable[[int, bytes], int]:
    def write(descriptor: int, data: bytes) -> int:
        raise OSError(code, os.strerror(code))

    return write


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES])
def test_a_disk_that_takes_no_more_costs_a_warning_and_nothing_else(
    start: Start, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, code: int
) -> None:
    """One warning with the true path; training goes on; what was written stays; the end counts what is lost."""
    run = start()
    run.log({"loss": 1.0})
    run.flush()
    writers = run.session._recorder.lines._writers
    for writer in writers.values():
        monkeypatch.setattr(writer, "_write", failing(code))
    for number in range(5):
        run.log({"loss": float(number)})
        run.flush()
    run.finish()
    warnings = [message for message in caplog.messages if os.strerror(code) in message]
    assert len([message for message in warnings if "metrics" in message]) == 1, warnings
    assert str(run.path / "attempt-1" / "rank-0" / "metrics.000001.jsonl") in warnings[0]
    record = recorded(run)
    assert record.values("loss") == [1.0]
    assert record.damage == []
    assert record.info["attempts"][0]["accounting"]["dropped"]["metrics"]["disk not writable"] >= 5


def test_a_disk_that_recovers_has_everything(
    start: Start, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Lines that waited in memory are written in order once the disk takes them again."""
    run = start()
    run.log({"loss": 0.0})
    run.flush()
    with monkeypatch.context() as patch:
        for writer in run.session._recorder.lines._writers.values():
            patch.setattr(writer, "_write", failing(errno.ENOSPC))
        for number in range(1, 4):
            run.log({"loss": float(number)})
            run.flush()
    run.log({"loss": 4.0})
    run.finish()
    assert recorded(run).values("loss") == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert "dropped" not in str(recorded(run).info["attempts"][0]["accounting"]["dropped"])


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB, where this user may mount one."""
    place = tmp_path / "small"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no small file system can be mounted here")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=False)


FULL = """
import random, sys, otel_train
run = otel_train.init(dir=sys.argv[1])
for number in range(60_000):
    run.log({"a": random.random(), "b": random.random()})
    if number % 5000 == 0:
        run.flush()
run.finish()
print("trained")
"""


@pytest.mark.slow
def test_a_full_file_system_ends_with_code_0(scripts: Scripts, small_disk: Path) -> None:
    """Training ends as ever, with one warning a file and the true path; the file is readable to its last whole line."""
    ended = scripts(FULL, str(small_disk))
    assert (ended.code, ended.output) == (0, "trained\n"), ended.errors
    assert "Traceback" not in ended.errors
    (path,) = [path for path in small_disk.iterdir() if not path.name.startswith(".")]
    metrics = str(path / "attempt-1" / "rank-0" / "metrics.000001.jsonl")
    assert ended.errors.count(f"cannot write {metrics}: No space left on device") == 1
    record = recorded(path)
    count = len(record.of("a"))
    assert 1000 < count < 60_000
    assert record.steps("a") == list(range(count))
    assert "disk not writable" in ended.errors
    assert len(list_runs(small_disk)) == 1


def test_a_run_has_a_cap_of_its_own(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    """max_run_size: what is over it is counted, said once, and the end is still written."""
    import random

    run = start(max_run_size="256KiB")
    for _ in range(20_000):
        run.log({"a": random.random(), "b": random.random()})
    run.flush()
    run.finish()
    record = recorded(run)
    size = sum(path.stat().st_size for path in run.path.rglob("*") if path.is_file())
    assert size < 300_000
    assert record.event("run.end").attributes["status"] == "finished"
    dropped = record.info["attempts"][0]["accounting"]["dropped"]["metrics"]["over max_run_size"]
    assert len(record.of("a")) + len(record.of("b")) + dropped == 40_000
    assert len([message for message in caplog.messages if "max_run_size" in message]) == 1


@pytest.mark.slow
def test_cuda_stays_untouched(scripts: Scripts) -> None:
    """Import and init ask nothing of the CUDA runtime: later forks of the user's would fail, and memory would go."""
    text = """
import torch, otel_train
with otel_train.init(sample_machine=True) as run:
    for x in run.steps(range(3)):
        run.log({"loss": torch.tensor(1.0)})
    run.session.surroundings.environment(20.0)
print(torch.cuda.is_initialized())
"""
    ended = scripts(text)
    assert ended.output == "False\n", ended.errors
    assert recorded(ended.path).values("loss") == [1.0] * 3
