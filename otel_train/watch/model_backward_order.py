"""Notes in which order a backward pass reaches parameters: what is not finite began with the first that is not."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from otel_train.watch.model_hooks import Hook

UNKNOWN: Final = 1 << 30


class BackwardOrder:
    """The order of one model's parameters; its hooks are there only while a step is sampled."""

    def __init__(self, on_gradient: Callable[[], None] | None = None) -> None:
        self._handles: list[Any] = []
        self._places: dict[int, int] = {}
        self._defined: dict[int, int] = {}
        # Whether a gradient has come since `settle`.
        self.fresh = False
        self._on_gradient = on_gradient

    def begin(self, parameters: Iterable[Any]) -> None:
        """Note from now on which parameter's gradient comes first."""
        self.end()
        self._places = {}
        self._defined = {}
        for number, parameter in enumerate(parameters):
            self._defined[id(parameter)] = number
            # A lazy module's parameter takes no hook before its first pass has made it.
            if parameter.requires_grad and parameter.is_leaf and not _is_lazy(parameter):
                self._handles.append(parameter.register_post_accumulate_grad_hook(Hook(self._came)))

    def end(self) -> None:
        """Take the hooks away; what was noted stays."""
        handles, self._handles = self._handles, []
        for handle in handles:
            handle.remove()

    def settle(self) -> None:
        """Note that the gradients that have come so far were read."""
        self.fresh = False

    @property
    def open(self) -> bool:
        """Whether the hooks are there."""
        return bool(self._handles)

    def place_of(self, parameter: Any) -> int:
        """Return the place of a parameter; those that no hook saw come after the others, last defined first.

        Gradients of sharded parameters, and those that compiled code makes, pass by the hooks.
        """
        known = self._places.get(id(parameter))
        return UNKNOWN - self._defined.get(id(parameter), 0) if known is None else known

    def _came(self, parameter: Any) -> None:
        key = id(parameter)
        if key not in self._places:
            self._places[key] = len(self._places)
        if not self.fresh:
            self.fresh = True
            if self._on_gradient is not None:
                self._on_gradient()


def _is_lazy(parameter: Any) -> bool:
    return hasattr(type(parameter), "materialize")
