"""Loops over a loader: their numbers, times, ends, faults, and whom the present step belongs to."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from otel_train.record import steps
from otel_train.record.steps import StepLoop
from tests.recording import TRAIN, VAL, Recording, columns_of


class Clock:
    """A monotonic clock in milliseconds that the test sets forward."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_ms = 1_000.0
        monkeypatch.setattr(steps, "mono_ns", lambda: int(self.now_ms * 1e6))

    def loader(self, batches: int, fetch_ms: float) -> Iterator[int]:
        for batch in range(batches):
            self.now_ms += fetch_ms
            yield batch


def loop(run: Recording, loader: Any, **options: Any) -> StepLoop[Any]:
    return StepLoop(loader, run.log, **options)


class Loader:
    """Something that only its user may keep alive: a real one has processes and pinned memory."""

    def __iter__(self) -> Iterator[int]:
        return iter(range(3))


@pytest.mark.parametrize("split", ["train", "val"])
def test_steps_that_wait_to_be_written_keep_no_loader_alive(split: str) -> None:
    """Three epochs, each with a loader of its own: it is gone with its loop, though no step is written yet."""
    run = Recording()
    gone = []
    for _ in range(3):
        loader = Loader()
        gone.append(weakref.ref(loader))
        for _ in loop(run, loader, split=split, owns_step=split == "train"):
            pass
    del loader
    assert [ref() for ref in gone] == [None] * 3
    assert len(columns_of(run.take(last=True))) > 0


def test_each_step_has_its_duration_and_its_wait_for_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fetches of 10 ms and bodies of 30 ms: step times of 40 ms, waits of 10 ms, at the end of each step."""
    run, clock = Recording(), Clock(monkeypatch)
    for _ in loop(run, clock.loader(3, 10)):
        clock.now_ms += 30
    digested = run.take(offset_ns=1_000_000_000_000)
    columns = {column.name: column for column in columns_of(digested)}
    assert list(columns["dl.step.time"].values) == [0.04, 0.04, 0.04]
    assert list(columns["dl.data.wait.time"].values) == [0.01, 0.01, 0.01]
    assert list(columns["dl.step"].values) == [0, 1, 2]
    assert list(columns["dl.step.time"].times_ns) == [1_001_040_000_000, 1_001_080_000_000, 1_001_120_000_000]
    assert columns["dl.step.time"].attributes == TRAIN
    assert "by the host's clock" in columns["dl.step.time"].description
    assert "By the host's clock" in columns["dl.data.wait.time"].description
    assert digested.points == 6


def test_a_wall_clock_set_back_in_mid_step_leaves_durations_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two batches for the writer the wall clock goes back 5 s: all durations are 40 ms, none negative."""
    run, clock = Recording(), Clock(monkeypatch)
    durations: list[float] = []
    offset_ns = 100_000_000_000
    for step in loop(run, clock.loader(10, 10)):
        if step == 5:
            offset_ns -= 5_000_000_000
            for column in columns_of(run.take(offset_ns=offset_ns)):
                durations += column.values if column.name == "dl.step.time" else []
        clock.now_ms += 30
    for column in columns_of(run.take(offset_ns=offset_ns)):
        durations += column.values if column.name == "dl.step.time" else []
    assert durations == [0.04] * 10


def test_points_of_a_loop_go_to_its_step_and_afterwards_to_its_last() -> None:
    """Twice the same key within a step stays there; validation after the loop stands at the last step."""
    run = Recording()
    for _ in range(2):
        for batch in loop(run, range(3)):
            run.log.log({"loss": float(batch)})
            run.log.log({"loss": batch + 0.5})
        run.log.log({"loss": 9.0}, split="val")
    found = run.stored()
    assert [step for step, _ in found[("train.loss", TRAIN)]] == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
    assert found[("train.loss", VAL)] == [(2, 9.0), (5, 9.0)]
    assert found[("dl.step.time", TRAIN)] != []


def test_after_a_loop_a_key_that_stands_at_its_last_step_begins_the_next() -> None:
    """The last step of the loop is 2, the point behind it goes to 3; the next loop begins with 4."""
    run = Recording()
    for _ in loop(run, range(3)):
        run.log.log({"loss": 1.0})
    run.log.log({"loss": 2.0})
    for _ in loop(run, range(1)):
        run.log.log({"loss": 3.0})
    assert run.stored()[("train.loss", TRAIN)] == [(0, 1.0), (1, 1.0), (2, 1.0), (3, 2.0), (4, 3.0)]


def test_explicit_steps_within_a_loop_move_nothing() -> None:
    """A point at step 100 leaves the loop at its own steps."""
    run = Recording()
    for batch in loop(run, range(2)):
        run.log.log({"a": float(batch)}, step=100)
        run.log.log({"b": float(batch)}, step=batch)
        run.log.log({"c": float(batch)})
    found = run.stored()
    assert found[("train.a", ())] == [(100, 0.0), (100, 1.0)]
    assert found[("train.b", ())] == found[("train.c", ())] == [(0, 0.0), (1, 1.0)]


def test_start_sets_the_first_step_and_numbering_goes_on_from_there() -> None:
    """start=100 for two batches, then a loop of one: steps 100, 101 and 102."""
    run = Recording()
    for _ in loop(run, range(2), start=100):
        run.log.log({"a": 1.0})
    for _ in loop(run, range(1)):
        run.log.log({"a": 1.0})
    assert [step for step, _ in run.stored()[("train.a", ())]] == [100, 101, 102]


def test_a_loop_left_by_break_or_exception_ends_its_last_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """A break and an exception in the second step: both loops have two steps, the next goes on behind them."""
    run, clock = Recording(), Clock(monkeypatch)
    for batch in loop(run, clock.loader(5, 10)):
        clock.now_ms += 5
        if batch == 1:
            break

    def fail_at_the_second() -> None:
        for batch in loop(run, clock.loader(5, 10)):
            clock.now_ms += 7
            if batch == 1:
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_at_the_second()
    assert run.log.loops == {}
    assert run.log.looping == {}
    for _ in loop(run, clock.loader(1, 10)):
        pass
    assert run.stored()[("dl.step.time", TRAIN)] == [(0, 0.015), (1, 0.015), (2, 0.017), (3, 0.017), (4, 0.01)]


def test_a_loaders_exception_passes_through_unchanged_and_is_told_once() -> None:
    """The very exception arrives, two batches were steps, and the listener heard of it once."""
    fault = OSError("disk gone")
    heard: list[Exception] = []

    def loader() -> Iterator[int]:
        yield from range(2)
        raise fault

    run = Recording()
    for options in ({}, {"split": "val", "owns_step": False}):
        with pytest.raises(OSError, match="disk gone") as caught:
            for _ in loop(run, loader(), on_loader_fault=heard.append, **options):
                pass
        assert caught.value is fault
    assert heard == [fault, fault]
    found = run.stored()
    assert len(found[("dl.step.time", TRAIN)]) == len(found[("dl.step.time", VAL)]) == 2


def test_an_exception_of_the_loops_body_is_not_told_as_the_loaders() -> None:
    """What the body raises does not pass through the loader."""
    run = Recording()

    def fail() -> None:
        for _ in loop(run, range(3), on_loader_fault=pytest.fail):
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert run.log.loops == {}


def test_faults_of_telemetry_do_not_come_out_of_the_loop() -> None:
    """A listener, a timer, its marks and a span that raise leave the batches and the loader's exception as they are."""

    def broken(*_: Any) -> Any:
        raise RuntimeError("telemetry")

    class Timer:
        mark = elapsed_s = broken

    def loader() -> Iterator[int]:
        yield 1
        raise OSError("disk gone")

    run = Recording()
    batches: list[int] = []
    for options in ({"timer": broken}, {"timer": Timer}, {"owns_step": False, "split": "val", "on_begin": broken}):
        with pytest.raises(OSError, match="disk gone"):
            batches.extend(loop(run, loader(), on_loader_fault=broken, **options))
    batches.extend(loop(run, [2], owns_step=False, split="val", on_begin=lambda: broken))
    assert batches == [1, 1, 1, 2]


def test_a_validation_loop_counts_by_itself_and_leaves_the_runs_step() -> None:
    """In the second training step three batches of validation are numbered 0 to 2; logging stays at training's step."""
    run = Recording()
    calls: list[str] = []

    def begin() -> Callable[[], None]:
        calls.append("begin")
        return lambda: calls.append("end")

    for batch in loop(run, range(3)):
        if batch == 1:
            for _ in loop(run, range(3), split="val", owns_step=False, on_begin=begin):
                run.log.log({"seen": 1.0})
        run.log.log({"loss": 1.0})
    found = run.stored()
    assert [step for step, _ in found[("dl.step.time", VAL)]] == [0, 1, 2]
    assert [step for step, _ in found[("dl.step.time", TRAIN)]] == [0, 1, 2]
    assert [step for step, _ in found[("train.seen", ())]] == [1, 1, 1]
    assert [step for step, _ in found[("train.loss", TRAIN)]] == [0, 1, 2]
    assert calls == ["begin", "end"]


def test_a_validation_loop_left_by_break_ends_its_last_batch_and_its_span() -> None:
    """One batch is recorded, from the number that `start` gives, and the end is called."""
    run = Recording()
    ended: list[bool] = []
    for _ in loop(run, range(3), split="val", owns_step=False, start=7, on_begin=lambda: lambda: ended.append(True)):
        break
    assert [step for step, _ in run.stored()[("dl.step.time", VAL)]] == [7]
    assert ended == [True]


def test_nested_loops_share_one_numbering() -> None:
    """Two outer steps with two inner ones each are the steps 0 to 5 of the run, each once."""
    run = Recording()
    for _ in loop(run, range(2)):
        run.log.log({"outer": 1.0})
        for _ in loop(run, range(2)):
            run.log.log({"inner": 1.0})
    found = run.stored()
    assert [step for step, _ in found[("train.outer", ())]] == [0, 3]
    assert [step for step, _ in found[("train.inner", ())]] == [1, 2, 4, 5]
    assert sorted(step for step, _ in found[("dl.step.time", TRAIN)]) == [0, 1, 2, 3, 4, 5]
    assert run.log.loops == {}


def test_two_loops_in_two_threads_log_to_the_steps_of_their_own() -> None:
    """Turn by turn, two threads draw the run's steps from one count, and each logs at the one it has drawn."""
    run = Recording()
    turns = threading.Barrier(2)
    drawn: dict[str, list[int]] = {"a": [], "b": []}

    def work(name: str) -> None:
        for _ in loop(run, range(20)):
            turns.wait(10)  # both are within a step now: the run's present step is that of the later
            run.log.log({name: 1.0})
            turns.wait(10)

    threads = [threading.Thread(target=work, args=(name,)) for name in drawn]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = run.stored()
    for name, steps_of in drawn.items():
        steps_of += [step for step, _ in found[(f"train.{name}", ())]]
        assert len(set(steps_of)) == 20
    assert sorted(drawn["a"] + drawn["b"]) == list(range(40))
    assert sorted(step for step, _ in found[("dl.step.time", TRAIN)]) == list(range(40))
    assert (run.log.loops, run.log.looping) == ({}, {})


def test_a_thread_without_a_loop_logs_at_the_runs_present_step() -> None:
    """A batch logger in another thread writes to the step that the one loop is at."""
    run = Recording()
    for _ in loop(run, range(3)):
        thread = threading.Thread(target=run.log.log, args=({"queue": 1.0},))
        thread.start()
        thread.join()
    assert run.stored()[("train.queue", ())] == [(0, 1.0), (1, 1.0), (2, 1.0)]


def test_a_first_batch_taken_and_let_go_is_one_step() -> None:
    """`next(iter(run.steps(x)))` ends its loop at once: the next begins with step 1."""
    run = Recording()
    assert next(iter(loop(run, range(5)))) == 0
    assert run.log.loops == {}
    for _ in loop(run, range(1)):
        run.log.log({"a": 1.0})
    assert run.stored()[("train.a", ())] == [(1, 1.0)]


def test_an_iterator_that_is_held_does_not_disturb_the_next_loop() -> None:
    """The held one has step 0; the loop after it has steps 1 and 2 and its points; the late end breaks nothing."""
    run = Recording()
    held = iter(loop(run, range(5)))
    assert next(held) == 0
    for _ in loop(run, range(2)):
        run.log.log({"a": 1.0})
    assert next(held) == 1
    run.log.log({"b": 1.0})
    del held
    gc.collect()
    assert run.log.loops == {}
    found = run.stored()
    assert found[("train.a", ())] == [(1, 1.0), (2, 1.0)]
    assert found[("train.b", ())] == [(3, 1.0)]
    assert sorted(step for step, _ in found[("dl.step.time", TRAIN)]) == [0, 1, 2, 3]


def test_a_loop_that_the_garbage_collector_ends_within_a_call_of_log_does_not_block() -> None:
    """A loop in a reference cycle is closed in the midst of `log`, by the same thread that has the lock."""
    run = Recording()
    iterator = iter(loop(run, range(3)))
    next(iterator)
    done = threading.Event()

    def close_within() -> None:
        with run.buffer.lock:
            iterator.close()  # type: ignore[attr-defined]  # an iterator by its type, a generator in fact
        done.set()

    threading.Thread(target=close_within, daemon=True).start()
    assert done.wait(5.0)
    assert run.log.loops == {}


def test_a_loop_has_the_length_of_its_loader() -> None:
    """`len` is that of the loader, and the usual error where it has none; iterating what is no iterable is one too."""
    run = Recording()
    assert len(loop(run, [1, 2, 3])) == 3
    with pytest.raises(TypeError, match="generator has no length"):
        len(loop(run, (batch for batch in range(3))))
    with pytest.raises(TypeError, match="not iterable"):
        list(loop(run, 5))


def test_a_loader_may_be_iterated_again_by_the_same_loop() -> None:
    """Two passes over one `run.steps` are steps 0 to 3."""
    run = Recording()
    again = loop(run, [1, 2])
    assert [*again, *again] == [1, 2, 1, 2]
    assert [step for step, _ in run.stored()[("dl.step.time", TRAIN)]] == [0, 1, 2, 3]


def test_a_loop_has_its_iterator_from_who_opens_the_loader() -> None:
    """Once for each pass, beside training too, with device marks and without; the length is the loader's."""
    run = Recording()
    opened: list[Any] = []

    def open_loader(loader: Any) -> Iterator[Any]:
        opened.append(loader)
        return iter([batch * 10 for batch in loader])

    class Timer:
        def mark(self) -> int:
            return 1

        def elapsed_s(self, earlier: int, later: int) -> float:
            return 0.5

    loader = [1, 2]
    for options in ({}, {"timer": Timer}, {"owns_step": False, "split": "val"}):
        again = loop(run, loader, open_loader=open_loader, **options)
        assert [*again, *again] == [10, 20, 10, 20]
        assert len(again) == 2
    assert opened == [loader] * 6


def test_a_loader_that_cannot_be_opened_is_told_as_the_loaders_fault() -> None:
    """What it raises passes unchanged, and no loop stays open."""
    run = Recording()
    fault = OSError("no worker can be started")
    heard: list[Exception] = []

    def open_loader(loader: Any) -> Iterator[Any]:
        raise fault

    for options in ({}, {"owns_step": False, "split": "val"}):
        with pytest.raises(OSError, match="no worker can be started") as caught:
            list(loop(run, [1], open_loader=open_loader, on_loader_fault=heard.append, **options))
        assert caught.value is fault
    assert heard == [fault, fault]
    assert run.log.loops == {}


class FakeDevice:
    """A device with a queue of work: launching returns at once, the next fetch waits for what was launched."""

    def __init__(self, clock: Clock, *, lag: int = 0) -> None:
        self.clock = clock
        self.free_ms = 0.0
        self.lag = lag
        self.asked = 0

    def launch(self, work_ms: float) -> None:
        self.free_ms = max(self.free_ms, self.clock.now_ms) + work_ms

    def mark(self) -> float:
        return max(self.free_ms, self.clock.now_ms)

    def elapsed_s(self, earlier: float, later: float) -> float | None:
        self.asked += 1
        return (later - earlier) / 1000.0 if self.asked > self.lag else None

    def loader(self, batches: int, fetch_ms: float) -> Iterator[int]:
        for batch in range(batches):
            self.clock.now_ms = max(self.clock.now_ms, self.free_ms) + fetch_ms
            yield batch


def test_work_of_the_device_is_not_booked_as_waiting_for_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work of 100 ms, a fetch of 10 ms that first waits for it: the device waits 9 % of a step, the host's clock 100 %.

    Both are recorded, and told apart: the one by events of the device carries clock=device.
    """
    run, clock = Recording(), Clock(monkeypatch)
    device = FakeDevice(clock)
    for _ in loop(run, device.loader(21, 10), timer=lambda: device):
        device.launch(100)
    found = run.stored()
    step_s = [value for _, value in found[("dl.step.time", TRAIN)]][1:]
    host_s = [value for _, value in found[("dl.data.wait.time", TRAIN)]][1:]
    device_s = found[("dl.data.wait.time", (*TRAIN, ("clock", "device")))][1:]
    assert step_s == [pytest.approx(0.11)] * 20
    assert host_s == [pytest.approx(0.11)] * 20
    assert [step for step, _ in device_s] == list(range(1, 21))
    assert sum(value for _, value in device_s) / sum(step_s) == pytest.approx(1 / 11)


def test_events_that_have_not_passed_are_asked_again_and_never_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the device has not done by one batch for the writer comes with the next, in order, at the step's time."""
    run, clock = Recording(), Clock(monkeypatch)
    device = FakeDevice(clock, lag=1)
    for _ in loop(run, device.loader(3, 10), timer=lambda: device):
        pass
    place = ("dl.data.wait.time", (*TRAIN, ("clock", "device")))
    assert place not in run.stored(last=False)
    column = next(column for column in columns_of(run.take()) if column.attributes == place[1])
    assert list(column.values) == [pytest.approx(0.01)] * 3
    assert list(column.times_ns) == [1_010_000_000, 1_020_000_000, 1_030_000_000]


def test_waits_that_the_device_never_ends_are_counted_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two steps whose events never pass are two lost points, and the digest is rid of them."""
    run, clock = Recording(), Clock(monkeypatch)
    device = FakeDevice(clock, lag=1_000)
    for _ in loop(run, device.loader(2, 10), timer=lambda: device):
        pass
    run.take()
    assert run.take(last=True).lost == {"still on the device at the end": 2}
    assert run.take(last=True).lost == {}


def test_marks_within_a_captured_graph_and_broken_events_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a mark is None there is no device time and no waiting for one; an event that raises is one fault."""
    run, clock = Recording(), Clock(monkeypatch)
    device = FakeDevice(clock)
    monkeypatch.setattr(device, "mark", lambda: None)
    for _ in loop(run, device.loader(2, 10), timer=lambda: device):
        pass
    assert ("dl.data.wait.time", (*TRAIN, ("clock", "device"))) not in run.stored(last=False)

    def broken(earlier: float, later: float) -> float:
        raise RuntimeError("device-side assert")

    monkeypatch.setattr(device, "mark", lambda: 1.0)
    monkeypatch.setattr(device, "elapsed_s", broken)
    for _ in loop(run, device.loader(2, 10), timer=lambda: device):
        pass
    digested = run.digest.take(run.buffer.drain(), 0)
    assert [str(fault) for fault in digested.faults] == ["device-side assert"] * 2
    assert digested.lost == {"fault of telemetry": 2}
    assert run.take().lost == {}


def test_a_loop_with_device_marks_passes_exceptions_and_breaks_on() -> None:
    """Batches, the end, a break and the loader's exception are the same with a timer as without."""
    run = Recording()

    class Timer:
        def mark(self) -> int:
            return 1

        def elapsed_s(self, earlier: int, later: int) -> float:
            return 0.5

    assert list(loop(run, range(3), timer=Timer)) == [0, 1, 2]
    for _ in loop(run, range(3), timer=Timer):
        break

    def loader() -> Iterator[int]:
        raise OSError("disk gone")
        yield 0

    heard: list[Exception] = []
    with pytest.raises(OSError, match="disk gone"):
        list(loop(run, loader(), timer=Timer, on_loader_fault=heard.append))
    assert len(heard) == 1
    assert run.stored()[("dl.data.wait.time", (*TRAIN, ("clock", "device")))] == [(step, 0.5) for step in range(4)]
