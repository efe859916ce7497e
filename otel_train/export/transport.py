"""What every way to an endpoint has in common: one request goes out, one answer comes back, in bounded time."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

from otel_train.clock import NS_PER_S, Clock
from otel_train.export.destination import GRPC, Destination

# How long a request that is under way may go on once it was told to stop: it may be arriving.
STOP_GRACE_S = 1.0
# How soon a stop is noticed while a request is under way; its end is noticed at once.
_LOOK_S = 0.05
MAX_TEXT_CHARS = 300


class Verdict(Enum):
    """What an answer means for the data."""

    ACCEPTED = "accepted"
    # The server or the network cannot do it now.
    RETRY = "retry"
    # The server does not take it from us or not there (401, 404): no judgement of the data, and a person must act.
    MISDIRECTED = "misdirected"
    TOO_LARGE = "too large"
    # Something in the data is not accepted, now or ever.
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer. `rejected` counts what a partial success left out, with `text` as its reason."""

    verdict: Verdict
    text: str = ""
    rejected: int = 0
    retry_after_s: float | None = None


class Transport(Protocol):
    """One way to one endpoint. Used by one thread at a time."""

    def encode(self, parts: Sequence[bytes]) -> bytes:
        """Return the body of a request that holds these parts; ValueError where a part cannot be read."""
        ...

    def post(self, body: bytes, timeout_s: float, stop: threading.Event) -> Answer:
        """Send one request and wait for its answer, `timeout_s` at most; never raises."""
        ...

    def close(self) -> None:
        """Give the connections back."""
        ...


def open_transport(destination: Destination, clock: Clock) -> Transport:
    """Return the transport for the destination's protocol; nothing is connected before the first request."""
    # Each is imported only where it is used: urllib3 takes 50 ms, gRPC 200.
    if destination.protocol == GRPC:
        from otel_train.export.grpc_transport import GrpcTransport

        return GrpcTransport(destination, clock)
    from otel_train.export.http_transport import HttpTransport

    return HttpTransport(destination, clock)


def wait_for(ended: threading.Event, timeout_s: float, stop: threading.Event, clock: Clock) -> bool:
    """Wait until `ended`, for `timeout_s` at most, and for STOP_GRACE_S at most once `stop` is set."""
    until_ns = clock.mono_ns() + int(timeout_s * NS_PER_S)
    stopped = stop.is_set()
    if stopped:
        until_ns = min(until_ns, clock.mono_ns() + int(STOP_GRACE_S * NS_PER_S))
    while True:
        left_s = (until_ns - clock.mono_ns()) / NS_PER_S
        if ended.wait(max(0.0, min(left_s, _LOOK_S if not stopped else left_s))):
            return True
        if left_s <= 0:
            return ended.is_set()
        if not stopped and stop.is_set():
            stopped = True
            until_ns = min(until_ns, clock.mono_ns() + int(STOP_GRACE_S * NS_PER_S))


def unobserved() -> Any:
    """Mark this thread's context so that the user's instrumentations make no spans of what we send.

    A span of a request would be recorded, sent, and make the next span. Returns the token for `observed_again`.
    """
    from opentelemetry import context

    key = getattr(context, "_SUPPRESS_INSTRUMENTATION_KEY", "suppress_instrumentation")
    return context.attach(context.set_value("suppress_instrumentation", True, context.set_value(key, True)))


def observed_again(token: Any) -> None:
    """Undo `unobserved`."""
    from opentelemetry import context

    context.detach(token)


def shortened(text: str) -> str:
    """Return a text in one line that fits a message, without what no screen shows."""
    text = " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
    return text if len(text) <= MAX_TEXT_CHARS else text[: MAX_TEXT_CHARS - 1] + "…"
