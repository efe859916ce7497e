"""Watched loaders with workers: their times, what fails and dies there, and what is left of us."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, get_worker_info

from otel_train.record import steps
from otel_train.watch.loader_worker import ENDED
from tests.loader_data import Fails, GateClock, Passes, Rows, Sleeps, Stream, Watching

pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("shut_loaders"),
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork"),
    # Pinning without an accelerator is one warning, and no more.
    pytest.mark.filterwarnings("ignore:'pin_memory' argument is set as true"),
]

FOUR = [(kind, method) for kind in ("map", "iterable") for method in ("fork", "spawn")]
four_loaders = pytest.mark.parametrize(("kind", "method"), FOUR, ids=["-".join(one) for one in FOUR])


def made(kind: str, **options: Any) -> Any:
    return (Rows if kind == "map" else Stream)(**options)


@four_loaders
def test_times_are_exact_by_an_injected_clock(kind: str, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two samples of 5 ms, augmented for 25 ms each, collated in 5 ms: 10, 50, 5, together 65 ms, in two epochs.

    The first batch is waited for while it is made: it lies in no queue. The others are made while training works and
    then lie there for 30 ms: training waits for none of them. Workers live on, memory is pinned where it can be.
    """
    context: Any = multiprocessing.get_context(method)
    clock = GateClock(context)
    watching = Watching(clock)
    monkeypatch.setattr(steps, "mono_ns", clock.now_ns)
    loader: Any = DataLoader(
        made(kind, rows=6, clock=clock, fetch_ms=5.0, transform=Passes(clock, 25.0)),
        batch_size=2,
        num_workers=1,
        multiprocessing_context=context,
        persistent_workers=True,
        pin_memory=True,
        collate_fn=Passes(clock, 5.0),
    )
    # Start, end and collating; into and out of each transform. A stream's end is one more look.
    looks, looks_a_batch, looks_at_the_end = 0, 3 + 2 * 2, int(kind == "iterable")
    for _ in range(2):
        clock.let_at_next = True
        for batch in watching.steps(loader):
            if batch[0] == 0:
                looks += looks_a_batch
            if batch[0] < 4:
                clock.let()
                looks += looks_a_batch
                clock.wait_for_looks(looks)
            else:
                clock.let_at_next = kind == "iterable"
            clock.pass_ms(30.0)
        looks += looks_at_the_end
    assert watching.seconds("dl.data.fetch.time") == [0.01] * 6
    assert watching.seconds("dl.data.augment.time") == [0.05] * 6
    assert watching.seconds("dl.data.collate.time") == [0.005] * 6
    assert watching.seconds("dl.data.batch.time") == [0.065] * 6
    assert watching.seconds("dl.data.queue.time") == [0.0, 0.03, 0.03] * 2
    assert watching.seconds("dl.data.wait.time") == [0.065, 0.0, 0.0] * 2
    assert [step for step, _ in watching.points("dl.data.batch.time")] == list(range(6))


@four_loaders
@pytest.mark.alone
def test_a_planted_augmentation_is_found_with_real_workers(kind: str, method: str) -> None:
    """50 ms of augmentation a batch are seen as such; training that does nothing waits for them.

    Training that takes 110 ms a step has a batch that is asked for at the step before, so it lies there for the rest.
    """
    watching = Watching()
    loader: Any = DataLoader(
        made(kind, rows=48, transform=Sleeps(0.05, every=2)),
        batch_size=2,
        num_workers=1,
        prefetch_factor=1,
        multiprocessing_context=method,
        persistent_workers=True,
        pin_memory=True,
    )
    for batch in watching.steps(loader):
        if batch[0] >= 24:
            time.sleep(0.11)  # the work of a step
    parts = {
        name: watching.seconds(f"dl.data.{name}.time")
        for name in ("fetch", "augment", "collate", "batch", "queue", "wait")
    }
    assert {name: len(values) for name, values in parts.items()} == dict.fromkeys(parts, 24)
    assert 0.05 <= median(parts["augment"]) < 0.1
    assert 0.05 <= median(parts["batch"]) < 0.1
    assert median(parts["fetch"]) < 0.05
    # The twelfth is taken at the end of a step that was short, the thirteenth is asked for then.
    assert 0.05 <= median(parts["wait"][1:12]) < 0.1
    assert median(parts["queue"][1:12]) < 0.05
    assert 0.05 <= median(parts["queue"][13:]) < 0.1
    assert median(parts["wait"][13:]) < 0.05
    for fetch, augment, collate, batch in zip(*(parts[name] for name in list(parts)[:4]), strict=True):
        assert fetch + augment + collate == pytest.approx(batch)


@pytest.mark.parametrize(
    ("kind", "method"), [("map", "fork"), ("map", "forkserver"), ("iterable", "fork"), ("iterable", "spawn")]
)
def test_a_worker_that_raises_is_named_with_its_sample(kind: str, method: str) -> None:
    """Row 13 is broken: worker, process, the batch's indices and the row are told; torch's exception is the same."""

    def fail(watching: Watching | None) -> Exception:
        loader: Any = DataLoader(
            made(kind, rows=24, transform=Fails("raise", 13)),
            batch_size=4,
            num_workers=2,
            multiprocessing_context=method,
        )
        with pytest.raises(ValueError, match="row 13 is broken") as caught:
            for _ in loader if watching is None else watching.steps(loader):
                pass
        return caught.value

    watching = Watching()
    watched = fail(watching)
    assert str(watched) == str(fail(None))
    ((told, place, said, attributes),) = watching.failures
    assert told is watched
    assert said == "row 13 is broken"
    pid = attributes.pop("dl.data.worker.pid")
    assert pid != os.getpid()
    if kind == "map":
        # Batches go to the workers in turn: the fourth, rows 12 to 15, is the second of worker 1.
        assert attributes == {
            "dl.data.worker": 1,
            "dl.data.batch_ordinal": 1,
            "dl.data.samples": [12, 13, 14, 15],
            "dl.data.sample_count": 4,
            "dl.data.sample": 13,
        }
        assert place == f"in worker 1 (pid {pid}) at sample 13"
    else:
        # Worker 1 has the odd rows: 13 is its seventh, in its second batch.
        assert attributes == {"dl.data.worker": 1, "dl.data.batch_ordinal": 1, "dl.data.sample_ordinal": 6}
        assert place == f"in worker 1 (pid {pid}) at its sample number 6, counted from 0"
    assert watching.deaths == []


@pytest.mark.parametrize(
    ("method", "how", "exit_name"),
    [
        ("fork", "kill", "SIGKILL"),
        ("spawn", "kill", "SIGKILL"),
        ("forkserver", "kill", "SIGKILL"),
        ("fork", "3", "exit code 3"),
        ("fork", "0", "exit code 0"),
    ],
)
def test_a_worker_that_dies_is_named_with_the_sample_it_was_at(method: str, how: str, exit_name: str) -> None:
    """It was at row 13 of the batch of rows 12 to 15; how it ended is said, and torch's exception passes."""
    watching = Watching()
    loader: Any = DataLoader(
        made("map", rows=24, transform=Fails(how, 13)), batch_size=4, num_workers=2, multiprocessing_context=method
    )
    with pytest.raises(RuntimeError, match="DataLoader worker") as caught:
        for _ in watching.steps(loader):
            pass
    ((body, attributes),) = watching.deaths
    pid = attributes["dl.data.worker.pid"]
    assert str(pid) in str(caught.value)
    assert attributes == {
        "dl.data.worker": 1,
        "dl.data.worker.pid": pid,
        "dl.data.batch_ordinal": 1,
        "dl.data.samples": [12, 13, 14, 15],
        "dl.data.sample_count": 4,
        "dl.data.sample": 13,
        "dl.data.worker.exit": exit_name,
    }
    assert body.startswith(f"worker 1 (pid {pid}) is gone by {exit_name}")
    assert "at sample 13" in body
    ((fault, place, _, failed),) = watching.failures
    assert fault is caught.value
    assert place == f"in worker 1 (pid {pid}) at sample 13"
    assert failed == {key: value for key, value in attributes.items() if key != "dl.data.worker.exit"}


def test_a_worker_of_a_stream_that_dies_is_named_with_its_ordinal() -> None:
    """There are no indices: it was at the seventh sample of its share."""
    watching = Watching()
    loader: Any = DataLoader(
        made("iterable", rows=24, transform=Fails("kill", 13)),
        batch_size=4,
        num_workers=2,
        multiprocessing_context="fork",
    )
    with pytest.raises(RuntimeError, match="DataLoader worker"):
        for _ in watching.steps(loader):
            pass
    ((body, attributes),) = watching.deaths
    assert attributes["dl.data.sample_ordinal"] == 6
    assert attributes["dl.data.batch_ordinal"] == 1
    assert "at its sample number 6, counted from 0" in body


def test_a_worker_that_is_too_slow_for_the_loaders_timeout_is_named() -> None:
    """Torch gives up after its second; the worker whose turn it was is at row 4 of the second batch."""
    watching = Watching()
    loader: Any = DataLoader(
        Rows(rows=8, transform=Hangs(at=4)),
        batch_size=4,
        num_workers=1,
        multiprocessing_context="fork",
        timeout=1,
    )
    with pytest.raises(RuntimeError, match="timed out after 1 seconds"):
        list(watching.steps(loader))
    ((_, place, _, attributes),) = watching.failures
    assert attributes["dl.data.samples"] == [4, 5, 6, 7]
    assert attributes["dl.data.sample"] == 4
    assert place.endswith("at sample 4")
    assert watching.deaths == []


class Hangs:
    """A transform that does not come back from one row while the test lasts."""

    def __init__(self, at: int) -> None:
        self.at = at

    def __call__(self, row: Any) -> Any:
        if int(row) == self.at:
            time.sleep(60)  # ended with its worker, which torch kills
        return row


def wait_until(holds: Callable[[], bool], patience_s: float = 30.0) -> None:
    until_s = time.monotonic() + patience_s
    while not holds():
        assert time.monotonic() < until_s
        time.sleep(0.005)  # between two looks at another process


def has_made_all(watching: Watching) -> bool:
    """Whether the only worker has made all batches that it was asked for, and waits."""
    (iterator,) = (reference() for reference in watching.loaders._opened.values())
    return bool(iterator._marks[ENDED] == iterator._send_idx)


def test_a_worker_that_dies_while_training_works_is_found_by_looking() -> None:
    """Nobody asks for a batch: a look of the writer's thread finds it, once, and leaves its exit for torch to find."""
    watching, before = Watching(), set(multiprocessing.active_children())
    loader: Any = DataLoader(Rows(rows=64), batch_size=4, num_workers=1, multiprocessing_context="fork")
    batches = iter(watching.steps(loader))
    next(batches)
    watching.loaders.look()
    assert watching.deaths == []
    wait_until(lambda: has_made_all(watching))
    (child,) = set(multiprocessing.active_children()) - before
    former = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        assert child.pid is not None
        os.kill(child.pid, signal.SIGKILL)
        wait_until(lambda: watching.loaders.look() or bool(watching.deaths))  # type: ignore[func-returns-value]
        watching.loaders.look()
        ((body, attributes),) = watching.deaths
        assert attributes["dl.data.worker.exit"] == "SIGKILL"
        assert "between two batches" in body
        with pytest.raises(RuntimeError, match="exited unexpectedly"):
            list(batches)
        # Its end waits for the child, whose signal would otherwise raise there.
        del batches
    finally:
        signal.signal(signal.SIGCHLD, former)
    assert len(watching.deaths) == 1


def test_a_worker_ended_by_torch_is_no_death() -> None:
    """Loops that end, are left, or whose stream has an end for each worker: nobody died."""
    watching = Watching()
    for kind in ("map", "iterable"):
        loader: Any = DataLoader(made(kind, rows=24), batch_size=4, num_workers=2, multiprocessing_context="fork")
        for _ in watching.steps(loader):
            watching.loaders.look()
        for _ in watching.steps(loader):
            break
        watching.loaders.look()
    watching.loaders.close()
    assert (watching.deaths, watching.failures) == ([], [])


def test_an_init_function_that_raises_is_told_with_its_worker() -> None:
    """Its exception comes with the first batch that the worker was asked for."""

    def init(worker: int) -> None:
        raise OSError(f"no disk for worker {worker}")

    watching = Watching()
    loader: Any = DataLoader(
        Rows(rows=8), batch_size=4, num_workers=1, multiprocessing_context="fork", worker_init_fn=init
    )
    with pytest.raises(OSError, match="no disk for worker 0"):
        list(watching.steps(loader))
    ((_, _, _, attributes),) = watching.failures
    assert attributes["dl.data.worker"] == 0
    assert attributes["dl.data.samples"] == [0, 1, 2, 3]


def shifted(worker: int) -> None:
    info = get_worker_info()
    assert info is not None
    assert type(info.dataset) is Rows
    info.dataset.fetch_ms = 100.0 * (worker + 1)


def test_a_worker_has_the_users_own_data_set_and_start() -> None:
    """What `worker_init_fn` sets on the data set of its worker is there when rows are read."""
    watching = Watching()
    loader: Any = DataLoader(
        Rows(rows=8),
        batch_size=2,
        num_workers=2,
        multiprocessing_context="fork",
        worker_init_fn=shifted,
        collate_fn=shift_of,
    )
    assert list(watching.steps(loader)) == [100.0, 200.0, 100.0, 200.0]


def shift_of(rows: list[Any]) -> float:
    info = get_worker_info()
    assert info is not None
    shift: float = info.dataset.fetch_ms
    return shift


class WaitsForTheOther:
    """A transform that holds the first row back until the other worker is at its second batch."""

    def __init__(self, context: Any) -> None:
        self.event = context.Event()

    def __call__(self, row: Any) -> Any:
        if int(row) == 6:
            self.event.set()
        if int(row) == 0:
            assert self.event.wait(60)
            time.sleep(0.2)  # the other's first batch is on its way through a thread of its own
        return row


def test_batches_out_of_order_keep_their_own_samples() -> None:
    """The first batch takes longest: it comes late, and each batch's span has the indices of its own rows."""
    watching = Watching(span_every=1)
    loader: Any = DataLoader(
        Rows(rows=16, transform=WaitsForTheOther(multiprocessing.get_context("fork"))),
        batch_size=2,
        num_workers=2,
        multiprocessing_context="fork",
        in_order=False,
    )
    got = [[int(row) for row in batch] for batch in watching.steps(loader)]
    assert sorted(row for batch in got for row in batch) == list(range(16))
    assert got[0] != [0, 1]
    taken = [step.batches for step in watching.recording.take(last=True).steps]
    assert [list(batches[0].index) for batches in taken] == got


def test_persistent_workers_go_on_unwatched_and_are_watched_again() -> None:
    """Watched, let go and watched by another run: the same processes, plain batches each time, times where watched."""
    loader: Any = DataLoader(
        Rows(rows=8), batch_size=4, num_workers=1, multiprocessing_context="fork", persistent_workers=True
    )
    first, second, before = Watching(), Watching(), set(multiprocessing.active_children())
    rows = [list(batch) for batch in first.steps(loader)]
    (child,) = set(multiprocessing.active_children()) - before
    first.loaders.close()
    assert [list(batch) for batch in loader] == rows
    assert len(first.seconds("dl.data.batch.time")) == 2
    assert [list(batch) for batch in second.steps(loader)] == rows
    assert len(second.seconds("dl.data.batch.time")) == 2
    assert set(multiprocessing.active_children()) - before == {child}
    assert "_get_iterator" not in vars(loader)
    del loader
    wait_until(lambda: child not in multiprocessing.active_children())


def test_workers_that_were_started_before_are_left_as_they_are() -> None:
    """They are not watched, which is said once; batches come all the same."""
    loader: Any = DataLoader(
        Rows(rows=8), batch_size=4, num_workers=1, multiprocessing_context="fork", persistent_workers=True
    )
    rows = [list(batch) for batch in loader]
    watching = Watching()
    assert [list(batch) for batch in watching.steps(loader)] == rows
    assert watching.seconds("dl.data.batch.time") == []
    (notice,) = watching.notices
    assert "were started before it was watched" in notice


def test_what_comes_through_a_queue_is_shared_memory_as_ever() -> None:
    """A tensor's memory is shared with its worker, watched or not."""
    for wrap in (lambda loader: loader, Watching().steps):
        loader: Any = DataLoader(Rows(rows=4), batch_size=4, num_workers=1, multiprocessing_context="fork")
        (batch,) = wrap(loader)
        assert type(batch) is torch.Tensor
        assert batch.is_shared()
