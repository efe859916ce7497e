"""Gives what is to be sent of one rank's folder, batch by batch, and remembers what was acknowledged.

What is given is a function of the log's lines alone: however they are cut into batches, and wherever a process stopped
and another goes on, the same points, records and spans come with the same values. So sending again changes nothing in
a store that takes repeated points.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from otel_train.clock import NS_PER_S, SYSTEM, Clock
from otel_train.export.signal_feed import BATCH_BYTES, MetricFeed, RecordFeed, SignalFeed
from otel_train.export.signal_feed import Batch as Batch  # what a feed gives
from otel_train.export.signal_feed import Counts as Counts
from otel_train.runlog.segments import SIGNALS
from otel_train.runlog.sent_file import SentFile

SAVE_EVERY_NS: Final = NS_PER_S
COUNTED_BYTES: Final = 32 << 10
# Of all time at most a fiftieth goes into writing the file, however many series there are.
_SAVING_SHARE: Final = 50
# Endpoints that are remembered; the one that was not used for longest is forgotten first.
_MOST_ENDPOINTS: Final = 4


class RankFeed:
    """For one thread at a time. Disk faults do not raise: what there is to say of them is in `notices`.

    `endpoint` is a label, without secrets, of where things go, one for all signals or one each: positions are kept for
    each, so another endpoint begins at the beginning. With ``keep=False`` ``sent.json`` is neither read nor written;
    with `again` what it says of these endpoints is forgotten, and everything is given from the beginning.
    """

    def __init__(
        self,
        folder: Path,
        *,
        endpoint: str | Mapping[str, str] = "",
        max_log_age_s: float | None = None,
        clock: Clock = SYSTEM,
        batch_bytes: int = BATCH_BYTES,
        keep: bool = True,
        again: bool = False,
    ) -> None:
        self.folder = folder
        self.notices: list[str] = []
        self._clock = clock
        self._file = SentFile(folder) if keep else None
        self._endpoints = {
            signal: endpoint if isinstance(endpoint, str) else endpoint.get(signal, "") for signal in SIGNALS
        }
        self._stored = self._read_file()
        self._again = again
        self._save_at_ns = 0
        self._dirty = False
        self._said_fault = ""
        self._feeds: dict[str, SignalFeed] = {
            "metrics": MetricFeed(folder, self._stored_of("metrics"), batch_bytes=batch_bytes)
        }
        for signal in ("logs", "traces"):
            self._feeds[signal] = RecordFeed(
                folder,
                signal,
                self._stored_of(signal),
                batch_bytes=batch_bytes,
                max_log_age_s=max_log_age_s,
                clock=clock,
            )
        self.notices += [feed.fault for feed in self._feeds.values() if feed.fault]

    def next(self, signal: str, *, ended: bool = False, final_state: str = "lost") -> Batch | None:
        """Return what comes next, the same until it is acknowledged; None where there is nothing at present.

        With `ended` (nothing more will be written) a cut last line, the points held back and the end marks come as
        well, each once; `final_state` is what the run's state becomes where the log's last word is that it runs.
        """
        feed = self._feeds[signal]
        batch = feed.next(ended=ended, final_state=final_state)
        if feed.moved:
            feed.moved = False
            self._note()
        return batch

    def fold(self, signal: str, lines: Iterable[bytes]) -> Batch | None:
        """Take whole lines that no disk has taken, where `next` has just given nothing; return what is due of them.

        They are merged and fitted as if they stood at the end of the log.
        """
        batch = self._feeds[signal].fold(lines)
        self._note()
        return batch

    def acknowledge(self, batch: Batch, refused: int = 0) -> None:
        """Have a batch done with, so many of its items refused. ``sent.json`` is written at most once a second."""
        self._feeds[batch.signal].acknowledge(batch, refused)
        self._note()

    def save(self) -> None:
        """Write ``sent.json`` now, where something was acknowledged since it was written."""
        if self._file is None or not self._dirty:
            return
        began_ns = self._clock.mono_ns()
        stored: dict[str, Any] = {}
        for signal, feed in self._feeds.items():
            endpoint = self._endpoints[signal]
            others = [(label, entry) for label, entry in self._stored.get(signal, {}).items() if label != endpoint]
            # The newest last: those before it go first.
            stored[signal] = {**dict(others[-(_MOST_ENDPOINTS - 1) :]), endpoint: feed.to_store()}
        fault = self._file.write({"signals": stored})
        if fault and fault != self._said_fault:
            self.notices.append(fault)
        self._said_fault = fault
        self._dirty = bool(fault)
        now_ns = self._clock.mono_ns()
        self._save_at_ns = now_ns + max(SAVE_EVERY_NS, _SAVING_SHARE * (now_ns - began_ns))

    def pending_bytes(self, signal: str | None = None) -> int:
        """Return the plain bytes of the log that are not acknowledged yet, of one signal or all."""
        return sum(self._feeds[name].pending_bytes() for name in (SIGNALS if signal is None else (signal,)))

    def counts(self, signal: str) -> Counts:
        """Return what became of a signal's items, as far as it is acknowledged."""
        return replace(self._feeds[signal].counts)

    def held(self, signal: str) -> int:
        """Return how many points are held back at present."""
        return self._feeds[signal].held

    def done(self, signal: str) -> bool:
        """Tell whether everything of an ended log is acknowledged, the end marks too."""
        return self._feeds[signal].done

    def left_items(self, signal: str, until_ns: int) -> tuple[int, bool]:
        """Count the items of the log that are not acknowledged; False beside it where that took too long to count all.

        It reads on, so this is the last that is asked of a feed: nothing is kept of it.
        """
        self._file = None
        feed = self._feeds[signal]
        # The time is looked at between two batches.
        feed.batch_bytes = COUNTED_BYTES
        before = replace(feed.counts)
        exact = True
        while exact and (batch := feed.next(ended=True, final_state="running")) is not None:
            feed.acknowledge(batch, 0)
            exact = self._clock.mono_ns() < until_ns
        return feed.counts.log_items - before.log_items, exact

    def save_due(self) -> None:
        """Write ``sent.json`` where that is due: what was acknowledged last must not wait for the next to be."""
        if self._dirty and self._clock.mono_ns() >= self._save_at_ns:
            self.save()

    def _note(self) -> None:
        self._dirty = True
        self.save_due()

    def _read_file(self) -> dict[str, Any]:
        if self._file is None:
            return {}
        content, fault = self._file.read()
        if fault:
            self.notices.append(fault)
        signals = content.get("signals")
        if not isinstance(signals, dict):
            return {}
        return {signal: entry for signal, entry in signals.items() if isinstance(entry, dict)}

    def _stored_of(self, signal: str) -> Any:
        return None if self._again else self._stored.get(signal, {}).get(self._endpoints[signal])
