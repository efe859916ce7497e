"""Readings: values of our own at a step reach the run log with time, step and epoch, once their device has them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from otel_train.record.entries import Sample
from otel_train.record.histogram_value import HistogramValue
from otel_train.record.readings import MOST_WAITING, Distribution, Occurrence, Read, Reading
from otel_train.runlog.recorder import Recorder, RunTrace
from tests.recording import Recording
from tests.runs import RunBuilder

SECOND = 1_000_000_000


class Gap(Reading):
    """One value that comes when it is told to."""

    __slots__ = ("_ready", "value")

    def __init__(self, value: float, *, ready: bool = True) -> None:
        self.value = value
        self._ready = ready

    def come(self) -> None:
        self._ready = True

    def ready(self) -> bool:
        return self._ready

    def read(self) -> Read:
        return Read(points=[Sample("dl.overfit.gap", self.value, (("metric", "loss"),))])


class Other(Gap):
    """Of another kind, which does not wait for the first."""

    __slots__ = ()


class Faulty(Reading):
    """Cannot be read."""

    __slots__ = ()

    def read(self) -> Read:
        raise RuntimeError("the card is gone")


GAP = ("dl.overfit.gap", (("metric", "loss"),))
SIBLING = ("dl.step", (("split", "train"),))


def test_a_reading_stands_at_the_present_step_beside_its_sibling() -> None:
    """Within a loop at step 1 of epoch 4 the value has that step, that epoch and its own time."""
    run = Recording()
    run.log.epoch = 4
    run.log.enter_loop(loop := object(), owns_step=True)
    run.log.next_step(0, 0)
    run.log.next_step(0, None)
    run.log.add_reading(Gap(0.5), time_ns=7 * SECOND)
    run.log.leave_loop(loop, 0)
    digested = run.take()
    columns = {(column.name, column.attributes): column for column in digested.blocks[0]}
    assert list(columns[GAP].times_ns) == [7 * SECOND]
    assert list(columns[GAP].values) == [0.5]
    assert list(columns[SIBLING].values) == [1]
    assert list(columns["dl.epoch", SIBLING[1]].values) == [4]
    assert digested.points == 1
    assert [(one.step, one.epoch, one.read.points[0].value) for one in digested.read] == [(1, 4, 0.5)]


def test_a_reading_at_a_device_waits_alone_and_its_kind_keeps_its_order() -> None:
    """The second of its kind comes after the first though it is ready before; another kind and points go on."""
    run = Recording()
    first = Gap(1.0, ready=False)
    run.log.add_reading(first, step=10, time_ns=1)
    run.log.add_reading(Gap(2.0), step=11, time_ns=2)
    run.log.add_reading(Other(3.0), step=12, time_ns=3)
    run.log.log({"loss": 0.25}, 12)
    early = run.take()
    assert [one.step for one in early.read] == [12]
    assert run.digest.unfinished == 2
    assert run.digest.waiting == 0
    assert [column.name for block in early.blocks for column in block if column.name.startswith("train.")]
    first.come()
    late = run.take()
    assert [(one.step, one.read.points[0].value) for one in late.read] == [(10, 1.0), (11, 2.0)]
    assert run.digest.unfinished == 0


def test_what_is_still_on_a_device_at_the_end_is_counted() -> None:
    """Nothing waits for it, and the count says it."""
    run = Recording()
    run.log.add_reading(Gap(1.0, ready=False), step=0)
    digested = run.take(last=True)
    assert digested.lost == {"still on the device at the end": 1}
    assert digested.read == []


def test_readings_that_never_come_do_not_fill_the_memory() -> None:
    """Beyond the bound the oldest are lost, and counted."""
    run = Recording()
    for step in range(MOST_WAITING + 5):
        run.log.add_reading(Gap(float(step), ready=False), step=step)
    assert run.take().lost == {"waiting for a device": 5}
    assert run.digest.unfinished == MOST_WAITING


def test_a_fault_of_one_reading_costs_only_this_one() -> None:
    """The next one is written; the fault is said and counted."""
    run = Recording()
    run.log.add_reading(Faulty(), step=0)
    run.log.add_reading(Gap(4.0), step=1)
    digested = run.digest.take(run.buffer.drain(), 0)
    assert [str(fault) for fault in digested.faults] == ["the card is gone"]
    assert digested.lost == {"fault of telemetry": 1}
    assert [one.step for one in digested.read] == [1]


class Whole(Reading):
    """Has something of everything."""

    __slots__ = ()
    split = ""

    def read(self) -> Read:
        value = HistogramValue(count=3, sum=6.0, min=1.0, max=3.0, scale=0, positive_offset=-1, positive_counts=(1, 2))
        return Read(
            points=[Sample("dl.overfit.gap", 0.5, (("metric", "loss"),))],
            counters=[Sample("dl.nonfinite", 2, (("metric", "loss"), ("split", "train"), ("kind", "nan")))],
            distributions=[Distribution(name="dl.step.duration", attributes=(("split", "train"),), value=value)],
            occurrences=[Occurrence(event="health.nonfinite", body="not finite", attributes={"layer": "fc1"})],
        )


def lines(folder: Path, signal: str) -> list[dict[str, Any]]:
    return [
        json.loads(line) for path in sorted(folder.glob(f"{signal}.*.jsonl")) for line in path.read_text().splitlines()
    ]


def metrics_named(folder: Path, name: str) -> list[dict[str, Any]]:
    return [
        metric
        for line in lines(folder, "metrics")
        for resource in line["resourceMetrics"]
        for scope in resource["scopeMetrics"]
        for metric in scope["metrics"]
        if metric["name"] == name
    ]


@pytest.fixture
def recording(tmp_path: Path) -> tuple[Recording, Recorder, Path]:
    run = RunBuilder(tmp_path).attempt()
    folder = run.folder.rank_folder(1, 0)
    made = Recording()
    trace = RunTrace(trace_id=0xABC, span_id=0xDEF)
    return made, Recorder(folder, {"run_id": run.run_id}, made.buffer, made.digest, trace, version="test"), folder


def test_counters_histograms_and_events_are_written_as_such(recording: tuple[Recording, Recorder, Path]) -> None:
    """A counter is a sum, a distribution an exponential histogram, an occurrence a record with step and severity."""
    made, recorder, folder = recording
    made.log.add_reading(Whole(), step=42, time_ns=5 * SECOND)
    assert recorder.flush()
    totals = [point["asInt"] for one in metrics_named(folder, "dl.nonfinite") for point in one["sum"]["dataPoints"]]
    assert totals == ["2", "2"]  # its own, and the first heartbeat's
    (histogram,) = metrics_named(folder, "dl.step.duration")
    (point,) = histogram["exponentialHistogram"]["dataPoints"]
    assert (int(point["count"]), point["scale"], point["timeUnixNano"]) == (3, 0, str(5 * SECOND))
    assert [int(count) for count in point["positive"]["bucketCounts"]] == [1, 2]
    recorder.flush()  # what one cycle found is queued for the next
    (record,) = [
        record
        for line in lines(folder, "logs")
        for resource in line["resourceLogs"]
        for scope in resource["scopeLogs"]
        for record in scope["logRecords"]
    ]
    attributes = {one["key"]: one["value"] for one in record["attributes"]}
    assert record["eventName"] == "health.nonfinite"
    assert record["severityText"] == "ERROR"
    assert attributes["dl.step"] == {"intValue": "42"}
    assert attributes["layer"] == {"stringValue": "fc1"}


def test_totals_are_written_again_with_each_heartbeat(recording: tuple[Recording, Recorder, Path]) -> None:
    """A store forgets a series that says nothing for five minutes; the end is a heartbeat too."""
    made, recorder, folder = recording
    made.log.add_reading(Whole(), step=1)
    assert recorder.flush()
    recorder.stop(recorder._clock.mono_ns() + 5 * SECOND, "finished")
    assert (
        sum(
            len(metric["sum"]["dataPoints"])
            for path in folder.glob("metrics.*")
            for metric in metrics_in(path)
            if metric["name"] == "dl.nonfinite"
        )
        == 3
    )


def metrics_in(path: Path) -> list[dict[str, Any]]:
    import gzip

    text = gzip.decompress(path.read_bytes()).decode() if path.suffix == ".gz" else path.read_text()
    return [
        metric
        for line in map(json.loads, text.splitlines())
        for resource in line["resourceMetrics"]
        for scope in resource["scopeMetrics"]
        for metric in scope["metrics"]
    ]


def test_a_flush_waits_for_readings_but_not_for_ever(recording: tuple[Recording, Recorder, Path]) -> None:
    """While a device holds a value the flush says no within its time; afterwards yes."""
    made, recorder, _ = recording
    held = Gap(1.0, ready=False)
    made.log.add_reading(held, step=0)
    assert not recorder.flush(0.05)
    held.come()
    assert recorder.flush(5.0)
