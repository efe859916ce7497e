"""Writes the reference pages of metrics, events and settings from the tables that the program itself uses.

`make docs` runs it; a test compares the pages with what it would write.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from otel_train.config import SETTINGS
from otel_train.semconv import EVENTS, GPU_ATTRIBUTES, METRICS, RUN_STATES, SEVERITIES, SPLITS, Metric

HERE = Path(__file__).parent
NOTE = "<!-- Written by docs/generate.py from the tables of the program; change those, then run `make docs`. -->"
# Arguments of init() that say something about one run, and have no variable.
ARGUMENTS = (
    (
        "config",
        "The run's configuration: mapping, Namespace, dataclass or OmegaConf. `run.config.update()` adds to it.",
    ),
    ("seed", "Seeds Python's `random`, NumPy and torch, where they are loaded, and is recorded."),
    ("run_id", "An id of your own for a new run. The id of an existing run is refused."),
    ("resume", 'The id of an earlier run to go on with, as its next attempt; "auto" is the job that was requeued.'),
)
GROUPS = (
    ("Values that you log", ("train.",), "One gauge for each key of `run.log`."),
    ("Training", ("dl.step", "dl.epoch", "dl.data", "dl.phase", "dl.nonfinite", "dl.checkpoint"), ""),
    ("The run", ("dl.run",), ""),
    ("Host and container", ("system.", "container.", "dl.container."), "Read every `sample_interval_s`."),
    ("Process", ("process.",), "Read every `sample_interval_s`."),
    (
        "GPU",
        ("hw.",),
        "Read through NVML every `sample_interval_s`. A reading that a card does not offer is left out. Each series "
        "also has " + ", ".join(f"`{name}`" for name in GPU_ATTRIBUTES) + ": UUID, model, the process's number of "
        "the card, its place on the machine, and for a MIG slice the card and the instances.",
    ),
    ("What otel-train says of itself", ("otel_train.",), ""),
)


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown; a bar within a cell is escaped."""
    lines = [list(header), ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def code(text: str) -> str:
    """Return a text as code, and nothing for nothing."""
    return f"`{text}`" if text else ""


def page(*parts: str) -> str:
    """Return a page of these paragraphs, wrapped where they are neither heading, table nor note."""
    return "\n\n".join(part if part[0] in "#|<" else wrap(part) for part in parts if part) + "\n"


def wrap(text: str) -> str:
    """Return a paragraph in lines that an editor shows; code is never broken."""
    return textwrap.fill(text, width=118, break_long_words=False, break_on_hyphens=False)


def metric_cells(metric: Metric) -> tuple[str, ...]:
    """Return the row of one metric; what all GPU series have in common is said above their table."""
    shared = GPU_ATTRIBUTES if metric.name.startswith("hw.") else ()
    attributes = ", ".join(code(name) for name in metric.attributes if name not in shared)
    return code(metric.name), metric.kind, code(metric.unit), attributes, metric.description


def metrics_page() -> str:
    """Return the page of metrics, group by group as in `GROUPS`."""
    parts = [
        "# Metrics",
        NOTE,
        "Every metric that otel-train writes, under its OTLP name. Units are those of UCUM: `s` seconds, `By` bytes, "
        "`1` a share from 0 to 1; no unit is a plain number. A gauge is a value at a time, a counter a sum that only "
        "grows, an updowncounter a sum that may fall, a histogram a distribution.",
    ]
    for title, prefixes, remark in GROUPS:
        cells = [metric_cells(metric) for metric in METRICS.values() if metric.name.startswith(prefixes)]
        if prefixes == ("train.",):
            cells = [("`train.<key>`", "gauge", "that of `run.define`", "`split`", "What `run.log` was given.")]
        parts += [f"## {title}", remark, table(("name", "kind", "unit", "attributes", "what it is"), cells)]
    parts += [
        "## Attributes with fixed values",
        table(
            ("attribute", "values"),
            [("`split`", ", ".join(map(code, SPLITS))), ("`state`", ", ".join(map(code, RUN_STATES)))],
        ),
    ]
    return page(*parts)


def events_page() -> str:
    """Return the page of events and of severities."""
    return page(
        "# Events",
        NOTE,
        "An event is a log record with an event name, both as OTLP's `eventName` and as the attribute `event.name`. "
        '`run.event("my.event", "text", {"key": 1})` writes one of your own.',
        table(
            ("event", "severity", "when"),
            [(code(event.name), event.severity, event.description) for event in EVENTS.values()],
        ),
        "## Severities",
        "Levels of `logging`, loguru and structlog become the severities of OpenTelemetry's log data model.",
        table(("severity", "number"), [(name, str(number)) for name, number in SEVERITIES.items()]),
    )


def default_text(name: str, value: Any) -> str:
    """Return a default as somebody would write it."""
    if name in ("segment_size", "max_run_size"):
        return f"`{value >> 20}MiB`" if value % (1 << 20) == 0 else f"`{value // 10**9}GB`"
    if value is None or value in ((), {}):
        return "none"
    return code(str(value).lower() if isinstance(value, bool) else str(value))


def settings_page() -> str:
    """Return the page of settings and of the other arguments of `init()`."""
    rows = [
        (code(setting.name), code(setting.variable), default_text(setting.name, setting.default), setting.help)
        for setting in SETTINGS
    ]
    return page(
        "# Settings",
        NOTE,
        "Each setting is an argument of `otel_train.init()`, an environment variable, and a key of the file "
        "`otel_train.toml` (or of the table `[tool.otel_train]` in `pyproject.toml`) in the working folder. The "
        "argument wins, then the variable, then the file, then the default. A wrong value, and a key that there is "
        "not, raise `ConfigError` at `init()`; it names the setting, the value and the fix.",
        table(("setting", "variable", "default", "what it does"), rows),
        "Sizes are written like `20GB` (decimal) or `64MiB` (binary). `every` is a mapping in Python and in the file, "
        "and `train.*=10,train.lr=epoch` in the variable: a pattern of metric names, and the steps of which one is "
        "kept, or `epoch` for one point an epoch.",
        "`endpoint` is checked, and used for nothing yet: this version sends nothing over the network.",
        "## Other arguments of init()",
        table(("argument", "what it does"), [(code(name), text) for name, text in ARGUMENTS]),
        "## Other variables",
        table(
            ("variable", "what it does"),
            [
                ("`OTEL_SDK_DISABLED`", "`true`: nothing is recorded; loops iterate and checkpoints are written."),
                ("`OTEL_RESOURCE_ATTRIBUTES`", "More attributes of every record. What makes a run's identity stays."),
                ("`TRACEPARENT`, `TRACESTATE`", "The trace that the run joins, as a pipeline's step say."),
                ("`OTEL_TRAIN_LAUNCH_KEY`", "Names the launch, where ranks share nothing else that does."),
                ("`OTEL_TRAIN_RESUME_KEY`", 'Names the job for `resume="auto"`, where no scheduler does.'),
                ("`NO_COLOR`", "No colours on the console and in the command's output."),
            ],
        ),
        "Ranks are read from `RANK`, `WORLD_SIZE` and `LOCAL_RANK`, which torchrun sets, and from the variables of "
        "Slurm and of MPI's launchers.",
    )


def pages() -> dict[str, str]:
    """Return the text of each generated page by its file name."""
    return {"metrics.md": metrics_page(), "events.md": events_page(), "settings.md": settings_page()}


def main() -> None:
    """Write all pages, and print where."""
    for name, text in pages().items():
        (HERE / name).write_text(text, encoding="utf-8")
        print(HERE / name)


if __name__ == "__main__":
    main()
