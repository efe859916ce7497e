"""The queries of the dashboard of the stack's own health: what came in, what was refused, what waits."""

from __future__ import annotations

from typing import Final

from grafana.source.fragments import alerts, rate
from grafana.source.names import FOREIGN_METRICS, counter, equal, foreign, like, metric
from grafana.source.query import Metrics, Query, Table, now, over_time

ITEMS: Final = {"metric_points": "points", "log_records": "log records", "spans": "spans"}
PROGRAMS: Final = like("job", "collector|prometheus|loki|tempo|alertmanager|grafana")


def collector(part: str, what: str, by: str) -> tuple[Query, ...]:
    """Return a rate of the Collector for each signal."""
    return tuple(
        Metrics(f"sum by ({by}) ({rate(foreign(f'otelcol_{part}_{what}_{items}_total'))})", f"{{{{{by}}}}}: {name}")
        for items, name in ITEMS.items()
    )


def lost(*selectors: str) -> str:
    """Return what several counters rose by within the range, 0 where none of them is there.

    A counter of losses appears with its first loss, which `increase` would not count.
    """
    return " + ".join(f"(sum({_risen(selector)}) or vector(0))" for selector in selectors)


def _risen(selector: str) -> str:
    now, before = f"last_over_time({selector}[$__range])", f"last_over_time({selector}[1h] offset $__range)"
    return f"{now} - (({before} <= {now}) or {now} * 0)"


def of_the_sdk(name: str, by: str) -> str:
    """Return a rate of otel-train's own accounts in all runs."""
    return f"sum by ({by}) ({rate(counter(name))})"


REFUSED: Final = [foreign(name) for name in FOREIGN_METRICS if name.startswith("otelcol_receiver_refused_")]
FAILED: Final = [foreign(name) for name in FOREIGN_METRICS if name.startswith("otelcol_exporter_send_failed_")]

QUERIES: Final[Table] = {
    "up": now(f"max by (job) ({foreign('up', PROGRAMS)})", "{{job}}"),
    "refused": now(lost(*REFUSED)),
    "failed": now(lost(*FAILED)),
    "discarded": now(
        lost(
            foreign("loki_discarded_samples_total"),
            foreign("tempo_discarded_spans_total"),
            foreign("otelcol_processor_filter_datapoints_filtered_total", equal("filter", "filter/times")),
        )
    ),
    "queue_share": now(
        f"max({foreign('otelcol_exporter_queue_size')} / {foreign('otelcol_exporter_queue_capacity')}) or vector(0)"
    ),
    "firing": now(f"count({alerts()}) or vector(0)"),
    "up_then": over_time(f"max by (job) ({foreign('up', PROGRAMS)})", "{{job}}"),
    "accepted": collector("receiver", "accepted", "receiver"),
    "refused_then": collector("receiver", "refused", "receiver"),
    "sent": collector("exporter", "sent", "exporter"),
    "failed_then": collector("exporter", "send_failed", "exporter"),
    "queue": over_time(f"sum by (exporter) ({foreign('otelcol_exporter_queue_size')})", "{{exporter}}")
    + over_time(f"sum by (exporter) ({foreign('otelcol_exporter_queue_capacity')})", "{{exporter}}: room"),
    "collector_memory": over_time(f"sum by (job) ({foreign('otelcol_process_memory_rss_bytes')})", "collector")
    + over_time(f"sum by (job) ({foreign('process_resident_memory_bytes', PROGRAMS)})", "{{job}}"),
    "cpu": over_time(f"sum by (job) ({rate(foreign('otelcol_process_cpu_seconds_total'))})", "collector")
    + over_time(f"sum by (job) ({rate(foreign('process_cpu_seconds_total', PROGRAMS))})", "{{job}}"),
    "series": over_time(f"sum by (job) ({foreign('prometheus_tsdb_head_series')})", "series in memory"),
    "samples": over_time(f"sum by (job) ({rate(foreign('prometheus_tsdb_head_samples_appended_total'))})", "points"),
    "blocks": over_time(f"sum by (job) ({foreign('prometheus_tsdb_storage_blocks_bytes')})", "blocks on disk"),
    "rules": over_time(f"max by (job) ({foreign('prometheus_rule_group_last_duration_seconds')})", "slowest group")
    + over_time(f"sum by (job) ({rate(foreign('prometheus_rule_evaluation_failures_total'))})", "failures a second"),
    "loki_lines": over_time(f"sum by (job) ({rate(foreign('loki_distributor_lines_received_total'))})", "lines")
    + over_time(f"sum by (reason) ({rate(foreign('loki_discarded_samples_total'))})", "discarded: {{reason}}"),
    "tempo_spans": over_time(f"sum by (job) ({rate(foreign('tempo_distributor_spans_received_total'))})", "spans")
    + over_time(f"sum by (reason) ({rate(foreign('tempo_discarded_spans_total'))})", "discarded: {{reason}}"),
    "notifications": over_time(
        f"sum by (integration) ({rate(foreign('alertmanager_notifications_total'))})", "{{integration}}"
    )
    + over_time(
        f"sum by (integration) ({rate(foreign('alertmanager_notifications_failed_total'))})", "{{integration}} failed"
    ),
    "alerts_held": over_time(f"sum by (state) ({foreign('alertmanager_alerts')})", "{{state}}"),
    "scrapes": over_time(f"max by (job) ({foreign('scrape_duration_seconds', PROGRAMS)})", "{{job}}"),
    # What training processes say of their own recording and sending.
    "points": over_time(of_the_sdk("otel_train.points", "outcome"), "points: {{outcome}}")
    + over_time(of_the_sdk("otel_train.logs", "outcome"), "log records: {{outcome}}")
    + over_time(of_the_sdk("otel_train.spans", "outcome"), "spans: {{outcome}}"),
    "sent_by_runs": over_time(of_the_sdk("otel_train.export.items", "signal, outcome"), "{{signal}}: {{outcome}}"),
    "waiting": over_time(f"sum by (run_id) ({metric('otel_train.export.queue')})", "{{run_id}}"),
    "retries": over_time(of_the_sdk("otel_train.export.retries", "run_id"), "{{run_id}}"),
}
