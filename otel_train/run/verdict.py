"""Decides how a run ended: what was said, else what is in flight, else that it finished."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from otel_train.errors import ConfigError
from otel_train.record.ids import new_span_id

# An exception's attribute: the runs that were opened while it was being handled already.
_SEEN = "__otel_train_seen__"
END_STATES = ("finished", "failed", "interrupted", "killed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How a run ended; `truncated` counts the spans that the end found open."""

    status: str
    reason: str | None
    fault: BaseException | None
    exit_code: int | None
    truncated: int


class Flight:
    """Tells an exception that ends a run from one that was being handled when the run was opened.

    The exception itself is marked: a reference would keep its frames, and tensors in them, alive for the whole run.
    """

    def __init__(self) -> None:
        self._mark = new_span_id()
        fault = sys.exc_info()[1]
        if fault is not None:
            fault.__dict__.setdefault(_SEEN, []).append(self._mark)

    def present(self) -> BaseException | None:
        """Return the exception that is being handled now, unless it was before the run."""
        fault = sys.exc_info()[1]
        if fault is None or self._mark in fault.__dict__.get(_SEEN, ()):
            return None
        return fault


def judge(
    status: str | None, reason: str | None, fault: BaseException | None, exit_code: int | None, *, terminated: bool
) -> tuple[str, str | None, int | None]:
    """Return status, reason and exit code of an end; `terminated` says that SIGTERM came shortly before."""
    if status is None and terminated:
        # The user's own handler brought the run to an end in good order; it did not end by itself.
        status, reason = "killed", reason or "SIGTERM"
    if isinstance(fault, SystemExit):
        exit_code = exit_code_of(fault.code)
        if exit_code and isinstance(fault.__context__, KeyboardInterrupt):
            # Who caught Ctrl-C and left in good order, as frameworks do.
            status, reason = status or "interrupted", reason or "KeyboardInterrupt"
    elif isinstance(fault, KeyboardInterrupt):
        status, reason = status or "interrupted", reason or "KeyboardInterrupt"
    elif fault is not None and not isinstance(fault, GeneratorExit):
        status = status or "failed"
        if status == "failed":
            reason = reason or f"{type(fault).__name__}: {message_of(fault)}"[:1000]
    if status is None and exit_code:
        status, reason = "failed", reason or f"sys.exit({exit_code})"
    return status or "finished", reason, exit_code


def check_status(status: str | None) -> None:
    """Raise ConfigError unless a run can end so."""
    if status is not None and status not in END_STATES:
        raise ConfigError("status", status, f"use one of {', '.join(END_STATES)}")


def exit_code_of(status: object) -> int:
    """Return the exit code that `sys.exit(status)` ends the process with."""
    if status is None:
        return 0
    return status if isinstance(status, int) else 1


def message_of(fault: BaseException) -> str:
    """Return the exception's text, or that it has none: a foreign `__str__` may raise itself."""
    try:
        return str(fault)
    except Exception as second:  # noqa: BLE001 - it must not take the place of the first
        return f"(its text cannot be read: {type(second).__name__})"
