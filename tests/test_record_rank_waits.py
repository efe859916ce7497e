"""Own work of a step: its time without the waits for other ranks, by the host's clock or a device's."""

from __future__ import annotations

from typing import Any

from otel_train.clock import NS_PER_MS, NS_PER_S
from otel_train.record.columns import Blocks
from otel_train.record.rank_waits import DeviceWait, RankWaits
from otel_train.record.steps import TimedLoop
from tests.recording import TRAIN, Recording, stored


class Device:
    """Events of a made-up device, which has come to `now_ms`."""

    def __init__(self) -> None:
        self.now_ms = 0.0

    def wait(self, before_ms: float, after_ms: float) -> DeviceWait:
        return DeviceWait(self, _Event(self, before_ms), _Event(self, after_ms))

    def elapsed_s(self, before: Any, after: Any) -> float | None:
        return (after.at_ms - before.at_ms) / 1000 if after.query() else None


class _Event:
    def __init__(self, device: Device, at_ms: float) -> None:
        self._device, self.at_ms = device, at_ms

    def query(self) -> bool:
        return self._device.now_ms >= self.at_ms


def step(recording: Recording, number: int, start_ms: int, end_ms: int, loop: TimedLoop) -> None:
    recording.buffer.extend((loop, number, None, start_ms * NS_PER_MS, start_ms * NS_PER_MS, end_ms * NS_PER_MS))


def recording_of_ranks() -> tuple[Recording, RankWaits, TimedLoop]:
    recording = Recording()
    waits = recording.digest.rank_waits = RankWaits()
    return recording, waits, TimedLoop(recording.log)


def test_waits_are_taken_off_the_step_they_lie_in() -> None:
    """Two waits in one step, one in the next, and one between loops that belongs to none."""
    recording, waits, loop = recording_of_ranks()
    for start_ms, end_ms in ((10, 30), (50, 55), (120, 121), (210, 290), (310, 350)):
        waits.add(start_ms * NS_PER_MS, end_ms * NS_PER_MS)
    step(recording, 0, 0, 100, loop)
    step(recording, 1, 100, 200, loop)
    step(recording, 2, 300, 400, loop)
    found = stored(recording.take(last=True))
    assert found["dl.step.time", TRAIN] == [(0, 0.1), (1, 0.1), (2, 0.1)]
    assert found["dl.rank.busy.time", TRAIN] == [(0, 0.075), (1, 0.099), (2, 0.06)]
    assert waits.medians_s(now_ns=0) == (0.1, 0.075)


def test_without_waits_all_of_a_step_is_own_work() -> None:
    """In a job whose ranks do not wait, and for a loop beside training there is no own time at all."""
    recording, _, loop = recording_of_ranks()
    beside = TimedLoop(recording.log, split="val", owns_step=False)
    step(recording, 0, 0, 70, loop)
    step(recording, 0, 100, 200, beside)
    found = stored(recording.take(last=True))
    assert found["dl.rank.busy.time", TRAIN] == [(0, 0.07)]
    assert [name for name, _ in found].count("dl.rank.busy.time") == 1


def test_one_process_has_no_own_time() -> None:
    """Where there are no other ranks, nothing is stored twice."""
    recording = Recording()
    step(recording, 0, 0, 70, TimedLoop(recording.log))
    assert "dl.rank.busy.time" not in [name for name, _ in stored(recording.take(last=True))]


def test_a_device_says_how_long_it_waited_once_it_is_through() -> None:
    """The host goes on after a millisecond, the device waits 40 ms; steps keep their order, points their step."""
    recording, waits, loop = recording_of_ranks()
    device = Device()
    waits.add(10 * NS_PER_MS, 11 * NS_PER_MS, device.wait(50, 90))
    step(recording, 0, 0, 100, loop)
    waits.add(110 * NS_PER_MS, 111 * NS_PER_MS, device.wait(150, 160))
    step(recording, 1, 100, 200, loop)
    device.now_ms = 49
    assert not waits.standing()
    assert ("dl.rank.busy.time", TRAIN) not in stored(recording.take())
    assert recording.digest.unfinished == 2
    device.now_ms = 155
    assert waits.standing()
    assert stored(recording.take())["dl.rank.busy.time", TRAIN] == [(0, 0.06)]
    device.now_ms = 160
    assert not waits.standing()
    assert stored(recording.take())["dl.rank.busy.time", TRAIN] == [(1, 0.09)]
    assert waits.medians_s(now_ns=0) == (0.1, 0.075)


def test_what_a_device_still_has_at_the_end_is_counted_as_lost() -> None:
    """The end waits for no device."""
    recording, waits, loop = recording_of_ranks()
    waits.add(10 * NS_PER_MS, 11 * NS_PER_MS, Device().wait(50, 90))
    step(recording, 0, 0, 100, loop)
    digested: Blocks = recording.take(last=True)
    assert ("dl.rank.busy.time", TRAIN) not in stored(digested)
    assert digested.lost == {"still on the device at the end": 1}


def test_the_usual_time_is_that_of_the_last_five_minutes() -> None:
    """Old steps are forgotten; without recent ones there is no usual time."""
    waits = RankWaits()
    for second in range(1, 1001):
        waits.own_ns("train", 0, second, None, (second - 1) * NS_PER_S, second * NS_PER_S - (second < 800) * NS_PER_MS)
    assert waits.medians_s(1000 * NS_PER_S) == (1.0, 1.0)
    assert waits.medians_s(1100 * NS_PER_S) == (1.0, 1.0)
    assert waits.medians_s(1301 * NS_PER_S) is None
