"""When a rank counts as hung, what is then written, once, and how stacks come about though the interpreter stands."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from otel_train.clock import NS_PER_S
from otel_train.runlog.stacks import MOST_STACKS, StacksFile, bounded, read_stacks, stacks_of_all_threads
from otel_train.watch.hang import FIRST_STEP_FACTOR, HangWatch
from otel_train.watch.health import Pace
from otel_train.watch.stuck import StuckWatch
from otel_train.watch.thresholds import Thresholds

WALL_NS = 1_800_000_000 * NS_PER_S
linux = pytest.mark.skipif(sys.platform != "linux", reason="the kernel's timers that send signals are Linux's")


class Watched:
    """A watch whose time, stacks and surroundings are made up."""

    def __init__(self, **alerts: float) -> None:
        self.asked = 0
        self.waits = False
        self.dumped = ""
        self.seconds = 0.0
        self.watch = HangWatch(
            Thresholds(alerts),
            stacks=self._stacks,
            dumped=lambda: self.dumped,
            waits=lambda: self.waits,
            recorder=lambda: "/somewhere/collectives.json",
        )

    def _stacks(self) -> str:
        self.asked += 1
        return f"stacks {self.asked}"

    def settle(self, pace: Pace, after_s: float = 1.0, *, ended: bool = False) -> list[tuple[str, str, dict]]:
        """Let time pass and return (severity, body, attributes) of what is found."""
        self.seconds += after_s
        now_ns = round(self.seconds * NS_PER_S)
        found = self.watch.settle(pace, WALL_NS + now_ns, now_ns, ended=ended)
        assert {finding.event for finding in found} <= {"health.hung"}
        return [(finding.severity, finding.body, dict(finding.attributes)) for finding in found]


def pace(usual_s: float | None, age_s: float, *, elsewhere: str = "", began: bool = True, step: int | None = 7) -> Pace:
    return Pace(usual_s, age_s, began, elsewhere, step)


def test_ten_usual_steps_and_at_least_half_a_minute() -> None:
    """The limit is the greater of the two, and one moment before it nothing is said."""
    short, long = Watched(), Watched()
    assert short.settle(pace(0.1, 30.0)) == []
    ((severity, body, attributes),) = short.settle(pace(0.1, 30.1))
    assert severity == "ERROR"
    assert body.startswith("no step for 30.1 s after step 7 (threshold 30 s); ")
    assert attributes == {
        "metric": "dl.step.age",
        "value": 30.1,
        "threshold": 30.0,
        "waits_for_others": False,
        "code.stacktrace": "stacks 1",
        "dl.step": 7,
        "flight_recorder": "/somewhere/collectives.json",
    }
    assert long.settle(pace(8.0, 79.0)) == []
    ((_, _, attributes),) = long.settle(pace(8.0, 81.0))
    assert attributes["threshold"] == 80.0


def test_it_is_said_once_and_again_only_after_steps_went_on() -> None:
    """One event an onset, one when it is over; the next hang is another onset, with other stacks."""
    watched = Watched(hung_min_s=3)
    assert len(watched.settle(pace(0.1, 4.0))) == 1
    assert [watched.settle(pace(0.1, age_s)) for age_s in (5.0, 60.0, 3600.0)] == [[], [], []]
    assert watched.asked == 1
    since_ns = watched.watch.since_ns
    assert since_ns == WALL_NS + round((1.0 - 4.0) * NS_PER_S)
    ((severity, body, attributes),) = watched.settle(pace(0.1, 0.1, step=8))
    assert (severity, attributes["cleared"], attributes["dl.step"]) == ("INFO", True, 8)
    # It began three seconds before the watch did; now five are over, and the last step was a tenth of one ago.
    assert body == "steps go on after 7.9 s; is over"
    assert watched.watch.since_ns == 0
    ((_, _, attributes),) = watched.settle(pace(0.1, 4.0))
    assert attributes["code.stacktrace"] == "stacks 2"


def test_a_rank_that_waits_for_others_says_so() -> None:
    """It is no culprit; and what it waits for may change while it hangs."""
    watched = Watched(hung_min_s=3)
    watched.waits = True
    ((_, body, attributes),) = watched.settle(pace(0.1, 4.0))
    assert attributes["waits_for_others"] is True
    assert body.endswith("it waits for other ranks in a collective")
    assert watched.watch.waiting
    watched.waits = False
    watched.settle(pace(0.1, 5.0))
    assert not watched.watch.waiting


def test_the_first_step_may_take_twenty_times_as_long() -> None:
    """Without a usual step time the beginning of the loop counts: there a first collective may hang for ever."""
    watched = Watched(hung_min_s=3)
    before = pace(None, 0.0, elsewhere="outside of the loop", began=False, step=None)
    assert watched.settle(before, after_s=1000) == []
    begun = pace(None, 0.0, began=False, step=None)
    assert watched.settle(begun) == []
    assert watched.settle(begun, after_s=FIRST_STEP_FACTOR * 3) == []
    ((_, body, attributes),) = watched.settle(begun)
    assert attributes["threshold"] == 60.0
    assert attributes["value"] == 61.0
    assert body.startswith("no step for 61 s (threshold 60 s)")


def test_a_second_step_that_never_comes() -> None:
    """After one step there is no usual time yet: the time since that step counts."""
    watched = Watched(hung_min_s=3)
    assert watched.settle(pace(None, 0.5, step=0)) == []
    assert watched.settle(pace(None, 59.0, step=0), after_s=58.5) == []
    ((_, _, attributes),) = watched.settle(pace(None, 61.0, step=0), after_s=2.0)
    assert attributes["value"] == pytest.approx(61.0)


@pytest.mark.parametrize("alerts", [{"hung_factor": 0}, {"hung_min_s": 0}])
def test_it_can_be_switched_off(alerts: dict[str, float]) -> None:
    """With 0 for either nothing is ever said."""
    assert Watched(**alerts).settle(pace(0.1, 1e6)) == []


def test_nothing_is_said_at_the_end() -> None:
    """A run that ends makes no steps, and hangs in nothing."""
    assert Watched().settle(pace(0.1, 1e6), ended=True) == []


def test_what_was_dumped_while_the_interpreter_stood_is_said_at_once() -> None:
    """The stacks of that moment, not those of now, when all threads have gone on."""
    watched = Watched()
    watched.dumped = "Thread 0x1 (most recent call first): held"
    ((severity, body, attributes),) = watched.settle(pace(0.1, 12.0))
    assert severity == "ERROR"
    assert "the interpreter stood still" in body
    assert attributes["code.stacktrace"] == watched.dumped
    assert watched.asked == 0


def test_stacks_are_those_of_all_threads() -> None:
    """A thread that waits is found with the function it waits in, beside the one that asks."""
    release = threading.Event()

    def wait_in_here() -> None:
        release.wait(60)

    thread = threading.Thread(target=wait_in_here)
    thread.start()
    try:
        text = stacks_of_all_threads()
    finally:
        release.set()
        thread.join()
    assert "in wait_in_here" in text
    assert "in test_stacks_are_those_of_all_threads" in text
    assert text.count("most recent call first") >= 2


def test_long_stacks_keep_the_thread_that_trains() -> None:
    """Of more than fits the last one stays, which is the main thread, and what is left out is counted."""
    stacks = [f"Thread {number}:\n" + "x" * 1000 for number in range(100)]
    text = bounded("\n\n".join(stacks))
    assert len(text) <= MOST_STACKS
    kept = text.split("\n\n")
    assert kept[1:] == stacks[100 - len(kept[1:]) :]
    assert kept[0] == f"[{100 - len(kept[1:])} more threads left out]"
    assert len(kept) > 25
    assert bounded("short") == "short"
    assert len(bounded("x" * 100_000)) <= MOST_STACKS


def test_the_file_for_stacks_leaves_nothing_behind(tmp_path: Path) -> None:
    """Empty it is removed; with stacks it stays for those who look later."""
    file = StacksFile(tmp_path)
    assert file.take() == ""
    os.write(file.descriptor, b"Thread 1\n")
    assert read_stacks(tmp_path) == "Thread 1\n"
    assert file.take() == "Thread 1\n"
    assert read_stacks(tmp_path) == ""
    file.close()
    assert not file.path.exists()
    again = StacksFile(tmp_path)
    os.write(again.descriptor, b"Thread 2\n")
    again.close()
    assert read_stacks(tmp_path) == "Thread 2\n"


def caught_signals() -> int:
    (row,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("SigCgt")]
    return int(row.split()[1], 16)


@linux
def test_the_watch_of_the_interpreter_takes_itself_away(tmp_path: Path) -> None:
    """Handler, thread and timer are gone after `stop`; a signal that comes late does nothing."""
    before = caught_signals()
    with open(tmp_path / "stacks.txt", "w+b") as file:
        watch = StuckWatch(file.fileno(), 60)
        assert watch.start()
        assert caught_signals() == before | 1 << (signal.SIGURG - 1)
        watch.stop()
        assert caught_signals() == before
        os.kill(os.getpid(), signal.SIGURG)
        assert file.read() == b""


@linux
def test_somebody_elses_use_of_the_signal_is_left_alone(tmp_path: Path) -> None:
    """Where SIGURG has a handler there is no watch, and the handler is still called."""
    heard: list[int] = []
    former = signal.signal(signal.SIGURG, lambda number, frame: heard.append(number))
    try:
        with open(tmp_path / "stacks.txt", "w+b") as file:
            watch = StuckWatch(file.fileno(), 60)
            assert not watch.start()
            watch.stop()
        signal.raise_signal(signal.SIGURG)
    finally:
        signal.signal(signal.SIGURG, former)
    assert heard == [signal.SIGURG]


HELD = """
import ctypes, sys, time
from otel_train.watch.stuck import StuckWatch

def hold_the_lock(seconds):
    library = ctypes.PyDLL(None)
    mutex = ctypes.create_string_buffer(64)
    library.pthread_mutex_lock(mutex)
    library.pthread_mutex_timedlock(mutex, (ctypes.c_long * 2)(int(time.time() + seconds) + 1, 0))

file = open(sys.argv[1], "w+b")
watch = StuckWatch(file.fileno(), 1.0)
assert watch.start()
time.sleep(3)  # three times the limit: the timer is put off meanwhile
assert file.read() == b"", "the interpreter did not stand still"
hold_the_lock(3)
watch.stop()
"""


@linux
@pytest.mark.slow
def test_stacks_are_written_while_a_c_call_holds_the_interpreters_lock(tmp_path: Path) -> None:
    """Not before: a thread that sleeps lets others run. Then the file names the function that holds the lock, once."""
    path = tmp_path / "stacks.txt"
    (tmp_path / "held.py").write_text(HELD, encoding="utf-8")
    subprocess.run(
        [sys.executable, str(tmp_path / "held.py"), str(path)],
        check=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)},
    )
    text = path.read_text(encoding="utf-8")
    assert "in hold_the_lock" in text
    assert text.count("in hold_the_lock") == 1
