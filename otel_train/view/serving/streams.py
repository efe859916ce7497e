"""Sends events to pages that stay open: one queue a page, a sign of life while nothing happens, an end at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from starlette.responses import StreamingResponse

HEARTBEAT_S = 15.0
# A page that takes nothing for so long is told to read anew instead.
MOST_WAITING = 60
_ALIVE = b": alive\n\n"


def event(name: str, data: bytes, revision: str = "") -> bytes:
    """Return one event as it goes over the wire; the data are JSON on one line."""
    number = f"id: {revision}\n".encode() if revision else b""
    return number + b"event: " + name.encode() + b"\ndata: " + data + b"\n\n"


class Stream:
    """The events of one page, in order. Used in the event loop's thread only."""

    def __init__(self) -> None:
        self._waiting: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._ended = False

    def put(self, item: bytes, instead: bytes = b"") -> None:
        """Add an event; where too many wait already, `instead` takes the place of all of them."""
        if self._ended:
            return
        if instead and self._waiting.qsize() >= MOST_WAITING:
            while not self._waiting.empty():
                self._waiting.get_nowait()
            item = instead
        self._waiting.put_nowait(item)

    def end(self) -> None:
        """Let the page have what waits, then close."""
        self._ended = True
        self._waiting.put_nowait(None)

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """Give what is sent."""
        # After a break the browser tries again in a second.
        yield b"retry: 1000\n\n"
        while True:
            try:
                async with asyncio.timeout(HEARTBEAT_S):
                    item = await self._waiting.get()
            except TimeoutError:
                yield _ALIVE
                continue
            if item is None:
                return
            yield item


class Audience:
    """The streams that want the same events."""

    def __init__(self) -> None:
        self._streams: set[Stream] = set()

    def __len__(self) -> int:
        return len(self._streams)

    def add(self) -> Stream:
        """Return a new stream, which `remove` takes away."""
        stream = Stream()
        self._streams.add(stream)
        return stream

    def remove(self, stream: Stream) -> None:
        """Forget a stream."""
        self._streams.discard(stream)

    def put(self, item: bytes, instead: bytes = b"") -> None:
        """Send an event to all."""
        for stream in self._streams:
            stream.put(item, instead)

    def end(self) -> None:
        """End all."""
        for stream in self._streams:
            stream.end()


async def nothing() -> AsyncGenerator[bytes, None]:
    """Give no event at all, as for HEAD."""
    none: tuple[bytes, ...] = ()
    for chunk in none:
        yield chunk


def response(chunks: AsyncGenerator[bytes, None]) -> StreamingResponse:
    """Return the answer that stays open."""
    headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
    return StreamingResponse(chunks, headers=headers, media_type="text/event-stream")
