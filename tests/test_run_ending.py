"""How a run ends: each way of ending a process or a run, the state it leads to, and what stays on record."""

from __future__ import annotations

import builtins
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import otel_train
from otel_train.clock import wall_ns
from otel_train.errors import ConfigError
from otel_train.run.hooks import Hook
from otel_train.run.verdict import judge
from otel_train.runlog.catalogue import list_runs
from otel_train.runlog.status import run_status
from otel_train.testing import Recorded, recorded
from tests.scripts import Scripts, own_threads

Start = Callable[..., Any]


def end_of(record: Recorded) -> dict[str, Any]:
    """Return the last attempt's entry, after checking that event and run.json agree."""
    entry: dict[str, Any] = record.info["attempts"][-1]
    end = record.event("run.end")
    assert record.info["status"] == entry["status"] == end.attributes["status"]
    assert entry["ended"] is not None
    return entry


# In the same process ------------------------------------------------------------------------------------------------


def test_a_block_that_ends_well_is_finished(start: Start) -> None:
    """Without a fault the state is finished, without reason or exit code."""
    with start() as run:
        run.log({"loss": 1.0})
    entry = end_of(recorded(run))
    assert (entry["status"], entry["reason"], entry["exit_code"]) == ("finished", None, None)
    assert recorded(run).event("run.end").level == "INFO"


def test_an_exception_out_of_the_block_fails_the_run_and_passes_on(start: Start) -> None:
    """Type, message and traceback are on record; the exception reaches the user unchanged."""
    fault = ValueError("bad batch")
    run = start()
    run.log({"loss": 1.0}, step=5)
    with pytest.raises(ValueError, match="bad batch") as caught:
        with run:
            raise fault
    assert caught.value is fault
    record = recorded(run)
    entry = end_of(record)
    assert (entry["status"], entry["reason"]) == ("failed", "ValueError: bad batch")
    end = record.event("run.end")
    assert end.level == "ERROR"
    assert end.body == "run failed: ValueError: bad batch"
    assert end.attributes["exception.type"] == "ValueError"
    assert end.attributes["exception.message"] == "bad batch"
    assert "raise fault" in end.attributes["exception.stacktrace"]
    assert end.attributes["dl.step"] == 5


def test_a_framework_that_calls_finish_while_handling_an_exception_fails_the_run(start: Start) -> None:
    """An exception in flight is what ended the training, also where finish() is not told."""
    run = start()
    try:
        raise RuntimeError("diverged")
    except RuntimeError:
        run.finish()
    record = recorded(run)
    assert (end_of(record)["status"], end_of(record)["reason"]) == ("failed", "RuntimeError: diverged")
    assert record.event("run.end").attributes["exception.type"] == "RuntimeError"


def test_an_exception_that_was_handled_around_the_whole_run_does_not_fail_it(start: Start) -> None:
    """A fallback within `except` trains well: only what came after init() counts."""
    try:
        raise ImportError("no flash attention")
    except ImportError:
        with start() as first:
            first.log({"loss": 1.0})
        second = start()
        second.finish()
        third = start()
        try:
            raise KeyError("new")
        except KeyError:
            third.finish()
    states = [recorded(run).info["status"] for run in (first, second, third)]
    assert states == ["finished", "finished", "failed"]


def test_ctrl_c_within_the_block_is_interrupted(start: Start) -> None:
    """KeyboardInterrupt is no failure."""
    with pytest.raises(KeyboardInterrupt):
        with start() as run:
            raise KeyboardInterrupt
    entry = end_of(recorded(run))
    assert (entry["status"], entry["reason"]) == ("interrupted", "KeyboardInterrupt")
    assert recorded(run).event("run.end").level == "WARN"


def test_who_answers_to_ctrl_c_with_an_exit_was_interrupted(start: Start) -> None:
    """A framework that catches Ctrl-C and leaves by `sys.exit(1)` has not failed."""

    def leave() -> None:
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt:
            sys.exit(1)

    with pytest.raises(SystemExit):
        with start() as run:
            leave()
    entry = end_of(recorded(run))
    assert (entry["status"], entry["exit_code"], entry["reason"]) == ("interrupted", 1, "KeyboardInterrupt")


@pytest.mark.parametrize(
    ("code", "status", "kept", "reason"),
    [
        (3, "failed", 3, "sys.exit(3)"),
        ("no data", "failed", 1, "sys.exit(1)"),
        (0, "finished", 0, None),
        (None, "finished", 0, None),
    ],
)
def test_sys_exit_within_the_block_keeps_its_code(
    start: Start, code: Any, status: str, kept: int, reason: str | None
) -> None:
    """A code other than 0 is a failure; a text ends the process with 1."""
    with pytest.raises(SystemExit):
        with start() as run:
            sys.exit(code)
    entry = end_of(recorded(run))
    assert (entry["status"], entry["exit_code"], entry["reason"]) == (status, kept, reason)


def test_finish_may_be_told_the_state(start: Start) -> None:
    """An explicit status, reason and code are taken as they are."""
    run = start()
    run.finish("killed", reason="preempted", exit_code=143)
    entry = end_of(recorded(run))
    assert (entry["status"], entry["reason"], entry["exit_code"]) == ("killed", "preempted", 143)


def test_an_unknown_status_is_refused_and_the_run_stays_open(start: Start) -> None:
    """The error names argument, value and the states there are."""
    run = start()
    with pytest.raises(ConfigError, match="status='done': use one of finished, failed, interrupted, killed"):
        run.finish("done")
    assert not run.finished
    run.log({"loss": 1.0})
    run.finish()
    assert recorded(run).values("loss") == [1.0]


def test_a_second_finish_does_nothing(start: Start, capsys: pytest.CaptureFixture[str]) -> None:
    """The first end stands, is said once, and one run has one run.end."""
    run = start()
    run.finish()
    run.finish("failed", reason="later")
    assert end_of(recorded(run))["status"] == "finished"
    assert capsys.readouterr().err.count(f"otel-train: run {run.id} finished") == 1


def test_the_end_says_in_one_line_what_was_recorded_dropped_and_where(
    start: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    """Points, records and spans, what was left out and why, and the folder."""
    run = start()
    run.log({"loss": 1.0, "text": None})
    run.log({"loss": 2.0})
    run.finish()
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("otel-train: run")]
    assert line == (
        f"otel-train: run {run.id} finished: 2 points, {len(recorded(run).logs)} log records, 1 span; "
        f"dropped: 1 point (refused); in {run.path}"
    )


def test_what_comes_after_the_end_is_dropped_in_silence(start: Start) -> None:
    """All calls still work, and change nothing on record."""
    run = start()
    run.log({"loss": 1.0})
    run.finish()
    before = recorded(run)
    run.log({"loss": 2.0})
    for _ in run.steps([1]):
        with run.phase("a"):
            pass
    for _ in run.epochs(1):
        pass
    with run.stage("late", inputs=[__file__]):
        pass
    run.log_dataset("late", [1, 2])
    run.early_stop("late")
    run.event("late")
    run.define("late", goal="max")
    run.config.update(late=1)
    assert run.flush() is False or run.flush() is True
    after = recorded(run)
    assert (len(after.points), len(after.logs), len(after.spans)) == (
        len(before.points),
        len(before.logs),
        len(before.spans),
    )
    assert after.info == before.info


def test_open_stages_and_epochs_are_closed_as_truncated(start: Start) -> None:
    """What the end finds open is written with that mark, innermost first, and counted."""
    run = start()
    stage = run.stage("train")
    stage.__enter__()
    epochs = iter(run.epochs(3))
    assert next(epochs) == 0
    run.finish()
    epochs.close()  # type: ignore[attr-defined]  # an iterator by its type, a generator in fact
    stage.__exit__(None, None, None)
    record = recorded(run)
    ended = [(span.name, span.attributes["dl.truncated"]) for span in record.spans if "dl.truncated" in span.attributes]
    assert ended == [("epoch", True), ("train", True)]
    assert record.event("run.end").attributes["truncated_spans"] == 2
    assert len(record.spans_of("train")) == len(record.spans_of("epoch")) == 1


@pytest.mark.parametrize("kind", ["host", "device"])
def test_running_out_of_memory_is_named(start: Start, kind: str) -> None:
    """MemoryError and a device's OutOfMemoryError get an event of their own."""

    class OutOfMemoryError(RuntimeError):
        """As torch has it."""

    fault = MemoryError("host") if kind == "host" else OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")
    with pytest.raises(type(fault)):
        with start() as run:
            raise fault
    record = recorded(run)
    event = record.event("health.out_of_memory")
    assert event.level == "ERROR"
    assert event.body == f"{type(fault).__name__}: {fault}"
    assert "Traceback" in event.attributes["exception.stacktrace"]
    assert end_of(record)["status"] == "failed"


def test_an_exception_whose_text_raises_does_not_disturb_the_end(start: Start) -> None:
    """A foreign __str__ may be broken; the run is failed all the same and the fault itself passes on."""

    class StrangeError(Exception):
        def __str__(self) -> str:
            raise KeyError("x")

    with pytest.raises(StrangeError):
        with start() as run:
            raise StrangeError
    assert end_of(recorded(run))["reason"] == "StrangeError: (its text cannot be read: KeyError)"


def hanging_disk(run: Any, monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Let writes to the run log hang until the event is set."""
    hang = threading.Event()

    def write(descriptor: int, data: bytes) -> int:
        hang.wait(20)
        return len(data)

    for writer in run.session._recorder.lines._writers.values():
        monkeypatch.setattr(writer, "_write", write)
    return hang


def test_finish_ends_in_time_though_the_disk_hangs(
    start: Start, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A write that does not come back costs what is in memory, not the process."""
    run = start(finish_timeout_s=1.0)
    run.log({"loss": 1.0})
    run.flush()
    hang = hanging_disk(run, monkeypatch)
    run.log({"loss": 2.0})
    start_s = time.monotonic()
    run.finish()
    seconds = time.monotonic() - start_s
    hang.set()
    assert 0.5 < seconds < 5
    assert otel_train.current_run() is None


def test_finish_ends_in_time_though_run_json_hangs(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same where the description's file is what hangs."""
    run = start(finish_timeout_s=1.0)
    hang = threading.Event()
    monkeypatch.setattr(run.session.file._folder, "update", lambda change: hang.wait(20))
    start_s = time.monotonic()
    run.finish()
    seconds = time.monotonic() - start_s
    hang.set()
    assert seconds < 5


def test_flush_gives_up_in_time_though_the_disk_hangs(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """flush() says False instead of waiting for ever."""
    run = start(finish_timeout_s=1.0)
    hang = hanging_disk(run, monkeypatch)
    run.log({"loss": 2.0})
    start_s = time.monotonic()
    assert run.flush(0.3) is False
    assert time.monotonic() - start_s < 5
    hang.set()


def test_a_thread_that_dies_ends_its_run_as_failed(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run made in a thread fails with the thread, and the user's hook still hears of it."""
    heard: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", heard.append)
    runs: list[Any] = []

    def train() -> None:
        runs.append(start())
        runs[0].log({"loss": 1.0})
        raise ValueError("in a thread")

    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
    assert [str(what.exc_value) for what in heard] == ["in a thread"]
    entry = end_of(recorded(runs[0]))
    assert (entry["status"], entry["reason"]) == ("failed", "ValueError: in a thread")
    assert threading.excepthook == heard.append


def test_after_the_end_everything_installed_is_gone(start: Start) -> None:
    """Hooks, handlers, threads and descriptors are those of before; three runs, five records each, make fifteen."""
    import logging

    logger = logging.getLogger("user")

    def state() -> tuple[Any, ...]:
        return (
            sys.excepthook,
            sys.exit,
            threading.excepthook,
            getattr(builtins, "exit", None),
            signal.getsignal(signal.SIGTERM),
            logging.Logger.filter,
            list(logging.getLogger().handlers),
            logging.getLogger().level,
            logger.handlers[:],
            logger.propagate,
            sys.stdout,
            sys.stderr,
        )

    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0

    first = start()  # imports, and what libraries open once
    first.finish()
    own_threads(2.0)
    before, opened = state(), descriptors()
    bodies = []
    for _ in range(3):
        run = start(sample_machine=True, sample_interval_s=0.1)
        assert sys.exit is not before[1]
        for number in range(5):
            logger.warning("record %d", number)
        run.finish()
        bodies.append(recorded(run).messages)
    assert bodies == [[f"record {number}" for number in range(5)]] * 3
    assert own_threads(3.0) == []
    assert state() == before
    assert descriptors() <= opened


def test_a_hook_gives_way_where_somebody_has_put_theirs_around_it() -> None:
    """Ours then stays within, does nothing, and a second installation does not call itself for ever."""
    import types

    module, noticed, called = types.SimpleNamespace(), [], []
    module.exit = lambda code: called.append(code)
    hook = Hook(module, "exit", noticed.append)
    hook.install()
    ours = module.exit
    module.exit = lambda code: ours(code)
    hook.uninstall()
    module.exit(1)
    hook.install()
    module.exit(2)
    hook.uninstall()
    assert (noticed, called) == ([2], [1, 2])


def test_a_hook_hands_on_what_its_notice_cannot_take() -> None:
    """A fault of ours does not keep the function from being called."""
    import types

    module, called = types.SimpleNamespace(exit=lambda *codes: called.append(codes)), []

    def notice(code: int) -> None:
        raise KeyError(code)

    hook = Hook(module, "exit", notice)
    hook.install()
    module.exit(1)
    module.exit(1, 2)
    hook.uninstall()
    assert called == [(1,), (1, 2)]
    Hook(module, "missing", notice).install()
    assert not hasattr(module, "missing")


def test_the_signal_handler_is_not_set_twice_around_itself(start: Start) -> None:
    """A run that another thread ends leaves the handler; the next run finds it to be its own."""
    before = signal.getsignal(signal.SIGTERM)
    run = start()
    ours = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=run.finish)
    thread.start()
    thread.join()
    run = start()
    assert signal.getsignal(signal.SIGTERM) is ours
    run.finish()
    assert signal.getsignal(signal.SIGTERM) == before


def test_judging_an_end() -> None:
    """What was said comes first, then SIGTERM, then the fault, then the exit code."""
    assert judge("finished", None, ValueError("x"), None, terminated=True) == ("finished", None, None)
    assert judge(None, None, ValueError("x"), None, terminated=True) == ("killed", "SIGTERM", None)
    assert judge(None, None, SystemExit(143), None, terminated=True) == ("killed", "SIGTERM", 143)
    assert judge(None, None, None, 3, terminated=False) == ("failed", "sys.exit(3)", 3)
    assert judge(None, None, None, 0, terminated=False) == ("finished", None, 0)
    assert judge(None, None, GeneratorExit(), None, terminated=False) == ("finished", None, None)
    assert judge("failed", "mine", ValueError("x"), None, terminated=False) == ("failed", "mine", None)


# Of the process -----------------------------------------------------------------------------------------------------

HEAD = """
import os, sys, signal, time, threading, otel_train
run = otel_train.init()
def train(steps=10, fault=None, at=5):
    for x in run.steps(range(steps)):
        if x == at and fault is not None:
            raise fault
        run.log({"loss": 1.0})
"""


def ended(scripts: Scripts, text: str, **options: Any) -> tuple[Any, Recorded]:
    script = scripts(HEAD + text, **options)
    return script, recorded(script.path)


@pytest.mark.slow
def test_an_exception_without_a_block_fails_the_run(scripts: Scripts) -> None:
    """At step 5 of a plain script: failed, with type and traceback in the log, and all points of before."""
    script, record = ended(scripts, 'train(fault=RuntimeError("diverged"))')
    assert script.code == 1
    assert "RuntimeError: diverged" in script.errors
    entry = end_of(record)
    assert (entry["status"], entry["reason"], entry["exit_code"]) == ("failed", "RuntimeError: diverged", 1)
    end = record.event("run.end")
    assert end.attributes["exception.type"] == "RuntimeError"
    assert "in train" in end.attributes["exception.stacktrace"]
    assert record.steps("loss") == [0, 1, 2, 3, 4]
    assert [point.step for point in record.named("dl.step.time")] == [0, 1, 2, 3, 4, 5]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "code", "status", "kept"),
    [
        ("train(); sys.exit(3)", 3, "failed", 3),
        ("for x in run.steps([1, 2]):\n    run.log({'loss': 1.0})\n    sys.exit(3)", 3, "failed", 3),
        ("try:\n    sys.exit(3)\nfinally:\n    run.log({'f1': 1.0})", 3, "failed", 3),
        ("train(); exit(4)", 4, "failed", 4),
        ("train(); sys.exit('no data')", 1, "failed", 1),
        ("train(); sys.exit()", 0, "finished", 0),
        ("try:\n    sys.exit(3)\nexcept SystemExit:\n    pass\ntrain()", 0, "finished", None),
        ("import argparse\nargparse.ArgumentParser().parse_args(['--nothing'])", 2, "failed", 2),
    ],
)
def test_sys_exit_without_a_block_keeps_its_code(
    scripts: Scripts, text: str, code: int, status: str, kept: int | None
) -> None:
    """The state follows the code; where somebody caught it and training went on, the run is finished."""
    script, record = ended(scripts, text)
    assert script.code == code
    entry = end_of(record)
    assert (entry["status"], entry["exit_code"]) == (status, kept)


@pytest.mark.slow
def test_ctrl_c_without_a_block_is_interrupted(scripts: Scripts) -> None:
    """SIGINT ends the script as always, and the run as interrupted."""
    # The script waits to be interrupted; it would end by itself long after the test's own time limit has spoken.
    process = scripts.popen(HEAD + "train(steps=10)\nprint('ready', flush=True)\ntime.sleep(30)")
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    script = scripts.end(process)
    assert script.code == -signal.SIGINT
    entry = end_of(recorded(script.path))
    assert (entry["status"], entry["reason"]) == ("interrupted", "KeyboardInterrupt")


@pytest.mark.slow
def test_an_exit_after_ctrl_c_without_a_block_is_interrupted(scripts: Scripts) -> None:
    """The code is the one that the script chose, and the run interrupted."""
    text = "train(steps=10)\ntry:\n    raise KeyboardInterrupt\nexcept KeyboardInterrupt:\n    sys.exit(1)"
    script, record = ended(scripts, text)
    assert script.code == 1
    entry = end_of(record)
    assert (entry["status"], entry["exit_code"], entry["reason"]) == ("interrupted", 1, "KeyboardInterrupt")


@pytest.mark.slow
def test_a_normal_end_without_a_block_is_finished(scripts: Scripts) -> None:
    """The last line of a script is the end of its run."""
    script, record = ended(scripts, "train()")
    assert script.code == 0
    assert end_of(record)["status"] == "finished"
    assert record.values("loss") == [1.0] * 10
    assert f"otel-train: run {script.path.name} finished: " in script.errors


@pytest.mark.slow
def test_ctrl_c_ends_the_process_by_its_signal_whatever_the_end_imports(scripts: Scripts) -> None:
    """A text that is executed while the run ends makes the interpreter forget the interrupt: the signal stands."""
    text = HEAD + "end = run.session.end\ndef importing(*about):\n    exec('pass')\n    end(*about)\n"
    text += "run.session.end = importing\ntrain(steps=10)\nraise KeyboardInterrupt\n"
    script = scripts(text)
    assert script.code == -signal.SIGINT
    assert end_of(recorded(script.path))["status"] == "interrupted"


@pytest.mark.slow
def test_sigterm_kills_the_run_and_the_process_dies_of_the_signal(scripts: Scripts) -> None:
    """The end is on record within moments, and whoever waits for the process sees the signal."""
    # The script waits for the signal.
    process = scripts.popen(HEAD + "train()\nprint('ready', flush=True)\ntime.sleep(30)")
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGTERM)
    script = scripts.end(process)
    assert script.code == -signal.SIGTERM
    record = recorded(script.path)
    entry = end_of(record)
    assert (entry["status"], entry["reason"]) == ("killed", "SIGTERM")
    assert record.values("loss") == [1.0] * 10
    assert record.event("run.end").level == "WARN"


@pytest.mark.slow
@pytest.mark.parametrize("exit_call", ["sys.exit(143)", "os._exit(143)"])
def test_the_users_own_handler_of_sigterm_still_runs(scripts: Scripts, exit_call: str) -> None:
    """It runs, points are on disk before it, and the run counts as killed where it ends in good order."""
    text = f"""
import os, sys, signal, time, otel_train
def handler(number, frame):
    print("saved", number, flush=True)
    {exit_call}
signal.signal(signal.SIGTERM, handler)
run = otel_train.init(flush_interval_s=1)
run.log({{"loss": 1.0}})
print("ready", flush=True)
time.sleep(30)
"""
    process = scripts.popen(text)
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGTERM)
    script = scripts.end(process)
    assert script.code == 143
    assert script.output == f"saved {int(signal.SIGTERM)}\n"
    record = recorded(script.path)
    assert record.values("loss") == [1.0]
    if "os." in exit_call:
        assert run_status(script.path, wall_ns()).state == "lost"
    else:
        assert (end_of(record)["status"], end_of(record)["exit_code"]) == ("killed", 143)


@pytest.mark.slow
def test_a_handler_that_lets_training_go_on_ends_as_killed_too(scripts: Scripts) -> None:
    """A flag set by SIGTERM ends the loop in good order: the run did not end by itself."""
    text = """
import signal, time, otel_train
stop = []
signal.signal(signal.SIGTERM, lambda *about: stop.append(1))
run = otel_train.init()
print("ready", flush=True)
while not stop:
    run.log({"loss": 1.0})
    time.sleep(0.01)
run.log({"f1": 1.0})
"""
    process = scripts.popen(text)
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGTERM)
    script = scripts.end(process)
    assert script.code == 0
    record = recorded(script.path)
    assert end_of(record)["status"] == "killed"
    assert record.values("f1") == [1.0]


@pytest.mark.slow
def test_an_ignored_sigterm_stays_ignored(scripts: Scripts) -> None:
    """Whoever ignores the signal has decided so."""
    text = """
import os, signal, otel_train
signal.signal(signal.SIGTERM, signal.SIG_IGN)
run = otel_train.init()
os.kill(os.getpid(), signal.SIGTERM)
run.log({"loss": 1.0})
print(signal.getsignal(signal.SIGTERM) is signal.SIG_IGN)
"""
    script = scripts(text)
    assert (script.code, script.output) == (0, "True\n")
    assert end_of(recorded(script.path))["status"] == "finished"


@pytest.mark.slow
@pytest.mark.parametrize("turn", range(4))
def test_kill_9_at_any_moment_costs_at_most_a_second(scripts: Scripts, turn: int) -> None:
    """All points older than a second are readable, in order; status is lost, and lists and readers work."""
    text = """
import time, otel_train
run = otel_train.init()
number = 0
while True:
    run.log({"number": number})
    if number % 20 == 0:
        print(number, time.time_ns(), flush=True)
    number += 1
    time.sleep(0.002)
"""
    process = scripts.popen(text)
    process.stdout.readline()
    # Any moment will do: this is what is tried, not something that is waited for.
    time.sleep(0.3 + random.random() * 1.7)
    process.send_signal(signal.SIGKILL)
    killed_ns = time.time_ns()
    script = scripts.end(process)
    assert script.code == -signal.SIGKILL
    said = [tuple(map(int, line.split())) for line in script.output.splitlines() if line.count(" ") == 1]
    record = recorded(script.path)
    values = record.values("number")
    assert values == list(range(len(values)))
    old = [number for number, said_ns in said if killed_ns - said_ns > 1_000_000_000]
    assert len(values) > max(old, default=-1)
    status = run_status(script.path, wall_ns())
    assert status.state == "lost"
    (summary,) = list_runs(script.root)
    assert (summary.run_id, summary.status.state) == (script.path.name, "lost")
    assert len(record.events("run.start")) == bool(values)
    assert record.info["attempts"][0]["ended"] is None


@pytest.mark.slow
def test_os_exit_leaves_a_run_that_readers_find_lost(scripts: Scripts) -> None:
    """Nothing of ours can run then; what was flushed is there."""
    script, record = ended(scripts, "train()\nrun.flush()\nos._exit(7)")
    assert script.code == 7
    assert record.values("loss") == [1.0] * 10
    assert run_status(script.path, wall_ns()).state == "lost"


@pytest.mark.slow
def test_an_error_line_of_an_interactive_session_does_not_fail_what_goes_on(scripts: Scripts) -> None:
    """The hook for exceptions is called for each such line; training that went on ended well."""
    text = "try:\n    raise ValueError('typo')\nexcept ValueError:\n    sys.excepthook(*sys.exc_info())\ntrain()"
    script, record = ended(scripts, text)
    assert script.code == 0
    assert end_of(record)["status"] == "finished"


@pytest.mark.slow
def test_the_process_ends_in_time_with_a_queue_of_points(scripts: Scripts) -> None:
    """300,000 points that wait at the end are all written, within the five seconds of finish."""
    text = """
start = time.monotonic()
for n in range(90_000):
    run.log({"a": 1.0, "b": 2.0, "c": 3.0})
before = time.monotonic()
run.finish()
print(time.monotonic() - before)
"""
    script, record = ended(scripts, text)
    assert script.code == 0
    assert float(script.output) < 6
    assert len(record.of("a")) == len(record.of("c")) == 90_000
    assert end_of(record)["status"] == "finished"


def test_a_run_folder_that_vanished_does_not_disturb_the_end(start: Start, root: Path) -> None:
    """Somebody removed the runs in mid-training: a warning, no exception."""
    import shutil

    run = start()
    run.log({"loss": 1.0})
    run.flush()
    shutil.rmtree(root)
    run.log({"loss": 2.0})
    run.finish()
    assert run.finished


SLOW_DISK = """
import os, signal, sys, time, otel_train
run = otel_train.init()
run.log({"loss": 1.0})
run.flush()
ending, said = [], []
for writer in run.session._recorder.lines._writers.values():
    def write(descriptor, data):
        if ending and not said:
            said.append(1)
            print("writing the end", flush=True)
        time.sleep(0.4)
        return os.write(descriptor, data)
    writer._write = write
run.log({"loss": 2.0})
ending.append(1)
run.finish()
print("ended", flush=True)
time.sleep(1)
"""


@pytest.mark.slow
def test_sigterm_while_a_run_ends_waits_for_that_and_kills_then(scripts: Scripts) -> None:
    """The end is written as it was, and the process dies of the signal all the same."""
    process = scripts.popen(SLOW_DISK)
    assert process.stdout.readline() == "writing the end\n"
    process.send_signal(signal.SIGTERM)
    script = scripts.end(process)
    assert script.code == -signal.SIGTERM
    assert script.output == ""
    record = recorded(script.path)
    assert record.values("loss") == [1.0, 2.0]
    assert end_of(record)["status"] == "finished"


@pytest.mark.slow
def test_ctrl_c_while_a_run_ends_loses_nothing(scripts: Scripts) -> None:
    """KeyboardInterrupt reaches the user after the end is written."""
    process = scripts.popen(SLOW_DISK)
    assert process.stdout.readline() == "writing the end\n"
    process.send_signal(signal.SIGINT)
    script = scripts.end(process)
    assert script.code == -signal.SIGINT
    record = recorded(script.path)
    assert record.values("loss") == [1.0, 2.0]
    assert end_of(record)["status"] == "finished"
