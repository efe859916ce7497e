"""Compares what runs were made of: configuration, command line, environment, packages and data sets, key by key."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

from otel_train.view import facts, text
from otel_train.view.comparison_cells import Row, cell, flat, identity, part, side_by_side
from otel_train.view.run_data import RunData, mappings

# Parts of the environment that have tables of their own, or only say how it was found out.
_APART = frozenset({"packages", "package_sources", "reasons", "command", "code", "git", "vcs", "variables"})
# Keys of a data set that belong to one call and not to the data.
_OF_ONE_CALL = frozenset({"attempt", "rank", "time", "step", "stage", "name", "parts", "classes", "files", "checksum"})
_OF_ONE_CALL |= {"label_checksum"}


def configuration(runs: Sequence[RunData]) -> dict[str, Any]:
    """Return the configuration of each run's newest attempt; what older attempts had otherwise is in `earlier`.

    A key that a newer attempt does not have any more, or that changed from one attempt to another, counts as differing.
    """
    attempts = [_configurations(run) for run in runs]
    newest = [columns[-1][1] if columns else {} for columns in attempts]
    rows = {row["key"]: row for row in side_by_side(newest, exact=True)}
    for place, columns in enumerate(attempts):
        for key in sorted({key for _, column in columns[:-1] for key in column}):
            before = _earlier(columns, key)
            if not before:
                continue
            row = rows.setdefault(key, {"key": key, "group": "", "differs": True, "cells": [None for _ in runs]})
            row["differs"] = True
            row["cells"][place] = (row["cells"][place] or {"text": "", "kind": "missing"}) | {"earlier": before}
    return part(rows[key] for key in sorted(rows))


def _configurations(run: RunData) -> list[tuple[int, dict[str, object]]]:
    """Return number and flat configuration of each attempt; one that has none, killed at its start say, is left out."""
    found = []
    for place, attempt in enumerate(run.attempts, 1):
        number = attempt.get("attempt")
        if isinstance(attempt.get("config"), Mapping):
            found.append((number if isinstance(number, int) else place, flat(attempt["config"])))
    return found


def _earlier(columns: Sequence[tuple[int, Mapping[str, object]]], key: str) -> list[list[Any]]:
    """Return attempt and value of a key for each stretch of attempts before the newest that had another value."""
    stretches: list[tuple[int, object, bool]] = []
    for number, column in columns:
        there = key in column
        if stretches:
            _, value, was_there = stretches[-1]
            if was_there == there and (not there or identity(value) == identity(column[key])):
                continue
        stretches.append((number, column.get(key), there))
    return [
        [number, cell(value, exact=True)["text"] if there else "not set"] for number, value, there in stretches[:-1]
    ]


def environment(runs: Sequence[RunData]) -> dict[str, Any]:
    """Return host, platform, machine, torch, container, seeds and variables; groups are named in the rows."""
    columns = []
    groups: dict[str, str] = {}
    for run in runs:
        newest = _newest(run)
        described = _described(newest)
        column: dict[str, object] = {}
        process = {key: newest[key] for key in ("host", "world_size", "launcher") if newest.get(key) is not None}
        _take(column, groups, "Process", process)
        seed = newest.get("seed")
        seeds = {key: value for key, value in seed.items() if key != "states"} if isinstance(seed, Mapping) else None
        _take(column, groups, "Seeds", seeds if seeds is not None else {} if seed is None else {"seed": seed})
        for name, value in described.items():
            if name not in _APART and name != "host":
                title = name.replace("_", " ").capitalize()
                _take(column, groups, title, {name: value})
        columns.append(column)
    rows = side_by_side(columns, groups)
    return part(sorted(rows, key=lambda row: (row["group"] != "Process", row["group"], row["key"])))


def _take(column: dict[str, object], groups: dict[str, str], title: str, values: Mapping[str, object]) -> None:
    for key, value in flat(values).items():
        if value not in ("", [], {}) and ".unsupported" not in key:
            column[key] = value
            groups[key] = title


def _newest(run: RunData) -> Mapping[str, Any]:
    return run.attempts[-1] if run.attempts else {}


def _described(attempt: Mapping[str, Any]) -> Mapping[str, Any]:
    found = attempt.get("environment")
    return found if isinstance(found, Mapping) else {}


def packages(runs: Sequence[RunData]) -> dict[str, Any]:
    """Return the installed packages by name with their versions."""
    columns = []
    for run in runs:
        listed = _described(_newest(run)).get("packages")
        columns.append(dict(listed) if isinstance(listed, Mapping) else {})
    return part(side_by_side(columns))


def command(runs: Sequence[RunData]) -> dict[str, Any]:
    """Return command line, script, working folder and variables of each run's newest attempt."""
    columns = []
    groups: dict[str, str] = {}
    for run in runs:
        described = _described(_newest(run))
        found = described.get("command")
        found = dict(found) if isinstance(found, Mapping) else {}
        argv = found.pop("argv", None)
        column: dict[str, object] = {}
        if isinstance(argv, list):
            column["command line"] = shlex.join(str(item) for item in argv)
        for key, value in flat(found).items():
            column[key.replace("_", " ")] = value
        variables = described.get("variables")
        _take(column, groups, "Variables", variables if isinstance(variables, Mapping) else {})
        columns.append(column)
    rows = side_by_side(columns, groups)
    return part(sorted(rows, key=lambda row: (row["group"], row["key"] != "command line", row["key"])))


def datasets(runs: Sequence[RunData]) -> dict[str, Any]:
    """Return what is known of each data set by its name: size, checksums, classes, sampling, what was dropped, files.

    Of several records of one name the last counts. The name is the rows' group.
    """
    columns: list[dict[tuple[str, str], object]] = []
    for run in runs:
        column: dict[tuple[str, str], object] = {}
        for name, record in _last_records(run).items():
            column.update(((name, key), value) for key, value in _dataset(record).items())
        columns.append(column)
    rows: list[Row] = []
    for name in dict.fromkeys(name for column in columns for name, _ in column):
        own = [{key: value for (group, key), value in column.items() if group == name} for column in columns]
        keys = dict.fromkeys(key for column in own for key in column)
        found = {row["key"]: {**row, "group": name} for row in side_by_side(own)}
        rows.extend(found[key] for key in keys)
    return part(rows)


def _last_records(run: RunData) -> dict[str, Mapping[str, Any]]:
    found: dict[str, Mapping[str, Any]] = {}

    def take(name: str, record: Mapping[str, Any]) -> None:
        found[name] = record
        parts = record.get("parts")
        for inner_name, inner in parts.items() if isinstance(parts, Mapping) else ():
            if isinstance(inner, Mapping):
                take(f"{name} / {inner_name}", inner)

    for record in mappings(run.info.get("datasets")):
        take(str(record.get("name") or "data set"), record)
    return found


def _dataset(record: Mapping[str, Any]) -> dict[str, object]:
    """Return one data set flat, the most telling first; classes and files each by their name."""
    found: dict[str, object] = {}
    for key in ("size", "checksum", "label_checksum"):
        value = record.get(key)
        if isinstance(value, Mapping):
            found[key.replace("_", " ")] = facts.checksum(value)
        elif value is not None:
            found[key.replace("_", " ")] = value
    rest = {key: value for key, value in record.items() if key not in _OF_ONE_CALL and key not in ("size", "notes")}
    for key, value in flat(rest).items():
        if not key.endswith("checksum.how") and value not in (None, "", [], {}):
            found.setdefault(key.replace("_", " "), value)
    classes = record.get("classes")
    files = mappings(record.get("files"))
    for label, count in classes.items() if isinstance(classes, Mapping) else ():
        found[f"class {label}"] = count
    # A run often keeps its files in a folder of its own: what they hold tells whether they are the same.
    paths = [str(entry.get("path") or entry.get("name") or entry.get("type") or "value") for entry in files]
    names = [PurePath(path.replace("\\", "/")).name or path for path in paths]
    for entry, name, path in zip(files, names, paths, strict=True):
        found[f"file {name if names.count(name) == 1 else path}"] = _file(entry)
    return found


def _file(entry: Mapping[str, Any]) -> str:
    if entry.get("kind") == "missing":
        return "missing"
    size, digest = entry.get("size"), entry.get("checksum")
    parts = [
        text.size(size) if isinstance(size, (int, float)) else "",
        facts.checksum(digest) if isinstance(digest, Mapping) else "",
        str(entry.get("problem") or ""),
    ]
    return " · ".join(filter(None, parts)) or "there"
