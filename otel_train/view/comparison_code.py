"""Compares the code of runs: commit, branch, what was not committed, and where the patches differ, file by file."""

from __future__ import annotations

import difflib
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from otel_train.view.comparison_cells import Cell, Row, cell, part, side_by_side
from otel_train.view.log_list import cut
from otel_train.view.run_data import RunData, mappings

_FIRST = ("commit", "branch", "dirty", "remote", "root")
_APART = frozenset({"patch", "patch_cut", "patch_bytes", "untracked", "reasons", "changed_files"})
_HEADER = re.compile(r"^diff --git (?P<old>.+) (?P<new>\"?b/.+)$", re.MULTILINE)
# Lines of one file's patch that are compared line by line; the comparison's time grows with their product.
MOST_LINES = 1_500
MOST_CHARACTERS = 40_000
# Of all files of all runs together: a comparison of forty work trees is not to take minutes, nor a page of 100 MB.
ALL_LINES = 20_000
ALL_CHARACTERS = 1_000_000
TOO_MUCH = "Left out: the patches of these runs differ in too much to show all of it; compare fewer runs."


def codes(runs: Sequence[RunData]) -> list[dict[str, Any]]:
    """Return what each run's newest attempt says of its code; empty where that is not known."""
    return [_code(run) for run in runs]


def _code(run: RunData) -> dict[str, Any]:
    newest = run.attempts[-1] if run.attempts else {}
    described = newest.get("environment")
    if not isinstance(described, Mapping):
        return {}
    return next((dict(described[key]) for key in ("code", "git", "vcs") if isinstance(described.get(key), Mapping)), {})


def code(found: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return commit, branch and the rest side by side, with a row for each file that was not committed."""
    columns: list[dict[str, object]] = []
    for one in found:
        column: dict[str, object] = {key.replace("_", " "): value for key, value in one.items() if key not in _APART}
        if isinstance(one.get("reasons"), Mapping):
            column.update({f"{what} is not known": why for what, why in one["reasons"].items()})
        for entry in mappings(one.get("untracked")):
            column[f"untracked {entry.get('path', '')}"] = str(entry.get("sha256") or f"{entry.get('size', '?')} bytes")
        columns.append(column)
    rows = side_by_side(columns)
    order = {name.replace("_", " "): place for place, name in enumerate(_FIRST)}
    rows.sort(key=lambda row: (order.get(row["key"], len(order)), row["key"]))
    rows.extend(_patch_rows([str(one.get("patch") or "") for one in found]))
    return part(rows)


def sections(patch: str) -> dict[str, str]:
    """Return the patch of each file by its new path; what stands before the first file is left out."""
    found: dict[str, str] = {}
    heads = list(_HEADER.finditer(patch))
    for place, head in enumerate(heads):
        end = heads[place + 1].start() if place + 1 < len(heads) else len(patch)
        name = head["new"].strip('"').removeprefix("b/")
        found[name] = patch[head.start() : end]
    return found


def counts(section: str) -> tuple[int, int]:
    """Return how many lines a file's patch adds and removes."""
    body = section[section.find("\n@@") + 1 :].split("\n") if "\n@@" in section else []
    return sum(line.startswith("+") for line in body), sum(line.startswith("-") for line in body)


def _patch_rows(patches: Sequence[str]) -> list[Row]:
    """Return a row for each file of any patch: lines added and removed, and a sign of what they are."""
    parts = [sections(patch) for patch in patches]
    rows = []
    for name in sorted({name for column in parts for name in column}):
        cells: list[Cell | None] = []
        for column in parts:
            if name not in column:
                cells.append(None)
                continue
            added, removed = counts(column[name])
            digest = hashlib.sha256(column[name].encode("utf-8", "replace")).hexdigest()[:8]
            cells.append({**cell(f"+{added} -{removed} · {digest}"), "kind": "patch"})
        texts = {column.get(name) for column in parts}
        rows.append({"key": name, "group": "Not committed", "differs": len(texts) > 1, "cells": cells})
    return rows


def patches(found: Sequence[Mapping[str, Any]], base: int) -> list[dict[str, Any]]:
    """Return for each run but the base the files whose patch is another than the base's, with what is other in it.

    Each has path, change (added, removed or changed), and lines of a unified diff from the base's patch to the run's;
    a file that only one of them changed is shown as its patch.
    """
    if not found:
        return []
    before = sections(str(found[base].get("patch") or ""))
    left = _Left()
    result = []
    for place, one in enumerate(found):
        after = sections(str(one.get("patch") or ""))
        files = [
            _difference(name, before.get(name), after.get(name), left)
            for name in sorted(before.keys() | after.keys())
            if before.get(name) != after.get(name)
        ]
        if place != base and (files or one.get("patch_sha256") != found[base].get("patch_sha256")):
            known = found[base].get("commit"), one.get("commit")
            commits = list(known) if known[0] != known[1] and all(known) else []
            is_cut = bool(one.get("patch_cut") or found[base].get("patch_cut"))
            result.append({"run": place, "files": files, "commits": commits, "cut": is_cut})
    return result


@dataclass(slots=True)
class _Left:
    """How much may still be compared and shown."""

    lines: int = ALL_LINES
    characters: int = ALL_CHARACTERS


def _difference(name: str, before: str | None, after: str | None, left: _Left) -> dict[str, Any]:
    if before is None or after is None:
        change = "added" if before is None else "removed"
        lines = (after if before is None else before) or ""
    else:
        change = "changed"
        lines = _changed_lines(_body(before), _body(after), left)
    shown = cut(lines, MOST_CHARACTERS) if left.characters > 0 else TOO_MUCH
    left.characters -= len(shown)
    return {"path": name, "change": change, "lines": shown}


def _changed_lines(old: list[str], new: list[str], left: _Left) -> str:
    if max(len(old), len(new)) > MOST_LINES:
        return f"Both patches of this file are too long to compare line by line ({len(old):,} and {len(new):,} lines)."
    left.lines -= len(old) + len(new)
    if left.lines < 0:
        return TOO_MUCH
    return "\n".join(list(difflib.unified_diff(old, new, lineterm="", n=2))[2:])


def _body(section: str) -> list[str]:
    """Return a file's patch without what names its blobs."""
    return [line for line in section.rstrip("\n").split("\n") if not line.startswith("index ")]
