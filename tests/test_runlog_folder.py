"""A run's folder is made once, its description is whole or the one before, and what is no run is told so."""

from __future__ import annotations

import json
import math
import os
import re
import threading
from pathlib import Path
from typing import Any

import pytest
from runlog_lines import RUN_ID, make_run

from otel_train.errors import ConfigError, RunFolderError, RunIdInUseError
from otel_train.runlog.folder import OWN_RUN_ID, RunFolder, check_run_id


def test_an_id_is_given_once(tmp_path: Path) -> None:
    """A second run of the same id is refused, with what to do instead, and the first is untouched."""
    RunFolder.create(tmp_path / "new" / "root", RUN_ID, {"run_id": RUN_ID, "notes": "first"})
    with pytest.raises(RunIdInUseError, match=re.escape(f"resume='{RUN_ID}'")):
        RunFolder.create(tmp_path / "new" / "root", RUN_ID, {"run_id": RUN_ID})
    assert RunFolder.open(tmp_path / "new" / "root" / RUN_ID).read() == {
        "format": 1,
        "run_id": RUN_ID,
        "notes": "first",
    }


def test_of_many_that_want_the_same_id_one_gets_it(tmp_path: Path) -> None:
    """Exclusive creation decides."""
    outcomes: list[bool] = []

    def create() -> None:
        try:
            RunFolder.create(tmp_path, RUN_ID, {"run_id": RUN_ID})
            outcomes.append(True)
        except RunIdInUseError:
            outcomes.append(False)

    threads = [threading.Thread(target=create) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == [False] * 7 + [True]


@pytest.mark.parametrize("run_id", ["", ".hidden", "a/b", "a b", "..", "ü", "x" * 129, "a\n"])
def test_an_id_that_no_folder_should_carry_is_refused(run_id: str) -> None:
    """The error names the field, the value and the fix."""
    with pytest.raises(ConfigError, match="run_id=") as caught:
        check_run_id(run_id)
    assert caught.value.value == run_id


def test_ids_of_others_are_allowed() -> None:
    """Readable ids stay as they are; ours have one form."""
    assert check_run_id("Exp_3.b-final") == "Exp_3.b-final"
    assert OWN_RUN_ID.fullmatch(RUN_ID)
    assert not OWN_RUN_ID.fullmatch("20260101-000000-abcdefg1")


def test_an_update_changes_only_what_it_changes(tmp_path: Path) -> None:
    """The rest of the description stays, and no temporary file is left."""
    folder = make_run(tmp_path)
    assert folder.update(lambda document: document.update(status="finished"))
    document = folder.read()
    assert (document["status"], document["run_name"], document["format"]) == ("finished", "first", 1)
    assert sorted(path.name for path in folder.path.iterdir()) == ["attempt-1", "run.json", "run.lock"]


def test_updates_from_many_threads_and_objects_are_all_kept(tmp_path: Path) -> None:
    """Reading and replacing is one step: no change is lost."""
    make_run(tmp_path)

    def add(number: int) -> None:
        RunFolder(tmp_path / RUN_ID).update(lambda document: document.setdefault("tags", []).append(number))

    threads = [threading.Thread(target=add, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(RunFolder(tmp_path / RUN_ID).read()["tags"]) == list(range(12))


def test_a_change_that_the_disk_refused_goes_out_with_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """False and one warning with the path; nothing is torn, and nothing is forgotten."""
    folder = make_run(tmp_path)

    def full(source: Any, target: Any) -> None:
        raise OSError(28, os.strerror(28))

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full)
        assert not folder.update(lambda document: document.update(notes="kept"))
        assert not folder.update(lambda document: document.update(group="also"))
    assert [record.getMessage() for record in caplog.records] == [
        f"cannot write {folder.path / 'run.json'}: No space left on device"
    ]
    assert "notes" not in RunFolder(folder.path).read()
    assert folder.update(lambda document: document.update(status="finished"))
    document = RunFolder(folder.path).read()
    assert (document["notes"], document["group"], document["status"]) == ("kept", "also", "finished")
    assert [path.name for path in folder.path.iterdir() if path.suffix == ".tmp"] == []


def test_a_damaged_description_is_mended_by_the_next_update(tmp_path: Path) -> None:
    """Who wrote it last knows it still; somebody else refuses rather than write an empty one."""
    folder = RunFolder.create(tmp_path, RUN_ID, {"run_id": RUN_ID, "notes": "n"})
    (folder.path / "run.json").write_bytes(b'{"run_id": "2026')
    assert not RunFolder(folder.path).update(lambda document: document.clear())
    assert folder.update(lambda document: document.update(status="finished"))
    assert folder.read() == {"format": 1, "run_id": RUN_ID, "notes": "n", "status": "finished"}


def test_the_description_is_strict_json(tmp_path: Path) -> None:
    """A configuration may hold NaN, objects and odd text; the file is read by any parser all the same."""
    config = {"nan": math.nan, "deep": [{"inf": -math.inf}], "path": Path("a"), "text": "a\ud800ü\u2028"}
    folder = RunFolder.create(tmp_path, RUN_ID, {"run_id": RUN_ID, "config": config})

    def refuse(name: str) -> float:
        raise AssertionError(name)

    document = json.loads((folder.path / "run.json").read_text(encoding="utf-8"), parse_constant=refuse)
    assert document["config"] == {"nan": "NaN", "deep": [{"inf": "-Infinity"}], "path": "a", "text": "a?ü\u2028"}


def test_attempts_and_ranks_are_numbered_and_listed_in_order(tmp_path: Path) -> None:
    """Ten comes after nine; what is no attempt is passed over."""
    folder = RunFolder.create(tmp_path, RUN_ID, {"run_id": RUN_ID})
    assert [folder.create_attempt() for _ in range(11)] == list(range(1, 12))
    for rank in (10, 2, 0):
        folder.rank_folder(11, rank)
    (folder.path / "attempt-x").mkdir()
    assert folder.attempts() == list(range(1, 12))
    assert folder.ranks(11) == [0, 2, 10]
    assert [(a, r) for a, r, _ in folder.rank_folders()] == [(11, 0), (11, 2), (11, 10)]
    assert folder.rank_folders(attempt=11, rank=2) == [(11, 2, folder.path / "attempt-11" / "rank-2")]
    assert folder.artifacts() == folder.path / "artifacts"
    assert folder.artifacts().is_dir()


def make_empty(path: Path) -> None:
    path.mkdir()


def make_foreign(path: Path) -> None:
    path.mkdir()
    (path / "events.out.tfevents.1").write_bytes(b"x")


def make_file(path: Path) -> None:
    path.write_bytes(b"x")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (make_empty, "is empty: it is not a run's folder"),
        (make_foreign, "holds neither run.json nor attempt folders: it is not a run's folder"),
        (make_file, "is a file, not a run's folder"),
        (lambda path: None, "is not there, not a run's folder"),
    ],
)
def test_what_is_no_run_is_told_so(tmp_path: Path, make: Any, message: str) -> None:
    """Empty, foreign, missing and plain files each have their message, with the path."""
    path = tmp_path / "thing"
    make(path)
    with pytest.raises(RunFolderError, match=re.escape(f"{path} {message}")):
        RunFolder.open(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is damaged"),
        (b"{", "is damaged"),
        (b"\xff\xfe\x00", "is damaged"),
        (b"[" * 100_000, "is damaged"),
        (b"[]", "is not a run's description"),
        (b'{"format": 1}', "is not a run's description"),
        (b'{"format": 2, "run_id": "x"}', "has format 2; this otel-train reads up to 1"),
        (None, "is missing"),
    ],
)
def test_a_description_that_cannot_be_read_says_why(tmp_path: Path, content: bytes | None, message: str) -> None:
    """Cut, binary, bottomless, foreign, from a later version, missing."""
    folder = make_run(tmp_path)
    path = folder.path / "run.json"
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(RunFolderError, match=re.escape(f"{path} {message}")):
        folder.read()
