"""Chooses which log records a page holds: all where they are few, else warnings first and then the newest."""

from __future__ import annotations

import heapq
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from otel_train.record.entries import AttributeValue, LogEntry
from otel_train.semconv import EPOCH, EVENT_NAME, SEVERITIES, STEP

# A page with so many opens in a second; the script draws only those in sight.
MAX_RECORDS = 20_000
MAX_CHARACTERS = 6_000_000
BODY_CHARACTERS = 4_000
TRACEBACK_CHARACTERS = 16_000
WARN = SEVERITIES["WARN"]

# Said by columns of their own, or by the page elsewhere.
_HIDDEN = frozenset({STEP, EPOCH, EVENT_NAME, "exception.stacktrace", "log.record.original"})
_LEVELS = sorted(SEVERITIES.items(), key=lambda pair: pair[1])


@dataclass(slots=True)
class LogRow:
    """One record with where it came from."""

    entry: LogEntry
    attempt: int
    rank: int


def in_order(row: LogRow) -> tuple[int, int, int]:
    """Return what sorts records by time, and at one time by attempt and rank; those of one rank keep their order."""
    return row.entry.time_ns, row.attempt, row.rank


# Time, attempt, rank, and the number among all that were taken, which only decides within one rank: so the order is the
# same whether ranks are read one after the other or all a little at a time.
_Kept = tuple[int, int, int, int, LogRow]


class LogKeeper:
    """Takes all records of a run one by one, in memory bounded by what a page holds."""

    def __init__(self, max_records: int = MAX_RECORDS) -> None:
        self._max = max_records
        self._severe: list[_Kept] = []
        self._other: list[_Kept] = []
        self._number = 0
        self.levels: Counter[str] = Counter()

    def add(self, row: LogRow) -> None:
        """Take one record; the oldest of the mild ones gives way."""
        self._number += 1
        self.levels[level_name(row.entry)] += 1
        heap = self._severe if row.entry.severity_number >= WARN else self._other
        item = (row.entry.time_ns or row.entry.observed_time_ns, row.attempt, row.rank, self._number, row)
        if len(heap) < self._max:
            heapq.heappush(heap, item)
        else:
            heapq.heappushpop(heap, item)

    @property
    def seen(self) -> int:
        """All records taken."""
        return self._number

    def severe_since(self, number: int) -> tuple[list[LogRow], int]:
        """Return warnings and worse that were taken after the record of this number, by time, and the newest number."""
        if number >= self._number:
            return [], self._number
        return [row for _, _, _, taken, row in sorted(self._severe) if taken > number], self._number

    def rows(self) -> list[LogRow]:
        """Return those kept, by time: warnings and worse first of all, then the newest of the rest."""
        severe = sorted(self._severe)
        room = max(0, self._max - len(severe))
        return [item[-1] for item in sorted(severe + (sorted(self._other)[-room:] if room else []))]


def level_name(entry: LogEntry) -> str:
    """Return OpenTelemetry's name of a record's severity, by number where there is one."""
    number = entry.severity_number
    if number <= 0:
        return entry.severity_text.upper() or "INFO"
    name = _LEVELS[0][0]
    for candidate, lowest in _LEVELS:
        if number >= lowest:
            name = candidate
    return name


def body_text(body: AttributeValue) -> str:
    """Return a record's body as text; a structured one as JSON."""
    if isinstance(body, str):
        return body
    if isinstance(body, bytes):
        return body.hex()
    return json.dumps(body, ensure_ascii=False, default=str)


def cut(text: str, limit: int) -> str:
    """Return a text of at most `limit` characters, saying how many were left out."""
    return text if len(text) <= limit else f"{text[:limit]}… [{len(text) - limit:,} more characters]"


def payload(keeper: LogKeeper, started_ns: int, max_characters: int = MAX_CHARACTERS) -> dict[str, Any]:
    """Return the records for the page, as rows in the order of `columns`, and how many were left out."""
    rows: list[list[Any]] = []
    characters = 0
    # From the newest back, so that the character limit leaves out the oldest.
    for row in reversed(keeper.rows()):
        made = row_of(row, started_ns)
        characters += len(made[2]) + len(made[4]) + sum(len(key) + len(value) for key, value in made[5].items()) + 60
        if characters > max_characters and rows:
            break
        rows.append(made)
    rows.reverse()
    return {
        "columns": [
            "elapsed_s",
            "level",
            "body",
            "event",
            "stacktrace",
            "attributes",
            "step",
            "epoch",
            "rank",
            "attempt",
            "span",
        ],
        "rows": rows,
        "seen": keeper.seen,
        "left_out": keeper.seen - len(rows),
        "levels": levels(keeper),
    }


def step_of(entry: LogEntry) -> AttributeValue | None:
    """Return the step at which a record was written; None where it has none."""
    return _place_of(entry, STEP, "step")


def epoch_of(entry: LogEntry) -> AttributeValue | None:
    """Return the epoch in which a record was written; None where it has none."""
    return _place_of(entry, EPOCH, "epoch")


def _place_of(entry: LogEntry, name: str, described: str) -> AttributeValue | None:
    found = entry.attributes.get(name)
    # Older runs have the place of a checkpoint only as the checkpoint's description says it.
    return entry.attributes.get(described) if found is None and entry.event_name == "checkpoint.saved" else found


def levels(keeper: LogKeeper) -> dict[str, int]:
    """Return how many records of each level were seen, the lowest level first."""
    return {name: keeper.levels[name] for name, _ in _LEVELS if keeper.levels[name]}


def row_of(row: LogRow, started_ns: int) -> list[Any]:
    """Return one record as a row of `payload`."""
    entry = row.entry
    attributes: Mapping[str, AttributeValue] = entry.attributes
    event = entry.event_name or str(attributes.get(EVENT_NAME, ""))
    time_ns = entry.time_ns or entry.observed_time_ns
    shown = {key: cut(body_text(value), 500) for key, value in attributes.items() if key not in _HIDDEN}
    if entry.trace_id:
        shown["trace_id"] = f"{entry.trace_id:032x}"
    return [
        round((time_ns - started_ns) / 1e9, 3),
        level_name(entry),
        cut(body_text(entry.body), BODY_CHARACTERS),
        event,
        cut(str(attributes.get("exception.stacktrace", "")), TRACEBACK_CHARACTERS),
        dict(list(shown.items())[:40]),
        _number(step_of(entry)),
        _number(epoch_of(entry)),
        row.rank,
        row.attempt,
        f"{entry.span_id:016x}" if entry.span_id else "",
    ]


def _number(value: object) -> int | float | None:
    return value if isinstance(value, (int, float)) and value == value and abs(value) != float("inf") else None
