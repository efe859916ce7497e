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
from otel_train.watch.conditions import CONDITIONS, Condition
from otel_train.watch.thresholds import ALERT_SETTINGS

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
    (
        "Inside the model",
        ("dl.grad", "dl.weight", "dl.update", "dl.activation", "dl.amp", "dl.optimizer"),
        "Sampled by `run.watch`, at the run's step, by `layer` and without that attribute for the whole; see "
        "[reading the internals](internals.md).",
    ),
    (
        "Samples",
        ("dl.samples",),
        "Of batches that `run.check_samples` looked at, at the run's step.",
    ),
    (
        "Speed and time",
        ("dl.rank", "dl.job", "dl.mfu", "dl.micro_step", "dl.time", "dl.productive"),
        "Rates are of training alone: evaluation, checkpoints and pauses are left out.",
    ),
    ("Memory of devices and processes", ("dl.device", "dl.process_tree"), "Read every `sample_interval_s`."),
    (
        "Health",
        (
            *("dl.alert", "dl.steps_since_improvement", "dl.overfit", "dl.grad.usual", "dl.grad.excess"),
            *("dl.grad.recent_max", "dl.step.age", "dl.data.wait.share", "dl.gpu", "dl.memory"),
            *("dl.activation.dead.lasting", "dl.amp.skipped.share", "dl.samples.bad"),
        ),
        "Written every 15 s and when a condition begins or ends; see [health](health.md).",
    ),
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
# The texts of the page on health that no table holds.
FORMULAS = (
    "## How the values are computed",
    "### Plateau",
    "`dl.steps_since_improvement` is counted for every metric with a direction: those named loss or error (also "
    "`total_loss`), and those of `run.define(name, goal=…)`. One evaluation is one value: what is logged under "
    "validation at one step is averaged. Training's values are averaged over windows of a twentieth of "
    "`plateau_steps`, 100 steps, and of a quarter of it: the short ones date an improvement well, the long ones see a "
    "slow one through the noise of batches.",
    "A value v is an improvement on the best b if v < b - max(`plateau_percent` of |b|, twice the median of the rises "
    "among the last 18 changes from one value to the next; fewer than three are a spike). A noisy loss is not better "
    "for a lucky batch. With goal max the same holds of -v; around zero and below, |b| is what the percentage is of. "
    "NaN and infinities never improve. The count is 0 until three values in a row were no improvement; it grows with "
    "the values, not between evaluations.",
    "The plateau is that of the loss on validation; where none is logged, of the loss; where nothing is called just "
    "loss, all metrics with a direction must stand still. Points on another axis than step are not watched. A loop "
    "that gives no steps has one for each call, so with a call an epoch `plateau_steps` are epochs.",
    "### Overfit",
    "`dl.overfit.gap` = (validation - training) / scale at each evaluation. Training is the mean of what was logged "
    "since the evaluation before. The scale is the training loss at the beginning: the median of its first five "
    "values, fewer where the first evaluation comes sooner, or the present training loss where that is greater. The "
    "gap is the part of what training gained that does not carry over. Measured by the present training loss alone, "
    "every model that fits its data well would be overfit. `run.json` keeps the scale, so that a resumed run is "
    "measured alike. Only the metric that is called loss alerts, where there is one.",
    "### Gradients",
    "Watched are metrics named `grad_norm`, `gradient_norm`, `grad/norm`, `gnorm` and the like. The usual norm is the "
    "median of the last 100 finite ones, known from the twentieth on. `dl.grad.excess` is the least of the last three "
    "norms, each divided by the usual one; a norm that is not finite counts as infinite. `dl.grad.recent_max` is the "
    "greatest of the last 100 finite norms.",
    "`dl.grad.norm`, which `run.watch` samples, is judged in the same way, by the last 20 samplings, from the fifth "
    "on; vanished is also what has vanished in one layer alone, and the event names it. Where you log a norm of your "
    "own, that one, which is seen at each step, tells of the whole gradient, so that nothing is told twice. A norm "
    "that is not finite is no event where a loss scaler is at work: the steps that it skips are counted.",
    "### Units, loss scale, samples",
    "`dl.activation.dead.lasting` is the least of a layer's last three shares of dead units; the event is one for the "
    "run, by the layer that is worst. `dl.amp.skipped.share` is the share of skipped steps among the last 100 that "
    "the optimizer tried, known after so many. `dl.samples.bad` is the share of a checked batch that is not finite "
    "plus the share that is constant. The drift is that of `run.check_samples`. What has not come again for five "
    "times the usual number of steps between samplings, as after `run.unwatch()`, is no present value.",
    "### Ranks",
    "The straggler's score is T / (T - B + U), with the median step time T and own work B of the rank over five "
    "minutes, and the lower quartile U of the own work of all ranks: by what factor the rank's own work makes its "
    "steps longer. It must hold for a minute. A rank hangs when `dl.step.age` is over max(`hung_factor` x usual step "
    "time, `hung_min_s`); its stacks are in the event. A rank is lost when it has been silent for `rank_lost_s` and "
    "another of its attempt is alive.",
    "### Pace",
    "`dl.step.age` is the time since the last step of `run.steps` of any split; in a loop by hand since the last call "
    "of `log`. It is 0 while nothing is due: outside of the loop over steps, in an evaluation (a loop of another "
    "split), in `run.save_checkpoint`, in phases whose name says evaluation, validation, test, checkpoint or save, and "
    "in stages without training. The threshold is max(`stalled_factor` x usual step time, `stalled_min_s`); "
    "the usual step time is the median of the last 200, in a loop by hand that of the calls, or a fifth of the "
    "longest pause between these, if that is more. There is "
    "no age before the second step and after the end. Only the monotonic clock is used.",
    "`dl.data.wait.share` is the wait of the training steps of the last five minutes by their time, known after "
    "twenty steps and a minute; the run's very first step, the start of the loader, is left out.",
    "### Machine",
    "`dl.gpu.busy.share` is the mean of `hw.gpu.utilization` over `gpu_idle_s` of training; readings within a stage "
    "without training do not count, and after a pause of a minute it begins anew. Reasons of a low clock that count "
    "are `hw_slowdown`, `hw_thermal_slowdown`, `sw_thermal_slowdown` and `hw_power_brake_slowdown`. ECC errors count "
    "from the run's beginning. `dl.memory.share` is the greater of the host's share in use and of (usage - cached "
    "files not used of late) / limit of the control group. Temperature, clock, disk and memory must hold for a minute.",
    "`dl.memory.time_to_full` is what is free, of the host or of the control group, whichever is less, by "
    "`dl.process_tree.memory.slope`, which is known after six minutes of training; +Inf while memory does not grow. Of "
    "several ranks on a host each sees its own growth alone. It must hold for a minute.",
)


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown; a bar within a cell is escaped."""
    lines = [list(header), ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def code(text: str) -> str:
    """Return a text as code, and nothing for nothing."""
    return f"`{text}`" if text else ""


def page(*parts: str) -> str:
    """Return a page of these paragraphs, wrapped where they are neither heading, table, note nor block of code."""
    return "\n\n".join(part if part.startswith(("#", "|", "<", "```")) else wrap(part) for part in parts if part) + "\n"


def wrap(text: str) -> str:
    """Return a paragraph in lines that an editor shows; code is never broken."""
    return textwrap.fill(text, width=118, break_long_words=False, break_on_hyphens=False)


def group_of(metric: Metric) -> str:
    """Return the title of the group whose prefix says most of a metric's name."""
    fitting = [
        (prefix, title) for title, prefixes, _ in GROUPS for prefix in prefixes if metric.name.startswith(prefix)
    ]
    return max(fitting, key=lambda pair: len(pair[0]), default=("", ""))[1]


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
        cells = [metric_cells(metric) for metric in METRICS.values() if group_of(metric) == title]
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
        "`endpoint` is the base of all three signals. The other variables of OpenTelemetry's exporters (headers, "
        "certificates, timeout, compression, protocol, an endpoint for each signal) mean what its specification says; "
        "see [stack.md](stack.md#connect-a-training).",
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


def threshold_cells(condition: Condition) -> tuple[str, ...]:
    """Return the row of one condition: its name, what it compares, and the keys that change it."""
    keys = ", ".join(f"`{key}` {ALERT_SETTINGS[key].default:g}" for key in (condition.setting, *condition.also))
    return code(condition.name), condition.summary, code(condition.metric), keys, condition.severity


def health_page() -> str:
    """Return the page of health conditions: formulas, thresholds, and how to change them."""
    return page(
        "# Health",
        NOTE,
        "otel-train watches a run while it is written, on the writer's thread. When a condition begins it writes one "
        "event `health.<condition>` into the run log, and one more, at severity INFO with the attribute `cleared`, "
        "when it is over: the value must have come back by 5 % of the threshold, so that a value that wavers is one "
        "condition. `otel-train show` and the report list them. With the stack, an alert rule compares the same value "
        "with the run's own threshold, `dl.alert.threshold`; what to do then stands in the [runbook](runbook.md).",
        '```python\notel_train.init(alerts={"plateau_steps": 500, "overfit_gap": 0.2, "gpu_utilization": "off"})\n```',
        "Or by a variable:",
        "```sh\nexport OTEL_TRAIN_ALERTS=plateau_steps=500,overfit_gap=0.2,gpu_utilization=off\n```",
        "0, None and off switch a condition off. An unknown key and a wrong number raise `ConfigError` at `init()`.",
        "## Conditions",
        table(
            ("condition", "when, by default", "value", "keys and defaults", "severity"),
            [threshold_cells(condition) for condition in CONDITIONS.values()],
        ),
        "`failed`, `lost` and `rank_lost` are alerts alone: the run log says how a run ended by `run.end`, who finds a "
        "dead run marks it, and a rank that lives writes `rank.lost`. `health.nonfinite` is written once for each "
        "metric, and never taken back.",
        "## Keys of alerts",
        table(
            ("key", "default", "unit", "what it is"),
            [(code(row.name), f"{row.default:g}", row.unit, row.help) for row in ALERT_SETTINGS.values()],
        ),
        *FORMULAS,
    )


def pages() -> dict[str, str]:
    """Return the text of each generated page by its file name."""
    return {
        "metrics.md": metrics_page(),
        "events.md": events_page(),
        "settings.md": settings_page(),
        "health.md": health_page(),
    }


def main() -> None:
    """Write all pages, and print where."""
    for name, text in pages().items():
        (HERE / name).write_text(text, encoding="utf-8")
        print(HERE / name)


if __name__ == "__main__":
    main()
