"""Finds runs in a root: all of them, or the one that somebody means."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from otel_train.clock import SYSTEM, from_iso
from otel_train.errors import RunFolderError, RunNotFoundError
from otel_train.runlog.folder import OWN_RUN_ID, RUN_FILE, RunFolder
from otel_train.runlog.processes import Processes
from otel_train.runlog.status import Status, run_status

# So many ids and names are proposed, those that only contain what was asked for where that has so many letters.
NEAR = 3
NEAR_LETTERS = 3


@dataclass(frozen=True, slots=True)
class RunSummary:
    """One run in a list. `info` is run.json, empty where it cannot be read; `problem` says why."""

    path: Path
    run_id: str
    run_name: str
    project: str
    created_ns: int
    status: Status
    info: dict[str, Any]
    problem: str = ""


def list_runs(
    root: Path | str,
    now_ns: int | None = None,
    processes: Processes | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[RunSummary]:
    """Return every run below the root, the newest first; what is no run is passed over. No root: no runs."""
    now_ns = SYSTEM.wall_ns() if now_ns is None else now_ns
    processes = processes or Processes()
    paths = run_paths(root)
    runs = []
    for done, path in enumerate(paths):
        progress(done, len(paths))
        runs.append(summarize(path, now_ns, processes))
    progress(len(paths), len(paths))
    return sorted(runs, key=lambda run: (run.created_ns, run.run_id), reverse=True)


def describe(path: Path) -> tuple[dict[str, Any], str]:
    """Return what run.json says, and "", or nothing and why it cannot be read."""
    try:
        return RunFolder(path).read(), ""
    except RunFolderError as fault:
        return {}, str(fault)


def summarize(
    path: Path, now_ns: int, processes: Processes | None = None, described: tuple[dict[str, Any], str] | None = None
) -> RunSummary:
    """Return one run's row in a list; `described` is what `describe` has just given."""
    info, problem = describe(path) if described is None else described
    status = run_status(path, now_ns, processes, info)
    created_ns = _time(info.get("created")) or _named_ns(path)
    name, project = str(info.get("run_name") or ""), str(info.get("project") or "")
    return RunSummary(path, path.name, name, project, created_ns, status, info, problem)


def run_paths(root: Path | str) -> list[Path]:
    """Return the folders below the root that are runs."""
    try:
        entries = sorted(os.scandir(root), key=lambda entry: entry.name)
    except OSError:
        return []
    return [
        Path(entry.path)
        for entry in entries
        if not entry.name.startswith(".") and _is_folder(entry) and is_run(Path(entry.path))
    ]


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        # A link that leads round in a circle.
        return False


def is_run(path: Path) -> bool:
    """Return whether a folder is a run's; of one that this user may not look into its name tells."""
    try:
        return (path / RUN_FILE).is_file() or bool(RunFolder(path).attempts())
    except OSError:
        # Somebody else's run, or another folder of a shared disk, such as lost+found.
        return OWN_RUN_ID.fullmatch(path.name) is not None


def find_run(root: Path | str, reference: str) -> Path:
    """Return the folder of the run that is meant: its path, id, a prefix of its id that only it has, or its name.

    ``latest`` is the run that was created last. RunNotFoundError, with what comes near, where there is none or where
    several are meant.
    """
    direct = Path(reference)
    if reference and (direct.is_absolute() or os.sep in reference or direct.is_dir()) and is_run(direct):
        return direct
    paths = run_paths(root)
    if not paths:
        raise RunNotFoundError(f"there is no run in {root}" + ("" if Path(root).is_dir() else ", which is not there"))
    if reference == "latest" and not any(path.name == reference for path in paths):
        return _newest(paths)
    meant = runs_meant(paths, reference)
    if len(meant) == 1:
        return meant[0]
    if meant:
        listed = ", ".join(path.name for path in meant[-5:])
        raise RunNotFoundError(f"{reference!r} could mean {len(meant)} runs in {root}: {listed}; use one id")
    near, runs = near_runs(paths, reference)
    told = f"near it: {', '.join(near)}"
    if not near:
        name = _name_of(runs[0])
        told = f"the newest is {runs[0].name}" + (f" ({name})" if name and name != runs[0].name else "")
    raise RunNotFoundError(f"no run {reference!r} in {root}; {told}")


def runs_meant(paths: Sequence[Path], reference: str) -> list[Path]:
    """Return those of these runs whose id this is, else whose id begins so, else whose name it is."""
    if not reference:
        return []
    exact = [path for path in paths if path.name == reference]
    begun = exact or [path for path in paths if path.name.startswith(reference)]
    # Names stand in the descriptions, each of which has to be read.
    return begun or [path for path in paths if _name_of(path) == reference]


def near_runs(paths: Sequence[Path], reference: str) -> tuple[list[str], list[Path]]:
    """Return the ids and names that are near to a reference which means none of these runs, and whose they are.

    Near is what begins so, contains it, or differs by some letters. Where nothing is, no words, and the newest run.
    """
    called = {path: _name_of(path) for path in paths}
    known = {word.casefold(): word for word in (*called.values(), *(path.name for path in paths)) if word}
    words = reference.casefold()
    begun = [word for word in sorted(known) if words and word.startswith(words)]
    within = [word for word in sorted(known) if len(words) >= NEAR_LETTERS and words in word]
    close = difflib.get_close_matches(words, known, n=NEAR, cutoff=0.6)
    near = [known[word] for word in dict.fromkeys((*begun, *close, *within))][:NEAR]
    if near:
        return near, [path for path in reversed(paths) if path.name in near or called[path] in near][:NEAR]
    return [], [_newest(paths)]


def _newest(paths: Sequence[Path]) -> Path:
    return max(paths, key=lambda path: (_created_ns(path), path.name))


def _created_ns(path: Path) -> int:
    try:
        return _time(RunFolder(path).read().get("created")) or _named_ns(path)
    except RunFolderError:
        return _named_ns(path)


def _name_of(path: Path) -> str:
    try:
        return str(RunFolder(path).read().get("run_name") or "")
    except RunFolderError:
        return ""


def _named_ns(path: Path) -> int:
    """Return the time that a run's id begins with, for where no run.json tells it, as in an archive; else a guess."""
    return _time(path.name[: len("YYYYMMDD-HHMMSS")]) or _changed_ns(path)


def _changed_ns(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def _time(text: object) -> int:
    try:
        # What lies before 1970 is no time of a run.
        return max(0, from_iso(text)) if isinstance(text, str) and text else 0
    except ValueError:
        return 0
