"""Sends what is missing of one run, all attempts and ranks, and gives an exact account of the first hop."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from otel_train.clock import NS_PER_S, SYSTEM, Clock
from otel_train.export.accounting import ADDED, AGED, MERGED, REFUSED, SENT, UNREADABLE
from otel_train.export.rank_ends import rank_ends
from otel_train.export.rank_source import RankSource
from otel_train.export.sender import Sender
from otel_train.export.signal_feed import BATCH_BYTES
from otel_train.runlog.folder import RunFolder

if TYPE_CHECKING:
    from otel_train.export.destination import Destinations
    from otel_train.runlog.processes import Processes

# How long a request under way may take once Ctrl-C was pressed.
INTERRUPT_PATIENCE_S: Final = 2.0


@dataclass(slots=True)
class SignalAccount:
    """Items of one signal of one run, by what this push did. `sent` holds the `added` end marks too.

    `already` were acknowledged before, and `before` counts what else became of items then.
    """

    sent: int = 0
    added: int = 0
    already: int = 0
    merged: int = 0
    refused: int = 0
    aged: int = 0
    unreadable: int = 0
    # Newest points of series of a run that goes on: they wait for the next, so that every push merges alike.
    held: int = 0
    left_bytes: int = 0
    reasons: dict[str, int] = field(default_factory=dict)
    fault: str = ""
    before: dict[str, int] = field(default_factory=dict)

    @property
    def partly(self) -> bool:
        """Whether something did not get there."""
        return bool(self.refused or self.aged or self.unreadable or self.left_bytes or self.fault)


@dataclass(slots=True)
class PushAccount:
    """What became of one run. `busy` are the rank folders that another process sends at this moment."""

    run_id: str
    state: str = ""
    signals: dict[str, SignalAccount] = field(default_factory=dict)
    busy: list[Path] = field(default_factory=list)
    # Whether any server answered, and whether there was anything to ask it.
    answered: bool = False
    interrupted: bool = False

    @property
    def partly(self) -> bool:
        """Whether something of it did not get there."""
        return self.interrupted or any(account.partly for account in self.signals.values())

    @property
    def unreached(self) -> bool:
        """Whether there was something to send and no server took it."""
        return not self.answered and any(account.fault for account in self.signals.values())

    def total(self, name: str) -> int:
        """Return the sum of one count over the signals."""
        return sum(getattr(account, name) for account in self.signals.values())

    def to_dict(self) -> dict[str, Any]:
        """Return it for JSON."""
        return {
            "run_id": self.run_id,
            "state": self.state,
            "signals": {
                signal: {name: getattr(account, name) for name in SignalAccount.__slots__}
                for signal, account in self.signals.items()
            },
            "busy": [str(path) for path in self.busy],
            "answered": self.answered,
            "interrupted": self.interrupted,
        }


def push_run(
    path: Path,
    destinations: Destinations,
    *,
    now_ns: int,
    max_log_age_s: float | None = None,
    patience_s: float = 10.0,
    batch_bytes: int = BATCH_BYTES,
    again: bool = False,
    progress: Callable[[int, int], bool] = lambda done, total: True,
    poll_s: float = 0.1,
    processes: Processes | None = None,
    clock: Clock = SYSTEM,
) -> PushAccount:
    """Send what no server has acknowledged yet of a run; of a running one what is there by now.

    `progress` gets the bytes done and in all every `poll_s`; where it returns False, and for Ctrl-C, the sending ends
    after the requests under way, and what was acknowledged stays so. A server that does not answer for `patience_s`
    ends its signal. With `again` everything is sent once more, for a store that has lost it.
    """
    run = RunFolder(path)
    status, ranks = rank_ends(run, now_ns, processes)
    account = PushAccount(path.name, status.state)
    endpoints = destinations.addresses
    sources: list[RankSource] = []
    sender = Sender.to(destinations, clock=clock, patience_s=patience_s)
    try:
        for rank in ranks:
            source = RankSource.open(
                rank.folder,
                endpoints,
                max_log_age_s=max_log_age_s,
                ended=rank.ended,
                final_state=rank.final_state,
                batch_bytes=batch_bytes,
                again=again,
                clock=clock,
            )
            if source is None:
                account.busy.append(rank.folder)
                continue
            sources.append(source)
            sender.add(source)
        account.signals = {signal: _before(signal, sources) for signal in endpoints}
        total = sender.queued_bytes
        sender.start(ending=True)
        try:
            while not sender.wait(clock.mono_ns() + int(poll_s * NS_PER_S)):
                sender.keep()
                if not progress(max(0, total - sender.queued_bytes), total):
                    account.interrupted = True
                    break
        except KeyboardInterrupt:
            account.interrupted = True
        progress(max(0, total - sender.queued_bytes), total)
    finally:
        sender.stop(INTERRUPT_PATIENCE_S)
    _settle(account, sender, sources)
    return account


def _before(signal: str, sources: Iterable[RankSource]) -> SignalAccount:
    counts = [source.feed.counts(signal) for source in sources]
    before = {name: sum(getattr(count, name) for count in counts) for name in (MERGED, REFUSED, AGED, UNREADABLE)}
    return SignalAccount(already=sum(count.sent - count.added for count in counts), before=before)


def _settle(account: PushAccount, sender: Sender, sources: Iterable[RankSource]) -> None:
    for signal, entry in account.signals.items():
        items = sender.accounting
        entry.sent, entry.added = items.items(SENT, signal), items.items(ADDED, signal)
        entry.merged, entry.refused = items.items(MERGED, signal), items.items(REFUSED, signal)
        entry.aged, entry.unreadable = items.items(AGED, signal), items.items(UNREADABLE, signal)
        entry.reasons = items.reasons(signal)
        entry.held = sum(source.feed.held(signal) for source in sources if not source.ended)
        lane = sender.lanes[signal]
        entry.fault = lane.given_up
        # A run that goes on has written more by now, which is nothing that was left undone.
        given_up = bool(lane.given_up) or account.interrupted
        entry.left_bytes = sum(source.feed.pending_bytes(signal) for source in sources if source.ended or given_up)
        account.answered |= lane.answered
