"""The console shows log entries as readable lines or as strict JSON, and can never end a training."""

from __future__ import annotations

import io
import json
import logging
import sys

import numpy as np
import pytest
from list_sink import ListSink, fail

from otel_train.clock import local_time
from otel_train.record.entries import AttributeValue, LogEntry
from otel_train.sources.console import Console, json_line, pretty_line
from otel_train.sources.log_context import LogContext
from otel_train.sources.logging_source import LoggingSource
from otel_train.sources.output import OutputSource

TIME_NS = 1_700_000_000_123_456_789


def entry(severity_number: int = 13, level: str = "WARNING", **attributes: AttributeValue) -> LogEntry:
    return LogEntry(
        time_ns=TIME_NS,
        severity_number=severity_number,
        severity_text=level,
        body="loss is high",
        attributes={"log.logger": "train", **attributes},
        trace_id=0xAB,
        span_id=0xCD,
    )


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def strict(text: str) -> dict[str, object]:
    def refuse(token: str) -> None:
        raise ValueError(token)

    parsed = json.loads(text, parse_constant=refuse)
    assert isinstance(parsed, dict)
    return parsed


def test_pretty_line_has_time_level_message_step_and_attributes() -> None:
    """One line, without colour away from a terminal, and without what only a machine needs."""
    line = pretty_line(
        entry(**{"dl.step": 12, "dl.epoch": 3, "lr": 0.1, "note": "a\nb", "code.file.path": "/x.py"}), color=False
    )
    assert line == f"{local_time(TIME_NS)} WARNING  loss is high step=12 epoch=3 lr=0.1 note=a\\nb (train)"


def test_pretty_line_shows_an_exception_below() -> None:
    """The stack trace follows in full."""
    line = pretty_line(entry(**{"exception.stacktrace": "Traceback …\nValueError: x"}), color=False)
    assert line.endswith("(train)\nTraceback …\nValueError: x")


@pytest.mark.parametrize(
    ("stream", "environ", "colored"),
    [
        (Terminal(), {}, True),
        (Terminal(), {"NO_COLOR": "1"}, False),
        (io.StringIO(), {}, False),
    ],
)
def test_colour_only_on_a_terminal_and_never_against_the_users_wish(
    stream: io.StringIO, environ: dict[str, str], colored: bool
) -> None:
    """A file gets no codes, nor does a terminal whose user says no."""
    Console("pretty", stream=lambda: stream, environ=environ).emit_log(entry(17, "ERROR"))
    assert ("\x1b[31mERROR" in stream.getvalue()) == colored
    assert ("\x1b" in stream.getvalue()) == colored


def test_json_line_is_strict_and_complete() -> None:
    """Non-finite numbers become texts, ids hex, bytes base64, NumPy numbers numbers."""
    made = entry(
        nan=float("nan"),
        inf=[float("inf"), float("-inf"), 1.5],
        f32=np.float32(0.5),  # type: ignore[arg-type]
        f64=np.float64(0.25),
        flag=True,
        raw=b"\x00\xff",
        deep={"a": [1, {"b": "ü"}]},
        lone="a\ud800",
    )
    made.event_name = "health.nonfinite"
    line = json_line(made)
    assert "\n" not in line
    assert strict(line) == {
        "time": "2023-11-14T22:13:20.123456Z",
        "level": "WARNING",
        "severity_number": 13,
        "message": "loss is high",
        "event": "health.nonfinite",
        "trace_id": "000000000000000000000000000000ab",
        "span_id": "00000000000000cd",
        "attributes": {
            "log.logger": "train",
            "nan": "NaN",
            "inf": ["Infinity", "-Infinity", 1.5],
            "f32": 0.5,
            "f64": 0.25,
            "flag": True,
            "raw": "AP8=",
            "deep": {"a": [1, {"b": "ü"}]},
            "lone": "a?",
        },
    }


def test_level_holds_and_captured_output_is_not_printed_again() -> None:
    """Below the console's level nothing is printed, nor what the script has printed itself."""
    out = io.StringIO()
    console = Console("json", level="warning", stream=lambda: out)
    console.emit_log(entry(9, "INFO"))
    console.emit_log(entry(**{"log.iostream": "stdout"}))
    console.emit_log(entry(17, "ERROR"))
    assert [strict(line)["level"] for line in out.getvalue().splitlines()] == ["ERROR"]


def test_console_beside_captured_output_makes_no_second_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the console prints of a record or an event goes to the stream below, unrecorded."""
    out = io.StringIO()
    monkeypatch.setattr(sys, "stderr", out)
    console = Console("pretty")

    class Both(ListSink):
        def emit_log(self, entry: LogEntry) -> None:
            super().emit_log(entry)
            console.emit_log(entry)

    sink = Both()
    output = OutputSource(lambda: LogContext(sink), on_fault=fail)
    records = LoggingSource(lambda: LogContext(sink), on_fault=fail)
    output.install()
    records.install()
    logging.getLogger("test.console").error("once")
    console.emit_log(entry())
    print("plain", file=sys.stderr)
    records.uninstall()
    output.uninstall()
    assert sink.lines == ["once", "plain"]
    assert [line.split(" ", 1)[1] for line in out.getvalue().splitlines()[:2]] == [
        "ERROR    once (test.console)",
        "WARNING  loss is high (train)",
    ]
    assert out.getvalue().endswith("\nplain\n")


def test_a_console_that_is_gone_or_narrow_raises_nothing() -> None:
    """A closed stream is counted, an absent one ignored, and text that it cannot encode is escaped."""
    closed = io.StringIO()
    closed.close()
    console = Console("pretty", stream=lambda: closed)
    console.emit_log(entry())
    assert console.faults == 1
    Console("pretty", stream=lambda: None).emit_log(entry())
    raw = io.BytesIO()
    narrow = io.TextIOWrapper(raw, encoding="ascii", errors="strict")
    Console("json", stream=lambda: narrow).emit_log(entry(name="ünï"))
    attributes = strict(raw.getvalue().decode("ascii").replace("\\xfc", "\\u00fc").replace("\\xef", "\\u00ef"))[
        "attributes"
    ]
    assert attributes == {"log.logger": "train", "name": "ünï"}
