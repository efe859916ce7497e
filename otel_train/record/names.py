"""Maps a user's key to a metric's name and split, and tells keys apart that a store would take for one."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from otel_train.record.entries import SeriesAttributes
from otel_train.semconv import AXIS, METRICS, SPLIT

PREFIX: Final = "train."
# A key that is no metric of the user's: how many optimizer steps were done, beside the number of the batch.
OPTIMIZER_STEP_KEY: Final = "optimizer_step"
OPTIMIZER_STEP: Final = "dl.optimizer.step"
SPLIT_ALIASES: Final = {
    "train": "train",
    "training": "train",
    "val": "val",
    "valid": "val",
    "validation": "val",
    "eval": "val",
    "evaluation": "val",
    "dev": "val",
    "test": "test",
    "testing": "test",
}
# Before these alone an underscore parts a split from the name: `val_loss`, but not `test_time_augmentation`. Without a
# split they are taken for training's.
MEASURES: Final = frozenset({"loss", "acc", "accuracy", "precision", "recall", "f1", "error", "perplexity"})
# These count down by themselves; all others need `run.define(…, goal=…)` before there is a best value.
MINIMIZED: Final = frozenset({"loss", "error"})

_NOT_IN_A_NAME: Final = re.compile(r"[^A-Za-z0-9_.\-]")
_NOT_IN_PROMETHEUS: Final = re.compile(r"[^A-Za-z0-9]+")
MAX_KEY_LENGTH: Final = 200


@dataclass(frozen=True, slots=True)
class SeriesName:
    """What a key becomes: the metric's name, the split ("" for none), and the key without its split."""

    name: str
    split: str
    key: str


def normalise_split(split: str) -> str:
    """Return train, val or test for one of their spellings in any case, else the text as it is."""
    return SPLIT_ALIASES.get(split.lower(), split)


def series_name(key: str, split: str | None = None) -> SeriesName:
    """Return the metric's name and split of a user's key.

    `loss` becomes `train.loss`. A split as first or last part by "/" is taken out (`val/loss`, `Loss/train`), by "_"
    only before a measure (`val_loss`). An explicit `split` wins, and then the key is left as it is. A measure without
    a split is training's. "/" becomes "." and what no store accepts "_"; the metric's description keeps the key.
    """
    rest = key
    found = ""
    if split is not None:
        found = normalise_split(split)
    else:
        parts = key.split("/")
        if len(parts) > 1 and parts[0].lower() in SPLIT_ALIASES:
            found, rest = SPLIT_ALIASES[parts[0].lower()], "/".join(parts[1:])
        elif len(parts) > 1 and parts[-1].lower() in SPLIT_ALIASES:
            found, rest = SPLIT_ALIASES[parts[-1].lower()], "/".join(parts[:-1])
        else:
            head, underscore, tail = key.partition("_")
            if underscore and head.lower() in SPLIT_ALIASES and tail.lower() in MEASURES:
                found, rest = SPLIT_ALIASES[head.lower()], tail
            elif key.lower() in MEASURES:
                found = "train"
    if not rest.strip("/"):
        rest = key
    cleaned = _NOT_IN_A_NAME.sub("_", rest.strip("/").replace("/", "."))
    return SeriesName(PREFIX + (cleaned[:MAX_KEY_LENGTH] or "_"), found, rest)


def split_of(key: str, default: str | None = None) -> tuple[str, str | None]:
    """Return a key without its split, and the split that it says, else the given one.

    `val_loss` is ("loss", "val"), `Loss/train` ("Loss", "train"), `lr` ("lr", None).
    """
    named = series_name(key)
    if named.key != key:
        return named.key, named.split
    return key, default


def prometheus_spelling(name: str) -> str:
    """Return the name as a store that knows letters, digits and single underscores would spell it."""
    return _NOT_IN_PROMETHEUS.sub("_", name).strip("_")


@dataclass(frozen=True, slots=True)
class Series:
    """One gauge series of a user: its metric's name, the attributes of its points, and the user's key."""

    name: str
    attributes: SeriesAttributes
    description: str
    split: str
    key: str
    # One of our own metrics, which the user's keys only fill: no summary, no best value.
    is_own: bool = False


class NameTable:
    """Gives each (key, split) its series; two keys that a store would merge are told apart by an attribute `key`."""

    def __init__(self, warn: Callable[[str], None]) -> None:
        self._warn = warn
        # What `run.define` says of a key. Others carry no unit: stores write it into the name.
        self.units: dict[str, str] = {}
        self._series: dict[tuple[str, str | None, str], Series] = {}
        # Which key has a place in the store. The same key with its split said in another way is the same series.
        self._owners: dict[tuple[str, str, str], str] = {}
        self._lock = threading.Lock()

    def series(self, key: str, split: str | None, axis: str = "") -> Series:
        """Return the series of a key; the same object each time."""
        found = self._series.get((key, split, axis))
        if found is not None:
            return found
        with self._lock:
            found = self._series.get((key, split, axis))
            if found is not None:
                return found
            found, warning = self._new(key, split, axis)
        # Not under the lock: who hears the warning may record something in turn.
        if warning:
            self._warn(warning)
        return found

    def unit(self, series: Series) -> str:
        """Return the unit that the user defined for a series, by its key with or without the split."""
        return self.units.get(series.key) or self.units.get(series.description, "")

    def _new(self, given: str, split: str | None, axis: str) -> tuple[Series, str]:
        key = str(given)  # `log` does not look at each key: a number may be one
        if key == OPTIMIZER_STEP_KEY:
            own: SeriesAttributes = ((AXIS, axis),) if axis else ()
            series = Series(OPTIMIZER_STEP, own, METRICS[OPTIMIZER_STEP].description, "", key, is_own=True)
            self._series[(given, split, axis)] = series
            return series, ""
        named = series_name(key, split)
        place = (prometheus_spelling(named.name), named.split, axis)
        owner = self._owners.setdefault(place, key)
        attributes: list[tuple[str, str]] = [(SPLIT, named.split)] if named.split else []
        if axis:
            attributes.append((AXIS, axis))
        warning = ""
        if owner != key:
            attributes.append(("key", key))
            warning = (
                f"metric keys {owner!r} and {key!r} would be one series in a store ({place[0]}); "
                f"{key!r} is kept apart by the attribute key={key!r}"
            )
        series = Series(named.name, tuple(attributes), key, named.split, named.key)
        self._series[(given, split, axis)] = series
        return series, warning
