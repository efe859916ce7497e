"""Builds what run.json says of a new run and of each attempt at its start."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from otel_train.clock import iso
from otel_train.lineage.project import default_run_name
from otel_train.runlog.processes import Processes

if TYPE_CHECKING:
    from opentelemetry.trace import SpanContext

    from otel_train.config import Settings
    from otel_train.lineage.ranks import Ranks
    from otel_train.lineage.redact import Redactor
    from otel_train.run.opening import Opened


def new_document(
    run_id: str, settings: Settings, *, name: str, project: str, start_ns: int, redactor: Redactor
) -> dict[str, Any]:
    """Return run.json of a new run."""
    return {
        "run_id": run_id,
        "run_name": redactor.text(name or default_run_name(run_id)),
        "project": project,
        "group": settings["group"],
        "tags": [redactor.text(tag) for tag in settings["tags"]],
        "notes": redactor.text(settings["notes"] or ""),
        "created": iso(start_ns),
        "status": "running",
        "attempts": [],
        "datasets": [],
        "checkpoints": [],
        "stages": [],
    }


def new_entry(
    opened: Opened, *, ranks: Ranks, start_ns: int, config: Mapping[str, Any], seed: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Return this attempt's entry of run.json."""
    processes = Processes()
    pid = os.getpid()
    cgroup = processes.cgroup()
    return {
        "attempt": opened.attempt,
        "started": iso(start_ns),
        "ended": None,
        "status": "running",
        "exit_code": None,
        "reason": None,
        "host": processes.host(),
        "pid": pid,
        "process_start": processes.started(pid),
        "boot_id": processes.boot_id(),
        "cgroup": cgroup,
        "oom_kill_at_start": processes.oom_kills(cgroup),
        "world_size": ranks.world_size,
        "launcher": ranks.launcher,
        "launch_key": ranks.launch_key,
        "resumed_from": opened.resumed_from,
        "changes": [],
        "config": config,
        "environment": {},
        "seed": seed,
    }


def trace_entry(own: SpanContext, above: SpanContext | None) -> dict[str, Any]:
    """Return the place of the span that stands for the run, and of the one above it, for the attempt's entry."""
    entry: dict[str, Any] = {"trace_id": f"{own.trace_id:032x}", "span_id": f"{own.span_id:016x}"}
    if above is not None:
        entry["parent"] = {"trace_id": f"{above.trace_id:032x}", "span_id": f"{above.span_id:016x}"}
    return entry
