"""Writes single files below a run's `artifacts/`, whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

from otel_train.runlog.folder import RunFolder


def write_artifact(folder: RunFolder, name: str, content: bytes) -> Path:
    """Write a file in the run's folder `artifacts/` and return its path; OSError where the disk refuses."""
    path = folder.artifacts() / name
    partial = path.with_name(f".{name}.{os.getpid()}.tmp")
    try:
        partial.write_bytes(content)
        os.replace(partial, path)
    except OSError:
        partial.unlink(missing_ok=True)
        raise
    return path
