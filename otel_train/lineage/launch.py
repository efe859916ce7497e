"""Shares one run id among the processes of a launch: rank 0 publishes it, the others read it.

Rank 0 creates `<root>/.launches/<key>.<n>.<restart>.json` exclusively, where n counts the runs that a process has
opened and restart is the launcher's own count. A key may come back (a port, a `--rdzv-id` used again), so what is
found is taken only where it is of this launch:

- keys that never come back (a Slurm step) need no check;
- on the writer's host it counts while the writer lives and has not ended the run, or where it was written after the
  reader's process started;
- from another host it counts where it is not older than the reader's process by more than 10 minutes, or by 60 s once
  the run has ended.

Rank 0 replaces what an earlier launch left. A launcher's restart finds the run of the former workers by `former`.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

from otel_train.clock import NS_PER_S, SYSTEM, Clock
from otel_train.lineage.launch_exchange import Published, parse
from otel_train.lineage.launch_key import file_safe
from otel_train.lineage.process_identity import ProcessIdentity, is_alive, read_identity
from otel_train.lineage.ranks import Ranks

_FOLDER: Final = ".launches"
_OTHER_HOST_GRACE_NS: Final = 600 * NS_PER_S
_OTHER_HOST_ENDED_GRACE_NS: Final = 60 * NS_PER_S
_KEPT_NS: Final = 30 * 86_400 * NS_PER_S

_sequence = itertools.count()


def next_sequence() -> int:
    """Return 0, 1, 2 … for the runs that this process opens; the same on all ranks that open them in one order."""
    return next(_sequence)


class LaunchFolder:
    """The exchange by files in the root of the runs, for ranks that share a file system."""

    def __init__(
        self, root: str | os.PathLike[str], identity: ProcessIdentity | None = None, clock: Clock = SYSTEM
    ) -> None:
        self._folder = Path(root) / _FOLDER
        self._identity = identity or read_identity(clock)
        self._clock = clock

    def publish(
        self, ranks: Ranks, run_id: str, attempt: int, sequence: int = 0, traceparent: str = ""
    ) -> Published | None:
        """Leave the id for the other ranks of this launch, and for its restarts."""
        if ranks.launch_key is None:
            return None
        published = Published(
            run_id=run_id,
            attempt=attempt,
            created_ns=self._clock.wall_ns(),
            host=self._identity.host,
            pid=self._identity.pid,
            start_s=self._identity.start_s,
            traceparent=traceparent,
        )
        path = self._path(ranks, sequence, ranks.restart_count)
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._forget_old()
            if _create(path, published):
                return published
            present = _read(path)
            if present is not None and ranks.shared and self._is_rival(present):
                return present
            _write(path, asdict(published))
        except OSError:
            return None
        return published

    def try_read(self, ranks: Ranks, sequence: int = 0) -> Published | None:
        """Return what rank 0 of this launch has left; None where it has not, or where it is another launch's."""
        if ranks.launch_key is None:
            return None
        found = _read(self._path(ranks, sequence, ranks.restart_count))
        return found if found is not None and (ranks.key_is_unique or self._is_current(found)) else None

    def former(self, ranks: Ranks, sequence: int = 0) -> Published | None:
        """Return the run that torchrun's former workers recorded, which its restarted workers go on with; else None."""
        if ranks.launch_key is None or ranks.launcher != "torchrun":
            return None
        for restart in range(ranks.restart_count, -1, -1):
            found = _read(self._path(ranks, sequence, restart))
            if found is None or self._is_own(found):
                continue
            if found.created_ns >= self._launcher_start_ns(found.host):
                # Workers that torchrun stopped had time to end their run: it goes on all the same. Only an end under
                # this very restart count is another run's: that of an earlier `init()` of a script that makes several.
                return found if found.ended_ns is None or restart < ranks.restart_count else None
        return None

    def retire(self, ranks: Ranks, run_id: str, sequence: int = 0) -> None:
        """Note that the run has ended, so that no later launch takes it for its own."""
        if ranks.launch_key is None:
            return
        path = self._path(ranks, sequence, ranks.restart_count)
        present = _read(path)
        if present is not None and present.run_id == run_id:
            with contextlib.suppress(OSError):
                _write(path, asdict(replace(present, ended_ns=self._clock.wall_ns())))

    def remember(self, key: str, run_id: str, attempt: int) -> None:
        """Note which run a job records, for `resume="auto"` once the scheduler has queued the job again."""
        note = Published(run_id=run_id, attempt=attempt, created_ns=self._clock.wall_ns())
        with contextlib.suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True)
            _write(self._resume_path(key), asdict(note))

    def recall(self, key: str) -> Published | None:
        """Return what `remember` noted last under `key`."""
        return _read(self._resume_path(key))

    def _path(self, ranks: Ranks, sequence: int, restart: int) -> Path:
        return self._folder / f"{ranks.launch_key}.{sequence}.{restart}.json"

    def _resume_path(self, key: str) -> Path:
        return self._folder / f"resume-{file_safe(key)}.json"

    def _is_own(self, found: Published) -> bool:
        own = self._identity
        return (found.host, found.pid, found.start_s) == (own.host, own.pid, own.start_s)

    def _is_rival(self, found: Published) -> bool:
        alive = is_alive(found.host, found.pid, found.start_s, self._identity.host)
        return bool(alive) and not self._is_own(found) and found.ended_ns is None

    def _is_current(self, found: Published) -> bool:
        started_ns = self._identity.start_wall_ns
        alive = is_alive(found.host, found.pid, found.start_s, self._identity.host)
        if alive is None:
            grace_ns = _OTHER_HOST_GRACE_NS if found.ended_ns is None else _OTHER_HOST_ENDED_GRACE_NS
            return started_ns is None or found.created_ns >= started_ns - grace_ns
        if alive and found.ended_ns is None:
            return True
        return started_ns is not None and found.created_ns >= started_ns

    def _launcher_start_ns(self, host: str) -> int:
        """Return the earliest time at which workers of this process's launcher may have written on `host`."""
        own = self._identity
        if own.start_wall_ns is None or own.start_s is None or own.parent_start_s is None:
            return 0
        start_ns = own.start_wall_ns - round((own.start_s - own.parent_start_s) * NS_PER_S)
        return start_ns - (NS_PER_S if host == own.host else _OTHER_HOST_GRACE_NS)

    def _forget_old(self) -> None:
        oldest_ns = self._clock.wall_ns() - _KEPT_NS
        with os.scandir(self._folder) as entries:
            for entry in itertools.islice(entries, 10_000):
                with contextlib.suppress(OSError):
                    if entry.name.endswith(".json") and entry.stat().st_mtime_ns < oldest_ns:
                        os.unlink(entry.path)


def resume_target(folder: LaunchFolder, ranks: Ranks, project: str) -> str | None:
    """Return the id of the run that `resume="auto"` goes on with, None where this is no second start of a job."""
    if ranks.resume_key is None or not ranks.is_requeue:
        return None
    found = folder.recall(resume_note(ranks.resume_key, project))
    return found.run_id if found is not None else None


def resume_note(key: str, project: str) -> str:
    """Return the key for `remember`: a job may record runs of several projects."""
    return f"{project}-{key}"


def group_hint(ranks: Ranks, identity: ProcessIdentity) -> str | None:
    """Return a group that the processes of one launch on this host have in common though they share no run."""
    if ranks.launch_key is not None:
        return f"launch-{ranks.launch_key}"
    if identity.parent_start_s is None:
        return None
    return file_safe(f"launch-{identity.host.partition('/')[0]}-{identity.parent_pid}-{identity.parent_start_s:.0f}")


def _create(path: Path, published: Published) -> bool:
    """Create the file with all its content, or leave what is there."""
    try:
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | getattr(os, "O_CLOEXEC", 0), 0o644)
    except FileExistsError:
        return False
    try:
        os.write(descriptor, json.dumps(asdict(published)).encode())
    finally:
        os.close(descriptor)
    return True


def _write(path: Path, content: dict[str, Any]) -> None:
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    temporary.write_text(json.dumps(content), encoding="utf-8")
    os.replace(temporary, path)


def _read(path: Path) -> Published | None:
    try:
        return parse(path.read_bytes())
    except OSError:
        return None
