"""Makes the page of a run: one HTML file with everything in it, written beside the run or where the user says."""

from __future__ import annotations

import contextlib
import importlib
import os
from pathlib import Path
from typing import Any

from otel_train import __version__
from otel_train.view import facts, happenings, log_list, overview, shards, text
from otel_train.view.charts import Detail, metric_charts
from otel_train.view.internals import NAMES, SHARED, internals
from otel_train.view.internals import SILENT as UNDRAWN
from otel_train.view.machine_charts import SILENT, machine_charts, time_shares
from otel_train.view.page import render
from otel_train.view.palette import PALETTE
from otel_train.view.run_data import RunData
from otel_train.view.samples_section import NAMES as SAMPLES
from otel_train.view.samples_section import samples_section
from otel_train.view.summary import At, Summary
from otel_train.view.timeline import timeline

DAMAGE_ROWS = 200


class MissingPlotlyError(Exception):
    """The plotly package, which ships the script that draws, is not installed."""


def plotly_script() -> str:
    """Return plotly's own script from its package."""
    try:
        offline = importlib.import_module("plotly.offline")
    except ImportError as fault:
        raise MissingPlotlyError("the report needs plotly: pip install 'otel-train[view]'") from fault
    return str(offline.get_plotlyjs())


def build(run: RunData) -> dict[str, Any]:
    """Return all that the page shows, as plain data."""
    metrics = run.metrics()
    axes = run.axes()
    drawn = [
        item for item in run.series() if item.series.name not in SILENT | UNDRAWN and item.series.kind != "histogram"
    ]
    detail = Detail.for_series(len(drawn))
    others = [item.series for item in run.series() if not item.series.name.startswith("train.")]
    machine = [series for series in others if series.name not in UNDRAWN | SAMPLES | (NAMES - SHARED)]
    distributions = run.distributions.pictures(others, axes)
    events = happenings.happenings(run.happened, run.started_ns)
    ranks, spent = happenings.ranks(run, others), happenings.time_by_state(others)
    also = {
        *events,
        *(["model"] if distributions else []),
        *(["ranks"] if ranks else []),
        *(["speed"] if spent else []),
    }
    inside = internals(shards.joined(others), axes, detail, also=also)
    charts: dict[str, Any] = {
        "metrics": metric_charts(metrics, axes, detail),
        **machine_charts(machine, axes, detail),
        **inside.charts,
    }
    used = {axis for chart in charts["metrics"] for line in chart["lines"] for axis in line["x"]}
    return {
        "run_id": run.run_id,
        "name": run.name,
        "project": str(run.info.get("project") or ""),
        "tags": [facts.shown(tag) for tag in run.info.get("tags") or []],
        "notes": facts.shown(run.info.get("notes") or ""),
        "elapsed_s": overview.elapsed_s(run),
        "axes": [axis for axis in ("step", "time", "epoch") if axis in used or axis == "time"],
        "palette": PALETTE,
        "status": overview.status(run),
        "facts": overview.facts(run),
        "notices": overview.notices(run, metrics),
        "tiles": overview.tiles(metrics),
        "charts": charts,
        "summary": [_summary_row(summary, item.series.rank) for item, summary in metrics],
        "shares": time_shares(others),
        "inside": inside.sections,
        "distributions": distributions,
        "happenings": events,
        "ranks": ranks,
        "time_by_state": spent,
        "memory_facts": happenings.memory_facts(run, others),
        "samples": samples_section(run, others, axes, detail),
        "timeline": timeline(run.spans, run.started_ns, run.ends()),
        "logs": log_list.payload(run.logs, run.started_ns),
        "config": facts.configuration(run),
        "environment": facts.environment(run),
        "datasets": facts.datasets(run),
        "checkpoints": facts.checkpoints(run),
        "stages": facts.stages(run),
        "attempts": facts.attempts(run),
        "run_log": _run_log(run),
        "reasons": _reasons(run),
        "footer": f"Made by otel-train {__version__} at {text.moment(run.now_ns)} UTC from {run.path}. "
        "This file holds all of its data and asks the network for nothing.",
    }


def _summary_row(summary: Summary, rank: int) -> dict[str, Any]:
    return {
        "key": summary.key,
        "split": summary.split + (f" rank {rank}" if rank else ""),
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


def _run_log(run: RunData) -> dict[str, Any]:
    rows = [
        [_relative(place.path, run.path), place.line, place.offset, place.reason] for place in run.damage[:DAMAGE_ROWS]
    ]
    return {
        "facts": [
            ["Folder", str(run.path)],
            ["Points read", f"{run.store.points:,}"],
            ["Log records read", f"{run.logs.seen:,}"],
            ["Spans read", f"{len(run.spans) + run.spans_left_out:,}"],
            ["Damaged lines", f"{len(run.damage):,}"],
            ["Values that could not be read", f"{run.skipped:,}"],
            ["Dropped while recording", overview.dropped_text(run)],
        ],
        "damage": rows,
        "damage_left_out": max(0, len(run.damage) - DAMAGE_ROWS),
    }


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


def write(run: RunData, target: Path | None = None) -> Path:
    """Write the page and return its path, by default ``<run>/artifacts/report.html``; OSError where that fails.

    The file appears whole or not at all, also beside a run that is being written.
    """
    script = plotly_script()
    page = render(build(run), f"{run.name} · {run.state} · otel-train", script)
    path = target if target is not None else run.path / "artifacts" / "report.html"
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(page, encoding="utf-8", newline="\n")
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    return path
