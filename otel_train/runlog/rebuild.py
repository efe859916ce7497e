"""Describes a run by its lines alone, for where run.json is missing or damaged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from otel_train.clock import iso
from otel_train.semconv import HOST_NAME, PROCESS_PID, RUN_ATTEMPT, RUN_ID, RUN_NAME, SERVICE_NAME, WORLD_SIZE

if TYPE_CHECKING:
    from otel_train.runlog.reader import RunReader

ENDED = ("finished", "failed", "interrupted", "killed")


def rebuild_info(reader: RunReader) -> dict[str, Any]:
    """Return what run.json would say, as far as resources and events tell it; ``"rebuilt"`` is true."""
    info: dict[str, Any] = {
        "format": 1,
        "rebuilt": True,
        "run_id": reader.path.name,
        "run_name": "",
        "project": "",
        "group": "",
        "tags": [],
        "notes": "",
        "created": "",
        "status": "running",
        "attempts": [],
        "datasets": [],
        "checkpoints": [],
        "stages": [],
        "metrics": {},
        "summary": {},
    }
    for number in reader.folder.attempts():
        attempt = _rebuild_attempt(reader, number, info)
        info["attempts"].append(attempt)
        info["status"] = attempt["status"]
    if info["attempts"]:
        info["created"] = info["attempts"][0]["started"]
    return info


def _rebuild_attempt(reader: RunReader, number: int, info: dict[str, Any]) -> dict[str, Any]:
    attempt: dict[str, Any] = {"attempt": number, "started": "", "ended": None, "status": "running", "exit_code": None}
    attempt |= {"reason": "", "config": {}, "environment": {}, "world_size": len(reader.folder.ranks(number)) or 1}
    first_ns = 0
    ranks = reader.folder.ranks(number)
    rank = ranks[0] if ranks else 0
    for entry, context in reader.logs(number, rank):
        _take_resource(context.resource, attempt, info)
        if entry.time_ns and (not first_ns or entry.time_ns < first_ns):
            first_ns = entry.time_ns
        body = entry.body if isinstance(entry.body, dict) else {}
        if entry.event_name == "run.config":
            attempt["config"] = body
        elif entry.event_name == "run.environment":
            attempt["environment"] = body
        elif entry.event_name == "dataset.described" and body:
            info["datasets"].append(body)
        elif entry.event_name == "checkpoint.saved" and body:
            info["checkpoints"].append(body)
        elif entry.event_name == "run.end":
            attempt |= end_of(entry.attributes) | {"ended": iso(entry.time_ns)}
    if not first_ns:
        for point, context in reader.points(number, rank):
            _take_resource(context.resource, attempt, info)
            first_ns = point.time_ns
            break
    attempt["started"] = iso(first_ns) if first_ns else ""
    return attempt


def end_of(attributes: Any) -> dict[str, Any]:
    """Return status, reason and exit code of a `run.end` event."""
    status = attributes.get("status")
    return {
        "status": status if status in ENDED else "finished",
        "reason": str(attributes.get("reason", "")),
        "exit_code": attributes.get("exit_code"),
    }


def _take_resource(resource: dict[str, Any], attempt: dict[str, Any], info: dict[str, Any]) -> None:
    info["run_id"] = resource.get(RUN_ID, info["run_id"])
    info["run_name"] = resource.get(RUN_NAME, info["run_name"])
    info["project"] = resource.get(SERVICE_NAME, info["project"])
    attempt["attempt"] = resource.get(RUN_ATTEMPT, attempt["attempt"])
    attempt["world_size"] = resource.get(WORLD_SIZE, attempt["world_size"])
    if HOST_NAME in resource:
        attempt["host"] = resource[HOST_NAME]
    if PROCESS_PID in resource:
        attempt["pid"] = resource[PROCESS_PID]
