"""Checks the samples of a batch now and then: takes the call, and does nothing but count where no check is due."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from otel_train.errors import ConfigError
from otel_train.record.names import normalise_split
from otel_train.watch.samples_batch import KINDS, find, size_of
from otel_train.watch.samples_classes import ClassShares, Names
from otel_train.watch.samples_copy import ArrayReader, is_capturing
from otel_train.watch.samples_measured import LabelsTaken, SplitState, take
from otel_train.watch.samples_reading import Decode, SamplesReading, Surroundings

# Splits of one run: each has series of its own.
MOST_SPLITS: Final = 20
# Samples kept by one check.
MOST_KEPT: Final = 32


@dataclass(slots=True)
class Place:
    """Where the calls of one split stand: `left` with the present one, until the next check."""

    every: int
    left: int


@dataclass(slots=True, kw_only=True)
class Asked:
    """The arguments of one call, checked; ConfigError names what is wrong."""

    every: int
    split: str
    keep: int
    kind: str | None
    value_range: Any
    classes: Names
    decode: Decode | None
    given: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        if type(self.every) is not int or self.every < 1:
            raise ConfigError("every", self.every, "use a whole number of calls of at least 1")
        if type(self.keep) is not int or not 0 <= self.keep <= MOST_KEPT:
            raise ConfigError("keep", self.keep, f"use a whole number of samples from 0 to {MOST_KEPT}")
        if self.kind is not None and self.kind not in KINDS:
            raise ConfigError("kind", self.kind, f"use one of {', '.join(KINDS)}, or leave it out")
        if not isinstance(self.split, str) or not self.split.strip():
            raise ConfigError("split", self.split, 'use a name such as "train" or "val"')
        if self.decode is not None and not callable(self.decode):
            raise ConfigError("decode", self.decode, "use a function from a list of token ids to a text")
        self.split = normalise_split(self.split)
        self.given = _range(self.value_range)
        _check_classes(self.classes)


def _range(given: Any) -> tuple[float, float] | None:
    if given is None:
        return None
    fix = "use the least and the greatest value that a sample may have, such as (0, 1)"
    try:
        low, high = (float(end) for end in given)
    except (TypeError, ValueError):
        raise ConfigError("value_range", given, fix) from None
    if not -float("inf") < low < high < float("inf"):
        raise ConfigError("value_range", given, fix)
    return low, high


def _check_classes(classes: Any) -> None:
    if isinstance(classes, bool) or (isinstance(classes, int) and classes < 1):
        raise ConfigError("classes", classes, "use the number of classes, at least 1, or their names")
    if isinstance(classes, str) or not (classes is None or isinstance(classes, int) or hasattr(classes, "__len__")):
        raise ConfigError("classes", classes, "use the number of classes, or their names as a list or mapping")


class SampleChecks:
    """The checks of one run."""

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self.places: dict[Any, Place] = {}
        self._states: dict[str, SplitState] = {}
        self._shares: dict[str, ClassShares] = {}
        self._reader = ArrayReader()

    def begin(self, split: Any, asked: Asked) -> bool:
        """Take note that a check is made; False where there are too many splits."""
        if split not in self.places and len(self.places) >= MOST_SPLITS:
            self._around.warn(f"check_samples: more than {MOST_SPLITS} splits are not checked ({asked.split!r} is not)")
            return False
        self.places[split] = Place(asked.every, asked.every)
        return True

    def check(self, batch: Any, labels: Any, asked: Asked, place: Mapping[str, Any]) -> SamplesReading | None:
        """Measure a batch and return the reading of it; None, after saying why, where it can't be.

        ConfigError where labels were given for another number of samples.
        """
        found = find(batch, labels, asked.kind)
        if isinstance(found, str):
            self._around.warn(f"check_samples ({asked.split}): {found}")
            return None
        if labels is not None:
            check_length(labels, found.size)
        if is_capturing(found.inputs, found.labels):
            self._around.warn("check_samples: nothing is checked while a CUDA graph is being captured")
            return None
        state = self._states.setdefault(asked.split, SplitState())
        if asked.split not in self._shares:
            self._shares[asked.split] = ClassShares(asked.classes, self._around.redact, self._around.warn)
        taken_labels = None if found.labels is None else LabelsTaken(found.labels, self._reader)
        return SamplesReading(
            take(found, state, self._reader, taken_labels, asked.given, asked.keep),
            self._around,
            self._shares[asked.split],
            kind=found.kind,
            split=asked.split,
            place=place,
            given=asked.given,
            decode=asked.decode,
        )


def check_length(labels: Any, size: int) -> None:
    """Raise ConfigError where labels are of another number of samples than the batch."""
    length = size_of(labels)
    if length != size:
        said = f"{type(labels).__name__} of {'unknown length' if length is None else length}"
        raise ConfigError("labels", said, f"give one label for each of the batch's {size} samples")
