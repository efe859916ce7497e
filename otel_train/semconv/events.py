"""Names the events and the severities."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


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
    Event("attempt.ended", "ERROR", "Why the attempt before this one ended: which rank was killed, failed or hung."),
    Event("rank.lost", "ERROR", "A rank was killed, or failed, while others of its run lived; by one of those."),
    Event(
        "gradient.nonfinite", "ERROR", "A sampled gradient was not finite, for the first time beginning in this layer."
    ),
    Event("dataset.described", "INFO", "Size, classes, sampling, dropped samples and checksum of a data set."),
    Event("samples.checked", "INFO", "A batch was checked by run.check_samples, with the values and the files kept."),
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
    Event("health.hung", "ERROR", "A rank makes no step: the stacks of all its threads; cleared as above."),
    Event("health.dead_units", "WARN", "Most units of a layer give nothing but zero; cleared as above."),
    Event("health.amp_skipping", "WARN", "The loss scaler skips most optimizer steps; cleared as above."),
    Event("health.samples_bad", "WARN", "Samples that are not finite, or constant; cleared as above."),
    Event("health.samples_drift", "WARN", "Batches no longer look like the first ones; cleared as above."),
    Event("health.memory_growth", "WARN", "Memory will be full within an hour at its slope; cleared as above."),
    Event("health.straggler", "WARN", "A rank's own work takes much longer than the others'; cleared as above."),
    Event("health.data_wait", "WARN", "Much of the step time is waiting for data; cleared as above."),
    Event("health.gpu_idle", "WARN", "A GPU was hardly used for ten minutes of training; cleared as above."),
    Event("health.gpu_hot", "WARN", "A GPU is too hot; cleared as above."),
    Event("health.gpu_throttled", "WARN", "A GPU is slowed down by heat or power supply; cleared as above."),
    Event("health.gpu_ecc", "ERROR", "A GPU has uncorrected memory errors; cleared after ten minutes without."),
    Event("health.disk_full", "WARN", "The run folder's file system is nearly full; cleared as above."),
    Event("health.memory_full", "WARN", "Memory of host or control group is nearly full; cleared as above."),
    Event(
        "health.data_loading",
        "ERROR",
        "The data loader raised an exception; with the worker and the indices of its samples where they are known.",
    ),
    Event("data.worker_died", "ERROR", "A worker of a data loader was killed or left, with the samples it was at."),
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
