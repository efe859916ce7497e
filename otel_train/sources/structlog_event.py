"""Reads an event dictionary of structlog: what of it is message, what attributes, what exception."""

from __future__ import annotations

import sys
from typing import Any

from otel_train import semconv
from otel_train.record.entries import AttributeValue
from otel_train.sources.log_entry import (
    attributes_of,
    exception_attributes,
    formatted_exception_attributes,
    text_of,
)

# Said by fields of the record itself, or by the bridge to `logging` to itself.
_NOT_ATTRIBUTES = frozenset(
    {
        "event",
        "level",
        "level_number",
        "logger",
        "timestamp",
        "exc_info",
        "exception",
        "stack",
        "stack_info",
        "positional_args",
        "pathname",
        "lineno",
        "func_name",
        "thread_name",
        "_record",
        "_from_structlog",
    }
)

ExceptionInfo = tuple[Any, Any, Any]


def body_of(event: dict[str, Any]) -> str:
    """Return the message, positional arguments put in."""
    text = text_of(event.get("event", ""))
    arguments = event.get("positional_args")
    if arguments:
        try:
            return str(text % arguments)
        except (TypeError, ValueError, KeyError):
            return f"{text} {arguments!r}"
    return text


def active_exception(event: dict[str, Any]) -> ExceptionInfo | None:
    """Return the exception that the event is about, as `sys.exc_info()` gives it."""
    info = event.get("exc_info")
    if isinstance(info, BaseException):
        return (type(info), info, info.__traceback__)
    if isinstance(info, tuple) and len(info) == 3 and info[0] is not None:
        return info
    # A formatter among the processors has taken `exc_info` away and left the text: the exception is still there.
    if info or "exception" in event:
        current = sys.exc_info()
        return current if current[0] is not None else None
    return None


def event_attributes(event: dict[str, Any], exception: ExceptionInfo | None) -> dict[str, AttributeValue]:
    """Return everything else that the event says, with its exception."""
    attributes = attributes_of({key: value for key, value in event.items() if key not in _NOT_ATTRIBUTES})
    stack = event.get("stack")
    if isinstance(stack, str):
        attributes[semconv.CODE_STACK] = stack
    formatted = event.get("exception")
    text = formatted if isinstance(formatted, str) else None
    if exception is not None:
        attributes.update(exception_attributes(*exception, stack=text))
    elif text is not None:
        attributes.update(formatted_exception_attributes(text))
    elif isinstance(formatted, list) and formatted and isinstance(formatted[0], dict):
        # Structured tracebacks: the last entry is the exception that was raised, the others its causes.
        attributes[semconv.EXCEPTION_TYPE] = text_of(formatted[-1].get("exc_type", ""))
        attributes[semconv.EXCEPTION_MESSAGE] = text_of(formatted[-1].get("exc_value", ""))
    return attributes
