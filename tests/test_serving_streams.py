"""The events of the local page: what a run writes reaches every page that is open, once and in order."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from otel_train.view.serving import held_runs, run_list, streams
from otel_train.view.serving.streams import Audience, Stream, event
from tests.runs import RunBuilder
from tests.serving import Events, Served, serve_in_thread


@pytest.fixture(autouse=True)
def quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look ten times a second instead of once, so that the tests are quick."""
    for module in (held_runs, run_list):
        monkeypatch.setattr(module, "POLL_S", 0.1)
        monkeypatch.setattr(module, "QUIET_POLL_S", 0.1)
        monkeypatch.setattr(module, "FRESH_S", 0.05)


@pytest.fixture
def builder(tmp_path: Path) -> RunBuilder:
    """A run that goes on, with three points."""
    made = RunBuilder(tmp_path / "runs").attempt()
    return made.log({"loss": [3.0, 2.0, 1.5]}, steps=[0, 1, 2], times_s=[1.0, 2.0, 3.0])


def append(builder: RunBuilder, step: int, value: float, **more: Any) -> None:
    builder.log({"loss": [value]}, steps=[step], times_s=[step + 1.0], **more)


def opened(served: Served, builder: RunBuilder) -> tuple[int, dict[str, Any]]:
    """Return the revision of a page that is opened, and its only line."""
    payload = served.get(f"api/run/{builder.run_id}?parts=head,metrics").json
    (chart,) = payload["charts"]["metrics"]
    (line,) = chart["lines"]
    return payload["revision"], line


def points_of(events: Events, line_id: str, count: int) -> tuple[list[Any], list[int]]:
    """Return so many appended points, and the revisions of the events that brought them."""
    found: list[Any] = []
    revisions = []
    while len(found) < count:
        name, data, number = events.next()
        assert name == "append", (name, data)
        assert number == str(data["revision"])
        revisions.append(data["revision"])
        line = data["lines"].get(line_id)
        if line:
            found += list(zip(line["x"]["step"], line["y"], strict=True))
    return found, revisions


# A run that goes on -------------------------------------------------------------------------------------------------


def test_points_reach_a_page_that_is_open(builder: RunBuilder) -> None:
    """Each once, in order, with its step; the page that opens later has them from the start."""
    with serve_in_thread(builder.path.parent) as served:
        revision, line = opened(served, builder)
        assert line["y"] == [3.0, 2.0, 1.5]
        with served.events(f"api/run/{builder.run_id}/events?revision={revision}") as events:
            seen = []
            for step in range(3, 8):
                append(builder, step, 1.0 / step)
                found, revisions = points_of(events, line["id"], 1)
                seen += found
                assert revisions[-1] > revision
        assert seen == [(step, 1.0 / step) for step in range(3, 8)]
        later, line = opened(served, builder)
        assert later >= revisions[-1]
        assert line["y"][-1] == 1.0 / 7


def test_several_pages_get_the_same(builder: RunBuilder) -> None:
    """One look serves all of them."""
    with serve_in_thread(builder.path.parent) as served, contextlib.ExitStack() as stack:
        revision, line = opened(served, builder)
        path = f"api/run/{builder.run_id}/events?revision={revision}"
        pages = [stack.enter_context(served.events(path)) for _ in range(5)]
        append(builder, 3, 0.25)
        got = []
        for page in pages:
            name, data, _ = page.next()
            while name == "rest":
                name, data, _ = page.next()
            assert name == "append"
            got.append(data)
        assert all(data == got[0] for data in got)
        assert got[0]["lines"][line["id"]]["y"] == [0.25]


def test_a_page_that_was_away_goes_on_where_it_was(builder: RunBuilder) -> None:
    """By the id of the last event that it had: the missed ones come first, none twice."""
    with serve_in_thread(builder.path.parent) as served:
        revision, line = opened(served, builder)
        path = f"api/run/{builder.run_id}/events"
        with served.events(f"{path}?revision={revision}") as kept:
            with served.events(f"{path}?revision={revision}") as away:
                append(builder, 3, 0.5)
                _, first = points_of(away, line["id"], 1)
            # While it is away somebody else looks, and the run goes on.
            points_of(kept, line["id"], 1)
            for step in (4, 5):
                append(builder, step, 1.0 / step)
                points_of(kept, line["id"], 1)
            # The browser sends the newest id, whatever stands in the address.
            with served.events(f"{path}?revision={revision}", last_event_id=str(first[-1])) as back:
                append(builder, 6, 0.125)
                found, _ = points_of(back, line["id"], 3)
        assert found == [(4, 0.25), (5, 0.2), (6, 0.125)]


def test_a_page_whose_place_is_not_known_reads_anew(builder: RunBuilder) -> None:
    """After a restart of the server, say, or from long ago; a number from elsewhere is never taken for one of here."""
    with serve_in_thread(builder.path.parent) as served:
        before, _ = opened(served, builder)
    with serve_in_thread(builder.path.parent) as served:
        revision, _ = opened(served, builder)
        assert revision > before
        for place in (before, revision + 1000, 1, 10**17):
            with served.events(f"api/run/{builder.run_id}/events?revision={place}") as events:
                name, data, number = events.next()
                assert (name, data["revision"], number) == ("reload", revision, str(revision))


@pytest.mark.parametrize("place", ["", "x", "-1", "1e9", "9" * 400, "%00"])
def test_a_place_that_is_none_begins_now(builder: RunBuilder, place: str) -> None:
    """Nothing is said until something happens."""
    with serve_in_thread(builder.path.parent) as served:
        _, line = opened(served, builder)
        with served.events(f"api/run/{builder.run_id}/events?revision={place}") as events:
            append(builder, 3, 0.5)
            found, _ = points_of(events, line["id"], 1)
        assert found == [(3, 0.5)]


def test_numbers_that_are_not_finite_reach_the_page_as_json(builder: RunBuilder) -> None:
    """NaN is the first sign of a run that dies; a bare NaN would end the stream."""
    with serve_in_thread(builder.path.parent) as served:
        revision, line = opened(served, builder)
        with served.events(f"api/run/{builder.run_id}/events?revision={revision}") as events:
            append(builder, 3, math.nan)
            append(builder, 4, 0.5)
            marked = 0
            values: list[Any] = []
            while 0.5 not in values:
                name, data, _ = events.next()
                assert name == "append"
                values += data["lines"][line["id"]]["y"]
                marked += len(data["lines"][line["id"]].get("marks", ()))
        assert values[-1] == 0.5
        assert marked == 1


def test_the_end_of_a_run_reaches_the_page(builder: RunBuilder) -> None:
    """Its state changes without a point."""
    with serve_in_thread(builder.path.parent) as served:
        revision, _ = opened(served, builder)
        with served.events(f"api/run/{builder.run_id}/events?revision={revision}") as events:
            builder.record("run.end", event="run.end", at_s=10.0, status="failed", reason="CUDA out of memory")
            builder.end("failed", at_s=10.0, reason="CUDA out of memory")
            state = None
            while state != "failed":
                assert events.next()[0] in ("append", "reload")
                state = served.get(f"api/run/{builder.run_id}?parts=head").json["status"]["state"]
        assert served.get(f"api/run/{builder.run_id}?parts=head").json["live"] is False


def test_a_new_attempt_lets_the_page_read_anew(builder: RunBuilder) -> None:
    """Points of before may be replaced by it."""
    with serve_in_thread(builder.path.parent) as served:
        revision, _ = opened(served, builder)
        with served.events(f"api/run/{builder.run_id}/events?revision={revision}") as events:
            builder.end("failed", at_s=5.0)
            builder.attempt(2, start_s=10.0)
            builder.log({"loss": [9.0, 8.0]}, steps=[1, 2], times_s=[11.0, 12.0], attempt=2)
            name, data, _ = events.next()
            while name != "reload":
                assert name == "append"
                name, data, _ = events.next()
            assert data["revision"] > revision
        payload = served.get(f"api/run/{builder.run_id}?parts=metrics").json
        current = payload["charts"]["metrics"][0]["lines"][0]
        assert current["y"] == [3.0, 9.0, 8.0]


def test_a_deleted_run_is_told_to_its_pages(builder: RunBuilder) -> None:
    """They get one last event, and their streams end."""
    with serve_in_thread(builder.path.parent) as served:
        revision, _ = opened(served, builder)
        path = f"api/run/{builder.run_id}/events?revision={revision}"
        with served.events(path) as first, served.events(path) as second:
            shutil.rmtree(builder.path)
            for events in (first, second):
                kinds = [kind for kind, _, _ in iter(events.next, ("", None, ""))]
                # The folder goes file by file: what the remains say of the state may be told before.
                assert kinds[-1] == "gone"
                assert set(kinds[:-1]) <= {"append"}
        assert served.get(path).status == 404


def test_nobody_looks_where_nobody_watches(builder: RunBuilder, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run is read while a page is open, and no more once it is closed."""
    from otel_train.view.live import LiveRun

    looks = []
    looked = threading.Event()
    before = LiveRun.refresh

    def counted(self: LiveRun, *arguments: Any, **options: Any) -> Any:
        looks.append(1)
        if len(looks) > 3:
            looked.set()
        return before(self, *arguments, **options)

    monkeypatch.setattr(LiveRun, "refresh", counted)
    with serve_in_thread(builder.path.parent) as served:
        with served.events(f"api/run/{builder.run_id}/events"):
            assert looked.wait(20)
        held = served.server.site.runs.get(builder.run_id)
        assert held is not None
        settle(lambda: len(held.audience) == 0)
        seen = len(looks)
        # Five times as long as it takes to look once.
        threading.Event().wait(0.5)
        assert len(looks) <= seen + 1


def settle(reached: Callable[[], bool]) -> None:
    for _ in range(400):
        if reached():
            return
        threading.Event().wait(0.05)
    raise AssertionError("it did not come to that in 20 s")


# The table -----------------------------------------------------------------------------------------------------------


def test_the_table_says_when_it_has_changed(builder: RunBuilder) -> None:
    """A new run, and its end; the revision is that of the next answer."""
    root = builder.path.parent
    with serve_in_thread(root) as served:
        first = served.get("api/runs").json
        with served.events(f"api/runs/events?revision={first['revision']}") as events:
            other = RunBuilder(root, "20260131-130000-abcdefgh").attempt()
            name, data, number = events.next()
            assert (name, number) == ("changed", data["revision"])
            settle(lambda: served.get("api/runs").json["total"] == 2)
            other.end("failed")
            settle(lambda: {row["state"] for row in served.get("api/runs").json["rows"]} >= {"failed"})
            assert events.next()[0] == "changed"
        last = served.get("api/runs").json
        assert last["revision"] != first["revision"]
        # A page that has an older table hears so at once.
        with served.events(f"api/runs/events?revision={first['revision']}") as events:
            assert events.next()[0] == "changed"


def test_a_browser_with_many_pages_is_asked_to_rest(builder: RunBuilder) -> None:
    """It opens six connections at most: before they are used up, pages that nobody sees are to let theirs go."""
    with serve_in_thread(builder.path.parent) as served, contextlib.ExitStack() as stack:
        served.get("api/runs")
        pages = [stack.enter_context(served.events("api/runs/events")) for _ in range(streams_allowed())]
        stack.enter_context(served.events(f"api/run/{builder.run_id}/events"))
        for page in pages:
            assert page.next()[:2] == ("rest", {})


def streams_allowed() -> int:
    from otel_train.view.serving.site import MANY_STREAMS

    assert MANY_STREAMS < 6
    return MANY_STREAMS


def test_a_look_that_fails_does_not_end_the_looking(
    builder: RunBuilder, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A fault that nobody expected is told once in the server's output; the next look may succeed, and does."""
    from otel_train.view.live import LiveRun

    before = LiveRun.refresh
    looks: list[str] = []

    def sometimes(self: LiveRun, *arguments: Any, **options: Any) -> Any:
        if "fail" in looks and looks.count("failed") < 3:
            looks.append("failed")
            raise ZeroDivisionError if looks.count("failed") > 1 else PermissionError(13, "Permission denied", "x")
        return before(self, *arguments, **options)

    with serve_in_thread(builder.path.parent) as served:
        revision, line = opened(served, builder)
        monkeypatch.setattr(LiveRun, "refresh", sometimes)
        with served.events(f"api/run/{builder.run_id}/events?revision={revision}") as events:
            looks.append("fail")
            settle(lambda: looks.count("failed") == 3)
            append(builder, 3, 0.5)
            assert points_of(events, line["id"], 1)[0] == [(3, 0.5)]
    assert capfd.readouterr().err.count("Traceback") == 1


def test_an_end_of_the_server_ends_what_waits(builder: RunBuilder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams end whole, and who waits for a long read is told why there is no answer."""
    from otel_train.view.live import LiveRun

    reading, may_end = threading.Event(), threading.Event()
    before = LiveRun.refresh

    def slow(self: LiveRun, *arguments: Any, **options: Any) -> Any:
        reading.set()
        assert may_end.wait(60)
        return before(self, *arguments, **options)

    monkeypatch.setattr(LiveRun, "refresh", slow)
    answers: list[Any] = []
    try:
        with serve_in_thread(builder.path.parent) as served, served.events("api/runs/events") as events:
            path = f"api/run/{builder.run_id}"
            asking = threading.Thread(target=lambda: answers.append(served.get(path)))
            asking.start()
            assert reading.wait(20)
            served.server.stop()
            # The first look at the folder may be told before.
            assert {name for name, _, _ in iter(events.next, ("", None, ""))} <= {"changed"}
            asking.join(20)
    finally:
        may_end.set()
    assert [answer.status for answer in answers] == [503]
    assert answers[0].json["error"]["message"] == "the server is ending"


# The parts by themselves ---------------------------------------------------------------------------------------------


def test_an_event_is_one_block() -> None:
    """With its id where it has one."""
    assert event("append", b'{"a":1}', "7") == b'id: 7\nevent: append\ndata: {"a":1}\n\n'
    assert event("gone", b"{}") == b"event: gone\ndata: {}\n\n"


def collected(stream: Stream, count: int) -> list[bytes]:
    async def collect() -> list[bytes]:
        found = []
        async with contextlib.aclosing(stream.chunks()) as chunks:
            async for chunk in chunks:
                found.append(chunk)
                if len(found) == count:
                    break
        return found

    return asyncio.run(collect())


def test_a_quiet_stream_gives_signs_of_life(monkeypatch: pytest.MonkeyPatch) -> None:
    """As comments, which no page sees; proxies and dead connections are found out by them."""
    monkeypatch.setattr(streams, "HEARTBEAT_S", 0.01)
    assert collected(Stream(), 3) == [b"retry: 1000\n\n", b": alive\n\n", b": alive\n\n"]


def test_a_page_that_takes_nothing_is_told_to_read_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits for it does not grow without bound."""
    monkeypatch.setattr(streams, "MOST_WAITING", 3)
    stream = Stream()
    for number in range(10):
        stream.put(b"%d" % number, instead=b"reload")
    stream.end()
    # 0 1 2, then reload in their place, 4 5, again reload, 7 8, again reload.
    assert collected(stream, 99) == [b"retry: 1000\n\n", b"reload"]
    stream.put(b"late")
    assert collected(stream, 1) == [b"retry: 1000\n\n"]


def test_an_audience_is_told_together() -> None:
    """Who has left is not."""
    audience = Audience()
    first, second = audience.add(), audience.add()
    audience.put(b"one")
    audience.remove(first)
    audience.put(b"two")
    audience.end()
    assert len(audience) == 1
    assert collected(second, 99)[1:] == [b"one", b"two"]
    assert json.dumps(len(audience)) == "1"
