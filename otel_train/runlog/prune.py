"""Removes old runs by count, age and size, and never one that somebody is writing."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from otel_train.clock import NS_PER_S
from otel_train.errors import ConfigError
from otel_train.runlog.catalogue import RunSummary, list_runs
from otel_train.runlog.folder import RunFolder
from otel_train.runlog.processes import Processes
from otel_train.runlog.status import run_status

TRASH_PREFIX = ".pruned-"


@dataclass(slots=True)
class PrunePlan:
    """What would be removed, oldest first, each with its reason and bytes; and what would stay."""

    root: Path
    remove: list[tuple[Path, str, int]] = field(default_factory=list)
    kept: list[Path] = field(default_factory=list)
    skipped_running: list[Path] = field(default_factory=list)
    foreign: list[Path] = field(default_factory=list)
    kept_bytes: int = 0

    @property
    def remove_bytes(self) -> int:
        """Bytes that would become free."""
        return sum(size for _, _, size in self.remove)


@dataclass(slots=True)
class PruneResult:
    """What was removed, what had begun to run meanwhile and was left, and what could not be removed."""

    removed: list[Path] = field(default_factory=list)
    removed_bytes: int = 0
    left_running: list[Path] = field(default_factory=list)
    failed: list[tuple[Path, str]] = field(default_factory=list)


def plan_prune(
    root: Path | str,
    *,
    now_ns: int,
    keep_last: int | None = None,
    older_than_s: float | None = None,
    max_size: int | None = None,
    processes: Processes | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> PrunePlan:
    """Say which runs to remove.

    The `keep_last` newest runs are safe from every rule. Of the others those go whose last sign of life is older than
    `older_than_s` seconds, and then the oldest until all runs together have at most `max_size` bytes. With `keep_last`
    alone all others go. Running runs are never named, though they count among the newest and in the size. What another
    tool made is `foreign`, and neither counted nor touched. ConfigError
    where no rule is given or a number is negative.
    """
    _check(keep_last=keep_last, older_than_s=older_than_s, max_size=max_size)
    plan = PrunePlan(Path(root))
    candidates: list[tuple[RunSummary, int]] = []
    runs = list_runs(root, now_ns, processes, progress)
    # Another tool's folders may hold a run.json too; a wrong root must not cost anybody his data.
    plan.foreign = [run.path for run in runs if not _is_own(run)]
    for position, run in enumerate(run for run in runs if _is_own(run)):
        size = folder_bytes(run.path)
        plan.kept_bytes += size
        if run.status.is_running:
            plan.skipped_running.append(run.path)
        elif keep_last is not None and position < keep_last:
            plan.kept.append(run.path)
        else:
            candidates.append((run, size))
    for run, size in reversed(candidates):
        reason = _reason(run, now_ns, keep_last, older_than_s, max_size, plan.kept_bytes)
        if reason:
            plan.remove.append((run.path, reason, size))
            plan.kept_bytes -= size
        else:
            plan.kept.append(run.path)
    return plan


def apply(
    plan: PrunePlan,
    now_ns: int,
    processes: Processes | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> PruneResult:
    """Remove what was planned, looking at each run once more: one that runs again by now is left."""
    result = PruneResult()
    for done, (path, _, size) in enumerate(plan.remove):
        progress(done, len(plan.remove))
        try:
            if _remove_run(path, now_ns, processes):
                result.removed.append(path)
                result.removed_bytes += size
            else:
                result.left_running.append(path)
        except OSError as fault:
            result.failed.append((path, fault.strerror or str(fault)))
    progress(len(plan.remove), len(plan.remove))
    return result


def _is_own(run: RunSummary) -> bool:
    """Tell whether a folder was surely made by otel-train: by its own description, else by its layout."""
    described = not run.problem and run.info.get("run_id") == run.path.name and "attempts" in run.info
    return described or bool(RunFolder(run.path).rank_folders())


def _remove_run(path: Path, now_ns: int, processes: Processes | None) -> bool:
    if run_status(RunFolder(path), now_ns, processes).is_running:
        return False
    trash = path.with_name(TRASH_PREFIX + path.name)
    if trash.exists():
        # Left by a removal that was cut short.
        shutil.rmtree(trash)
    # Moved away first, so that nobody can start to write in what is going; whoever came just before holds its lock.
    os.rename(path, trash)
    if run_status(RunFolder(trash), now_ns, processes).is_running:
        os.rename(trash, path)
        return False
    shutil.rmtree(trash)
    return True


def folder_bytes(path: Path) -> int:
    """Return the bytes of all files below a folder; what vanishes meanwhile counts nothing."""
    total = 0
    for parent, _, names in os.walk(path):
        for name in names:
            try:
                total += os.lstat(os.path.join(parent, name)).st_size
            except OSError:
                pass
    return total


def _reason(
    run: RunSummary,
    now_ns: int,
    keep_last: int | None,
    older_than_s: float | None,
    max_size: int | None,
    present_bytes: int,
) -> str:
    seen_ns = max(run.status.last_seen_ns, run.status.since_ns) or run.created_ns
    age_s = (now_ns - seen_ns) / NS_PER_S
    if older_than_s is not None and age_s > older_than_s:
        return f"older than {_days(older_than_s)} ({_days(age_s)})"
    if max_size is not None and present_bytes > max_size:
        return f"all runs together have more than {max_size:,} bytes"
    if keep_last is not None and older_than_s is None and max_size is None:
        return f"not among the {keep_last} newest"
    return ""


def _days(seconds: float) -> str:
    return f"{seconds / 86_400:.3g} days"


def _check(**rules: float | None) -> None:
    if all(value is None for value in rules.values()):
        raise ConfigError("prune", None, "give at least one of keep_last, older_than and max_size")
    for name, value in rules.items():
        if value is not None and value < 0:
            raise ConfigError(name, value, "must not be negative")
