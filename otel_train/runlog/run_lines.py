"""Encodes what the writer has and appends it to the segments of one rank, within the size that a run may have."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from opentelemetry.sdk.metrics.export import MetricsData

from otel_train.clock import Clock, sleep
from otel_train.otlp.encode import LineEncoder
from otel_train.otlp.from_sdk import metrics_line
from otel_train.otlp.histogram import HistogramData
from otel_train.record.entries import AttributeValue, Column, LogEntry, Sample, SpanEntry
from otel_train.runlog.accounting import Accounting
from otel_train.runlog.segments import SIGNALS, LineRing, SegmentWriter

if TYPE_CHECKING:
    from otel_train.runlog.memory_lines import MemoryWriter
    from otel_train.runlog.tap import MetricTap

_log = logging.getLogger("otel_train")
T = TypeVar("T")

ITEMS_PER_LINE: Final = 200
# Kept free under `max_run_size`, so that the last state of a run that reached it is still written.
END_RESERVE_BYTES: Final = 64 * 1024
FAULT: Final = "fault of telemetry"


class RunLines:
    """For one thread at a time; only `abandon` may be called in a forked child. What cannot be encoded is counted."""

    def __init__(
        self,
        folder: Path | None,
        resource: Mapping[str, AttributeValue],
        accounting: Accounting,
        *,
        version: str,
        segment_bytes: int,
        max_run_bytes: int,
        clock: Clock,
        write: Callable[[int, bytes], int],
        say_fault: Callable[[str, Exception], None],
    ) -> None:
        self.folder = folder
        # Whether to give way after each column: then a fast loop hardly notices that something is written.
        self.fine = True
        self._accounting = accounting
        self._encoder = LineEncoder(resource, version)
        # What no disk takes waits here, for the disk or for the sender.
        self.ring = LineRing()
        # Sees every metric that is written; set before anything is.
        self.tap: MetricTap | None = None
        # Without a folder the lines stay in memory, until they are sent.
        self.memory: dict[str, MemoryWriter] = {}
        self._writers: Mapping[str, SegmentWriter | MemoryWriter] = self.memory
        if folder is None:
            from otel_train.runlog.memory_lines import MemoryWriter

            self.memory.update({signal: MemoryWriter(signal, self.ring) for signal in SIGNALS})
        else:
            self._writers = {
                signal: SegmentWriter(
                    folder,
                    signal,
                    segment_bytes=segment_bytes,
                    ring=self.ring,
                    on_fault=self._say_disk,
                    clock=clock,
                    write=write,
                )
                for signal in SIGNALS
            }
        self._max_run_bytes = max_run_bytes
        self._over_cap = False
        self._say_fault = say_fault

    # What is written -----------------------------------------------------------------------------------------------

    def points(self, block: list[Column]) -> None:
        """Write columns as one line."""
        self._show(lambda tap: tap.points(block))
        pause = _give_way if self.fine else None
        try:
            line = self._encoder.points(block, pause)
        except Exception as fault:  # noqa: BLE001 - one column must not cost the others
            self._say_fault("encoding", fault)
            whole = [column for column in block if _encodable(self._encoder.points, column)]
            self._accounting.drop("metrics", FAULT, _points_of(block) - _points_of(whole))
            block, line = whole, self._encoder.points(whole)
        self._append("metrics", line, _points_of(block))

    def readings(
        self, time_ns: int, samples: Sequence[Sample] | MetricsData, start_ns: int, *, ended: bool = False
    ) -> None:
        """Write readings made at one time; they are not counted among the user's points."""
        self._show(lambda tap: tap.readings(time_ns, samples))
        try:
            if isinstance(samples, MetricsData):
                line = metrics_line(samples, self._encoder.resource)
            else:
                line = self._encoder.samples(time_ns, start_ns, samples)
        except Exception as fault:  # noqa: BLE001 - one reading must not cost the others
            self._say_fault("encoding", fault)
            return
        self._append("metrics", line, 0, reserved=ended)

    def histograms(self, histograms: Sequence[HistogramData], *, ended: bool = False) -> None:
        """Write histograms."""
        self._show(lambda tap: tap.histograms(histograms))
        self._append("metrics", self._encoder.histograms(histograms), 0, reserved=ended)

    def logs(self, entries: Sequence[LogEntry]) -> None:
        """Write log records; the end of the run whatever its size."""
        self._encode("logs", self._encoder.logs, [entry for entry in entries if entry.event_name != "run.end"])
        ends = [entry for entry in entries if entry.event_name == "run.end"]
        self._encode("logs", self._encoder.logs, ends, must=True)

    def spans(self, spans: Sequence[SpanEntry]) -> None:
        """Write finished spans."""
        self._encode("traces", self._encoder.spans, spans)

    def _show(self, show: Callable[[MetricTap], None]) -> None:
        if self.tap is None:
            return
        try:
            show(self.tap)
        except Exception as fault:  # noqa: BLE001 - who shows present values must not keep them from being recorded
            self._say_fault("showing present values", fault)

    def _encode(
        self, signal: str, encode: Callable[[Sequence[T]], bytes], items: Sequence[T], *, must: bool = False
    ) -> None:
        """Write items, some hundred a line; one that cannot be encoded is left out alone."""
        for start in range(0, len(items), ITEMS_PER_LINE):
            batch = items[start : start + ITEMS_PER_LINE]
            try:
                line = encode(batch)
            except Exception as fault:  # noqa: BLE001 - an item may hold anything
                self._say_fault("encoding", fault)
                whole = [item for item in batch if _encodable(encode, item)]
                self._accounting.drop(signal, FAULT, len(batch) - len(whole))
                batch, line = whole, encode(whole)
            self._append(signal, line, len(batch), must=must)
            sleep(0)

    def _append(self, signal: str, line: bytes, items: int, *, reserved: bool = False, must: bool = False) -> None:
        """Append one line; `items` are those of the user; `reserved` ones may use what is kept free for the end."""
        if not line:
            return
        limit = self._max_run_bytes - (0 if reserved else min(END_RESERVE_BYTES, self._max_run_bytes // 8))
        if not must and len(line) + sum(writer.disk_bytes for writer in self._writers.values()) > limit:
            if not self._over_cap:
                self._over_cap = True
                _log.warning(
                    "%s has reached max_run_size (%s bytes); what follows is counted, not stored",
                    self.folder,
                    f"{self._max_run_bytes:,}",
                )
            self._accounting.drop(signal, "over max_run_size", items)
            return
        self._writers[signal].write(line, items)

    # Life ----------------------------------------------------------------------------------------------------------

    @property
    def bytes_written(self) -> int:
        """Bytes this process has written to the run's folder."""
        return sum(writer.bytes_written for writer in self._writers.values())

    @property
    def faulty(self) -> bool:
        """Whether lines wait in memory for a disk that does not take them."""
        return any(writer.faulty for writer in self._writers.values())

    def retry(self) -> None:
        """Try the disk again where it did not take lines."""
        for writer in self._writers.values():
            writer.retry()

    def account(self, dropped: Mapping[str, int], *, ended: bool) -> None:
        """Bring counts that are kept elsewhere into the accounting: points dropped by the buffer, and lost lines.

        At the end what still waits in memory is lost, too.
        """
        for cause, items in dropped.items():
            self._accounting.set_dropped("metrics", cause, items)
        for signal, writer in self._writers.items():
            self._accounting.recorded[signal] = writer.items_written
            for cause, items in writer.losses(ended=ended).items():
                self._accounting.set_dropped(signal, cause, items)

    def _say_disk(self, message: str) -> None:
        # A full disk meets all signals: the first says it for all.
        if sum(writer.faulty for writer in self._writers.values()) == 1:
            _log.warning("%s; training goes on", message)

    def close(self, deadline_ns: int) -> None:
        """Close the segments, and gzip them as far as the time allows."""
        for writer in self._writers.values():
            writer.close(compress=True, deadline_ns=deadline_ns)

    def abandon(self) -> None:
        """In a forked child: the parent's files and lines are the parent's alone."""
        for writer in self._writers.values():
            writer.abandon()


def _encodable(encode: Callable[[Sequence[T]], bytes], item: T) -> bool:
    try:
        encode([item])
    except Exception:  # noqa: BLE001 - that is the question
        return False
    return True


def _points_of(block: Sequence[Column]) -> int:
    """Count the points of a line without the siblings that only say where they stand."""
    return sum(len(column.values) for column in block if column.name not in ("dl.step", "dl.epoch"))


def _give_way() -> None:
    sleep(0)
