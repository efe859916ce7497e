"""Says at the end of a run what became of its sending, and how to send what is left."""

from __future__ import annotations

from typing import TYPE_CHECKING

from otel_train.export.accounting import REFUSED, UNWRITTEN

if TYPE_CHECKING:
    from otel_train.export.sender import Sender


def end_text(sender: Sender, complete: bool, run_id: str, deadline_ns: int) -> str:
    """Return the part of the end's line about sending, with the `; ` before it; what is left is counted until then."""
    parts = []
    unwritten = sender.accounting.items(UNWRITTEN)
    if unwritten:
        parts.append(f"{unwritten:,} items sent from memory alone")
    refused = sender.accounting.items(REFUSED)
    if refused:
        reason = next(iter(sender.accounting.reasons()), "")
        parts.append(f"{refused:,} items refused" + (f" ({reason})" if reason else ""))
    if complete:
        parts.append("all sent" if not refused else "all else sent")
    else:
        left, exact = sender.left_items(deadline_ns)
        what = f"{left:,} items" if exact else f"more than {left:,} items"
        parts.append(f"{what} not sent: otel-train push {run_id}" if left or not exact else "the end is not sent")
    return "".join(f"; {part}" for part in parts)
