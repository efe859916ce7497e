"""Writes the dashboards: `python -m grafana.source`, or `make dashboards`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from grafana.source.pages import compare, internals, pipeline, ranks, run, runs

FOLDER: Final = Path(__file__).parent.parent / "dashboards"
PAGES: Final[dict[str, Callable[[], str]]] = {
    "runs.json": runs.page,
    "run.json": run.page,
    "internals.json": internals.page,
    "compare.json": compare.page,
    "ranks.json": ranks.page,
    "pipeline.json": pipeline.page,
}


def main() -> None:
    """Write each dashboard, and print where."""
    FOLDER.mkdir(exist_ok=True)
    for name, page in PAGES.items():
        (FOLDER / name).write_text(page(), encoding="utf-8")
        print(FOLDER / name)


if __name__ == "__main__":
    main()
