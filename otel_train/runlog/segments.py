"""Appends whole lines to numbered files that survive a kill, a full disk and a fork.

A segment is ``metrics.000001.jsonl``; at 64 MiB the next one begins and the closed one is gzipped. Bytes go to the
operating system in one call for whole lines, so a kill loses nothing that was written and cuts at most the last line.
"""

from __future__ import annotations

import errno
import os
import re
import threading
from collections.abc import Callable
from pathlib import Path

from otel_train.clock import NS_PER_S, SYSTEM, Clock
from otel_train.runlog.compress import compress_file
from otel_train.runlog.ring import HeldLines
from otel_train.runlog.ring import LineRing as LineRing  # a writer is made with one

SIGNALS = ("metrics", "logs", "traces")
RETRY_NS = NS_PER_S
_NAME = re.compile(r"(metrics|logs|traces)\.(\d{6,})\.jsonl(\.gz)?")
_FLAGS = (
    os.O_WRONLY
    | os.O_APPEND
    | os.O_CREAT
    | os.O_EXCL
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_NOINHERIT", 0)
    | getattr(os, "O_BINARY", 0)
)
# After these the descriptor itself is of no more use.
_DEAD_DESCRIPTOR = frozenset({errno.EBADF, errno.EIO, getattr(errno, "ESTALE", errno.EIO), errno.ENODEV})


def segment_name(signal: str, number: int) -> str:
    """Return the file name of a segment in its plain form."""
    return f"{signal}.{number:06d}.jsonl"


def list_segments(folder: Path, signal: str) -> list[tuple[int, Path]]:
    """Return number and path of each segment of a signal, in order; the plain file where both forms are there."""
    found: dict[int, Path] = {}
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    for name in names:
        match = _NAME.fullmatch(name)
        if match and match[1] == signal:
            number = int(match[2])
            if number not in found or not match[3]:
                found[number] = folder / name
    return sorted(found.items())


class SegmentWriter:
    """Writes one signal of one rank. For one thread; only `abandon` may be called from a forked child."""

    def __init__(
        self,
        folder: Path,
        signal: str,
        *,
        ring: LineRing,
        on_fault: Callable[[str], None],
        segment_bytes: int = 64 << 20,
        clock: Clock = SYSTEM,
        opener: Callable[..., int] = os.open,
        write: Callable[[int, bytes], int] = os.write,
    ) -> None:
        self.folder = folder
        self.signal = signal
        self.ring = ring
        self.bytes_written = 0
        self.items_written = 0
        self.path: Path | None = None
        self._on_fault = on_fault
        self._segment_bytes = segment_bytes
        self._clock = clock
        self._open = opener
        self._write = write
        self._descriptor = -1
        self._size = 0
        self._number = 0
        # Bytes on disk of the segments that are closed.
        self._closed: dict[Path, int] = {}
        self._on_new_line = True
        self._faulty = False
        self._retry_at_ns = 0
        self._rotate_at_ns = 0
        self._finished = False
        self._deadline_ns: int | None = None
        self._to_compress: list[Path] = []
        self._compressor: threading.Thread | None = None

    @property
    def faulty(self) -> bool:
        """Whether the last write failed and lines are held back."""
        return self._faulty

    @property
    def items_in_ring(self) -> int:
        """Items that wait in memory for the disk or the sender."""
        return self.ring.items(self.signal)

    @property
    def items_lost(self) -> int:
        """Items that the ring had no more room for."""
        return self.ring.lost.get(self.signal, 0)

    def losses(self, *, ended: bool) -> dict[str, int]:
        """Return how many items are lost, by cause; at the end also those that still wait in memory."""
        lost = self.items_lost + (self.items_in_ring if ended else 0)
        # Zero, too: the sender may have taken what the end had counted as lost.
        return {"disk not writable": lost}

    @property
    def disk_bytes(self) -> int:
        """Bytes of this writer's files as they lie on disk, gzipped ones as gzipped."""
        return sum(list(self._closed.values())) + self._size

    def write(self, lines: bytes, items: int) -> None:
        """Append whole lines, each with its line end; never raises. What the disk does not take goes to the ring."""
        if not lines:
            return
        if self._finished:
            self.ring.append(self.signal, lines, items)
            return
        if self._faulty:
            # Older lines are in the ring: these go behind them.
            self.ring.append(self.signal, lines, items)
            self.retry()
            return
        rest = self._deliver(HeldLines(self.signal, lines, items))
        if rest is not None:
            self.ring.append(self.signal, rest.lines, rest.items)

    def retry(self) -> bool:
        """Try the disk again with what the ring holds, at most once a second; True where nothing is held back."""
        if not self._faulty:
            return True
        now_ns = self._clock.mono_ns()
        if self._finished or now_ns < self._retry_at_ns:
            return False
        while (held := self.ring.pop(self.signal)) is not None:
            rest = self._deliver(held)
            if rest is not None:
                self.ring.push_back(rest)
                return False
        self._faulty = False
        return True

    def close(self, *, compress: bool = True, deadline_ns: int | None = None) -> None:
        """Close the last segment and gzip what is closed until `deadline_ns` of the monotonic clock; never raises."""
        if self._finished:
            return
        self._retry_at_ns = 0
        self.retry()
        self._finished = True
        self._deadline_ns = deadline_ns
        self._shut()
        if self.path is not None:
            self._to_compress.append(self.path)
        compressor, self._compressor = self._compressor, None
        if compressor is not None:
            compressor.join(self._left_s())
            if compressor.is_alive():
                return
        if compress:
            self._compress_closed()

    def abandon(self) -> None:
        """Forget everything, in a forked child: the parent's files and lines are the parent's alone."""
        self._finished = True
        self.ring = LineRing(self.ring.max_bytes)
        self._to_compress = []
        self._compressor = None
        self._shut()

    def _deliver(self, held: HeldLines) -> HeldLines | None:
        """Write lines out; return what did not get to the disk as whole lines."""
        prefix = b""
        written, fault = 0, self._prepare(len(held.lines))
        data = held.lines
        if fault is None:
            if not self._on_new_line:
                # A torn line may stand before: what follows must not be glued to it.
                prefix, data = b"\n", b"\n" + held.lines
            written, fault = self._append(data)
            self._size += written
        if fault is None:
            self._on_new_line = True
            self.bytes_written += len(held.lines)
            self.items_written += held.items
            return None
        self._say_fault(fault)
        landed = max(0, data.rfind(b"\n", 0, written) + 1 - len(prefix))
        whole_lines = held.lines.count(b"\n", 0, landed)
        items = held.items * whole_lines // (held.lines.count(b"\n") or 1)
        self.bytes_written += landed
        self.items_written += items
        return HeldLines(self.signal, held.lines[landed:], held.items - items)

    def _append(self, data: bytes) -> tuple[int, OSError | None]:
        written = 0
        try:
            while written < len(data):
                count = self._write(self._descriptor, data[written:] if written else data)
                if count <= 0:
                    return written, OSError(errno.EIO, os.strerror(errno.EIO))
                written += count
        except OSError as fault:
            return written, fault
        return written, None

    def _prepare(self, size: int) -> OSError | None:
        """Have a descriptor whose file is there and has room."""
        try:
            if self._descriptor >= 0 and os.fstat(self._descriptor).st_nlink == 0:
                # Somebody removed the file; writing on would succeed and be lost.
                self._shut()
                return OSError(errno.ENOENT, os.strerror(errno.ENOENT))
            if self._descriptor < 0:
                self._open_next()
            elif self._size and self._size + size > self._segment_bytes:
                self._rotate()
        except OSError as fault:
            return fault
        return None

    def _open_next(self) -> None:
        existing = list_segments(self.folder, self.signal)
        number = max(self._number, existing[-1][0] if existing else 0) + 1
        while True:
            path = self.folder / segment_name(self.signal, number)
            try:
                # Exclusive: no two writers ever share a file, whatever happened to the lock.
                descriptor = self._open(path, _FLAGS, 0o644)
                break
            except FileExistsError:
                number += 1
        self._shut()
        self._descriptor, self._number, self.path = descriptor, number, path
        self._size = 0
        self._on_new_line = True

    def _rotate(self) -> None:
        now_ns = self._clock.mono_ns()
        if now_ns < self._rotate_at_ns:
            return
        closed = self.path
        try:
            self._open_next()
        except OSError:
            # The present file still takes lines: a segment that grows too large loses nothing.
            self._rotate_at_ns = now_ns + RETRY_NS
            return
        if closed is not None:
            self._to_compress.append(closed)
        if self._compressor is None or not self._compressor.is_alive():
            compressor = threading.Thread(target=self._compress_closed, name="otel-train-gzip", daemon=True)
            try:
                compressor.start()
            except RuntimeError:
                # At the end of the interpreter none can be started: `close` compresses.
                return
            self._compressor = compressor

    def _compress_closed(self) -> None:
        while self._to_compress:
            path = self._to_compress.pop(0)
            target = compress_file(path, may_go_on=self._may_go_on)
            if target is not None:
                self._closed[path] = _size_of(target)

    def _may_go_on(self) -> bool:
        return self._deadline_ns is None or self._clock.mono_ns() < self._deadline_ns

    def _left_s(self) -> float | None:
        if self._deadline_ns is None:
            return None
        return max(0.0, (self._deadline_ns - self._clock.mono_ns()) / NS_PER_S)

    def _say_fault(self, fault: OSError) -> None:
        path = self.path or self.folder / segment_name(self.signal, self._number + 1)
        self._on_new_line = self._size == 0
        self._retry_at_ns = self._clock.mono_ns() + RETRY_NS
        if fault.errno in _DEAD_DESCRIPTOR:
            self._shut()
        if self._faulty:
            return
        self._faulty = True
        reason = fault.strerror or str(fault)
        try:
            self._on_fault(f"cannot write {path}: {reason}; lines are held in memory until it can be written")
        except Exception:  # noqa: BLE001 - a fault in telling of a fault must not become one
            pass

    def _shut(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor < 0:
            return
        if self.path is not None:
            self._closed[self.path] = self._size
        self._size = 0
        try:
            os.close(descriptor)
        except OSError:
            pass


def _size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
