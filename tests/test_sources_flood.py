"""A flood of like records is kept as samples plus a count, and every record is in one or the other."""

from __future__ import annotations

import threading

from hypothesis import given
from hypothesis import strategies as st
from list_sink import FixedClock, ListSink

from otel_train.clock import NS_PER_S
from otel_train.record.entries import LogEntry
from otel_train.sources.flood import FloodGate
from otel_train.sources.log_context import LogContext

START_NS = 1_700_000_000 * NS_PER_S


def counts(sink: ListSink) -> list[int]:
    return [int(str(entry.attributes["log.suppressed.count"])) for entry in sink.named("log.suppressed")]


def test_ten_a_second_are_kept_and_the_burst_is_reported_at_its_end() -> None:
    """Of 300 like records in three seconds 30 stay; one event has the other 270, with their first and last time."""
    clock, sink = FixedClock(START_NS), ListSink()
    gate = FloodGate(clock)
    context = LogContext(sink, {"dl.step": 4}, 5, 6)
    admitted = []
    for number in range(300):
        clock.now_ns = START_NS + number * NS_PER_S // 100
        admitted.append(gate.admit(context, "data", 30, f"bad sample {number}", clock.now_ns))
        gate.heartbeat()
    assert sum(admitted) == 30
    assert [number for number, kept in enumerate(admitted) if kept][:11] == [*range(10), 100]
    assert sink.entries == []
    clock.now_ns += 2 * NS_PER_S
    gate.heartbeat()
    gate.heartbeat()
    (event,) = sink.entries
    assert event == LogEntry(
        time_ns=clock.now_ns,
        observed_time_ns=clock.now_ns,
        severity_number=13,
        severity_text="WARN",
        event_name="log.suppressed",
        body="270 more like: bad sample #",
        attributes={
            "dl.step": 4,
            "log.logger": "data",
            "log.suppressed.count": 270,
            "log.suppressed.template": "bad sample #",
            "log.suppressed.level": 30,
            "log.suppressed.first_time": "2023-11-14T22:13:20.100000Z",
            "log.suppressed.last_time": "2023-11-14T22:13:22.990000Z",
        },
        trace_id=5,
        span_id=6,
    )
    assert gate.suppressed == 270


def test_a_burst_without_end_is_reported_every_ten_seconds() -> None:
    """A flood of a minute gives a count every ten seconds, not one a minute later, with or without heartbeats."""
    for heartbeats in (True, False):
        clock, sink = FixedClock(START_NS), ListSink()
        gate = FloodGate(clock)
        for number in range(60 * 100):
            clock.now_ns = START_NS + number * NS_PER_S // 100
            gate.admit(LogContext(sink), "", 20, "x", clock.now_ns)
            if heartbeats and number % 300 == 0:
                gate.heartbeat()
        assert 4 <= len(counts(sink)) <= 6
        gate.flush()
        assert sum(counts(sink)) == 5_400


def test_records_differ_by_run_logger_level_template_and_exception() -> None:
    """Only what agrees in all of them is one flood."""
    gate = FloodGate(FixedClock(START_NS), per_second=1)
    first, second = LogContext(ListSink()), LogContext(ListSink())
    kinds = [
        (first, "a", 30, "x", ""),
        (second, "a", 30, "x", ""),
        (first, "b", 30, "x", ""),
        (first, "a", 40, "x", ""),
        (first, "a", 40, "x", "ValueError"),
        (first, "a", 40, "x", "KeyError"),
        (first, "a", 30, "y", ""),
    ]
    assert [gate.admit(*kind[:4], START_NS, kind[4]) for kind in kinds] == [True] * 7
    assert [gate.admit(*kind[:4], START_NS, kind[4]) for kind in kinds] == [False] * 7
    assert gate.admit(first, "a", 30, "x 0.125", START_NS) is True
    assert gate.admit(first, "a", 30, "x 17.5", START_NS) is False


def test_end_of_one_run_writes_its_counts_only() -> None:
    """The other run's burst goes on and is told later."""
    gate = FloodGate(FixedClock(START_NS))
    first, second = ListSink(), ListSink()
    for _ in range(15):
        gate.admit(LogContext(first), "", 20, "x", START_NS)
        gate.admit(LogContext(second), "", 20, "x", START_NS)
    gate.flush(first)
    assert (counts(first), counts(second)) == ([5], [])
    gate.flush()
    assert (counts(first), counts(second)) == ([5], [5])


@given(
    st.lists(st.tuples(st.integers(0, 12), st.integers(-2 * NS_PER_S, 3 * NS_PER_S), st.booleans()), max_size=150),
    st.integers(1, 4),
)
def test_nothing_is_left_out_without_a_count(records: list[tuple[int, int, bool]], per_second: int) -> None:
    """Whatever comes, also when clocks jump back and kinds are forgotten: kept plus counted is all there was."""
    clock, sink = FixedClock(START_NS), ListSink()
    gate = FloodGate(clock, per_second=per_second, max_templates=4)
    admitted = 0
    for kind, step_ns, heartbeat in records:
        clock.now_ns += step_ns
        admitted += gate.admit(LogContext(sink), str(kind), 20, "x", clock.now_ns)
        assert len(gate._buckets) <= 4
        if heartbeat:
            gate.heartbeat()
    gate.flush()
    assert admitted + sum(counts(sink)) == len(records)
    assert gate.suppressed == sum(counts(sink))


def test_many_threads_lose_no_count() -> None:
    """Records of eight threads at once are all kept or counted."""
    sink = ListSink()
    gate = FloodGate(FixedClock(START_NS))
    context = LogContext(sink)
    admitted: list[int] = []

    def work() -> None:
        admitted.append(sum(gate.admit(context, "", 20, "x", START_NS) for _ in range(2_000)))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    gate.flush()
    assert sum(admitted) == 10
    assert counts(sink) == [15_990]


def test_long_templates_and_odd_text_are_bounded_and_redacted() -> None:
    """A huge message does not stay in memory, a lone surrogate does no harm, a secret does not get out."""
    sink = ListSink()
    gate = FloodGate(FixedClock(START_NS), per_second=1, redact=lambda text: text.replace("tok", "[redacted]"))
    for _ in range(2):
        gate.admit(LogContext(sink), "", 20, "\ud800 tok " + "x" * 100_000, START_NS)
    gate.flush()
    (event,) = sink.entries
    template = str(event.attributes["log.suppressed.template"])
    assert template.startswith("\ud800 [redacted] x")
    assert len(template) < 600
