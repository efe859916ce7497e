"""Names every metric, attribute, event and unit that otel-train writes, once.

Documentation, reports and tests are derived from these tables. Names that exist in OpenTelemetry's semantic
conventions (``system.*``, ``process.*``, ``hw.*``) are used with their meaning there; our own begin with ``dl.`` or
``otel_train.``; a user's metric begins with ``train.``, so the three never meet.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Kind = Literal["gauge", "counter", "updowncounter", "histogram"]

SCOPE_NAME: Final = "otel_train"

# Resource attributes -------------------------------------------------------------------------------------------------
SERVICE_NAME: Final = "service.name"
SERVICE_INSTANCE_ID: Final = "service.instance.id"
RUN_ID: Final = "run_id"
RUN_NAME: Final = "run_name"
RUN_ATTEMPT: Final = "run_attempt"
RANK: Final = "dl.rank"
LOCAL_RANK: Final = "dl.local_rank"
WORLD_SIZE: Final = "dl.world_size"
HOST_NAME: Final = "host.name"
PROCESS_PID: Final = "process.pid"

# Attributes of points, records and spans -----------------------------------------------------------------------------
SPLIT: Final = "split"
AXIS: Final = "axis"
PHASE: Final = "phase"
CLOCK: Final = "clock"
METRIC: Final = "metric"
STATE: Final = "state"
STEP: Final = "dl.step"
EPOCH: Final = "dl.epoch"
EVENT_NAME: Final = "event.name"
STAGE: Final = "dl.stage"
ALERT: Final = "alert"
# True on the event that says that a health condition is over.
CLEARED: Final = "cleared"
SIGNAL: Final = "signal"
OUTCOME: Final = "outcome"
TRUNCATED: Final = "dl.truncated"
ANNOUNCES: Final = "dl.announces"
# Whose consumption: main (the process that was started) or children (its data loader workers and the like).
PROCESS: Final = "dl.process"
# What every series of a GPU carries: UUID, model, this process's number of it, and its place on the PCI bus. Those of
# a MIG slice also name the card and the instances.
GPU_ATTRIBUTES: Final = (
    "hw.id",
    "hw.name",
    "index",
    "physical_index",
    "hw.parent",
    "mig.gpu_instance",
    "mig.compute_instance",
)

# Attributes of log records -------------------------------------------------------------------------------------------
LOGGER: Final = "log.logger"
LOG_IOSTREAM: Final = "log.iostream"
THREAD_NAME: Final = "thread.name"
CODE_FILE: Final = "code.file.path"
CODE_LINE: Final = "code.line.number"
CODE_FUNCTION: Final = "code.function.name"
CODE_STACK: Final = "code.stacktrace"
EXCEPTION_TYPE: Final = "exception.type"
EXCEPTION_MESSAGE: Final = "exception.message"
EXCEPTION_STACK: Final = "exception.stacktrace"
ATTRIBUTES_LEFT_OUT: Final = "otel_train.attributes_left_out"
# What the sender had to cut for a store: names of attributes, those beyond the number it takes, and a body's bytes.
ATTRIBUTES_CUT: Final = "otel_train.attributes_cut"
ATTRIBUTES_REST: Final = "otel_train.attributes_rest"
BODY_CUT: Final = "otel_train.body_cut"
PROGRESS_REDRAWS: Final = "progress.redraws"
SUPPRESSED_COUNT: Final = "log.suppressed.count"
SUPPRESSED_TEMPLATE: Final = "log.suppressed.template"
SUPPRESSED_LEVEL: Final = "log.suppressed.level"
SUPPRESSED_FIRST: Final = "log.suppressed.first_time"
SUPPRESSED_LAST: Final = "log.suppressed.last_time"

SPLITS: Final = ("train", "val", "test")
# Every state is written each time, 1 for the present one and 0 for the others: a store keeps series side by side.
RUN_STATES: Final = ("running", "finished", "failed", "interrupted", "killed", "lost")
DEFAULT_AXIS: Final = "step"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric: its OTLP name, unit (UCUM), kind, one sentence, and the attributes its points carry."""

    name: str
    unit: str
    kind: Kind
    description: str
    attributes: tuple[str, ...] = ()


_ROWS: Final = (
    Metric("dl.step", "", "gauge", "Step of the points with the same times.", (SPLIT, AXIS)),
    Metric("dl.epoch", "", "gauge", "Epoch of the points with the same times.", (SPLIT, AXIS)),
    Metric(
        "dl.step.time",
        "s",
        "gauge",
        "Duration of one step, wait for data included, by the host's clock.",
        (SPLIT,),
    ),
    Metric(
        "dl.data.wait.time",
        "s",
        "gauge",
        "Time the training loop waited for a batch. By the host's clock; clock=device where device events are used.",
        (SPLIT, CLOCK),
    ),
    Metric("dl.phase.time", "s", "gauge", "Time within a phase of one step, by the host's clock.", (SPLIT, PHASE)),
    Metric("dl.step.duration", "s", "histogram", "Distribution of step durations, by the host's clock.", (SPLIT,)),
    Metric("dl.step.last_time", "s", "gauge", "Unix time at which the last step ended."),
    Metric("dl.step.usual_time", "s", "gauge", "Median duration of the last steps, by the host's clock."),
    Metric("dl.run.heartbeat", "s", "gauge", "Unix time at which the process was last alive."),
    Metric(
        "dl.run.progress", "1", "gauge", "Share of the training that is done, 0 to 1: of its epochs, or its one loop."
    ),
    Metric("dl.run.state", "", "gauge", "1 for the present state of the run, 0 for the others.", (STATE,)),
    Metric("dl.nonfinite", "", "counter", "Values that were NaN or infinite.", (METRIC, SPLIT, "kind")),
    # Health: each value stands beside the run's own threshold, so that a rule compares two gauges.
    Metric(
        "dl.alert.threshold",
        "",
        "gauge",
        "The run's own threshold of a condition, in the unit of its value; +Inf (0 for a lower bound) where it is off.",
        (ALERT,),
    ),
    Metric(
        "dl.steps_since_improvement",
        "",
        "gauge",
        "Steps since a metric with a direction was last better by plateau_percent; 0 until three values in a row "
        "were not.",
        (METRIC, SPLIT),
    ),
    Metric(
        "dl.overfit.gap",
        "",
        "gauge",
        "Validation loss above training loss over the same steps, as a share of the training loss at the beginning.",
        (METRIC,),
    ),
    Metric("dl.grad.usual", "", "gauge", "Median of the last 100 finite gradient norms.", (METRIC,)),
    Metric(
        "dl.grad.excess",
        "",
        "gauge",
        "Least of the last three gradient norms, each by the usual one before it; +Inf where none is finite.",
        (METRIC,),
    ),
    Metric("dl.grad.recent_max", "", "gauge", "Greatest of the last 100 gradient norms.", (METRIC,)),
    Metric(
        "dl.step.age",
        "s",
        "gauge",
        "Time since the last step ended; 0 in evaluation, checkpoints and stages other than training.",
    ),
    Metric("dl.data.wait.share", "", "gauge", "Share of the step time of the last five minutes waiting for data."),
    Metric(
        "dl.gpu.busy.share",
        "",
        "gauge",
        "Mean utilisation of a GPU over the last gpu_idle_s seconds of a run that makes steps, 0 to 1.",
        GPU_ATTRIBUTES,
    ),
    Metric(
        "dl.memory.share",
        "",
        "gauge",
        "Share of memory in use, of the host or of the control group's limit, whichever is greater, 0 to 1.",
    ),
    Metric("dl.checkpoint.time", "s", "gauge", "Duration of one checkpoint save, by the host's clock."),
    Metric("dl.checkpoint.size", "By", "gauge", "Size of a saved checkpoint."),
    # The machine: semantic conventions for system, process and hardware metrics.
    Metric("system.cpu.utilization", "1", "gauge", "Share of time that all logical CPUs were busy, 0 to 1."),
    Metric("system.cpu.logical.count", "{cpu}", "updowncounter", "Logical CPUs of the host."),
    Metric("system.memory.usage", "By", "updowncounter", "Memory of the host by state.", ("system.memory.state",)),
    Metric("system.memory.utilization", "1", "gauge", "Share of the host's memory in use, 0 to 1."),
    Metric(
        "system.disk.io",
        "By",
        "counter",
        "Bytes read from and written to disks.",
        ("system.device", "disk.io.direction"),
    ),
    Metric(
        "system.network.io",
        "By",
        "counter",
        "Bytes received and sent by network interfaces.",
        ("network.interface.name", "network.io.direction"),
    ),
    Metric("system.filesystem.utilization", "1", "gauge", "Share of the run folder's file system in use, 0 to 1."),
    Metric("container.memory.usage", "By", "updowncounter", "Memory of the control group, where it has a limit."),
    Metric("dl.container.memory.limit", "By", "updowncounter", "Memory that the control group may use."),
    Metric(
        "dl.container.memory.reclaimable",
        "By",
        "updowncounter",
        "Of the control group's memory, cached files that the kernel gives back when memory is short.",
    ),
    Metric("dl.container.cpu.limit", "{cpu}", "updowncounter", "CPUs that the control group may keep busy."),
    Metric(
        "dl.container.oom_kills",
        "{process}",
        "counter",
        "Processes of the control group that the kernel killed for lack of memory.",
    ),
    Metric(
        "process.cpu.time",
        "s",
        "counter",
        "CPU time of this process (dl.process=main) and of its children (dl.process=children).",
        (PROCESS, "cpu.mode"),
    ),
    Metric(
        "process.cpu.utilization",
        "1",
        "gauge",
        "CPU time by wall time and by the CPUs that the process may use, 0 to 1; main and children add up.",
        (PROCESS,),
    ),
    Metric(
        "process.memory.usage",
        "By",
        "updowncounter",
        "Resident memory of this process and of its children; pages they share count in both.",
        (PROCESS,),
    ),
    Metric("process.thread.count", "{thread}", "updowncounter", "Threads of this process, without its children's."),
    Metric(
        "process.disk.io",
        "By",
        "counter",
        "Bytes that this process and its children read from and wrote to disks.",
        ("disk.io.direction",),
    ),
    Metric(
        "hw.gpu.utilization",
        "1",
        "gauge",
        "Share of time that a kernel was running, 0 to 1.",
        (*GPU_ATTRIBUTES, "hw.gpu.task"),
    ),
    Metric("hw.gpu.memory.utilization", "1", "gauge", "Share of the GPU's memory in use, 0 to 1.", GPU_ATTRIBUTES),
    Metric("hw.gpu.memory.usage", "By", "updowncounter", "Memory in use on the GPU, or on its slice.", GPU_ATTRIBUTES),
    Metric("hw.gpu.memory.limit", "By", "updowncounter", "Memory of the GPU, or of its slice.", GPU_ATTRIBUTES),
    Metric(
        "hw.gpu.io",
        "By",
        "counter",
        "Bytes over PCIe as the GPU sees it, estimated from NVML's throughput over 20 ms at each reading.",
        (*GPU_ATTRIBUTES, "network.io.direction"),
    ),
    Metric("hw.gpu.clock", "Hz", "gauge", "Clock of the streaming multiprocessors.", GPU_ATTRIBUTES),
    Metric(
        "hw.gpu.throttled",
        "",
        "gauge",
        "1 where the clock is held down for this reason, else 0; one of the reasons is gpu_idle.",
        (*GPU_ATTRIBUTES, "reason"),
    ),
    Metric("hw.power", "W", "gauge", "Power draw.", (*GPU_ATTRIBUTES, "hw.type")),
    Metric("hw.energy", "J", "counter", "Energy since the driver was loaded.", (*GPU_ATTRIBUTES, "hw.type")),
    Metric("hw.temperature", "Cel", "gauge", "Temperature of the chip.", (*GPU_ATTRIBUTES, "hw.type")),
    Metric(
        "hw.errors",
        "{error}",
        "counter",
        "ECC errors since the driver was loaded, corrected and uncorrected.",
        (*GPU_ATTRIBUTES, "hw.type", "error.type"),
    ),
    Metric(
        "hw.status",
        "1",
        "updowncounter",
        "1 for the card's present state (ok, failed), 0 for the other.",
        (*GPU_ATTRIBUTES, "hw.type", "hw.state"),
    ),
    # Own accounting.
    Metric("otel_train.points", "{point}", "counter", "Points by what became of them.", ("outcome",)),
    Metric("otel_train.logs", "{record}", "counter", "Log records by what became of them.", ("outcome",)),
    Metric("otel_train.spans", "{span}", "counter", "Spans by what became of them.", ("outcome",)),
    Metric(
        "otel_train.steps",
        "{step}",
        "counter",
        "Steps by whether they became spans: kept, or thinned by step_span_every.",
        ("outcome",),
    ),
    Metric("otel_train.runlog.size", "By", "gauge", "Bytes this process has in the run's folder."),
    Metric(
        "otel_train.export.items",
        "{item}",
        "counter",
        "Points, log records and spans by what became of them on the way to the first hop.",
        (SIGNAL, OUTCOME),
    ),
    Metric("otel_train.export.queue", "By", "gauge", "Bytes of the run log that no server has acknowledged yet."),
    Metric("otel_train.export.retries", "{request}", "counter", "Requests that were sent again.", (SIGNAL,)),
)

METRICS: Final[dict[str, Metric]] = {row.name: row for row in _ROWS}


@dataclass(frozen=True, slots=True)
class Event:
    """One event: a log record with this event name, at this severity, when this happens."""

    name: str
    severity: str
    description: str


_EVENTS: Final = (
    Event("run.start", "INFO", "The run, or a new attempt of it, began."),
    Event("run.config", "INFO", "The configuration, secrets redacted; again after each change."),
    Event("run.environment", "INFO", "Interpreter, hardware, packages, code version, command line."),
    Event("run.resumed", "INFO", "An earlier run goes on as a new attempt; what changed since is in the body."),
    Event("run.end", "INFO", "The run ended, with its status; severity ERROR where it failed."),
    Event("dataset.described", "INFO", "Size, classes, sampling, dropped samples and checksum of a data set."),
    Event("checkpoint.saved", "INFO", "A checkpoint was written, with size and SHA-256."),
    Event("checkpoint.loaded", "INFO", "A model file became this run's parent."),
    Event("model.best", "INFO", "A metric with a direction has a new best value."),
    Event("training.early_stop", "INFO", "Training stopped early, with the reason."),
    Event("stage.start", "INFO", "A stage began."),
    Event("stage.end", "INFO", "A stage ended, with its outputs."),
    Event("health.nonfinite", "ERROR", "A metric was NaN or infinite for the first time."),
    Event("health.plateau", "WARN", "The loss stands still; at INFO, with cleared=true, it goes down again."),
    Event("health.overfit", "WARN", "Validation loss is too far above training loss; cleared as above."),
    Event("health.gradient_exploding", "WARN", "Gradient norms far above their usual value; cleared as above."),
    Event("health.gradient_vanishing", "WARN", "Gradient norms of practically zero; cleared as above."),
    Event("health.stalled", "ERROR", "No step for ten times the usual step time; cleared as above."),
    Event("health.data_wait", "WARN", "Much of the step time is waiting for data; cleared as above."),
    Event("health.gpu_idle", "WARN", "A GPU was hardly used for ten minutes of training; cleared as above."),
    Event("health.gpu_hot", "WARN", "A GPU is too hot; cleared as above."),
    Event("health.gpu_throttled", "WARN", "A GPU is slowed down by heat or power supply; cleared as above."),
    Event("health.gpu_ecc", "ERROR", "A GPU has uncorrected memory errors; cleared after ten minutes without."),
    Event("health.disk_full", "WARN", "The run folder's file system is nearly full; cleared as above."),
    Event("health.memory_full", "WARN", "Memory of host or control group is nearly full; cleared as above."),
    Event("health.data_loading", "ERROR", "The data loader raised an exception."),
    Event("health.out_of_memory", "ERROR", "The host or a device ran out of memory."),
    Event("log.suppressed", "WARN", "So many records like the sampled ones were counted and not kept."),
    Event("progress.bar", "INFO", "The last state of a progress bar, with the number of its redraws."),
    Event("otel_train.notice", "INFO", "What otel-train has to say about its own work."),
)

EVENTS: Final[dict[str, Event]] = {row.name: row for row in _EVENTS}

# Severity numbers of OpenTelemetry's log data model.
SEVERITIES: Final[dict[str, int]] = {"TRACE": 1, "DEBUG": 5, "INFO": 9, "WARN": 13, "ERROR": 17, "FATAL": 21}
# The spellings that logging, loguru and people use.
SEVERITY_ALIASES: Final[dict[str, str]] = {
    "WARNING": "WARN",
    "CRITICAL": "FATAL",
    "SUCCESS": "INFO",
    "EXCEPTION": "ERROR",
}


def severity_number(level: str) -> int:
    """Return the OpenTelemetry severity number of a level by its name in any case; KeyError where unknown."""
    upper = level.upper()
    return SEVERITIES[SEVERITY_ALIASES.get(upper, upper)]
