"""Lists the alerts that Loki's ruler makes of events in the logs, which no metric tells of."""

from __future__ import annotations

from deploy.prometheus.source.alert import Alert
from deploy.prometheus.source.notification import LOGS_DATASOURCE, RUN_DASHBOARD

# Loki's templates know neither the time of an alert nor external labels. Its external URL is Grafana's.
_PANES = (
    f'{{"logs":{{"datasource":"{LOGS_DATASOURCE}",'
    f'"queries":[{{"refId":"A","datasource":{{"type":"loki","uid":"{LOGS_DATASOURCE}"}},"expr":%q}}],'
    '"range":{"from":"now-1h","to":"now"}}}'
)


def log_alerts() -> list[Alert]:
    """Return the alerts of events."""
    return [
        _alert(
            name="RunOutOfMemory",
            event="out_of_memory",
            title="Out of memory",
            meaning="An allocation failed on the host or on a GPU, or the kernel killed a process of the run. Most "
            "trainings end by it.",
            look_at=(
                "The event itself: device, how much was asked for, how much was free.",
                "Memory of GPU and host before: a climb over hours is a leak, a step is one large batch.",
                "Did evaluation begin, or a longer sequence come, just then?",
            ),
            remedies=(
                "A smaller batch with gradient accumulation; activation checkpointing; bfloat16.",
                "`torch.no_grad()` in evaluation; keep numbers (`loss.item()`), not tensors with graphs.",
                "On the host: fewer loader workers, memory-mapped data, a larger limit.",
            ),
        ),
        _alert(
            name="RunDataLoadingFailed",
            event="data_loading",
            title="Data loader failed",
            meaning="The loader, or one of its workers, raised an exception. Unless the script catches it, it ends.",
            look_at=(
                "The event's exception and traceback: which file, which index.",
                "Is the file there, whole and readable on that host? Its checksum in dataset.described.",
                "A worker killed by a signal: out of memory (condition memory_full), or shared memory (/dev/shm) full.",
            ),
            remedies=(
                "Mend or leave out the sample, then resume from the last checkpoint.",
                "Shared memory: a larger --shm-size, or fewer workers.",
            ),
        ),
    ]


def _alert(
    *, name: str, event: str, title: str, meaning: str, look_at: tuple[str, ...], remedies: tuple[str, ...]
) -> Alert:
    events = f'{{service_name=~".+"}} | event_name="health.{event}"'
    logs = "{{ $logs := printf `{service_name=%q} | run_id=%q` $labels.service_name $labels.run_id }}"
    return Alert(
        name=name,
        condition=event,
        title=title,
        severity="critical",
        expr=f"sum by (service_name, run_id, run_name) (\n  count_over_time({events} [2m])\n) > 0",
        labels={"project": "{{ $labels.service_name }}", "service_name": ""},
        annotations={
            "summary": f"{title}: {{{{ $labels.run_name }}}}",
            "description": f"{{{{ $value }}}} events health.{event} within two minutes. {meaning}",
            "value": "{{ $value }}",
            "threshold": "0",
            "dashboard": "{{ externalURL }}"
            f"/d/{RUN_DASHBOARD}?var-run_id={{{{ $labels.run_id | urlquery }}}}&from=now-1h&to=now",
            "logs": logs
            + "{{ externalURL }}/explore?schemaVersion=1&orgId=1&panes="
            + f"{{{{ printf `{_PANES}` $logs | urlquery }}}}",
        },
        summary=f"The run log has an event health.{event} of the last two minutes.",
        threshold=f"An event `health.{event}` in Loki, within two minutes.",
        meaning=meaning,
        look_at=look_at,
        remedies=remedies,
    )
