"""Makes the page of a run in parts, each a mapping of its own, so that a page can show the first before the last.

All parts together, merged, are the page's data; `charts` of several parts are merged one level deeper.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from otel_train import __version__
from otel_train.view import facts, happenings, log_list, origins, overview, shards, text
from otel_train.view.axes import Axes
from otel_train.view.charts import Detail, metric_charts
from otel_train.view.checkpoint_places import placed
from otel_train.view.counting import points_by_kind
from otel_train.view.internals import NAMES, SHARED, internals
from otel_train.view.internals import SILENT as UNDRAWN
from otel_train.view.machine_charts import SILENT, machine_charts, time_shares
from otel_train.view.palette import PALETTE
from otel_train.view.run_data import RunData, listed
from otel_train.view.samples_section import NAMES as SAMPLES
from otel_train.view.samples_section import samples_section
from otel_train.view.series import Effective, Series, series_id
from otel_train.view.summary import At, Summary
from otel_train.view.timeline import timeline

DAMAGE_ROWS = 200
Part = dict[str, Any]


class Page:
    """What the parts of one run have in common, made once and when first asked for."""

    def __init__(self, run: RunData) -> None:
        self.run = run

    @cached_property
    def metrics(self) -> list[tuple[Effective, Summary]]:
        """The user's metrics, each with its numbers."""
        return self.run.metrics()

    @cached_property
    def axes(self) -> Axes:
        """The places of all points."""
        return self.run.axes()

    @cached_property
    def detail(self) -> Detail:
        """How finely lines are drawn."""
        silent = SILENT | UNDRAWN
        drawn = [
            item for item in self.run.series() if item.series.name not in silent and item.series.kind != "histogram"
        ]
        return Detail.for_series(len(drawn))

    @cached_property
    def others(self) -> list[Series]:
        """All series but the user's metrics."""
        return [item.series for item in self.run.series() if not item.series.name.startswith("train.")]


def _head(page: Page) -> Part:
    run = page.run
    used = {
        axis
        for axis, of_points in (("step", "has_steps"), ("epoch", "has_epochs"))
        if any(getattr(run.numbers(item.series), of_points) for item, _ in page.metrics)
    }
    return {
        "run_id": run.run_id,
        "name": run.name,
        "project": str(run.info.get("project") or ""),
        "tags": [facts.shown(tag) for tag in listed(run.info.get("tags"))],
        "notes": facts.shown(run.info.get("notes") or ""),
        "elapsed_s": overview.extent_s(run),
        "axes": [axis for axis in ("step", "time", "epoch") if axis in used or axis == "time"],
        "palette": PALETTE,
        "status": overview.status(run),
        "facts": overview.facts(run),
        "notices": overview.notices(run, page.metrics),
        "tiles": overview.tiles(page.metrics),
        "lineage": origins.lineage(run),
        "attempts": facts.attempts(run),
        "reasons": _reasons(run),
        "footer": f"Made by otel-train {__version__} at {text.moment(run.now_ns)} UTC from {run.path}. "
        "This file holds all of its data and asks the network for nothing.",
    }


def _metrics(page: Page) -> Part:
    return {
        "charts": {"metrics": metric_charts(page.metrics, page.axes, page.detail)},
        "summary": [summary_row(summary, item.series) for item, summary in page.metrics],
    }


def _machine(page: Page, detail: Detail | None = None) -> Part:
    machine = [series for series in page.others if series.name not in UNDRAWN | SAMPLES | (NAMES - SHARED)]
    charts = machine_charts(placed(machine, page.run.info), page.axes, detail or page.detail)
    return {"charts": charts, "shares": time_shares(page.others)}


def _inside(page: Page, detail: Detail | None = None) -> Part:
    run, others = page.run, page.others
    distributions = run.distributions.pictures(others, page.axes)
    events = happenings.happenings(run.happened, run.started_ns)
    ranks, spent = happenings.ranks(run, others), happenings.time_by_state(run, others)
    also = {
        *events,
        *(["model"] if distributions else []),
        *(["ranks"] if ranks else []),
        *(["speed"] if spent else []),
    }
    inside = internals(shards.joined(others), page.axes, detail or page.detail, also=also)
    return {
        "charts": inside.charts,
        "inside": inside.sections,
        "distributions": distributions,
        "happenings": events,
        "ranks": ranks,
        "time_by_state": spent,
        "time_not_counted": happenings.time_not_counted(run, others),
        "memory_facts": happenings.memory_facts(run, others),
    }


# In the order in which a reader wants them.
PARTS: Mapping[str, Callable[[Page], Part]] = {
    "head": _head,
    "metrics": _metrics,
    "machine": _machine,
    "inside": _inside,
    "samples": lambda page: {"samples": samples_section(page.run, page.others, page.axes, page.detail)},
    "timeline": lambda page: {"timeline": _timeline(page.run)},
    "logs": lambda page: {"logs": log_list.payload(page.run.logs, page.run.started_ns)},
    "config": lambda page: {"config": facts.configuration(page.run)},
    "environment": lambda page: {"environment": facts.environment(page.run)},
    "datasets": lambda page: {"datasets": facts.datasets(page.run)},
    "checkpoints": lambda page: {"checkpoints": facts.checkpoints(page.run), "origins": origins.chain(page.run)},
    "stages": lambda page: {"stages": facts.stages(page.run)},
    "run_log": lambda page: {"run_log": _run_log(page.run)},
}


def build_parts(run: RunData, names: Iterable[str] = PARTS) -> Part:
    """Return these parts of a run's page, merged; by default all. KeyError names a part that there is not."""
    page = Page(run)
    result: Part = {}
    charts: dict[str, Any] = {}
    for name in names:
        part = PARTS[name](page)
        charts |= part.pop("charts", {})
        result |= part
    return {**result, "charts": charts} if charts else result


def drawn_series(page: Page) -> dict[str, Series]:
    """Return by its id each series as it is drawn outside of the user's metrics: as a rate, in per cent, added up."""
    drawn: dict[str, Series] = {}
    coarse = Detail(0, 1, drawn)
    _machine(page, coarse)
    _inside(page, coarse)
    samples_section(page.run, page.others, page.axes, coarse)
    return drawn


def summary_row(summary: Summary, series: Series) -> dict[str, Any]:
    """Return one row of the table of numbers."""
    return {
        "id": series_id(series),
        "key": summary.key,
        "split": summary.split + (f" rank {series.rank}" if series.rank else ""),
        "unit": summary.unit,
        "last": _at(summary.last),
        "low": _at(summary.low),
        "high": _at(summary.high),
        "best": _at(summary.best),
        "mean": summary.mean,
        "points": summary.points,
        "nan": summary.bad.nan,
        "positive_infinity": summary.bad.positive_infinity,
        "negative_infinity": summary.bad.negative_infinity,
        "first_bad": summary.first_bad.place if summary.first_bad else "",
    }


def _at(point: At | None) -> dict[str, Any] | None:
    return None if point is None else {"value": point.value, "place": point.place}


def _timeline(run: RunData) -> dict[str, Any]:
    is_over = run.state not in ("running", "lost")
    ended = {
        int(attempt.get("attempt") or place)
        for place, attempt in enumerate(run.attempts, 1)
        if (is_over if place == len(run.attempts) else attempt.get("ended"))
    }
    return timeline(run.spans, run.started_ns, run.ends(), ended)


def _run_log(run: RunData) -> dict[str, Any]:
    rows = [
        [_relative(place.path, run.path), place.line, place.offset, place.reason] for place in run.damage[:DAMAGE_ROWS]
    ]
    return {
        "facts": [
            ["Folder", str(run.path)],
            ["Points read", _points_text(run)],
            ["Log records read", f"{run.logs.seen:,}"],
            ["Spans read", f"{len(run.spans) + run.spans_left_out:,}"],
            ["Damaged lines", f"{len(run.damage):,}"],
            ["Values that could not be read", f"{run.skipped:,}"],
            ["Dropped while recording", overview.dropped_text(run)],
        ],
        "damage": rows,
        "damage_left_out": max(0, len(run.damage) - DAMAGE_ROWS),
    }


def _points_text(run: RunData) -> str:
    metrics, steps, readings = points_by_kind(run)
    return (
        f"{run.store.points:,}: {metrics:,} of your metrics, {steps:,} of steps, phases and what was watched, "
        f"{readings:,} readings of the machine and of otel-train itself"
    )


def _relative(path: str, root: Path) -> str:
    with contextlib.suppress(ValueError):
        return Path(path).relative_to(root).as_posix()
    return path


def _reasons(run: RunData) -> dict[str, str]:
    """Return for each section what is said where it has nothing to show."""
    described = run.attempts[-1].get("environment") if run.attempts else None
    pending = "" if run.attempts else " run.json, which would hold it, is missing or damaged."
    machine = described.get("machine") if isinstance(described, dict) else None
    cards = machine.get("gpu") if isinstance(machine, dict) else None
    gpu = cards.get("unavailable") if isinstance(cards, dict) else None
    return {
        "metrics": "No metric was logged: call run.log({...}) in the loop.",
        "steps": "No step was timed: run.steps(...) around the loop's batches measures each step and its wait.",
        "system": "No reading of the machine was taken; a run shorter than the sampling interval may have none.",
        "gpu": "No GPU was seen" + (f": {gpu}" if gpu else " by this run."),
        "timeline": "No span was recorded: stages, epochs, sampled steps and checkpoints would be here.",
        "logs": "No log record was captured.",
        "configuration": "No configuration was given to init(config=...)." + pending,
        "environment": "The environment was not recorded." + pending,
        "datasets": "No data set was described with run.log_dataset(...)." + pending,
        "checkpoints": "No checkpoint was saved with run.save_checkpoint(...)." + pending,
        "stages": "No stage was opened with run.stage(...)." + pending,
        "damage": "Every line of the run log was read; none is damaged.",
    }
