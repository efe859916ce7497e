"""Makes hooks that a copied or pickled model does not take along."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any


class Hook:
    """Calls a function. Where a model is pickled or deep-copied with its hooks, there it does nothing.

    What stands in its place is made of Python's own library, so that the file loads where otel-train is not installed.
    """

    __slots__ = ("__weakref__", "_call")

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Call the function."""
        return self._call(*arguments, **named)

    def __reduce__(self) -> tuple[Any, ...]:
        # A method that takes any three arguments and returns None.
        return getattr, (nullcontext(), "__exit__")
