"""Sends a run without a folder (`dir=False`) from memory, beside its training; no file is written."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from otel_train.clock import mono_ns
from otel_train.run.sending import RESERVE_NS, be_no_source, endpoint_of

if TYPE_CHECKING:
    from otel_train.config import Settings
    from otel_train.export.destination import Destinations
    from otel_train.export.direct import DirectExport
    from otel_train.record.entries import Sample
    from otel_train.run.opening import Opened
    from otel_train.runlog.recorder import Recorder

_log = logging.getLogger("otel_train")


def destinations_of(settings: Settings, environ: Mapping[str, str]) -> Destinations:
    """Return where each signal goes; ConfigError names what is missing or wrong."""
    from otel_train.export.official import direct_destinations

    return direct_destinations(environ, endpoint_of(settings))


class DirectSending:
    """Sends one rank's run from memory; stands where `Sending` stands for a run with a folder."""

    def __init__(self, settings: Settings, environ: Mapping[str, str]) -> None:
        """Check what was set; ConfigError names what is missing or wrong."""
        self._destinations = destinations_of(settings, environ)
        self._export: DirectExport | None = None

    def start(self, opened: Opened, recorder: Recorder) -> None:
        """Send what this rank records, from now on."""
        from otel_train.export.direct import DirectExport
        from otel_train.export.official import OfficialExporter

        exporters = {found.signal: OfficialExporter(found) for found in self._destinations}
        export = DirectExport(
            exporters, recorder.lines.memory, addresses=self._destinations.addresses, on_thread=be_no_source
        )
        export.start()
        self._export = export
        if opened.notice:
            _log.warning("%s", opened.notice)

    def wake(self) -> None:
        """Nothing to do: what is sent a second after it was recorded needs no waking."""

    def samples(self) -> list[Sample]:
        """Return what became of items so far, for the heartbeat."""
        return [] if self._export is None else self._export.samples()

    def flush(self, timeout_s: float) -> bool:
        """Have all that is in memory sent; False where the server does not take it in time."""
        return self._export is not None and self._export.flush(timeout_s)

    def finish(self, opened: Opened, recorder: Recorder, deadline_ns: int) -> str:
        """Send the rest by a time of the monotonic clock, and return what is to be said of it."""
        export, self._export = self._export, None
        if export is None:
            for writer in recorder.lines.memory.values():
                writer.give_up()
            recorder.lines.account(recorder.buffer.dropped, ended=True)
            return "; sent nowhere"
        until_ns = deadline_ns - min(RESERVE_NS, max(0, deadline_ns - mono_ns()) // 10)
        try:
            complete = export.end(until_ns)
            recorder.lines.account(recorder.buffer.dropped, ended=True)
        except Exception as fault:  # noqa: BLE001 - a fault of telemetry must not change how training ends
            _log.warning("sending the end: %s: %s", type(fault).__name__, fault, exc_info=fault)
            complete = False
        where = ", ".join(sorted({found.place for found in self._destinations}))
        return f"; sent to {where}" if complete else f"; {where} did not take all of it"

    def stop(self) -> None:
        """Send no more; what is left is lost, and counted where `finish` was called."""
        export, self._export = self._export, None
        if export is not None:
            export.end(mono_ns())

    def abandon(self) -> None:
        """In a forked child: nothing is sent here."""
        export, self._export = self._export, None
        if export is not None:
            export.abandon()
