"""Keeps beside a rank's run log how far it has been sent; a file that is lost or damaged costs only sending again."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Final

SENT_FILE: Final = "sent.json"
VERSION: Final = 1


class SentFile:
    """One rank folder's ``sent.json``. Disk faults are returned as texts, never raised."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / SENT_FILE

    def read(self) -> tuple[dict[str, Any], str]:
        """Return the content and what is wrong with it: empty and no fault where there is no such file yet."""
        try:
            content = json.loads(self.path.read_bytes())
        except FileNotFoundError:
            return {}, ""
        except (OSError, ValueError, RecursionError) as fault:
            return {}, f"{self.path} cannot be read ({_reason(fault)}); everything is sent again"
        if not isinstance(content, dict) or content.get("version") != VERSION:
            return {}, f"{self.path} is not of a kind this version knows; everything is sent again"
        return content, ""

    def write(self, content: dict[str, Any]) -> str:
        """Replace the file as a whole; return what went wrong, or nothing.

        It is not forced to the disk: after a power cut an older or a torn file is there, and then things are sent
        again, which the stores take.
        """
        data = json.dumps({"version": VERSION, **content}, ensure_ascii=False, separators=(",", ":"))
        partial = self.path.with_name(f"{SENT_FILE}.{os.getpid()}.tmp")
        try:
            partial.write_bytes(data.encode("utf-8", "replace"))
            os.replace(partial, self.path)
        except OSError as fault:
            try:
                partial.unlink(missing_ok=True)
            except OSError:
                pass
            return f"{self.path} cannot be written ({_reason(fault)}); what was sent may be sent again"
        return ""


def _reason(fault: Exception) -> str:
    return (fault.strerror or str(fault)) if isinstance(fault, OSError) else str(fault)
