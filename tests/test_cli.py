"""The commands on runs made by hand: what they print, and their exit codes."""

from __future__ import annotations

import io
import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from otel_train.cli import logs as logs_command
from otel_train.cli.arguments import progress
from otel_train.cli.main import main
from otel_train.record.entries import Sample
from tests.runs import RUN_ID, RunBuilder


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty root of runs, known by the environment."""
    monkeypatch.setenv("OTEL_TRAIN_DIR", str(tmp_path / "runs"))
    return tmp_path / "runs"


def a_run(root: Path, run_id: str = RUN_ID, **document: object) -> RunBuilder:
    """A finished run with one low point at step 37."""
    values = [0.05 if step == 37 else 1.0 for step in range(100)]
    builder = RunBuilder(root, run_id, **document)
    return builder.attempt().log({"loss": values}, steps=range(100)).record("all is well").end()


def test_show_gives_exact_numbers_as_json(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Minimum 0.05 at step 37 of a hundred points, and the same as the best."""
    a_run(root)
    assert main(["show", "latest", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    (row,) = shown["metrics"]
    assert (row["key"], row["split"], row["points"], row["finite"]) == ("loss", "train", 100, 100)
    assert (row["min"]["value"], row["min"]["step"]) == (0.05, 37)
    assert row["best"] == row["min"]
    assert row["max"]["value"] == 1.0
    assert shown["status"] == "finished"
    assert shown["last_step"] == 99
    assert shown["duration_s"] == 600.0


def test_show_rebuilds_the_numbers_of_a_run_without_an_end(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No end record and no summary: status lost, last, minimum and maximum from the points."""
    RunBuilder(root).attempt().log({"loss": [3.0, 1.0, 2.0]}, steps=[0, 1, 2])
    assert main(["show", RUN_ID, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    (row,) = shown["metrics"]
    assert [row[name]["value"] for name in ("last", "min", "max")] == [2.0, 1.0, 3.0]
    assert row["mean"] == 2.0
    assert shown["status"] == "lost"


def test_show_says_what_was_not_finite(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Counts and the first bad step, in words for people and as strict JSON for programs."""
    values = [2.0 if step % 6 == 0 else math.nan for step in range(60)]
    values[31], values[32] = math.inf, -math.inf
    RunBuilder(root).attempt().log({"loss": values}, steps=range(60)).end()
    assert main(["show", "latest"]) == 0
    assert "loss (train) was not finite: 48 NaN, 1 +Inf, 1 -Inf; first bad step 1." in capsys.readouterr().out
    assert main(["show", "latest", "--json"]) == 0
    out = capsys.readouterr().out
    (row,) = json.loads(out, parse_constant=lambda name: pytest.fail(f"bare {name}"))["metrics"]
    assert [row[name] for name in ("finite", "nan", "positive_infinity", "negative_infinity")] == [10, 48, 1, 1]
    assert row["last"]["value"] == "NaN"
    assert row["min"]["value"] == row["max"]["value"] == row["mean"] == 2.0
    assert row["first_nonfinite"]["step"] == 1


def test_show_tells_the_cause_of_death(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The exception of the run's end is named, with its message."""
    builder = RunBuilder(root).attempt().log({"loss": [1.0]}, steps=[0])
    builder.record(
        "the run failed", "ERROR", event="run.end", exception__type="ZeroDivisionError", exception__message="division"
    )
    builder.end("failed", reason="ZeroDivisionError", exit_code=1)
    assert main(["show", "latest"]) == 0
    assert "ZeroDivisionError: division" in capsys.readouterr().out
    assert main(["show", "latest", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["exception"]["type"] == "ZeroDivisionError"


def test_show_prints_all_parts_of_a_run(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Configuration by attempt, data, stages, checkpoints, step times."""
    checkpoint = {"path": "/x/model.pt", "role": "saved", "step": 7, "size": 2048, "sha256": "ab" * 32, "best": True}
    stage = {"name": "clean", "status": "ok", "duration_s": 2.0, "outputs": [{"path": "clean.csv", "size": 10}]}
    dataset = {"name": "digits", "size": 1797, "classes": {"0": 178}, "dropped": {"total": 3}}
    builder = RunBuilder(root, datasets=[dataset], stages=[stage], checkpoints=[checkpoint])
    builder.attempt(1, config={"lr": 1e-4}).attempt(
        2, config={"lr": 5e-5}, changes=[{"key": "lr", "old": 1e-4, "new": 5e-5}]
    )
    builder.log({"loss": [1.0]}, steps=[0]).end()
    assert main(["show", "latest"]) == 0
    out = capsys.readouterr().out
    assert re.search(r"lr +0\.0001 +5e-05", out)
    assert re.search(r"clean +ok +2\.0 s +clean\.csv - 10 B", out)
    assert re.search(r"\* model\.pt +saved +7 +2\.0 KiB +abababababab", out)
    assert "classes: 0: 178" in out
    assert "lr: 0.0001 -> 5e-05" in out


def test_runs_lists_newest_first_with_metrics(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The best of a metric that counts down, from the summary at the end or from the points."""
    a_run(
        root,
        "20260101-000000-aaaaaaaa",
        created="2026-01-01T00:00:00Z",
        summary={"val/loss": {"last": 3.0, "min": 2.5}},
    )
    a_run(root, "20260102-000000-bbbbbbbb", created="2026-01-02T00:00:00Z")
    assert main(["runs"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == ["20260102-000000-bbbbbbbb", "20260101-000000-aaaaaaaa"]
    assert lines[1].endswith("train/loss 0.05")
    assert lines[2].endswith("val/loss 2.5")


def test_runs_as_json_and_by_filter(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Filters by project and status; JSON holds what the table holds."""
    a_run(root, "20260101-000000-aaaaaaaa")
    RunBuilder(root, "20260102-000000-bbbbbbbb", name="other").attempt().end("failed", reason="x")
    assert main(["runs", "--json", "--status", "failed", "--project", "digits"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["run_id"], row["status"], row["name"]) == ("20260102-000000-bbbbbbbb", "failed", "other")
    assert main(["runs", "--project", "nothing"]) == 0
    assert capsys.readouterr().err.startswith("no run like that in ")


def test_a_run_that_is_not_there_is_told_with_what_comes_near(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2 and a name that may be meant."""
    a_run(root)
    assert main(["show", "20260131-120000-abcdefgx"]) == 2
    assert RUN_ID in capsys.readouterr().err
    assert main(["show", "small-net", "--json"]) == 0


def test_a_folder_or_file_that_is_no_run_is_told(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An empty folder, a foreign file, and a root that does not exist: exit code 2 and the reason."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "foreign.bin").write_bytes(b"\x00\x01")
    for target, reason in ((tmp_path / "empty", "is empty"), (tmp_path / "foreign.bin", "is a file")):
        assert main(["show", str(target)]) == 2
        assert reason in capsys.readouterr().err
    assert main(["show", "latest"]) == 2
    assert "there is no run in" in capsys.readouterr().err


def test_run_json_is_taken_for_its_folder(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A path to run.json means the run that it describes."""
    builder = a_run(root)
    assert main(["show", str(builder.path / "run.json"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["run_id"] == RUN_ID


def test_a_damaged_run_is_shown_with_exit_code_three(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The readable points are given, and the damaged line is named on standard error."""
    builder = a_run(root)
    builder.lines("metrics", b'{"resourceMetrics": [{"scop\n')
    assert main(["show", "latest", "--json"]) == 3
    captured = capsys.readouterr()
    shown = json.loads(captured.out)
    assert shown["metrics"][0]["points"] == 100
    assert len(shown["damage"]) == 1
    assert "metrics.000001.jsonl:2" in captured.err


def test_a_run_without_its_description_is_rebuilt(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """run.json is gone: numbers come from the lines, and what is missing is said."""
    builder = a_run(root)
    (builder.path / "run.json").unlink()
    assert main(["show", RUN_ID, "--json"]) == 3
    captured = capsys.readouterr()
    assert json.loads(captured.out)["metrics"][0]["min"]["value"] == 0.05
    assert "run.json: is missing" in captured.err


def test_a_run_of_which_nothing_can_be_read_is_told(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A damaged description and no lines: exit code 2."""
    builder = RunBuilder(root).attempt()
    (builder.path / "run.json").write_text("{nothing")
    assert main(["show", RUN_ID]) == 2
    assert "nothing in it can be read" in capsys.readouterr().err


def test_logs_are_filtered_by_level_and_text(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Warnings and worse; a pattern looks into text and traceback."""
    builder = a_run(root)
    builder.record("slow batch", "WARN", at_s=2, dl__step=5)
    builder.record("it broke", "ERROR", at_s=3, exception__stacktrace="Traceback ...\nValueError: bad shape")
    assert main(["logs", "latest", "--level", "warning"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        "2026-01-31 12:00:02.000 WARN  slow batch  [step 5]",
        "2026-01-31 12:00:03.000 ERROR it broke",
        "    Traceback ...",
        "    ValueError: bad shape",
    ]
    assert main(["logs", "latest", "--grep", "bad shape", "--json"]) == 0
    (record,) = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert (record["level"], record["body"], record["attempt"], record["rank"]) == ("ERROR", "it broke", 1, 0)


def test_logs_cannot_steer_the_terminal(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Escape codes and carriage returns of a record are shown, not obeyed."""
    a_run(root).record("\x1b[2Jgone\rover")
    assert main(["logs", "latest", "--grep", "gone"]) == 0
    assert capsys.readouterr().out.rstrip("\n").endswith(r"\x1b[2Jgone\rover")


def test_logs_refuse_a_wrong_level_or_pattern(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2, with what would be right."""
    a_run(root)
    assert main(["logs", "latest", "--level", "loud"]) == 2
    assert "use debug, info, warning, error or fatal" in capsys.readouterr().err
    assert main(["logs", "latest", "--grep", "("]) == 2
    assert "no regular expression" in capsys.readouterr().err


def test_following_a_run_that_has_ended_prints_all_and_ends(
    root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing more can come, so the command does not wait for ever."""
    monkeypatch.setattr(logs_command, "POLL_S", 0.0)
    a_run(root).record("last words", "ERROR")
    assert main(["logs", "latest", "--follow"]) == 0
    assert [line.split(" ", 3)[3].strip() for line in capsys.readouterr().out.splitlines()] == [
        "all is well",
        "last words",
    ]


def test_prune_says_what_goes_and_why_before_it_does(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A dry run removes nothing; the real one removes the same runs."""
    for number in (1, 2, 3):
        a_run(root, f"2026010{number}-000000-aaaaaaaa", created=f"2026-01-0{number}T00:00:00Z")
    assert main(["prune", "--keep-last", "1", "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert "20260101-000000-aaaaaaaa" in out
    assert "would be removed; 1 kept" in out
    assert len(list(root.glob("2026*"))) == 3
    assert main(["prune", "--keep-last", "1", "--json"]) == 0
    removed = json.loads(capsys.readouterr().out)["removed"]
    assert sorted(Path(row["path"]).name for row in removed) == ["20260101-000000-aaaaaaaa", "20260102-000000-aaaaaaaa"]
    assert [path.name for path in root.glob("2026*")] == ["20260103-000000-aaaaaaaa"]


def test_prune_explains_wrong_durations_and_sizes(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2 and an example of what is understood; no rule at all is refused too."""
    root.mkdir()
    for option, value, words in (
        ("--older-than", "tomorrow", "a duration is a number with a unit"),
        ("--max-size", "big", "a size is a number with a unit"),
        ("--keep-last", "-1", "use a whole number of at least 0"),
    ):
        with pytest.raises(SystemExit) as ending:
            main(["prune", f"{option}={value}"])
        assert ending.value.code == 2
        assert words in capsys.readouterr().err
    assert main(["prune"]) == 2
    assert "needs --keep-last, --older-than or --max-size" in capsys.readouterr().err


def test_lineage_of_an_unknown_file_is_told(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2: nothing is known of it."""
    a_run(root)
    (tmp_path / "model.pt").write_bytes(b"weights")
    assert main(["lineage", str(tmp_path / "model.pt")]) == 2
    assert "nothing is known of" in capsys.readouterr().err


def test_lineage_of_a_run_prints_its_chain(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The run with its data set, as a tree and as JSON."""
    a_run(root, datasets=[{"name": "digits-csv", "size": 5, "checksum": {"algorithm": "sha256", "value": "ab" * 32}}])
    assert main(["lineage", "latest"]) == 0
    out = capsys.readouterr().out
    assert RUN_ID in out
    assert "digits-csv" in out
    assert main(["lineage", RUN_ID, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["found"] is True


def test_report_needs_plotly_and_says_how_to_get_it(
    root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the extra the exit code is 2 and the message names it."""
    a_run(root)
    monkeypatch.setitem(sys.modules, "plotly", None)
    assert main(["report", "latest"]) == 2
    assert "pip install 'otel-train[view]'" in capsys.readouterr().err


def test_report_is_written_beside_the_run_or_where_the_user_says(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The path is printed; a folder that is missing is made; a target that cannot be written is told."""
    pytest.importorskip("plotly")
    builder = a_run(root)
    assert main(["report", "latest"]) == 0
    printed = capsys.readouterr().out.rsplit(" (", 1)[0]
    assert Path(printed) == builder.path / "artifacts" / "report.html"
    assert Path(printed).read_text(encoding="utf-8").startswith("<!doctype html>")
    assert main(["report", "latest", "-o", str(tmp_path / "new" / "page.html")]) == 0
    assert (tmp_path / "new" / "page.html").stat().st_size > 1_000_000
    (tmp_path / "taken").mkdir()
    assert main(["report", "latest", "-o", str(tmp_path / "taken")]) == 2
    assert "taken" in capsys.readouterr().err


def test_progress_is_drawn_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """A function that counts where standard error is a terminal with tqdm there, else nothing at all."""
    pytest.importorskip("tqdm")

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    with progress("reading") as step:
        assert step is None
    monkeypatch.setattr(sys, "stderr", Terminal())
    with progress("reading", 10) as step:
        assert step is not None
        step("points", 5)
        step("records", 2)
    monkeypatch.setitem(sys.modules, "tqdm", None)
    with progress("reading") as step:
        assert step is None


def test_report_opens_the_browser_when_asked(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The address is that of the file that was written."""
    pytest.importorskip("plotly")
    builder = a_run(root)
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda address: opened.append(address) or True)
    assert main(["report", "latest", "--open"]) == 0
    assert opened == [(builder.path / "artifacts" / "report.html").resolve().as_uri()]


def test_help_explains_every_command_with_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    """Each command's help has an example; the general one lists the exit codes."""
    for command in ("runs", "show", "logs", "report", "lineage", "prune"):
        with pytest.raises(SystemExit):
            main([command, "--help"])
        assert f"otel-train {command}" in capsys.readouterr().out.split("example")[1]
    with pytest.raises(SystemExit):
        main(["--help"])
    assert "3  part of what was read is damaged" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out.startswith("otel-train ")
    assert main([]) == 2


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("--dir some runs --last 3", "--dir comes after the command: otel-train runs --last 3 --dir some"),
        ("--dir runs show latest", "--dir comes after the command: otel-train show latest --dir runs"),
        ("--dir=a show latest", "--dir comes after the command: otel-train show latest --dir=a"),
        ("--json runs", "--json comes after the command: otel-train runs --json"),
    ],
)
def test_an_option_before_the_command_is_put_right(capsys: pytest.CaptureFixture[str], words: str, meant: str) -> None:
    """Exit code 2 and what to write instead."""
    assert main(words.split()) == 2
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", f"otel-train: {meant}\n")


def test_an_option_without_a_command_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """By the parser; what the program itself takes stays as it is, also shortened."""
    for words, code in ((["--dir", "some"], 2), (["--vers"], 0), (["--help", "runs"], 0)):
        with pytest.raises(SystemExit) as ending:
            main(words)
        assert ending.value.code == code
        assert "comes after" not in capsys.readouterr().err


def test_help_imports_neither_plotly_nor_torch_nor_numpy() -> None:
    """Asking for help is quick."""
    code = (
        "import sys; from otel_train.cli.main import build_parser; build_parser().format_help(); "
        "print([name for name in ('plotly', 'torch', 'numpy', 'tqdm', 'psutil.tests') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(("name", "loaded"), [("otel-train", "False"), ("train.py", "True")])
def test_the_command_does_not_load_what_recording_needs(tmp_path: Path, name: str, loaded: str) -> None:
    """A training loads half of it before `init()`; the command starts without, and works."""
    program = tmp_path / name
    program.write_text(
        "import sys, otel_train\n"
        "print('opentelemetry.sdk.metrics' in sys.modules)\n"
        "from otel_train.cli.main import main\n"
        "main(['runs', '--dir', '.', '--json'])\n"
    )
    done = subprocess.run([sys.executable, str(program)], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[0] == loaded
    assert "[]" in done.stdout


@pytest.mark.skipif(os.name == "nt", reason="pipes close in another way on Windows")
def test_a_reader_that_has_enough_is_no_error(root: Path) -> None:
    """`otel-train logs | head` ends quietly."""
    builder = a_run(root)
    for _ in range(300):
        builder.record("x" * 1000)
    command = [sys.executable, "-m", "otel_train.cli.main", "logs", "latest"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    errors = process.stderr.read()
    process.stderr.close()
    assert (process.wait(), errors) == (0, "")


def test_show_tells_where_the_time_of_steps_went(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Median and shares of the host's time."""
    builder = a_run(root)
    for at_s in range(1, 5):
        split = (("split", "train"),)
        phase = Sample("dl.phase.time", 0.05, (("phase", "forward"), *split))
        builder.samples(at_s, [Sample("dl.step.time", 0.11, split), Sample("dl.data.wait.time", 0.01, split), phase])
    assert main(["show", "latest"]) == 0
    out = capsys.readouterr().out
    assert "4 steps: median 110 ms, 95th percentile 110 ms, longest 110 ms" in out
    assert "wait for data 9.1 %, forward 45.5 %" in out


def test_structured_and_binary_records_are_printed_as_text(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A mapping as JSON, an event with its name, a rank in the margin, the ranks merged by time."""
    builder = a_run(root)
    builder.record({"lr": 0.1}, event="run.config", at_s=2).record("from the other", at_s=3, rank=1)
    builder.record("back again", at_s=4)
    assert main(["logs", "latest"]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == [
        '2026-01-31 12:00:02.000 INFO  run.config: {"lr": 0.1}',
        "2026-01-31 12:00:03.000 INFO  from the other  [rank 1]",
        "2026-01-31 12:00:04.000 INFO  back again",
    ]


def test_a_place_that_is_not_there_is_named(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An attempt or rank that the run lacks, a folder where a file is meant: said with what there is, code 2."""
    a_run(root)
    assert main(["logs", "latest", "--attempt", "99"]) == 2
    assert "--attempt 99: the run has 1" in capsys.readouterr().err
    assert main(["logs", "latest", "--rank", "3"]) == 2
    assert "--rank 3: the run has 0" in capsys.readouterr().err
    assert main(["report", "latest", "-o", str(root)]) == 2
    assert "is a folder: name a file" in capsys.readouterr().err


def test_a_run_folder_that_takes_no_report_is_told_with_the_way_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its folder may be somebody else's; with -o the report goes elsewhere."""
    builder = RunBuilder(tmp_path).attempt().log({"loss": [1.0]}, steps=[0]).end()
    (builder.path / "artifacts").write_text("not a folder")
    assert main(["report", str(builder.path)]) == 2
    told = capsys.readouterr().err
    assert "cannot take the report" in told
    assert "-o FILE" in told
    assert main(["report", str(builder.path), "-o", str(tmp_path / "report.html")]) == 0
    assert (tmp_path / "report.html").stat().st_size > 100_000


def test_a_link_that_leads_nowhere_hides_no_run(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A circle of links below the root is passed over."""
    a_run(root)
    (root / "loop").symlink_to("loop")
    assert main(["runs"]) == 0
    assert RUN_ID in capsys.readouterr().out


def test_runs_that_cannot_be_described_are_listed_all_the_same(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A damaged run.json: the row stands, the damage is told, the exit code says so."""
    builder = a_run(root)
    (builder.path / "run.json").write_text("{")
    assert main(["runs", "--last", "1"]) == 3
    captured = capsys.readouterr()
    assert RUN_ID in captured.out
    assert "is damaged" in captured.err
    with pytest.raises(SystemExit):
        main(["runs", "--last", "0"])
    assert "whole number of at least 1" in capsys.readouterr().err
