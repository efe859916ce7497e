"""Writes a comparison of runs for the terminal: a table for each part, a column for each run, wide values shortened."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from otel_train.view.comparison_results import against
from otel_train.view.text import Paint, number, plain, short, table

# Cells of a table with several runs; the whole value is in --json.
MOST_CELL = 44
PARTS = (
    ("configuration", "Configuration"),
    ("command", "Command line"),
    ("code", "Code"),
    ("datasets", "Data sets"),
    ("environment", "Environment"),
    ("packages", "Packages"),
)
MOST_LINE = 300
PATCH_LINES = 12
_DIGEST = re.compile(r"\b[0-9a-f]{32,}\b")


def as_text(payload: Mapping[str, Any], paint: Paint, *, everything: bool = False) -> str:
    """Return the comparison for people; without `everything` only what differs, but for results and facts."""
    heads = [f"{run['number']} {plain(run['label'])}" for run in payload["runs"]]
    heads = [_cut(head) for head in heads]
    out: list[str] = []
    for notice in payload["notices"]:
        out.append(f"{paint('!', 'red' if notice['kind'] == 'bad' else 'yellow')} {plain(notice['text'])}")
    _part(out, paint, "Runs", first=not out)
    rows = [["Id", *(run["id"] for run in payload["runs"])]]
    # A run's id is never cut: it is what other commands take.
    for row in payload["facts"]["rows"]:
        if everything or row["differs"] or row["key"] in ("State", "Duration", "Last step"):
            rows.append([row["key"], *(_cell(cell) for cell in row["cells"])])
    out.append(table(["", *heads], rows, paint))
    _part(out, paint, "Results")
    out.append(_results(payload, heads, paint) if payload["results"]["rows"] else "  no metric was logged")
    same = []
    for key, title in PARTS:
        part = payload[key]
        rows = [_row(row) for row in part["rows"] if everything or row["differs"]]
        if rows:
            differing = f"{part['differing']} of {part['total']} differ"
            _part(out, paint, f"{title}: {differing}" if part["differing"] else f"{title}: nothing differs")
            out.append(table(["", *heads], rows, paint))
            out.extend(_long_values(part, heads, everything))
        elif part["total"]:
            same.append(title.lower())
        if key == "code":
            out.extend(_patches(payload, paint))
    if same:
        out.append("")
        out.append(f"The same in all of these runs: {', '.join(same)} (--all shows them).")
    return "\n".join(out)


def _long_values(part: Mapping[str, Any], heads: Sequence[str], everything: bool) -> list[str]:
    """Return values that differ and were shortened in the table, a line a run, so that the difference is seen."""
    out = []
    for row in part["rows"]:
        texts = [_digests_cut(cell["text"]) if cell else "-" for cell in row["cells"]]
        if (row["differs"] or everything) and any(len(text) > MOST_CELL for text in texts):
            out.append(f"  {_cut(row['key'], 60)}:")
            out.extend(f"    {head}: {plain(_cut(text, MOST_LINE))}" for head, text in zip(heads, texts, strict=True))
    return out


def _part(out: list[str], paint: Paint, title: str, *, first: bool = False) -> None:
    if not first:
        out.append("")
    out.append(paint(title, "bold", "cyan"))


def _row(row: Mapping[str, Any]) -> list[str]:
    name = f"{row['group']}: {row['key']}" if row["group"] else row["key"]
    kinds = {_KINDS.get(cell["kind"]) for cell in row["cells"] if cell and cell["kind"] != "missing"}
    return [_cut(name, 60), *(_cell(cell, with_kind=len(kinds) > 1) for cell in row["cells"])]


# Whole numbers and others are told apart by their spelling: 1 and 1.0.
_KINDS = {"int": "number", "float": "number", "text": "text", "bool": "true/false", "null": "null", "list": "list"}


def _cell(cell: Mapping[str, Any] | None, *, with_kind: bool = False) -> str:
    if cell is None:
        return "-"
    written = "not set any more" if cell["kind"] == "missing" else _cut(cell["text"])
    if with_kind and cell["kind"] in _KINDS:
        written += f" ({_KINDS[cell['kind']]})"
    if cell.get("earlier"):
        before = "; ".join(f"attempt {attempt}: {_cut(value, 24)}" for attempt, value in cell["earlier"])
        written += f" [{before}]"
    return written


def _cut(value: str, most: int = MOST_CELL) -> str:
    line = _digests_cut(value)
    return line if len(line) <= most else f"{line[: most - 3]}..."


def _digests_cut(value: str) -> str:
    """Return a text on one line; of a checksum its ends tell enough."""
    return _DIGEST.sub(_ends, " ".join(value.split("\n")))


def _ends(digest: re.Match[str]) -> str:
    found = digest[0]
    return found[:12] if len(found) == 40 else f"{found[:10]}...{found[-6:]}"


def _results(payload: Mapping[str, Any], heads: Sequence[str], paint: Paint) -> str:
    """Return a row for each metric: the best value, else the last, and how far it is from the base's."""
    rows = []
    for row in payload["results"]["rows"]:
        which = "best" if row["goal"] else "last"
        base = row["cells"][0]
        cells = []
        for place, cell in enumerate(row["cells"]):
            if cell is None:
                cells.append("-")
                continue
            value = cell[which]
            star = "*" if place in row["winners"] else ""
            written = f"{star}{number(value)}" if value is not None else "no finite value"
            away = against(value, base[which] if base else None) if place else None
            if away is not None:
                written += f" ({_away(*away)})"
            if cell["bad"]:
                written += f" [{cell['bad']:,} not finite]"
            cells.append(written)
        words = {"min": "lowest", "max": "highest", "": "last"}[row["goal"]]
        rows.append([row["key"], words, *cells])
    return table(["metric", "value", *heads], rows, paint)


def _away(difference: float, share: float | None) -> str:
    if difference == 0:
        return "="
    percent = f", {share:+.3g} %" if share is not None and (share := 100 * share) else ""
    return f"{'+' if difference > 0 else ''}{short(difference)}{percent}"


def _patches(payload: Mapping[str, Any], paint: Paint) -> list[str]:
    """Return where changes that were not committed differ from the base's: a line a file, and the first lines of it."""
    runs = payload["runs"]
    base = next(run for run in runs if run["id"] == payload["base"])
    out: list[str] = []
    for one in payload["patches"]:
        run = runs[one["run"]]
        out.append("")
        out.append(paint(f"Not committed: {plain(run['label'])} beside {plain(base['label'])}", "bold"))
        if one["commits"]:
            left, right = (plain(commit)[:12] for commit in one["commits"])
            out.append(f"  the commits differ too: git diff {left} {right}")
        if one["cut"]:
            out.append("  a patch was cut when it was recorded: what differs beyond the cut is not seen")
        words = {"added": "only in this run", "removed": "only in the base", "changed": "in both, in different ways"}
        for file in one["files"]:
            out.append(f"  {plain(file['path'])}: {words[file['change']]}")
            lines = [line for line in file["lines"].split("\n") if line[:1] in "+-@" and line]
            out.extend(f"    {_patch_line(line, paint)}" for line in lines[:PATCH_LINES])
            if len(lines) > PATCH_LINES:
                out.append(f"    ... {len(lines) - PATCH_LINES:,} more lines; see --json or the page")
        if not one["files"]:
            out.append("  they differ, but not in what was kept of them")
    return out


def _patch_line(line: str, paint: Paint) -> str:
    style = {"+": "green", "-": "red", "@": "cyan"}[line[0]]
    return paint(plain(_cut(line, 120)), style)
