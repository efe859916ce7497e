"""Holds the runs that are looked at: each is read once for all who look, followed while somebody does, and let go."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from otel_train.clock import NS_PER_MS, NS_PER_S, Clock, thread_cpu_ns
from otel_train.errors import OtelTrainError
from otel_train.record.names import PREFIX
from otel_train.view.first_look import first_look, is_long
from otel_train.view.live import Change, LiveRun
from otel_train.view.page import json_bytes
from otel_train.view.parts import PARTS, Page
from otel_train.view.series import series_id
from otel_train.view.serving.faults import Faults
from otel_train.view.serving.streams import Audience, Stream, event
from otel_train.view.serving.workers import Stopped, Workers

# Between two looks at a run that somebody watches: while it grows, and once nothing has changed for a while.
POLL_S = 1.0
QUIET_POLL_S = 2.0
QUIET_LOOKS = 10
# Looking costs at most this share of a core: a job of many busy ranks is looked at less often, yet within some seconds.
MOST_SHARE = 0.02
LONGEST_POLL_S = 5.0
# A request takes what was read so short a time ago.
FRESH_S = 0.5
# So long a page has to draw the first chart of a long run, before reading the rest takes a core from the browser.
FIRST_ALONE_S = 3.0
# About 40 bytes each, and as much again for what is made of them.
MOST_POINTS = 3_000_000
MOST_RUNS = 40
# What a page that lost its connection for some seconds gets without reading anew.
MOST_RECENT_BYTES = 1 << 20

_GONE = event("gone", b"{}")


class RunGoneError(OtelTrainError):
    """The folder of a run was deleted while the run was looked at."""


@dataclass(slots=True)
class _Part:
    """One part of a run's page as it goes over the wire: its fields and its charts, each `"key":value`."""

    revision: int
    fields: list[bytes]
    charts: list[bytes]


class HeldRun:
    """One run. All but what is handed to the workers happens in the event loop's thread."""

    def __init__(
        self,
        run_id: str,
        path: Path,
        workers: Workers,
        clock: Clock,
        faults: Faults,
        grown: Callable[[HeldRun], None] = lambda held: None,
    ) -> None:
        self.run_id = run_id
        self.path = path
        self.live = LiveRun(path, clock.wall_ns)
        self.audience = Audience()
        self.gone = False
        self._workers = workers
        self._clock = clock
        self._faults = faults
        self._grown = grown
        # Revisions go on rising when a run is let go and read anew, or the server is started anew: a page that was
        # open meanwhile must not take a number of then for one of now.
        self._base = clock.wall_ns() // NS_PER_MS * 1000
        self._parts: dict[str, _Part] = {}
        self._page: tuple[int, Page] | None = None
        self._recent: deque[tuple[int, bytes]] = deque()
        self._recent_bytes = 0
        self._refreshing: asyncio.Task[Change] | None = None
        self._refreshed_ns = 0
        # CPU time of the last look.
        self._look_s = 0.0
        # The first chart of a long run, as JSON, while its points are being read.
        self._first: asyncio.Future[bytes] | None = None
        # Whether a page is going to draw it, and whether somebody waits for more than that.
        self._is_awaited = False
        self._wanted = asyncio.Event()
        self._poller: asyncio.Task[None] | None = None

    @property
    def revision(self) -> int:
        """The revision of what has been read."""
        return self._base + self.live.revision

    @property
    def is_read(self) -> bool:
        """Whether the points have been read."""
        return self.live.revision > 0

    @property
    def busy(self) -> bool:
        """Whether somebody watches it, or waits for it."""
        return bool(len(self.audience)) or self._refreshing is not None

    async def refresh(self) -> Change:
        """Read what is new and tell those who watch; who comes while a read goes on shares it."""
        # Who goes away meanwhile must not take the read away from the others.
        return await asyncio.shield(self._reading())

    def _reading(self) -> asyncio.Task[Change]:
        if self._refreshing is None:
            self._first = None if self.is_read else asyncio.get_running_loop().create_future()
            self._refreshing = asyncio.create_task(self._refresh())
            self._refreshing.add_done_callback(self._refreshed)
        return self._refreshing

    async def opened(self) -> None:
        """Refresh for a page that begins: of a long run it draws the first chart, and then asks for the rest."""
        self._is_awaited = True
        await self.refresh()

    async def fresh(self) -> None:
        """Refresh unless that was done just now. RunGoneError where the folder has gone."""
        self._wanted.set()
        if not self._refreshed_ns or self._clock.mono_ns() - self._refreshed_ns > FRESH_S * NS_PER_S:
            await self.refresh()
        if self.gone:
            raise RunGoneError(f"the folder of run {self.run_id} was deleted: {self.path}")

    def warm(self, *, opened: bool = False) -> None:
        """Begin to read, for whoever asks next; `opened` where that is a page which has just been opened."""
        if not self.is_read:
            task = asyncio.ensure_future(self.opened() if opened else self.refresh())
            task.add_done_callback(lambda done: done.cancelled() or done.exception())

    def _refreshed(self, task: asyncio.Task[Change]) -> None:
        self._refreshing = None
        self._refreshed_ns = self._clock.mono_ns()
        # Also where nobody has waited until now.
        if not task.cancelled():
            task.exception()
        if self._first is not None and not self._first.done():
            self._first.set_result(b"{}")

    async def _refresh(self) -> Change:
        if self._first is not None:
            await self._look_first(self._first)
            if self._is_awaited and self._first.result() != b"{}":
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(FIRST_ALONE_S):
                        await self._wanted.wait()
        change, data = await self._workers.run(self._read)
        if change.kind == "gone":
            self.gone = True
            self.audience.put(_GONE)
            self.audience.end()
        elif change.kind == "reload":
            self._parts.clear()
            self._page = None
            self._recent.clear()
            self._recent_bytes = 0
            self.audience.put(self._reload())
        elif change.kind == "append":
            item = event("append", data, str(self.revision))
            self._keep(self.revision, item)
            self.audience.put(item, instead=self._reload())
        if change.kind != "none":
            self._grown(self)
        return change

    async def _look_first(self, first: asyncio.Future[bytes]) -> None:
        """Make the first chart of a long run, before all the rest keeps the interpreter busy."""
        made = b"{}"
        try:
            made = await self._workers.run(self._first_look)
        except (OtelTrainError, OSError):
            # Whoever reads all of it is told why.
            pass
        finally:
            first.set_result(made)

    def _first_look(self) -> bytes:
        if not is_long(self.path):
            return b"{}"
        return json_bytes({**first_look(self.path, self._clock.wall_ns()), "revision": self._base, "early": True})

    async def first(self) -> bytes:
        """Return the first chart as JSON while the points of a long run are being read, else an empty mapping."""
        if self.is_read:
            return b"{}"
        self._reading()
        return b"{}" if self._first is None else await asyncio.shield(self._first)

    def _read(self) -> tuple[Change, bytes]:
        start_ns, is_first = thread_cpu_ns(), not self.is_read
        change = self.live.refresh()
        data = b""
        if change.kind == "append":
            data = json_bytes({**change.payload, "revision": self._base + change.revision})
        # The first look reads all that there is, and says nothing of the next.
        self._look_s = 0.0 if is_first else (thread_cpu_ns() - start_ns) / NS_PER_S
        return change, data

    def _reload(self) -> bytes:
        return event("reload", json_bytes({"revision": self.revision}), str(self.revision))

    def _keep(self, revision: int, item: bytes) -> None:
        self._recent.append((revision, item))
        self._recent_bytes += len(item)
        while self._recent_bytes > MOST_RECENT_BYTES and len(self._recent) > 1:
            self._recent_bytes -= len(self._recent.popleft()[1])

    async def parts(self, names: Sequence[str]) -> bytes:
        """Return these parts of the page as JSON, with `revision` and `live`."""
        await self.fresh()
        return await self._workers.run(self._joined, tuple(names))

    def _joined(self, names: Sequence[str]) -> bytes:
        """Runs in a worker, one at a time for this run: who comes second finds what the first has made."""
        with self.live.lock:
            revision = self.live.revision
            held = [self._part(name, revision) for name in names]
            fields = [field for part in held for field in part.fields]
            charts = [chart for part in held for chart in part.charts]
            if charts:
                fields.append(b'"charts":{' + b",".join(charts) + b"}")
            live = b"true" if self.live.data.state == "running" else b"false"
            fields.append(b'"revision":%d,"live":%b' % (self._base + revision, live))
            return b"{" + b",".join(fields) + b"}"

    def _part(self, name: str, revision: int) -> _Part:
        held = self._parts.get(name)
        if held is None or held.revision != revision:
            if self._page is None or self._page[0] != revision:
                # What parts have in common is made once for all of them, in whatever requests they are asked for.
                self._page = revision, Page(self.live.data)
            made = PARTS[name](self._page[1])
            held = self._parts[name] = _Part(revision, _fields(made, "charts"), _fields(made.get("charts", {})))
        return held

    def csv_rows(self, ids: Sequence[str] | None) -> Iterator[str]:
        """Give every point of some lines as CSV, without ids of all of the user's metrics. Runs in a worker."""
        with self.live.lock:
            if ids is None:
                ids = [
                    series_id(item.series) for item in self.live.data.series() if item.series.name.startswith(PREFIX)
                ]
            return self.live.csv_rows(ids)

    async def described(self) -> bytes:
        """Return the head as run.json alone tells it, for the time until the points are read."""
        head = await self._workers.run(self.live.described)
        return json_bytes({**head, "revision": self._base, "early": True})

    # Who watches -----------------------------------------------------------------------------------------------------

    def watch(self, since: int | None) -> Stream:
        """Return a stream of what comes after this revision; `unwatch` ends it."""
        stream = self.audience.add()
        if since is not None and since != self.revision and self.is_read:
            later = [(revision, item) for revision, item in self._recent if revision > since]
            # Whole only where the one that follows `since` is still held.
            whole = bool(later) and later[0][0] == since + 1
            for item in [item for _, item in later] if whole else [self._reload()]:
                stream.put(item)
        if self._poller is None:
            self._poller = asyncio.create_task(self._poll())
        return stream

    def unwatch(self, stream: Stream) -> None:
        """End a stream; the last one ends the looking."""
        self.audience.remove(stream)
        if not len(self.audience) and self._poller is not None:
            self._poller.cancel()
            self._poller = None

    async def _poll(self) -> None:
        quiet = 0
        while not self.gone:
            try:
                self._wanted.set()
                change = await self.refresh()
                quiet = quiet + 1 if change.kind == "none" else 0
            except Stopped:
                return
            except (OtelTrainError, OSError):
                # Not readable at the moment: who asks for a part is told why.
                quiet = QUIET_LOOKS
            except Exception as fault:  # noqa: BLE001 - the next look may succeed
                self._faults.note(fault, f"run {self.run_id}")
                quiet = QUIET_LOOKS
            await asyncio.sleep(pause_s(quiet, self._look_s))

    def close(self) -> None:
        """End the streams and the looking. A read that goes on ends with the workers."""
        self._wanted.set()
        self.audience.end()
        if self._poller is not None:
            self._poller.cancel()


def pause_s(quiet: int, look_s: float) -> float:
    """Return how long to wait for the next look, after so many without a change, the last of which cost `look_s`."""
    usual = POLL_S if quiet < QUIET_LOOKS else QUIET_POLL_S
    return max(usual, min(look_s / MOST_SHARE, LONGEST_POLL_S))


def _fields(values: Mapping[str, Any], but: str = "") -> list[bytes]:
    return [json_bytes(str(key)) + b":" + json_bytes(value) for key, value in values.items() if key != but]


class HeldRuns:
    """The runs of one root. The one that was looked at least recently goes first where they are too many."""

    def __init__(self, workers: Workers, clock: Clock, faults: Faults) -> None:
        self._workers = workers
        self._clock = clock
        self._faults = faults
        self._held: OrderedDict[str, HeldRun] = OrderedDict()

    def get(self, run_id: str) -> HeldRun | None:
        """Return a run that is held; None for one that is not, or whose folder has gone meanwhile."""
        held = self._held.get(run_id)
        if held is None:
            return None
        if held.gone:
            del self._held[run_id]
            return None
        self._held.move_to_end(run_id)
        return held

    def hold(self, run_id: str, path: Path) -> HeldRun:
        """Hold the run of this id in this folder, and return it; others go where they are too many."""
        held = self.get(run_id)
        if held is None:
            held = self._held[run_id] = HeldRun(run_id, path, self._workers, self._clock, self._faults, self._let_go)
            self._let_go(held)
        return held

    def _let_go(self, kept: HeldRun) -> None:
        points = sum(held.live.points for held in self._held.values())
        spare = max(0, len(self._held) - MOST_RUNS)
        for run_id, held in list(self._held.items()):
            if points <= MOST_POINTS and spare <= 0:
                return
            if held is not kept and not held.busy:
                points -= held.live.points
                spare -= 1
                held.close()
                del self._held[run_id]

    def close(self) -> None:
        """Let go of all."""
        for held in self._held.values():
            held.close()
        self._held.clear()

    @property
    def points(self) -> int:
        """How many points are in memory."""
        return sum(held.live.points for held in self._held.values())

    def ids(self) -> Iterable[str]:
        """The runs in memory, the one looked at last at the end."""
        return itertools.chain(self._held)
