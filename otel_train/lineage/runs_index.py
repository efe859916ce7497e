"""Knows which run, by which stage or checkpoint, made a file: an index over the run.json files under some roots."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from otel_train.errors import RunFolderError
from otel_train.lineage.documents import read_document
from otel_train.lineage.traces import Traces

Role = Literal["stage", "checkpoint", "dataset"]
# The hash of nothing says nothing about where a file comes from.
EMPTY_SHA256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
_CACHED_RUNS = 64
_ROLE_ORDER = {"stage": 0, "checkpoint": 1, "dataset": 2}


@dataclass(frozen=True, slots=True)
class Producer:
    """One thing of a run that made a file: the stage or checkpoint at `position` of the run's list, at `time`.

    `saved` is False for a checkpoint that another library wrote and the run only logged.
    """

    run_id: str
    role: Role
    position: int
    time: str
    path: str
    sha256: str
    whole: bool
    saved: bool = True


@dataclass(frozen=True, slots=True)
class Match:
    """A producer, how it was found, and how many others made the same content."""

    producer: Producer
    by: Literal["sha256", "path"]
    differs: bool
    others: int
    later: bool


class RunsIndex:
    """The runs under some roots; keeps ids, paths and checksums, and reads a run again when it is asked for."""

    def __init__(
        self, roots: Iterable[str | os.PathLike[str]], progress: Callable[[int, int], None] | None = None
    ) -> None:
        self.folders: dict[str, Path] = {}
        self.names: dict[str, list[str]] = {}
        self.damaged: list[str] = []
        self.traces = Traces()
        self._by_sha: dict[str, list[Producer]] = {}
        self._by_path: dict[str, list[Producer]] = {}
        self._cache: OrderedDict[str, dict[str, Any]] = OrderedDict()
        found = sorted({path for root in roots for path in _run_files(Path(root))})
        for number, path in enumerate(found):
            self._take(path)
            if progress is not None:
                progress(number + 1, len(found))

    def read(self, run_id: str) -> dict[str, Any]:
        """Return a run's document; RunFolderError where it is not known or not readable any more."""
        if run_id in self._cache:
            self._cache.move_to_end(run_id)
            return self._cache[run_id]
        if run_id not in self.folders:
            raise RunFolderError(f"run {run_id} is not under the folders searched")
        path = self.folders[run_id] / "run.json"
        try:
            document = read_document(path)
        except (OSError, ValueError) as fault:
            raise RunFolderError(f"{path}: {fault}") from fault
        self._cache[run_id] = document
        if len(self._cache) > _CACHED_RUNS:
            self._cache.popitem(last=False)
        return document

    def resolve(self, reference: str) -> str | None:
        """Return the id of a run by its id, unique beginning or name (of several the newest); None where unknown."""
        if reference in self.folders:
            return reference
        if reference in self.names:
            return max(self.names[reference])
        starting = [run_id for run_id in self.folders if reference and run_id.startswith(reference)]
        return starting[0] if len(starting) == 1 else None

    def find(
        self,
        *,
        sha256: str = "",
        path: str = "",
        before: str = "",
        exclude: frozenset[tuple[str, str, int]] = frozenset(),
        exclude_datasets_of: str = "",
        prefer_run: str = "",
        prefer: Role = "stage",
    ) -> Match | None:
        """Return the likeliest producer of a file, by content first, else by path; None where none is known.

        `before` is the ISO time at which the file was used: what was made later is taken only where the content is
        the same. `exclude` holds (run id, role, position) that cannot be it, such as the stage that read the file;
        `exclude_datasets_of` a run whose own data sets cannot be. `prefer_run` and `prefer` decide between several.
        """

        def usable(producer: Producer) -> bool:
            key = (producer.run_id, producer.role, producer.position)
            if producer.role == "dataset" and producer.run_id == exclude_datasets_of:
                return False
            return key not in exclude

        def rank(producer: Producer) -> tuple[bool, bool, bool, int, bool]:
            in_time = not before or producer.time <= before
            role = -1 if producer.role == prefer else _ROLE_ORDER[producer.role]
            return producer.run_id == prefer_run, in_time, producer.saved, -role, bool(path) and producer.path == path

        def best_of(producers: list[Producer]) -> Producer:
            ranks = [rank(one) for one in producers]
            best = [one for one, its in zip(producers, ranks, strict=True) if its == max(ranks)]
            # Written again at the same place: the last time counts. A copy elsewhere: the first one is the origin.
            return (max if max(ranks)[-1] else min)(best, key=lambda one: one.time)

        same = [one for one in self._by_sha.get(sha256, ()) if usable(one)] if sha256 not in ("", EMPTY_SHA256) else []
        if same:
            best = best_of(same)
            runs = {one.run_id for one in same}
            return Match(best, "sha256", False, len(runs) - 1, bool(before) and best.time > before)
        placed = [one for one in self._by_path.get(path, ()) if usable(one)] if path else []
        placed = [one for one in placed if not before or one.time <= before]
        if not placed:
            return None
        best = best_of(placed)
        return Match(best, "path", bool(sha256 and best.sha256 and best.sha256 != sha256), 0, False)

    def _take(self, path: Path) -> None:
        try:
            document = read_document(path)
            run_id = document.get("run_id")
            if not isinstance(run_id, str) or not run_id:
                raise ValueError("it names no run_id")
        except (OSError, ValueError) as fault:
            self.damaged.append(f"{path}: {fault}")
            return
        self.folders[run_id] = path.parent
        name = document.get("run_name")
        if isinstance(name, str) and name:
            self.names.setdefault(name, []).append(run_id)
        self.traces.take(run_id, document)
        for producer in _producers(run_id, document):
            if producer.sha256:
                self._by_sha.setdefault(producer.sha256, []).append(producer)
            if producer.path:
                self._by_path.setdefault(producer.path, []).append(producer)


def entry_sha(entry: Mapping[str, Any]) -> str:
    """Return the checksum of a file, checkpoint or data set entry, "" where it has none."""
    if isinstance(entry.get("sha256"), str):
        return str(entry["sha256"])
    checksum = entry.get("checksum")
    return str(checksum.get("value", "")) if isinstance(checksum, Mapping) else ""


def entry_whole(entry: Mapping[str, Any]) -> bool:
    """Tell whether that checksum covers everything."""
    checksum = entry.get("checksum")
    return bool(checksum.get("whole", True)) if isinstance(checksum, Mapping) else True


def entry_path(entry: Mapping[str, Any]) -> str:
    """Return the absolute path or URL of an entry, "" where it is a value in memory."""
    if entry.get("kind") == "value":
        return ""
    return str(entry.get("absolute") or entry.get("path") or "")


def listed(document: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    """Return the entries of a list in a run's document that are entries at all."""
    found = document.get(key)
    return [one if isinstance(one, Mapping) else {} for one in found] if isinstance(found, list) else []


def _producers(run_id: str, document: Mapping[str, Any]) -> Iterator[Producer]:
    for position, stage in enumerate(listed(document, "stages")):
        time = str(stage.get("ended") or stage.get("started") or "")
        for entry in listed(stage, "outputs"):
            # Within the stage a file is used as soon as it is written, before the stage has ended.
            made = min(time, str(entry.get("modified") or time))
            yield Producer(run_id, "stage", position, made, entry_path(entry), entry_sha(entry), entry_whole(entry))
    for position, entry in enumerate(listed(document, "checkpoints")):
        if entry.get("role", "saved") != "loaded":
            time = str(entry.get("time") or "")
            yield Producer(
                run_id, "checkpoint", position, time, entry_path(entry), entry_sha(entry), entry_whole(entry)
            )
    for position, entry in enumerate(listed(document, "datasets")):
        time = str(entry.get("time") or "")
        parts = entry.get("parts")
        for one in (entry, *(parts.values() if isinstance(parts, Mapping) else ())):
            if isinstance(one, Mapping) and entry_sha(one):
                yield Producer(run_id, "dataset", position, time, "", entry_sha(one), entry_whole(one))


def _run_files(root: Path) -> Iterator[Path]:
    """Yield the run.json files of a root, or of a run's own folder."""
    own = root / "run.json"
    if own.is_file():
        yield own.resolve()
        return
    try:
        with os.scandir(root) as entries:
            folders = [entry.path for entry in entries if not entry.is_symlink() or os.path.isdir(entry.path)]
    except OSError:
        return
    for folder in folders:
        path = Path(folder) / "run.json"
        if path.is_file():
            yield path.resolve()
