"""The sender's parts by themselves: lanes, folders, the ring, what is told and how often, what is counted."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from otel_train.clock import NS_PER_S, SYSTEM, mono_ns
from otel_train.export.accounting import ADDED, MERGED, REFUSED, SENT, UNWRITTEN, ExportAccounting
from otel_train.export.delivery import Delivered, Request
from otel_train.export.destination import Destinations
from otel_train.export.follow import Follower
from otel_train.export.lane import Lane
from otel_train.export.rank_ends import rank_ends
from otel_train.export.rank_source import RankSource
from otel_train.export.sender import Quiet, Sender
from otel_train.otlp.encode import PREFIXES, SUFFIX
from otel_train.record.entries import Column, Sample
from otel_train.runlog.lock import WriterLock, is_locked
from otel_train.runlog.lost import mark_lost
from otel_train.runlog.ring import LineRing
from otel_train.runlog.sender_log import MOST_BYTES, SenderLog
from otel_train.runlog.status import run_status
from otel_train.semconv import SIGNAL
from otel_train.testing import ManualClock
from tests.otlp_server import OtlpServer, free_port
from tests.runs import START_NS, RunBuilder

SIGNALS = ("metrics", "logs", "traces")


class FakeDelivery:
    """Answers as it is told; `answers` are taken in turn, and then everything is accepted."""

    def __init__(self, *answers: Delivered | Exception) -> None:
        self.fault = ""
        self.requests: list[Request] = []
        self.closed = False
        self._answers = list(answers)

    def send(self, request: Request, *, stop: threading.Event, deadline_ns: int | None = None) -> Delivered:
        self.requests.append(request)
        if self._answers:
            answer = self._answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer
        return Delivered(accepted=request.items, finished=True)

    def close(self) -> None:
        self.closed = True


def deliveries(**special: FakeDelivery) -> dict[str, FakeDelivery]:
    return {signal: special.get(signal, FakeDelivery()) for signal in SIGNALS}


def sender_of(found: Mapping[str, FakeDelivery], **options: Any) -> Sender:
    made: Any = dict(found)
    return Sender(made, **options)


def a_run(root: Path) -> RunBuilder:
    """Three points, two records and a span."""
    builder = RunBuilder(root).attempt().log({"loss": [3.0, 2.0, 1.0]})
    return builder.record("one").record("two", at_s=2.0).span("step", 1.0, 2.0)


def open_source(builder: RunBuilder, **options: Any) -> RankSource:
    source = RankSource.open(builder.folder.rank_folder(1, 0), dict.fromkeys(SIGNALS, "http://here"), **options)
    assert source is not None
    return source


def ended_by(seconds: float = 10.0) -> int:
    return mono_ns() + round(seconds * NS_PER_S)


@pytest.fixture
def until() -> Callable[[Callable[[], Any]], Any]:
    """Wait until something is true."""

    def wait(what: Callable[[], Any]) -> Any:
        until_ns = ended_by()
        while not (found := what()):
            assert mono_ns() < until_ns, "it did not come"
            threading.Event().wait(0.005)
        return found

    return wait


@pytest.fixture
def server() -> Iterator[OtlpServer]:
    with OtlpServer().start() as made:
        yield made


# Sender and lanes ----------------------------------------------------------------------------------------------------


def test_everything_of_an_ended_folder_is_sent_and_the_folder_given_back(root: Path) -> None:
    """Each signal goes to its own delivery, the account says how many, and the lock is free after the end."""
    builder = a_run(root)
    found = deliveries()
    sender = sender_of(found)
    source = open_source(builder, ended=True)
    sender.add(source)
    sender.start()
    assert sender.end(ended_by()) is True
    assert [sender.accounting.items(SENT, signal) for signal in SIGNALS] == [4, 2, 1]
    assert sender.accounting.items(ADDED) == 1
    assert all(delivery.closed for delivery in found.values())
    assert is_locked(source.feed.folder, "sender.lock") is False
    assert sender.queued_bytes == 0


def test_what_is_written_later_is_sent_when_the_sender_is_woken(
    root: Path, until: Callable[[Callable[[], Any]], Any]
) -> None:
    """A folder that goes on: points come as they are written, but each series' newest waits for the next."""
    builder = a_run(root)
    sender = sender_of(deliveries())
    sender.add(open_source(builder, final_state="running"))
    sender.start()
    until(lambda: sender.accounting.items(SENT, "metrics") == 2)
    builder.log({"loss": [0.5]}, times_s=[10.0])
    sender.wake()
    until(lambda: sender.accounting.items(SENT, "metrics") == 3)
    assert sender.end(ended_by())
    assert sender.accounting.items(SENT, "metrics") == 5


def test_an_end_that_comes_in_the_midst_of_a_turn_is_sent(root: Path) -> None:
    """The turn has found nothing new when the end is said: the held point and the end marks come all the same."""
    source = open_source(a_run(root), final_state="running")
    accounting = ExportAccounting()

    class Ends:
        """The folder, whose run ends right after the first look that finds nothing."""

        def __getattr__(self, name: str) -> Any:
            return getattr(source, name)

        def take(self, signal: str) -> Any:
            batch = source.take(signal)
            if batch is None and not source.ended:
                source.ended = True
                lane.end(ended_by())
            return batch

    sources: Any = (Ends(),)
    delivery: Any = FakeDelivery()
    lane = Lane("metrics", delivery, lambda: sources, accounting, clock=SYSTEM, say=lambda key, text: None)
    lane.start()
    assert lane.finished.wait(10.0)
    assert source.done == {"metrics"}
    assert (accounting.items(SENT, "metrics"), accounting.items(ADDED, "metrics")) == (4, 1)
    source.close()


def test_a_signal_without_an_endpoint_counts_as_sent(root: Path) -> None:
    """Only metrics have somewhere to go: the run is complete when they are there."""
    sender = sender_of({"metrics": FakeDelivery()})
    sender.add(open_source(a_run(root), ended=True))
    sender.start()
    assert sender.end(ended_by()) is True


def test_a_delivery_that_gives_up_is_asked_again_with_the_same_batch(root: Path) -> None:
    """Nothing counts until it is acknowledged, and then once."""
    logs = FakeDelivery(Delivered(fault="503", retries=2), Delivered(fault="503", retries=1))
    sender = sender_of(deliveries(logs=logs))
    sender.add(open_source(a_run(root), ended=True))
    sender.start()
    assert sender.end(ended_by()) is True
    assert len(logs.requests) == 3
    assert len({request.parts for request in logs.requests}) == 1
    assert sender.accounting.items(SENT, "logs") == 2
    assert Sample("otel_train.export.retries", 3, ((SIGNAL, "logs"),)) in sender.samples()


def test_patience_ends_a_signal_and_no_other(root: Path) -> None:
    """With patience a server that does not answer costs its own signal, and why is known."""
    logs = FakeDelivery(Delivered(fault="connection refused"))
    sender = sender_of(deliveries(logs=logs), gives_up=True)
    source = open_source(a_run(root), ended=True)
    sender.add(source)
    sender.start(ending=True)
    assert sender.wait(ended_by())
    sender.stop()
    assert sender.faults() == {"logs": "connection refused"}
    assert sender.accounting.items(SENT, "metrics") == 4
    assert source.done == {"metrics", "traces"}
    assert sender.left_items(ended_by()) == (2, True)


def test_refused_items_are_counted_explained_and_told_once(root: Path) -> None:
    """Two of three refusals within a minute are told of as one."""
    told: list[str] = []
    logs = FakeDelivery(Delivered(accepted=1, refused=1, reasons={"too old": 1}, finished=True))
    sender = sender_of(deliveries(logs=logs), tell=told.append)
    sender.add(open_source(a_run(root), ended=True))
    sender.start()
    assert sender.end(ended_by()) is True
    assert sender.accounting.items(REFUSED, "logs") == 1
    assert sender.accounting.reasons() == {"too old": 1}
    assert told == ["1 items of the logs were refused and are not sent again: too old (1)"]


def test_a_fault_of_ours_is_told_and_sending_goes_on(root: Path) -> None:
    """An exception on the sender's thread costs one turn."""
    told: list[str] = []
    logs = FakeDelivery(RuntimeError("our fault"))
    sender = sender_of(deliveries(logs=logs), tell=told.append)
    sender.add(open_source(a_run(root), ended=True))
    sender.start()
    assert sender.end(ended_by()) is True
    assert told == ["sending logs: RuntimeError: our fault; it goes on"]
    assert sender.accounting.items(SENT, "logs") == 2


def test_a_fault_that_stays_ends_a_lane_that_somebody_waits_for(root: Path) -> None:
    """A push does not hang on a fault of ours: after five turns it gives up and says why."""
    logs = FakeDelivery(*[RuntimeError("our fault")] * 50)
    sender = sender_of(deliveries(logs=logs), tell=lambda text: None, gives_up=True)
    sender.add(open_source(a_run(root), ended=True))
    sender.start(ending=True)
    assert sender.wait(ended_by())
    sender.stop()
    assert sender.faults() == {"logs": "RuntimeError: our fault"}
    assert len(logs.requests) == 5


def test_the_end_comes_by_its_deadline_whatever_hangs(root: Path) -> None:
    """A delivery that never returns: `end` is back in time, and its later answer does not count."""
    release = threading.Event()

    class Hanging(FakeDelivery):
        def send(self, request: Request, *, stop: threading.Event, deadline_ns: int | None = None) -> Delivered:
            release.wait(20)
            return Delivered(accepted=request.items, finished=True)

    sender = sender_of(deliveries(logs=Hanging()))
    source = open_source(a_run(root), ended=True)
    sender.add(source)
    sender.start()
    begun_ns = mono_ns()
    assert sender.end(ended_by(0.5)) is False
    assert 0.4 < (mono_ns() - begun_ns) / NS_PER_S < 1.5
    release.set()
    assert sender.wait(ended_by())
    again = open_source(a_run_there(root))
    assert again.feed.counts("logs").sent == 0
    assert again.feed.counts("metrics").sent == 4
    again.close()


def a_run_there(root: Path) -> RunBuilder:
    """Return the builder of the run that `a_run` has made, without making it again."""
    from otel_train.runlog.folder import RunFolder
    from tests.runs import RUN_ID

    builder = RunBuilder.__new__(RunBuilder)
    builder.run_id, builder.folder, builder.path = RUN_ID, RunFolder(root / RUN_ID), root / RUN_ID
    return builder


def test_an_abandoned_sender_touches_nothing(root: Path) -> None:
    """As a forked child does it: no request, no position, no lock given back for the parent."""
    found = deliveries()
    sender = sender_of(found)
    source = open_source(a_run(root), ended=True)
    sender.add(source)
    sender.abandon()
    assert sender.sources == ()
    assert source.take("metrics") is None
    assert not any(delivery.requests for delivery in found.values())
    assert not (source.feed.folder / "sent.json").exists()


# One folder ----------------------------------------------------------------------------------------------------------


def test_a_folder_has_one_sender_at_a_time(root: Path) -> None:
    """The second finds it taken; after the first has closed it, it is free."""
    builder = a_run(root)
    first = open_source(builder)
    endpoints = dict.fromkeys(SIGNALS, "http://here")
    assert RankSource.open(builder.folder.rank_folder(1, 0), endpoints) is None
    first.close()
    open_source(builder).close()


def unwritten(builder: RunBuilder, *points: tuple[float, float]) -> bytes:
    """A line of training losses, by second and value, that is on no disk."""
    times = [START_NS + round(at_s * NS_PER_S) for at_s, _ in points]
    column = Column("train.loss", times, [value for _, value in points], (("split", "train"),), description="loss")
    return builder.encoder(1, 0).points([column])


def sent_points(delivery: FakeDelivery) -> list[tuple[int, Any]]:
    """Millisecond since the start and value of every point that was delivered, in order; `end` for an end mark."""
    found = []
    for request in delivery.requests:
        document = json.loads(PREFIXES["metrics"] + b",".join(request.parts) + SUFFIX)
        for block in document["resourceMetrics"]:
            for metric in block["scopeMetrics"][0]["metrics"]:
                for point in metric["gauge"]["dataPoints"]:
                    ms = (int(point["timeUnixNano"]) - START_NS) // 1_000_000
                    found.append((ms, point.get("asDouble", "end")))
    return found


def test_what_the_disk_does_not_take_waits_for_it_five_seconds_and_then_is_sent(root: Path) -> None:
    """A short fault stays a matter of the disk; a long one hands the lines to the network in order."""
    clock = ManualClock()
    ring = LineRing()
    builder = RunBuilder(root).attempt()
    other = RunBuilder(root, "20260131-130000-bbbbbbbb").attempt().record("first").record("second")
    source = open_source(builder, ring=ring, clock=clock)
    for line in (other.folder.rank_folder(1, 0) / "logs.000001.jsonl").read_bytes().splitlines(keepends=True):
        ring.append("logs", line, 1)
    assert source.take("logs") is None
    clock.advance(4.9)
    assert source.take("logs") is None
    assert ring.items("logs") == 2
    clock.advance(0.2)
    batch = source.take("logs")
    assert batch is not None
    assert (batch.items, batch.unwritten, ring.items("logs")) == (2, 2, 0)
    assert b"first" in batch.parts[0]
    assert b"second" in batch.parts[1]
    assert source.take("logs") is batch
    source.close()
    assert ring.items("logs") == 2, "what was not acknowledged counts as lost"


def test_lines_in_memory_are_sent_at_the_end_and_counted_apart(root: Path) -> None:
    """Three points on disk and two that never got there: five arrive, then one end mark, two from memory alone."""
    builder = a_run(root)
    ring = LineRing()
    metrics = FakeDelivery()
    sender = sender_of(deliveries(metrics=metrics))
    ring.append("metrics", unwritten(builder, (11.0, 7.0), (12.0, 8.0)), 2)
    sender.add(open_source(builder, ring=ring, ended=True))
    sender.start()
    assert sender.end(ended_by()) is True
    points = [(1000, 3.0), (2000, 2.0), (3000, 1.0), (11_000, 7.0), (12_000, 8.0), (12_001, "end")]
    assert sent_points(metrics) == points
    assert sender.accounting.items(UNWRITTEN, "metrics") == 2
    assert ring.items("metrics") == 0


def test_lines_in_memory_are_merged_with_each_other_and_with_those_on_disk(root: Path) -> None:
    """Of one millisecond the last value is sent, once, though the first stands on disk and two only in memory."""
    builder = a_run(root)  # its last point: 1.0 at 3.0 s
    ring = LineRing()
    metrics = FakeDelivery()
    sender = sender_of(deliveries(metrics=metrics))
    ring.append("metrics", unwritten(builder, (3.0002, 5.0), (3.0004, 6.0), (4.0, 7.0)), 3)
    ring.append("metrics", unwritten(builder, (4.0003, 8.0), (2.0001, 9.0)), 2)
    sender.add(open_source(builder, ring=ring, ended=True))
    sender.start()
    assert sender.end(ended_by()) is True
    assert sorted(sent_points(metrics)) == [(1000, 3.0), (2000, 2.0), (3000, 6.0), (4000, 8.0), (4001, "end")]
    assert sender.accounting.items(MERGED, "metrics") == 4


def test_records_in_memory_are_fitted_like_those_on_disk(root: Path) -> None:
    """An attribute too large for a store is cut, also where the disk was full."""
    builder = RunBuilder(root).attempt()
    ring = LineRing()
    logs = FakeDelivery()
    sender = sender_of(deliveries(logs=logs))
    other = RunBuilder(root, "20260131-130000-bbbbbbbb").attempt().record("big", config="x" * 80_000)
    ring.append("logs", (other.folder.rank_folder(1, 0) / "logs.000001.jsonl").read_bytes(), 1)
    sender.add(open_source(builder, ring=ring, ended=True))
    sender.start()
    assert sender.end(ended_by()) is True
    (request,) = logs.requests
    assert b"[cut, 80,000 bytes in all]" in request.parts[0]
    assert len(request.parts[0]) < 66_000


# What is told and counted --------------------------------------------------------------------------------------------


def test_a_fault_that_stays_is_told_ever_more_rarely() -> None:
    """At once, after one minute, then after two, four, eight; another kind of fault has its own minutes."""
    clock = ManualClock()
    told: list[tuple[str, int]] = []
    quiet = Quiet(lambda text: told.append((text, clock.mono_ns() // (60 * NS_PER_S))), clock)
    for _ in range(20):
        quiet("one", "one")
        clock.advance(60)
    quiet("other", "other")
    assert told == [("one", 0), ("one", 1), ("one", 3), ("one", 7), ("one", 15), ("other", 20)]


def test_own_metrics_name_signal_and_outcome() -> None:
    """Counters by signal and outcome, none of which is part of another, retries by signal, and the bytes that wait."""
    accounting = ExportAccounting()
    accounting.note("logs", SENT, 5)
    accounting.note("logs", REFUSED, 2)
    accounting.note("logs", SENT, 0)
    accounting.note("logs", UNWRITTEN, 4)
    accounting.retry("traces", 3)
    found = {(sample.name, sample.attributes): sample.value for sample in accounting.samples(99)}
    assert found == {
        ("otel_train.export.items", (("signal", "logs"), ("outcome", "sent"))): 5,
        ("otel_train.export.items", (("signal", "logs"), ("outcome", "refused"))): 2,
        ("otel_train.export.retries", (("signal", "traces"),)): 3,
        ("otel_train.export.queue", ()): 99,
    }


@pytest.mark.slow
def test_following_a_run_that_has_ended_gives_up_where_no_server_comes(root: Path) -> None:
    """A process of one run must not stay for ever: after so long without an answer it ends."""
    builder = a_run(root).end()
    destinations = Destinations.from_environ({}, f"http://127.0.0.1:{free_port()}")
    follower = Follower(builder.path, destinations, give_up_after_s=0.3, tell=lambda text: None)
    begun_ns = mono_ns()
    assert follower.run(threading.Event(), poll_s=0.05) is False
    assert (mono_ns() - begun_ns) / NS_PER_S < 5
    assert is_locked(builder.folder.rank_folder(1, 0), "sender.lock") is False


def test_more_live_runs_than_an_agent_holds_take_turns(
    root: Path, server: OtlpServer, monkeypatch: pytest.MonkeyPatch, until: Callable[[Callable[[], Any]], Any]
) -> None:
    """Three runs that go on, and room for one at a time: each is sent, and what it writes later as well, once."""
    monkeypatch.setattr("otel_train.export.follow.MOST_FOLDERS", 1)
    monkeypatch.setattr("otel_train.export.follow.TAKE_TURNS_NS", NS_PER_S // 10)
    monkeypatch.setattr("otel_train.export.follow.REST_NS", NS_PER_S // 2)
    monkeypatch.setattr("otel_train.export.follow.LOOK_AGAIN_NS", NS_PER_S // 10)
    builders = [RunBuilder(root, f"20260131-12000{number}-abcdefgh").attempt() for number in range(3)]
    writers = [WriterLock(builder.folder.rank_folder(1, 0)) for builder in builders]
    assert all(writer.acquire() for writer in writers)
    follower = Follower(root, Destinations.from_environ({}, server.url), tell=lambda text: None)
    stop = threading.Event()
    thread = threading.Thread(target=follower.run, args=(stop, 0.02))
    thread.start()
    try:
        for number, value in enumerate((1.0, 2.0, 3.0)):
            for builder in builders:
                builder.log({"loss": [value]}, times_s=[60.0 * number])
        until(lambda: sorted(server.values("train.loss")) == [1.0] * 3 + [2.0] * 3)
        for builder in builders:
            builder.log({"loss": [4.0]}, times_s=[300.0])
        until(lambda: sorted(server.values("train.loss")) == [1.0] * 3 + [2.0] * 3 + [3.0] * 3)
    finally:
        stop.set()
        thread.join()
        for writer in writers:
            writer.release()
    assert server.doubles() == []


def test_following_is_narrowed_to_one_rank(root: Path, server: OtlpServer) -> None:
    """The process of rank 1 sends rank 1's folder alone, and ends when that is sent."""
    builder = a_run(root).log({"loss": [9.0]}, rank=1).end()
    follower = Follower(
        builder.path, Destinations.from_environ({}, server.url), attempt=1, rank=1, tell=lambda text: None
    )
    assert follower.run(threading.Event(), poll_s=0.05) is True
    assert server.values("train.loss") == [9.0]
    assert not (builder.folder.rank_folder(1, 0) / "sent.json").exists()


# Ends of ranks -------------------------------------------------------------------------------------------------------


def test_ranks_of_earlier_attempts_have_ended_and_those_of_a_running_one_have_not(root: Path) -> None:
    """The run goes on as attempt 2: what attempt 1 left is over."""
    builder = RunBuilder(root).attempt(1).log({"loss": [1.0]}).attempt(2, start_s=10.0)
    builder.log({"loss": [2.0]}, attempt=2, times_s=[11.0])
    writer = WriterLock(builder.folder.rank_folder(2, 0))
    assert writer.acquire()
    try:
        status, ranks = rank_ends(builder.folder, START_NS + 20 * NS_PER_S)
    finally:
        writer.release()
    assert status.state == "running"
    assert [(rank.attempt, rank.ended, rank.final_state) for rank in ranks] == [
        (1, True, "lost"),
        (2, False, "running"),
    ]


def test_a_lost_run_is_marked_once_with_its_last_sign_of_life(root: Path) -> None:
    """run.json says lost, why, and since when; a finished run is left as it is."""
    builder = RunBuilder(root).attempt().log({"loss": [1.0]})
    status = run_status(builder.folder, START_NS + 3600 * NS_PER_S)
    assert mark_lost(builder.folder, status) is True
    assert mark_lost(builder.folder, status) is False
    info = builder.folder.read()
    entry = info["attempts"][0]
    assert (info["status"], entry["status"], entry["ended"]) == ("lost", "lost", "2026-01-31T12:00:01.000000Z")
    assert entry["reason"].startswith("no sign of life from elsewhere")
    assert run_status(builder.folder, START_NS + 3600 * NS_PER_S).state == "lost"
    builder.end()
    assert mark_lost(builder.folder, run_status(builder.folder, START_NS)) is False


def test_the_log_of_an_unseen_sender_is_bounded(tmp_path: Path) -> None:
    """It grows to a MiB and no further; a folder that is not there costs the lines only."""
    log = SenderLog(tmp_path, ManualClock())
    log.write("first")
    assert log.path.read_text(encoding="utf-8").endswith(" first\n")
    for _ in range(30):
        log.write("x" * 50_000)
    assert MOST_BYTES - 60_000 < log.path.stat().st_size <= MOST_BYTES
    SenderLog(tmp_path / "nowhere").write("lost")


# Against a real server -----------------------------------------------------------------------------------------------


def test_a_server_that_comes_up_while_the_end_waits_gets_everything(root: Path) -> None:
    """Refused at first: the last seconds of a run are enough to send it all once."""
    port = free_port()
    destinations = Destinations.from_environ({}, f"http://127.0.0.1:{port}")
    sender = Sender.to(destinations)
    sender.add(open_source(a_run(root), ended=True))
    sender.start()
    threading.Event().wait(0.3)
    with OtlpServer().start(port) as server:
        assert sender.end(ended_by()) is True
        assert server.values("train.loss") == [3.0, 2.0, 1.0]
        assert server.bodies() == ["one", "two"]
        assert server.doubles() == []


def test_batches_of_a_folder_arrive_in_order(root: Path, server: OtlpServer) -> None:
    """Small batches, one after the other: points keep their order over requests."""
    builder = RunBuilder(root).attempt()
    for first in range(0, 400, 20):
        builder.log(
            {"loss": [float(step) for step in range(first, first + 20)]}, times_s=list(range(first, first + 20))
        )
    sender = Sender.to(Destinations.from_environ({}, server.url))
    sender.add(open_source(builder, ended=True, batch_bytes=4000))
    sender.start()
    assert sender.end(ended_by()) is True
    assert len(server.requests) > 5
    assert server.values("train.loss") == [float(step) for step in range(400)]
