"""Lays the spans of a run out in lanes: stages, epochs, evaluations, checkpoints, sampled steps and the rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from otel_train.clock import NS_PER_S
from otel_train.record.entries import SpanEntry
from otel_train.semconv import ANNOUNCES, EPOCH, PHASE, SPLIT, STAGE, STEP, TRUNCATED
from otel_train.view import text
from otel_train.view.log_list import body_text, cut

MAX_BARS = 5_000
LANES = ("run", "stage", "epoch", "evaluation", "checkpoint", "step", "phase", "span")
TITLES = {
    "run": "Run",
    "stage": "Stages",
    "epoch": "Epochs",
    "evaluation": "Evaluation",
    "checkpoint": "Checkpoints",
    "step": "Sampled steps",
    "phase": "Phases",
    "span": "Other spans",
}
ROWS_A_LANE = 12
# The wait of a sampled step is a span like that of a phase. Below this share of the steps it is no picture of anything.
WAIT = "data_wait"
LEAST_WAIT = 0.01
# On an announcement: the name of the span that it announces.
SPAN_NAME = "dl.span.name"
# Within a step: its phases, its batch, and what that did.
_DEEPEST = 6


@dataclass(slots=True)
class SpanRow:
    """One span with where it came from."""

    span: SpanEntry
    attempt: int
    rank: int


@dataclass(slots=True)
class _Bar:
    lane: str
    name: str
    start_ns: int
    end_ns: int
    truncated: bool
    row: SpanRow
    # Hex, so that a script holds it exactly; of a span that never ended that which its announcement names.
    span_id: str = ""
    parent: str = ""
    level: int = 0
    # The span that stands for a run has no length: nothing waits for an end that may never come.
    is_mark: bool = False
    # Its number, and that of what lies within, counts the batches of an evaluation and is no step of the run.
    counts_batches: bool = False


def lane_of(span: SpanEntry, name: str) -> str:
    """Return the lane of a span with this name, by its attributes first and by the first word of the name then."""
    attributes = span.attributes
    first = name.replace("/", " ").replace(".", " ").replace(":", " ").split(" ")[0].lower()
    if PHASE in attributes:
        return "phase"
    if attributes.get(STAGE) == name:
        return "stage"
    for lane, words in (
        ("checkpoint", ("checkpoint", "save_checkpoint", "load_checkpoint")),
        ("evaluation", ("evaluation", "evaluate", "eval", "validation", "validate")),
        ("run", ("run",)),
        ("epoch", ("epoch",)),
        ("step", ("step",)),
    ):
        if first in words:
            return lane
    return "span"


def timeline(
    rows: Iterable[SpanRow], started_ns: int, ends_ns: Mapping[int, int], ended: Container[int] = ()
) -> dict[str, Any]:
    """Return the bars by lane, in seconds since the run's start; what never ended itself ends with its attempt.

    The run's own bar is as long as its attempt, truncated unless that is among those that `ended`.
    """
    bars = _bars(list(rows), ends_ns)
    _draw_run(bars, ends_ns, ended)
    bars, titles, notes = _without_short_waits(bars)
    counts = Counter(bar.lane for bar in bars)
    kept = _bounded(bars)
    _find_batches(bars)
    lanes = []
    # Many spans share a trace, whose id is long.
    traces: dict[str, int] = {}
    for lane in LANES:
        mine = [bar for bar in kept if bar.lane == lane]
        if mine:
            lanes.append(
                {
                    "lane": lane,
                    "title": titles.get(lane, TITLES[lane]),
                    "rows": _stack(mine),
                    "left_out": counts[lane] - len(mine),
                    "bars": [_payload(bar, started_ns, traces) for bar in mine],
                }
            )
    truncated = sum(1 for bar in bars if bar.truncated)
    return {"lanes": lanes, "traces": list(traces), "seen": len(bars), "truncated": truncated, "notes": notes}


def seen(rows: Iterable[SpanRow], ends_ns: Mapping[int, int]) -> int:
    """Return how many spans `timeline` would draw or say that it does not draw."""
    return len(_without_short_waits(_bars(list(rows), ends_ns))[0])


def _find_batches(bars: Sequence[_Bar]) -> None:
    """Tell the steps of loops beside training's, and what lies within them."""
    known = {bar.span_id: bar for bar in bars if bar.span_id}
    for bar in bars:
        above: _Bar | None = bar
        for _ in range(_DEEPEST):
            if above is None or above.lane not in ("step", "phase", "span"):
                break
            if above.lane == "step":
                bar.counts_batches = above.row.span.attributes.get(SPLIT) not in (None, "", "train")
                break
            above = known.get(above.parent)


def _draw_run(bars: Sequence[_Bar], ends_ns: Mapping[int, int], ended: Container[int]) -> None:
    """Make the mark of a run as long as its attempt, once for all ranks."""
    drawn = set()
    for bar in sorted(bars, key=lambda bar: bar.row.rank):
        attempt = bar.row.attempt
        if bar.lane != "run" or bar.name != "run" or bar.end_ns > bar.start_ns:
            continue
        bar.is_mark = True
        if attempt not in drawn and ends_ns.get(attempt, 0) > bar.start_ns:
            bar.end_ns, bar.truncated = ends_ns[attempt], attempt not in ended
        drawn.add(attempt)


def _without_short_waits(bars: list[_Bar]) -> tuple[list[_Bar], dict[str, str], list[str]]:
    """Return bars, titles and notes; where the wait for data is the only phase it is named, and left out if short."""
    waits = [bar for bar in bars if bar.lane == "phase"]
    if not waits or any(bar.name != WAIT for bar in waits):
        return bars, {}, []
    waited_ns = sum(bar.end_ns - bar.start_ns for bar in waits)
    if waited_ns >= LEAST_WAIT * sum(bar.end_ns - bar.start_ns for bar in bars if bar.lane == "step"):
        return bars, {"phase": "Wait for data"}, []
    note = f"Not drawn: the wait for data of the sampled steps, {text.duration(waited_ns / NS_PER_S)} together."
    return [bar for bar in bars if bar.lane != "phase"], {}, [note]


def _bars(rows: Sequence[SpanRow], ends_ns: Mapping[int, int]) -> list[_Bar]:
    """Return the spans that ended, and those announced ones that never did."""
    closed = {row.span.span_id for row in rows if ANNOUNCES not in row.span.attributes}
    bars = []
    for row in rows:
        span = row.span
        announced = span.attributes.get(ANNOUNCES)
        if announced is None:
            truncated = bool(span.attributes.get(TRUNCATED))
            bar = _Bar(lane_of(span, span.name), span.name, span.start_ns, span.end_ns, truncated, row)
            bar.span_id, bar.parent = _hex(span.span_id), _hex(span.parent_span_id)
            bars.append(bar)
        elif span.parent_span_id not in closed:
            name = str(span.attributes.get(SPAN_NAME) or span.name.removesuffix(" (started)"))
            end_ns = max(ends_ns.get(row.attempt, 0), span.end_ns)
            bars.append(_Bar(lane_of(span, name), name, span.start_ns, end_ns, True, row, _hex(span.parent_span_id)))
    return sorted(bars, key=lambda bar: (bar.start_ns, -bar.end_ns))


def _hex(span_id: int) -> str:
    return f"{span_id:016x}" if span_id else ""


def _bounded(bars: Sequence[_Bar]) -> list[_Bar]:
    """Keep all that shapes the run; of steps, phases and foreign spans the longest."""
    if len(bars) <= MAX_BARS:
        return list(bars)
    importance = {lane: number for number, lane in enumerate(LANES)}
    ranked = sorted(bars, key=lambda bar: (importance[bar.lane], not bar.truncated, bar.start_ns - bar.end_ns))
    kept = ranked[:MAX_BARS]
    return sorted(kept, key=lambda bar: (bar.start_ns, -bar.end_ns))


def _stack(bars: Sequence[_Bar]) -> int:
    """Give each bar the first row of its lane that is free, and return how many rows there are."""
    ends: list[int] = []
    for bar in bars:
        if bar.is_mark:
            ends = ends or [0]
            ends[0] = max(ends[0], bar.end_ns)
            continue
        level = next((level for level, end_ns in enumerate(ends) if end_ns <= bar.start_ns), len(ends))
        if level == len(ends):
            ends.append(0)
        ends[level] = bar.end_ns
        bar.level = min(level, ROWS_A_LANE - 1)
    return min(len(ends), ROWS_A_LANE)


def _payload(bar: _Bar, started_ns: int, traces: dict[str, int]) -> dict[str, Any]:
    span = bar.row.span
    number = span.attributes.get({"epoch": EPOCH, "step": STEP}.get(bar.lane, ""))
    name = f"{bar.name} {number}" if isinstance(number, int) and bar.name == bar.lane else bar.name
    if bar.counts_batches and bar.lane == "step" and isinstance(number, int):
        name = f"{body_text(span.attributes[SPLIT])} batch {number}"
    result: dict[str, Any] = {
        "name": cut(name, 120),
        "start": round((bar.start_ns - started_ns) / 1e9, 6),
        "seconds": round(max(0, bar.end_ns - bar.start_ns) / 1e9, 6),
        "row": bar.level,
        "attributes": _details(span.attributes),
    }
    if bar.span_id:
        result["id"] = bar.span_id
    if bar.parent:
        result["parent"] = bar.parent
    if span.trace_id:
        result["trace"] = traces.setdefault(f"{span.trace_id:032x}", len(traces))
    step = span.attributes.get(STEP)
    if isinstance(step, int) and not bar.counts_batches:
        result["step"] = step
    if bar.truncated:
        result["truncated"] = True
    if span.status_code == 2:
        result["error"] = cut(span.status_message, 300) or "error"
    if bar.row.rank:
        result["rank"] = bar.row.rank
    if bar.row.attempt > 1:
        result["attempt"] = bar.row.attempt
    return result


def _details(attributes: Mapping[str, Any]) -> dict[str, str]:
    return {
        key: cut(body_text(value) if not isinstance(value, (int, float)) else str(value), 160)
        for key, value in list(attributes.items())[:16]
        if key not in (ANNOUNCES, TRUNCATED, SPAN_NAME)
    }
