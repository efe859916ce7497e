"""Names the files of a save that is under way, and clears away those of saves that were killed."""

from __future__ import annotations

import hashlib
import os
import platform
import re
from pathlib import Path

from otel_train.clock import NS_PER_S

# Another machine's process cannot be looked up; a save that began this long ago is taken for dead.
FOREIGN_AGE_S = 86_400
_NAME = re.compile(r"\.unfinished-(?P<host>[0-9a-f]{8})-(?P<pid>\d+)-(?P<token>[0-9a-f]{8})\.(?P<name>.+)", re.DOTALL)
# Saves of this process under way: its threads may save at the same time.
_active: set[str] = set()


def unfinished_path(target: Path) -> Path:
    """Return a fresh temporary path in the target's folder that ends in the target's name; `mark_done` releases it."""
    path = target.with_name(f".unfinished-{_host()}-{os.getpid()}-{os.urandom(4).hex()}.{_end(target.name)}")
    _active.add(path.name)
    return path


def mark_done(temporary: Path) -> None:
    """Say that the save of this temporary path is over."""
    _active.discard(temporary.name)


def former_path(target: Path) -> Path:
    """Return where a folder that is being replaced lies for a moment."""
    return target.with_name(f".former.{target.name}")


def clear_leftovers(target: Path, now_ns: int) -> list[str]:
    """Remove what killed saves of this target left, restore a folder caught between two renames; return the names."""
    former = former_path(target)
    if os.path.lexists(former):
        if os.path.lexists(target):
            _remove_folder(former)
        else:
            os.rename(former, target)
    removed = []
    with os.scandir(target.parent) as entries:
        for entry in entries:
            match = _NAME.fullmatch(entry.name)
            if match and match["name"] == _end(target.name) and _is_left(match, entry, now_ns):
                if entry.is_dir(follow_symlinks=False):
                    _remove_folder(entry.path)
                else:
                    Path(entry.path).unlink(missing_ok=True)
                removed.append(entry.name)
    return removed


def _remove_folder(path: str | os.PathLike[str]) -> None:
    import shutil

    shutil.rmtree(path, ignore_errors=True)


def _is_left(match: re.Match[str], entry: os.DirEntry[str], now_ns: int) -> bool:
    if match["host"] != _host():
        try:
            age_ns = now_ns - entry.stat(follow_symlinks=False).st_mtime_ns
        except OSError:
            return False
        return age_ns > FOREIGN_AGE_S * NS_PER_S
    pid = int(match["pid"])
    if pid == os.getpid():
        # A container's restart gives the same number again: then the name is not one of ours.
        return entry.name not in _active
    # Imported here: most processes never come to this line.
    import psutil

    return not psutil.pid_exists(pid)


def _end(name: str) -> str:
    """Return the end of a name, where writers look for the suffix: a file's name has at most 255 bytes."""
    return name if len(os.fsencode(name)) <= 200 else os.fsdecode(os.fsencode(name)[-200:])


def _host() -> str:
    return hashlib.sha256(platform.node().encode()).hexdigest()[:8]
