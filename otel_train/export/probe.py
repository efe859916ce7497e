"""Asks each endpoint once, with a test log record and a test metric, and says what answered within bounded time."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime
from typing import Final

from otel_train import __version__
from otel_train.clock import NS_PER_S, SYSTEM, Clock
from otel_train.export.destination import Destination, Destinations
from otel_train.export.transport import Answer, Transport, Verdict, open_transport, shortened
from otel_train.otlp.encode import PREFIXES, SUFFIX, LineEncoder
from otel_train.record.entries import LogEntry, Sample

# In no run: a store's list of runs stays as it is.
RESOURCE: Final[dict[str, str | bool]] = {"service.name": "otel-train-doctor", "otel_train.doctor": True}
METRIC: Final = "otel_train.doctor"
RECORD: Final = "a test record of otel-train doctor"
_INFO: Final = 9
# A Date header has whole seconds.
_DATE_ERROR_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class Probed:
    """What one endpoint answered. `ahead_s`: by how much this clock is ahead of the server's; None where unknown.

    `ahead_error_s` is how far from that it may be.
    """

    destination: Destination
    answer: Answer
    took_s: float
    ahead_s: float | None = None
    ahead_error_s: float = 0.0

    @property
    def reached(self) -> bool:
        """Whether the data was taken."""
        return self.answer.verdict is Verdict.ACCEPTED


def probe(destinations: Destinations, timeout_s: float, clock: Clock = SYSTEM) -> list[Probed]:
    """Send to all endpoints at once and return their answers: metrics, logs, traces, as far as each goes anywhere.

    A span would be a trace in the store that nobody asked for, so of traces the request is empty: path, token and
    form are tried all the same. No try is repeated; the whole takes little longer than `timeout_s`.
    """
    asked = list(destinations)
    found: list[Probed | None] = [None] * len(asked)

    def ask(place: int) -> None:
        found[place] = _ask(asked[place], timeout_s, clock)

    threads = [
        threading.Thread(target=ask, args=(place,), name="otel-train-probe", daemon=True) for place in range(len(asked))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [probed for probed in found if probed is not None]


def _ask(destination: Destination, timeout_s: float, clock: Clock) -> Probed:
    timeout_s = min(timeout_s, destination.timeout_s)
    transport = open_transport(replace(destination, timeout_s=timeout_s), clock)
    began_ns, began_wall_ns = clock.mono_ns(), clock.wall_ns()
    try:
        body = transport.encode(_parts(destination.signal, began_wall_ns))
        answer = transport.post(body, timeout_s, threading.Event())
    except Exception as fault:  # noqa: BLE001 - a doctor says what is wrong, also with itself
        answer = Answer(Verdict.REFUSED, shortened(f"{type(fault).__name__}: {fault}"))
    finally:
        transport.close()
    took_s = (clock.mono_ns() - began_ns) / NS_PER_S
    ahead_s = _ahead_s(transport, began_wall_ns / NS_PER_S + took_s / 2)
    return Probed(destination, answer, took_s, ahead_s, _DATE_ERROR_S + took_s / 2)


def _parts(signal: str, now_ns: int) -> Sequence[bytes]:
    encoder = LineEncoder(RESOURCE, __version__)
    if signal == "metrics":
        line = encoder.samples(now_ns, now_ns, [Sample(METRIC, 1)])
    elif signal == "logs":
        entry = LogEntry(time_ns=now_ns, severity_number=_INFO, severity_text="INFO", body=RECORD)
        line = encoder.logs([entry])
    else:
        return ()
    return (line[len(PREFIXES[signal]) : -len(SUFFIX)],)


def _ahead_s(transport: Transport, middle_s: float) -> float | None:
    """Compare the middle of the request with the answer's Date; gRPC and some servers say none."""
    said = getattr(transport, "date", "")
    try:
        return middle_s - (parsedate_to_datetime(said).timestamp() + _DATE_ERROR_S) if said else None
    except (ValueError, TypeError, OverflowError):
        return None
