"""Wraps a data loader: numbers its steps, times each one and the wait for its data, at half a microsecond a step."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sized
from typing import Any, Generic, Protocol, TypeVar

from otel_train.clock import mono_ns
from otel_train.record.points import PointLog

T = TypeVar("T")


class DeviceTimer(Protocol):
    """Marks moments on a device's own time line, without synchronising."""

    def mark(self) -> Any:
        """Return an event that passes when the device has done all the work given to it so far."""
        ...

    def elapsed_s(self, earlier: Any, later: Any) -> float | None:
        """Return the seconds of the device between two events, None while one of them has not passed."""
        ...


class DeviceWait:
    """Says that an entry holds two device events around the fetch of a batch."""

    __slots__ = ()


DEVICE_WAIT = DeviceWait()


class StepLoop(Generic[T]):
    """An iterable over the batches of a loader; `len()` is that of the loader. Made by `Run.steps`."""

    def __init__(
        self,
        loader: Iterable[T],
        log: PointLog,
        *,
        split: str = "train",
        start: int | None = None,
        owns_step: bool = True,
        timer: Callable[[], DeviceTimer | None] = lambda: None,
        on_begin: Callable[[], Callable[[], None]] | None = None,
        on_loader_fault: Callable[[Exception], None] = lambda fault: None,
    ) -> None:
        self._loader = loader
        self._log = log
        self.split = split
        self._start = start
        self._owns_step = owns_step
        self._timer = timer
        # Called at the start of a loop beside training's; what it returns, at its end.
        self._on_begin = on_begin
        self._on_loader_fault = on_loader_fault
        self.timer: DeviceTimer | None = None
        # Where phases of this loop are found: those of the same thread, within a step's times.
        self.thread = 0

    def __len__(self) -> int:
        if isinstance(self._loader, Sized):
            return len(self._loader)
        raise TypeError(f"{type(self._loader).__name__} has no length")

    def __iter__(self) -> Iterator[T]:
        self.thread = threading.get_ident()
        return self._iterate() if self._owns_step else self._iterate_beside()

    def _iterate(self) -> Iterator[T]:
        """Number the run's steps. Ends the last step when the loop is left by `break` or an exception, too."""
        log = self._log
        buffer = log.buffer
        extend = buffer.extend
        step = log.enter_loop(self._start) - 1
        timer = self.timer = self._timer()
        ready_ns = 0
        fetch_ns = mono_ns()
        try:
            for batch in self._loader if timer is None else self._marked(timer, log):
                step += 1
                log.next_step(step)
                ready_ns = mono_ns()
                yield batch
                end_ns = mono_ns()
                if len(buffer.entries) < buffer.capacity_slots:
                    extend((self, step, log.epoch, fetch_ns, ready_ns, end_ns))
                else:
                    buffer.drop(log.overflow_cause, 2)
                ready_ns = 0
                fetch_ns = end_ns
        except Exception as fault:
            # Only the loader's own: what the body of the loop raises does not pass through here.
            self._on_loader_fault(fault)
            raise
        finally:
            if ready_ns and len(buffer.entries) < buffer.capacity_slots:
                extend((self, step, log.epoch, fetch_ns, ready_ns, mono_ns()))
            log.leave_loop()

    def _iterate_beside(self) -> Iterator[T]:
        """Number the batches of a validation loop by themselves: the run's present step stays where it is."""
        log = self._log
        buffer = log.buffer
        index = (self._start or 0) - 1
        at_end = self._on_begin() if self._on_begin is not None else None
        ready_ns = 0
        fetch_ns = mono_ns()
        try:
            for batch in self._loader:
                index += 1
                ready_ns = mono_ns()
                yield batch
                end_ns = mono_ns()
                if len(buffer.entries) < buffer.capacity_slots:
                    buffer.extend((self, index, log.epoch, fetch_ns, ready_ns, end_ns))
                else:
                    buffer.drop(log.overflow_cause, 2)
                ready_ns = 0
                fetch_ns = end_ns
        except Exception as fault:
            self._on_loader_fault(fault)
            raise
        finally:
            if ready_ns and len(buffer.entries) < buffer.capacity_slots:
                buffer.extend((self, index, log.epoch, fetch_ns, ready_ns, mono_ns()))
            if at_end is not None:
                at_end()

    def _marked(self, timer: DeviceTimer, log: PointLog) -> Iterator[T]:
        """Fetch batches between two marks on the device's time line.

        Where the device is still busy when the fetch begins, host time books its work as waiting. Between the marks the
        device itself had nothing to do: that is the wait for data.
        """
        buffer = log.buffer
        source = iter(self._loader)
        while True:
            before = timer.mark()
            try:
                batch = next(source)
            except StopIteration:
                return
            after = timer.mark()
            if len(buffer.entries) < buffer.capacity_slots:
                buffer.extend((DEVICE_WAIT, log.step + 1 if log.used else log.step, log.epoch, self, before, after))
            yield batch
