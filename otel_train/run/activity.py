"""Knows what a run does at this moment that is no training step: then nobody waits for one."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from otel_train.record.phases import Phase
from otel_train.watch.elsewhere import IN_A_STAGE, OUTSIDE

if TYPE_CHECKING:
    from otel_train.run.run import Run

# Phases within which a step may take as long as it likes.
_NO_STEP: Final = re.compile(r"eval|valid|(^|[^a-z])(val|test)([^a-z]|$)|checkpoint|ckpt|sav", re.IGNORECASE)
_TRAINING_STAGE: Final = re.compile(r"train|fit|tun|learn", re.IGNORECASE)


class Activity:
    """For the training threads to say, for the writer's thread to ask; neither waits for the other."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._open: dict[object, str] = {}
        # By thread and name, as `Run.phase` keeps them: a thread that is gone leaves its place to another.
        self._phases: dict[tuple[int, str], Phase] = {}
        self._training_stages: set[str] = set()

    def note_phase(self, phase: Phase) -> None:
        """Watch a phase if its name says that it is no training."""
        if _NO_STEP.search(phase.name):
            self._phases[threading.get_ident(), phase.name] = phase

    @contextmanager
    def during(self, what: str) -> Iterator[None]:
        """Name what runs within."""
        mark = object()
        self._open[mark] = what
        try:
            yield
        finally:
            self._open.pop(mark, None)

    def evaluation(self, split: str) -> Callable[[], None]:
        """Start the span of a loop beside training; return what ends it."""
        run = self._run
        mark = object()
        span: Any = None

        def end() -> None:
            self._open.pop(mark, None)
            if span is not None:
                run.spans.end(span)

        self._open[mark] = "evaluation"
        with run.guard("steps"):
            span = run.spans.start("evaluation", {"split": split, **run.position()})
        return end

    def elsewhere(self) -> str:
        """Return what the run does that is no step, "" where it should make steps."""
        run = self._run
        looping = bool(run.points.loops)
        stage = run.present_stage
        if stage is not None:
            if looping:
                self._training_stages.add(stage)
            elif stage not in self._training_stages and not _TRAINING_STAGE.search(stage):
                return IN_A_STAGE
        for what in list(self._open.values()):
            return what
        for phase in list(self._phases.values()):
            if phase.is_open:
                return phase.name
        return "" if looping else OUTSIDE
