"""Finds out what a batch is: which kind of samples, where they are in it, and which labels and mask go with them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from otel_train.watch.samples_library import is_array, is_tensor

KINDS: Final = ("image", "array", "text", "tokens", "table")
# Keys of a mapping under which samples and labels are looked for, in this order.
INPUT_KEYS: Final = (
    *("pixel_values", "image", "images", "img", "input_values", "input_features", "input_ids"),
    *("text", "texts", "sentence", "inputs", "input", "data", "x"),
)
LABEL_KEYS: Final = ("labels", "label", "targets", "target", "class", "classes", "y")
CHANNELS: Final = (1, 3, 4)
# Samples of one batch that are looked at, and cells of a table; a bound on time for a batch that is a whole data set.
MOST_SAMPLES: Final = 1 << 14
MOST_CELLS: Final = 200_000
MOST_COLUMNS: Final = 200


@dataclass(slots=True)
class Found:
    """The samples of a batch: one array, a list of arrays, texts, or rows by column; with labels and mask, if any."""

    kind: str
    inputs: Any
    size: int
    labels: Any = None
    mask: Any = None


def find(batch: Any, labels: Any, kind: str | None) -> Found | str:
    """Return what a batch holds, or a sentence that says why nothing in it can be checked."""
    found = _find(batch, labels, kind)
    if isinstance(found, str):
        return found
    if not _fits(found, kind):
        return f"a batch of {type(found.inputs).__name__} is not of the kind {kind!r}"
    if labels is not None:
        found.labels = labels
    elif not _are_classes(found.labels, found.size):
        found.labels = None
    arrays = found.inputs if isinstance(found.inputs, list) else [found.inputs]
    if not found.size or any(_is_arrays(array) and not math.prod(array.shape) for array in arrays):
        return "a batch without samples, or with samples without values, is not checked"
    return found


def _fits(found: Found, kind: str | None) -> bool:
    """Tell whether samples can be of the kind that was said, or was found."""
    inputs = found.inputs
    is_columns, is_list = isinstance(inputs, Mapping), isinstance(inputs, list)
    if found.kind == "table" or kind == "table":
        return is_columns and kind in (None, "table")
    if found.kind == "text" or kind == "text":
        texts = is_list and all(isinstance(item, str) or item is None for item in inputs)
        return texts and kind in (None, "text")
    if found.kind == "tokens":
        if is_list:
            return all(_is_numbers(item) for item in inputs)
        return len(inputs.shape) == 2 and not str(inputs.dtype).removeprefix("torch.").startswith(("float", "bfloat"))
    return not is_columns and not (is_list and any(_is_numbers(item) for item in inputs))


def _are_classes(labels: Any, size: int) -> bool:
    """Tell labels of the batch's own that are one class a sample from texts to be generated, boxes and the like."""
    shape = tuple(getattr(labels, "shape", (0,)))
    if isinstance(labels, list | tuple) and not all(_is_class(label) for label in labels[:MOST_SAMPLES]):
        return False
    return size_of(labels) == size and (len(shape) == 1 or (len(shape) == 2 and shape[1] == 1))


def _is_class(label: Any) -> bool:
    return isinstance(label, str | int | float | None) or (_is_arrays(label) and math.prod(label.shape) == 1)


def size_of(value: Any) -> int | None:
    """Return the number of samples in what holds one entry a sample, None where it has no length."""
    shape = getattr(value, "shape", None)
    if shape is not None:
        try:
            return int(shape[0]) if len(shape) else None
        except TypeError:
            return None
    try:
        return len(value)
    except TypeError:
        return None


def _find(batch: Any, labels: Any, kind: str | None) -> Found | str:
    if _is_arrays(batch):
        return _of_array(batch, kind)
    if is_frame(batch):
        return _of_frame(batch)
    if isinstance(batch, str | bytes):
        return "one text is no batch; give a list of texts"
    if isinstance(batch, Mapping):
        return _of_mapping(batch, kind)
    if is_picture(batch):
        return "one image is no batch; give a list of images"
    if isinstance(batch, Sequence):
        return _of_sequence(batch, labels, kind)
    return f"a batch of {type(batch).__name__} is not understood; give a tensor, array, mapping, table or list"


def _is_arrays(value: object) -> bool:
    return is_array(value) or is_tensor(value)


def is_frame(value: object) -> bool:
    """Tell a data frame, without importing pandas."""
    return hasattr(value, "columns") and hasattr(value, "iloc") and hasattr(value, "itertuples")


def is_picture(value: object) -> bool:
    """Tell an image of Pillow, without importing it."""
    return all(hasattr(value, name) for name in ("mode", "size", "getbands", "tobytes"))


def _of_array(array: Any, kind: str | None) -> Found | str:
    if is_array(array) and array.dtype.kind in "USO":
        return _of_sequence(array.tolist(), None, kind)
    for trait in ("is_meta", "is_nested", "is_quantized"):
        if getattr(array, trait, False):
            return f"a tensor that {trait.replace('_', ' ')} is not checked"
    if not len(array.shape):
        return "a single number is no batch"
    if str(getattr(array, "layout", "torch.strided")) != "torch.strided":
        return f"a tensor with the layout {array.layout} is not checked"
    if "complex" in str(array.dtype) or (is_array(array) and not _is_numeric(array.dtype)):
        return f"an array of {array.dtype} is not checked"
    return Found(kind or array_kind(array), array, int(array.shape[0]))


def _is_numeric(dtype: Any) -> bool:
    """Tell numbers that Python has too: a float of more than 64 bits is none."""
    return dtype.kind in "biu" or (dtype.kind == "f" and dtype.itemsize <= 8)


def array_kind(array: Any) -> str:
    """Return image for what has the shape of pictures, tokens for rows of whole numbers, else array."""
    shape, dtype = tuple(array.shape), str(array.dtype).removeprefix("torch.")
    if len(shape) == 4 and (shape[1] in CHANNELS or shape[3] in CHANNELS) and dtype != "int64":
        return "image"
    if len(shape) == 3 and dtype == "uint8":
        return "image"
    return "tokens" if len(shape) == 2 and dtype in ("int64", "int32") else "array"


def _of_frame(frame: Any) -> Found:
    """Take the first rows of a data frame, by column; a copy, since the caller may change it."""
    part = frame.iloc[: _most_rows(len(frame.columns)), :MOST_COLUMNS]
    columns = {str(name): part.iloc[:, place].tolist() for place, name in enumerate(part.columns)}
    return Found("table", columns, len(frame), _label_column(columns))


def _most_rows(columns: int) -> int:
    return max(1, min(MOST_SAMPLES, MOST_CELLS // max(1, min(columns, MOST_COLUMNS))))


def _label_column(columns: Mapping[str, Any]) -> Any:
    return next((columns[key] for key in LABEL_KEYS if key in columns), None)


def _of_mapping(batch: Mapping[Any, Any], kind: str | None) -> Found | str:
    labels = next((batch[key] for key in LABEL_KEYS if batch.get(key) is not None), None)
    if kind != "table":
        for key in (key for key in INPUT_KEYS if batch.get(key) is not None):
            found = _find(batch[key], labels, kind)
            if isinstance(found, str):
                return found
            if key == "input_ids":
                found.mask = batch.get("attention_mask")
                if kind is None and found.kind == "array":
                    found.kind = "tokens"
            found.labels = labels
            return found
    columns = {str(key): value for key, value in batch.items() if _is_column(value)}
    if columns and len({size_of(value) for value in columns.values()}) == 1 and kind in (None, "table"):
        rows = _most_rows(len(columns))
        lists = {name: _listed(columns[name], rows) for name in islice(columns, MOST_COLUMNS)}
        return Found("table", lists, size_of(next(iter(columns.values()))) or 0, labels)
    for value in (value for value in batch.values() if _is_arrays(value) and len(value.shape) > 1):
        found = _of_array(value, kind)
        if isinstance(found, Found):
            found.labels = labels
            return found
    return f"none of the keys {', '.join(str(key) for key in islice(batch, 10))} holds samples that are understood"


def _is_column(value: Any) -> bool:
    if _is_arrays(value):
        # One on a device can't be listed without waiting for it.
        return len(value.shape) == 1 and (is_array(value) or bool(value.is_cpu))
    return isinstance(value, list | tuple) and not any(_is_arrays(item) or is_picture(item) for item in value[:1])


def _listed(value: Any, rows: int) -> list[Any]:
    part = value[:rows]
    return part.tolist() if _is_arrays(part) else list(part)


def _of_sequence(batch: Sequence[Any], labels: Any, kind: str | None) -> Found | str:
    """Tell a list of samples from a pair of inputs and labels."""
    if not len(batch):
        return Found(kind or "array", batch, 0)
    first = batch[0]
    if isinstance(first, Mapping) and all(isinstance(row, Mapping) for row in batch):
        return _of_rows(batch, kind)
    if all(isinstance(item, str) or item is None for item in batch):
        return Found("text", list(batch[:MOST_SAMPLES]), len(batch))
    if is_picture(first):
        return Found("image", list(batch[:MOST_SAMPLES]), len(batch))
    if _is_arrays(first) and _are_samples(batch, labels):
        return Found(kind or _sample_kind(first), list(batch[:MOST_SAMPLES]), len(batch))
    if _is_numbers(first) and all(_is_numbers(row) for row in batch):
        return Found("tokens" if kind is None else kind, [list(row) for row in batch[:MOST_SAMPLES]], len(batch))
    if len(batch) > 1 or _is_arrays(first) or isinstance(first, Mapping | list | tuple):
        found = _find(first, None, kind)
        if isinstance(found, Found) and found.labels is None and len(batch) > 1:
            found.labels = batch[1]
        return found
    return f"a list of {type(first).__name__} is not understood; give a list of texts, images, arrays or rows"


def _are_samples(batch: Sequence[Any], labels: Any) -> bool:
    """Tell a list of pictures, each an array, from inputs with labels: by the labels' length, else by their shapes."""
    if not all(_is_arrays(item) for item in batch):
        return False
    if labels is not None and size_of(labels) is not None:
        return size_of(labels) == len(batch) and size_of(labels) != size_of(batch[0])
    shapes = [tuple(item.shape) for item in batch]
    pictures = all(len(shape) == 3 and (shape[0] in CHANNELS or shape[2] in CHANNELS) for shape in shapes)
    return pictures and (len(batch) > 2 or len({shape[0] for shape in shapes}) == 1)


def _sample_kind(sample: Any) -> str:
    shape = tuple(sample.shape)
    return "image" if len(shape) == 3 and (shape[0] in CHANNELS or shape[2] in CHANNELS) else "array"


def _is_numbers(row: Any) -> bool:
    return isinstance(row, list | tuple) and all(type(item) is int for item in row[:8])


def _of_rows(batch: Sequence[Mapping[Any, Any]], kind: str | None) -> Found | str:
    """Take rows by column; rows that hold an array or image each are a list of those."""
    names = list(dict.fromkeys(key for row in batch[:MOST_SAMPLES] for key in row))[:MOST_COLUMNS]
    rows = batch[: _most_rows(len(names))]
    columns = {str(name): [row.get(name) for row in rows] for name in names}
    for values in columns.values() if kind != "table" else ():
        if all(_is_arrays(value) and len(getattr(value, "shape", ())) for value in values) or all(
            map(is_picture, values)
        ):
            found = _of_sequence(values, values, kind)
            if isinstance(found, Found):
                found.labels = _label_column(columns)
            return found
    return Found("table", columns, len(batch), _label_column(columns))
