"""Alert and recording rules: they come from the tables, name only what is sent, and do what each is there for."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.prometheus.source.__main__ import files
from deploy.prometheus.source.alert import Alert
from deploy.prometheus.source.log_alerts import log_alerts
from deploy.prometheus.source.pipeline_alerts import PARTS, pipeline_alerts
from deploy.prometheus.source.rollups import rollup_rules
from deploy.prometheus.source.run_alerts import facts, run_alerts
from otel_train.otlp.prometheus_names import known_name, label_name
from otel_train.semconv import EVENTS, METRICS
from otel_train.watch.conditions import CONDITIONS
from tests.stack.programs import find, why_missing

REPOSITORY = Path(__file__).parents[1]
FOLDER = REPOSITORY / "deploy" / "prometheus"
TESTS = sorted((FOLDER / "tests").glob("*.yaml"))
ALERTS = [*run_alerts(), *pipeline_alerts(), *log_alerts()]


def promtool(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run promtool; the test is left out where it is missing."""
    program = find("promtool")
    if program is None:
        pytest.skip(why_missing("promtool"))
    return subprocess.run([program, *arguments], capture_output=True, text=True, check=False, timeout=900)


def configuration() -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((FOLDER / "prometheus.yml").read_text(encoding="utf-8"))
    return document


def test_committed_files_are_those_of_the_tables() -> None:
    """`make rules` would change nothing: rules, their tests and the runbook are what the tables say."""
    for name, text in files().items():
        assert (REPOSITORY / name).read_text(encoding="utf-8") == text, f"run `make rules`: {name}"
    generated = {name for name in files() if name.startswith("deploy/prometheus/rules/")}
    assert {f"deploy/prometheus/rules/{path.name}" for path in (FOLDER / "rules").iterdir()} == generated


def test_each_condition_has_an_alert_with_its_severity() -> None:
    """Whatever writes an event in the run log also reaches people, at the same severity."""
    assert {alert.condition: alert.severity for alert in run_alerts()} == {
        name: condition.severity for name, condition in CONDITIONS.items()
    }
    told = {name for alert in log_alerts() for name in re.findall(r'event_name="([^"]+)"', alert.expr)}
    assert told == {"health.out_of_memory", "health.data_loading", "data.worker_died", "rank.lost"}
    assert told <= set(EVENTS)
    assert len({alert.condition for alert in ALERTS}) == len(ALERTS)


def test_that_a_condition_is_over_is_no_alert() -> None:
    """Onset and end are told by the same event, the end with `cleared`."""
    for alert in log_alerts():
        assert '| cleared!="true"' in alert.expr


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_an_alert_says_what_people_need(alert: Alert) -> None:
    """Severity, summary, description, value, dashboard and the runbook's anchor; for a run its logs and its project."""
    rule = alert.rule()
    about_a_run = "run_id" in rule["expr"]
    needed = {"summary", "description", "value", "dashboard", "runbook"} | ({"logs"} if about_a_run else set())
    assert needed <= set(rule["annotations"])
    assert all(rule["annotations"][name].strip() for name in needed)
    assert rule["labels"]["severity"] in ("critical", "warning", "info")
    assert rule["annotations"]["runbook"] == f"docs/runbook.md#{alert.condition}"
    assert ("project" in rule["labels"]) == about_a_run
    assert alert.look_at
    assert alert.remedies


def test_the_runbook_has_a_chapter_for_each_alert() -> None:
    """Each annotation's anchor is a heading, once, and says what to look at and what to do."""
    text = (REPOSITORY / "docs" / "runbook.md").read_text(encoding="utf-8")
    chapters = re.split(r"^### ", text, flags=re.MULTILINE)[1:]
    assert [chapter.split("\n")[0] for chapter in chapters] == [
        alert.condition for alert in (*run_alerts(), *log_alerts(), *pipeline_alerts())
    ]
    for chapter in chapters:
        for part in ("*When:*", "*What it means:*", "*What to look at:*\n\n- ", "*What to do:*\n\n- "):
            assert part in chapter


def test_names_in_rules_are_those_that_are_sent() -> None:
    """A metric that is renamed in the table of names would leave a rule that never fires."""
    expressions = [rule.expr for rule in (*run_alerts(), *facts(), *rollup_rules())]
    used = set(re.findall(r"\b(?:dl|hw|system|otel_train)_[a-z0-9_]+(?=[{\[ )*]|$)", "\n".join(expressions)))
    labels = {label_name(name) for metric in METRICS.values() for name in metric.attributes}
    labels |= set(map(label_name, configuration()["otlp"]["promote_resource_attributes"]))
    # Arrives from Megatron by the Collector's mapping.
    known = {known_name(name) for name in METRICS} | {"dl_grad_norm"}
    assert len(used - labels) > 15
    assert used - labels - known == set()


def test_labels_in_rules_are_those_that_prometheus_promotes() -> None:
    """What rules group by is an attribute of the metric, or a resource attribute that becomes a label."""
    promoted = set(map(label_name, configuration()["otlp"]["promote_resource_attributes"]))
    attributes = {label_name(name) for metric in METRICS.values() for name in metric.attributes}
    grouped = {
        label.strip()
        for rule in (*run_alerts(), *facts(), *rollup_rules())
        for group in re.findall(r"\b(?:by|on) \(([^)]*)\)", rule.expr)
        for label in group.split(",")
    }
    assert {"run_id", "dl_rank", "host_name"} <= grouped
    assert grouped - promoted - attributes - {""} == set()


def test_prometheus_scrapes_each_part_and_tells_alertmanager() -> None:
    """Alerts about parts name the jobs that there are; the address of Grafana does not become a label of alerts."""
    found = configuration()
    jobs = {job["job_name"]: job for job in found["scrape_configs"]}
    assert set(jobs) == {*PARTS, "machines"}
    targets = {name: job["static_configs"][0]["targets"] for name, job in jobs.items() if "static_configs" in job}
    assert targets == {
        "collector": ["collector:8888"],
        "prometheus": ["localhost:9090"],
        "alertmanager": ["alertmanager:9093"],
        "loki": ["loki:3100"],
        "tempo": ["tempo:3200"],
        "grafana": ["grafana:3000"],
    }
    assert found["alerting"]["alertmanagers"] == [{"static_configs": [{"targets": ["alertmanager:9093"]}]}]
    assert found["alerting"]["alert_relabel_configs"] == [{"action": "labeldrop", "regex": "grafana_url"}]
    assert found["storage"]["tsdb"]["out_of_order_time_window"] == "31d"


def test_rules_are_evaluated_soon_enough() -> None:
    """15 s for a heartbeat, the rule's interval, Alertmanager's wait and 5 s for the way are less than 30 s."""
    groups = yaml.safe_load((FOLDER / "rules" / "runs.yaml").read_text(encoding="utf-8"))["groups"]
    route = yaml.safe_load((REPOSITORY / "deploy/alertmanager/alertmanager.yml").read_text(encoding="utf-8"))["route"]
    seconds = [int(text.removesuffix("s")) for text in (groups[0]["interval"], route["group_wait"])]
    assert 15 + sum(seconds) + 5 < 30


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("path", TESTS, ids=lambda path: path.stem)
def test_rules_do_what_their_tests_say(path: Path) -> None:
    """`promtool test rules`: each fires, and is silent on a healthy run, a gap, NaN, an end and a beginning."""
    done = promtool("test", "rules", path)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("test", "rules", "right", "wrong"),
    [
        ("ends", "runs", 'dl_run_state{state="failed"}[10m]', 'dl_run_state{state="failed"}[1m]'),
        ("ends", "runs", "unless on (run_id, run_attempt)\n", "unless on (run_id, run_attempt, dl_rank)\n"),
        ("ends", "runs", "== on (run_id, dl_rank) group_left ()", "== on (run_id, dl_rank, run_attempt) group_left ()"),
        ("ends", "runs", "for: 30s", "for: 5m"),
        ("pipeline", "pipeline", "keep_firing_for: 2m", "keep_firing_for: 5m"),
        ("pipeline", "pipeline", " <= last_over_time", " < bool last_over_time"),
        ("ranks", "ranks", "quantile by (run_id, run_name, service_name)", "avg by (run_id, run_name, service_name)"),
        ("ranks", "ranks", "(0.25, ", "(0.5, "),
        (
            "ranks",
            "ranks",
            "record: run:samples_per_second:sum\n    expr: sum",
            "record: run:samples_per_second:sum\n    expr: max",
        ),
        ("ranks", "ranks", '{part="shard"} ^ 2', '{part="shard"}'),
        ("ends", "runs", " < 60)", " < 600)"),
        (
            "ends",
            "runs",
            "min by (run_id, run_name, service_name) (\n          time()",
            "max by (run_id, run_name, service_name) (\n          time()",
        ),
        ("conditions", "runs", " unless on (run_id) dl_amp_scale", ""),
        ("conditions", "runs", "and on (run_id) run:running", ""),
    ],
)
def test_the_tests_of_the_rules_can_fail(test: str, rules: str, right: str, wrong: str, tmp_path: Path) -> None:
    """A rule that is made wrong is found by the rules' own tests."""
    shutil.copytree(FOLDER / "rules", tmp_path / "rules")
    shutil.copytree(FOLDER / "tests", tmp_path / "tests")
    path = tmp_path / "rules" / f"{rules}.yaml"
    text = path.read_text(encoding="utf-8")
    assert right in text
    path.write_text(text.replace(right, wrong), encoding="utf-8")
    done = promtool("test", "rules", tmp_path / "tests" / f"{test}.yaml")
    assert done.returncode != 0
    assert "FAILED" in done.stdout + done.stderr
