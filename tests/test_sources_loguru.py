"""Records of loguru arrive once, with the ids of the thread that emits them, whatever the user does to its sinks."""

from __future__ import annotations

import io
import logging
import pickle
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from list_sink import ListSink, fail

from otel_train.sources.flood import FloodGate
from otel_train.sources.log_context import LogContext
from otel_train.sources.logging_source import LoggingSource
from otel_train.sources.loguru_source import LoguruSource, LoguruTap
from otel_train.sources.output import OutputSource

loguru = pytest.importorskip("loguru")
logger = loguru.logger


@pytest.fixture
def sink() -> ListSink:
    return ListSink()


@pytest.fixture
def source(sink: ListSink) -> Iterator[LoguruSource]:
    source = LoguruSource(lambda: LogContext(sink, {"dl.step": 7}, 0xAB, 0xCD), on_fault=fail)
    source.install()
    yield source
    source.uninstall()
    logger.remove()


def test_record_arrives_with_level_extra_place_and_ids(source: LoguruSource, sink: ListSink) -> None:
    """Bound values are attributes, SUCCESS keeps its name, and the place is the user's."""
    logger.bind(lr=0.1).success("epoch {} done in {unit}", 3, unit="s")
    (entry,) = sink.entries
    assert entry.body == "epoch 3 done in s"
    assert (entry.severity_number, entry.severity_text) == (11, "SUCCESS")
    assert (entry.trace_id, entry.span_id) == (0xAB, 0xCD)
    line = entry.attributes.pop("code.line.number")  # type: ignore[attr-defined]
    assert Path(__file__).read_text(encoding="utf-8").splitlines()[line - 1].strip().startswith("logger.bind(lr=0.1)")
    assert entry.attributes == {
        "lr": 0.1,
        "unit": "s",
        "log.logger": __name__,
        "code.file.path": __file__,
        "code.function.name": "test_record_arrives_with_level_extra_place_and_ids",
        "thread.name": "MainThread",
        "dl.step": 7,
    }


def test_custom_levels_and_threshold_hold(source: LoguruSource, sink: ListSink) -> None:
    """A level of the user's own keeps its name and rank; what is below the threshold stays out."""
    try:
        logger.level("METRIC")
    except ValueError:
        logger.level("METRIC", no=33)
    logger.log("METRIC", "m")
    logger.log(45, "by number")
    logger.debug("low")
    assert [(entry.severity_text, entry.severity_number) for entry in sink.entries] == [
        ("METRIC", 14),
        ("Level 45", 19),
    ]


def test_exception_arrives_with_traceback(source: LoguruSource, sink: ListSink) -> None:
    """`logger.exception` and the decorator `catch` carry type, message and trace."""

    @logger.catch
    def work() -> None:
        logging.getLogger("test.under_catch").error("seen too")
        raise KeyError("missing")

    records = LoggingSource(lambda: LogContext(sink), on_fault=fail)
    records.install()
    work()
    records.uninstall()
    plain, entry = sink.entries
    assert plain.body == "seen too"
    assert entry.severity_text == "ERROR"
    assert entry.attributes["exception.type"] == "KeyError"
    assert entry.attributes["exception.message"] == "'missing'"
    assert str(entry.attributes["exception.stacktrace"]).endswith("KeyError: 'missing'")


def test_removal_of_all_sinks_does_not_end_the_recording(source: LoguruSource, sink: ListSink) -> None:
    """The usual recipe, remove and add, leaves ours in place at once; so does `configure`."""
    out = io.StringIO()
    logger.remove()
    logger.info("one")
    logger.add(out, format="{message}")
    logger.info("two")
    logger.configure(handlers=[{"sink": out, "format": "again {message}"}])
    logger.info("three")
    assert sink.lines == ["one", "two", "three"]
    assert out.getvalue() == "two\nagain three\n"


def test_heartbeat_adds_a_sink_that_was_lost(source: LoguruSource, sink: ListSink) -> None:
    """Where the removal went by our look-out, the next heartbeat mends it, and only then."""
    assert source._remove_before is not None
    source._remove_before(logger)
    logger.info("lost")
    source.heartbeat()
    source.heartbeat()
    logger.info("kept")
    assert sink.lines == ["kept"]


def test_everything_is_gone_after_uninstall(sink: ListSink) -> None:
    """Sinks and methods are those before; a second install records once."""
    logger.remove()
    out = io.StringIO()
    logger.add(out, format="{message}", level="ERROR")
    method = type(logger).remove
    handlers = dict(logger._core.handlers)
    for number in range(3):
        source = LoguruSource(lambda: LogContext(sink), on_fault=fail)
        source.install()
        source.install()
        logger.info(str(number))
        source.uninstall()
        source.uninstall()
    logger.info("after")
    assert sink.lines == ["0", "1", "2"]
    assert type(logger).remove is method
    assert logger._core.handlers == handlers
    assert out.getvalue() == ""
    logger.remove()


def test_enqueued_sinks_of_the_user_do_not_change_context_or_count(sink: ListSink) -> None:
    """With `enqueue=True` the ids are those of the emitting thread, and each record comes once."""
    local = threading.local()
    source = LoguruSource(lambda: LogContext(sink, {"who": local.who}, trace_id=local.who, span_id=1), on_fault=fail)
    source.install()
    logger.remove()
    out = io.StringIO()
    logger.add(out, enqueue=True, format="{message}")

    def work(who: int) -> None:
        local.who = who
        for number in range(20):
            logger.info("{} {}", who, number)

    threads = [threading.Thread(target=work, args=(who,)) for who in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    logger.complete()
    source.uninstall()
    logger.remove()
    assert len(sink.entries) == 40
    assert all(entry.trace_id == int(str(entry.body)[0]) == entry.attributes["who"] for entry in sink.entries)
    assert out.getvalue().count("\n") == 40


class InterceptHandler(logging.Handler):
    """The recipe that forwards `logging` to loguru, stack depth and all."""

    def emit(self, record: logging.LogRecord) -> None:
        frame, depth = sys._getframe(), 0
        while frame and (depth == 0 or frame.f_code.co_filename == logging.__file__):
            frame = frame.f_back  # type: ignore[assignment]
            depth += 1
        logger.opt(depth=depth, exception=record.exc_info).log(record.levelname, record.getMessage())


class PropagateHandler(logging.Handler):
    """The recipe that forwards loguru to `logging`."""

    def emit(self, record: logging.LogRecord) -> None:
        logging.getLogger(record.name).handle(record)


def test_logging_forwarded_to_loguru_is_recorded_once_with_the_callers_place(
    source: LoguruSource, sink: ListSink
) -> None:
    """The record is that of `logging`, and loguru's console still names the caller, not us."""
    records = LoggingSource(lambda: LogContext(sink), on_fault=fail)
    records.install()
    logger.remove()
    out = io.StringIO()
    logger.add(out, format="{name}:{function} {message}")
    handler = InterceptHandler()
    theirs = logging.getLogger("test.intercept")
    theirs.addHandler(handler)
    theirs.warning("forwarded")
    theirs.removeHandler(handler)
    records.uninstall()
    assert sink.lines == ["forwarded"]
    assert sink.entries[0].attributes["log.logger"] == "test.intercept"
    here = "test_logging_forwarded_to_loguru_is_recorded_once_with_the_callers_place"
    assert out.getvalue() == f"{__name__}:{here} forwarded\n"


@pytest.mark.parametrize("enqueue", [False, True])
def test_loguru_forwarded_to_logging_is_recorded_once(source: LoguruSource, sink: ListSink, enqueue: bool) -> None:
    """Both recipes, handler and function, directly and through loguru's queue."""
    records = LoggingSource(lambda: LogContext(sink), on_fault=fail)
    records.install()
    logger.remove()

    def forward(message: Any) -> None:
        logging.getLogger("test.forward").log(message.record["level"].no, message.record["message"])

    logger.add(PropagateHandler(), format="{message}", enqueue=enqueue)
    logger.add(forward, enqueue=enqueue)
    seen = io.StringIO()
    theirs = logging.StreamHandler(seen)
    logging.getLogger("test.forward").addHandler(theirs)
    logger.warning("forwarded")
    logger.complete()
    logging.getLogger("test.forward").removeHandler(theirs)
    records.uninstall()
    logger.remove()
    assert sink.lines == ["forwarded"]
    assert seen.getvalue() == "forwarded\n"


@pytest.mark.parametrize("enqueue", [False, True])
def test_what_loguru_prints_is_not_recorded_again(sink: ListSink, enqueue: bool) -> None:
    """With captured output, sinks that print make no second record; a print under `catch` is one."""
    context = LogContext(sink)
    source = LoguruSource(lambda: context, on_fault=fail)
    output = OutputSource(lambda: context, on_fault=fail)
    output.install()
    source.install()
    logger.remove()
    logger.add(sys.stderr, format="{message}", enqueue=enqueue)
    logger.add(lambda message: print(message, end=""), format="{message}")

    @logger.catch
    def work() -> None:
        print("printed")

    logger.info("logged")
    work()
    logger.complete()
    source.uninstall()
    output.uninstall()
    logger.remove()
    assert sink.lines == ["logged", "printed"]


def test_flood_is_counted(sink: ListSink) -> None:
    """Messages that differ by their digits are alike."""
    gate = FloodGate()
    source = LoguruSource(lambda: LogContext(sink), flood=gate, on_fault=fail)
    source.install()
    for number in range(200):
        logger.info("step {}", number)
    source.uninstall()
    gate.flush()
    kept = sum(1 for entry in sink.entries if not entry.event_name)
    counted = sum(int(str(e.attributes["log.suppressed.count"])) for e in sink.named("log.suppressed"))
    assert kept + counted == 200
    assert kept <= 30


def test_tap_in_another_process_is_inert() -> None:
    """A pickled logger takes ours along as something that does nothing."""
    tap = pickle.loads(pickle.dumps(LoguruTap(None)))
    assert tap({"message": "x"}) is False
    tap.write("x")
    tap.stop()


def test_without_a_run_nothing_is_recorded_and_faults_are_counted() -> None:
    """No context, no record; what goes wrong within never reaches the user."""
    calls: list[int] = []

    def context() -> LogContext | None:
        calls.append(1)
        if len(calls) > 1:
            raise RuntimeError
        return None

    source = LoguruSource(context)
    source.install()
    logger.info("a")
    logger.info("b")
    source.uninstall()
    assert source.faults == 1


@pytest.mark.slow
def test_loguru_imported_after_install_is_found_by_the_heartbeat() -> None:
    """We never import loguru; once the user has, the next heartbeat records it."""
    script = """
        import sys
        from otel_train.sources.loguru_source import LoguruSource
        from otel_train.sources.log_context import LogContext
        bodies = []
        class Sink:
            def emit_log(self, entry): bodies.append(entry.body)
        source = LoguruSource(lambda: LogContext(Sink()))
        source.install()
        assert "loguru" not in sys.modules
        from loguru import logger
        logger.info("early")
        source.heartbeat()
        logger.info("late")
        print(bodies)
    """
    result = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=True)
    assert result.stdout == "['late']\n"
    assert "early" in result.stderr
