"""What the local page asks for besides a run's parts: finer lines, points, comparison, the table; and what it holds."""

from __future__ import annotations

import csv
import io
import json
import math
import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from otel_train.clock import NS_PER_S, iso
from otel_train.view.comparison import MOST_CURVES
from otel_train.view.serving import held_runs
from tests.runs import RUN_ID, START_NS, RunBuilder
from tests.serving import Served, serve_in_thread

MANY = 12_000


@pytest.fixture(scope="module")
def long_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunBuilder, list[float]]:
    """A run with more points than are drawn, one of which stands out, and a metric of another split."""
    draw = random.Random(7)
    values = [math.exp(-step / 4000) + draw.uniform(-0.05, 0.05) for step in range(MANY)]
    values[7_777] = 5.0
    values[9_000] = math.nan
    builder = RunBuilder(tmp_path_factory.mktemp("runs")).attempt(config={"lr": 0.1})
    for first in range(0, MANY, 1000):
        steps = range(first, first + 1000)
        builder.log(
            {"loss": values[first : first + 1000]}, steps=list(steps), times_s=[step * 0.5 + 1.0 for step in steps]
        )
    builder.log({"loss": [0.5, 0.25]}, split="val", steps=[5_999, 11_999], times_s=[3001.0, 6001.0])
    return builder.end(at_s=6100.0), values


@pytest.fixture(scope="module")
def served(long_run: tuple[RunBuilder, list[float]]) -> Iterator[Served]:
    builder, _ = long_run
    RunBuilder(builder.path.parent, "20260131-120000-other222", name="other").attempt(config={"lr": 0.2}).log(
        {"loss": [1.0, 0.75]}, steps=[0, 1]
    ).end("failed", at_s=5.0)
    with serve_in_thread(builder.path.parent) as served:
        yield served


def lines(served: Served) -> dict[str, dict[str, Any]]:
    """The drawn lines of the run by their labels."""
    charts = served.get(f"api/run/{RUN_ID}?parts=metrics").json["charts"]["metrics"]
    return {line["label"]: line for chart in charts for line in chart["lines"]}


# Lines and points ----------------------------------------------------------------------------------------------------


def test_a_part_of_a_line_has_every_point(served: Served, long_run: tuple[RunBuilder, list[float]]) -> None:
    """Zoomed in, what was drawn as a band becomes the points themselves."""
    line = lines(served)["train"]
    assert len(line["y"]) < MANY
    path = f"api/run/{RUN_ID}/line/{line['id']}"
    finer = served.get(f"{path}?axis=step&from=7700&to=7800").json
    assert finer["x"]["step"] == list(range(7700, 7801))
    assert finer["y"] == long_run[1][7700:7801]
    assert finer["points"] == 101
    by_time = served.get(f"{path}?axis=time&from={7_777 * 0.5 + 1.0 - 0.01}&to={7_777 * 0.5 + 1.0 + 0.01}").json
    assert by_time["y"] == [5.0]
    whole = served.get(f"{path}?axis=step").json
    assert whole["points"] == MANY
    # A point that is not finite has no height.
    assert max(high for high in whole["high"] if high is not None) == 5.0
    at_the_end = served.get(f"{path}?axis=step&from=11990&to=").json
    assert at_the_end["y"] == long_run[1][11_990:]


@pytest.mark.parametrize(
    ("query", "status", "words"),
    [
        ("axis=foo", 400, "there is no axis 'foo': use step, time or epoch"),
        ("axis=step&from=x&to=nan", 200, ""),
        ("axis=step&from=5&to=1", 200, ""),
        ("axis=step&from=1e400&to=-1e400", 200, ""),
    ],
)
def test_odd_ranges(served: Served, query: str, status: int, words: str) -> None:
    """What is no number is an open end; an empty range has no points."""
    answer = served.get(f"api/run/{RUN_ID}/line/{lines(served)['train']['id']}?{query}")
    assert answer.status == status
    if words:
        assert answer.json["error"]["message"] == words
    elif "x" not in query:
        assert answer.json["points"] == 0


@pytest.mark.parametrize("line_id", ["0123456789ab", "x", "%00", "a" * 4000, "..%2F.."])
def test_an_unknown_line_is_not_found(served: Served, line_id: str) -> None:
    """Also one that is no id at all."""
    assert served.get(f"api/run/{RUN_ID}/line/{line_id}").status == 404


def test_every_point_as_csv(served: Served, long_run: tuple[RunBuilder, list[float]]) -> None:
    """Of one line or of all metrics: each point with its step, its time and the number that was logged."""
    found = lines(served)
    answer = served.get(f"api/run/{RUN_ID}/points.csv?lines={found['train']['id']}")
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    assert f'filename="{RUN_ID}.csv"' in answer.headers["content-disposition"]
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert [int(row["step"]) for row in rows] == list(range(MANY))
    for row, value in zip(rows, long_run[1], strict=True):
        assert float(row["value"]) == value or (value != value and row["value"] == "NaN")
    assert rows[100]["time"] == iso(START_NS + round(51.0 * NS_PER_S))
    both = list(csv.DictReader(io.StringIO(served.get(f"api/run/{RUN_ID}/points.csv").text)))
    assert len(both) == MANY + 2
    assert [float(row["value"]) for row in both if "val" in row["series"]] == [0.5, 0.25]
    twice = served.get(f"api/run/{RUN_ID}/points.csv?lines={','.join([found['train']['id']] * 3)}")
    assert twice.body == answer.body
    none = served.get(f"api/run/{RUN_ID}/points.csv?lines=0123456789ab")
    assert none.text.splitlines() == ["series,step,epoch,time,elapsed_s,value"]


# Comparison ----------------------------------------------------------------------------------------------------------


def test_runs_are_compared(served: Served) -> None:
    """In the order of the address; the same revision is answered with no more than that."""
    path = f"api/compare?runs={RUN_ID},20260131-120000-other222"
    found = served.get(path).json
    assert [run["id"] for run in found["runs"]] == [RUN_ID, "20260131-120000-other222"]
    assert [run["state"] for run in found["runs"]] == ["finished", "failed"]
    (row,) = [row for row in found["configuration"]["rows"] if row["key"] == "lr"]
    assert [cell["text"] for cell in row["cells"]] == ["0.1", "0.2"]
    assert row["differs"] is True
    again = served.get(f"{path}&revision={quote(found['revision'])}").json
    assert again == {"revision": found["revision"], "unchanged": True}


def test_runs_that_are_not_there_are_named(served: Served) -> None:
    """The others are compared all the same."""
    found = served.get(f"api/compare?runs={RUN_ID},20260131-120000-nothere2,..,").json
    assert [run["id"] for run in found["runs"]] == [RUN_ID]
    missing = {item["id"]: item["message"] for item in found["missing"]}
    assert set(missing) == {"20260131-120000-nothere2", ".."}
    assert "there is no run '20260131-120000-nothere2'" in missing["20260131-120000-nothere2"]


def test_a_comparison_of_nothing_is_refused(served: Served) -> None:
    """With the form of the address."""
    answer = served.get("api/compare?runs=,")
    assert answer.status == 400
    assert "api/compare?runs=ID,ID" in answer.json["error"]["message"]


# The table -----------------------------------------------------------------------------------------------------------


def plant(root: Path, count: int) -> list[str]:
    """Make ended runs as plain files: thousands of them in a moment."""
    ids = []
    for number in range(count):
        run_id = f"20260131-{number // 3600:02d}{number // 60 % 60:02d}{number % 60:02d}-abcdefgh"
        folder = root / run_id / "attempt-1" / "rank-0"
        folder.mkdir(parents=True)
        started, ended = START_NS + number * NS_PER_S, START_NS + (number + 60) * NS_PER_S
        state = ("finished", "failed", "killed")[number % 3]
        loss = number / count
        attempt = {"attempt": 1, "started": iso(started), "ended": iso(ended), "status": state, "host": "elsewhere"}
        document = {
            "format": 1,
            "run_id": run_id,
            "run_name": f"run-{number:04d}",
            "project": f"project-{number % 7}",
            "tags": [],
            "created": iso(started),
            "status": state,
            "attempts": [{**attempt, "pid": 1, "config": {"lr": 10.0 ** -(number % 5)}, "world_size": 1}],
            "metrics": {"loss": {"goal": "min"}},
            "summary": {"train/loss": {"key": "loss", "split": "train", "last": loss, "min": loss, "max": 1.0}},
        }
        (root / run_id / "run.json").write_text(json.dumps(document), encoding="utf-8")
        ids.append(run_id)
    return ids


def test_a_thousand_runs(tmp_path: Path) -> None:
    """All are there, filtered, searched and sorted by the server, and compared as a table."""
    ids = plant(tmp_path, 1000)
    with serve_in_thread(tmp_path) as served:
        table = served.get("api/runs").json
        assert (table["total"], table["matched"], len(table["rows"])) == (1000, 1000, 1000)
        assert [row["run_id"] for row in table["rows"]] == ids[::-1]
        where = quote("state = failed and config.lr >= 1e-2")
        expected = [run_id for number, run_id in enumerate(ids) if number % 3 == 1 and number % 5 <= 2]
        found = served.get(f"api/runs?where={where}&sort=started&columns=config.lr,name").json
        assert [row["run_id"] for row in found["rows"]] == expected
        assert found["shown"] == ["config.lr", "name"]
        assert found["rows"][0]["values"] == {"config.lr": 0.1, "name": "run-0001"}
        assert served.get("api/runs?search=run-0123").json["matched"] == 1
        few = served.get("api/runs?sort=name&limit=3").json
        assert [row["name"] for row in few["rows"]] == ["run-0000", "run-0001", "run-0002"]
        assert few["matched"] == 1000
        compared = served.get(f"api/compare?runs={','.join(ids[: MOST_CURVES + 1])}").json
        assert [run["id"] for run in compared["runs"]] == ids[: MOST_CURVES + 1]


@pytest.mark.parametrize(
    ("query", "field", "position"),
    [("where=" + quote("loss < and"), "where", 7), ("where=" + quote("loss ? 1"), "where", 5), ("sort=nix", "sort", 0)],
)
def test_a_wrong_filter_says_where(served: Served, query: str, field: str, position: int) -> None:
    """With the place in the text; there are no rows then."""
    found = served.get(f"api/runs?{query}").json
    assert (found["error"]["field"], found["error"]["position"]) == (field, position)
    assert found["rows"] == []


@pytest.mark.parametrize("limit", ["x", "-1", "1.5", "²", "9" * 5000])
def test_a_wrong_limit_is_refused(served: Served, limit: str) -> None:
    """A whole number is asked for."""
    answer = served.get(f"api/runs?limit={quote(limit)}")
    assert answer.status == 400
    assert "use a whole number" in answer.json["error"]["message"]


# What is held in memory ----------------------------------------------------------------------------------------------


def test_runs_are_let_go_where_they_are_too_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that was looked at least recently goes first; one that somebody watches stays; all can be read again."""
    monkeypatch.setattr(held_runs, "MOST_POINTS", 350)
    ids = [f"20260131-12000{number}-abcdefgh" for number in range(5)]
    for run_id in ids:
        RunBuilder(tmp_path, run_id).attempt().log({"loss": [1.0] * 100}, steps=list(range(100))).end()
    with serve_in_thread(tmp_path) as served:
        runs = served.server.site.runs
        for run_id in ids[:3]:
            assert served.get(f"api/run/{run_id}?parts=head").status == 200
        assert runs.points == 300
        with served.events(f"api/run/{ids[0]}/events"):
            served.get(f"api/run/{ids[1]}?parts=head")
            for run_id in ids[3:]:
                served.get(f"api/run/{run_id}?parts=head")
            assert list(runs.ids()) == [ids[0], ids[3], ids[4]]
            assert runs.points == 300
        before = served.get(f"api/run/{ids[2]}?parts=metrics").json
        assert before["charts"]["metrics"][0]["lines"][0]["y"] == [1.0] * 100


def test_a_number_of_runs_is_held_at_most(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also small ones cost something."""
    monkeypatch.setattr(held_runs, "MOST_RUNS", 2)
    ids = [f"20260131-12000{number}-abcdefgh" for number in range(4)]
    for run_id in ids:
        RunBuilder(tmp_path, run_id).attempt().end()
    with serve_in_thread(tmp_path) as served:
        for run_id in ids:
            served.get(f"api/run/{run_id}?parts=head")
        assert list(served.server.site.runs.ids()) == ids[2:]


def test_while_a_long_run_is_read_its_description_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The head without points comes at once and says so; the parts come when the reading is over, read once."""
    from otel_train.view.live import LiveRun
    from otel_train.view.serving import run_routes

    builder = RunBuilder(tmp_path, notes="of a long night").attempt().log({"loss": [2.0, 1.0]}, steps=[0, 1])
    may_read = threading.Event()
    before = LiveRun.refresh

    def slow(self: LiveRun, *arguments: Any, **options: Any) -> Any:
        assert may_read.wait(30)
        return before(self, *arguments, **options)

    monkeypatch.setattr(LiveRun, "refresh", slow)
    monkeypatch.setattr(run_routes, "EARLY_AFTER_S", 0.01)
    with serve_in_thread(tmp_path) as served:
        early = served.get(f"api/run/{builder.run_id}?parts=head").json
        assert early["early"] is True
        assert early["notes"] == "of a long night"
        assert early["tiles"] == []
        answers: list[Any] = []
        asking = threading.Thread(
            target=lambda: answers.append(served.get(f"api/run/{builder.run_id}?parts=head,metrics").json)
        )
        asking.start()
        # Others are answered meanwhile.
        assert served.get("api/runs").json["total"] == 1
        assert served.get("").status == 200
        may_read.set()
        asking.join(30)
        (whole,) = answers
        assert whole["charts"]["metrics"][0]["lines"][0]["y"] == [2.0, 1.0]
        assert whole["revision"] > early["revision"]
        assert "early" not in whole
        assert "early" not in served.get(f"api/run/{builder.run_id}?parts=head").json


# A run that is recorded meanwhile ------------------------------------------------------------------------------------


def test_a_training_run_is_followed(root: Path, start: Callable[..., Any]) -> None:
    """What a real run records reaches an open page: its points, its warning, and its end."""
    run = start(project="digits", name="followed")
    run.log({"loss": 2.0}, step=0)
    assert run.flush(20)
    with serve_in_thread(root) as served:
        first = served.get(f"api/run/{run.id}?parts=head,metrics,logs").json
        assert first["live"] is True
        assert first["status"]["state"] == "running"
        (line,) = first["charts"]["metrics"][0]["lines"]
        with served.events(f"api/run/{run.id}/events?revision={first['revision']}") as events:
            for step in range(1, 6):
                run.log({"loss": 1.0 / step}, step=step)
            run.event("data.odd", "a sample is odd")
            assert run.flush(20)
            got: list[Any] = []
            text = ""
            while len(got) < 5 or "data.odd" not in text:
                name, data, _ = events.next()
                assert name == "append"
                added = data["lines"].get(line["id"], {"x": {"step": []}, "y": []})
                got += zip(added["x"]["step"], added["y"], strict=True)
                text += json.dumps(data["logs"])
            assert got == [(step, 1.0 / step) for step in range(1, 6)]
            run.finish()
            state = "running"
            while state == "running":
                name, data, _ = events.next()
                assert name in ("append", "reload")
                state = served.get(f"api/run/{run.id}?parts=head").json["status"]["state"]
            assert state == "finished"
        last = served.get(f"api/run/{run.id}?parts=metrics").json
        assert last["live"] is False
        assert last["charts"]["metrics"][0]["lines"][0]["y"] == [2.0, *(1.0 / step for step in range(1, 6))]


def test_the_first_chart_of_a_long_run_is_there_while_the_rest_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One chart comes before the points of the others are read; of a short run, or one that is read, nothing does."""
    from otel_train.view import first_look
    from otel_train.view.live import LiveRun

    builder = RunBuilder(tmp_path).attempt().log({"accuracy": [0.5, 1.0], "loss": [2.0, 1.0]}, steps=[0, 1])
    may_read = threading.Event()
    before = LiveRun.refresh

    def slow(self: LiveRun, *arguments: Any, **options: Any) -> Any:
        assert may_read.wait(30)
        return before(self, *arguments, **options)

    monkeypatch.setattr(LiveRun, "refresh", slow)
    monkeypatch.setattr(first_look, "LONG_BYTES", 1)
    with serve_in_thread(tmp_path) as served:
        address = f"api/run/{builder.run_id}?parts="
        early = served.get(address + "first").json
        assert [chart["title"] for chart in early["charts"]["metrics"]] == ["loss"]
        assert early["charts"]["metrics"][0]["lines"][0]["y"] == [2.0, 1.0]
        assert early["early"] is True
        may_read.set()
        whole = served.get(address + "head,metrics").json
        assert [chart["title"] for chart in whole["charts"]["metrics"]] == ["loss", "accuracy"]
        assert whole["revision"] > early["revision"]
        assert served.get(address + "first").json == {}
    monkeypatch.setattr(first_look, "LONG_BYTES", 1 << 30)
    with serve_in_thread(tmp_path) as served:
        assert served.get(f"api/run/{builder.run_id}?parts=first").json == {}


def test_a_run_that_is_dear_to_look_at_is_looked_at_less_often() -> None:
    """A look a second while it grows, one in two seconds while nothing happens, at most two percent of a core."""
    from otel_train.view.serving.held_runs import QUIET_LOOKS, pause_s

    assert pause_s(0, 0.004) == 1.0
    assert pause_s(QUIET_LOOKS, 0.004) == 2.0
    assert pause_s(0, 0.036) == pytest.approx(1.8)
    assert pause_s(QUIET_LOOKS, 0.036) == 2.0
    assert pause_s(0, 2.0) == 5.0
