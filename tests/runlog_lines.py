"""Small run logs for tests: lines with a number in them, a hand-set clock, and a made-up machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from otel_train.otlp.decode import decode_line
from otel_train.otlp.encode import LineEncoder
from otel_train.record.entries import Column, LogEntry
from otel_train.runlog.folder import RunFolder
from otel_train.runlog.processes import Processes
from otel_train.runlog.ring import LineRing
from otel_train.runlog.segments import SegmentWriter

SECOND = 1_000_000_000
START_NS = 1_700_000_000 * SECOND
RUN_ID = "20260101-000000-abcdefgh"
ENCODER = LineEncoder({"run_id": RUN_ID, "run_name": "first", "service.name": "digits"}, "0.1.0")


class HandClock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now_ns = 0

    def wall_ns(self) -> int:
        return START_NS + self.now_ns

    def mono_ns(self) -> int:
        return self.now_ns


class FakeProcesses(Processes):
    """A machine named ``here`` on which only the given process lives."""

    def __init__(
        self, *, alive: bool = False, host: str = "here", boot: str = "boot-1", oom: int | None = None
    ) -> None:
        super().__init__()
        self._alive, self._host, self._boot, self._oom = alive, host, boot, oom

    def host(self) -> str:
        return self._host

    def boot_id(self) -> str:
        return self._boot

    def alive(self, pid: int, started: float | None) -> bool:
        return self._alive and pid == 4242

    def oom_kills(self, cgroup: str) -> int | None:
        return self._oom


def line(number: float, name: str = "train.loss", time_ns: int | None = None) -> bytes:
    """One line with one point, whose value is the number."""
    return ENCODER.points([Column(name, [START_NS + int(number) if time_ns is None else time_ns], [float(number)])])


def log_line(body: str, event: str = "", time_ns: int = START_NS, **attributes: Any) -> bytes:
    """One line with one log record or event."""
    entry = LogEntry(
        time_ns=time_ns, severity_number=9, severity_text="INFO", body=body, event_name=event, attributes=attributes
    )
    return ENCODER.logs([entry])


def value(data: bytes) -> float:
    """The number that `line` put into a line."""
    ((point, _),) = decode_line(data).points()
    assert point.value is not None
    return point.value


def attempt_row(**fields: Any) -> dict[str, Any]:
    """An attempt of run.json as it stands while the run goes on."""
    row = {
        "attempt": 1,
        "started": "2023-11-14T22:13:20.000000Z",
        "ended": None,
        "status": "running",
        "exit_code": None,
        "reason": "",
        "host": "here",
        "pid": 4242,
        "process_start": 1.0,
        "boot_id": "boot-1",
    }
    return {**row, **fields}


def make_run(root: Path, run_id: str = RUN_ID, *, lines: int = 3, **fields: Any) -> RunFolder:
    """A run with one attempt of one rank and so many points, whose writer is gone without a trace."""
    created = fields.pop("created", "2023-11-14T22:13:20.000000Z")
    name = fields.pop("run_name", "first")
    document = {"run_id": run_id, "run_name": name, "project": "digits", "created": created}
    folder = RunFolder.create(root, run_id, {**document, "attempts": [attempt_row(**fields)]})
    path = folder.rank_folder(folder.create_attempt(), 0)
    if lines:
        writer = SegmentWriter(path, "metrics", ring=LineRing(), on_fault=print)
        for number in range(lines):
            writer.write(line(number), 1)
        writer.close(compress=False)
    return folder
