"""Prints log entries to the console when asked for: one readable line each, or one JSON object each."""

from __future__ import annotations

import base64
import json
import math
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any, Literal, TextIO

from otel_train import semconv
from otel_train.clock import iso, local_time
from otel_train.record.entries import AttributeValue, LogEntry
from otel_train.sources.emission import EMISSION
from otel_train.sources.log_entry import level_number, severity_of
from otel_train.sources.output import untee

Style = Literal["pretty", "json"]

_DIM, _RED, _YELLOW, _GREEN, _BLUE, _BOLD_RED, _OFF = (
    f"\x1b[{code}m" for code in ("2", "31", "33", "32", "34", "1;31", "0")
)
# By the first severity number of a range.
_COLORS = ((21, _BOLD_RED), (17, _RED), (13, _YELLOW), (9, _GREEN), (5, _BLUE), (0, _DIM))
_MAX_PRETTY_VALUE_CHARS = 200
# Said elsewhere in the line, or of no use to somebody who watches.
_NOT_SHOWN = frozenset(
    {
        semconv.STEP,
        semconv.EPOCH,
        semconv.LOGGER,
        semconv.THREAD_NAME,
        semconv.CODE_FILE,
        semconv.CODE_LINE,
        semconv.CODE_FUNCTION,
        semconv.CODE_STACK,
        semconv.EXCEPTION_TYPE,
        semconv.EXCEPTION_MESSAGE,
        semconv.EXCEPTION_STACK,
        semconv.EVENT_NAME,
        semconv.RANK,
    }
)


def _current_stderr() -> TextIO | None:
    return sys.stderr


class Console:
    """Prints entries at or above its level; the user's own handlers print beside it.

    `stream` is asked at each entry, so that a replaced `sys.stderr` counts. `color` None means: on a terminal, and
    where the environment has no `NO_COLOR`. What the script printed itself is not printed again.
    """

    def __init__(
        self,
        style: Style,
        *,
        level: str | int = "INFO",
        stream: Callable[[], TextIO | None] = _current_stderr,
        color: bool | None = None,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self._style = style
        self._severity_number = severity_of(level_number(level))
        self._stream = stream
        self._color = color
        self._no_color = bool(environ.get("NO_COLOR"))
        self.faults = 0

    def emit_log(self, entry: LogEntry) -> None:
        """Print one entry; never raises, and what it prints is not captured."""
        if entry.severity_number < self._severity_number or semconv.LOG_IOSTREAM in entry.attributes:
            return
        was_busy = EMISSION.busy
        EMISSION.busy = True
        try:
            stream = untee(self._stream())
            if stream is not None:
                self._print(entry, stream)
        except Exception:  # noqa: BLE001 - no print of ours may end a training
            # A console that has gone away (a closed pipe, a full disk) costs the line, not the run.
            self.faults += 1
        finally:
            EMISSION.busy = was_busy

    def _print(self, entry: LogEntry, stream: TextIO) -> None:
        if self._style == "json":
            text = json_line(entry)
        else:
            color = self._color
            if color is None:
                color = not self._no_color and stream.isatty()
            text = pretty_line(entry, color=color)
        try:
            stream.write(text + "\n")
        except UnicodeEncodeError:
            stream.write(text.encode("ascii", "backslashreplace").decode("ascii") + "\n")
        stream.flush()


def pretty_line(entry: LogEntry, *, color: bool) -> str:
    """Return an entry as one line (more where the message or an exception has more): time, level, message, the rest."""

    def tint(code: str, text: str) -> str:
        return f"{code}{text}{_OFF}" if color and text else text

    code = next(code for least, code in _COLORS if entry.severity_number >= least)
    parts = [
        tint(_DIM, local_time(entry.time_ns)),
        tint(code, f"{entry.severity_text:<8}"),
        _pretty_value(entry.body, None),
    ]
    attributes = entry.attributes
    shown = [f"{label}={_pretty_value(attributes[key], None)}" for label, key in _PLACE if key in attributes]
    shown += [
        f"{key}={_pretty_value(value, _MAX_PRETTY_VALUE_CHARS)}"
        for key, value in attributes.items()
        if key not in _NOT_SHOWN
    ]
    if shown:
        parts.append(tint(_DIM, " ".join(shown)))
    if logger := attributes.get(semconv.LOGGER) or entry.event_name:
        parts.append(tint(_DIM, f"({logger})"))
    line = " ".join(parts)
    stack = attributes.get(semconv.EXCEPTION_STACK)
    return f"{line}\n{stack}" if stack else line


_PLACE = (("step", semconv.STEP), ("epoch", semconv.EPOCH))


def _pretty_value(value: AttributeValue, max_chars: int | None) -> str:
    text = value if isinstance(value, str) else str(_plain(value))
    if max_chars is not None:
        text = text.replace("\n", "\\n")
        if len(text) > max_chars:
            text = text[:max_chars] + "…"
    return text


def json_line(entry: LogEntry) -> str:
    """Return an entry as one JSON object, valid for a strict parser: non-finite numbers are texts, bytes base64."""
    record: dict[str, Any] = {
        "time": iso(entry.time_ns),
        "level": entry.severity_text,
        "severity_number": entry.severity_number,
        "message": _plain(entry.body),
    }
    if entry.event_name:
        record["event"] = entry.event_name
    if entry.trace_id:
        record["trace_id"] = f"{entry.trace_id:032x}"
    if entry.span_id:
        record["span_id"] = f"{entry.span_id:016x}"
    if entry.attributes:
        record["attributes"] = _plain(entry.attributes)
    return json.dumps(record, ensure_ascii=False, allow_nan=False, separators=(", ", ": "))


def _plain(value: Any) -> Any:
    """Return a value in JSON's own types."""
    if isinstance(value, str):
        # A lone surrogate is written as its escape by no strict encoder.
        return value if value.isascii() else value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        number = float(value)
        if math.isfinite(number):
            return number
        return "NaN" if math.isnan(number) else ("Infinity" if number > 0 else "-Infinity")
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, Mapping):
        return {_plain(str(key)): _plain(member) for key, member in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(member) for member in value]
    item = getattr(value, "item", None)
    return _plain(item()) if callable(item) and getattr(value, "ndim", 0) == 0 else str(value)
