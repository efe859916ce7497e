"""Reaches the current run from anywhere in the code, and does nothing where there is none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from otel_train.record.phases import NoPhase, Phase
from otel_train.run.current import current_run
from otel_train.run.stage import NoStage, Stage

_NO_PHASE = NoPhase()


def log(values: Mapping[str, Any], step: int | None = None, **about: Any) -> None:
    """Record numbers with the current run; see `Run.log`."""
    run = current_run()
    if run is not None:
        run.log(values, step, **about)


def phase(name: str) -> Phase | NoPhase:
    """Time a part of a step of the current run; see `Run.phase`."""
    run = current_run()
    return _NO_PHASE if run is None else run.phase(name)


def stage(name: str, **about: Any) -> Stage | NoStage:
    """Record a stage of the current run; see `Run.stage`."""
    run = current_run()
    return NoStage() if run is None else run.stage(name, **about)
