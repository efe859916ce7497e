"""Finds the script that draws, which ships in the plotly package."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from otel_train.errors import installing


class MissingPlotlyError(Exception):
    """The plotly package, which ships the script that draws, is not installed."""


def plotly_path() -> Path:
    """Return where plotly's own script lies; MissingPlotlyError where it does not.

    The package itself is not imported: that takes half a second, and only its file is wanted.
    """
    found = importlib.util.find_spec("plotly")
    for place in (found.submodule_search_locations or ()) if found is not None else ():
        path = Path(place, "package_data", "plotly.min.js")
        if path.is_file():
            return path
    raise MissingPlotlyError(f"the charts need plotly: {installing('view')}")
