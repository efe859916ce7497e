"""Names what a table of runs can show, sort and filter by, and takes it out of a run's row."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from otel_train.view.filter_syntax import write_name
from otel_train.view.index_row import IndexRow, Values

STATES: Final = ("running", "finished", "failed", "interrupted", "killed", "lost")
# Without a split a metric's name means this one first.
SPLITS: Final = ("val", "train", "test")
STATISTICS: Final = ("last", "best", "min", "max")
CONFIG: Final = "config."
NEAR: Final = 4
# Runs with the same keys are asked for the directions of their metrics, so many of them.
ALIKE: Final = 20
_Shape: TypeAlias = tuple[tuple[str, ...], tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Column:
    """Something of a run: `get` returns its value, None where a row has none. Times and durations are in seconds."""

    id: str
    title: str
    kind: str  # state, text, tags, number, time, duration; value for configuration, whatever its type
    get: Callable[[IndexRow], Any]
    group: str = "run"
    metric: str = ""
    statistic: str = ""


FACTS: Final = (
    Column("state", "State", "state", lambda row: row.state or None),
    Column("name", "Name", "text", lambda row: row.run_name or None),
    Column("id", "Run id", "text", lambda row: row.run_id),
    Column("project", "Project", "text", lambda row: row.project or None),
    Column("group", "Group", "text", lambda row: row.group or None),
    Column("tags", "Tags", "tags", lambda row: row.tags or None),
    Column("notes", "Notes", "text", lambda row: row.notes or None),
    Column("host", "Host", "text", lambda row: row.host or None),
    Column("started", "Started (UTC)", "time", lambda row: row.created_ns / 1e9 if row.created_ns else None),
    Column("duration", "Duration", "duration", lambda row: row.duration_s),
    Column("step", "Step", "number", lambda row: row.step),
    Column("epoch", "Epoch", "number", lambda row: row.epoch),
    Column("attempts", "Attempts", "number", lambda row: row.attempt or None),
    Column("ranks", "Ranks", "number", lambda row: row.ranks or None),
    Column("reason", "Reason", "text", lambda row: row.reason or None),
    Column("problem", "Problem", "text", lambda row: row.problem or None),
)
_FACTS: Final = {column.id: column for column in FACTS}
_ALSO: Final = {
    "status": "state",
    "run_id": "id",
    "run_name": "name",
    "tag": "tags",
    "attempt": "attempts",
}


class UnknownColumn(LookupError):  # noqa: N818 - says what the name is
    """No run has anything of this name; the message says what comes near."""


class Columns:
    """What the rows of a table have: which metrics and which keys of the configuration, and how many rows each."""

    def __init__(self, rows: Iterable[IndexRow] = ()) -> None:
        listed = list(rows)
        self.rows = len(listed)
        # Most runs have the same keys as others, so these are counted together.
        shapes: dict[_Shape, list[IndexRow]] = {}
        for row in listed:
            shapes.setdefault((tuple(row.metrics), tuple(row.config)), []).append(row)
        self._likeness = {shape: [row.run_id for row in alike] for shape, alike in shapes.items()}
        self.metrics: Counter[str] = Counter()
        self.config: Counter[str] = Counter()
        self.goals: dict[str, str] = {}
        for (metrics, config), alike in shapes.items():
            self.metrics.update(dict.fromkeys(metrics, len(alike)))
            self.config.update(dict.fromkeys(config, len(alike)))
            for row in alike[:ALIKE]:
                self.goals.update((key, values.goal) for key, values in row.metrics.items() if values.goal)
        self._facts = {column.id: sum(column.get(row) is not None for row in listed) for column in FACTS}
        # What is shown where nobody has chosen, once it has been worked out.
        self.choice: list[str] = []
        self._available: list[dict[str, Any]] = []
        self._found: dict[str, Column] = {}
        self._by_tail: dict[str, list[str]] = {}
        for key in self.metrics:
            for place, letter in enumerate(key):
                if letter == "/":
                    self._by_tail.setdefault(key[place + 1 :], []).append(key)

    def is_like(self, other: Columns) -> bool:
        """Return whether the same runs have the same, so that only values may have changed."""
        return self._likeness == other._likeness and self._facts == other._facts and self.goals == other.goals

    def find(self, name: str) -> Column:
        """Return the column of a name; UnknownColumn where no row has it. Where there are no rows, any name may be."""
        column = self._found.get(name)
        if column is None:
            column = self._find(name)
            if self.rows:
                self._found[name] = column
        return column

    def available(self) -> list[dict[str, Any]]:
        """Return each column as ``{"id", "title", "group", "kind", "count"}``.

        Each statistic of a metric is one, with ``"of"``, the metric, ``"stat"`` and ``"goal"``, its direction or None.
        """
        if self._available:
            return self._available
        found = [self._described(column, self._facts[column.id]) for column in FACTS]
        for key in sorted(self.metrics, key=self.metric_order):
            for statistic in STATISTICS:
                if statistic != "best" or key in self.goals:
                    described = self._described(self.find(metric_id(key, statistic)), self.metrics[key])
                    found.append(described | {"of": key, "stat": statistic, "goal": self.goals.get(key)})
        for key in sorted(self.config):
            found.append(self._described(self.find(CONFIG + key), self.config[key]))
        self._available = found
        return found

    def described(self, column: Column) -> dict[str, Any]:
        """Return a column that is not among those `available`, in the same shape; of a metric with its statistic."""
        found = self._described(column, self.metrics.get(column.metric, 0) if column.metric else 0)
        if not column.metric:
            return found
        return found | {"of": column.metric, "stat": column.statistic, "goal": self.goals.get(column.metric)}

    def metric_order(self, key: str) -> tuple[Any, ...]:
        """Sort metrics: those of most runs first, of validation before training, losses before others."""
        split, _, name = key.partition("/")
        first = SPLITS.index(split) if split in SPLITS else len(SPLITS)
        return -self.metrics[key], first, "loss" not in name, key

    def candidates(self, name: str) -> Sequence[str]:
        """Return the metrics that a name may mean, the one that it means first where a row has it, first."""
        split = [f"{split}/{name}" for split in SPLITS]
        named = [key for key in (name, *split) if key in self.metrics]
        return named + sorted(key for key in self._by_tail.get(name, ()) if key not in named)

    def _find(self, name: str) -> Column:
        fact = _FACTS.get(_ALSO.get(name.lower(), name.lower()))
        if fact is not None:
            return fact
        if name.startswith(CONFIG):
            key = name.removeprefix(CONFIG)
            if self.rows and key not in self.config:
                raise UnknownColumn(f"no run has the configuration key {key!r}{self._near(name)}")
            return config_column(key)
        statistic, called = metric_name(name)
        candidates = self.candidates(called)
        if not candidates:
            if self.rows:
                raise UnknownColumn(f"no run has {name!r}{self._near(name)}")
            return metric_column(name, statistic, [called, *(f"{split}/{called}" for split in SPLITS)], f"/{called}")
        return metric_column(name, statistic, candidates)

    def _near(self, name: str) -> str:
        if name.startswith(CONFIG):
            found = [CONFIG + key for key in _close(name.removeprefix(CONFIG), self.config)]
        else:
            stems = {key.rpartition("/")[2] for key in self.metrics}
            statistic, called = metric_name(name)
            found = [CONFIG + called] if called in self.config else []
            if called == name:
                found += _close(name, {*_FACTS, *self.metrics, *stems, *(CONFIG + key for key in self.config)})
            else:
                found += [metric_id(key, statistic) for key in _close(called, {*self.metrics, *stems})]
        near = [write_name(one) for one in dict.fromkeys(found)][:NEAR]
        return f"; near it: {', '.join(near)}" if near else ""

    def _described(self, column: Column, count: int) -> dict[str, Any]:
        return {
            "id": column.id,
            "title": column.title,
            "group": column.group,
            "kind": column.kind,
            "count": count,
        }


def _close(name: str, names: Iterable[str]) -> list[str]:
    return difflib.get_close_matches(name, sorted(names), n=NEAR, cutoff=0.5)


def config_column(key: str) -> Column:
    """Return the column of a dotted key of the configuration."""
    return Column(CONFIG + key, key, "value", lambda row: row.config.get(key), "config")


def metric_name(name: str) -> tuple[str, str]:
    """Return which statistic of which metric a name means: ``best.loss`` is ("best", "loss"), ``loss`` the last."""
    statistic, dot, called = name.partition(".")
    return (statistic, called) if dot and called and statistic in STATISTICS else ("last", name)


def metric_id(key: str, statistic: str) -> str:
    """Return the name of a metric's statistic."""
    plain = statistic == "last" and metric_name(key)[1] == key and not key.startswith(CONFIG) and not _is_fact(key)
    return key if plain else f"{statistic}.{key}"


def metric_column(name: str, statistic: str, candidates: Sequence[str], tail: str = "") -> Column:
    """Return the column of the first of some metrics that a row has, else, with a `tail`, of one that ends so."""
    take = _TAKE[statistic]

    def get(row: IndexRow) -> float | None:
        metrics: Mapping[str, Values] = row.metrics
        for key in candidates:
            values = metrics.get(key)
            if values is not None:
                return take(values)
        if tail:
            key = min((key for key in metrics if key.endswith(tail)), default="")
            return take(metrics[key]) if key else None
        return None

    called = metric_name(name)[1]
    title = called if statistic == "last" else f"{statistic} {called}"
    return Column(name, title, "number", get, "metric", candidates[0], statistic)


def _is_fact(name: str) -> bool:
    return _ALSO.get(name.lower(), name.lower()) in _FACTS


_TAKE: Final[Mapping[str, Callable[[Values], float | None]]] = {
    "last": lambda values: values.last,
    "best": lambda values: values.best,
    "min": lambda values: values.low,
    "max": lambda values: values.high,
}
