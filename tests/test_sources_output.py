"""What the script prints becomes whole lines and last states of bars, while the console sees every byte."""

from __future__ import annotations

import functools
import inspect
import io
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from list_sink import FixedClock, ListSink, fail
from tqdm import tqdm

from otel_train.sources.flood import FloodGate
from otel_train.sources.log_context import LogContext
from otel_train.sources.logging_source import LoggingSource
from otel_train.sources.output import OutputSource, TeeStream
from otel_train.sources.screen import Screen


class Console(io.StringIO):
    """Stands for the terminal below our streams."""

    encoding = "utf-8"  # type: ignore[assignment]

    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        return 2


@pytest.fixture
def console() -> Console:
    return Console()


@pytest.fixture
def sink() -> ListSink:
    return ListSink()


@pytest.fixture
def source(sink: ListSink) -> OutputSource:
    return OutputSource(lambda: LogContext(sink, {"dl.step": 3}, 7, 8), on_fault=fail)


def on_console(test: Callable[..., None]) -> Callable[..., None]:
    """Let a test run with the console as both streams, and with `source` installed.

    A fixture cannot do it: pytest puts its own streams in place between a fixture and its test.
    """

    @functools.wraps(test)
    def run(console: Console, **fixtures: Any) -> None:
        if "console" in inspect.signature(test).parameters:
            fixtures["console"] = console
        before = sys.stdout, sys.stderr
        sys.stdout = sys.stderr = console
        try:
            if "source" in fixtures:
                fixtures["source"].install()
            test(**fixtures)
            if "source" in fixtures:
                fixtures["source"].uninstall()
        finally:
            sys.stdout, sys.stderr = before

    signature = inspect.signature(test)
    console_parameter = inspect.Parameter("console", inspect.Parameter.KEYWORD_ONLY)
    others = [parameter for name, parameter in signature.parameters.items() if name != "console"]
    run.__signature__ = signature.replace(parameters=[*others, console_parameter])  # type: ignore[attr-defined]
    return run


def shown(*writes: str) -> tuple[list[str], list[tuple[str, int]]]:
    """Return the lines and the bars of a stream to which these calls write."""
    screen: Screen[int] = Screen()
    finished = [item for number, text in enumerate(writes) for item in screen.feed(text, number)]
    finished += screen.flush()
    lines = [item.text for item in finished if not item.redraws]
    return lines, [(item.text, item.redraws) for item in finished if item.redraws]


@on_console
def test_printed_lines_are_records_with_stream_step_and_ids(source: OutputSource, sink: ListSink) -> None:
    """A whole line is a record at INFO with the attributes and ids of the run's context."""
    print("epoch", 1, "done")
    print("half", end="")
    assert sink.lines == ["epoch 1 done"]
    (entry,) = sink.entries
    assert (entry.severity_number, entry.severity_text) == (9, "INFO")
    assert entry.attributes == {"log.iostream": "stdout", "dl.step": 3}
    assert (entry.trace_id, entry.span_id) == (7, 8)
    source.flush()
    assert sink.lines == ["epoch 1 done", "half"]


@on_console
def test_console_sees_every_byte_and_keeps_its_properties(
    source: OutputSource, console: Console, sink: ListSink
) -> None:
    """The stream below gets the same text, and answers for terminal, encoding and descriptor."""
    print("\x1b[31mred\x1b[0m", "ünï")
    print("x", file=sys.stderr, end="\r")
    sys.stdout.writelines(["a\n", "b\n"])
    assert console.getvalue() == "\x1b[31mred\x1b[0m ünï\nx\ra\nb\n"
    assert sys.stdout.isatty()
    assert sys.stdout.encoding == "utf-8"
    assert sys.stdout.fileno() == 2
    assert sys.stdout.write("abc") == 3
    assert repr(sys.stdout) == repr(console)
    assert "getvalue" in dir(sys.stdout)
    sys.stdout.label = "mine"  # type: ignore[attr-defined]
    assert console.label == "mine"  # type: ignore[attr-defined]
    del sys.stdout.label  # type: ignore[attr-defined]
    assert not hasattr(console, "label")
    assert sink.lines == ["red ünï", "a", "b"]


@on_console
def test_error_of_the_stream_below_reaches_the_script_and_nothing_is_recorded(
    source: OutputSource, console: Console, sink: ListSink
) -> None:
    """A closed stream raises as it always did."""
    console.close()
    with pytest.raises(ValueError, match="closed file"):
        print("lost")
    assert sink.entries == []


@on_console
def test_streams_are_restored_unless_replaced_meanwhile(console: Console, sink: ListSink) -> None:
    """Ours are taken back; what the user put in place stays, and a kept reference still writes."""
    source = OutputSource(lambda: LogContext(sink), on_fault=fail)
    source.install()
    kept = sys.stderr
    theirs = io.StringIO()
    sys.stdout = theirs
    source.uninstall()
    assert sys.stdout is theirs
    assert sys.stderr is console
    kept.write("after\n")
    assert console.getvalue() == "after\n"
    assert sink.entries == []


@on_console
def test_installing_again_over_a_stream_left_behind_records_once(console: Console, sink: ListSink) -> None:
    """A stream of ours that was put back by redirection after the end does not pile up."""
    source = OutputSource(lambda: LogContext(sink), on_fault=fail)
    for _ in range(3):
        source.install()
        kept = sys.stdout
        source.uninstall()
        sys.stdout = kept
    source.install()
    source.install()
    assert isinstance(sys.stdout, TeeStream)
    assert sys.stdout.__dict__["_otel_train_original"] is console
    print("once")
    source.uninstall()
    assert sink.lines == ["once"]
    assert sys.stdout is console


@on_console
def test_without_a_run_output_passes_unrecorded(console: Console) -> None:
    """No context, no record, no state kept."""
    source = OutputSource(lambda: None, on_fault=fail)
    source.install()
    print("nobody")
    source.uninstall()
    assert console.getvalue() == "nobody\n"
    assert source._screens == {}


@on_console
def test_ten_thousand_redraws_with_nested_bar_and_three_records(console: Console, sink: ListSink) -> None:
    """Three log records and the last state of each of two bars are all that is left of 10,000 redraws."""
    context = LogContext(sink)
    output = OutputSource(lambda: context, on_fault=fail)
    records = LoggingSource(lambda: context, on_fault=fail)
    output.install()
    records.install()
    logger = logging.getLogger("test.bars")
    handler = logging.StreamHandler()  # made after install: it holds our stream
    logger.addHandler(handler)
    try:
        outer = "\r 50%|#####     | {}/10000"
        for step in range(1, 10_001):
            sys.stderr.write(outer.format(step))
            if step % 2_500 == 0:
                sys.stderr.write("\n")
                sys.stderr.write(f"\r inner {step}")
                sys.stderr.write("\x1b[A")
            if step in (1, 5_000, 9_000):
                logger.warning("step %d", step)
        output.flush()
    finally:
        logger.removeHandler(handler)
        records.uninstall()
        output.uninstall()
    assert sink.lines == ["step 1", "step 5000", "step 9000"]
    assert sink.bars == [("50%|#####     | 10000/10000", 10_000), ("inner 10000", 4)]
    assert not any(code in str(entry.body) for entry in sink.entries for code in "\r\x1b")
    assert console.getvalue().count("\r") == 10_004
    assert "step 5000\n" in console.getvalue()


@on_console
def test_real_tqdm_nested_with_messages_through_it(source: OutputSource, sink: ListSink) -> None:
    """Two nested bars of tqdm are two records with their last state; messages through them are lines."""
    for epoch in tqdm(range(3), desc="epochs", ascii=True, mininterval=0, ncols=60):
        for _ in tqdm(range(4), desc="steps", leave=False, ascii=True, mininterval=0, ncols=60):
            pass
        tqdm.write(f"epoch {epoch} done", file=sys.stderr)
    source.flush()
    assert sink.lines == ["epoch 0 done", "epoch 1 done", "epoch 2 done"]
    states = {str(body).partition(":")[0]: str(body) for body, _ in sink.bars}
    assert len(sink.bars) == 2
    assert "3/3" in states["epochs"]
    assert "4/4" in states["steps"]


@on_console
def test_real_tqdm_one_bar_after_the_other_are_told_apart(source: OutputSource, sink: ListSink) -> None:
    """Each epoch's finished bar is a record of its own, and comes out when it is left behind."""
    for epoch in range(3):
        for _ in tqdm(range(5), desc=f"epoch {epoch}", ascii=True, mininterval=0, ncols=60):
            pass
        print("val loss", epoch / 10, file=sys.stderr)
    source.flush()
    assert sink.lines == ["val loss 0.0", "val loss 0.1", "val loss 0.2"]
    assert [str(body).partition(":")[0] for body, _ in sink.bars] == ["epoch 0", "epoch 1", "epoch 2"]
    assert all("5/5" in str(body) for body, _ in sink.bars)


@pytest.mark.parametrize(
    ("writes", "lines", "bars"),
    [
        pytest.param(["a\nb\n\nc"], ["a", "b", "c"], [], id="lines, the last unfinished"),
        pytest.param(["hel", "lo\r\n", "next\r\n"], ["hello", "next"], [], id="ends of Windows"),
        pytest.param(["1/3", "\r", "2/3", "\r", "3/3", "\r"], [], [("3/3", 3)], id="return at the end"),
        pytest.param(["1/2\r2/2\r"], [], [("2/2", 2)], id="return at the end, one call"),
        pytest.param(["1/2", "\r", "2/2", "\r", "done", "\n"], ["done"], [("2/2", 2)], id="a line after the bar"),
        pytest.param(["\r1%", "\r2%", "hello", "\n", "\r3%", "\n"], ["hello"], [("3%", 3)], id="through"),
        pytest.param(["10%", "\b\b\b20%", "\b\b\b30%", "\n"], [], [("30%", 3)], id="backspaces"),
        pytest.param(["\r\x1b[2Ka", "\r\x1b[2Kb"], [], [("b", 2)], id="erase the row"),
        pytest.param(["\ra\x1b[K", "\rb\x1b[K"], [], [("b", 2)], id="erase to the end"),
        pytest.param(["\x1b[01;31m\x1b[Kmatch\x1b[m\x1b[Krest\n"], ["matchrest"], [], id="coloured"),
        pytest.param(["a\x1b[3", "1mb\x1b]0;title", "\x07c\n"], ["abc"], [], id="codes cut by a call"),
        pytest.param(["one\n", "two\n", "\x1b[1A\x1b[2Ktwo!\n"], ["one", "two"], [("two!", 1)], id="live"),
        pytest.param(["\x1b[", "\n", "x\x00\x1b\n"], ["x"], [], id="broken codes"),
    ],
)
def test_terminal_codes_are_followed(writes: list[str], lines: list[str], bars: list[tuple[str, int]]) -> None:
    """Each way of drawing a bar counts by its last state; lines stay lines."""
    assert shown(*writes) == (lines, bars)


def test_long_line_without_an_end_comes_out_in_parts() -> None:
    """Nothing is lost and memory stays bounded where no newline ever comes."""
    lines, bars = shown(*["x" * 1_000] * 100)
    assert sum(map(len, lines)) == 100_000
    assert max(map(len, lines)) <= 17_384
    assert bars == []


@given(st.lists(st.text(st.sampled_from("ab 1\r\n\b\x1b[]AKm;0"), max_size=12), max_size=12))
def test_any_writes_give_clean_bodies_and_lose_no_plain_line(writes: list[str]) -> None:
    """No control code is ever left in a body, whatever is written, and the rows stay bounded."""
    lines, bars = shown(*writes, "\n\nthe end\n")
    assert not any(code in text for text in [*lines, *(text for text, _ in bars)] for code in "\r\n\b\x1b")
    assert any("the end" in text for text in [*lines, *(text for text, _ in bars)])


@given(st.lists(st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1), max_size=40))
def test_plain_lines_come_out_as_they_went_in(texts: list[str]) -> None:
    """However many calls a line takes, it is one record."""
    assert shown(*[part for text in texts for part in (*text, "\n")]) == (texts, [])


@on_console
def test_what_handlers_print_is_not_recorded_again(console: Console, sink: ListSink) -> None:
    """Neither a handler of the same thread nor one behind a queue makes a second record."""
    from logging.handlers import QueueHandler, QueueListener
    from queue import SimpleQueue

    context = LogContext(sink)
    output = OutputSource(lambda: context, on_fault=fail)
    records = LoggingSource(lambda: context, on_fault=fail)
    output.install()
    records.install()
    logger = logging.getLogger("test.echo")
    queue: SimpleQueue[logging.LogRecord] = SimpleQueue()
    direct, queued = logging.StreamHandler(), QueueHandler(queue)
    listener = QueueListener(queue, logging.StreamHandler())
    listener.start()
    logger.addHandler(direct)
    logger.addHandler(queued)
    try:
        logger.error("once")
    finally:
        listener.stop()
        logger.removeHandler(direct)
        logger.removeHandler(queued)
        records.uninstall()
        output.uninstall()
    assert console.getvalue() == "once\nonce\n"
    assert sink.lines == ["once"]


@on_console
def test_two_runs_have_their_own_lines_and_bars(console: Console) -> None:
    """Two threads that print at once fill two runs, and the end of one leaves the other's open bar alone."""
    local = threading.local()
    first, second = ListSink(), ListSink()
    source = OutputSource(lambda: LogContext(local.sink) if hasattr(local, "sink") else None, on_fault=fail)
    source.install()
    turn = threading.Barrier(2)

    def work(sink: ListSink, name: str) -> None:
        local.sink = sink
        for number in range(20):
            turn.wait()
            print(name, number)
            sys.stdout.write(f"\r{name} bar {number}")

    threads = [threading.Thread(target=work, args=pair) for pair in ((first, "A"), (second, "B"))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    source.flush(first)
    assert first.bars == [("A bar 19", 20)]
    assert second.bars == []
    source.uninstall()
    assert second.bars == [("B bar 19", 20)]
    assert first.lines == [f"A {number}" for number in range(20)]
    assert second.lines == [f"B {number}" for number in range(20)]


@on_console
def test_a_flood_of_printed_lines_is_counted(console: Console, sink: ListSink) -> None:
    """Of like lines within a second ten are kept and the others counted."""
    gate = FloodGate(FixedClock())
    source = OutputSource(lambda: LogContext(sink), flood=gate, clock=FixedClock(), on_fault=fail)
    source.install()
    for step in range(500):
        print("step", step)
    source.uninstall()
    gate.flush()
    assert sink.lines == [f"step {step}" for step in range(10)]
    assert sink.entries[-1].attributes["log.suppressed.count"] == 490
    assert sink.entries[-1].body == "490 more like: step #"


@on_console
def test_a_fault_of_the_context_does_not_reach_the_script(console: Console) -> None:
    """What goes wrong within is counted; the script's print goes on."""

    def broken() -> LogContext:
        raise RuntimeError("no context")

    source = OutputSource(broken)
    source.install()
    print("fine")
    source.uninstall()
    assert console.getvalue() == "fine\n"
    assert source.faults == 2


@pytest.mark.slow
def test_console_of_a_script_is_byte_identical() -> None:
    """A script with captured output writes the same bytes to both streams as without."""
    script = (
        "import sys, io\n"
        "from otel_train.sources.output import OutputSource\n"
        "from otel_train.sources.log_context import LogContext\n"
        "class S:\n    def emit_log(self, e): pass\n"
        "s = OutputSource(lambda: LogContext(S()))\n"
        "if sys.argv[1] == 'tee': s.install()\n"
        "print('x', 1.5, 'ü'); sys.stdout.write('\\rbar 1'); sys.stderr.write('\\x1b[1mbold\\n')\n"
        "sys.stdout.flush(); sys.stdout.buffer.write(b'raw\\n'); print('end', flush=True)\n"
        "import warnings; warnings.warn('w')\n"
        "s.uninstall(); print('after')\n"
        "raise SystemExit(3)\n"
    )
    results = [
        subprocess.run([sys.executable, "-c", script, mode], capture_output=True, check=False)
        for mode in ("plain", "tee")
    ]
    assert results[0].returncode == results[1].returncode == 3
    assert results[0].stdout == results[1].stdout
    assert results[0].stderr == results[1].stderr
    assert results[0].stdout.startswith("x 1.5 ü\n\rbar 1raw\n".encode())


@on_console
def test_time_of_a_bar_is_that_of_its_last_redraw(source: OutputSource, sink: ListSink) -> None:
    """A bar that comes out late carries the time when it was drawn."""
    before_ns = time.time_ns()
    sys.stderr.write("\r1%")
    after_ns = time.time_ns()
    time.sleep(0.01)
    source.flush()
    assert before_ns <= sink.entries[0].time_ns <= after_ns
    assert sink.entries[0].observed_time_ns > after_ns
