"""Counts the classes of a checked batch: at most a hundred by name, the rest as one."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from otel_train.watch.samples_batch import MOST_SAMPLES
from otel_train.watch.samples_drift import OTHER, FirstNames
from otel_train.watch.samples_library import Library, is_array, is_tensor, library_of, on_host

MOST_CLASSES: Final = 100
# On a device classes are told apart by their number: -1, which some use for "no", and the first hundred.
LOWEST_NUMBER: Final = -1
MOST_NAME: Final = 80

Names = Sequence[Any] | Mapping[Any, Any] | int | None


class ClassCounts:
    """The labels of one batch, taken on the training thread; those on a device are counted there."""

    def __init__(self, labels: Any) -> None:
        self.fields: dict[str, Any] = {}
        self.library: Library | None = None
        self._counts: dict[Any, float] | None = None
        self._size = 0
        self._soft = False
        self._whole = True
        # Of single samples, for the names of kept files: on the host a list, on a device the tensor.
        self.single: Any = None
        if is_tensor(labels):
            labels = on_host(labels.detach())
        if is_tensor(labels) or is_array(labels):
            self._take_array(labels)
        else:
            self.single = list(labels)[:MOST_SAMPLES]
            self._counts = _counted(self.single)

    def _take_array(self, labels: Any) -> None:
        shape = tuple(labels.shape)
        if len(shape) == 2 and shape[1] == 1:
            labels, shape = labels.reshape(-1), shape[:1]
        labels = labels[:MOST_SAMPLES]
        self._size = int(labels.shape[0])
        library = library_of(labels)
        if len(shape) == 2:
            self._soft, self.library = True, library
            self.fields = {"classes": library.wide(labels).sum(0)}
        elif library.on_host or len(shape) != 1:
            self.single = labels.tolist() if len(shape) == 1 else None
            self._counts = _counted(self.single) if len(shape) == 1 else None
        else:
            self.library, self.single = library, labels
            self._whole = not labels.is_floating_point()
            numbers = library.arange(LOWEST_NUMBER, MOST_CLASSES).reshape(-1, 1)
            self.fields = {"classes": (labels.reshape(1, -1) == numbers).sum(1)}

    def counts(self, found: Mapping[str, Any]) -> dict[Any, float] | None:
        """Return how many samples are of each class, None where the labels are no classes; `found` has `fields`."""
        if self.library is None:
            return self._counts
        columns: list[float] = found["classes"]
        if self._soft:
            return dict(enumerate(columns))
        counts: dict[Any, float] = {
            number: count for number, count in enumerate(columns, start=LOWEST_NUMBER) if count or number >= 0
        }
        # The highest class that was seen ends the list.
        last = max((number for number, count in counts.items() if count), default=-1)
        counts = {number: count for number, count in counts.items() if number <= last}
        rest = self._size - math.fsum(columns)
        if rest and not self._whole:
            return None
        return {**counts, OTHER: rest} if rest else counts


def _counted(labels: Sequence[Any]) -> dict[Any, float] | None:
    """Return counts by class, None where there are numbers that are not whole: a quantity, not a class."""
    counts: Counter[Any] = Counter()
    for label in labels:
        if is_array(label) or is_tensor(label):
            # A list of numbers, each an array of its own; one on a device is not read.
            label = label.item() if not label.shape and getattr(label, "is_cpu", True) else OTHER
        if isinstance(label, float):
            if not label.is_integer():
                return None
            label = int(label)
        counts[label if isinstance(label, str | int | bool | None) else str(label)] += 1
    return dict(counts)


class ClassShares:
    """Names the classes of one split, and keeps the names: a class that is gone has the share 0."""

    def __init__(self, names: Names, redact: Callable[[str], str], warn: Callable[[str], None]) -> None:
        self._names = names
        self._redact = redact
        self._warn = warn
        self._known: dict[str, None] = {}
        self._window = FirstNames()
        if isinstance(names, int):
            self._known = {str(number): None for number in range(min(names, MOST_CLASSES))}
        elif names is not None:
            listed = list(names.values() if isinstance(names, Mapping) else names)
            self._known = {self._text(name): None for name in listed[:MOST_CLASSES]}

    def name(self, label: Any) -> str:
        """Return the name of a class."""
        names = self._names
        if isinstance(names, Mapping):
            return self._text(names.get(label, label))
        if names is not None and not isinstance(names, int) and type(label) is int and 0 <= label < len(names):
            return self._text(names[label])
        return self._text(label)

    def _text(self, name: Any) -> str:
        return self._redact(str(name)[:MOST_NAME])

    def take(self, counts: Mapping[Any, float]) -> tuple[dict[str, float], float | None]:
        """Return the share of each class that was ever seen, and the divergence from the first window."""
        total = math.fsum(counts.values())
        named: dict[str, float] = {}
        for label, count in sorted(counts.items(), key=lambda pair: -pair[1]):
            name = self.name(label)
            if name not in self._known and name != OTHER:
                if len(self._known) < MOST_CLASSES:
                    self._known[name] = None
                else:
                    self._warn(f"check_samples: of more than {MOST_CLASSES} classes the rest is counted as {OTHER!r}")
                    name = OTHER
            named[name] = named.get(name, 0.0) + count
        if not total:
            return {}, None
        drift = self._window.compare(named)
        every = list(self._known) + ([OTHER] if OTHER in named else [])
        return {name: named.get(name, 0.0) / total for name in every}, drift
