"""A rank folder's feed as the sender uses it: batches, accounts, ends, and the same answer whatever happened before."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_train.export.feed import Batch, RankFeed
from otel_train.export.signal_feed import Counts, MetricFeed
from otel_train.record.entries import Column, SpanEntry
from tests.export_store import MS, Store, points_of, request_of, write_log
from tests.runlog_lines import ENCODER, SECOND, START_NS, HandClock, line, log_line


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rank = tmp_path / "rank-0"
    rank.mkdir()
    return rank


def append(folder: Path, signal: str, *lines: bytes, number: int = 1) -> None:
    with open(folder / f"{signal}.{number:06d}.jsonl", "ab") as file:
        file.write(b"".join(lines))


def values(batch: Batch | None) -> list[float]:
    assert batch is not None
    return [json.loads(point.value)["asDouble"] for point in points_of(request_of(batch)) if not point.mark]


def test_an_empty_or_missing_folder_gives_nothing(folder: Path) -> None:
    """A rank that has written nothing yet, or whose folder is not there."""
    for path in (folder, folder / "missing"):
        feed = RankFeed(path)
        for signal in ("metrics", "logs", "traces"):
            assert feed.next(signal) is None
            assert not feed.done(signal)
            assert feed.next(signal, ended=True) is None
            assert feed.done(signal)
        assert feed.pending_bytes() == 0
        assert feed.notices == []


def test_points_come_as_they_are_written_but_for_the_newest(folder: Path) -> None:
    """The newest of each series waits for a later one; at the end it comes, too."""
    append(folder, "metrics", line(1, time_ns=START_NS), line(2, time_ns=START_NS + MS))
    feed = RankFeed(folder)
    batch = feed.next("metrics")
    assert values(batch) == [1.0]
    assert batch is not None
    feed.acknowledge(batch)
    assert feed.next("metrics") is None
    append(folder, "metrics", line(3, time_ns=START_NS + 2 * MS))
    batch = feed.next("metrics")
    assert values(batch) == [2.0]
    assert batch is not None
    feed.acknowledge(batch)
    assert feed.held("metrics") == 1
    assert values(feed.next("metrics", ended=True)) == [3.0]


def test_a_batch_stays_until_it_is_acknowledged(folder: Path) -> None:
    """A server that does not answer is asked with the very same request; a late answer to another is passed over."""
    append(folder, "logs", *[log_line(f"record {number}") for number in range(10)])
    feed = RankFeed(folder, batch_bytes=1)
    first = feed.next("logs")
    assert first is not None
    assert feed.next("logs") is first
    feed.acknowledge(first)
    second = feed.next("logs")
    assert second is not None
    assert second.parts != first.parts
    feed.acknowledge(first)
    assert feed.next("logs") is second
    assert feed.counts("logs").sent == 1


def test_batches_are_about_as_large_as_is_told(folder: Path) -> None:
    """Many lines become one request, of which many become few megabytes."""
    append(folder, "logs", *[log_line("x" * 1000) for _ in range(100)])
    feed = RankFeed(folder, batch_bytes=10_000)
    sizes = []
    while (batch := feed.next("logs")) is not None:
        sizes.append(sum(map(len, batch.parts)))
        feed.acknowledge(batch)
    assert sum(sizes) > 100_000
    assert all(9_000 < size < 12_000 for size in sizes[:-1])


def test_small_lines_of_points_share_their_resource(folder: Path) -> None:
    """A resource of a kilobyte is not sent with every point."""
    append(folder, "metrics", *[line(number, time_ns=START_NS + number * MS) for number in range(50)])
    batch = RankFeed(folder).next("metrics")
    assert batch is not None
    assert batch.items == 49
    assert b"".join(batch.parts).count(b'"resource"') == 1


def test_refused_items_are_counted_apart(folder: Path) -> None:
    """What a store does not take is not sent; the sum is what the log holds."""
    append(folder, "logs", *[log_line(f"record {number}") for number in range(10)])
    feed = RankFeed(folder)
    batch = feed.next("logs")
    assert batch is not None
    feed.acknowledge(batch, 3)
    counts = feed.counts("logs")
    assert (counts.sent, counts.refused) == (7, 3)


@pytest.mark.parametrize("refused", [0, 2])
def test_what_no_disk_has_taken_is_no_item_of_the_log(refused: int) -> None:
    """Of ten unwritten points six were merged: four are sent or refused, and none of the log is done with."""
    counts = Counts()
    counts.add(Batch("metrics", (b"x",), 4, 10, 6, 0, 0, 500, unwritten=10), refused)
    assert (counts.sent, counts.refused, counts.merged) == (4 - refused, refused, 6)
    assert counts.log_items == 0


def test_where_all_is_refused_the_end_marks_are_not_sent_either(folder: Path) -> None:
    """Nothing of the log is sent, everything of it refused, and no end mark counts; no number falls below zero."""
    append(folder, "metrics", *[line(number, time_ns=START_NS + number * MS) for number in range(10)])
    feed = RankFeed(folder)
    batch = feed.next("metrics", ended=True)
    assert batch is not None
    assert (batch.items, batch.added) == (11, 1)
    feed.acknowledge(batch, batch.items)
    counts = feed.counts("metrics")
    assert (counts.sent, counts.added, counts.refused, counts.log_items) == (0, 0, 10, 10)


def test_the_account_covers_every_item(folder: Path) -> None:
    """Fresh, aged, damaged: each is counted once, also those of lines that give nothing to send."""
    old = log_line("old", time_ns=START_NS - 10 * 86_400 * SECOND)
    append(folder, "logs", log_line("one"), old, log_line("two")[:-30] + b"\n", log_line("three"))
    feed = RankFeed(folder, max_log_age_s=7 * 86_400, clock=HandClock(), batch_bytes=1)
    batches = []
    while (batch := feed.next("logs", ended=True)) is not None:
        batches.append(batch)
        feed.acknowledge(batch)
    counts = feed.counts("logs")
    assert (counts.sent, counts.aged, counts.unreadable) == (2, 1, 1)
    assert sum(batch.aged for batch in batches) == 1


def test_lines_that_give_nothing_are_passed_and_counted(folder: Path) -> None:
    """A log of aged records alone comes to its end, and they are counted once over two processes."""
    append(folder, "logs", *[log_line("old", time_ns=START_NS - 10 * 86_400 * SECOND)] * 5)
    for _ in range(2):
        feed = RankFeed(folder, max_log_age_s=7 * 86_400, clock=HandClock())
        assert feed.next("logs", ended=True) is None
        feed.save()
        assert feed.counts("logs").aged == 5
        assert feed.pending_bytes() == 0


def test_pending_bytes_fall_with_what_is_acknowledged(folder: Path) -> None:
    """What is read and not answered yet is still pending."""
    lines = [log_line(f"record {number}") for number in range(4)]
    append(folder, "logs", *lines)
    total = sum(map(len, lines))
    feed = RankFeed(folder, batch_bytes=1)
    batch = feed.next("logs")
    assert batch is not None
    assert feed.pending_bytes() == feed.pending_bytes("logs") == total
    feed.acknowledge(batch)
    assert feed.pending_bytes() == total - len(lines[0])


def test_a_cut_last_line_is_counted_at_the_end_only(folder: Path) -> None:
    """While its writer lives it is no damage."""
    append(folder, "metrics", line(1, time_ns=START_NS), line(2)[:50])
    feed = RankFeed(folder)
    assert feed.next("metrics") is None
    assert feed.counts("metrics").unreadable == 0
    batch = feed.next("metrics", ended=True)
    assert values(batch) == [1.0]
    assert batch is not None
    assert batch.unreadable == 1
    feed.acknowledge(batch)
    feed.save()
    assert RankFeed(folder).next("metrics", ended=True) is None


def test_a_feed_that_ended_goes_on_where_there_is_more(folder: Path) -> None:
    """`done` is taken back when lines come after all."""
    append(folder, "logs", log_line("one"))
    feed = RankFeed(folder)
    store: list[Batch] = []
    for body in ("two", "three"):
        while (batch := feed.next("logs", ended=True)) is not None:
            store.append(batch)
            feed.acknowledge(batch)
        assert feed.done("logs")
        append(folder, "logs", log_line(body))
    assert [batch.items for batch in store] == [1, 1]
    assert feed.next("logs", ended=True) is not None
    assert not feed.done("logs")


def test_spans_are_given_as_they_stand(folder: Path) -> None:
    """Each line's content, joined into one request."""
    lines = [
        ENCODER.spans([SpanEntry(name=f"s{n}", trace_id=1, span_id=n + 1, start_ns=1, end_ns=2)]) for n in range(3)
    ]
    append(folder, "traces", *lines)
    batch = RankFeed(folder).next("traces")
    assert batch is not None
    spans = [block["scopeSpans"][0]["spans"][0]["name"] for block in request_of(batch)["resourceSpans"]]
    assert spans == ["s0", "s1", "s2"]
    assert batch.items == 3


def test_the_log_is_never_changed(folder: Path) -> None:
    """It is the truth: the sender reads it, and writes beside it."""
    append(folder, "metrics", line(1), line(2))
    append(folder, "logs", log_line("x" * 400_000))
    before = {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.iterdir()}
    feed = RankFeed(folder)
    for signal in ("metrics", "logs", "traces"):
        while (batch := feed.next(signal, ended=True)) is not None:
            feed.acknowledge(batch)
    feed.save()
    after = {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.iterdir()}
    assert after.pop("sent.json")
    assert after == before


def test_nothing_is_kept_where_it_is_told_so(folder: Path) -> None:
    """For counting what a log holds."""
    append(folder, "metrics", line(1), line(2))
    feed = RankFeed(folder, keep=False)
    while (batch := feed.next("metrics", ended=True)) is not None:
        feed.acknowledge(batch)
    feed.save()
    assert os.listdir(folder) == ["metrics.000001.jsonl"]


TIMES = st.integers(0, 40).map(lambda ms: START_NS + ms * MS // 2)
COLUMNS = st.builds(
    lambda name, points: Column(name, [time for time, _ in points], [value for _, value in points]),
    st.sampled_from(["train.loss", "train.acc"]),
    st.lists(st.tuples(TIMES, st.sampled_from([1.0, 2.0, float("nan")])), min_size=1, max_size=5),
)


def flow(feed: MetricFeed, stops: set[int], folder: Path, **how: Any) -> list[tuple[Any, int, str]]:
    """All points in the order in which they come; after the batches of `stops` with a new feed in another process."""
    found = []
    count = 0
    while (batch := feed.next(ended=True, final_state="lost")) is not None:
        found += [(point.key, point.ms, point.value) for point in points_of(request_of(batch))]
        feed.acknowledge(batch, 0)
        count += 1
        if count in stops:
            feed = MetricFeed(folder, json.loads(json.dumps(feed.to_store())), **how)
            assert feed.fault == ""
    found.append((("merged",), feed.counts.merged, ""))
    return found


@settings(max_examples=80, deadline=None)
@given(st.lists(st.lists(COLUMNS, min_size=1, max_size=2), min_size=1, max_size=12), st.data())
def test_what_is_known_of_the_past_does_not_depend_on_restarts(
    columns: list[list[Column]], data: st.DataObject
) -> None:
    """However far milliseconds are remembered, a new process remembers exactly as far as one that went on."""
    lines = list(map(ENCODER.points, columns))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_log(folder, lines, data.draw(st.sets(st.integers(1, max(1, len(lines) - 1)), max_size=2)), {1})
        how = {"window_bytes": data.draw(st.integers(1, 2000)), "batch_bytes": 1}
        stops = data.draw(st.sets(st.integers(1, 12)))
        assert flow(MetricFeed(folder, None, **how), stops, folder, **how) == flow(
            MetricFeed(folder, None, **how), set(), folder, **how
        )


def test_points_let_go_early_are_the_same_after_a_restart(folder: Path) -> None:
    """A value without followers is let go by what the log holds, not by the time of reading."""
    lines = [line(1, "train.val", START_NS)]
    lines += [line(second, time_ns=START_NS + second * SECOND) for second in range(1, 20)]
    lines += [line(9, "train.val", START_NS + 100)]
    append(folder, "metrics", *lines)
    how = {"batch_bytes": 1}
    whole = flow(MetricFeed(folder, None, **how), set(), folder, **how)
    assert flow(MetricFeed(folder, None, **how), set(range(50)), folder, **how) == whole
    assert [(point[1] - START_NS // MS, point[2]) for point in whole if point[0][0] == "train_val"] == [
        (0, '{"asDouble": 1.0}'),
        (1, "mark"),
    ]
    assert whole[-1] == (("merged",), 1, "")


def test_the_longest_untouched_is_let_go_first_after_a_restart_too(folder: Path) -> None:
    """A series that was touched again does not stand in the way of those that were not."""
    lines = [line(1, "train.first", START_NS), line(2, "train.second", START_NS + MS)]
    lines += [line(second, time_ns=START_NS + second * SECOND) for second in range(1, 5)]
    lines += [line(3, "train.first", START_NS + 5 * SECOND)]
    lines += [line(second, time_ns=START_NS + second * SECOND) for second in range(6, 13)]
    append(folder, "metrics", *lines)
    how = {"batch_bytes": 1}
    whole = flow(MetricFeed(folder, None, **how), set(), folder, **how)
    assert flow(MetricFeed(folder, None, **how), set(range(50)), folder, **how) == whole
    names = [key[0] for key, _, value in whole if value != "mark"]
    assert names.index("train_second") < len(lines) - 3, "it was let go, and did not wait for the end"


def test_a_store_that_has_it_all_is_sent_nothing_new(folder: Path) -> None:
    """Push, push again, push from the beginning: the store is the same."""
    append(folder, "metrics", *[line(number, time_ns=START_NS + number * MS // 3) for number in range(100)])
    store = Store()
    store.drain(RankFeed(folder))
    values = dict(store.values)
    assert len(values) == 34
    store.drain(RankFeed(folder, keep=False))
    assert store.values == values
