"""Reads a run's folder into `RunData`, whether the run is over, killed, damaged or still going on."""

from __future__ import annotations

from collections.abc import Callable, Container
from pathlib import Path

from otel_train.errors import RunFolderError
from otel_train.otlp.decode import Series as Columns
from otel_train.runlog.reader import RunReader
from otel_train.runlog.status import run_status
from otel_train.view.distributions import DRAWN
from otel_train.view.log_list import LogRow
from otel_train.view.run_data import DamagedPlace, RunData
from otel_train.view.series import SeriesStore
from otel_train.view.timeline import SpanRow

DISTRIBUTIONS = frozenset(name for name, _, _ in DRAWN)
Progress = Callable[[str, int], None]


def read_run(
    path: Path,
    now_ns: int,
    *,
    names: Container[str] | None = None,
    records: bool = True,
    progress: Progress | None = None,
) -> RunData:
    """Return the run in this folder; RunFolderError where nothing in it can be read.

    With `names` only these metrics are read; without `records` neither log records nor spans. `progress` is called with
    the signal and the number of items read so far.
    """
    reader = RunReader(path)
    status = run_status(reader.folder, now_ns)
    info = reader.info
    run = RunData(reader.path, str(info.get("run_id") or reader.path.name), info, status.state, status.reason, now_ns)
    # Delta counters come as increments; the page wants running totals.
    totals: dict[tuple[object, ...], float] = {}
    for columns, context in reader.series(names=names):
        _take(run, columns, context.attempt, context.rank, totals)
        if progress is not None:
            progress("points", run.store.points)
    if records:
        for entry, context in reader.logs():
            run.add_log(LogRow(entry, context.attempt, context.rank))
            if progress is not None:
                progress("records", run.logs.seen)
        for span, context in reader.spans():
            run.add_span(SpanRow(span, context.attempt, context.rank))
    run.damage = [DamagedPlace(str(item.path), item.line_number, item.offset, item.reason) for item in reader.damage]
    run.skipped = reader.skipped
    if info.get("rebuilt") and not run.store.points and not run.logs.seen and not run.spans and records:
        what = run.damage[0].reason if run.damage else "it holds no lines"
        raise RunFolderError(f"{reader.path}: nothing in it can be read ({what})")
    return run


def _take(run: RunData, columns: Columns, attempt: int, rank: int, totals: dict[tuple[object, ...], float]) -> None:
    if not columns.times_ns:
        return
    if columns.kind in ("histogram", "summary"):
        _take_distribution(run, columns, attempt, rank)
        return
    store: SeriesStore = run.store
    values = columns.values
    if columns.delta:
        key = (columns.name, columns.attributes, attempt, rank)
        running = []
        for value in values:
            totals[key] = totals.get(key, 0.0) + (value or 0.0)
            running.append(totals[key])
        values = list(running)
    store.extend(
        columns.name,
        columns.attributes,
        attempt,
        rank,
        columns.times_ns,
        values,
        unit=columns.unit,
        description=columns.description,
        kind=columns.kind,
    )
    run.see(columns.times_ns[0], attempt)
    run.see(columns.times_ns[-1], attempt)


def _take_distribution(run: RunData, columns: Columns, attempt: int, rank: int) -> None:
    """Keep what the page draws over time; as a series it has times, and by these its steps."""
    if columns.name not in DISTRIBUTIONS:
        return
    place = columns.name, columns.attributes, attempt, rank
    for time_ns, value in zip(columns.times_ns, columns.histograms, strict=True):
        run.distributions.add(place, time_ns, value)
    counts = [value.count for value in columns.histograms]
    run.store.extend(*place, columns.times_ns, counts, kind=columns.kind)
