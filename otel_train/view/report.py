"""Makes the page of a run: one HTML file with everything in it, written beside the run or where the user says."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

from otel_train.view.page import render
from otel_train.view.parts import build_parts
from otel_train.view.plotly_script import plotly_path
from otel_train.view.run_data import RunData


def plotly_script() -> str:
    """Return plotly's own script from its package; MissingPlotlyError where that is not installed."""
    return plotly_path().read_text(encoding="utf-8")


def build(run: RunData) -> dict[str, Any]:
    """Return all that the page shows, as plain data."""
    return build_parts(run)


def write(run: RunData, target: Path | None = None) -> Path:
    """Write the page and return its path, by default ``<run>/artifacts/report.html``; OSError where that fails.

    The file appears whole or not at all, also beside a run that is being written.
    """
    script = plotly_script()
    page = render(build(run), f"{run.name} · {run.state} · otel-train", script)
    path = target if target is not None else run.path / "artifacts" / "report.html"
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(page, encoding="utf-8", newline="\n")
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    return path
