"""From a point in Prometheus through the shipped rules and Alertmanager to a webhook: once, soon, and resolved."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from otel_train.otlp.encode import LineEncoder
from otel_train.record.entries import LogEntry
from tests.stack.alerted_runs import Heartbeats, SentRun
from tests.stack.asking import get_json, post_json, wait_for
from tests.stack.servers import Alertmanager, Loki, Prometheus
from tests.stack.webhook import Webhook

LIMIT_S = 30.0


@pytest.fixture
def webhook() -> Iterator[Webhook]:
    """Somebody who is told."""
    made = Webhook()
    yield made
    made.close()


@pytest.fixture
def alertmanager(tmp_path: Path, run_server: Callable[..., Any], webhook: Webhook) -> Alertmanager:
    """The shipped Alertmanager, which tells the webhook."""
    folder = tmp_path / "alertmanager"
    server: Alertmanager = run_server(lambda: Alertmanager(folder, {"ALERT_WEBHOOK_URL": webhook.url}))
    return server


@pytest.fixture
def prometheus(tmp_path: Path, run_server: Callable[..., Any], alertmanager: Alertmanager) -> Prometheus:
    """The shipped Prometheus; every part that it scrapes is up, since all of them are Alertmanager here."""
    address = f"127.0.0.1:{alertmanager.port}"
    names = ("collector:8888", "alertmanager:9093", "loki:3100", "tempo:3200", "grafana:3000")
    server: Prometheus = run_server(lambda: Prometheus(tmp_path / "prometheus", dict.fromkeys(names, address)))
    return server


def told(webhook: Webhook, run_id: str, status: str) -> float:
    """Return when the only notification of this status about this run came; wait for the first one."""
    found = wait_for(
        f"{run_id} to be {status}",
        lambda: [one for one in webhook.notifications if one.document["status"] == status and about(one, run_id)],
        timeout_s=100.0,
    )
    assert len(found) == 1
    return found[0].received_s


def about(notification: Any, run_id: str) -> bool:
    """Whether a notification is about this run."""
    return any(alert["labels"].get("run_id") == run_id for alert in notification.alerts)


@pytest.mark.timeout(300)
def test_each_ill_run_is_told_once_and_when_it_is_well_again(webhook: Webhook, prometheus: Prometheus) -> None:
    """Plateau, overfit, NaN, stall and failure within 30 s; a healthy run and one with high thresholds never."""
    ill = {
        "plateau": {"dl__steps_since_improvement": 2100.0},
        "overfit": {"dl__overfit__gap": 0.4},
        "nonfinite": {"train__loss": float("nan")},
        "stalled": {"dl__step__age": 200.0},
    }
    # A hang is told before a stall, which then silences it: here each run has one thing to tell.
    runs = {name: SentRun(f"run-{name}", thresholds={"hung": 600}) for name in ill}
    healthy, failed = SentRun("run-healthy"), SentRun("run-failed")
    patient = SentRun("run-patient", thresholds={"plateau": 5000, "overfit": 1, "stalled": 600, "hung": 600})
    resumed = SentRun(failed.run_id, attempt=2, sends=False)
    everyone = [*runs.values(), healthy, failed, patient, resumed]
    beats = Heartbeats(prometheus.otlp_url, everyone)
    try:
        running = {"query": "count(run:running)"}
        wait_for(
            "all runs to run",
            lambda: [
                one
                for one in get_json(f"{prometheus.url}/api/v1/query", running)["data"]["result"]
                if one["value"][1] == "7"
            ],
        )
        assert webhook.notifications == []

        for name, run in runs.items():
            run.change(**ill[name])
        patient.change(**{key: value for name in ("plateau", "overfit", "stalled") for key, value in ill[name].items()})
        failed.end("failed")
        first = {run.run_id: told(webhook, run.run_id, "firing") - run.changed_s for run in (*runs.values(), failed)}
        assert {run_id: seconds for run_id, seconds in first.items() if not 0 < seconds < LIMIT_S} == {}

        for run in runs.values():
            run.now = dict(healthy.now)
        resumed.sends = True
        for run in (*runs.values(), failed):
            told(webhook, run.run_id, "resolved")
    finally:
        beats.close()
    assert beats.faults == []
    conditions = {
        run_id: {alert["labels"]["condition"] for alert in webhook.alerts(run_id)}
        for run_id in (run.run_id for run in everyone)
    }
    expected = {run.run_id: {name} for name, run in runs.items()}
    assert conditions == {**expected, "run-failed": {"failed"}, "run-healthy": set(), "run-patient": set()}
    for run_id in first:
        assert [alert["status"] for alert in webhook.alerts(run_id)] == ["firing", "resolved"]
    _is_complete(webhook.alerts("run-plateau", "firing")[0])


def _is_complete(alert: dict[str, Any]) -> None:
    """What a person or a program is told of a run's alert."""
    assert alert["labels"] == {
        "alertname": "RunPlateau",
        "condition": "plateau",
        "severity": "warning",
        "project": "alerted",
        "run_id": "run-plateau",
        "run_name": "name of run-plateau",
    }
    notes = alert["annotations"]
    assert (notes["value"], notes["threshold"]) == ("2100 steps", "2000 steps")
    assert notes["summary"].endswith(": name of run-plateau")
    link = urlsplit(notes["dashboard"])
    asked = {name: values[0] for name, values in parse_qs(link.query).items()}
    began_ms = datetime.fromisoformat(alert["startsAt"]).timestamp() * 1000
    assert (link.netloc, link.path, asked["var-run_id"]) == ("localhost:3000", "/d/otel-train-run", "run-plateau")
    assert int(asked["from"]) == pytest.approx(began_ms - 1_800_000, abs=6000)
    assert int(asked["to"]) == pytest.approx(began_ms + 600_000, abs=6000)
    (panes,) = parse_qs(urlsplit(notes["logs"]).query)["panes"]
    assert r"{service_name=\"alerted\"} | run_id=\"run-plateau\"" in panes


def post_alerts(alertmanager: Alertmanager, *alerts: dict[str, str]) -> None:
    """Hand alerts with these labels to Alertmanager, as Prometheus does."""
    until = (datetime.now(UTC) + timedelta(minutes=5)).isoformat()
    body = [{"labels": {"alertname": labels["condition"], **labels}, "endsAt": until} for labels in alerts]
    status, answer = post_json(f"{alertmanager.url}/api/v2/alerts", json.dumps(body))
    assert status == 200, answer


@pytest.mark.parametrize(
    ("cause", "consequences", "others"),
    [
        (
            {"condition": "lost", "run_id": "r"},
            [{"condition": "stalled", "run_id": "r"}, {"condition": "gpu_idle", "run_id": "r", "host_name": "a"}],
            [{"condition": "stalled", "run_id": "other"}, {"condition": "out_of_memory", "run_id": "r"}],
        ),
        (
            {"condition": "failed", "run_id": "r"},
            [{"condition": "lost", "run_id": "r"}, {"condition": "nonfinite", "run_id": "r"}],
            [{"condition": "lost", "run_id": "other"}],
        ),
        (
            {"condition": "nonfinite", "run_id": "r"},
            [{"condition": "overfit", "run_id": "r"}, {"condition": "gradient_exploding", "run_id": "r"}],
            [{"condition": "data_wait", "run_id": "r"}],
        ),
        (
            {"condition": "gpu_hot", "run_id": "r", "host_name": "a", "hw_id": "GPU-1"},
            [{"condition": "gpu_throttled", "run_id": "r", "host_name": "a", "hw_id": "GPU-1"}],
            [{"condition": "gpu_throttled", "run_id": "r", "host_name": "a", "hw_id": "GPU-2"}],
        ),
        (
            {"condition": "part_down", "part": "collector"},
            [{"condition": "lost", "run_id": "r"}, {"condition": "stalled", "run_id": "r"}],
            [{"condition": "failed", "run_id": "other"}, {"condition": "queue_filling", "part": "loki"}],
        ),
        (
            {"condition": "part_down", "part": "loki"},
            [{"condition": "queue_filling", "part": "loki"}, {"condition": "data_refused", "part": "loki"}],
            [{"condition": "queue_filling", "part": "tempo"}, {"condition": "lost", "run_id": "r"}],
        ),
    ],
    ids=lambda value: value["condition"] if isinstance(value, dict) else "",
)
def test_a_cause_silences_what_follows_from_it(
    cause: dict[str, str],
    consequences: list[dict[str, str]],
    others: list[dict[str, str]],
    webhook: Webhook,
    alertmanager: Alertmanager,
) -> None:
    """Consequences of the same run, card or part are not told; what has nothing to do with it is."""
    post_alerts(alertmanager, cause)
    wait_for("the cause to be told", lambda: webhook.notifications)
    post_alerts(alertmanager, cause, *consequences, *others)

    def seen() -> list[dict[str, str]]:
        alerts = [alert["labels"] for one in webhook.notifications for alert in one.alerts]
        return [{name: text for name, text in labels.items() if name != "alertname"} for labels in alerts]

    wait_for("the others to be told", lambda: all(other in seen() for other in others))
    time.sleep(2.5)  # twice the time for which Alertmanager collects a group: what comes would have come
    assert [labels for labels in seen() if labels in consequences] == []


def test_alerts_of_one_run_come_together(webhook: Webhook, alertmanager: Alertmanager) -> None:
    """Two conditions of a run are one notification; another run's, and a part's, are others."""
    alerts = [
        {"condition": "overfit", "run_id": "r"},
        {"condition": "data_wait", "run_id": "r"},
        {"condition": "overfit", "run_id": "other"},
        {"condition": "queue_filling", "part": "loki"},
    ]
    post_alerts(alertmanager, *alerts)
    wait_for("three notifications", lambda: len(webhook.notifications) >= 3)
    groups = [sorted(alert["labels"]["condition"] for alert in one.alerts) for one in webhook.notifications]
    assert sorted(groups) == [["data_wait", "overfit"], ["overfit"], ["queue_filling"]]


@pytest.mark.parametrize("event", ["out_of_memory", "data_loading"])
def test_an_event_in_the_logs_is_told_by_loki(
    event: str, tmp_path: Path, run_server: Callable[..., Any], webhook: Webhook, alertmanager: Alertmanager
) -> None:
    """Loki's ruler finds the event of a run by itself; other events of the same run are no reason."""
    loki: Loki = run_server(lambda: Loki(tmp_path / "loki", alertmanager.url))
    resource = {"service.name": "alerted", "run_id": "run-logged", "run_name": "brave fox"}
    encoder = LineEncoder({**resource, "service.instance.id": "i"}, "0.1.0")
    entries = [
        LogEntry(
            time_ns=time.time_ns(),
            severity_number=17,
            severity_text="ERROR",
            body=name,
            event_name=name,
            attributes={"event.name": name},
        )
        for name in (f"health.{event}", "model.best")
    ]
    status, answer = post_json(f"{loki.otlp_url}/v1/logs", encoder.logs(entries))
    assert status in (200, 204), answer
    alert = wait_for("the event to be told", lambda: webhook.alerts("run-logged"), timeout_s=60.0)[0]
    names = {"out_of_memory": "RunOutOfMemory", "data_loading": "RunDataLoadingFailed"}
    assert alert["labels"] == {
        "alertname": names[event],
        "condition": event,
        "severity": "critical",
        "project": "alerted",
        "run_id": "run-logged",
        "run_name": "brave fox",
    }
    notes = alert["annotations"]
    assert notes["value"] == "1"
    assert notes["dashboard"] == "http://localhost:3000/d/otel-train-run?var-run_id=run-logged&from=now-1h&to=now"
    (panes,) = parse_qs(urlsplit(notes["logs"]).query)["panes"]
    assert r"{service_name=\"alerted\"} | run_id=\"run-logged\"" in panes
