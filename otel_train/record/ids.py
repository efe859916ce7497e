"""Draws trace and span ids from the operating system: equal seeds give different ids, and a fork needs no renewal."""

from __future__ import annotations

import os


def new_trace_id() -> int:
    """Return a random 128-bit id that is not zero."""
    return int.from_bytes(os.urandom(16), "big") or new_trace_id()


def new_span_id() -> int:
    """Return a random 64-bit id that is not zero."""
    return int.from_bytes(os.urandom(8), "big") or new_span_id()
