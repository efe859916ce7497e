"""Takes what a check needs of a batch on the training thread, and gives what was found on the writer's."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from otel_train.watch.samples_arrays import (
    Numbers,
    Range,
    Rows,
    Spread,
    bins_of,
    fault_names,
    kept_rows,
    measure_values,
    moments,
)
from otel_train.watch.samples_batch import MOST_SAMPLES, Found
from otel_train.watch.samples_classes import ClassCounts
from otel_train.watch.samples_copy import ArrayReader, Copied
from otel_train.watch.samples_library import is_tensor, library_of
from otel_train.watch.samples_pictures import layout_of, shrunk
from otel_train.watch.samples_plain import PlainSpread, TableSpread, measure_lists, measure_table
from otel_train.watch.samples_taken import arrays_of, plain, quiet, rows_of

# Values, and characters of a text, of a kept sample that is no picture.
MOST_KEPT_VALUES: Final = 4_096
MOST_KEPT_CHARACTERS: Final = 20_000


@dataclass(slots=True)
class KeptSample:
    """One sample for a file: its place in the batch, its values as the kind has them, faults and label."""

    row: int
    content: Any
    faults: list[str]
    label: Any = None


@dataclass(slots=True)
class Facts:
    """What a check has found."""

    samples: int
    values: dict[str, float | None]
    drift: float | None = None
    range: Range = None
    more: dict[str, Any] = field(default_factory=dict)
    classes: dict[Any, float] | None = None
    kept: list[KeptSample] = field(default_factory=list)
    # How kept pictures lie.
    layout: str = ""


class Measured(Protocol):
    """A batch of which everything needed is taken."""

    def ready(self) -> bool:
        """Tell whether `facts` would wait for no device."""
        ...

    def facts(self) -> Facts:
        """Return what was found; called once, in the order of the checks."""
        ...


class SplitState:
    """What the checks of one split remember."""

    def __init__(self) -> None:
        self.spread = Spread()
        self.plain = PlainSpread()
        self.table = TableSpread()


class LabelsTaken:
    """The labels of a batch, counted where they are."""

    def __init__(self, labels: Any, reader: ArrayReader) -> None:
        self._counts = ClassCounts(labels)
        self._numbers: Numbers | None = None
        self._copied: Copied | None = None
        library = self._counts.library
        if library is not None:
            with quiet(library):
                self._numbers = Numbers(library, self._counts.fields)
                self._copied = reader.read_later([self._numbers.vector])

    @property
    def single(self) -> Any:
        """The labels one by one: a list, or a tensor on a device."""
        return self._counts.single

    def of_row(self, row: int) -> Any:
        """Return one sample's label, None where it is on a device or unknown."""
        single = self._counts.single
        return single[row] if isinstance(single, list) and row < len(single) else None

    def ready(self) -> bool:
        """Ask the copy."""
        return self._copied is None or self._copied.ready()

    def counts(self) -> dict[Any, float] | None:
        """Return how many samples are of each class, None where the labels are no classes."""
        if self._numbers is None or self._copied is None:
            return self._counts.counts({})
        (vector,) = self._copied.arrays()
        return self._counts.counts(self._numbers.read(vector))


class ArrayCheck:
    """Arrays, pictures and token ids: measured where they are."""

    def __init__(
        self, found: Found, state: SplitState, reader: ArrayReader, labels: LabelsTaken | None, given: Range, keep: int
    ) -> None:
        self._state = state
        self._labels = labels
        arrays = arrays_of(found.inputs)
        self._single = len(arrays) == 1
        self._layout = ""
        if found.kind == "image":
            self._layout = layout_of(tuple(arrays[0].shape[1:]), channels_first=is_tensor(found.inputs))
        self._library = library = library_of(arrays[0])
        if given is None and found.kind != "tokens" and str(arrays[0].dtype).removeprefix("torch.") == "uint8":
            given = 0.0, 255.0
        self.samples = sum(int(array.shape[0]) for array in arrays)
        with quiet(library):
            state.spread.begin(library)
            self._window = state.spread.window
            parts = [rows_of(array) for array in arrays]
            if found.kind == "tokens":
                arrays = parts = [_without_padding(library, parts[0], found.mask)]
            rows = Rows(library, parts)
            fields: dict[str, Any] = dict(rows.numbers)
            values, ends, whole = parts, (rows.low, rows.high), rows.whole
            if found.kind == "tokens":
                lengths = library.wide((parts[0] >= 0).sum(1))
                fields["empty"] = library.count(lengths < 1)
                values, ends, whole = [lengths.reshape(1, -1)], (lengths.min(), lengths.max()), True
            self._values = sum(math.prod(part.shape) for part in values)
            fields |= measure_values(library, values, state.spread, ends, given, whole=whole)
            self._has_constant = rows.has_constant
            kept = self._keep(arrays, rows, min(keep, self.samples), fields) if keep else []
            self._numbers = Numbers(library, fields)
            self._copied = reader.read_later([self._numbers.vector, *kept])

    def _keep(self, arrays: Sequence[Any], rows: Rows, keep: int, fields: dict[str, Any]) -> list[Any]:
        """Return copies of the samples to keep, reduced to what a file holds: the worst first, else the first."""
        library = self._library
        if self._layout not in ("", "other"):
            reduced = [shrunk(array, self._layout) for array in arrays]
        else:
            reduced = [array.reshape(array.shape[0], -1)[:, :MOST_KEPT_VALUES] for array in arrays]
        # Which are worst is known on a device alone; of several arrays there the first are taken.
        by_faults = self._single or library.on_host
        order = kept_rows(library, rows.faults, keep) if by_faults else library.arange(0, keep)
        fields |= {"order": order, "faults": rows.faults[order]}
        single: Any = None if self._labels is None else self._labels.single
        if is_tensor(single) and single.device == getattr(library, "device", None):
            fields["labels"] = single[order]
        if self._single:
            return [reduced[0][order]]
        places = [int(place) for place in order] if library.on_host else range(keep)
        return [library.xp.stack([reduced[place][0]])[0] for place in places]

    def ready(self) -> bool:
        """Ask the copies."""
        return self._copied.ready() and (self._labels is None or self._labels.ready())

    def facts(self) -> Facts:
        """Put together what came from the device, or was at hand."""
        vector, *kept = self._copied.arrays()
        found = self._numbers.read(vector)
        mean, std = moments(found)
        low, high = found["low"], found["high"]
        values: dict[str, float | None] = {
            "mean": mean,
            "std": std,
            "saturated": found["at_ends"] / self._values if low <= high else None,
            "nonfinite": found["nonfinite"] / self.samples,
            "duplicate": found["duplicate"] / self.samples,
            "constant": found["constant"] / self.samples if self._has_constant else None,
        }
        drift = None
        if found["unbinned"]:
            self._state.spread.renew(self._window)
        elif found["binned"]:
            drift = self._window.compare(bins_of(found["at_most"], found["binned"]))
        more: dict[str, Any] = {"empty": found["empty"] / self.samples} if "empty" in found else {}
        return Facts(
            self.samples,
            values,
            drift,
            (low, high) if low <= high else None,
            more,
            None if self._labels is None else self._labels.counts(),
            self._kept_samples(found, list(kept[0]) if self._single and kept else kept),
            self._layout,
        )

    def _kept_samples(self, found: Mapping[str, Any], contents: Sequence[Any]) -> list[KeptSample]:
        result = []
        for place, content in enumerate(contents):
            row = int(found["order"][place])
            label = found["labels"][place] if "labels" in found else None
            if label is None and self._labels is not None:
                label = self._labels.of_row(row)
            result.append(KeptSample(row, content, fault_names(found["faults"][place]), label))
        return result


def _without_padding(library: Any, ids: Any, mask: Any) -> Any:
    """Return token ids with -1 in the places that the mask leaves out."""
    if mask is None:
        return ids
    mask = plain(mask)[: ids.shape[0]].reshape(ids.shape)
    return library.xp.where(mask != 0, ids, -1)


class PlainCheck:
    """Texts, lists of token ids, and tables: taken here, measured on the writer's thread."""

    def __init__(self, found: Found, state: SplitState, labels: LabelsTaken | None, given: Range, keep: int) -> None:
        self._kind, self._state, self._labels, self._given, self._keep = found.kind, state, labels, given, keep
        self._items: Any = found.inputs
        if found.kind == "table":
            self.samples = min((len(cells) for cells in found.inputs.values()), default=0)
        else:
            # Texts do not change; lists of ids may.
            taken = [item if item is None or isinstance(item, str) else tuple(item) for item in found.inputs]
            self._items = taken[:MOST_SAMPLES]
            self.samples = len(self._items)

    def ready(self) -> bool:
        """Labels alone may be on a device."""
        return self._labels is None or self._labels.ready()

    def facts(self) -> Facts:
        """Measure."""
        if self._kind == "table":
            found = measure_table(self._items, self.samples, self._state.table)
        else:
            found = measure_lists(self._items, self._state.plain, self._given)
        worst = sorted(range(self.samples), key=lambda row: -found.faults[row])[: self._keep]
        kept = [
            KeptSample(
                row,
                self._content(row),
                fault_names(found.faults[row]),
                None if self._labels is None else self._labels.of_row(row),
            )
            for row in worst
        ]
        ends = found.more.pop("range", None)
        counts = None if self._labels is None else self._labels.counts()
        return Facts(self.samples, found.values, found.drift, tuple(ends) if ends else None, found.more, counts, kept)

    def _content(self, row: int) -> Any:
        if self._kind == "table":
            return {name: cells[row] for name, cells in self._items.items()}
        item = self._items[row]
        return item if item is None else item[:MOST_KEPT_CHARACTERS]


def take(
    found: Found, state: SplitState, reader: ArrayReader, labels: LabelsTaken | None, given: Range, keep: int
) -> ArrayCheck | PlainCheck:
    """Take a batch: arrays are measured at once where they are, the rest is measured by whoever asks for `facts`."""
    lists = isinstance(found.inputs, list) and found.kind in ("text", "tokens")
    if found.kind == "table" or lists:
        return PlainCheck(found, state, labels, given, keep)
    return ArrayCheck(found, state, reader, labels, given, keep)
