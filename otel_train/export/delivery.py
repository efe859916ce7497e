"""Gets one request to its endpoint, however long that takes, and accounts for every item of it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import SystemRandom

from otel_train.clock import NS_PER_S, SYSTEM, Clock
from otel_train.export.backoff import Backoff
from otel_train.export.destination import Destination
from otel_train.export.isolation import Experience, Isolation
from otel_train.export.outage_notices import NOTICES, OutageNotices
from otel_train.export.transport import Answer, Transport, Verdict, open_transport, shortened

# What is left of the time for one last try, where the wait before it would take all.
LAST_TRY_S = 0.5


@dataclass(frozen=True, slots=True)
class Request:
    """What is sent together: `parts` are what stands between PREFIXES[signal] and SUFFIX of whole run log lines."""

    signal: str
    parts: tuple[bytes, ...]
    # Data points, log records or spans in them.
    items: int


@dataclass(slots=True)
class Delivered:
    """What became of a request.

    Finished: `accepted + refused` are its items, and `reasons` says why for each that was refused. Not finished (given
    up for the deadline or the stop): nothing of it may be taken as there, and `fault` says what stood in the way.
    """

    accepted: int = 0
    refused: int = 0
    reasons: dict[str, int] = field(default_factory=dict)
    finished: bool = False
    # Requests that were made again.
    retries: int = 0
    # The last fault, or what the server remarked on a success.
    fault: str = ""


class _GivenUp(Exception):  # noqa: N818 - says what happened
    """The deadline has come, or the stop."""


def wait_for_stop(stop: threading.Event, seconds: float) -> None:
    """Wait between two tries; a stop ends it at once."""
    stop.wait(seconds)


class Delivery:
    """One signal's way to its destination: its connection, its back-off, and what it has learnt. For one thread.

    Without `patience_s` a server that does not answer is tried until the deadline or the stop; with it, so long for
    each question. One request may take many questions, and a server that answers each of them is there.
    """

    def __init__(
        self,
        destination: Destination,
        *,
        clock: Clock = SYSTEM,
        patience_s: float | None = None,
        wait: Callable[[threading.Event, float], None] = wait_for_stop,
        random: Callable[[], float] | None = None,
        transport: Transport | None = None,
        notices: OutageNotices = NOTICES,
    ) -> None:
        self.destination = destination
        # The present outage in words, empty when there is none; other threads may read these two.
        self.fault = ""
        self.retries = 0
        self._clock = clock
        self._patience_s = patience_s
        self._wait = wait
        # Not the module's functions: they share the state that the user has seeded.
        self._draw = random or SystemRandom().random
        self._transport = transport
        self._notices = notices
        self._backoff = Backoff(self._draw)
        self._experience = Experience(destination.max_request_bytes)
        # The server as a whole may be away, or this one path be wrong.
        self._place = destination.place

    def send(self, request: Request, *, stop: threading.Event, deadline_ns: int | None = None) -> Delivered:
        """Send a request, and again until it is answered, the deadline (of `clock.mono_ns()`) comes or `stop` is set.

        Never raises. After the stop no try begins, a wait ends at once, and a try that is under way gets a second.
        """
        retries = self.retries
        way = Isolation(
            request.signal,
            request.items,
            lambda parts: self._ask(parts, stop, self._until_ns(deadline_ns)),
            self._experience,
            self._draw,
        )
        finished = False
        fault = ""
        try:
            way.send(request.parts)
            finished = True
        except _GivenUp:
            fault = self.fault or "no time was left"
        except Exception as error:  # noqa: BLE001 - a fault of ours costs no training, and is seen by the account
            fault = self.fault = shortened(f"{type(error).__name__}: {error}")
        return Delivered(
            accepted=request.items - way.refused if finished else 0,
            refused=way.refused if finished else 0,
            reasons=way.reasons if finished else {},
            finished=finished,
            retries=self.retries - retries,
            fault=fault or way.note,
        )

    def close(self) -> None:
        """Give the connection back."""
        if self._transport is not None:
            self._transport.close()

    def _ask(self, parts: Sequence[bytes], stop: threading.Event, deadline_ns: int | None) -> Answer:
        """Send one request until it is accepted, refused or too large."""
        if self._transport is None:
            self._transport = open_transport(self.destination, self._clock)
        try:
            body = self._transport.encode(parts)
        except ValueError as fault:
            return Answer(Verdict.REFUSED, shortened(f"cannot be read: {fault}"))
        while True:
            left_s = self._left_s(deadline_ns)
            if stop.is_set() or left_s <= 0:
                raise _GivenUp
            answer = self._transport.post(body, min(self.destination.timeout_s, left_s), stop)
            if answer.verdict not in (Verdict.RETRY, Verdict.MISDIRECTED):
                self._take_success()
                return answer
            self._take_fault(answer)
            self._pause(answer, stop, deadline_ns)
            self.retries += 1

    def _pause(self, answer: Answer, stop: threading.Event, deadline_ns: int | None) -> None:
        misdirected = answer.verdict is Verdict.MISDIRECTED
        delay_s = self._backoff.next_s(answer.retry_after_s, misdirected=misdirected)
        left_s = self._left_s(deadline_ns)
        if delay_s >= left_s:
            # Before its time a server that named one would only refuse again; others get one last try.
            if misdirected or answer.retry_after_s is not None or left_s <= LAST_TRY_S:
                raise _GivenUp
            delay_s = left_s - LAST_TRY_S
        self._wait(stop, delay_s)

    def _until_ns(self, deadline_ns: int | None) -> int | None:
        """Return the deadline of a question that is asked now."""
        if self._patience_s is None:
            return deadline_ns
        until_ns = self._clock.mono_ns() + int(self._patience_s * NS_PER_S)
        return until_ns if deadline_ns is None else min(until_ns, deadline_ns)

    def _left_s(self, deadline_ns: int | None) -> float:
        return float("inf") if deadline_ns is None else (deadline_ns - self._clock.mono_ns()) / NS_PER_S

    def _take_success(self) -> None:
        if self.fault:
            self.fault = ""
            self._notices.well(self._place)
            self._notices.well(self.destination.shown_url)
        self._backoff.reset()

    def _take_fault(self, answer: Answer) -> None:
        self.fault = answer.text
        if answer.verdict is Verdict.MISDIRECTED:
            self._notices.faulty(self.destination.shown_url, answer.text, self._clock)
        elif self._backoff.faults_in_row >= 1:
            # One reset connection or one 503 is everyday, and over with the next try.
            self._notices.faulty(self._place, answer.text, self._clock)
