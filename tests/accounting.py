"""A recording and the watcher that keeps its accounts, with clocks that are moved by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from otel_train.clock import NS_PER_S
from otel_train.record.amounts import AmountLog
from otel_train.record.entries import Sample
from otel_train.record.optimizer_steps import OptimizerSteps
from otel_train.record.steps import TimedLoop
from otel_train.watch.accounts import Accounts
from otel_train.watch.elsewhere import CHECKPOINT, EVALUATION, OTHER, Aside
from otel_train.watch.flops import Flops
from tests.recording import Recording

START_NS = 7 * NS_PER_S
WALL_NS = 1_800_000_000 * NS_PER_S
__all__ = ["CHECKPOINT", "EVALUATION", "OTHER", "START_NS", "WALL_NS", "Accounting"]


class Accounting:
    """A run of which each second is made by hand; the wall is `WALL_NS` ahead of the other clock."""

    def __init__(self, *, device_name: str | None = None, **options: Any) -> None:
        self.recording = Recording()
        self.log = self.recording.log
        self.now_ns = START_NS
        self._loop: TimedLoop | None = None
        self._new: list[Aside] = []
        self.phases: list[Aside] = []
        self.loops: tuple[int, int] | None = (0, 0)
        self.done: tuple[float, float] | None = None
        self.written: list[tuple[int, dict[str, float]]] = []
        self.optimizer_steps = OptimizerSteps()
        self.flops = Flops(lambda: device_name)
        self.amounts = AmountLog(self.log, now_ns=lambda: self.now_ns)
        self.accounts = Accounts(self, START_NS, optimizer_steps=self.optimizer_steps, flops=self.flops, **options)

    # What the accounts ask ---------------------------------------------------------------------------------------

    def asides(self) -> Sequence[Aside]:
        new, self._new = self._new, []
        return new

    def open_phases(self) -> Sequence[Aside]:
        return self.phases

    def present(self) -> tuple[int, int] | None:
        return self.loops

    def progress(self) -> tuple[float, float] | None:
        return self.done

    def emit(self, time_ns: int, samples: Sequence[Sample]) -> None:
        assert all(not sample.attributes for sample in samples)
        if samples:
            self.written.append((time_ns, {sample.name: sample.value for sample in samples}))

    # What a training does ----------------------------------------------------------------------------------------

    def loop(self, *, accumulate: int = 1, split: str = "train") -> TimedLoop:
        """A loop whose steps are written by `step`."""
        if self._loop is not None:
            self.log.leave_loop(self._loop, self._loop.thread)
        loop = self._loop = TimedLoop(self.log, split=split, owns_step=split == "train", accumulate=accumulate)
        loop.thread = self.log.enter_loop(loop, owns_step=loop.owns_step)
        return loop

    def pass_s(self, seconds: float) -> None:
        self.now_ns += round(seconds * NS_PER_S)

    def step(self, loop: TimedLoop, number: int, took_s: float, waited_s: float = 0.0, during: Any = None) -> None:
        """One step that ends now: it waits, works, and does `during` after that."""
        fetch_ns = self.now_ns
        self.pass_s(waited_s)
        ready_ns = self.now_ns
        self.pass_s(took_s - waited_s)
        if during is not None:
            during()
        self.recording.buffer.extend((loop, number, None, fetch_ns, ready_ns, self.now_ns))

    def aside(self, state: str, seconds: float) -> None:
        """Something else than training, from now on."""
        aside = self.begin(state)
        self.pass_s(seconds)
        aside.end_ns = self.now_ns

    def begin(self, state: str) -> Aside:
        self._new.append(Aside(self.now_ns, state))
        return self._new[-1]

    # What comes of it --------------------------------------------------------------------------------------------

    def settle(self, *, ended: bool = False) -> None:
        self.accounts.take(self.recording.take())
        self.accounts.settle(WALL_NS + self.now_ns, self.now_ns, ended=ended)

    def heartbeat(self, *, ended: bool = False) -> dict[str, float]:
        """Present values by name, those of `dl.time` by name and state; all that happened so far was seen."""
        self.settle(ended=ended)
        found: dict[str, float] = {}
        for sample in self.accounts.heartbeat(ended=ended):
            name = " ".join([sample.name, *(str(value) for _, value in sample.attributes)])
            assert name not in found
            found[name] = sample.value
        return found

    def times(self, *, ended: bool = False) -> dict[str, float]:
        """Seconds by state, those of 0 s left out."""
        values = self.heartbeat(ended=ended)
        prefix = "dl.time "
        return {name.removeprefix(prefix): value for name, value in values.items() if name.startswith(prefix) and value}

    def rates(self, name: str) -> list[float]:
        """The values of a rate, window by window."""
        return [values[name] for _, values in self.written if name in values]

    @property
    def elapsed_s(self) -> float:
        return (self.now_ns - START_NS) / NS_PER_S
