"""One table of settings, each found in the order argument, environment, file, default, and checked before a run starts.

The file is `otel_train.toml`, or the table `[tool.otel_train]` of `pyproject.toml`, in the working folder.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from otel_train.errors import ConfigError
from otel_train.semconv import severity_number

_SIZE_UNITS: Final = {"": 1, "B": 1}
for _power, _letter in enumerate("KMGT", start=1):
    _SIZE_UNITS[_letter] = _SIZE_UNITS[_letter + "B"] = 1000**_power
    _SIZE_UNITS[_letter + "IB"] = 1024**_power
_NUMBER: Final = re.compile(r"\d+\.?\d*|\.\d+")
_DURATION_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def parse_size(text: str | float) -> int:
    """Return bytes of `20GB` (decimal), `500MiB` (binary) or a plain number; ValueError where it is neither."""
    match = re.fullmatch(r"\s*([0-9.]+)\s*([A-Za-z]*)\s*", str(text))
    if not match or match[2].upper() not in _SIZE_UNITS or not _NUMBER.fullmatch(match[1]):
        raise ValueError("a size is a number with a unit, such as 20GB or 500MiB")
    return int(float(match[1]) * _SIZE_UNITS[match[2].upper()])


def parse_duration(text: str | float) -> float:
    """Return seconds of `30d`, `12h`, `45m`, `10s` or a plain number; ValueError where it is none."""
    match = re.fullmatch(r"\s*([0-9.]+)\s*([smhdw]?)\s*", str(text))
    if not match or not _NUMBER.fullmatch(match[1]):
        raise ValueError("a duration is a number with a unit, such as 30d, 12h, 45m or 10s")
    return float(match[1]) * _DURATION_UNITS[match[2] or "s"]


def _flag(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    text = str(value).strip().lower()
    if text in ("1", "true", "yes", "on"):
        return True
    if text in ("0", "false", "no", "off", ""):
        return False
    raise ValueError("use true or false")


def _number(low: float, high: float = float("inf"), *, whole: bool = False) -> Callable[[Any], Any]:
    def parse(value: Any) -> float | int:
        kind = "whole number" if whole else "number"
        try:
            number = (int if whole else float)(value)
            exact = float(number) == float(value)
        except (TypeError, ValueError, OverflowError):
            raise ValueError(f"use a {kind} of at least {low:g}") from None
        if isinstance(value, bool) or not exact or not low <= number <= high or number == float("inf"):
            limit = f"at least {low:g}" if high == float("inf") else f"from {low:g} to {high:g}"
            raise ValueError(f"use a {kind} {'of ' if high == float('inf') else ''}{limit}")
        return number

    return parse


def _level(value: Any) -> str:
    try:
        severity_number(str(value))
    except KeyError:
        raise ValueError("use one of trace, debug, info, warning, error, critical") from None
    return str(value).upper()


def _console(value: Any) -> str | None:
    if value in (None, "", "none", "off", False):
        return None
    if value not in ("pretty", "json"):
        raise ValueError('use "pretty", "json", or None for none')
    return str(value)


def _log_ranks(value: Any) -> str:
    if value not in ("main", "all"):
        raise ValueError('use "main" or "all"')
    return str(value)


def _every(value: Any) -> dict[str, int]:
    """Accept a mapping of name patterns to N steps, or `pattern=N,pattern=N`; `epoch` for N keeps one an epoch."""
    if isinstance(value, str):
        value = dict(part.split("=", 1) for part in value.split(",") if "=" in part) if value.strip() else {}
    if not isinstance(value, Mapping):
        raise ValueError('use a mapping from metric patterns to steps, such as {"train.*": 10}')
    parsed: dict[str, int] = {}
    for pattern, steps in value.items():
        if steps == "epoch":
            parsed[str(pattern)] = 0
            continue
        try:
            parsed[str(pattern)] = _number(1, whole=True)(steps)
        except ValueError:
            raise ValueError(f'{pattern!r} needs a whole number of steps of at least 1, or "epoch"') from None
    return parsed


def _alerts(value: Any) -> dict[str, Any]:
    """Accept a mapping of names to numbers, or `name=number,name=number`; what names there are is checked with them."""
    if isinstance(value, str):
        parts = [part for part in value.split(",") if part.strip()]
        if not all("=" in part for part in parts):
            raise ValueError("use name=number,name=number, such as plateau_steps=500,overfit_gap=0.2")
        value = {name.strip(): number.strip() for name, _, number in (part.partition("=") for part in parts)}
    if not isinstance(value, Mapping):
        raise ValueError('use a mapping from names to numbers, such as {"plateau_steps": 500}')
    return {str(name): number for name, number in value.items()}


def _names(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    try:
        names = tuple(value)
    except TypeError:
        raise ValueError("use a list of texts") from None
    if not all(isinstance(name, str) for name in names):
        raise ValueError("use a list of texts")
    return names


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError("use a text that is not empty")
    if len(value) > 256:
        raise ValueError("use a text of at most 256 characters")
    return value


def _notes(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("use a text")
    return value[:100_000]


def _endpoint(value: Any) -> str:
    # Without a scheme it is an address for gRPC; the protocol is known only where things are sent.
    if not re.match(r"(?:https?|dns|unix|ipv[46]):/*[^/\s]|(?!https?:)[^\s/]+:\d", str(value), re.IGNORECASE):
        raise ValueError("use a URL with its scheme, such as http://localhost:4318")
    return str(value)


def _port(value: Any) -> int | None:
    """Accept a port; 0 takes one that is free, `none` lifts what a file says."""
    if str(value).strip().lower() in ("none", ""):
        return None
    port: int = _number(0, 65_535, whole=True)(value)
    return port


def _sender(value: Any) -> str:
    if value not in ("thread", "process", "none"):
        raise ValueError('use "thread", "process" or "none"')
    return str(value)


def _age(value: Any) -> float | None:
    """Seconds; None where `none` is said, so that a file's limit can be lifted."""
    if str(value).strip().lower() == "none":
        return None
    seconds = parse_duration(value)
    if seconds <= 0:
        raise ValueError("use a duration above 0, such as 7d, or none")
    return seconds


def _folder(value: Any) -> str | Literal[False]:
    """Accept a path, or False for none; in variables and files `false` and `none` say that too."""
    if value is False or (isinstance(value, str) and value.strip().lower() in ("false", "none")):
        return False
    try:
        path = os.fsdecode(value)
    except TypeError:
        raise ValueError("use a path") from None
    if not path or "\0" in path:
        raise ValueError("use a path that is not empty")
    return os.path.expanduser(path)


def _sized(value: Any) -> int:
    size = parse_size(value)
    if size < 65_536:
        raise ValueError("use a size of at least 64KiB")
    return size


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
        "project", "OTEL_SERVICE_NAME", None, _text, "Project, the resource's service.name; else the script's folder."
    ),
    Setting(
        "dir",
        "OTEL_TRAIN_DIR",
        "./runs",
        _folder,
        "Root folder of the runs; false or none for a run without a folder, which is only sent to the endpoint.",
    ),
    Setting("name", "OTEL_TRAIN_NAME", None, _text, "A readable name of the run; else one is made of its id."),
    Setting(
        "group", "OTEL_TRAIN_GROUP", None, _text, "Runs that belong together, such as the folds of one experiment."
    ),
    Setting("notes", "OTEL_TRAIN_NOTES", None, _notes, "Anything to say about the run."),
    Setting("tags", "OTEL_TRAIN_TAGS", (), _names, "Words to find the run by."),
    Setting("every", "OTEL_TRAIN_EVERY", {}, _every, "Thinning: metric patterns and the steps of which one is kept."),
    Setting(
        "console",
        "OTEL_TRAIN_CONSOLE",
        None,
        _console,
        "Print records to standard error: pretty lines, JSON lines, or none.",
    ),
    Setting("console_level", "OTEL_TRAIN_CONSOLE_LEVEL", "INFO", _level, "Lowest level that the console prints."),
    Setting("log_level", "OTEL_TRAIN_LOG_LEVEL", "DEBUG", _level, "Lowest level that the run log keeps."),
    Setting("capture_output", "OTEL_TRAIN_CAPTURE_OUTPUT", False, _flag, "Record what the script prints."),
    Setting("capture_logs", "OTEL_TRAIN_CAPTURE_LOGS", True, _flag, "Record logging, loguru and structlog."),
    Setting(
        "log_ranks",
        "OTEL_TRAIN_LOG_RANKS",
        "main",
        _log_ranks,
        "Whose run.log is stored: main (rank 0) or all; step times and the machine are those of every rank.",
    ),
    Setting(
        "flood_per_s",
        "OTEL_TRAIN_FLOOD_PER_S",
        10,
        _number(1, whole=True),
        "Like records a second that are kept; more are counted.",
    ),
    Setting("redact", "OTEL_TRAIN_REDACT", (), _names, "More keys, or regular expressions, whose values are secrets."),
    Setting(
        "sample_interval_s",
        "OTEL_TRAIN_SAMPLE_INTERVAL_S",
        5.0,
        _number(0.1),
        "Seconds between readings of the machine.",
    ),
    Setting("sample_machine", "OTEL_TRAIN_SAMPLE_MACHINE", True, _flag, "Read CPU, memory, disk, network and GPUs."),
    Setting(
        "flush_interval_s", "OTEL_TRAIN_FLUSH_INTERVAL_S", 0.5, _number(0.01, 1), "Seconds until records are on disk."
    ),
    Setting(
        "buffer_entries",
        "OTEL_TRAIN_BUFFER_ENTRIES",
        100_000,
        _number(100, whole=True),
        "Calls that wait in memory at most; more are dropped and counted.",
    ),
    Setting(
        "step_span_every",
        "OTEL_TRAIN_STEP_SPAN_EVERY",
        100,
        _number(1, whole=True),
        "Every how many steps one becomes a span.",
    ),
    Setting(
        "segment_size", "OTEL_TRAIN_SEGMENT_SIZE", 64 << 20, _sized, "Size at which a file of the run log is closed."
    ),
    Setting(
        "max_run_size",
        "OTEL_TRAIN_MAX_RUN_SIZE",
        20_000_000_000,
        _sized,
        "Size of a rank's folder; more is left out and counted.",
    ),
    Setting(
        "finish_timeout_s",
        "OTEL_TRAIN_FINISH_TIMEOUT_S",
        5.0,
        _number(0.1, 600),
        "Seconds that finish() takes at most.",
    ),
    Setting(
        "alerts",
        "OTEL_TRAIN_ALERTS",
        {},
        _alerts,
        "Thresholds of this run's health conditions, by name; 0 switches one off. See docs/health.md.",
    ),
    Setting("git", "OTEL_TRAIN_GIT", True, _flag, "Record commit, branch, remote, and the patch of what differs."),
    Setting("endpoint", "OTEL_EXPORTER_OTLP_ENDPOINT", None, _endpoint, "OTLP endpoint of a Collector."),
    Setting(
        "sender",
        "OTEL_TRAIN_SENDER",
        "thread",
        _sender,
        "Who sends the run log to the endpoint: a thread, a process of its own, which outlives a kill, or none.",
    ),
    Setting(
        "prometheus_port",
        "OTEL_TRAIN_PROMETHEUS_PORT",
        None,
        _port,
        "Port on which a Prometheus may scrape present values; with several local ranks each adds its number.",
    ),
    Setting(
        "prometheus_host",
        "OTEL_TRAIN_PROMETHEUS_HOST",
        "127.0.0.1",
        _text,
        "Address to listen on for that; 0.0.0.0 lets other machines in.",
    ),
    Setting(
        "max_log_age",
        "OTEL_TRAIN_MAX_LOG_AGE",
        None,
        _age,
        "Age beyond which log records are not sent but counted, such as 7d: Loki refuses older ones.",
    ),
)

BY_NAME: Final[dict[str, Setting]] = {setting.name: setting for setting in SETTINGS}


@dataclass(frozen=True, slots=True)
class Settings:
    """The checked values, and for each where it was found: argument, environment, file or default."""

    values: Mapping[str, Any]
    origins: Mapping[str, str]

    def __getitem__(self, name: str) -> Any:
        return self.values[name]


def read_file(folder: Path) -> tuple[dict[str, Any], str]:
    """Return the settings of `otel_train.toml`, else of `pyproject.toml`, in `folder`, and the file's name."""
    for name, table in (("otel_train.toml", ()), ("pyproject.toml", ("tool", "otel_train"))):
        path = folder / name
        if not path.is_file():
            continue
        try:
            content: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, OSError, UnicodeDecodeError) as fault:
            if name == "pyproject.toml":  # somebody else's file: its faults are not ours to report
                continue
            raise ConfigError(name, str(path), f"mend the file: {fault}") from None
        for part in table:
            content = content.get(part, {})
        if content:
            return content, name
    return {}, ""


def resolve(arguments: Mapping[str, Any], environ: Mapping[str, str], folder: Path | None = None) -> Settings:
    """Return every setting, checked; an argument of None counts as not given. ConfigError names what is wrong."""
    from_file, file_name = read_file(folder or Path.cwd())
    for key in from_file:
        if key not in BY_NAME:
            raise ConfigError(f"{file_name}: {key}", from_file[key], f"no such setting; there are {', '.join(BY_NAME)}")
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for setting in SETTINGS:
        name = setting.name
        if arguments.get(name) is not None:
            value, origin, label = arguments[name], "argument", name
        elif environ.get(setting.variable, "") != "":
            value, origin, label = environ[setting.variable], "environment", setting.variable
        elif name in from_file:
            value, origin, label = from_file[name], "file", f"{file_name}: {name}"
        else:
            values[name], origins[name] = setting.default, "default"
            continue
        try:
            values[name] = setting.parse(value)
        except ValueError as fault:
            raise ConfigError(label, value, str(fault)) from None
        origins[name] = origin
    return Settings(values, origins)


def is_disabled(environ: Mapping[str, str]) -> bool:
    """Tell whether `OTEL_SDK_DISABLED` is true, in any case, as the specification has it."""
    return environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
