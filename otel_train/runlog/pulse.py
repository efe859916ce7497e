"""Keeps one small file for each rank that says, every few seconds, that it lives and where it is; and reads those."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from otel_train.runlog.regular_file import read_regular

PULSE_FILE: Final = "pulse.json"
PACE_FILE: Final = "pace.json"
# Always written whole, so that a reader on the same host never sees half of it, and nothing of an older text remains.
_LENGTH: Final = 1024
_FLAGS: Final = os.O_WRONLY | os.O_CREAT | getattr(os, "O_CLOEXEC", 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pulse:
    """What a rank says of itself. Times are wall times in nanoseconds, durations seconds."""

    time_ns: int
    rank: int
    host: str
    pid: int
    process_start: float | None = None
    # running, or how it ended.
    state: str = "running"
    reason: str = ""
    step: int | None = None
    # Since when no step has ended though one was due, if that is too long; and whether it then waited for others.
    hung_since_ns: int = 0
    waits: bool = False
    # Usual whole and own time of a step.
    step_s: float | None = None
    busy_s: float | None = None


class PulseFile:
    """The file of this rank. For one thread at a time; where it cannot be written nothing is said."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / PULSE_FILE
        self._descriptor = -1

    def write(self, pulse: Pulse) -> None:
        """Replace the content."""
        text = json.dumps(asdict(pulse))
        if len(text) >= _LENGTH:
            text = json.dumps(asdict(pulse) | {"reason": pulse.reason[:60]})  # escaped, twelve bytes each at most
        try:
            if self._descriptor < 0:
                self._descriptor = os.open(self._path, _FLAGS, 0o644)
            os.lseek(self._descriptor, 0, os.SEEK_SET)
            os.write(self._descriptor, text.encode("ascii").ljust(_LENGTH - 1) + b"\n")
        except OSError:
            # A full disk: others then see no news of this rank, as the whole run log shows none.
            self.close()

    def close(self) -> None:
        """Let go of the file."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            try:
                os.close(descriptor)
            except OSError:
                pass


def read_pulse(folder: Path) -> Pulse | None:
    """Return what the rank of a folder said last; None where it said nothing that can be read."""
    try:
        content: Any = json.loads(read_regular(folder / PULSE_FILE))
        pulse = Pulse(**{name: content[name] for name in Pulse.__slots__ if name in content})
    except (OSError, ValueError, TypeError):
        return None
    return pulse if isinstance(pulse.time_ns, int) and isinstance(pulse.rank, int) else None


def write_pace(attempt_folder: Path, usual_own_s: float) -> None:
    """Leave for all ranks how long the own work of a step usually takes; nothing where the disk refuses."""
    path = attempt_folder / PACE_FILE
    partial = path.with_name(f".{PACE_FILE}.tmp")
    try:
        partial.write_text(json.dumps({"usual_own_s": usual_own_s}), encoding="ascii")
        os.replace(partial, path)
    except OSError:
        pass


def read_pace(attempt_folder: Path) -> float | None:
    """Return what `write_pace` left last, None where nothing is there."""
    try:
        usual = json.loads(read_regular(attempt_folder / PACE_FILE))["usual_own_s"]
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return float(usual) if isinstance(usual, (int, float)) else None
