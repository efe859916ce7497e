"""`otel-train ui` as a user starts it: addresses, messages, exit codes, and how it ends."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from time import monotonic

import pytest

from otel_train.cli.main import main
from tests.runs import RUN_ID, RunBuilder
from tests.serving import Served, serve_in_thread

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parent.parent
UI = [sys.executable, "-m", "otel_train.cli.main", "ui"]


@contextlib.contextmanager
def started(
    *arguments: str, prefix: tuple[str, ...] = (), **environ: str
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The command, running, and the address that it has printed."""
    process = subprocess.Popen(
        [*prefix, *UI, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environ},
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"http://\S+", line)
        assert found, (line, process.stderr and process.stderr.read())
        yield process, found[0]
    finally:
        process.kill()
        process.communicate()


def body(address: str, timeout_s: float = 20) -> bytes:
    with urllib.request.urlopen(address, timeout=timeout_s) as answer:
        return bytes(answer.read())


def one_run(root: Path, run_id: str = RUN_ID) -> RunBuilder:
    return RunBuilder(root, run_id).attempt().log({"loss": [2.0, 1.0]}, steps=[0, 1]).end()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_at_once(tmp_path: Path, number: signal.Signals) -> None:
    """Also with pages that listen, with code 0 and without a word."""
    builder = one_run(tmp_path)
    with started(str(tmp_path), "--port", "0") as (process, address):
        # Ready as soon as the address is printed.
        assert b"data-page" in body(address)
        streams = [
            urllib.request.urlopen(address + path, timeout=20)
            for path in ("api/runs/events", f"api/run/{builder.run_id}/events", f"api/run/{builder.run_id}/events")
        ]
        process.send_signal(number)
        code = process.wait(10)
        for stream in streams:
            # Ended properly, not torn off.
            stream.read()
            stream.close()
        assert code == 0
        assert process.stderr is not None
        assert process.stderr.read() == ""


def test_it_ends_by_itself_where_nobody_looks(tmp_path: Path) -> None:
    """Some time after its start, and after the last page was closed; an open page keeps it."""
    builder = one_run(tmp_path)
    with started(str(tmp_path), "--port", "0", "--until-idle", "0.4") as (process, _):
        assert process.wait(20) == 0
    with started(str(tmp_path), "--port", "0", "--until-idle", "0.4") as (process, address):
        with urllib.request.urlopen(f"{address}api/run/{builder.run_id}/events", timeout=20):
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(1.5)
        assert process.wait(20) == 0


def test_it_says_that_a_folder_is_not_there_yet(tmp_path: Path) -> None:
    """It may be a slip of the key: before the address of one that is missing alone."""
    for root, told in ((tmp_path / "later", " (not there yet)"), (tmp_path, "")):
        done = subprocess.run(
            [*UI, str(root), "--port", "0", "--until-idle", "0.1"], capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0
        assert re.fullmatch(rf"{re.escape(str(root) + told)}: http://\S+  \(Ctrl-C ends it\)\n", done.stdout)


def test_it_serves_a_folder_that_is_not_there_yet(tmp_path: Path) -> None:
    """The first run appears by itself; nothing is made by looking."""
    root = tmp_path / "later"
    with started(str(root), "--port", "0") as (_, address):
        assert b'"total":0' in body(address + "api/runs")
        assert not root.exists()
        one_run(root)
        until_s = monotonic() + 20
        while b'"total":1' not in body(address + "api/runs"):
            assert monotonic() < until_s


@pytest.mark.parametrize("how", ["folder", "run.json", "id", "prefix", "name", "latest", "relative"])
def test_a_run_is_named_as_everywhere_and_its_page_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """A folder of a run, its id, the start of it, its name or the newest: the root around it is served."""
    root = tmp_path / "runs"
    one_run(root)
    monkeypatch.chdir(tmp_path)
    named = {
        "folder": str(root / RUN_ID),
        "run.json": str(root / RUN_ID / "run.json"),
        "id": RUN_ID,
        "prefix": RUN_ID[:12],
        "name": "small-net",
        "latest": "latest",
        "relative": f"runs/{RUN_ID}",
    }[how]
    with started(named, "--port", "0") as (_, address):
        assert address.endswith(f"/run/{RUN_ID}")
        assert f'data-run="{RUN_ID}"'.encode() in body(address)
        assert b'"total":1' in body(address.removesuffix(f"run/{RUN_ID}") + "api/runs")


def test_the_folder_comes_from_the_usual_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """--dir, else the variable, else ./runs; from within a run, its own root."""
    monkeypatch.chdir(tmp_path)
    for number, root in enumerate(("runs", "variable", "option")):
        for more in range(number + 1):
            one_run(tmp_path / root, f"20260131-12000{more}-abcdefgh")
    with started("--port", "0") as (_, address):
        assert b'"total":1' in body(address + "api/runs")
    with started("--port", "0", OTEL_TRAIN_DIR="variable") as (_, address):
        assert b'"total":2' in body(address + "api/runs")
    with started("--port", "0", "--dir", "option", OTEL_TRAIN_DIR="variable") as (_, address):
        assert b'"total":3' in body(address + "api/runs")
    monkeypatch.chdir(tmp_path / "option" / "20260131-120002-abcdefgh")
    with started(".", "--port", "0") as (_, address):
        assert address.endswith("/run/20260131-120002-abcdefgh")


def test_what_is_neither_folder_nor_run_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With what is near, and code 2."""
    one_run(tmp_path)
    assert main(["ui", "20260131-120000-abcdefgx", "--dir", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert error.startswith("otel-train: there is no folder '20260131-120000-abcdefgx', and no run ")
    assert f"near it: {RUN_ID}" in error
    file = tmp_path / "train.py"
    file.write_text("x")
    assert main(["ui", str(file)]) == 2
    assert capsys.readouterr().err == f"otel-train: {str(file)!r} is a file: name a folder of runs, or a run\n"
    assert main(["ui", "latest", "--dir", str(tmp_path / "none")]) == 2
    assert "there is no run in" in capsys.readouterr().err


def test_a_port_in_use_is_refused_with_code_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where it was asked for; the message names the process."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        assert main(["ui", str(tmp_path), "--port", str(port)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert re.fullmatch(rf"otel-train: port {port} is in use by .* \(process {os.getpid()}\): .*\n", captured.err)


@pytest.mark.parametrize(
    "wrong", [["--port", "x"], ["--port", "70000"], ["--until-idle", "0"], ["--until-idle", "nan"], ["--port", "-1"]]
)
def test_wrong_numbers_are_refused(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """By the parser, with code 2."""
    with pytest.raises(SystemExit) as caught:
        main(["ui", *wrong])
    assert caught.value.code == 2
    assert f"argument {wrong[0]}" in capsys.readouterr().err


def test_a_short_token_is_refused_with_code_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It would be guessed."""
    assert main(["ui", str(tmp_path), "--port", "0", "--token", "kurz"]) == 2
    assert "use at least 8 characters" in capsys.readouterr().err


@pytest.mark.parametrize("missing", ["starlette", "uvicorn", "plotly"])
def test_a_missing_package_is_named_with_the_command(
    tmp_path: Path, missing: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The page needs an extra; other commands do not."""
    script = (
        "import sys, importlib.abc\n"
        "class Refuse(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name.partition('.')[0] == {missing!r}:\n"
        f"            raise ModuleNotFoundError('No module named ' + repr(name), name={missing!r})\n"
        "sys.meta_path.insert(0, Refuse())\n"
        "from otel_train.cli.main import main\n"
        "raise SystemExit(main(sys.argv[1:]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, "ui", str(tmp_path), "--port", "0"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2
    assert missing in done.stderr
    assert "pip install 'otel-train[view]'" in done.stderr
    assert "Traceback" not in done.stderr
    done = subprocess.run(
        [sys.executable, "-c", script, "runs", "--dir", str(tmp_path)], capture_output=True, text=True, timeout=60
    )
    assert "Traceback" not in done.stderr


def test_the_browser_is_opened_at_the_right_page(tmp_path: Path) -> None:
    """With the token, at an address that this machine reaches; by the browser that the user has named."""
    one_run(tmp_path / "runs")
    seen = tmp_path / "seen"
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\nprintf "%s" "$1" > {seen}.part && mv {seen}.part {seen}\n')
    browser.chmod(0o755)
    arguments = (RUN_ID, "--dir", str(tmp_path / "runs"), "--port", "0", "--host", "0.0.0.0", "--open")
    with started(*arguments, BROWSER=str(browser)) as (_, printed):
        until_s = monotonic() + 20
        while not seen.exists():
            assert monotonic() < until_s
            threading.Event().wait(0.02)
    opened = seen.read_text()
    assert re.fullmatch(rf"http://127\.0\.0\.1:\d+/run/{RUN_ID}\?token=[\w-]{{32}}", opened)
    assert opened.partition("?")[2] == printed.partition("?")[2]


def test_the_demo_opens_the_page_of_the_run_that_it_trained(tmp_path: Path) -> None:
    """The last line of `make demo` as it is written, with its own program and in a folder that holds a run."""
    recipe = (ROOT / "Makefile").read_text(encoding="utf-8").partition("\ndemo:")[2].split("\n\n")[0]
    trains, looks = re.findall(r"^\t@\$\(BIN\)/(.+)$", recipe, re.MULTILINE)
    assert trains.startswith("python ")
    assert (ROOT / trains.removeprefix("python ")).is_file()
    one_run(tmp_path / "runs")
    seen = tmp_path / "seen"
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\nprintf "%s" "$1" > {seen}.part && mv {seen}.part {seen}\n')
    browser.chmod(0o755)
    program, *arguments = looks.split()
    idle = arguments.index("--until-idle") + 1
    arguments[idle] = "5"
    environ = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_TRAIN_")}
    process = subprocess.Popen(
        [Path(sys.executable).with_name(program), *arguments],
        cwd=tmp_path,
        env={**environ, "BROWSER": str(browser)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        until_s = monotonic() + 30
        while not seen.exists():
            assert monotonic() < until_s
            threading.Event().wait(0.02)
        opened = seen.read_text()
        assert opened.endswith(f"/run/{RUN_ID}")
        assert b'data-page="run"' in body(opened)
        # Nobody looks any more: it ends by itself.
        said, complained = process.communicate(timeout=60)
    finally:
        process.kill()
        process.communicate()
    assert (process.returncode, complained) == (0, "")
    assert opened.rpartition("/run/")[0] in said


def test_without_a_desktop_no_browser_takes_the_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The address is printed all the same, and the server goes on."""
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    with started(str(tmp_path), "--port", "0", "--open", "--until-idle", "1") as (process, address):
        assert body(address)
        assert process.wait(20) == 0
        assert process.stderr is not None
        assert process.stderr.read() == "otel-train: no browser could be opened here; open the address by hand\n"


@pytest.mark.skipif(
    os.geteuid() == 0 and shutil.which("setpriv") is None, reason="root may write everywhere, and setpriv is missing"
)
def test_a_folder_that_cannot_be_written_is_shown(tmp_path: Path) -> None:
    """A shared folder is only read; what would be kept in it is done without."""
    root = tmp_path / "runs"
    builder = one_run(root)
    folders = [root, *(path for path in root.rglob("*") if path.is_dir())]
    for folder in folders:
        folder.chmod(0o555)
    prefix = ("setpriv", "--bounding-set", "-dac_override") if os.geteuid() == 0 else ()
    before = sorted(root.rglob("*"))
    try:
        with started(str(root), "--port", "0", prefix=prefix) as (process, address):
            assert b'"total":1' in body(address + "api/runs")
            assert b'"loss"' in body(f"{address}api/run/{builder.run_id}?parts=metrics")
            process.send_signal(signal.SIGINT)
            assert process.wait(10) == 0
            assert process.stderr is not None
            # Said once, by whom it concerns.
            assert re.fullmatch(r"cannot keep the index of the runs in .*\n", process.stderr.read())
        assert sorted(root.rglob("*")) == before
    finally:
        for folder in folders:
            folder.chmod(0o755)


def test_it_goes_on_where_its_terminal_has_gone(tmp_path: Path) -> None:
    """Nobody reads its output any more."""
    with started(str(tmp_path), "--port", "0", "--verbose") as (process, address):
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        process.stderr.close()
        for _ in range(3):
            assert b'"total":0' in body(address + "api/runs")
        assert process.poll() is None


def test_several_servers_over_one_root(tmp_path: Path) -> None:
    """Each has its own port; both see the run."""
    one_run(tmp_path)
    with serve_in_thread(tmp_path) as first, serve_in_thread(tmp_path) as second:
        answers: list[Served] = [first, second]
        assert [served.get("api/runs").json["total"] for served in answers] == [1, 1]
