"""The share of the step time that waits for data: of a device that works behind the host's back, and of the host."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from otel_train.record import steps
from otel_train.record.steps import StepLoop
from otel_train.runlog.watcher import Finding
from otel_train.watch.health import Health
from otel_train.watch.thresholds import Thresholds
from tests.loader_data import HandClock
from tests.recording import Recording

STEPS = 700


class QueueingDevice:
    """Launching returns at once; work is done in order; to fetch a batch the host first waits for it."""

    def __init__(self, clock: HandClock) -> None:
        self.clock = clock
        self.free_ms = 0.0
        self.marks = 0
        # As if its events passed so many marks later than they do.
        self.late = 0

    def launch(self, work_ms: float) -> None:
        self.free_ms = max(self.free_ms, self.clock.now_ms) + work_ms

    def mark(self) -> tuple[int, float]:
        self.marks += 1
        return self.marks, max(self.free_ms, self.clock.now_ms)

    def elapsed_s(self, earlier: tuple[int, float], later: tuple[int, float]) -> float | None:
        if later[0] + self.late > self.marks:
            return None
        return (later[1] - earlier[1]) / 1000.0

    def batches(self, count: int, fetch_ms: float) -> Iterator[int]:
        for batch in range(count):
            self.clock.now_ms = max(self.clock.now_ms, self.free_ms) + fetch_ms
            yield batch


class Training:
    """A loop of steps of 100 ms on a device, each with a fetch of 10 ms, and who watches its health."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, *, events: bool, late: int = 0, threshold: float = 0.05
    ) -> None:
        self.clock = HandClock()
        monkeypatch.setattr(steps, "mono_ns", self.clock.mono_ns)
        self.device = QueueingDevice(self.clock)
        self.device.late = late
        self.run = Recording()
        self.health = Health(Thresholds({"data_wait_share": threshold}), self.run.digest)
        self.found: list[Finding] = []
        self.timer: Callable[[], Any] = (lambda: self.device) if events else (lambda: None)

    def go(self, count: int = STEPS, fetch_ms: float = 10.0) -> None:
        loop: StepLoop[int] = StepLoop(self.device.batches(count, fetch_ms), self.run.log, timer=self.timer)
        for step in loop:
            self.device.launch(100.0)
            if step % 50 == 49:
                self.look()
        self.look()

    def look(self) -> None:
        now_ns = self.clock.mono_ns()
        self.health.take(self.run.take())
        self.found += self.health.settle(now_ns, now_ns, ended=False)

    def share(self) -> tuple[float, tuple[Any, ...]]:
        (sample,) = [one for one in self.health.heartbeat(ended=False) if one.name == "dl.data.wait.share"]
        return sample.value, sample.attributes


def test_the_share_is_that_of_the_device_where_it_marks_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """10 of 110 ms: 9 %, not the 100 % that the host waited; series and event say that it is the device's time."""
    training = Training(monkeypatch, events=True)
    training.go()
    share, attributes = training.share()
    assert share == pytest.approx(10 / 110, rel=0.01)
    assert attributes == (("clock", "device"),)
    (event,) = training.found
    assert event.event == "health.data_wait"
    assert event.attributes["clock"] == "device"
    assert event.attributes["value"] == pytest.approx(10 / 110, rel=0.01)
    assert event.body.startswith("Training waits for data (by the device's clock): 0.0909")
    assert [(one.value, one.attributes) for one in event.samples] == [(event.attributes["value"], attributes)]


def test_without_events_the_share_is_named_as_the_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of the step's time goes by while the host fetches; the event says whose time that is."""
    training = Training(monkeypatch, events=False)
    training.go()
    share, attributes = training.share()
    assert share == pytest.approx(1.0)
    assert attributes == ()
    (event,) = training.found
    assert event.attributes["clock"] == "host"
    assert event.body.startswith("Training waits for data (by the host's clock): 1 ")


def test_a_share_of_the_device_below_the_threshold_is_no_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the host's clock it would be one: 9 % of the default of 20."""
    training = Training(monkeypatch, events=True, threshold=0.2)
    training.go()
    assert training.found == []


def test_waits_that_come_late_are_of_the_same_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """Events that pass forty marks later change nothing: the mean of those that are there, by the mean of the steps."""
    training = Training(monkeypatch, events=True, late=40)
    training.go()
    share, attributes = training.share()
    assert share == pytest.approx(10 / 110, rel=0.01)
    assert attributes == (("clock", "device"),)


def test_a_loader_that_gets_slow_is_one_condition_that_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """100 of 200 ms for ten minutes, then 1 of 101: told once, and cleared once."""
    training = Training(monkeypatch, events=True, threshold=0.2)
    training.go(3_000, fetch_ms=100.0)
    assert training.share()[0] == pytest.approx(0.5, rel=0.01)
    training.go(6_000, fetch_ms=1.0)
    assert training.share()[0] == pytest.approx(1 / 101, rel=0.01)
    assert ["cleared" in found.attributes for found in training.found] == [False, True]
