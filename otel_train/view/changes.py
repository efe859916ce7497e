"""Says what changed in a run since the last look, as little as a page needs to go on from what it shows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from otel_train.clock import NS_PER_S
from otel_train.view import facts, happenings, origins, overview, timeline
from otel_train.view.attempts import News
from otel_train.view.axes import Axes
from otel_train.view.charts import best_of, marks_of, metric_groups, notes_of
from otel_train.view.internals import NAMES, SHARED
from otel_train.view.internals import SILENT as UNDRAWN
from otel_train.view.log_list import LogRow, levels, row_of
from otel_train.view.machine_charts import SILENT
from otel_train.view.parts import summary_row
from otel_train.view.run_data import RunData
from otel_train.view.samples_section import NAMES as SAMPLES
from otel_train.view.series import Effective, Series, series_id

# Beyond that a page is told to ask for the whole part instead.
MOST_POINTS = 20_000
MOST_LOGS = 2_000
MOST_ROWS = 100
# So long nothing is looked at again whose look costs more the longer the run is; with so many spans twice as long.
LOOK_NS = 10 * NS_PER_S
MANY_SPANS = 5_000
Payload = dict[str, Any]


class Changes:
    """Compares a run with how it was when it was looked at last."""

    def __init__(self, run: RunData) -> None:
        self._run = run
        self.logs: list[LogRow] = []
        self._sent: dict[int, int] = {}
        self._best: dict[int, tuple[int | None, int]] = {}
        self._drawn: dict[int, tuple[Effective, str, str]] = {}
        self._ground: tuple[Any, ...] = ()
        self._noted: tuple[Any, ...] = ()
        # What was sent of the top of the page, when its time was looked at last, and when the spans were counted.
        self._top: Payload = {}
        self._spent_ns = 0
        self._spans = 0
        self._spans_ns = 0
        self._counted: dict[str, Any] = {}

    def take(self, *, payload: bool = True) -> Payload | None:
        """Return what changed since the last call; None where all that is shown is to be made anew."""
        run = self._run
        news = run.update()
        axes = run.axes()
        # Whatever moves all points, or makes other lines.
        ground = (run.started_ns, axes.fractional, len(run.attempts), max(run.last_of_attempt, default=0))
        came = any(series.name.startswith("train.") for series in news.came)
        logs, self.logs = self.logs, []
        stale = self._stale(news, logs)
        if news.restarted or came or ground != self._ground:
            self._ground = ground
            self._begin()
            return None
        if not payload:
            self._mark(news)
            return {}
        result: Payload = {
            "elapsed_s": overview.extent_s(run),
            "live": run.state == "running",
            "status": overview.status(run),
            "facts": overview.facts(run),
            "lines": {},
            "summary": {},
            "logs": [row_of(row, run.started_ns) for row in logs[:MOST_LOGS]],
            "logs_seen": run.logs.seen,
            "logs_levels": levels(run.logs),
            "counts": self._counts(stale),
            "came": sorted({part for series in news.came for part in parts_of(series)}),
        }
        if len(logs) > MOST_LOGS:
            stale.add("logs")
        self._add_points(result, news, axes, stale)
        metrics = run.metrics()
        result["tiles"] = overview.tiles(metrics)
        self._add_top(result, news)
        noted = (*self._noted_now(metrics), dict(result["facts"]).get("Dropped"))
        if noted != self._noted:
            self._noted = noted
            result["notices"] = overview.notices(run, metrics)
        if axes.fractional and result["lines"]:
            stale.add("epoch")
        result["stale"] = sorted(stale)
        return result

    def _begin(self) -> None:
        run = self._run
        groups = metric_groups(run.metrics())
        self._drawn = {
            id(item.series): (item, named.label, named.role) for group in groups for item, named in group.shown
        }
        self._sent = {id(item.series): len(item.series.values) for item in run.series()}
        self._best = {}
        self._noted = (*self._noted_now(run.metrics()), overview.dropped_text(run))

    def _mark(self, news: News) -> None:
        for series, _ in news.changed:
            self._sent[id(series)] = len(series.values)

    def _add_points(self, result: Payload, news: News, axes: Axes, stale: set[str]) -> None:
        """Add the new points of the user's metrics, and their numbers."""
        drawn = [(series, first) for series, first in news.changed if id(series) in self._drawn]
        new = sum(len(series.values) - self._sent.get(id(series), 0) for series, _ in drawn)
        if new > MOST_POINTS:
            stale.add("metrics")
        lowest = min((series.rank for series, _ in drawn), default=0)
        for series, first in drawn:
            sent = self._sent.get(id(series), 0)
            if first < sent:
                # Points that are drawn already stand elsewhere now.
                stale.add("metrics")
            item, label, role = self._drawn[id(series)]
            if new <= MOST_POINTS:
                result["lines"][series_id(series)] = self._line(item, label, role, sent, axes)
            if len(drawn) <= MOST_ROWS or series.rank == lowest:
                row = summary_row(self._run.summary(item), series)
                result["summary"][row["id"]] = row
        self._mark(news)

    def _line(self, item: Effective, label: str, role: str, sent: int, axes: Axes) -> Payload:
        series = item.series
        indices = range(sent, len(series.values))
        values = series.values[sent:]
        made: Payload = {
            "x": axes.places(series, indices),
            "y": [value if value - value == 0.0 else None for value in values],
        }
        marks = marks_of(values, [index - sent for index in series.gaps if index >= sent] if series.gaps else ())
        if marks:
            made["marks"] = marks
        summary = self._run.summary(item)
        best = (summary.best_index, summary.bad.total)
        if best != self._best.get(id(series)):
            self._best[id(series)] = best
            made["notes"] = notes_of(series, label, summary)
            if summary.best is not None:
                made["best"] = best_of(series, summary, axes)
        return made

    def _add_top(self, result: Payload, news: News) -> None:
        """Add what the top of the page says of other parts, where it is another than before."""
        run = self._run
        now: Payload = {"lineage": origins.lineage(run)}
        # Between two counts only that what is not counted grows.
        if (
            abs(run.now_ns - self._spent_ns) >= LOOK_NS
            or run.state != "running"
            or any(series.name == "dl.time" for series, _ in news.changed)
        ):
            self._spent_ns = run.now_ns
            others = [item.series for item in run.series() if not item.series.name.startswith("train.")]
            now["time_by_state"] = happenings.time_by_state(run, others)
            now["time_not_counted"] = happenings.time_not_counted(run, others)
        result.update({key: value for key, value in now.items() if key not in self._top or self._top[key] != value})
        self._top.update(now)

    def _counts(self, stale: Collection[str]) -> dict[str, int]:
        """Return how much there is in parts that changed, which a page may say without asking for them."""
        run = self._run
        counted: dict[str, Callable[[], int]] = {
            "datasets": lambda: len(facts.datasets(run)),
            "checkpoints": lambda: len(facts.checkpoints(run)),
            "stages": lambda: len(facts.stages(run)),
        }
        found = {part: count() for part, count in counted.items() if part in stale}
        # All spans are looked at for it.
        if len(run.spans) != self._spans and abs(run.now_ns - self._spans_ns) >= LOOK_NS * (
            1 + len(run.spans) / MANY_SPANS
        ):
            self._spans, self._spans_ns = len(run.spans), run.now_ns
            found["timeline"] = timeline.seen(run.spans, run.ends())
        return found

    def _noted_now(self, metrics: Sequence[tuple[Effective, Any]]) -> tuple[Any, ...]:
        run = self._run
        bad = tuple(summary.bad.total for item, summary in metrics if item.series.rank == 0)
        return run.state, bad, len(run.health), run.happened_seen, len(run.damage), run.spans_left_out

    def _stale(self, news: News, logs: Sequence[LogRow]) -> set[str]:
        """Return the parts that changed in another way than by points of the user's metrics and log records."""
        run = self._run
        found: set[str] = set()
        for series, _ in news.changed:
            found.update(parts_of(series))
        info = run.info
        now = {
            "timeline": (len(run.spans), run.spans_left_out),
            "inside": run.happened_seen,
            "run_log": (len(run.damage), run.skipped),
            "config": [attempt.get("config") for attempt in run.attempts],
            "environment": [attempt.get("environment") for attempt in run.attempts],
            **{name: info.get(name) for name in ("datasets", "checkpoints", "stages")},
            "head": [info.get(name) for name in ("run_name", "project", "tags", "notes", "group")] + [run.attempts],
        }
        found.update(name for name, value in now.items() if value != self._counted.get(name))
        self._counted = now
        return found


def parts_of(series: Series) -> set[str]:
    """Return the parts of the page in which a series is drawn, but for the user's metrics."""
    name = series.name
    if name.startswith("train.") or name in SILENT:
        return set()
    if name in SAMPLES:
        return {"samples"}
    if name in SHARED:
        return {"inside", "machine"}
    return {"inside"} if name in NAMES | UNDRAWN or series.kind == "histogram" else {"machine"}
