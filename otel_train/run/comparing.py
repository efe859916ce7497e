"""Says what changed since the attempt that a resumed run goes on from: in run.json, in the log, and on the console."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from otel_train.record.entries import AttributeValue
    from otel_train.run.opening import Opened
    from otel_train.run.run import Run

_log = logging.getLogger("otel_train")


def compare(run: Run, environment: Mapping[str, Any]) -> None:
    """Say what differs from the earlier attempt, once the environment is known; {} where it could not be read."""
    opened = run.session.opened_now
    if opened is None or opened.former is None:
        return
    from otel_train.lineage.changes import changes

    attempts = [entry for entry in opened.former.get("attempts", []) if entry.get("attempt") == opened.resumed_from]
    if not attempts:
        return
    new = {"config": run.config.plain(), "environment": environment, "seed": run.session.seed}
    old = {key: attempts[0].get(key) for key in ("config", "environment", "seed")}
    _say(run, opened, changes(old, new))


def compare_dataset(run: Run, record: Mapping[str, Any]) -> None:
    """Say what differs in a data set that an earlier attempt recorded by the same name."""
    opened = run.session.opened_now
    if opened is None or opened.former is None:
        return
    from otel_train.lineage.changes import dataset_changes

    found = dataset_changes(opened.former.get("datasets") or (), [record])
    if found:
        _say(run, opened, found)


def _say(run: Run, opened: Opened, found: list[Any]) -> None:
    from otel_train.lineage.changes import summary

    run.session.file.extend_attempt("changes", found)
    body = summary(found)
    attributes: dict[str, AttributeValue] = {
        "resumed_from": opened.resumed_from or 0,
        "changes": [f"{entry['what']} {entry['key']}: {entry['old']} -> {entry['new']}" for entry in found[:100]],
    }
    run.events.emit("run.resumed", body, attributes)
    _log.info("attempt %d of run %s: %s", opened.attempt, opened.run_id, run.session.redactor.text(body))
