"""Spells what queries ask for, and knows each metric and label of other programs that they may name."""

from __future__ import annotations

from typing import Final

from otel_train.otlp.prometheus_names import known_name, label_name
from otel_train.semconv import EVENTS, METRICS

# Metrics that other programs write, by the program. What is not here, and not in `semconv`, is in no query.
FOREIGN_METRICS: Final = {
    "ALERTS": "Prometheus",
    "rank:straggler": "the recording rules",
    "up": "Prometheus",
    "scrape_duration_seconds": "Prometheus",
    "prometheus_tsdb_head_series": "Prometheus",
    "prometheus_tsdb_head_samples_appended_total": "Prometheus",
    "prometheus_tsdb_storage_blocks_bytes": "Prometheus",
    "prometheus_rule_evaluation_failures_total": "Prometheus",
    "prometheus_rule_group_last_duration_seconds": "Prometheus",
    "process_resident_memory_bytes": "Prometheus' client library",
    "process_cpu_seconds_total": "Prometheus' client library",
    "alertmanager_alerts": "Alertmanager",
    "alertmanager_notifications_total": "Alertmanager",
    "alertmanager_notifications_failed_total": "Alertmanager",
    "loki_distributor_lines_received_total": "Loki",
    "loki_discarded_samples_total": "Loki",
    "tempo_distributor_spans_received_total": "Tempo",
    "tempo_discarded_spans_total": "Tempo",
    "otelcol_process_memory_rss_bytes": "Collector",
    "otelcol_process_cpu_seconds_total": "Collector",
    "otelcol_exporter_queue_size": "Collector",
    "otelcol_exporter_queue_capacity": "Collector",
    "otelcol_processor_filter_datapoints_filtered_total": "Collector",
    **{
        f"otelcol_{part}_{what}_{items}_total": "Collector"
        for part, what in (
            ("receiver", "accepted"),
            ("receiver", "refused"),
            ("exporter", "sent"),
            ("exporter", "send_failed"),
        )
        for items in ("metric_points", "log_records", "spans")
    },
}
# Labels that other programs write.
FOREIGN_LABELS: Final = {
    "job": "Prometheus",
    "instance": "Prometheus",
    "alertname": "Prometheus",
    "alertstate": "Prometheus",
    "severity": "the alert rules",
    "le": "Prometheus",
    "state": "Alertmanager",
    "integration": "Alertmanager",
    "reason": "Loki, Tempo",
    "receiver": "Collector",
    "exporter": "Collector",
    "filter": "Collector",
    # What queries make by themselves.
    "run": "label_join",
    "from_ms": "count_values",
    "until_ms": "count_values",
}


def metric(name: str, *matchers: str) -> str:
    """Return a selector of one of `semconv.METRICS` with these matchers; KeyError where there is no such metric."""
    return _selector(known_name(name), matchers)


def foreign(name: str, *matchers: str) -> str:
    """Return a selector of a metric of another program; KeyError where it is not in the table."""
    if name not in FOREIGN_METRICS:
        raise KeyError(name)
    return _selector(name, matchers)


def _selector(name: str, matchers: tuple[str, ...]) -> str:
    return f"{name}{{{','.join(matchers)}}}" if matchers else name


def equal(attribute: str, value: str) -> str:
    """Return a matcher of a label by the attribute that it comes from."""
    return f'{label_name(attribute)}="{value}"'


def like(attribute: str, pattern: str) -> str:
    """Return a matcher of a label by a regular expression."""
    return f'{label_name(attribute)}=~"{pattern}"'


def counter(name: str, *matchers: str) -> str:
    """Return a selector like `metric`, of a counter only: what is no counter has no rate."""
    if METRICS[name].kind not in ("counter", "histogram"):
        raise KeyError(f"{name} is no counter")
    return metric(name, *matchers)


def events(*names: str) -> str:
    """Return a regular expression of these events; KeyError where `semconv.EVENTS` does not have one."""
    return "|".join(EVENTS[name].name for name in names)
