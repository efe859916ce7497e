"""Data sets, samplers and clocks for tests of watched loaders, where spawned workers find them."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch.utils.data import Dataset, IterableDataset, get_worker_info

from otel_train.record.steps import StepLoop
from otel_train.watch.augmentation import spent_here
from otel_train.watch.loader import Loaders
from tests.recording import Recording

torch.set_num_threads(1)


class HandClock:
    """A clock of one process that the test sets forward."""

    def __init__(self) -> None:
        self.now_ms = 1_000.0

    def mono_ns(self) -> int:
        return round(self.now_ms * 1e6)

    wall_ns = mono_ns

    def pass_ms(self, milliseconds: float) -> None:
        self.now_ms += milliseconds


class GateClock:
    """A clock in memory that one worker shares, which begins a batch only when the training process lets it.

    With `let_at_next` it may at the next look of the training process: when a batch is asked for.
    """

    def __init__(self, context: Any) -> None:
        self._cells = context.RawArray("q", [1_000_000_000, 0])
        self._gate = context.Semaphore(0)
        self._parent = os.getpid()
        self._within = False
        self.let_at_next = False

    def now_ns(self) -> int:
        return int(self._cells[0])

    def mono_ns(self) -> int:
        now_ns = self.now_ns()
        if os.getpid() == self._parent:
            if self.let_at_next:
                self.let_at_next = False
                self.let()
            return now_ns
        if spent_here().mono_ns is None:
            # Not within the data set: the first look at a batch, or the last.
            self._within = not self._within
            if self._within:
                assert self._gate.acquire(timeout=30)
        self._cells[1] += 1
        return self.now_ns()

    wall_ns = mono_ns

    def pass_ms(self, milliseconds: float) -> None:
        self._cells[0] += round(milliseconds * 1e6)

    def let(self) -> None:
        """Let the worker make one more batch."""
        self._gate.release()

    def no_batch(self) -> None:
        """In the worker: what was begun comes to nothing."""
        self._within = False

    def wait_for_looks(self, looks: int, patience_s: float = 60.0) -> None:
        """Wait until the worker has looked so often: then what it times has happened."""
        until_s = time.monotonic() + patience_s
        while self._cells[1] < looks:
            assert time.monotonic() < until_s, f"{self._cells[1]} looks of {looks}"
            time.sleep(0.001)  # between two looks at another process


class Rows(Dataset[Any]):
    """Rows that hold their own number, `fetch_ms` and a transform's time apart by a clock."""

    def __init__(
        self, rows: int, clock: Any = None, fetch_ms: float = 0.0, transform: Callable[[Any], Any] | None = None
    ) -> None:
        self.rows = rows
        self.clock = clock
        self.fetch_ms = fetch_ms
        self.transform = transform

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, index: Any) -> Any:
        if self.clock is not None:
            self.clock.pass_ms(self.fetch_ms)
        row = torch.tensor(index, dtype=torch.float32)
        return row if self.transform is None else self.transform(row)


class Stream(IterableDataset[Any]):
    """The same as a stream; each worker has its share."""

    def __init__(
        self, rows: int, clock: Any = None, fetch_ms: float = 0.0, transform: Callable[[Any], Any] | None = None
    ) -> None:
        self.rows = rows
        self.clock = clock
        self.fetch_ms = fetch_ms
        self.transform = transform

    def __iter__(self) -> Iterator[Any]:
        worker = get_worker_info()
        first, every = (0, 1) if worker is None else (worker.id, worker.num_workers)
        for index in range(first, self.rows, every):
            if self.clock is not None:
                self.clock.pass_ms(self.fetch_ms)
            row = torch.tensor(index, dtype=torch.float32)
            yield row if self.transform is None else self.transform(row)
        if hasattr(self.clock, "no_batch"):
            self.clock.no_batch()


class Passes:
    """A transform, or a collate function, that takes its time by a clock."""

    def __init__(self, clock: Any, milliseconds: float) -> None:
        self.clock = clock
        self.milliseconds = milliseconds

    def __call__(self, given: Any) -> Any:
        self.clock.pass_ms(self.milliseconds)
        return torch.stack(given) if isinstance(given, list) else given


class Sleeps:
    """A transform that takes its time in fact, once for so many rows."""

    def __init__(self, seconds: float, every: int) -> None:
        self.seconds = seconds
        self.every = every

    def __call__(self, row: Any) -> Any:
        if int(row) % self.every == 0:
            time.sleep(self.seconds)  # the delay that is planted
        return row


class Fails:
    """A transform that raises, dies or leaves at one row."""

    def __init__(self, how: str, at: int) -> None:
        self.how = how
        self.at = at

    def __call__(self, row: Any) -> Any:
        if int(row) == self.at:
            if self.how == "raise":
                raise ValueError(f"row {self.at} is broken")
            if self.how == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            os._exit(int(self.how))
        return row


class AtOnce(Rows):
    """Gives a whole batch by `__getitems__`."""

    def __getitems__(self, indices: list[int]) -> list[Any]:
        assert type(indices) is list
        return [self[index] for index in indices]


class Pair(NamedTuple):
    """What a collate function of the user's own may give."""

    rows: Any
    names: list[str]


def collate_pair(rows: list[Any]) -> Pair:
    return Pair(torch.stack(rows), [str(int(row)) for row in rows])


class Tuples:
    """A batch sampler whose batches are tuples."""

    def __iter__(self) -> Iterator[tuple[int, ...]]:
        yield from [(3, 1), (0,), (2, 5, 4)]

    def __len__(self) -> int:
        return 3


class Watching:
    """A recording, and the watcher of its loaders, with all that it tells."""

    def __init__(self, clock: Any = None, **options: Any) -> None:
        self.recording = Recording(**options)
        self.failures: list[tuple[Exception, str, str, dict[str, Any]]] = []
        self.deaths: list[tuple[str, dict[str, Any]]] = []
        self.notices: list[str] = []
        clocks = {} if clock is None else {"clock": clock}
        self.loaders = Loaders(
            self.recording.log,
            on_failed=lambda fault, place, said, attributes: self.failures.append((fault, place, said, attributes)),
            on_died=lambda body, attributes: self.deaths.append((body, attributes)),
            on_fault=_raise,
            notice=self.notices.append,
            **clocks,
        )

    def steps(self, loader: Any, split: str = "train", **options: Any) -> StepLoop[Any]:
        """A loop as `run.steps` makes it."""
        return StepLoop(
            loader,
            self.recording.log,
            split=split,
            owns_step=split == "train",
            open_loader=lambda given: self.loaders.open(given, split),
            **options,
        )

    def seconds(self, name: str, *, split: str = "train", **attributes: Any) -> list[float]:
        """Values of one of the metrics of a loader, from what was recorded up to now."""
        return [value for _, value in self.points(name, split=split, **attributes)]

    def points(self, name: str, *, split: str = "train", **attributes: Any) -> list[tuple[int, float]]:
        """(step, value) of the same."""
        if not hasattr(self, "_stored"):
            self._stored = self.recording.stored()
        place = (name, (("split", split), *attributes.items()))
        return self._stored.get(place, [])


def _raise(place: str, fault: Exception) -> None:
    raise fault
