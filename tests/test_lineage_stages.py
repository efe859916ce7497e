"""A stage's record names what it read and made, with checksums, and says what was missing instead of raising."""

from __future__ import annotations

import functools
import hashlib
import json

import numpy as np

from otel_train.lineage import stages
from otel_train.lineage.array_hashing import array_checksum
from otel_train.lineage.files import FILE_LIMIT, add_checksums, describe_code, describe_files, without_credentials
from otel_train.lineage.hashing import folder_checksum
from otel_train.lineage.stages import StageRecord


def test_a_stage_tells_inputs_outputs_code_parameters_and_duration(tmp_path):
    """Times are the wall clock's, the duration the monotonic clock's, even when the wall clock was set back."""
    (tmp_path / "raw.csv").write_text("1\n")
    (tmp_path / "clean.py").write_text("print()\n")
    stage = StageRecord("clean", base=tmp_path, hash_now=True, parent="pipeline")
    stage.start(1_767_225_600_000_000_000, 5_000_000_000)
    stage.add_inputs("raw.csv")
    stage.add_code("clean.py")
    (tmp_path / "clean.csv").write_text("2\n")
    stage.add_outputs({"features": "clean.csv"})
    stage.set_parameters({"threshold": np.float64(0.5), "columns": ("a", "b")})
    stage.end(1_767_225_595_000_000_000, 7_500_000_000)
    entry = stage.to_dict()
    assert json.loads(json.dumps(entry, allow_nan=False)) == entry
    assert (entry["name"], entry["status"], entry["parent"]) == ("clean", "ok", "pipeline")
    assert (entry["started"], entry["ended"]) == ("2026-01-01T00:00:00.000000Z", "2025-12-31T23:59:55.000000Z")
    assert entry["duration_s"] == 2.5
    assert entry["parameters"] == {"threshold": 0.5, "columns": ["a", "b"]}
    [raw], [clean], [code] = entry["inputs"], entry["outputs"], entry["code"]
    assert raw["checksum"]["value"] == hashlib.sha256(b"1\n").hexdigest()
    assert (raw["path"], raw["absolute"], raw["kind"], raw["size"]) == ("raw.csv", str(tmp_path / "raw.csv"), "file", 2)
    assert (clean["name"], clean["checksum"]["value"]) == ("features", hashlib.sha256(b"2\n").hexdigest())
    assert code["checksum"]["value"] == hashlib.sha256(b"print()\n").hexdigest()
    assert "problems" not in entry


def test_checksums_may_come_later(tmp_path):
    """Files wait for `complete`, which runs off the training thread; the record is whole before, too."""
    (tmp_path / "raw.csv").write_text("1\n")
    stage = StageRecord("clean", base=tmp_path)
    stage.add_inputs(["raw.csv"])
    before = stage.to_dict()
    assert stage.pending
    assert before["inputs"][0]["pending"] is True
    stage.complete()
    assert not stage.pending
    assert stage.to_dict()["inputs"][0]["checksum"]["value"] == hashlib.sha256(b"1\n").hexdigest()
    assert "pending" not in stage.to_dict()["inputs"][0]
    assert "checksum" not in before["inputs"][0]


def test_a_failed_stage_keeps_its_status_and_error():
    """The record says what ended it."""
    stage = StageRecord("train")
    stage.start(0, 0)
    assert stage.to_dict()["status"] == "running"
    stage.end(1, 1_000_000_000, "failed", "ValueError: no data")
    entry = stage.to_dict()
    assert (entry["status"], entry["error"], entry["duration_s"]) == ("failed", "ValueError: no data", 1.0)


def test_globs_folders_urls_and_missing_files_each_have_their_kind(tmp_path):
    """A glob lists its matches in order, a folder has one checksum, a URL none, and what is missing is said."""
    for name in ("b.csv", "a.csv", "deep/c.csv"):
        path = tmp_path / "data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    entries = describe_files(["data/**/*.csv", "data", "s3://u:p@bucket/x?sig=1", "gone.csv", "*.txt"], base=tmp_path)
    assert [entry["kind"] for entry in entries] == ["file", "file", "file", "folder", "url", "missing", "missing"]
    assert [entry["absolute"] for entry in entries[:3]] == [
        str(tmp_path / "data" / name) for name in ("a.csv", "b.csv", "deep/c.csv")
    ]
    assert {entry["pattern"] for entry in entries[:3]} == {"data/**/*.csv"}
    assert entries[3]["checksum"]["value"] == folder_checksum(tmp_path / "data").value
    assert (entries[3]["files"], entries[3]["size"]) == (3, 20)
    assert entries[4] == {"path": "s3://bucket/x", "kind": "url"}
    assert entries[5]["problem"] == "cannot be read: No such file or directory"
    assert entries[6]["problem"] == "no file matches"


def test_a_name_with_brackets_that_exists_is_a_file_and_no_glob(tmp_path):
    """data[1].csv is a name people use."""
    (tmp_path / "data[1].csv").write_text("x")
    [entry] = describe_files("data[1].csv", base=tmp_path)
    assert (entry["kind"], entry["size"]) == ("file", 1)
    [by_url] = describe_files((tmp_path / "data[1].csv").as_uri())
    assert by_url["checksum"] == entry["checksum"]


def test_arrays_in_memory_are_inputs_with_checksums():
    """A stage without files still tells what it worked on; an iterator has no checksum and is not consumed."""
    array = np.arange(6).reshape(2, 3)
    items = iter([1, 2])
    [first, second] = describe_files([array, items])
    assert (first["kind"], first["type"], first["shape"]) == ("value", "numpy.ndarray", [2, 3])
    assert first["checksum"] == array_checksum(array).to_dict()
    assert second["problem"].startswith("no checksum")
    assert list(items) == [1, 2]


def test_too_many_files_are_bounded_and_said(tmp_path):
    """The list ends at the limit."""
    for number in range(5):
        (tmp_path / f"{number}.csv").write_text("x")
    entries = describe_files("*.csv", base=tmp_path, limit=3)
    assert len(entries) == 3
    assert entries[-1]["problem"] == "only the first 3 files are listed"
    stage = StageRecord("many", base=tmp_path)
    for _ in range(FILE_LIMIT // 5 + 1):
        stage.add_inputs("*.csv")
    assert len(stage.inputs) == FILE_LIMIT
    assert stage.problems == [f"only the first {FILE_LIMIT} inputs are listed"]


def test_code_is_a_script_a_folder_or_the_file_of_a_function(tmp_path):
    """A function's code is the file it is written in, decorated ones too; leftovers of a folder do not count."""
    [entry] = describe_code(test_code_is_a_script_a_folder_or_the_file_of_a_function)
    assert entry["absolute"] == __file__
    with open(__file__, "rb") as handle:
        assert entry["checksum"]["value"] == hashlib.sha256(handle.read()).hexdigest()
    assert entry["function"] == "test_code_is_a_script_a_folder_or_the_file_of_a_function"
    [partial] = describe_code(functools.partial(without_credentials, ""))
    assert (partial["function"], partial["absolute"].endswith("files.py")) == ("without_credentials", True)
    [module] = describe_code(stages)
    assert module["absolute"] == stages.__file__
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "a.py").write_text("x")
    [before] = describe_code("code", base=tmp_path)
    (tmp_path / "code" / "__pycache__").mkdir()
    (tmp_path / "code" / "__pycache__" / "a.pyc").write_text("y")
    [after] = describe_code("code", base=tmp_path)
    assert before["checksum"] == after["checksum"]
    namespace: dict[str, object] = {}
    exec("def typed_in(): pass", namespace)
    assert "its source is not known" in describe_code(namespace["typed_in"])[0]["problem"]


def test_wrong_arguments_are_said_and_never_raised():
    """After the start of a run nothing of the telemetry raises."""

    class Hostile:
        @property
        def shape(self):
            raise RuntimeError("not today")

    stage = StageRecord("odd")
    stage.add_inputs(Hostile())
    stage.add_inputs(None)
    stage.set_parameters([1, 2])
    stage.set_parameters(None)
    assert stage.problems == [
        "inputs could not be described: RuntimeError: not today",
        "parameters are a mapping of names to values, not a list",
    ]
    assert stage.to_dict()["inputs"] == []


def test_a_file_that_vanishes_before_it_is_hashed_is_said(tmp_path):
    """Its size and time are kept, the checksum is not there, and the problem says why."""
    path = tmp_path / "short-lived.csv"
    path.write_text("x")
    [entry] = describe_files(path, hash_now=False)
    path.unlink()
    completed = add_checksums(entry)
    assert completed["problem"] == "no checksum: No such file or directory"
    assert "checksum" not in completed
    assert completed["size"] == 1
