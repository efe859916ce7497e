"""Writes the tests of the alerts about the stack itself."""

from __future__ import annotations

from typing import Any

from deploy.prometheus.source.pipeline_alerts import PARTS, pipeline_alerts
from deploy.prometheus.source.scenario import STEP_S, Run, constant, series

POINTS = 60
BEGIN = 12
BEGIN_S = BEGIN * STEP_S


def _grows(at: int = BEGIN, value: int = 5) -> list[str]:
    """A counter that is not there before its first fault."""
    return ["_"] * at + [str(value)] * (POINTS - at)


def _rises() -> list[str]:
    """A counter that rises with each point from then on."""
    return ["0"] * BEGIN + [str(10 * point) for point in range(1, POINTS - BEGIN + 1)]


def pipeline_tests() -> list[dict[str, Any]]:
    """Return the tests: all is well, and each fault by itself."""
    exporter = {"exporter": "otlp_http/loki", "data_type": "logs", "job": "collector"}
    size, capacity = "otelcol_exporter_queue_size", "otelcol_exporter_queue_capacity"
    queue = [
        series(size, [*constant(100, BEGIN), *constant(2_000_000, 20), *constant(0, 28)], exporter),
        series(capacity, constant(5_000_000, POINTS), exporter),
    ]
    run = Run("refused")
    refused = run.metric("otel_train.export.items", _grows(), signal="logs", outcome="refused")
    run_labels = {"project": "digits", "run_id": "refused", "run_name": "name-refused"}
    part = "prometheus"
    down = [*constant(1, BEGIN), *constant(0, 20), *constant(1, 28)]
    return [
        _well(),
        _test(
            "part_down",
            [series("up", down, {"job": "loki"}), series("up", down, {"job": "somebody-elses"})],
            # It counts as down for two minutes longer.
            [(BEGIN_S + 45, {}), (BEGIN_S + 80, {"part": "loki"}), (32 * STEP_S + 90, {"part": "loki"})],
            32 * STEP_S + 150,
        ),
        _test("queue_filling", queue, [(BEGIN_S + 45, {}), (BEGIN_S + 80, {"part": "loki"})], 32 * STEP_S + 20),
        _test(
            "data_refused",
            [
                series(f"otelcol_exporter_{fault}_{signal}_total", values, {"exporter": name, "job": "collector"})
                for fault, signal, values, name in (
                    ("send_failed", "metric_points", constant(0, POINTS), "otlp_http/prometheus"),
                    ("send_failed", "log_records", _grows(), "otlp_http/loki"),
                    ("enqueue_failed", "spans", constant(0, POINTS), "otlp_http/tempo"),
                )
            ],
            [(BEGIN_S - 10, {}), (BEGIN_S + 20, {"part": "loki"}), (BEGIN_S + 290, {"part": "loki"})],
            BEGIN_S + 330,
        ),
        _test(
            "data_refused",
            [series("tempo_discarded_spans_total", _grows(), {"job": "tempo", "reason": "trace_too_large"})],
            [(BEGIN_S + 20, {"part": "tempo"})],
            BEGIN_S + 330,
        ),
        _test(
            "data_refused",
            # What an overlay filters for its own store is no loss.
            [
                series(
                    "otelcol_processor_filter_datapoints_filtered_total",
                    _grows(),
                    {"job": "collector", "filter": "filter/influxdb"},
                )
            ],
            [(BEGIN_S + 20, {})],
        ),
        _test(
            "data_refused",
            [
                series(
                    "otelcol_processor_filter_datapoints_filtered_total",
                    _grows(),
                    {"job": "collector", "filter": "filter/times"},
                )
            ],
            [(BEGIN_S + 20, {"part": "prometheus"})],
            BEGIN_S + 330,
        ),
        _test(
            "held_back",
            [series("otelcol_receiver_refused_log_records_total", _rises(), {"job": "collector", "receiver": "otlp"})],
            [(BEGIN_S + 60, {}), (BEGIN_S + 200, {"part": "collector"})],
        ),
        _test("run_data_refused", [refused], [(BEGIN_S + 20, run_labels)], BEGIN_S + 330),
        _test(
            "notifications_failing",
            [series("alertmanager_notifications_failed_total", _grows(), {"job": "alertmanager"})],
            [(BEGIN_S + 20, {"part": "alertmanager"})],
            BEGIN_S + 330,
        ),
        _test(
            "data_refused",
            # The Collector was restarted: what it counts since then is new.
            [
                series(
                    "otelcol_exporter_send_failed_spans_total",
                    [*constant(900, 24), *constant(0, 6), *constant(3, POINTS - 30)],
                    {"exporter": "otlp_http/tempo", "job": "collector"},
                )
            ],
            [(29 * STEP_S, {}), (30 * STEP_S + 10, {"part": "tempo"})],
            30 * STEP_S + 330,
        ),
        _test(
            "rules_failing",
            [series("prometheus_rule_evaluation_failures_total", _grows(), {"job": part})],
            [(BEGIN_S + 20, {"part": part})],
            BEGIN_S + 330,
        ),
    ]


def _well() -> dict[str, Any]:
    given = [series("up", constant(1, POINTS), {"job": part}) for part in PARTS]
    for exporter in ("otlp_http/prometheus", "otlp_http/archive", "file"):
        labels = {"exporter": exporter, "job": "collector"}
        given.append(series("otelcol_exporter_queue_size", constant(100_000, POINTS), labels))
        given.append(series("otelcol_exporter_queue_capacity", constant(5_000_000, POINTS), labels))
        # Once, an hour ago.
        given.append(series("otelcol_exporter_send_failed_spans_total", constant(3, POINTS), labels))
    given.append(series("otelcol_receiver_refused_spans_total", constant(3, POINTS), {"job": "collector"}))
    checks = [_check(at_s, []) for at_s in (330, 600, 880)]
    return {"name": "a healthy stack", "interval": f"{STEP_S}s", "input_series": given, "promql_expr_test": checks}


def _test(
    condition: str, given: list[dict[str, str]], fires: list[tuple[int, dict[str, str]]], over_s: int | None = None
) -> dict[str, Any]:
    (alert,) = (alert for alert in pipeline_alerts() if alert.condition == condition)
    own = {"alertname": alert.name, "condition": condition, "severity": alert.severity}
    checks = [_check(at_s, [{**own, **labels}] if labels else []) for at_s, labels in fires]
    if over_s is not None:
        checks.append(_check(over_s, []))
    return {"name": condition, "interval": f"{STEP_S}s", "input_series": given, "promql_expr_test": checks}


def _check(at_s: int, firing: list[dict[str, str]]) -> dict[str, Any]:
    """Return the check that exactly these alerts fire; job and instance of the scraped part are not looked at."""
    samples = []
    for labels in firing:
        inner = ",".join(f'{label}="{value}"' for label, value in sorted(labels.items()))
        samples.append({"labels": f"{{{inner}}}", "value": 1})
    by = "alertname, condition, severity, part, project, run_id, run_name"
    return {
        "expr": f'group by ({by}) (ALERTS{{alertstate="firing"}})',
        "eval_time": f"{at_s}s",
        "exp_samples": samples,
    }
