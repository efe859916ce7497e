"""Times a batch where it is made, in the loader's worker, and sends the times back with the batch.

This is all of otel-train that does anything in a worker. It knows no run, writes nothing and holds no lock: a worker
that is forked, killed or left hanging costs the run nothing.

The way in is `worker_init_fn`, which torch calls in each worker before it makes the worker's fetcher: the object that
reads the samples of a batch and collates them. From then on that process makes fetchers that tell the time. Neither
the data set nor its class is wrapped: `get_worker_info().dataset`, which many data sets change there to read their own
share, is the user's own object.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Final

from otel_train.clock import SYSTEM, Clock
from otel_train.watch import augmentation
from otel_train.watch.augmentation import Transforms, put_back, spent_here

# The number of a worker where a loader has none: its batches are made in the training process.
NO_WORKER: Final = -1
# Of each worker in the memory that it shares with the training process: batches that it has begun and ended, the place
# of the present sample in its batch, and the samples before this batch.
BEGUN, ENDED, AT, BEFORE = range(4)
MARKS: Final = 4
UNKNOWN: Final = -1


class Carrier:
    """A batch and its times on their way to the training loop. What is pickled of the batch is what torch pickles.

    `times` are plain numbers, which cost a pickle less than an object: the worker's number; nanoseconds at which
    fetching, collating and the whole began, began and ended; those spent in transforms, -1 where none were seen; how
    many batches and samples this worker made before it, and the number of its samples.
    """

    __slots__ = ("batch", "times")

    def __init__(self, batch: Any, times: tuple[int, ...]) -> None:
        self.batch = batch
        self.times = times

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.batch, self.times)

    def pin_memory(self) -> Carrier:
        """Have torch pin the batch as it would without us; its thread asks this of any object that has the method."""
        pin = sys.modules["torch.utils.data._utils.pin_memory"].pin_memory
        return type(self)(pin(self.batch), self.times)


class Failed(Carrier):
    """An exception of a worker, as torch wraps it. The last of its times is the sample's place in the batch, or -1."""

    __slots__ = ("said",)

    def __init__(self, batch: Any, times: tuple[int, ...], said: str) -> None:
        super().__init__(batch, times)
        self.said = said

    def __reduce__(self) -> tuple[Any, ...]:
        return Failed, (self.batch, self.times, self.said)

    def pin_memory(self) -> Carrier:
        """There is nothing to pin."""
        return self


class TimedCollate:
    """The user's collate function; notes when it was called, which is when fetching has ended."""

    def __init__(self, collate: Callable[[Any], Any]) -> None:
        self.collate = collate
        self.mono_ns: Callable[[], int] = SYSTEM.mono_ns
        self.start_ns = 0
        self.samples = UNKNOWN

    def __call__(self, data: Any) -> Any:
        """Collate, as the user's function does."""
        self.start_ns = self.mono_ns()
        self.samples = len(data) if type(data) is list else 1
        return self.collate(data)

    def __reduce__(self) -> tuple[Any, ...]:
        return TimedCollate, (self.collate,)


class CountedIndices(list[Any]):
    """The indices of a batch, which know how far whoever goes through them has come."""

    __slots__ = ("at", "marks", "place")

    def __init__(self, indices: list[Any], marks: Any, place: int) -> None:
        super().__init__(indices)
        self.at = UNKNOWN
        self.marks = marks
        self.place = place

    def __iter__(self) -> Iterator[Any]:
        marks, place = self.marks, self.place
        for at, index in enumerate(super().__iter__()):
            self.at = at
            if marks is not None:
                marks[place] = at
            yield index


class TimedFetcher:
    """Stands in front of one of torch's fetchers, for one pass over the data set by one worker."""

    def __init__(self, inner: Any, clock: Clock = SYSTEM, *, worker: int = NO_WORKER, marks: Any = None) -> None:
        self._inner = inner
        self._mono_ns = clock.mono_ns
        self._worker = worker
        self._marks = marks
        self._place = max(worker, 0) * MARKS
        self._iterable = hasattr(inner, "dataset_iter")
        if type(inner.collate_fn) is not TimedCollate:
            inner.collate_fn = TimedCollate(inner.collate_fn)
        self._collate: TimedCollate = inner.collate_fn
        self._collate.mono_ns = self._mono_ns
        self._transforms = Transforms(inner.dataset)
        self._counts = bool(inner.auto_collation) and _goes_one_by_one(inner.dataset)
        self._batches = 0
        self._samples = 0
        # Where the sample stands in its batch that raised, -1 where that is not known.
        self.failed_at = UNKNOWN
        if marks is not None:
            marks[self._place : self._place + MARKS] = [0, 0, UNKNOWN, 0]

    def fetch(self, index: Any) -> Any:
        """Return the batch of these indices with its times; what fails is torch's own wrapper of the exception."""
        mono_ns, collate = self._mono_ns, self._collate
        start_ns = mono_ns()
        asked = index
        if self._counts and type(index) is list:
            asked = CountedIndices(index, self._marks, self._place + AT)
        self._mark(BEGUN, self._batches + 1)
        collate.start_ns = 0
        spent = spent_here()
        spent.begin(mono_ns)
        placed = self._transforms.put_in_front()
        try:
            batch = self._inner.fetch(asked)
        except Exception as fault:
            if isinstance(fault, StopIteration) and self._iterable:
                self._mark(ENDED, self._batches + 1)
                raise
            # Once collating has begun, no single sample is to blame.
            self.failed_at = asked.at if asked is not index and not collate.start_ns else UNKNOWN
            if self._worker == NO_WORKER:
                raise
            return self._failed(fault, sys._getframe(1))
        finally:
            put_back(placed)
            spent.end()
        end_ns = mono_ns()
        told = bool(placed) or spent.told
        times = (
            self._worker,
            start_ns,
            collate.start_ns or end_ns,
            end_ns,
            spent.ns if told else UNKNOWN,
            self._batches,
            self._samples,
            collate.samples,
        )
        self._batches += 1
        self._samples += max(collate.samples, 0)
        self._mark(ENDED, self._batches)
        if self._marks is not None:
            self._marks[self._place + BEFORE] = self._samples
        return Carrier(batch, times)

    @property
    def position(self) -> tuple[int, int]:
        """How many batches and samples were made so far."""
        return self._batches, self._samples

    def _mark(self, which: int, value: int) -> None:
        if self._marks is not None:
            self._marks[self._place + which] = value
            if which == BEGUN:
                self._marks[self._place + AT] = UNKNOWN

    def _failed(self, fault: Exception, caller: Any) -> Failed:
        """Wrap an exception as torch does, with the traceback that it would have without us."""
        self._mark(ENDED, self._batches + 1)
        times = (self._worker, self._batches, self._samples, self.failed_at)
        wrapper = sys.modules["torch._utils"].ExceptionWrapper
        inner = _without_ours(fault.__traceback__)
        traceback = TracebackType(inner, caller, caller.f_lasti, caller.f_lineno)
        wrapped = wrapper((type(fault), fault, traceback), where=f"in DataLoader worker process {self._worker}")
        self._batches += 1
        return Failed(wrapped, times, str(fault)[:1000])


class WorkerStart:
    """The `worker_init_fn` of a watched loader: the user's own, then what times this worker's batches."""

    def __init__(self, init: Callable[[int], Any] | None, clock: Clock, marks: Any) -> None:
        self.init = init
        self.clock = clock
        self.marks = marks
        self.parent_pid = os.getpid()

    def __call__(self, worker: int) -> None:
        """Start a worker by its number, within its process."""
        if self.init is not None:
            self.init(worker)
        # Workers that were threads would share the class with the training process.
        if os.getpid() != self.parent_pid:
            time_fetchers(self.clock, worker, self.marks)


def time_fetchers(clock: Clock, worker: int, marks: Any) -> None:
    """Have this worker make fetchers that tell the time: for its own loader, which has our collate function."""
    kinds = sys.modules["torch.utils.data.dataloader"]._DatasetKind
    create = kinds.create_fetcher

    def create_timed(*args: Any, **kwargs: Any) -> Any:
        fetcher = create(*args, **kwargs)
        if type(getattr(fetcher, "collate_fn", None)) is not TimedCollate:
            return fetcher
        return TimedFetcher(fetcher, clock, worker=worker, marks=marks)

    kinds.create_fetcher = staticmethod(create_timed)


def _goes_one_by_one(dataset: Any) -> bool:
    """Tell whether a batch is read index by index, by a loop that takes any sequence for the indices."""
    if not getattr(dataset, "__getitems__", None):
        return True
    subset = sys.modules["torch.utils.data"].Subset
    return type(dataset) is subset and not getattr(dataset.dataset, "__getitems__", None)


_OURS: Final = (__file__, augmentation.__file__)


def _without_ours(traceback: TracebackType | None) -> TracebackType | None:
    """Return a traceback without the frames of this module."""
    kept = []
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename not in _OURS:
            kept.append(traceback)
        traceback = traceback.tb_next
    cleaned: TracebackType | None = None
    for entry in reversed(kept):
        cleaned = TracebackType(cleaned, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return cleaned
