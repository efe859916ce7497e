"""Wraps a data loader: numbers its steps, times each one and the wait for its data, at half a microsecond a step."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sized
from typing import Any, Generic, Protocol, TypeVar

from otel_train.clock import mono_ns
from otel_train.record.amounts import FIRST_BATCH, NEXT_BATCH
from otel_train.record.batch_sizes import Look, Size, not_found_yet, split_size, way_to_size
from otel_train.record.points import PointLog

T = TypeVar("T")
R = TypeVar("R")
_log = logging.getLogger("otel_train")


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


class LoopMark:
    """An open passage through a loop: when it began, when its last batch was there, and what size that has."""

    __slots__ = ("began_ns", "ready_ns", "size")

    def __init__(self) -> None:
        # Of a loop told by calls both are times of the step under way, 0 between two steps.
        self.began_ns = 0
        self.ready_ns = 0
        self.size: tuple[int | None, int | None] = (None, None)


class TimedLoop:
    """What is to be known of a loop over steps: it stands before each of the loop's entries.

    It holds nothing of the user's: an entry that waits to be written must not keep a loader, and its workers, alive.
    """

    __slots__ = ("_log", "_sized", "accumulate", "first_step", "owns_step", "size", "split", "thread", "timer")

    def __init__(self, log: PointLog, *, split: str = "train", owns_step: bool = True, accumulate: int = 1) -> None:
        self._log = log
        self.split = split
        self.owns_step = owns_step
        # Micro-batches of one optimizer step.
        self.accumulate = accumulate
        self.timer: DeviceTimer | None = None
        # Where phases of this loop are found: those of the same thread, within a step's times.
        self.thread = 0
        # The writer's: where its numbering began, and samples and tokens of its batches.
        self.first_step: int | None = None
        self.size: tuple[int | None, int | None] = (None, None)
        self._sized = False

    def resize(self, mark: LoopMark, step: int, size: Size, *, begins: bool = False) -> None:
        """Note the size of the batches from this one on."""
        log = self._log
        buffer = log.buffer
        samples, tokens = mark.size = split_size(size)
        if size is None and self.accumulate == 1 and not self._sized:
            # That nothing is known is known.
            return
        self._sized = True
        if len(buffer.entries) < buffer.capacity_slots:
            buffer.extend((FIRST_BATCH if begins else NEXT_BATCH, step, log.epoch, samples, tokens, self))

    def end_last(self, step: int, fetch_ns: int, ready_ns: int) -> None:
        """Record the step within which a loop was left."""
        log = self._log
        buffer = log.buffer
        if len(buffer.entries) < buffer.capacity_slots:
            buffer.extend((self, step, log.epoch, fetch_ns, ready_ns, mono_ns()))
        else:
            buffer.drop(log.overflow_cause, 2)


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
        accumulate: int = 1,
        timer: Callable[[], DeviceTimer | None] = lambda: None,
        on_begin: Callable[[], Callable[[], None]] | None = None,
        on_loader_fault: Callable[[Exception], None] = lambda fault: None,
        open_loader: Callable[[Iterable[T]], Iterator[T]] = iter,
    ) -> None:
        self._loader = loader
        self._log = log
        self.timed = TimedLoop(log, split=split, owns_step=owns_step, accumulate=accumulate)
        self._start = start
        self._timer = timer
        # Called at the start of a loop beside training's; what it returns, at its end.
        self._on_begin = on_begin
        self._on_loader_fault = on_loader_fault
        # Makes the loader's iterator: one that is watched, where it can be.
        self._open_loader = open_loader

    def __len__(self) -> int:
        if isinstance(self._loader, Sized):
            return len(self._loader)
        raise TypeError(f"{type(self._loader).__name__} has no length")

    def __iter__(self) -> Iterator[T]:
        return self._iterate() if self.timed.owns_step else self._iterate_beside()

    def _iterate(self) -> Iterator[T]:
        """Number the run's steps. Ends the last step when the loop is left by `break` or an exception, too."""
        log = self._log
        buffer = log.buffer
        extend = buffer.extend
        open_loop = LoopMark()
        timed = self.timed
        thread = timed.thread = log.enter_loop(open_loop, owns_step=True)
        first, step = self._start, 0
        look: Look | None = not_found_yet
        size: Size = None
        timer = timed.timer = _quietly(self._timer)
        marks: list[Any] = []
        ready_ns = 0
        fetch_ns = open_loop.began_ns = mono_ns()
        try:
            batches = self._open_loader(self._loader)
            for batch in batches if timer is None else _marked(batches, timer, marks):
                step = log.next_step(thread, first)
                first = None
                ready_ns = open_loop.ready_ns = mono_ns()
                if look is not None:
                    try:
                        seen = look(batch)
                    except Exception:  # noqa: BLE001 - a batch of another kind, or the first
                        begins = look is not_found_yet
                        look, size = _quietly(_look_anew, batch) or (None, None)
                        timed.resize(open_loop, step, size, begins=begins)
                    else:
                        if seen != size:
                            size = seen
                            timed.resize(open_loop, step, size)
                if timer is not None and len(buffer.entries) < buffer.capacity_slots:
                    extend((DEVICE_WAIT, step, log.epoch, ready_ns, timed, tuple(marks)))
                yield batch
                end_ns = mono_ns()
                if len(buffer.entries) < buffer.capacity_slots:
                    extend((timed, step, log.epoch, fetch_ns, ready_ns, end_ns))
                else:
                    buffer.drop(log.overflow_cause, 2)
                ready_ns = 0
                fetch_ns = end_ns
        except Exception as fault:
            # Only the loader's own: what the body of the loop raises does not pass through here.
            _quietly(self._on_loader_fault, fault)
            raise
        finally:
            if ready_ns:
                timed.end_last(step, fetch_ns, ready_ns)
            log.leave_loop(open_loop, thread)

    def _iterate_beside(self) -> Iterator[T]:
        """Number the batches of a validation loop by themselves: the run's present step stays where it is."""
        log = self._log
        buffer = log.buffer
        open_loop = object()
        index = (self._start or 0) - 1
        at_end = _quietly(self._on_begin) if self._on_begin is not None else None
        timed = self.timed
        thread = timed.thread = log.enter_loop(open_loop, owns_step=False)
        ready_ns = 0
        fetch_ns = mono_ns()
        try:
            for batch in self._open_loader(self._loader):
                index += 1
                ready_ns = mono_ns()
                yield batch
                end_ns = mono_ns()
                if len(buffer.entries) < buffer.capacity_slots:
                    buffer.extend((timed, index, log.epoch, fetch_ns, ready_ns, end_ns))
                else:
                    buffer.drop(log.overflow_cause, 2)
                ready_ns = 0
                fetch_ns = end_ns
        except Exception as fault:
            _quietly(self._on_loader_fault, fault)
            raise
        finally:
            if ready_ns:
                timed.end_last(index, fetch_ns, ready_ns)
            log.leave_loop(open_loop, thread)
            if at_end is not None:
                _quietly(at_end)


def _look_anew(batch: Any) -> tuple[Look | None, Size]:
    look = way_to_size(batch)
    return look, None if look is None else look(batch)


def _marked(loader: Iterable[T], timer: DeviceTimer, marks: list[Any]) -> Iterator[T]:
    """Fetch batches between two marks on the device's time line, which are left in `marks`.

    Where the device is still busy when the fetch begins, host time books its work as waiting. Between the marks the
    device itself had nothing to do: that is the wait for data.
    """
    source = iter(loader)
    while True:
        before = _quietly(timer.mark)
        try:
            batch = next(source)
        except StopIteration:
            return
        marks[:] = before, _quietly(timer.mark)
        yield batch


def _quietly(act: Callable[..., R], *arguments: Any) -> R | None:
    """Call what is ours: its fault must not come out of the loop as if it were the loader's."""
    try:
        return act(*arguments)
    except Exception as fault:  # noqa: BLE001 - a fault of telemetry must not end training
        _log.debug("steps: %s: %s", type(fault).__name__, fault, exc_info=fault)
        return None
