"""Shows the checks of samples: charts of their values, and kept samples of the first and newest check of a split."""

from __future__ import annotations

import base64
import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from otel_train.runlog.regular_file import read_regular
from otel_train.runlog.sample_files import DESCRIPTION, FOLDER, step_of
from otel_train.semconv import CLASS, METRICS
from otel_train.view import text
from otel_train.view.axes import Axes
from otel_train.view.charts import Chart, Detail, Named, chart, label_of
from otel_train.view.inks import inks, split_order
from otel_train.view.log_list import cut
from otel_train.view.run_data import RunData, mappings
from otel_train.view.series import Series

_TITLES: Final = {
    "dl.samples.nonfinite": "Samples with non-finite or missing values",
    "dl.samples.constant": "Constant samples",
    "dl.samples.duplicate": "Duplicate samples",
    "dl.samples.saturated": "Saturated values",
    "dl.samples.mean": "Mean of the values",
    "dl.samples.std": "Standard deviation of the values",
    "dl.samples.drift": "Drift of the values",
    "dl.samples.class.drift": "Drift of the classes",
}
_SHARES: Final = "dl.samples.class.share"
NAMES: Final = frozenset({*_TITLES, _SHARES})
_PERCENT: Final = frozenset(
    {_SHARES, *(f"dl.samples.{name}" for name in ("nonfinite", "constant", "duplicate", "saturated"))}
)

# Samples of one check on the page, and bytes of all pictures and texts together.
MOST_SHOWN: Final = 8
MOST_BYTES: Final = 6_000_000
MOST_TEXT: Final = 2_000
MOST_ROWS: Final = 20
MOST_COLUMNS: Final = 30
# Below this width each pixel is drawn as a square.
SMALL_SIDE: Final = 100
_PNG: Final = b"\x89PNG\r\n\x1a\n"


def samples_section(run: RunData, series: Iterable[Series], axes: Axes, detail: Detail) -> dict[str, Any]:
    """Return charts, checks with their samples by split, and what is said where there is nothing."""
    charts = sample_charts([one for one in series if one.name in NAMES], axes, detail)
    checks = kept_checks(run.path)
    return {
        "charts": charts,
        "splits": checks,
        "empty": "No samples were checked: run.check_samples(batch) looks at a batch now and then.",
        "no_files": "No checked samples were kept as files." if charts and not checks else "",
    }


def sample_charts(found: Sequence[Series], axes: Axes, detail: Detail) -> list[Chart]:
    """Return one chart for each value, its splits together, and one of the classes for each split."""
    several_ranks = len({one.rank for one in found}) > 1
    splits = sorted({one.split for one in found})
    charts = []
    for name, title in _TITLES.items():
        listed = sorted(
            (one for one in found if one.name == name), key=lambda one: (split_order(one.split), one.split, one.rank)
        )
        if listed:
            lines = [
                Named(_scaled(one), label_of(one, with_rank=several_ranks), ink.role, dash=ink.dash)
                for one, ink in zip(listed, inks(listed, by_rank=False), strict=True)
            ]
            charts.append(_chart(name, title, lines, axes, detail))
    for split in splits:
        listed = [one for one in found if one.name == _SHARES and one.split == split]
        listed.sort(key=lambda one: (one.rank, _natural(one)))
        lines = [
            Named(_scaled(one), _class_label(one, several_ranks), f"series-{number % 8}")
            for number, one in enumerate(listed)
        ]
        if lines:
            charts.append(_chart(_SHARES, f"Share of each class · {split}", lines, axes, detail))
    return charts


def _class_label(one: Series, several_ranks: bool) -> str:
    return f"{one.attribute(CLASS)}" + (f" · rank {one.rank}" if several_ranks else "")


def _chart(name: str, title: str, lines: Sequence[Named], axes: Axes, detail: Detail) -> Chart:
    unit = "%" if name in _PERCENT else ""
    return chart(
        title, unit, lines, axes, detail, kind="machine", note=METRICS[name].description.replace(", 0 to 1", "")
    )


def _natural(one: Series) -> tuple[int, float, str]:
    """Order classes by number where they are numbers."""
    name = str(one.attribute(CLASS))
    try:
        return 0, float(name), name
    except ValueError:
        return 1, 0.0, name


def _scaled(one: Series) -> Series:
    if one.name not in _PERCENT:
        return one
    result = one.take(range(len(one.values)))
    for index, value in enumerate(result.values):
        result.values[index] = value * 100
    return result


# Kept samples --------------------------------------------------------------------------------------------------------


def kept_checks(run: Path) -> list[dict[str, Any]]:
    """Return for each split its first and its newest kept check, the parts of what their samples hold."""
    root = run.joinpath(*FOLDER)
    budget = [MOST_BYTES]
    result = []
    for place, folder in _splits(root):
        steps = sorted(
            (step, check) for check in _folders(folder) if (step := step_of(check)) is not None and _description(check)
        )
        if not steps:
            continue
        chosen = (
            [("First check", steps[0])] if len(steps) == 1 else [("First check", steps[0]), ("Newest check", steps[-1])]
        )
        checks = [_check(title, step, check, budget) for title, (step, check) in chosen]
        result.append({"title": place, "checks": checks, "kept": len(steps)})
    return result


def _splits(root: Path) -> list[tuple[str, Path]]:
    """Return the folders of splits, those of other ranks after rank 0's."""
    own, others = [], []
    for folder in _folders(root):
        if folder.name.startswith("rank-"):
            others += [(f"{inner.name} · {folder.name.replace('-', ' ')}", inner) for inner in _folders(folder)]
        else:
            own.append((folder.name, folder))
    order = {"train": 0, "val": 1, "test": 2}
    return sorted(own, key=lambda pair: (order.get(pair[0], 3), pair[0])) + others


def _folders(path: Path) -> list[Path]:
    try:
        return sorted(entry for entry in path.iterdir() if entry.is_dir())
    except OSError:
        return []


def _description(folder: Path) -> Mapping[str, Any]:
    """Return what was written of a check; nothing where it was cut short or damaged."""
    try:
        read = json.loads(read_regular(folder / DESCRIPTION))
    except (OSError, ValueError):
        return {}
    return read if isinstance(read, Mapping) else {}


def _check(title: str, step: int, folder: Path, budget: list[int]) -> dict[str, Any]:
    described = _description(folder)
    values = described.get("values")
    values = values if isinstance(values, Mapping) else {}
    kept = mappings(described.get("kept"))
    shown = [_sample(folder, entry, budget) for entry in kept[:MOST_SHOWN]]
    table = _table(folder, kept, budget) if described.get("kind") == "table" else None
    return {
        "title": f"{title} · step {step:,}",
        "facts": [[name.replace("_", " "), _fact(value)] for name, value in values.items() if name not in _HIDDEN],
        "samples": [] if table else shown,
        "table": table,
        "left_out": max(0, len(kept) - MOST_SHOWN) if not table else 0,
    }


_HIDDEN: Final = frozenset({"split", "step", "class_shares", "kind"})


def _fact(value: Any) -> str:
    if isinstance(value, list):
        return " … ".join(_fact(item) for item in value)
    return (
        text.short(float(value))
        if isinstance(value, int | float) and not isinstance(value, bool)
        else cut(str(value), 200)
    )


def _sample(folder: Path, entry: Mapping[str, Any], budget: list[int]) -> dict[str, Any]:
    """Return one sample: a picture as an address that holds it, else a text; and the words below it."""
    name = str(entry.get("file", ""))
    faults = entry.get("faults")
    sample: dict[str, Any] = {
        "caption": cut(" · ".join(part for part in (_labelled(entry), f"row {_fact(entry.get('row'))}") if part), 200),
        "faults": [cut(str(fault), 80) for fault in faults] if isinstance(faults, list) else [],
    }
    data = _read(folder, name, budget)
    if data is None:
        return {**sample, "missing": f"{cut(name, 80) or 'its file'} is not shown"}
    if data.startswith(_PNG):
        width, height = entry.get("width"), entry.get("height")
        picture = "data:image/png;base64," + base64.b64encode(data).decode()
        coarse = isinstance(width, int) and width < SMALL_SIDE
        return {**sample, "picture": picture, "size": f"{_fact(width)} x {_fact(height)}", "coarse": coarse}
    return {**sample, "text": cut(data.decode("utf-8", "replace"), MOST_TEXT) or "(empty)"}


def _labelled(entry: Mapping[str, Any]) -> str:
    label = entry.get("label")
    return "" if label is None else f"label {label}"


def _read(folder: Path, name: str, budget: list[int]) -> bytes | None:
    """Return a file's bytes; None for one that lies elsewhere, is gone, or has no room on the page."""
    path = folder / name
    if not name or Path(name).name != name or path.is_symlink():
        return None
    try:
        if path.stat().st_size > budget[0]:
            return None
        data = read_regular(path)
    except OSError:
        return None
    budget[0] -= len(data)
    return data


def _table(folder: Path, kept: Sequence[Mapping[str, Any]], budget: list[int]) -> dict[str, Any] | None:
    """Return the rows of a table, with the faults of each."""
    data = _read(folder, str(kept[0].get("file", "")) if kept else "", budget)
    if data is None:
        return None
    rows = list(csv.reader(io.StringIO(data.decode("utf-8", "replace"))))
    if not rows:
        return None
    faults = [", ".join(map(str, entry["faults"])) if isinstance(entry.get("faults"), list) else "" for entry in kept]
    body = [
        [*(cut(cell, 200) for cell in row[:MOST_COLUMNS]), fault]
        for row, fault in zip(rows[1 : MOST_ROWS + 1], faults, strict=False)
    ]
    return {"head": [*(cut(cell, 100) for cell in rows[0][:MOST_COLUMNS]), "faults"], "rows": body}
