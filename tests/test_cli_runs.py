"""`otel-train runs`: filter, search, order, columns and JSON, on runs made by hand."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from otel_train.cli.main import main
from otel_train.clock import NS_PER_S, iso
from otel_train.view.index_file import INDEX_FILE
from tests.runs import START_NS, RunBuilder

A, B, C = (f"20260131-120000-{letter * 8}" for letter in "abc")


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Three runs: `a` failed, `b` finished, `c`, the newest, was killed and has its numbers in its points alone."""
    monkeypatch.setenv("OTEL_TRAIN_DIR", str(tmp_path))
    for place, (run_id, loss, lr) in enumerate(((A, 0.5, 0.1), (B, "NaN", 0.2))):
        summary = {"val/loss": {"last": loss, "min": 0.25, "max": 2.0, "last_step": 99}}
        created = iso(START_NS + place * NS_PER_S)
        builder = RunBuilder(tmp_path, run_id, name=f"run {place}", created=created, summary=summary, notes="n")
        builder.attempt(config={"lr": lr, "model": {"depth": 3}}, start_s=place)
        builder.log({"loss": [0.5]}, split="val", steps=[99], epochs=[4])
        builder.end("failed" if run_id == A else "finished")
    killed = RunBuilder(tmp_path, C, created=iso(START_NS + 5 * NS_PER_S)).attempt(config={"lr": 0.3})
    killed.log({"loss": [3.0, 0.125, 1.0]}, split="val", steps=[0, 1, 2])
    return tmp_path


def ids(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The last letters of the runs that are listed."""
    assert main(["runs", *arguments]) == 0
    return "".join(line.split()[0][-1] for line in capsys.readouterr().out.splitlines()[1:])


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ((), "cba"),
        (("--where", "loss > 0.4"), "ca"),
        (("--where", "best.loss < 0.2 or loss = nan"), "cb"),
        (("--where", "config.lr >= 0.2 and not state = lost"), "b"),
        (("--where", "state in (failed, lost)", "--status", "failed"), "a"),
        (("--search", "lr=0.1"), "a"),
        (("--sort", "best.loss"), "cba"),
        (("--sort", "loss desc"), "cab"),
        (("--sort=-loss",), "cab"),
        (("--sort", "config.lr", "--last", "2"), "ab"),
        (("--last", "2"), "cb"),
    ],
)
def test_runs_are_chosen_and_sorted(
    root: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], found: str
) -> None:
    """Each choice, worked out by hand; the second time, from the index in the root, it is the same."""
    assert ids(capsys, *arguments) == found
    assert (root / INDEX_FILE).is_file()
    assert ids(capsys, *arguments) == found


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (
            ("--where", "los < 0.2 and state = failed"),
            "otel-train: --where: no run has 'los'; near it: loss, host, val/loss, notes\n"
            "  los < 0.2 and state = failed\n  ^^^\n",
        ),
        (
            ("--where", "state = failed and"),
            "otel-train: --where: expected a name such as loss, state or config.lr, found the end\n"
            "  state = failed and\n                    ^\n",
        ),
        (
            ("--sort", "name, nane"),
            "otel-train: --sort: no run has 'nane'; near it: name\n  name, nane\n        ^^^^\n",
        ),
        (
            ("--columns", "state, nane,name"),
            "otel-train: --columns: no run has 'nane'; near it: name\n  state, nane,name\n         ^^^^\n",
        ),
    ],
)
def test_a_wrong_filter_is_pointed_at(
    root: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], told: str
) -> None:
    """Exit code 2, what is wrong, and where."""
    assert main(["runs", *arguments]) == 2
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", told)


def test_names_cannot_steer_the_terminal(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A key that holds a colour code is told, and shown, by its escapes."""
    RunBuilder(root, "x", summary={"val/los\x1b[31m": {"last": 1.0}}).attempt(config={"a\x1b]0;b": "c\x1b[2J"}).end()
    for option, text in (
        ("--where", "los < 1"),
        ("--sort", "los"),
        ("--columns", "los"),
        ("--where", "config.a]0;b = 1"),
    ):
        assert main(["runs", option, text]) == 2
        told = capsys.readouterr().err
        assert "near it: " in told
        assert "\\x1b" in told
        assert "\x1b" not in told
    assert main(["runs", "--columns", "config.a\x1b]0;b,val/los\x1b[31m"]) == 0
    assert "\x1b" not in capsys.readouterr().out


def test_chosen_columns_are_shown(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Numbers to the right; what a run does not have is empty."""
    names = "state,name,loss,best.loss,config.lr,config.model.depth,started,duration,tags,epoch"
    assert main(["runs", "--columns", names]) == 0
    head, *lines = (re.split(r" {2,}", line) for line in capsys.readouterr().out.splitlines())
    assert head == ["id", *names.replace("started", "started (UTC)").split(",")]
    assert lines == [
        [C, "lost", "small-net", "1", "0.125", "0.3", "2026-01-31 12:00:05", "0 ms"],
        [B, "finished", "run 1", "NaN", "0.25", "0.2", "3", "2026-01-31 12:00:01", "9 min 59 s", "4"],
        [A, "failed", "run 0", "0.5", "0.25", "0.1", "3", "2026-01-31 12:00:00", "10 min 00 s", "4"],
    ]


def test_json_holds_all_that_is_known(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Strict JSON with every statistic, the configuration and the place of each run."""
    assert main(["runs", "--json", "--where", f"id in ({A}, {B})"]) == 0
    out = capsys.readouterr().out
    newer, older = json.loads(out, parse_constant=lambda name: pytest.fail(f"bare {name}"))
    assert newer["values"] == {"val/loss": {"last": "NaN", "best": 0.25, "min": 0.25, "max": 2.0, "goal": "min"}}
    assert older == {
        "run_id": A,
        "name": "run 0",
        "project": "digits",
        "status": "failed",
        "reason": "",
        "fallen_rank": None,
        "started": "2026-01-31T12:00:00.000000Z",
        "duration_s": 600.0,
        "step": 99.0,
        "epoch": 4.0,
        "attempts": 1,
        "ranks": 1,
        "host": "elsewhere",
        "metrics": {"val/loss": 0.25},
        "values": {"val/loss": {"last": 0.5, "best": 0.25, "min": 0.25, "max": 2.0, "goal": "min"}},
        "config": {"lr": 0.1, "model.depth": 3},
        "group": "",
        "tags": [],
        "notes": "n",
        "path": str(root / A),
        "problem": "",
        "still_reading": False,
    }


def test_nothing_like_that(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A filter that no run passes is no fault, nor is an empty folder; one that is not there, or a file, is."""
    assert main(["runs", "--where", "loss > 1000"]) == 0
    assert capsys.readouterr().err == f"no run like that in {root}\n"
    (root / "empty").mkdir()
    assert main(["runs", "--dir", str(root / "empty")]) == 0
    assert capsys.readouterr().err == f"no run in {root / 'empty'}\n"
    (root / "file").write_text("x")
    for name, told in (("nowhere", "not there"), ("file", "a file")):
        assert main(["runs", "--dir", str(root / name), "--json"]) == 2
        captured = capsys.readouterr()
        assert captured.err == f"otel-train: there is no run in {root / name}, which is {told}\n"
        assert captured.out == ""
    assert not (root / "nowhere").exists()
