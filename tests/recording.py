"""Puts the parts of `record` together without a disk: what is logged, and what the digest makes of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from otel_train.record.buffer import Buffer
from otel_train.record.columns import Blocks
from otel_train.record.deferred import Backend, DeviceReader
from otel_train.record.digest import Digest, Digested
from otel_train.record.entries import Column, Scalar
from otel_train.record.names import NameTable
from otel_train.record.points import PointLog
from otel_train.record.summary import Summaries
from otel_train.record.thinning import Thinner

Place = tuple[str, tuple[tuple[str, Scalar], ...]]


class Recording:
    """One run's points in memory."""

    def __init__(
        self,
        *,
        capacity: int = 100_000,
        every: Mapping[str, int] | None = None,
        backend: Backend | None = None,
        span_every: int = 100,
        first_step: int = 0,
    ) -> None:
        self.warnings: list[str] = []
        self.names = NameTable(self.warnings.append)
        self.buffer = Buffer(capacity)
        self.log = PointLog(
            self.buffer,
            self.names,
            self.warnings.append,
            thinner=Thinner(every, self.names) if every else None,
            device=DeviceReader(backend) if backend else None,
            first_step=first_step,
        )
        self.summaries = Summaries()
        self.digest = Digest(self.names, self.summaries, span_every=span_every)

    def take(self, *, offset_ns: int = 0, flush: bool = True, last: bool = False) -> Digested:
        """Digest what is in the buffer; no fault of our own is swallowed."""
        digested = self.digest.take(self.buffer.drain(), offset_ns, flush=flush, last=last)
        assert digested.faults == []
        return digested

    def stored(self, *, last: bool = True) -> dict[Place, list[tuple[int, float]]]:
        """Return (step, value) of every point by metric and attributes."""
        return stored(self.take(last=last))

    @property
    def raw(self) -> list[tuple[int, Mapping[str, Any]]]:
        """What waits in the buffer: (step, values) of each call."""
        entries = self.buffer.entries
        return [(entries[start + 2], entries[start + 4]) for start in range(0, len(entries), 6)]


def columns_of(digested: Blocks) -> list[Column]:
    """Return all columns, in the order in which they are written."""
    return [column for block in digested.blocks for column in block]


def stored(digested: Blocks) -> dict[Place, list[tuple[int, float]]]:
    """Return (step, value) of every point by metric and attributes; the step is that of the sibling."""
    return stored_columns(columns_of(digested))


def stored_columns(columns: Sequence[Column]) -> dict[Place, list[tuple[int, float]]]:
    """Join points with the steps that stand beside them at the same times."""
    steps: dict[tuple[Any, ...], dict[int, int]] = {}
    for column in columns:
        if column.name == "dl.step":
            beside = steps.setdefault(column.attributes, {})
            for time_ns, step in zip(column.times_ns, column.values, strict=True):
                assert beside.setdefault(time_ns, int(step)) == step
    found: dict[Place, list[tuple[int, float]]] = {}
    for column in columns:
        if column.name in ("dl.step", "dl.epoch"):
            continue
        own = tuple(pair for pair in column.attributes if pair[0] in ("split", "axis"))
        rows = found.setdefault((column.name, column.attributes), [])
        for time_ns, value in zip(column.times_ns, column.values, strict=True):
            rows.append((steps[own][time_ns], value))
    return found


TRAIN = (("split", "train"),)
VAL = (("split", "val"),)
