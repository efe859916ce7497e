"""The first chart of a long run, before all of it is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from otel_train.clock import NS_PER_S
from otel_train.errors import RunFolderError
from otel_train.view import first_look as module
from otel_train.view.first_look import first_look, is_long
from otel_train.view.parts import build_parts
from otel_train.view.reading import read_run
from tests.runs import START_NS, RunBuilder

NOW_NS = START_NS + 600 * NS_PER_S


def made(root: Path) -> RunBuilder:
    builder = RunBuilder(root).attempt()
    builder.log({"accuracy": [0.1, 0.5, 0.9], "loss": [3.0, float("nan"), 1.0]}, steps=[0, 1, 2], epochs=[0, 0, 1])
    builder.log({"loss": [2.5, 1.5]}, split="val", steps=[1, 2], times_s=[2.5, 3.5])
    builder.record("hello")
    return builder.end()


def test_the_first_chart_is_that_of_the_whole_page(tmp_path: Path) -> None:
    """A loss comes first, both splits with it; lines, marks, best values and numbers are those of a full reading."""
    builder = made(tmp_path)
    found = first_look(builder.path, NOW_NS)
    page: Any = build_parts(read_run(builder.path, NOW_NS), ["head", "metrics"])
    assert [chart["title"] for chart in found["charts"]["metrics"]] == ["loss"]
    assert found["charts"]["metrics"][0] == page["charts"]["metrics"][0]
    assert found["charts"]["metrics"][0]["lines"][0]["x"]["step"] == [0, 1, 2]
    assert [(row["key"], row["split"], row["points"]) for row in found["summary"]] == [
        ("loss", "train", 3),
        ("loss", "val", 2),
    ]
    assert (found["axes"], found["elapsed_s"]) == (page["axes"], page["elapsed_s"])


def test_without_a_loss_the_first_metric_is_shown(tmp_path: Path) -> None:
    """In the order of the log."""
    builder = RunBuilder(tmp_path).attempt().log({"b": [1.0], "a": [2.0]}, steps=[0])
    assert [chart["title"] for chart in first_look(builder.path, NOW_NS)["charts"]["metrics"]] == ["b"]


def test_a_run_without_metrics_has_no_first_chart(tmp_path: Path) -> None:
    """Records alone give an empty answer, and a folder that is no run's its own fault."""
    assert first_look(RunBuilder(tmp_path).attempt().record("hello").path, NOW_NS) == {}
    with pytest.raises(RunFolderError):
        first_look(tmp_path / "nothing", NOW_NS)


def test_what_is_long_is_told_by_the_size_of_its_points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted as they were written: a gzipped segment ten times."""
    builder = made(tmp_path)
    (segment,) = builder.path.glob("attempt-1/rank-0/metrics.*.jsonl")
    size = segment.stat().st_size
    assert not is_long(builder.path)
    monkeypatch.setattr(module, "LONG_BYTES", size)
    assert is_long(builder.path)
    monkeypatch.setattr(module, "LONG_BYTES", size + 1)
    assert not is_long(builder.path)
    segment.rename(segment.with_name(segment.name + ".gz"))
    monkeypatch.setattr(module, "LONG_BYTES", 10 * size)
    assert is_long(builder.path)
    monkeypatch.setattr(module, "LONG_BYTES", 10 * size + 1)
    assert not is_long(builder.path)
