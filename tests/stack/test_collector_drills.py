"""What the gateway does not lose: refusals without a hint, kills in the middle, queues that are full."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.otlp_servers import Reply
from tests.stack import telemetry
from tests.stack.asking import free_port, get, wait_for
from tests.stack.fake_store import EXHAUSTED, FakeStore
from tests.stack.servers import Agent, Collector

RUN_ID = "20260101-000000-bbbbbbbb"
POINTS = 300
NAME = "train.loss"
# Once each: a store that keeps the same point of a series once would not show that one came twice.
ONCE = Counter({float(number): 1 for number in range(POINTS)})


def send_all(url: str, each: int = 20) -> None:
    """Send 300 points, so many in a request, and have each acknowledged."""
    for first in range(0, POINTS, each):
        status, answer = telemetry.send(url, "metrics", telemetry.gauge(RUN_ID, range(first, first + each)))
        assert status == 200, answer


def arrived(store: FakeStore) -> bool:
    """Whether every point has arrived."""
    return set(store.values(NAME)) == set(ONCE)


def test_a_store_that_refuses_three_times_without_a_hint_gets_every_point_once(
    run_server: Callable[..., Any], tmp_path: Path
) -> None:
    """429 three times and no Retry-After: 0 of 300 lost, none twice."""
    store = FakeStore(EXHAUSTED, EXHAUSTED, EXHAUSTED)
    gateway: Collector = run_server(lambda: Collector(tmp_path / "gateway", prometheus=store.url))
    send_all(gateway.url)
    wait_for("300 points", lambda: arrived(store), timeout_s=60)
    assert store.values(NAME) == ONCE
    assert len(store.posted) - len(store.accepted) == 3
    store.close()


def test_an_agent_sends_again_what_the_gateway_refuses(run_server: Callable[..., Any], tmp_path: Path) -> None:
    """What a memory limiter answers, 429 without a hint, costs an agent nothing either."""
    store = FakeStore(EXHAUSTED, EXHAUSTED, EXHAUSTED)
    agent: Agent = run_server(lambda: Agent(tmp_path / "agent", store.url))
    send_all(agent.url)
    wait_for("300 points", lambda: arrived(store), timeout_s=60)
    assert store.values(NAME) == ONCE
    store.close()


def test_a_collector_killed_during_a_failing_send_loses_nothing(run_server: Callable[..., Any], tmp_path: Path) -> None:
    """Killed while the store refuses what it has in hand: after the restart 0 of 300 are lost."""
    store = FakeStore()
    store.judge = lambda posted: Reply(EXHAUSTED)
    gateway: Collector = run_server(lambda: Collector(tmp_path / "gateway", prometheus=store.url))
    send_all(gateway.url)
    wait_for("two refusals", lambda: len(store.posted) >= 2)
    gateway.kill()
    store.judge = lambda posted: Reply()
    gateway.start()
    wait_for("300 points", lambda: arrived(store), timeout_s=60)
    assert store.values(NAME) == ONCE
    store.close()


def test_a_collector_stopped_gently_during_a_failing_send_loses_nothing(
    run_server: Callable[..., Any], tmp_path: Path
) -> None:
    """An ordinary restart in an outage: the batch that was being tried is tried again afterwards."""
    store = FakeStore()
    store.judge = lambda posted: Reply(503)
    gateway: Collector = run_server(lambda: Collector(tmp_path / "gateway", prometheus=store.url))
    send_all(gateway.url)
    wait_for("two refusals", lambda: len(store.posted) >= 2)
    gateway.restart()
    store.judge = lambda posted: Reply()
    wait_for("300 points", lambda: arrived(store), timeout_s=60)
    assert store.values(NAME) == ONCE
    store.close()


def test_logs_and_spans_survive_a_kill_with_a_full_queue(run_server: Callable[..., Any], tmp_path: Path) -> None:
    """Nobody takes anything; 600 records and 600 spans lie in the queues when the Collector is killed, twice."""
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    gateway: Collector = run_server(lambda: Collector(tmp_path / "gateway", loki=address, tempo=address))
    for number in range(2):
        texts = [f"record {number}-{i}" for i in range(300)]
        assert telemetry.send(gateway.url, "logs", telemetry.records(RUN_ID, texts))[0] == 200
        rows: list[tuple[str, dict[str, Any]]] = [(f"span {number}-{i}", {}) for i in range(300)]
        assert telemetry.send(gateway.url, "traces", telemetry.spans(RUN_ID, rows))[0] == 200
        gateway.kill()
        gateway.start()
    store = FakeStore(port=port)

    def both() -> bool:
        return len(list(store.records())) >= 600 and len(list(store.spans())) >= 600

    wait_for("600 records and 600 spans", both, timeout_s=60)
    bodies = Counter(record.body.string_value for _, record in store.records())
    assert bodies == Counter(f"record {number}-{i}" for number in range(2) for i in range(300))
    names = Counter(span.name for _, span in store.spans())
    assert names == Counter(f"span {number}-{i}" for number in range(2) for i in range(300))
    store.close()


def test_what_was_acknowledged_survives_kills_under_load(run_server: Callable[..., Any], tmp_path: Path) -> None:
    """Killed three times while it takes and hands out: every acknowledged point arrives at the store."""
    store = FakeStore()
    gateway: Collector = run_server(lambda: Collector(tmp_path / "gateway", prometheus=store.url))
    acknowledged: set[float] = set()
    stop = threading.Event()

    def load() -> None:
        number = 0
        while not stop.is_set():
            numbers = range(number, number + 100)
            try:
                status, _ = telemetry.send(gateway.url, "metrics", telemetry.gauge(RUN_ID, numbers))
            except OSError:
                time.sleep(0.02)  # it is down; the same points again
                continue
            if status == 200:
                acknowledged.update(map(float, numbers))
                number += 100

    thread = threading.Thread(target=load)
    thread.start()
    try:
        for _ in range(3):
            before = len(acknowledged)
            wait_for("3,000 further points", lambda before=before: len(acknowledged) >= before + 3_000, timeout_s=60)
            gateway.kill()
            gateway.start()
    finally:
        stop.set()
        thread.join()
    wait_for("all that was acknowledged", lambda: acknowledged <= set(store.values(NAME)), timeout_s=90)
    assert len(acknowledged) >= 9_000
    store.close()


def test_a_full_queue_holds_the_sender_back_and_loses_nothing(run_server: Callable[..., Any], tmp_path: Path) -> None:
    """With a queue for 1,000 points and no store the sender waits without an answer; then all arrive."""
    port = free_port()
    small = tmp_path / "small.yaml"
    small.write_text("exporters: {otlp_http/prometheus: {sending_queue: {queue_size: 1000, batch: {min_size: 100}}}}\n")
    gateway: Collector = run_server(
        lambda: Collector(tmp_path / "gateway", prometheus=f"http://127.0.0.1:{port}", more=[small])
    )
    sent = 0

    def fill() -> None:
        nonlocal sent
        for first in range(0, 3_000, 100):
            body = telemetry.gauge(RUN_ID, range(first, first + 100))
            assert telemetry.send(gateway.url, "metrics", body)[0] == 200
            sent += 100

    thread = threading.Thread(target=fill)
    thread.start()
    wait_for("a full queue", lambda: sent >= 1_000)
    time.sleep(1.0)  # what must not happen: more than the queue and the batch in hand
    assert sent < 3_000
    store = FakeStore(port=port)
    thread.join(timeout=60)
    assert sent == 3_000
    wait_for("3,000 points", lambda: len(store.values(NAME)) == 3_000, timeout_s=60)
    store.close()


def test_the_memory_limiter_refuses_in_a_way_that_is_sent_again(run_server: Callable[..., Any], tmp_path: Path) -> None:
    """Out of memory the gateway answers 429 or 503 and counts it; afterwards it takes the same points."""
    tight = tmp_path / "tight.yaml"
    tight.write_text("processors: {memory_limiter: {limit_percentage: 0, limit_mib: 1, spike_limit_mib: 0}}\n")
    store = FakeStore()
    gateway: Collector = run_server(lambda: Collector(tmp_path / "gateway", prometheus=store.url, more=[tight]))

    def refused() -> int | None:
        status, _ = telemetry.send(gateway.url, "metrics", telemetry.gauge(RUN_ID, range(20)))
        return status if status != 200 else None

    assert wait_for("a refusal", refused) in (429, 503)
    assert "otelcol_receiver_refused_metric_points" in get(gateway.telemetry_url).decode()
    store.close()
