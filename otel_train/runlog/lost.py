"""Writes into run.json that a run is lost, for those who read only that: it could not say so itself."""

from __future__ import annotations

from typing import Any

from otel_train.clock import iso
from otel_train.runlog.folder import RunFolder
from otel_train.runlog.status import Status

LOST = "lost"


def mark_lost(folder: RunFolder, status: Status) -> bool:
    """Mark the newest attempt as lost, with its last sign of life; False where there was nothing to mark.

    A run that was only cut off, and writes again, sets its state anew.
    """
    if status.state != LOST:
        return False
    marked: list[dict[str, Any]] = []

    def change(document: dict[str, Any]) -> None:
        attempts = document.get("attempts")
        for entry in attempts if isinstance(attempts, list) else []:
            if (
                isinstance(entry, dict)
                and entry.get("attempt") == status.attempt
                and entry.get("status") in ("running", None)
            ):
                entry.update(status=LOST, reason=status.reason, ended=iso(status.since_ns) if status.since_ns else None)
                document["status"] = LOST
                marked.append(entry)

    return folder.update(change) and bool(marked)
