"""Times the steps of a loop that somebody else owns: a framework's, which says by its hooks where it is."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any

from otel_train.clock import mono_ns
from otel_train.record.batch_sizes import Look, Size, not_found_yet
from otel_train.record.points import PointLog
from otel_train.record.steps import DEVICE_WAIT, DeviceTimer, LoopMark, TimedLoop, _look_anew, _quietly


class OpenLoop:
    """A loop told by calls, made by `Run.open_loop`; all calls come from the thread of the loop.

    `fetch` … `fetched` … `begin` … `end` for each batch, then `close`. What is left out is taken for the next mark, so
    `begin` and `end` alone are enough. Nothing of this raises, and a closed loop takes no more marks.
    """

    def __init__(
        self,
        log: PointLog,
        *,
        split: str = "train",
        owns_step: bool = True,
        timer: Callable[[], DeviceTimer | None] = lambda: None,
        on_begin: Callable[[], Callable[[], None]] | None = None,
        now_ns: Callable[[], int] = mono_ns,
    ) -> None:
        self._log = log
        self._now_ns = now_ns
        # What stands before each entry: the digest knows a loop by it.
        self.timed = TimedLoop(log, split=split, owns_step=owns_step)
        self.timed.timer = _quietly(timer)
        self._at_end = _quietly(on_begin) if on_begin is not None else None
        self._mark = LoopMark()
        self._thread = self.timed.thread = log.enter_loop(self._mark, owns_step=owns_step)
        self.is_open = True
        self.step = -1
        self._marks: list[Any] = []
        self._look: Look | None = not_found_yet
        self._size: Size = None
        self._fetch_ns = self._ready_ns = self._begun_ns = self._end_ns = 0

    def fetch(self) -> None:
        """Note that the loop asks for its next batch now: what is open of a step ends here."""
        if self.is_open:
            self._write()
            self._fetch_ns = self._now_ns()
            if self.timed.timer is not None:
                self._marks = [_quietly(self.timed.timer.mark)]

    def fetched(self) -> None:
        """Note that the batch is there; what follows before `begin`, such as its way to a device, is the step's."""
        if self.is_open:
            self._ready_ns = self._now_ns()
            if self.timed.timer is not None and len(self._marks) == 1:
                self._marks.append(_quietly(self.timed.timer.mark))

    def begin(self, step: int | None = None, *, batch: Any = None) -> int:
        """Note that a step begins, and return its number: `step`, else one more than the last.

        Of a `batch` the numbers of samples and tokens are learned from its shapes, as `run.steps` does.
        """
        if not self.is_open:
            return self.step
        self._write()
        now_ns = self._now_ns()
        if not self._ready_ns:
            self.fetched()
        self._fetch_ns = self._fetch_ns or self._ready_ns
        self._begun_ns = now_ns
        log = self._log
        if self.timed.owns_step:
            self.step = log.next_step(self._thread, step)
            self._mark.began_ns, self._mark.ready_ns = self._fetch_ns, self._ready_ns
            self._write_device_wait()
            if batch is not None:
                self.look_at(batch)
        else:
            self.step = self.step + 1 if step is None else step
        return self.step

    def look_at(self, batch: Any) -> None:
        """Learn the size of the present step's batch, where it was not at hand when the step began."""
        if self._look is not None and self._begun_ns and self.timed.owns_step:
            _quietly(self._learn_size, batch)

    def end(self) -> None:
        """Note that the step's work is done. Said again, the last time counts: logging may follow."""
        if self._begun_ns:
            self._end_ns = self._now_ns()

    def pause(self) -> None:
        """Write the step that has ended: the loop does something else now, such as evaluating."""
        if self.is_open:
            self._write()

    def close(self) -> None:
        """Leave the loop. A step that has begun ends here."""
        if not self.is_open:
            return
        self._write()
        self.is_open = False
        self._log.leave_loop(self._mark, self._thread)
        if self._at_end is not None:
            _quietly(self._at_end)

    def __enter__(self) -> OpenLoop:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _learn_size(self, batch: Any) -> None:
        begins = self._look is not_found_yet
        try:
            seen = None if self._look is None else self._look(batch)
        except Exception:  # noqa: BLE001 - a batch of another kind, or the first
            self._look, self._size = _quietly(_look_anew, batch) or (None, None)
            self.timed.resize(self._mark, self.step, self._size, begins=begins)
        else:
            if seen != self._size:
                self._size = seen
                self.timed.resize(self._mark, self.step, seen)

    def _write(self) -> None:
        """Write the step that has begun, if any, up to its end or to now."""
        if not self._begun_ns:
            return
        log = self._log
        buffer = log.buffer
        end_ns = self._end_ns or self._now_ns()
        if len(buffer.entries) < buffer.capacity_slots:
            buffer.extend((self.timed, self.step, log.epoch, self._fetch_ns, self._ready_ns, end_ns))
        else:
            buffer.drop(log.overflow_cause, 2)
        self._fetch_ns = self._ready_ns = self._begun_ns = self._end_ns = 0
        self._mark.began_ns = self._mark.ready_ns = 0
        self._marks = []

    def _write_device_wait(self) -> None:
        log = self._log
        if len(self._marks) == 2 and len(log.buffer.entries) < log.buffer.capacity_slots:
            log.buffer.extend((DEVICE_WAIT, self.step, log.epoch, self._ready_ns, self.timed, tuple(self._marks)))


class NoLoop:
    """Stands in where nothing is recorded."""

    is_open = False
    step = -1

    def fetch(self) -> None:
        """Record nothing."""

    def fetched(self) -> None:
        """Record nothing."""

    def begin(self, step: int | None = None, *, batch: Any = None) -> int:
        """Record nothing."""
        self.step = self.step + 1 if step is None else step
        return self.step

    def look_at(self, batch: Any) -> None:
        """Record nothing."""

    def end(self) -> None:
        """Record nothing."""

    def pause(self) -> None:
        """Record nothing."""

    def close(self) -> None:
        """Record nothing."""

    def __enter__(self) -> NoLoop:
        return self

    def __exit__(self, *exception: Any) -> None:
        return None
