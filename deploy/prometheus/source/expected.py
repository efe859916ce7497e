"""Says which labels an alert must have, so that tests compare all of them."""

from __future__ import annotations

from deploy.prometheus.source.run_alerts import CARD, HOST, RANK, SUBJECT, alert_name
from deploy.prometheus.source.scenario import Run
from otel_train.watch.conditions import CONDITIONS

GPU = {"hw_id": "GPU-1", "hw_name": "H200", "physical_index": "0", "index": "0"}


def labels_of(condition: str, run: Run) -> dict[str, str]:
    """Return the labels of a run's alert: its subject's, and what the rule adds."""
    subject = SUBJECT.get(condition, ())
    found = {
        "alertname": alert_name(condition),
        "condition": condition,
        "severity": CONDITIONS[condition].severity,
        "project": run.labels["service_name"],
        "run_id": run.run_id,
        "run_name": run.labels["run_name"],
    }
    if subject in (HOST, RANK, CARD):
        found["host_name"] = run.host
    if subject == RANK:
        found["dl_rank"] = str(run.rank)
    if subject == CARD:
        found |= {label: GPU[label] for label in ("hw_id", "hw_name", "physical_index")}
    return found
