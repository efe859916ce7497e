"""Says on top of the page what became of a run: status, cause, how far it got, what was dropped, what to look at."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any

from otel_train.clock import NS_PER_S, iso
from otel_train.runlog.folder import RUN_FILE
from otel_train.semconv import CLEARED, METRIC, STEP
from otel_train.view import text
from otel_train.view.charts import axis_warnings, bad_sentence
from otel_train.view.counting import recorded
from otel_train.view.log_list import TRACEBACK_CHARACTERS, LogRow, body_text, cut, in_order
from otel_train.view.progress import progress_of
from otel_train.view.run_data import RunData, time_of
from otel_train.view.series import Effective
from otel_train.view.summary import Summary

_HEADLINES = {
    "running": "Running",
    "finished": "Finished",
    "failed": "Failed",
    "interrupted": "Interrupted",
    "killed": "Killed",
    "lost": "Lost: the process is gone without an end",
}
# Health conditions that are told on top of the page.
MOST_HEALTH = 20
# Other events that are told there.
TOLD = frozenset({"rank.lost", "attempt.ended", "data.worker_died", "gradient.nonfinite"})
Metrics = Sequence[tuple[Effective, Summary]]
_NAMES = {"otel_train.points": "points", "otel_train.logs": "log records", "otel_train.spans": "spans"}
_SIGNALS = {"metrics": "points", "logs": "log records", "traces": "spans"}


def status(run: RunData) -> dict[str, Any]:
    """Return state, headline, reason and the exception that ended the run, where there was one."""
    result: dict[str, Any] = {
        "state": run.state,
        "headline": _HEADLINES.get(run.state, run.state.capitalize() or "Unknown"),
        "reason": run.reason,
    }
    exception = cause(run)
    if exception:
        result["exception"] = exception
    return result


def cause(run: RunData) -> dict[str, str] | None:
    """Return type, message and traceback of the exception of a run that did not finish well."""
    if run.failure is None or run.state in ("finished", "running"):
        return None
    attributes = run.failure.entry.attributes
    # An exception that was logged and survived is no cause of a later kill.
    if run.failure.entry.event_name != "run.end" and run.state != "failed":
        return None
    return {
        "type": body_text(attributes.get("exception.type", "")),
        "message": cut(body_text(attributes.get("exception.message", "")), 4_000),
        "stacktrace": cut(body_text(attributes.get("exception.stacktrace", "")), TRACEBACK_CHARACTERS),
    }


def facts(run: RunData) -> list[list[str]]:
    """Return the run in pairs of name and text, those without a value left out."""
    newest = run.attempts[-1] if run.attempts else {}
    ranks = sorted({item.series.rank for item in run.series()})
    world_size = newest.get("world_size")
    exit_code = newest.get("exit_code")
    rows = [
        ["Progress", progress(run)],
        ["Duration", text.duration(elapsed_s(run))],
        ["Last step", _counted(run.last_step())],
        ["Last epoch", text.number(run.last_epoch())],
        ["Started (UTC)", text.moment(run.started_ns)],
        ["Ended (UTC)", text.moment(run.ended_ns)],
        ["Last sign of life (UTC)", text.moment(run.last_ns) if not run.ended_ns else ""],
        ["Host", text.plain(newest.get("host") or "")],
        ["Attempts", str(len(run.attempts)) if len(run.attempts) > 1 else ""],
        ["Ranks", f"{len(ranks)} of {world_size}" if isinstance(world_size, int) and world_size > 1 else ""],
        ["Exit code", str(exit_code) if exit_code not in (None, "") else ""],
        ["Group", text.plain(run.info.get("group") or "")],
        ["Points, records, spans", f"{recorded(run):,}, {run.logs.seen:,}, {len(run.spans) + run.spans_left_out:,}"],
        ["Dropped", dropped_text(run)],
    ]
    return [row for row in rows if row[1]]


def _counted(number: float | None) -> str:
    return f"{number:,.0f}" if number is not None and number.is_integer() else text.number(number)


def progress(run: RunData) -> str:
    """Return how far a running run is, such as ``12.5 %, about 3 min 20 s left``; empty where nothing is known."""
    share, left_s = progress_of(run, run.now_ns)
    parts = [] if share is None or not math.isfinite(share) else [f"{100 * share:.1f} %"]
    parts += [] if left_s is None or not math.isfinite(left_s) else [f"about {text.duration(left_s)} left"]
    return ", ".join(parts)


def elapsed_s(run: RunData) -> float:
    """Return the seconds from the run's start to its end as run.json has them, else to now or its last sign of life."""
    if not run.started_ns:
        return 0.0
    until_ns = (run.ended_ns if run.state not in ("running", "lost") else 0) or run.until_ns
    described_ns = time_of(run.attempts[0].get("started")) if run.attempts else 0
    # A clock that was set back may have the end before the start.
    started_ns = described_ns if 0 < described_ns <= until_ns else run.started_ns
    return max(0.0, (until_ns - started_ns) / NS_PER_S)


def extent_s(run: RunData) -> float:
    """Return the seconds from the run's first to its last sign of life, which axes have to hold."""
    return max(0.0, (run.until_ns - run.started_ns) / NS_PER_S) if run.started_ns else 0.0


def dropped(run: RunData) -> dict[str, dict[str, int]]:
    """Return what was not kept, by signal and cause, summed over ranks and attempts."""
    result: dict[str, dict[str, int]] = {}
    for item in run.series():
        series = item.series
        outcome = str(series.attribute("outcome") or "")
        if series.name not in _NAMES or outcome in ("", "recorded") or not len(series.values):
            continue
        count = int(run.numbers(series).rise())
        if count:
            causes = result.setdefault(_NAMES[series.name], {})
            causes[outcome] = causes.get(outcome, 0) + count
    for name, causes in _accounted(run).items():
        counted = result.setdefault(name, {})
        for cause, count in causes.items():
            # The last readings of a disk that took no more are missing; the account is made after them.
            counted[cause] = max(count, counted.get(cause, 0))
    return result


def _accounted(run: RunData) -> dict[str, Counter[str]]:
    """Return what the accounts at the ends of the attempts say, by signal and cause; only rank 0 writes one."""
    result: dict[str, Counter[str]] = {}
    for attempt in run.attempts:
        account = attempt.get("accounting")
        signals = account.get("dropped") if isinstance(account, Mapping) else None
        for signal, causes in signals.items() if isinstance(signals, Mapping) else ():
            if signal in _SIGNALS and isinstance(causes, Mapping):
                counts = {str(cause): count for cause, count in causes.items() if isinstance(count, int) and count > 0}
                result.setdefault(_SIGNALS[signal], Counter()).update(counts)
    return {name: causes for name, causes in result.items() if causes}


def account_is_missing(run: RunData) -> bool:
    """Tell whether the run has ended, but run.json has no end of it: after a kill, or on a disk that took no more."""
    newest = run.attempts[-1] if run.attempts else {}
    return run.state != "running" and newest.get("status") == "running"


def dropped_text(run: RunData) -> str:
    """Return what was dropped in words: ``nothing``, or counts with their causes."""
    parts = [
        f"{count:,} {name} ({cause})"
        for name, causes in sorted(dropped(run).items())
        for cause, count in causes.items()
    ]
    if account_is_missing(run):
        return f"{', '.join(parts) or 'not known'}: no account was written at the end"
    return ", ".join(parts) or "nothing"


def health(run: RunData) -> list[dict[str, Any]]:
    """Return what was wrong with the run, in the order in which it began, and when each was over.

    Each has the event's name, its text, severity, time, rank, step, metric, value and threshold, and the same of its
    end, None while it holds.
    """
    result: list[dict[str, Any]] = []
    present: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in sorted(run.health, key=in_order):
        entry = row.entry
        place = (entry.event_name, row.attempt, row.rank, *(entry.attributes.get(key) for key in (METRIC, "hw.id")))
        if entry.event_name == "health.plateau":
            # By whichever series it is judged: there is one at a time.
            place = place[:3]
        if entry.attributes.get(CLEARED):
            if place in present:
                present.pop(place)["over"] = _health_event(row)
            continue
        found = {**_health_event(row), "over": None}
        result.append(found)
        present[place] = found
    return result


def _health_event(row: LogRow) -> dict[str, Any]:
    entry = row.entry
    return {
        "event": entry.event_name,
        "text": body_text(entry.body),
        "severity": entry.severity_text,
        "time": iso(entry.time_ns),
        "attempt": row.attempt,
        "rank": row.rank,
        "step": entry.attributes.get(STEP),
        **{key: entry.attributes.get(key) for key in (METRIC, "value", "threshold")},
    }


def _placed(found: dict[str, Any], step: object) -> dict[str, Any]:
    """Return a notice or a tile with the step to which it leads, where it has one."""
    is_step = isinstance(step, (int, float)) and math.isfinite(step)
    return {**found, "step": step} if is_step else found


def _health_notices(run: RunData) -> list[dict[str, Any]]:
    found = health(run)
    result = []
    for one in found[:MOST_HEALTH]:
        rank = f" (rank {one['rank']})" if one["rank"] else ""
        over = one["over"]
        end = ""
        if over is not None:
            end = f"; over at step {over['step']}" if over["step"] is not None else f"; over at {over['time']}"
        kind = "bad" if one["severity"] in ("ERROR", "FATAL") and over is None else "warn"
        result.append(_placed({"kind": kind, "text": f"{one['text']}{rank}{end}."}, one["step"]))
    if len(found) > MOST_HEALTH:
        result.append({"kind": "warn", "text": f"{len(found) - MOST_HEALTH} more health events; see the log."})
    return result


def _happened_notices(run: RunData) -> list[dict[str, Any]]:
    """Return what happened to ranks and workers; health tells the rest."""
    told = [row for row in run.happened if row.entry.event_name in TOLD]
    told.sort(key=in_order)
    result = [
        _placed({"kind": "bad", "text": f"{body_text(row.entry.body).rstrip('.')}."}, row.entry.attributes.get(STEP))
        for row in told[:MOST_HEALTH]
    ]
    if len(told) > MOST_HEALTH:
        result.append({"kind": "warn", "text": f"{len(told) - MOST_HEALTH} more of that kind; see the log."})
    return result


def notices(run: RunData, metrics: Metrics) -> list[dict[str, Any]]:
    """Return what a reader should know before looking at the curves, the worst first."""
    result: list[dict[str, Any]] = []
    for item, summary in metrics:
        if summary.bad.total and item.series.rank == 0:
            name = f"{summary.key} ({summary.split})" if summary.split else summary.key
            first = summary.first_bad.step if summary.first_bad else None
            result.append(_placed({"kind": "bad", "text": f"{name} was not finite: {bad_sentence(summary)}."}, first))
    result.extend(_happened_notices(run))
    result.extend(_health_notices(run))
    result.extend({"kind": "warn", "text": sentence} for sentence in _damage_sentences(run))
    result.extend({"kind": "warn", "text": warning} for warning in axis_warnings(metrics))
    if account_is_missing(run) and run.state != "lost":
        text_of_it = (
            "The end of the run could not be written to run.json, as where a disk is full or may not be written: "
            "what is not here was dropped, and how much is not known."
        )
        result.append({"kind": "warn", "text": text_of_it})
    elif dropped(run):
        result.append({"kind": "warn", "text": f"Not everything was kept: {dropped_text(run)}."})
    if run.spans_left_out:
        result.append({"kind": "warn", "text": f"{run.spans_left_out:,} spans are left out of this page."})
    if run.state == "running":
        goes_on = f"The run goes on; this is how it stood at {text.moment(run.now_ns)} UTC."
        # A page that follows the run does not stand still.
        result.append({"kind": "info", "text": goes_on, "still": True})
    return result


def _damage_sentences(run: RunData) -> Iterator[str]:
    """Say what of the run's folder could not be read, and what that means for the page."""
    count = len(run.damage)
    described = next((place for place in run.damage if PurePath(place.path).name == RUN_FILE), None)
    if described is not None:
        count -= 1
        yield (
            f"{RUN_FILE} {described.reason.split(': ')[0]}: what it held of data sets, checkpoints, stages and the "
            "directions of metrics is missing."
        )
    if count:
        lines = "1 line of the run log is" if count == 1 else f"{count:,} lines of the run log are"
        yield f"{lines} damaged and left out here; see the section on the run log."


def tiles(metrics: Metrics, limit: int = 8) -> list[dict[str, Any]]:
    """Return the metrics that a reader looks for first: those with a direction, validation before training."""
    candidates = [(item, summary) for item, summary in metrics if item.series.rank == 0 and summary.last is not None]
    candidates.sort(key=lambda pair: (not pair[1].goal, {"val": 0, "test": 1, "train": 2}.get(pair[1].split, 3)))
    result = []
    for item, summary in candidates[:limit]:
        if summary.last is None:
            continue
        name = f"{summary.key} · {summary.split}" if summary.split else summary.key
        last, place = text.short(summary.last.value), _at(summary.last.place)
        best = summary.best
        is_bad = not math.isfinite(summary.last.value)
        if best is None or is_bad:
            value, sub = last, f"last{place}" + (f", best {text.short(best.value)}{_at(best.place)}" if best else "")
        else:
            value, sub = text.short(best.value), f"best{_at(best.place)}, last {last}"
        tile = {"name": name, "role": item.series.split or "value", "value": value, "sub": sub, "bad": is_bad}
        result.append(_placed(tile, (summary.last if best is None or is_bad else best).step))
    return result


def _at(place: str) -> str:
    return f" at {place}" if place else ""
