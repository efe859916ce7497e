"""Shows a run's report within a notebook: the whole page in a frame that can reach neither notebook nor network."""

from __future__ import annotations

import html
import importlib
import os
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Final

from otel_train.clock import wall_ns
from otel_train.errors import ConfigError
from otel_train.run.showing import in_notebook
from otel_train.runlog.catalogue import find_run, is_run
from otel_train.view.page import render
from otel_train.view.reading import read_run
from otel_train.view.report import build, plotly_script, write

if TYPE_CHECKING:
    from otel_train.run.run import Run

HEIGHT: Final = 720
LATEST: Final = "latest"


class Report:
    """The report of one run: in a notebook the page itself, elsewhere the path of the file that holds it."""

    def __init__(self, page: str, path: Path | None, name: str, height: int) -> None:
        self.page = page
        # Where the file is; None in a notebook, which holds the page itself.
        self.path = path
        self.name = name
        self.height = height

    def _repr_html_(self) -> str:
        """Return the page in a frame: it runs its own script, and has no access to what is around it."""
        return (
            f'<iframe sandbox="allow-scripts allow-downloads" title="{html.escape(self.name)}" width="100%" '
            f'height="{self.height}" style="border:0;color-scheme:normal" srcdoc="{html.escape(self.page)}"></iframe>'
        )

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        """Return the frame with the text that stands for it where HTML cannot be shown."""
        return {"text/plain": repr(self), "text/html": self._repr_html_()}

    def __repr__(self) -> str:
        return f"<report of {self.name}{'' if self.path is None else f' in {self.path}'}>"


def show(
    run: Run | str | PathLike[str] | None = None, *, root: str | PathLike[str] | None = None, height: int = HEIGHT
) -> Report | None:
    """Show the report of a run; see `otel_train.show`."""
    if not isinstance(height, int) or isinstance(height, bool) or not 100 <= height <= 10_000:
        raise ConfigError("height", height, "use a number of pixels from 100 to 10000")
    plotly = plotly_script()
    found = read_run(_folder_of(run, root), wall_ns())
    title = f"{found.name} · {found.state} · otel-train"
    if not in_notebook():
        return Report("", write(found), found.name, height)
    importlib.import_module("IPython.display").display(
        Report(render(build(found), title, plotly), None, found.name, height)
    )
    return None


def _folder_of(run: Run | str | PathLike[str] | None, root: str | PathLike[str] | None) -> Path:
    from otel_train.run.current import current_run
    from otel_train.run.run import Run

    current = current_run()
    if run is None and root is None and current is not None and current.id:
        run = current
    if isinstance(run, Run):
        # What was logged in this cell is shown, too.
        run.flush(2.0)
        folder = run.path
        if folder is None or not run.id:
            raise ConfigError("run", repr(run), "it has no folder to read; give one that was recorded with a folder")
        return folder
    if isinstance(run, PathLike) and is_run(Path(run)):
        return Path(run)
    return find_run(_root(root, current), LATEST if run is None else os.fspath(run))


def _root(root: str | PathLike[str] | None, current: Run | None) -> Path:
    if root is not None:
        return Path(root)
    folder = current.path if current is not None and current.id else None
    return folder.parent if folder is not None else Path(os.environ.get("OTEL_TRAIN_DIR") or "./runs")
