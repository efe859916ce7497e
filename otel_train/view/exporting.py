"""Writes what a run recorded as tables for other programs: points, log records or spans, each row by itself.

Points are read one rank of one attempt at a time, at about 40 bytes a point in memory, since a step may stand in
another line than its point; log records and spans pass through.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from otel_train.clock import NS_PER_S
from otel_train.otlp.decode import Request
from otel_train.record.entries import LogEntry, SpanEntry
from otel_train.runlog.reader import RunReader
from otel_train.semconv import SPLIT
from otel_train.view.lines import number_cell
from otel_train.view.log_list import body_text, epoch_of, level_name, step_of
from otel_train.view.reading import PointTaker, places_of
from otel_train.view.run_data import DamagedPlace, RunData
from otel_train.view.series import Series
from otel_train.view.siblings import NOTHING
from otel_train.view.table_files import FORMATS, Column, Columns, open_table

WHAT = ("points", "logs", "spans")
# Rows that are written at once.
ROWS = 100_000
Progress = Callable[[str, int], None]

_PLACE = (Column("run_id", "name"), Column("attempt", "integer"), Column("rank", "integer"))
_COLUMNS: Mapping[str, tuple[Column, ...]] = {
    "points": (
        *_PLACE,
        *(Column(name, "name") for name in ("name", "key", "split", "attributes")),
        Column("step", "number"),
        Column("epoch", "number"),
        Column("time", "time"),
        Column("value", "value"),
        Column("gap", "flag"),
    ),
    "logs": (
        *_PLACE,
        Column("time", "time"),
        Column("level", "name"),
        Column("severity", "integer"),
        Column("event", "name"),
        Column("body", "text"),
        Column("step", "number"),
        Column("epoch", "number"),
        *(Column(name, "text") for name in ("trace_id", "span_id", "attributes")),
        Column("scope", "name"),
    ),
    "spans": (
        *_PLACE,
        Column("name", "name"),
        Column("time", "time"),
        Column("end", "time"),
        Column("duration_s", "number"),
        *(Column(name, "text") for name in ("trace_id", "span_id", "parent_span_id")),
        Column("status", "name"),
        *(Column(name, "text") for name in ("status_message", "attributes", "events", "links")),
        Column("scope", "name"),
    ),
}
_STATUS = {0: "unset", 1: "ok", 2: "error"}


@dataclass(slots=True)
class Exported:
    """What was written, and what could not be read of the run log."""

    path: Path
    rows: int
    damage: list[DamagedPlace]
    skipped: int


def export(path: Path, what: str, form: str, target: Path | None = None, progress: Progress | None = None) -> Exported:
    """Write one table of the run in this folder, by default into its artifacts, whole or not at all.

    `what` is one of `WHAT` and `form` one of `FORMATS`. MissingPyarrowError where parquet is asked for and its package
    is not there; OSError where the file cannot be written.
    """
    reader = RunReader(path)
    target = target if target is not None else reader.path / "artifacts" / f"{what}.{FORMATS[form]}"
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    run_id = str(reader.info.get("run_id") or reader.path.name)
    rows = 0
    try:
        with open_table(temporary, form, _COLUMNS[what]) as table:
            for chunk in _CHUNKS[what](reader, run_id):
                table.write(chunk)
                rows += len(chunk["attempt"])
                if progress is not None:
                    progress("rows", rows)
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    return Exported(target, rows, places_of(reader.damage), reader.skipped)


# Points --------------------------------------------------------------------------------------------------------------


def _points(reader: RunReader, run_id: str) -> Iterator[Columns]:
    """Give every point of every attempt, series after series; those that a newer attempt replaced, too."""
    rows = _Rows(_COLUMNS["points"])
    for attempt, rank, _ in reader.folder.rank_folders():
        run = RunData(reader.path, run_id, {}, "", "", 0)
        taker = PointTaker(run)
        for request, _, _ in reader.requests("metrics", attempt, rank):
            taker.take(_numbers_only(request), attempt, rank)
        for series in run.store.join():
            yield from rows.add(_series_columns(series, run_id), len(series.values))
    yield from rows.rest()


def _numbers_only(request: Request) -> list[Any]:
    """Leave out distributions, which are no numbers."""
    return [columns for columns in request.series if columns.kind not in ("histogram", "summary")]


def _series_columns(series: Series, run_id: str) -> Columns:
    count = len(series.values)
    rest = {str(key): value for key, value in series.attributes if key != SPLIT}
    gaps = [False] * count
    for index in series.gaps:
        gaps[index] = True
    return {
        "run_id": [run_id] * count,
        "attempt": [series.attempt] * count,
        "rank": [series.rank] * count,
        "name": [series.name] * count,
        "key": [series.key] * count,
        "split": [series.split] * count,
        "attributes": [_json(rest)] * count,
        "step": series.steps,
        "epoch": series.epochs,
        "time": series.times_ns,
        "value": series.values,
        "gap": gaps,
    }


# Log records and spans -----------------------------------------------------------------------------------------------


def _logs(reader: RunReader, run_id: str) -> Iterator[Columns]:
    rows = _Rows(_COLUMNS["logs"])
    for entry, context in reader.logs():
        yield from rows.add_row(_log_row(entry, run_id, context.attempt, context.rank))
    yield from rows.rest()


def _log_row(entry: LogEntry, run_id: str, attempt: int, rank: int) -> tuple[Any, ...]:
    places = (_number(step_of(entry)), _number(epoch_of(entry)))
    return (
        *(run_id, attempt, rank, entry.time_ns or entry.observed_time_ns, level_name(entry), entry.severity_number),
        *(entry.event_name, body_text(entry.body), *places, _hex(entry.trace_id, 32), _hex(entry.span_id, 16)),
        *(_json(entry.attributes), entry.scope),
    )


def _spans(reader: RunReader, run_id: str) -> Iterator[Columns]:
    rows = _Rows(_COLUMNS["spans"])
    for span, context in reader.spans():
        yield from rows.add_row(_span_row(span, run_id, context.attempt, context.rank))
    yield from rows.rest()


def _span_row(span: SpanEntry, run_id: str, attempt: int, rank: int) -> tuple[Any, ...]:
    events = [
        {"time_ns": event.time_ns, "name": event.name, "attributes": dict(event.attributes)} for event in span.events
    ]
    links = [
        {
            "trace_id": _hex(link.trace_id, 32),
            "span_id": _hex(link.span_id, 16),
            "attributes": dict(link.attributes),
        }
        for link in span.links
    ]
    ids = (_hex(span.trace_id, 32), _hex(span.span_id, 16), _hex(span.parent_span_id, 16))
    return (
        *(run_id, attempt, rank, span.name, span.start_ns, span.end_ns, (span.end_ns - span.start_ns) / NS_PER_S),
        *(*ids, _STATUS.get(span.status_code, str(span.status_code)), span.status_message),
        *(_json(span.attributes), _json(events), _json(links), span.scope),
    )


def _number(value: object) -> float:
    """Return a step or epoch as a number, NaN where there is none."""
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else NOTHING


def _hex(number: int, digits: int) -> str:
    return f"{number:0{digits}x}" if number else ""


def _json(value: Any) -> str:
    """Return a value as JSON, an empty one as nothing."""
    if not value:
        return ""
    try:
        return json.dumps(value, ensure_ascii=False, default=_plain, allow_nan=False)
    except ValueError:
        return json.dumps(_named(value), ensure_ascii=False, default=_plain)


def _named(value: Any) -> Any:
    """Return a value whose numbers that are not finite are their names."""
    if isinstance(value, float):
        return value if value - value == 0.0 else number_cell(value)
    if isinstance(value, Mapping):
        return {str(key): _named(item) for key, item in value.items()}
    return [_named(item) for item in value] if isinstance(value, (list, tuple)) else value


def _plain(value: object) -> object:
    return value.hex() if isinstance(value, bytes) else str(value)


class _Rows:
    """Gathers rows until there are enough to be written at once."""

    def __init__(self, columns: tuple[Column, ...]) -> None:
        self._names = [column.name for column in columns]
        self._columns = columns
        self._held = self._empty()
        self._count = 0

    def _empty(self) -> Columns:
        return {column.name: column.empty() for column in self._columns}

    def add(self, columns: Columns, count: int) -> Iterator[Columns]:
        """Take rows by columns; give what is full."""
        start = 0
        while start < count:
            end = min(count, start + ROWS - self._count)
            for name in self._names:
                self._held[name].extend(columns[name][start:end])
            self._count += end - start
            start = end
            if self._count >= ROWS:
                yield from self.rest()

    def add_row(self, row: tuple[Any, ...]) -> Iterator[Columns]:
        """Take one row; give what is full."""
        for name, value in zip(self._names, row, strict=True):
            self._held[name].append(value)
        self._count += 1
        if self._count >= ROWS:
            yield from self.rest()

    def rest(self) -> Iterator[Columns]:
        """Give what is held."""
        if self._count:
            held, self._held, self._count = self._held, self._empty(), 0
            yield held


_CHUNKS: Mapping[str, Callable[[RunReader, str], Iterator[Columns]]] = {
    "points": _points,
    "logs": _logs,
    "spans": _spans,
}
