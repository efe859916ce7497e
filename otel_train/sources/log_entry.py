"""Builds log entries: levels as severities, anything as an attribute value of bounded size, exceptions, redaction."""

from __future__ import annotations

import logging
import re
import traceback
from collections.abc import Callable, Mapping
from itertools import islice
from types import TracebackType
from typing import Any

from otel_train import semconv
from otel_train.record.entries import AttributeValue, LogEntry

# Loki refuses a record whose attributes pass 64 KiB together; a stack trace is the largest of them.
MAX_BODY_CHARS = 32_768
MAX_STACK_CHARS = 24_576
MAX_VALUE_CHARS = 8_192
MAX_KEY_CHARS = 128
MAX_ATTRIBUTES = 128
MAX_ITEMS = 128
MAX_DEPTH = 4
REDACTED = "[redacted]"
# How far a cut moves back to the end of a word: half a secret would pass by what knows secrets by their shape.
_CUT_BACK_CHARS = 256

_LEVELS = {"TRACE": 5, "SUCCESS": 25, "WARN": 30, "FATAL": 50, "EXCEPTION": 40}


def level_number(level: str | int) -> int:
    """Return a level on the scale of `logging` by its name in any case, also one the user has added; else KeyError."""
    if isinstance(level, int):
        return level
    upper = level.strip().upper()
    if upper in _LEVELS:
        return _LEVELS[upper]
    known = logging.getLevelNamesMapping()
    if upper in known:
        return known[upper]
    return known[level]


def severity_of(levelno: int) -> int:
    """Return OpenTelemetry's severity number, 1 to 24, of a level on the scale of `logging` and loguru.

    Each ten is a range of four: 20 is INFO (9), 25 (loguru's SUCCESS) is INFO3 (11).
    """
    if levelno < 10:
        return 1
    tens, rest = divmod(min(levelno, 59), 10)
    return 1 + 4 * tens + rest * 4 // 10


def bounded(text: str, max_chars: int) -> str:
    """Return a text of at most about `max_chars` characters, with a mark where its end was cut."""
    if len(text) <= max_chars:
        return text
    cut = max(text.rfind(" ", max_chars - _CUT_BACK_CHARS, max_chars), 0) or max_chars
    return f"{text[:cut]}… ({len(text) - cut} characters left out)"


def bounded_stack(text: str) -> str:
    """Return a stack trace of bounded size: its middle goes, since cause and place are at its ends."""
    if len(text) <= MAX_STACK_CHARS:
        return text
    head = text.rfind("\n", 0, MAX_STACK_CHARS // 4) + 1
    tail = text.find("\n", len(text) - MAX_STACK_CHARS * 3 // 4) + 1
    tail = tail or len(text) - MAX_STACK_CHARS * 3 // 4
    return f"{text[:head]}… ({tail - head} characters left out)\n{text[tail:]}"


# Codes of terminals: colours, cursor moves, titles.
_CODE = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[PX^_][^\x1b]*\x1b\\|\x1b[ -/]*[0-~]?"
)


def without_codes(text: str) -> str:
    """Return a text without codes for terminals; a carriage return is the end of a line."""
    return _CODE.sub("", text).replace("\r\n", "\n").replace("\r", "\n").strip("\n")


def text_of(value: object) -> str:
    """Return `str(value)`, whatever the value's own method does."""
    try:
        return str(value)
    except Exception as fault:  # noqa: BLE001 - a user's class may raise anything
        return f"<{type(value).__name__} whose text raised {type(fault).__name__}>"


def attribute_value(value: Any, depth: int = 0) -> AttributeValue | None:
    """Return a value as one of an attribute's types, frozen now and of bounded size; None where there is none.

    A tensor on a device is described, never read: that would make the training thread wait for the device.
    """
    kind = type(value)
    if kind is str:
        return bounded(value, MAX_VALUE_CHARS)
    if kind is bool or kind is int or kind is float:
        return value  # type: ignore[no-any-return]
    if value is None:
        return None
    if isinstance(value, bytes | bytearray):
        return bytes(value[:MAX_VALUE_CHARS])
    if isinstance(value, str):
        return bounded(str.__str__(value), MAX_VALUE_CHARS)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, int):
        return int(value)
    if depth < MAX_DEPTH:
        if isinstance(value, Mapping):
            pairs = ((bounded(text_of(k), MAX_KEY_CHARS), v) for k, v in islice(value.items(), MAX_ITEMS))
            return {key: frozen for key, v in pairs if (frozen := attribute_value(v, depth + 1)) is not None}
        if isinstance(value, list | tuple | set | frozenset):
            members = (attribute_value(member, depth + 1) for member in islice(value, MAX_ITEMS))
            return [member for member in members if member is not None]
    return _foreign_value(value, kind)


def _foreign_value(value: Any, kind: type) -> AttributeValue:
    package = kind.__module__.partition(".")[0]
    if package == "numpy" and getattr(value, "ndim", None) == 0:
        item = value.item()
        return item if isinstance(item, bool | int | float | str | bytes) else text_of(item)
    if package == "torch" and hasattr(value, "device") and hasattr(value, "dtype"):
        if value.device.type == "cpu" and value.numel() == 1:
            item = value.item()
            return item if isinstance(item, bool | int | float) else text_of(item)
        return f"tensor of shape {tuple(value.shape)}, {value.dtype}, {value.device}"
    return bounded(text_of(value), MAX_VALUE_CHARS)


def attributes_of(values: Mapping[Any, Any]) -> dict[str, AttributeValue]:
    """Return a mapping as attributes: None left out, others frozen; what is over the bound is counted."""
    attributes: dict[str, AttributeValue] = {}
    left_out = 0
    for key, value in values.items():
        if len(attributes) >= MAX_ATTRIBUTES:
            left_out += 1
            continue
        frozen = attribute_value(value)
        if frozen is not None:
            if type(key) is not str or len(key) > MAX_KEY_CHARS:
                key = bounded(text_of(key), MAX_KEY_CHARS)
            attributes[key] = frozen
    if left_out:
        attributes[semconv.ATTRIBUTES_LEFT_OUT] = left_out
    return attributes


def type_name(kind: type) -> str:
    """Return a type's name with its module, as tracebacks write it."""
    if kind.__module__ in ("builtins", "__main__"):
        return kind.__qualname__
    return f"{kind.__module__}.{kind.__qualname__}"


def exception_attributes(
    kind: type[BaseException] | None,
    value: BaseException | None,
    trace: TracebackType | None,
    stack: str | None = None,
) -> dict[str, AttributeValue]:
    """Return type, message and stack trace of an exception; `stack` where the user has formatted it already."""
    attributes: dict[str, AttributeValue] = {}
    if kind is not None:
        attributes[semconv.EXCEPTION_TYPE] = type_name(kind)
        attributes[semconv.EXCEPTION_MESSAGE] = bounded(text_of(value), MAX_VALUE_CHARS)
        if stack is None:
            stack = "".join(traceback.format_exception(kind, value, trace))
    if stack:
        attributes[semconv.EXCEPTION_STACK] = bounded_stack(stack.strip("\n"))
    return attributes


# The last line of a traceback that somebody else has formatted: "torch.cuda.OutOfMemoryError: …".
_LAST_LINE = re.compile(r"^([A-Za-z_][\w.]*)(?:: (.*))?$", re.ASCII)


def formatted_exception_attributes(stack: str) -> dict[str, AttributeValue]:
    """Return the attributes of an exception of which only the formatted text is left."""
    attributes: dict[str, AttributeValue] = {semconv.EXCEPTION_STACK: bounded_stack(stack.strip("\n"))}
    for line in reversed(stack.splitlines()):
        match = _LAST_LINE.match(line)
        if match:
            attributes[semconv.EXCEPTION_TYPE] = match[1]
            attributes[semconv.EXCEPTION_MESSAGE] = bounded(match[2] or "", MAX_VALUE_CHARS)
            break
    return attributes


def redact_entry(
    entry: LogEntry, redact: Callable[[str], str] | None, is_secret_key: Callable[[str, object], bool] | None = None
) -> None:
    """Replace secrets in the body and in attribute values, nested ones too, in place."""
    if redact is None and is_secret_key is None:
        return
    entry.body = _redacted(entry.body, redact, is_secret_key)
    entry.attributes = {
        key: REDACTED if is_secret_key and is_secret_key(key, value) else _redacted(value, redact, is_secret_key)
        for key, value in entry.attributes.items()
    }


def _redacted(
    value: AttributeValue, redact: Callable[[str], str] | None, is_secret_key: Callable[[str, object], bool] | None
) -> AttributeValue:
    if isinstance(value, str):
        return redact(value) if redact else value
    if isinstance(value, bool | int | float | bytes):
        return value
    if isinstance(value, Mapping):
        return {
            key: REDACTED if is_secret_key and is_secret_key(key, member) else _redacted(member, redact, is_secret_key)
            for key, member in value.items()
        }
    return [_redacted(member, redact, is_secret_key) for member in value]
