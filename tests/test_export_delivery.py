"""Every item of a request arrives once or is counted as refused with its reason, whatever the server does."""

from __future__ import annotations

import json
import logging
import random
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from otlp_servers import (
    HttpServer,
    Posted,
    Reply,
    Waits,
    bodies,
    deliver,
    gauge,
    part,
    records,
    values,
)
from runlog_lines import HandClock

from otel_train.clock import NS_PER_S, SYSTEM
from otel_train.export.backoff import LONGEST_MISDIRECTED_S, LONGEST_ORDERED_S, LONGEST_S, Backoff
from otel_train.export.delivery import Delivery, Request
from otel_train.export.destination import Destination
from otel_train.export.http_json import json_body
from otel_train.export.isolation import MAX_REQUESTS, kind_of_reason
from otel_train.export.outage_notices import NOTICES, OutageNotices
from otel_train.export.transport import Answer, Verdict
from otel_train.otlp.encode import LineEncoder
from otel_train.record.entries import SpanEntry

Serve = Callable[..., HttpServer]


@pytest.fixture
def serve() -> Iterator[Serve]:
    made: list[HttpServer] = []

    def serve(*script: Reply, **options: Any) -> HttpServer:
        made.append(HttpServer(*script, **options))
        return made[-1]

    yield serve
    for server in made:
        server.close()


@pytest.fixture
def waits() -> Waits:
    return Waits()


@pytest.fixture
def open_to(waits: Waits) -> Iterator[Callable[..., Delivery]]:
    """A delivery whose pauses last no time, whose jitter is always one half, and that is closed with the test."""
    made: list[Delivery] = []

    def open_to(where: HttpServer | Destination, **fields: Any) -> Delivery:
        options = {"wait": waits, "random": lambda: 0.5, "notices": OutageNotices()}
        ours = ("wait", "random", "notices", "clock", "patience_s")
        options |= {name: fields.pop(name) for name in list(fields) if name in ours}
        destination = where if isinstance(where, Destination) else where.destination(**fields)
        made.append(Delivery(destination, **options))
        return made[-1]

    yield open_to
    for delivery in made:
        delivery.close()


Open = Callable[..., Delivery]


def numbers(server: HttpServer) -> list[int]:
    return [int(value) for _, value in values(server.accepted)]


def refusing(bad: Callable[[float], bool], words: str = "out of bounds") -> Callable[[Posted], Reply]:
    """Answer 400 for every request that holds a bad value; the words name the first of them."""

    def judge(posted: Posted) -> Reply:
        found = [value for _, value in values([posted]) if bad(value)]
        return Reply(400, json.dumps({"code": 3, "message": f"{words}: {found[0]}"}).encode()) if found else Reply()

    return judge


def test_a_request_arrives_once(serve: Serve, open_to: Open) -> None:
    """The account of a success: all accepted, nothing refused, no retry."""
    server = serve()
    done = deliver(open_to(server), gauge("train.loss", range(200)), gauge("train.loss", range(200, 300)), items=300)
    assert (done.accepted, done.refused, done.reasons, done.finished) == (300, 0, {}, True)
    assert (done.retries, done.fault) == (0, "")
    assert numbers(server) == list(range(300))
    assert len(server.posted) == 1


def test_no_parts_are_no_request(serve: Serve, open_to: Open) -> None:
    """Nothing to send is finished at once."""
    server = serve()
    assert deliver(open_to(server), items=0).finished
    assert server.posted == []


def test_reset_connections_are_tried_again(serve: Serve, open_to: Open) -> None:
    """Two resets, then a server that takes: 300 points once each, in order."""
    server = serve(Reply(0), Reply(0))
    done = deliver(open_to(server), gauge("train.loss", range(300)), items=300)
    assert (done.accepted, done.retries, done.finished) == (300, 2, True)
    assert numbers(server) == list(range(300))


def test_a_server_that_is_absent_at_first_is_found(open_to: Open) -> None:
    """A closed port at the start is tried until somebody listens there, without a restart."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
    opened: list[HttpServer] = []

    def wait(stop: threading.Event, seconds: float) -> None:
        tries.append(seconds)
        if len(tries) == 5:
            opened.append(HttpServer(port=port))

    tries: list[float] = []
    done = deliver(
        open_to(Destination("metrics", f"http://127.0.0.1:{port}/v1/metrics"), wait=wait),
        gauge("train.loss", range(300)),
        items=300,
    )
    opened[0].close()
    assert (done.accepted, done.retries) == (300, 5)
    assert numbers(opened[0]) == list(range(300))


def test_503_waits_as_long_as_the_server_says(serve: Serve, open_to: Open, waits: Waits) -> None:
    """Three times 503 with Retry-After: each wait is at least that long and hardly longer, then all arrive."""
    busy = Reply(503, b"{}", {"Retry-After": "7"})
    server = serve(busy, busy, busy)
    done = deliver(open_to(server), gauge("train.loss", range(10)), items=10)
    assert (done.accepted, done.retries) == (10, 3)
    assert all(7.0 <= seconds <= 7.8 for seconds in waits.seconds)
    assert numbers(server) == list(range(10))


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504, 507])
def test_faults_of_the_server_are_tried_again(status: int, serve: Serve, open_to: Open) -> None:
    """Too many requests and every 5xx: nothing of the data is given up for them."""
    server = serve(*[Reply(status)] * 12)
    done = deliver(open_to(server), gauge("train.loss", range(10)), items=10)
    assert (done.accepted, done.refused, done.retries) == (10, 0, 12)
    assert numbers(server) == list(range(10))


def test_waits_grow_to_a_limit(serve: Serve, open_to: Open, waits: Waits) -> None:
    """Doubling from a quarter to half a second, up to half a minute; a success begins anew."""
    server = serve(*[Reply(503)] * 10)
    delivery = open_to(server)
    deliver(delivery, gauge("a", range(1)), items=1)
    assert waits.seconds == [0.375, 0.75, 1.5, 3.0, 6.0, 12.0, *[22.5] * 4]
    server.script.append(Reply(503))
    deliver(delivery, gauge("a", range(1)), items=1)
    assert waits.seconds[-1] == 0.375


def test_the_back_off_stays_within_its_limits() -> None:
    """Whatever chance says, waits are positive and bounded, and an order of the server is never cut short."""
    for draw in (0.0, 0.999):
        backoff = Backoff(lambda draw=draw: draw)  # type: ignore[misc]
        plain = [backoff.next_s() for _ in range(2000)]
        assert 0.25 <= plain[0] <= 0.5
        assert LONGEST_S / 2 <= plain[-1] <= LONGEST_S
        assert LONGEST_MISDIRECTED_S / 2 <= backoff.next_s(misdirected=True) <= LONGEST_MISDIRECTED_S
        assert 12.0 <= backoff.next_s(12.0) <= 13.3
        assert backoff.next_s(1e9) <= LONGEST_ORDERED_S * 1.2
        assert 0.0 <= backoff.next_s(0.0) <= 0.1


def test_the_users_random_state_is_untouched(serve: Serve) -> None:
    """Jitter is not drawn from the state that the user has seeded."""
    server = serve(Reply(503), Reply(503))
    random.seed(7)
    before = random.getstate()
    delivery = Delivery(server.destination(), wait=Waits(), notices=OutageNotices())
    deliver(delivery, gauge("a", range(1)), items=1)
    delivery.close()
    assert random.getstate() == before


@pytest.mark.parametrize(("status", "advice"), [(401, "token"), (403, "token"), (404, "/v1/")])
def test_a_wrong_token_or_path_refuses_no_data(
    status: int, advice: str, serve: Serve, open_to: Open, waits: Waits
) -> None:
    """It is tried again after a long wait, the text says what to do, and all arrive once it was mended."""
    server = serve(*[Reply(status)] * 3)
    delivery = open_to(server)
    seen: list[str] = []
    server.judge = lambda posted: (seen.append(delivery.fault), Reply())[1]
    done = deliver(delivery, gauge("train.loss", range(10)), items=10)
    assert (done.accepted, done.refused, done.retries) == (10, 0, 3)
    assert waits.seconds == [3.75, 7.5, 15.0]
    assert str(status) in seen[0]
    assert advice in seen[0]
    assert delivery.fault == ""


def test_413_is_split_until_it_fits(serve: Serve, open_to: Open) -> None:
    """A server that takes 5,000 bytes gets all points in pieces of that size; later requests are cut beforehand."""
    server = serve(judge=lambda posted: Reply(413) if len(posted.body) > 20_000 else Reply())
    delivery = open_to(server)
    parts = [gauge("train.loss", range(start, start + 100)) for start in range(0, 1000, 100)]
    done = deliver(delivery, *parts, items=1000)
    assert (done.accepted, done.refused, done.finished) == (1000, 0, True)
    assert sorted(numbers(server)) == list(range(1000))
    before = len(server.posted)
    assert deliver(delivery, *parts, items=1000).accepted == 1000
    assert [len(posted.body) > 20_000 for posted in server.posted[before:]].count(True) == 0


def test_413_splits_a_single_part(serve: Serve, open_to: Open) -> None:
    """One part that is too large is taken apart; resource, scope, metric and attributes stay around its points."""
    server = serve(judge=lambda posted: Reply(413) if len(values([posted])) > 40 else Reply())
    done = deliver(open_to(server), gauge("train.loss", range(100)), items=100)
    assert (done.accepted, done.refused) == (100, 0)
    assert numbers(server) == list(range(100))
    whole = json.loads(b'{"resourceMetrics":[' + gauge("train.loss", range(1)) + b"]}")["resourceMetrics"][0]
    for posted in server.accepted:
        (block,) = posted.document["resourceMetrics"]
        assert block["resource"] == whole["resource"]
        assert block["scopeMetrics"][0]["scope"] == whole["scopeMetrics"][0]["scope"]
        points = block["scopeMetrics"][0]["metrics"][0]["gauge"]["dataPoints"]
        assert {json.dumps(point["attributes"]) for point in points} == {
            '[{"key": "split", "value": {"stringValue": "train"}}]'
        }


def test_an_item_that_alone_is_too_large_is_refused(serve: Serve, open_to: Open) -> None:
    """One record of 300 kB before a server that takes 100: it is counted, the nine others arrive once."""
    server = serve(judge=lambda posted: Reply(413, b"no") if len(posted.body) > 100_000 else Reply())
    parts = [records(range(5)), records(range(5, 6), "x" * 300_000), records(range(6, 10))]
    done = deliver(open_to(server, signal="logs"), *parts, items=10, signal="logs")
    assert (done.accepted, done.refused) == (9, 1)
    ((reason, count),) = done.reasons.items()
    assert count == 1
    assert "too large" in reason
    assert sorted(bodies(server.accepted)) == sorted(f"record {number}" for number in range(10) if number != 5)


def test_requests_over_the_limit_are_split_before_they_are_sent(serve: Serve, open_to: Open) -> None:
    """No request passes the limit, a single item over it is refused without asking, and the rest arrives once."""
    server = serve()
    parts = [records(range(start, start + 100)) for start in range(0, 1000, 100)]
    parts.insert(3, records(range(1000, 1001), "y" * 50_000))
    parts.append(records(range(1001, 1501)))
    done = deliver(open_to(server, signal="logs", max_request_bytes=20_000), *parts, items=1501, signal="logs")
    assert (done.accepted, done.refused) == (1500, 1)
    assert done.reasons == {"too large: more than 20000 bytes in one item": 1}
    assert max(len(posted.body) for posted in server.posted) <= 20_000
    assert len(server.posted) < 30
    assert sorted(bodies(server.accepted)) == sorted(f"record {number}" for number in range(1501) if number != 1000)


def test_one_bad_point_among_300_is_found(serve: Serve, open_to: Open) -> None:
    """The one is refused with the server's words, the 299 others arrive exactly once."""
    server = serve(judge=refusing(lambda value: value == 137))
    parts = [gauge("train.loss", range(start, start + 100)) for start in range(0, 300, 100)]
    done = deliver(open_to(server), *parts, items=300)
    assert (done.accepted, done.refused, done.finished) == (299, 1, True)
    assert done.reasons == {"400 Bad Request: out of bounds: 137.0": 1}
    assert sorted(numbers(server)) == [number for number in range(300) if number != 137]
    assert len(server.posted) < 60


@pytest.mark.parametrize("seed", range(6))
def test_scattered_bad_points_are_found(seed: int, serve: Serve, open_to: Open) -> None:
    """Twelve bad points over three metrics, wherever they lie: they and no others are refused."""
    draw = random.Random(seed)
    bad = set(draw.sample(range(600), 12))
    server = serve(judge=refusing(lambda value: value in bad))
    parts = [gauge(f"train.m{index}", range(index * 200, index * 200 + 200)) for index in range(3)]
    done = deliver(open_to(server, random=draw.random), *parts, items=600)
    assert (done.accepted, done.refused) == (588, 12)
    assert sorted(numbers(server)) == [number for number in range(600) if number not in bad]


def test_a_run_of_old_points_is_refused_and_the_rest_arrives(serve: Serve, open_to: Open) -> None:
    """The first third of a series is refused by age: exactly that third is missing."""
    server = serve(judge=refusing(lambda value: value < 100, "too old"))
    done = deliver(open_to(server), gauge("train.loss", range(300)), items=300)
    assert (done.accepted, done.refused) == (200, 100)
    assert list(done.reasons.values()) == [100]
    assert sorted(numbers(server)) == list(range(100, 300))


def test_a_bad_log_record_and_a_bad_span_are_found(serve: Serve, open_to: Open) -> None:
    """The same for the other signals: one record, one span, and all others once."""

    def judge(posted: Posted) -> Reply:
        return Reply(400, b"bad", content_type="text/plain") if b"evil" in posted.body else Reply()

    server = serve(judge=judge)
    parts = [records(range(50)), records(range(50, 51), "evil"), records(range(51, 100))]
    done = deliver(open_to(server, signal="logs"), *parts, items=100, signal="logs")
    assert (done.accepted, done.refused, done.reasons) == (99, 1, {"400 Bad Request: bad": 1})
    assert sorted(bodies(server.accepted)) == sorted(f"record {number}" for number in range(100) if number != 50)
    server.accepted.clear()
    spans = [
        SpanEntry(name="evil" if n == 7 else "step", trace_id=1, span_id=n + 1, start_ns=n, end_ns=n + 1)
        for n in range(40)
    ]
    line = LineEncoder({"run_id": "r"}, "1").spans(spans)
    done = deliver(open_to(server, signal="traces"), part(line, "traces"), items=40, signal="traces")
    assert (done.accepted, done.refused) == (39, 1)
    ids = [
        int(span["spanId"], 16)
        for posted in server.accepted
        for scope in posted.document["resourceSpans"][0]["scopeSpans"]
        for span in scope["spans"]
    ]
    assert sorted(ids) == [n + 1 for n in range(40) if n != 7]


def series(names: int, points: int) -> list[bytes]:
    return [gauge(f"train.m{name}", range(points)) for name in range(names)]


def test_a_server_that_refuses_everything_costs_few_requests(serve: Serve, open_to: Open) -> None:
    """50 series of 200 points, all refused for one reason: some requests the first time, then a handful."""
    server = serve(judge=refusing(lambda value: True, "this tenant takes no metrics"))
    delivery = open_to(server, random=random.Random(1).random)
    done = deliver(delivery, *series(50, 200), items=10_000)
    assert (done.accepted, done.refused, done.finished) == (0, 10_000, True)
    assert len(done.reasons) == 1
    assert len(server.posted) < 350
    before = len(server.posted)
    assert deliver(delivery, *series(50, 200), items=10_000).refused == 10_000
    assert len(server.posted) - before <= 10


def test_a_metric_that_is_always_refused_costs_few_requests(serve: Serve, open_to: Open) -> None:
    """One of 50 metrics, in every request: the others arrive, and from the second time it is kept apart at once."""

    def judge(posted: Posted) -> Reply:
        bad = any(name == "train.m31" for name, _ in values([posted]))
        return Reply(400, b'{"message":"no such name"}') if bad else Reply()

    server = serve(judge=judge)
    delivery = open_to(server, random=random.Random(1).random)
    for round_number in range(3):
        before = len(server.posted)
        done = deliver(delivery, *series(50, 40), *series(50, 40), items=4000)
        assert (done.accepted, done.refused, done.reasons) == (3920, 80, {"400 Bad Request: no such name": 80})
        assert len(server.posted) - before <= (220 if round_number == 0 else 12)
    assert len(values(server.accepted)) == 3 * 3920


def test_a_series_that_becomes_good_again_is_no_longer_kept_apart(serve: Serve, open_to: Open) -> None:
    """What was refused as a whole and is now refused for one point only loses that point only."""
    server = serve(judge=refusing(lambda value: True))
    delivery = open_to(server, random=random.Random(1).random)
    assert deliver(delivery, gauge("train.loss", range(100)), items=100).refused == 100
    server.judge = refusing(lambda value: value == 50)
    done = deliver(delivery, gauge("train.loss", range(100)), items=100)
    assert (done.accepted, done.refused) == (99, 1)
    assert sorted(numbers(server)) == [number for number in range(100) if number != 50]


class InMemory:
    """Stands in for a server without a network: refuses what is bad, takes no more points at once than it says."""

    def __init__(self, bad: Callable[[int, int], bool], most: int = 10_000) -> None:
        self.requests = 0
        self.arrived: list[tuple[int, int]] = []
        self._bad = bad
        self._most = most

    def encode(self, parts: Any) -> bytes:
        return json_body("metrics", parts)

    def post(self, body: bytes, timeout_s: float, stop: threading.Event) -> Answer:
        self.requests += 1
        points = [(int(name[7:]), int(value)) for name, value in values([Posted("", {}, body, 0)])]
        if len(points) > self._most:
            return Answer(Verdict.TOO_LARGE, "413")
        found = [point for point in points if self._bad(*point)]
        if found:
            return Answer(Verdict.REFUSED, f"out of bounds: {found[0][1]}")
        self.arrived += points
        return Answer(Verdict.ACCEPTED)

    def close(self) -> None:
        pass


def send_to(server: InMemory, parts: list[bytes], items: int, seed: int) -> tuple[Delivery, Any]:
    where = Destination("metrics", "http://c/v1/metrics")
    delivery = Delivery(where, transport=server, random=random.Random(seed).random, notices=OutageNotices())
    return delivery, deliver(delivery, *parts, items=items)


@settings(deadline=None)
@given(
    bad=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 59)), max_size=12),
    most=st.integers(20, 400),
    seed=st.integers(0, 999),
)
def test_whatever_few_are_bad_exactly_they_are_refused(bad: list[tuple[int, int]], most: int, seed: int) -> None:
    """Any dozen of 300 points, under any limit of size: they are refused, all others arrive once."""
    chosen = set(bad)
    server = InMemory(lambda name, value: (name, value) in chosen, most)
    _, done = send_to(server, series(5, 60), 300, seed)
    assert (done.accepted, done.refused, done.finished) == (300 - len(chosen), len(chosen), True)
    assert len(server.arrived) == 300 - len(chosen)
    assert set(server.arrived) == {(name, value) for name in range(5) for value in range(60)} - chosen


@settings(max_examples=30, deadline=None)
@given(
    period=st.integers(2, 12),
    keep=st.integers(1, 11),
    run=st.integers(1, 40),
    names=st.integers(0, 8),
    seed=st.integers(0, 999),
)
def test_refusals_in_any_pattern_end(period: int, keep: int, run: int, names: int, seed: int) -> None:
    """Many bad points of 2,400, alternating, in runs, or whole series: bounded, counted, and nothing there twice."""

    def bad(name: int, value: int) -> bool:
        return name < names and (value // run) % period >= keep

    server = InMemory(bad)
    delivery, done = send_to(server, series(8, 300), 2400, seed)
    # At the end each of a depth's open halves may still be asked once, and sampled.
    assert server.requests <= MAX_REQUESTS + 100
    assert done.accepted == len(server.arrived) == len(set(server.arrived))
    assert done.accepted + done.refused == 2400
    assert sum(done.reasons.values()) == done.refused
    assert not any(bad(*point) for point in server.arrived)
    again = deliver(delivery, *series(8, 300), items=2400)
    assert again.accepted + again.refused == 2400


def test_a_damaged_part_is_refused_and_the_rest_arrives(serve: Serve, open_to: Open) -> None:
    """What is no JSON is found as such, and its points are counted as refused."""

    def judge(posted: Posted) -> Reply:
        try:
            json.loads(posted.body)
        except ValueError:
            return Reply(400, b"invalid character", content_type="text/plain")
        return Reply()

    server = serve(judge=judge)
    parts = [gauge("a", range(5)), gauge("a", range(5, 8))[:-4], gauge("a", range(8, 10))]
    done = deliver(open_to(server), *parts, items=10)
    assert (done.accepted, done.refused, done.reasons) == (7, 3, {"400 Bad Request: invalid character": 3})
    assert sorted(numbers(server)) == [0, 1, 2, 3, 4, 8, 9]


def test_what_surrounds_a_bad_point_is_kept(serve: Serve, open_to: Open) -> None:
    """Numbers keep their digits, text its letters, unknown fields their content, when a part is taken apart."""
    odd = json.dumps(
        {
            "resource": {"attributes": [{"key": "name", "value": {"stringValue": "naïve \u2028 😀"}}]},
            "schemaUrl": "https://x/1",
            "scopeMetrics": [
                {
                    "scope": {"name": "s"},
                    "metrics": [
                        {
                            "name": "tokens",
                            "unit": "{token}",
                            "sum": {
                                "aggregationTemporality": 2,
                                "isMonotonic": True,
                                "dataPoints": [
                                    {"timeUnixNano": "9007199254740993", "asInt": "9223372036854775807"},
                                    {"timeUnixNano": "2", "asDouble": 0.1, "futureField": [1e-300, None]},
                                    {"timeUnixNano": "3", "asDouble": 666},
                                ],
                            },
                        }
                    ],
                }
            ],
        },
        ensure_ascii=False,
    ).encode()
    server = serve(judge=lambda posted: Reply(400) if b"666" in posted.body else Reply())
    assert deliver(open_to(server), odd, items=3).refused == 1
    whole = json.loads(odd)
    points = whole["scopeMetrics"][0]["metrics"][0]["sum"].pop("dataPoints")
    arrived = []
    for posted in server.accepted:
        (block,) = posted.document["resourceMetrics"]
        arrived += block["scopeMetrics"][0]["metrics"][0]["sum"].pop("dataPoints")
        assert block == whole
    assert sorted(arrived, key=str) == sorted(points[:2], key=str)


def test_partial_success_is_counted_as_the_server_says(serve: Serve, open_to: Open) -> None:
    """Rejected points are refused with the server's words; a count beyond what was sent is cut to it."""
    body = b'{"partialSuccess":{"rejectedDataPoints":"3","errorMessage":"out of order"}}'
    server = serve(Reply(200, body), Reply(200, body.replace(b'"3"', b'"99"')))
    delivery = open_to(server)
    done = deliver(delivery, gauge("a", range(10)), items=10)
    assert (done.accepted, done.refused, done.reasons, done.finished) == (7, 3, {"out of order": 3}, True)
    done = deliver(delivery, gauge("a", range(10)), items=10)
    assert (done.accepted, done.refused) == (0, 10)


def test_a_remark_on_a_success_refuses_nothing(serve: Serve, open_to: Open) -> None:
    """A partial success without a count is a warning, and is handed on as one."""
    server = serve(Reply(200, b'{"partialSuccess":{"errorMessage":"slow down"}}'))
    done = deliver(open_to(server), gauge("a", range(10)), items=10)
    assert (done.accepted, done.refused, done.fault) == (10, 0, "slow down")


def test_retries_happen_within_an_isolation_too(serve: Serve, open_to: Open) -> None:
    """A 503 between the halves of a refused request delays, and loses or doubles nothing."""
    turn = iter(range(10_000))
    refuse = refusing(lambda value: value == 33)
    server = serve(judge=lambda posted: Reply(503) if next(turn) % 3 == 1 else refuse(posted))
    done = deliver(open_to(server), gauge("a", range(100)), items=100)
    assert (done.accepted, done.refused) == (99, 1)
    assert done.retries > 2
    assert sorted(numbers(server)) == [number for number in range(100) if number != 33]


def test_reasons_are_told_apart_without_their_numbers() -> None:
    """A time, an id or a quoted value does not make a new reason for every point."""
    texts = [
        'duplicate sample for timestamp 1700000000123; series={__name__="train_loss", run_id="a"}',
        'duplicate sample for timestamp 1700000000999; series={__name__="val_loss", run_id="b"}',
    ]
    assert len(set(map(kind_of_reason, texts))) == 1
    assert kind_of_reason("too old: -1.5e-07") == kind_of_reason("too old: 3")
    assert kind_of_reason("too old") != kind_of_reason("too new")


@pytest.mark.alone
def test_a_deadline_ends_the_tries(serve: Serve, open_to: Open) -> None:
    """A server that never has room: given up at the deadline, nothing acknowledged, the last fault told."""
    server = serve(judge=lambda posted: Reply(503, b'{"message":"queue is full"}'))
    delivery = open_to(server, wait=lambda stop, seconds: stop.wait(seconds))
    start_s = time.monotonic()
    done = deliver(delivery, gauge("a", range(10)), items=10, deadline_ns=SYSTEM.mono_ns() + NS_PER_S)
    assert time.monotonic() - start_s < 1.2
    assert (done.accepted, done.refused, done.finished) == (0, 0, False)
    assert "queue is full" in done.fault
    assert 2 <= len(server.posted) <= 6


@pytest.mark.alone
def test_a_black_hole_keeps_the_deadline(serve: Serve, open_to: Open) -> None:
    """A server that takes and never answers holds `send` no longer than the deadline says."""
    start_s = time.monotonic()
    done = deliver(
        open_to(serve(judge=lambda posted: Reply(-1))),
        gauge("a", range(10)),
        items=10,
        deadline_ns=SYSTEM.mono_ns() + NS_PER_S // 2,
    )
    assert 0.45 < time.monotonic() - start_s < 0.7
    assert not done.finished
    assert "no answer" in done.fault


@pytest.mark.alone
def test_a_full_backlog_keeps_the_deadline(open_to: Open) -> None:
    """A port that listens and accepts nobody, the nearest to an address that swallows everything."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        address = listener.getsockname()
        fillers = [socket.socket() for _ in range(4)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(address)
        start_s = time.monotonic()
        done = deliver(
            open_to(Destination("metrics", f"http://127.0.0.1:{address[1]}/v1/metrics")),
            gauge("a", range(10)),
            items=10,
            deadline_ns=SYSTEM.mono_ns() + NS_PER_S // 2,
        )
        taken_s = time.monotonic() - start_s
        for filler in fillers:
            filler.close()
    assert taken_s < 0.7
    assert not done.finished


class Slow(InMemory):
    """Takes a second for each answer."""

    def __init__(self, clock: HandClock, bad: Callable[[int, int], bool]) -> None:
        super().__init__(bad)
        self._clock = clock

    def post(self, body: bytes, timeout_s: float, stop: threading.Event) -> Answer:
        self._clock.now_ns += NS_PER_S
        return super().post(body, timeout_s, stop)


def test_patience_is_for_a_server_that_does_not_answer() -> None:
    """One that answers every question is asked on, though the whole request takes far longer than the patience."""
    clock = HandClock()
    server = Slow(clock, lambda _, value: value % 7 == 3)
    where = Destination("metrics", "http://c/v1/metrics")
    delivery = Delivery(where, clock=clock, patience_s=1.5, transport=server, notices=OutageNotices())
    done = deliver(delivery, gauge("series_1", range(100)), items=100)
    assert (done.finished, done.accepted, done.refused) == (True, 86, 14)
    assert clock.now_ns > 20 * NS_PER_S


def test_patience_ends_with_a_server_that_does_not_answer(serve: Serve, open_to: Open) -> None:
    """Without any deadline: given up after so long, and why is told."""
    server = serve(*[Reply(503)] * 1000)
    begun_ns = SYSTEM.mono_ns()
    delivery = open_to(server, patience_s=0.5, wait=lambda stop, seconds: time.sleep(0.05))
    done = deliver(delivery, gauge("a", range(10)), items=10)
    assert not done.finished
    assert done.fault.startswith("503")
    assert SYSTEM.mono_ns() - begun_ns < 2 * NS_PER_S


def test_a_passed_deadline_sends_nothing(serve: Serve, open_to: Open) -> None:
    """No request is begun when no time is left."""
    server = serve()
    done = deliver(open_to(server), gauge("a", range(1)), items=1, deadline_ns=SYSTEM.mono_ns() - 1)
    assert (done.finished, done.fault) == (False, "no time was left")
    assert server.posted == []


def test_an_ordered_wait_beyond_the_deadline_is_not_waited_for(serve: Serve, open_to: Open, waits: Waits) -> None:
    """A server that names a time would only refuse again before it: what is left of the time is not spent."""
    server = serve(Reply(429, b"{}", {"Retry-After": "60"}))
    clock = HandClock()
    done = deliver(open_to(server, clock=clock), gauge("a", range(1)), items=1, deadline_ns=5 * NS_PER_S)
    assert not done.finished
    assert waits.seconds == []
    assert len(server.posted) == 1


@pytest.mark.alone
def test_a_stop_ends_a_wait_at_once(serve: Serve, open_to: Open) -> None:
    """The real pause between two tries ends with the stop, and no further request is made."""
    server = serve(judge=lambda posted: Reply(503, b"{}", {"Retry-After": "300"}))
    delivery = open_to(server, wait=lambda stop, seconds: stop.wait(seconds))
    stop = threading.Event()
    threading.Timer(0.2, stop.set).start()
    start_s = time.monotonic()
    done = deliver(delivery, gauge("a", range(1)), items=1, stop=stop)
    assert time.monotonic() - start_s < 0.5
    assert (done.finished, len(server.posted)) == (False, 1)
    assert not deliver(delivery, gauge("a", range(1)), items=1, stop=stop).finished
    assert len(server.posted) == 1


def test_nothing_is_acknowledged_of_what_was_given_up(serve: Serve, open_to: Open) -> None:
    """Half of it may have arrived; the account says nothing of it, and the next send delivers the whole."""
    server = serve(Reply(413), Reply(), judge=lambda posted: Reply(503, b"{}", {"Retry-After": "60"}))
    parts = [gauge("a", range(100)), gauge("a", range(100, 200))]
    delivery = open_to(server)
    done = deliver(delivery, *parts, items=200, deadline_ns=SYSTEM.mono_ns() + 5 * NS_PER_S)
    assert (done.accepted, done.refused, done.reasons, done.finished) == (0, 0, {}, False)
    server.judge = lambda posted: Reply()
    assert deliver(delivery, *parts, items=200).accepted == 200


def test_a_fault_of_ours_raises_nothing(serve: Serve, open_to: Open) -> None:
    """What nobody foresaw is told as a fault, and nothing is acknowledged."""
    delivery = open_to(serve())
    done = delivery.send(Request("metrics", (None,), 1), stop=threading.Event())  # type: ignore[arg-type]
    assert not done.finished
    assert "TypeError" in done.fault


def test_an_outage_is_said_once(serve: Serve, open_to: Open, caplog: pytest.LogCaptureFixture) -> None:
    """One blip says nothing; a long outage of three signals one line, and a line when it is over."""
    notices = OutageNotices()
    server = serve(Reply(503))
    with caplog.at_level(logging.INFO, "otel_train"):
        deliver(open_to(server, notices=notices), gauge("a", range(1)), items=1)
        assert caplog.records == []
        for signal in ("metrics", "logs", "traces"):
            server.script += [Reply(503)] * 20
            deliver(open_to(server, signal=signal, notices=notices), b"{}", items=1, signal=signal)
    texts = [record.getMessage() for record in caplog.records]
    assert [record.levelname for record in caplog.records].count("WARNING") == 1
    assert re.search(r"cannot send: 503.*tried again", texts[0])
    assert f"http://127.0.0.1:{server.port} works again" in texts[1]
    assert {record.name for record in caplog.records} == {"otel_train"}


def test_a_notice_comes_again_but_never_often() -> None:
    """While it lasts every ten minutes, and after it was over not within a minute."""
    clock = HandClock()
    said: list[int] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(clock.now_ns // NS_PER_S)  # type: ignore[method-assign]
    logger = logging.getLogger("otel_train")
    logger.addHandler(handler)
    notices = OutageNotices()
    try:
        for second in range(0, 1300, 5):
            clock.now_ns = second * NS_PER_S
            notices.faulty("c", "down", clock)
        for second in range(1300, 1500, 5):
            clock.now_ns = second * NS_PER_S
            notices.well("c")
            notices.faulty("c", "down", clock)
    finally:
        logger.removeHandler(handler)
    assert said == [0, 600, 1200, 1300, 1360, 1420, 1480]


def test_deliveries_of_a_process_share_their_notices() -> None:
    """By default three signals speak with one voice."""
    assert Delivery(Destination("logs", "http://c/v1/logs"))._notices is NOTICES
