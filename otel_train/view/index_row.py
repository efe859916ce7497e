"""Holds what the table of runs knows of one run, and takes it out of the run's description."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from otel_train.lineage.config_diff import flatten
from otel_train.record.names import MINIMIZED
from otel_train.runlog.catalogue import RunSummary

Scalar: TypeAlias = str | int | float | bool | None

LONGEST_VALUE = 300
LONGEST_NOTES = 2_000
MOST_CONFIG_KEYS = 1_000
MOST_METRICS = 1_000
MOST_TAGS = 100
CUT = "\u2026"
# One object, so that rows with it are equal: NaN equals nothing but itself.
NAN = math.nan
_NAMED = {"NaN": NAN, "Infinity": math.inf, "+Inf": math.inf, "-Infinity": -math.inf, "-Inf": -math.inf}


@dataclass(frozen=True, slots=True)
class Values:
    """One metric of a run in numbers. `low` and `high` are of the finite values; None where there is none."""

    last: float | None = None
    low: float | None = None
    high: float | None = None
    goal: str = ""  # min, max, or "" where the metric has no direction

    @property
    def best(self) -> float | None:
        """The lowest or the highest value, by the metric's direction; None without one."""
        return self.low if self.goal == "min" else self.high if self.goal == "max" else None


@dataclass(slots=True)
class IndexRow:
    """One run in the table. Times are nanoseconds since the Unix epoch, 0 where they are not known."""

    run_id: str
    path: str
    run_name: str = ""
    project: str = ""
    group: str = ""
    tags: list[str] = field(default_factory=list)
    notes: str = ""
    state: str = ""
    reason: str = ""
    # What a description says of the rank that ended the newest attempt.
    cause: str = ""
    created_ns: int = 0
    since_ns: int = 0
    last_seen_ns: int = 0
    step: float | None = None
    epoch: float | None = None
    host: str = ""
    attempt: int = 0
    ranks: int = 0
    metrics: dict[str, Values] = field(default_factory=dict)
    config: dict[str, Scalar] = field(default_factory=dict)
    problem: str = ""
    # Whether values are still being read from the points of a run that wrote no end.
    partial: bool = False
    # Grows while the run goes on, which is no change of the row.
    duration_s: float | None = field(default=None, compare=False)
    _words: str | None = field(default=None, compare=False, repr=False)

    @property
    def words(self) -> str:
        """Everything that a search looks into, in lower case, a line each."""
        if self._words is None:
            facts = (self.run_id, self.run_name, self.project, self.group, *self.tags, self.host, self.state)
            config = (f"{key}={text_of(value)}" for key, value in self.config.items())
            self._words = "\n".join((*facts, self.notes, *config)).casefold()
        return self._words

    def age(self, now_ns: int) -> None:
        """Bring the duration of a running run up to now."""
        until_ns = now_ns if self.state == "running" else max(self.last_seen_ns, self.since_ns)
        self.duration_s = max(0, until_ns - self.created_ns) / 1e9 if self.created_ns and until_ns else None


def row_of(run: RunSummary, now_ns: int) -> IndexRow:
    """Return the row of a run as its description and its status tell it; of a run without an end without values."""
    info, status = run.info, run.status
    attempt = newest_attempt(info, status.attempt)
    cause = attempt.get("cause")
    tags = info.get("tags")
    row = IndexRow(
        run_id=run.run_id,
        path=str(run.path),
        run_name=cut(run.run_name),
        project=cut(run.project),
        group=cut(str(info.get("group") or "")),
        tags=[cut(str(tag)) for tag in tags[:MOST_TAGS]] if isinstance(tags, list) else [],
        notes=cut(str(info.get("notes") or ""), LONGEST_NOTES),
        state=status.state,
        reason=cut(status.reason),
        cause=cut(str(cause.get("text") or "")) if isinstance(cause, Mapping) else "",
        created_ns=run.created_ns,
        since_ns=status.since_ns,
        last_seen_ns=status.last_seen_ns,
        host=cut(str(attempt.get("host") or "")),
        attempt=status.attempt,
        ranks=attempt["world_size"] if isinstance(attempt.get("world_size"), int) else 0,
        metrics=described_metrics(info),
        config=flat_config(attempt.get("config")),
        problem=run.problem,
    )
    row.step = last_step(info)
    row.age(now_ns)
    return row


def newest_attempt(info: Mapping[str, Any], number: int) -> Mapping[str, Any]:
    """Return the description of an attempt, of the one before it where it has none yet, else nothing."""
    attempts = info.get("attempts")
    listed = [one for one in attempts if isinstance(one, Mapping)] if isinstance(attempts, list) else []
    older = [one for one in listed if isinstance(one.get("attempt"), int) and one["attempt"] <= number]
    return max(older or listed, key=lambda one: _whole(one.get("attempt")), default={})


def flat_config(config: object) -> dict[str, Scalar]:
    """Return a configuration by dotted keys, long texts cut with a mark."""
    if not isinstance(config, Mapping):
        return {}
    try:
        flat = flatten(config)
    except RecursionError:
        return {}
    keys = list(flat)[:MOST_CONFIG_KEYS]
    return {cut(key): _bounded(flat[key]) for key in keys}


def _bounded(value: Scalar) -> Scalar:
    # A description has numbers that are not finite by their names; another writer's may not.
    value = named(value) if isinstance(value, float) else value
    return cut(value) if isinstance(value, str) else value


def described_metrics(info: Mapping[str, Any]) -> dict[str, Values]:
    """Return the numbers of each metric as a description has them once a run has ended, by ``split/key``."""
    summary = info.get("summary")
    if not isinstance(summary, Mapping):
        return {}
    goals = info.get("metrics")
    result: dict[str, Values] = {}
    for name, row in summary.items():
        if isinstance(row, Mapping) and len(result) < MOST_METRICS:
            goal = goal_of(str(name), goals)
            last, low, high = (number_of(row.get(part)) for part in ("last", "min", "max"))
            result[str(name)] = Values(last, low, high, goal)
    return result


def goal_of(name: str, goals: object) -> str:
    """Return the direction that is better for a metric ``split/key``: as defined, else by its name; else ""."""
    key = name.partition("/")[2] or name
    if isinstance(goals, Mapping):
        for called in (name, key):
            described = goals.get(called)
            if isinstance(described, Mapping) and described.get("goal") in ("min", "max"):
                return str(described["goal"])
    last = key.rsplit("/", 1)[-1].lower()
    return "min" if last in MINIMIZED or last.endswith(("_loss", "_error")) else ""


def last_step(info: Mapping[str, Any]) -> float | None:
    """Return the step of the newest point of training, else of any metric, as a description has it."""
    summary = info.get("summary")
    if not isinstance(summary, Mapping):
        return None
    steps: dict[bool, float] = {}
    for name, row in summary.items():
        step = number_of(row.get("last_step")) if isinstance(row, Mapping) else None
        if step is not None:
            trains = str(name).startswith("train/") or "/" not in str(name)
            steps[trains] = max(step, steps.get(trains, step))
    return steps.get(True, steps.get(False))


def joined(older: Mapping[str, Values], newer: Mapping[str, Values]) -> dict[str, Values]:
    """Return the numbers of two stretches of a run, both of all their points, as those of one."""
    result = dict(older)
    for key, values in newer.items():
        before = older.get(key, Values())
        lows = [value for value in (before.low, values.low) if value is not None]
        highs = [value for value in (before.high, values.high) if value is not None]
        result[key] = Values(values.last, min(lows, default=None), max(highs, default=None), values.goal)
    return result


def key_values(metrics: Mapping[str, Values]) -> dict[str, float]:
    """Return of each metric the best, where it has a direction and one is known, else the last value."""
    chosen = ((key, values.last if values.best is None else values.best) for key, values in metrics.items())
    return {key: value for key, value in chosen if value is not None}


def number_of(value: object) -> float | None:
    """Return a number of a description as a float, the names of those that JSON lacks among them; else None."""
    if isinstance(value, str):
        return _NAMED.get(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
    return number if number == number else NAN


def named(number: float | None) -> float | str | None:
    """Return a number as strict JSON can hold it: one that is not finite by its name."""
    if number is None or math.isfinite(number):
        return number
    return "NaN" if number != number else "Infinity" if number > 0 else "-Infinity"


def text_of(value: Scalar) -> str:
    """Return a value of the configuration as text, as JSON writes it, but texts as they are."""
    if isinstance(value, str):
        return value
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return repr(value)


def cut(text: str, characters: int = LONGEST_VALUE) -> str:
    """Return a text, a long one cut with a mark at its end."""
    return text if len(text) <= characters else text[: characters - 1] + CUT


def _whole(value: object) -> int:
    return value if isinstance(value, int) else 0
