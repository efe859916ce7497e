"""Counts what training has processed: samples and tokens of each micro-batch, as batches tell them or the user does."""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from otel_train.clock import mono_ns
from otel_train.errors import ConfigError
from otel_train.record.deferred import DeferredValues, DeviceReader
from otel_train.record.numbers import is_device_tensor

if TYPE_CHECKING:
    from otel_train.record.points import PointLog
    from otel_train.record.steps import TimedLoop

# For a count outside of any loop over steps.
BY_HAND: Final = 0


class BatchSize:
    """Says that an entry holds the size of a loop's batches from here on; `begins` with the first of a loop."""

    __slots__ = ("begins",)

    def __init__(self, *, begins: bool) -> None:
        self.begins = begins


FIRST_BATCH: Final = BatchSize(begins=True)
NEXT_BATCH: Final = BatchSize(begins=False)


class Counted:
    """Says that an entry holds what the user counted, for the loop of a thread or for one by hand."""

    __slots__ = ("thread",)

    def __init__(self, thread: int) -> None:
        self.thread = thread


@dataclass(frozen=True, slots=True)
class Amount:
    """What was counted in a loop by hand, at a monotonic time; None for what was not."""

    mono_ns: int
    step: int
    epoch: int | None
    samples: int | None
    tokens: int | None


class AmountLog:
    """Takes counts on the training thread: a check, an append. `aside` tells whether training rests at the moment."""

    def __init__(
        self,
        log: PointLog,
        *,
        aside: Callable[[], bool] = lambda: False,
        device: DeviceReader | None = None,
        now_ns: Callable[[], int] = mono_ns,
    ) -> None:
        self._log = log
        self._aside = aside
        self._device = device
        self._now_ns = now_ns
        self._heads: dict[int, Counted] = {}

    def count(self, samples: Any, tokens: Any) -> None:
        """Take the samples and tokens of a micro-batch; see `Run.count`. ConfigError for what is no amount."""
        kept: dict[str, int] = {}
        on_device: dict[str, Any] = {}
        for field, value in (("samples", samples), ("tokens", tokens)):
            if value is None:
                continue
            if type(value) is int and value >= 0:
                kept[field] = value
            elif is_device_tensor(value):
                on_device[field] = value
            else:
                kept[field] = _whole(field, value)
        if self._aside() or not (kept or on_device):
            return
        log = self._log
        buffer = log.buffer
        if len(buffer.entries) >= buffer.capacity_slots:
            buffer.drop(log.overflow_cause, 1)
            return
        deferred = self._deferred(on_device) if on_device else None
        place = self._place()
        head = self._heads.get(place)
        if head is None:
            head = self._heads[place] = Counted(place)
        buffer.extend((head, log.step, log.epoch, self._now_ns(), kept, deferred))

    def _place(self) -> int:
        """Return the thread of the loop that a count belongs to: its own, else whichever is open."""
        loops = self._log.loops
        if not loops:
            return BY_HAND
        thread = threading.get_ident()
        threads = list(loops.values())
        return thread if thread in threads or not threads else threads[-1]

    def _deferred(self, on_device: Mapping[str, Any]) -> DeferredValues | None:
        if self._device is None:
            self._device = DeviceReader()
        deferred, refused = self._device.read_later(on_device)
        if refused:
            self._log.buffer.drop("device not readable", len(refused))
        return deferred


def _whole(field: str, value: Any) -> int:
    try:
        number = int(value) if isinstance(value, float) and value.is_integer() else operator.index(value)
    except (TypeError, ValueError):
        number = -1
    if number < 0 or isinstance(value, bool):
        raise ConfigError(field, value, "use a whole number of at least 0: what this micro-batch has on this rank")
    return number


class Amounts:
    """The writer's side: what each step processed."""

    def __init__(self) -> None:
        self._counted: dict[int, dict[str, int]] = {}

    def resize(self, size: BatchSize, step: int, samples: int | None, tokens: int | None, loop: TimedLoop) -> None:
        """Take the size of a loop's batches from here on."""
        if size.begins:
            loop.first_step = step
        loop.size = samples, tokens

    def count(
        self, counted: Counted, step: int, epoch: int | None, at_ns: int, values: Mapping[str, int]
    ) -> Amount | None:
        """Take what the user counted; return it where no loop's step will come for it."""
        if counted.thread == BY_HAND:
            return Amount(at_ns, step, epoch, values.get("samples"), values.get("tokens"))
        waiting = self._counted.setdefault(counted.thread, {})
        for field, value in values.items():
            waiting[field] = waiting.get(field, 0) + value
        return None

    def of_step(self, loop: TimedLoop, step: int) -> tuple[int | None, int | None, bool]:
        """Return samples and tokens of a step that has ended, and whether an optimizer step ended with it.

        What the user counted goes before what the batch told. Micro-batches at the end of a loop that are too few
        for an optimizer step make none.
        """
        samples, tokens = loop.size
        if self._counted:
            counted = self._counted.pop(loop.thread, None)
            if counted is not None:
                samples, tokens = counted.get("samples", samples), counted.get("tokens", tokens)
        if loop.accumulate == 1:
            return samples, tokens, True
        if loop.first_step is None:
            loop.first_step = step
        return samples, tokens, (step - loop.first_step + 1) % loop.accumulate == 0
