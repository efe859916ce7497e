"""`otel-train compare`: what it prints of runs made by hand, as text and as JSON, and its exit codes."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest

from otel_train.cli.main import main
from tests.runs import RunBuilder

ONE, TWO, THREE = "20260131-120000-aaaaaaaa", "20260131-130000-bbbbbbbb", "20260131-140000-cccccccc"
PATCH = """\
diff --git a/train.py b/train.py
index 1111111..2222222 100644
--- a/train.py
+++ b/train.py
@@ -1,2 +1,2 @@
 import x
-lr = 1
+lr = {lr}
"""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A root with two runs that differ in one value, in one line of code and in their data."""
    monkeypatch.setenv("OTEL_TRAIN_DIR", str(tmp_path))
    for run_id, name, lr, loss in ((ONE, "small-net", 0.1, [2.0, 0.5]), (TWO, "wide-net", 0.2, [3.0, 0.25])):
        code = {"commit": "a" * 40, "dirty": True, "patch": PATCH.format(lr=lr), "patch_sha256": str(lr)}
        builder = RunBuilder(
            tmp_path,
            run_id,
            name=name,
            datasets=[{"name": "digits", "size": 100 if lr == 0.1 else 101}],
        )
        builder.attempt(
            config={"lr": lr, "batch": 32},
            environment={"code": code, "packages": {"torch": "2.15.0"}},
        )
        builder.log({"loss": loss}, split="val", steps=[0, 1]).end("finished" if lr == 0.1 else "killed", at_s=60)
    return tmp_path


def test_two_runs_are_put_side_by_side_with_the_best_marked(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Results with the difference to the first, only what differs of the rest, and what is the same by its name."""
    assert main(["compare", "small-net", TWO]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == ["1", "small-net", "2", "wide-net"]
    assert lines[2].split() == ["Id", ONE, TWO]
    cells = {line.split()[0]: line.split()[1:] for line in lines if line.strip()}
    assert cells["State"] == ["finished", "killed"]
    assert cells["val/loss"] == ["lowest", "0.5", "*0.25", "(-0.25,", "-50", "%)"]
    assert cells["lr"] == ["0.1", "0.2"]
    assert cells["digits:"] == ["size", "100", "101"]
    assert "batch" not in cells
    assert "Configuration: 1 of 2 differ" in lines
    assert "Not committed: wide-net beside small-net" in lines
    assert [line.strip() for line in lines if line[:4] == "    " and line[4] in "@+-"] == [
        "@@ -5,3 +5,3 @@",
        "-+lr = 0.1",
        "++lr = 0.2",
    ]
    assert lines[-1] == "The same in all of these runs: environment, packages (--all shows them)."


def test_all_shows_what_is_the_same_too(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The value and the package that both have."""
    assert main(["compare", ONE, TWO, "--all"]) == 0
    out = capsys.readouterr().out
    cells = {line.split()[0]: line.split()[1:] for line in out.splitlines() if line.strip()}
    assert cells["batch"] == ["32", "32"]
    assert cells["torch"] == ["2.15.0", "2.15.0"]
    assert "Packages: nothing differs" in out


def test_json_has_exact_numbers_in_the_order_of_the_arguments(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The first named is the base, values keep their kinds, and a program finds who is best."""
    assert main(["compare", TWO, ONE, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [run["id"] for run in found["runs"]] == [TWO, ONE]
    assert found["base"] == TWO
    (row,) = found["results"]["rows"]
    assert [cell["best"] for cell in row["cells"]] == [0.25, 0.5]
    assert row["winners"] == [0]
    rows = {row["key"]: row for row in found["configuration"]["rows"]}
    assert rows["lr"]["differs"] is True
    assert rows["batch"]["cells"] == [{"text": "32", "kind": "int"}] * 2
    assert found["patches"][0]["files"][0]["path"] == "train.py"


def test_json_is_strict_also_with_values_that_are_not_finite(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """NaN by its name, and no best value where none is finite."""
    RunBuilder(root, THREE, name="sick").attempt().log({"loss": [1.0, math.nan]}, split="val", steps=[0, 1]).end()
    assert main(["compare", ONE, THREE, "--json"]) == 0
    out = capsys.readouterr().out
    found = json.loads(out, parse_constant=lambda name: pytest.fail(f"bare {name}"))
    assert found["results"]["rows"][0]["cells"][1]["last"] == "NaN"
    assert main(["compare", ONE, THREE]) == 0
    row = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("val/loss"))
    assert row.split()[1:] == ["lowest", "*0.5", "1", "(+0.5,", "+100", "%)", "[1", "not", "finite]"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([ONE], "one run cannot be compared: name two or more"),
        ([ONE, "small-net"], "one run cannot be compared"),
        ([ONE, "wide-ned"], "no run 'wide-ned'"),
        ([ONE, "20260131"], "could mean 2 runs"),
    ],
)
def test_what_cannot_be_compared_is_said(
    root: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    """Exit code 2, a sentence on standard error, nothing on standard output."""
    assert main(["compare", *arguments]) == 2
    found = capsys.readouterr()
    assert said in found.err
    assert found.out == ""


def test_copies_of_one_run_are_not_compared(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two folders of one name are one run, which nothing differs from."""
    shutil.copytree(root / ONE, tmp_path / "elsewhere" / ONE)
    assert main(["compare", str(root / ONE), str(tmp_path / "elsewhere" / ONE)]) == 2
    assert "copies of one run" in capsys.readouterr().err


def test_damage_is_told_and_the_rest_is_compared(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 3, with the run's id and the place of the line."""
    builder = RunBuilder(root, THREE, name="torn").attempt().log({"loss": [1.0]}, split="val", steps=[0])
    builder.lines("metrics", b'{"cut off\n').end()
    assert main(["compare", ONE, THREE]) == 3
    found = capsys.readouterr()
    assert "val/loss" in found.out
    assert found.err.startswith(f"{THREE}: 1 damaged place,")
    assert "torn: 1 line is damaged and left out here." in found.out


def test_names_cannot_steer_the_terminal(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Control characters of names, keys and values are written as escapes."""
    config: dict[str, Any] = {"\x1b[31mkey": "\x1b]0;owned\x07"}
    builder = RunBuilder(root, THREE, name="\x1b[2Jname").attempt(config=config)
    builder.log({"\x1b[1mloss": [1.0]}, split="val").end()
    assert main(["compare", ONE, THREE]) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "\x07" not in out
    assert "\\x1b[2Jname" in out


def test_a_value_too_long_for_its_column_is_told_below_it(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two command lines that differ at their end alone are seen to differ."""
    for number, run_id in enumerate((THREE, "20260131-150000-dddddddd")):
        argv = ["python", "/a/long/path/to/the/script/of/this/training/train.py", f"--lr={number}"]
        RunBuilder(root, run_id, name=f"n{number}").attempt(environment={"command": {"argv": argv}}).end()
    assert main(["compare", "n0", "n1"]) == 0
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    place = lines.index("command line:")
    assert lines[place + 1 : place + 3] == [
        "1 n0: python /a/long/path/to/the/script/of/this/training/train.py --lr=0",
        "2 n1: python /a/long/path/to/the/script/of/this/training/train.py --lr=1",
    ]


def test_checksums_that_differ_at_their_end_look_different(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of a long digest beginning and end are shown."""
    for number, run_id in enumerate((THREE, "20260131-150000-dddddddd")):
        digest = {"algorithm": "sha256", "value": "ab" * 31 + f"0{number}"}
        RunBuilder(root, run_id, name=f"n{number}", datasets=[{"name": "d", "checksum": digest}]).attempt().end()
    assert main(["compare", "n0", "n1"]) == 0
    row = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("d: checksum"))
    assert row.split()[2:] == ["sha256", "ababababab...abab00", "sha256", "ababababab...abab01"]
