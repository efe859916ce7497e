"""Knows what a run does that is no training step: then nobody waits for one, and its time is no training time."""

from __future__ import annotations

import re
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from otel_train.clock import mono_ns
from otel_train.record.phases import Phase
from otel_train.watch.elsewhere import CHECKPOINT, EVALUATION, IN_A_STAGE, OTHER, OUTSIDE, Aside

if TYPE_CHECKING:
    from otel_train.run.run import Run
    from otel_train.run.stage import Stage

# Phases within which a step may take as long as it likes.
_NO_STEP: Final = re.compile(r"eval|valid|(^|[^a-z])(val|test)([^a-z]|$)|checkpoint|ckpt|sav", re.IGNORECASE)
_EVALUATES: Final = re.compile(r"eval|valid|(^|[^a-z])(val|test)([^a-z]|$)", re.IGNORECASE)
_TRAINING_STAGE: Final = re.compile(r"train|fit|tun|learn", re.IGNORECASE)
# Asides that nobody has taken yet; more are forgotten, the oldest first.
MOST_ASIDES: Final = 10_000


class Activity:
    """For the training threads to say, for the writer's thread to ask; neither waits for the other."""

    def __init__(self, run: Run, now_ns: Callable[[], int] = mono_ns) -> None:
        self._run = run
        self._now_ns = now_ns
        self.began_ns = now_ns()
        # What is open, and how `elsewhere` calls it.
        self._open: dict[int, tuple[Aside, str]] = {}
        self._stages: dict[int, Aside] = {}
        self._asides: deque[Aside] = deque(maxlen=MOST_ASIDES)
        # By thread and name, as `Run.phase` keeps them: a thread that is gone leaves its place to another.
        self._phases: dict[tuple[int, str], Phase] = {}
        self._training_stages: set[str] = set()

    def note_phase(self, phase: Phase) -> None:
        """Watch a phase if its name says that it is no training."""
        if _NO_STEP.search(phase.name):
            phase.aside = state_of(phase.name)
            self._phases[threading.get_ident(), phase.name] = phase

    @contextmanager
    def during(self, what: str) -> Iterator[None]:
        """Name what runs within."""
        aside = self._begin(state_of(what))
        self._open[id(aside)] = aside, what
        try:
            yield
        finally:
            self._end(aside)

    def evaluation(self, split: str) -> Callable[[], None]:
        """Start the span of a loop beside training; return what ends it."""
        run = self._run
        aside = self._begin(EVALUATION)
        span: Any = None

        def end() -> None:
            self._end(aside)
            if span is not None:
                run.spans.end(span)

        self._open[id(aside)] = aside, "evaluation"
        with run.guard("steps"):
            span = run.spans.start("evaluation", {"split": split, **run.position()})
        return end

    def stage_begins(self, stage: Stage) -> None:
        """Note a stage; one whose name says that it trains is no aside."""
        if not _TRAINING_STAGE.search(stage.name):
            self._stages[id(stage)] = self._begin(state_of(stage.name))

    def stage_ends(self, stage: Stage) -> None:
        """Note the end of a stage."""
        aside = self._stages.pop(id(stage), None)
        if aside is not None:
            aside.end_ns = self._now_ns()

    def _begin(self, state: str) -> Aside:
        aside = Aside(self._now_ns(), state)
        self._asides.append(aside)
        return aside

    def _end(self, aside: Aside) -> None:
        if self._open.pop(id(aside), None) is not None:
            aside.end_ns = self._now_ns()

    def asides(self) -> list[Aside]:
        """Take out what began since the last call; where it lasts still, its end is set later."""
        return [self._asides.popleft() for _ in range(len(self._asides))]

    def open_phases(self) -> list[Aside]:
        """Return the phases that are no training and last at this moment; once they end the digest has them."""
        found = []
        for phase in list(self._phases.values()):
            since_ns = phase.open_since_ns
            if since_ns:
                found.append(Aside(since_ns, phase.aside))
        return found

    @property
    def is_evaluating(self) -> bool:
        """Whether an evaluation is open: what is counted then is no training's."""
        if not (self._open or self._stages or self._phases):
            return False
        asides = [aside for aside, _ in list(self._open.values())]
        return any(aside.state == EVALUATION for aside in (*asides, *list(self._stages.values()), *self.open_phases()))

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
        for _, what in list(self._open.values()):
            return what
        for phase in list(self._phases.values()):
            if phase.is_open:
                return phase.name
        return "" if looping else OUTSIDE


def state_of(name: str) -> str:
    """Return the state of `dl.time` that the time of a phase or stage of this name belongs to."""
    if _EVALUATES.search(name):
        return EVALUATION
    return CHECKPOINT if _NO_STEP.search(name) else OTHER
