"""The part of `Run` that shows itself in a notebook: a small panel, kept up to date there while the run goes on."""

from __future__ import annotations

import importlib
import sys
import threading
from typing import TYPE_CHECKING, Any, Final, cast

if TYPE_CHECKING:
    from otel_train.run.run import Run

PANEL_EVERY_S: Final = 2.0
# What the end of a run waits for the last state to be shown.
LAST_UPDATE_S: Final = 0.5


class Showing:
    """What notebooks ask of an object. Nothing here waits for the run, its disk or a network."""

    _panel: LivePanel | None = None

    def _repr_html_(self) -> str:
        """Return the panel as it is now: HTML without script, with every text escaped."""
        from otel_train.run.panel import as_html, facts_of

        return as_html(facts_of(cast("Run", self)))

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        """Return the panel with the text that stands for it where HTML cannot be shown."""
        return {"text/plain": repr(self), "text/html": self._repr_html_()}

    def _ipython_display_(self) -> None:
        """Show the panel in the cell, and keep it true until the run ends; in IPython on a terminal print the run."""
        if not in_notebook():
            print(repr(self))  # noqa: T201 - it is asked to show itself
            return
        if self._panel is None:
            self._panel = LivePanel(self)
        self._panel.show()

    def _end_panel(self) -> None:
        """Show the last state, for at most half a second."""
        if self._panel is not None:
            self._panel.close(LAST_UPDATE_S)

    @property
    def _is_over(self) -> bool:
        return bool(cast("Run", self).finished)


def in_notebook() -> bool:
    """Tell whether this is a notebook's kernel: what it displays has a place that can be changed later."""
    module = sys.modules.get("IPython")
    shell = module.get_ipython() if module is not None else None
    return getattr(shell, "kernel", None) is not None


class LivePanel:
    """The outputs of one run in a notebook; all of them share one id, and one thread keeps them true."""

    def __init__(self, run: Showing, every_s: float = PANEL_EVERY_S) -> None:
        self._run = run
        self._every_s = every_s
        self._handle: Any = None
        self._shown: dict[str, str] = {}
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def show(self) -> None:
        """Show one more output; the cells that showed the run before keep theirs."""
        if self._handle is None:
            self._handle = importlib.import_module("IPython.display").DisplayHandle()
        self._shown = self._run._repr_mimebundle_()
        self._handle.display(self._shown, raw=True)
        if self._thread is None and not self._run._is_over:
            # A daemon: a notebook's kernel, or a script that runs in one, ends without waiting for it.
            self._thread = threading.Thread(target=self._keep, name="otel-train-panel", daemon=True)
            self._thread.start()

    def close(self, timeout_s: float) -> None:
        """Have the last state shown, and wait so long for it."""
        self._over.set()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout_s)

    def _keep(self) -> None:
        while not self._over.wait(self._every_s):
            if self._run._is_over:
                # The run is being closed: how it ended is known in a moment.
                continue
            if not self._update():
                return
        self._update()

    def _update(self) -> bool:
        try:
            bundle = self._run._repr_mimebundle_()
            if bundle != self._shown:
                self._shown = bundle
                self._handle.update(bundle, raw=True)
        except Exception:  # noqa: BLE001 - a picture of the run must not disturb it, nor print into somebody's cell
            return False
        return True
