"""Keeps a run's accounts as it is written: where its time goes, what it processes, how fast, how long it will take."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from otel_train.clock import NS_PER_S
from otel_train.record.digest import Digested
from otel_train.record.entries import Sample
from otel_train.record.optimizer_steps import OptimizerSteps
from otel_train.runlog.watcher import Finding
from otel_train.semconv import STATE
from otel_train.watch.elsewhere import CHECKPOINT, EVALUATION, Aside
from otel_train.watch.flops import Flops
from otel_train.watch.goodput import DATA, LOST, PRODUCTIVE, TimeAccount
from otel_train.watch.throughput import Throughput, Window


class Training(Protocol):
    """What the accounts ask of a run, on the writer's thread."""

    def asides(self) -> Sequence[Aside]:
        """Take out what began since the last call that is no training."""
        ...

    def open_phases(self) -> Sequence[Aside]:
        """Return the phases that are no training and last at this moment."""
        ...

    def present(self) -> tuple[int, int] | None:
        """Return when the one open loop began and when its last batch was there; None where that is not known.

        (0, 0) without an open loop. None, too, while steps that have ended wait for the writer.
        """
        ...

    def progress(self) -> tuple[float, float] | None:
        """Return the share of training that is done and what was done when this attempt began; None where unknown."""
        ...

    def emit(self, time_ns: int, samples: Sequence[Sample]) -> None:
        """Write samples at a wall time."""
        ...


class Accounts:
    """The watcher of one run and rank that counts, for the writer's thread.

    `ranks` is the number of data-parallel ranks, None on a rank that does not speak for the job; `lost_s` gives the
    time of an earlier attempt after its last checkpoint.
    """

    def __init__(
        self,
        training: Training,
        began_ns: int,
        *,
        optimizer_steps: OptimizerSteps,
        flops: Flops,
        throughput: Throughput | None = None,
        ranks: int | None = None,
        lost_s: Callable[[], float | None] = lambda: None,
    ) -> None:
        self._training = training
        self._time = TimeAccount(began_ns)
        self._throughput = throughput or Throughput()
        self._optimizer_steps = optimizer_steps
        self._flops = flops
        self._ranks = ranks
        self._lost_s = lost_s
        self._windows: list[Window] = []
        self._by_hand_ns: int | None = None
        self._by_device = False
        self._seen = False
        self._now_ns = began_ns

    # What passes by ------------------------------------------------------------------------------------------------

    def take(self, digested: Digested) -> None:
        """See steps, and what was counted beside them."""
        time = self._time
        for aside in self._training.asides():
            time.take_aside(aside)
        for state, start_ns, end_ns in digested.asides:
            time.take_aside(Aside(start_ns, state, end_ns))
        if digested.steps:
            self._seen = True
            take_step, take = time.take_step, self._throughput.take
            for facts in digested.steps:
                if facts.owns_step:
                    end_ns = facts.end_ns
                    data_ns = time.data_ns
                    take_step(facts.fetch_ns, facts.ready_ns, end_ns)
                    self._by_device = facts.has_device_clock
                    if facts.has_device_clock:
                        time.hold_back(time.data_ns - data_ns, facts.step)
                    window = take(
                        facts.step,
                        facts.epoch,
                        end_ns,
                        time.training_ns,
                        facts.samples,
                        facts.tokens,
                        facts.ends_update,
                    )
                    if window is not None:
                        self._windows.append(window)
        for split, step, wait_s in digested.device_waits:
            if split == "train":
                time.take_device_wait(step, round(wait_s * NS_PER_S))
        if digested.amounts:
            self._take_amounts(digested)

    def _take_amounts(self, digested: Digested) -> None:
        """Take what was counted in a loop by hand: there a count ends a micro-batch, and the first begins the time."""
        self._seen = True
        for amount in digested.amounts:
            if self._by_hand_ns is None:
                self._time.take_rest(amount.mono_ns)
                self._throughput.count(amount.samples, amount.tokens)
                self._throughput.begin(self._time.training_ns)
            else:
                self._time.take_step(self._by_hand_ns, self._by_hand_ns, amount.mono_ns)
                window = self._throughput.take_by_hand(
                    amount.step,
                    amount.epoch,
                    amount.mono_ns,
                    self._time.training_ns,
                    amount.samples,
                    amount.tokens,
                )
                if window is not None:
                    self._windows.append(window)
            self._by_hand_ns = amount.mono_ns

    def readings(self, time_ns: int, samples: Sequence[Sample]) -> None:
        """The machine's readings say nothing here."""

    # What comes of it ----------------------------------------------------------------------------------------------

    def settle(self, wall_ns: int, mono_ns: int, *, ended: bool) -> Sequence[Finding]:
        """Write what windows have ended; at the end also the rest."""
        self._now_ns = mono_ns
        if ended:
            last = self._throughput.last()
            if last is not None:
                self._windows.append(last)
        windows, self._windows = self._windows, []
        for window in windows:
            self._training.emit(wall_ns - mono_ns + window.end_ns, self._rates(window))
        return ()

    def _rates(self, window: Window) -> list[Sample]:
        samples: list[Sample] = []
        for what, rate in (("samples", window.samples_per_second), ("tokens", window.tokens_per_second)):
            if rate is None:
                continue
            samples.append(Sample(f"dl.rank.{what}_per_second", rate))
            if self._ranks is not None:
                samples.append(Sample(f"dl.job.{what}_per_second", rate * self._ranks))
        utilisation = self._flops.utilisation(window)
        if utilisation is not None:
            samples.append(Sample("dl.mfu", utilisation))
        if self._optimizer_steps.source == "accumulate":
            samples.append(Sample("dl.optimizer.step", self._optimizer_steps.before + window.updates_so_far))
        if not samples:
            return []
        samples.append(Sample("dl.step", window.step))
        if window.epoch is not None:
            samples.append(Sample("dl.epoch", window.epoch))
        return samples

    def heartbeat(self, *, ended: bool) -> Sequence[Sample]:
        """Return the accounts as they stand; a run without steps, and without counts, has none."""
        if not self._seen:
            return ()
        self._book(ended=ended)
        throughput = self._throughput
        samples = [Sample("dl.micro_step", throughput.micro_batches)]
        for what, amount in (("samples", throughput.samples), ("tokens", throughput.tokens)):
            if amount.is_known:
                samples.append(Sample(f"dl.rank.{what}", amount.total))
        steps = self._optimizer_steps
        if steps.source == "accumulate":
            steps.note("accumulate", steps.before + throughput.updates)
        if steps.done is not None:
            samples.append(Sample("dl.optimizer.step", steps.done))
        return [*samples, *self._times(ended=ended)]

    def _times(self, *, ended: bool) -> list[Sample]:
        time = self._time
        totals_ns = time.totals_ns
        samples = [Sample("dl.time", spent_ns / NS_PER_S, ((STATE, state),)) for state, spent_ns in totals_ns.items()]
        lost_s = self._lost_s()
        if lost_s is not None:
            samples.append(Sample("dl.time", lost_s, ((STATE, LOST),)))
        whole_ns = time.booked_ns - time.began_ns
        if whole_ns:
            samples.append(Sample("dl.productive.share", totals_ns[PRODUCTIVE] / whole_ns))
        left_s = self.left_s()
        if left_s is not None and not ended:
            samples.append(Sample("dl.run.time_left", left_s))
        return samples

    def left_s(self) -> float | None:
        """Return the seconds until training is done at its pace so far; None where its end is not known."""
        totals_ns = self._time.totals_ns
        spent_ns = sum(totals_ns[state] for state in (PRODUCTIVE, DATA, EVALUATION, CHECKPOINT))
        return time_left_s(self._training.progress(), spent_ns / NS_PER_S)

    def _book(self, *, ended: bool) -> None:
        """Book the time up to now as far as it is known to what it goes; at the end all of it."""
        time, now_ns = self._time, self._now_ns
        for aside in self._training.asides():
            time.take_aside(aside)
        present = self._training.present()
        phases = self._training.open_phases()
        if present is not None and present[0] and (ended or self._by_hand_ns is None):
            # A step is under way: its batch was there at `ready_ns`, or it waits for it still.
            began_ns, ready_ns = present
            fetch_ns = min(max(time.booked_ns, began_ns), now_ns)
            ready_ns = min(ready_ns, now_ns) if ready_ns >= fetch_ns else now_ns
            data_ns = time.data_ns
            time.take_step(fetch_ns, ready_ns, now_ns, phases)
            if self._by_device:
                time.hold_back(time.data_ns - data_ns, None)
        elif ended or (present is not None and self._by_hand_ns is None):
            time.take_rest(now_ns, phases)
        if ended:
            time.end()


def time_left_s(progress: tuple[float, float] | None, spent_s: float) -> float | None:
    """Return how long the rest takes at the pace of this attempt: training, evaluation and checkpoints so far."""
    if progress is None:
        return None
    done, began_at = progress
    if done >= 1:
        return 0.0
    gained = done - began_at
    return (1 - done) / gained * spent_s if gained > 0 and spent_s > 0 else None
