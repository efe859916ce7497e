"""Makes iterators of torch's data loaders that take the times from each batch before training gets it.

Why subclasses of torch's two iterators, and not a wrapped data set, collate function or loader: what the user's loop,
Accelerate, Lightning or a persistent loader's second epoch holds is then an iterator like any other, which gives plain
batches whoever asks, watched or not. It knows by itself which indices were sent to which worker. It is made by the
loader's own `__iter__`, so sampler, seeds, workers and their number are those of the loader, and are drawn as ever.
"""

from __future__ import annotations

import os
import signal
import sys
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

from otel_train.clock import Clock
from otel_train.watch.loader_worker import (
    ENDED,
    MARKS,
    NO_WORKER,
    UNKNOWN,
    Carrier,
    Failed,
    TimedCollate,
    TimedFetcher,
    WorkerStart,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchAt:
    """Where a loader was when something happened to a batch; what is not known is None or -1.

    `index` is what the sampler gave for the batch, `at` the place of a sample within it; `batch` and `samples` count
    what this worker, or the training process, had made before it.
    """

    worker: int = NO_WORKER
    pid: int | None = None
    index: Any = None
    at: int = UNKNOWN
    batch: int = UNKNOWN
    samples: int = UNKNOWN
    said: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Death:
    """A worker that is gone: how, where it was, and how many more batches were asked of it."""

    at: BatchAt
    how: str
    waiting: int


class Listener(Protocol):
    """Who is told of batches and faults, in the training thread; of deaths also in the writer's. Never raises."""

    clock: Clock

    def taken(self, times: tuple[int, ...], index: Any, asked_ns: int, taken_ns: int) -> None:
        """Take the times of a batch."""
        ...

    def failed(self, fault: Exception, at: BatchAt) -> None:
        """Take what the loader raised."""
        ...

    def died(self, deaths: Sequence[Death]) -> None:
        """Take what became of workers."""
        ...


class Iterators(NamedTuple):
    """The classes of this torch: an iterator's base, ours without and with workers."""

    base: type[Any]
    single: Callable[[Any, Listener], Any]
    multi: Callable[[Any, Listener], Any]


_MADE: Final[dict[int, Iterators | None]] = {}
_NEEDED: Final = ("_next_data", "_next_index", "_process_data", "_try_put_index", "_reset", "_shutdown_workers")


def iterators() -> Iterators | None:
    """Return the classes; None without torch, or where this torch has its loader made otherwise."""
    module = sys.modules.get("torch.utils.data.dataloader")
    if module is None:
        return None
    if id(module) not in _MADE:
        _MADE[id(module)] = _make(module)
    return _MADE[id(module)]


def _make(module: Any) -> Iterators | None:
    try:
        base, single, multi = (
            module._BaseDataLoaderIter,
            module._SingleProcessDataLoaderIter,
            module._MultiProcessingDataLoaderIter,
        )
        known = callable(module._DatasetKind.create_fetcher) and all(hasattr(multi, name) for name in _NEEDED)
    except AttributeError:
        return None
    return Iterators(base, _watched_single(single), _watched_multi(multi)) if known else None


def _watched_single(base: Any) -> Any:
    class WatchedSingle(base):  # type: ignore[misc]  # a class of torch, known when it runs
        def __init__(self, loader: Any, listener: Listener) -> None:
            super().__init__(loader)
            self._otel_train = listener
            self._drawn: Any = None
            self._timed = self._dataset_fetcher = TimedFetcher(self.__dict__["_dataset_fetcher"], listener.clock)

        def _next_index(self) -> Any:
            index = self._drawn = super()._next_index()
            return index

        def _next_data(self) -> Any:
            listener = self._otel_train
            asked_ns = listener.clock.mono_ns()
            try:
                data = super()._next_data()
            except StopIteration:
                raise
            except Exception as fault:
                batches, samples = self._timed.position
                at = self._timed.failed_at
                listener.failed(
                    fault, BatchAt(index=self._drawn, at=at, batch=batches, samples=samples, said=str(fault))
                )
                raise
            if isinstance(data, Carrier):
                listener.taken(data.times, self._drawn, asked_ns, listener.clock.mono_ns())
                data = data.batch
            return data

    return _named_as(base, WatchedSingle)


def _watched_multi(base: Any) -> Any:
    # Bound once: `super()` makes an object for each call, and these are some a batch.
    next_data, next_index, process_data, put_index = (
        base._next_data,
        base._next_index,
        base._process_data,
        base._try_put_index,
    )

    class WatchedMulti(base):  # type: ignore[misc]  # a class of torch, known when it runs
        def __init__(self, loader: Any, listener: Listener) -> None:
            self._otel_train = listener
            self._drawn: Any = None
            # By worker: how many batches were asked of it, and those that training has not taken, with their numbers.
            self._asked: list[int] = []
            self._sent: list[deque[tuple[int, Any]]] = []
            # Of the batch that training is about to take.
            self._times: tuple[int, ...] | None = None
            self._index: Any = None
            self._failed_at: BatchAt | None = None
            self._told_dead: set[int] = set()
            self._marks = _shared_marks(loader)
            super().__init__(_AsWatched(loader, listener.clock, self._marks))

        def _reset(self, loader: Any, first_iter: bool = False) -> None:
            self._asked = [0] * self._num_workers
            self._sent = [deque() for _ in range(self._num_workers)]
            super()._reset(loader, first_iter)

        def _next_index(self) -> Any:
            index = self._drawn = next_index(self)
            return index

        def _try_put_index(self) -> None:
            task = self._send_idx
            put_index(self)
            if self._send_idx != task:
                worker = self._task_info[task][0]
                self._sent[worker].append((self._asked[worker], self._drawn))
                self._asked[worker] += 1

        def _process_data(self, data: Any, *rest: Any) -> Any:
            if isinstance(data, Failed):
                worker, batch, samples, at = data.times
                index = self._index_of_next(worker)
                self._failed_at = self._at(worker, index, batch=batch, samples=samples, at=at, said=data.said)
                data = data.batch
            elif isinstance(data, Carrier):
                self._times = data.times
                self._index = self._index_of_next(data.times[0])
                data = data.batch
            elif rest and type(data).__name__ == "ExceptionWrapper":
                # Raised outside of a batch's making: by the user's worker_init_fn, or while it was pinned.
                self._failed_at = self._at(rest[0], self._index_of_next(rest[0]))
            return process_data(self, data, *rest)

        def _next_data(self) -> Any:
            listener = self._otel_train
            mono_ns = listener.clock.mono_ns
            asked_ns = mono_ns()
            try:
                data = next_data(self)
            except StopIteration:
                raise
            except Exception as fault:
                self._tell(fault)
                raise
            times = self._times
            if times is not None:
                self._times = None
                listener.taken(times, self._index, asked_ns, mono_ns())
            return data

        def _tell(self, fault: Exception) -> None:
            try:
                at, self._failed_at = self._failed_at, None
                deaths = self.deaths(reap=True)
                if deaths:
                    self._otel_train.died(deaths)
                    at = at or deaths[0].at
                elif at is None and "timed out" in str(fault) and self._rcvd_idx in self._task_info:
                    # Whose turn it is hangs, or is slower than the loader's timeout.
                    at = self._where(self._task_info[self._rcvd_idx][0])
                self._otel_train.failed(fault, at or BatchAt())
            except Exception:  # noqa: BLE001 - what the loader raised is what training must get
                pass

        def _shutdown_workers(self) -> None:
            # Before torch ends them itself: who is gone by now was ended by somebody else.
            try:
                deaths = self.deaths()
                if deaths:
                    self._otel_train.died(deaths)
            except Exception:  # noqa: BLE001 - perhaps within __del__, at the end of the interpreter
                pass
            super()._shutdown_workers()

        def deaths(self, *, reap: bool = False) -> list[Death]:
            """Return the workers that have died and were not told yet.

            Without `reap` their exit is looked at and left for torch to find: its own message must not change.
            """
            if getattr(self, "_shutdown", True):
                return []
            found = []
            for worker, process in enumerate(list(self._workers)):
                if worker in self._told_dead:
                    continue
                code = process.exitcode if reap else _exit_code(process)
                # One that is done with its share of an iterable data set leaves with 0, between two batches.
                if code or (code == 0 and self._is_at(worker) is not None):
                    self._told_dead.add(worker)
                    found.append(self._death(worker, code))
            return found

        def _is_at(self, worker: int) -> tuple[int, int, int] | None:
            """Return the number of the batch that a worker has begun and not ended, its sample, and those before it."""
            if self._marks is None:
                return None
            begun, ended, at, samples = self._marks[worker * MARKS : worker * MARKS + MARKS]
            return (begun - 1, at, samples) if begun > ended else None

        def _where(self, worker: int) -> BatchAt:
            """Return the batch and the sample that a worker is at, or was."""
            batch, at, samples = self._is_at(worker) or (UNKNOWN, UNKNOWN, UNKNOWN)
            index = next((index for number, index in list(self._sent[worker]) if number == batch), None)
            return self._at(worker, index, batch=batch, samples=samples, at=at)

        def _death(self, worker: int, code: int) -> Death:
            at = self._where(worker)
            ended = 0 if self._marks is None else self._marks[worker * MARKS + ENDED]
            waiting = sum(number != at.batch and number >= ended for number, _ in list(self._sent[worker]))
            return Death(at=at, how=_how(code), waiting=waiting)

        def _index_of_next(self, worker: int) -> Any:
            """Take out the indices of the batch that a worker has handed over: it does so in the order of its tasks."""
            sent = self._sent[worker]
            return sent.popleft()[1] if sent else None

        def _at(self, worker: int, index: Any, **known: Any) -> BatchAt:
            return BatchAt(worker=worker, pid=self._workers[worker].pid, index=index, **known)

    return _named_as(base, WatchedMulti)


def _named_as(base: Any, watched: Any) -> Any:
    """Give ours the name of torch's: a profiler shows it with each batch, and tools look for it there."""
    watched.__name__, watched.__qualname__ = base.__name__, base.__qualname__
    return watched


class _AsWatched:
    """A loader as the constructor of its iterator sees it: with our start of a worker and collate function around his.

    The loader itself is not changed; the constructor only reads from it.
    """

    def __init__(self, loader: Any, clock: Clock, marks: Any) -> None:
        self._loader = loader
        self.worker_init_fn = WorkerStart(loader.worker_init_fn, clock, marks)
        self.collate_fn = TimedCollate(loader.collate_fn)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


def _shared_marks(loader: Any) -> Any:
    """Return memory that the workers share with this process, to know where one was that was killed; None without."""
    try:
        context = loader.multiprocessing_context or sys.modules["torch"].multiprocessing
        return context.RawArray("q", MARKS * loader.num_workers)
    except Exception:  # noqa: BLE001 - no shared memory: a killed worker is then named without its sample
        return None


def _exit_code(process: Any) -> int | None:
    """Return the exit code of a process that has ended, minus the signal where it was killed; None where it lives.

    It stays to be waited for: by torch, which has its own error for it.
    """
    known: int | None = getattr(getattr(process, "_popen", None), "returncode", None)
    if known is not None or process.pid is None or not hasattr(os, "waitid"):
        return known
    try:
        state = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except OSError:
        # Somebody has waited for it, or a fork server is its parent.
        return None
    if state is None:
        return None
    return state.si_status if state.si_code == os.CLD_EXITED else -state.si_status


def _how(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
