"""Stands in front of a function of a module while runs are open, and gives way without a trace afterwards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class _Hooked:
    """What stands in the function's place: it notices, then calls what was there."""

    def __init__(self, former: Any, notice: Callable[..., None]) -> None:
        self.former = former
        self.notice: Callable[..., None] | None = notice

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.notice is not None:
            try:
                self.notice(*args, **kwargs)
            except Exception:  # noqa: BLE001 - telemetry must not change how a process ends
                pass
        return self.former(*args, **kwargs)

    def __repr__(self) -> str:
        return repr(self.former)


class Hook:
    """One function of one module, such as `sys.excepthook`."""

    def __init__(self, module: Any, name: str, notice: Callable[..., None]) -> None:
        self._module = module
        self._name = name
        self._notice = notice
        self._own: _Hooked | None = None

    def install(self) -> None:
        """Stand in front of what is there now; nothing happens where the module has no such function."""
        if self._own is None and hasattr(self._module, self._name):
            own = self._own = _Hooked(getattr(self._module, self._name), self._notice)
            setattr(self._module, self._name, own)

    def uninstall(self) -> None:
        """Put back what was there; where somebody has put theirs around ours, ours stays within and does nothing."""
        own, self._own = self._own, None
        if own is None:
            return
        own.notice = None
        present: Any = getattr(self._module, self._name, None)
        if present is own:
            setattr(self._module, self._name, own.former)
