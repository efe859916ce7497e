"""Lists the alerts about the stack itself: a part is down, a queue fills, data is refused, nobody is told."""

from __future__ import annotations

from deploy.prometheus.source.alert import Alert
from deploy.prometheus.source.notification import pipeline_links, run_links
from deploy.prometheus.source.series import indent, rise

# Jobs of prometheus.yml that scrape a part of the stack.
PARTS = ("collector", "prometheus", "alertmanager", "loki", "tempo", "grafana")
SIGNALS = ("metric_points", "log_records", "spans")
QUEUE_SHARE = 0.2
# Points that the gateway keeps from Prometheus, which would refuse all others of the same request with them.
OUT_OF_TIME = 'otelcol_processor_filter_datapoints_filtered_total{filter="filter/times"}'


def pipeline_alerts() -> list[Alert]:
    """Return the alerts about parts of the stack, and about data on its way there."""
    return [
        _part_down(),
        _queue_filling(),
        _data_refused(),
        _held_back(),
        _run_data_refused(),
        _notifications_failing(),
        _rules_failing(),
    ]


def by_exporter(expression: str) -> str:
    """Return an expression about exporters of the Collector with the label `part`: loki for otlp_http/loki."""
    return f'label_replace(\n{indent(expression)},\n  "part", "$1", "exporter", "(?:.*/)?(.+)"\n)'


def _sum_by_part(expression: str) -> str:
    return f"sum by (part) (\n{indent(expression)}\n) > 0"


def _of_part(part: str, expression: str) -> str:
    return f'label_replace(\n{indent(expression)},\n  "part", "{part}", "", ""\n)'


def _texts(name: str, summary: str, description: str, value: str, threshold: str) -> dict[str, str]:
    return {
        "summary": summary,
        "description": description,
        "value": value,
        "threshold": threshold,
        **pipeline_links(name),
    }


def _part_down() -> Alert:
    name = "PipelinePartDown"
    return Alert(
        name=name,
        condition="part_down",
        title="A part of the stack is down",
        severity="critical",
        expr=f'label_replace(\n  up{{job=~"{"|".join(PARTS)}"}} == 0,\n  "part", "$1", "job", "(.+)"\n)',
        # Parts may take this long to start, and are no fault then; a run is lost after twice the time.
        for_s=60,
        # What follows from it is silent for as long: senders and queues take a while to find that the part is back.
        keep_firing_for_s=120,
        annotations=_texts(
            name,
            "{{ $labels.part }} is down",
            "Prometheus cannot reach {{ $labels.part }} at {{ $labels.instance }}. Nothing is lost: what was sent "
            "waits in the Collector's queue on disk, what was not in the run logs.",
            "down",
            "up",
        ),
        summary="Prometheus has not reached a part of the stack for a minute.",
        threshold="`up` is 0. It counts as down for two minutes longer, so that what follows from it is silent.",
        meaning="The part has ended, hangs, or cannot be reached. Runs go on: without the Collector their data stays "
        "in the run logs and is sent later; without a store it waits in the Collector's queue on disk. Prometheus "
        "cannot tell of its own end, nor of Alertmanager's: where nothing comes at all, look at the containers.",
        look_at=(
            "`docker compose ps` and `docker compose logs PART`: restarts, out of memory, full disk, a wrong setting.",
            "Disk space of the volumes; memory limit of the container.",
        ),
        remedies=(
            "`docker compose up -d PART`, after the cause is mended.",
            "Out of memory: raise its `mem_limit`. Full disk: lower the retention, or make room.",
        ),
    )


def _queue_filling() -> Alert:
    name = "PipelineQueueFilling"
    share = by_exporter("otelcol_exporter_queue_size / otelcol_exporter_queue_capacity")
    return Alert(
        name=name,
        condition="queue_filling",
        title="A queue of the Collector fills",
        severity="warning",
        expr=f"max by (part) (\n{indent(share)}\n) > {QUEUE_SHARE}",
        for_s=60,
        annotations=_texts(
            name,
            "The queue to {{ $labels.part }} fills",
            "{{ $value | humanizePercentage }} of the Collector's queue to {{ $labels.part }} is taken. When it is "
            "full the Collector takes nothing more, and data stays in the run logs.",
            "{{ $value | humanizePercentage }}",
            "20%",
        ),
        summary="A fifth of the Collector's queue to a store has been taken for a minute.",
        threshold="`otelcol_exporter_queue_size` by `otelcol_exporter_queue_capacity` above 0.2.",
        meaning="A store is away, or slower than what comes. The queue is on disk and survives restarts. When it is "
        "full the Collector refuses, and senders keep the data in the run logs and try again.",
        look_at=(
            "Is the store up, and does it answer slowly (dashboard Pipeline)?",
            "`docker compose logs collector`: what the store answers.",
            "Disk space of the Collector's volume.",
            "Is somebody pushing a large old run? Then it drains by itself.",
        ),
        remedies=(
            "Bring the store back; the queue drains by itself, in order.",
            "For a store that is too slow: more memory and CPU for it, or fewer points (`every=`).",
        ),
    )


def _data_refused() -> Alert:
    name = "PipelineDataRefused"
    failed = (
        f"otelcol_exporter_{fault}_{signal}_total" for fault in ("send_failed", "enqueue_failed") for signal in SIGNALS
    )
    of_exporters = [_sum_by_part(by_exporter(rise(counter, "5m"))) for counter in failed]
    of_stores = [
        _sum_by_part(_of_part(part, rise(counter, "5m")))
        for part, counter in (
            ("loki", "loki_discarded_samples_total"),
            ("tempo", "tempo_discarded_spans_total"),
            ("prometheus", OUT_OF_TIME),
        )
    ]
    return Alert(
        name=name,
        condition="data_refused",
        title="A store refuses data",
        severity="critical",
        expr="\nor\n".join(of_exporters + of_stores),
        annotations=_texts(
            name,
            "{{ $labels.part }} refuses data",
            "{{ $value }} points, records or spans did not get into {{ $labels.part }} within five minutes, and the "
            "Collector does not try again.",
            "{{ $value }}",
            "0",
        ),
        summary="A store refused data for good within the last five minutes.",
        threshold="More than 0 within five minutes of `otelcol_exporter_send_failed_*_total`, "
        "`otelcol_exporter_enqueue_failed_*_total`, `loki_discarded_samples_total`, `tempo_discarded_spans_total` or "
        "`otelcol_processor_filter_datapoints_filtered_total` of `filter/times`.",
        meaning="The store answered that it will never take this (400 or 500), and the Collector dropped it; or points "
        "have times that Prometheus does not take. The run logs, and the Collector's archive, still have it.",
        look_at=(
            "`docker compose logs collector`: the store's own words, with the reason.",
            "Prometheus: points older than `out_of_order_time_window`, or ten minutes in the future (clock of the "
            "training host).",
            "Loki and Tempo: `reason` of the discarded counters; limits in deploy/loki and deploy/tempo.",
        ),
        remedies=(
            "Mend the cause (clock, limit, window), then `otel-train push RUN --again`, or replay the archive.",
            "Where it is right to refuse, such as a run older than the store keeps: nothing. It is in the run log.",
        ),
    )


def _held_back() -> Alert:
    name = "PipelineHeldBack"
    refused = "\nor\n".join(f"rate(otelcol_receiver_refused_{signal}_total[2m])" for signal in SIGNALS)
    return Alert(
        name=name,
        condition="held_back",
        title="The Collector holds senders back",
        severity="warning",
        expr=_of_part("collector", f"sum(\n{indent(refused)}\n) > 0"),
        for_s=120,
        annotations=_texts(
            name,
            "The Collector holds senders back",
            "The Collector has refused {{ $value | humanize }} items a second for two minutes, for lack of memory or "
            "since a queue is full. Senders keep them and try again.",
            "{{ $value | humanize }}/s",
            "0/s",
        ),
        summary="The Collector has told senders to come again for two minutes.",
        threshold="`otelcol_receiver_refused_*_total` rises.",
        meaning="Memory limiter or a full queue. Nothing is lost: otel-train sends again, from the run log.",
        look_at=(
            "Memory of the Collector against its limit; its queues.",
            "Who sends so much: points by run on the dashboard Pipeline.",
        ),
        remedies=("More memory for the Collector (`mem_limit` and GOMEMLIMIT together).", "See queue_filling."),
    )


def _run_data_refused() -> Alert:
    name = "RunDataRefused"
    counter = 'otel_train_export_items_total{outcome="refused"}'
    return Alert(
        name=name,
        condition="run_data_refused",
        title="A run's data was refused",
        severity="warning",
        expr=f"sum by (run_id, run_name, service_name) (\n{indent(rise(counter, '5m'))}\n) > 0",
        labels={"project": "{{ $labels.service_name }}", "service_name": ""},
        annotations={
            "summary": "Data refused: {{ $labels.run_name }}",
            "description": "{{ $value }} points, records or spans of this run were refused at the first hop within "
            "five minutes. They are in the run log.",
            "value": "{{ $value }}",
            "threshold": "0",
            **run_links(name),
        },
        summary="The server that a run sends to refused some of its data for good.",
        threshold="`otel_train_export_items_total` with outcome refused rose within five minutes.",
        meaning="The sender has singled out what was refused, and goes on with the rest. The run log has all of it.",
        look_at=(
            "The run's own log of that time (logger otel_train): what the server answered.",
            "Is the endpoint the Collector of this stack, with a receiver for this signal?",
            "A token or certificate that is not valid: then all is refused.",
        ),
        remedies=("Mend the cause, then push the run again.",),
    )


def _notifications_failing() -> Alert:
    name = "PipelineNotificationsFailing"
    of_alertmanager = _sum_by_part(_of_part("alertmanager", rise("alertmanager_notifications_failed_total", "5m")))
    of_prometheus = _sum_by_part(_of_part("prometheus", rise("prometheus_notifications_dropped_total", "5m")))
    return Alert(
        name=name,
        condition="notifications_failing",
        title="Notifications do not arrive",
        severity="critical",
        expr=f"{of_alertmanager}\nor\n{of_prometheus}",
        annotations=_texts(
            name,
            "Notifications of {{ $labels.part }} fail",
            "{{ $value }} notifications of {{ $labels.part }} failed within five minutes: people may not be told.",
            "{{ $value }}",
            "0",
        ),
        summary="Alertmanager could not notify, or Prometheus could not reach Alertmanager.",
        threshold="More than 0 within five minutes of `alertmanager_notifications_failed_total` or "
        "`prometheus_notifications_dropped_total`.",
        meaning="One of the receivers (webhook, Slack, e-mail) does not take what it is sent. This alert goes the same "
        "way, so it may be seen in Grafana only.",
        look_at=(
            "`docker compose logs alertmanager`: which receiver, which answer.",
            "ALERT_WEBHOOK_URL, ALERT_SLACK_URL and ALERT_EMAIL_* in `.env`.",
        ),
        remedies=("Correct the setting, then `docker compose up -d prepare alertmanager`.",),
    )


def _rules_failing() -> Alert:
    name = "PipelineRulesFailing"
    return Alert(
        name=name,
        condition="rules_failing",
        title="Alert rules cannot be evaluated",
        severity="critical",
        expr=_sum_by_part(_of_part("prometheus", rise("prometheus_rule_evaluation_failures_total", "5m"))),
        annotations=_texts(
            name,
            "Alert rules fail",
            "{{ $value }} evaluations of rules failed within five minutes: some alerts do not work.",
            "{{ $value }}",
            "0",
        ),
        summary="Prometheus could not evaluate some of its rules.",
        threshold="`prometheus_rule_evaluation_failures_total` rose within five minutes.",
        meaning="A rule's query is wrong for the present data, or takes longer than Prometheus allows.",
        look_at=("Status, Rule health in Prometheus: the rule and its error.", "Rules of your own beside the shipped."),
        remedies=("Correct the rule; `promtool check rules` and `promtool test rules` before it is loaded.",),
    )
