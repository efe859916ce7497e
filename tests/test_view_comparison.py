"""The comparison of runs: curves, what differs, results, and what becomes of runs that cannot be compared."""

from __future__ import annotations

import contextlib
import json
import math
import shutil
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from otel_train.clock import NS_PER_S, iso
from otel_train.errors import RunNotFoundError
from otel_train.record.entries import Sample
from otel_train.runlog.catalogue import find_run
from otel_train.view.comparison import MOST_CURVES, asked, compare, revision_of
from otel_train.view.comparison_cells import flat, identity
from otel_train.view.comparison_code import TOO_MUCH, patches, sections
from otel_train.view.comparison_results import against
from otel_train.view.comparison_runs import COLOURS, labels, roles
from otel_train.view.page import json_bytes
from otel_train.view.reading import read_run
from otel_train.view.run_data import RunData
from tests.runs import START_NS, RunBuilder

NOW_NS = START_NS + 900 * NS_PER_S


def run_id(number: int) -> str:
    """An id that no other number has."""
    return f"20260131-12{number:02d}00-aaaaaa{'abcdefghijklmnop'[number % 16]}{'qrstuvwxyz234567'[number // 16]}"


def a_run(root: Path, number: int, **document: Any) -> RunBuilder:
    """A run with an attempt, and nothing in it yet."""
    attempt = {key: document.pop(key) for key in ("config", "environment", "seed", "host") if key in document}
    return RunBuilder(root, run_id(number), **{"name": f"run-{number}", **document}).attempt(**attempt)


def read(*builders: RunBuilder) -> list[RunData]:
    """The runs as they are read."""
    return [read_run(builder.path, NOW_NS) for builder in builders]


def part_of(payload: dict[str, Any], part: str) -> dict[str, list[str | None]]:
    """The texts of a part of the payload by key."""
    return {row["key"]: [cell and cell["text"] for cell in row["cells"]] for row in payload[part]["rows"]}


def differing(payload: dict[str, Any], part: str) -> set[str]:
    """The keys of a part that differ."""
    return {row["key"] for row in payload[part]["rows"] if row["differs"]}


def test_each_metric_is_one_chart_with_a_line_for_each_run_and_split(tmp_path: Path) -> None:
    """Values, steps and seconds are those that were logged; the colour is the run's, the dash the split's."""
    one = a_run(tmp_path, 1).log({"loss": [3.0, 2.0, 1.0]}, steps=[0, 10, 20], times_s=[1, 2, 3])
    one.log({"loss": [2.5]}, split="val", steps=[20], times_s=[3.5])
    two = a_run(tmp_path, 2).log({"loss": [4.0, 5.0]}, steps=[0, 5], times_s=[2, 60])
    payload = compare(read(one, two))
    (chart,) = payload["charts"]["metrics"]
    found = {(line["run"], line["split"]): line for line in chart["lines"]}
    assert chart["title"] == "loss"
    assert found[run_id(1), "train"]["y"] == [3.0, 2.0, 1.0]
    assert found[run_id(1), "train"]["x"] == {"step": [0, 10, 20], "time": [1.0, 2.0, 3.0]}
    assert found[run_id(1), "val"]["y"] == [2.5]
    assert found[run_id(2), "train"]["x"] == {"step": [0, 5], "time": [2.0, 60.0]}
    assert [line["dash"] for line in chart["lines"]] == ["solid", "dash", "solid"]
    role = {run["id"]: run["role"] for run in payload["runs"]}
    assert {(line["run"], line["role"]) for line in chart["lines"]} == set(role.items())
    assert len({line["label"] for line in chart["lines"]}) == 3
    assert len({line["id"] for line in chart["lines"]}) == 3


def test_times_count_from_each_runs_own_start_and_the_clock_follows_from_it(tmp_path: Path) -> None:
    """Of a run that began an hour later the first point is as near its start; its start is told in unix seconds."""
    one = a_run(tmp_path, 1).log({"loss": [1.0]}, times_s=[5])
    two = RunBuilder(tmp_path, run_id(2), created=iso(START_NS + 3600 * NS_PER_S)).attempt(start_s=3600)
    two.log({"loss": [1.0]}, times_s=[3607])
    payload = compare(read(one, two))
    lines = payload["charts"]["metrics"][0]["lines"]
    assert [line["x"]["time"] for line in lines] == [[5.0], [7.0]]
    assert [run["started_s"] for run in payload["runs"]] == [START_NS / NS_PER_S, START_NS / NS_PER_S + 3600]
    assert payload["axes"] == ["time", "clock"]


def test_a_name_that_several_runs_have_is_told_apart_by_the_end_of_the_id() -> None:
    """Unique names stay as they are, names of none are ids, and labels are never the same."""
    assert labels([("id-a", "net"), ("id-b", "wide")]) == ["net", "wide"]
    assert labels([("20260131-120000-aaaabbbb", "net"), ("20260131-120000-ccccdddd", "net")]) == [
        "net (bbbb)",
        "net (dddd)",
    ]
    assert labels([("20260131-120000-aaaabbbb", "n"), ("20260131-130000-aaaabbbb", "n")]) == [
        "n (20260131-120000-aaaabbbb)",
        "n (20260131-130000-aaaabbbb)",
    ]
    assert labels([("x", ""), ("y", "")]) == ["x", "y"]
    odd = labels([("1", "a (2)"), ("2", "a"), ("3", "a"), ("a (3)", "")])
    assert len(set(odd)) == 4


def test_colours_do_not_depend_on_the_order_and_are_distinct_up_to_eight_runs() -> None:
    """A newer run changes no older one's colour; forty runs share eight colours evenly."""
    ids = [run_id(number) for number in range(40)]
    eight = roles(ids[:8])
    assert len(set(eight.values())) == COLOURS == 8
    assert roles(reversed(ids[:8])) == eight
    assert {name: role for name, role in roles(ids[:9]).items() if name in eight} == eight
    many = list(roles(ids).values())
    assert {many.count(role) for role in many} == {5}


def test_one_and_one_point_zero_and_text_and_true_and_nothing_are_five_things(tmp_path: Path) -> None:
    """All five differ in pairs and are written so that they can be told apart; the same value is no difference."""
    values: list[Any] = [1, 1.0, "1", True, None]
    runs = [a_run(tmp_path, number, config={"a": value, "same": 7}) for number, value in enumerate(values)]
    runs.append(a_run(tmp_path, 9, config={"same": 7}))
    payload = compare(read(*runs))
    row = next(row for row in payload["configuration"]["rows"] if row["key"] == "a")
    assert [cell and (cell["text"], cell["kind"]) for cell in row["cells"]] == [
        ("1", "int"),
        ("1.0", "float"),
        ('"1"', "text"),
        ("true", "bool"),
        ("null", "null"),
        None,
    ]
    assert differing(payload, "configuration") == {"a"}
    assert (payload["configuration"]["differing"], payload["configuration"]["total"]) == (1, 2)
    assert len({identity(value) for value in values}) == 5


def test_nested_keys_are_dotted_and_none_is_lost(tmp_path: Path) -> None:
    """Lists of values are one value; of one dotted key from two places both are there; NaN is the same as NaN."""
    assert flat({"a": {"b": {"c": 1}}, "l": [1, 2], "m": [{"x": 1}]}) == {"a.b.c": 1, "l": [1, 2], "m.0.x": 1}
    assert flat({"a.b": 1, "a": {"b": 2}, "e": {}}) == {"a.b": 1, "a.b#2": 2, "e": {}}
    assert identity(math.nan) == identity(math.nan)
    assert identity([1]) != identity([1.0]) != identity("[1]")
    one = a_run(tmp_path, 1, config={"opt": {"lr": 0.1, "betas": [0.9, 0.99]}})
    two = a_run(tmp_path, 2, config={"opt": {"lr": 0.2, "betas": [0.9, 0.99]}})
    payload = compare(read(one, two))
    assert part_of(payload, "configuration")["opt.lr"] == ["0.1", "0.2"]
    assert differing(payload, "configuration") == {"opt.lr"}


def test_a_value_that_an_attempt_changed_is_shown_with_what_it_was(tmp_path: Path) -> None:
    """The newest counts; a key that only an older attempt had is a difference, too."""
    one = a_run(tmp_path, 1, config={"lr": 0.1, "gone": 1, "kept": 2}).end("failed", at_s=5)
    one.attempt(2, start_s=10, config={"lr": 0.05, "kept": 2}).end("failed", at_s=15)
    one.attempt(3, start_s=20, config={"lr": 0.05, "kept": 2})
    two = a_run(tmp_path, 2, config={"lr": 0.05, "kept": 2})
    payload = compare(read(one, two))
    rows = {row["key"]: row for row in payload["configuration"]["rows"]}
    assert rows["lr"]["cells"][0] == {"text": "0.05", "kind": "float", "earlier": [[1, "0.1"]]}
    assert rows["gone"]["cells"] == [{"text": "", "kind": "missing", "earlier": [[1, "1"]]}, None]
    assert differing(payload, "configuration") == {"lr", "gone"}


def test_results_are_those_of_the_points_with_the_best_run_marked(tmp_path: Path) -> None:
    """Last, least, greatest and mean against plain Python; the best by direction; missing metrics are missing."""
    losses = {1: [3.0, 0.5, 1.0], 2: [2.0, 0.25, 0.75], 3: [9.0]}
    accuracies = {1: [0.5, 0.875], 2: [0.625, 0.75]}
    builders = []
    for number, values in losses.items():
        builder = a_run(tmp_path, number, metrics={"accuracy": {"goal": "max"}})
        builder.log({"loss": values}, steps=range(len(values)))
        builder.log({"lr": [0.1] * len(values)}, split="", steps=range(len(values)))
        if number in accuracies:
            builder.log({"accuracy": accuracies[number]}, split="val", steps=[1, 2])
        builders.append(builder)
    payload = compare(read(*builders))
    rows = {row["key"]: row for row in payload["results"]["rows"]}
    assert list(rows) == ["val/accuracy", "train/loss", "lr"]
    for place, values in enumerate(losses.values()):
        cell = rows["train/loss"]["cells"][place]
        assert cell["last"] == values[-1]
        assert (cell["best"], cell["min"], cell["max"]) == (min(values), min(values), max(values))
        assert cell["mean"] == pytest.approx(statistics.fmean(values))
        assert cell["best_at"] == f"step {values.index(min(values))}"
    assert rows["train/loss"]["winners"] == [1]
    assert rows["val/accuracy"]["winners"] == [0]
    assert rows["val/accuracy"]["cells"][0]["best"] == 0.875
    assert rows["val/accuracy"]["cells"][2] is None
    assert (rows["lr"]["goal"], rows["lr"]["winners"], rows["lr"]["cells"][0]["best"]) == ("", [], None)
    notes = [note["text"] for chart in payload["charts"]["metrics"] for note in chart["notes"]]
    assert "best train: run-2, 0.25 at step 1" in notes
    assert "Not logged by run-3." in notes


def test_equal_bests_are_all_marked_and_runs_that_disagree_on_the_direction_are_told(tmp_path: Path) -> None:
    """Two runs with one best value share it; where one counts up and the other down nobody is best."""
    one = a_run(tmp_path, 1, metrics={"m": {"goal": "max"}}).log({"loss": [0.5]})
    two = a_run(tmp_path, 2, metrics={"m": {"goal": "min"}}).log({"loss": [0.5]})
    one.log({"m": [1.0]}, split="")
    two.log({"m": [2.0]}, split="")
    payload = compare(read(one, two))
    rows = {row["key"]: row for row in payload["results"]["rows"]}
    assert rows["train/loss"]["winners"] == [0, 1]
    assert (rows["m"]["goal"], rows["m"]["winners"]) == ("", [])
    assert any("do not agree whether m is better low or high" in one["text"] for one in payload["notices"])


def test_values_that_are_not_finite_are_counted_marked_and_never_best(tmp_path: Path) -> None:
    """A run of NaN alone has no best; the payload is strict JSON."""
    one = a_run(tmp_path, 1).log({"loss": [math.nan, math.inf, -math.inf]}, steps=[0, 1, 2])
    two = a_run(tmp_path, 2).log({"loss": [1.0, math.nan, 2.0]}, steps=[0, 1, 2])
    payload = compare(read(one, two))
    (row,) = payload["results"]["rows"]
    assert [(cell["bad"], cell["best"]) for cell in row["cells"]] == [(3, None), (1, 1.0)]
    lines = {line["run"]: line for line in payload["charts"]["metrics"][0]["lines"]}
    assert lines[run_id(1)]["y"] == [None, None, None]
    assert lines[run_id(1)]["marks"] == [[0, 1, 0, 0], [1, 0, 1, 0], [2, 0, 0, 1]]
    assert lines[run_id(2)]["y"] == [1.0, None, 2.0]
    notes = [note["text"] for note in payload["charts"]["metrics"][0]["notes"]]
    assert "run-1 · train: 1 NaN, 1 +Inf, 1 -Inf; first bad step 0" in notes
    text = json_bytes(payload).decode()
    parsed = json.loads(text, parse_constant=lambda name: pytest.fail(f"bare {name}"))
    # The run of -Inf at its end has that as its last value, by its name.
    assert parsed["results"]["rows"][0]["cells"][0]["last"] == "-Inf"


def test_runs_that_count_steps_in_different_units_are_warned_of(tmp_path: Path) -> None:
    """Within one run the run's own warning with its name; between two a warning that names both."""
    mixed = a_run(tmp_path, 1).log({"loss": [1.0, 1.0]}, steps=[4000, 8000], times_s=[1, 3])
    mixed.log({"loss": [1.0, 1.0]}, split="val", steps=[1000, 2000], times_s=[2, 4])
    tokens = a_run(tmp_path, 2).log({"loss": [1.0]}, steps=[1_000_000], axis="tokens")
    payload = compare(read(mixed, tokens))
    warned = [one["text"] for one in payload["notices"] if one["kind"] == "warn"]
    assert any(text.startswith("run-1: Two step units seem to be mixed") for text in warned)
    assert any("steps of loss (train) in different units (step: run-1; tokens: run-2)" in text for text in warned)
    assert payload["charts"]["metrics"][0]["axis"] == "step, tokens"


def test_of_several_ranks_the_first_is_compared_and_that_is_told(tmp_path: Path) -> None:
    """Rank 0 of four has the line; the others are said to be left out."""
    one = a_run(tmp_path, 1)
    for rank in range(4):
        one.log({"loss": [float(rank)]}, steps=[0], rank=rank)
    two = a_run(tmp_path, 2).log({"loss": [7.0]}, steps=[0])
    payload = compare(read(one, two))
    assert [line["y"] for line in payload["charts"]["metrics"][0]["lines"]] == [[0.0], [7.0]]
    assert any("Only the first rank's lines are drawn of run-1" in one["text"] for one in payload["notices"])


PATCH = """\
diff --git a/train.py b/train.py
index 1111111..2222222 100644
--- a/train.py
+++ b/train.py
@@ -1,3 +1,4 @@
 import x
-lr = 1
+lr = {lr}
+extra = True
diff --git a/old name.py b/old name.py
index 3333333..4444444 100644
--- a/old name.py
+++ b/old name.py
@@ -1 +1 @@
-a
+b
"""


def environment(**changes: Any) -> dict[str, Any]:
    """An environment as a run records it."""
    found: dict[str, Any] = {
        "python": {"version": "3.11.7"},
        "packages": {"torch": "2.15.0", "numpy": "2.3"},
        "command": {"argv": ["python", "train.py", "--name", "a b"]},
        "code": {"commit": "a" * 40, "branch": "main", "dirty": False},
    }
    return found | changes


def test_environment_packages_and_command_differ_where_they_do(tmp_path: Path) -> None:
    """A version, a package that only one has, an argument, a variable, the seed, the host: each in its table."""
    one = a_run(tmp_path, 1, host="a", seed={"seed": 1, "states": {"python": "x"}}, environment=environment())
    other = environment(
        python={"version": "3.12.1"},
        packages={"torch": "2.14.0", "numpy": "2.3", "apex": "1"},
        command={"argv": ["python", "train.py", "--name", "b"]},
        variables={"OMP_NUM_THREADS": "4"},
    )
    two = a_run(tmp_path, 2, host="b", seed={"seed": 2, "states": {"python": "y"}}, environment=other)
    payload = compare(read(one, two))
    assert differing(payload, "environment") == {"host", "seed", "python.version"}
    assert differing(payload, "packages") == {"torch", "apex"}
    assert part_of(payload, "packages")["apex"] == [None, "1"]
    assert differing(payload, "command") == {"command line", "OMP_NUM_THREADS"}
    assert part_of(payload, "command")["command line"] == ["python train.py --name 'a b'", "python train.py --name b"]


def test_code_differs_by_commit_and_by_what_was_not_committed(tmp_path: Path) -> None:
    """A row for each file of a patch, and the lines in which the patches of one file are not the same."""
    dirty = {"commit": "a" * 40, "branch": "main", "dirty": True}
    runs = [
        a_run(tmp_path, 1, environment=environment(code=dirty | {"patch": PATCH.format(lr=1), "patch_sha256": "1"})),
        a_run(tmp_path, 2, environment=environment(code=dirty | {"patch": PATCH.format(lr=2), "patch_sha256": "2"})),
        a_run(tmp_path, 3, environment=environment(code={"commit": "b" * 40, "branch": "main", "dirty": False})),
        a_run(tmp_path, 4, environment=environment(code=dirty | {"patch": PATCH.format(lr=1), "patch_sha256": "1"})),
    ]
    payload = compare(read(*runs))
    assert {"commit", "dirty", "train.py", "old name.py"} <= differing(payload, "code")
    assert "branch" not in differing(payload, "code")
    cells = part_of(payload, "code")["train.py"]
    assert [text and text.split(" · ")[0] for text in cells] == ["+2 -1", "+2 -1", None, "+2 -1"]
    assert cells[0] == cells[3] != cells[1]
    second, third = payload["patches"]
    assert (second["run"], second["commits"]) == (1, [])
    assert [(file["path"], file["change"]) for file in second["files"]] == [("train.py", "changed")]
    changed = [line for line in second["files"][0]["lines"].split("\n") if line[:1] in "+-"]
    assert changed == ["-+lr = 1", "++lr = 2"]
    assert (third["run"], third["commits"]) == (2, ["a" * 40, "b" * 40])
    assert {(file["path"], file["change"]) for file in third["files"]} == {
        ("train.py", "removed"),
        ("old name.py", "removed"),
    }


def test_another_base_turns_the_differences_of_patches_round(tmp_path: Path) -> None:
    """What only the base had is then what only the other has; a base that is not compared is told."""
    code = {"commit": "a" * 40, "dirty": True, "patch": PATCH.format(lr=1), "patch_sha256": "1"}
    one = a_run(tmp_path, 1, environment=environment(code=code))
    two = a_run(tmp_path, 2, environment=environment())
    runs = read(one, two)
    assert {file["change"] for file in compare(runs)["patches"][0]["files"]} == {"removed"}
    swapped = compare(runs, base=run_id(2))
    assert swapped["base"] == run_id(2)
    assert {file["change"] for file in swapped["patches"][0]["files"]} == {"added"}
    stray = compare(runs, base="nobody")
    assert stray["base"] == run_id(1)
    assert any("nobody is none of the compared runs" in one["text"] for one in stray["notices"])


def test_patches_of_many_large_files_are_compared_as_far_as_a_page_has_room(tmp_path: Path) -> None:
    """Forty runs that each changed ten files of a thousand lines: the first are compared, of the rest it is said."""

    def patch(number: int) -> str:
        body = [f"+line {line} of {number if line % 100 == 0 else 0}" for line in range(1000)]
        return "".join(
            f"diff --git a/f{name}.py b/f{name}.py\n--- a/f{name}.py\n+++ b/f{name}.py\n@@ -0,0 +1,1000 @@\n"
            + "\n".join(body)
            + "\n"
            for name in range(10)
        )

    codes = [{"commit": "a", "patch": patch(number), "patch_sha256": str(number)} for number in range(40)]
    found = patches(codes, 0)
    files = [file for one in found for file in one["files"]]
    assert len(files) == 390
    compared = [file for file in files if file["lines"] != TOO_MUCH]
    assert 5 < len(compared) < 20
    first = [line for line in files[0]["lines"].split("\n") if line[:1] in "+-"]
    assert first == [
        f"{sign}+line {line} of {number}" for line in range(0, 1000, 100) for sign, number in (("-", 0), ("+", 1))
    ]
    assert sum(len(file["lines"]) for file in files) < 1_100_000


def test_a_patch_is_parted_by_its_files() -> None:
    """Names with spaces and quoted names are whole; what is not a patch has no part."""
    parts = sections(PATCH.format(lr=3))
    assert list(parts) == ["train.py", "old name.py"]
    assert "".join(parts.values()) == PATCH.format(lr=3)
    assert sections("nothing") == sections("") == {}


def test_data_sets_are_compared_by_name_checksum_size_and_classes(tmp_path: Path) -> None:
    """One class more, another checksum, a set that only one run has, and the newest of two records of one name."""
    record = {
        "name": "digits",
        "size": 100,
        "checksum": {"algorithm": "sha256", "value": "aa"},
        "classes": {"0": 50, "1": 50},
        "time": "2026-01-31T12:00:00Z",
        "files": [{"path": "/runs/1/a.npz", "size": 3, "checksum": {"algorithm": "sha256", "value": "ff"}}],
    }
    older = record | {"size": 7, "classes": {}}
    changed = record | {
        "checksum": {"algorithm": "sha256", "value": "bb"},
        "classes": {"0": 49, "1": 50, "2": 1},
        "time": "2026-02-01T12:00:00Z",
        "files": [{"path": "/runs/2/a.npz", "size": 3, "checksum": {"algorithm": "sha256", "value": "ff"}}],
    }
    one = a_run(tmp_path, 1, datasets=[older, record])
    two = a_run(tmp_path, 2, datasets=[changed, {"name": "extra", "size": 1}])
    payload = compare(read(one, two))
    rows = {(row["group"], row["key"]): row for row in payload["datasets"]["rows"]}
    assert {key for key, row in rows.items() if row["differs"]} == {
        ("digits", "checksum"),
        ("digits", "class 0"),
        ("digits", "class 2"),
        ("extra", "size"),
    }
    assert [cell and cell["text"] for cell in rows["digits", "class 2"]["cells"]] == [None, "1"]
    assert [cell["text"] for cell in rows["digits", "size"]["cells"]] == ["100", "100"]
    assert rows["digits", "file a.npz"]["cells"][0]["text"] == "3 B · sha256 ff"


def test_facts_tell_state_duration_pace_host_and_cards(tmp_path: Path) -> None:
    """Two steps a second between points ten seconds apart; the time between two attempts is not of the pace."""
    cards = {"machine": {"gpu": {"gpus": [{"name": "NVIDIA H200"}, {"name": "NVIDIA H200"}]}}}
    one = a_run(tmp_path, 1, host="node1", environment=cards).log({"loss": [1.0, 1.0]}, steps=[0, 20], times_s=[1, 11])
    one.end("failed", at_s=12)
    one.attempt(2, start_s=500, host="node1", environment=cards)
    one.log({"loss": [1.0, 1.0]}, steps=[30, 50], times_s=[501, 511], attempt=2).end(at_s=512)
    two = a_run(tmp_path, 2, host="node2").log({"loss": [1.0]}, steps=[0]).end("killed", at_s=30)
    payload = compare(read(one, two))
    first, second = payload["runs"]
    assert first["steps_per_s"] == pytest.approx(40 / 20)
    assert second["steps_per_s"] is None
    assert (first["gpus"], second["gpus"]) == ("2 x NVIDIA H200", "")
    assert (first["duration_s"], second["duration_s"]) == (512.0, 30.0)
    assert part_of(payload, "facts")["State"] == ["finished", "killed"]
    assert part_of(payload, "facts")["Host"] == ["node1", "node2"]
    assert part_of(payload, "facts")["Attempts"] == ["2", "1"]


def test_columns_place_runs_by_what_differs_and_by_results(tmp_path: Path) -> None:
    """Numbers are numbers, mixed kinds are categories, what is the same is no column, NaN is no number."""
    configs: list[dict[str, Any]] = [
        {"lr": 0.1, "opt": "adam", "size": 64, "same": 1, "odd": 1.5},
        {"lr": 1, "opt": "sgd", "size": "64", "same": 1, "odd": "NaN"},
        {"lr": 0.001, "opt": "adam", "same": 1, "odd": 2.5},
    ]
    builders = [
        a_run(tmp_path, number, config=config).log({"loss": [1.0 / (number + 1), 2.0]}, split="val")
        for number, config in enumerate(configs)
    ]
    columns = {column["key"]: column for column in compare(read(*builders))["columns"]}
    assert columns["config.lr"]["values"] == [0.1, 1.0, 0.001]
    assert (columns["config.opt"]["kind"], columns["config.opt"]["values"]) == ("category", ["adam", "sgd", "adam"])
    assert columns["config.size"]["values"] == ["64", '"64"', None]
    assert (columns["config.odd"]["kind"], columns["config.odd"]["values"]) == ("number", [1.5, None, 2.5])
    assert "config.same" not in columns
    assert columns["best.val/loss"]["values"] == [1.0, 0.5, 1 / 3]
    assert columns["val/loss"]["values"] == [2.0, 2.0, 2.0]
    assert columns["best.val/loss"]["goal"] == "min"


def test_differences_to_a_base_are_told_with_their_share() -> None:
    """The share is of the base's size; of a base of 0 there is none, and of what is no number nothing."""
    assert against(1.5, 1.0) == (0.5, 0.5)
    assert against(-1.5, -1.0) == (-0.5, -0.5)
    assert against(1.0, 0.0) == (1.0, None)
    assert against(None, 1.0) is against(1.0, math.nan) is None


@pytest.fixture
def opened(tmp_path: Path) -> Any:
    """What gives a run of the folder by its id."""

    @contextlib.contextmanager
    def give(name: str) -> Iterator[RunData]:
        yield read_run(find_run(tmp_path, name), NOW_NS)

    return give


def test_a_run_that_is_not_there_is_named_and_the_rest_is_compared(tmp_path: Path, opened: Any) -> None:
    """Unknown id and damaged folder with their messages; empty and repeated ids do no harm."""
    a_run(tmp_path, 1).log({"loss": [1.0]})
    a_run(tmp_path, 2).log({"loss": [2.0]})
    asked_for = [run_id(2), "", "unknown", run_id(1), run_id(2)]
    payload = asked(asked_for, opened, base=run_id(1))
    assert [run["id"] for run in payload["runs"]] == [run_id(2), run_id(1)]
    assert [one["id"] for one in payload["missing"]] == ["unknown"]
    assert "no run 'unknown'" in payload["missing"][0]["message"]
    assert payload["base"] == run_id(1)
    assert payload["notices"][0]["text"] == "A run that was named twice is compared once."


def test_one_run_and_none_have_a_comparison_without_differences(tmp_path: Path, opened: Any) -> None:
    """Nothing fails, nothing differs, nobody is best."""
    a_run(tmp_path, 1, config={"lr": 1}).log({"loss": [1.0]})
    alone = asked([run_id(1)], opened)
    assert len(alone["runs"]) == 1
    assert alone["configuration"]["differing"] == 0
    assert alone["results"]["rows"][0]["winners"] == []
    nobody = asked([], opened)
    assert (nobody["runs"], nobody["base"], nobody["charts"]) == ([], "", {"metrics": [], "pace": []})


def test_a_revision_is_another_when_a_run_goes_on_and_the_same_while_nothing_changes(
    tmp_path: Path, opened: Any
) -> None:
    """A question with the present revision is answered in a word."""
    one = a_run(tmp_path, 1).log({"loss": [1.0]})
    a_run(tmp_path, 2).log({"loss": [2.0]})
    ids = [run_id(1), run_id(2)]
    before = asked(ids, opened)["revision"]
    assert asked(ids, opened, revision=before) == {"revision": before, "unchanged": True}
    one.log({"loss": [0.5]}, times_s=[9])
    after = asked(ids, opened, revision=before)
    assert after["revision"] != before
    assert after["results"]["rows"][0]["cells"][0]["last"] == 0.5
    assert revision_of(read(one)) != after["revision"]


def test_a_copy_of_a_run_under_another_name_is_a_run_of_its_own(tmp_path: Path, opened: Any) -> None:
    """A run is known by its folder, as in its address; the copy's label tells which it is."""
    builder = a_run(tmp_path, 1).log({"loss": [1.0]})
    shutil.copytree(builder.path, tmp_path / "copy-of-it")
    payload = asked(["copy-of-it", run_id(1)], opened, base="copy-of-it")
    assert [run["id"] for run in payload["runs"]] == ["copy-of-it", run_id(1)]
    assert payload["base"] == "copy-of-it"
    assert [run["label"] for run in payload["runs"]] == ["run-1 (f-it)", f"run-1 ({run_id(1)[-4:]})"]
    assert {line["run"] for line in payload["charts"]["metrics"][0]["lines"]} == {"copy-of-it", run_id(1)}


def test_a_fault_of_the_disk_is_a_message(tmp_path: Path) -> None:
    """Neither a folder that cannot be read nor one that is deleted meanwhile ends the comparison."""

    def opened(name: str) -> Any:
        if name == "gone":
            raise RunNotFoundError("the run's folder is gone")
        raise PermissionError(13, "Permission denied")

    payload = asked(["shut", "gone"], opened)
    assert payload["missing"] == [
        {"id": "shut", "message": "It cannot be read: Permission denied."},
        {"id": "gone", "message": "the run's folder is gone"},
    ]


def test_runs_of_other_projects_and_damaged_lines_are_told(tmp_path: Path) -> None:
    """Both are compared all the same."""
    one = a_run(tmp_path, 1, project="digits").log({"loss": [1.0]})
    two = a_run(tmp_path, 2, project="speech").log({"loss": [1.0]})
    two.lines("metrics", b'{"broken\n')
    texts = [one["text"] for one in compare(read(one, two))["notices"]]
    assert "The runs are of different projects (run-1: digits; run-2: speech)." in texts
    assert "run-2: 1 line is damaged and left out here." in texts


JUNK: list[Any] = [None, 3, "text", [1, None, "x"], {"a": [None, {"b": 1}]}, [{"name": 1, "classes": 2, "files": 3}]]


@pytest.mark.parametrize("junk", JUNK, ids=str)
def test_a_description_with_nonsense_in_it_is_compared_as_far_as_it_goes(tmp_path: Path, junk: Any) -> None:
    """Whatever stands in the place of a part of run.json, the other run and the other parts are there."""
    good = a_run(tmp_path, 1, config={"lr": 1}).log({"loss": [1.0]})
    whole = ("attempts", "datasets", "tags", "metrics", "summary", "group", "project", "run_name", "created")
    within = ("config", "environment", "seed", "world_size", "host", "started", "attempt")
    parts = ("code", "packages", "command", "machine", "variables", "python")
    builders = [RunBuilder(tmp_path, f"whole-{key}", **{"name": key, key: junk}) for key in whole if key != "attempts"]
    builders.extend(RunBuilder(tmp_path, f"within-{key}").attempt(**{key: junk}) for key in within if key != "attempt")
    builders.extend(RunBuilder(tmp_path, f"part-{key}").attempt(environment={key: junk}) for key in parts)
    spoilt = RunBuilder(tmp_path, "whole-attempts").attempt()
    spoilt.folder.update(lambda document: document.update(attempts=junk))
    inside = {"code": dict.fromkeys(("commit", "patch", "untracked", "reasons", "patch_sha256"), junk)}
    builders.append(RunBuilder(tmp_path, "inside-code").attempt(environment=inside))
    for builder in [*builders, spoilt]:
        builder.log({"loss": [2.0]})
        payload = compare(read(good, builder))
        assert [run["id"] for run in payload["runs"]] == [run_id(1), builder.run_id]
        assert payload["results"]["rows"][0]["cells"][0]["best"] == 1.0
        assert json_bytes(payload)


def test_long_runs_share_the_rows_of_the_page(tmp_path: Path) -> None:
    """Ten runs of 3,000 points in each of 40 metrics stay below the rows of a page; extremes are kept."""
    builders = []
    for number in range(10):
        builder = a_run(tmp_path, number)
        values = {f"m{metric}": [math.sin(step / 50 + metric) for step in range(3000)] for metric in range(40)}
        values["m0"][1234] = 99.0 + number
        builders.append(builder.log(values, split="", steps=range(3000)))
    payload = compare(read(*builders))
    lines = [line for chart in payload["charts"]["metrics"] for line in chart["lines"]]
    assert len(lines) == 400
    assert sum(len(line["y"]) for line in lines) <= 110_000
    tops = {
        line["run"]: max(line["high"])
        for line in lines
        if line["label"]
        and line["points"]
        and line in next(chart for chart in payload["charts"]["metrics"] if chart["title"] == "m0")["lines"]
    }
    assert tops == {run_id(number): 99.0 + number for number in range(10)}


def test_pace_is_drawn_beside_the_metrics(tmp_path: Path) -> None:
    """Step times of training in seconds, use of the first card in percent."""
    one = a_run(tmp_path, 1)
    one.samples(
        5, [Sample("dl.step.time", 0.25, (("split", "train"),)), Sample("dl.step.time", 9.0, (("split", "val"),))]
    )
    one.samples(6, [Sample("hw.gpu.utilization", 0.5, (("hw.id", "a"), ("index", 0)))])
    two = a_run(tmp_path, 2).log({"loss": [1.0]})
    charts = {chart["title"]: chart for chart in compare(read(one, two))["charts"]["pace"]}
    assert charts["Step time"]["lines"][0]["y"] == [0.25]
    assert (charts["GPU utilisation"]["unit"], charts["GPU utilisation"]["lines"][0]["y"]) == ("%", [50.0])
    assert [line["run"] for line in charts["GPU utilisation"]["lines"]] == [run_id(1)]


def test_more_runs_than_curves_can_show_are_compared_out_of_the_index(tmp_path: Path, opened: Any) -> None:
    """Fifty runs: facts, configuration, results and columns as the index has them, no curves, unknown ones named."""
    from otel_train.view.index import RunIndex

    count = MOST_CURVES + 10
    for number in range(count):
        builder = a_run(tmp_path, number, config={"lr": number + 1, "same": 1}, metrics={"loss": {"goal": "min"}})
        builder.log({"loss": [5.0, float(number)]}, split="val", steps=[0, 1]).end(at_s=60)
    index = RunIndex(tmp_path, lambda: NOW_NS)
    index.refresh(None)
    ids = [run_id(number) for number in range(count)]
    payload = asked([*ids, "unknown"], opened, index.row)
    assert [run["id"] for run in payload["runs"]] == ids
    assert [one["id"] for one in payload["missing"]] == ["unknown"]
    assert payload["charts"] == {"metrics": [], "pace": []}
    row = next(row for row in payload["results"]["rows"] if row["key"] == "val/loss")
    assert [cell["last"] for cell in row["cells"]] == [float(number) for number in range(count)]
    assert row["winners"] == [0]
    columns = {column["key"]: column for column in payload["columns"]}
    assert columns["config.lr"]["values"] == [number + 1.0 for number in range(count)]
    assert "config.same" not in columns
    assert columns["best.val/loss"]["values"] == [float(min(5, number)) for number in range(count)]
