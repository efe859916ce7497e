"""Tells augmentation from reading: it times the transforms of a data set while a batch is being made.

Within a loader's worker, or in the training process where a loader has none, a thread has one sum of the time that
went into transforms, which `loader_worker` sets to nothing before each batch and reads after it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, overload

# Where data sets keep their transforms, as torchvision's do; and where data sets keep the data sets they are made of.
NAMES: Final = ("transform", "transforms", "target_transform")
_PARTS: Final = ("dataset", "datasets")
MOST_DEPTH: Final = 6
MOST_DATASETS: Final = 64


class Spent:
    """The time that one thread has spent in transforms since its present batch began."""

    __slots__ = ("depth", "mono_ns", "ns", "start_ns", "told")

    def __init__(self) -> None:
        self.mono_ns: Callable[[], int] | None = None
        self.ns = self.depth = self.start_ns = 0
        # Whether there was any transform: without one its time is not zero but unknown.
        self.told = False

    def begin(self, mono_ns: Callable[[], int]) -> None:
        """Start to count for a batch; what a generator left open in the one before counts no more."""
        self.mono_ns = mono_ns
        self.ns = self.depth = 0
        self.told = False

    def end(self) -> None:
        """Count no more."""
        self.mono_ns = None

    def enter(self) -> None:
        """Enter a transform; one within another is part of it."""
        if self.mono_ns is not None:
            if not self.depth:
                self.start_ns = self.mono_ns()
            self.depth += 1

    def leave(self) -> None:
        """Leave it."""
        if self.depth:
            self.depth -= 1
            if not self.depth and self.mono_ns is not None:
                self.ns += self.mono_ns() - self.start_ns
                self.told = True


class _Threads(threading.local):
    def __init__(self) -> None:
        self.spent = Spent()


_THREADS: Final = _Threads()


def spent_here() -> Spent:
    """Return what the calling thread has spent."""
    return _THREADS.spent


class TimedTransform:
    """A transform whose calls are timed; in all else it is the transform: attributes, and what `isinstance` says."""

    __slots__ = ("_otel_train_inner",)

    def __init__(self, inner: Callable[..., Any]) -> None:
        object.__setattr__(self, "_otel_train_inner", inner)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the transform."""
        spent = _THREADS.spent
        spent.enter()
        try:
            return self._otel_train_inner(*args, **kwargs)
        finally:
            spent.leave()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._otel_train_inner, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._otel_train_inner, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._otel_train_inner, name)

    def __repr__(self) -> str:
        return repr(self._otel_train_inner)

    def __reduce__(self) -> tuple[Any, ...]:
        return TimedTransform, (self._otel_train_inner,)

    @property
    def __class__(self) -> Any:
        """A data set that asks whether it has a Compose must get the same answer as without us."""
        return type(self._otel_train_inner)

    @__class__.setter
    def __class__(self, kind: Any) -> None:
        raise TypeError("the class of a timed transform cannot be set")


class Augmenting:
    """Times what runs within, as augmentation of the present batch."""

    __slots__ = ()

    def __enter__(self) -> Augmenting:
        _THREADS.spent.enter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, traceback: TracebackType | None
    ) -> None:
        _THREADS.spent.leave()


_AUGMENTING: Final = Augmenting()


@overload
def augmentation(transform: None = None) -> Augmenting: ...
@overload
def augmentation(transform: Callable[..., Any]) -> TimedTransform: ...


def augmentation(transform: Callable[..., Any] | None = None) -> Augmenting | TimedTransform:
    """Say what of a data set's work is augmentation, where otel-train cannot see it by itself.

    Within `__getitem__` or `__iter__`: `with otel_train.augmentation(): x = augment(x)`; or around a function, once:
    `augment = otel_train.augmentation(augment)`, which can be pickled where the function can. Attributes called
    `transform`, `transforms` and `target_transform` need neither. Where no loader is watched it does nothing.
    """
    return _AUGMENTING if transform is None else TimedTransform(transform)


class Transforms:
    """The transforms that a data set keeps in its attributes, also those of the data sets that it is made of.

    They are timed by standing in front of them while a batch is made, and only then: whoever looks at the data set
    between two batches, or pickles it, finds his own objects.
    """

    __slots__ = ("_fronts", "_owners")

    def __init__(self, dataset: Any) -> None:
        self._owners = [
            attributes for attributes in _attributes_of(dataset) if any(name in attributes for name in NAMES)
        ]
        self._fronts: dict[int, TimedTransform] = {}

    def put_in_front(self) -> list[tuple[dict[str, Any], str, Any, TimedTransform]]:
        """Stand in front of every transform that is there now; return what `put_back` needs."""
        placed = []
        for attributes in self._owners:
            for name in NAMES:
                found = attributes.get(name)
                # One that the user has wrapped is timed already; None and texts are no transforms.
                if found is None or type(found) is TimedTransform or not callable(found):
                    continue
                front = self._fronts.get(id(found))
                if front is None or front._otel_train_inner is not found:
                    if len(self._fronts) >= MOST_DATASETS:
                        self._fronts.clear()
                    front = self._fronts[id(found)] = TimedTransform(found)
                attributes[name] = front
                placed.append((attributes, name, found, front))
        return placed


def put_back(placed: Sequence[tuple[dict[str, Any], str, Any, TimedTransform]]) -> None:
    """Put the transforms back, except where the data set has set another one meanwhile."""
    for attributes, name, found, front in placed:
        if attributes.get(name) is front:
            attributes[name] = found


def _attributes_of(dataset: Any) -> list[dict[str, Any]]:
    """Return the attributes of a data set and of those that it is made of, as far as they are plain Python objects."""
    found: list[dict[str, Any]] = []
    seen: set[int] = set()
    waiting = [(dataset, 0)]
    while waiting and len(seen) < MOST_DATASETS:
        one, depth = waiting.pop()
        attributes = getattr(one, "__dict__", None)
        # By its dictionary, not by `setattr`: a property, a module's registry or a frozen class is left alone.
        if type(attributes) is not dict or id(one) in seen:
            continue
        seen.add(id(one))
        found.append(attributes)
        if depth < MOST_DEPTH:
            waiting += [(part, depth + 1) for name in _PARTS for part in _parts(attributes.get(name))]
    return found


def _parts(value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping):
        yield from list(value.values())[:MOST_DATASETS]
    elif isinstance(value, (list, tuple)):
        yield from value[:MOST_DATASETS]
    elif value is not None:
        yield value
