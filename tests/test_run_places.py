"""Where a run is, and what an earlier attempt of it held."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import otel_train
from otel_train.testing import recorded


def test_a_change_of_folder_leaves_the_run_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hydra and notebooks change the working folder: the relative default root stays where it was at init()."""
    monkeypatch.chdir(tmp_path)
    elsewhere = tmp_path / "out"
    elsewhere.mkdir()
    (tmp_path / "rows.csv").write_text("1,2\n")
    with otel_train.init(dir="runs") as run:
        with run.stage("read", inputs="rows.csv"):
            run.log_checkpoint("rows.csv")
            os.chdir(elsewhere)
        run.log({"loss": 1.0})
    assert run.path == tmp_path / "runs" / run.id
    assert list(elsewhere.iterdir()) == []
    document = json.loads((run.path / "run.json").read_text())
    assert document["status"] == "finished"
    assert document["stages"][0]["inputs"][0]["absolute"] == str(tmp_path / "rows.csv")
    assert len(document["stages"][0]["inputs"][0]["checksum"]["value"]) == 64
    assert document["checkpoints"][0]["sha256"] == document["stages"][0]["inputs"][0]["checksum"]["value"]
    assert recorded(run).values("loss", "train") == [1.0]


def test_a_changed_data_set_is_said_when_a_run_goes_on(tmp_path: Path) -> None:
    """The same name with other rows: the change stands in run.json and in an event, with both checksums."""
    with otel_train.init(dir=tmp_path, config={"lr": 1e-4}) as first:
        first.log_dataset("train", [1, 2, 3])
        first.log_dataset("val", [4])
    with otel_train.init(dir=tmp_path, config={"lr": 5e-5}, resume=first.id) as second:
        second.log_dataset("train", [1, 2, 4])
        second.log_dataset("val", [4])
    document = json.loads((second.path / "run.json").read_text())
    checksums = [record["checksum"]["value"] for record in document["datasets"] if record["name"] == "train"]
    changes = {(row["what"], row["key"]): (row["old"], row["new"]) for row in document["attempts"][1]["changes"]}
    assert changes == {("data", "train"): tuple(checksums), ("config", "lr"): (1e-4, 5e-5)}
    assert checksums[0] != checksums[1]
