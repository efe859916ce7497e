"""Reads some segments of a long run in a second process, while those before them are read here.

What it gives of a line is what `take_out` makes of it, and the bytes of a line with which it can do nothing. Where
there is one core, or the process cannot be started, or ends early, all is read here as if there had been none.
"""

from __future__ import annotations

import contextlib
import json
import marshal
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Container, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from otel_train.otlp.decode import put_back
from otel_train.otlp.decode_columns import TakenOut, take_out
from otel_train.runlog.inflate import library_folder
from otel_train.runlog.lines import Damage, RawLine, read_lines

# The start of the process takes as long as reading so many plain bytes, and so much must be there for it to read.
_START_BYTES = 8 << 20
_WORTH_BYTES = 24 << 20
# What gzip makes of our lines is about a tenth.
_PACKED = 10
# Taking what was read into the run's series costs so much of reading it.
_TAKING = 0.3
# What waits to be taken: half a megabyte each, at most so many.
_BATCH_BYTES = 512 << 10
_MOST_WAITING = 64
# On Linux a pipe may hold more than the usual 64 KiB: a thread that waits for its turn reads it in few pieces.
_SET_PIPE_SIZE = 1031
_PIPE_BYTES = 1 << 20
# Without `import otel_train`, which brings what recording needs.
PROGRAM = (
    "import sys, types; package = types.ModuleType('otel_train'); package.__path__ = [sys.argv[1]]; "
    "sys.path.extend(sys.argv[2:]); "
    "sys.modules['otel_train'] = package; from otel_train.runlog.second_reader import serve; serve()"
)
_Item = tuple[int, int, int, bool, bool, Any]


class SecondReader:
    """The process, and which segments it reads: in the order in which they are going to be asked for."""

    def __init__(self, paths: Sequence[Path], names: Container[str] | None = None, holding: bytes = b"") -> None:
        """Start it; OSError where that fails. `names` and `holding` are those of `RunReader.requests`."""
        wanted = None if names is None else sorted(_listed(names))
        asked = {"paths": [os.fsencode(path).hex() for path in paths], "names": wanted, "holding": holding.hex()}
        self._left = list(paths)
        self._ready: queue.Queue[bytes] = queue.Queue(_MOST_WAITING)
        self._stopped = threading.Event()
        self._process = subprocess.Popen(
            command(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        _widen(self._process.stdout)
        with contextlib.suppress(OSError):
            self._process.stdin.write(json.dumps(asked).encode() + b"\n")
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        self._thread = threading.Thread(
            target=self._fetch, args=(self._process.stdout,), name="otel-train-second-reader", daemon=True
        )
        self._thread.start()

    def reads(self, path: Path) -> bool:
        """Return whether it reads this segment, and has not yet."""
        return path in self._left

    def lines(self, path: Path, damage: list[Damage]) -> Iterator[RawLine]:
        """Give every line of a segment as `read_lines` does, most of them with `taken` in the place of `data`."""
        number = offset = 0
        while self._left and self._left[0] != path:
            # One that was not asked for.
            self._pass_over()
        whole = False
        while self._left and not whole:
            items = self._batch()
            if items is None:
                self._left.clear()
                break
            for item in items:
                if isinstance(item, list):
                    whole = True
                    self._left.pop(0)
                    damage.extend(Damage(path, *found) for found in item)
                    break
                number, start, offset, ended, too_long, content = item
                data, taken = (content, None) if isinstance(content, bytes) else (b"", TakenOut(*content))
                yield RawLine(number, start, data, ended, too_long, offset, taken)
        if not whole:
            yield from read_lines(path, damage, number=number, offset=offset)

    def close(self) -> None:
        """End the process."""
        self._left.clear()
        self._stopped.set()
        with contextlib.suppress(OSError):
            self._process.kill()
        self._process.wait()
        while self._thread.is_alive():
            # The thread may wait for room.
            with contextlib.suppress(queue.Empty):
                self._ready.get(timeout=0.01)
        self._thread.join()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _pass_over(self) -> None:
        items: list[Any] | None = []
        while items is not None and not (items and isinstance(items[-1], list)):
            items = self._batch()
        if items is None:
            self._left.clear()
        else:
            self._left.pop(0)

    def _batch(self) -> list[Any] | None:
        """Return what came next, a segment's last item being the list of its damage; None where nothing comes."""
        data = self._ready.get()
        if not data:
            return None
        try:
            items: list[Any] = marshal.loads(data)
        except (EOFError, ValueError, TypeError):
            return None
        return items

    def _fetch(self, stream: IO[bytes]) -> None:
        """Take what the process writes, so that it need not wait; an empty item says that there is no more."""
        try:
            while not self._stopped.is_set():
                size = int.from_bytes(stream.read(4), "little")
                data = stream.read(size)
                if not size or len(data) < size:
                    break
                self._ready.put(data)
        except (OSError, ValueError):
            pass
        self._ready.put(b"")


def command(program: str = "") -> list[str]:
    """Return the command of the process: with this package, and with what unpacks gzips, but without `site`."""
    folders = [str(Path(__file__).parent.parent), library_folder()]
    return [sys.executable, "-I", "-S", "-c", program or PROGRAM, *filter(None, folders)]


def started_for(
    segments: Sequence[tuple[Path, bool]], names: Container[str] | None = None, holding: bytes = b""
) -> SecondReader | None:
    """Return a second reader of some of these segments; None where it is not worth it, or cannot be had.

    Each segment is given with whether it is closed, in the order of reading: no other is read by a second process.
    """
    chosen = _shared(segments) if _cores() > 1 and _is_python(sys.executable) else []
    try:
        return SecondReader(chosen, names, holding) if chosen else None
    except (OSError, TypeError, ValueError):
        return None


def _shared(segments: Sequence[tuple[Path, bool]]) -> list[Path]:
    """Return those for the second reader, so that both are done at about the same time."""
    chosen: list[Path] = []
    here = whole = 0.0
    there = float(_START_BYTES)
    for path, closed in segments:
        try:
            size = path.stat().st_size * (_PACKED if path.suffix == ".gz" else 1)
        except OSError:
            continue
        if closed and there < here:
            chosen.append(path)
            whole += size
            there += size
            here = max(here + _TAKING * size, there)
        else:
            here += (1 + _TAKING) * size
    return chosen if whole >= _WORTH_BYTES else []


def _cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except (AttributeError, OSError):
        return os.cpu_count() or 1


def _is_python(program: str | None) -> bool:
    """Whether this starts an interpreter: a program that embeds one would start itself."""
    return bool(program) and Path(str(program)).name.lower().startswith(("python", "pypy"))


def _listed(names: Container[str]) -> list[str]:
    if isinstance(names, (set, frozenset, list, tuple, dict)):
        return list(names)
    raise TypeError("names that cannot be listed cannot be sent")


def _widen(stream: IO[bytes]) -> None:
    if sys.platform != "linux":
        return
    import fcntl

    with contextlib.suppress(OSError):
        fcntl.fcntl(stream.fileno(), _SET_PIPE_SIZE, _PIPE_BYTES)


# In the second process ------------------------------------------------------------------------------------------------


def serve() -> None:
    """Read the segments that standard input names, and write what they hold to standard output."""
    asked = json.loads(sys.stdin.readline())
    names = None if asked["names"] is None else frozenset(asked["names"])
    holding = bytes.fromhex(asked["holding"])
    for name in asked["paths"]:
        damage: list[Damage] = []
        path = Path(os.fsdecode(bytes.fromhex(name)))
        batch: list[Any] = []
        size = 0
        for raw in read_lines(path, damage):
            content = _content(raw, names, holding)
            batch.append((raw.number, raw.offset, raw.end, raw.ended, raw.too_long, content))
            # About nine bytes a number, when it is packed.
            size += len(content) if isinstance(content, bytes) else 9 * sum(len(c[1]) for c in content[1])
            if size >= _BATCH_BYTES:
                _send(batch)
                batch, size = [], 0
        batch.append([(found.line_number, found.offset, found.reason) for found in damage])
        _send(batch)


def _content(raw: RawLine, names: Container[str] | None, holding: bytes) -> Any:
    if raw.too_long:
        return raw.data
    if holding not in raw.data:
        return b"{}"
    taken = take_out(raw.data, names)
    if taken is None or put_back(taken, names) is None:
        return raw.data
    return tuple(taken)


def _send(batch: list[Any]) -> None:
    data = marshal.dumps(batch)
    sys.stdout.buffer.write(len(data).to_bytes(4, "little") + data)
    sys.stdout.buffer.flush()
