"""The documentation is true: links lead somewhere, names exist, code runs, and generated pages are up to date."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import otel_train
from otel_train import semconv
from otel_train.cli.main import COMMANDS, build_parser
from otel_train.config import BY_NAME, SETTINGS
from otel_train.errors import installing
from otel_train.run.run import Run
from otel_train.run.stage import Stage
from otel_train.runlog.catalogue import list_runs
from otel_train.view.index import RunIndex
from otel_train.view.run_table import matching

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.glob("*.md"))]
TEXTS = {page.relative_to(ROOT).as_posix(): page.read_text(encoding="utf-8") for page in PAGES}
SOURCE = "\n".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "otel_train").rglob("*.py")))
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
# Names that begin as ours do and are those of others, or of something else.
OF_OTHERS = {"system.", "process.", "hw.", "otel_train."}


def blocks(page: str, language: str) -> list[str]:
    return [text for found, text in BLOCK.findall(TEXTS[page]) if found == language]


def inline_code(page: str) -> list[str]:
    return INLINE.findall(BLOCK.sub("", TEXTS[page]))


def load_generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_generate", DOCS / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_generated_pages_are_those_of_the_tables() -> None:
    """Whoever changes a table runs `make docs`."""
    for name, text in load_generator().pages().items():
        assert (DOCS / name).read_text(encoding="utf-8") == text, f"run `make docs`: docs/{name} is not up to date"


def test_each_name_of_the_tables_is_on_its_page_once() -> None:
    """No group of the metrics' page leaves one out, or has one twice."""
    for page, names in (
        ("docs/metrics.md", semconv.METRICS),
        ("docs/events.md", semconv.EVENTS),
        ("docs/settings.md", BY_NAME),
    ):
        first_cells = re.findall(r"^\| `([^`]+)` \|", TEXTS[page], re.MULTILINE)
        assert {name: first_cells.count(name) for name in names} == dict.fromkeys(names, 1)


def test_each_argument_of_init_is_on_the_page_of_settings() -> None:
    """Those that are settings come from their table, the others from the page's own."""
    arguments = [name for name in inspect.signature(otel_train.init).parameters if name != "settings"]
    assert [name for name in arguments if f"| `{name}` |" not in TEXTS["docs/settings.md"]] == []


def test_links_and_pictures_lead_somewhere() -> None:
    """Each relative target exists."""
    missing = {}
    for page, text in TEXTS.items():
        targets = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", BLOCK.sub("", text))
        relative = [target for target in targets if not target.startswith(("http://", "https://"))]
        missing[page] = [target for target in relative if not ((ROOT / page).parent / target).exists()]
    assert {page: targets for page, targets in missing.items() if targets} == {}


def test_what_is_to_be_installed_can_be_found() -> None:
    """There is no package otel-train on the index: pages name the clone, with extras that there are."""
    named = {
        (page, *found) for page, text in TEXTS.items() for found in re.findall(r"(otel-train|\.)\[([\w,]+)\]'", text)
    }
    assert {(page, name) for page, name, _ in named if name != "."} == set()
    with open(ROOT / "pyproject.toml", "rb") as file:
        extras = tomllib.load(file)["project"]["optional-dependencies"]
    assert {extra for _, _, listed in named for extra in listed.split(",")} - extras.keys() == set()
    # A message is read in either case.
    assert installing("view") == "pip install 'otel-train[view]' (from a clone: pip install '.[view]')"
    assert re.findall(r"pip install 'otel-train\[\w+\]'(?! \(from a clone)", SOURCE) == []


def test_each_page_is_linked_from_the_readme() -> None:
    """Nothing is documented where nobody finds it."""
    pages = [page for page in TEXTS if page.startswith("docs/") or page in ("CHANGELOG.md", "CONTRIBUTING.md")]
    assert [page for page in pages if f"({page})" not in TEXTS["README.md"]] == []


def test_the_readme_opens_with_the_two_commands() -> None:
    """They are the whole set-up, and targets of the Makefile."""
    commands = [line.split("#")[0].strip() for line in blocks("README.md", "sh")[0].splitlines()]
    assert commands == ["make demo", "make test"]
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    code = [text for page in TEXTS for text in [*inline_code(page), *blocks(page, "sh")]]
    targets = re.findall(r"^make ([\w-]+)", "\n".join(code), re.MULTILINE)
    assert set(targets) >= {"demo", "test", "check", "docs"}
    assert [target for target in targets if not re.search(rf"^{target}:", makefile, re.MULTILINE)] == []


@pytest.mark.parametrize("picture", sorted((DOCS / "images").glob("*.png")), ids=lambda picture: picture.stem)
def test_pictures_are_small_enough_to_load_and_shown_somewhere(picture: Path) -> None:
    """Each is a PNG of less than 400 KB, and on a page."""
    assert picture.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert picture.stat().st_size < 400_000
    assert [page for page, text in TEXTS.items() if f"images/{picture.name}" in text] != []


@pytest.mark.parametrize("page", TEXTS)
def test_variables_that_are_named_exist(page: str) -> None:
    """Each variable of ours is in the table of settings, or read somewhere in the program."""
    named = set(re.findall(r"OTEL_TRAIN_[A-Z_]*[A-Z]", TEXTS[page]))
    known = {setting.variable for setting in SETTINGS}
    # Those of the stack, which compose reads, are all in its example of a .env file.
    known |= set(re.findall(r"^#?(OTEL_TRAIN_[A-Z_]+)=", (ROOT / ".env.example").read_text(encoding="utf-8"), re.M))
    known.add("OTEL_TRAIN_BACKENDS")  # where the tests find servers
    assert {name for name in named - known if f'"{name}"' not in SOURCE} == set()


@pytest.mark.parametrize("page", TEXTS)
def test_names_that_are_named_exist(page: str) -> None:
    """Each metric, attribute and event is in a table of names, or written by the program under this name."""
    missing = []
    for text in inline_code(page):
        if text in OF_OTHERS or not re.fullmatch(r"(dl|system|process|hw|container|otel_train)\.[a-z_.]+", text):
            continue
        public = text.startswith("otel_train.") and hasattr(otel_train, text.removeprefix("otel_train."))
        file = text == "otel_train.toml"
        if not (public or file or text in semconv.METRICS or text in semconv.EVENTS or f'"{text}"' in SOURCE):
            missing.append(text)
    assert missing == []


@pytest.mark.parametrize("page", TEXTS)
def test_methods_and_arguments_that_are_named_exist(page: str) -> None:
    """`run.x`, `stage.x` and `name=` within code are of the public interface."""
    parameters = set(inspect.signature(otel_train.init).parameters) | set(BY_NAME)
    for owner in (*Run.__mro__[:-1], Stage):
        for method in (value for name, value in vars(owner).items() if callable(value) and not name.startswith("_")):
            parameters |= set(inspect.signature(method).parameters)
    missing = []
    for text in inline_code(page):
        for name in re.findall(r"^run\.([a-z_]+)", text):
            if not (hasattr(Run, name) or name == "config" or f"run.{name}" in semconv.EVENTS or name == "json"):
                missing.append(text)
        for name in re.findall(r"^stage\.([a-z_]+)", text):
            if not (hasattr(Stage, name) or f"stage.{name}" in semconv.EVENTS):
                missing.append(text)
        if re.match(r"((init|run\.\w+|log)\(|[a-z_]+=)", text) and not text.startswith("run.config"):
            missing += [
                f"{name}= in {text}" for name in re.findall(r"\b([a-z_]+)=(?!=)", text) if name not in parameters
            ]
    assert missing == []


@pytest.mark.parametrize("page", TEXTS)
def test_commands_that_are_named_exist(page: str) -> None:
    """Each `otel-train x` is a command, and each of its options is one that it takes."""
    parser = build_parser()
    (commands,) = (action for action in parser._actions if action.dest == "command")
    lines = [line for block in blocks(page, "sh") for line in block.splitlines()]
    for text in [*inline_code(page), *lines]:
        words = re.split(r"\s+#|[;|]", text)[0].removeprefix("$ ").split()
        if len(words) < 2 or words[0] != "otel-train" or words[1].startswith(("-", "COMMAND")):
            continue
        assert words[1] in COMMANDS, text
        options = commands.choices[words[1]]._option_string_actions
        unknown = [word for word in words[2:] if word.startswith("-") and word not in options]
        assert unknown == [], text


@pytest.mark.parametrize("page", TEXTS)
def test_code_is_python(page: str) -> None:
    """Each block that says it is Python can be parsed."""
    for block in blocks(page, "python"):
        ast.parse(block)


@pytest.mark.parametrize("page", TEXTS)
def test_no_page_speaks_of_one_machine(page: str) -> None:
    """Paths of a machine that a page was written on help nobody."""
    assert re.findall(r"/(?:home|root|work|tmp|Users)/\w*", TEXTS[page]) == []


def run_blocks(page: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a page's Python, one block after the other, as a script in a folder of its own."""
    script = folder / "page.py"
    script.write_text("\n\n".join(blocks(page, "python")), encoding="utf-8")
    environ = {key: value for key, value in os.environ.items() if not key.startswith(("OTEL_", "PYTEST_"))}
    return subprocess.run(
        [sys.executable, "-W", "error::DeprecationWarning", str(script)],
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


@pytest.mark.slow
def test_the_readme_runs(tmp_path: Path) -> None:
    """It makes one run, with a point for each step of each epoch, and the model that it promises, the best one."""
    done = run_blocks("README.md", tmp_path)
    assert done.returncode == 0, done.stderr
    (run,) = list_runs(tmp_path / "runs")
    assert (run.project, run.status.state) == ("line", "finished")
    assert run.info["summary"]["train/loss"]["count"] == 15
    assert run.info["summary"]["val/loss"]["count"] == 5
    assert run.info["summary"]["val/loss"]["last"] < 0.1
    assert (run.path / "model.pkl.context.json").is_file()
    # The loss falls in each epoch, so each has been the best.
    assert [entry["best"] for entry in run.info["checkpoints"]] == [True] * 5


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_readme_leads_from_an_empty_folder_to_comparing_two_runs(
    tmp_path: Path, serve: Callable[..., str], page_of: Callable[..., Any]
) -> None:
    """Its script, started by its commands, gives two rows; both ticked, the comparison has the two learning rates.

    Each run has its own model, and the filter that is shown finds the one of the two that it describes.
    """
    (tmp_path / "train.py").write_text(blocks("README.md", "python")[0], encoding="utf-8")
    lines = [line for block in blocks("README.md", "sh") for line in block.splitlines()]
    trainings = [line.split("#")[0].split()[1:] for line in lines if line.startswith("python train.py")]
    assert [arguments[0] for arguments in trainings] == ["train.py"] * 2
    environ = {key: value for key, value in os.environ.items() if not key.startswith(("OTEL_", "PYTEST_"))}
    for arguments in trainings:
        subprocess.run([sys.executable, *arguments], cwd=tmp_path, env=environ, check=True, timeout=100)
    runs = list_runs(tmp_path / "runs")
    assert [(run.path / "model.pkl").is_file() for run in runs] == [True, True]
    (where,) = re.findall(r"filters them\s+\(`([^`]+)`\)", TEXTS["README.md"])
    index = RunIndex(tmp_path / "runs")
    index.refresh()
    assert [row.config["lr"] for row in matching(index.rows, index.columns, where, "")] == [0.1]
    index.close()
    page = page_of(f"{serve(tmp_path / 'runs')}/")
    boxes = page.locator("tbody input[type=checkbox]")
    boxes.nth(1).wait_for()
    assert boxes.count() == 2
    for number in range(2):
        boxes.nth(number).check()
    page.get_by_role("link", name="Compare 2").click()
    for arguments in trainings:
        page.locator("td, .cell", has_text=re.compile(rf"^{arguments[1]}$")).first.wait_for()
    assert "/compare?runs=" in page.url


@pytest.mark.slow
def test_getting_started_runs(tmp_path: Path) -> None:
    """Each of its runs ends finished, with the numbers that the page logs."""
    done = run_blocks("docs/getting-started.md", tmp_path)
    assert done.returncode == 0, done.stderr
    assert "in both" in done.stderr
    assert "which begins at INFO" not in done.stderr
    runs = list_runs(tmp_path / "runs")[::-1]
    # One for each `init` of the page, the last of which goes on with the one before it.
    inits = "\n".join(blocks("docs/getting-started.md", "python")).count("otel_train.init(")
    assert len(runs) == inits - 1
    assert {run.status.state for run in runs} == {"finished"}
    summaries = [run.info["summary"] for run in runs]
    assert summaries[0]["train/loss"]["count"] == 100
    assert summaries[2]["train/loss"]["count"] == 8
    assert summaries[2]["val/f1"]["last"] == 0.9
    assert summaries[3]["train/loss"]["last_step"] == 990
    assert summaries[4]["train/loss"]["count"] == 4
    assert summaries[5]["val/accuracy"]["max"] == 0.9
    resumed = runs[-1]
    assert [attempt["attempt"] for attempt in resumed.info["attempts"]] == [1, 2]
    assert [change["key"] for change in resumed.info["attempts"][1]["changes"]] == ["lr"]
    assert done.stdout.splitlines() == ["2"]


@pytest.mark.slow
def test_the_page_of_frameworks_runs(tmp_path: Path) -> None:
    """What only makes a Trainer leaves no run; the two loops leave one each, with what the page logs."""
    for package in ("lightning", "transformers", "accelerate"):
        pytest.importorskip(package, reason=f"{package} is not installed")
    done = run_blocks("docs/frameworks.md", tmp_path)
    assert done.returncode == 0, done.stderr
    own, by_accelerate = list_runs(tmp_path / "runs")
    assert {run.status.state for run in (own, by_accelerate)} == {"finished"}
    assert by_accelerate.info["attempts"][0]["config"] == {"lr": 1e-3}
    assert by_accelerate.info["summary"]["train/loss"]["count"] == 2
    assert own.info["summary"]["train/loss"]["last_step"] == 2
    assert [entry["best"] for entry in own.info["checkpoints"]] == [True]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("jq") is None or shutil.which("zcat") is None, reason="jq or zcat is not on the PATH")
def test_the_commands_that_read_a_run_by_hand_give_its_values(tmp_path: Path) -> None:
    """Each command of the page on the run log works, on a run whose values are known."""
    script = """
import otel_train
with otel_train.init("by hand", name="known") as run:
    for epoch in run.epochs(2):
        for batch in run.steps([1.0, 0.5]):
            run.log({"loss": batch})
        run.log({"loss": 0.25 / (1 + epoch)}, split="val")
    run.early_stop("enough")
"""
    environ = {key: value for key, value in os.environ.items() if not key.startswith(("OTEL_", "PYTEST_"))}
    subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env=environ, check=True, capture_output=True, timeout=60
    )
    (run,) = list_runs(tmp_path / "runs")
    commands = [block for block in blocks("docs/run-log-format.md", "sh") if not block.startswith("cd ")]
    printed = []
    for command in commands:
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", command],
            cwd=run.path,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        printed.append(done.stdout)
    losses, names, best, epochs, stop = printed
    assert losses == "1\t0.25\n3\t0.125\n"
    assert {"train.loss", "dl.step", "dl.step.time"} <= set(names.split())
    assert best == "new best val loss 0.125 at step 3\n"
    assert len(epochs.split()) == 2
    assert stop == '{"reason":"enough","dl.step":3}\n'
