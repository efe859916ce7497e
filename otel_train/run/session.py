"""Opens the rooms of one run, joins them, and closes them again in order, within the time that `finish` has."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from otel_train import __version__
from otel_train.clock import NS_PER_S, iso, mono_ns, wall_ns
from otel_train.errors import RunFolderError
from otel_train.lineage.hash_pool import HashPool
from otel_train.lineage.project import default_run_name
from otel_train.lineage.redact import Redactor
from otel_train.lineage.resource import resource_attributes
from otel_train.record.buffer import SLOTS
from otel_train.record.entries import AttributeValue
from otel_train.run import current
from otel_train.run.bounded import within
from otel_train.run.ending import PROCESS_END
from otel_train.run.events import is_out_of_memory
from otel_train.run.opening import Opened, Opening
from otel_train.run.prometheus import RunPrometheus
from otel_train.run.rank_watching import RankWatching, stop_measuring
from otel_train.run.records import new_document, new_entry, trace_entry
from otel_train.run.run_file import RunFile
from otel_train.run.sending import Sending
from otel_train.run.sink import RunSink
from otel_train.run.spans import RunSpans
from otel_train.run.surroundings import Surroundings
from otel_train.run.trace_environ import TRACE_ENVIRONMENT
from otel_train.run.verdict import Ending, judge, message_of
from otel_train.runlog.recorder import Recorder, RunTrace
from otel_train.sources.console import Console

if TYPE_CHECKING:
    from otel_train.config import Settings
    from otel_train.lineage.ranks import Ranks
    from otel_train.run.direct_sending import DirectSending
    from otel_train.run.run import Run
    from otel_train.runlog.watcher import Watcher

_log = logging.getLogger("otel_train")

# Shares of the time of `finish`: what is in the way of the run log's own end must leave it time.
SAMPLER_SHARE = 0.2
POOL_SHARE = 0.4


class Session:
    """Everything that a run holds open. Made before the run's id is known; `open` is called once it is."""

    def __init__(
        self,
        settings: Settings,
        *,
        project: str,
        ranks: Ranks,
        redactor: Redactor,
        environ: Mapping[str, str],
        seed: Mapping[str, Any] | None,
    ) -> None:
        self.settings = settings
        self.project = project
        self.ranks = ranks
        self.redactor = redactor
        self.environ = dict(environ)
        self.seed = seed
        # None without a folder: then nothing is written to any disk.
        self.root = None if settings["dir"] is False else Path(settings["dir"]).absolute()
        self.name = settings["name"] or ""
        console = Console(settings["console"], level=settings["console_level"]) if settings["console"] else None
        self.sink = RunSink(level=settings["log_level"], console=console, redactor=redactor)
        self.spans = RunSpans({}, self.sink.emit_sdk_span, self.sink.emit_span, environ, main=ranks.is_main)
        self.rank_watching = RankWatching()
        self.pool = HashPool()
        self.opened_now: Opened | None = None
        self.file: RunFile = RunFile.detached(redactor.text)
        self._opened = threading.Event()
        self.give_up_waiting: Callable[[], None] = lambda: None
        self._recorder: Recorder | None = None
        self._opening: Opening | None = None
        # How the run ended, in words, and when; without the exception, whose frames would stay alive.
        self.ended_as: tuple[str, str, int] | None = None
        self.surroundings = Surroundings(
            settings,
            self.sink,
            ranks=ranks,
            redactor=redactor,
            environ=self.environ,
            machine_root=self.root or Path.cwd(),
        )
        self.sending = self._new_sending()
        self.prometheus = RunPrometheus(settings, ranks)
        self.start_ns = wall_ns()

    def _new_sending(self) -> Sending | DirectSending:
        if self.root is not None:
            return Sending(self.settings, self.environ, self.ranks.rank)
        from otel_train.run.direct_sending import DirectSending

        return DirectSending(self.settings, self.environ)

    # Opening -------------------------------------------------------------------------------------------------------

    def document(self, run_id: str, attempt: int) -> dict[str, Any]:
        """Return run.json of a new run."""
        return new_document(
            run_id,
            self.settings,
            name=self.name,
            project=self.project,
            start_ns=self.start_ns,
            redactor=self.redactor,
        )

    def open(self, run: Run, opened: Opened, opening: Opening) -> None:
        """Start to write: file, recorder, spans. Called once, in `init` or when rank 0's id is there."""
        self._opening = opening
        if opened.former is not None:
            self.name = self.name or str(opened.former.get("run_name") or "")
        self.name = self.name or default_run_name(opened.run_id)
        place = opened.place
        main = self.ranks.is_main or opened.alone
        if opened.alone:
            run.store_own()
        entry = new_entry(opened, ranks=self.ranks, start_ns=self.start_ns, config=run.config.plain(), seed=self.seed)
        folder = None if place is None else place.folder
        self.file = file = self.file.attached(folder, opened.attempt, writes=main and place is not None, entry=entry)
        file.set(status="running")
        file.flush()
        resource = resource_attributes(
            project=self.project,
            run_id=opened.run_id,
            run_name=self.name,
            attempt=opened.attempt,
            ranks=self.ranks,
            environ=self.environ,
        )
        marked, above = self.spans.mark_run(
            self.name, {"run_id": opened.run_id, "run_attempt": opened.attempt}, opened.traceparent
        )
        self.file.set_attempt(trace=trace_entry(marked, above))
        recorder = Recorder(
            None if place is None else place.rank_folder,
            resource,
            run.points.buffer,
            run.digest,
            RunTrace(marked.trace_id, marked.span_id),
            version=__version__,
            flush_interval_s=self.settings["flush_interval_s"],
            segment_bytes=self.settings["segment_size"],
            max_run_bytes=self.settings["max_run_size"],
            on_cycle=lambda: self._cycle(run),
            on_heartbeat=lambda: [*self.sending.samples(), *run.progress.samples()],
            on_event=self.sink.show_health,
            new_watcher=lambda: _watcher_of(run, opened.former, main=main),
        )
        self._recorder = recorder
        if not run.finished:
            TRACE_ENVIRONMENT.enter(self, marked)
        self.sink.attach(recorder)
        with run.guard("prometheus_port"):
            self.prometheus.start(run, resource, recorder)
        with run.guard("ranks"):
            self.rank_watching.open(run, opened)
        recorder.start()
        with run.guard("sending"):
            self.sending.start(opened, recorder)
        self.opened_now = opened
        self._opened.set()
        if opened.notice:
            run.events.notice(opened.notice)
            _log.info("%s", opened.notice)

    def _cycle(self, run: Run) -> None:
        """Do what is due on the writer's thread, each time that it has written."""
        self.sending.wake()
        self.rank_watching.cycle()
        self.file.flush()
        self.surroundings.cycle()
        run.loaders.look()
        run.memory.look()

    # Reading -------------------------------------------------------------------------------------------------------

    def opened(self) -> Opened:
        """Return the run's place; on a rank that waits for rank 0 this waits too."""
        self._opened.wait()
        if self.opened_now is None:
            raise RunFolderError("the run could not be opened; see the log")
        return self.opened_now

    @property
    def label(self) -> str:
        """The run's id; what to say of it before there is one."""
        return "(waiting for rank 0)" if self.opened_now is None else self.opened_now.run_id

    def give_up(self) -> None:
        """Let those go on who wait for a run that cannot be opened."""
        self._opened.set()

    def flush(self, timeout_s: float, *, send: bool = True) -> bool:
        """Put on disk what was recorded so far; without a folder have it sent, unless `send` says otherwise."""
        self._opened.wait(timeout_s)
        recorder = self._recorder
        if recorder is None:
            return False
        until_ns = mono_ns() + int(timeout_s * NS_PER_S)

        def put() -> bool:
            if not (recorder.flush(timeout_s) and self.file.flush()):
                return False
            return not send or self.sending.flush((until_ns - mono_ns()) / NS_PER_S)

        return within(timeout_s, put, "otel-train-flush")

    def last_values(self) -> dict[str, Any]:
        """Return the last value of each of the user's metrics."""
        recorder = self._recorder
        if recorder is None:
            return {}
        self.flush(1.0, send=False)
        return {
            f"{series.split}/{series.key}" if series.split else series.key: summary.to_dict()["last"]
            for series, summary in list(recorder.digest.summaries.by_series.items())
        }

    # Ending --------------------------------------------------------------------------------------------------------

    def end(
        self,
        run: Run,
        status: str | None,
        reason: str | None,
        fault: BaseException | None,
        exit_code: int | None,
    ) -> None:
        """Close everything by the deadline; see `Run.finish`."""
        budget_s = self.settings["finish_timeout_s"]
        deadline_ns = mono_ns() + int(budget_s * NS_PER_S)
        status, reason, exit_code = judge(status, reason, fault, exit_code, terminated=PROCESS_END.terminated)
        reason = None if reason is None else self.redactor.text(reason)
        self.ended_as = status, reason or "", wall_ns()
        ending = Ending(status=status, reason=reason, fault=fault, exit_code=exit_code, truncated=self.spans.truncate())
        try:
            self._quiet(run, budget_s)
        finally:
            # Also where Ctrl-C ends the waiting for what comes before.
            self._finalise(run, ending, deadline_ns)

    def _quiet(self, run: Run, budget_s: float) -> None:
        """Have everything that still records hand over what it has, and end."""
        run.unwatch()
        run.loaders.close()
        run.memory.close()
        TRACE_ENVIRONMENT.leave(self)
        stop_measuring(run)
        self.surroundings.collect(last=True)
        current.unregister(run)
        self.surroundings.uninstall()
        unhashed = self.pool.close(budget_s * POOL_SHARE) + self.surroundings.close(budget_s * SAMPLER_SHARE)
        self.prometheus.stop_recording(budget_s * SAMPLER_SHARE / 2)
        if unhashed:
            run.events.notice(f"{unhashed} checksums were not ready at the end and are missing", "WARN")

    def _finalise(self, run: Run, ending: Ending, deadline_ns: int) -> None:
        with run.guard("ranks"):
            self.rank_watching.ending(ending.status, ending.reason)
        self._write_end(run, ending)
        run.points.buffer.capacity_slots = -1
        run.points.overflow_cause = "after the end"
        # A rank whose training was short may end before rank 0 has drawn the id.
        self._opened.wait(max(0.0, (deadline_ns - mono_ns()) / NS_PER_S - 0.5))
        recorder, opened = self._recorder, self.opened_now
        if recorder is None or opened is None:
            self.give_up_waiting()
            waiting = len(run.points.buffer.entries) // SLOTS
            _log.warning("the run ended before its id was known; %d entries and all records are lost", waiting)
            return
        ended = {
            "status": ending.status,
            "ended": iso(wall_ns()),
            "exit_code": ending.exit_code,
            "reason": ending.reason,
        }
        try:
            written = within(
                (deadline_ns - mono_ns()) / NS_PER_S, lambda: self._close(recorder, opened, ended, deadline_ns)
            )
            sent = self.sending.finish(opened, recorder, deadline_ns)
        finally:
            # Ctrl-C ends the sending too, and what it has not sent is sent by `otel-train push`.
            self.sending.stop()
            self.prometheus.stop()
        what = f" ({ending.reason})" if ending.reason else ""
        faults = f"; {run.guard.faults} faults of telemetry, see the log" if run.guard.faults else ""
        hangs = "" if written else "; the disk does not answer, so the end may be missing"
        account = f"{recorder.accounting.line()}{faults}{hangs}{sent}"
        print(  # noqa: T201 - the one line that is promised at the end
            f"otel-train: run {opened.run_id} {ending.status}{what}: {account};",
            "without a folder" if opened.place is None else f"in {opened.folder.path}",
            file=sys.stderr,
        )

    def _close(self, recorder: Recorder, opened: Opened, ended: dict[str, Any], deadline_ns: int) -> bool:
        """Write what is left and the end, and let go of the folder."""
        # What follows the run log is short, and must not come too late for it.
        recorder.stop(deadline_ns - (deadline_ns - mono_ns()) // 10, ended["status"])
        summaries = {
            f"{series.split}/{series.key}" if series.split else series.key: summary.to_dict()
            for series, summary in recorder.digest.summaries.by_series.items()
        }
        self.file.set_attempt(**ended, accounting=recorder.accounting.to_dict())
        self.file.set(status=ended["status"], ended=ended["ended"], summary=summaries)
        self.file.flush()
        self.rank_watching.close(ended["status"], ended["reason"])
        # Again: a rank that ends early may have been opened meanwhile.
        TRACE_ENVIRONMENT.leave(self)
        if opened.place is not None:
            opened.place.lock.release()
        if self._opening is not None:
            self._opening.retire(opened.run_id)
        return True

    def _write_end(self, run: Run, ending: Ending) -> None:
        attributes: dict[str, AttributeValue] = {"status": ending.status, **run.position()}
        if ending.exit_code is not None:
            attributes["exit_code"] = ending.exit_code
        if ending.truncated:
            attributes["truncated_spans"] = ending.truncated
        severity = "INFO" if ending.status == "finished" else "ERROR" if ending.status == "failed" else "WARN"
        if ending.fault is not None and ending.status != "finished":
            attributes |= run.events.exception(ending.fault)
            if is_out_of_memory(ending.fault):
                text = f"{type(ending.fault).__name__}: {message_of(ending.fault)}"
                facts = {**run.events.exception(ending.fault), **run.memory.facts()}
                run.events.emit("health.out_of_memory", text, facts)
        body = f"run {ending.status}" + (f": {ending.reason}" if ending.reason else "")
        if ending.reason:
            attributes["reason"] = ending.reason
        run.events.emit("run.end", body, attributes, severity=severity)

    def abandon(self) -> None:
        """In a forked child: drop everything without a lock, a join or a write."""
        TRACE_ENVIRONMENT.forget()
        self.spans.abandon()
        self.rank_watching.abandon()
        self.file.abandon()
        self.sending.abandon()
        self.prometheus.abandon()
        self.surroundings.abandon()
        if self._recorder is not None:
            self._recorder.abandon()
        if self.opened_now is not None and self.opened_now.place is not None:
            self.opened_now.place.lock.abandon()


def _watcher_of(run: Run, former: Mapping[str, Any] | None, *, main: bool) -> Watcher:
    from otel_train.run.accounts import accounts_of
    from otel_train.run.watching import watcher_of
    from otel_train.runlog.watcher import Watchers

    run.accounts = accounts_of(run, former, main=main)
    return Watchers(watcher_of(run, former, main=main), run.accounts)
