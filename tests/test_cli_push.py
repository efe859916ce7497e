"""`otel-train push` against real servers on loopback: repeated, interrupted, refused, not reached, followed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from otel_train.cli.main import main
from otel_train.clock import NS_PER_S, wall_ns
from otel_train.record.entries import LogEntry, Sample
from otel_train.runlog.folder import RunFolder
from otel_train.runlog.lock import WriterLock
from otel_train.testing import recorded
from tests.otlp_server import OtlpServer, Reply, attributes_of, free_port
from tests.runs import RUN_ID, START_NS, RunBuilder

FOLDER = Path(__file__).parent
COMMAND = (sys.executable, "-m", "otel_train.cli.main", "push")


@pytest.fixture
def server() -> Iterator[OtlpServer]:
    with OtlpServer().start() as made:
        yield made


def ended_run(root: Path, points: int = 168, **about: Any) -> RunBuilder:
    """Return a finished run with so many points of one series, a counter of tokens, records and spans."""
    builder = RunBuilder(root, **about).attempt()
    for first in range(0, points, 20):
        steps = list(range(first, min(first + 20, points)))
        builder.log({"loss": [1.0 / (step + 1) for step in steps]}, times_s=[step + 1.0 for step in steps])
        builder.samples(steps[-1] + 1.5, [Sample("hw.energy", 1000 + steps[-1], (("hw.id", "GPU-1"),))])
    for number in range(7):
        builder.record(f"record {number}", at_s=number + 1.0)
    builder.span("step", 1.0, 2.0, span_id=1)
    builder.record("run finished", at_s=200.0, event="run.end", status="finished")
    return builder.end(at_s=200.0)


def push(*arguments: object) -> int:
    return main(["push", *map(str, arguments)])


def account_of(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """Return the JSON that was printed."""
    return dict(json.loads(capsys.readouterr().out))


def test_a_push_sends_everything_and_says_how_much(
    root: Path, server: OtlpServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """Points, records and spans arrive once, each series is ended by a mark, and the table counts them."""
    ended_run(root)
    assert push("latest", "--endpoint", server.url, "--json") == 0
    (run,) = account_of(capsys)["runs"]
    assert server.values("train.loss") == [1.0 / (step + 1) for step in range(168)]
    assert len(server.logs()) == 8
    assert len(server.spans()) == 1
    assert server.doubles() == []
    metrics = run["signals"]["metrics"]
    assert metrics["sent"] - metrics["added"] == 168 + 9
    assert metrics["already"] == metrics["refused"] == metrics["merged"] == metrics["left_bytes"] == 0
    assert run["signals"]["logs"]["sent"] == 8
    assert run["signals"]["traces"]["sent"] == 1
    assert [point.time_ns for point in server.points("train.loss") if point.flags == 1] == [
        START_NS + 168 * NS_PER_S + 1_000_000
    ]


def test_a_push_that_was_cut_and_repeated_twice_sends_each_point_once(
    root: Path, server: OtlpServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """The server goes away after 80 of 168 points: the second push sends the rest, the third nothing new."""
    ended_run(root)
    arrived = 0

    def reply(number: int, signal: str, content: Any) -> Reply:
        nonlocal arrived
        if signal != "metrics":
            return Reply()
        if arrived >= 80:
            return Reply(503)
        arrived += sum(1 for point in _losses(content))
        return Reply()

    server.reply = reply
    first = push("latest", "--endpoint", server.url, "--patience", "1s", "--json", "--batch-size", "2000")
    assert first == 3
    cut = account_of(capsys)["runs"][0]["signals"]["metrics"]
    assert len(server.values("train.loss")) == arrived
    assert 80 <= arrived < 168
    assert cut["left_bytes"] > 0
    server.reply = lambda number, signal, content: Reply()
    assert push("latest", "--endpoint", server.url, "--json") == 0
    second = account_of(capsys)["runs"][0]["signals"]["metrics"]
    assert server.values("train.loss") == [1.0 / (step + 1) for step in range(168)]
    assert second["already"] == cut["sent"] - cut["added"]
    requests = len(server.requests)
    assert push("latest", "--endpoint", server.url, "--json") == 0
    third = account_of(capsys)["runs"][0]["signals"]["metrics"]
    assert len(server.requests) == requests
    assert third["sent"] == 0
    assert third["already"] == 168 + 9
    assert server.doubles() == []
    # The counter's last value is its total, whatever came before.
    assert [point.value for point in server.points("hw.energy") if not point.flags][-1] == 1000 + 167


def _losses(content: Any) -> list[Any]:
    return [
        point
        for block in content["resourceMetrics"]
        for scope in block["scopeMetrics"]
        for metric in scope["metrics"]
        if metric["name"] == "train.loss"
        for point in metric["gauge"]["dataPoints"]
    ]


def test_points_within_a_millisecond_are_merged_and_counted(
    root: Path, server: OtlpServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """3, 2, 1 at 0.2, 0.5 and 0.9 ms: the store gets the 1, two are merged, and the run log keeps all three."""
    builder = RunBuilder(root).attempt().log({"loss": [3.0, 2.0, 1.0]}, times_s=[1.0002, 1.0005, 1.0009]).end()
    assert push("latest", "--endpoint", server.url, "--json") == 0
    metrics = account_of(capsys)["runs"][0]["signals"]["metrics"]
    assert (metrics["sent"] - metrics["added"], metrics["merged"]) == (1, 2)
    assert server.values("train.loss") == [1.0]
    assert recorded(builder.path).values("loss") == [3.0, 2.0, 1.0]


def test_again_sends_everything_once_more(root: Path, server: OtlpServer) -> None:
    """A store has lost its data: positions are forgotten for this endpoint, and all comes again."""
    ended_run(root)
    assert push("latest", "--endpoint", server.url) == 0
    assert push("latest", "--endpoint", server.url, "--again") == 0
    assert server.values("train.loss") == 2 * [1.0 / (step + 1) for step in range(168)]
    assert push("latest", "--endpoint", server.url) == 0
    assert len(server.values("train.loss")) == 336


def test_another_endpoint_gets_everything_anew(root: Path, server: OtlpServer) -> None:
    """Positions are those of one endpoint: a second stack is filled from the start."""
    ended_run(root)
    assert push("latest", "--endpoint", server.url) == 0
    with OtlpServer().start() as other:
        assert push("latest", "--endpoint", other.url) == 0
        assert other.values("train.loss") == server.values("train.loss")
        assert len(other.logs()) == len(server.logs()) == 8


def test_all_runs_of_a_folder_are_pushed(root: Path, server: OtlpServer, capsys: pytest.CaptureFixture[str]) -> None:
    """A folder of runs means each of them, once, though one is named beside it."""
    first = ended_run(root)
    ended_run(root, run_id="20260131-130000-bbbbbbbb")
    assert push(root, first.path, "--endpoint", server.url) == 0
    assert {dict(point.resource)["run_id"] for point in server.points("train.loss")} == {
        RUN_ID,
        "20260131-130000-bbbbbbbb",
    }
    assert server.doubles() == []
    assert "168 " not in capsys.readouterr().err


def test_attempts_and_ranks_are_all_pushed(root: Path, server: OtlpServer) -> None:
    """Each rank's folder of each attempt is sent with its own resource."""
    builder = RunBuilder(root).attempt(1)
    builder.log({"loss": [1.0]}, attempt=1)
    builder.log({"loss": [2.0]}, attempt=1, rank=1)
    builder.attempt(2, start_s=100.0).log({"loss": [3.0]}, attempt=2)
    builder.end()
    assert push(builder.path, "--endpoint", server.url) == 0
    found = {
        (dict(point.resource)["run_attempt"], dict(point.resource)["dl.rank"]): point.value
        for point in server.points("train.loss")
        if not point.flags
    }
    assert found == {("1", "0"): 1.0, ("1", "1"): 2.0, ("2", "0"): 3.0}


def test_old_log_records_are_counted_and_the_rest_arrives(
    root: Path, server: OtlpServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """60 fresh records, 40 of ten days ago and one without a time: 61 arrive, 40 are told as too old, code 3."""
    builder = RunBuilder(root).attempt().end()
    now_ns = wall_ns()
    encoder = builder.encoder(1, 0)

    def entry(number: int, time_ns: int) -> LogEntry:
        return LogEntry(
            time_ns=time_ns,
            severity_number=9,
            severity_text="INFO",
            body=f"record {number}",
            observed_time_ns=now_ns,
        )

    old_ns = now_ns - 10 * 86_400 * NS_PER_S
    entries = [entry(number, now_ns - number * 1_000_000) for number in range(60)]
    entries += [entry(60 + number, old_ns) for number in range(40)]
    builder.lines("logs", encoder.logs([*entries, entry(100, 0)]))
    assert push("latest", "--endpoint", server.url, "--max-log-age", "7d", "--json") == 3
    logs = account_of(capsys)["runs"][0]["signals"]["logs"]
    assert (logs["sent"], logs["aged"], logs["refused"]) == (61, 40, 0)
    assert sorted(server.bodies()) == sorted(f"record {number}" for number in [*range(60), 100])
    assert len(server.logs()) == 61


def test_what_a_server_refuses_is_told_with_its_reason(
    root: Path, server: OtlpServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """Partial success: the refused items are counted as the server says, code 3, and the next push sends nothing."""
    ended_run(root)
    server.reply = lambda number, signal, content: (
        Reply(200, {"partialSuccess": {"rejectedLogRecords": "3", "errorMessage": "stream limit"}})
        if signal == "logs"
        else Reply()
    )
    assert push("latest", "--endpoint", server.url) == 3
    printed = capsys.readouterr()
    assert "logs: 3 items: " in printed.err
    assert "stream limit" in printed.err
    assert push("latest", "--endpoint", server.url) == 0
    assert "earlier: 3 logs refused" in capsys.readouterr().out


def test_no_server_is_code_4_and_keeps_nothing(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nobody listens: it is said for each signal, and a later push sends everything."""
    ended_run(root)
    port = free_port()
    assert push("latest", "--endpoint", f"http://127.0.0.1:{port}", "--patience", "0.5s") == 4
    errors = capsys.readouterr().err
    assert all(f"{signal}:" in errors for signal in ("metrics", "logs", "traces"))
    with OtlpServer().start(port) as server:
        assert push("latest", "--endpoint", server.url) == 0
        assert len(server.values("train.loss")) == 168


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["latest"], "where to?"),
        (["nothing", "--endpoint", "http://127.0.0.1:1"], "no run"),
        (["latest", "--endpoint", "localhost:4318"], "endpoint"),
        (["latest", "--endpoint", "http://127.0.0.1:1", "--max-log-age", "old"], "max_log_age"),
        (["latest", "--endpoint", "http://127.0.0.1:1", "--patience", "long"], "--patience"),
        (["a", "b", "--follow", "--endpoint", "http://127.0.0.1:1"], "one folder"),
    ],
)
def test_wrong_use_is_code_2_and_says_what_would_be_right(
    root: Path, arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is sent, and the message names what is wrong."""
    ended_run(root)
    assert push(*arguments) == 2
    assert text in capsys.readouterr().err


def test_a_run_that_sends_itself_is_left_alone(
    root: Path, server: OtlpServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its folder's sender lock is held by another: that is said, and nothing is sent."""
    builder = ended_run(root)
    lock = WriterLock(builder.folder.rank_folder(1, 0), "sender.lock")
    assert lock.acquire()
    try:
        assert push("latest", "--endpoint", server.url) == 0
    finally:
        lock.release()
    assert server.requests == []
    assert "is being sent by another process" in capsys.readouterr().err


def test_a_lost_run_is_ended_in_the_stores_and_a_running_one_is_not(root: Path, server: OtlpServer) -> None:
    """A run without a sign of life gets its end marks with the state lost; one that is being written gets none."""
    lost = RunBuilder(root).attempt()
    states = [Sample("dl.run.state", int(state == "running"), (("state", state),)) for state in ("running", "lost")]
    lost.log({"loss": [1.0, 2.0]}).samples(3.0, states)
    running = RunBuilder(root, "20260131-130000-bbbbbbbb").attempt()
    running.log({"loss": [1.0, 2.0]}).samples(3.0, states)
    writer = WriterLock(running.folder.rank_folder(1, 0))
    assert writer.acquire()
    try:
        assert push(root, "--endpoint", server.url) == 0
    finally:
        writer.release()
    marks = {dict(point.resource)["run_id"] for point in server.points() if point.flags == 1}
    assert marks == {RUN_ID}
    last: dict[tuple[str, str], Any] = {}
    for point in server.points("dl.run.state"):
        if not point.flags:
            last[(str(dict(point.resource)["run_id"]), str(dict(point.attributes)["state"]))] = point.value
    assert last[(RUN_ID, "running")] == 0
    assert last[(RUN_ID, "lost")] == 1


def test_a_cut_last_line_is_counted_and_code_3(
    root: Path, server: OtlpServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """What a kill cut off cannot be sent; everything before it is."""
    ended_run(root).lines("logs", b'{"resourceLogs":[{"resource":{"attr')
    assert push("latest", "--endpoint", server.url, "--json") == 3
    assert account_of(capsys)["runs"][0]["signals"]["logs"]["unreadable"] == 1
    assert len(server.logs()) == 8


@pytest.mark.slow
def test_ctrl_c_keeps_what_was_acknowledged(root: Path, scripts: Any) -> None:
    """Interrupted in the middle: code 130, and the next push sends exactly the rest."""
    ended_run(root)
    arrived = threading.Event()

    def reply(number: int, signal: str, content: Any) -> Reply:
        if signal == "metrics" and number > 3:
            arrived.set()
            return Reply(503)
        return Reply()

    with OtlpServer(reply).start() as server:
        process = subprocess.Popen(
            [*COMMAND, "latest", "--endpoint", server.url, "--batch-size", "2000", "--patience", "60s"],
            env={**os.environ, "PYTHONPATH": str(FOLDER.parent)},
            stderr=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert arrived.wait(30)
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=30)
        assert process.returncode == 130, (output, errors)
        assert "what was acknowledged stays so" in errors
        assert 0 < len(server.values("train.loss")) < 168
        server.reply = lambda number, signal, content: Reply()
        assert push("latest", "--endpoint", server.url) == 0
        assert server.values("train.loss") == [1.0 / (step + 1) for step in range(168)]
        assert server.doubles() == []


# Follow --------------------------------------------------------------------------------------------------------------


class Agent:
    """`otel-train push --follow` as a process."""

    def __init__(self, folder: Path, url: str) -> None:
        self.process = subprocess.Popen(
            [*COMMAND, "--follow", str(folder), "--endpoint", url],
            env={**os.environ, "PYTHONPATH": str(FOLDER.parent)},
            stderr=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

        assert self.process.stderr is not None
        # Its signal handlers are in place by then.
        assert self.process.stderr.readline().startswith("following ")

    def __enter__(self) -> Agent:
        return self

    def __exit__(self, *what: Any) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()

    def end(self) -> tuple[int, str]:
        self.process.send_signal(signal.SIGTERM)
        _, errors = self.process.communicate(timeout=20)
        return self.process.returncode, errors


@pytest.mark.slow
def test_an_agent_follows_a_live_run_and_ends_those_that_died(root: Path, server: OtlpServer, scripts: Any) -> None:
    """Points come while the run is written; after kill -9 the rest and the end marks come, and run.json says lost."""
    root.mkdir()
    with Agent(root, server.url) as agent:
        training = scripts.popen(
            """
            import sys, time, otel_train
            run = otel_train.init()
            for step in range(100):
                run.log({"loss": float(step)}, step=step)
                time.sleep(0.0011)  # a store keeps one point of a series for each millisecond
            run.flush()
            print(run.id, flush=True)
            sys.stdin.readline()
            """,
            stdin=subprocess.PIPE,
        )
        run_id = training.stdout.readline().strip()
        server.wait_for(lambda: len(server.values("train.loss")) >= 99, 30)
        assert not [point for point in server.points() if point.flags]
        training.kill()
        scripts.end(training)
        server.wait_for(lambda: [point for point in server.points("train.loss") if point.flags], 30)
        assert server.values("train.loss") == [float(step) for step in range(100)]
        assert RunFolder(root / run_id).read()["status"] == "lost"
        code, errors = agent.end()
    assert code == 0, errors
    assert f"{run_id} is lost" in errors
    assert f"{run_id}: attempt 1 rank 0 is sent" in errors
    assert server.doubles() == []


@pytest.mark.slow
def test_an_agent_sends_runs_that_ended_before_it_and_new_ones(root: Path, server: OtlpServer) -> None:
    """An old run is sent at its start; one that is put there later is found; SIGTERM ends it with code 0."""
    ended_run(root)
    with Agent(root, server.url) as agent:
        server.wait_for(lambda: len(server.values("train.loss")) == 168, 30)
        ended_run(root, run_id="20260131-130000-bbbbbbbb", points=40)
        server.wait_for(lambda: len(server.values("train.loss")) == 208, 30)
        server.wait_for(lambda: len([p for p in server.points("train.loss") if p.flags]) == 2, 30)
        code, errors = agent.end()
    assert code == 0, errors
    assert server.doubles() == []


@pytest.mark.slow
def test_an_agent_that_is_ended_goes_on_where_it_stood(root: Path, server: OtlpServer) -> None:
    """A second agent sends nothing of what the first has sent."""
    ended_run(root)
    for _ in range(2):
        with Agent(root, server.url) as agent:
            server.wait_for(lambda: [point for point in server.points("train.loss") if point.flags], 30)
            time.sleep(0.5)  # what must not come: anything after the end marks
            assert agent.end()[0] == 0
    assert server.values("train.loss") == [1.0 / (step + 1) for step in range(168)]
    assert server.doubles() == []


def test_following_one_run_ends_when_it_is_sent(root: Path, server: OtlpServer) -> None:
    """A run's own folder: the command ends by itself with code 0."""
    builder = ended_run(root)
    assert push("--follow", builder.path, "--endpoint", server.url, "--quiet") == 0
    assert len(server.values("train.loss")) == 168


@pytest.mark.skipif(os.name != "posix", reason="has no limit of open files")
def test_a_run_of_more_ranks_than_a_process_may_open_files_is_sent_whole(root: Path, scripts: Any) -> None:
    """Its soft limit of 64 files is lifted for 100 ranks: each is sent, and the code is 0."""
    builder = ended_run(root, points=1)
    for rank in range(1, 100):
        builder.log({"loss": [float(rank)]}, rank=rank)
    with OtlpServer().start() as server:
        script = scripts(
            f"""
            import resource
            resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
            from otel_train.cli.main import main
            raise SystemExit(main(["push", {str(builder.path)!r}, "--endpoint", {server.url!r}]))
            """
        )
        assert script.code == 0, script.errors
        assert sorted(server.values("train.loss")) == [1.0, *map(float, range(1, 100))]


def test_records_carry_their_attributes_through_the_push(root: Path, server: OtlpServer) -> None:
    """What arrives is what the run log holds, not only as many."""
    ended_run(root)
    push("latest", "--endpoint", server.url)
    record = recorded(root / RUN_ID)
    sent = {(item["body"]["stringValue"], int(item["timeUnixNano"])) for item in server.logs()}
    assert sent == {(log.body, log.entry.time_ns) for log in record.logs}
    (end,) = [item for item in server.logs() if item.get("eventName") == "run.end"]
    assert ("status", "finished") in attributes_of(end)
