"""What a run sends while it goes on and at its end, against real servers that refuse, reset, hang or are not there."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import otel_train
from otel_train.errors import ConfigError
from otel_train.export.accounting import SENT
from otel_train.runlog.lock import is_locked
from otel_train.runlog.reader import RunReader
from otel_train.runlog.status import run_status
from otel_train.testing import recorded
from tests.otlp_server import BlackHole, OtlpServer, Reply, free_port
from tests.scripts import Scripts, own_threads

Start = Callable[..., Any]


@pytest.fixture
def server() -> Iterator[OtlpServer]:
    with OtlpServer().start() as made:
        yield made


def end_line(text: str) -> str:
    """Return the one line that a run says at its end."""
    (line,) = [line for line in text.splitlines() if line.startswith("otel-train: run ")]
    return line


def test_a_run_arrives_whole_and_once_while_it_goes_on_and_at_its_end(
    start: Start, server: OtlpServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """Points come behind the writer, the rest with the end: each point, record and span once, and the line says so."""
    run = start(endpoint=server.url)
    for step in range(100):
        run.log({"loss": 1.0 / (step + 1)}, step=step)
        time.sleep(0.0011)  # two points of a series within a millisecond are one for the store
    server.wait_for(lambda: len(server.values("train.loss")) >= 99)
    for step in range(100, 150):
        run.log({"loss": 1.0 / (step + 1)}, step=step)
        time.sleep(0.0011)  # a store keeps one point of a series for each millisecond
    run.finish()
    assert server.values("train.loss") == [1.0 / (step + 1) for step in range(150)]
    assert server.doubles() == []
    record = recorded(run)
    texts = Counter(log.body if isinstance(log.body, str) else "" for log in record.logs)
    assert Counter(server.bodies()) == texts
    assert {span["spanId"] for span in server.spans()} == {f"{span.entry.span_id:016x}" for span in record.spans}
    assert "all sent" in end_line(capsys.readouterr().err)
    assert is_locked(run.path / "attempt-1" / "rank-0", "sender.lock") is False


@pytest.mark.slow
def test_without_an_endpoint_nothing_is_sent_and_nothing_of_the_network_is_loaded(scripts: Scripts) -> None:
    """The parts that send are not even imported, and the end line says nothing of sending."""
    script = scripts(
        """
        import sys, otel_train
        with otel_train.init() as run:
            run.log({"loss": 1.0})
        print([name for name in sys.modules if name.startswith("otel_train.export") or name == "urllib3"])
        """
    )
    assert script.output.strip() == "[]"
    assert "sent" not in end_line(script.errors)


def test_sender_none_sends_nothing_although_an_endpoint_is_set(start: Start, server: OtlpServer) -> None:
    """The run log alone is written, for `otel-train push` later."""
    with start(endpoint=server.url, sender="none") as run:
        run.log({"loss": 1.0})
    assert server.requests == []
    assert recorded(run).values("loss") == [1.0]


def test_a_disabled_run_sends_nothing(root: Path, server: OtlpServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """OTEL_SDK_DISABLED wins over an endpoint."""
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.url)
    with otel_train.init() as run:
        run.log({"loss": 1.0})
    assert server.requests == []


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"endpoint": "localhost:4318"}, "endpoint"),
        ({"sender": "threads"}, "sender"),
        ({"max_log_age": "a week"}, "max_log_age"),
        ({"max_log_age": 0}, "max_log_age"),
    ],
)
def test_wrong_settings_of_sending_are_told_at_init_before_anything_is_made(
    root: Path, arguments: dict[str, Any], field: str
) -> None:
    """The error names the argument, and no run's folder is left behind."""
    with pytest.raises(ConfigError, match=field):
        otel_train.init(**arguments)
    assert not root.exists()


def test_a_wrong_header_variable_is_told_at_init_before_anything_is_made(
    root: Path, server: OtlpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What OTLP's own variables say wrong is told like our settings."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.url)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "carrier-pigeon")
    with pytest.raises(ConfigError, match="OTEL_EXPORTER_OTLP_PROTOCOL"):
        otel_train.init()
    assert not root.exists()


@pytest.mark.alone
def test_an_endpoint_that_answers_503_for_a_while_costs_nothing(start: Start, server: OtlpServer) -> None:
    """197 steps, the server overloaded for those from 50 to 80: all in the run log, and each received once."""
    overloaded = False
    server.reply = lambda number, signal, content: Reply(503) if overloaded else Reply()
    run = start(endpoint=server.url, flush_interval_s=0.02)
    slowest_s = 0.0
    for step in range(197):
        if step in (50, 80):
            overloaded = step == 50
            run.flush()
        begun_s = time.perf_counter()
        run.log({"loss": float(step)}, step=step)
        slowest_s = max(slowest_s, time.perf_counter() - begun_s)
        time.sleep(0.003)  # so that the outage covers steps, not one moment
        if overloaded and step == 79:
            server.wait_for(lambda: ("metrics", 503) in server.requests)
    run.finish()
    assert recorded(run).values("loss") == [float(step) for step in range(197)]
    assert server.values("train.loss") == [float(step) for step in range(197)]
    assert server.doubles() == []
    assert slowest_s < 0.05


@pytest.mark.slow
def test_an_endpoint_that_refuses_connections_at_init_changes_nothing_for_training(
    scripts: Scripts, root: Path
) -> None:
    """Exit code 0, 197 steps in the run log, few lines of warning, and the end line says what to do."""
    port = free_port()
    script = scripts(
        """
        import otel_train
        with otel_train.init(finish_timeout_s=1) as run:
            for step in range(197):
                run.log({"loss": float(step)}, step=step)
        """,
        env={"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}"},
    )
    assert script.code == 0
    assert recorded(script.path).values("loss") == [float(step) for step in range(197)]
    line = end_line(script.errors)
    assert "items not sent" in line
    assert f"otel-train push {script.path.name}" in line
    assert len(script.errors.splitlines()) <= 4


def test_reset_connections_are_tried_again(start: Start, server: OtlpServer) -> None:
    """The first two requests are reset: 300 points arrive once each, in their order."""
    server.reply = lambda number, signal, content: Reply(reset=number < 2)
    run = start(endpoint=server.url)
    for step in range(300):
        run.log({"loss": float(step)}, step=step)
        time.sleep(0.0011)  # a store keeps one point of a series for each millisecond
    run.finish()
    assert server.requests[:2] != []
    assert server.values("train.loss") == [float(step) for step in range(300)]
    assert server.doubles() == []


@pytest.mark.slow
def test_an_endpoint_that_comes_up_later_gets_everything_without_a_restart(start: Start) -> None:
    """The port is closed for the first seconds: 300 points arrive once each, in their order."""
    port = free_port()
    run = start(endpoint=f"http://127.0.0.1:{port}")
    for step in range(300):
        run.log({"loss": float(step)}, step=step)
        time.sleep(0.0011)  # a store keeps one point of a series for each millisecond
    run.flush()
    time.sleep(2.0)  # the port stays closed over several tries
    with OtlpServer().start(port) as server:
        server.wait_for(lambda: len(server.values("train.loss")) >= 299)
        run.finish()
        assert server.values("train.loss") == [float(step) for step in range(300)]
        assert server.doubles() == []


@pytest.mark.slow
@pytest.mark.alone
def test_a_black_hole_takes_five_seconds_in_all_and_the_line_says_what_is_left(scripts: Scripts) -> None:
    """3,000 items of three signals: the run log is whole, and the process ends five seconds after finish()."""
    with BlackHole() as hole:
        script = scripts(
            """
            import logging, time, otel_train
            from opentelemetry import trace
            run = otel_train.init(flood_per_s=100000, step_span_every=10**6)
            logger = logging.getLogger("training")
            logger.setLevel("INFO")
            for number in range(1000):
                run.log({"loss": float(number)}, step=number)
                logger.info("record %d of many", number)
                with trace.get_tracer("training").start_as_current_span("work"):
                    pass
                time.sleep(0.0011)  # a store keeps one point of a series for each millisecond
            begun = time.perf_counter()
            run.finish()
            print(time.perf_counter() - begun, time.time())
            """,
            env={"OTEL_EXPORTER_OTLP_ENDPOINT": hole.url},
        )
        ended_s = time.time()
    finish_s, finished_s = map(float, script.output.split())
    assert script.code == 0
    assert 4.0 < finish_s < 5.7
    assert ended_s - finished_s < 1.0
    record = recorded(script.path)
    assert len(record.values("loss")) == 1000
    assert sum(log.event == "" and "of many" in str(log.body) for log in record.logs) == 1000
    assert sum(span.name == "work" for span in record.spans) == 1000
    line = end_line(script.errors)
    (count,) = [words for words in line.split(";") if "items not sent" in words]
    assert int(count.split()[0].replace(",", "")) == items_of(script.path)
    assert f"otel-train push {script.path.name}" in line


def items_of(path: Path) -> int:
    """Count every point, siblings too, record and span of a run log."""
    reader = RunReader(path)
    points = sum(len(series.times_ns) for series, _ in reader.series())
    return points + sum(1 for _ in reader.logs()) + sum(1 for _ in reader.spans())


@pytest.mark.slow
def test_a_killed_training_with_a_process_for_sending_loses_nothing_that_was_flushed(
    scripts: Scripts, server: OtlpServer
) -> None:
    """After kill -9 the last flushed items arrive, the series end with the state lost, and so does run.json."""
    process = scripts.popen(
        """
        import time, otel_train
        run = otel_train.init(sender="process")
        for step in range(200):
            run.log({"loss": float(step)}, step=step)
            time.sleep(0.0011)  # a store keeps one point of a series for each millisecond
        run.flush()
        print("flushed", flush=True)
        time.sleep(60)  # until it is killed
        """,
        env={"OTEL_EXPORTER_OTLP_ENDPOINT": server.url},
    )
    assert process.stdout.readline() == "flushed\n"
    os.kill(process.pid, signal.SIGKILL)
    script = scripts.end(process)
    assert script.code == -signal.SIGKILL

    def marked() -> bool:
        return any(point.flags == 1 for point in server.points("train.loss"))

    server.wait_for(marked, 30)
    rank = script.path / "attempt-1" / "rank-0"
    server.wait_for(lambda: is_locked(rank, "sender.lock") is False, 30)
    assert server.values("train.loss") == [float(step) for step in range(200)]
    assert server.doubles() == []
    states = {
        dict(point.attributes)["state"]: point.value for point in server.points("dl.run.state") if not point.flags
    }
    assert states["running"] == 0
    assert states["lost"] == 1
    info = recorded(script.path).info
    assert info["status"] == info["attempts"][-1]["status"] == "lost"
    assert run_status(script.path, time.time_ns()).state == "lost"


@pytest.mark.slow
def test_a_process_for_sending_ends_with_its_run(scripts: Scripts, server: OtlpServer) -> None:
    """finish() waits for it within its five seconds, everything has arrived then, and no process is left."""
    script = scripts(
        """
        import otel_train, time
        with otel_train.init(sender="process") as run:
            for step in range(50):
                run.log({"loss": float(step)}, step=step)
                time.sleep(0.0011)  # a store keeps one point of a series for each millisecond
        """,
        env={"OTEL_EXPORTER_OTLP_ENDPOINT": server.url},
    )
    assert script.code == 0
    assert server.values("train.loss") == [float(step) for step in range(50)]
    assert "all sent" in end_line(script.errors)
    assert is_locked(script.path / "attempt-1" / "rank-0", "sender.lock") is False


def test_the_sender_accounts_for_itself_in_the_run_log(start: Start, server: OtlpServer) -> None:
    """Each heartbeat says how many items were sent and how many bytes wait; what is said is sent like anything else."""
    run = start(endpoint=server.url)
    run.log({"loss": 1.0})
    run.flush()
    server.wait_for(lambda: server.values("train.loss") or server.logs())
    run.finish()
    record = recorded(run)
    sent = [point.value for point in record.points if point.name == "otel_train.export.items"]
    assert sent
    assert all(count > 0 for count in sent)
    assert [point.value for point in record.points if point.name == "otel_train.export.queue"][-1] >= 0


@pytest.mark.slow
def test_a_quiet_run_does_not_feed_itself(start: Start, server: OtlpServer) -> None:
    """Nothing is logged for three seconds: nothing is written either, though root logs debug records of urllib3."""
    import logging

    root_logger = logging.getLogger()
    level = root_logger.level
    root_logger.setLevel(logging.DEBUG)
    try:
        run = start(endpoint=server.url)
        run.log({"loss": 1.0})
        run.flush()
        server.wait_for(lambda: server.logs())
        time.sleep(1.2)  # more than two cycles of the writer: what was to be written is
        before = (sum(path.stat().st_size for path in run.path.rglob("*.jsonl")), len(server.requests))
        time.sleep(3.0)  # what must not happen: growth within several cycles
        assert (sum(path.stat().st_size for path in run.path.rglob("*.jsonl")), len(server.requests)) == before
    finally:
        root_logger.setLevel(level)
        run.finish()


def test_what_is_said_of_a_refusal_is_not_sent_itself(
    start: Start, server: OtlpServer, caplog: pytest.LogCaptureFixture
) -> None:
    """The server refuses each log record: that is told to the user, and is no record of the run."""
    server.reply = lambda number, signal, content: Reply(400, {"message": "too old"}) if signal == "logs" else Reply()
    run = start(endpoint=server.url)
    run.log({"loss": 1.0})
    run.flush()
    server.wait_for(lambda: any("refused" in record.getMessage() for record in caplog.records))
    run.finish()
    record = recorded(run)
    assert not [log for log in record.logs if "refused" in str(log.body)]
    assert server.values("train.loss") == [1.0]


def test_a_full_disk_has_the_network_take_what_no_file_takes(
    start: Start, server: OtlpServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """From the third write on the disk is full: every point arrives, and the end line says what is only there."""
    import errno

    from otel_train.runlog import segments

    real, full = os.write, False

    def write(descriptor: int, data: bytes) -> int:
        if full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(descriptor, data)

    original = segments.SegmentWriter.__init__

    def init(self: Any, *arguments: Any, **options: Any) -> None:
        original(self, *arguments, **{**options, "write": write})

    monkeypatch.setattr(segments.SegmentWriter, "__init__", init)
    run = start(endpoint=server.url)
    for step in range(40):
        if step == 20:
            run.flush()
            full = True
        run.log({"loss": float(step)}, step=step)
        time.sleep(0.0011)  # a store keeps one point of a series for each millisecond
    run.finish()
    assert server.values("train.loss") == [float(step) for step in range(40)]
    assert server.doubles() == []
    line = end_line(capsys.readouterr().err)
    assert "nothing dropped" in line
    assert "sent from memory alone" in line


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_forked_child_sends_nothing_and_the_parent_goes_on(start: Start, server: OtlpServer) -> None:
    """The child leaves at once, whatever it logs; the parent's points arrive once each."""
    run = start(endpoint=server.url)
    for step in range(20):
        run.log({"loss": float(step)}, step=step)
        time.sleep(0.0011)  # a store keeps one point of a series for each millisecond
    child = os.fork()
    if child == 0:
        run.log({"loss": -1.0}, step=99)
        run.finish()
        os._exit(7 if own_threads() else 0)
    assert os.waitpid(child, 0)[1] == 0
    for step in range(20, 40):
        run.log({"loss": float(step)}, step=step)
        time.sleep(0.0011)  # a store keeps one point of a series for each millisecond
    run.finish()
    assert server.values("train.loss") == [float(step) for step in range(40)]
    assert server.doubles() == []


def test_one_signal_that_is_refused_for_good_holds_up_no_other(start: Start, server: OtlpServer) -> None:
    """Logs get 503 all the time, as behind a Collector without Loki: metrics and traces arrive all the same."""
    server.reply = lambda number, signal, content: Reply(503 if signal == "logs" else 200)
    run = start(endpoint=server.url, finish_timeout_s=1.0)
    for step in range(30):
        run.log({"loss": float(step)}, step=step)
        time.sleep(0.0011)  # a store keeps one point of a series for each millisecond
    run.flush()
    server.wait_for(lambda: len(server.values("train.loss")) >= 29 and server.spans())
    sender = run.session.sending._sender
    assert sender is not None
    server.wait_for(lambda: sender.accounting.items(SENT, "metrics") > 0 and set(sender.faults()) == {"logs"})
    run.finish()
    assert server.logs() == []
    assert server.values("train.loss") == [float(step) for step in range(30)]


@pytest.mark.slow
def test_a_resumed_run_sends_what_its_killed_attempt_left(scripts: Scripts, server: OtlpServer) -> None:
    """Attempt 1 died before anything was sent: attempt 2 sends its points too, and ends its series."""
    killed = scripts(
        """
        import os, time, otel_train
        run = otel_train.init(sender="none")
        for step in range(30):
            run.log({"loss": float(step)}, step=step)
            time.sleep(0.0011)  # a store keeps one point of a series for each millisecond
        run.flush()
        print(run.id, flush=True)
        os._exit(9)
        """
    )
    assert killed.code == 9
    resumed = scripts(
        """
        import sys, time, otel_train
        with otel_train.init(resume=sys.argv[1]) as run:
            for step in range(30, 40):
                run.log({"loss": float(step)}, step=step)
                time.sleep(0.0011)  # a store keeps one point of a series for each millisecond
        """,
        killed.output.strip(),
        env={"OTEL_EXPORTER_OTLP_ENDPOINT": server.url},
    )
    assert resumed.code == 0
    found: dict[str, list[float]] = {"1": [], "2": []}
    for point in server.points("train.loss"):
        if not point.flags:
            found[str(dict(point.resource)["run_attempt"])].append(point.value)
    assert found == {"1": [float(step) for step in range(30)], "2": [float(step) for step in range(30, 40)]}
    marked = [str(dict(point.resource)["run_attempt"]) for point in server.points("train.loss") if point.flags]
    assert sorted(marked) == ["1", "2"]
    assert "all sent" in end_line(resumed.errors)


@pytest.mark.slow
def test_a_process_for_sending_that_dies_is_replaced_by_a_thread(start: Start, server: OtlpServer) -> None:
    """Killed from outside: the run goes on to be sent, and nothing is missing at its end."""
    run = start(endpoint=server.url, sender="process")
    for step in range(20):
        run.log({"loss": float(step)}, step=step)
        time.sleep(0.0011)  # a store keeps one point of a series for each millisecond
    run.flush()
    server.wait_for(lambda: len(server.values("train.loss")) >= 19)
    process = run.session.sending._process
    assert process is not None
    os.kill(process.pid, signal.SIGKILL)
    server.wait_for(lambda: run.session.sending._sender)
    for step in range(20, 40):
        run.log({"loss": float(step)}, step=step)
        time.sleep(0.0011)  # a store keeps one point of a series for each millisecond
    run.finish()
    # What it had not noted as acknowledged is sent twice at worst.
    assert list(dict.fromkeys(server.values("train.loss"))) == [float(step) for step in range(40)]


def test_two_runs_of_a_process_one_after_the_other_end_each_in_the_stores(start: Start, server: OtlpServer) -> None:
    """Run A ends and the process lives on with run B: A's series are ended at once, B's are not."""
    first = start(endpoint=server.url)
    first.log({"loss": 1.0})
    first.finish()
    second = start(endpoint=server.url)
    for value in (2.0, 1.5):
        second.log({"loss": value})
        time.sleep(0.0011)  # the newest of a series waits for the next
    second.flush()
    server.wait_for(lambda: any(dict(point.resource)["run_id"] == second.id for point in server.points()))
    marked = {dict(point.resource)["run_id"] for point in server.points() if point.flags == 1}
    assert marked == {first.id}
    states = {
        dict(point.attributes)["state"]: point.value
        for point in server.points("dl.run.state")
        if dict(point.resource)["run_id"] == first.id and not point.flags
    }
    assert {state for state, value in states.items() if value} == {"finished"}
    second.finish()
