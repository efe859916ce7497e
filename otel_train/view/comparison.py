"""Compares runs: curves on common axes, what they were made of, what came out, and the values to place them by."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from otel_train.errors import OtelTrainError
from otel_train.view import comparison_code, comparison_runs, comparison_settings
from otel_train.view.comparison_cells import flat
from otel_train.view.comparison_curves import ComparedRun, curves, warnings
from otel_train.view.comparison_frame import common, digest, notice
from otel_train.view.comparison_results import columns, results
from otel_train.view.comparison_rows import compare_rows, revision_of_rows
from otel_train.view.comparison_runs import id_of
from otel_train.view.run_data import RunData

if TYPE_CHECKING:
    from otel_train.view.index_row import IndexRow

# Above this many runs, curves are a thicket: the tables and the scatter remain, out of the index.
MOST_CURVES = 40
MOST_RUNS = 1_000

Payload = dict[str, Any]


def asked(
    ids: Sequence[str],
    opened: Callable[[str], AbstractContextManager[RunData]],
    row: Callable[[str], IndexRow | None] | None = None,
    *,
    base: str = "",
    revision: str = "",
) -> Payload:
    """Return the comparison of the runs with these ids, those that are not there named in `missing`.

    `opened` gives a run while it is compared, and raises OtelTrainError or OSError where it cannot be read. With more
    than `MOST_CURVES` ids, `row` gives what the index knows and nothing is read. A `revision` that is still the
    present one is answered by itself, with `unchanged`.
    """
    wanted = list(dict.fromkeys(name for name in (one.strip() for one in ids) if name))
    notices = []
    if len(wanted) < sum(1 for one in ids if one.strip()):
        notices.append(notice("info", "A run that was named twice is compared once."))
    if len(wanted) > MOST_RUNS:
        notices.append(notice("warn", f"Only the first {MOST_RUNS:,} of {len(wanted):,} runs are compared."))
        wanted = wanted[:MOST_RUNS]
    missing: dict[str, str] = {}
    if len(wanted) > MOST_CURVES and row is not None:
        rows = {name: row(name) for name in wanted}
        missing = {name: "There is no such run in this folder." for name, found in rows.items() if found is None}
        listed = [found for found in rows.values() if found is not None]
        notices.append(notice("info", f"Curves are drawn of up to {MOST_CURVES} runs; tables and scatter are of all."))
        made = revision_of_rows(listed)
        if revision and revision == made:
            return {"revision": made, "unchanged": True}
        return _with(compare_rows(listed, missing=missing, base=base), notices)
    if len(wanted) > MOST_CURVES:
        notices.append(notice("warn", f"Only the first {MOST_CURVES} of {len(wanted):,} runs are compared."))
        wanted = wanted[:MOST_CURVES]
    runs: dict[str, RunData] = {}
    with contextlib.ExitStack() as stack:
        # Always in one order, so that two comparisons of the same runs do not wait for each other for ever.
        for name in sorted(wanted):
            try:
                runs[name] = stack.enter_context(opened(name))
            except (OtelTrainError, OSError) as fault:
                missing[name] = _message(fault)
        present = [runs[name] for name in wanted if name in runs]
        made = revision_of(present)
        if revision and revision == made:
            return {"revision": made, "unchanged": True}
        in_order = {name: missing[name] for name in wanted if name in missing}
        return _with(compare(present, missing=in_order, base=base), notices)


def _message(fault: Exception) -> str:
    if isinstance(fault, OSError):
        return f"It cannot be read: {fault.strerror or fault}."
    return str(fault)


def _with(payload: Payload, notices: Sequence[dict[str, str]]) -> Payload:
    payload["notices"] = [*notices, *payload["notices"]]
    return payload


def compare(runs: Sequence[RunData], *, missing: Mapping[str, str] | None = None, base: str = "") -> Payload:
    """Return all that the page of a comparison shows, as plain data, in the order of `runs`.

    `base` is the id of the run that others are compared with, by default the first.
    """
    once = list({id_of(run): run for run in runs}.values())
    names = comparison_runs.labels([(id_of(run), run.name) for run in once])
    roles = comparison_runs.roles(id_of(run) for run in once)
    compared = [
        ComparedRun.of(run, name, roles[id_of(run)], number)
        for number, (run, name) in enumerate(zip(once, names, strict=True), 1)
    ]
    described = [
        comparison_runs.described(one.run)
        | {"name": one.run.name, "label": one.label, "role": one.role, "number": one.number}
        for one in compared
    ]
    place = next((place for place, run in enumerate(once) if id_of(run) == base), 0)
    charts = curves(compared)
    rows = results(compared)
    codes = comparison_code.codes(once)
    used = {axis for chart in charts["metrics"] for line in chart["lines"] for axis in line["x"]}
    return {
        **common(described, missing or {}, place),
        "revision": revision_of(once),
        "notices": _notices(compared, described, rows, missing or {}, base),
        "axes": [axis for axis in ("step", "time", "clock", "epoch") if axis in used or axis in ("time", "clock")],
        "charts": charts,
        "configuration": comparison_settings.configuration(once),
        "environment": comparison_settings.environment(once),
        "command": comparison_settings.command(once),
        "packages": comparison_settings.packages(once),
        "datasets": comparison_settings.datasets(once),
        "code": comparison_code.code(codes),
        "patches": comparison_code.patches(codes, place),
        "results": {"rows": rows},
        "columns": columns([_newest_configuration(run) for run in once], rows, described),
    }


def _newest_configuration(run: RunData) -> dict[str, object]:
    given = [attempt["config"] for attempt in run.attempts if isinstance(attempt.get("config"), Mapping)]
    return flat(given[-1]) if given else {}


def _notices(
    compared: Sequence[ComparedRun],
    described: Sequence[Mapping[str, Any]],
    rows: Sequence[Mapping[str, Any]],
    missing: Mapping[str, str],
    base: str,
) -> list[dict[str, str]]:
    found = []
    if base and base not in missing and all(id_of(one.run) != base for one in compared):
        found.append(notice("warn", f"The base {base} is none of the compared runs; the first one is the base."))
    projects = {str(one["project"]) for one in described}
    if len(projects) > 1:
        listed = "; ".join(f"{one['label']}: {one['project'] or 'none'}" for one in described[:6])
        found.append(notice("info", f"The runs are of different projects ({listed})."))
    found.extend(notice("warn", words) for words in warnings(compared))
    for one in compared:
        if one.run.damage:
            count = len(one.run.damage)
            lines = "1 line is" if count == 1 else f"{count:,} lines are"
            found.append(notice("warn", f"{one.label}: {lines} damaged and left out here."))
    for row in rows:
        goals = {pair[1].goal for one in compared for pair in one.metrics.values() if pair[1].key == row["metric"]}
        if {"min", "max"} <= goals:
            text_of = f"The runs do not agree whether {row['key']} is better low or high; none is marked as the best."
            found.append(notice("warn", text_of))
    return found


def revision_of(runs: Sequence[RunData]) -> str:
    """Return a text that changes when one of the runs does: points, attempts, state, description."""
    described = ("datasets", "checkpoints", "stages", "tags")
    return digest(
        [
            [id_of(run), run.state, run.store.points, run.last_ns, len(run.damage), len(run.attempts)]
            + [len(listed) if isinstance(listed := run.info.get(key), list) else 0 for key in described]
            for run in runs
        ]
    )
