"""What rank 0 says of the others from the files that they leave, and what each rank says of itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from otel_train.clock import NS_PER_S
from otel_train.record.entries import Sample
from otel_train.runlog.folder import RunFolder
from otel_train.runlog.lock import WriterLock
from otel_train.runlog.pulse import Pulse, PulseFile, read_pace, read_pulse
from otel_train.watch.rank_watch import RankWatch, Self, cause_of
from tests.runs import START_NS, RunBuilder


class Node:
    """A machine on which only the processes live that are said to."""

    alive_pids: Mapping[int, float] = {}

    def host(self) -> str:
        return "node-1"

    def started(self, pid: int) -> float | None:
        return 1.0

    def alive(self, pid: int, started: float | None) -> bool:
        return pid in self.alive_pids


class Job:
    """A run of several ranks, seen by one of them."""

    def __init__(self, root: Path, rank: int = 0, ranks: int = 4, *, tells_hangs: bool = True) -> None:
        self.folder: RunFolder = RunBuilder(root).attempt().folder
        self.locks = {other: self._lock(other) for other in range(ranks)}
        self.said: list[tuple[str, str, dict[str, Any]]] = []
        self.given: list[float] = []
        self.self = Self(step=5, hung_since_ns=0, waits=False, times_s=(0.4, 0.1))
        self.watch = RankWatch(
            self.folder,
            1,
            rank,
            ranks,
            pid=100 + rank,
            ask=lambda: self.self,
            emit=lambda name, body, attributes: self.said.append((name, body, dict(attributes))),
            give=self._give,
            tells_hangs=tells_hangs,
            processes=Node(),  # type: ignore[arg-type]
        )

    def _lock(self, rank: int) -> WriterLock:
        lock = WriterLock(self.folder.rank_folder(1, rank))
        assert lock.acquire()
        return lock

    def _give(self, time_ns: int, samples: Sequence[Sample]) -> None:
        self.given += [sample.value for sample in samples if sample.name == "dl.rank.straggler"]

    def beat(self, rank: int, at_s: float = 0.0, **said: Any) -> None:
        """Let another rank say something of itself."""
        file = PulseFile(self.folder.rank_folder(1, rank))
        about = {"host": "node-1", "pid": 100 + rank, "process_start": 1.0, "step_s": 0.4, "busy_s": 0.1, **said}
        file.write(Pulse(time_ns=START_NS + round(at_s * NS_PER_S), rank=rank, **about))
        file.close()

    def cycle(self, at_s: float) -> None:
        self.watch.cycle(START_NS + round(at_s * NS_PER_S), round((at_s + 1) * NS_PER_S))


@pytest.fixture
def job(tmp_path: Path) -> Job:
    made = Job(tmp_path)
    for rank in range(1, 4):
        made.beat(rank, step=rank + 10)
    return made


def test_a_rank_that_is_gone_is_said_once(job: Job) -> None:
    """Its lock is free and it wrote no end: who it was, where, and how far it came."""
    job.cycle(1)
    assert job.said == []
    job.locks[2].release()
    job.cycle(4)
    job.cycle(7)
    assert job.said == [
        (
            "rank.lost",
            "rank 2 was killed at step 12: process 102 is gone and wrote no end",
            {
                "rank": 2,
                "attempt": 1,
                "reason": "process 102 is gone and wrote no end",
                "host.name": "node-1",
                "process.pid": 102,
                "dl.step": 12,
                "state": "lost",
            },
        )
    ]


def test_a_rank_that_is_just_opening_its_folder_is_not_lost(tmp_path: Path) -> None:
    """Between making the folder and locking it there is nothing to tell it by; without a pulse for long it is lost."""
    job = Job(tmp_path)
    for rank in (1, 2):
        job.locks[rank].release()
        (job.folder.rank_folder(1, rank) / "writer.lock").unlink()
    job.beat(3)
    job.cycle(0)
    assert job.said == []
    job.locks[1] = job._lock(1)
    job.beat(1, 1.0)
    for second in range(2, 40, 2):
        job.beat(1, second)
        job.beat(3, second)
        job.cycle(second)
    assert [(name, attributes["rank"]) for name, _, attributes in job.said] == [("rank.lost", 2)]


def test_the_first_that_fails_is_said_and_those_that_fail_of_it_are_not(job: Job) -> None:
    """Ranks 1 and 3 raise since they lost their connection to rank 2; one that finished is no news."""
    for rank, state, at_s in ((1, "failed", 3.5), (2, "failed", 3.0), (3, "finished", 3.2)):
        job.beat(rank, at_s, state=state, reason="ValueError: no", step=9)
        job.locks[rank].release()
    job.cycle(4)
    assert [(name, body) for name, body, _ in job.said] == [("rank.lost", "rank 2 failed at step 9: ValueError: no")]


def test_ranks_that_the_launcher_ends_are_no_news(job: Job) -> None:
    """They heard a signal and said so."""
    job.beat(1, 3.0, state="killed", reason="SIGTERM")
    job.locks[1].release()
    job.cycle(4)
    assert job.said == []


def test_a_rank_that_is_silent_though_it_lives_stands_still(job: Job) -> None:
    """Stopped by a signal, say: after half a minute without a pulse, once, and again after it went on."""
    job.cycle(29)
    assert job.said == []
    job.cycle(33)
    job.cycle(36)
    assert sorted(attributes["rank"] for _, _, attributes in job.said) == [1, 2, 3]
    assert {name for name, _, _ in job.said} == {"health.hung"}
    assert all(attributes["waits_for_others"] is False for _, _, attributes in job.said)
    for rank in (1, 2, 3):
        job.beat(rank, 40)
    job.cycle(41)
    job.cycle(60)
    assert len(job.said) == 3
    job.cycle(75)
    assert len(job.said) == 6


def test_where_hangs_are_switched_off_silence_is_none(tmp_path: Path) -> None:
    """The user's `hung_min_s` of 0 holds for what rank 0 sees of the others, too; a lost rank is told all the same."""
    job = Job(tmp_path, tells_hangs=False)
    for rank in (1, 2, 3):
        job.beat(rank)
    job.cycle(33)
    assert job.said == []
    job.locks[2].release()
    job.cycle(36)
    assert [(name, attributes["rank"]) for name, _, attributes in job.said] == [("rank.lost", 2)]


def test_stacks_of_a_rank_whose_interpreter_stands_are_put_on_record(job: Job) -> None:
    """At once, with the file's text."""
    (job.folder.rank_folder(1, 3) / "stacks.txt").write_text("Thread 1\n", encoding="utf-8")
    job.cycle(3)
    ((name, body, attributes),) = job.said
    assert (name, attributes["rank"], attributes["code.stacktrace"]) == ("health.hung", 3, "Thread 1\n")
    assert body == "rank 3 gives no sign of life for 3 s: its interpreter's lock is held"


def test_rank_1_watches_over_rank_0_alone(tmp_path: Path) -> None:
    """The others are rank 0's; who is neither watches over nobody."""
    first = Job(tmp_path / "1", rank=1)
    second = Job(tmp_path / "2", rank=2)
    for job in (first, second):
        job.beat(0, step=3)
        for rank in (0, 3):
            job.locks[rank].release()
        job.cycle(4)
    assert [(name, attributes["rank"]) for name, _, attributes in first.said] == [("rank.lost", 0)]
    assert second.said == []


def test_each_rank_gives_its_score_by_what_rank_0_says_is_usual(job: Job) -> None:
    """Own work of 0.1, 0.1, 0.1 and 0.4 s in steps of 0.4 s: usual is 0.1 s, so rank 0 scores 1, the slow one 4."""
    job.beat(3, busy_s=0.4)
    # With the first pulse: until then rank 0 itself is not among the ranks.
    job.cycle(1)
    assert read_pace(job.folder.path / "attempt-1") == pytest.approx(0.1)
    assert job.given == [pytest.approx(1.0)]
    job.cycle(10)
    assert len(job.given) == 1
    job.cycle(17)
    assert len(job.given) == 2
    slow = RankWatch(
        job.folder,
        1,
        3,
        4,
        pid=103,
        ask=lambda: Self(step=5, hung_since_ns=0, waits=False, times_s=(0.4, 0.4)),
        emit=lambda *said: None,
        give=job._give,
        processes=Node(),  # type: ignore[arg-type]
    )
    slow.cycle(START_NS, NS_PER_S)
    assert job.given[-1] == pytest.approx(0.4 / (0.4 - 0.4 + 0.1))


def test_the_last_pulse_says_how_it_ended(job: Job) -> None:
    """And no cycle after it says that the rank runs."""
    job.cycle(1)
    job.watch.end(START_NS + 5 * NS_PER_S, "failed", "ValueError: no")
    pulse = read_pulse(job.folder.rank_folder(1, 0))
    assert pulse is not None
    assert (pulse.state, pulse.reason, pulse.step, pulse.time_ns) == (
        "failed",
        "ValueError: no",
        5,
        START_NS + 5 * NS_PER_S,
    )


def test_the_cause_of_an_end_is_told_with_ones_own_end(job: Job) -> None:
    """Rank 0 failed at 5 s; rank 2 was lost with a last sign of life before: that is the cause, as run.json has it."""
    job.locks[2].release()
    cause = job.watch.cause(START_NS + 5 * NS_PER_S, "failed", "RuntimeError: connection reset by peer")
    assert cause is not None
    assert {key: cause[key] for key in ("rank", "state", "host", "pid", "step")} == {
        "rank": 2,
        "state": "lost",
        "host": "node-1",
        "pid": 102,
        "step": 12,
    }
    assert cause["text"] == "attempt 1 ended because rank 2 (node-1, process 102) was killed at step 12"
    assert cause_of([], 1) is None
