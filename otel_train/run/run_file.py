"""Keeps run.json true while the run goes on: changes are gathered, and written together off the training thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from otel_train.runlog.folder import RunFolder

Change = Callable[[dict[str, Any]], None]


class RunFile:
    """The part of run.json that one attempt owns. Only rank 0 writes it; on the other ranks nothing happens."""

    def __init__(self, folder: RunFolder | None, attempt: int, *, writes: bool, redact: Callable[[str], str]) -> None:
        self._folder = folder
        self._attempt = attempt
        self._writes = writes
        self._redact = redact
        self._changes: list[Change] = []
        self._forward: RunFile | None = None
        self._lock = threading.Lock()

    @classmethod
    def detached(cls, redact: Callable[[str], str]) -> RunFile:
        """Return one that gathers changes until the run's folder is known; `redact` takes secrets out of texts."""
        return cls(None, 0, writes=True, redact=redact)

    def attached(self, folder: RunFolder | None, attempt: int, *, writes: bool, entry: Mapping[str, Any]) -> RunFile:
        """Return the file of a folder, or of none: first the attempt's `entry`, then what was gathered so far."""
        file = RunFile(folder, attempt, writes=writes, redact=self._redact)
        file.set_attempt(**entry)
        with self._lock:
            file._changes += self._changes if writes else []
            self._forward = file
        return file

    def change(self, change: Change) -> None:
        """Apply a change to the document with the next flush."""
        with self._lock:
            forward = self._forward
            if forward is None and self._writes:
                self._changes.append(change)
        if forward is not None:
            forward.change(change)

    def set(self, **values: Any) -> None:
        """Set keys of the document."""
        clean = self._clean(values)
        self.change(lambda document: document.update(clean))

    def set_attempt(self, **values: Any) -> None:
        """Set keys of this attempt's entry."""
        clean = self._clean(values)
        self.change(lambda document: (self._forward or self).entry(document).update(clean))

    def extend_attempt(self, name: str, records: list[Any]) -> None:
        """Add records to one of the lists of this attempt's entry."""
        clean = self._clean(records)
        self.change(lambda document: (self._forward or self).entry(document).setdefault(name, []).extend(clean))

    def append(self, name: str, record: dict[str, Any]) -> None:
        """Add a record to one of the document's lists."""
        clean = self._clean(record)
        self.change(lambda document: document.setdefault(name, []).append(clean))

    def _clean(self, value: Any) -> Any:
        """Return a record without secrets in its texts; what a key hides was hidden where the record was made."""
        if isinstance(value, str):
            return self._redact(value)
        if isinstance(value, Mapping):
            return {key: self._clean(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self._clean(item) for item in value]
        return value

    def entry(self, document: dict[str, Any]) -> dict[str, Any]:
        """Return this attempt's entry of the document, made where it is missing."""
        attempts: list[dict[str, Any]] = document.setdefault("attempts", [])
        for entry in attempts:
            if entry.get("attempt") == self._attempt:
                return entry
        attempts.append({"attempt": self._attempt})
        return attempts[-1]

    def flush(self) -> bool:
        """Write what was gathered; False where the disk refuses, and then it is tried again with the next flush."""
        folder = self._folder
        if folder is None:
            # Without a folder for good there is nothing to write.
            return not self._writes
        with self._lock:
            changes, self._changes = self._changes, []
        if not changes:
            return True

        def apply(document: dict[str, Any]) -> None:
            for change in changes:
                change(document)

        if folder.update(apply):
            return True
        with self._lock:
            self._changes = changes + self._changes
        return False

    def abandon(self) -> None:
        """In a forked child: write nothing."""
        self._writes = False
        self._lock = threading.Lock()
        self._changes = []
