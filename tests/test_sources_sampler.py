"""The sampler's thread keeps its interval, contains faults, and ends within its deadline."""

import logging
import os
import subprocess
import sys
import textwrap
import threading
import time

import pytest
from machine_samples import CollectingSink, HandClock

from otel_train.record.entries import Sample
from otel_train.sources.sampler import Sampler


class Source:
    """Counts its calls; `work` may raise or block."""

    def __init__(self, name: str, work=lambda: None) -> None:
        self.name = name
        self.work = work
        self.times: list[int] = []
        self.closed = 0

    def sample(self, now_ns: int) -> list[Sample]:
        self.times.append(now_ns)
        self.work()
        return [Sample("system.memory.utilization", 0.5, (("source", self.name),))]

    def close(self) -> None:
        self.closed += 1


class Turns:
    """A wait that moves the clock instead of sleeping, and ends after some turns."""

    def __init__(self, clock: HandClock, turns: int) -> None:
        self.clock = clock
        self.left = turns
        self.waited_s: list[float] = []

    def __call__(self, seconds: float) -> bool:
        self.waited_s.append(seconds)
        self.clock.advance(seconds)
        self.left -= 1
        return self.left < 0


def run(sources: list[Source], clock: HandClock, turns: Turns, interval_s: float = 5.0) -> CollectingSink:
    sink = CollectingSink()
    sampler = Sampler(sink, sources, interval_s=interval_s, clock=clock, wait=turns)
    sampler.start()
    assert sampler.stop(deadline_s=10)
    return sink


def test_readings_come_at_the_start_at_each_interval_and_at_the_end():
    """At 0, 5, 10 s, and at 15 s as the last; each with the wall time at which it was read."""
    clock = HandClock(wall_ns=0)
    source = Source("host")
    sink = run([source], clock, Turns(clock, 2))
    assert [time_ns / 1e9 for time_ns, _ in sink.rounds] == [0.0, 5.0, 10.0, 15.0]
    assert source.closed == 1
    assert sink.rounds[0][1] == [Sample("system.memory.utilization", 0.5, (("source", "host"),))]


def test_slow_readings_do_not_shift_the_interval_or_pile_up():
    """A source of 2 s leaves waits of 3 s; one of 12 s makes rounds fall out, and the next is on the grid."""
    clock = HandClock(wall_ns=0)
    turns = Turns(clock, 2)
    slow = run([Source("slow", lambda: clock.advance(2))], clock, turns)
    assert turns.waited_s == [3.0, 3.0, 3.0]
    assert [t / 1e9 for t, _ in slow.rounds] == [0.0, 5.0, 10.0, 15.0]
    clock = HandClock(wall_ns=0)
    turns = Turns(clock, 2)
    very_slow = run([Source("very slow", lambda: clock.advance(12))], clock, turns)
    assert [t / 1e9 for t, _ in very_slow.rounds] == [0.0, 15.0, 30.0, 45.0]


def test_a_wall_clock_set_back_does_not_disturb_the_interval():
    """The waits stay 5 s; the times of the readings are the wall's."""
    clock = HandClock(wall_ns=100_000_000_000)
    turns = Turns(clock, 2)

    def set_back() -> None:
        if clock.wall == 105_000_000_000:
            clock.wall = 50_000_000_000

    sink = run([Source("host", set_back)], clock, turns)
    assert turns.waited_s == [5.0, 5.0, 5.0]
    assert [t / 1e9 for t, _ in sink.rounds] == [100.0, 105.0, 55.0, 60.0]


def test_a_fault_in_one_source_loses_its_readings_alone_and_is_said_once(caplog):
    """The other source has all four rounds; one warning without a traceback."""
    clock = HandClock()

    def fail() -> None:
        raise RuntimeError("no such sensor")

    good = Source("good")
    sink = run([Source("bad", fail), good], clock, Turns(clock, 2))
    assert [s.attributes for _, samples in sink.rounds for s in samples] == [(("source", "good"),)] * 4
    (warning,) = caplog.records
    assert warning.getMessage() == "sampling of bad failed: RuntimeError: no such sensor"
    assert warning.exc_info is None


def test_faults_of_the_sink_and_of_closing_stay_inside(caplog):
    """A sink that raises costs the round; a source that cannot close is said and the next one closed."""
    clock = HandClock()

    class BrokenSink(CollectingSink):
        def emit_samples(self, time_ns, samples) -> None:
            raise OSError("no")

    def cannot_close() -> None:
        raise OSError("stuck")

    first, second = Source("first"), Source("second")
    first.close = cannot_close
    sampler = Sampler(BrokenSink(), [first, second], clock=clock, wait=Turns(clock, 0))
    sampler.start()
    assert sampler.stop(deadline_s=10)
    assert second.closed == 1
    assert [r.getMessage() for r in caplog.records] == [
        "sampling of first failed: OSError: no",
        "sampling of second failed: OSError: no",
    ]


@pytest.mark.alone
def test_start_returns_at_once_and_a_hanging_source_does_not_hold_up_the_end():
    """A driver that does not answer: start and stop take no longer than they may, what it says later is dropped."""
    entered, released = threading.Event(), threading.Event()
    sink = CollectingSink()

    def hang() -> None:
        entered.set()
        released.wait(30)

    sampler = Sampler(sink, [Source("hanging", hang)])
    began = time.perf_counter()
    sampler.start()
    started_s = time.perf_counter() - began
    assert entered.wait(10)
    began = time.perf_counter()
    assert sampler.stop(deadline_s=0.2) is False
    assert time.perf_counter() - began < 2
    assert started_s < 1
    released.set()
    for thread in threading.enumerate():
        if thread.name == "otel-train-sampler":
            thread.join(10)
    assert sink.rounds == []


def test_stop_ends_a_long_wait_and_takes_a_last_reading():
    """An interval of an hour is no reason to wait; a run shorter than the interval still has two readings."""
    clock = HandClock()
    first_done = threading.Event()
    source = Source("host", first_done.set)
    sink = CollectingSink()
    sampler = Sampler(sink, [source], interval_s=3600, clock=clock)
    sampler.start()
    sampler.start()
    assert first_done.wait(10)
    clock.advance(900)
    assert sampler.stop(deadline_s=10)
    assert len(sink.rounds) == 2
    assert sampler.stop()


def test_a_reading_right_before_the_end_is_not_repeated():
    """The process ends a moment after the first reading: one round."""
    first_done = threading.Event()
    sink = CollectingSink()
    sampler = Sampler(sink, [Source("host", first_done.set)], interval_s=3600, clock=HandClock())
    sampler.start()
    assert first_done.wait(10)
    assert sampler.stop(deadline_s=10)
    assert len(sink.rounds) == 1


def test_stopping_what_never_started_is_fine():
    """Nothing to join."""
    source = Source("host")
    assert Sampler(CollectingSink(), [source]).stop()
    assert source.times == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_neither_joins_nor_samples():
    """The child stops and abandons at once, though the parent's thread is in the middle of a reading."""
    script = """
    import os, threading, time
    from otel_train.sources.sampler import Sampler

    entered, released = threading.Event(), threading.Event()

    class Busy:
        name = "busy"
        def sample(self, now_ns):
            entered.set()
            released.wait(20)
            return []
        def close(self):
            pass

    sampler = Sampler(None or type("Sink", (), {"emit_samples": lambda *_: None})(), [Busy()])
    sampler.start()
    entered.wait(10)
    pid = os.fork()
    if pid == 0:
        began = time.perf_counter()
        ended = sampler.stop(deadline_s=15)
        sampler.abandon()
        sampler.start()
        alone = threading.active_count() == 1
        os._exit(0 if ended and alone and time.perf_counter() - began < 5 else 1)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    released.set()
    print(code, sampler.stop(deadline_s=10))
    """
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", textwrap.dedent(script)]
    printed = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout.split()
    assert printed == ["0", "True"]


def test_nothing_is_loaded_before_the_first_reading():
    """Importing the samplers does not import pynvml: that is for the thread. The SDK imports psutil."""
    script = (
        "import sys, otel_train.sources.host, otel_train.sources.process, otel_train.sources.gpu, "
        "otel_train.sources.sampler as s\n"
        "print(sorted({'pynvml', 'torch', 'numpy'} & set(sys.modules)))"
    )
    printed = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout
    assert printed.strip() == "[]"


def test_logging_of_faults_is_a_plain_warning(caplog):
    """A closing fault is said under the source's name."""
    caplog.set_level(logging.INFO, logger="otel_train")
    clock = HandClock()
    source = Source("gpu")

    def cannot_close() -> None:
        raise OSError("stuck")

    source.close = cannot_close
    run([source], clock, Turns(clock, 0))
    assert [(r.levelname, r.getMessage()) for r in caplog.records] == [
        ("WARNING", "sampling of gpu failed: OSError: stuck")
    ]
