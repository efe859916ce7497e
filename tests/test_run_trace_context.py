"""How a trace goes on from a shell script to its programs, to their child processes and to the ranks of a job."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from otel_train.lineage.chain import trace_lineage
from otel_train.lineage.chain_text import render
from otel_train.run import spans
from otel_train.run.trace_environ import TraceEnvironment
from otel_train.testing import recorded
from tests.scripts import Scripts, run_paths

SCRIPTS = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
TRACE_ID = 0x0AF7651916CD43DD8448EB211C80319C
SPAN_ID = 0xB7AD6B7169203331


def spelled(entry: Any) -> str:
    return f"00-{entry.trace_id:032x}-{entry.span_id:016x}-01"


def test_children_belong_under_the_run_or_its_stage(start: Callable[..., Any]) -> None:
    """Within a stage its span stands in the environment, else the run's; at the end nothing of ours is left."""
    assert "TRACEPARENT" not in os.environ
    run = start()
    in_run = os.environ["TRACEPARENT"]
    with run.stage("outer"):
        in_outer = os.environ["TRACEPARENT"]
        with run.stage("inner"):
            in_inner = os.environ["TRACEPARENT"]
        assert os.environ["TRACEPARENT"] == in_outer
    assert os.environ["TRACEPARENT"] == in_run
    run.finish()
    assert "TRACEPARENT" not in os.environ
    record = recorded(run.path)
    spelling = {span.name: spelled(span.entry) for span in record.spans}
    assert [in_run, in_outer, in_inner] == [spelling["run"], spelling["outer"], spelling["inner"]]


def test_a_stage_that_is_open_when_the_run_ends_leaves_nothing(start: Callable[..., Any]) -> None:
    """A framework that was left by an exception never closes its stage: with the run its place is gone."""
    run = start()
    run.stage("fit").__enter__()
    assert "TRACEPARENT" in os.environ
    run.finish()
    assert "TRACEPARENT" not in os.environ
    start().finish()
    assert "TRACEPARENT" not in os.environ


def test_the_users_own_value_comes_back(start: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """The run's span is a child of what was inherited, which stands there again after the end."""
    monkeypatch.setenv("TRACEPARENT", SCRIPTS)
    run = start()
    assert os.environ["TRACEPARENT"].startswith(SCRIPTS[:36])
    assert os.environ["TRACEPARENT"] != SCRIPTS
    run.finish()
    assert os.environ["TRACEPARENT"] == SCRIPTS
    record = recorded(run.path)
    (mark,) = [span.entry for span in record.spans if span.name == "run"]
    assert (mark.trace_id, mark.parent_span_id) == (TRACE_ID, SPAN_ID)
    assert record.info["attempts"][0]["trace"] == {
        "trace_id": f"{TRACE_ID:032x}",
        "span_id": f"{mark.span_id:016x}",
        "parent": {"trace_id": f"{TRACE_ID:032x}", "span_id": f"{SPAN_ID:016x}"},
    }


def test_a_second_run_of_the_process_is_no_child_of_the_first(
    start: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One after the other, each belongs under what the process inherited."""
    monkeypatch.setenv("TRACEPARENT", SCRIPTS)
    for _ in range(2):
        run = start()
        run.finish()
        (mark,) = [span.entry for span in recorded(run.path).spans if span.name == "run"]
        assert mark.parent_span_id == SPAN_ID


def test_runs_side_by_side_take_turns() -> None:
    """Whoever opened last stands there; closed in any order, the inherited value comes back, or what the user set."""
    environ = {"TRACEPARENT": SCRIPTS, "OTHER": "1"}
    shared = TraceEnvironment(environ)
    first, second = spans.RunSpans({}, print, print, {}).own, spans.RunSpans({}, print, print, {}).own
    shared.enter("a", first)
    assert environ["TRACEPARENT"] == spelled(first)
    assert shared.inherited(environ) == {"TRACEPARENT": SCRIPTS, "OTHER": "1"}
    shared.enter("b", second)
    assert environ["TRACEPARENT"] == spelled(second)
    shared.leave("a")
    assert environ["TRACEPARENT"] == spelled(second)
    shared.leave("b")
    shared.leave("b")
    assert environ["TRACEPARENT"] == SCRIPTS
    shared.enter("c", first)
    environ["TRACEPARENT"] = "set by the user meanwhile"
    assert shared.inherited(environ)["TRACEPARENT"] == "set by the user meanwhile"
    shared.leave("c")
    assert environ["TRACEPARENT"] == "set by the user meanwhile"
    del environ["TRACEPARENT"]
    shared.enter("d", first)
    # A forked child inherits it as any child process does.
    shared.forget()
    assert shared.inherited(environ)["TRACEPARENT"] == spelled(first)


def test_a_trace_of_others_gets_only_so_many_spans_of_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """After that, and on other ranks at once, stages and epochs are traces of their own, linked to the run."""
    monkeypatch.setattr(spans, "MOST_IN_INHERITED", 3)
    for main, in_inherited in ((True, 3), (False, 0)):
        taken: list[Any] = []
        made = spans.RunSpans({}, taken.append, taken.append, {"TRACEPARENT": SCRIPTS}, main=main)
        mark, _ = made.mark_run("name", {})
        for number in range(5):
            made.end(made.start("epoch", {"number": number}, announce=False))
        found = taken[1:]
        traces = [span.context.trace_id for span in found]
        assert traces[:in_inherited] == [TRACE_ID] * in_inherited
        assert len({TRACE_ID, *traces[in_inherited:]}) == 6 - in_inherited
        assert all([link.context.span_id for link in span.links] == [mark.span_id] for span in found)


def test_the_command_prints_a_new_trace_each_time() -> None:
    """As the W3C spells it, sampled, and never the same."""
    command = [sys.executable, "-m", "otel_train.cli.main", "traceparent"]
    printed = [subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() for _ in range(2)]
    for text in printed:
        assert re.fullmatch(r"00-[0-9a-f]{32}-[0-9a-f]{16}-01", text)
        assert "0" * 16 not in text
    assert len(set(printed)) == 2


PREPROCESS = """
import otel_train
with otel_train.init("shop", name="preprocess") as run, run.stage("clean"):
    pass
"""
TRAIN = """
import otel_train, subprocess, sys
with otel_train.init("shop", name="train") as run, run.stage("train"):
    subprocess.run([sys.executable, "evaluate.py"], check=True)
"""
EVALUATE = """
import otel_train
with otel_train.init("shop", name="evaluate"):
    pass
"""


@pytest.mark.slow
def test_two_scripts_of_one_shell_are_one_chain_and_one_trace(tmp_path: Path, scripts: Scripts) -> None:
    """No file joins them: preprocess.py, train.py, and what that starts, are told as one chain."""
    for name, text in (("preprocess", PREPROCESS), ("train", TRAIN), ("evaluate", EVALUATE)):
        (scripts.folder / f"{name}.py").write_text(text, encoding="utf-8")
    shell = f"""
        set -e
        export TRACEPARENT=$({sys.executable} -m otel_train.cli.main traceparent)
        {sys.executable} preprocess.py
        {sys.executable} train.py
        echo $TRACEPARENT
    """
    environ = {**os.environ, "OTEL_TRAIN_DIR": str(scripts.root), "OTEL_TRAIN_GIT": "0"}
    environ |= {"OTEL_TRAIN_SAMPLE_MACHINE": "0", "PYTHONPATH": str(Path(__file__).parent.parent)}
    done = subprocess.run(
        ["sh", "-c", shell], cwd=scripts.folder, env=environ, capture_output=True, text=True, timeout=90, check=False
    )
    assert done.returncode == 0, done.stderr
    trace_id, span_id = done.stdout.split()[-1].split("-")[1:3]
    records = {record.info["run_name"]: record for record in map(recorded, run_paths(scripts.root))}
    marks = {name: next(s.entry for s in one.spans if s.name == "run") for name, one in records.items()}
    assert {f"{mark.trace_id:032x}" for mark in marks.values()} == {trace_id}
    (stage,) = [span.entry for span in records["train"].spans if span.name == "train"]
    assert [f"{marks[name].parent_span_id:016x}" for name in ("preprocess", "train")] == [span_id] * 2
    assert marks["evaluate"].parent_span_id == stage.span_id
    ids = {name: record.info["run_id"] for name, record in records.items()}
    text = render(trace_lineage(ids["train"], [scripts.root]), unicode=False).splitlines()
    assert text[0].startswith(f"run {ids['train']} (train)")
    assert any(line.startswith(f"`- in one trace after run {ids['preprocess']} (preprocess)") for line in text)
    text = render(trace_lineage(ids["evaluate"], [scripts.root]), unicode=False).splitlines()
    assert text[1].startswith(f"`- started by run {ids['train']} (train)")
    assert any(f"in one trace after run {ids['preprocess']}" in line for line in text)
    assert len(render(trace_lineage(ids["preprocess"], [scripts.root])).splitlines()) == 2


def test_runs_that_files_join_are_not_told_twice(tmp_path: Path) -> None:
    """A stage that made the input says more than the trace; runs of another trace are not told at all."""
    root = tmp_path / "runs"

    def write(run_id: str, created: str, span: str, **more: Any) -> None:
        folder = root / run_id
        folder.mkdir(parents=True)
        above = {"trace_id": "1" * 32, "span_id": span}
        trace = {"trace_id": "1" * 32, "span_id": run_id[-1] * 16, "parent": above}
        document = {
            "format": 1,
            "run_id": run_id,
            "created": created,
            "attempts": [{"attempt": 1, "trace": trace}],
            **more,
        }
        (folder / "run.json").write_text(json.dumps(document), encoding="utf-8")

    made = {"path": "x.csv", "absolute": "/x.csv", "kind": "file", "sha256": "5" * 64}
    write("run-a", "2026-01-01T00:00:00Z", "9" * 16, stages=[{"name": "clean", "outputs": [made]}])
    write("run-b", "2026-01-02T00:00:00Z", "8" * 16)
    used = [{"name": "train", "started": "2026-01-03T00:00:00Z", "inputs": [made]}]
    write("run-c", "2026-01-03T00:00:00Z", "9" * 16, stages=used)
    write("run-d", "2026-01-04T00:00:00Z", "9" * 16)
    text = render(trace_lineage("run-c", [root]))
    assert "made by stage clean of run run-a" in text
    assert "in one trace after" not in text
    text = render(trace_lineage("run-d", [root]))
    assert "in one trace after run run-c" in text
    assert "run-b" not in text
