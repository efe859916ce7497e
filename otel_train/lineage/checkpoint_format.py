"""Chooses how an object is written as a checkpoint, and checks that a written file is whole by its own format."""

from __future__ import annotations

import importlib
import json
import os
import struct
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from otel_train.errors import CheckpointError
from otel_train.lineage.array_hashing import is_array, is_tensor

# A larger archive is believed when its list of members is whole.
MAX_CHECKED_ARCHIVE_BYTES = 256 << 20
_TORCH_SUFFIXES = frozenset({".pt", ".pth", ".ckpt", ".bin", ".tar", ".torch"})
_MAX_VISITED = 10_000
_MAX_DEPTH = 8


@dataclass(frozen=True, slots=True)
class Writer:
    """How an object is written: to a stream that hashes on the way, or, where `to_path`, by a library to a path."""

    format_name: str
    write: Callable[[Any, Any], Any]
    to_path: bool = False


class Stream(Protocol):
    """Where a writer puts its bytes."""

    def write(self, data: Any, /) -> int:
        """Take bytes and return how many."""
        ...

    def flush(self) -> None:
        """Hand them on."""
        ...


def choose_writer(path: Path, obj: Any) -> Writer:
    """Return the writer for an object and a file name; CheckpointError where none fits."""
    suffix = path.suffix.lower()
    if isinstance(obj, (bytes, bytearray, memoryview)):
        return Writer("bytes", _write_bytes)
    if suffix == ".safetensors":
        return Writer("safetensors", _safetensors_writer(path, obj), to_path=True)
    if suffix in (".pkl", ".pickle"):
        return Writer("pickle", _write_pickle)
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "save") and (suffix in _TORCH_SUFFIXES or holds_tensors(obj)):
        return Writer("torch", torch.save)
    return Writer("pickle", _write_pickle)


def holds_tensors(obj: Any) -> bool:
    """Tell whether a torch tensor or module is within an object, looking at no more than 10,000 parts of it."""
    module = getattr(getattr(sys.modules.get("torch"), "nn", None), "Module", None)
    pending: list[tuple[Any, int]] = [(obj, 0)]
    visited = 0
    while pending and visited < _MAX_VISITED:
        part, depth = pending.pop()
        visited += 1
        if is_tensor(part) or (isinstance(module, type) and isinstance(part, module)):
            return True
        if depth < _MAX_DEPTH:
            if isinstance(part, Mapping):
                pending.extend((value, depth + 1) for value in part.values())
            elif isinstance(part, (list, tuple)):
                pending.extend((value, depth + 1) for value in part)
    return False


def check_content(path: Path, checks: list[str], *, read_all: bool) -> str:
    """Return what is wrong with a file by its own format, "" where nothing is; names each check made in `checks`.

    `read_all` compares the CRC of every member of an archive; without it only the archive's list is read.
    """
    with open(path, "rb") as handle:
        start = handle.read(8)
    if path.suffix.lower() == ".safetensors":
        checks.append("safetensors")
        return _check_safetensors(path)
    if start[:4] == b"PK\x03\x04":
        checks.append("zip")
        return _check_zip(path, read_all)
    return ""


def _write_bytes(obj: Any, stream: Stream) -> None:
    stream.write(obj)


def _write_pickle(obj: Any, stream: Stream) -> None:
    import pickle

    pickle.dump(obj, stream, protocol=pickle.HIGHEST_PROTOCOL)


def _safetensors_writer(path: Path, obj: Any) -> Callable[[Any, str], None]:
    if not isinstance(obj, Mapping) or not obj:
        kind = type(obj).__name__
        raise CheckpointError(f"{path}: a .safetensors file holds a mapping of names to tensors, not a {kind}")
    if all(is_tensor(value) for value in obj.values()):
        module_name = "safetensors.torch"
    elif all(is_array(value) for value in obj.values()):
        module_name = "safetensors.numpy"
    else:
        odd = next(name for name, value in obj.items() if not is_tensor(value) and not is_array(value))
        raise CheckpointError(f"{path}: {odd!r} is neither a tensor nor an array; .safetensors holds one kind of them")
    try:
        save_file: Callable[[Any, str], None] = importlib.import_module(module_name).save_file
    except ImportError as fault:
        raise CheckpointError(
            f"{path}: writing .safetensors needs the package safetensors (pip install safetensors), or another suffix"
        ) from fault

    # To a file and not to bytes: a second copy of the model in memory may be one too many.
    return lambda what, where: save_file(dict(what), where)


def _check_safetensors(path: Path) -> str:
    """Compare the offsets in the header with the file's size."""
    size = os.stat(path).st_size
    with open(path, "rb") as handle:
        start = handle.read(8)
        length = struct.unpack("<Q", start)[0] if len(start) == 8 else size
        if length > size - 8:
            return "its header says more bytes than the file has"
        try:
            header = json.loads(handle.read(length))
            ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
        except (ValueError, LookupError, TypeError, AttributeError) as fault:
            return f"its header is not that of a safetensors file ({fault})"
    data = size - 8 - length
    return "" if data == max(ends, default=0) else f"its tensors need {max(ends, default=0)} bytes, it holds {data}"


def _check_zip(path: Path, read_all: bool) -> str:
    # Imported here: it brings three compression libraries along, and most processes never save.
    import zipfile

    try:
        with zipfile.ZipFile(path) as archive:
            small = os.stat(path).st_size <= MAX_CHECKED_ARCHIVE_BYTES
            if read_all and small and _has_crc(archive.namelist()):
                damaged = archive.testzip()
                if damaged is not None:
                    return f"{damaged} within it has a wrong checksum"
    except (zipfile.BadZipFile, OSError, RuntimeError, NotImplementedError) as fault:
        return f"the archive is not whole ({fault})"
    return ""


def _has_crc(names: list[str]) -> bool:
    """Tell whether the archive's CRCs are true ones: torch can be told to leave them out."""
    serialization = getattr(sys.modules.get("torch"), "serialization", None)
    asked = getattr(serialization, "get_crc32_options", None)
    made_by_torch = any(name.endswith("/data.pkl") or name == "data.pkl" for name in names)
    return not made_by_torch or asked is None or bool(asked())
