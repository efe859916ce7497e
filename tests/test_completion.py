"""Shell completion, by the function that a real bash calls: commands, options, folders, and the runs there are."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from otel_train.cli.completion import PLACES, list_runs
from otel_train.cli.main import COMMANDS, main
from tests.runs import RunBuilder

pytest.importorskip("shtab")
BASH = shutil.which("bash")
needs_bash = pytest.mark.skipif(BASH is None, reason="bash is not on the PATH")
IDS = ("20260131-120000-aaaaaaaa", "20260131-130000-bbbbbbbb", "20260201-120000-cccccccc")
Complete = Callable[..., list[str]]


@pytest.fixture
def runs(root: Path) -> Path:
    """Three runs with names, of which one no shell takes as a word, and what is no run."""
    for run_id, name in zip(IDS, ("swift-owl", "calm-fox", "odd $(touch owned)"), strict=True):
        RunBuilder(root, run_id, name=name).attempt().end()
    (root / "notes").mkdir()
    (root / ".hidden").mkdir()
    return root


@pytest.fixture
def complete(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Complete:
    """Press the key at the end of words, in a bash that knows nothing but our completion."""
    assert main(["completion", "bash"]) == 0
    script = tmp_path / "completion.bash"
    script.write_text(capsys.readouterr().out, encoding="utf-8")
    # The command that the completion calls is this one, whatever is installed.
    command = tmp_path / "bin" / "otel-train"
    command.parent.mkdir()
    command.write_text(f'#!{BASH}\nexec {sys.executable} -m otel_train.cli.main "$@"\n', encoding="utf-8")
    command.chmod(0o755)

    def complete(*words: str, cwd: Path = tmp_path, **environ: str) -> list[str]:
        code = (
            f"source {script}\n"
            'COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))\n'
            # What a press of the key calls, as bash was told.
            "function=$(complete -p otel-train); function=${function##*-F }; function=${function%% *}\n"
            '"$function" otel-train "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"\n'
            'printf "%s\\n" "${COMPREPLY[@]}"\n'
        )
        package = str(Path(__file__).parent.parent)
        done = subprocess.run(
            [BASH or "bash", "--norc", "-c", code, "bash", "otel-train", *words],
            env={**os.environ, "PATH": f"{command.parent}:{os.environ['PATH']}", "PYTHONPATH": package, **environ},
            cwd=cwd,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""
        return [line.strip() for line in done.stdout.splitlines() if line.strip()]

    return complete


@needs_bash
def test_commands_and_options(complete: Complete) -> None:
    """All commands, those that begin so, and the options of one of them."""
    assert set(complete("")) >= set(COMMANDS)
    assert complete("do") == ["doctor"]
    assert set(complete("doctor", "--")) == {"--help", "--dir", "--endpoint", "--timeout", "--json"}
    assert complete("completion", "b") == ["bash"]


@needs_bash
@pytest.mark.parametrize("command", ["show", "logs", "report"])
def test_runs_are_completed_by_id_and_name(runs: Path, complete: Complete, command: str) -> None:
    """The ids that begin so, names, and `latest`; a name that a shell would run is not among them."""
    assert complete(command, "20260131", OTEL_TRAIN_DIR=str(runs)) == [IDS[1], IDS[0]]
    assert complete(command, "sw", OTEL_TRAIN_DIR=str(runs)) == ["swift-owl"]
    everything = complete(command, "", OTEL_TRAIN_DIR=str(runs))
    assert [word for word in everything if word not in ("bin", "runs")] == [
        *("latest", IDS[2], IDS[1], IDS[0], "calm-fox", "swift-owl"),
    ]
    assert not list(runs.parent.rglob("owned"))


@needs_bash
def test_the_folder_that_is_asked_for_is_where_runs_are_looked_for(
    runs: Path, tmp_path: Path, complete: Complete
) -> None:
    """`--dir` before the run wins over the variable; a folder with a space is one folder."""
    other = tmp_path / "other runs"
    RunBuilder(other, "20270101-000000-dddddddd", name="far-hill").attempt().end()
    found = complete("show", "--dir", str(other), "2027", OTEL_TRAIN_DIR=str(runs))
    assert found == ["20270101-000000-dddddddd"]
    assert complete("show", "2027", OTEL_TRAIN_DIR=str(runs)) == []


@needs_bash
def test_without_runs_nothing_is_offered_and_nothing_said(tmp_path: Path, complete: Complete) -> None:
    """A root that is not there is no fault while one types."""
    assert complete("show", "2", OTEL_TRAIN_DIR=str(tmp_path / "nowhere")) == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "tcsh"])
def test_each_shell_gets_a_script_that_asks_for_runs(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The script names every command, and how runs are asked for."""
    import shtab

    code = main(["completion", shell])
    out, err = capsys.readouterr()
    if shell not in shtab.SUPPORTED_SHELLS:
        assert code == 2
        assert f"knows no {shell}" in err
        return
    assert code == 0
    assert [name for name in COMMANDS if name not in out] == []
    assert "otel-train _runs" in out
    # The head of the script names the place that our help and documentation name, and no other one.
    head = out[: out.index("\n\n", out.index("# Usage"))]
    assert f"otel-train completion {shell} > {PLACES[shell]}" in head
    assert "_completion/" not in head
    documented = (Path(__file__).parent.parent / "docs" / "command-line.md").read_text(encoding="utf-8")
    assert f"otel-train completion {shell} > {PLACES[shell]}" in documented


def test_the_list_of_runs(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Newest first; a damaged run.json costs the name alone; no other command's module is loaded for it."""
    (runs / IDS[1] / "run.json").write_text("{", encoding="utf-8")
    assert list_runs([]) == 0
    assert capsys.readouterr().out.splitlines() == ["latest", IDS[2], IDS[1], IDS[0], "swift-owl"]
    code = (
        "import sys; from otel_train.cli.main import main; main(['_runs']); print(sorted(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert "'otel_train.cli.push'" not in done.stderr
    assert "'plotly'" not in done.stderr


def test_without_shtab_the_command_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line with the fix, and the code of what could not be done."""
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert main(["completion", "bash"]) == 2
    assert capsys.readouterr().err == (
        "otel-train: completion needs shtab: pip install 'otel-train[view]' (from a clone: pip install '.[view]')\n"
    )
