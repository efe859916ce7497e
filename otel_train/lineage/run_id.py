"""Draws ids from the operating system, never from a random state that the user seeds."""

from __future__ import annotations

import base64
import os
import uuid
from collections.abc import Callable
from typing import Final

from otel_train.clock import Clock, compact

# Names this project's ids within UUIDv5; any fixed value would do, and it must never change.
_NAMESPACE: Final = uuid.UUID("6f1d3a62-6f2e-5a7e-9c55-0b0c7f8f6a11")


def new_run_id(clock: Clock, urandom: Callable[[int], bytes] = os.urandom) -> str:
    """Return `YYYYMMDD-HHMMSS-xxxxxxxx`: UTC, and 40 random bits as eight characters of a-z and 2-7."""
    return f"{compact(clock.wall_ns())}-{base64.b32encode(urandom(5)).decode('ascii').lower()}"


def service_instance_id(run_id: str, rank: int) -> str:
    """Return the UUID that tells this rank of this run apart, the same in every attempt."""
    return str(uuid.uuid5(_NAMESPACE, f"{run_id}/{rank}"))


def new_trace_id(urandom: Callable[[int], bytes] = os.urandom) -> int:
    """Return 128 random bits, not all zero."""
    return _nonzero(urandom, 16)


def new_span_id(urandom: Callable[[int], bytes] = os.urandom) -> int:
    """Return 64 random bits, not all zero."""
    return _nonzero(urandom, 8)


def _nonzero(urandom: Callable[[int], bytes], size: int) -> int:
    while not (value := int.from_bytes(urandom(size), "big")):
        pass
    return value
