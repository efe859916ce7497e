"""`otel_train.show` and the panel of a run, also in a real kernel of IPython."""

from __future__ import annotations

import html
import importlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import otel_train
from otel_train.errors import ConfigError, RunNotFoundError
from otel_train.view.notebook import Report
from tests.runs import RUN_ID, RunBuilder

Start = Callable[..., Any]
HOSTILE = "\"><script>parent.postMessage('out', '*')</script>'"


def a_run(root: Path, run_id: str = RUN_ID, **about: Any) -> RunBuilder:
    return RunBuilder(root, run_id, **about).attempt().log({"loss": [3.0, 1.0, 2.0]}, steps=[0, 1, 2]).end()


def framed_page(text: str) -> str:
    """Return the page that a frame of some HTML holds, as a browser would read it."""
    (found,) = re.findall(r'srcdoc="([^"]*)"', text)
    return html.unescape(found)


# Outside of a notebook -----------------------------------------------------------------------------------------------


def test_outside_of_a_notebook_the_file_is_written(root: Path) -> None:
    """The report of the latest run, as the command writes it, and an object that says where."""
    a_run(root, "20260131-110000-aaaaaaaa")
    builder = a_run(root, name="newest")
    found = otel_train.show()
    assert found.path == builder.path / "artifacts" / "report.html"
    assert '"run_id":"20260131-120000-abcdefgh"' in found.path.read_text(encoding="utf-8").replace('": "', '":"')
    assert repr(found) == f"<report of newest in {found.path}>"


@pytest.mark.parametrize("named", ["20260131-11", "first", "path", "folder"])
def test_a_run_is_named_in_every_way(root: Path, named: str) -> None:
    """By the start of its id, its name, its folder as text or path; in a root that is given."""
    builder = a_run(root, "20260131-110000-aaaaaaaa", name="first")
    a_run(root, name="second")
    run: Any = {"path": builder.path, "folder": str(builder.path)}.get(named, named)
    found = otel_train.show(run, root=root)
    assert found.path == builder.path / "artifacts" / "report.html"


def test_the_current_run_is_shown_with_what_was_just_logged(start: Start) -> None:
    """Without a word the open run, with its newest value, which need not be on disk yet."""
    run = start(name="open", flush_interval_s=1)
    run.log({"loss": 0.0625})
    found = otel_train.show()
    assert found.path is not None
    assert found.path.parent.parent == run.path
    assert "0.0625" in found.path.read_text(encoding="utf-8")


def test_what_cannot_be_shown_is_said(start: Start, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unknown run with near ones, a height that is none, a run without a folder."""
    a_run(root, name="small-net")
    with pytest.raises(RunNotFoundError, match=r"no run 'smal-net' in .*; near it: small-net"):
        otel_train.show("smal-net")
    with pytest.raises(RunNotFoundError, match=r"there is no run in .*nowhere, which is not there"):
        otel_train.show(root=root / "nowhere")
    for height in (0, "700", True, 20_000):
        with pytest.raises(ConfigError, match=r"height.*use a number of pixels from 100 to 10000"):
            otel_train.show(height=height)  # type: ignore[arg-type]
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    with pytest.raises(ConfigError, match="it has no folder to read"):
        otel_train.show(otel_train.init())


def test_the_frame_holds_the_page_and_nothing_breaks_out() -> None:
    """Whatever the page and the name hold is one attribute; the frame runs scripts, and is of no origin."""
    page = f"<!doctype html>{HOSTILE}&amp;<p title='x'>"
    made = Report(page, None, HOSTILE, 480)._repr_html_()
    assert framed_page(made) == page
    assert re.fullmatch(r'<iframe( [a-z]+="[^"<>]*")+></iframe>', made)
    assert 'sandbox="allow-scripts allow-downloads"' in made
    assert 'height="480"' in made


# In a kernel ---------------------------------------------------------------------------------------------------------


class Notebook:
    """Cells that a real kernel executes one after the other, and every display message that came."""

    def __init__(self, folder: Path) -> None:
        for name in ("nbclient", "nbformat", "ipykernel"):
            pytest.importorskip(name, reason=f"{name} is missing: this test needs a kernel")
        self.nbformat = importlib.import_module("nbformat")
        self.nbclient = importlib.import_module("nbclient")
        self.folder = folder
        self.updates: list[str] = []

    def run(self, *cells: str) -> list[list[Any]]:
        """Return the outputs of each cell, as a saved notebook has them; a cell that raises fails the test."""
        new = self.nbformat.v4
        book = new.new_notebook(cells=[new.new_code_cell(cell) for cell in cells])
        updates = self.updates

        class Client(self.nbclient.NotebookClient):  # type: ignore[misc, name-defined]
            def process_message(self, message: Any, cell: Any, cell_index: int) -> Any:
                if message["msg_type"] == "update_display_data":
                    updates.append(message["content"]["data"]["text/html"])
                return super().process_message(message, cell, cell_index)

        client = Client(book, timeout=60, kernel_name="python3", resources={"metadata": {"path": str(self.folder)}})
        client.execute()
        return [cell.outputs for cell in book.cells]


@pytest.fixture
def notebook(tmp_path: Path, root: Path) -> Notebook:
    return Notebook(tmp_path)


def text_of(outputs: list[Any]) -> str:
    return "".join(output.get("text", "") for output in outputs if output.get("name") == "stdout")


def html_of(outputs: list[Any]) -> list[str]:
    return [output["data"]["text/html"] for output in outputs if "data" in output and "text/html" in output["data"]]


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_the_panel_lives_in_its_cell_while_another_trains(notebook: Notebook) -> None:
    """It is shown once, kept true while a later cell trains, and holds how the run ended; its thread ends with it."""
    outputs = notebook.run(
        "import otel_train, threading, time\n"
        "run = otel_train.init('digits', name='small-net', git=False, sample_machine=False)\n"
        "run",
        # Steps of 50 ms: long enough for the panel to change twice.
        "for step in run.steps(range(100)):\n    run.log({'loss': 1 / (1 + step)})\n    time.sleep(0.05)",
        "print([t.name for t in threading.enumerate() if t.name == 'otel-train-panel'])",
        "run.finish()",
        "print([t.name for t in threading.enumerate() if t.name.startswith('otel-train')])",
        "run",
    )
    (last,) = html_of(outputs[0])
    assert ">finished<" in last
    assert "train/loss</td>" in last
    assert ">0.01 @99<" in last
    # While it trained: at least one state in between, with a step of the middle.
    between = [made for made in notebook.updates if ">running<" in made]
    assert any(0 < int(re.findall(r"step (\d+)", made)[0]) < 99 for made in between if "step " in made)
    assert text_of(outputs[2]) == "['otel-train-panel']\n"
    assert text_of(outputs[4]) == "[]\n"
    assert html_of(outputs[5]) == [last]
    assert all("<script" not in made and "http" not in made for made in (last, *notebook.updates))


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_show_embeds_the_report_of_the_run(notebook: Notebook) -> None:
    """The frame of a notebook holds the whole page of the run, and the cell returns nothing beside."""
    outputs = notebook.run(
        "import otel_train\n"
        "run = otel_train.init('digits', name='small-net', git=False, sample_machine=False)\n"
        "run.log({'loss': 0.0625})\nshown = otel_train.show(height=500)\nprint(shown)",
        "run.finish()\notel_train.show(run)",
    )
    (first,), (second,) = html_of(outputs[0]), html_of(outputs[1])
    assert text_of(outputs[0]) == "None\n"
    assert 'height="500"' in first
    for made, state in ((first, "running"), (second, "finished")):
        page = framed_page(made)
        assert f"<title>small-net · {state} · otel-train</title>" in page
        assert "0.0625" in page
        assert "Plotly" in page


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_a_kernel_ends_with_a_panel_that_is_still_open(notebook: Notebook) -> None:
    """A run that nobody finishes keeps neither kernel nor notebook; its end is written as that of any process."""
    outputs = notebook.run(
        "import otel_train\n"
        "run = otel_train.init('digits', git=False, sample_machine=False)\nrun.log({'loss': 0.5})\nrun",
        "print(run.path)",
    )
    path = Path(text_of(outputs[1]).strip())
    assert html_of(outputs[0])
    from otel_train.clock import wall_ns
    from otel_train.runlog.status import run_status

    assert run_status(path, wall_ns()).state != "running"


def test_ipython_on_a_terminal_prints_the_run(scripts: Any) -> None:
    """There is no place there that could change later."""
    pytest.importorskip("IPython", reason="IPython is missing")
    done = scripts(
        """
        import otel_train
        from IPython.testing.globalipapp import start_ipython
        shell = start_ipython()
        with otel_train.init("digits") as run:
            shell.user_ns["run"] = run
            shell.run_cell("display(run)")
            print("id", run.id)
        """
    )
    assert done.code == 0, done.errors
    printed = done.output.splitlines()
    assert f"<Run {printed[-1].removeprefix('id ')}>" in printed[0]
