"""Holds the table of a root's runs, kept fresh while somebody looks at it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from otel_train.clock import NS_PER_S, Clock
from otel_train.view.index import RunIndex
from otel_train.view.page import json_bytes
from otel_train.view.run_table import table
from otel_train.view.serving.faults import Faults
from otel_train.view.serving.streams import Audience, Stream, event
from otel_train.view.serving.workers import Stopped, Workers

POLL_S = 1.0
QUIET_POLL_S = 2.0
QUIET_LOOKS = 10
LONG_LOOK_S = 0.03
FRESH_S = 1.0


class RunList:
    """The index of the runs, and who watches it. All but the reading happens in the event loop's thread."""

    def __init__(self, root: Path, workers: Workers, clock: Clock, faults: Faults) -> None:
        self.index = RunIndex(root, clock.wall_ns)
        self.audience = Audience()
        self._workers = workers
        self._clock = clock
        self._faults = faults
        self._refreshing: asyncio.Task[None] | None = None
        self._refreshed_ns = 0
        self._poller: asyncio.Task[None] | None = None
        self._told = ""

    async def fresh(self) -> None:
        """Look at the folder, unless that was done just now, or is done all the time for somebody who watches."""
        if self._refreshed_ns and self._poller is not None:
            return
        if not self._refreshed_ns or self._clock.mono_ns() - self._refreshed_ns > FRESH_S * NS_PER_S:
            await self.refresh()

    def warm(self) -> None:
        """Begin to look, for whoever asks next."""
        if not self._refreshed_ns:
            task = asyncio.ensure_future(self.refresh())
            task.add_done_callback(lambda done: done.cancelled() or done.exception())

    async def refresh(self) -> None:
        """Look at the folder; who comes meanwhile shares the look."""
        if self._refreshing is None:
            self._refreshing = asyncio.create_task(self._refresh())
            self._refreshing.add_done_callback(self._refreshed)
        await asyncio.shield(self._refreshing)

    def _refreshed(self, task: asyncio.Task[None]) -> None:
        self._refreshing = None
        self._refreshed_ns = self._clock.mono_ns()
        if not task.cancelled():
            task.exception()

    async def _refresh(self) -> None:
        await self._workers.run(self.index.refresh)
        if self.index.revision != self._told:
            self._told = self.index.revision
            # Of changes that a page has not taken yet the last one is enough.
            self.audience.put(self._changed(), instead=self._changed())

    def _changed(self) -> bytes:
        return event("changed", json_bytes({"revision": self.index.revision}), self.index.revision)

    async def table(self, **asked: Any) -> bytes:
        """Return the table as JSON."""
        await self.fresh()
        return await self._workers.run(lambda: json_bytes(table(self.index, now_ns=self._clock.wall_ns(), **asked)))

    def watch(self, since: str) -> Stream:
        """Return a stream of changes, which begins with one if the page has another revision."""
        stream = self.audience.add()
        if since and self._told and since != self._told:
            stream.put(self._changed())
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
        while True:
            before, began_ns = self.index.revision, self._clock.mono_ns()
            try:
                await self.refresh()
            except Stopped:
                return
            except Exception as fault:  # noqa: BLE001 - the next look may succeed
                self._faults.note(fault, "the table of runs")
            quiet = quiet + 1 if self.index.revision == before else 0
            # A look at a thousand runs costs something, each time.
            took_s = (self._clock.mono_ns() - began_ns) / NS_PER_S
            await asyncio.sleep(POLL_S if quiet < QUIET_LOOKS and took_s < LONG_LOOK_S else QUIET_POLL_S)

    def close(self) -> None:
        """End the streams and the looking. A read that goes on ends with the workers."""
        self.audience.end()
        if self._poller is not None:
            self._poller.cancel()
        self._workers.stop()
