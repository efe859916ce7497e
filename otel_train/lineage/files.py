"""Describes the files, folders, URLs and values that stages and data sets name: size, time and checksum of each."""

from __future__ import annotations

import glob
import inspect
import os
import re
import stat
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from otel_train import clock
from otel_train.lineage.array_hashing import value_checksum
from otel_train.lineage.hashing import file_checksum, folder_checksum

FILE_LIMIT = 1000
# What lies in a folder of code and changes by itself.
CODE_LEFTOVERS = frozenset({"__pycache__", ".git", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".ipynb_checkpoints"})
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]+://")
_GLOB = re.compile(r"[*?\[]")

FileEntry = dict[str, Any]


def describe_files(
    paths: Any, *, base: str | os.PathLike[str] | None = None, hash_now: bool = True, limit: int = FILE_LIMIT
) -> list[FileEntry]:
    """Return one entry for each file, folder, URL or value that `paths` names; never raises.

    `paths` is a path, URL or glob, a sequence of them, a mapping of names to them, or an array in memory. Relative
    paths are taken from `base` (the working folder). With `hash_now=False` files come without checksum, marked
    ``"pending": True``, for `add_checksums`. At most `limit` entries; what is left out is said in the last one.
    """
    folder = Path(base) if base is not None else Path.cwd()
    entries: list[FileEntry] = []
    for name, one in _named(paths, limit):
        for entry in _describe(one, folder, hash_now, limit - len(entries) + 1):
            if len(entries) >= limit:
                entries[-1]["problem"] = f"only the first {limit} files are listed"
                return entries
            if name:
                entry["name"] = name
            entries.append(entry)
    return entries


def describe_code(code: Any, *, base: str | os.PathLike[str] | None = None, hash_now: bool = True) -> list[FileEntry]:
    """Return entries for what a stage was made by: a script, a folder, or a function, class or module (its file)."""
    if code is None or isinstance(code, (str, os.PathLike)):
        entries = describe_files(code, base=base, hash_now=False) if code is not None else []
    elif isinstance(code, Iterable):
        return [entry for one in code for entry in describe_code(one, base=base, hash_now=hash_now)]
    else:
        entries = [_describe_object(code)]
    for entry in entries:
        if entry["kind"] == "folder":
            entry["code"] = True
        if hash_now:
            _hash_entry(entry)
    return entries


def add_checksums(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of a record (stage, data set, file entry) in which every pending file has its checksum."""
    completed = _completed(dict(record))
    assert isinstance(completed, dict)
    return completed


def describe_file(path: str | os.PathLike[str], *, hash_now: bool = True, skip: Iterable[str] = ()) -> FileEntry:
    """Return the entry of one local file or folder; a missing or unreadable one has kind missing and a problem."""
    text = os.fspath(path)
    entry: FileEntry = {"path": text, "absolute": os.path.abspath(text), "kind": "missing"}
    try:
        status = os.stat(text)
    except OSError as fault:
        entry["problem"] = f"cannot be read: {fault.strerror or fault}"
        return entry
    entry["modified"] = clock.iso(status.st_mtime_ns)
    if stat.S_ISDIR(status.st_mode):
        entry["kind"] = "folder"
    elif stat.S_ISREG(status.st_mode):
        entry["kind"] = "file"
        entry["size"] = status.st_size
    else:
        entry["kind"] = "special"
        entry["problem"] = "neither a file nor a folder, not read"
        return entry
    entry["pending"] = True
    if hash_now:
        _hash_entry(entry, frozenset(skip))
    return entry


def without_credentials(url: str) -> str:
    """Return a URL without user, password, query and fragment, where signatures and tokens live."""
    scheme, _, rest = url.partition("://")
    place = re.split(r"[?#]", rest, maxsplit=1)[0]
    host, slash, path = place.partition("/")
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{path}"


def _named(paths: Any, limit: int) -> Iterable[tuple[str, Any]]:
    if paths is None:
        return []
    if isinstance(paths, Mapping):
        return islice(((str(name), one) for name, value in paths.items() for one in _many(value)), limit + 1)
    return islice((("", one) for one in _many(paths)), limit + 1)


def _many(value: Any) -> Iterable[Any]:
    if isinstance(value, (list, tuple, set, frozenset)):
        return sorted(value, key=str) if isinstance(value, (set, frozenset)) else value
    return (value,)


def _describe(one: Any, base: Path, hash_now: bool, limit: int) -> list[FileEntry]:
    if not isinstance(one, (str, os.PathLike)):
        return [_describe_value(one)]
    text = os.fspath(one)
    if isinstance(text, bytes):
        text = os.fsdecode(text)
    if _URL.match(text):
        if not text.lower().startswith("file://"):
            return [{"path": without_credentials(text), "kind": "url"}]
        text = unquote(urlsplit(text).path)
        if os.name == "nt":
            text = text.lstrip("/")
    where = os.path.join(base, os.path.expanduser(text))
    if _GLOB.search(text) and not os.path.lexists(where):
        return _describe_glob(text, where, hash_now, limit)
    return [_as_given(describe_file(where, hash_now=hash_now), text)]


def _describe_glob(pattern: str, where: str, hash_now: bool, limit: int) -> list[FileEntry]:
    found = sorted(islice(glob.iglob(where, recursive=True, include_hidden=False), 10 * FILE_LIMIT))
    if not found:
        return [{"path": pattern, "kind": "missing", "pattern": pattern, "problem": "no file matches"}]
    entries = []
    for path in found[:limit]:
        entry = describe_file(path, hash_now=hash_now)
        entry["pattern"] = pattern
        entries.append(entry)
    return entries


def _as_given(entry: FileEntry, text: str) -> FileEntry:
    entry["path"] = text
    return entry


def _describe_value(value: Any) -> FileEntry:
    kind = type(value)
    entry: FileEntry = {"path": "", "kind": "value", "type": f"{kind.__module__}.{kind.__qualname__}"}
    shape = getattr(value, "shape", None)
    try:
        if shape is not None:
            entry["shape"] = [int(length) for length in shape]
        checksum = value_checksum(value)
        entry["size"] = checksum.size
        entry["checksum"] = checksum.to_dict()
    except Exception as fault:  # noqa: BLE001 - a foreign type may raise anything
        entry["problem"] = f"no checksum: {fault}"
    return entry


def _describe_object(code: Any) -> FileEntry:
    """Describe the file in which a function, class or module is written; its text where there is no file."""
    if isinstance(code, Callable) and not hasattr(code, "__code__"):  # type: ignore[arg-type]
        code = inspect.unwrap(getattr(code, "func", code))
    name = getattr(code, "__qualname__", None) or getattr(code, "__name__", None) or type(code).__qualname__
    try:
        source = inspect.getsourcefile(code) or ""
    except TypeError:
        source = ""
    if source and os.path.isfile(source):
        entry = describe_file(source, hash_now=False)
    else:
        entry = {"path": "", "kind": "value", "type": "source"}
        try:
            checksum = value_checksum(inspect.getsource(code))
            entry["size"] = checksum.size
            entry["checksum"] = checksum.to_dict()
        except (OSError, TypeError) as fault:
            entry["problem"] = f"its source is not known: {fault}"
    entry["function"] = str(name)
    return entry


def _hash_entry(entry: FileEntry, skip: frozenset[str] = frozenset()) -> None:
    """Fill in size and checksum of a local file or folder, where it lies."""
    if not entry.pop("pending", False):
        return
    where = entry["absolute"]
    if entry.get("code"):
        skip = skip | CODE_LEFTOVERS
    try:
        if entry["kind"] == "folder":
            checksum = folder_checksum(where, skip=skip)
            entry["files"] = checksum.files
        else:
            checksum = file_checksum(where)
    except OSError as fault:
        entry["problem"] = f"no checksum: {fault.strerror or fault}"
        return
    entry["size"] = checksum.size
    entry["checksum"] = checksum.to_dict()


def _completed(part: Any) -> Any:
    if isinstance(part, Mapping):
        copy = {key: _completed(value) for key, value in part.items()}
        if copy.get("pending") and "absolute" in copy:
            _hash_entry(copy)
        copy.pop("pending", None)
        return copy
    if isinstance(part, list):
        return [_completed(one) for one in part]
    return part
