"""Tells what happened to ranks, loaders and memory: states of ranks, time by state, events with their stacks."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from otel_train.clock import NS_PER_S
from otel_train.runlog.rank_states import rank_states
from otel_train.semconv import CLEARED, CODE_STACK, EXCEPTION_STACK, SPLIT, STATE, STEP
from otel_train.view import text
from otel_train.view.log_list import LogRow, body_text, cut, in_order
from otel_train.view.run_data import SECTION_OF, RunData, time_of
from otel_train.view.series import Series
from otel_train.watch.straggler import scores

MOST_OF_A_SECTION = 40
STACK_CHARACTERS = 32_000
MEMORY_SUMMARY = "dl.device.memory.summary"
# Long texts, which are folded; shown under these names.
_FOLDED = {CODE_STACK: "Stacks of all threads", EXCEPTION_STACK: "Traceback", MEMORY_SUMMARY: "The allocator's summary"}
# Of a run's time. What is not counted yet is at most one heartbeat, which a run of some minutes need not be told.
LEAST_NOT_COUNTED = 0.05
TIME_STATES = ("productive", "data", "evaluation", "checkpoint", "start-up", "idle", "lost")


def happenings(rows: Sequence[LogRow], started_ns: int) -> dict[str, list[dict[str, Any]]]:
    """Return the newest events by section, in the order of time; what is over is said by its own event."""
    result: dict[str, deque[LogRow]] = {}
    for row in sorted(rows, key=in_order):
        entry = row.entry
        section = SECTION_OF.get(entry.event_name)
        if section is None or entry.attributes.get(CLEARED):
            continue
        # Of many the newest: they say how it ended.
        result.setdefault(section, deque(maxlen=MOST_OF_A_SECTION)).append(row)
    return {section: [_happening(row, started_ns) for row in shown] for section, shown in result.items()}


def _happening(row: LogRow, started_ns: int) -> dict[str, Any]:
    entry = row.entry
    place = [f"rank {row.rank}", f"attempt {row.attempt}"]
    if (step := entry.attributes.get(STEP)) is not None:
        place.append(f"step {step}")
    if started_ns:
        place.append(f"after {text.duration((entry.time_ns - started_ns) / NS_PER_S)}")
    return {
        "event": entry.event_name,
        "severity": entry.severity_text,
        "text": cut(body_text(entry.body), 2_000),
        "place": " · ".join(place),
        "pairs": [
            [key, cut(value if isinstance(value, str) else body_text(value), 600)]
            for key, value in entry.attributes.items()
            if key not in _FOLDED and key != STEP
        ],
        "folded": [
            [title, cut(body_text(entry.attributes[key]), STACK_CHARACTERS)]
            for key, title in _FOLDED.items()
            if entry.attributes.get(key)
        ],
    }


def time_by_state(run: RunData, all_series: Sequence[Series]) -> dict[str, float]:
    """Return the seconds of rank 0 by what they were spent on, over all attempts; empty where they were not counted.

    What the process still did after the end of an attempt, such as writing it, is not of its time.
    """
    seconds: dict[str, float] = defaultdict(float)
    for series in all_series:
        if series.name == "dl.time" and series.rank == 0:
            seconds[str(series.attribute(STATE))] += _total(series)
    after_s = sum(max(0, span.counted_ns - span.end_ns) for span in _attempts(run, _counts(all_series))) / NS_PER_S
    # Nothing was under way any more, as a rule.
    for state in sorted(seconds, key=lambda state: (state != "idle", -seconds[state])):
        if after_s > 0 and state != "lost":
            less_s = min(after_s, seconds[state])
            seconds[state] -= less_s
            after_s -= less_s
    known = {state: seconds[state] for state in TIME_STATES if seconds.get(state)}
    return known | {state: value for state, value in seconds.items() if state not in TIME_STATES and value}


def time_not_counted(run: RunData, all_series: Sequence[Series]) -> dict[str, float] | None:
    """Return `seconds` of the attempts' `whole_s` that `time_by_state` lacks: those after the last count of each.

    None where that is little, or nothing was counted. The count is written with the heartbeat, so a run that was killed
    lacks what came after it, and a running one what comes next.
    """
    counts = _counts(all_series)
    spans = list(_attempts(run, counts))
    whole_ns = sum(max(0, span.end_ns - span.start_ns) for span in spans)
    missing_ns = sum(max(0, span.end_ns - span.counted_ns) for span in spans)
    if not counts or missing_ns <= LEAST_NOT_COUNTED * whole_ns:
        return None
    return {"seconds": missing_ns / NS_PER_S, "whole_s": whole_ns / NS_PER_S}


class _Span(NamedTuple):
    """An attempt: when it began and ended, and up to when its time was counted."""

    start_ns: int
    end_ns: int
    counted_ns: int


def _counts(all_series: Sequence[Series]) -> list[int]:
    """Return when the time of rank 0 was counted, in order."""
    found = (series.times_ns for series in all_series if series.name == "dl.time" and series.rank == 0)
    return sorted({time_ns for times_ns in found for time_ns in times_ns})


def _attempts(run: RunData, counts: Sequence[int]) -> Iterator[_Span]:
    described = {attempt["attempt"]: attempt for attempt in run.attempts}
    before_ns = 0
    for number, last_ns in sorted(run.ends().items()):
        attempt = described.get(number, {})
        goes_on = number == max(run.last_of_attempt) and run.state in ("running", "lost")
        end_ns = (0 if goes_on else time_of(attempt.get("ended"))) or last_ns
        start_ns = time_of(attempt.get("started")) or before_ns or run.started_ns
        place = bisect_right(counts, last_ns)
        counted_ns = counts[place - 1] if place and counts[place - 1] >= start_ns else start_ns
        yield _Span(start_ns, end_ns, counted_ns)
        before_ns = last_ns


def _total(series: Series) -> float:
    """Return what a counter rose by in all: it begins anew with each attempt, and between two there is a gap."""
    total = before = 0.0
    for index, value in enumerate(series.values):
        if index in series.gaps or value < before:
            total, before = total + before, 0.0
        if math.isfinite(value):
            before = value
    return total + before


def ranks(run: RunData, all_series: Sequence[Series]) -> list[list[Any]]:
    """Return a row for each rank of the newest attempt: state, host, step, times of a step, score, what ended it.

    Empty for a run of one rank.
    """
    number = max(run.last_of_attempt, default=len(run.attempts))
    states = rank_states(run.path, number, run.now_ns) if number else []
    if len(states) < 2:
        return []
    times: dict[int, tuple[list[float], list[float]]] = defaultdict(lambda: ([], []))
    for series in all_series:
        if series.name in ("dl.step.time", "dl.rank.busy.time") and series.attribute(SPLIT) in ("train", None):
            kept = times[series.rank][series.name == "dl.rank.busy.time"]
            kept.extend(value for value in series.values if math.isfinite(value))
    found = scores(times)
    return [
        [
            state.rank,
            state.host,
            {"pill": state.state},
            "" if state.step is None else state.step,
            text.moment(state.time_ns),
            text.duration(_median(times[state.rank][0])),
            text.duration(_median(times[state.rank][1])),
            f"{found[state.rank]:.2f}" if state.rank in found else "",
            _said(state.reason, hangs=state.hangs, waits=bool(state.hung_since_ns) and state.waits),
        ]
        for state in states
    ]


def _said(reason: str, *, hangs: bool, waits: bool) -> str:
    hung = "hung" if hangs else "waited for the rank that hung" if waits else ""
    return "; ".join(part for part in (hung, reason) if part)


def _median(values: Sequence[float]) -> float | None:
    return sorted(values)[len(values) // 2] if values else None


def memory_facts(run: RunData, all_series: Sequence[Series]) -> list[list[str]]:
    """Return how much memory the processes of each rank hold at the end, and by how much it grew last."""
    last: dict[tuple[str, int], float] = {}
    for series in all_series:
        if series.name.startswith("dl.process_tree.memory") or series.name == "dl.memory.time_to_full":
            finite = [value for value in series.values if math.isfinite(value)]
            if finite:
                place = series.name, series.rank
                last[place] = max(last.get(place, 0.0), finite[-1])
    several = len({rank for _, rank in last}) > 1
    rows = []
    for (name, rank), value in sorted(last.items(), key=lambda item: (item[0][1], item[0][0])):
        of = f", rank {rank}" if several else ""
        if name == "dl.process_tree.memory":
            rows.append([f"Memory of the processes{of}", text.size(value)])
        elif name == "dl.process_tree.memory.slope":
            rows.append([f"Growth{of}", f"{text.size(60 * value)} a minute"])
        elif run.state == "running" or value < 24 * 3600:
            rows.append([f"Full at that growth{of}", f"in {text.duration(value)}"])
    return rows
