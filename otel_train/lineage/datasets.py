"""Describes a data set: size, form, classes, what was dropped, and a checksum, cheaply whatever it is kept in."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from otel_train import clock
from otel_train.lineage.array_hashing import mapping_checksum, table_columns, value_checksum
from otel_train.lineage.dataset_contents import (
    contents_checksum,
    first_data,
    is_bunch,
    is_plain_mapping,
    loader_sampling,
    own_classes,
    own_labels,
    unwrapped,
)
from otel_train.lineage.dataset_items import describe_items
from otel_train.lineage.files import describe_file, describe_files
from otel_train.lineage.hashing import spread
from otel_train.lineage.labels import NoClassesError, describe_labels

MAX_PARTS = 100
MAX_COLUMNS = 200
SPLIT_NAMES = frozenset(
    {"train", "training", "val", "valid", "validation", "dev", "eval", "test", "testing", "unlabeled"}
)
_MAX_DEPTH = 3


def describe_dataset(
    name: str,
    data: Any = None,
    *,
    labels: Any = None,
    dropped: int | Mapping[str, int] | None = None,
    sampling: str | None = None,
    path: Any = None,
    classes: Any = None,
    base: str | os.PathLike[str] | None = None,
    hash_now: bool = True,
    mono_ns: Any = clock.mono_ns,
) -> dict[str, Any]:
    """Return the record of one data set; never raises, what could not be told is in its ``problems``.

    `data`: array, tensor, table, list, torch data set or loader, scikit-learn's Bunch, path or paths, or a mapping of
    names (splits) to any of these. At most 32 items of a map-style data set are read, iterators and iterable data
    sets are not touched. `labels` are counted as classes (`classes` names them) or, where they are floats, told by
    their range; for splits a mapping. `dropped` is a count or a mapping of reasons to counts. `path` names the files
    the data came from. With ``hash_now=False`` files are left to `files.add_checksums`.

    Call it on the thread that uses the data: reading items moves random states, which are put back.
    """
    describer = _Describer(base, hash_now, mono_ns)
    try:
        record = describer.describe(str(name), data, labels, classes, 0)
        if sampling is not None:
            record["sampling"] = str(sampling)
        describer.add_dropped(record, dropped)
        if path is not None:
            record.setdefault("files", []).extend(describer.files(path))
        for entry in record.get("files", []):
            if "problem" in entry:
                _problem(record, f"{entry['path']}: {entry['problem']}")
    except Exception as fault:  # noqa: BLE001 - a foreign type may raise anything; the run goes on without the rest
        record = {"name": str(name), "problems": [f"it could not be described: {type(fault).__name__}: {fault}"]}
    if any(entry.get("pending") for entry in _all_files(record)):
        record["pending"] = True
    return record


class _Describer:
    """Holds what is the same for a data set and its parts."""

    def __init__(self, base: str | os.PathLike[str] | None, hash_now: bool, mono_ns: Any) -> None:
        self._base = base
        self._hash_now = hash_now
        self._mono_ns = mono_ns

    def describe(self, name: str, data: Any, labels: Any, classes: Any, depth: int) -> dict[str, Any]:
        record: dict[str, Any] = {"name": name}
        if data is None:
            self._add_labels(record, labels, classes, "")
            if labels is not None and "count" in record.get("labels", {}):
                record["size"] = record["labels"]["count"]
            return record
        record["type"] = _type_name(data)
        inner = unwrapped(data)
        if inner is not data:
            record["sampling"] = loader_sampling(data)
        if is_plain_mapping(inner):
            return self._describe_parts(record, dict(inner), labels, classes, depth)
        concatenated = getattr(inner, "datasets", None)
        if isinstance(concatenated, (list, tuple)) and concatenated and depth < _MAX_DEPTH:
            parts = {str(index): part for index, part in enumerate(concatenated)}
            self._describe_parts(record, parts, None, classes, depth)
            self._add_size(record, inner)
            self._add_labels(record, labels, classes, "")
            return record
        if self._looks_like_paths(inner):
            record["files"] = self.files(inner)
            if isinstance(inner, (list, tuple)):
                record["size"] = len(inner)
            self._add_labels(record, labels, classes, "")
            return record
        self._add_size(record, inner)
        self._add_form(record, inner)
        found, where = (labels, "") if labels is not None else own_labels(inner)
        self._add_labels(record, found, classes if classes is not None else own_classes(inner), where)
        self._add_checksum(record, inner)
        return record

    def files(self, paths: Any) -> list[dict[str, Any]]:
        if isinstance(paths, (list, tuple)) and len(paths) > 1000:
            return [_file_list(paths)]
        return describe_files(paths, base=self._base, hash_now=self._hash_now)

    def add_dropped(self, record: dict[str, Any], dropped: Any) -> None:
        if dropped is None:
            return
        reasons = dropped if isinstance(dropped, Mapping) else None
        counts = list(reasons.values()) if reasons is not None else [dropped]
        try:
            numbers = [_count(count) for count in counts]
        except (TypeError, ValueError):
            _problem(record, f"dropped={dropped!r} is neither a count nor a mapping of reasons to counts")
            return
        record["dropped"] = {"total": sum(numbers)}
        if reasons is not None:
            record["dropped"]["reasons"] = dict(zip(map(str, reasons), numbers, strict=True))

    def _describe_parts(
        self, record: dict[str, Any], parts: dict[Any, Any], labels: Any, classes: Any, depth: int
    ) -> dict[str, Any]:
        if depth >= _MAX_DEPTH or len(parts) > MAX_PARTS:
            _problem(record, f"{len(parts)} parts at depth {depth} are too many to describe")
            return record
        by_part = labels if isinstance(labels, Mapping) else {}
        described = {
            str(key): self.describe(str(key), part, by_part.get(key), classes, depth + 1) for key, part in parts.items()
        }
        record["parts"] = described
        sizes = [part.get("size") for part in described.values()]
        if all(key.lower() in SPLIT_NAMES for key in described) and all(isinstance(size, int) for size in sizes):
            record["size"] = sum(size for size in sizes if size is not None)
        if labels is not None and not isinstance(labels, Mapping):
            self._add_labels(record, labels, classes, "")
        for key, part in described.items():
            for problem in part.get("problems", []):
                _problem(record, f"{key}: {problem}")
        return record

    def _add_size(self, record: dict[str, Any], data: Any) -> None:
        shape = getattr(data, "shape", None)
        if shape is None:
            shape = getattr(first_data(data), "shape", None)
        try:
            # A sparse matrix has a shape and refuses len().
            if hasattr(type(data), "__len__") and not is_bunch(data):
                record["size"] = len(data)
            else:
                record["size"] = int(shape[0])  # type: ignore[index]
        except Exception as fault:  # noqa: BLE001 - the data set's own __len__ may raise anything
            if isinstance(fault, (TypeError, IndexError, NotImplementedError)):
                _note(record, f"size unknown: {type(data).__name__} has no length, and is not read to find it")
            else:
                _problem(record, f"size unknown: its length raised {type(fault).__name__}: {fault}")

    def _add_form(self, record: dict[str, Any], data: Any) -> None:
        while hasattr(data, "dataset") and hasattr(data, "indices"):
            data = unwrapped(data.dataset)
        columns = table_columns(data)
        if columns is not None:
            kinds = {
                column: str(getattr(values, "dtype", "")) for column, values in list(columns.items())[:MAX_COLUMNS]
            }
            record["columns"] = kinds
            if len(columns) > MAX_COLUMNS:
                _note(record, f"{len(columns) - MAX_COLUMNS} more columns are not listed")
            return
        sample = data if hasattr(data, "shape") and hasattr(data, "dtype") else first_data(data)
        if sample is not None and hasattr(sample, "shape") and hasattr(sample, "dtype"):
            record["shape"] = [int(length) for length in sample.shape[1:]]
            record["dtype"] = str(sample.dtype).removeprefix("torch.")

    def _add_labels(self, record: dict[str, Any], labels: Any, classes: Any, where: str) -> None:
        if labels is None:
            return
        try:
            record |= describe_labels(labels, classes)
        except NoClassesError as reason:
            # What was only guessed to be labels is no mistake of the user.
            (_note if where else _problem)(record, f"no classes: {reason}")
            return
        except Exception as fault:  # noqa: BLE001 - a foreign type may raise anything
            _problem(record, f"no classes: reading the labels raised {type(fault).__name__}: {fault}")
            return
        if where:
            record["labels"]["from"] = where
        count, size = record["labels"].get("count"), record.get("size")
        if count is not None and size is not None and count != size:
            _problem(record, f"{count} labels for {size} samples")
        try:
            record["label_checksum"] = value_checksum(labels).to_dict()
        except Exception as fault:  # noqa: BLE001 - a foreign type may raise anything
            _note(record, f"no checksum of the labels: {fault}")

    def _add_checksum(self, record: dict[str, Any], data: Any) -> None:
        try:
            checksum = contents_checksum(data)
            if checksum is not None:
                record["checksum"] = checksum
                return
            if isinstance(data, Iterator) or not hasattr(type(data), "__getitem__") or "size" not in record:
                _note(record, "no checksum: it can only be iterated, and reading would consume it")
                return
            record |= describe_items(data, record["size"], self._mono_ns, known=frozenset(record))
        except Exception as fault:  # noqa: BLE001 - a foreign type may raise anything
            _note(record, f"no checksum: {type(fault).__name__}: {fault}")

    def _looks_like_paths(self, data: Any) -> bool:
        if isinstance(data, os.PathLike):
            return True
        if isinstance(data, str):
            return True
        if not isinstance(data, (list, tuple)) or not data:
            return False
        some = [data[index] for index in spread(len(data), 1, 32)]
        if all(isinstance(one, os.PathLike) for one in some):
            return True
        folder = Path(self._base) if self._base is not None else Path()
        return all(isinstance(one, str) and len(one) < 1024 and (folder / one).exists() for one in some)


def _file_list(paths: Sequence[Any]) -> dict[str, Any]:
    """Return one entry for very many files: all names, and the contents of 32 of them."""
    chosen = [describe_file(paths[index]) for index in spread(len(paths), 1, 32)]
    contents = {entry["absolute"]: entry.get("checksum", {}).get("value", "missing") for entry in chosen}
    names = [os.fspath(one) for one in paths]
    checksum = mapping_checksum({"names": names, "contents": contents}, f"{len(paths)} names and {len(chosen)} files")
    common = os.path.commonpath([os.path.dirname(entry["absolute"]) for entry in chosen])
    entry = {"path": common, "absolute": common, "kind": "list", "files": len(paths)}
    return entry | {"checksum": checksum.to_dict() | {"whole": False}}


def _count(value: Any) -> int:
    if isinstance(value, bool):
        raise TypeError("a truth value is no count")
    number = int(value)
    if number != value or number < 0:
        raise ValueError("a count is a whole number of zero or more")
    return number


def _type_name(data: Any) -> str:
    kind = type(data)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _all_files(record: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield from record.get("files", [])
    for part in record.get("parts", {}).values():
        yield from _all_files(part)


def _problem(record: dict[str, Any], text: str) -> None:
    record.setdefault("problems", []).append(text)


def _note(record: dict[str, Any], text: str) -> None:
    record.setdefault("notes", []).append(text)
