"""The table of runs: columns, order, search, and what is said of a wrong text."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from otel_train.clock import NS_PER_S, iso
from otel_train.view.filter_syntax import FilterError
from otel_train.view.index import RunIndex
from otel_train.view.index_row import IndexRow, Values
from otel_train.view.run_columns import Columns
from otel_train.view.run_table import (
    default_columns,
    differing,
    matching,
    search_words,
    sort_order,
    sort_rows,
    split_columns,
    table,
)
from tests.runs import START_NS, RunBuilder

NOW = START_NS + 3600 * NS_PER_S


def a_run(root: Path, letter: str, loss: float | str, at_s: float = 0.0, **document: Any) -> RunBuilder:
    """A finished run of ten minutes with a summary."""
    config = document.pop("config", {"lr": 0.1, "depth": 3})
    summary = {"val/loss": {"last": loss, "min": 0.125, "max": 2.0, "last_step": 9}}
    builder = RunBuilder(
        root,
        f"20260131-120000-{letter * 8}",
        created=iso(START_NS + round(at_s * NS_PER_S)),
        summary=summary,
        **document,
    )
    return builder.attempt(config=config, start_s=at_s).end(at_s=at_s + 600)


@pytest.fixture
def index(tmp_path: Path) -> RunIndex:
    """Three runs: the oldest is `a`, the newest `c`."""
    a_run(tmp_path, "a", 0.5, 0, name="plain", tags=["base"], notes="The First one")
    a_run(tmp_path, "b", "NaN", 60, name="wide", config={"lr": 0.2, "depth": 3, "opt": "adam"})
    a_run(tmp_path, "c", 0.25, 120, name="Deep", group="late")
    index = RunIndex(tmp_path, lambda: NOW)
    index.refresh(None)
    return index


def test_a_large_seed_keeps_all_of_its_digits(tmp_path: Path) -> None:
    """A browser's numbers have 53 bits: what would be rounded is a text there, sorted as the number that it is."""
    seeds = [10**15 - 1, -(2**62) - 1, 2**53 + 1, 12345678901234567890]
    for letter, seed in zip("abcd", seeds, strict=True):
        a_run(tmp_path, letter, 0.5, config={"seed": seed, "wide": True})
    index = RunIndex(tmp_path, lambda: NOW)
    index.refresh(None)
    shown = json.loads(json.dumps(table(index, sort="config.seed", columns=["config.seed", "config.wide"])))
    assert [row["values"]["config.seed"] for row in shown["rows"]] == [
        "-4611686018427387905",
        10**15 - 1,
        "9007199254740993",
        "12345678901234567890",
    ]
    assert [row["values"]["config.wide"] for row in shown["rows"]] == [True] * 4


def letters(shown: dict[str, Any]) -> str:
    return "".join(row["run_id"][-1] for row in shown["rows"])


def test_the_whole_table(index: RunIndex) -> None:
    """Every part of the answer for one run that is meant, worked out by hand."""
    shown = table(index, where="loss < 0.3", columns=["val/loss", "best.loss", "config.lr", "nothing"], now_ns=NOW)
    (row,) = shown.pop("rows")
    columns = {column["id"]: column for column in shown.pop("columns")}
    assert shown == {
        "shown": ["val/loss", "best.loss", "config.lr", "nothing"],
        "asked": [
            {
                "id": "best.loss",
                "title": "best loss",
                "group": "metric",
                "kind": "number",
                "count": 3,
                "of": "val/loss",
                "stat": "best",
                "goal": "min",
            },
            {
                "id": "nothing",
                "title": "nothing",
                "group": "metric",
                "kind": "number",
                "count": 0,
                "of": "nothing",
                "stat": "last",
                "goal": None,
            },
        ],
        "sort": [["started", "descending"]],
        "total": 3,
        "matched": 1,
        "revision": index.revision,
        "pending": 0,
        "notice": "",
    }
    assert row == {
        "run_id": "20260131-120000-cccccccc",
        "name": "Deep",
        "project": "digits",
        "state": "finished",
        "reason": "",
        "tags": [],
        "group": "late",
        "created_s": START_NS / 1e9 + 120,
        "duration_s": 600.0,
        "step": 9.0,
        "epoch": None,
        "host": "elsewhere",
        "attempt": 1,
        "ranks": 1,
        "problem": "",
        "partial": False,
        "values": {"val/loss": 0.25, "best.loss": 0.125, "config.lr": 0.1},
    }
    assert columns["val/loss"] == {
        "id": "val/loss",
        "title": "val/loss",
        "group": "metric",
        "kind": "number",
        "count": 3,
        "of": "val/loss",
        "stat": "last",
        "goal": "min",
    }
    assert [name for name in columns if name.endswith("val/loss")] == [
        "val/loss",
        "best.val/loss",
        "min.val/loss",
        "max.val/loss",
    ]
    assert columns["config.opt"]["count"] == 1
    assert columns["tags"] == {"id": "tags", "title": "Tags", "group": "run", "kind": "tags", "count": 1}
    json.dumps([shown, row, list(columns.values())])


@pytest.mark.parametrize(
    ("sort", "order"),
    [
        ("", "cba"),
        ("started", "abc"),
        ("name", "cab"),
        ("-name", "bac"),
        ("loss", "cab"),
        ("-loss", "acb"),
        ("config.lr,-started", "cab"),
        ("-config.lr,started", "bac"),
        ("config.opt", "bca"),
        ("-config.opt", "bca"),
        ("duration", "cba"),
        (" -step , name ", "cab"),
        ("tags", "acb"),
        ("`name`", "cab"),
        ("loss desc", "acb"),
        ("config.lr DESC, started asc", "bac"),
    ],
)
def test_rows_are_sorted(index: RunIndex, sort: str, order: str) -> None:
    """NaN and what is missing come last in both directions; equal ones stay in the order of the start."""
    assert letters(table(index, sort=sort)) == order


def test_numbers_come_before_texts_and_are_sorted_as_numbers() -> None:
    """9 before 10, both before a text, true beside 1; then NaN, then nothing."""
    values: list[Any] = ["x", 10, math.nan, None, 9.5, "A", -math.inf, True]
    rows = [IndexRow(str(place), "", config={"k": value}) for place, value in enumerate(values)]
    order = sort_order("config.k", Columns(rows))
    assert [row.config["k"] for row in sort_rows(rows, order)][:6] == [-math.inf, True, 9.5, 10, "A", "x"]
    assert [row.run_id for row in sort_rows(rows, order)][6:] == ["2", "3"]
    down = [row.run_id for row in sort_rows(rows, sort_order("-config.k", Columns(rows)))]
    assert down == ["1", "4", "7", "6", "0", "5", "2", "3"]


@pytest.mark.parametrize(
    ("search", "found"),
    [
        ("", "cba"),
        ("FIRST", "a"),
        ("the one", "a"),
        ('"the one"', ""),
        ('"the first"', "a"),
        ("adam", "b"),
        ("opt=adam", "b"),
        ("lr=0.1", "ca"),
        ("late deep", "c"),
        ("elsewhere digits finished", "cba"),
        ("bbbbbbbb", "b"),
        ("base", "a"),
        ('"', ""),
    ],
)
def test_a_search_finds_words_anywhere(index: RunIndex, search: str, found: str) -> None:
    """All words, in any case, in name, id, project, group, tags, notes, host, state or configuration."""
    assert letters(table(index, search=search)) == found


def test_the_words_of_a_search() -> None:
    """Quotes hold words together; one that is not closed is a letter as any other."""
    assert search_words('  Ab "c  d" e"f" "open x') == ["ab", "c  d", 'e"f"', '"open', "x"]


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        ({"where": "los < 1"}, ("where", 0, 3, "no run has 'los'; near it: loss")),
        ({"sort": "name, -nane"}, ("sort", 6, 5, "no run has 'nane'; near it: name")),
        ({"sort": "name,"}, ("sort", 5, 1, "expected the name of a column")),
    ],
)
def test_a_wrong_text_is_told_with_its_place(
    index: RunIndex, asked: dict[str, str], error: tuple[str, int, int, str]
) -> None:
    """The table answers all the same, without rows, so that a page can show both."""
    shown = table(index, **asked)
    field, position, length, words = error
    told = shown["error"]
    assert (told["field"], told["position"], told["length"]) == (field, position, length)
    assert told["message"].startswith(words)
    assert (shown["rows"], shown["matched"], shown["total"]) == ([], 0, 3)
    assert shown["columns"]


def test_a_limit_cuts_rows_but_not_counts(index: RunIndex) -> None:
    """The first two of three."""
    shown = table(index, limit=2)
    assert (letters(shown), shown["matched"], shown["total"]) == ("cb", 3, 3)


def test_an_empty_root_has_an_empty_table(tmp_path: Path) -> None:
    """Columns of the facts are there, with a count of 0, and any filter is taken."""
    index = RunIndex(tmp_path / "nowhere")
    index.refresh()
    shown = table(index, where="loss < 1 and config.x = 2")
    assert (shown["rows"], shown["total"], "error" in shown) == ([], 0, False)
    assert {column["count"] for column in shown["columns"]} == {0}


def test_what_is_shown_where_nobody_chose() -> None:
    """Three metrics of most runs, validation first, the best of the first with a direction; keys that tell apart."""
    rows = []
    for place in range(6):
        metrics = {"train/loss": Values(1.0, 1.0, 1.0, "min"), "val/loss": Values(1.0, 1.0, 1.0, "min")}
        metrics |= {"grad_norm": Values(1.0)} if place else {}
        metrics |= {"rare": Values(1.0)} if place == 5 else {}
        config = {"seed": place, "lr": place % 2, "same": 1, "out": f"/runs/{place}", "long": "x" * 50 * (place % 2)}
        rows.append(IndexRow(f"{place}", "", metrics=metrics, config=config | ({"odd": 1} if place == 2 else {})))
    columns = Columns(rows)
    assert differing(rows, columns) == ["lr", "odd", "seed", "out"]
    shown = default_columns(rows, columns)
    assert shown[:6] == ["state", "name", "project", "started", "duration", "step"]
    assert shown[6:] == [
        "val/loss",
        "best.val/loss",
        "train/loss",
        "grad_norm",
        "config.lr",
        "config.odd",
        "config.seed",
    ]


def test_a_run_that_comes_in_does_not_move_the_usual_columns() -> None:
    """Keys of the configuration stand by name, whichever run has which of them first."""
    rows = [
        IndexRow(f"{place}", "", config={"lr": place, "epochs": place % 2, "kind": "ab"[place % 2]})
        for place in range(4)
    ]
    newer = IndexRow("4", "", config={"kind": "a", "epochs": 1, "lr": 2})
    expected = ["config.epochs", "config.kind", "config.lr"]
    assert default_columns(rows, Columns(rows))[6:] == expected
    assert default_columns([newer, *rows], Columns([newer, *rows]))[6:] == expected


def test_metrics_with_the_names_of_facts_can_be_meant() -> None:
    """A metric called `step`, or one that begins like a statistic, has a name of its own."""
    metrics = {"step": Values(5.0), "best.x": Values(6.0), "config.y": Values(7.0)}
    rows = [IndexRow("a", "", step=1.0, metrics=metrics)]
    columns = Columns(rows)
    names = [one["id"] for one in columns.available() if one.get("stat") == "last"]
    assert names == ["last.best.x", "last.config.y", "last.step"]
    assert [columns.find(name).get(rows[0]) for name in (*names, "step")] == [6.0, 7.0, 5.0, 1.0]


def test_columns_of_a_list() -> None:
    """Names with a comma stand in backquotes; empty ones are dropped."""
    assert split_columns("state, `a,b`,,config.lr ") == ["state", "a,b", "config.lr"]


def test_matching_raises_for_programs(index: RunIndex) -> None:
    """Where no page shows it the fault is an exception."""
    with pytest.raises(FilterError):
        matching(index.rows, index.columns, "loss <", "")
