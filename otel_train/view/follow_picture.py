"""Holds how a run that is followed stands at one moment, as plain data for who draws it or prints it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Metric:
    """One row: last and best value, with their steps (None where they have none), and the shape so far."""

    name: str
    last: float
    last_step: float | None
    best: float | None
    best_step: float | None
    nonfinite: int
    has_goal: bool
    columns: Callable[[int], list[float]]


@dataclass(frozen=True, slots=True)
class Gpu:
    """One card as it was read last; shares are 0 to 1, memory bytes, None for what was not read."""

    name: str
    busy: float | None
    used: float | None
    total: float | None
    celsius: float | None
    watts: float | None


@dataclass(frozen=True, slots=True)
class Host:
    """The machine and the process of rank 0; shares are 0 to 1, memory bytes."""

    cpu: float | None
    memory: float | None
    process_cpu: float | None
    process_memory: float | None


@dataclass(frozen=True, slots=True)
class Told:
    """A warning, or what is wrong with the run: `over` tells that it holds no more."""

    time_ns: int
    level: str
    text: str
    step: float | None
    epoch: float | None
    rank: int
    over: bool = False


@dataclass(frozen=True, slots=True)
class Ranks:
    """How many ranks there are in each state, and which one is worst, in words ("" for none)."""

    states: dict[str, int]
    worst: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A run at one moment. Durations are seconds, None for what is not known."""

    now_ns: int
    name: str
    run_id: str
    project: str
    path: str
    state: str
    reason: str
    attempt: int
    elapsed_s: float
    share: float | None = None
    left_s: float | None = None
    step: float | None = None
    epoch: float | None = None
    metrics: list[Metric] = field(default_factory=list)
    step_s: float | None = None
    wait_share: float | None = None
    rates: list[tuple[str, float]] = field(default_factory=list)
    gpus: list[Gpu] = field(default_factory=list)
    host: Host | None = None
    holding: list[Told] = field(default_factory=list)
    warnings: list[Told] = field(default_factory=list)
    new_warnings: list[Told] = field(default_factory=list)
    ranks: Ranks | None = None
    damaged: int = 0
    points: int = 0

    @property
    def is_running(self) -> bool:
        """Whether somebody is still writing."""
        return self.state == "running"
