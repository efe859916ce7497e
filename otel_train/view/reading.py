"""Reads a run's folder into `RunData`, whether the run is over, killed, damaged or still going on."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Container, Sequence
from pathlib import Path

from otel_train.errors import RunFolderError
from otel_train.otlp.decode import Series as Columns
from otel_train.runlog.folder import RUN_FILE
from otel_train.runlog.lines import Damage
from otel_train.runlog.reader import RunReader
from otel_train.runlog.status import run_status
from otel_train.semconv import EPOCH, STEP
from otel_train.view.distributions import DRAWN
from otel_train.view.log_list import LogRow
from otel_train.view.run_data import DamagedPlace, RunData
from otel_train.view.series_store import Beside
from otel_train.view.timeline import SpanRow

DISTRIBUTIONS = frozenset(name for name, _, _ in DRAWN)
Progress = Callable[[str, int], None]


def read_run(
    path: Path,
    now_ns: int,
    *,
    names: Container[str] | None = None,
    holding: bytes = b"",
    records: bool = True,
    progress: Progress | None = None,
) -> RunData:
    """Return the run in this folder; RunFolderError where nothing in it can be read.

    With `names` only these metrics are read, with `holding` only lines that have this text; without `records` neither
    log records nor spans. `progress` is called with the signal and the number of items read so far.
    """
    reader = RunReader(path)
    status = run_status(reader.folder, now_ns)
    info = reader.info
    run = RunData(reader.path, str(info.get("run_id") or reader.path.name), info, status.state, status.reason, now_ns)
    taker = PointTaker(run)
    for request, attempt, rank in reader.requests("metrics", names=names, holding=holding):
        taker.take(request.series, attempt, rank)
        if progress is not None:
            progress("points", run.store.points)
    if records:
        for entry, context in reader.logs():
            run.add_log(LogRow(entry, context.attempt, context.rank))
            if progress is not None:
                progress("records", run.logs.seen)
        for span, context in reader.spans():
            run.add_span(SpanRow(span, context.attempt, context.rank))
    run.damage = places_of(reader.damage)
    run.skipped = reader.skipped
    if info.get("rebuilt") and not run.store.points and not run.logs.seen and not run.spans and records:
        raise nothing_read(reader.path, run.damage)
    return run


def nothing_read(path: Path, damage: Sequence[DamagedPlace]) -> RunFolderError:
    """Return the error of a run in which nothing can be read, with what is wrong first of all."""
    what = "it holds no lines"
    if damage:
        file = Path(damage[0].path)
        what = f"{file.name} {damage[0].reason}" if file.name == RUN_FILE else damage[0].reason
    return RunFolderError(f"{path}: nothing in it can be read ({what})")


def places_of(damage: Sequence[Damage]) -> list[DamagedPlace]:
    """Return the damaged places of a run in the order of its files."""
    ordered = sorted(damage, key=lambda item: (item.path.name != RUN_FILE, str(item.path), item.offset, item.reason))
    return [DamagedPlace(str(item.path), item.line_number, item.offset, item.reason) for item in ordered]


class PointTaker:
    """Takes the points of a run's lines, one line after the other."""

    def __init__(self, run: RunData) -> None:
        self._run = run
        # Delta counters come as increments; the page wants running totals.
        self._totals: dict[tuple[object, ...], float] = {}

    def take(self, line: Sequence[Columns], attempt: int, rank: int) -> None:
        """Take what stands in one line: siblings first, which say where the others stand."""
        store = self._run.store
        # Columns that stand at the same times mostly share the list of them.
        listed = {id(columns.times_ns): columns.times_ns for columns in line}
        times = {place: array("q", times_ns) for place, times_ns in listed.items()}
        beside = [
            store.beside(columns.name, columns.attributes, attempt, rank, times[id(columns.times_ns)], columns.values)
            for columns in line
            if columns.name in (STEP, EPOCH) and columns.times_ns
        ]
        for columns in line:
            if columns.times_ns and columns.name not in (STEP, EPOCH):
                self._take(columns, attempt, rank, times[id(columns.times_ns)], beside)
        for times_ns in times.values():
            if times_ns:
                self._run.see(times_ns[0], attempt)
                self._run.see(times_ns[-1], attempt)

    def _take(self, columns: Columns, attempt: int, rank: int, times_ns: array[int], beside: Sequence[Beside]) -> None:
        values: Sequence[float | None] = columns.values
        if columns.kind in ("histogram", "summary"):
            if columns.name not in DISTRIBUTIONS:
                return
            # The page draws them over time; as a series they have times, and by these their steps.
            place = columns.name, columns.attributes, attempt, rank
            for time_ns, value in zip(columns.times_ns, columns.histograms, strict=True):
                self._run.distributions.add(place, time_ns, value)
            values = [value.count for value in columns.histograms]
        elif columns.delta:
            values = self._totalled(columns, attempt, rank)
        self._run.store.extend(
            columns.name,
            columns.attributes,
            attempt,
            rank,
            times_ns,
            values,
            unit=columns.unit,
            description=columns.description,
            kind=columns.kind,
            beside=beside,
        )

    def _totalled(self, columns: Columns, attempt: int, rank: int) -> list[float]:
        key = (columns.name, columns.attributes, attempt, rank)
        total = self._totals.get(key, 0.0)
        running = []
        for value in columns.values:
            total += value or 0.0
            running.append(total)
        self._totals[key] = total
        return running
