"""Makes the small picture of a run that a notebook shows: HTML with inline styles, no script, every text escaped."""

from __future__ import annotations

import html
import math
import shlex
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from otel_train.clock import NS_PER_S, wall_ns
from otel_train.record.entries import LogEntry
from otel_train.semconv import STEP

if TYPE_CHECKING:
    from otel_train.run.run import Run

MOST_ROWS: Final = 12
MOST_WARNINGS: Final = 4
_CHARACTERS: Final = 240
# White text is legible on each, and each on white and on black. The state is said in words, too.
_COLOURS: Final = {
    "running": "#2a6fbb",
    "finished": "#2e7d46",
    "failed": "#b3372f",
    "killed": "#96620f",
    "interrupted": "#96620f",
}
_GREY: Final = "#6b6b6b"


@dataclass(frozen=True, slots=True)
class Row:
    """One metric: its last and its best value, each with its step; None for no best value."""

    name: str
    last: float
    last_step: int
    best: float | None = None
    best_step: int = 0
    nonfinite: int = 0


@dataclass(frozen=True, slots=True)
class Facts:
    """What the panel says of a run at one moment. Durations are seconds."""

    name: str
    run_id: str
    state: str
    reason: str = ""
    project: str = ""
    place: str = ""
    step: int | None = None
    epoch: int | None = None
    share: float | None = None
    left_s: float | None = None
    elapsed_s: float = 0.0
    rows: list[Row] = field(default_factory=list)
    # What holds, and the last warnings: level, text, step as text.
    holding: list[tuple[str, str, str]] = field(default_factory=list)
    warnings: list[tuple[str, str, str]] = field(default_factory=list)
    folder: str = ""
    command: str = ""


def facts_of(run: Run) -> Facts:
    """Return what is known in memory of a run: nothing is read from disk, and nothing is waited for."""
    session, points = run.session, run.points
    opened = session.opened_now
    state, reason, ended_ns = session.ended_as or ("running", "", wall_ns())
    # None until something was logged or a loop has begun: then there is no step yet.
    position = run.position()
    rank = f"rank {run.rank} of {session.ranks.world_size}" if session.ranks.world_size > 1 else ""
    attempt = f"attempt {opened.attempt}" if opened is not None and opened.attempt > 1 else ""
    root = session.root
    warned = run.log_sink.warned
    holding = warned.holding()
    return Facts(
        name=session.name or session.label,
        run_id=session.label,
        state=state,
        reason=reason,
        project=session.project,
        place=", ".join(part for part in (attempt, rank) if part),
        step=points.at if STEP in position else None,
        epoch=points.epoch,
        share=run.progress.share(),
        left_s=None if run.finished or run.accounts is None else run.accounts.left_s(),
        elapsed_s=(ended_ns - session.start_ns) / NS_PER_S,
        rows=_rows(run),
        holding=[_said(entry) for entry in holding],
        warnings=[_said(entry) for entry in list(warned.last) if entry not in holding][-MOST_WARNINGS:],
        folder="" if opened is None or opened.place is None else str(opened.folder.path),
        command="" if root is None else f"otel-train ui {shlex.quote(str(root))}",
    )


def _rows(run: Run) -> list[Row]:
    summaries = run.digest.summaries
    rows = []
    for series, summary in list(summaries.by_series.items()):
        goal = summaries.goal(series) if summary.finite else None
        rows.append(
            Row(
                name=f"{series.split}/{series.key}" if series.split else series.key,
                last=summary.last,
                last_step=summary.last_step,
                best=None if goal is None else summary.minimum if goal == "min" else summary.maximum,
                best_step=summary.minimum_step if goal == "min" else summary.maximum_step,
                nonfinite=sum(summary.nonfinite.values()),
            )
        )
    return rows


def _said(entry: LogEntry) -> tuple[str, str, str]:
    body = entry.body if isinstance(entry.body, str) else str(entry.body)
    if len(body) > _CHARACTERS:
        body = body[:_CHARACTERS] + "…"
    step = entry.attributes.get(STEP)
    return entry.severity_text or "WARN", body, "" if step is None else f"step {step}"


# HTML ----------------------------------------------------------------------------------------------------------------

_BOX = (
    "border:1px solid rgba(128,128,128,.45);border-radius:6px;padding:.6em .9em;max-width:46em;"
    "font:13px/1.45 system-ui,sans-serif;color:inherit;background:transparent"
)
_FAINT = "opacity:.72"
_CELL = "padding:.1em 1.1em .1em 0;text-align:{side};border:0;background:transparent;color:inherit;font-size:13px"
_CODE = "font-family:ui-monospace,monospace;font-size:12px;background:transparent;color:inherit"


def as_html(facts: Facts) -> str:
    """Return the panel."""
    parts = [_title(facts), _progress(facts), _table(facts.rows)]
    parts += [_line(level, text, step, holds=True) for level, text, step in facts.holding[:MOST_WARNINGS]]
    parts += [_line(level, text, step) for level, text, step in facts.warnings]
    parts.append(_where(facts))
    return f'<div style="{_BOX}">{"".join(parts)}</div>'


def disabled_html(name: str) -> str:
    """Return the panel of a run that records nothing."""
    facts = Facts(name=name or "run", run_id="", state="not recorded", reason="OTEL_SDK_DISABLED is set")
    return f'<div style="{_BOX}">{_title(facts)}</div>'


def _text(value: object) -> str:
    # A lone surrogate, from a file name that is no UTF-8, cannot be sent to the page.
    return html.escape(str(value).encode("utf-8", "backslashreplace").decode("utf-8"))


def _title(facts: Facts) -> str:
    colour = _COLOURS.get(facts.state, _GREY)
    pill = f"background:{colour};color:#fff;border-radius:9px;padding:.05em .65em;margin-left:.6em;font-size:12px"
    about = " · ".join(part for part in (facts.project, facts.run_id, facts.place) if part and part != facts.name)
    reason = f'<div style="{_FAINT}">{_text(facts.reason)}</div>' if facts.reason else ""
    return (
        f'<div><strong>{_text(facts.name)}</strong><span style="{pill}">{_text(facts.state)}</span></div>'
        f'<div style="{_FAINT}">{_text(about)}</div>{reason}'
    )


def _progress(facts: Facts) -> str:
    words = []
    if facts.epoch is not None:
        words.append(f"epoch {facts.epoch}")
    if facts.step is not None:
        words.append(f"step {facts.step:,}")
    words.append(f"{duration(facts.elapsed_s)} so far" if facts.state == "running" else duration(facts.elapsed_s))
    if facts.left_s is not None and facts.state == "running":
        words.append(f"about {duration(facts.left_s)} left")
    bar = ""
    if facts.share is not None:
        percent = 100 * min(max(facts.share, 0.0), 1.0)
        words.insert(0, f"{percent:.0f} %")
        colour = _COLOURS.get(facts.state, _GREY)
        bar = (
            f'<div role="progressbar" aria-valuemin="0" aria-valuemax="100" aria-valuenow="{percent:.0f}" '
            'style="height:6px;border-radius:3px;background:rgba(128,128,128,.3);margin:.45em 0 .2em">'
            f'<div style="height:6px;border-radius:3px;width:{percent:.1f}%;background:{colour}"></div></div>'
        )
    return f"{bar}<div>{_text(' · '.join(words))}</div>"


def _table(rows: list[Row]) -> str:
    if not rows:
        return ""
    left, right = _CELL.format(side="left"), _CELL.format(side="right")
    head = f'<th style="{left}">metric</th><th style="{right}">last</th><th style="{right}">best</th>'
    lines = []
    for row in rows[:MOST_ROWS]:
        name = _text(row.name)
        if row.nonfinite:
            name += f' <span style="{_FAINT}">({row.nonfinite:,} not finite)</span>'
        best = "" if row.best is None else f"{_number(row.best)} @{row.best_step:,}"
        lines.append(
            f'<tr style="background:transparent"><td style="{left}">{name}</td>'
            f'<td style="{right}">{_number(row.last)} @{row.last_step:,}</td><td style="{right}">{best}</td></tr>'
        )
    more = f'<div style="{_FAINT}">{len(rows) - MOST_ROWS:,} more metrics</div>' if len(rows) > MOST_ROWS else ""
    style = "border-collapse:collapse;margin:.4em 0 .2em;font-variant-numeric:tabular-nums;border:0"
    return (
        f'<table style="{style}"><thead><tr style="background:transparent">{head}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table>{more}"
    )


def _line(level: str, text: str, step: str, *, holds: bool = False) -> str:
    colour = "#c2453c" if level in ("ERROR", "FATAL") else "#a8730e"
    mark = f'<strong style="color:{colour}">{_text(level)}</strong>'
    still = " (holds)" if holds else ""
    where = f' <span style="{_FAINT}">{_text(step)}{still}</span>' if step or still else ""
    return f'<div style="overflow-wrap:anywhere">{mark} {_text(text)}{where}</div>'


def _where(facts: Facts) -> str:
    if not facts.folder:
        return ""
    command = f'<br><code style="{_CODE}">{_text(facts.command)}</code> opens the page' if facts.command else ""
    return (
        f'<div style="{_FAINT};margin-top:.35em;overflow-wrap:anywhere">'
        f'<code style="{_CODE}">{_text(facts.folder)}</code>{command}</div>'
    )


def _number(value: float) -> str:
    if not math.isfinite(value):
        return "NaN" if value != value else "+Inf" if value > 0 else "-Inf"
    return f"{value:.6g}"


def duration(seconds: float) -> str:
    """Return ``12 s``, ``4 min 05 s``, ``3 h 12 min`` or ``2 d 5 h``."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    if whole < 48 * 3600:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 86_400} d {whole % 86_400 // 3600} h"
