"""Has a run say what memory was like when there was none left: the allocator's summary, and its snapshot as a file."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from otel_train.record.entries import AttributeValue

if TYPE_CHECKING:
    from otel_train.run.run import Run
    from otel_train.watch.device_memory import AllocatorHistory

SUMMARY: Final = "dl.device.memory.summary"
SNAPSHOT: Final = "dl.device.memory.snapshot"
# A script that catches the error and tries again makes one for each: they have some 100 MB.
MOST_SNAPSHOTS: Final = 2


class RunMemory:
    """What a run asks of torch's allocator, beside its readings."""

    def __init__(self, run: Run, cuda: Callable[[], Any | None] | None = None) -> None:
        self._run = run
        self._cuda = cuda
        self._files: list[str] = []
        self._history: AllocatorHistory | None = None
        if run.settings["memory_snapshot"]:
            # Imported where it is used: most runs have no need of it.
            from otel_train.watch.device_memory import AllocatorHistory

            self._history = AllocatorHistory(self._keep)
            with run.guard("memory_snapshot"):
                self.look()

    def look(self) -> None:
        """Begin the allocator's history, where it is asked for and torch is loaded; again until it is."""
        if self._history is not None and not self._history.begun:
            self._history.begin()

    def _keep(self, snapshot: bytes) -> None:
        """Write a snapshot on the thread that ran out of memory."""
        from otel_train.runlog.artifact_files import write_artifact

        run = self._run
        with run.guard("memory_snapshot"):
            opened = run.session.opened_now
            if opened is None or opened.place is None or len(self._files) >= MOST_SNAPSHOTS:
                return
            name = f"memory-attempt-{opened.attempt}-rank-{run.rank}-{len(self._files) + 1}.pickle"
            path = write_artifact(opened.folder, name, snapshot)
            self._files.append(path.relative_to(opened.folder.path).as_posix())
            run.events.notice(f"a device ran out of memory; what was allocated is in {self._files[-1]}", "WARN")

    def facts(self) -> dict[str, AttributeValue]:
        """Return what an event of a device without memory carries."""
        with self._run.guard("memory_summary"):
            from otel_train.watch.device_memory import allocator_summary, cuda_in_use

            found: dict[str, AttributeValue] = {}
            summary = allocator_summary((self._cuda or cuda_in_use)())
            if summary:
                found[SUMMARY] = summary
            if self._files:
                found[SNAPSHOT] = list(self._files)
            return found
        return {}

    def close(self) -> None:
        """End the allocator's history."""
        if self._history is not None:
            with self._run.guard("memory_snapshot"):
                self._history.end()
