"""Takes the times of each batch of a watched data loader, and finds the step that it was for."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple, Protocol

from otel_train.record.columns import POINTS_PER_LINE, Blocks, Rows, own_column, sibling_columns
from otel_train.record.entries import AttributeValue, Sample, SeriesAttributes
from otel_train.record.phase_places import NS
from otel_train.record.points import PointLog
from otel_train.semconv import LOADER, SPLIT, WORKER

MOST_WAITING: Final = 10_000
MOST_INDICES: Final = 32
# Of a batch that was made in the training process, and of times that are not known.
NO_WORKER: Final = -1
UNKNOWN: Final = -1
# Points that a batch becomes where nobody has digested it: fetch, collate, whole, queue.
POINTS_OF_A_BATCH: Final = 4


class BatchSource:
    """One watched loader, at the head of the entries of its batches.

    `name` is the user's, "" without one. `split` is None where the loop that takes the batches says it.
    """

    __slots__ = ("log", "name", "split")

    def __init__(self, log: PointLog, name: str = "", split: str | None = None) -> None:
        self.log = log
        self.name = name
        self.split = split

    def taken(self, times: tuple[int, ...], index: Any, asked_ns: int, taken_ns: int) -> None:
        """Record a batch at the moment when training takes it.

        `times` are those of `loader_worker.Carrier`, `index` what the sampler gave for it.
        """
        log = self.log
        buffer = log.buffer
        if len(buffer.entries) < buffer.capacity_slots:
            thread = threading.get_ident()
            within = thread if thread in log.looping else 0
            buffer.extend((self, log.step, log.epoch, (*times, asked_ns, taken_ns), index, within))
        else:
            buffer.drop(log.overflow_cause, POINTS_OF_A_BATCH)


class BatchFacts(NamedTuple):
    """What is known of one batch; times are monotonic nanoseconds.

    `collate_ns` is 0 where no more is known than when it was asked for and given.
    """

    worker: int
    start_ns: int
    collate_ns: int
    end_ns: int
    augment_ns: int
    number: int
    first_sample: int
    samples: int
    asked_ns: int
    taken_ns: int
    loader: str
    index: Any

    def parts(self) -> Iterator[tuple[str, float]]:
        """Give metrics and seconds: fetch, augment and collate add up to the whole."""
        if not self.collate_ns:
            yield "dl.data.fetch.time", (self.end_ns - self.start_ns) / NS
            return
        yield "dl.data.fetch.time", (self.collate_ns - self.start_ns - max(self.augment_ns, 0)) / NS
        if self.augment_ns >= 0:
            yield "dl.data.augment.time", self.augment_ns / NS
        yield "dl.data.collate.time", (self.end_ns - self.collate_ns) / NS
        yield "dl.data.batch.time", (self.end_ns - self.start_ns) / NS
        if self.worker >= 0:
            yield "dl.data.queue.time", (self.taken_ns - self.end_ns) / NS


class _Batch(NamedTuple):
    source: BatchSource
    step: int
    epoch: int | None
    facts: BatchFacts


class _Loop(Protocol):
    """What is to be known of a loop; see `TimedLoop`."""

    split: str
    owns_step: bool
    thread: int


class _Step(Protocol):
    """What is to be known of a step; see `StepFacts`."""

    step: int
    epoch: int | None
    fetch_ns: int
    end_ns: int


# Of a step's batches by metric and loader: (times, values).
BatchColumns = dict[tuple[str, str], tuple[list[int], list[float]]]


class BatchPlaces:
    """Batches that wait for their step to end or, in a loop by hand, for the call of `log` that says it."""

    def __init__(self) -> None:
        self.waiting: dict[int, list[_Batch]] = {}
        self._alone: list[_Batch] = []
        self._rows: dict[tuple[str, str, tuple[str, ...]], Rows] = {}
        # Since the last heartbeat, by worker: batches and the nanoseconds that they took.
        self._workers: dict[tuple[str, int], list[int]] = {}

    def take(self, source: BatchSource, step: int, epoch: int | None, times: Any, index: Any, thread: int) -> None:
        """Take one batch as `BatchSource.taken` left it."""
        facts = BatchFacts._make((*times, source.name, index))
        if facts.worker >= 0:
            sums = self._workers.setdefault((source.name, facts.worker), [0, 0])
            sums[0] += 1
            sums[1] += facts.end_ns - facts.start_ns
        batch = _Batch(source, step, epoch, facts)
        if not thread:
            self._alone.append(batch)
            return
        waiting = self.waiting.setdefault(thread, [])
        waiting.append(batch)
        if len(waiting) > MOST_WAITING:
            # The entry of their step found the buffer full.
            del waiting[: MOST_WAITING // 2]

    def of_step(
        self,
        loop: _Loop,
        step: _Step,
        offset_ns: int,
        columns: BatchColumns,
        result: Blocks,
    ) -> Sequence[BatchFacts]:
        """Take out the batches of a step that has just ended, and put the last of each loader into `columns`.

        A loader that fetches ahead may have given several for it, or none.
        """
        thread, split, owns_step, end_ns = loop.thread, loop.split, loop.owns_step, step.end_ns
        waiting = self.waiting[thread]
        own: list[_Batch] = []
        kept: list[_Batch] = []
        for batch in waiting:
            said, taken_ns = batch.source.split, batch.facts.taken_ns
            if taken_ns > end_ns:
                kept.append(batch)
            elif said == split or (said is None and (owns_step or taken_ns >= step.fetch_ns)):
                own.append(batch)
            elif owns_step:
                # Of a validation by hand within this step: it waited for itself.
                self._add(batch, step.step, step.epoch, said or split, offset_ns, result, waited=True)
            else:
                kept.append(batch)
        if kept:
            self.waiting[thread] = kept
        else:
            del self.waiting[thread]
        last = {batch.source.name: batch for batch in own}
        for batch in own:
            if batch is not last[batch.source.name]:
                self._add(batch, step.step, step.epoch, split, offset_ns, result)
                continue
            for name, seconds in batch.facts.parts():
                times, values = columns.setdefault((name, batch.source.name), ([], []))
                times.append(end_ns + offset_ns)
                values.append(seconds)
        return [batch.facts for batch in own]

    def logged(self, step: int, epoch: int | None, offset_ns: int, result: Blocks) -> None:
        """Place the batches of a loop by hand: in it, `log` closes the step."""
        if self._alone:
            alone, self._alone = self._alone, []
            for batch in alone:
                self._add(batch, step, epoch, batch.source.split or "train", offset_ns, result, waited=True)

    def flush(self, offset_ns: int, result: Blocks, *, last: bool) -> None:
        """Write out what is placed; at last also what no step was found for, at the step that the run was at."""
        left: list[_Batch] = []
        if last or len(self._alone) > MOST_WAITING:
            left, self._alone = self._alone, []
        if last:
            left += [batch for waiting in self.waiting.values() for batch in waiting]
            self.waiting.clear()
        for batch in left:
            split = batch.source.split or "train"
            self._add(batch, batch.step, batch.epoch, split, offset_ns, result, waited=True)
        for place, rows in self._rows.items():
            self._emit(place, rows, result)
        self._rows.clear()

    def workers(self) -> list[Sample]:
        """Return the mean time of a batch by worker since the last call."""
        sums, self._workers = self._workers, {}
        return [
            Sample("dl.data.worker.batch.time", took_ns / batches / NS, (*_named(loader), (WORKER, worker)))
            for (loader, worker), (batches, took_ns) in sums.items()
        ]

    def _add(
        self,
        batch: _Batch,
        step: int,
        epoch: int | None,
        split: str,
        offset_ns: int,
        result: Blocks,
        *,
        waited: bool = False,
    ) -> None:
        facts = batch.facts
        parts = list(facts.parts())
        if waited:
            parts.append(("dl.data.wait.time", (facts.taken_ns - facts.asked_ns) / NS))
        place = (split, facts.loader, tuple(name for name, _ in parts))
        rows = self._rows.get(place)
        if rows is None:
            rows = self._rows[place] = Rows()
        rows.add(facts.taken_ns + offset_ns, step, epoch, tuple(value for _, value in parts))
        if len(rows.rows) >= POINTS_PER_LINE:
            self._emit(place, self._rows.pop(place), result)

    def _emit(self, place: tuple[str, str, tuple[str, ...]], rows: Rows, result: Blocks) -> None:
        split, loader, names = place
        attributes: SeriesAttributes = ((SPLIT, split),)
        series = (*attributes, *_named(loader))
        columns = [
            own_column(name, rows.times_ns, values, series)
            for name, values in zip(names, zip(*rows.rows, strict=True), strict=True)
        ]
        result.points += len(names) * len(rows.rows)
        result.blocks.append([*columns, *sibling_columns(rows, [attributes])])


def batch_columns(columns: BatchColumns, times_ns: Sequence[int], attributes: SeriesAttributes) -> Iterator[Any]:
    """Give the columns of a line's steps; they share its times where each step had its batch."""
    for (name, loader), (times, values) in columns.items():
        shared = times_ns if len(times) == len(times_ns) else times
        yield own_column(name, shared, values, (*attributes, *_named(loader)))


def described(index: Any) -> AttributeValue:
    """Return what the sampler gave for a batch, for an attribute: the first indices, as numbers or texts; [] for none.

    An iterable data set has no indices: torch then gives None for each sample.
    """
    if index is None:
        return []
    several = isinstance(index, Iterable) and not isinstance(index, (str, bytes, dict))
    found = [_plain(one) for one in (islice(index, MOST_INDICES) if several else (index,)) if one is not None]
    return [str(one) for one in found] if {type(one) for one in found} != {int} else found


def _plain(index: Any) -> AttributeValue:
    if type(index) is int:
        return index
    if getattr(index, "is_cuda", False):
        # To read it would make the host wait for the device.
        return "on a device"
    text = str(index.item() if getattr(index, "ndim", None) == 0 else index)
    return int(text) if text.lstrip("-").isdigit() and len(text) < 19 else text[:200]


def _named(loader: str) -> SeriesAttributes:
    return ((LOADER, loader),) if loader else ()
