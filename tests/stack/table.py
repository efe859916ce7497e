"""The one table of what must be where: each signal, event and metric of a training run, and the store that has it.

A row is checked against the real store after the digits example has trained; rows of a store that is not on the
machine are left out with that reason.
"""

from __future__ import annotations

from dataclasses import dataclass

from otel_train.otlp.prometheus_names import known_name


@dataclass(frozen=True, slots=True)
class Row:
    """One thing, as its store spells it, and in which labels or attributes it must show.

    `store` is prometheus, loki, tempo or archive. In Prometheus `name` is a metric, in Loki an event, in Tempo a span,
    in the archive a signal. `at_least` is the least number of points, records, spans or lines.
    """

    store: str
    name: str
    labels: tuple[tuple[str, str], ...] = ()
    at_least: int = 1

    def __str__(self) -> str:
        labels = ",".join(f"{key}={value}" for key, value in self.labels)
        return f"{self.store}-{self.name}{{{labels}}}" if labels else f"{self.store}-{self.name}"


def _user(key: str, *splits: str) -> tuple[Row, ...]:
    return tuple(Row("prometheus", f"train_{key}", (("split", split),)) for split in splits)


def _own(name: str, *labels: tuple[str, str]) -> Row:
    return Row("prometheus", known_name(name), labels)


METRICS = (
    # What the user logs, by the user's own names.
    *_user("loss", "train", "val", "test"),
    *_user("accuracy", "train", "val", "test"),
    *_user("precision", "val", "test"),
    *_user("recall", "val", "test"),
    *_user("f1", "val", "test"),
    Row("prometheus", "train_grad_norm"),
    # Progress and time.
    _own("dl.step", ("split", "train")),
    _own("dl.epoch", ("split", "train")),
    _own("dl.step.time", ("split", "train")),
    _own("dl.data.wait.time", ("split", "train")),
    *(_own("dl.phase.time", ("phase", phase)) for phase in ("model_forward", "model_backward", "optimizer")),
    _own("dl.step.duration", ("split", "train")),
    _own("dl.step.last_time"),
    _own("dl.run.heartbeat"),
    *(_own("dl.run.state", ("state", state)) for state in ("running", "finished", "failed")),
    _own("dl.checkpoint.time"),
    _own("dl.checkpoint.size"),
    *(_own("dl.alert.threshold", ("alert", alert)) for alert in ("plateau", "overfit", "stalled", "gpu_idle")),
    # Inside the model, by layer and whole.
    _own("dl.grad.norm"),
    _own("dl.grad.norm", ("layer", "0")),
    _own("dl.grad.norm.clipped"),
    _own("dl.weight.norm", ("layer", "9")),
    _own("dl.update.ratio", ("layer", "7")),
    *(_own(f"dl.activation.{name}", ("layer", "8")) for name in ("mean", "std", "dead")),
    _own("dl.weight.distribution", ("layer", "0")),
    _own("dl.grad.distribution", ("layer", "0")),
    _own("dl.optimizer.step"),
    # The path of the data, and what it looks like.
    *(_own(f"dl.data.{name}.time", ("split", "train")) for name in ("fetch", "collate", "batch")),
    *(
        _own(f"dl.samples.{name}", ("split", "train"))
        for name in ("mean", "std", "saturated", "constant", "nonfinite", "duplicate", "drift")
    ),
    _own("dl.samples.class.share", ("class", "3")),
    # Speed, time and memory.
    _own("dl.rank.samples_per_second"),
    _own("dl.job.samples_per_second"),
    _own("dl.rank.samples"),
    _own("dl.micro_step"),
    *(_own("dl.time", ("state", state)) for state in ("productive", "evaluation", "checkpoint")),
    _own("dl.productive.share"),
    _own("dl.process_tree.memory"),
    # The machine.
    _own("system.cpu.utilization"),
    _own("system.memory.utilization"),
    _own("system.filesystem.utilization"),
    _own("system.disk.io", ("disk_io_direction", "write")),
    _own("system.network.io", ("network_io_direction", "receive")),
    _own("process.cpu.utilization", ("dl_process", "main")),
    _own("process.memory.usage", ("dl_process", "main")),
    # What became of what was recorded.
    _own("otel_train.points", ("outcome", "recorded")),
    _own("otel_train.runlog.size"),
    _own("otel_train.export.items", ("outcome", "sent"), ("signal", "metrics")),
    _own("otel_train.export.queue"),
    # Of the gateway's own making.
    *(Row("prometheus", "dl_stage_calls_total", (("span_name", stage),)) for stage in ("preprocess", "train")),
    Row("prometheus", "dl_stage_duration_seconds", (("span_name", "train"),)),
    Row("prometheus", "target_info"),
)
EVENTS = (
    Row("loki", "run.start"),
    Row("loki", "run.config"),
    Row("loki", "run.environment"),
    Row("loki", "dataset.described", at_least=4),
    Row("loki", "stage.start", at_least=3),
    Row("loki", "stage.end", at_least=3),
    Row("loki", "checkpoint.saved"),
    Row("loki", "model.best"),
    Row("loki", "samples.checked"),
    Row("loki", "training.early_stop"),
    Row("loki", "run.end"),
    # What the script says by `logging`, which is no event.
    Row("loki", "", (("log_logger", "digits"),)),
)
SPANS = (
    Row("tempo", "run"),
    Row("tempo", "preprocess"),
    Row("tempo", "train"),
    Row("tempo", "evaluate"),
    Row("tempo", "epoch", at_least=2),
    Row("tempo", "step", at_least=2),
    Row("tempo", "model_forward"),
    Row("tempo", "data_wait"),
    Row("tempo", "checkpoint"),
)
ARCHIVE = tuple(Row("archive", signal) for signal in ("metrics", "logs", "traces"))
TABLE = (*METRICS, *EVENTS, *SPANS, *ARCHIVE)
# The parts whose own telemetry Prometheus scrapes: job, and one metric of each.
PARTS = {
    "collector": "otelcol_exporter_sent_metric_points_total",
    "prometheus": "prometheus_tsdb_head_samples_appended_total",
    "alertmanager": "alertmanager_alerts_received_total",
    "loki": "loki_distributor_lines_received_total",
    "tempo": "tempo_distributor_spans_received_total",
}
