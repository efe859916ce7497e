"""Lines of a run without a folder: kept in bounded memory, and each item that is lost is counted with its cause."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from otel_train.runlog.memory_lines import NO_ENDPOINT, NO_ROOM, NOT_SENT, REFUSED, MemoryWriter
from otel_train.runlog.ring import LineRing


def test_what_is_written_waits_for_the_sender_in_its_order() -> None:
    """Recorded is only what a server has taken."""
    ring = LineRing()
    writer = MemoryWriter("logs", ring)
    writer.write(b"a\n", 1)
    writer.write(b"b\n", 2)
    assert [held.lines for held in iter(ring.pop, None)] == [b"a\n", b"b\n"]
    assert writer.items_written == 0
    writer.sent(2)
    writer.lost(REFUSED, 1)
    assert (writer.items_written, writer.losses(ended=True)) == (2, {REFUSED: 1})


def test_giving_up_counts_what_waits_and_takes_nothing_more() -> None:
    """At the deadline what is in memory is lost; other signals' lines stay theirs."""
    ring = LineRing()
    logs, spans = MemoryWriter("logs", ring), MemoryWriter("traces", ring)
    logs.write(b"a\n", 3)
    spans.write(b"b\n", 1)
    logs.give_up()
    logs.write(b"c\n", 1)
    assert logs.losses(ended=True) == {NOT_SENT: 3}
    assert spans.losses(ended=True) == {}
    assert ring.bytes == 2


def test_a_signal_that_nobody_sends_is_counted_and_not_kept() -> None:
    """It would push out what somebody sends."""
    ring = LineRing()
    writer = MemoryWriter("logs", ring)
    writer.leave_out()
    writer.write(b"a\n", 3)
    assert (ring.bytes, writer.losses(ended=False)) == (0, {NO_ENDPOINT: 3})


def test_a_forked_child_leaves_the_parents_lines_alone() -> None:
    """The child's writer has a ring of its own, and takes nothing."""
    ring = LineRing()
    writer = MemoryWriter("logs", ring)
    writer.write(b"a\n", 1)
    writer.abandon()
    writer.write(b"b\n", 1)
    assert (ring.items("logs"), writer.ring.bytes) == (1, 0)


@given(st.lists(st.tuples(st.sampled_from(["metrics", "logs"]), st.integers(1, 40), st.integers(0, 9)), max_size=60))
def test_items_that_wait_and_items_that_found_no_room_add_up(written: list[tuple[str, int, int]]) -> None:
    """Whatever the order and the sizes: nothing is counted twice, nothing vanishes."""
    ring = LineRing(max_bytes=100)
    writers = {signal: MemoryWriter(signal, ring) for signal in ("metrics", "logs")}
    for signal, size, items in written:
        writers[signal].write(b"x" * size, items)
    assert ring.bytes <= 100
    for signal, writer in writers.items():
        total = sum(items for name, _, items in written if name == signal)
        assert writer.losses(ended=True).get(NO_ROOM, 0) + ring.items(signal) == total
