"""Events of structlog arrive once, with their keys as attributes, however it is configured."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from list_sink import ListSink, fail

from otel_train.sources.emission import EMISSION
from otel_train.sources.flood import FloodGate
from otel_train.sources.log_context import LogContext
from otel_train.sources.logging_source import LoggingSource
from otel_train.sources.output import OutputSource
from otel_train.sources.structlog_source import StructlogSource

structlog = pytest.importorskip("structlog")


@pytest.fixture
def sink() -> ListSink:
    return ListSink()


@pytest.fixture(autouse=True)
def defaults() -> Iterator[None]:
    structlog.reset_defaults()
    yield
    structlog.reset_defaults()


@pytest.fixture
def out() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def source(sink: ListSink) -> Iterator[StructlogSource]:
    source = StructlogSource(lambda: LogContext(sink, {"dl.step": 7}, 0xAB, 0xCD), on_fault=fail)
    source.install()
    yield source
    source.uninstall()


@pytest.fixture
def records(sink: ListSink) -> Iterator[LoggingSource]:
    records = LoggingSource(lambda: LogContext(sink, {"dl.step": 7}, 0xAB, 0xCD), on_fault=fail)
    records.install()
    yield records
    records.uninstall()


@pytest.fixture
def stdlib(out: io.StringIO) -> Iterator[logging.Handler]:
    """A handler on the logger that structlog writes to, which keeps its records to itself."""
    theirs = logging.getLogger("test.structlog")
    theirs.propagate = False
    theirs.setLevel(logging.INFO)
    handler = logging.StreamHandler(out)
    theirs.addHandler(handler)
    yield handler
    theirs.removeHandler(handler)
    theirs.setLevel(logging.NOTSET)
    theirs.propagate = True


def configure_stdlib(*last: Any, cache: bool = False) -> None:
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.stdlib.filter_by_level,
            structlog.stdlib.add_logger_name,
            structlog.stdlib.add_log_level,
            structlog.stdlib.PositionalArgumentsFormatter(),
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.processors.StackInfoRenderer(),
            *last,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=cache,
    )


def line_of(entry: Any) -> str:
    return Path(__file__).read_text(encoding="utf-8").splitlines()[entry.attributes["code.line.number"] - 1].strip()


def test_default_configuration_gives_message_attributes_and_place(
    source: StructlogSource, sink: ListSink, out: io.StringIO
) -> None:
    """Bound, given and context values are attributes; time and level are the record's own."""
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(out))
    with structlog.contextvars.bound_contextvars(request=5):
        structlog.get_logger().bind(lr=0.1).warning("slow %s", "batch", seconds=1.5, missing=None)
    (entry,) = sink.entries
    assert entry.body == "slow batch"
    assert (entry.severity_number, entry.severity_text) == (13, "WARNING")
    assert (entry.trace_id, entry.span_id) == (0xAB, 0xCD)
    assert line_of(entry).startswith("structlog.get_logger().bind(lr=0.1)")
    assert {key: value for key, value in entry.attributes.items() if not key.startswith("code.")} == {
        "request": 5,
        "lr": 0.1,
        "seconds": 1.5,
        "thread.name": "MainThread",
        "dl.step": 7,
    }
    assert entry.attributes["code.function.name"] == "test_default_configuration_gives_message_attributes_and_place"
    assert "slow batch" in out.getvalue()


def test_exceptions_arrive_with_and_without_formatting_before_us(
    source: StructlogSource, sink: ListSink, out: io.StringIO
) -> None:
    """Type, message and trace are there in the default chain, after `format_exc_info`, and as structured trace."""
    chains: list[list[Any]] = [
        [structlog.processors.JSONRenderer()],
        [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()],
        [structlog.processors.dict_tracebacks, structlog.processors.JSONRenderer()],
    ]
    for chain in chains:
        structlog.configure(processors=chain, logger_factory=structlog.PrintLoggerFactory(out))
        try:
            raise RuntimeError("no data")
        except RuntimeError:
            structlog.get_logger().exception("failed")
    try:
        raise OSError("gone")
    except OSError as fault:
        kept = fault
    structlog.configure(processors=chains[1], logger_factory=structlog.PrintLoggerFactory(out))
    structlog.get_logger().error("later", exc_info=kept)
    structlog.configure(processors=chains[2])
    structlog.get_logger().error("later", exc_info=kept)
    kinds = [(entry.attributes["exception.type"], entry.attributes["exception.message"]) for entry in sink.entries]
    assert kinds == [("RuntimeError", "no data")] * 3 + [("OSError", "gone")] * 2
    for entry in sink.entries[:4]:
        stack = str(entry.attributes["exception.stacktrace"])
        assert stack.startswith("Traceback (most recent call last):")
        assert stack.splitlines()[-1] in ("RuntimeError: no data", "OSError: gone")
    assert [entry.severity_text for entry in sink.entries] == ["ERROR"] * 5


@pytest.mark.parametrize(
    "last",
    [
        pytest.param(structlog.stdlib.ProcessorFormatter.wrap_for_formatter, id="formatter"),
        pytest.param(structlog.stdlib.render_to_log_kwargs, id="keywords"),
        pytest.param(structlog.processors.JSONRenderer(), id="json"),
        pytest.param(structlog.dev.ConsoleRenderer(colors=True), id="console"),
    ],
)
def test_events_that_go_on_through_logging_are_recorded_once(
    source: StructlogSource,
    records: LoggingSource,
    sink: ListSink,
    out: io.StringIO,
    stdlib: logging.Handler,
    last: Any,
) -> None:
    """Words and place are structlog's, level and logger those of `logging`, whose own level decides."""
    configure_stdlib(last)
    if last is structlog.stdlib.ProcessorFormatter.wrap_for_formatter:
        stdlib.setFormatter(
            structlog.stdlib.ProcessorFormatter(
                processors=[
                    structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                    structlog.processors.JSONRenderer(),
                ]
            )
        )
    theirs = structlog.get_logger("test.structlog")
    theirs.debug("below the logger's level")
    theirs.warning("loss %s", 0.5, epoch=3)
    logging.getLogger("test.structlog").warning("plain")
    entry, plain = sink.entries
    assert entry.body == "loss 0.5"
    assert entry.severity_text == "WARNING"
    assert entry.attributes["epoch"] == 3
    assert entry.attributes["log.logger"] == "test.structlog"
    assert entry.attributes["dl.step"] == 7
    assert line_of(entry) == 'theirs.warning("loss %s", 0.5, epoch=3)'
    assert set(entry.attributes) == {
        "epoch", "log.logger", "dl.step", "thread.name", "code.file.path", "code.line.number", "code.function.name",
    }  # fmt: skip
    assert plain.body == "plain"
    assert len(out.getvalue().splitlines()) == 2


def test_level_of_the_standard_logger_holds_without_a_filtering_processor(
    source: StructlogSource, records: LoggingSource, sink: ListSink, stdlib: logging.Handler
) -> None:
    """An event that `logging` refuses is not recorded, and leaves nothing behind for the next record."""
    structlog.configure(
        processors=[structlog.stdlib.render_to_log_kwargs], logger_factory=structlog.stdlib.LoggerFactory()
    )
    logging.getLogger("test.structlog").setLevel(logging.ERROR)
    structlog.get_logger("test.structlog").info("refused", a=1)
    logging.getLogger("test.structlog").error("other")
    assert sink.lines == ["other"]
    assert "a" not in sink.entries[0].attributes


def test_events_for_logging_are_recorded_where_logging_itself_is_not(
    source: StructlogSource, sink: ListSink, stdlib: logging.Handler
) -> None:
    """With the source of `logging` off, structlog's own records them, at levels that the logger accepts."""
    configure_stdlib(structlog.processors.JSONRenderer())
    structlog.get_logger("test.structlog").info("kept", a=1)
    structlog.get_logger("test.structlog").debug("refused")
    assert sink.lines == ["kept"]
    assert sink.entries[0].attributes["log.logger"] == "test.structlog"
    assert sink.entries[0].attributes["a"] == 1


def test_loggers_cached_before_install_are_recorded_and_restored(sink: ListSink, out: io.StringIO) -> None:
    """Loggers that hold their chain are seen while installed, and work as before afterwards."""
    chain = [structlog.processors.JSONRenderer()]
    structlog.configure(
        processors=chain, logger_factory=structlog.PrintLoggerFactory(out), cache_logger_on_first_use=True
    )
    cached = structlog.get_logger()
    cached.info("before")
    bound = cached.bind(a=1)
    properties = vars(structlog.BoundLoggerBase).copy()
    for number in range(3):
        source = StructlogSource(lambda: LogContext(sink), on_fault=fail)
        source.install()
        source.install()
        cached.info("cached")
        bound.info("bound")
        bound.bind(b=number).bind(c=2).info("bound within")
        source.uninstall()
        source.uninstall()
    inner = bound.bind(d=4)
    inner.info("after")
    assert sink.lines == ["cached", "bound", "bound within"] * 3
    assert sink.entries[-1].attributes["b"] == 2
    assert vars(structlog.BoundLoggerBase) == properties
    assert inner._processors is chain
    assert len(out.getvalue().splitlines()) == 11


def test_what_the_users_processors_drop_or_mask_is_not_recorded(
    source: StructlogSource, sink: ListSink, out: io.StringIO
) -> None:
    """Ours stands behind the user's: a dropped event is gone, a masked value is masked."""

    def mask(logger: Any, method: str, event: dict[str, Any]) -> dict[str, Any]:
        if event["event"] == "drop":
            raise structlog.DropEvent
        return {**event, "card": "***"}

    structlog.configure(
        processors=[mask, structlog.processors.JSONRenderer()], logger_factory=structlog.PrintLoggerFactory(out)
    )
    structlog.get_logger().info("drop", card="1234")
    structlog.get_logger().info("keep", card="1234")
    assert sink.lines == ["keep"]
    assert sink.entries[0].attributes["card"] == "***"
    assert json.loads(out.getvalue()) == {"event": "keep", "card": "***"}


def test_caller_named_by_structlog_is_the_users(source: StructlogSource, sink: ListSink, out: io.StringIO) -> None:
    """The processor that adds the call site finds the user's line, and we take its word for it."""
    adder = structlog.processors.CallsiteParameterAdder(
        {
            structlog.processors.CallsiteParameter.PATHNAME,
            structlog.processors.CallsiteParameter.LINENO,
            structlog.processors.CallsiteParameter.FUNC_NAME,
        }
    )
    structlog.configure(
        processors=[adder, structlog.processors.JSONRenderer()], logger_factory=structlog.PrintLoggerFactory(out)
    )
    structlog.get_logger().info("here")
    assert json.loads(out.getvalue())["func_name"] == "test_caller_named_by_structlog_is_the_users"
    (entry,) = sink.entries
    assert line_of(entry) == 'structlog.get_logger().info("here")'
    assert "func_name" not in entry.attributes


def test_asynchronous_methods_arrive_with_the_callers_context(
    source: StructlogSource, sink: ListSink, out: io.StringIO
) -> None:
    """An event that is rendered on a pool's thread is recorded once, without a made-up place."""
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(out))

    async def work() -> None:
        await structlog.get_logger().ainfo("async", a=1)

    asyncio.run(work())
    (entry,) = sink.entries
    assert entry.body == "async"
    assert "code.file.path" not in entry.attributes


def test_what_structlog_prints_is_not_recorded_again(sink: ListSink) -> None:
    """With captured output the printed line makes no second record."""
    context = LogContext(sink)
    source = StructlogSource(lambda: context, on_fault=fail)
    output = OutputSource(lambda: context, on_fault=fail)
    output.install()
    source.install()
    structlog.configure(logger_factory=structlog.PrintLoggerFactory())
    structlog.get_logger().info("logged")
    print("printed")
    source.uninstall()
    output.uninstall()
    assert sink.lines == ["logged", "printed"]


def test_threshold_unknown_methods_and_odd_chains(sink: ListSink) -> None:
    """The level holds, a method of the user's own takes the event's level, and a text in mid-chain is a message."""

    class Custom(structlog.BoundLoggerBase):  # type: ignore[misc, name-defined]
        def metric(self, event: str, **values: Any) -> Any:
            return self._proxy_to_logger("metric", event, **values)

    class Logger:
        def metric(self, *args: Any, **kw: Any) -> None: ...

    source = StructlogSource(lambda: LogContext(sink), level="WARNING", on_fault=fail)
    source.install()
    structlog.configure(wrapper_class=Custom, processors=[lambda _, __, event: event], logger_factory=Logger)
    structlog.get_logger().metric("low")
    structlog.get_logger().metric("high", level="error")
    structlog.configure(processors=[lambda *_: "text", lambda *_: "end"])
    structlog.get_logger().metric("x")
    source.uninstall()
    assert [(entry.body, entry.severity_text) for entry in sink.entries] == [("high", "ERROR")]


def test_positional_arguments_and_stacks_that_nobody_has_put_in(
    source: StructlogSource, sink: ListSink, stdlib: logging.Handler
) -> None:
    """Arguments are put into the message where they fit and kept beside it where not; a stack is an attribute."""
    structlog.configure(
        processors=[structlog.processors.StackInfoRenderer(), structlog.stdlib.render_to_log_args_and_kwargs],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
    )
    theirs = structlog.get_logger("test.structlog")
    theirs.info("%d of %d", 1, 2, stack_info=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(logging, "raiseExceptions", False)
        theirs.info("%d", "no")
    assert sink.lines == ["1 of 2", "%d ('no',)"]
    assert "in test_positional_arguments" in str(sink.entries[0].attributes["code.stacktrace"])


def test_refused_event_does_not_stay_in_memory(
    source: StructlogSource, records: LoggingSource, sink: ListSink, stdlib: logging.Handler
) -> None:
    """Where a filter of the logger refuses the event, its exception is let go."""
    configure_stdlib(structlog.processors.JSONRenderer(default=str))
    theirs = logging.getLogger("test.structlog")

    def refuse(record: logging.LogRecord) -> bool:
        return False

    theirs.addFilter(refuse)
    structlog.get_logger("test.structlog").error("refused", exc_info=ValueError("x"))
    theirs.removeFilter(refuse)
    assert EMISSION.pending is None
    assert sink.entries == []


def test_flood_is_counted(sink: ListSink, out: io.StringIO) -> None:
    """The event is the template: its values do not count."""
    gate = FloodGate()
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(out))
    source = StructlogSource(lambda: LogContext(sink), flood=gate, on_fault=fail)
    source.install()
    for number in range(100):
        structlog.get_logger().info("step", number=number, other=str(number))
    source.uninstall()
    gate.flush()
    kept = [entry for entry in sink.entries if not entry.event_name]
    counted = sum(int(str(entry.attributes["log.suppressed.count"])) for entry in sink.named("log.suppressed"))
    assert len(kept) + counted == 100
    assert len(kept) <= 30


def test_fault_within_is_swallowed_and_counted(out: io.StringIO) -> None:
    """The user's event is printed all the same."""

    def context() -> LogContext:
        raise RuntimeError

    structlog.configure(logger_factory=structlog.PrintLoggerFactory(out))
    source = StructlogSource(context)
    source.install()
    structlog.get_logger().info("printed")
    source.uninstall()
    assert "printed" in out.getvalue()
    assert source.faults == 1


@pytest.mark.slow
def test_structlog_imported_after_install_is_found_by_the_heartbeat() -> None:
    """We never import structlog; once the user has, the next heartbeat records it."""
    script = """
        import sys
        from otel_train.sources.structlog_source import StructlogSource
        from otel_train.sources.log_context import LogContext
        bodies = []
        class Sink:
            def emit_log(self, entry): bodies.append(entry.body)
        source = StructlogSource(lambda: LogContext(Sink()))
        source.install()
        assert "structlog" not in sys.modules
        import structlog
        log = structlog.get_logger()
        log.info("early")
        source.heartbeat()
        log.info("late")
        print(bodies)
    """
    result = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=True)
    assert result.stdout.splitlines()[-1] == "['late']"
