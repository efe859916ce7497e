"""The file beside the log that remembers what was sent: lost, damaged or unwritable, it never costs more than time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from otel_train.export.feed import RankFeed
from otel_train.export.rank_source import RankSource
from otel_train.runlog.sent_file import SENT_FILE, SentFile
from tests.export_store import MS, Store
from tests.runlog_lines import START_NS, HandClock, line, log_line


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A rank folder with ten points and three log records."""
    rank = tmp_path / "rank-0"
    rank.mkdir()
    points = b"".join(line(number, time_ns=START_NS + number * MS) for number in range(10))
    (rank / "metrics.000001.jsonl").write_bytes(points)
    (rank / "logs.000001.jsonl").write_bytes(b"".join(log_line(f"record {number}") for number in range(3)))
    return rank


def send_all(feed: RankFeed, signals: tuple[str, ...] = ("metrics", "logs", "traces"), *, ended: bool = False) -> int:
    """Send what there is, and return how many items that were."""
    items = 0
    for signal in signals:
        while (batch := feed.next(signal, ended=ended)) is not None:
            items += batch.items
            feed.acknowledge(batch)
    feed.save()
    return items


def test_what_was_acknowledged_is_not_sent_again(folder: Path) -> None:
    """The positions, the counts and the point that is held back survive the process."""
    feed = RankFeed(folder, endpoint="http://collector:4318")
    assert send_all(feed) == 9 + 3
    assert feed.held("metrics") == 1
    again = RankFeed(folder, endpoint="http://collector:4318")
    assert again.notices == []
    assert send_all(again) == 0
    assert (again.counts("metrics").sent, again.counts("logs").sent, again.held("metrics")) == (9, 3, 1)
    assert send_all(again, ended=True) == 2, "the point that was held back, and the end mark"
    assert again.counts("metrics").added == 1


def test_another_endpoint_begins_at_the_beginning_and_leaves_the_first_alone(folder: Path) -> None:
    """A second stack is sent everything; and the first one's position is still known."""
    assert send_all(RankFeed(folder, endpoint="http://one")) == 12
    assert send_all(RankFeed(folder, endpoint="http://two")) == 12
    assert send_all(RankFeed(folder, endpoint="http://one")) == 0
    assert send_all(RankFeed(folder, endpoint={"metrics": "http://one", "logs": "http://three"})) == 3


def test_of_many_endpoints_the_oldest_are_forgotten(folder: Path) -> None:
    """The file does not grow with every port that a test has used."""
    for port in range(10):
        send_all(RankFeed(folder, endpoint=f"http://localhost:{port}"))
    stored = json.loads((folder / SENT_FILE).read_bytes())
    assert list(stored["signals"]["logs"]) == [f"http://localhost:{port}" for port in (6, 7, 8, 9)]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "cannot be read"),
        (b'{"version":1,"signals":{"metr', "cannot be read"),
        (b"[]", "not of a kind"),
        (b'{"version":99}', "not of a kind"),
        (b"\xff\xfe", "cannot be read"),
    ],
)
def test_a_damaged_file_means_sending_again(folder: Path, content: bytes, reason: str) -> None:
    """Stores take points that they have already, so the safe answer is to send them; and it is said."""
    (folder / SENT_FILE).write_bytes(content)
    feed = RankFeed(folder)
    assert len(feed.notices) == 1
    assert reason in feed.notices[0]
    assert str(folder) in feed.notices[0]
    assert send_all(feed) == 12
    assert send_all(RankFeed(folder)) == 0


@pytest.mark.parametrize(
    "change",
    [
        {"segment": "x"},
        {"offset": -5},
        {"offset": 1 << 40},
        {"offset": 3},
        {"points": None},
        {"points": [[7, "{}", 1, 1, 0]]},
        {"heads": [3]},
        {"counts": {"sent": "many"}},
        {"counts": {"sent": float("inf")}},
    ],
)
def test_a_position_that_makes_no_sense_means_sending_again(folder: Path, change: dict[str, object]) -> None:
    """Whatever stands in the file, nothing raises and nothing is left out."""
    send_all(RankFeed(folder))
    stored = json.loads((folder / SENT_FILE).read_bytes())
    stored["signals"]["metrics"][""].update(change)
    (folder / SENT_FILE).write_text(json.dumps(stored))
    feed = RankFeed(folder)
    assert [notice for notice in feed.notices if "metrics" in notice]
    assert send_all(feed) == 9
    assert feed.counts("metrics").sent == 9


def test_a_disk_that_takes_no_file_is_said_once(folder: Path) -> None:
    """Sending goes on; when the disk takes it again the position is kept."""
    (folder / SENT_FILE).mkdir()
    (folder / SENT_FILE / "in the way").touch()
    clock = HandClock()
    feed = RankFeed(folder, clock=clock)
    first = list(feed.notices)
    assert send_all(feed) == 12
    feed.save()
    feed.save()
    said = feed.notices[len(first) :]
    assert len(said) == 1
    assert "cannot be written" in said[0]
    assert not list(folder.glob("*.tmp"))
    (folder / SENT_FILE / "in the way").unlink()
    (folder / SENT_FILE).rmdir()
    feed.save()
    assert send_all(RankFeed(folder)) == 0


def test_the_file_is_written_at_most_once_a_second(folder: Path) -> None:
    """A fast sender does not wear out the disk; `save` writes at once."""
    clock = HandClock()
    feed = RankFeed(folder, clock=clock, batch_bytes=1)
    written = []
    store = Store()
    while (batch := feed.next("metrics")) is not None:
        store.take(batch)
        feed.acknowledge(batch)
        written.append((folder / SENT_FILE).read_bytes())
        clock.now_ns += 250_000_000
    assert len(written) == 9
    assert len(set(written)) == 3
    feed.save()
    assert (folder / SENT_FILE).read_bytes() not in written


def test_what_was_acknowledged_last_is_written_though_nothing_follows(folder: Path) -> None:
    """The server takes one batch and then no more: after a second that one is on disk, and was not before."""
    clock = HandClock()
    source = RankSource(RankFeed(folder, clock=clock, batch_bytes=1), clock=clock)
    for _ in range(2):
        batch = source.take("metrics")
        assert batch is not None
        assert source.acknowledge(batch, 0)
    written = (folder / SENT_FILE).read_bytes()
    clock.now_ns += 900_000_000
    source.keep()
    assert (folder / SENT_FILE).read_bytes() == written
    clock.now_ns += 200_000_000
    source.keep()
    assert source.feed.counts("metrics").sent == RankFeed(folder).counts("metrics").sent == 2
    again = (folder / SENT_FILE).stat()
    clock.now_ns += 5_000_000_000
    source.keep()
    assert (folder / SENT_FILE).stat().st_mtime_ns == again.st_mtime_ns


def test_saving_while_a_batch_is_under_way_keeps_what_is_acknowledged(folder: Path) -> None:
    """What a dead server has not answered is not counted as sent, whenever the file is written."""
    clock = HandClock()
    feed = RankFeed(folder, clock=clock, batch_bytes=1)
    first = feed.next("metrics")
    assert first is not None
    feed.acknowledge(first)
    second = feed.next("metrics")
    assert second is not None
    feed.save()
    again = RankFeed(folder, batch_bytes=1).next("metrics")
    assert again is not None
    assert again.parts == second.parts


def test_the_file_is_whole_at_any_moment(tmp_path: Path) -> None:
    """It is replaced, never rewritten in place; a folder that is gone is a fault in words."""
    sent = SentFile(tmp_path)
    assert sent.read() == ({}, "")
    assert sent.write({"signals": {"logs": {}}}) == ""
    assert sent.read() == ({"version": 1, "signals": {"logs": {}}}, "")
    assert "cannot be written" in SentFile(tmp_path / "gone").write({})
