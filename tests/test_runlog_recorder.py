"""The writer of one run: everything recorded reaches the disk, or is counted; and it never stops training."""

from __future__ import annotations

import errno
import logging
import math
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from otel_train.clock import NS_PER_S, SYSTEM
from otel_train.record.digest import Digest
from otel_train.record.entries import LogEntry, Sample, SpanEntry
from otel_train.record.steps import StepLoop, TimedLoop
from otel_train.runlog import recorder as recorder_module
from otel_train.runlog.reader import RunReader
from otel_train.runlog.recorder import MOST_QUEUED, Recorder, RunTrace
from tests.recording import TRAIN, VAL, Place, Recording, stored_columns
from tests.runs import RunBuilder

TRACE = RunTrace(trace_id=0xABC, span_id=0xDEF)


class FixedClock:
    """Both clocks, set by the test."""

    def __init__(self) -> None:
        self.wall = 1_800_000_000 * NS_PER_S
        self.mono = 50 * NS_PER_S

    def wall_ns(self) -> int:
        return self.wall

    def mono_ns(self) -> int:
        return self.mono

    def move(self, seconds: float) -> None:
        self.wall += int(seconds * NS_PER_S)
        self.mono += int(seconds * NS_PER_S)


class Written(Recording):
    """A recording whose points go to a run's folder."""

    def __init__(self, root: Path, *, record: dict[str, Any] | None = None, **options: Any) -> None:
        super().__init__(**(record or {}))
        self.run = RunBuilder(root).attempt()
        self.folder = self.run.folder.rank_folder(1, 0)
        self.recorder = Recorder(
            self.folder, {"run_id": self.run.run_id}, self.buffer, self.digest, TRACE, version="test", **options
        )

    def stop(self, state: str = "finished", within_s: float = 5.0) -> None:
        self.recorder.stop(self.recorder._clock.mono_ns() + int(within_s * NS_PER_S), state)

    @property
    def reader(self) -> RunReader:
        return RunReader(self.run.path)

    def points(self) -> dict[Place, list[tuple[int, float]]]:
        """Return (step, value) of the user's points and of steps and phases, by series."""
        reader = self.reader
        columns = [
            series
            for series, _ in reader.series()
            if series.name.startswith(("train.", "dl.step", "dl.epoch", "dl.phase", "dl.data"))
            and series.name not in ("dl.step.duration", "dl.step.last_time", "dl.step.usual_time")
        ]
        assert reader.damage == []
        return stored_columns(columns)  # type: ignore[arg-type]

    def samples(self, name: str) -> list[tuple[dict[str, Any], float | None]]:
        return [(dict(point.attributes), point.value) for point, _ in self.reader.points() if point.name == name]

    def events(self, name: str) -> list[LogEntry]:
        return [entry for entry, _ in self.reader.logs() if entry.event_name == name]


@pytest.fixture
def warned(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    caplog.set_level(logging.WARNING, logger="otel_train")
    return lambda: [record.getMessage() for record in caplog.records]


def end_of_run() -> LogEntry:
    return record("the run ended", event="run.end")


def record(body: Any, event: str = "") -> LogEntry:
    return LogEntry(time_ns=5, severity_number=9, severity_text="INFO", body=body, event_name=event)


def span(name: str) -> SpanEntry:
    return SpanEntry(name=name, trace_id=1, span_id=2, start_ns=3, end_ns=4)


class Disk:
    """Stands before `os.write`: fails, hangs, or lets through."""

    def __init__(self) -> None:
        self.fault: OSError | None = None
        self.free = threading.Event()
        self.free.set()
        self.hangs = threading.Event()

    def write(self, descriptor: int, data: bytes) -> int:
        if not self.free.is_set():
            self.hangs.set()
            self.free.wait(30)
        if self.fault is not None:
            raise self.fault
        return os.write(descriptor, data)


@pytest.mark.alone
def test_what_is_recorded_is_readable_within_a_second(tmp_path: Path) -> None:
    """With the thread alone, without any flush, 100 points are on disk in less than a second."""
    run = Written(tmp_path)
    run.recorder.start()
    started = time.monotonic()
    for value in range(100):
        run.log.log({"loss": float(value)})
    while len(run.points().get(("train.loss", TRAIN), [])) < 100:
        assert time.monotonic() - started < 1.0
        time.sleep(0.02)
    run.stop()


def test_all_signals_reach_the_disk_and_the_end_says_so(tmp_path: Path) -> None:
    """Points, records, spans, samples and SDK metrics are there, counted, and nothing is dropped."""
    run = Written(tmp_path)
    run.log.log({"loss": 0.5, "lr": 0.1})
    run.recorder.emit_log(record("hello"))
    run.recorder.emit_span(span("stage"))
    run.recorder.emit_span(span("theirs"))
    run.recorder.emit_samples(7, [Sample("system.cpu.utilization", 0.25)])
    reader = InMemoryMetricReader()
    MeterProvider([reader]).get_meter("user").create_counter("requests").add(3)
    data = reader.get_metrics_data()
    assert data is not None
    run.recorder.emit_sdk_metrics(data)
    run.recorder.emit_log(end_of_run())
    run.stop()
    assert run.points() == {("train.loss", TRAIN): [(0, 0.5)], ("train.lr", ()): [(0, 0.1)]}
    assert [entry.body for entry, _ in run.reader.logs()] == ["hello", "the run ended"]
    assert [entry.name for entry, _ in run.reader.spans()] == ["stage", "theirs"]
    assert run.samples("system.cpu.utilization") == [({}, 0.25)]
    assert run.samples("requests") == [({}, 3)]
    assert run.recorder.accounting.recorded == {"metrics": 2, "logs": 2, "traces": 2}
    assert run.recorder.accounting.line() == "2 points, 2 log records, 2 spans; nothing dropped"


def test_the_last_heartbeat_has_the_state_and_every_other_state_as_zero(tmp_path: Path) -> None:
    """A failed run writes failed as 1 and the other states as 0, and how many points it recorded."""
    run = Written(tmp_path)
    run.log.log({"a": 1.0, "b": 2.0})
    run.stop("failed")
    states = {attributes["state"]: value for attributes, value in run.samples("dl.run.state")}
    assert states == {"running": 0, "finished": 0, "failed": 1, "interrupted": 0, "killed": 0, "lost": 0}
    assert run.samples("otel_train.points") == [({"outcome": "recorded"}, 2)]


def test_the_heartbeat_goes_on_when_the_wall_clock_is_set_back(tmp_path: Path) -> None:
    """Every 15 s of real time, though the wall clock goes back an hour in between."""
    clock = FixedClock()
    run = Written(tmp_path, clock=clock)
    for seconds in (0, 5, 15, 15):
        clock.move(seconds)
        if seconds == 5:
            clock.wall -= 3600 * NS_PER_S
        assert run.recorder.flush()
    beats = [value for _, value in run.samples("dl.run.heartbeat")]
    assert beats == [1_800_000_000.0, 1_800_000_000.0 - 3580, 1_800_000_000.0 - 3565]


def test_step_times_do_not_wobble_with_the_reading_of_two_clocks(tmp_path: Path) -> None:
    """A drift below a millisecond between two cycles moves no step's time; the clock set back 5 s does."""
    clock = FixedClock()
    run = Written(tmp_path, clock=clock)
    loop = TimedLoop(run.log)
    times = []
    for step, drift_ns in enumerate((0, -500_000, -5 * NS_PER_S)):
        clock.wall += drift_ns
        run.buffer.extend((loop, step, None, 0, 1, 1_000_000 * (step + 1)))
        run.recorder.flush()
    times = [point.time_ns for point, _ in run.reader.points() if point.name == "dl.step.time"]
    start_ns = (1_800_000_000 - 50) * NS_PER_S
    assert times == [start_ns + 1_000_000, start_ns + 2_000_000, start_ns + 3_000_000 - 500_000 - 5 * NS_PER_S]


def test_non_finite_values_are_counted_by_kind_and_told_once(tmp_path: Path) -> None:
    """60 steps in three parts: 10 finite, 48 NaN, one infinity each; the counter says so, one event names step 1."""
    heard: list[LogEntry] = []
    run = Written(tmp_path, on_event=heard.append)
    for step in range(60):
        value = 2.0 if step % 6 == 0 else math.inf if step == 31 else -math.inf if step == 32 else math.nan
        run.log.log({"loss": value}, step=step)
        if step % 20 == 19:
            run.recorder.flush()
    run.stop()
    values = [value for _, value in run.points()[("train.loss", TRAIN)]]
    assert sum(math.isnan(value) for value in values) == 48
    assert [step for step, value in run.points()[("train.loss", TRAIN)] if math.isfinite(value)] == list(
        range(0, 60, 6)
    )
    counts: dict[str, float] = {}
    for attributes, count in run.samples("dl.nonfinite"):
        assert (attributes["metric"], attributes["split"]) == ("train.loss", "train")
        assert count is not None
        assert count >= counts.get(attributes["kind"], 0)
        counts[attributes["kind"]] = count
    assert counts == {"NaN": 48, "Infinity": 1, "-Infinity": 1}
    (event,) = run.events("health.nonfinite")
    assert event.body == "loss is NaN at step 1"
    assert (event.severity_text, event.trace_id, event.span_id) == ("ERROR", TRACE.trace_id, TRACE.span_id)
    assert {key: event.attributes[key] for key in ("metric", "split", "dl.step", "value")} == {
        "metric": "train.loss",
        "split": "train",
        "dl.step": 1,
        "value": "NaN",
    }
    assert [entry.event_name for entry in heard] == ["health.nonfinite"]


def test_a_metric_without_a_split_has_none_in_its_events_and_counters(tmp_path: Path) -> None:
    """No attribute is empty."""
    run = Written(tmp_path)
    run.log.log({"grad": math.inf})
    run.stop()
    assert run.samples("dl.nonfinite")[0] == ({"metric": "train.grad", "kind": "Infinity"}, 1)
    assert "split" not in run.events("health.nonfinite")[0].attributes


def test_a_new_best_value_on_validation_is_an_event(tmp_path: Path) -> None:
    """0.5 at step 0, then 0.25 at step 2 with the former; 0.75 between them is none."""
    run = Written(tmp_path)
    for value in (0.5, 0.75, 0.25):
        run.log.log({"loss": value}, split="val")
        run.recorder.flush()
    run.stop()
    first, second = run.events("model.best")
    assert first.body == "new best val loss 0.5 at step 0"
    assert "previous" not in first.attributes
    assert {key: second.attributes[key] for key in ("metric", "value", "goal", "dl.step", "split", "previous")} == {
        "metric": "train.loss",
        "value": 0.25,
        "goal": "min",
        "dl.step": 2,
        "split": "val",
        "previous": 0.5,
    }


def test_a_best_value_without_a_split_names_the_metric_alone(tmp_path: Path) -> None:
    """A metric of the user's own with a direction."""
    run = Written(tmp_path)
    run.summaries.goals["bleu"] = "max"
    run.log.log({"bleu": 30.5})
    run.stop()
    (event,) = run.events("model.best")
    assert event.body == "new best bleu 30.5 at step 0"
    assert "split" not in event.attributes


def test_steps_become_a_histogram_with_exemplars_of_their_spans(tmp_path: Path) -> None:
    """Of 150 steps of 10 ms two are sampled: 150 counted, two exemplars that point at the two spans."""
    run = Written(tmp_path, record={"span_every": 100})
    loop = TimedLoop(run.log)
    for step in range(150):
        run.buffer.extend((loop, step, None, step * 10_000_000, step * 10_000_000, (step + 1) * 10_000_000))
    run.stop()
    spans = [entry for entry, _ in run.reader.spans() if entry.name == "step"]
    assert [entry.attributes["dl.step"] for entry in spans] == [0, 100]
    (point,) = [point for point, _ in run.reader.points() if point.name == "dl.step.duration"]
    assert point.histogram is not None
    assert (point.histogram.count, point.histogram.min, point.histogram.max) == (150, 0.01, 0.01)
    assert [(one.value, one.span_id) for one in point.exemplars] == [(0.01, entry.span_id) for entry in spans]
    assert run.samples("dl.step.usual_time") == [({}, 0.01)]
    assert len(run.samples("dl.step.last_time")) == 1


def test_a_validation_loop_alone_has_a_usual_time_too(tmp_path: Path) -> None:
    """Where no training step was seen, the heartbeat takes the split of the last step."""
    run = Written(tmp_path)
    loop = TimedLoop(run.log, split="val", owns_step=False)
    for step in range(30):
        run.buffer.extend((loop, step, None, step * 1_000_000, step * 1_000_000, (step + 1) * 1_000_000))
    run.stop()
    assert run.samples("dl.step.usual_time") == [({}, 0.001)]
    assert len(run.points()[("dl.step.time", VAL)]) == 30


def test_a_capped_run_says_what_it_left_out_and_still_writes_its_end(
    tmp_path: Path, warned: Callable[[], list[str]]
) -> None:
    """With 100 kB for 20,000 points, 500 records and 500 spans: the files stay below, the rest is counted."""
    run = Written(tmp_path, max_run_bytes=100_000)
    for step in range(20_000):
        run.log.log({"loss": step * 1.1}, step=step)
    for number in range(500):
        run.recorder.emit_log(record(f"line {number}" * 20))
        run.recorder.emit_span(span(f"span {number}"))
    run.recorder.flush()
    run.recorder.emit_log(end_of_run())
    run.recorder.flush()  # the end may be written before the state is known
    size = sum(path.stat().st_size for path in run.folder.glob("*.jsonl"))
    run.stop()
    assert size <= 101_000
    kept = len(run.points()[("train.loss", TRAIN)])
    accounting = run.recorder.accounting
    assert 0 < kept < 20_000
    assert accounting.recorded["metrics"] == kept
    assert accounting.causes("metrics") == {"over max_run_size": 20_000 - kept}
    assert accounting.recorded["traces"] + accounting.causes("traces")["over max_run_size"] == 500
    assert accounting.recorded["logs"] + accounting.causes("logs")["over max_run_size"] == 501
    assert len(run.events("run.end")) == 1
    assert {a["state"]: v for a, v in run.samples("dl.run.state")}["finished"] == 1
    assert len([text for text in warned() if "max_run_size" in text]) == 1


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EACCES])
def test_a_disk_that_is_full_for_a_while_loses_nothing(
    tmp_path: Path, code: int, warned: Callable[[], list[str]]
) -> None:
    """Points of before, of meanwhile and of after stand in order; one warning with the path, and the flush says no."""
    disk, clock = Disk(), FixedClock()
    run = Written(tmp_path, write=disk.write, clock=clock)
    for part in range(4):
        disk.fault = OSError(code, os.strerror(code)) if part in (1, 2) else None
        for value in range(10):
            run.log.log({"loss": 10.0 * part + value})
        clock.move(2)
        assert run.recorder.flush() is (part in (0, 3))
        assert run.recorder.accounting.recorded["metrics"] == (10 if part < 3 else 40)
    run.stop()
    assert [value for _, value in run.points()[("train.loss", TRAIN)]] == [float(value) for value in range(40)]
    assert run.recorder.accounting.line().endswith("nothing dropped")
    assert len(warned()) == 1
    assert str(run.folder / "metrics.000001.jsonl") in warned()[0]
    assert os.strerror(code) in warned()[0]


def test_a_disk_that_stays_full_has_its_losses_counted(tmp_path: Path) -> None:
    """Ten points before are recorded, ten after are dropped with the cause, the end comes in time."""
    disk = Disk()
    run = Written(tmp_path, write=disk.write)
    for value in range(20):
        if value == 10:
            assert run.recorder.flush()
            disk.fault = OSError(errno.ENOSPC, "no space")
        run.log.log({"loss": float(value)})
    run.recorder.emit_log(record("lost"))
    run.stop()
    assert run.recorder.accounting.recorded == {"metrics": 10, "logs": 0, "traces": 0}
    assert run.recorder.accounting.dropped == {
        "metrics": {"disk not writable": 10},
        "logs": {"disk not writable": 1},
    }
    assert len(run.points()[("train.loss", TRAIN)]) == 10


@pytest.mark.alone
def test_stop_comes_back_in_time_from_a_disk_that_hangs(tmp_path: Path, warned: Callable[[], list[str]]) -> None:
    """A write that does not return: stop takes its half second, counts what is in memory, and a second stop nothing."""
    disk = Disk()
    run = Written(tmp_path, write=disk.write, flush_interval_s=0.01)
    run.recorder.start()
    assert run.recorder.flush()
    disk.free.clear()
    run.log.log({"loss": 1.0})
    assert disk.hangs.wait(5)
    run.log.log({"loss": 2.0, "acc": 1.0})
    run.recorder.emit_log(record("lost"))
    run.recorder.emit_span(span("lost"))
    assert run.recorder.flush(0.05) is False
    started = time.monotonic()
    run.stop(within_s=0.5)
    run.stop(within_s=0.5)
    assert time.monotonic() - started < 1.0
    disk.free.set()
    assert run.recorder.accounting.causes("metrics") == {"disk did not answer": 2}
    assert run.recorder.accounting.causes("logs") == {"disk did not answer": 1}
    assert run.recorder.accounting.causes("traces") == {"disk did not answer": 1}
    assert len([text for text in warned() if "does not answer" in text]) == 1
    assert run.recorder._thread is not None
    run.recorder._thread.join(5)


def test_stop_gives_up_points_for_which_there_is_no_time(tmp_path: Path) -> None:
    """With a deadline that has passed, 1,000 points are counted as lost, and the end is written all the same."""
    run = Written(tmp_path, clock=FixedClock())
    for _ in range(1_000):
        run.log.log({"loss": 1.0})
    run.recorder.emit_log(end_of_run())
    run.stop("interrupted", within_s=0)
    assert run.recorder.accounting.causes("metrics") == {"no time left at the end": 1_000}
    assert len(run.events("run.end")) == 1


def test_after_the_end_nothing_is_taken_or_written(tmp_path: Path) -> None:
    """Records after stop leave the files as they are, and flush says no."""
    run = Written(tmp_path)
    run.stop()
    run.recorder.emit_log(record("late"))
    assert run.recorder.flush() is False
    assert list(run.reader.logs()) == []


def test_a_thread_survives_faults_and_says_them_once_a_minute(tmp_path: Path, warned: Callable[[], list[str]]) -> None:
    """A hook that raises in every cycle: points go on to the disk, one warning a minute."""
    clock, cycles = FixedClock(), threading.Semaphore(0)

    def broken() -> None:
        cycles.release()
        raise RuntimeError("hook")

    run = Written(tmp_path, clock=clock, flush_interval_s=0.01, on_cycle=broken)
    run.recorder.start()
    for minute in range(2):
        for _ in range(3):
            assert cycles.acquire(timeout=5)
        assert len([text for text in warned() if "RuntimeError: hook" in text]) == minute + 1
        clock.move(61)
        for _ in range(2):
            assert cycles.acquire(timeout=5)
    run.log.log({"loss": 1.0})
    run.stop()
    assert run.points() == {("train.loss", TRAIN): [(0, 1.0)]}


def test_what_cannot_be_encoded_costs_only_itself(
    tmp_path: Path, warned: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record, a span, a sample and a column that make the encoder raise are counted; their neighbours are stored."""
    run = Written(tmp_path)
    bad_log, bad_span = record("bad"), span("bad")
    bad_log.attributes = None  # type: ignore[assignment]
    bad_span.attributes = None  # type: ignore[assignment]
    for entry in (record("one"), bad_log, record("two")):
        run.recorder.emit_log(entry)
    for one in (span("one"), bad_span, span("two")):
        run.recorder.emit_span(one)
    run.recorder.emit_samples(7, [Sample("dl.mfu", 1.0, None)])  # type: ignore[arg-type]
    run.recorder.emit_samples(8, [Sample("dl.mfu", 2.0)])
    run.names.units["bad"] = 5  # type: ignore[assignment]
    run.log.log({"good": 1.0, "bad": 2.0, "fine": 3.0})
    run.stop()
    assert [entry.body for entry, _ in run.reader.logs()] == ["one", "two"]
    assert [entry.name for entry, _ in run.reader.spans()] == ["one", "two"]
    assert run.samples("dl.mfu") == [({}, 2.0)]
    assert run.points() == {("train.good", ()): [(0, 1.0)], ("train.fine", ()): [(0, 3.0)]}
    assert run.recorder.accounting.dropped == {
        "metrics": {"fault of telemetry": 1},
        "logs": {"fault of telemetry": 1},
        "traces": {"fault of telemetry": 1},
    }
    assert len(warned()) == 1


def test_faults_of_the_digest_are_counted_and_said(
    tmp_path: Path, warned: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a summary raises, its points are lost and counted; where all of the digest raises, flush says no."""
    run = Written(tmp_path)

    def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("summary")

    with monkeypatch.context() as patch:
        patch.setattr(run.summaries, "add", broken)
        run.log.log({"a": 1.0, "b": 1.0})
        assert run.recorder.flush()
    assert run.recorder.accounting.causes("metrics") == {"fault of telemetry": 2}
    assert "recording: RuntimeError: summary" in warned()[0]
    with monkeypatch.context() as patch:
        patch.setattr(Digest, "take", broken)
        run.log.log({"a": 1.0})
        assert run.recorder.flush() is False
        run.log.log({"a": 1.0})
        run.stop()
    assert any("the end of the run log" in text for text in warned())


def test_many_threads_may_flush_while_others_log(tmp_path: Path) -> None:
    """Four threads log 500 points each, four flush all the time, the writer runs: 2,000 points, each once, in order."""
    run = Written(tmp_path, flush_interval_s=0.01)
    run.recorder.start()
    done = threading.Event()
    flushed: list[bool] = []

    def flush() -> None:
        while not done.is_set():
            flushed.append(run.recorder.flush())
            time.sleep(0.001)

    def work(name: str) -> None:
        for value in range(500):
            run.log.log({name: float(value)})

    flushers = [threading.Thread(target=flush) for _ in range(4)]
    workers = [threading.Thread(target=work, args=(f"t{number}",)) for number in range(4)]
    for thread in flushers + workers:
        thread.start()
    for thread in workers:
        thread.join()
    done.set()
    for thread in flushers:
        thread.join()
    run.stop()
    assert all(flushed)
    found = run.points()
    for number in range(4):
        assert [value for _, value in found[(f"train.t{number}", ())]] == [float(value) for value in range(500)]


def test_a_long_backlog_is_written_whole_and_in_order(tmp_path: Path) -> None:
    """5,000 calls at once, more than the writer takes in small turns."""
    run = Written(tmp_path)
    for value in range(5_000):
        run.log.log({"loss": float(value)})
    assert run.recorder.flush()
    assert [value for _, value in run.points()[("train.loss", TRAIN)]] == [float(value) for value in range(5_000)]
    run.stop()


def test_a_forked_child_writes_nothing_of_the_parents(tmp_path: Path) -> None:
    """After abandon nothing is taken, written or waited for, not even where another thread held the lock."""
    run = Written(tmp_path)
    run.log.log({"loss": 1.0})
    run.recorder.emit_log(record("parent's"))
    assert run.recorder.flush()
    before = {path.name: path.read_bytes() for path in run.folder.iterdir()}
    run.log.log({"loss": 2.0})
    run.recorder.emit_log(record("unwritten"))
    run.recorder._cycle_lock.acquire()
    run.recorder.abandon()
    run.recorder.emit_log(record("child's"))
    run.recorder.emit_samples(1, [Sample("dl.mfu", 1.0)])
    assert run.recorder.flush() is False
    run.stop()
    assert {path.name: path.read_bytes() for path in run.folder.iterdir()} == before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_twenty_forks_beside_a_busy_writer_double_and_lose_nothing(tmp_path: Path) -> None:
    """Children that abandon, log, flush and leave: the parent's 2,000 points are there once each, none hangs."""
    run = Written(tmp_path, flush_interval_s=0.01)
    run.recorder.start()
    for fork in range(20):
        for value in range(100):
            run.log.log({"loss": fork * 100.0 + value})
        child = os.fork()
        if child == 0:
            run.buffer.kill()
            run.recorder.abandon()
            run.log.log({"loss": -1.0})
            for _ in StepLoop(range(2), run.log):
                pass
            run.recorder.flush(0.1)
            run.stop(within_s=0.1)
            os._exit(0)
        deadline = time.monotonic() + 20
        while os.waitpid(child, os.WNOHANG) == (0, 0):
            assert time.monotonic() < deadline
            time.sleep(0.005)
    run.stop()
    assert [value for _, value in run.points()[("train.loss", TRAIN)]] == [float(value) for value in range(2_000)]


def test_a_full_queue_counts_what_it_does_not_take(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With room for 10, of 15 records, spans and samples 5 each are counted."""
    monkeypatch.setattr(recorder_module, "MOST_QUEUED", 10)
    assert MOST_QUEUED == 50_000
    run = Written(tmp_path)
    for number in range(15):
        run.recorder.emit_log(record(f"line {number}"))
        run.recorder.emit_span(span("x"))
        run.recorder.emit_samples(number, [Sample("dl.mfu", 1.0)])
    run.stop()
    assert run.recorder.accounting.dropped == {signal: {"queue full": 5} for signal in ("logs", "traces", "metrics")}
    assert run.recorder.accounting.recorded["logs"] == 10


class SlowDevice:
    """A copy that arrives after it was asked so many times, or never."""

    def __init__(self, asks: int) -> None:
        self.asks = asks

    def copy(self, tensors: Any) -> Any:
        return self

    def ready(self) -> bool:
        self.asks -= 1
        return self.asks < 0

    def numbers(self) -> list[float]:
        return [0.5]


class OnDevice:
    """A tensor on a device that is not there."""

    is_cpu = False
    shape = ()
    dtype = "torch.float32"
    device = "cuda:0"

    def numel(self) -> int:
        return 1

    def is_complex(self) -> bool:
        return False


class Device(str):
    """Its kind is asked for."""

    type = "cuda"


def test_flush_waits_for_values_on_their_way_from_a_device(tmp_path: Path) -> None:
    """The value arrives at the fifth question: flush comes back with it on disk, and with what was logged behind it."""
    OnDevice.device = Device("cuda:0")
    run = Written(tmp_path, record={"backend": SlowDevice(5)})
    run.log.log({"loss": OnDevice()})
    run.log.log({"loss": 1.5})
    assert run.recorder.flush()
    assert run.points() == {("train.loss", TRAIN): [(0, 0.5), (1, 1.5)]}
    run.stop()


def test_while_a_device_is_late_points_wait_in_the_bounded_buffer(tmp_path: Path) -> None:
    """A value never comes: flush says no in time, the buffer fills and counts, and at the end the rest is written."""
    OnDevice.device = Device("cuda:0")
    run = Written(tmp_path, record={"backend": SlowDevice(10**9), "capacity": 500})
    run.log.log({"loss": OnDevice()})
    for value in range(100):
        run.log.log({"lr": float(value)})
    assert run.recorder.flush(0.05) is False
    for _ in range(3):
        for value in range(400):
            run.log.log({"lr": float(value)})
        assert run.recorder.flush(0.01) is False
    assert run.recorder.digest.waiting <= 50
    run.stop(within_s=1.0)
    dropped = run.recorder.accounting.causes("metrics")
    assert dropped["still on the device at the end"] == 1
    assert len(run.points()[("train.lr", ())]) == 1_300 - dropped["buffer full"]
    assert set(dropped) == {"still on the device at the end", "buffer full"}


def test_rotated_segments_are_read_as_one(tmp_path: Path) -> None:
    """Segments of 64 KiB for 5,000 points: several files, all points, closed ones gzipped."""
    run = Written(tmp_path, segment_bytes=65_536)
    for value in range(5_000):
        run.log.log({"loss": value * 1.1})
        if value % 500 == 0:
            run.recorder.flush()
    run.stop()
    assert len(list(run.folder.glob("metrics.*"))) > 3
    assert all(path.name.endswith(".gz") for path in run.folder.glob("metrics.*"))
    assert len(run.points()[("train.loss", TRAIN)]) == 5_000
    assert run.recorder.bytes_written > 5 * 65_536


def test_the_system_clock_is_the_default(tmp_path: Path) -> None:
    """Nothing needs a clock of its own."""
    assert Written(tmp_path).recorder._clock is SYSTEM
