"""Several runs in one process: what each thread records goes to its run and to no other."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from opentelemetry import trace

import otel_train
from otel_train.testing import recorded

Start = Callable[..., Any]


def test_two_threads_with_two_runs_do_not_mix(start: Start) -> None:
    """100 times 1.0 and 100 times 2.0, interleaved; A ends first, B goes on; log records and spans follow."""
    turn = threading.Barrier(2, timeout=20)
    a_ended = threading.Event()
    runs: dict[str, Any] = {}
    logger = logging.getLogger("pipeline")
    tracer = trace.get_tracer("user")

    def work(name: str, value: float) -> None:
        run = runs[name] = start(name=name, flood_per_s=1000)
        for number in range(100):
            turn.wait()
            otel_train.log({"x": value})
            if number % 10 == 0:
                with otel_train.stage(f"stage {name}"), tracer.start_as_current_span(f"user {name}"):
                    logger.warning("record of %s", name)
        if name == "A":
            run.finish()
            a_ended.set()
        else:
            a_ended.wait(20)
            otel_train.log({"late": value})
            logger.warning("late record of %s", name)
            with otel_train.stage("late"):
                pass
            run.finish()

    threads = [threading.Thread(target=work, args=pair) for pair in (("A", 1.0), ("B", 2.0))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    a, b = recorded(runs["A"]), recorded(runs["B"])
    assert a.values("x") == [1.0] * 100
    assert b.values("x") == [2.0] * 100
    assert (a.values("late"), b.values("late")) == ([], [2.0])
    assert a.messages == ["record of A"] * 10
    assert b.messages == ["record of B"] * 10 + ["late record of B"]
    for record, name in ((a, "A"), (b, "B")):
        stages, spans = record.spans_of(f"stage {name}"), record.spans_of(f"user {name}")
        assert (len(stages), len(spans)) == (10, 10)
        assert [span.entry.parent_span_id for span in spans] == [stage.entry.span_id for stage in stages]
        others = {"A": "B", "B": "A"}[name]
        assert not record.spans_of(f"user {others}")
        ids = {span.entry.span_id for span in spans}
        assert {log.entry.span_id for log in record.logs if log.body == f"record of {name}"} == ids
    assert len(b.spans_of("late")) == 1
    assert (a.info["status"], b.info["status"]) == ("finished", "finished")


def test_many_threads_may_log_to_one_run(start: Start) -> None:
    """Four threads, 500 points each: all are there, each thread's in its order."""
    run = start()

    def work(number: int) -> None:
        for value in range(500):
            run.log({f"x{number}": value}, step=value)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    run.finish()
    record = recorded(run)
    for number in range(4):
        assert record.values(f"x{number}") == list(range(500))
        assert record.steps(f"x{number}") == list(range(500))


def test_use_binds_a_thread(start: Start) -> None:
    """A worker of two pipelines says for which it works; outside of the block it belongs to none."""
    first = start(name="first")
    second: list[Any] = []
    logger = logging.getLogger("worker")

    def make() -> None:
        second.append(start(name="second"))

    def work() -> None:
        logger.warning("to nobody")
        with second[0].use():
            logger.warning("to the second")
            otel_train.log({"x": 2.0})
        with first.use():
            logger.warning("to the first")
            otel_train.log({"x": 1.0})

    for target in (make, work):
        thread = threading.Thread(target=target)
        thread.start()
        thread.join()
    for run in (first, second[0]):
        run.finish()
    assert (recorded(first).values("x"), recorded(first).messages) == ([1.0], ["to the first"])
    assert (recorded(second[0]).values("x"), recorded(second[0]).messages) == ([2.0], ["to the second"])


def test_tasks_of_asyncio_keep_their_runs_apart(start: Start) -> None:
    """A task's context is its own: what one binds is not the other's."""
    first = start()
    second: list[Any] = []
    thread = threading.Thread(target=lambda: second.append(start()))
    thread.start()
    thread.join()

    async def work(run: Any, value: float) -> None:
        with run.use():
            for _ in range(10):
                otel_train.log({"x": value})
                await asyncio.sleep(0)

    async def both() -> None:
        await asyncio.gather(work(first, 1.0), work(second[0], 2.0))

    asyncio.run(both())
    first.finish()
    second[0].finish()
    assert recorded(first).values("x") == [1.0] * 10
    assert recorded(second[0]).values("x") == [2.0] * 10


def test_a_run_that_ends_while_another_begins_leaves_it_its_hooks(start: Start) -> None:
    """Whatever the order, an open run's log sources are in place."""
    logger = logging.getLogger("user")
    for _ in range(5):
        first = start()
        begun: list[Any] = []
        starter = threading.Thread(target=lambda into=begun: into.append(start()))
        ender = threading.Thread(target=first.finish)
        starter.start()
        ender.start()
        starter.join()
        ender.join()
        with begun[0].use():
            logger.warning("here")
        begun[0].finish()
        assert recorded(begun[0]).messages == ["here"]


def test_each_run_hides_its_own_secrets(start: Start) -> None:
    """redact= of one run counts for its records, also where another run installed the sources."""
    logger = logging.getLogger("user")
    first = start()
    second: list[Any] = []

    def work() -> None:
        second.append(start(redact=[r"patient-\d+"]))
        logger.warning("seen patient-123")

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    logger.warning("seen patient-124")
    first.finish()
    second[0].finish()
    assert recorded(second[0]).messages == ["seen [redacted]"]
    assert recorded(first).messages == ["seen patient-124"]
