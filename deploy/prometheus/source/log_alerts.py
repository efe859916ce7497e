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
            event="health.out_of_memory",
            condition="out_of_memory",
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
            event="health.data_loading",
            condition="data_loading",
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
        _alert(
            name="RunDataWorkerDied",
            event="data.worker_died",
            condition="data_worker_died",
            title="Loader worker died",
            meaning="A worker process of the data loader was killed or left by itself. The event names the worker, its "
            "signal or exit code, and the samples that it was at.",
            look_at=(
                "The signal: SIGKILL is nearly always the kernel's out-of-memory killer, SIGBUS a full /dev/shm, "
                "SIGSEGV a library that decodes.",
                "Memory of the workers before (process.memory.usage, children), and of the host.",
                "The samples in the event: does the same one kill a worker again?",
            ),
            remedies=(
                "Fewer workers or a smaller prefetch_factor; a larger --shm-size.",
                "Leave out or mend the sample that kills; then resume from the last checkpoint.",
            ),
        ),
        _alert(
            name="RunRankDied",
            event="rank.lost",
            condition="rank_died",
            title="A rank was killed or failed",
            meaning="A rank that lives has seen that another one of its run is gone: killed, or failed. In synchronous "
            "training the others wait for it until they time out, or the launcher ends them.",
            look_at=(
                "The event: rank, host, process, its last step, and the reason as far as it is known.",
                "On that host: dmesg, dl.container.oom_kills, the scheduler's log.",
                "The next attempt's event attempt.ended, which names the rank that fell first.",
            ),
            remedies=(
                "torchrun with --max-restarts, or the scheduler's requeue, goes on from the last checkpoint by itself.",
                "Mend the cause that the rank's own run.end names; leave out a node that kills again.",
            ),
        ),
    ]


def _alert(
    *,
    name: str,
    event: str,
    condition: str,
    title: str,
    meaning: str,
    look_at: tuple[str, ...],
    remedies: tuple[str, ...],
) -> Alert:
    # That a condition is over is told by the same event.
    events = f'{{service_name=~".+"}} | event_name="{event}" | cleared!="true"'
    logs = "{{ $logs := printf `{service_name=%q} | run_id=%q` $labels.service_name $labels.run_id }}"
    return Alert(
        name=name,
        condition=condition,
        title=title,
        severity="critical",
        expr=f"sum by (service_name, run_id, run_name) (\n  count_over_time({events} [2m])\n) > 0",
        labels={"project": "{{ $labels.service_name }}", "service_name": ""},
        annotations={
            "summary": f"{title}: {{{{ $labels.run_name }}}}",
            "description": f"{{{{ $value }}}} events {event} within two minutes. {meaning}",
            "value": "{{ $value }}",
            "threshold": "0",
            "dashboard": "{{ externalURL }}"
            f"/d/{RUN_DASHBOARD}?var-run_id={{{{ $labels.run_id | urlquery }}}}&from=now-1h&to=now",
            "logs": logs
            + "{{ externalURL }}/explore?schemaVersion=1&orgId=1&panes="
            + f"{{{{ printf `{_PANES}` $logs | urlquery }}}}",
        },
        summary=f"The run log has an event {event} of the last two minutes.",
        threshold=f"An event `{event}` in Loki, within two minutes.",
        meaning=meaning,
        look_at=look_at,
        remedies=remedies,
    )
