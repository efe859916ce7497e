"""Records of `logging` arrive complete and once, and the user's logging behaves as if nothing were there."""

from __future__ import annotations

import contextvars
import io
import logging
import logging.config
import os
import subprocess
import sys
import textwrap
import threading
import time
import warnings
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from list_sink import FixedClock, ListSink, fail

from otel_train.record.entries import LogEntry
from otel_train.sources.flood import FloodGate
from otel_train.sources.log_context import LevelSink, LogContext
from otel_train.sources.log_entry import attribute_value, bounded, level_number, redact_entry, severity_of
from otel_train.sources.logging_source import LoggingSource

LOGGER = logging.getLogger("test.logging_source")


@pytest.fixture
def sink() -> ListSink:
    return ListSink()


@pytest.fixture
def source(sink: ListSink) -> Iterator[LoggingSource]:
    source = LoggingSource(lambda: LogContext(sink, {"dl.step": 7, "dl.epoch": 2}, 0xAB, 0xCD), on_fault=fail)
    source.install()
    before = LOGGER.level
    LOGGER.setLevel(logging.DEBUG)
    yield source
    LOGGER.setLevel(before)
    source.uninstall()


def run_script(text: str) -> subprocess.CompletedProcess[str]:
    """Run a script whose records are captured from its first line on; `bodies` is what was recorded."""
    start = """
        import logging, logging.config, sys, warnings
        from otel_train.sources.logging_source import LoggingSource
        from otel_train.sources.log_context import LogContext
        class Sink:
            def emit_log(self, entry): bodies.append(entry.body)
        bodies = []
        source = LoggingSource(lambda: LogContext(Sink()))
        if sys.argv[1] == "on": source.install()
    """
    end = """
        if sys.argv[1] == "on": source.uninstall(); print(bodies)
    """
    script = "".join(textwrap.dedent(part) for part in (start, text, end))
    on, off = (
        subprocess.run([sys.executable, "-c", script, mode], capture_output=True, text=True, check=True)
        for mode in ("on", "off")
    )
    assert on.stderr == off.stderr, "the console changed"
    return on


def test_record_arrives_with_level_message_place_thread_step_and_ids(source: LoggingSource, sink: ListSink) -> None:
    """Everything that `logging` knows of a record, and everything that the run knows, is in the entry."""
    before_ns = time.time_ns()
    LOGGER.warning("loss %.2f at %s", 0.5, "start", extra={"lr": 1e-3, "tags": ["a", None, 1]})
    (entry,) = sink.entries
    assert entry.body == "loss 0.50 at start"
    assert (entry.severity_number, entry.severity_text) == (13, "WARNING")
    assert (entry.trace_id, entry.span_id) == (0xAB, 0xCD)
    assert abs(entry.time_ns - before_ns) < 1_000_000_000
    assert entry.observed_time_ns >= before_ns
    line = entry.attributes["code.line.number"]
    assert Path(__file__).read_text(encoding="utf-8").splitlines()[line - 1].strip().startswith("LOGGER.warning(")
    assert entry.attributes == {
        "lr": 1e-3,
        "tags": ["a", 1],
        "log.logger": "test.logging_source",
        "code.file.path": __file__,
        "code.line.number": line,
        "code.function.name": "test_record_arrives_with_level_message_place_thread_step_and_ids",
        "thread.name": "MainThread",
        "dl.step": 7,
        "dl.epoch": 2,
    }


def test_exception_arrives_with_type_message_and_traceback(source: LoggingSource, sink: ListSink) -> None:
    """`logger.exception` carries the whole chain of causes."""

    def load() -> None:
        try:
            open("/nonexistent/file")  # noqa: SIM115
        except OSError as cause:
            raise RuntimeError("no data") from cause

    try:
        load()
    except RuntimeError:
        LOGGER.exception("failed", stack_info=True)
    (entry,) = sink.entries
    assert entry.severity_text == "ERROR"
    assert entry.attributes["exception.type"] == "RuntimeError"
    assert entry.attributes["exception.message"] == "no data"
    stack = entry.attributes["exception.stacktrace"]
    assert isinstance(stack, str)
    assert stack.startswith("Traceback (most recent call last):")
    assert "FileNotFoundError" in stack
    assert stack.endswith("RuntimeError: no data")
    assert "in test_exception_arrives" in str(entry.attributes["code.stacktrace"])


def test_records_below_the_level_and_own_diagnostics_stay_out(sink: ListSink) -> None:
    """The threshold holds, custom levels keep their name, and otel-train does not record itself."""
    logging.addLevelName(25, "METRIC")
    source = LoggingSource(lambda: LogContext(sink), level="metric", on_fault=fail)
    source.install()
    LOGGER.setLevel(1)
    try:
        LOGGER.info("no")
        LOGGER.log(25, "yes")
        logging.getLogger("otel_train").error("own")
        logging.getLogger("otel_train.writer").error("own")
        logging.getLogger("otel_trainer").error("theirs")
    finally:
        LOGGER.setLevel(logging.NOTSET)
        source.uninstall()
        logging.addLevelName(25, "Level 25")
    assert [(entry.severity_text, entry.severity_number, entry.body) for entry in sink.entries] == [
        ("METRIC", 11, "yes"),
        ("ERROR", 17, "theirs"),
    ]


def test_three_runs_have_five_records_each_and_leave_nothing_behind() -> None:
    """Handlers, levels, descriptors and methods after three runs are those before: no record is written twice."""
    root = logging.getLogger()
    before = (root.handlers[:], root.level, LOGGER.level, LOGGER.propagate, root.filters[:])
    had_own_method = "filter" in logging.Logger.__dict__
    descriptors = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").exists() else 0
    sinks = [ListSink() for _ in range(3)]
    for number, sink in enumerate(sinks):
        source = LoggingSource(lambda sink=sink: LogContext(sink), on_fault=fail)
        source.install()
        source.install()
        for record in range(5):
            LOGGER.error("run %d record %d", number, record)
        source.uninstall()
        source.uninstall()
    LOGGER.error("after")
    assert [sink.lines for sink in sinks] == [[f"run {n} record {r}" for r in range(5)] for n in range(3)]
    assert (root.handlers, root.level, LOGGER.level, LOGGER.propagate, root.filters) == before
    assert ("filter" in logging.Logger.__dict__) == had_own_method
    if descriptors:
        assert len(os.listdir("/proc/self/fd")) == descriptors


def test_records_follow_the_context_of_their_thread() -> None:
    """Two runs in two threads have their own records only, and one goes on after the other's end."""
    current: contextvars.ContextVar[ListSink | None] = contextvars.ContextVar("current", default=None)

    def context() -> LogContext | None:
        sink = current.get()
        return None if sink is None else LogContext(sink)

    source = LoggingSource(context, on_fault=fail)
    source.install()
    sinks = {"A": ListSink(), "B": ListSink()}
    turn = threading.Barrier(2, timeout=20)

    def work(name: str) -> None:
        current.set(sinks[name])
        for number in range(100):
            if number < 50:
                turn.wait()
            LOGGER.error("%s %d", name, number)

    threads = [threading.Thread(target=work, args=(name,)) for name in sinks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    LOGGER.error("of no run")
    source.uninstall()
    assert sinks["A"].lines == [f"A {number}" for number in range(100)]
    assert sinks["B"].lines == [f"B {number}" for number in range(100)]


def test_records_of_loggers_that_do_not_propagate_arrive(source: LoggingSource, sink: ListSink) -> None:
    """Libraries that keep their records from the root logger are recorded like any other."""
    logger = logging.getLogger("test.alone")
    logger.propagate = False
    logger.addHandler(logging.NullHandler())
    logger.warning("alone")
    assert sink.lines == ["alone"]


def test_disabled_and_filtered_records_stay_out(source: LoggingSource, sink: ListSink) -> None:
    """What the user's own filters and switches refuse is not recorded."""
    logger = logging.getLogger("test.filtered")
    logger.addFilter(lambda record: "secret" not in record.getMessage())
    logger.error("a secret")
    logger.error("open")
    logger.disabled = True
    logger.error("disabled")
    logger.disabled = False
    assert sink.lines == ["open"]


@pytest.mark.slow
def test_basic_config_after_install_still_gives_a_console() -> None:
    """`basicConfig()` does what it does without us, also with force, and capture goes on."""
    result = run_script("""
        logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
        logging.info("one")
        logging.basicConfig(level=logging.INFO, format="again %(message)s", force=True)
        logging.info("two")
    """)
    assert result.stderr == "INFO one\nagain two\n"
    assert result.stdout == "['one', 'two']\n"


@pytest.mark.slow
def test_handler_of_last_resort_still_prints() -> None:
    """Warnings without any configuration reach stderr, and captured warnings stay the user's choice."""
    result = run_script("""
        logging.getLogger("a").warning("plain")
        logging.getLogger("a").info("silent")
        logging.captureWarnings(True)
        warnings.warn("deprecated")
    """)
    # Captured warnings go to a logger whose only handler is a null handler: nothing on the console, by Python's rule.
    assert result.stderr == "plain\n"
    assert result.stdout.startswith("['plain', '<string>")
    assert "silent" not in result.stdout


@pytest.mark.slow
def test_dict_config_after_install_does_not_end_the_recording() -> None:
    """A configuration that replaces all handlers and disables old loggers loses only what it disables."""
    result = run_script("""
        old = logging.getLogger("old")
        logging.config.dictConfig({
            "version": 1, "disable_existing_loggers": True,
            "handlers": {"h": {"class": "logging.StreamHandler"}},
            "root": {"level": "INFO", "handlers": ["h"]},
        })
        old.error("disabled")
        logging.getLogger("new").info("kept")
    """)
    assert result.stderr == "kept\n"
    assert result.stdout == "['kept']\n"


@pytest.mark.slow
def test_errors_of_user_handlers_print_what_they_always_printed() -> None:
    """A message whose arguments do not fit prints the same report, and is recorded with its parts."""
    result = run_script("""
        logging.basicConfig()
        logging.warning("%d items", "no")
    """)
    assert "--- Logging error ---" in result.stderr
    assert "otel_train" not in result.stderr
    assert result.stdout == """["%d items ('no',)"]\n"""


def test_record_passed_on_by_a_queue_is_recorded_once(source: LoggingSource, sink: ListSink) -> None:
    """A queue's listener hands records to handlers, not to loggers, so nothing comes twice."""
    from logging.handlers import QueueHandler, QueueListener
    from queue import SimpleQueue

    queue: SimpleQueue[Any] = SimpleQueue()
    out = logging.StreamHandler(io.StringIO())
    handler = QueueHandler(queue)
    listener = QueueListener(queue, out)
    listener.start()
    LOGGER.addHandler(handler)
    LOGGER.error("queued")
    listener.stop()
    LOGGER.removeHandler(handler)
    assert out.stream.getvalue() == "queued\n"
    assert sink.lines == ["queued"]


def test_hook_of_somebody_else_around_ours_is_left_in_place(sink: ListSink) -> None:
    """After uninstall theirs still works, ours within it does nothing, and a second install records once."""
    original = logging.Logger.__dict__.get("filter")
    source = LoggingSource(lambda: LogContext(sink), on_fault=fail)
    source.install()
    ours = logging.Logger.filter
    seen: list[str] = []

    def theirs(logger: logging.Logger, record: logging.LogRecord) -> Any:
        seen.append(record.getMessage())
        return ours(logger, record)

    logging.Logger.filter = theirs  # type: ignore[method-assign]
    try:
        source.uninstall()
        LOGGER.error("between")
        source.install()
        LOGGER.error("again")
        source.uninstall()
    finally:
        if original is None:
            del logging.Logger.filter
        else:
            logging.Logger.filter = original  # type: ignore[method-assign]
    assert seen == ["between", "again"]
    assert sink.lines == ["again"]


def test_fault_within_is_swallowed_and_counted() -> None:
    """Neither the context nor the sink can raise into the user's call, and recursion ends at once."""

    class BrokenSink(ListSink):
        def emit_log(self, entry: LogEntry) -> None:
            LOGGER.error("from within")
            raise OSError("disk")

    source = LoggingSource(lambda: LogContext(BrokenSink()))
    source.install()
    LOGGER.error("outer")
    source.uninstall()
    assert source.faults == 1


def test_values_become_attribute_types_of_bounded_size(source: LoggingSource, sink: ListSink) -> None:
    """NumPy numbers become numbers, foreign objects text, long text is cut with a mark, and None is left out."""

    class Color(Enum):
        RED = 1

    class Unprintable:
        def __str__(self) -> str:
            raise ValueError

    extra = {
        "f32": np.float32(0.5),
        "f64": np.float64(0.25),
        "i": np.int64(3),
        "flag": np.bool_(True),
        "path": Path("/a/b"),
        "color": Color.RED,
        "nothing": None,
        "nested": {"a": (1, {"b": [None, 2]})},
        "long": "x" * 9_000,
        "odd": Unprintable(),
        "raw": b"\x00\xff",
    }
    LOGGER.error("values", extra=extra)
    attributes = sink.entries[0].attributes
    assert {key: attributes.get(key) for key in extra} == {
        "f32": 0.5,
        "f64": 0.25,
        "i": 3,
        "flag": True,
        "path": "/a/b",
        "color": "Color.RED",
        "nothing": None,
        "nested": {"a": [1, {"b": [2]}]},
        "long": "x" * 8_192 + "… (808 characters left out)",
        "odd": "<Unprintable whose text raised ValueError>",
        "raw": b"\x00\xff",
    }
    assert type(attributes["f64"]) is float
    assert "nothing" not in attributes


def test_too_many_attributes_are_counted(source: LoggingSource, sink: ListSink) -> None:
    """A record carries at most 128 attributes of the user's, and says how many are missing."""
    LOGGER.error("wide", extra={f"key_{number}": number for number in range(200)})
    attributes = sink.entries[0].attributes
    assert attributes["key_127"] == 127
    assert "key_128" not in attributes
    assert attributes["otel_train.attributes_left_out"] == 72


def test_tensors_are_described_and_never_read_from_a_device() -> None:
    """A number on the CPU is that number; anything else is told by shape, type and device."""
    torch = pytest.importorskip("torch")
    assert attribute_value(torch.tensor(1.5)) == 1.5
    assert attribute_value(torch.zeros(2, 3)) == "tensor of shape (2, 3), torch.float32, cpu"
    assert attribute_value(torch.empty(1, device="meta")) == "tensor of shape (1,), torch.float32, meta"


def test_secrets_are_redacted_in_body_values_and_exceptions(sink: ListSink) -> None:
    """The given function sees every text, and keys that name a secret lose their value."""
    source = LoggingSource(
        lambda: LogContext(sink),
        redact=lambda text: text.replace("tok-123", "[redacted]"),
        is_secret_key=lambda key, value: key == "password" and value,
        on_fault=fail,
    )
    source.install()
    try:
        raise ValueError("bad tok-123")
    except ValueError:
        LOGGER.exception(
            "use %s", "tok-123", extra={"password": "hunter2", "deep": {"password": 1, "url": ["u?tok-123"]}}
        )
    finally:
        source.uninstall()
    (entry,) = sink.entries
    assert entry.body == "use [redacted]"
    assert entry.attributes["password"] == "[redacted]"
    assert entry.attributes["deep"] == {"password": "[redacted]", "url": ["u?[redacted]"]}
    assert entry.attributes["exception.message"] == "bad [redacted]"
    assert "tok-123" not in repr(entry)
    redact_entry(entry, None)
    assert entry.body == "use [redacted]"


def test_flood_of_one_template_is_sampled_and_counted(sink: ListSink) -> None:
    """A thousand records of one template leave ten and a count; errors of another type are kept beside them."""
    clock = FixedClock(time.time_ns())
    gate = FloodGate(clock)
    source = LoggingSource(lambda: LogContext(sink), flood=gate, clock=clock, on_fault=fail)
    source.install()
    for number in range(1000):
        LOGGER.handle(
            logging.makeLogRecord(
                {
                    "name": "x",
                    "levelno": 30,
                    "levelname": "WARNING",
                    "msg": "bad sample %d",
                    "args": (number,),
                    "created": 1_000.0 + number / 2_000,
                }
            )
        )
    for kind in (ValueError, KeyError):
        LOGGER.error("failed", exc_info=kind("x"))
    gate.flush()
    source.uninstall()
    assert sink.lines == [f"bad sample {number}" for number in range(10)] + ["failed", "failed"]
    (report,) = sink.named("log.suppressed")
    assert report.attributes["log.suppressed.count"] == 990
    assert report.attributes["log.suppressed.template"] == "bad sample %d"


def test_long_traces_keep_both_ends_and_formatted_ones_their_type(source: LoggingSource, sink: ListSink) -> None:
    """Cause and place stay when the middle goes; of a record that was formatted elsewhere the type is read."""
    text = "Traceback (most recent call last):\n" + '  File "x.py", line 1, in f\n' * 2_000 + "a.b.CudaError: out"
    LOGGER.handle(
        logging.makeLogRecord({"name": "x", "levelno": 40, "levelname": "ERROR", "msg": "m", "exc_text": text})
    )
    attributes = sink.entries[0].attributes
    stack = str(attributes["exception.stacktrace"])
    assert stack.startswith("Traceback (most recent call last):\n  File")
    assert stack.endswith("a.b.CudaError: out")
    assert "characters left out)\n" in stack
    assert len(stack) < 25_000
    assert (attributes["exception.type"], attributes["exception.message"]) == ("a.b.CudaError", "out")


def test_subclasses_of_plain_types_become_plain() -> None:
    """Numbers and texts of the user's own classes are stored as the number or text that they are."""

    class Level(int):
        pass

    class Name(str):
        __slots__ = ()

    values = [attribute_value(value) for value in (Level(3), Name("a"), np.datetime64("2026-01-02"))]
    assert values == [3, "a", "2026-01-02"]
    assert [type(value) for value in values] == [int, str, str]


def test_codes_for_terminals_are_taken_out_of_messages(source: LoggingSource, sink: ListSink) -> None:
    """A coloured message is recorded without its colours and without carriage returns."""
    LOGGER.error("\x1b[31mred\x1b[0m\r\nnext\rlast")
    assert sink.lines == ["red\nnext\nlast"]


def test_levels_are_known_by_name_number_and_alias() -> None:
    """Levels of logging, loguru and OpenTelemetry meet on one scale, and an unknown one is refused."""
    assert [level_number(name) for name in ("trace", "Debug", "INFO", "success", "warn", "WARNING", "fatal")] == [
        5, 10, 20, 25, 30, 30, 50,
    ]  # fmt: skip
    assert level_number(17) == 17
    assert [severity_of(level) for level in (0, 5, 10, 15, 20, 25, 30, 40, 50, 59, 1000)] == [
        1, 1, 5, 7, 9, 11, 13, 17, 21, 24, 24,
    ]  # fmt: skip
    with pytest.raises(KeyError):
        level_number("nonsense")


def test_level_sink_passes_on_what_reaches_its_level(sink: ListSink) -> None:
    """Where the console wants more than the run log, the run log's own level still holds."""
    gated = LevelSink(sink, "WARNING")
    source = LoggingSource(lambda: LogContext(gated), level="DEBUG", on_fault=fail)
    source.install()
    LOGGER.setLevel(logging.DEBUG)
    LOGGER.info("low")
    LOGGER.warning("high")
    LOGGER.setLevel(logging.NOTSET)
    source.uninstall()
    assert sink.lines == ["high"]


def test_a_cut_falls_between_words() -> None:
    """Half a token would pass by what knows tokens by their shape."""
    assert bounded("word " * 10, 12) == "word word… (41 characters left out)"


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
def test_forked_children_neither_record_nor_hang() -> None:
    """Children of a process that logs all the time end, and record nothing."""
    parent = os.getpid()
    sink = ListSink()
    gate = FloodGate()
    source = LoggingSource(lambda: LogContext(sink) if os.getpid() == parent else None, flood=gate, on_fault=fail)
    source.install()
    stop = threading.Event()

    # Kept from the root logger: pytest's own handler would keep every record, and its lock is not ours to test.
    logger = logging.getLogger("test.fork")
    logger.propagate = False
    logger.addHandler(logging.NullHandler())

    def chatter() -> None:
        while not stop.is_set():
            logger.error("busy")

    threads = [threading.Thread(target=chatter) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(20):
            before = len(sink.entries)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                child = os.fork()
            if child == 0:
                logger.critical("from a child")
                os._exit(0 if len(sink.entries) >= before else 1)
            deadline = time.monotonic() + 20
            while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0):
                assert time.monotonic() < deadline, "a child hangs"
                time.sleep(0.005)
            assert ended[1] == 0
    finally:
        stop.set()
        for thread in threads:
            thread.join()
        source.uninstall()
    assert "from a child" not in sink.lines
