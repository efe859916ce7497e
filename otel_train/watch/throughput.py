"""Counts what training processes, and how fast: samples and tokens a second over windows of training time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from otel_train.clock import NS_PER_S

WINDOW_UPDATES: Final = 10
LEAST_NS: Final = 5 * NS_PER_S
MOST_NS: Final = 30 * NS_PER_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """What some micro-batches in a row had; samples and tokens are None where one of them did not tell.

    `end_ns` is the monotonic time at which its last step ended, `updates` counts the optimizer steps within, and
    `updates_so_far` all of this attempt until then.
    """

    end_ns: int
    step: int
    epoch: int | None
    training_s: float
    micro_batches: int
    updates: int
    updates_so_far: int
    samples: int | None
    tokens: int | None

    @property
    def samples_per_second(self) -> float | None:
        """Samples by seconds of training time."""
        return None if self.samples is None else self.samples / self.training_s

    @property
    def tokens_per_second(self) -> float | None:
        """Tokens by seconds of training time."""
        return None if self.tokens is None else self.tokens / self.training_s


class Throughput:
    """Micro-batches of one rank and attempt, in order.

    A window ends with an optimizer step: once it has ten of them and five seconds of training time, at the latest
    after thirty seconds. Training time is that within steps, with their wait for data, less what evaluation,
    checkpoints and stages took of it.
    """

    def __init__(
        self,
        *,
        window_updates: int = WINDOW_UPDATES,
        least_ns: int = LEAST_NS,
        most_ns: int = MOST_NS,
    ) -> None:
        self._window_updates = window_updates
        self._least_ns = least_ns
        self._most_ns = most_ns
        # Of the attempt so far.
        self.micro_batches = 0
        self.updates = 0
        self.samples = _Amount()
        self.tokens = _Amount()
        self._windows = 0
        # Where the present window began: training time, micro-batches and optimizer steps.
        self._from = (0, 0, 0)
        self._last: tuple[int, int, int | None, int] = (0, 0, None, 0)

    def take(
        self,
        step: int,
        epoch: int | None,
        end_ns: int,
        training_ns: int,
        samples: int | None,
        tokens: int | None,
        ends_update: bool = True,
    ) -> Window | None:
        """Take a micro-batch, with all training time up to its end; return the window that ends with it."""
        self.micro_batches += 1
        self.samples.take(samples)
        self.tokens.take(tokens)
        self._last = end_ns, step, epoch, training_ns
        return self._updated(training_ns) if ends_update else None

    def take_by_hand(
        self, step: int, epoch: int | None, end_ns: int, training_ns: int, samples: int | None, tokens: int | None
    ) -> Window | None:
        """Take what was counted in a loop by hand, samples and tokens together or one after the other."""
        self.count(samples, tokens)
        self._last = end_ns, step, epoch, training_ns
        return self._updated(training_ns)

    def count(self, samples: int | None, tokens: int | None) -> None:
        """Count what was processed, without saying that a micro-batch has ended."""
        if samples is not None:
            self.samples.take(samples)
        if tokens is not None:
            self.tokens.take(tokens)

    def begin(self, training_ns: int) -> None:
        """Begin the first window here: nobody knows how long what came before has taken."""
        self._from = training_ns, self.micro_batches, self.updates
        self.samples.close()
        self.tokens.close()

    def _updated(self, training_ns: int) -> Window | None:
        self.updates += 1
        from_ns, _, from_updates = self._from
        spent_ns = training_ns - from_ns
        if spent_ns < self._least_ns:
            return None
        if self.updates - from_updates < self._window_updates and spent_ns < self._most_ns:
            return None
        return self._close()

    def last(self) -> Window | None:
        """Return what is left at the end, where it is as much as a window, or all that there was."""
        from_ns, _, from_updates = self._from
        updates = self.updates - from_updates
        enough = updates >= self._window_updates or self._last[3] - from_ns >= self._least_ns
        if not updates or (self._windows and not enough):
            return None
        return self._close()

    def _close(self) -> Window | None:
        end_ns, step, epoch, training_ns = self._last
        from_ns, from_micro_batches, from_updates = self._from
        self._from = training_ns, self.micro_batches, self.updates
        samples, tokens = self.samples.close(), self.tokens.close()
        if training_ns <= from_ns:
            return None
        self._windows += 1
        return Window(
            end_ns=end_ns,
            step=step,
            epoch=epoch,
            training_s=(training_ns - from_ns) / NS_PER_S,
            micro_batches=self.micro_batches - from_micro_batches,
            updates=self.updates - from_updates,
            updates_so_far=self.updates,
            samples=samples,
            tokens=tokens,
        )


class _Amount:
    """Samples or tokens: the sum so far, and of the present window whether each micro-batch has told it."""

    __slots__ = ("_from", "_lacking", "_told", "is_known", "total")

    def __init__(self) -> None:
        self.total = 0
        self.is_known = False
        self._from = 0
        self._told = self._lacking = False

    def take(self, amount: int | None) -> None:
        if amount is None:
            self._lacking = True
        else:
            self.total += amount
            self._told = self.is_known = True

    def close(self) -> int | None:
        """End a window; return its sum, None where a micro-batch did not tell."""
        amount = self.total - self._from if self._told and not self._lacking else None
        self._from = self.total
        self._told = self._lacking = False
        return amount
