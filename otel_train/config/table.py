"""Holds the one table of settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from otel_train.config.values import (
    age,
    alerts,
    console,
    endpoint,
    every,
    flag,
    folder,
    level,
    log_ranks,
    names,
    notes,
    number,
    port,
    sender,
    sized,
    text,
)


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting: its name as argument of `init()`, its environment variable, default, check, and one sentence."""

    name: str
    variable: str
    default: Any
    parse: Callable[[Any], Any]
    help: str


SETTINGS: Final[tuple[Setting, ...]] = (
    Setting(
        "project",
        "OTEL_SERVICE_NAME",
        None,
        text,
        "Project, the resource's service.name; else the script's folder.",
    ),
    Setting(
        "dir",
        "OTEL_TRAIN_DIR",
        "./runs",
        folder,
        "Root folder of the runs; false or none for a run without a folder, which is only sent to the endpoint.",
    ),
    Setting("name", "OTEL_TRAIN_NAME", None, text, "A readable name of the run; else one is made of its id."),
    Setting("group", "OTEL_TRAIN_GROUP", None, text, "Runs that belong together, such as the folds of one experiment."),
    Setting("notes", "OTEL_TRAIN_NOTES", None, notes, "Anything to say about the run."),
    Setting("tags", "OTEL_TRAIN_TAGS", (), names, "Words to find the run by."),
    Setting("every", "OTEL_TRAIN_EVERY", {}, every, "Thinning: metric patterns and the steps of which one is kept."),
    Setting(
        "console",
        "OTEL_TRAIN_CONSOLE",
        None,
        console,
        "Print records to standard error: pretty lines, JSON lines, or none.",
    ),
    Setting("console_level", "OTEL_TRAIN_CONSOLE_LEVEL", "INFO", level, "Lowest level that the console prints."),
    Setting("log_level", "OTEL_TRAIN_LOG_LEVEL", "DEBUG", level, "Lowest level that the run log keeps."),
    Setting("capture_output", "OTEL_TRAIN_CAPTURE_OUTPUT", False, flag, "Record what the script prints."),
    Setting("capture_logs", "OTEL_TRAIN_CAPTURE_LOGS", True, flag, "Record logging, loguru and structlog."),
    Setting(
        "log_ranks",
        "OTEL_TRAIN_LOG_RANKS",
        "main",
        log_ranks,
        "Whose run.log is stored: main (rank 0) or all; step times and the machine are those of every rank.",
    ),
    Setting(
        "flood_per_s",
        "OTEL_TRAIN_FLOOD_PER_S",
        10,
        number(1, whole=True),
        "Like records a second that are kept; more are counted.",
    ),
    Setting("redact", "OTEL_TRAIN_REDACT", (), names, "More keys, or regular expressions, whose values are secrets."),
    Setting(
        "sample_interval_s",
        "OTEL_TRAIN_SAMPLE_INTERVAL_S",
        5.0,
        number(0.1),
        "Seconds between readings of the machine.",
    ),
    Setting("sample_machine", "OTEL_TRAIN_SAMPLE_MACHINE", True, flag, "Read CPU, memory, disk, network and GPUs."),
    Setting(
        "flush_interval_s",
        "OTEL_TRAIN_FLUSH_INTERVAL_S",
        0.5,
        number(0.01, 1),
        "Seconds until records are on disk.",
    ),
    Setting(
        "buffer_entries",
        "OTEL_TRAIN_BUFFER_ENTRIES",
        100_000,
        number(100, whole=True),
        "Calls that wait in memory at most; more are dropped and counted.",
    ),
    Setting(
        "step_span_every",
        "OTEL_TRAIN_STEP_SPAN_EVERY",
        100,
        number(1, whole=True),
        "Every how many steps one becomes a span.",
    ),
    Setting(
        "watch_loaders",
        "OTEL_TRAIN_WATCH_LOADERS",
        True,
        flag,
        "Time the batches of torch's data loaders in their workers, in loops of run.steps.",
    ),
    Setting(
        "segment_size",
        "OTEL_TRAIN_SEGMENT_SIZE",
        64 << 20,
        sized,
        "Size at which a file of the run log is closed.",
    ),
    Setting(
        "max_run_size",
        "OTEL_TRAIN_MAX_RUN_SIZE",
        20_000_000_000,
        sized,
        "Size of a rank's folder; more is left out and counted.",
    ),
    Setting(
        "finish_timeout_s",
        "OTEL_TRAIN_FINISH_TIMEOUT_S",
        5.0,
        number(0.1, 600),
        "Seconds that finish() takes at most.",
    ),
    Setting(
        "alerts",
        "OTEL_TRAIN_ALERTS",
        {},
        alerts,
        "Thresholds of this run's health conditions, by name; 0 switches one off. See docs/health.md.",
    ),
    Setting(
        "memory_snapshot",
        "OTEL_TRAIN_MEMORY_SNAPSHOT",
        False,
        flag,
        "Have torch's CUDA allocator keep its history, and write it as a file when a device runs out of memory.",
    ),
    Setting("git", "OTEL_TRAIN_GIT", True, flag, "Record commit, branch, remote, and the patch of what differs."),
    Setting("endpoint", "OTEL_EXPORTER_OTLP_ENDPOINT", None, endpoint, "OTLP endpoint of a Collector."),
    Setting(
        "sender",
        "OTEL_TRAIN_SENDER",
        "thread",
        sender,
        "Who sends the run log to the endpoint: a thread, a process of its own, which outlives a kill, or none.",
    ),
    Setting(
        "prometheus_port",
        "OTEL_TRAIN_PROMETHEUS_PORT",
        None,
        port,
        "Port on which a Prometheus may scrape present values; with several local ranks each adds its number.",
    ),
    Setting(
        "prometheus_host",
        "OTEL_TRAIN_PROMETHEUS_HOST",
        "127.0.0.1",
        text,
        "Address to listen on for that; 0.0.0.0 lets other machines in.",
    ),
    Setting(
        "max_log_age",
        "OTEL_TRAIN_MAX_LOG_AGE",
        None,
        age,
        "Age beyond which log records are not sent but counted, such as 7d: Loki refuses older ones.",
    ),
)

BY_NAME: Final[dict[str, Setting]] = {setting.name: setting for setting in SETTINGS}
