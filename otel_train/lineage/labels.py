"""Counts the classes of a data set's labels, whatever they are kept in, without one pass in Python more than needed."""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

from otel_train.lineage.array_hashing import is_array, is_tensor

TOP_CLASSES = 1000
# More distinct labels than this are ids or texts, not classes; counting them on would only fill memory.
MAX_DISTINCT = 200_000
_CHUNK = 65_536
_WHOLE_NUMBERS = frozenset({int, str, bool})


class NoClassesError(ValueError):
    """The labels cannot be counted, with the reason."""


def describe_labels(labels: Any, classes: Any = None) -> dict[str, Any]:
    """Return what is known of the labels, as entries of a data set's record.

    Whole numbers, texts and booleans are classes: ``classes`` (label: count, at most the 1,000 most frequent),
    ``class_count`` and, where some are left out, ``classes_rest``. Floats are targets, not classes: ``labels`` holds
    their count, minimum, mean and maximum. `classes` names the classes, as a sequence by index or a mapping. Raises
    NoClassesError with the reason where neither is possible; iterators are never consumed.
    """
    kind = type(labels)
    summary: dict[str, Any] = {"type": f"{kind.__module__}.{kind.__qualname__}"}
    plain = labels
    if hasattr(labels, "to_numpy") and not is_array(labels):
        plain = labels.to_numpy()
    if is_tensor(plain):
        plain = _host_labels(plain)
    if is_tensor(plain) or is_array(plain):
        return _describe_array(plain, summary, classes)
    if isinstance(plain, (str, bytes)) or not isinstance(plain, Sequence):
        raise NoClassesError(f"labels of type {kind.__name__} are not counted; give a list, an array or a tensor")
    return _describe_sequence(plain, summary, classes)


def _host_labels(tensor: Any) -> Any:
    """Return a CPU tensor as the NumPy array that shares its memory where NumPy is there, else a CPU tensor."""
    tensor = tensor.detach()
    if tensor.device.type != "cpu":
        tensor = tensor.cpu()
    if "numpy" in sys.modules:
        try:
            return tensor.numpy()
        except (TypeError, RuntimeError):
            # bfloat16 has no counterpart.
            return tensor.double().numpy() if tensor.is_floating_point() else tensor
    return tensor


def _describe_array(array: Any, summary: dict[str, Any], classes: Any) -> dict[str, Any]:
    if is_tensor(array):
        return _describe_tensor(array, summary, classes)
    numpy = sys.modules["numpy"]
    array = numpy.asarray(array)
    summary["dtype"] = str(array.dtype)
    if array.ndim == 0:
        raise NoClassesError("labels are one single value")
    if array.ndim > 1 and 1 not in array.shape[1:]:
        return _describe_columns(array, summary, classes)
    array = array.reshape(-1) if array.ndim > 1 else array
    summary["count"] = int(array.shape[0])
    if array.dtype.kind == "O":
        return _describe_sequence(array, summary, classes)
    if array.dtype.kind == "f":
        return {"labels": _float_summary(array, summary)}
    if array.dtype.kind not in "biuUS":
        raise NoClassesError(f"labels of dtype {array.dtype} are not counted")
    return _classes_entry(_count_array(array, numpy), summary, classes)


def _count_array(array: Any, numpy: Any) -> Counter[Any]:
    """Count by chunks: a sort of the whole would copy it."""
    counts: Counter[Any] = Counter()
    for start in range(0, len(array), 16 * _CHUNK):
        values, times = numpy.unique(array[start : start + 16 * _CHUNK], return_counts=True)
        for value, count in zip(values.tolist(), times.tolist(), strict=True):
            counts[value] += count
        _check_distinct(counts)
    return counts


def _describe_tensor(tensor: Any, summary: dict[str, Any], classes: Any) -> dict[str, Any]:
    """Count a CPU tensor where there is no NumPy."""
    summary["dtype"] = str(tensor.dtype).removeprefix("torch.")
    if tensor.ndim != 1:
        raise NoClassesError(f"labels of shape {tuple(tensor.shape)} are not counted; give one label a sample")
    summary["count"] = int(tensor.shape[0])
    if tensor.is_floating_point():
        return {"labels": _running_summary(iter(tensor.double().tolist()), summary)}
    values, times = tensor.unique(return_counts=True)
    if len(values) > MAX_DISTINCT:
        raise NoClassesError(_too_many())
    return _classes_entry(Counter(dict(zip(values.tolist(), times.tolist(), strict=True))), summary, classes)


def _describe_columns(array: Any, summary: dict[str, Any], classes: Any) -> dict[str, Any]:
    """Count one class a column where the labels are zeros and ones; anything else of this shape is no class."""
    if array.ndim != 2 or array.shape[1] > MAX_DISTINCT:
        raise NoClassesError(f"labels of shape {array.shape} are not counted; give one label a sample")
    counts: Counter[Any] = Counter()
    for start in range(0, len(array), _CHUNK):
        chunk = array[start : start + _CHUNK]
        if not ((chunk == 0) | (chunk == 1)).all():
            raise NoClassesError(f"labels of shape {array.shape} that are not all 0 or 1 are not counted")
        for index, count in enumerate(chunk.sum(axis=0).tolist()):
            counts[index] += int(count)
    summary["count"] = int(array.shape[0])
    summary["form"] = "one column a class"
    return _classes_entry(counts, summary, classes)


def _describe_sequence(labels: Any, summary: dict[str, Any], classes: Any) -> dict[str, Any]:
    summary["count"] = len(labels)
    if len(labels) == 0:
        return _classes_entry(Counter(), summary, classes)
    counts: Counter[Any] = Counter()
    missing = 0
    iterator = iter(labels)
    while chunk := list(islice(iterator, _CHUNK)):
        if not _WHOLE_NUMBERS.issuperset(map(type, chunk)):
            chunk, absent = _plain(chunk)
            missing += absent
            if any(isinstance(label, float) for label in chunk):
                if any(isinstance(label, str) for label in (*chunk, *counts)):
                    raise NoClassesError("labels mix texts and floats")
                return {"labels": _running_summary(iter(labels), summary)}
        counts.update(chunk)
        _check_distinct(counts)
    if missing:
        summary["missing"] = missing
    return _classes_entry(counts, summary, classes)


def _plain(chunk: list[Any]) -> tuple[list[Any], int]:
    """Return labels as Python values, and how many are missing (None, or NaN beside texts)."""
    plain: list[Any] = []
    missing = 0
    for label in chunk:
        if hasattr(label, "item") and not isinstance(label, (str, bytes)):
            label = label.item()
        if label is None or label != label:
            missing += 1
        elif isinstance(label, (str, int, float)):
            plain.append(label)
        elif isinstance(label, bytes):
            plain.append(label.decode("utf-8", "replace"))
        else:
            name = getattr(label, "name", None)
            if not isinstance(name, str):
                raise NoClassesError(f"labels of type {type(label).__name__} are not counted")
            plain.append(name)
    return plain, missing


def _float_summary(array: Any, summary: dict[str, Any]) -> dict[str, Any]:
    """Return the range of an array of floats, by chunks, in double precision."""
    numpy = sys.modules["numpy"]
    finite = 0
    total = 0.0
    low, high = math.inf, -math.inf
    for start in range(0, len(array), 16 * _CHUNK):
        chunk = array[start : start + 16 * _CHUNK].astype("float64")
        chunk = chunk[numpy.isfinite(chunk)]
        if len(chunk):
            finite += len(chunk)
            total += float(chunk.sum())
            low, high = min(low, float(chunk.min())), max(high, float(chunk.max()))
    return _with_range(summary, finite, total, low, high)


def _running_summary(labels: Iterable[Any], summary: dict[str, Any]) -> dict[str, Any]:
    finite = 0
    total = 0.0
    low, high = math.inf, -math.inf
    for label in labels:
        number = math.nan if label is None else float(label)
        if math.isfinite(number):
            finite += 1
            total += number
            low, high = min(low, number), max(high, number)
    return _with_range(summary, finite, total, low, high)


def _with_range(summary: dict[str, Any], finite: int, total: float, low: float, high: float) -> dict[str, Any]:
    summary["form"] = "numbers, not classes: their range is kept"
    if finite:
        summary |= {"min": low, "mean": total / finite, "max": high}
    if summary["count"] - finite:
        summary["nonfinite"] = summary["count"] - finite
    return summary


def _classes_entry(counts: Counter[Any], summary: dict[str, Any], classes: Any) -> dict[str, Any]:
    """Return the counts by name, in the order of the labels, the less frequent ones summed up."""
    entry: dict[str, Any] = {"class_count": sum(1 for count in counts.values() if count), "labels": summary}
    kept = counts.most_common(TOP_CLASSES)
    left = len(counts) - len(kept)
    if left:
        samples = counts.total() - sum(count for _, count in kept)
        entry["classes_rest"] = {"classes": left, "samples": samples}
    kept.sort(key=_label_order)
    named: dict[str, int] = {}
    for label, count in kept:
        name = _class_name(label, classes)
        # Two labels of one name (1 and "1", or a wrong list of names) must not hide each other.
        named[name if name not in named else f"{name} ({label!r})"] = count
    for name in _all_names(classes):
        # A class without a single sample is worth seeing.
        named.setdefault(name, 0)
    entry["classes"] = named
    return entry


def _all_names(classes: Any) -> list[str]:
    if classes is None or isinstance(classes, str) or not hasattr(classes, "__len__") or len(classes) > TOP_CLASSES:
        return []
    return [str(name) for name in (classes.values() if isinstance(classes, Mapping) else classes)]


def _label_order(pair: tuple[Any, int]) -> tuple[int, float, str]:
    label = pair[0]
    return (1, 0.0, label) if isinstance(label, str) else (0, float(label), "")


def _class_name(label: Any, classes: Any) -> str:
    if isinstance(classes, Mapping):
        return str(classes.get(label, classes.get(str(label), label)))
    named_by_index = isinstance(classes, Sequence) and not isinstance(classes, str)
    if (named_by_index or is_array(classes)) and isinstance(label, int) and 0 <= label < len(classes):
        return str(classes[int(label)])
    return str(label)


def _check_distinct(counts: Counter[Any]) -> None:
    if len(counts) > MAX_DISTINCT:
        raise NoClassesError(_too_many())


def _too_many() -> str:
    return f"over {MAX_DISTINCT} distinct labels are ids or texts, not classes"
