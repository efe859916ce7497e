"""The page of a run: what it holds, and that no text of a run can become a part of the page."""

from __future__ import annotations

import json
import math
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_train.errors import RunFolderError
from otel_train.record.entries import Sample
from otel_train.runlog.lock import WriterLock
from otel_train.runlog.ring import LineRing
from otel_train.runlog.segments import SegmentWriter
from otel_train.view.page import embed_json, render
from otel_train.view.reading import read_run
from otel_train.view.report import build, write
from tests.runs import NS_PER_S, START_NS, RunBuilder

NOW_NS = START_NS + 3600 * NS_PER_S


def page_data(builder: RunBuilder) -> dict[str, Any]:
    """Build the page's data of a run and pass it through its own JSON."""
    data: dict[str, Any] = json.loads(embed_json(build(read_run(builder.path, NOW_NS))))
    return data


def test_curves_count_elapsed_time_from_the_runs_start(tmp_path: Path) -> None:
    """A first evaluation after 400 seconds is drawn at 400 seconds, also beside points of training at its start."""
    builder = RunBuilder(tmp_path).attempt().log({"loss": [3.0]}, times_s=[0.5])
    builder.log({"loss": [2.0]}, split="val", times_s=[400.0]).end()
    (chart,) = page_data(builder)["charts"]["metrics"]
    assert {line["label"]: line["x"]["time"] for line in chart["lines"]} == {"train": [0.5], "val": [400.0]}


def test_summary_of_mostly_nan_has_exact_counts(tmp_path: Path) -> None:
    """60 steps: ten finite values of 2.0, the rest NaN but for one infinity of either sign."""
    values = [2.0 if step % 6 == 0 else math.nan for step in range(60)]
    values[31], values[32] = math.inf, -math.inf
    data = page_data(RunBuilder(tmp_path).attempt().log({"loss": values}, steps=range(60)).end())
    (row,) = data["summary"]
    assert (row["points"], row["nan"], row["positive_infinity"], row["negative_infinity"]) == (60, 48, 1, 1)
    assert (row["low"]["value"], row["high"]["value"], row["mean"], row["first_bad"]) == (2.0, 2.0, 2.0, "step 1")
    assert data["notices"][0] == {
        "kind": "bad",
        "text": "loss (train) was not finite: 48 NaN, 1 +Inf, 1 -Inf; first bad step 1.",
        "step": 1.0,
    }
    assert data["tiles"][0]["value"] == "NaN"


def test_status_and_cause_of_death_stand_on_top(tmp_path: Path) -> None:
    """State, reason and the exception with its traceback."""
    builder = RunBuilder(tmp_path).attempt().log({"loss": [1.0]}, steps=[4], epochs=[1])
    builder.record(
        "failed",
        "ERROR",
        event="run.end",
        at_s=30,
        exception__type="ValueError",
        exception__message="bad shape",
        exception__stacktrace="Traceback (most recent call last): ...",
    )
    data = page_data(builder.end("failed", at_s=30, reason="ValueError: bad shape", exit_code=1))
    assert data["status"] == {
        "state": "failed",
        "headline": "Failed",
        "reason": "ValueError: bad shape",
        "exception": {
            "type": "ValueError",
            "message": "bad shape",
            "stacktrace": "Traceback (most recent call last): ...",
        },
    }
    facts = dict(data["facts"])
    assert (facts["Duration"], facts["Last step"], facts["Last epoch"], facts["Exit code"]) == ("30.0 s", "4", "1", "1")


def test_an_exception_that_was_survived_is_no_cause_of_death(tmp_path: Path) -> None:
    """A logged and handled exception does not explain a kill."""
    builder = RunBuilder(tmp_path).attempt().record("retrying", "ERROR", exception__type="OSError")
    assert "exception" not in page_data(builder.end("killed", reason="SIGTERM"))["status"]


def test_a_run_without_an_end_is_shown_as_lost_with_its_last_sign_of_life(tmp_path: Path) -> None:
    """Its numbers come from its points."""
    data = page_data(RunBuilder(tmp_path).attempt().log({"loss": [3.0, 1.0]}, steps=[0, 1]))
    assert data["status"]["state"] == "lost"
    assert dict(data["facts"])["Last sign of life (UTC)"] == "2026-01-31 12:00:02"
    assert dict(data["facts"])["Duration"] == "2.0 s"
    assert data["summary"][0]["low"] == {"value": 1.0, "place": "step 1"}


def test_health_conditions_stand_on_top_with_their_ends(tmp_path: Path) -> None:
    """One that is over, one that holds, one of another rank; a value that is not finite is told by its points."""
    builder = RunBuilder(tmp_path).attempt().log({"loss": [math.nan]}, steps=[7])
    said = {"metric": "train.loss", "value": 2000, "threshold": 2000.0}
    builder.record("Loss stands still", "WARN", event="health.plateau", at_s=3, dl__step=2099, **said)
    builder.record(
        "fell", event="health.plateau", at_s=9, dl__step=3099, cleared=True, **{**said, "metric": "train.other"}
    )
    builder.record("Run makes no steps", "ERROR", event="health.stalled", at_s=12, rank=3, metric="dl.step.age")
    builder.record("loss is NaN", "ERROR", event="health.nonfinite", at_s=1, metric="train.loss", dl__step=7)
    builder.record("Disk is nearly full", "WARN", event="health.disk_full", at_s=20, metric="disk")
    builder.record("over", event="health.disk_full", at_s=80, metric="disk", cleared=True)
    data = page_data(builder.end())
    assert data["notices"] == [
        {"kind": "bad", "text": "loss (train) was not finite: 1 NaN; first bad step 7.", "step": 7},
        {"kind": "warn", "text": "Loss stands still; over at step 3099.", "step": 2099},
        {"kind": "bad", "text": "Run makes no steps (rank 3)."},
        {"kind": "warn", "text": "Disk is nearly full; over at 2026-01-31T12:01:20.000000Z."},
    ]


def test_dropped_items_are_told_by_cause(tmp_path: Path) -> None:
    """Counts of the recorder's own metrics, summed over attempts; nothing is said to be dropped where nothing was."""
    builder = RunBuilder(tmp_path).attempt().attempt(2)
    for attempt, count in ((1, 2), (1, 5), (2, 3)):
        samples = [Sample("otel_train.points", count, (("outcome", "buffer full"),))]
        builder.samples(
            count, [*samples, Sample("otel_train.points", 100, (("outcome", "recorded"),))], attempt=attempt
        )
    data = page_data(builder.end())
    assert dict(data["facts"])["Dropped"] == "8 points (buffer full)"
    assert {"kind": "warn", "text": "Not everything was kept: 8 points (buffer full)."} in data["notices"]
    other = RunBuilder(tmp_path, "20260131-120000-zzzzzzzz").attempt().log({"loss": [1.0]}).end()
    assert dict(page_data(other)["facts"])["Dropped"] == "nothing"


def test_resumed_configuration_stands_side_by_side(tmp_path: Path) -> None:
    """Both learning rates are shown by attempt, and the row that changed is marked."""
    builder = RunBuilder(tmp_path).attempt(1, config={"lr": 1e-4, "model": {"depth": 3}})
    builder.attempt(2, config={"lr": 5e-5, "model": {"depth": 3}}, changes=[{"key": "lr", "old": 1e-4, "new": 5e-5}])
    data = page_data(builder.log({"loss": [1.0]}).end())
    assert data["config"]["attempts"] == [1, 2]
    assert data["config"]["rows"] == [
        {"cells": ["lr", "0.0001", "5e-05"], "changed": True},
        {"cells": ["model.depth", "3", "3"], "changed": False},
    ]
    assert data["attempts"][1][-1] == "lr: 0.0001 -> 5e-05"


def test_every_section_without_data_says_why(tmp_path: Path) -> None:
    """An empty run has a reason for each empty place, and the reason of a missing GPU is the driver's own."""
    builder = RunBuilder(tmp_path).attempt(environment={"machine": {"gpu": {"unavailable": "NVML library not found"}}})
    data = page_data(builder.end())
    assert data["reasons"]["gpu"] == "No GPU was seen: NVML library not found"
    for name in (
        "metrics",
        "steps",
        "system",
        "timeline",
        "logs",
        "configuration",
        "datasets",
        "checkpoints",
        "stages",
    ):
        assert data["reasons"][name].startswith("No ")
    assert data["charts"] == {"metrics": [], "steps": [], "system": [], "gpu": [], "other": []}


def test_descriptions_become_rows(tmp_path: Path) -> None:
    """Environment in groups with packages and patch apart; data sets with classes; checkpoints; stages."""
    environment = {
        "python": {"version": "3.11.9"},
        "packages": {"torch": "2.6", "numpy": "2.1"},
        "code": {"commit": "8f3c", "dirty": True, "patch": "+lr = 1"},
        "machine": {"host": {"memory_total_bytes": 1024**3}},
    }
    dataset = {
        "name": "train",
        "size": 1797,
        "classes": {"0": 178, "1": 182},
        "classes_rest": {"classes": 8, "samples": 1437},
        "dropped": {"total": 3, "reasons": {"blank": 3}},
        "checksum": {"algorithm": "sha256", "value": "ab", "whole": False, "bytes_read": 2048},
        "parts": {"x": {"size": 2}},
        "problems": ["no labels"],
    }
    checkpoint = {"path": "C:\\runs\\model.pt", "size": 10, "sha256": "cd" * 32, "best": True, "metrics": {"loss": 0.5}}
    stage = {"name": "train", "status": "running", "inputs": [{"path": "a.csv", "checksum": {"value": "ef" * 32}}]}
    builder = RunBuilder(tmp_path, datasets=[dataset], checkpoints=[checkpoint], stages=[stage])
    data = page_data(builder.attempt(environment=environment, seed=42).end())
    groups = {group["title"]: dict(group["rows"]) for group in data["environment"]["groups"]}
    assert groups["Code"] == {"commit": "8f3c", "dirty": "true"}
    assert groups["Seeds"] == {"seed": "42"}
    assert groups["Machine"] == {"host.memory_total_bytes": "1.0 GiB (1,073,741,824 bytes)"}
    assert data["environment"]["packages"] == [["numpy", "2.1"], ["torch", "2.6"]]
    assert data["environment"]["patch"] == "+lr = 1"
    train, part = data["datasets"]
    assert train["classes"] == [["0", 178], ["1", 182], ["8 more", 1437]]
    assert ["dropped", "3 (blank: 3)"] in train["rows"]
    assert ["checksum", "sha256 ab (of 2.0 KiB, sampled)"] in train["rows"]
    assert train["problems"] == ["no labels"]
    assert (part["name"], part["rows"]) == ("train / x", [["size", "2"]])
    assert data["checkpoints"][0][0] == {"mono": "★ model.pt", "title": "C:\\runs\\model.pt"}
    assert data["checkpoints"][0][6] == "loss 0.5"
    assert data["stages"][0][1:4] == [{"pill": "truncated"}, "", {"mono": "a.csv · efefefefefef"}]


def test_a_damaged_description_does_not_stop_the_page(tmp_path: Path) -> None:
    """Whatever stands where lists and mappings are expected is passed over."""
    builder = RunBuilder(
        tmp_path, datasets="x", checkpoints=[1], stages=None, metrics=[], summary=3, tags=None, notes=None
    )
    builder.attempt(config="lr", environment=[1]).log({"loss": [1.0]}).end()
    data = page_data(builder)
    assert data["datasets"] == data["checkpoints"] == data["stages"] == []
    assert data["summary"][0]["last"]["value"] == 1.0


def test_tags_that_are_no_list_are_one_tag(tmp_path: Path) -> None:
    """A number where a list is expected is shown as what it is."""
    builder = RunBuilder(tmp_path, tags=5)
    builder.attempt().log({"loss": [1.0]}).end()
    assert page_data(builder)["tags"] == ["5"]


ODD: list[Any] = [None, 5, "str", True, [], [1, "a", None], {"a": {"b": 1}}, math.inf, 2**70]


@pytest.mark.parametrize("odd", ODD, ids=repr)
def test_odd_values_within_a_description_do_not_stop_the_page(tmp_path: Path, odd: Any) -> None:
    """Numbers, lists and mappings may be anything; what stands beside them is shown as ever."""
    builder = RunBuilder(
        tmp_path,
        datasets=[
            {"name": "digits", "size": odd, "notes": odd, "problems": odd, "checksum": odd},
            {"name": "letters", "checksum": {"value": odd, "whole": False, "bytes_read": odd}},
        ],
        checkpoints=[{"path": "a.pt", "size": odd, "duration_s": odd, "checksum": odd, "metrics": odd, "best": True}],
        stages=[{"name": "fit", "status": odd, "duration_s": odd, "inputs": odd}],
    )
    builder.attempt(config={"lr": 0.1}).log({"loss": [1.0]}, steps=[0]).end()
    builder.folder.update(lambda document: document["attempts"][0].update(attempt=odd))
    data = page_data(builder)
    assert [card["name"] for card in data["datasets"]] == ["digits", "letters"]
    assert data["checkpoints"][0][0]["mono"].endswith("a.pt")
    assert data["stages"][0][0] == "fit"
    assert data["config"]["rows"] == [{"cells": ["lr", "0.1"], "changed": False}]
    assert data["summary"][0]["last"]["value"] == 1.0


def test_damaged_lines_are_listed_and_the_rest_is_drawn(tmp_path: Path) -> None:
    """The place of the damage, relative to the run, with its reason."""
    builder = (
        RunBuilder(tmp_path).attempt().log({"loss": [1.0]}).lines("metrics", b'{"cut\n').log({"loss": [2.0]}).end()
    )
    data = page_data(builder)
    assert data["summary"][0]["points"] == 2
    ((path, line, _, _),) = data["run_log"]["damage"]
    assert (path, line) == ("attempt-1/rank-0/metrics.000001.jsonl", 2)
    assert data["notices"][0]["text"].startswith("1 line of the run log is damaged")


def test_a_folder_in_which_nothing_can_be_read_is_refused(tmp_path: Path) -> None:
    """No description, no lines: an error with the reason."""
    builder = RunBuilder(tmp_path).attempt()
    (builder.path / "run.json").write_text("[]")
    with pytest.raises(RunFolderError, match="nothing in it can be read"):
        read_run(builder.path, NOW_NS)


def test_a_report_of_a_live_run_leaves_its_writer_alone(tmp_path: Path) -> None:
    """Lock, segment and what is written afterwards are as they would be without the report."""
    builder = RunBuilder(tmp_path).attempt()
    folder = builder.folder.rank_folder(1, 0)
    lock = WriterLock(folder)
    assert lock.acquire()
    faults: list[str] = []
    writer = SegmentWriter(folder, "logs", ring=LineRing(), on_fault=faults.append)
    encoder = builder.encoder(1, 0)
    for number in range(3):
        writer.write(encoder.samples(START_NS, START_NS, [Sample("dl.run.heartbeat", number)]), 1)
        page = write(read_run(builder.path, NOW_NS))
        assert "Running" in page.read_text(encoding="utf-8")
        assert lock.held
    writer.close(compress=False)
    lock.release()
    assert faults == []
    assert len((folder / "logs.000001.jsonl").read_bytes().splitlines()) == 3
    assert [path.name for path in (builder.path / "artifacts").iterdir()] == ["report.html"]


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=12,
    )
)
def test_embedded_data_reads_back_and_cannot_leave_its_element(value: Any) -> None:
    """No markup character is left, and JSON.parse gives what was put in, non-finite numbers as their names."""
    text = embed_json(value)
    assert not re.search("[<>&\u2028\u2029]", text)
    text.encode("utf-8")

    def named(item: Any) -> Any:
        if isinstance(item, float) and not math.isfinite(item):
            return "NaN" if item != item else "+Inf" if item > 0 else "-Inf"
        if isinstance(item, dict):
            return {key: named(inner) for key, inner in item.items()}
        return [named(inner) for inner in item] if isinstance(item, list) else item

    assert json.loads(text) == named(value)


def test_a_lone_surrogate_does_not_stop_the_page() -> None:
    """A file name that is no UTF-8 is shown with its escape."""
    assert "\\udcff" in embed_json({"path": "a\udcff"})


class _Elements(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


def test_the_page_asks_nothing_of_the_network(tmp_path: Path) -> None:
    """No element has an address, and the policy forbids all but the two scripts of the page."""
    page = render({"text": "</script><b>x</b>"}, "a </title><b>", "/* plotly */")
    parser = _Elements()
    parser.feed(page)
    assert [tag for tag, _ in parser.tags if tag in ("b", "img", "iframe", "object")] == []
    assert all("src" not in attributes for _, attributes in parser.tags)
    assert [attributes["href"] for _, attributes in parser.tags if "href" in attributes] == ["#overview"]
    policy = next(attributes["content"] for _, attributes in parser.tags if "http-equiv" in attributes)
    assert policy is not None
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe-inline" not in policy.split("style-src")[0]


def test_a_placeholder_in_a_users_text_stays_a_text() -> None:
    """The name of a run may look like a place of the template."""
    page = render({"name": "{{style}} {{plotly}}"}, "{{data}}", "/* plotly */")
    assert '{"name":"{{style}} {{plotly}}"}' in page
    assert "<title>{{data}}</title>" in page


def test_the_same_data_set_of_several_attempts_is_one_card(tmp_path: Path) -> None:
    """A resumed run describes its data again: one card names both attempts, a changed data set has its own."""
    same = {"name": "train", "size": 3, "checksum": {"algorithm": "sha256", "value": "ab"}}
    records = [
        {**same, "attempt": 1, "time": "a"},
        {**same, "attempt": 2, "time": "b"},
        {**same, "size": 4, "attempt": 2},
    ]
    builder = RunBuilder(tmp_path, datasets=records).attempt(1).attempt(2).log({"loss": [1.0]}).end()
    cards = page_data(builder)["datasets"]
    assert [card["rows"][-1] for card in cards] == [["attempts", "1, 2"], ["attempts", "2"]]


def test_what_an_older_attempt_left_open_ends_with_its_last_sign_of_life(tmp_path: Path) -> None:
    """The stage of a killed attempt does not reach into the one that resumed it."""
    builder = RunBuilder(tmp_path).attempt(1).log({"loss": [1.0]}, times_s=[20])
    builder.span(
        "train (started)", 5, 5, span_id=3, parent=2, dl__announces="2", dl__span__name="train", dl__stage="train"
    )
    builder.attempt(2, start_s=100).log({"loss": [0.5]}, times_s=[120], attempt=2).end(at_s=130)
    data = page_data(builder)
    (bar,) = data["timeline"]["lanes"][0]["bars"]
    assert (bar["start"], bar["seconds"], bar["truncated"]) == (5.0, 15.0, True)
    assert [row[3] for row in data["attempts"]] == ["20.0 s", "30.0 s"]
    assert [row[1]["pill"] for row in data["attempts"]] == ["lost", "finished"]


def test_ranks_are_lines_of_their_own_and_the_page_leads_with_the_first(tmp_path: Path) -> None:
    """Step times of both ranks are drawn; shares are of rank 0; the world's size is told."""
    builder = RunBuilder(tmp_path).attempt(world_size=2)
    for rank, seconds in ((0, 0.5), (1, 0.75)):
        builder.samples(1, [Sample("dl.step.time", seconds, (("split", "train"),))], rank=rank)
    data = page_data(builder.end())
    (chart,) = data["charts"]["steps"]
    assert [(line["label"], line["y"]) for line in chart["lines"]] == [("rank 0", [0.5]), ("rank 1", [0.75])]
    assert data["shares"]["total_s"] == 0.5
    assert dict(data["facts"])["Ranks"] == "2 of 2"


def test_only_the_named_metrics_are_read_when_asked(tmp_path: Path) -> None:
    """Records and other metrics are passed over."""
    builder = RunBuilder(tmp_path).attempt().log({"loss": [1.0], "lr": [0.1]}).record("x").span("epoch", 0, 1).end()
    seen: list[tuple[str, int]] = []
    run = read_run(
        builder.path, NOW_NS, names={"train.lr"}, records=False, progress=lambda unit, count: seen.append((unit, count))
    )
    assert [item.series.name for item in run.series()] == ["train.lr"]
    assert (run.logs.seen, run.spans) == (0, [])
    assert seen[-1] == ("points", 1)


def test_increments_of_a_foreign_producer_become_running_totals(tmp_path: Path) -> None:
    """A delta counter of 3 and 4 within two seconds is a rate of 2 a second at its second point."""
    builder = RunBuilder(tmp_path).attempt()
    for at_s, increment in ((1, 3), (3, 4)):
        point = {"asInt": str(increment), "timeUnixNano": str(START_NS + at_s * NS_PER_S)}
        metric = {"name": "my.items", "sum": {"dataPoints": [point], "aggregationTemporality": 1, "isMonotonic": True}}
        line = {"resourceMetrics": [{"scopeMetrics": [{"metrics": [metric]}]}]}
        builder.lines("metrics", json.dumps(line).encode() + b"\n")
    (chart,) = page_data(builder.end())["charts"]["other"]
    assert (chart["title"], chart["unit"], chart["lines"][0]["y"]) == ("my.items", "/s", [2.0])


def test_a_chart_of_faults_is_left_out_while_there_are_none(tmp_path: Path) -> None:
    """Processes killed for lack of memory: no chart of zeros, a chart once there was one."""
    builder = RunBuilder(tmp_path).attempt()
    builder.samples(1, [Sample("dl.container.oom_kills", 0)]).samples(2, [Sample("dl.container.oom_kills", 0)])
    assert page_data(builder)["charts"]["system"] == []
    builder.samples(3, [Sample("dl.container.oom_kills", 1)])
    assert [chart["title"] for chart in page_data(builder)["charts"]["system"]] == [
        "Processes killed for lack of memory"
    ]
