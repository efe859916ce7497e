"""Gives a run its sender where an endpoint is set: a thread of this process, or a process of its own."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from otel_train.clock import NS_PER_S, mono_ns
from otel_train.runlog.lock import is_locked

if TYPE_CHECKING:
    from otel_train.config import Settings
    from otel_train.export.destination import Destinations
    from otel_train.export.sender import Sender
    from otel_train.record.entries import Sample
    from otel_train.run.opening import Opened
    from otel_train.run.sender_process import SenderProcess
    from otel_train.runlog.recorder import Recorder

_log = logging.getLogger("otel_train")

# For saying how it went, after the sender's own time is over.
RESERVE_NS: Final = NS_PER_S // 2
# A count of what is left is worth a moment more on a machine that is overloaded.
OVERTIME_NS: Final = NS_PER_S // 4
_PREFIX: Final = "OTEL_EXPORTER_OTLP_"


class Sending:
    """The sender of one run and rank; one that sends nothing where no endpoint is set.

    Nothing here raises or waits, but the making of it, which checks, and `finish`, which waits as long as it is told.
    """

    def __init__(self, settings: Settings, environ: Mapping[str, str], rank: int) -> None:
        """Check what was set; ConfigError names the argument or variable that is wrong."""
        self._destinations: Destinations | None = None
        self._sender: Sender | None = None
        self._process: SenderProcess | None = None
        self._begin: Callable[[], None] = lambda: None
        self._settings = settings
        self._environ = environ
        self._rank = rank
        if settings["sender"] == "none" or not _is_anywhere(settings, environ):
            return
        from otel_train.export.destination import Destinations

        self._destinations = Destinations.from_environ(environ, endpoint_of(settings)) or None

    def start(self, opened: Opened, recorder: Recorder) -> None:
        """Send what this rank writes, from now on."""
        if self._destinations is None:
            return
        self._begin = lambda: self._start_thread(opened, recorder)
        if self._settings["sender"] != "process":
            self._begin()
            return
        from otel_train.run.sender_process import SenderProcess

        try:
            self._process = SenderProcess(opened, self._rank, self._environ_of_process())
        except OSError as fault:
            _log.warning("no process for sending could be started (%s): a thread sends", fault)
            self._begin()

    def _start_thread(self, opened: Opened, recorder: Recorder) -> None:
        from otel_train.export.rank_source import RankSource
        from otel_train.export.sender import Sender

        destinations = self._destinations
        if destinations is None:
            return
        source = RankSource.open(
            opened.rank_folder,
            destinations.addresses,
            max_log_age_s=self._settings["max_log_age"],
            ring=recorder.lines.ring,
        )
        if source is None:
            _log.warning("another process sends %s already; this one does not", opened.rank_folder)
            return
        sender = Sender.to(destinations, on_thread=be_no_source)
        sender.add(source)
        for folder in self._left_behind(opened):
            earlier = RankSource.open(
                folder, destinations.addresses, max_log_age_s=self._settings["max_log_age"], ended=True
            )
            if earlier is not None:
                sender.add(earlier)
        sender.start()
        self._sender = sender

    def _left_behind(self, opened: Opened) -> list[Path]:
        """Return the folders of earlier attempts, which may have been killed before all was sent; for one rank."""
        if opened.former is None or self._rank != 0:
            return []
        return [
            folder
            for attempt, _, folder in opened.folder.rank_folders()
            if attempt < opened.attempt and not is_locked(folder)
        ]

    def _environ_of_process(self) -> dict[str, str]:
        """Return the variables of the sending process: arguments of `init` reach it by these."""
        environ = dict(self._environ)
        endpoint, age = endpoint_of(self._settings), self._settings["max_log_age"]
        if endpoint is not None:
            environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = endpoint
        if age is not None:
            environ["OTEL_TRAIN_MAX_LOG_AGE"] = f"{age:.0f}s"
        return environ

    def wake(self) -> None:
        """Say that the writer has flushed."""
        process = self._process
        if self._sender is not None:
            self._sender.wake()
        elif process is not None and process.ended:
            self._process = None
            _log.warning("the process that sent this run has ended; a thread sends from here on")
            self._begin()

    def samples(self) -> list[Sample]:
        """Return the sender's own metrics, for the heartbeat."""
        try:
            return [] if self._sender is None else self._sender.samples()
        except Exception:  # noqa: BLE001 - the heartbeat goes on without them
            return []

    def flush(self, timeout_s: float) -> bool:
        """Nothing to wait for: what is on disk will be sent, whether by this process or by another."""
        return True

    def finish(self, opened: Opened, recorder: Recorder, deadline_ns: int) -> str:
        """Send the rest by a time of the monotonic clock; return what is to be said of it, empty for nothing."""
        if self._sender is None and self._process is None:
            return ""
        try:
            return self._finish(opened, recorder, deadline_ns)
        except Exception as fault:  # noqa: BLE001 - a fault of telemetry must not change how training ends
            _log.warning("sending the end: %s: %s", type(fault).__name__, fault, exc_info=fault)
            return f"; not all is sent: otel-train push {opened.run_id}"

    def _finish(self, opened: Opened, recorder: Recorder, deadline_ns: int) -> str:
        until_ns = deadline_ns - min(RESERVE_NS, max(0, deadline_ns - mono_ns()) // 10)
        process, self._process = self._process, None
        if process is not None:
            if process.wait(until_ns):
                return "; all sent" if process.sent_all else f"; not all is sent: otel-train push {opened.run_id}"
            process.leave()
            return f"; process {process.pid} goes on sending it"
        sender, self._sender = self._sender, None
        if sender is None:
            return ""
        complete = sender.end(until_ns)
        from otel_train.run.sending_end import end_text

        # What only the sender took is no loss.
        recorder.lines.account(recorder.buffer.dropped, ended=True)
        return end_text(sender, complete, opened.run_id, deadline_ns + OVERTIME_NS)

    def stop(self) -> None:
        """Send no more; what is not sent yet is sent by `otel-train push`."""
        sender, self._sender = self._sender, None
        if sender is not None:
            sender.stop()

    def abandon(self) -> None:
        """In a forked child: nothing is sent here."""
        sender, self._sender, self._destinations = self._sender, None, None
        self._begin = lambda: None
        if self._process is not None:
            self._process.leave()
            self._process = None
        if sender is not None:
            sender.abandon()


def endpoint_of(settings: Settings) -> str | None:
    """Return the endpoint that was given otherwise than by the standard variable, which others read too."""
    found: str | None = settings["endpoint"] if settings.origins["endpoint"] != "environment" else None
    return found


def _is_anywhere(settings: Settings, environ: Mapping[str, str]) -> bool:
    """Tell quickly whether there may be an endpoint: most runs have none, and then load nothing of the network."""
    return bool(settings["endpoint"]) or any(name.startswith(_PREFIX) and name.endswith("ENDPOINT") for name in environ)


def be_no_source() -> None:
    """Have nothing that this thread logs, prints or calls recorded: it would be sent, and so feed itself."""
    from otel_train.export.transport import unobserved
    from otel_train.sources.emission import EMISSION

    EMISSION.busy = True
    unobserved()
