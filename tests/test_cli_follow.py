"""`otel-train follow` on a terminal, in a pipe and in a file, of runs that train, end, fail, are killed or deleted."""

from __future__ import annotations

import os
import re
import select
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from otel_train.cli.main import main
from tests.runs import RUN_ID, RunBuilder
from tests.scripts import Scripts, run_paths

pytest.importorskip("rich", reason="rich is missing: it draws the picture")
if sys.platform == "win32":
    pytest.skip("there is no pseudo-terminal", allow_module_level=True)

import fcntl
import pty
import struct
import termios

ALTERNATE, MAIN = "\x1b[?1049h", "\x1b[?1049l"
HIDE, SHOW = "\x1b[?25l", "\x1b[?25h"
SGR = re.compile(r"\x1b\[[0-9;]*m")
COMMAND = (sys.executable, "-m", "otel_train.cli.main", "follow")
# 60 steps of 50 ms: three seconds; loss 1 / (step + 1), so the last is 1/60.
TRAINING = """
import logging, otel_train, time
with otel_train.init("digits", name="small-net") as run:
    for epoch in run.epochs(3):
        for _ in run.steps(range(20)):
            run.log({"loss": 1 / (run.step + 1)})
            if run.step == 30:
                logging.getLogger("mine").warning("odd value at thirty")
            time.sleep(0.05)  # what a step takes
        run.log({"val_loss": 2 / (epoch + 1)})
"""
FAILING = """
import otel_train, sys, time
with otel_train.init("digits", name="small-net", run_id="fails", resume=None) as run:
    for _ in run.steps(range(20)):
        run.log({"loss": 1 / (run.step + 1)})
        time.sleep(0.05)  # what a step takes
    raise ValueError("no data left")
"""


class Terminal:
    """A command on a pseudo-terminal of some size, and all that it wrote there."""

    def __init__(self, *arguments: str, size: tuple[int, int] = (100, 30), env: dict[str, str] | None = None) -> None:
        self._master, terminal = pty.openpty()
        self._set_size(terminal, size)
        variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        variables |= {"TERM": "xterm-256color", "PYTHONIOENCODING": "utf-8", **(env or {})}
        for name in ("NO_COLOR", "COLUMNS", "LINES", *(name for name, value in variables.items() if value == "unset")):
            if (env or {}).get(name, "unset") == "unset":
                variables.pop(name, None)
        self.process = subprocess.Popen(
            [*COMMAND, *arguments], stdin=terminal, stdout=terminal, stderr=subprocess.PIPE, env=variables
        )
        os.close(terminal)
        self._bytes = b""
        self._closed = False

    @staticmethod
    def _set_size(terminal: int, size: tuple[int, int]) -> None:
        columns, lines = size
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def resize(self, size: tuple[int, int]) -> int:
        """Change the size, and return how much was written before."""
        self._set_size(self._master, size)
        self.process.send_signal(signal.SIGWINCH)
        return len(self.text)

    @property
    def text(self) -> str:
        return self._bytes.decode("utf-8", "replace")

    def read_until(self, told: Callable[[str], Any], timeout_s: float = 40.0) -> None:
        """Read until the text holds what is looked for; the test fails where it does not come."""
        until_s = time.monotonic() + timeout_s
        while not told(self.text):
            left_s = until_s - time.monotonic()
            assert left_s > 0, f"it did not come: {self.text[-3000:]}"
            if select.select([self._master], [], [], min(left_s, 1.0))[0] and not self._read():
                assert told(self.text), f"it did not come: {self.text[-3000:]}{self._errors()}"

    def _read(self) -> bool:
        try:
            data = os.read(self._master, 1 << 16)
        except OSError:
            # The other side is closed.
            data = b""
        self._bytes += data
        self._closed = not data
        return bool(data)

    def _errors(self) -> str:
        assert self.process.stderr is not None
        return self.process.stderr.read().decode()

    def end(self) -> tuple[int, str]:
        """Read to the end; return exit code and standard error."""
        self.read_until(lambda text: self._closed)
        return self.process.wait(timeout=20), self._errors()

    def wait_for_its_waiting(self) -> str:
        """Return the line that says that it waits."""
        assert self.process.stderr is not None
        return str(self.process.stderr.readline().decode())

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        assert self.process.stderr is not None
        self.process.stderr.close()
        os.close(self._master)

    # What was drawn ----------------------------------------------------------------------------------------------

    def frames(self) -> list[list[str]]:
        """Return the pictures on the second screen, line by line, without colours and trailing space."""
        drawn = self.text.split(ALTERNATE)[-1].split(MAIN)[0]
        found = [SGR.sub("", part.replace(HIDE, "").replace(SHOW, "")) for part in drawn.split("\x1b[H")]
        return [[line.rstrip() for line in part.split("\r\n")] for part in found if part.strip()]

    def left_behind(self) -> list[str]:
        """Return the lines that stay on the first screen."""
        return [line.rstrip() for line in SGR.sub("", self.text.split(MAIN)[-1]).split("\r\n")]


@pytest.fixture
def terminal(root: Path) -> Iterator[Callable[..., Terminal]]:
    made: list[Terminal] = []

    def terminal(*arguments: str, **about: Any) -> Terminal:
        made.append(Terminal(*arguments, **about))
        return made[-1]

    yield terminal
    for one in made:
        one.close()


@pytest.fixture
def piped(root: Path) -> Iterator[Callable[..., Any]]:
    """Start the command with its output in a pipe; what a failed test has left is ended."""
    made: list[Any] = []

    def piped(*arguments: str) -> Any:
        made.append(subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        return made[-1]

    yield piped
    for process in made:
        if process.poll() is None:
            process.kill()
        process.communicate()


def a_finished_run(root: Path, **about: Any) -> RunBuilder:
    builder = RunBuilder(root, **about).attempt()
    return builder.log({"loss": [3.0, 1.0, 2.0]}, steps=[0, 1, 2]).record("odd", "WARN", dl__step=1).end(at_s=60)


# On a terminal -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_terminal_has_a_picture_that_moves(terminal: Callable[..., Terminal], scripts: Scripts) -> None:
    """While a run trains its step moves on the second screen; at its end the last values stay on the first one."""
    watched = terminal("latest", "--wait", "--interval", "0.3")
    assert watched.wait_for_its_waiting() == f"waiting for latest in {scripts.root}\n"
    trained = scripts.popen(TRAINING)
    assert watched.end() == (0, "")
    done = scripts.end(trained)
    assert watched.text.count(ALTERNATE) == watched.text.count(MAIN) == 1
    assert watched.text.index(HIDE) < watched.text.index(MAIN)
    assert watched.text.rindex(SHOW) > watched.text.rindex(HIDE)
    frames = watched.frames()
    assert all(len(frame) <= 30 for frame in frames)
    steps = [int(found[1]) for frame in frames if (found := re.search(r"step (\d+)", frame[1]))]
    assert steps == sorted(steps)
    assert len({step for step in steps if step < 59}) >= 2
    assert all(frame[0].split()[:2] == ["small-net", "running"] for frame in frames[:-2])
    last = watched.left_behind()
    assert last[0].startswith(f"small-net  finished  digits · {done.path.name}")
    assert re.match(r"━+ 100\.0 %  epoch 2 · step 59 · ", last[1])
    rows = {line.split()[0]: line.split()[1:5] for line in last if "loss" in line}
    assert rows["train/loss"] == ["0.0166667", "@59", "0.0166667", "@59"]
    assert rows["val/loss"] == ["0.666667", "@59", "0.666667", "@59"]
    assert any(re.match(r"WARN  \[epoch 1, step 30, \d\d:\d\d:\d\d\] odd value at thirty$", line) for line in last)
    assert last[-2:] == [str(done.path), ""]


@pytest.mark.slow
def test_the_picture_follows_the_size_of_the_terminal(terminal: Callable[..., Terminal], scripts: Scripts) -> None:
    """After it has become narrow and low no line is longer, and there are no more lines; Ctrl-C ends it quietly."""
    trained = scripts.popen(TRAINING.replace("range(20)", "range(10_000)"))
    watched = terminal("latest", "--wait", "--interval", "0.2")
    watched.read_until(lambda text: text.count("\x1b[H") > 3 and "train/loss" in text)
    before = watched.resize((40, 8))
    watched.read_until(lambda text: text[before:].count("\x1b[H") > 4)
    narrow = watched.frames()[-2]
    assert narrow[0].startswith("small-net  running")
    assert any(line.startswith("train/loss") for line in narrow)
    assert max(map(len, narrow)) <= 40
    assert len(narrow) <= 8
    watched.process.send_signal(signal.SIGINT)
    code, errors = watched.end()
    assert (code, "Traceback" in errors) == (0, False)
    assert watched.text.count(MAIN) == 1
    assert watched.left_behind()[0].startswith("small-net  running")
    trained.send_signal(signal.SIGINT)
    scripts.end(trained)


@pytest.mark.slow
def test_a_terminated_follow_gives_the_terminal_back(terminal: Callable[..., Terminal], scripts: Scripts) -> None:
    """SIGTERM: first screen and cursor are there again, and the exit code is that of the signal."""
    trained = scripts.popen(TRAINING.replace("range(20)", "range(10_000)"))
    watched = terminal("latest", "--wait")
    watched.read_until(lambda text: "train/loss" in text)
    watched.process.send_signal(signal.SIGTERM)
    assert watched.end()[0] == 128 + signal.SIGTERM
    assert watched.text.rindex(MAIN) > watched.text.rindex(ALTERNATE)
    assert watched.text.rindex(SHOW) > watched.text.rindex(HIDE)
    trained.kill()
    scripts.stop_all()


def test_without_colours_there_are_none(terminal: Callable[..., Terminal], root: Path) -> None:
    """NO_COLOR: bold and dim may be, colours not."""
    a_finished_run(root)
    coloured = terminal("latest", "--once")
    assert coloured.end()[0] == 0
    plain = terminal("latest", "--once", env={"NO_COLOR": "1"})
    assert plain.end()[0] == 0
    colours = re.compile(r"\x1b\[(\d+;)*(3|4|9|10)\d[;m]")
    assert colours.search(coloured.text)
    assert not colours.search(plain.text)
    assert "small-net  finished" in SGR.sub("", plain.text)


def test_a_dumb_terminal_gets_lines(terminal: Callable[..., Terminal], root: Path) -> None:
    """Where the cursor cannot be moved nothing is drawn over."""
    a_finished_run(root)
    watched = terminal("latest", env={"TERM": "dumb"})
    assert watched.end()[0] == 0
    assert "\x1b" not in watched.text
    assert "finished epoch" not in watched.text
    assert re.search(r"finished step 2, train/loss 2 \(best 1\)", watched.text)


def test_a_console_without_blocks_gets_ascii(terminal: Callable[..., Terminal], root: Path) -> None:
    """Nothing is written that the console's character set lacks; a name is shown by its escapes."""
    a_finished_run(root, name="kleines-Netz-Ü")
    watched = terminal("latest", env={"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"})
    assert watched.end()[0] == 0
    assert watched._bytes.isascii()
    assert watched.left_behind()[0].startswith("kleines-Netz-\\xdc  finished")
    (row,) = [line for line in watched.left_behind() if line.startswith("train/loss")]
    assert row.split() == ["train/loss", "2", "@2", "1", "@1", "#_="]


def test_hostile_names_do_not_steer_the_terminal(terminal: Callable[..., Terminal], root: Path) -> None:
    """Every escape that is written is one of the picture's own."""
    hostile = "\x1b[2J\x1b]0;owned\x07[red]x[/red]\x9b31m"
    builder = RunBuilder(root, name=hostile, project=hostile).attempt()
    builder.log({hostile: [1.0]}, steps=[0]).record(hostile, "ERROR").end("failed", reason=hostile)
    watched = terminal("latest")
    assert watched.end()[0] == 5
    own = re.compile(r"\x1b\[(\?1049[hl]|\?25[hl]|H|[0-9;]*m)")
    rest = own.sub("", watched.text)
    assert not re.search("[\x00-\x09\x0b\x0c\x0e-\x1f\x7f-\x9f]", rest)
    assert "[red]x[/red]" in rest


def test_without_rich_there_are_lines_and_a_hint(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What draws is an extra; without it everything is told all the same."""
    a_finished_run(root)
    monkeypatch.setitem(sys.modules, "rich", None)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert main(["follow", "latest"]) == 0
    shown = capsys.readouterr()
    assert "the live picture needs rich: pip install 'otel-train[view]'" in shown.err
    assert "train/loss 2 (best 1)" in shown.out


# Without a terminal --------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_pipe_gets_plain_lines(piped: Callable[..., Any], scripts: Scripts, root: Path) -> None:
    """A line now and then while it trains, the warning as it comes, the end with the last values, no escape."""
    root.mkdir()
    followed = piped("latest", "--wait", "--interval", "0.5")
    assert followed.stderr.readline() == f"waiting for latest in {root}\n"
    trained = scripts.popen(TRAINING)
    output, errors = followed.communicate(timeout=60)
    done = scripts.end(trained)
    assert (followed.returncode, errors) == (0, "")
    assert "\x1b" not in output
    assert "\r" not in output
    lines = [re.sub(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d ", "", line) for line in output.splitlines()]
    assert lines[0] == f"run small-net ({done.path.name}) in {done.path}"
    steps = [int(found[1]) for line in lines if (found := re.match(r"running .*step (\d+),", line))]
    assert steps == sorted(set(steps))
    assert len(steps) >= 2
    assert lines.count("WARN     odd value at thirty  [epoch 1, step 30]") == 1
    ended = [line for line in lines if line.startswith("finished")]
    assert len(ended) == 1
    assert ended[0].startswith("finished 100.0 %, epoch 2, step 59, train/loss 0.01667, val/loss 0.6667, ")


@pytest.mark.slow
def test_a_run_that_failed_ends_with_a_code_of_its_own(piped: Callable[..., Any], scripts: Scripts, root: Path) -> None:
    """Code 5, after the exception and the reason were told."""
    root.mkdir()
    followed = piped("latest", "--wait", "--interval", "0.5")
    assert scripts(FAILING).code == 1
    output, _ = followed.communicate(timeout=60)
    assert followed.returncode == 5
    assert re.search(r"^\S+ \S+ failed   .*step 19, train/loss 0\.05,", output, re.MULTILINE)
    assert "no data left" in output.split("failed   ")[1]


@pytest.mark.slow
def test_a_run_that_is_killed_is_lost(piped: Callable[..., Any], scripts: Scripts, root: Path) -> None:
    """By `kill -9` in the midst: what was on disk is told, then that the process is gone; code 5."""
    trained = scripts.popen(TRAINING.replace("range(20)", "range(10_000)"))
    followed = piped("latest", "--wait", "--interval", "0.2")
    for line in followed.stdout:
        if "train/loss" in line:
            break
    trained.kill()
    trained.wait()
    rest, _ = followed.communicate(timeout=60)
    assert followed.returncode == 5
    assert f"lost: process {trained.pid} is gone and wrote no end" in rest
    # The end is there at once as well for who looks later.
    assert main(["follow", "latest"]) == 5


@pytest.mark.slow
def test_a_run_that_goes_on_as_a_new_attempt_is_followed_on(
    piped: Callable[..., Any], scripts: Scripts, root: Path
) -> None:
    """A launcher starts it anew within seconds: the second attempt is told, and its end is the run's."""
    root.mkdir()
    followed = piped("latest", "--wait", "--interval", "0.2")
    again = FAILING.replace('run_id="fails", resume=None', 'resume="fails"').replace("    raise ValueError", "    #")
    assert again.count("raise") == 0
    # Looks for the file that the test makes when it has seen the first attempt end.
    waits = "import pathlib\nwhile not pathlib.Path('go').exists():\n    time.sleep(0.02)\n"
    both = f"try:\n{textwrap.indent(FAILING, '    ')}\nexcept ValueError:\n{textwrap.indent(waits + again, '    ')}\n"
    trained = scripts.popen(both)
    output = ""
    for line in followed.stdout:
        output += line
        if " failed " in line:
            (scripts.folder / "go").touch()
            break
    rest, _ = followed.communicate(timeout=60)
    output += rest
    assert scripts.end(trained).code == 0
    assert followed.returncode == 0
    told = [line.split(" ", 2)[2] for line in output.splitlines()]
    assert told.count("attempt 2 of the run began") == 1
    # Why the first one ended is an event of the second.
    (cause,) = [line for line in told if line.startswith("ERROR    attempt 1 ended because rank 0 ")]
    assert "failed at step 19: ValueError: no data left" in cause
    assert re.search(
        r" failed   .*\n(.*\n)*.* attempt 2 of the run began\n(.*\n)*.* finished .*train/loss 0\.0", output
    )


@pytest.mark.slow
def test_a_run_that_is_deleted_ends_it(piped: Callable[..., Any], scripts: Scripts, root: Path) -> None:
    """Somebody removes the folder: one sentence and code 2, no traceback."""
    trained = scripts.popen(TRAINING.replace("range(20)", "range(10_000)"))
    followed = piped("latest", "--wait", "--interval", "0.2")
    for line in followed.stdout:
        if "train/loss" in line:
            break
    trained.kill()
    trained.wait()
    (path,) = run_paths(root)
    shutil.rmtree(path)
    _, errors = followed.communicate(timeout=60)
    assert followed.returncode == 2
    assert errors.splitlines()[-1] == f"otel-train: {path} was deleted"
    assert "Traceback" not in errors


# What has ended, and bad input ----------------------------------------------------------------------------------------


def test_once_prints_one_picture(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In a pipe without an escape; of a run that goes on, too, and its code says nothing of how it is."""
    a_finished_run(root)
    assert main(["follow", "latest", "--once"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"small-net  finished  digits · {RUN_ID}"
    (row,) = [line.split() for line in lines if line.startswith("train/loss")]
    assert row == ["train/loss", "2", "@2", "1", "@1", "█▁▅"]
    assert lines[-1] == str(root / RUN_ID)
    RunBuilder(root, "20260131-130000-bbbbbbbb").attempt().end("failed", reason="no data")
    assert main(["follow", "20260131-13", "--once"]) == 0
    assert "failed" in capsys.readouterr().out


@pytest.mark.parametrize(("state", "code"), [("finished", 0), ("failed", 5), ("killed", 5), ("interrupted", 5)])
def test_a_run_that_has_ended_is_told_and_left(
    root: Path, capsys: pytest.CaptureFixture[str], state: str, code: int
) -> None:
    """Nothing is waited for."""
    RunBuilder(root).attempt().log({"loss": [1.0]}, steps=[0]).end(state, reason="so it was")
    assert main(["follow", "latest"]) == code
    assert f"{state:<8} step 0, train/loss 1" in capsys.readouterr().out


def test_damage_is_said_by_the_code(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Code 3, as of the other commands."""
    builder = RunBuilder(root).attempt().lines("metrics", b'{"resourceMetrics":[{"torn\n')
    builder.log({"loss": [1.0]}, steps=[0]).end()
    assert main(["follow", "latest"]) == 3
    assert main(["follow", "latest", "--once"]) == 3
    assert "1 damaged line is left out" in capsys.readouterr().out


@pytest.mark.parametrize("interval", ["0", "-1", "soon", "nan", "1e9"])
def test_an_interval_that_is_none_is_refused(root: Path, capsys: pytest.CaptureFixture[str], interval: str) -> None:
    """With what would do."""
    with pytest.raises(SystemExit, match="2"):
        main(["follow", "latest", "--interval", interval])
    assert "--interval" in capsys.readouterr().err


def test_an_unknown_run_names_near_ones(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As everywhere; an empty root says that."""
    assert main(["follow", "latest"]) == 2
    assert "there is no run in" in capsys.readouterr().err
    a_finished_run(root)
    assert main(["follow", "smal-net"]) == 2
    assert "near it: small-net" in capsys.readouterr().err
